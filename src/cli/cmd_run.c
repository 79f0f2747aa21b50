/* reel run: one prompt, one answer. */
#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"
#include "cli/answer.h"
#include "cli/attachments.h"
#include "cli/commands.h"
#include "cli/input.h"
#include "cli/model_path.h"
#include "cli/open_model.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "cli/think_view.h"
#include "cli/token_json.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_TOKENS   256
#define MAX_STOP_STRINGS 16  /* include/reel.h, stop_strings, */
#define MAX_STOP_BYTES   256 /* of each */
/* How the demo model begins when nothing is asked of it. */
#define DEMO_OPENING "It was a fine morning in the beginning of April, and"

static const struct cli_option options[] = {
    { .name = "attach",
      .letter = 'a',
      .kind = CLI_TEXT,
      .argument = "FILE",
      .repeats = true,
      .others = "attachment attachments fragment",
      .help = "put this text file into the message, under its name and before the text; - is "
              "standard input; may be given several times" },
    { .name = "tokens",
      .letter = 'n',
      .kind = CLI_INTEGER,
      .argument = "N",
      .most = INT_MAX,
      .others = "max-tokens max_tokens max-new-tokens n-predict num-predict predict",
      .help = "stop after N tokens; 0 is when the context is full; default 256" },
    { .name = "stop",
      .kind = CLI_TEXT,
      .argument = "TEXT",
      .repeats = true,
      .help = "stop before this text; may be given 16 times" },
    { .name = "ignore-eos", .kind = CLI_FLAG, .help = "go on after the model's own stop tokens" },
    { .name = "raw",
      .kind = CLI_FLAG,
      .help = "no chat template; control tokens in the text such as <|im_end|> are recognised" },
    { .name = "system",
      .kind = CLI_TEXT,
      .argument = "TEXT",
      .others = "system-prompt instructions",
      .help = "system message before the prompt; chat models only" },
    { .name = "think",
      .kind = CLI_CHOICE,
      .argument = "WHEN",
      .choices = "on off",
      .help = "on or off: whether the model thinks first, where its template can say so" },
    { .name = "json",
      .kind = CLI_FLAG,
      .help = "print one JSON object with text, ids, reason and timings, and with --logprobs "
              "log-probabilities, at the end" },
    { .name = "logprobs",
      .kind = CLI_INTEGER,
      .argument = "N",
      .most = REEL_MAX_TOP_LOGPROBS,
      .others = "top-logprobs n-probs",
      .help =
          "with --json: the log-probability of each token, and the N likeliest tokens with "
          "theirs (0 to 20), before temperature and penalties; on a GPU each token then takes a "
          "launch of its own" },
    { .name = "quiet", .letter = 'q', .kind = CLI_FLAG, .help = "no figures on standard error" },
};
static const struct cli_group group = CLI_GROUP("Options", options);

struct run {
    const struct cli_args *args;
    struct reel_model *model, *draft;
    struct reel_session *session;
    struct progress progress;
    struct buffer prompt;
    struct attachments attached;
    bool echo; /* the prompt is shown before the answer */
    int32_t *ids;
    size_t n_ids;
    bool inside; /* the prompt opened thinking */
    struct reel_sampling sampling;
    struct answer answer;
    json_t *logprobs; /* of each token, with --logprobs; else NULL */
    double load_ms;
};

/* Files alone are a message, where nobody could type or pipe the text. */
static bool only_attached(const struct cli_args *args) {
    return !input_given(args) && attachments_given(args) &&
           (attachments_take_stdin(args) || terminal_is(stdin));
}

static enum reel_status check_attached(const struct cli_args *args, struct reel_error *err) {
    if (!attachments_given(args)) return REEL_OK;
    if (cli_has(args, "raw"))
        return err_set(err, REEL_E_ARGUMENT,
                       "--raw takes one text as it is; --attach has no place in it");
    if (attachments_take_stdin(args) && strcmp(cli_text(args, "file", ""), "-") == 0)
        return err_set(err, REEL_E_ARGUMENT,
                       "--file - and --attach - both take standard input; give one of them");
    return REEL_OK;
}

/* Attached files, then the text: a question is best understood behind what it is about. */
static enum reel_status read_prompt(struct run *r, struct reel_error *err) {
    const struct cli_args *args = r->args;
    struct buffer *p = &r->prompt;
    if (model_path_is_demo(args->arguments[0]) && !input_given(args) && !attachments_given(args)) {
        r->echo = true;
        return buffer_text(p, DEMO_OPENING, err);
    }
    enum reel_status status = check_attached(args, err);
    if (status == REEL_OK) status = attachments_read(&r->attached, p, args, err);
    const size_t before = p->size;
    if (status != REEL_OK || only_attached(args)) return status;
    status = input_read(args, p, err);
    const bool typed = input_typed(args) || cli_has(args, "raw");
    if (status == REEL_OK && !typed && p->size > before && p->bytes[p->size - 1] == '\n')
        p->bytes[--p->size] = '\0'; /* the end of the file's last line is not part of the text */
    return status;
}

