/* reel bench --parallel over the fake backend, whose ids and times a test sets: what the rows say,
 * and that sessions which make other ids than alone have no row. */
#include "cli/bench_parallel.h"
#include "support/fake_backend.h"
#include "support/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { REPEATS = 3, EVAL_MS = 2 };

static const struct bench_how how = { .repeats = REPEATS, .sampling.size = sizeof how.sampling };

/* The model at hand, and ids that it is made to draw once everybody has been alone. */
struct trial {
    struct fake_settings set;
    const int32_t *afterwards; /* or NULL */
    int n_stages;
    uint64_t cancel_at; /* calls of progress after which it says no; 0: never */
};

static bool on_progress(void *user, const char *stage, uint64_t done, uint64_t total) {
    struct trial *t = user;
    t->n_stages++;
    if (strcmp(stage, "generating alone") == 0 && done == total && t->afterwards) {
        t->set.n_script = FAKE_CONTEXT;
        t->set.script = t->afterwards;
    }
    return t->cancel_at == 0 || (uint64_t)t->n_stages < t->cancel_at;
}

static enum reel_status measure(struct trial *t, const struct parallel_test *test,
                                struct parallel_row *row, struct reel_error *err) {
    t->set.decodes = t->set.shares = true;
    struct reel_model *model = fake_model_open(&t->set, err);
    assert_non_null(model);
    const enum reel_status status = parallel_measure(model, test, &how, on_progress, t, row, err);
    fake_model_close(model);
    return status;
}

static void a_row_has_the_times_of_all_sessions(void **state) {
    (void)state;
    struct trial t = { .set.eval_ms = EVAL_MS };
    const struct parallel_test test = { .n_prompt = 9, .n_gen = 12, .depth = 5, .n_sessions = 4 };
    struct parallel_row row;
    struct reel_error err = { 0 };
    assert_int_equal(measure(&t, &test, &row, &err), REEL_OK);
    assert_int_equal(row.repeats, REPEATS);
    assert_true(row.prompt_s >= EVAL_MS * 1e-3);
    assert_true(row.first_token_ms >= EVAL_MS && row.first_token_ms <= row.prompt_s * 1e3 + 1e-6);
    assert_true(row.gen_s >= 12 * EVAL_MS * 1e-3);
    assert_true(row.gen_per_s > 0 && row.gen_per_s <= 4 * 1e3 / EVAL_MS);
    assert_true(row.p50_ms >= EVAL_MS && row.p99_ms >= row.p50_ms && row.worst_ms >= row.p99_ms);
    assert_true(row.joules_a_token == 0);
    /* As many calls as sessions that were alone, and runs. */
    assert_int_equal(t.n_stages, 4 + REPEATS + 1);
}

static void without_prompts_only_tokens_are_timed(void **state) {
    (void)state;
    struct trial t = { .set.eval_ms = EVAL_MS };
    const struct parallel_test test = { .n_gen = 8, .n_sessions = 2 };
    struct parallel_row row;
    struct reel_error err = { 0 };
    assert_int_equal(measure(&t, &test, &row, &err), REEL_OK);
    assert_true(row.prompt_s == 0 && row.first_token_ms == 0);
    assert_true(row.gen_s >= 8 * EVAL_MS * 1e-3);
}

static void prompts_arrive_while_sessions_generate(void **state) {
    (void)state;
    struct trial t = { .set.eval_ms = EVAL_MS };
    const struct parallel_test test = {
        .n_prompt = 300, .n_gen = 10, .n_sessions = 3, .arrivals = true
    };
    struct parallel_row row;
    struct reel_error err = { 0 };
    assert_int_equal(measure(&t, &test, &row, &err), REEL_OK);
    assert_true(row.prompt_s >= EVAL_MS * 1e-3);
    assert_true(row.gen_s == 0 && row.gen_per_s > 0);
    assert_true(row.worst_ms >= EVAL_MS);
}

static void ids_that_differ_from_those_alone_have_no_speed(void **state) {
    (void)state;
    static int32_t others[FAKE_CONTEXT];
    for (int i = 0; i < FAKE_CONTEXT; i++)
        others[i] = i % 20;
    for (int arrivals = 0; arrivals < 2; arrivals++) {
        struct trial t = { .afterwards = others };
        const struct parallel_test test = {
            .n_prompt = 4, .n_gen = 30, .n_sessions = 2, .arrivals = arrivals
        };
        struct parallel_row row;
        struct reel_error err = { 0 };
        assert_int_equal(measure(&t, &test, &row, &err), REEL_E_MISMATCH);
        assert_non_null(strstr(err.text, "made other ids beside the others than alone"));
    }
}

static void failures_and_cancellation_end_all_sessions(void **state) {
    (void)state;
    for (int arrivals = 0; arrivals < 2; arrivals++) {
        const struct parallel_test test = {
            .n_prompt = 4, .n_gen = 10, .n_sessions = 3, .arrivals = arrivals
        };
        struct parallel_row row;
        struct reel_error err = { 0 };
        struct trial cancelled = { .cancel_at = 6 }, fails = { .set.fail_eval = 110 };
        assert_int_equal(measure(&cancelled, &test, &row, &err), REEL_E_CANCELLED);
        assert_int_equal(measure(&fails, &test, &row, &err), REEL_E_DEVICE);
        assert_string_equal(err.text, "the fake device failed");
    }
}

/* It goes back to some positions only, and what lies behind them rounds otherwise when it is read
 * again. */
static void recurrent_layers_have_the_same_ids_in_each_run(void **state) {
    (void)state;
    const struct parallel_test tests[] = {
        { .n_gen = 300, .depth = 100, .n_sessions = 2 },
        { .n_prompt = 50, .n_gen = 300, .depth = 137, .n_sessions = 2, .arrivals = true }
    };
    struct golden_model files;
    struct reel_error err = { 0 };
    const struct reel_model_options options = { .size = sizeof options, .device = "cpu" };
    struct reel_model *model = NULL;
    golden_model_open(&files, "q35-b");
    golden_require(reel_model_open(&model, files.folder, &options, &err), &err);
    for (int i = 0; i < 2; i++) {
        struct parallel_row row;
        golden_require(parallel_measure(model, &tests[i], &how, NULL, NULL, &row, &err), &err);
        /* The small prompts may be read before another token is made. */
        assert_true(row.gen_per_s > 0 || tests[i].arrivals);
    }
    reel_model_close(model);
    golden_model_close(&files);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_has_the_times_of_all_sessions),
        cmocka_unit_test(without_prompts_only_tokens_are_timed),
        cmocka_unit_test(prompts_arrive_while_sessions_generate),
        cmocka_unit_test(ids_that_differ_from_those_alone_have_no_speed),
        cmocka_unit_test(failures_and_cancellation_end_all_sessions),
        cmocka_unit_test(recurrent_layers_have_the_same_ids_in_each_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
