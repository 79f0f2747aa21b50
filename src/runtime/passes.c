/* Everything between the passes happens with one mutex held. It is given back during a step; then
 * the thread of the passes alone uses the states of the columns that have a seat, and a session
 * that wants to leave waits for the step's end. */
#include "runtime/passes.h"

#include "base/clock.h"
#include "base/memory.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { MOST_COLUMNS = 8 };
/* A session that decodes goes on by itself when none else has done so for this long. */
#define SHARED_MS 100.0
/* After a thread could not be made the next try waits this long. */
#define RETRY_MS 1000.0

/* The pass that the thread of the passes is in. */
struct pass {
    double since_ms;
    int n_columns;   /* drafts included */
    int n_ids;       /* made */
    double expected; /* ids, by what drafts promise */
};

struct passes {
    const struct backend_ops *ops;
    struct backend *backend;
    struct turns *turns;
    int most;      /* columns of a pass */
    pid_t process; /* that has the thread */
    struct turn turn;
    atomic_int n_wanting; /* columns with a seat or waiting; changed with the mutex held */
    struct pass pass;     /* this and the next are of the thread of the passes */
    struct pass_costs costs;
    int n_turn_ids; /* made in this turn; likewise */

    pthread_mutex_t mutex; /* guards what follows */
    pthread_cond_t work;   /* the thread waits for columns */
    pthread_t thread;
    bool has_thread, ends;
    double no_thread_ms; /* when none could be made the last time */
    double shared_ms;    /* when more than one session decoded the last time */

    struct column *first, *last; /* those that wait for a seat */
    int n_waiting;
    struct column *seats[MOST_COLUMNS]; /* [n_seats], who has had one for longest first */
    int n_seats;
    bool in_step;   /* the seats are used without the mutex */
    bool interrupt; /* who has a seat is to be decided again */
    struct column *alone;
};

/* ---- seats; with the mutex held ---- */

static int wanting(const struct passes *p) { return p->n_waiting + p->n_seats; }

static void count_wanting(struct passes *p) {
    atomic_store_explicit(&p->n_wanting, wanting(p), memory_order_relaxed);
    if (wanting(p) > 1 || (wanting(p) == 1 && p->alone)) p->shared_ms = clock_ms();
}

static void queue_up(struct passes *p, struct column *c) {
    c->place = COLUMN_WAITS;
    c->next_waiting = NULL;
    *(p->last ? &p->last->next_waiting : &p->first) = c;
    p->last = c;
    p->n_waiting++;
    if (p->n_seats < p->most) p->interrupt = true;
    count_wanting(p);
    pthread_cond_signal(&p->work);
}

static void leave_queue(struct passes *p, struct column *c) {
    struct column *before = NULL;
    for (struct column *at = p->first; at != c; at = at->next_waiting)
        before = at;
    *(before ? &before->next_waiting : &p->first) = c->next_waiting;
    if (p->last == c) p->last = before;
    p->n_waiting--;
    c->place = COLUMN_OUT;
    count_wanting(p);
}

static void sit_down(struct passes *p, struct column *c) {
    leave_queue(p, c);
    c->place = COLUMN_SEATED;
    c->seated_ms = clock_ms();
    p->seats[p->n_seats++] = c;
    count_wanting(p);
}

static void stand_up(struct passes *p, struct column *c) {
    int at = 0;
    while (p->seats[at] != c)
        at++;
    for (p->n_seats--; at < p->n_seats; at++)
        p->seats[at] = p->seats[at + 1];
    c->place = COLUMN_OUT;
    count_wanting(p);
}

/* Somebody waits for a seat, and who has had one for longest has had it for a turn. */
static bool is_seat_due(const struct passes *p) {
    return p->n_waiting > 0 && p->n_seats == p->most &&
           clock_ms() - p->seats[0]->seated_ms >= TURN_MS;
}

/* First come, first served; who stands up for another is the last to wait. */
static void give_seats(struct passes *p) {
    for (int n = p->n_waiting; n > 0 && (p->n_seats < p->most || is_seat_due(p)); n--) {
        struct column *oldest = p->seats[0];
        const bool swaps = p->n_seats == p->most;
        if (swaps) stand_up(p, oldest);
        sit_down(p, p->first);
        if (swaps) queue_up(p, oldest);
    }
}

