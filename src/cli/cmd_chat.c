/* reel chat: a conversation. What the session holds is made equal to the rendered conversation at
 * each turn; a context that is full ends the answer with its reason and nothing is shifted out. */
#include "base/memory.h"
#include "cli/answer.h"
#include "cli/commands.h"
#include "cli/conversation.h"
#include "cli/folders.h"
#include "cli/line_reader.h"
#include "cli/open_model.h"
#include "cli/terminal.h"
#include "cli/think_view.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static const struct cli_option options[] = {
    { .name = "system",
      .kind = CLI_TEXT,
      .argument = "TEXT",
      .help = "begin with this system "
              "message" },
    { .name = "think",
      .kind = CLI_CHOICE,
      .argument = "WHEN",
      .choices = "on off",
      .help =
          "on or off: whether the model thinks before it answers, where its template can say so" },
    { .name = "tokens",
      .letter = 'n',
      .kind = CLI_INTEGER,
      .argument = "N",
      .most = INT_MAX,
      .help = "stop each answer after N tokens; 0, the default, is when the context is full" },
    { .name = "no-history", .kind = CLI_FLAG, .help = "keep no file of the lines typed" },
};
static const struct cli_group group = CLI_GROUP("Options", options);

struct chat {
    const struct cli_args *args;
    struct reel_model *model;
    struct reel_session *session;
    struct progress progress;
    struct line_reader reader;
    struct conversation conversation;
    struct think_view view;
    struct reel_sampling sampling;
    enum reel_thinking thinking;
    struct answer last; /* figures only */
    int n_answers;
    bool quit;
};

/* ---- one turn -------------------------------------------------------------------------------- */

static enum reel_status context_full(const struct chat *c, int needed, struct reel_error *err) {
    int held = reel_session_max_context(c->session);
    return err_set(err, REEL_E_CONTEXT,
                   "the context is full: the conversation has %d tokens, %d fit (/reset begins "
                   "anew, -c makes more room)",
                   needed, held);
}

static enum reel_status render(const struct chat *c, const struct reel_chat_options *chat,
                               int32_t **ids, int *n, struct reel_error *err) {
    size_t n_ids = 0;
    enum reel_status status = reel_chat_ids(c->model, c->conversation.messages,
                                            c->conversation.n_messages, chat, ids, &n_ids, err);
    if (status != REEL_OK) return status;
    *n = n_ids > INT_MAX ? INT_MAX : (int)n_ids;
    return *n < reel_session_max_context(c->session) ? REEL_OK : context_full(c, *n, err);
}

/* What the reader should know beyond the text itself. */
static enum reel_status tell_reason(const struct chat *c, const struct answer *a,
                                    struct reel_error *err) {
    bool asked = a->reason == REEL_STOP_MAX_TOKENS && cli_integer(c->args, "tokens", 0);
    if (a->reason == REEL_STOP_CONTEXT) return context_full(c, a->n_prompt + a->n_tokens, err);
    if (a->reason == REEL_STOP_CANCELLED)
        fputs("[interrupted]\n", stderr);
    else if (asked)
        fputs("[token limit]\n", stderr);
    return REEL_OK;
}

static enum reel_status keep_answer(struct chat *c, const struct reel_chat_options *chat,
                                    const struct answer *a, struct reel_error *err) {
    struct reel_answer parts = { .size = sizeof parts };
    enum reel_status status =
        reel_chat_read_answer(c->model, chat, a->text.bytes, a->text.size, &parts, err);
    if (status == REEL_OK) status = conversation_add_answer(&c->conversation, &parts, err);
    reel_answer_release(&parts);
    return status;
}

static enum reel_status answer_turn(struct chat *c, struct reel_error *err) {
    int32_t *ids = NULL;
    struct answer a = { 0 };
    const struct reel_chat_options chat = { .size = sizeof chat, .thinking = c->thinking };
    struct answer_request request = { .sampling = &c->sampling,
                                      .max_tokens = (int)cli_integer(c->args, "tokens", 0),
                                      .progress = &c->progress,
                                      .put = think_view_put,
                                      .user = &c->view };
    enum reel_status status = render(c, &chat, &ids, &request.n_ids, err);
    request.ids = ids;
    if (status == REEL_OK) think_view_start(&c->view, reel_chat_opens_thinking(c->model, &chat));
    if (status == REEL_OK) status = answer_make(&a, c->session, &request, err);
    reel_free(ids);
    if (status != REEL_OK) return status;
    think_view_finish(&c->view);
    putchar('\n');
    fflush(stdout);
    status = keep_answer(c, &chat, &a, err);
    if (status == REEL_OK) status = tell_reason(c, &a, err);
    answer_release(&a);
    c->last = a;
    c->n_answers++;
    c->sampling.seed++; /* the same question twice may get two answers */
    return status;
}

/* Asks and answers. A question that got no answer at all is taken back. */
static enum reel_status take_turn(struct chat *c, const char *text, struct reel_error *err) {
    int before = c->conversation.n_messages;
    enum reel_status status = conversation_add(&c->conversation, "user", text, err);
    interrupt_take();
    if (status == REEL_OK) status = answer_turn(c, err);
    interrupt_take();
    if (c->conversation.n_messages == before + 1) conversation_drop(&c->conversation);
    return status;
}

