/* A session and its thread are a seat. A run gives every seat a piece of work, opens a gate when
 * all threads stand at it, and waits until the last one is done. The sessions stay open from run to
 * run; threads do not.
 *
 * What a seat generates is known before anything is timed: each seat has done the same alone. */
#include "cli/bench_parallel.h"

#include "base/clock.h"
#include "base/memory.h"
#include "cli/open_model.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SEED 0x5eedu
/* Some GPUs count energy in steps of a tenth of a second. */
#define ENERGY_SECONDS 1.0

enum {
    MOST_GAPS = 1 << 15, /* of a seat, for the quantiles; the worst is of all */
    SETTLED = 4,         /* tokens that every seat makes before the first prompt arrives */
    POLL_MS = 1
};

struct seat {
    struct crowd *crowd;
    int index;
    struct reel_session *session;
    int32_t *given; /* [n_given] its depth and its prompt */
    int n_given, n_start, n_prompt;
    int32_t *alone; /* [n_ids] what it generates, known from doing so alone */
    int32_t *ids;   /* [n_ids] of the run at hand; `made` of them */
    int n_ids, made;
    pthread_t thread;
    enum reel_status (*work)(struct seat *seat);
    enum reel_status status;
    struct reel_error err;
    double end_s;   /* when its work was done */
    double first_s; /* from the gate's opening to its first token; 0 without a prompt */
    /* Tokens by the clock. */
    bool timed;    /* the token before is one of this call, so that the time between them counts */
    double last_s; /* when it came */
    int window;    /* crowd->window at that time */
    float *gaps;   /* [MOST_GAPS] milliseconds */
    int n_gaps;
    float worst_ms;
    uint64_t n_meanwhile; /* tokens that came while a window was open */
    atomic_int n_tokens;  /* since the run began; others look */
    bool wrong;           /* ids differ from those alone */
};

struct crowd {
    const struct reel_model *model;
    const struct parallel_test *test;
    const struct bench_how *how;
    struct reel_model_info info;
    struct seat
        *seats; /* [n_seats] with arrivals the last one is the guest, whose prompts arrive */
    int n_seats;
    pthread_mutex_t mutex;
    pthread_cond_t opened;
    bool open, aborted; /* the gate; guarded by the mutex */
    double start_s;     /* when the gate opened */
    bool counts;        /* gaps and tokens of this run count */
    atomic_int window;  /* odd while a prompt is being read that counts */
    atomic_bool stop;   /* no further lap */
    atomic_int n_over;  /* seats of the run that are done, well or not */
    double *seconds;    /* [repeats] the guest's prompts */
    reel_progress_fn progress;
    void *progress_user;
};

/* ---- tokens ---- */

/* Whether the time since the token before counts: always, or with arrivals only when a prompt was
 * being read in it. */
static bool gap_counts(const struct crowd *c, const struct seat *seat, int window) {
    if (!c->counts || !seat->timed) return false;
    return !c->test->arrivals || window % 2 == 1 || window != seat->window;
}

static bool on_token(void *user, const struct reel_token *token) {
    struct seat *seat = user;
    struct crowd *c = seat->crowd;
    const double now = clock_s();
    const float gap_ms = (float)((now - seat->last_s) * 1e3);
    const int window = atomic_load(&c->window);
    if (gap_counts(c, seat, window)) {
        if (gap_ms > seat->worst_ms) seat->worst_ms = gap_ms;
        if (seat->n_gaps < MOST_GAPS) seat->gaps[seat->n_gaps++] = gap_ms;
    }
    seat->n_meanwhile += window % 2 == 1;
    seat->last_s = now;
    seat->window = window;
    seat->timed = true;
    seat->ids[seat->made++] = token->id;
    atomic_fetch_add_explicit(&seat->n_tokens, 1, memory_order_relaxed);
    return true;
}

static enum reel_status generate_call(struct seat *seat, int n) {
    struct reel_sampling sampling = seat->crowd->how->sampling;
    struct reel_generation_result result = { .size = sizeof result };
    struct reel_generation generation = { .size = sizeof generation,
                                          .sampling = &sampling,
                                          .max_tokens = n,
                                          .ignore_stop_ids = true,
                                          .on_token = on_token,
                                          .user = seat,
                                          .speculation = seat->crowd->how->speculation,
                                          .most_drafts = seat->crowd->how->most_drafts };
    sampling.seed += (uint64_t)seat->index;
    enum reel_status status = reel_generate(seat->session, &generation, &result, &seat->err);
    if (status == REEL_OK && result.n_tokens != n)
        status =
            err_set(&seat->err, REEL_E_STATE, "%d of %d tokens were generated", result.n_tokens, n);
    return status;
}

