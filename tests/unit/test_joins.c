/* Sessions that come and go at random from many threads on the CPU: every id is the one that the
 * session makes alone, and memory does not grow. REEL_SOAK=1 runs 200,000 calls. */
#include "support/golden.h"
#include "support/joins.h"
#include "support/sanitized.h"
#include "support/shares.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

/* What the C library keeps of what was freed, and what more sessions hold at one time than at
 * another. */
#define MOST_GROWTH ((double)(8 << 20))
static double most_of(double early) { return early + MOST_GROWTH + early / 10; }

/* 64 threads want more columns than a pass has, so drafts may get none of them. */
enum { CROWD = 64, FEW = 3 };

static uint64_t n_right; /* drafts of the trained model */

/* What a model of random weights says hardly ever stood there before, so a guess is rarely right.
 */
static void come_and_go(const char *id, const char *folder, bool trained, int n_threads,
                        uint64_t n_joins) {
    struct reel_error err = { 0 };
    struct joins_result result;
    const struct reel_model_options options = { .size = sizeof options, .device = "cpu" };
    struct reel_model *model = NULL;
    golden_require(reel_model_open(&model, folder, &options, &err), &err);
    const struct joins_plan plan = { .model = model,
                                     .n_threads = n_threads,
                                     .n_stories = 24,
                                     .longest_prompt = 40,
                                     .most_tokens = 24,
                                     .n_joins = n_joins,
                                     .seed = 11,
                                     .copies = true };
    golden_require(joins_run(&plan, &result, &err), &err);
    print_message(
        "%s, %d threads: %llu joins, %llu ids, %llu sessions, %llu cancelled, %llu drafts, %llu "
        "right, %.1f s; %.0f KB resident early, %.0f late; %.0f malloc'ed early, %.0f "
        "late\n",
        id, n_threads, (unsigned long long)result.n_joins, (unsigned long long)result.n_tokens,
        (unsigned long long)result.n_sessions, (unsigned long long)result.n_cancelled,
        (unsigned long long)result.n_drafted, (unsigned long long)result.n_accepted, result.seconds,
        result.resident.early / 1024, result.resident.late / 1024, result.in_use.early / 1024,
        result.in_use.late / 1024);
    assert_true(result.n_joins >= n_joins && result.n_cancelled > 0);
    if (n_threads == FEW) assert_true(result.n_drafted > result.n_accepted);
    if (trained) n_right += result.n_accepted;
    if (!SANITIZED) assert_true(result.resident.late < most_of(result.resident.early));
    if (!SANITIZED) assert_true(result.in_use.late < most_of(result.in_use.early));
    reel_model_close(model);
}

/* Calls of a run: in full, briefly under a sanitizer, and otherwise. */
static uint64_t calls(uint64_t full, uint64_t some) {
    if (soaking_in_full()) return full;
    return sanitized_briefly() ? 200 : SANITIZED ? 10000 : some;
}

static void sessions_with_attention_come_and_go(void **state) {
    (void)state;
    struct golden_model files;
    golden_model_open(&files, "q3-b");
    come_and_go("q3-b", files.folder, false, CROWD, calls(200000, 1500));
    come_and_go("q3-b", files.folder, false, FEW, 2 * calls(10000, 750));
    golden_model_close(&files);
}

static void sessions_with_recurrent_layers_come_and_go(void **state) {
    (void)state;
    struct golden_model files;
    golden_model_open(&files, "q35-d"); /* with a draft layer */
    come_and_go("q35-d", files.folder, false, CROWD, calls(50000, 600));
    come_and_go("q35-d", files.folder, false, FEW, calls(5000, 200));
    golden_model_close(&files);
    come_and_go("models/hybrid", "models/hybrid", true, CROWD, calls(50000, 1000));
    come_and_go("models/hybrid", "models/hybrid", true, FEW, calls(5000, 200));
    assert_true(n_right > 0); /* a busy machine may leave few sessions a column for drafts */
}

int main(void) {
    mallopt(M_ARENA_MAX, 2); /* else each thread keeps memory that was freed for itself */
    struct CMUnitTest tests[] = {
        in_turn(sessions_with_attention_come_and_go),
        in_turn(sessions_with_recurrent_layers_come_and_go),
    };
    SHARE_TESTS("joins", 2, tests);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
