/* reel score: how well a model predicts a text. */
#include "base/file_map.h"
#include "base/memory.h"
#include "cli/commands.h"
#include "cli/input.h"
#include "cli/open_model.h"
#include "cli/progress.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define PIECE 32 /* positions evaluated at once: their logits are what takes memory */

static const struct cli_option options[] = {
    { .name = "stride",
      .kind = CLI_INTEGER,
      .argument = "N",
      .least = 1,
      .most = 1 << 20,
      .help = "tokens scored for each window of --ctx; default: half of it, so that every scored "
              "token but the first has at least half a window before it" },
    { .name = "json", .kind = CLI_FLAG, .help = "print one JSON object" },
};
static const struct cli_group group = CLI_GROUP("Options", options);

struct scoring {
    struct reel_session *session;
    const int32_t *ids;
    int n_ids, vocab;
    float *logits; /* f32 [PIECE, vocab] */
    double nats;   /* of all scored tokens */
    int n_scored;
};

static double nats_of(const float *logits, int vocab, int32_t id) {
    double max = logits[0], sum = 0;
    for (int i = 1; i < vocab; i++)
        if (logits[i] > max) max = logits[i];
    for (int i = 0; i < vocab; i++)
        sum += exp(logits[i] - max);
    return max + log(sum) - logits[id];
}

/* Evaluates ids[from, to) on an empty session and scores the ids from `score_from` on. */
static enum reel_status window(struct scoring *s, int from, int score_from, int to,
                               struct reel_error *err) {
    enum reel_status status = reel_session_truncate(s->session, 0, err);
    for (int at = from; at < to - 1 && status == REEL_OK; at += PIECE) {
        int n = to - 1 - at < PIECE ? to - 1 - at : PIECE;
        struct reel_eval eval = { .size = sizeof eval,
                                  .n = n,
                                  .ids = s->ids + at,
                                  .output = REEL_OUTPUT_ALL_LOGITS,
                                  .out = s->logits,
                                  .out_floats = (size_t)PIECE * (size_t)s->vocab };
        status = reel_session_eval(s->session, &eval, err);
        for (int i = 0; i < n && status == REEL_OK; i++) {
            if (at + i + 1 < score_from) continue;
            s->nats +=
                nats_of(s->logits + (size_t)i * (size_t)s->vocab, s->vocab, s->ids[at + i + 1]);
            s->n_scored++;
        }
    }
    return status;
}

static enum reel_status score_all(struct scoring *s, int context, int stride,
                                  struct reel_error *err) {
    struct progress progress;
    enum reel_status status = REEL_OK;
    progress_start(&progress);
    for (int scored = 1; scored < s->n_ids && status == REEL_OK;) {
        int to = scored == 1 ? context : scored + stride;
        if (to > s->n_ids) to = s->n_ids;
        int from = to > context ? to - context : 0;
        status = window(s, from, scored, to, err);
        scored = to;
        if (status == REEL_OK &&
            !progress_update(&progress, "scoring", (uint64_t)scored, (uint64_t)s->n_ids))
            status =
                err_set(err, REEL_E_CANCELLED, "cancelled after %d of %d tokens", scored, s->n_ids);
    }
    progress_end(&progress);
    return status;
}

static void print_result(const struct cli_args *args, const struct scoring *s, size_t n_bytes,
                         int context) {
    double per_token = s->nats / s->n_scored;
    double bits_per_byte = s->nats / log(2) / (double)n_bytes;
    if (!cli_has(args, "json")) {
        printf("perplexity %.4f a token, %.4f nats a token, %.4f bits a byte (%d tokens scored of "
               "%d, %zu bytes, windows of %d)\n",
               exp(per_token), per_token, bits_per_byte, s->n_scored, s->n_ids, n_bytes, context);
        return;
    }
    json_t *out = json_pack("{s:f, s:f, s:f, s:i, s:i, s:I, s:i}", "perplexity", exp(per_token),
                            "nats_per_token", per_token, "bits_per_byte", bits_per_byte,
                            "tokens_scored", s->n_scored, "tokens", s->n_ids, "bytes",
                            (json_int_t)n_bytes, "context", context);
    if (out && json_dumpf(out, stdout, JSON_REAL_PRECISION(10)) == 0) printf("\n");
    json_decref(out);
}

static enum reel_status encode_file(const struct reel_model *model, const struct file_map *file,
                                    const char *path, int32_t **ids, size_t *n_ids,
                                    struct reel_error *err) {
    const char *text = (const char *)file->bytes;
    enum reel_status status = input_check(path, text, file->size, err);
    if (status == REEL_OK)
        status = input_encode(reel_model_tokenizer(model), text, file->size, REEL_ENCODE_SPECIAL,
                              ids, n_ids, err);
    if (status == REEL_OK && (*n_ids < 2 || *n_ids > INT32_MAX / 2))
        status = err_set(err, *n_ids < 2 ? REEL_E_ARGUMENT : REEL_E_LIMIT,
                         "%s: %zu tokens, allowed are 2 to %d", path, *n_ids, INT32_MAX / 2);
    return status;
}

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    struct reel_model_info info = { .size = sizeof info };
    struct file_map file = { 0 };
    struct scoring s = { 0 };
    struct reel_model *model = NULL;
    int32_t *ids = NULL;
    size_t n_ids = 0;
    const char *path = args->arguments[1];
    enum reel_status status = file_map_open(&file, path, err);
    if (status == REEL_OK) status = cli_model_open(&model, args, args->arguments[0], err);
    if (status == REEL_OK) status = encode_file(model, &file, path, &ids, &n_ids, err);
    if (status == REEL_OK) status = cli_session_open(&s.session, model, args, NULL, err);
    if (status == REEL_OK) {
        info = cli_model_info(model);
        s.ids = ids;
        s.n_ids = (int)n_ids;
        s.vocab = info.vocab;
        status = mem_zeroed(&s.logits, (size_t)PIECE * (size_t)info.vocab, sizeof *s.logits,
                            "logits", err);
    }
    if (status == REEL_OK) {
        int context = reel_session_max_context(s.session);
        int stride = (int)cli_integer(args, "stride", context > 1 ? context / 2 : 1);
        if (context < 2)
            status = err_set(err, REEL_E_ARGUMENT, "--ctx: scoring needs at least 2 positions");
        else if (stride >= context)
            status = err_set(err, REEL_E_ARGUMENT, "--stride: %d is not below the context of %d",
                             stride, context);
        if (status == REEL_OK) status = score_all(&s, context, stride, err);
        if (status == REEL_OK) print_result(args, &s, file.size, context);
    }
    mem_free(s.logits);
    mem_free(ids);
    reel_session_close(s.session);
    reel_model_close(model);
    file_map_close(&file);
    return status;
}

const struct cli_command cmd_score = {
    .name = "score",
    .arguments = "MODEL FILE",
    .least_arguments = 2,
    .most_arguments = 2,
    .summary = "perplexity of a text file under a model",
    .description =
        "Every token but the first is scored once, given the tokens before it in a window of --ctx "
        "positions that moves on by --stride. Control tokens in the text are read as plain "
        "characters.",
    .groups = { &group, &cli_context_group, &cli_model_group },
    .run = run,
};
