/* Regions, phases and pieces under more threads than cores, and with threads that are late, asleep
 * or without a core at the worst moments. REEL_SOAK=1 runs the full counts. */
#define _GNU_SOURCE /* gettid */
#include "base/clock.h"
#include "base/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define PHASES     50
#define ITEMS      64
#define PATIENCE_S 20.0 /* after which something will never come */

static int regions(void) { return getenv("REEL_SOAK") ? 5000 : 30; }

static void rest(long us) { nanosleep(&(struct timespec){ .tv_nsec = us * 1000 }, NULL); }

/* False when the flag never rises. */
static bool await_flag(atomic_int *flag, int value) {
    for (const double start = clock_s(); atomic_load(flag) < value; rest(50))
        if (clock_s() - start > PATIENCE_S) return false;
    return true;
}

static struct thread_pool *pool_of(int n_threads) {
    struct thread_pool *pool = NULL;
    assert_int_equal(thread_pool_open(&pool, n_threads, NULL), REEL_OK);
    assert_int_equal(thread_pool_size(pool), n_threads);
    return pool;
}

/* ---- pieces and their order ------------------------------------------------------------------ */

struct sums {
    struct thread_pool *pool;
    int taken[PHASES][ITEMS]; /* plain memory: the pool has to order it */
    uint64_t values[PHASES + 1][ITEMS];
    bool lag; /* threads rest at odd moments, in a piece and between two phases */
    atomic_int entered;
};

static uint64_t mix(uint64_t x) {
    x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15u;
    return x ^ (x >> 29);
}

static void lag(const struct sums *s, int thread, int phase, int item) {
    const uint64_t dice = mix((uint64_t)(thread * 10000 + phase * 100 + item + 1));
    if (s->lag && dice % 97 == 0) rest((long)(dice % 300));
    if (s->lag && dice % 31 == 0) sched_yield();
}

/* Each value of a phase is made of three of the phase before. */
static uint64_t value_of(uint64_t values[][ITEMS], int phase, int i) {
    const uint64_t *before = values[phase];
    return mix(before[i] + 3 * before[(i + 1) % ITEMS] + 7 * before[(i * 29 + phase) % ITEMS]);
}

static void sum_phases(void *user, int thread, int n_threads) {
    struct sums *s = user;
    (void)n_threads;
    atomic_fetch_add(&s->entered, 1);
    for (int phase = 0; phase < PHASES; phase++) {
        lag(s, thread, phase, ITEMS);
        for (int i; (i = thread_pool_take(s->pool, thread, ITEMS)) >= 0;) {
            lag(s, thread, phase, i);
            s->taken[phase][i]++;
            s->values[phase + 1][i] = value_of(s->values, phase, i);
        }
        if (!thread_pool_barrier(s->pool, thread)) return;
    }
}

static void check_sums(struct thread_pool *pool, bool lagging) {
    struct sums s = { .pool = pool, .lag = lagging };
    uint64_t expected[PHASES + 1][ITEMS] = { { 0 } };
    for (int i = 0; i < ITEMS; i++)
        expected[0][i] = s.values[0][i] = (uint64_t)i;
    for (int phase = 0; phase < PHASES; phase++)
        for (int i = 0; i < ITEMS; i++)
            expected[phase + 1][i] = value_of(expected, phase, i);
    thread_pool_run(pool, sum_phases, &s);
    assert_memory_equal(s.values, expected, sizeof expected);
    for (int phase = 0; phase < PHASES; phase++)
        for (int i = 0; i < ITEMS; i++)
            assert_int_equal(s.taken[phase][i], 1);
    assert_in_range(atomic_load(&s.entered), 1, thread_pool_size(pool));
}

static void every_piece_is_taken_once_and_seen_by_the_next_phase(void **state) {
    (void)state;
    static const int sizes[] = { 1, 2, 3, 7 };
    for (int i = 0; i < 4; i++) {
        struct thread_pool *pool = pool_of(sizes[i]);
        for (int n = 0; n < regions(); n++)
            check_sums(pool, false);
        thread_pool_close(pool);
    }
}

static void so_it_is_with_threads_that_rest_at_odd_moments(void **state) {
    (void)state;
    struct thread_pool *pool = pool_of(7);
    for (int n = 0; n < regions() / 3; n++)
        check_sums(pool, true);
    thread_pool_close(pool);
}