/* One session decodes, and has done so without others for a while. */
static bool is_lonely(const struct passes *p) {
    return p->n_seats == 1 && p->n_waiting == 0 && !p->alone &&
           clock_ms() - p->shared_ms >= SHARED_MS;
}

static void tell(struct column *c) {
    if (c->listens) pthread_cond_signal(&c->news);
}

/* No more ids will come of a column with a seat. */
static void end_column(struct passes *p, struct column *c, enum reel_status status) {
    stand_up(p, c);
    c->status = status;
    c->over = true;
    tell(c);
}

/* ---- a step ---- */

static int32_t draw_for(void *user, const float *logits, int64_t position) {
    const struct column *c = user;
    return c->decode.draw(c->decode.user, logits, position);
}

static bool keep_id(void *user, int32_t id) {
    struct column *c = user;
    const bool go_on = c->decode.on_id(c->decode.user, id);
    c->next.id = id;
    pthread_mutex_lock(&c->passes->mutex);
    c->made[(c->first_made + c->n_made++) % PASSES_AHEAD] = c->next;
    c->next.n_drafts = 0;
    c->passes->pass.n_ids++;
    c->passes->n_turn_ids++;
    c->n_step++;
    c->last = !go_on;
    tell(c);
    pthread_mutex_unlock(&c->passes->mutex);
    return go_on;
}

static bool never_enough(void *user) {
    (void)user;
    return false;
}

static void begin_pass(struct passes *p) {
    p->pass =
        (struct pass){ .since_ms = clock_ms(), .n_columns = p->n_seats, .expected = p->n_seats };
}

/* Guesses for the columns that nobody has. */
static int draft_for(void *user, int32_t *ids, int most) {
    struct column *c = user;
    struct passes *p = c->passes;
    struct guess guess;
    const struct pass_room room = { most, &p->costs, p->pass.n_columns, p->pass.expected,
                                    true, &p->turn };
    const double start = clock_ms();
    c->guess(c->decode.user, &guess, &room);
    p->pass.since_ms += clock_ms() - start; /* guessing takes time, the pass is not longer */
    float all_right = 1;
    for (int i = 0; i < guess.n; i++)
        p->pass.expected += (double)(all_right *= guess.chance[i]);
    p->pass.n_columns += guess.n;
    memcpy(ids, guess.ids, (size_t)guess.n * sizeof *ids);
    c->next.n_drafts = guess.n;
    return guess.n;
}

/* A turn has a pass of all at least, however short it is. */
static bool is_turn_over(const struct passes *p) {
    return p->n_turn_ids >= p->n_seats && turn_is_over(&p->turn);
}

static bool is_enough(void *user) {
    struct passes *p = user;
    if (p->pass.n_ids > 0)
        pass_costs_saw(&p->costs, p->pass.n_columns, p->n_seats, p->pass.n_ids,
                       clock_ms() - p->pass.since_ms);
    begin_pass(p);
    pthread_mutex_lock(&p->mutex);
    const bool enough = p->interrupt || p->ends || is_seat_due(p) || is_lonely(p);
    pthread_mutex_unlock(&p->mutex);
    if (enough || !is_turn_over(p)) return enough;
    turn_hand_on(&p->turn);
    return true;
}

/* What the backend decodes for a column: as many ids as there is room for. */
static struct backend_decode part_of(struct column *c) {
    const int room = c->ahead - c->n_made;
    struct backend_decode part = c->decode;
    if (part.max_tokens > room) part.max_tokens = room;
    part.on_id = keep_id;
    part.enough = never_enough;
    part.draw = draw_for;
    part.draft = c->guess ? draft_for : NULL;
    part.user = c;
    return part;
}

