/* The pool with threads that stop between looking whether a phase has a piece left and taking it,
 * so that they take one of a later phase, and stop again behind that. In the pool's own time that
 * is a nanosecond, so this program has its own copy of the pool, in which they rest there. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

static atomic_uint dice;

static void rest_at_times(void) {
    unsigned n = atomic_fetch_add(&dice, 1) * 2654435761u;
    n = (n ^ n >> 15) * 2246822519u;
    if (n >> 29 == 0) nanosleep(&(struct timespec){ .tv_nsec = 1000 + (n >> 8 & 0xffff) }, NULL);
}

static uint64_t add_to_turn(_Atomic uint64_t *turn, uint64_t n) {
    rest_at_times();
    const uint64_t before = atomic_fetch_add(turn, n);
    rest_at_times();
    return before;
}

static int add_to_done(atomic_int *done, int n) { return atomic_fetch_add(done, n); }

#undef atomic_fetch_add_explicit
#define atomic_fetch_add_explicit(word, n, order)                                                  \
    _Generic((word), _Atomic uint64_t * : add_to_turn, atomic_int * : add_to_done)(word, n)
#include "base/thread_pool.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { PHASES = 4, PIECES = 4, REGIONS = 400 };

struct sums {
    struct thread_pool *pool;
    unsigned char taken[PHASES][PIECES];
    int wrong;
    atomic_int n_ahead; /* times that a thread came to a phase of which it had a piece already */
};

static void take_all(void *user, int thread, int n_threads) {
    struct sums *s = user;
    (void)n_threads;
    for (int phase = 0; phase < PHASES; phase++) {
        if (s->pool->members[thread].ahead) atomic_fetch_add(&s->n_ahead, 1);
        for (int i; (i = thread_pool_take(s->pool, thread, PIECES)) >= 0;) {
            s->taken[phase][i]++;
            rest_at_times();
            if (phase && s->taken[phase - 1][(i + 1) % PIECES] != 1) s->wrong++;
        }
        if (!thread_pool_barrier(s->pool, thread)) return;
    }
}

static void a_piece_of_a_later_phase_is_done_when_that_phase_comes(void **state) {
    (void)state;
    static const int sizes[] = { 2, 3, 6 };
    for (int i = 0; i < 3; i++) {
        struct thread_pool *pool = NULL;
        int n_ahead = 0;
        assert_int_equal(thread_pool_open(&pool, sizes[i], NULL), REEL_OK);
        for (int n = 0; n < REGIONS; n++) {
            struct sums s = { .pool = pool };
            thread_pool_run(pool, take_all, &s);
            assert_int_equal(s.wrong, 0);
            for (int phase = 0; phase < PHASES; phase++)
                for (int piece = 0; piece < PIECES; piece++)
                    assert_int_equal(s.taken[phase][piece], 1);
            n_ahead += atomic_load(&s.n_ahead);
        }
        assert_true(n_ahead > 0); /* or this has tested nothing */
        thread_pool_close(pool);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_piece_of_a_later_phase_is_done_when_that_phase_comes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