static void sleeping_threads_wake_for_the_next_region(void **state) {
    (void)state;
    struct thread_pool *pool = pool_of(3);
    for (int n = 0; n < 20; n++) {
        rest(2000); /* longer than they spin */
        check_sums(pool, false);
    }
    thread_pool_close(pool);
}

/* ---- late threads ---------------------------------------------------------------------------- */

struct late {
    struct thread_pool *pool;
    int taken[PHASES][ITEMS];
    atomic_int here, gone_on, caught_up, alive;
    int wrong;
    pid_t tid;
    pthread_t thread;
};

enum { MISSED = 10 }; /* phases */

/* Thread 1 comes into the region and then does nothing for MISSED phases. */
static void miss_phases(void *user, int thread, int n_threads) {
    struct late *l = user;
    (void)n_threads;
    if (thread == 1) {
        atomic_store(&l->here, 1);
        if (!await_flag(&l->gone_on, 1)) l->wrong++;
    }
    for (int phase = 0; phase <= MISSED + 1; phase++) {
        for (int i; (i = thread_pool_take(l->pool, thread, ITEMS)) >= 0;) {
            l->taken[phase][i]++;
            if (thread == 0 && phase == 0 && i == 0 && !await_flag(&l->here, 1)) l->taken[0][0]++;
            if (thread == 0 && phase == MISSED && i == 0) {
                atomic_store(&l->gone_on, 1); /* thread 1 walks by what is over, up to here */
                if (!await_flag(&l->caught_up, 1)) l->taken[0][0]++;
            }
            if (thread == 1 && phase < MISSED) l->wrong++;
            if (thread == 1) atomic_store(&l->caught_up, 1);
        }
        if (!thread_pool_barrier(l->pool, thread)) return;
    }
}

static void a_late_thread_holds_nobody_up_takes_nothing_twice_and_catches_up(void **state) {
    (void)state;
    struct thread_pool *pool = pool_of(2);
    for (int n = 0; n < regions(); n++) {
        struct late l = { .pool = pool };
        thread_pool_run(pool, miss_phases, &l);
        assert_int_equal(l.wrong, 0);
        for (int phase = 0; phase <= MISSED + 1; phase++)
            for (int i = 0; i < ITEMS; i++)
                assert_int_equal(l.taken[phase][i], 1);
    }
    thread_pool_close(pool);
}

/* Thread 1 lingers with no piece while thread 0 does all. */
static void linger(void *user, int thread, int n_threads) {
    struct late *l = user;
    (void)n_threads;
    if (thread == 1) {
        atomic_store(&l->here, 1);
        rest(5000);
        if (!atomic_load(&l->alive)) l->wrong++;
        atomic_store(&l->gone_on, 1);
        return;
    }
    while (thread_pool_take(l->pool, thread, 1) >= 0)
        if (!await_flag(&l->here, 1)) l->wrong++;
}

static void a_region_ends_when_nobody_is_inside(void **state) {
    (void)state;
    struct thread_pool *pool = pool_of(2);
    for (int n = 0; n < 10; n++) {
        struct late l = { .pool = pool, .alive = 1 };
        thread_pool_run(pool, linger, &l);
        atomic_store(&l.alive, 0);
        assert_int_equal(atomic_load(&l.gone_on), 1);
        assert_int_equal(l.wrong, 0);
    }
    thread_pool_close(pool);
}

/* Thread 1 sleeps in the barrier until the region's last piece is done, and wakes when it is over,
 * or nearly. */
static void sleep_past_the_end(void *user, int thread, int n_threads) {
    struct late *l = user;
    (void)n_threads;
    if (thread == 1) atomic_store(&l->here, 1);
    while (thread_pool_take(l->pool, thread, 1) >= 0)
        if (thread == 0 && await_flag(&l->here, 1)) rest(1000);
    if (!thread_pool_barrier(l->pool, thread)) return;
    if (!atomic_load(&l->alive)) l->wrong++;
}

static void who_sleeps_past_the_end_stays_outside(void **state) {
    (void)state;
    enum { TIMES = 100 };
    static struct late all[TIMES]; /* what is read too late can still be read */
    struct thread_pool *pool = pool_of(2);
    for (int n = 0; n < TIMES; n++) {
        all[n] = (struct late){ .pool = pool, .alive = 1 };
        thread_pool_run(pool, sleep_past_the_end, &all[n]);
        atomic_store(&all[n].alive, 0);
    }
    thread_pool_close(pool);
    for (int n = 0; n < TIMES; n++)
        assert_int_equal(all[n].wrong, 0);
}