/* ---- commands -------------------------------------------------------------------------------- */

static enum reel_status do_reset(struct chat *c, const char *rest, struct reel_error *err) {
    (void)rest;
    (void)err;
    conversation_reset(&c->conversation);
    fputs("the conversation is empty\n", stderr);
    return REEL_OK;
}

static enum reel_status do_system(struct chat *c, const char *rest, struct reel_error *err) {
    enum reel_status status = conversation_set_system(&c->conversation, rest, err);
    if (status == REEL_OK) fputs(rest[0] ? "system message set\n" : "no system message\n", stderr);
    return status;
}

static enum reel_status do_think(struct chat *c, const char *rest, struct reel_error *err) {
    struct reel_model_info info = { .size = sizeof info };
    bool on = strcmp(rest, "on") == 0;
    if (!on && strcmp(rest, "off") != 0)
        return err_set(err, REEL_E_ARGUMENT, "/think takes on or off, found \"%s\"", rest);
    c->thinking = on ? REEL_THINKING_ON : REEL_THINKING_OFF;
    info = cli_model_info(c->model);
    if (info.chat_thinks)
        fprintf(stderr, "thinking %s\n", rest);
    else
        fputs("this model's template knows no thinking: nothing changes\n", stderr);
    return REEL_OK;
}

static enum reel_status do_save(struct chat *c, const char *rest, struct reel_error *err) {
    if (!rest[0]) return err_set(err, REEL_E_ARGUMENT, "/save needs a file name");
    enum reel_status status = conversation_save(&c->conversation, rest, err);
    if (status == REEL_OK) fprintf(stderr, "%s: %d messages\n", rest, c->conversation.n_messages);
    return status;
}

static enum reel_status do_stats(struct chat *c, const char *rest, struct reel_error *err) {
    (void)rest;
    (void)err;
    fprintf(stderr, "%d of %d positions used", reel_session_length(c->session),
            reel_session_max_context(c->session));
    if (c->n_answers) {
        fputs("; last: ", stderr);
        answer_print_figures(stderr, &c->last);
        if (c->sampling.temperature > 0)
            fprintf(stderr, " | seed %llu", (unsigned long long)c->sampling.seed - 1);
    }
    fputc('\n', stderr);
    return REEL_OK;
}

static enum reel_status do_quit(struct chat *c, const char *rest, struct reel_error *err) {
    (void)rest;
    (void)err;
    c->quit = true;
    return REEL_OK;
}

static enum reel_status do_help(struct chat *c, const char *rest, struct reel_error *err);

static const struct word {
    const char *name, *argument, *help;
    enum reel_status (*run)(struct chat *c, const char *rest, struct reel_error *err);
} words[] = {
    { "help", "", "this list", do_help },
    { "reset", "", "forget the conversation, keep the system message", do_reset },
    { "system", "TEXT", "set the system message; without TEXT remove it", do_system },
    { "think", "on|off", "let the model think before it answers", do_think },
    { "save", "FILE", "write the conversation as JSON", do_save },
    { "stats", "", "positions used; figures of the last answer", do_stats },
    { "quit", "", "leave; also Ctrl-D, or Ctrl-C twice", do_quit },
};
#define N_WORDS (sizeof words / sizeof *words)

static enum reel_status do_help(struct chat *c, const char *rest, struct reel_error *err) {
    (void)c;
    (void)rest;
    (void)err;
    for (size_t i = 0; i < N_WORDS; i++) {
        char left[40];
        snprintf(left, sizeof left, "/%s %s", words[i].name, words[i].argument);
        fprintf(stderr, "  %-16s%s\n", left, words[i].help);
    }
    fputs("  //TEXT          a message that begins with a slash\n"
          "A \\ at the end of a line continues the message. Ctrl-C ends the answer.\n",
          stderr);
    return REEL_OK;
}

/* text is what follows the slash. */
static enum reel_status take_command(struct chat *c, const char *text, struct reel_error *err) {
    const char *names[N_WORDS + 1] = { NULL };
    char name[32];
    size_t n = strcspn(text, " \t\n");
    if (n >= sizeof name) n = sizeof name - 1;
    memcpy(name, text, n);
    name[n] = '\0';
    const char *rest = text + n + strspn(text + n, " \t\n");
    for (size_t i = 0; i < N_WORDS; i++) {
        if (strcmp(words[i].name, name) == 0) return words[i].run(c, rest, err);
        names[i] = words[i].name;
    }
    const char *nearest = cli_nearest(name, names);
    return err_set(err, REEL_E_ARGUMENT, "/%s is no command%s%s; /help lists them", name,
                   nearest ? "; did you mean /" : "", nearest ? nearest : "");
}

/* ---- the conversation ------------------------------------------------------------------------ */

/* A failed turn ends a conversation that nobody can answer to; a person is told and goes on. */
static enum reel_status settle(const struct chat *c, enum reel_status status,
                               struct reel_error *err) {
    if (status == REEL_OK || !c->reader.interactive) return status;
    fprintf(stderr, "%s\n", err->text);
    *err = (struct reel_error){ 0 };
    return REEL_OK;
}

