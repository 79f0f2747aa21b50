/* A ticket lock whose holder knows that somebody waits. The turn is handed to the first of the
 * queue directly, so that nobody overtakes; each waits on a condition of its own. */
#include "runtime/turns.h"

#include "base/clock.h"
#include "base/memory.h"

#include <math.h>
#include <time.h>

/* Who waits looks this often whether it was cancelled (reel_session_cancel only sets a flag, as
 * signal handlers may call it) and whether the holder's callback has outlasted its turn. */
enum { LOOK_MS = 20 };
enum { SHARED_MS = 100 };
#define LEAST_MS 1.0 /* of a turn */

struct turns {
    bool queues;
    pthread_mutex_t mutex;
    double before_ms;         /* how long the last turn lasted */
    struct turn *holder;      /* NULL: nobody; the queue is empty then */
    const struct turn *ahead; /* handed its turn on to the holder, and is not done; or NULL */
    struct turn *first, *last;
    atomic_int n_waiting;   /* changed with the mutex held, read without; likewise: */
    atomic_llong waited_ms; /* when somebody's wait ended the last time */
};

enum reel_status turns_open(struct turns **out, bool queues, struct reel_error *err) {
    struct turns *t = NULL;
    *out = NULL;
    enum reel_status status = mem_zeroed(&t, 1, sizeof *t, "the turns of sessions", err);
    if (status != REEL_OK) return status;
    if (pthread_mutex_init(&t->mutex, NULL) != 0) {
        mem_free(t);
        return err_memory(err, "a mutex", sizeof t->mutex);
    }
    atomic_init(&t->waited_ms, -SHARED_MS);
    t->before_ms = TURN_MS;
    t->queues = queues;
    *out = t;
    return REEL_OK;
}

void turns_close(struct turns *t) {
    if (!t) return;
    pthread_mutex_destroy(&t->mutex);
    mem_free(t);
}

/* ---- waiting ---- */

void look_open(pthread_cond_t *condition) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(condition, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

void look_wait(pthread_cond_t *condition, pthread_mutex_t *mutex) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += LOOK_MS * 1000000L;
    if (until.tv_nsec >= 1000000000L) until.tv_sec++, until.tv_nsec -= 1000000000L;
    (void)pthread_cond_timedwait(condition, mutex, &until);
}

/* ---- with the mutex held ---- */

static double lasted(const struct turn *turn) { return clock_ms() - turn->since_ms; }

static void start_clock(struct turns *t) {
    double limit = TURN_MS;
    if (t->holder->ahead) limit = fmax(fmin(t->before_ms, TURN_MS), LEAST_MS);
    t->holder->since_ms = clock_ms();
    t->holder->until_ms = t->holder->since_ms + limit;
}

/* `ahead`: whose part is not done, or NULL. */
static void begin(struct turns *t, struct turn *turn, const struct turn *ahead) {
    t->holder = turn;
    t->ahead = ahead;
    turn->lent = turn->open = false;
    start_clock(t);
    if (ahead) turn->until_ms = INFINITY;
}

static void join_queue(struct turns *t, struct turn *turn) {
    struct turn **link = turn->ahead || !t->last ? &t->first : &t->last->next;
    turn->granted = false;
    turn->next = *link;
    *link = turn;
    if (!turn->next) t->last = turn;
    atomic_fetch_add_explicit(&t->n_waiting, 1, memory_order_relaxed);
}

static void leave_queue(struct turns *t, const struct turn *turn) {
    struct turn *before = NULL;
    for (struct turn *at = t->first; at != turn; at = at->next)
        before = at;
    if (before)
        before->next = turn->next;
    else
        t->first = turn->next;
    if (t->last == turn) t->last = before;
    atomic_fetch_sub_explicit(&t->n_waiting, 1, memory_order_relaxed);
    atomic_store_explicit(&t->waited_ms, (long long)clock_ms(), memory_order_relaxed);
}

/* Hands the turn to the first of the queue, or to nobody. */
static void hand_over(struct turns *t) {
    struct turn *next = t->first;
    const struct turn *ahead = t->holder->open ? t->holder : NULL;
    if (!ahead) t->before_ms = lasted(t->holder);
    t->holder = NULL;
    t->ahead = NULL;
    if (!next) return;
    leave_queue(t, next);
    begin(t, next, ahead);
    next->granted = true;
    pthread_cond_signal(next->granted_to);
}