/* A thread without a core: a handler keeps it where it is. */
static atomic_int stopped, released;

static void stand_still(int signal) {
    (void)signal;
    atomic_store(&stopped, 1);
    (void)await_flag(&released, 1);
}

/* Of a thread of this process: 'S' when it sleeps. */
static char state_of(pid_t tid) {
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)tid);
    FILE *file = fopen(path, "r");
    if (!file) return '?';
    const char *name_end = fgets(line, sizeof line, file) ? strrchr(line, ')') : NULL;
    fclose(file);
    return name_end ? name_end[2] : '?';
}

static void lose_the_core(void *user, int thread, int n_threads) {
    struct late *l = user;
    (void)n_threads;
    for (int phase = 0; phase < PHASES; phase++) {
        if (thread == 1 && phase == 0) {
            l->tid = gettid();
            l->thread = pthread_self();
            atomic_store(&l->here, 1);
        }
        while ((thread == 0 || phase > 0) && thread_pool_take(l->pool, thread, 1) >= 0) {
            l->taken[phase][0]++;
            if (phase > 0 || !await_flag(&l->here, 1)) continue;
            for (const double start = clock_s();
                 state_of(l->tid) != 'S' && clock_s() - start < PATIENCE_S;)
                rest(200); /* until it sleeps in the barrier */
            pthread_kill(l->thread, SIGBUS);
            if (!await_flag(&stopped, 1)) l->wrong++;
        }
        if (!thread_pool_barrier(l->pool, thread)) return;
    }
}

static void a_thread_without_a_core_is_waited_for_by_nobody(void **state) {
    (void)state;
    struct sigaction handle = { .sa_handler = stand_still }, before;
    struct thread_pool *pool = pool_of(2);
    struct late l = { .pool = pool };
    assert_int_equal(sigaction(SIGBUS, &handle, &before), 0);
    const double start = clock_s();
    thread_pool_run(pool, lose_the_core, &l);
    check_sums(pool, false); /* the next region needs it as little */
    assert_int_equal(atomic_load(&stopped), 1);
    assert_true(clock_s() - start < PATIENCE_S / 2);
    atomic_store(&released, 1);
    assert_int_equal(l.wrong, 0);
    for (int phase = 0; phase < PHASES; phase++)
        assert_int_equal(l.taken[phase][0], 1);
    check_sums(pool, false);
    thread_pool_close(pool);
    sigaction(SIGBUS, &before, NULL);
}

/* ---- ends ------------------------------------------------------------------------------------ */

/* Thread 0 leaves in the middle of a phase; the others would go on for ever. */
static void give_up(void *user, int thread, int n_threads) {
    struct sums *s = user;
    (void)n_threads;
    for (int phase = 0;; phase++) {
        if (thread == 0 && phase == 7) return;
        while (thread_pool_take(s->pool, thread, ITEMS) >= 0)
            if (thread == 0 && phase == 6) return;
        if (!thread_pool_barrier(s->pool, thread)) return;
    }
}

static void a_region_that_is_given_up_leaves_nothing_behind(void **state) {
    (void)state;
    static const int sizes[] = { 1, 2, 5 };
    for (int i = 0; i < 3; i++) {
        struct thread_pool *pool = pool_of(sizes[i]);
        for (int n = 0; n < regions(); n++) {
            struct sums s = { .pool = pool };
            thread_pool_run(pool, give_up, &s);
            check_sums(pool, false);
        }
        thread_pool_close(pool);
    }
}

static void a_pool_closes_while_its_threads_come_sleep_or_spin(void **state) {
    (void)state;
    for (int n = 0; n < 2 * regions(); n++) {
        struct thread_pool *pool = pool_of(2 + n % 5);
        for (int i = 0; i < n % 3; i++)
            check_sums(pool, false);
        if (n % 4 == 3) rest(300);
        thread_pool_close(pool);
    }
}

struct caller {
    struct thread_pool *pool;
    int *inside; /* plain: regions exclude one another */
    int wrong;
};

static void count_inside(void *user, int thread, int n_threads) {
    struct caller *c = user;
    (void)n_threads;
    if (thread == 0 && ++*c->inside != 1) c->wrong++;
    while (thread_pool_take(c->pool, thread, 3) >= 0)
        continue;
    if (thread_pool_barrier(c->pool, thread) && thread == 0) --*c->inside;
}

