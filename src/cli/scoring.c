#include "cli/scoring.h"

#include "base/memory.h"
#include "cli/input.h"
#include "cli/open_model.h"

#include <math.h>

#define PIECE 32 /* positions evaluated at once: their logits are what takes memory */

/* The work of one score_file. */
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

/* Of the session that was opened: windows and steps of them. */
static enum reel_status score_windows(struct scoring *s, int stride, struct text_score *score,
                                      struct reel_error *err) {
    const int context = reel_session_max_context(s->session);
    if (!stride) stride = context > 1 ? context / 2 : 1;
    if (context < 2)
        return err_set(err, REEL_E_ARGUMENT, "--ctx: scoring needs at least 2 positions");
    if (stride >= context)
        return err_set(err, REEL_E_ARGUMENT, "--stride: %d is not below the context of %d", stride,
                       context);
    enum reel_status status = score_all(s, context, stride, err);
    score->nats = s->nats;
    score->n_scored = s->n_scored;
    score->n_ids = s->n_ids;
    score->context = context;
    return status;
}

enum reel_status score_file(struct text_score *score, const struct reel_model *model,
                            const struct cli_args *args, const struct file_map *file,
                            const char *path, int stride, struct reel_error *err) {
    struct scoring s = { .vocab = cli_model_info(model).vocab };
    int32_t *ids = NULL;
    size_t n_ids = 0;
    *score = (struct text_score){ 0 };
    enum reel_status status = encode_file(model, file, path, &ids, &n_ids, err);
    if (status == REEL_OK) status = cli_session_open(&s.session, model, NULL, args, NULL, err);
    if (status == REEL_OK)
        status =
            mem_zeroed(&s.logits, (size_t)PIECE * (size_t)s.vocab, sizeof *s.logits, "logits", err);
    s.ids = ids;
    s.n_ids = (int)n_ids;
    score->n_bytes = file->size;
    if (status == REEL_OK) status = score_windows(&s, stride, score, err);
    mem_free(s.logits);
    mem_free(ids);
    reel_session_close(s.session);
    return status;
}

double score_perplexity(const struct text_score *score) {
    return exp(score->nats / score->n_scored);
}
