/* reel embed: vectors of texts. */
#include "base/memory.h"
#include "cli/commands.h"
#include "cli/embed_prompt.h"
#include "cli/input.h"
#include "cli/open_model.h"
#include "cli/output_file.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "cli/text_list.h"
#include "cli/vector_out.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Texts that are embedded in one call: enough to fill passes with texts of like length, few enough
 * that the first come out soon. */
#define BATCH 4096

static const struct cli_option options[] = {
    { .name = "file",
      .letter = 'f',
      .kind = CLI_TEXT,
      .argument = "FILE",
      .repeats = true,
      .help = "FILE is one text; may be given several times" },
    { .name = "lines",
      .letter = 'l',
      .kind = CLI_TEXT,
      .argument = "FILE",
      .repeats = true,
      .help = "each line of FILE is a text; - is standard input, also the default; may be given "
              "several times" },
    { .name = "query",
      .letter = 'q',
      .kind = CLI_FLAG,
      .help = "the texts are queries: the model's own prompt for them goes before each, or "
              "\"Instruct: ...\" of a web search where it has none" },
    { .name = "instruct",
      .kind = CLI_TEXT,
      .argument = "TEXT",
      .others = "instruction task",
      .help = "the texts are queries for this task: \"Instruct: TEXT\" and \"Query:\" go before "
              "each" },
    { .name = "prompt-name",
      .kind = CLI_TEXT,
      .argument = "NAME",
      .help = "the prompt of this name in the model's config_sentence_transformers.json goes "
              "before each text" },
    { .name = "dimensions",
      .letter = 'd',
      .kind = CLI_INTEGER,
      .argument = "N",
      .least = 1,
      .most = INT_MAX,
      .others = "dim dims truncate-dim",
      .help = "the first N values of each vector, for models that were trained so (Matryoshka); "
              "default: all" },
    { .name = "no-normalise",
      .kind = CLI_FLAG,
      .others = "no-normalize",
      .help = "leave the vectors as long as they are; default: their length is made 1" },
    { .name = "truncate",
      .kind = CLI_FLAG,
      .help = "cut the end of a text that is longer than the context, see --ctx; default: such a "
              "text is an error" },
    { .name = "format",
      .kind = CLI_CHOICE,
      .argument = "FORMAT",
      .choices = "json jsonl npy text",
      .help = "json: one object; jsonl: an object a line; npy: NumPy's file of float32 [texts, "
              "dimensions]; text: numbers, a vector a line; default: what --output ends in, else "
              "json" },
    { .name = "output",
      .letter = 'o',
      .kind = CLI_TEXT,
      .argument = "FILE",
      .help = "write to FILE, whole or not at all; default: standard output" },
};
static const struct cli_group group = CLI_GROUP("Options", options);

struct encoded {
    int32_t *ids;
    int n;
    bool truncated;
};

struct embedding {
    const struct cli_args *args;
    struct reel_model *model;
    struct reel_session *session;
    struct text_list list;
    struct buffer prompted; /* prompt and one text */
    size_t prompt_bytes;
    struct vector_out out;
    float *vectors; /* f32 [BATCH, dimensions] */
    int n_truncated;
};

/* ---- texts ---- */

/* Standard input can be read once. */
static enum reel_status check_inputs(const struct cli_args *args, struct reel_error *err) {
    const char *path;
    int n = 0;
    for (int i = 1; i < args->n_arguments; i++)
        n += strcmp(args->arguments[i], "-") == 0;
    for (int i = 0; (path = cli_repeated(args, "file", i)); i++)
        n += strcmp(path, "-") == 0;
    for (int i = 0; (path = cli_repeated(args, "lines", i)); i++)
        n += strcmp(path, "-") == 0;
    if (n < 2) return REEL_OK;
    return err_set(err, REEL_E_ARGUMENT, "standard input (-) is named %d times; it is read once",
                   n);
}

static enum reel_status collect(struct embedding *e, struct reel_error *err) {
    const struct cli_args *args = e->args;
    const char *path;
    enum reel_status status = REEL_OK;
    bool named = args->n_arguments > 1;
    for (int i = 1; status == REEL_OK && i < args->n_arguments; i++)
        status = strcmp(args->arguments[i], "-") == 0
                     ? text_list_add_lines(&e->list, "-", err)
                     : text_list_add_argument(&e->list, args->arguments[i], i, err);
    for (int i = 0; status == REEL_OK && (path = cli_repeated(args, "file", i)); i++, named = true)
        status = text_list_add_file(&e->list, path, err);
    for (int i = 0; status == REEL_OK && (path = cli_repeated(args, "lines", i)); i++, named = true)
        status = text_list_add_lines(&e->list, path, err);
    if (status == REEL_OK && !named && terminal_is(stdin))
        return err_set(err, REEL_E_ARGUMENT,
                       "no text: give it after the model in quotes, with -f FILE or -l FILE, or "
                       "pipe a text a line into standard input");
    if (status == REEL_OK && !named) status = text_list_add_lines(&e->list, "-", err);
    if (status == REEL_OK && e->list.n == 0) return err_set(err, REEL_E_ARGUMENT, "no text at all");
    return status;
}

