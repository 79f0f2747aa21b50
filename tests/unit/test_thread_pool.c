/* Regions, barriers and the work counter under more threads than cores, so that threads really do
 * sleep and lose their cores in the middle. REEL_SOAK=1 runs the full counts. */
#include "base/thread_pool.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define PHASES 50
#define ITEMS  64

struct sums {
    struct thread_pool *pool;
    int taken[PHASES][ITEMS]; /* plain memory: the barrier has to order it */
    int seen[PHASES];
    int wrong;
    atomic_int entered;
};

/* Every phase each item is taken once, and each thread sees all of the phase before. */
static void sum_phases(void *user, int thread, int n_threads) {
    struct sums *s = user;
    atomic_fetch_add(&s->entered, 1);
    for (int phase = 0; phase < PHASES; phase++) {
        for (int i = thread_pool_take(s->pool); i < ITEMS; i = thread_pool_take(s->pool))
            s->taken[phase][i]++;
        thread_pool_barrier(s->pool);
        if (thread == phase % n_threads)
            for (int i = 0; i < ITEMS; i++)
                s->seen[phase] += s->taken[phase][i];
        thread_pool_barrier(s->pool);
        if (s->seen[phase] != ITEMS && thread == 0) s->wrong++;
    }
}

static int regions(void) { return getenv("REEL_SOAK") ? 5000 : 30; }

static void every_item_is_taken_once_and_seen_after_the_barrier(void **state) {
    (void)state;
    static const int sizes[] = { 1, 2, 3, 7 };
    for (int i = 0; i < 4; i++) {
        struct thread_pool *pool = NULL;
        assert_int_equal(thread_pool_open(&pool, sizes[i], NULL), REEL_OK);
        assert_int_equal(thread_pool_size(pool), sizes[i]);
        for (int n = 0; n < regions(); n++) {
            struct sums s = { .pool = pool };
            thread_pool_run(pool, sum_phases, &s);
            assert_int_equal(s.wrong, 0);
            assert_int_equal(atomic_load(&s.entered), sizes[i]);
            for (int phase = 0; phase < PHASES; phase++)
                assert_int_equal(s.seen[phase], ITEMS);
        }
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
    thread_pool_barrier(c->pool);
    if (thread == 0) --*c->inside;
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
    struct thread_pool *pool = NULL;
    int inside = 0;
    assert_int_equal(thread_pool_open(&pool, 3, NULL), REEL_OK);
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

static void sleeping_threads_wake_for_the_next_region(void **state) {
    (void)state;
    struct thread_pool *pool = NULL;
    assert_int_equal(thread_pool_open(&pool, 3, NULL), REEL_OK);
    for (int n = 0; n < 20; n++) {
        struct sums s = { .pool = pool };
        nanosleep(&(struct timespec){ .tv_nsec = 2000000 }, NULL); /* longer than they spin */
        thread_pool_run(pool, sum_phases, &s);
        assert_int_equal(s.wrong, 0);
    }
    thread_pool_close(pool);
}

static void note_mask(void *user, int thread, int n_threads) {
    sigset_t mask;
    (void)n_threads;
    pthread_sigmask(SIG_SETMASK, NULL, &mask);
    if (thread > 0 && (!sigismember(&mask, SIGINT) || sigismember(&mask, SIGBUS)))
        atomic_fetch_add((atomic_int *)user, 1);
}

static void workers_take_no_signals_but_their_own_faults(void **state) {
    (void)state;
    struct thread_pool *pool = NULL;
    atomic_int n_wrong = 0;
    assert_int_equal(thread_pool_open(&pool, 3, NULL), REEL_OK);
    thread_pool_run(pool, note_mask, &n_wrong);
    assert_int_equal(n_wrong, 0);
    thread_pool_close(pool);
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
        cmocka_unit_test(every_item_is_taken_once_and_seen_after_the_barrier),
        cmocka_unit_test(callers_wait_for_one_another),
        cmocka_unit_test(sleeping_threads_wake_for_the_next_region),
        cmocka_unit_test(workers_take_no_signals_but_their_own_faults),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(zero_threads_means_the_cores_there_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