static enum reel_status generate(struct seat *seat, int n) {
    enum reel_status status = REEL_OK;
    const int calls = seat->crowd->how->one_at_a_time ? n : 1;
    for (int i = 0; i < calls && status == REEL_OK; i++)
        status = generate_call(seat, n / calls);
    return status;
}

/* ---- work ---- */

/* Makes the session hold the first n given ids with the bits that it has alone. A model with
 * recurrent layers goes back to some positions only and evaluates the rest once more, cut
 * elsewhere, which may round otherwise: there all are read anew, cut as the first time. */
static enum reel_status hold(struct seat *seat, int n) {
    struct reel_session *s = seat->session;
    const int held = reel_session_length(s), least = held < n ? held : n;
    int reused = 0;
    enum reel_status status = reel_session_sync(s, seat->given, n, &reused, &seat->err);
    if (status != REEL_OK || reused >= least) return status;
    status = reel_session_truncate(s, 0, &seat->err);
    if (status == REEL_OK && seat->n_start < n)
        status = reel_session_sync(s, seat->given, seat->n_start, NULL, &seat->err);
    if (status == REEL_OK) status = reel_session_sync(s, seat->given, n, NULL, &seat->err);
    return status;
}

/* What is held when the clock starts: the depth. Without a prompt the first id is drawn before the
 * clock starts, so that each id of the timed ones costs one evaluation. */
static enum reel_status work_start(struct seat *seat) {
    seat->made = 0;
    seat->timed = false;
    enum reel_status status = hold(seat, seat->n_start);
    if (status == REEL_OK && seat->n_prompt == 0) status = generate(seat, 1);
    seat->timed = false;
    return status;
}

static enum reel_status work_prompt(struct seat *seat) {
    enum reel_status status = hold(seat, seat->n_given);
    if (status == REEL_OK) status = generate(seat, 1);
    seat->timed = false; /* it waits for the others now */
    return status;
}

static enum reel_status work_tokens(struct seat *seat) {
    return generate(seat, seat->crowd->test->n_gen);
}

static bool as_alone(struct seat *seat) {
    seat->wrong |= memcmp(seat->ids, seat->alone, (size_t)seat->made * sizeof *seat->ids) != 0;
    return !seat->wrong;
}

/* The same tokens again and again, until somebody says stop; in as many calls as alone, since some
 * penalties are of a call. */
static enum reel_status work_laps(struct seat *seat) {
    enum reel_status status = REEL_OK;
    while (status == REEL_OK && !atomic_load(&seat->crowd->stop)) {
        seat->made = 0;
        seat->timed = false;
        status = work_prompt(seat);
        if (status == REEL_OK) status = work_tokens(seat);
        if (!as_alone(seat)) break;
    }
    return status;
}

static void doze(double seconds) {
    struct timespec t = { (time_t)seconds, (long)(fmod(seconds, 1) * 1e9) };
    nanosleep(&t, NULL);
}

/* Every other seat generates, or some seat is over before its time. */
static void wait_until_settled(const struct crowd *c) {
    for (int i = 0; i < c->n_seats - 1; i++)
        while (atomic_load(&c->seats[i].n_tokens) < SETTLED && atomic_load(&c->n_over) == 0)
            doze(POLL_MS * 1e-3);
}

/* The guest: a prompt arrives, gets its first token, and the next one arrives. */
static enum reel_status work_arrivals(struct seat *seat) {
    struct crowd *c = seat->crowd;
    const int repeats = c->how->repeats;
    enum reel_status status = REEL_OK;
    wait_until_settled(c);
    for (int i = -1; i < repeats && status == REEL_OK && atomic_load(&c->n_over) == 0; i++) {
        status = work_start(seat);
        const double start = clock_s();
        if (i >= 0) atomic_fetch_add(&c->window, 1);
        if (status == REEL_OK) status = work_prompt(seat);
        if (i >= 0) {
            c->seconds[i] = clock_s() - start;
            atomic_fetch_add(&c->window, 1);
        }
        if (!as_alone(seat)) break;
        if (status == REEL_OK && c->progress &&
            !c->progress(c->progress_user, "measuring", (uint64_t)(i + 2), (uint64_t)repeats + 1))
            status = err_set(&seat->err, REEL_E_CANCELLED, "cancelled");
    }
    atomic_store(&c->stop, true);
    return status;
}

static enum reel_status work_clock(struct seat *seat) {
    doze(ENERGY_SECONDS);
    atomic_store(&seat->crowd->stop, true);
    return REEL_OK;
}