/* The ids of a text without what the model's post-processor puts around it, cut to so many that all
 * together are `most`. */
static enum reel_status cut(const struct reel_tokenizer *tok, const struct buffer *text,
                            struct encoded *all, int most, struct reel_error *err) {
    int32_t *plain = NULL;
    size_t n = 0;
    enum reel_status status = input_encode(tok, text->bytes, text->size, 0, &plain, &n, err);
    const size_t around = (size_t)all->n - n;
    size_t before = 0;
    if (status == REEL_OK && around >= (size_t)most)
        status = err_set(err, REEL_E_ARGUMENT, "--ctx: %d positions hold no text", most);
    if (status == REEL_OK) {
        while (before < around && memcmp(all->ids + before, plain, n * sizeof *plain) != 0)
            before++;
        const size_t kept = (size_t)most - around;
        memmove(all->ids + before + kept, all->ids + before + n,
                (around - before) * sizeof *all->ids);
        all->n = most;
        all->truncated = true;
    }
    mem_free(plain);
    return status;
}

static enum reel_status encode(struct embedding *e, const struct listed_text *text,
                               struct encoded *out, struct reel_error *err) {
    const struct reel_tokenizer *tok = reel_model_tokenizer(e->model);
    const int most = reel_session_max_context(e->session);
    char place[TEXT_LIST_PLACE];
    size_t n = 0;
    e->prompted.size = e->prompt_bytes;
    enum reel_status status = buffer_append(&e->prompted, text->text, text->n, err);
    if (status == REEL_OK)
        status = input_encode(tok, e->prompted.bytes, e->prompted.size, REEL_ENCODE_SPECIAL,
                              &out->ids, &n, err);
    if (status != REEL_OK) return status;
    text_list_place(text, place);
    if (n == 0) return err_set(err, REEL_E_ARGUMENT, "%s: an empty text has no tokens", place);
    if (n > INT_MAX) return err_set(err, REEL_E_LIMIT, "%s: %zu tokens", place, n);
    out->n = (int)n;
    if (out->n <= most) return REEL_OK;
    if (cli_has(e->args, "truncate")) return cut(tok, &e->prompted, out, most, err);
    return err_set(err, REEL_E_CONTEXT,
                   "%s: %zu tokens, the context holds %d; --truncate cuts its end off", place, n,
                   most);
}

/* ---- vectors ---- */

static enum reel_status embed_encoded(struct embedding *e, const struct encoded *texts, int n,
                                      struct reel_error *err) {
    size_t total = 0;
    int32_t *ids = NULL;
    int lengths[BATCH];
    for (int i = 0; i < n; i++)
        total += (size_t)texts[i].n;
    enum reel_status status = mem_zeroed(&ids, total, sizeof *ids, "ids of texts", err);
    if (status != REEL_OK) return status;
    total = 0;
    for (int i = 0; i < n; i++) {
        memcpy(ids + total, texts[i].ids, (size_t)texts[i].n * sizeof *ids);
        total += (size_t)(lengths[i] = texts[i].n);
    }
    const struct reel_embed embed = { .size = sizeof embed,
                                      .ids = ids,
                                      .lengths = lengths,
                                      .n_texts = n,
                                      .dimensions = e->out.dimensions,
                                      .no_normalise = !e->out.normalised,
                                      .out = e->vectors,
                                      .out_floats = (size_t)n * (size_t)e->out.dimensions };
    status = reel_session_embed(e->session, &embed, err);
    mem_free(ids);
    for (int i = 0; status == REEL_OK && i < n; i++) {
        const struct vector_row row = { e->vectors + (size_t)i * (size_t)e->out.dimensions,
                                        lengths[i], texts[i].truncated };
        e->n_truncated += row.truncated;
        status = vector_out_add(&e->out, &row, err);
    }
    return status;
}

static enum reel_status run_batch(struct embedding *e, int first, int n, struct reel_error *err) {
    struct encoded *texts = NULL;
    enum reel_status status = mem_zeroed(&texts, (size_t)n, sizeof *texts, "texts", err);
    if (status != REEL_OK) return status;
    for (int i = 0; status == REEL_OK && i < n; i++)
        status = encode(e, &e->list.texts[first + i], &texts[i], err);
    if (status == REEL_OK) status = embed_encoded(e, texts, n, err);
    if (status == REEL_OK) status = vector_out_flush(&e->out, err);
    for (int i = 0; i < n; i++)
        mem_free(texts[i].ids);
    mem_free(texts);
    return status;
}

