/* What rotates over runs: tests and settings of which one run takes a share and the next run the
 * next share, because all of them take longer than a run should. Each program says which share it
 * takes, and tools/run_tests.sh beside its counts.
 *   REEL_TURN=n             share n of everything that rotates, but the mutations (mutations.h)
 *   REEL_TURN=all           all shares
 *   REEL_SOAK=1             all shares
 *   REEL_MUTATION, REEL_MUTATION_TURN   all shares, where REEL_TURN does not say otherwise: the
 *                           tests of some mutations rotate
 * Where tests rotate inside of what rotates itself, and both by days, the two numbers of shares
 * have no divisor in common, or one is a multiple of the other and the outer picks by halves. */
#ifndef REEL_TESTS_SHARES_H
#define REEL_TESTS_SHARES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

/* This run's turn. Runs are counted beside the build, for each name; a new build begins with the
 * day, so that a machine that always builds anew takes its turns too. */
int turn_next(const char *name);

struct share {
    int turn, n; /* turn < 0: all n shares */
};

/* This run's share of what is called `name` ("columns"), which is printed. */
struct share share_of(const char *name, int n);

static inline bool share_has(struct share s, int i) { return s.turn < 0 || i % s.n == s.turn; }

/* A test that rotates, in a table of tests. Its teardown, which does nothing, says so. */
int turned(void **state);
#define in_turn(test) cmocka_unit_test_teardown(test, turned)

/* Takes those tests out that rotate and are not of this run's share, and prints their names. */
void share_tests(const char *name, int n, struct CMUnitTest *tests, size_t n_tests);
#define SHARE_TESTS(name, n, tests) share_tests(name, n, tests, sizeof(tests) / sizeof *(tests))

#endif