/* The holder's thread is inside a callback: for longer than its turn lasts, or it is the one that
 * asks, which it cannot do from anywhere else. */
static bool may_be_taken_over(const struct turns *t) {
    const struct turn *holder = t->holder;
    return pthread_equal(holder->thread, pthread_self()) ||
           (holder->lent && clock_ms() - holder->since_ms >= TURN_MS);
}

/* False: cancelled, and out of the queue. */
static bool wait_for_turn(struct turns *t, struct turn *turn) {
    for (;;) {
        if (!turn->granted && may_be_taken_over(t)) hand_over(t);
        if (turn->granted) return true;
        if (turn->cancel && atomic_load(turn->cancel)) break;
        look_wait(turn->granted_to, &t->mutex);
    }
    leave_queue(t, turn);
    return false;
}

static bool queue_up(struct turns *t, struct turn *turn) {
    pthread_cond_t granted;
    look_open(&granted);
    turn->granted_to = &granted;
    join_queue(t, turn);
    const bool got = wait_for_turn(t, turn);
    turn->granted_to = NULL;
    pthread_cond_destroy(&granted);
    return got;
}

/* ---- the calls ---- */

/* Whether it is the session's turn now; waits for that. */
static bool acquire(struct turn *turn) {
    struct turns *t = turn->turns;
    bool got = true;
    pthread_mutex_lock(&t->mutex);
    turn->thread = pthread_self();
    if (t->holder == turn)
        turn->lent = false; /* nobody took it over */
    else if (!t->holder || t->holder->open)
        begin(t, turn, t->holder);
    else
        got = queue_up(t, turn);
    pthread_mutex_unlock(&t->mutex);
    turn->held = got;
    return got;
}

enum reel_status turn_take(struct turn *turn, struct turns *turns, const atomic_bool *cancel,
                           struct reel_error *err) {
    turn->turns = turns;
    turn->cancel = cancel;
    if (!turns || acquire(turn)) return REEL_OK;
    return err_set(err, REEL_E_CANCELLED, "cancelled before its turn came");
}

void turn_give(struct turn *turn) {
    struct turns *t = turn->turns;
    if (!turn->held) return;
    turn->held = false;
    pthread_mutex_lock(&t->mutex);
    turn->open = false;
    if (t->ahead == turn) {
        t->ahead = NULL;
        t->before_ms = lasted(turn);
        start_clock(t);
    } else if (t->holder == turn) {
        hand_over(t);
    }
    pthread_mutex_unlock(&t->mutex);
}

void turn_hand_on(struct turn *turn) {
    struct turns *t = turn->turns;
    if (!turn->held || !t->queues || turn->open) return;
    pthread_mutex_lock(&t->mutex);
    if (t->holder == turn) {
        turn->open = true;
        if (t->first) hand_over(t);
    }
    pthread_mutex_unlock(&t->mutex);
}

bool turns_are_shared(const struct turns *t) {
    if (!t) return false;
    if (atomic_load_explicit(&t->n_waiting, memory_order_relaxed) > 0) return true;
    const long long waited = atomic_load_explicit(&t->waited_ms, memory_order_relaxed);
    return clock_ms() - (double)waited < SHARED_MS;
}

bool turn_is_over(const struct turn *turn) {
    if (!turn->held) return false;
    return turn->open || (atomic_load_explicit(&turn->turns->n_waiting, memory_order_relaxed) > 0 &&
                          clock_ms() >= turn->until_ms);
}

bool turn_pass(struct turn *turn) {
    if (!turn_is_over(turn)) return true;
    turn_give(turn);
    return acquire(turn);
}

void turn_lend(struct turn *turn) {
    struct turns *t = turn->turns;
    if (!turn->held) return;
    pthread_mutex_lock(&t->mutex);
    if (t->holder == turn) turn->lent = true;
    pthread_mutex_unlock(&t->mutex);
}

bool turn_resume(struct turn *turn) { return !turn->held || turn->open || acquire(turn); }