/* ---- seats at work together ---- */

static void *sit(void *of) {
    struct seat *seat = of;
    struct crowd *c = seat->crowd;
    pthread_mutex_lock(&c->mutex);
    while (!c->open)
        pthread_cond_wait(&c->opened, &c->mutex);
    const bool aborted = c->aborted;
    pthread_mutex_unlock(&c->mutex);
    if (!aborted) seat->status = seat->work(seat);
    seat->end_s = clock_s();
    atomic_fetch_add(&c->n_over, 1);
    return NULL;
}

static void open_gate(struct crowd *c, bool aborted) {
    pthread_mutex_lock(&c->mutex);
    c->open = true;
    c->aborted = aborted;
    c->start_s = clock_s();
    pthread_cond_broadcast(&c->opened);
    pthread_mutex_unlock(&c->mutex);
}

/* The seats' work, all at once. The first failure counts; *seconds: until the last was done. */
static enum reel_status together(struct crowd *c, struct seat *seats, int n, double *seconds,
                                 struct reel_error *err) {
    enum reel_status status = REEL_OK;
    int started = 0;
    c->open = c->aborted = false;
    atomic_store(&c->stop, false);
    atomic_store(&c->n_over, 0);
    for (; started < n && status == REEL_OK; started++) {
        struct seat *seat = &seats[started];
        seat->status = REEL_OK;
        atomic_store(&seat->n_tokens, 0);
        if (pthread_create(&seat->thread, NULL, sit, seat) != 0) {
            status =
                err_set(err, REEL_E_MEMORY, "thread %d of %d cannot be started", started + 1, n);
            break;
        }
    }
    open_gate(c, status != REEL_OK);
    *seconds = 0;
    for (int i = 0; i < started; i++) {
        pthread_join(seats[i].thread, NULL);
        if (seats[i].end_s - c->start_s > *seconds) *seconds = seats[i].end_s - c->start_s;
        if (status == REEL_OK && seats[i].status != REEL_OK)
            status = err_set(err, seats[i].status, "%s", seats[i].err.text);
    }
    return status;
}

static void give_work(struct seat *seats, int n, enum reel_status (*work)(struct seat *seat)) {
    for (int i = 0; i < n; i++)
        seats[i].work = work;
}

/* One run of n seats: prompts all at once, then tokens all at once. */
static enum reel_status run(struct crowd *c, struct seat *seats, int n, double *prompt_s,
                            double *gen_s, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    *prompt_s = *gen_s = 0;
    for (int i = 0; i < n && status == REEL_OK; i++) {
        status = work_start(&seats[i]);
        if (status != REEL_OK) status = err_set(err, status, "%s", seats[i].err.text);
    }
    if (status == REEL_OK && seats[0].n_prompt > 0) {
        give_work(seats, n, work_prompt);
        status = together(c, seats, n, prompt_s, err);
    }
    for (int i = 0; i < n && seats[0].n_prompt > 0; i++)
        seats[i].first_s = seats[i].end_s - c->start_s;
    if (status != REEL_OK || seats[0].n_ids == 1) return status;
    give_work(seats, n, work_tokens);
    return together(c, seats, n, gen_s, err);
}

static enum reel_status told_apart(const struct crowd *c, struct reel_error *err) {
    for (int i = 0; i < c->n_seats; i++)
        if (c->seats[i].wrong)
            return err_set(err, REEL_E_MISMATCH,
                           "session %d of %d made other ids beside the others than alone, so no "
                           "speed is printed",
                           i + 1, c->n_seats);
    return REEL_OK;
}

/* What each seat generates, without any other. */
static enum reel_status run_alone(struct crowd *c, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    for (int i = 0; i < c->n_seats && status == REEL_OK; i++) {
        struct seat *seat = &c->seats[i];
        double prompt_s = 0, gen_s = 0;
        status = run(c, seat, 1, &prompt_s, &gen_s, err);
        memcpy(seat->alone, seat->ids, (size_t)seat->made * sizeof *seat->ids);
        if (status == REEL_OK && c->progress &&
            !c->progress(c->progress_user, "generating alone", (uint64_t)i + 1,
                         (uint64_t)c->n_seats))
            status = err_set(err, REEL_E_CANCELLED, "cancelled");
    }
    return status;
}

/* ---- figures ---- */

static int compare_double(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int compare_float(const void *a, const void *b) {
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Sorts in place. */
static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, compare_double);
    return values[(int)ceil(0.5 * (n - 1))];
}

