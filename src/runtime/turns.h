/* Sessions of one model take turns at its backend: one computes, the others wait in the order in
 * which they came. A backend allows its states to be used at the same time, so turns decide who
 * waits and for how long, never what is computed.
 *
 * A turn is one call of the backend. While others wait it lasts at most TURN_MS, or as long as what
 * cannot be divided: one token, one chunk of a prompt, one pass over texts, one run of the audio
 * tower. The sessions that decode together (passes.h) are one of those who take turns, and the
 * first to have the next one, as is a session that alone decodes: each prompt that is read beside
 * them holds them up for one turn, however many prompts wait. Their turn lasts as long as the one
 * before it, so that neither prompts nor decoding have more than half of the time, and many short
 * prompts are read soon, whose sessions then decode together. Were two to go ahead, they would hand
 * the turn to each other and no prompt would be read. So a session that decodes by itself beside
 * another, as where the passes have no thread, is one of the queue. A decoding ends early
 * (turn_is_over), an evaluation passes the turn on between its chunks (turn_pass). While nobody
 * waits a turn has no end and costs an uncontended mutex.
 *
 * Where a backend puts what its states are asked for into one queue, in order, and whoever has the
 * turn has put all of it there, the next one's turn comes before that is done (turn_hand_on): its
 * part is in the queue when the device gets to it. The clock of a turn begins when what was ahead
 * of it is over.
 *
 * A callback of the caller may take any time, and may use another session of the same model. It
 * runs with the turn lent (turn_lend, turn_resume): after TURN_MS whoever waits takes it over, and
 * a call from inside the callback takes it over at once. */
#ifndef REEL_RUNTIME_TURNS_H
#define REEL_RUNTIME_TURNS_H

#include "base/error.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#define TURN_MS 20.0

/* Who computes and who waits; one per model. */
struct turns;

/* One session's place among them. Zeroed before its first use; belongs to the thread that uses the
 * session, but for what is marked. */
struct turn {
    struct turns *turns; /* of the last turn_take; NULL: the backend needs no turns */
    const atomic_bool *cancel;
    bool ahead; /* goes before those who wait already; set by its owner, while that does not wait */
    bool held;  /* taken and not given back; another may have taken a lent one over */
    pthread_cond_t *granted_to; /* while it waits. This and what follows: guarded by turns->mutex */
    struct turn *next;          /* in the queue */
    bool granted;
    bool lent;
    bool
        open; /* handed on: whoever comes may have the next one; set by its owner, with the mutex */
    /* When its clock began, and when it is over while others wait; changed with the mutex held. */
    _Atomic double since_ms, until_ms;
    pthread_t thread;
};

/* `queues`: as in backend_info. */
enum reel_status turns_open(struct turns **out, bool queues, struct reel_error *err);
void turns_close(struct turns *turns); /* NULL: nothing */

/* Waits for its turn. REEL_E_CANCELLED soon after *cancel (or NULL) has become true. `turns` NULL:
 * it is always its turn. */
enum reel_status turn_take(struct turn *turn, struct turns *turns, const atomic_bool *cancel,
                           struct reel_error *err);
void turn_give(struct turn *turn); /* not taken: nothing */

/* What the turn was taken for is in the device's queue, or will never be: who waits, or comes, has
 * the next turn now. To be given all the same, as soon as that is done. Nothing where the backend
 * has no queue. */
void turn_hand_on(struct turn *turn);

/* Several sessions compute at this time: somebody waited within the last tenth of a second. `turns`
 * may be NULL. */
bool turns_are_shared(const struct turns *turns);

/* Somebody waits and the turn has lasted long enough, or it has been handed on. While nobody waits
 * this is two loads. */
bool turn_is_over(const struct turn *turn);

/* When it is over, lets those who wait go first. False: cancelled; the turn is gone then. */
bool turn_pass(struct turn *turn);

/* Around a callback of the caller; without a turn they do nothing. False: cancelled while it waited
 * for a turn that had been taken over; the turn is gone then. */
void turn_lend(struct turn *turn);
bool turn_resume(struct turn *turn);

/* For who waits for something that comes with no signal, too, such as a flag of cancellation: a
 * condition, and a wait for it of at most 20 ms. On Linux neither takes memory nor fails. */
void look_open(pthread_cond_t *condition);
void look_wait(pthread_cond_t *condition, pthread_mutex_t *mutex);

#endif
