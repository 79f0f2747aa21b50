#include "server/prompt_scores.h"

#include "base/memory.h"

#include <math.h>

#define PIECE 32 /* positions evaluated at once: their logits are what takes memory */

/* The n largest logits, lowest id first on ties; `out` has log-probabilities. */
static int largest(struct reel_top_logprob *out, const float *logits, int vocab, int n,
                   double log_sum) {
    int have = 0;
    if (n > vocab) n = vocab;
    for (int i = 0; i < vocab && n > 0; i++) {
        if (have == n && !(logits[i] > out[n - 1].logprob)) continue;
        int at = have < n ? have++ : n - 1;
        for (; at > 0 && out[at - 1].logprob < logits[i]; at--)
            out[at] = out[at - 1];
        out[at] = (struct reel_top_logprob){ i, logits[i] };
    }
    for (int i = 0; i < have; i++)
        out[i].logprob = (float)((double)out[i].logprob - log_sum);
    return have;
}

static void score(struct prompt_score *s, const float *logits, int vocab, int32_t id, int n_top) {
    double max = logits[0], sum = 0;
    for (int i = 1; i < vocab; i++)
        if (logits[i] > max) max = logits[i];
    for (int i = 0; i < vocab; i++)
        sum += exp(logits[i] - max);
    const double log_sum = max + log(sum);
    s->logprob = (float)((double)logits[id] - log_sum);
    s->n_top = largest(s->top, logits, vocab, n_top, log_sum);
}

enum reel_status prompt_scores(struct prompt_score *scores, struct reel_session *session,
                               struct exchange *x, const struct served_model *m, const int32_t *ids,
                               int n_ids, int n_top, struct reel_error *err) {
    const size_t vocab = (size_t)m->info.vocab;
    float *logits = NULL;
    enum reel_status status = mem_aligned(&logits, PIECE * vocab, sizeof *logits, "logits", err);
    if (status == REEL_OK) status = reel_session_truncate(session, 0, err);
    for (int at = 0; at < n_ids && status == REEL_OK; at += PIECE) {
        const int n = n_ids - at < PIECE ? n_ids - at : PIECE;
        const struct reel_eval eval = { .size = sizeof eval,
                                        .n = n,
                                        .ids = ids + at,
                                        .output = REEL_OUTPUT_ALL_LOGITS,
                                        .out = logits,
                                        .out_floats = PIECE * vocab };
        status = exchange_is_gone(x) ? err_set(err, REEL_E_CANCELLED, "the client left")
                                     : reel_session_eval(session, &eval, err);
        for (int i = 0; i < n && at + i + 1 < n_ids && status == REEL_OK; i++)
            score(&scores[at + i + 1], logits + (size_t)i * vocab, m->info.vocab, ids[at + i + 1],
                  n_top);
    }
    mem_free(logits);
    return status;
}
