/* The state of one running generation. It lives in its session and takes its memory when the
 * session opens. */
#ifndef REEL_RUNTIME_GENERATION_H
#define REEL_RUNTIME_GENERATION_H

#include "model/tokenizer.h"
#include "runtime/pass_costs.h"
#include "runtime/passes.h"
#include "runtime/sampler.h"
#include "runtime/stop_text.h"

/* Ids a pulled generation lets a backend decode before the first of them is handed out, and those
 * that a pass with drafts makes at most. */
#define GENERATION_AHEAD 8

struct generation {
    bool active;
    bool failed;                /* a call returned an error: only finish is left */
    bool pushed;                /* inside reel_generate, which alone draws and finishes */
    bool own_loop;              /* the backend does not decode these settings itself */
    bool joins;                 /* the backend's passes take these settings */
    bool joined;                /* the column makes the ids */
    struct reel_generation set; /* lists borrowed from the caller */
    const int32_t *stop_ids;    /* borrowed */
    int n_stop_ids;
    struct reel_generation_result result;
    double start_ms;

    struct detokenizer detokenizer;
    struct stop_text stop;
    char *characters; /* what the detokenizer gives for one id and the end */
    char *text;       /* the token's text */
    struct reel_token token;
    struct reel_top_logprob top[REEL_MAX_TOP_LOGPROBS];

    struct made_id ahead[GENERATION_AHEAD];
    int n_ahead, next_ahead;
    bool speculates; /* passes are given drafts */
    bool drafted;    /* the next id that the backend decodes was one */
    struct drafter drafter;
    struct guess guess;      /* drafts of the next pass of this session alone */
    int layer_guesses;       /* to ask the draft layer for in that pass; 0: `guess` has all */
    bool asked;              /* the draft model was, in this generation */
    bool layer_is_lost;      /* the draft layer had no guess: what stands before it does not know */
    double guess_ms;         /* that guesses took inside of what is timed as a pass */
    double layer_ms;         /* that a guess of the draft layer took, lately; 0: none was timed */
    struct pass_costs costs; /* of passes of this session alone */
    struct column column;    /* decodes together with others, or shows them that this one decodes */
};

/* draft_ids: of the longest session for which drafts are made; 0: none are. */
enum reel_status generation_open(struct generation *g, size_t max_token_bytes, int draft_ids,
                                 struct reel_error *err);
/* The session's state may be closed afterwards. */
void generation_close(struct generation *g);
struct reel_session;
/* Ids that the session's generation may still make. */
int generation_tokens_left(const struct reel_session *s);

#endif
