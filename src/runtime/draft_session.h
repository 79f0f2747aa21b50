/* A session of a draft model: another, smaller model that guesses what comes next in a session. It
 * holds the ids that stand in that one, as far as it was asked: what both have in common stays,
 * and what is new is evaluated before it guesses. So it may lag, and it catches up.
 *
 * Its guesses are drawn as the session's ids are, with the same settings, seed and positions: noise
 * depends on seed, position and id alone, so where both models think alike they draw the same id.
 * Nothing here changes what the session says. */
#ifndef REEL_RUNTIME_DRAFT_SESSION_H
#define REEL_RUNTIME_DRAFT_SESSION_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

struct reel_model;
struct reel_session;
struct sampler;

struct draft_session {
    struct reel_session *session; /* on the draft model; owned */
    int n_ids;                    /* ids below it mean the same to both models */
    float *logits; /* f32 [vocab] of the session's model, where the other's is shorter; else NULL */
    double share;  /* of a pass of the session's model, that a guess is first taken to cost */
    double step_ms; /* that a guess took, lately; 0: none was timed */
    double read_ms; /* that an id took which it caught up with; 0: likewise */
    int n_known;    /* ids of the session up to one that it does not know; INT_MAX: it knows all */
    int n_looked;   /* of so many, which were looked at */
    bool failed;    /* it guesses no more; `why` */
    struct reel_error why;
    /* of the last call of draft_session_guess */
    double took_ms;       /* all of it, */
    double caught_up_ms;  /* and of that, evaluating what it had lagged behind by */
    int32_t *guesses;     /* where they go: [most] of the caller */
    int n_guesses, most;  /* made and wanted */
    struct sampler *draw; /* of the session */
};

/* `model` is the session's, `draft` the one that guesses; context: positions of the session.
 * REEL_E_MISMATCH: their vocabularies differ. */
enum reel_status draft_session_open(struct draft_session **out, const struct reel_model *model,
                                    const struct reel_model *draft, int context,
                                    struct reel_error *err);
void draft_session_close(struct draft_session *d); /* NULL: nothing */

/* A generation begins: what has failed may be tried again. */
void draft_session_begin(struct draft_session *d);
/* Whether it can guess behind n ids: it has room, knows them as far as was seen, and has not
 * failed. */
bool draft_session_can(const struct draft_session *d, int n);
/* How many of ids [n] it has to evaluate before it can guess what follows them. */
int draft_session_behind(const struct draft_session *d, const int32_t *ids, int n);
/* Evaluates them, on the thread that calls. A failure is kept in d. */
void draft_session_read(struct draft_session *d, const int32_t *ids, int n);
/* Guesses what follows ids [n]: writes `most` ids at most, at least 1, and says how many. `sampler`
 * is the session's. It waits for its turn at the draft model. A failure is kept in d. */
int draft_session_guess(struct draft_session *d, const int32_t *ids, int n, struct sampler *sampler,
                        int32_t *out, int most);

/* Positions from n on of the session are over: gives back the memory of those here. */
void draft_session_keep(struct draft_session *d, int n);
/* The session was made equal to another, whose draft session this is. NULL, another model's, or a
 * failure: it reads the ids when it is asked. */
void draft_session_copy(struct draft_session *d, const struct draft_session *from);

/* As reel_session_cancel: a guess that is being made ends soon. NULL: nothing. */
void draft_session_cancel(struct draft_session *d);
/* As session_begin. NULL: nothing. */
void draft_session_uncancel(struct draft_session *d);

#endif