/* What a step has made of a column. */
static void settle(struct passes *p, struct column *c, const struct backend_column *told) {
    c->decode.position += c->n_step;
    c->decode.max_tokens -= c->n_step;
    if (c->n_step > 0) c->decode.id = c->next.id;
    if (c->last || c->decode.max_tokens == 0) {
        end_column(p, c, REEL_OK);
    } else if (told->over && (told->status != REEL_OK || c->n_step == 0)) {
        c->err = told->err; /* a backend that makes nothing and says nothing will not do it again */
        end_column(p, c, told->status == REEL_OK ? REEL_E_UNSUPPORTED : told->status);
    } else if (c->n_made == c->ahead) {
        stand_up(p, c);
    }
    if (!c->leaves) return;
    if (c->place == COLUMN_SEATED) stand_up(p, c);
    pthread_cond_signal(&c->news);
}

/* Sends those away that cannot go on where they are, which they know to mend by themselves: an
 * evaluation, or a wish to be alone. */
static void send_home(struct passes *p) {
    if (is_lonely(p)) end_column(p, p->seats[0], REEL_OK);
    for (int i = p->n_seats - 1; i >= 0 && p->ops->resume; i--) {
        struct column *c = p->seats[i];
        if (p->ops->resume(c->state, c->decode.position) != c->decode.position)
            end_column(p, c, REEL_OK);
    }
}

/* With the mutex held, which is given back meanwhile. False: nobody wants to decode. */
static bool step(struct passes *p) {
    struct column *seated[MOST_COLUMNS];
    struct backend_decode parts[MOST_COLUMNS];
    struct backend_column columns[MOST_COLUMNS] = { 0 };
    p->interrupt = false;
    give_seats(p);
    send_home(p);
    const int n = p->n_seats;
    if (n == 0) return p->n_waiting > 0;
    for (int i = 0; i < n; i++) {
        struct column *c = seated[i] = p->seats[i];
        c->n_step = 0;
        parts[i] = part_of(c);
        columns[i].state = c->state;
        columns[i].decode = &parts[i];
    }
    const struct backend_batch batch = {
        .columns = columns, .n = n, .enough = is_enough, .user = p
    };
    p->in_step = true;
    pthread_mutex_unlock(&p->mutex);
    begin_pass(p);
    p->ops->step(p->backend, &batch);
    if (p->turn.open) turn_give(&p->turn); /* the clock of the next one begins */
    pthread_mutex_lock(&p->mutex);
    p->in_step = false;
    for (int i = 0; i < n; i++)
        settle(p, seated[i], &columns[i]);
    return true;
}

