/* reel rerank: which of several documents answer a query. */
#include "base/json.h"
#include "base/memory.h"
#include "cli/commands.h"
#include "cli/input.h"
#include "cli/open_model.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "cli/text_list.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct cli_option options[] = {
    { .name = "query",
      .letter = 'q',
      .kind = CLI_TEXT,
      .argument = "TEXT",
      .help = "what the documents are judged against; must be given" },
    { .name = "instruct",
      .kind = CLI_TEXT,
      .argument = "TEXT",
      .others = "instruction task",
      .help = "what makes a document a good one; default: that it answers a web search" },
    { .name = "lines",
      .letter = 'l',
      .kind = CLI_TEXT,
      .argument = "FILE",
      .repeats = true,
      .help = "each line of FILE is a document; - is standard input, also the default; may be "
              "given several times" },
    { .name = "top",
      .letter = 'n',
      .kind = CLI_INTEGER,
      .argument = "N",
      .least = 1,
      .most = INT_MAX,
      .others = "top-k top-n",
      .help = "print the best N documents; default: all" },
    { .name = "max-tokens",
      .kind = CLI_INTEGER,
      .argument = "N",
      .least = 1,
      .most = INT_MAX,
      .others = "max-length",
      .help = "cut the end of a document where it, the query and the words around them are more "
              "than N tokens; default: 8192, or the context where that is less" },
    { .name = "json", .kind = CLI_FLAG, .help = "print one JSON object" },
};
static const struct cli_group group = CLI_GROUP("Options", options);

struct ranked {
    const struct listed_text *text;
    int index;
    float score;
    bool truncated;
};

struct ranking {
    struct text_list list;
    struct ranked *ranked; /* [list.n] */
};

static enum reel_status collect(struct text_list *list, const struct cli_args *args,
                                struct reel_error *err) {
    const char *path;
    enum reel_status status = REEL_OK;
    bool given = args->n_arguments > 1;
    for (int i = 1; status == REEL_OK && i < args->n_arguments; i++)
        status = strcmp(args->arguments[i], "-") == 0
                     ? text_list_add_lines(list, "-", err)
                     : text_list_add_file(list, args->arguments[i], err);
    for (int i = 0; status == REEL_OK && (path = cli_repeated(args, "lines", i)); i++, given = true)
        status = text_list_add_lines(list, path, err);
    if (status == REEL_OK && !given && terminal_is(stdin))
        return err_set(err, REEL_E_ARGUMENT,
                       "no documents: name files after the model, give --lines FILE, or pipe a "
                       "document a line into standard input");
    if (status == REEL_OK && !given) status = text_list_add_lines(list, "-", err);
    if (status == REEL_OK && list->n == 0)
        return err_set(err, REEL_E_ARGUMENT, "no documents at all");
    return status;
}