static void *call_many(void *user) {
    struct caller *c = user;
    for (int i = 0; i < regions(); i++)
        thread_pool_run(c->pool, count_inside, c);
    return NULL;
}

static void callers_wait_for_one_another(void **state) {
    (void)state;
    enum { CALLERS = 4 };
    int inside = 0;
    struct thread_pool *pool = pool_of(3);
    struct caller callers[CALLERS];
    pthread_t threads[CALLERS];
    for (int i = 0; i < CALLERS; i++) {
        callers[i] = (struct caller){ .pool = pool, .inside = &inside };
        assert_int_equal(pthread_create(&threads[i], NULL, call_many, &callers[i]), 0);
    }
    for (int i = 0; i < CALLERS; i++) {
        pthread_join(threads[i], NULL);
        assert_int_equal(callers[i].wrong, 0);
    }
    thread_pool_close(pool);
}

/* Between regions the threads sleep: beside a caller who is busy with something else for 200 ms
 * they use no more than the short time that they spin. */
static void idle_threads_leave_the_cores_alone(void **state) {
    (void)state;
    struct thread_pool *pool = pool_of(4);
    double used_s[2];
    for (int i = 0; i < 2; i++) {
        struct timespec t;
        if (i == 0) check_sums(pool, false);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
        used_s[i] = (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
        if (i == 0) rest(200000);
    }
    assert_true(used_s[1] - used_s[0] < 0.05);
    thread_pool_close(pool);
}

struct masks {
    struct thread_pool *pool;
    atomic_int entered, n_wrong; /* entered: a bit for each thread */
};

static void note_mask(void *user, int thread, int n_threads) {
    struct masks *m = user;
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    if (thread > 0 && (!sigismember(&mask, SIGINT) || sigismember(&mask, SIGBUS)))
        atomic_fetch_add(&m->n_wrong, 1);
    atomic_fetch_or(&m->entered, 1 << thread);
    while (thread_pool_take(m->pool, thread, 1) >= 0)
        for (int ms = 0; atomic_load(&m->entered) != (1 << n_threads) - 1 && ms < 1000; ms++)
            rest(1000);
}

static void workers_take_no_signals_but_their_own_faults(void **state) {
    (void)state;
    struct masks m = { .pool = pool_of(3) };
    /* a region waits for nobody: again until each thread has been in one */
    for (const double start = clock_s();
         atomic_load(&m.entered) != 7 && clock_s() - start < PATIENCE_S;)
        thread_pool_run(m.pool, note_mask, &m);
    assert_int_equal(atomic_load(&m.n_wrong), 0);
    assert_int_equal(atomic_load(&m.entered), 7);
    thread_pool_close(m.pool);
}

static void impossible_sizes_are_refused(void **state) {
    (void)state;
    struct thread_pool *pool = NULL;
    struct reel_error err;
    assert_int_equal(thread_pool_open(&pool, -1, &err), REEL_E_ARGUMENT);
    assert_null(pool);
    assert_int_equal(thread_pool_open(&pool, THREAD_POOL_MAX + 1, &err), REEL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "257"));
    thread_pool_close(NULL);
}

static void zero_threads_means_the_cores_there_are(void **state) {
    (void)state;
    struct thread_pool *pool = NULL;
    assert_true(thread_pool_cores() >= 1);
    assert_int_equal(thread_pool_open(&pool, 0, NULL), REEL_OK);
    assert_int_equal(thread_pool_size(pool), thread_pool_cores());
    thread_pool_close(pool);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_piece_is_taken_once_and_seen_by_the_next_phase),
        cmocka_unit_test(so_it_is_with_threads_that_rest_at_odd_moments),
        cmocka_unit_test(sleeping_threads_wake_for_the_next_region),
        cmocka_unit_test(a_late_thread_holds_nobody_up_takes_nothing_twice_and_catches_up),
        cmocka_unit_test(a_region_ends_when_nobody_is_inside),
        cmocka_unit_test(who_sleeps_past_the_end_stays_outside),
        cmocka_unit_test(a_thread_without_a_core_is_waited_for_by_nobody),
        cmocka_unit_test(a_region_that_is_given_up_leaves_nothing_behind),
        cmocka_unit_test(a_pool_closes_while_its_threads_come_sleep_or_spin),
        cmocka_unit_test(callers_wait_for_one_another),
        cmocka_unit_test(idle_threads_leave_the_cores_alone),
        cmocka_unit_test(workers_take_no_signals_but_their_own_faults),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(zero_threads_means_the_cores_there_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