static void *run_passes(void *of) {
    struct passes *p = of;
    pthread_mutex_lock(&p->mutex);
    while (!p->ends) {
        if (wanting(p) == 0) {
            pthread_cond_wait(&p->work, &p->mutex);
            continue;
        }
        pthread_mutex_unlock(&p->mutex);
        const enum reel_status got = turn_take(&p->turn, p->turns, NULL, NULL);
        pthread_mutex_lock(&p->mutex);
        p->n_turn_ids = 0;
        while (got == REEL_OK && step(p) && p->turn.held && !is_turn_over(p))
            ; /* it cannot be cancelled */
        pthread_mutex_unlock(&p->mutex);
        turn_give(&p->turn);
        pthread_mutex_lock(&p->mutex);
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

/* ---- opening ---- */

enum reel_status passes_open(struct passes **out, const struct backend_ops *ops,
                             struct backend *backend, struct turns *turns, int most_columns,
                             double column_share, struct reel_error *err) {
    struct passes *p = NULL;
    *out = NULL;
    enum reel_status status = mem_zeroed(&p, 1, sizeof *p, "the passes of sessions", err);
    if (status != REEL_OK) return status;
    if (pthread_mutex_init(&p->mutex, NULL) != 0) {
        mem_free(p);
        return err_memory(err, "a mutex", sizeof p->mutex);
    }
    pthread_cond_init(&p->work, NULL);
    p->ops = ops;
    p->backend = backend;
    p->turns = turns;
    p->turn.ahead = true;
    p->most = most_columns < MOST_COLUMNS ? most_columns : MOST_COLUMNS;
    p->costs.column_share = column_share;
    p->process = getpid();
    p->shared_ms = -SHARED_MS;
    p->no_thread_ms = -RETRY_MS;
    *out = p;
    return REEL_OK;
}

/* With the mutex held. Signals are for the program's own threads. */
static bool has_thread(struct passes *p) {
    sigset_t all, before;
    if (p->has_thread) return true;
    if (clock_ms() - p->no_thread_ms < RETRY_MS) return false;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    p->has_thread = pthread_create(&p->thread, NULL, run_passes, p) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!p->has_thread) p->no_thread_ms = clock_ms();
    return p->has_thread;
}

void passes_close(struct passes *p) {
    if (!p) return;
    if (p->process == getpid()) { /* else the thread is not here, and may hold the mutex */
        pthread_mutex_lock(&p->mutex);
        p->ends = true;
        pthread_cond_signal(&p->work);
        pthread_mutex_unlock(&p->mutex);
        if (p->has_thread) pthread_join(p->thread, NULL);
        pthread_cond_destroy(&p->work);
        pthread_mutex_destroy(&p->mutex);
    }
    mem_free(p);
}

/* ---- sessions ---- */

/* One that decodes by itself on this very thread is waiting inside of a callback. */
static bool others_decode(const struct passes *p, const struct column *self) {
    if (wanting(p) > 0 || clock_ms() - p->shared_ms < SHARED_MS) return true;
    for (const struct column *c = p->alone; c; c = c->next_alone)
        if (c != self && !pthread_equal(c->thread, pthread_self())) return true;
    return false;
}

static void begin_alone(struct passes *p, struct column *c) {
    if (c->alone) return;
    c->alone = true;
    c->thread = pthread_self();
    c->next_alone = p->alone;
    p->alone = c;
}

static void end_alone(struct passes *p, struct column *c) {
    struct column **link = &p->alone;
    if (!c->alone) return;
    while (*link != c)
        link = &(*link)->next_alone;
    *link = c->next_alone;
    c->alone = false;
}

bool passes_join(struct passes *p, struct column *c) {
    c->passes = p;
    pthread_mutex_lock(&p->mutex);
    const bool joins = others_decode(p, c) && has_thread(p);
    if (joins) {
        end_alone(p, c);
        look_open(&c->news);
        c->next = (struct made_id){ 0 };
        c->status = REEL_OK;
        c->joined = true;
        c->over = c->last = c->leaves = c->listens = false;
        c->first_made = c->n_made = 0;
        queue_up(p, c);
    } else {
        begin_alone(p, c);
    }
    c->only = !joins && p->alone == c && !c->next_alone && wanting(p) == 0;
    pthread_mutex_unlock(&p->mutex);
    return joins;
}

bool passes_are_wanted(const struct passes *p) {
    return p && atomic_load_explicit(&p->n_wanting, memory_order_relaxed) > 0;
}

bool passes_take(struct column *c, struct made_id *made) {
    struct passes *p = c->passes;
    pthread_mutex_lock(&p->mutex);
    c->listens = true;
    while (c->n_made == 0 && !c->over && !atomic_load(c->decode.cancel))
        look_wait(&c->news, &p->mutex);
    c->listens = false;
    const bool got = c->n_made > 0 && !atomic_load(c->decode.cancel);
    if (got) {
        *made = c->made[c->first_made];
        c->first_made = (c->first_made + 1) % PASSES_AHEAD;
        c->n_made--;
        if (c->place == COLUMN_OUT && !c->over && c->n_made <= c->ahead / 2) queue_up(p, c);
    }
    pthread_mutex_unlock(&p->mutex);
    return got;
}

void passes_leave(struct column *c) {
    struct passes *p = c->passes;
    if (!p || p->process != getpid()) return; /* forked: see passes_close */
    pthread_mutex_lock(&p->mutex);
    end_alone(p, c);
    c->leaves = true;
    p->interrupt = true;
    while (c->place == COLUMN_SEATED && p->in_step)
        look_wait(&c->news, &p->mutex);
    if (c->place == COLUMN_SEATED) stand_up(p, c);
    if (c->place == COLUMN_WAITS) leave_queue(p, c);
    pthread_mutex_unlock(&p->mutex);
    if (c->joined) pthread_cond_destroy(&c->news);
    c->joined = false;
    c->passes = NULL;
}