/* The best first; of equal ones, that which was given first. */
static int by_score(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static enum reel_status judge(struct ranking *r, const struct cli_args *args,
                              struct reel_session *session, struct reel_error *err) {
    const size_t n = (size_t)r->list.n;
    const char **documents = NULL;
    float *scores = NULL;
    bool *truncated = NULL;
    enum reel_status status = mem_zeroed(&documents, n, sizeof *documents, "documents", err);
    if (status == REEL_OK) status = mem_zeroed(&scores, n, sizeof *scores, "scores", err);
    if (status == REEL_OK) status = mem_zeroed(&truncated, n, sizeof *truncated, "scores", err);
    if (status == REEL_OK) status = mem_zeroed(&r->ranked, n, sizeof *r->ranked, "scores", err);
    for (int i = 0; status == REEL_OK && i < r->list.n; i++)
        documents[i] = r->list.texts[i].text;
    if (status == REEL_OK) {
        const struct reel_rerank rerank = { .size = sizeof rerank,
                                            .query = cli_text(args, "query", NULL),
                                            .instruction = cli_text(args, "instruct", NULL),
                                            .documents = documents,
                                            .n_documents = r->list.n,
                                            .max_tokens = (int)cli_integer(args, "max-tokens", 0),
                                            .scores = scores,
                                            .truncated = truncated };
        status = reel_session_rerank(session, &rerank, err);
    }
    for (int i = 0; status == REEL_OK && i < r->list.n; i++) {
        char place[TEXT_LIST_PLACE];
        r->ranked[i] = (struct ranked){ &r->list.texts[i], i, scores[i], truncated[i] };
        if (!isfinite(scores[i]))
            status = err_set(err, REEL_E_MISMATCH, "%s: its score is %g",
                             text_list_place(&r->list.texts[i], place), (double)scores[i]);
    }
    if (status == REEL_OK) qsort(r->ranked, n, sizeof *r->ranked, by_score);
    mem_free(truncated);
    mem_free(scores);
    mem_free(documents);
    return status;
}

/* ---- printing ---- */

/* The beginning of a document on one line. */
static void print_beginning(const struct listed_text *t) {
    enum { SHOWN = 60 };
    size_t n = t->n < SHOWN ? t->n : SHOWN;
    while (n < t->n && n > 0 && ((unsigned char)t->text[n] & 0xc0) == 0x80)
        n--;
    for (size_t i = 0; i < n; i++)
        putchar((unsigned char)t->text[i] < ' ' || t->text[i] == 0x7f ? ' ' : t->text[i]);
    fputs(n < t->n ? "...\n" : "\n", stdout);
}

static void print_table(const struct ranking *r, int n) {
    for (int i = 0; i < n; i++) {
        const struct ranked *d = &r->ranked[i];
        char place[TEXT_LIST_PLACE];
        printf("%4d  %.6f  %s%s: ", i + 1, (double)d->score, text_list_place(d->text, place),
               d->truncated ? " (its end was cut off)" : "");
        print_beginning(d->text);
    }
}

/* null for a file's name that is not UTF-8. */
static json_t *name_of(const char *text) {
    return input_check("", text, strlen(text), NULL) == REEL_OK ? json_string(text) : json_null();
}

static json_t *object_of(const struct ranked *d) {
    json_t *object = json_pack("{s:i, s:f, s:b, s:o}", "index", d->index, "score", (double)d->score,
                               "truncated", d->truncated, "source", name_of(d->text->origin));
    if (object && d->text->line && json_object_set_new(object, "line", json_integer(d->text->line)))
        object = (json_decref(object), NULL);
    return object;
}

static enum reel_status print_json(const struct ranking *r, const struct cli_args *args,
                                   const char *model, int n, struct reel_error *err) {
    json_t *list = json_array();
    char *text = NULL;
    bool whole = list != NULL;
    for (int i = 0; whole && i < n; i++)
        whole = json_array_append_new(list, object_of(&r->ranked[i])) == 0;
    json_t *root = json_pack("{s:o, s:s, s:o}", "model", name_of(model), "query",
                             cli_text(args, "query", ""), "results", list);
    enum reel_status status = whole && root
                                  ? json_write(&text, root, "a ranking as JSON", err)
                                  : err_set(err, REEL_E_MEMORY, "out of memory: a ranking as JSON");
    if (status == REEL_OK) puts(text);
    mem_free(text);
    json_decref(root);
    return status;
}

static enum reel_status print(const struct ranking *r, const struct cli_args *args,
                              const struct reel_model *model, struct reel_error *err) {
    const int64_t top = cli_integer(args, "top", r->list.n);
    const int n = top < r->list.n ? (int)top : r->list.n;
    if (cli_has(args, "json")) return print_json(r, args, cli_model_info(model).name, n, err);
    print_table(r, n);
    return REEL_OK;
}

/* Before anything is opened: both are UTF-8. */
static enum reel_status check_words(const struct cli_args *args, struct reel_error *err) {
    const char *query = cli_text(args, "query", ""), *task = cli_text(args, "instruct", "");
    enum reel_status status = input_check("--query", query, strlen(query), err);
    return status == REEL_OK ? input_check("--instruct", task, strlen(task), err) : status;
}

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    struct ranking r = { 0 };
    struct reel_model *model = NULL;
    struct reel_session *session = NULL;
    struct progress progress;
    if (!cli_has(args, "query"))
        return err_set(err, REEL_E_ARGUMENT,
                       "no query: --query TEXT says what the documents are judged against");
    enum reel_status status = check_words(args, err);
    if (status == REEL_OK) status = collect(&r.list, args, err);
    if (status == REEL_OK) status = cli_model_open(&model, args, args->arguments[0], err);
    progress_start(&progress);
    if (status == REEL_OK) status = cli_session_open(&session, model, NULL, args, &progress, err);
    if (status == REEL_OK) status = judge(&r, args, session, err);
    progress_end(&progress);
    if (status == REEL_OK) status = print(&r, args, model, err);
    mem_free(r.ranked);
    reel_session_close(session);
    reel_model_close(model);
    text_list_release(&r.list);
    return status;
}

const struct cli_command cmd_rerank = {
    .name = "rerank",
    .arguments = "MODEL [FILE...]",
    .least_arguments = 1,
    .most_arguments = INT_MAX,
    .summary = "which documents answer a query, best first",
    .description =
        "Judges each document against the query with Qwen3-Reranker's own prompt; the score is the "
        "probability of its \"yes\" against its \"no\". Each FILE is a document; without files "
        "each line of standard input is one, as is each line of a file of --lines.",
    .groups = { &group, &cli_context_group, &cli_model_group },
    .run = run,
};
