/* How likely a model found each id of a prompt. */
#ifndef REEL_SERVER_PROMPT_SCORES_H
#define REEL_SERVER_PROMPT_SCORES_H

#include "server/models.h"

struct prompt_score {
    float logprob; /* natural log, after the ids before it */
    int n_top;
    struct reel_top_logprob top[REEL_MAX_TOP_LOGPROBS]; /* most likely first */
};

/* Makes the session hold exactly these ids and fills scores[i], 0 < i < n_ids; nothing stands
 * before the first id, and scores[0] is left alone. Evaluates all of them: what the session held of
 * them has no logits any more. REEL_E_CANCELLED when the client left. */
enum reel_status prompt_scores(struct prompt_score *scores, struct reel_session *session,
                               struct exchange *x, const struct served_model *m, const int32_t *ids,
                               int n_ids, int n_top, struct reel_error *err);

#endif