static enum reel_status summarise_gaps(const struct crowd *c, struct parallel_row *row,
                                       struct reel_error *err) {
    float *all = NULL;
    size_t n = 0;
    for (int i = 0; i < c->n_seats; i++)
        n += (size_t)c->seats[i].n_gaps;
    enum reel_status status = mem_zeroed(&all, n, sizeof *all, "times of tokens", err);
    if (status != REEL_OK) return status;
    n = 0;
    for (int i = 0; i < c->n_seats; i++) {
        const struct seat *seat = &c->seats[i];
        memcpy(all + n, seat->gaps, (size_t)seat->n_gaps * sizeof *all);
        n += (size_t)seat->n_gaps;
        if ((double)seat->worst_ms > row->worst_ms) row->worst_ms = (double)seat->worst_ms;
    }
    qsort(all, n, sizeof *all, compare_float);
    if (n > 0) row->p50_ms = (double)all[(size_t)ceil(0.5 * (double)(n - 1))];
    if (n > 0) row->p99_ms = (double)all[(size_t)ceil(0.99 * (double)(n - 1))];
    mem_free(all);
    return REEL_OK;
}

/* Runs in which all sessions do the same at the same time. */
static enum reel_status measure_together(struct crowd *c, struct parallel_row *row,
                                         struct reel_error *err) {
    const int repeats = c->how->repeats, n = c->n_seats;
    double *prompt_s = c->seconds, *gen_s = prompt_s + repeats, *first_s = gen_s + repeats;
    enum reel_status status = REEL_OK;
    for (int i = -1; i < repeats && status == REEL_OK; i++) {
        double read = 0, made = 0;
        c->counts = i >= 0;
        status = run(c, c->seats, n, &read, &made, err);
        for (int k = 0; k < n && status == REEL_OK; k++) {
            (void)as_alone(&c->seats[k]);
            if (i >= 0) first_s[i * n + k] = c->seats[k].first_s;
        }
        if (i >= 0) prompt_s[i] = read, gen_s[i] = made;
        if (status == REEL_OK) status = told_apart(c, err);
        if (status == REEL_OK && c->progress &&
            !c->progress(c->progress_user, "measuring", (uint64_t)(i + 2), (uint64_t)repeats + 1))
            status = err_set(err, REEL_E_CANCELLED, "cancelled");
    }
    if (status != REEL_OK) return status;
    row->prompt_s = median(prompt_s, repeats);
    row->gen_s = median(gen_s, repeats);
    row->gen_per_s = row->gen_s > 0 ? (double)n * row->test.n_gen / row->gen_s : 0;
    if (row->prompt_s > 0) row->first_token_ms = median(first_s, repeats * n) * 1e3;
    return summarise_gaps(c, row, err);
}

/* Prompts that arrive while the others generate. */
static enum reel_status measure_arrivals(struct crowd *c, struct parallel_row *row,
                                         struct reel_error *err) {
    const int repeats = c->how->repeats;
    double seconds = 0, sum = 0, tokens = 0;
    c->counts = true;
    give_work(c->seats, c->n_seats - 1, work_laps);
    c->seats[c->n_seats - 1].work = work_arrivals;
    enum reel_status status = together(c, c->seats, c->n_seats, &seconds, err);
    if (status == REEL_OK) status = told_apart(c, err);
    if (status != REEL_OK) return status;
    for (int i = 0; i < repeats; i++)
        sum += c->seconds[i];
    for (int i = 0; i < c->n_seats - 1; i++)
        tokens += (double)c->seats[i].n_meanwhile;
    row->prompt_s = median(c->seconds, repeats);
    row->first_token_ms = row->prompt_s * 1e3;
    row->gen_per_s = tokens / sum;
    return summarise_gaps(c, row, err);
}

/* Over whole laps of generating that fill a second, after the timed runs. */
static enum reel_status measure_energy(struct crowd *c, struct parallel_row *row,
                                       struct reel_error *err) {
    struct reel_meter_reading from = { .size = sizeof from }, to = { .size = sizeof to };
    struct seat *timer = &c->seats[c->n_seats]; /* there is room for one more */
    double seconds = 0, tokens = 0;
    c->counts = false;
    give_work(c->seats, c->n_seats, work_laps);
    timer->crowd = c;
    timer->work = work_clock;
    enum reel_status status = reel_meter_read(c->how->meter, &from, err);
    if (status == REEL_OK) status = together(c, c->seats, c->n_seats + 1, &seconds, err);
    if (status == REEL_OK) status = reel_meter_read(c->how->meter, &to, err);
    if (status == REEL_OK) status = told_apart(c, err);
    for (int i = 0; i < c->n_seats; i++)
        tokens += atomic_load(&c->seats[i].n_tokens);
    if (status != REEL_OK) return status;
    row->joules_a_token = (to.joules - from.joules) / tokens;
    row->watts = (to.joules - from.joules) / seconds;
    return REEL_OK;
}

