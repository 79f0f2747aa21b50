/* What stands behind struct reel_session: the timeline, and how far the backend has followed it.
 *
 *   ids[0, length)           what the session holds
 *   ids[0, n_evaluated)      of those, what the backend's state holds; a generated id is evaluated
 *                            only when something after it is asked for
 *   logits                   of position length - 1, when has_logits
 *
 * A failing call leaves these true: positions are evaluated first and counted afterwards. */
#ifndef REEL_RUNTIME_SESSION_H
#define REEL_RUNTIME_SESSION_H

#include "runtime/draft_session.h"
#include "runtime/generation.h"
#include "runtime/model_handle.h"
#include "runtime/turns.h"

struct reel_session {
    const struct reel_model *model; /* borrowed */
    struct backend_state *state;
    int max_context;
    int32_t *ids; /* [max_context], -1 for a position given as an embedding */
    int length;
    int n_evaluated;
    int read_from,
        read_to;        /* the last positions that were evaluated at once; behind them one by one */
    int again_to;       /* up to here positions are to be evaluated as they were before */
    double turn_ms;     /* that the last evaluation took */
    int piece;          /* positions that take about a turn; 0: not known yet */
    float *logits;      /* f32 [vocab] */
    float *next_logits; /* f32 [vocab]: written by an evaluation, swapped in when it succeeds */
    bool has_logits;
    /* Set by reel_session_cancel. A call clears it when it begins and looks at it until it ends, so
     * a request with nothing running does nothing. */
    atomic_bool cancel;
    struct turn turn;          /* at the model's backend */
    reel_progress_fn progress; /* or NULL */
    void *progress_user;
    int progress_done, progress_total; /* before this evaluation, and of the whole call */
    bool reporting;                    /* inside the progress callback */
    struct sampler *sampler;
    struct generation generation;
    struct draft_session *draft; /* of the model that guesses for this session; or NULL */
    bool layer_follows;          /* the model's draft layer follows the state */
};

/* Refuses NULL, and a call while a generation is open or from inside the progress callback of
 * another. */
enum reel_status session_idle(const struct reel_session *session, struct reel_error *err);

/* Before everything that can be cancelled. */
void session_begin(struct reel_session *session);
bool session_cancelled(const struct reel_session *session);

/* Waits for the session's turn at the backend, before a call of it that computes; turn_give ends
 * it. */
enum reel_status session_take_turn(struct reel_session *session, struct reel_error *err);

/* The caller hears of his whole call, of `total` positions. */
void session_start_progress(struct reel_session *session, int total);
bool session_report(struct reel_session *session, const char *stage, uint64_t done);

/* For the progress of a backend's call, as its reel_progress_fn with the session as user: lets
 * others have their turn, then reports to a caller who wants to hear of it. session_between_texts
 * reports nothing. */
bool session_between(void *session, const char *stage, uint64_t done, uint64_t total);
bool session_between_texts(void *session, const char *stage, uint64_t done, uint64_t total);

/* Makes has_logits true, evaluating what that needs. */
enum reel_status session_need_logits(struct reel_session *session, struct reel_error *err);

/* As reel_session_sync, on an idle session and with ids that were looked at. */
enum reel_status session_hold(struct reel_session *session, const int32_t *ids, int n_ids,
                              int *n_reused, struct reel_error *err);
/* Positions from n on are over; n is at most the length. */
void session_keep_prefix(struct reel_session *session, int n);

/* From how many of the first n positions evaluation goes on. */
int session_resume_at(const struct reel_session *session, int n);

/* After decoding, which may have gone beyond what was taken: evaluation goes on from where it can.
 * Positions between that and n_evaluated are evaluated once more, at once or one by one as they
 * were, since other cuts may round otherwise. Where a backend decodes by itself, as it likes. */
void session_go_back(struct reel_session *session);

/* Appends an id that is not evaluated yet. There must be room. */
void session_append(struct reel_session *session, int32_t id);

#endif