/* A pipe that nobody reads was meant to be read. */
static void tell_of_input(const struct run *r) {
    const struct cli_args *args = r->args;
    const bool ignored = r->echo || (input_typed(args) && !attachments_take_stdin(args));
    if (!ignored || cli_has(args, "quiet") || !input_waits()) return;
    fprintf(stderr, "reel: standard input is not read; %s\n",
            r->echo ? "-f - takes it as the text" : "--attach - adds it to the text");
}

/* A raw prompt that writes the begin-of-text token itself does not get a second one. */
static enum reel_status encode_plain(struct run *r, struct reel_error *err) {
    const struct reel_tokenizer *tok = reel_model_tokenizer(r->model);
    const unsigned flags = cli_has(r->args, "raw") ? REEL_ENCODE_CONTROL : 0u;
    enum reel_status status = input_encode(tok, r->prompt.bytes, r->prompt.size,
                                           flags | REEL_ENCODE_SPECIAL, &r->ids, &r->n_ids, err);
    if (status == REEL_OK && r->n_ids > 1 && r->ids[0] == r->ids[1] &&
        reel_token_is_control(tok, r->ids[0]))
        memmove(r->ids, r->ids + 1, --r->n_ids * sizeof *r->ids);
    return status;
}

static enum reel_status encode_chat(struct run *r, struct reel_error *err) {
    struct reel_message messages[2];
    int n = 0;
    const char *system = cli_text(r->args, "system", NULL), *think = cli_text(r->args, "think", "");
    if (memchr(r->prompt.bytes, '\0', r->prompt.size))
        return err_set(err, REEL_E_ARGUMENT, "the prompt contains a NUL byte");
    enum reel_status status =
        system ? input_check("--system", system, strlen(system), err) : REEL_OK;
    if (status != REEL_OK) return status;
    const size_t size = sizeof *messages;
    if (system)
        messages[n++] = (struct reel_message){ .size = size, .role = "system", .content = system };
    messages[n++] =
        (struct reel_message){ .size = size, .role = "user", .content = r->prompt.bytes };
    struct reel_chat_options chat = {
        .size = sizeof chat,
        .thinking = think[0] == '\0'           ? REEL_THINKING_DEFAULT
                    : strcmp(think, "on") == 0 ? REEL_THINKING_ON
                                               : REEL_THINKING_OFF,
    };
    r->inside = reel_chat_opens_thinking(r->model, &chat);
    return reel_chat_ids(r->model, messages, n, &chat, &r->ids, &r->n_ids, err);
}

/* A model without a template continues the text; one with an unknown template says so. */
static enum reel_status encode(struct run *r, struct reel_error *err) {
    struct reel_model_info info = { .size = sizeof info };
    info = cli_model_info(r->model);
    bool chat = info.chat_template && !cli_has(r->args, "raw");
    if (!chat && info.chat_template_sha256 && !cli_has(r->args, "raw"))
        return cli_refuse_template(&info, ", --raw takes the prompt as it is", err);
    if (chat && cli_has(r->args, "think") && !info.chat_thinks)
        return err_set(err, REEL_E_ARGUMENT, "--think: the %s chat template knows no thinking",
                       info.chat_template);
    if (!chat && (cli_has(r->args, "system") || cli_has(r->args, "think")))
        return err_set(err, REEL_E_ARGUMENT,
                       "--system and --think need a chat template; this model has none that is "
                       "known, or --raw turned it off");
    enum reel_status status = chat ? encode_chat(r, err) : encode_plain(r, err);
    if (status != REEL_OK) return status;
    if (r->n_ids == 0) return err_set(err, REEL_E_ARGUMENT, "the prompt is empty");
    if (r->n_ids > INT_MAX)
        return err_set(err, REEL_E_LIMIT, "the prompt has %zu tokens", r->n_ids);
    return REEL_OK;
}