/* ---- making and ending ---- */

/* Every seat has ids of its own, so that no two have a prefix in common. */
static void fill_ids(struct seat *seat) {
    uint64_t state = SEED + 7919 * (uint64_t)seat->index;
    for (int i = 0; i < seat->n_given; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        seat->given[i] = (int32_t)((state >> 33) % (uint64_t)seat->crowd->info.vocab);
    }
}

static enum reel_status open_seat(struct crowd *c, struct seat *seat, bool guest,
                                  struct reel_error *err) {
    const struct parallel_test *test = c->test;
    const bool reads = test->n_prompt > 0 && (guest || !test->arrivals);
    seat->crowd = c;
    seat->n_prompt = reads ? test->n_prompt : 0;
    seat->n_start = guest ? 0 : test->depth;
    if (!reads && seat->n_start == 0) seat->n_start = 1; /* something to go on from */
    seat->n_given = seat->n_start + seat->n_prompt;
    seat->n_ids = guest ? 1 : test->n_gen + 1;
    const struct reel_session_options options = { .size = sizeof options,
                                                  .max_context = seat->n_given + seat->n_ids + 1,
                                                  .speculation = c->how->speculation,
                                                  .draft_model = c->how->draft };
    enum reel_status status =
        cli_check_positions(c->model, options.max_context, "-p, -n and -d", err);
    if (status == REEL_OK)
        status = mem_zeroed(&seat->given, (size_t)seat->n_given, sizeof *seat->given, "ids", err);
    if (status == REEL_OK)
        status = mem_zeroed(&seat->alone, (size_t)seat->n_ids, sizeof *seat->alone, "ids", err);
    if (status == REEL_OK)
        status = mem_zeroed(&seat->ids, (size_t)seat->n_ids, sizeof *seat->ids, "ids", err);
    if (status == REEL_OK)
        status = mem_zeroed(&seat->gaps, MOST_GAPS, sizeof *seat->gaps, "times of tokens", err);
    if (status == REEL_OK) fill_ids(seat);
    if (status == REEL_OK) status = reel_session_open(&seat->session, c->model, &options, err);
    return status;
}

static enum reel_status open_crowd(struct crowd *c, struct reel_error *err) {
    const bool arrivals = c->test->arrivals;
    const int n = c->test->n_sessions + arrivals;
    const size_t repeats = (size_t)c->how->repeats;
    enum reel_status status = mem_zeroed(&c->seats, (size_t)n + 1, sizeof *c->seats, "seats", err);
    if (status == REEL_OK)
        status = mem_zeroed(&c->seconds, repeats * (size_t)(n + 2), sizeof *c->seconds, "run times",
                            err);
    for (; c->n_seats < n && status == REEL_OK; c->n_seats++) {
        c->seats[c->n_seats].index = c->n_seats;
        status = open_seat(c, &c->seats[c->n_seats], arrivals && c->n_seats == n - 1, err);
    }
    return status;
}

static void close_crowd(struct crowd *c) {
    for (int i = 0; i < c->n_seats; i++) {
        struct seat *seat = &c->seats[i];
        reel_session_close(seat->session);
        mem_free(seat->given);
        mem_free(seat->alone);
        mem_free(seat->ids);
        mem_free(seat->gaps);
    }
    mem_free(c->seats);
    mem_free(c->seconds);
    pthread_cond_destroy(&c->opened);
    pthread_mutex_destroy(&c->mutex);
}

enum reel_status parallel_measure(const struct reel_model *model, const struct parallel_test *test,
                                  const struct bench_how *how, reel_progress_fn progress,
                                  void *progress_user, struct parallel_row *row,
                                  struct reel_error *err) {
    struct crowd c = { .model = model,
                       .test = test,
                       .how = how,
                       .info = cli_model_info(model),
                       .mutex = PTHREAD_MUTEX_INITIALIZER,
                       .opened = PTHREAD_COND_INITIALIZER,
                       .progress = progress,
                       .progress_user = progress_user };
    *row = (struct parallel_row){ .test = *test, .repeats = how->repeats };
    enum reel_status status = open_crowd(&c, err);
    if (status == REEL_OK) status = run_alone(&c, err);
    if (status == REEL_OK)
        status = test->arrivals ? measure_arrivals(&c, row, err) : measure_together(&c, row, err);
    if (status == REEL_OK && how->meter && !test->arrivals) status = measure_energy(&c, row, err);
    close_crowd(&c);
    return status;
}
