/* What rotates over runs: every test is in one share, each run takes the next. */
#define _DEFAULT_SOURCE
#include "support/shares.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N = 9, MOST = 4 };

static void nothing(void **state) { (void)state; }

/* Adds to taken[i] whether this run has test i; every third is in every run. */
static void take(int n, int *taken) {
    struct CMUnitTest tests[N];
    for (int i = 0; i < N; i++)
        tests[i] = i % 3 ? (struct CMUnitTest)in_turn(nothing)
                         : (struct CMUnitTest)cmocka_unit_test(nothing);
    SHARE_TESTS("of this test", n, tests);
    for (int i = 0; i < N; i++)
        taken[i] += tests[i].name != NULL;
}

static void every_test_is_in_one_share(void **state) {
    (void)state;
    for (int n = 1; n <= MOST; n++) {
        int taken[N] = { 0 };
        char turn[12];
        for (int i = 0; i < n; i++) {
            snprintf(turn, sizeof turn, "%d", i);
            setenv("REEL_TURN", turn, 1);
            take(n, taken);
        }
        for (int i = 0; i < N; i++)
            assert_int_equal(taken[i], i % 3 ? 1 : n);
    }
}

static void all_are_taken_when_all_are_asked_for(void **state) {
    (void)state;
    int taken[N] = { 0 };
    setenv("REEL_TURN", "all", 1);
    take(MOST, taken);
    unsetenv("REEL_TURN");
    setenv("REEL_SOAK", "1", 1);
    take(MOST, taken);
    unsetenv("REEL_SOAK");
    for (int i = 0; i < N; i++)
        assert_int_equal(taken[i], 2);
}

static void runs_take_one_share_after_the_other(void **state) {
    (void)state;
    char build[] = "/tmp/reel-shares-XXXXXX", path[60];
    assert_non_null(mkdtemp(build));
    snprintf(path, sizeof path, "%s/tests", build);
    assert_int_equal(mkdir(path, 0700), 0);
    setenv("REEL_BUILD", build, 1);
    unsetenv("REEL_TURN");
    const int first = share_of("of this test", MOST).turn;
    for (int i = 1; i < 2 * MOST; i++)
        assert_int_equal(share_of("of this test", MOST).turn, (first + i) % MOST);
    snprintf(path, sizeof path, "%s/tests/of this test.turn", build);
    assert_int_equal(unlink(path), 0);
    snprintf(path, sizeof path, "%s/tests", build);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(rmdir(build), 0);
}

int main(void) {
    unsetenv("REEL_SOAK");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_test_is_in_one_share),
        cmocka_unit_test(all_are_taken_when_all_are_asked_for),
        cmocka_unit_test(runs_take_one_share_after_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