static enum reel_status check_stops(const struct cli_args *args, struct reel_error *err) {
    const char *text;
    for (int i = 0; (text = cli_repeated(args, "stop", i)); i++) {
        const size_t n = strlen(text);
        if (i == MAX_STOP_STRINGS)
            return err_set(err, REEL_E_ARGUMENT, "--stop is given more than %d times",
                           MAX_STOP_STRINGS);
        if (n < 1 || n > MAX_STOP_BYTES)
            return err_set(err, REEL_E_ARGUMENT, "--stop: a text of %zu bytes; allowed are 1 to %d",
                           n, MAX_STOP_BYTES);
        enum reel_status status = input_check("--stop", text, n, err);
        if (status != REEL_OK) return status;
    }
    return REEL_OK;
}

/* The library would count ids; a person is told what to make shorter or larger. */
static enum reel_status check_room(const struct run *r, struct reel_error *err) {
    const int room = reel_session_max_context(r->session);
    const int most = cli_model_info(r->model).max_context;
    char file[200] = "", larger[60] = "";
    if (r->n_ids <= (size_t)room) return REEL_OK;
    if (r->attached.largest)
        (void)snprintf(file, sizeof file, "; the largest file, %.100s, has %zu of its %zu bytes",
                       r->attached.largest, r->attached.largest_bytes, r->prompt.size);
    if (room < most) (void)snprintf(larger, sizeof larger, "; --ctx makes room, up to %d", most);
    return err_set(err, REEL_E_CONTEXT, "the prompt has %zu tokens, the context %d positions%s%s",
                   r->n_ids, room, larger, file);
}

static enum reel_status start_logprobs(struct run *r, struct reel_error *err) {
    if (!cli_has(r->args, "logprobs")) return REEL_OK;
    if (!cli_has(r->args, "json"))
        return err_set(err, REEL_E_ARGUMENT, "--logprobs goes with --json");
    r->logprobs = json_array();
    return r->logprobs ? REEL_OK : err_memory(err, "the log-probabilities", 0);
}

static bool keep_logprobs(void *user, const struct reel_token *token) {
    struct run *r = user;
    json_t *object = token_with_logprobs(reel_model_tokenizer(r->model), token);
    return object && json_array_append_new(r->logprobs, object) == 0;
}

