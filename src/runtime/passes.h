/* Sessions of one model that decode at the same time do so together: in passes of several columns
 * (docs/BATCHES.md), which a thread of the model's own runs. That thread takes turns with whoever
 * else computes (turns.h); which sessions have a column is decided here.
 *
 * A session that decodes while no other one does goes on by itself, on the thread that called. The
 * thread of the passes is made when two sessions decode for the first time, and ends with the
 * model. Where it cannot be made, sessions take turns.
 *
 * Where more sessions decode than a pass has columns, they have them one after the other: who waits
 * takes the column of the session that has had one for longest, and for at least a turn.
 *
 * The ids that a column makes wait in the column until its session takes them. A column that is
 * `ahead` ids before its session has no part in passes until half of them are taken, so a session
 * that takes its time delays nobody. */
#ifndef REEL_RUNTIME_PASSES_H
#define REEL_RUNTIME_PASSES_H

#include "runtime/backend.h"
#include "runtime/drafter.h"
#include "runtime/pass_costs.h"
#include "runtime/turns.h"

/* Most ids that a column may be ahead of its session. */
#define PASSES_AHEAD 128

/* An id that a pass made, and what was asked for with it. */
struct made_id {
    int32_t id;
    bool drafted; /* it was a draft */
    int n_drafts; /* of the pass that made it; 0 at all but the first id of a pass */
    float logprob;
    int n_top;
    struct reel_top_logprob top[REEL_MAX_TOP_LOGPROBS];
};

/* Who decodes together; one per model. */
struct passes;

/* A session's part in them. Zeroed before its first use. */
struct column {
    /* For the session to fill in before passes_join; lent until passes_leave. The thread of the
     * passes calls on_id (which hears of each id, and returns false for the last one), draw (which
     * may fill in `next`, but for the id) and guess; `enough` and `draft` are not used. */
    struct backend_state *state;
    struct backend_decode decode;
    /* Drafts of the coming pass, which has room for so many: those that are worth their columns.
     * It may take its time, and others their turn meanwhile. NULL: it has none. */
    void (*guess)(void *user, struct guess *guess, const struct pass_room *room);
    int ahead; /* 1 to PASSES_AHEAD */
    struct made_id next;

    /* Why no more ids will come; for the session to read when passes_take has returned false
     * without a cancellation. REEL_OK: it goes on by itself, if there is more to do. */
    enum reel_status status;
    struct reel_error err;

    /* After passes_join has returned false, for the session to read: no other session decoded. Two
     * sessions never have it at once. */
    bool only;

    /* What follows is passes.c's, guarded by passes->mutex. */
    struct passes *passes;
    struct column *next_waiting, *next_alone;
    enum { COLUMN_OUT, COLUMN_WAITS, COLUMN_SEATED } place;
    bool alone;       /* decodes by itself, on `thread` */
    bool joined;      /* between passes_join that returned true and passes_leave */
    bool over;        /* no more ids will come */
    bool last;        /* on_id has returned false */
    bool leaves;      /* its session waits for the end of a step */
    bool listens;     /* its session waits for news */
    int n_step;       /* ids made in this step */
    double seated_ms; /* since when it has a column */
    pthread_t thread;
    pthread_cond_t news;
    struct made_id made[PASSES_AHEAD]; /* [n_made] from first_made on, round */
    int first_made, n_made;
};

/* For a backend with a step. `backend` and `turns` (or NULL) are lent. column_share: as in
 * backend_info. */
enum reel_status passes_open(struct passes **out, const struct backend_ops *ops,
                             struct backend *backend, struct turns *turns, int most_columns,
                             double column_share, struct reel_error *err);
/* When no session is left. In a forked child it frees the memory and waits for nobody. NULL:
 * nothing. */
void passes_close(struct passes *passes);

/* True: the session decodes together with others, and takes its ids by passes_take. False: it
 * decodes by itself, which others know of until passes_leave, or until it asks again and joins. */
bool passes_join(struct passes *passes, struct column *column);

/* Somebody wants to decode together with those that decode by themselves. NULL: false. */
bool passes_are_wanted(const struct passes *passes);

/* Waits for an id. False: cancelled, or no more will come. */
bool passes_take(struct column *column, struct made_id *made);

/* Afterwards nobody but the session uses its state; ids that were not taken are gone. A column that
 * is not there, or zeroed: nothing. */
void passes_leave(struct column *column);

#endif