static enum reel_status run_all(struct embedding *e, struct reel_error *err) {
    enum reel_status status = mem_zeroed(&e->vectors, (size_t)BATCH * (size_t)e->out.dimensions,
                                         sizeof *e->vectors, "vectors", err);
    if (status == REEL_OK) status = vector_out_begin(&e->out, err);
    for (int at = 0; status == REEL_OK && at < e->list.n; at += BATCH)
        status = run_batch(e, at, e->list.n - at < BATCH ? e->list.n - at : BATCH, err);
    return status == REEL_OK ? vector_out_end(&e->out, err) : status;
}

/* ---- the command ---- */

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static enum vector_format choose_format(const struct cli_args *args) {
    const char *path = cli_text(args, "output", ""), *format = cli_text(args, "format", NULL);
    if (!format)
        format = ends_with(path, ".npy")     ? "npy"
                 : ends_with(path, ".jsonl") ? "jsonl"
                 : ends_with(path, ".txt")   ? "text"
                                             : "json";
    return strcmp(format, "npy") == 0     ? VECTORS_NPY
           : strcmp(format, "jsonl") == 0 ? VECTORS_JSONL
           : strcmp(format, "text") == 0  ? VECTORS_TEXT
                                          : VECTORS_JSON;
}

static enum reel_status choose_output(struct embedding *e, struct reel_error *err) {
    const struct reel_model_info info = cli_model_info(e->model);
    const int64_t dimensions = cli_integer(e->args, "dimensions", info.hidden);
    if (dimensions > info.hidden)
        return err_set(err, REEL_E_ARGUMENT, "--dimensions: %lld is above the %d that %s has",
                       (long long)dimensions, info.hidden, info.name);
    e->out.model = info.name;
    e->out.n = e->list.n;
    e->out.dimensions = (int)dimensions;
    e->out.normalised = !cli_has(e->args, "no-normalise");
    return REEL_OK;
}

static void tell(const struct embedding *e) {
    if (e->n_truncated)
        fprintf(stderr, "note: %d of %d texts were cut to %d tokens\n", e->n_truncated, e->list.n,
                reel_session_max_context(e->session));
}

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    struct embedding e = { .args = args };
    struct progress progress;
    e.out.format = choose_format(args);
    e.out.path = cli_text(args, "output", NULL);
    if (e.out.format == VECTORS_NPY && !e.out.path && terminal_is(stdout))
        return err_set(err, REEL_E_ARGUMENT,
                       "--format npy: not to a terminal; give -o FILE or a pipe");
    enum reel_status status = embed_prompt_check(args, err);
    if (status == REEL_OK) status = check_inputs(args, err);
    if (status == REEL_OK && e.out.path) status = output_file_check(e.out.path, err);
    if (status == REEL_OK) status = collect(&e, err);
    if (status == REEL_OK) status = cli_model_open(&e.model, args, args->arguments[0], err);
    if (status == REEL_OK) status = embed_prompt(&e.prompted, args, e.model, err);
    e.prompt_bytes = e.prompted.size;
    if (status == REEL_OK) status = choose_output(&e, err);
    progress_start(&progress);
    if (status == REEL_OK)
        status = cli_session_open(&e.session, e.model, NULL, args, &progress, err);
    if (status == REEL_OK) status = run_all(&e, err);
    progress_end(&progress);
    if (status == REEL_OK) tell(&e);
    mem_free(e.vectors);
    vector_out_release(&e.out);
    buffer_release(&e.prompted);
    reel_session_close(e.session);
    reel_model_close(e.model);
    text_list_release(&e.list);
    return status;
}

const struct cli_command cmd_embed = {
    .name = "embed",
    .arguments = "MODEL [TEXT...]",
    .least_arguments = 1,
    .most_arguments = INT_MAX,
    .summary = "vectors of texts, for search",
    .description =
        "A text's vector is that of its last token, after the final norm, made of length 1: what "
        "Qwen3-Embedding is trained for. Any other model can be tried. The texts are those after "
        "the model, each one argument (- is standard input, a text a line), files (--file) and "
        "lines (--lines). Short ones share a pass, which on the CPU changes no bit of a "
        "vector.\n\n"
        "Queries take a prompt before them, documents none: --query, --instruct.",
    .groups = { &group, &cli_context_group, &cli_model_group },
    .run = run,
};