static enum reel_status make_answer(struct run *r, struct reel_error *err) {
    const char *stops[MAX_STOP_STRINGS + 1];
    int n = 0;
    bool json = cli_has(r->args, "json");
    struct page page;
    struct think_view view = { .out = stdout };
    page_start(&page, stdout);
    if (cli_has(r->args, "raw")) page.styled = false; /* what is no chat may be no Markdown */
    if (terminal_is(stdout)) {
        view.page = &page;
        view.styled = page.styled;
    }
    while (n <= MAX_STOP_STRINGS && (stops[n] = cli_repeated(r->args, "stop", n)))
        n++;
    struct answer_request request = {
        .ids = r->ids,
        .n_ids = (int)r->n_ids,
        .sampling = &r->sampling,
        .speculation = cli_speculation(r->args, REEL_SPECULATION_AUTO),
        .most_drafts = (int)cli_integer(r->args, "draft-max", 0),
        .max_tokens = (int)cli_integer(r->args, "tokens", DEFAULT_TOKENS),
        .stop_strings = stops,
        .n_stop_strings = n,
        .ignore_stop_ids = cli_has(r->args, "ignore-eos"),
        .progress = &r->progress,
        .put = json ? NULL : think_view_put,
        .user = &view,
        .logprobs = r->logprobs != NULL,
        .n_top = (int)cli_integer(r->args, "logprobs", 0),
        .token = r->logprobs ? keep_logprobs : NULL,
        .token_user = r,
    };
    if (r->echo && !json) think_view_put(&view, r->prompt.bytes, r->prompt.size);
    if (!json) think_view_start(&view, r->inside);
    enum reel_status status = answer_make(&r->answer, r->session, &request, err);
    if (!json) think_view_finish(&view);
    if (status == REEL_OK && !json && !view.page) putchar('\n');
    if (status == REEL_OK && r->logprobs &&
        json_array_size(r->logprobs) != (size_t)r->answer.n_tokens)
        status = err_set(err, REEL_E_MEMORY, "out of memory: the log-probabilities");
    return status;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static json_t *id_list(const int32_t *ids, int n) {
    json_t *list = json_array();
    for (int i = 0; list && i < n; i++)
        if (json_array_append_new(list, json_integer(ids[i])) != 0) break;
    return list;
}

static enum reel_status print_json(const struct run *r, struct reel_error *err) {
    const struct answer *a = &r->answer;
    struct reel_model_info info = { .size = sizeof info };
    info = cli_model_info(r->model);
    const int32_t *ids = reel_session_ids(r->session);
    json_t *object = json_pack(
        "{s:s, s:s, s:s, s:s+#, s:o, s:o, s:s, s:I, s:{s:f, s:f, s:f, s:f, s:i, s:i, s:f, s:f, "
        "s:i, s:f, s:f, s:i, s:i, s:i}}",
        "model", info.name, "backend", info.backend, "backend_path", info.backend_path, "text",
        r->inside ? THINK_OPENING : "", a->text.bytes, (int)a->text.size, "ids",
        id_list(ids + a->n_prompt, a->n_tokens), "prompt_ids", id_list(ids, a->n_prompt), "reason",
        answer_reason_key(a->reason), "seed", (json_int_t)r->sampling.seed, "timings", "load_ms",
        r->load_ms, "driver_ms", info.driver_ms, "compile_ms", info.compile_ms, "weights_ms",
        info.load_ms, "prompt_tokens", a->n_prompt, "reused_tokens", a->n_reused, "prompt_ms",
        a->prompt_ms, "first_token_ms", a->first_token_ms, "tokens", a->n_tokens, "generate_ms",
        a->generate_ms, "tokens_per_s", a->tokens_per_s, "passes", a->n_passes, "drafted",
        a->n_drafted, "accepted", a->n_accepted);
    const bool whole = object &&
                       (!r->logprobs || json_object_set(object, "logprobs", r->logprobs) == 0) &&
                       answer_problem_to_json(object, a);
    char *text = whole ? json_dumps(object, JSON_REAL_PRECISION(9)) : NULL;
    json_decref(object);
    if (!text) return err_set(err, REEL_E_MEMORY, "out of memory: the result as JSON");
    puts(text);
    free(text);
    return REEL_OK;
}

/* ---- the command ----------------------------------------------------------------------------- */

static enum reel_status report(const struct run *r, struct reel_error *err) {
    enum reel_status status = cli_has(r->args, "json") ? print_json(r, err) : REEL_OK;
    fflush(stdout);
    if (!cli_has(r->args, "quiet")) {
        answer_print_figures(stderr, &r->answer);
        if (r->sampling.temperature > 0)
            fprintf(stderr, " | seed %llu", (unsigned long long)r->sampling.seed);
        fputc('\n', stderr);
    }
    if (status == REEL_OK && r->answer.reason == REEL_STOP_CANCELLED) return REEL_E_CANCELLED;
    return status;
}

static void run_release(struct run *r) {
    answer_release(&r->answer);
    json_decref(r->logprobs);
    reel_free(r->ids);
    reel_session_close(r->session);
    reel_model_close(r->model);
    reel_model_close(r->draft);
    buffer_release(&r->prompt);
}

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    struct run r = { .args = args };
    interrupt_install();
    enum reel_status status = start_logprobs(&r, err);
    if (status == REEL_OK) status = check_stops(args, err);
    if (status == REEL_OK) status = read_prompt(&r, err);
    double start = clock_ms();
    if (status == REEL_OK) status = cli_model_open(&r.model, args, args->arguments[0], err);
    if (status == REEL_OK) status = cli_draft_open(&r.draft, r.model, args, err);
    if (status == REEL_OK) status = encode(&r, err);
    if (status == REEL_OK) status = cli_sampling(&r.sampling, r.model, args, err);
    if (status == REEL_OK)
        status = cli_session_open(&r.session, r.model, r.draft, args, &r.progress, err);
    if (status == REEL_OK) status = check_room(&r, err);
    if (status == REEL_OK) tell_of_input(&r);
    r.load_ms = clock_ms() - start;
    if (status == REEL_OK) status = make_answer(&r, err);
    if (status == REEL_OK) status = report(&r, err);
    run_release(&r);
    return status;
}

const struct cli_command cmd_run = {
    .name = "run",
    .arguments = "MODEL [TEXT...]",
    .least_arguments = 1,
    .most_arguments = INT_MAX,
    .summary = "answer or continue one text",
    .description =
        "Answers the prompt of a chat model, or continues the text of any other. The prompt is the "
        "text after the model, whose words are joined by spaces, or comes from -p, -f or standard "
        "input; it is given once, and run demo without it begins with a sentence of its own. A "
        "text that begins with a dash comes after --. "
        "For a model with a known chat template the prompt becomes a user's message; --raw takes "
        "it as it is.\n\n"
        "--attach puts text files before the prompt, each under its name: reel run MODEL --attach "
        "notes.txt \"What is decided?\"\n\n"
        "The text streams to standard output; figures follow on standard error. Ctrl-C ends the "
        "text.",
    .groups = { &cli_input_group, &group, &cli_sampling_group, &cli_speculation_group,
                &cli_context_group, &cli_model_group },
    .run = run,
};