static enum reel_status take_line(struct chat *c, struct reel_error *err) {
    const char *text = c->reader.text.bytes;
    enum reel_status status = REEL_OK;
    if (text[0] == '/' && text[1] != '/')
        status = take_command(c, text + 1, err);
    else if (text[strspn(text, " \t\n")])
        status = take_turn(c, text + (text[0] == '/'), err);
    return settle(c, status, err);
}

static enum reel_status converse(struct chat *c, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    bool warned = false;
    while (status == REEL_OK && !c->quit) {
        switch (line_reader_next(&c->reader, err)) {
        case LINE_READ:
            warned = false;
            status = take_line(c, err);
            if (ferror(stdout)) c->quit = true; /* reported at the end */
            break;
        case LINE_INTERRUPTED:
            if (!c->reader.interactive) return REEL_E_CANCELLED;
            if (warned) return REEL_OK;
            fputs("Ctrl-C again leaves\n", stderr);
            warned = true;
            break;
        case LINE_CLOSED:
            c->quit = true;
            break;
        case LINE_FAILED:
            status = err->status;
            break;
        }
    }
    if (c->reader.interactive && !ferror(stdout)) putchar('\n');
    return status;
}

static enum reel_status check_template(const struct chat *c, struct reel_error *err) {
    struct reel_message hello = { .size = sizeof hello, .role = "user", .content = "" };
    struct reel_chat_options chat = { .size = sizeof chat, .thinking = c->thinking };
    char *text = NULL;
    size_t n = 0;
    struct reel_model_info info = { .size = sizeof info };
    info = cli_model_info(c->model);
    if (info.chat_template && !info.chat_thinks && cli_has(c->args, "think"))
        return err_set(err, REEL_E_ARGUMENT, "--think: the %s chat template knows no thinking",
                       info.chat_template);
    if (info.chat_template) return REEL_OK;
    /* the library says it best: no template, or an unknown one with its hash */
    enum reel_status status = reel_chat_text(c->model, &hello, 1, &chat, &text, &n, err);
    reel_free(text);
    return status;
}

static void greet(const struct chat *c) {
    struct reel_model_info info = { .size = sizeof info };
    if (!c->reader.interactive) return;
    info = cli_model_info(c->model);
    fprintf(stderr, "%s (%s, %s on %s), %d positions; /help lists commands\n", info.name,
            info.weight_type, info.backend_path, info.backend,
            reel_session_max_context(c->session));
}

static enum reel_status open_reader(struct chat *c, struct reel_error *err) {
    struct buffer path = { 0 };
    char *folder = NULL;
    bool keep = !cli_has(c->args, "no-history") && folder_of_state(&folder, NULL) == REEL_OK &&
                folder_make(folder, NULL) == REEL_OK &&
                buffer_printf(&path, NULL, "%s/history", folder) == REEL_OK;
    enum reel_status status = line_reader_open(&c->reader, keep ? path.bytes : NULL, err);
    buffer_release(&path);
    mem_free(folder);
    return status;
}

static enum reel_status open_chat(struct chat *c, struct reel_error *err) {
    const char *system = cli_text(c->args, "system", NULL), *think = cli_text(c->args, "think", "");
    if (think[0]) c->thinking = strcmp(think, "on") == 0 ? REEL_THINKING_ON : REEL_THINKING_OFF;
    enum reel_status status = cli_model_open(&c->model, c->args, c->args->arguments[0], err);
    if (status == REEL_OK) status = check_template(c, err);
    if (status == REEL_OK) status = cli_sampling(&c->sampling, c->model, c->args, err);
    if (status == REEL_OK)
        status = cli_session_open(&c->session, c->model, c->args, &c->progress, err);
    if (status == REEL_OK && system)
        status = conversation_set_system(&c->conversation, system, err);
    if (status == REEL_OK) status = open_reader(c, err);
    return status;
}

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    struct chat c = { .args = args,
                      .view = { .out = stdout, .styled = terminal_has_styles(stdout) } };
    interrupt_install();
    enum reel_status status = open_chat(&c, err);
    if (status == REEL_OK) {
        greet(&c);
        status = converse(&c, err);
    }
    line_reader_close(&c.reader);
    conversation_release(&c.conversation);
    reel_session_close(c.session);
    reel_model_close(c.model);
    return status;
}

const struct cli_command cmd_chat = {
    .name = "chat",
    .arguments = "MODEL",
    .least_arguments = 1,
    .most_arguments = 1,
    .summary = "talk with a chat model",
    .description =
        "A conversation: each line typed is a message, a backslash at its end continues it on the "
        "next line, and /help lists commands. Ctrl-C ends the answer, and twice at the prompt the "
        "program. A full context ends the answer with that reason; nothing is dropped in "
        "silence.\n\n"
        "With standard input from a pipe each line is a message and only answers are printed.",
    .groups = { &group, &cli_sampling_group, &cli_context_group, &cli_model_group },
    .run = run,
};
