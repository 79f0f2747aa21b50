/* From times of launches to a table of steps. */
#include "cuda/measure/prefill_profile.h"
#include "support/profile_stamps.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { LAYERS = 2, LAUNCHES = 1 + 6 * LAYERS + 1, POSITION = 20, N_TOKENS = 10 };

static struct plan test_plan(void) {
    struct plan p = stamps_plan();
    p.n_heads = 4, p.head_dim = 64;
    p.tape.hidden = 128, p.tape.intermediate = 320;
    return p;
}

static double real(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    if (!json_is_number(value)) fail_msg("%s is no number", key);
    return json_number_value(value);
}

static void assert_near(double made, double want) {
    if (fabs(made - want) > 1e-4 * fabs(want) + 1e-9) fail_msg("%.9g, not %.9g", made, want);
}

static const json_t *step_of(const json_t *json, enum prefill_step step) {
    size_t i;
    const json_t *one;
    json_array_foreach(json_object_get(json, "steps"), i, one) {
        const char *name = json_string_value(json_object_get(one, "step"));
        if (strcmp(name, prefill_step_names[step]) == 0) return one;
    }
    return NULL;
}

/* Launch i of run r takes (i + 1) * r us; the first run a thousand times as long. */
static void add_run(struct prefill_times *t, const struct plan *p, int r, int n_tokens) {
    float *ms = prefill_times_next(t, p, POSITION, n_tokens);
    for (int i = 0; i < LAUNCHES; i++)
        ms[i] = (float)((i + 1) * (r ? r : 1000) * 1e-3);
    t->n_runs++;
}

static json_t *described(const struct prefill_times *t, const struct plan *p) {
    struct reel_error err = { 0 };
    json_t *json = NULL;
    if (prefill_profile_describe(&json, t, p, &err) != REEL_OK) fail_msg("%s", err.text);
    return json;
}

static struct prefill_times open_times(void) {
    struct prefill_times t = { .ms = calloc(PREFILL_MOST_RUNS * LAUNCHES, sizeof(float)),
                               .most_tokens = 2048,
                               .cut = { { 1, 8 }, { 1, 1 }, { 1, 0 }, { 2, 0 } } };
    assert_non_null(t.ms);
    return t;
}

static void launches_are_summed_by_step_and_medians_taken(void **state) {
    (void)state;
    const struct plan p = test_plan();
    struct prefill_times t = open_times();
    assert_int_equal(prefill_launches(&p), LAUNCHES);
    for (int r = 0; r <= 3; r++) /* the first does not count; the median is r = 2 */
        add_run(&t, &p, r, N_TOKENS);
    json_t *json = described(&t, &p);
    assert_int_equal(real(json, "runs"), 3);
    assert_int_equal(real(json, "tokens"), N_TOKENS);
    assert_int_equal(real(json, "position"), POSITION);
    assert_int_equal(real(json, "most_tokens"), 2048);
    double all = 0, share = 0;
    for (int i = 0; i < PREFILL_N_STEPS; i++) {
        const json_t *step = step_of(json, (enum prefill_step)i);
        if (i == STEP_SHORT || (i >= STEP_MIX && i <= STEP_ANSWER)) { /* a DeltaNet's */
            assert_null(step);
            continue;
        }
        const bool once = i == STEP_EMBED || i == STEP_END;
        /* launches count from 1: embed, 2 to 7, 8 to 13, end */
        const int nth = i < STEP_MIX ? i : i - (STEP_OUT - STEP_MIX);
        const double us = 2 * (i == STEP_END ? LAUNCHES : once ? 1 : (nth + 1) + (nth + 7));
        assert_int_equal(real(step, "launches"), once ? 1 : LAYERS);
        assert_near(real(step, "us"), us);
        assert_near(real(step, "launch_us"), once ? us : us / 2);
        all += us;
        share += real(step, "share_percent");
    }
    assert_near(share, 100);
    assert_near(real(json_object_get(json, "total"), "us"), all);
    assert_int_equal(real(json_object_get(json, "total"), "launches"), LAUNCHES);
    assert_near(real(json_object_get(json, "us"), "min"), all / 2);
    assert_near(real(json_object_get(json, "us"), "median"), all);
    assert_near(real(json_object_get(json, "us"), "max"), all * 3 / 2);
    json_decref(json);
    free(t.ms);
}

static void assert_work(const json_t *step, double bytes, double flops, const char *cut) {
    const double us = real(step, "us");
    assert_near(real(step, "bytes"), bytes);
    assert_near(real(step, "gflop") * 1e9, flops);
    assert_near(real(step, "gb_per_s"), bytes / us * 1e-3);
    assert_near(real(step, "tflop_per_s"), flops / us * 1e-6);
    if (cut)
        assert_string_equal(json_string_value(json_object_get(step, "cut")), cut);
    else
        assert_true(json_is_null(json_object_get(step, "cut")));
}

/* By hand: 128 wide, 4 heads and 2 KV heads of 64, 320 between; 10 tokens behind 20. */
static void bytes_and_operations_are_those_of_the_model(void **state) {
    (void)state;
    const struct plan p = test_plan();
    struct prefill_times t = open_times();
    add_run(&t, &p, 1, N_TOKENS);
    json_t *json = described(&t, &p);
    int positions = 0;
    for (int i = 0; i < N_TOKENS; i++)
        positions += POSITION + i + 1;
    assert_work(step_of(json, STEP_QKV), 2 * 4 * 1000, 2.0 * 2 * 512 * 128 * 10, "thin");
    assert_work(step_of(json, STEP_OUT), 2 * 4 * 2000, 2.0 * 2 * 128 * 256 * 10, "halves");
    assert_work(step_of(json, STEP_GATE_UP), 2 * 4 * 3000, 2.0 * 2 * 640 * 128 * 10, "wide1");
    assert_work(step_of(json, STEP_DOWN), 2 * 4 * 4000, 2.0 * 2 * 128 * 320 * 10, "wide2");
    assert_work(step_of(json, STEP_ATTENTION), 2 * 2 * 2 * 2048, 2.0 * 4 * 64 * 4 * positions,
                NULL);
    assert_work(step_of(json, STEP_ROPE), 0, 0, NULL);
    assert_work(step_of(json, STEP_EMBED), 0, 0, NULL);
    assert_work(step_of(json, STEP_END), 0, 0, NULL);
    json_decref(json);
    free(t.ms);
}

/* A Gated DeltaNet, then attention. By hand: 10 tokens are one chunk of each of 3 value heads, 32
 * columns on 16 keys of one key head. */
static void a_deltanet_has_steps_of_its_own(void **state) {
    (void)state;
    static const enum prefill_step steps[] = { STEP_EMBED, STEP_MIX,     STEP_CONV, STEP_CHUNK,
                                               STEP_CHAIN, STEP_ANSWER,  STEP_OUT,  STEP_GATE_UP,
                                               STEP_DOWN,  STEP_QKV,     STEP_ROPE, STEP_ATTENTION,
                                               STEP_OUT,   STEP_GATE_UP, STEP_DOWN, STEP_END };
    enum { N = sizeof steps / sizeof *steps };
    struct plan p = test_plan();
    p.tape.delta_layers[0] = 1;
    p.tape.n_groups = 1, p.tape.group_key = 16, p.tape.group_value = 96;
    p.delta = (struct plan_delta){
        .n_layers = 1, .key_heads = 1, .value_heads = 3, .key_dim = 16, .value_dim = 32
    };
    struct prefill_times t = { .ms = calloc(PREFILL_MOST_RUNS * N, sizeof(float)) };
    assert_non_null(t.ms);
    assert_int_equal(prefill_launches(&p), N);
    for (int i = 0; i < N; i++)
        assert_int_equal(prefill_times_step(&t, &p, i), steps[i]);
    float *ms = prefill_times_next(&t, &p, POSITION, N_TOKENS);
    for (int i = 0; i < N; i++)
        ms[i] = (float)((i + 1) * 1e-3);
    t.n_runs++;
    json_t *json = described(&t, &p);
    for (int i = 0; i < N; i++)
        assert_int_equal(real(step_of(json, steps[i]), "launches"),
                         1 + (steps[i] >= STEP_OUT && steps[i] <= STEP_DOWN));
    assert_near(real(step_of(json, STEP_MIX), "gflop"), 2.0 * 10 * 128 * 224 * 1e-9);
    assert_near(real(step_of(json, STEP_CHAIN), "gflop"), 4.0 * 3 * 64 * 16 * 32 * 1e-9);
    assert_near(real(step_of(json, STEP_ANSWER), "gflop"), 3.0 * 64 * 32 * (32 + 64) * 1e-9);
    assert_near(real(step_of(json, STEP_CONV), "bytes"), 10 * 128 * 2 * 2);
    assert_near(real(step_of(json, STEP_OUT), "gflop"), 2.0 * 2 * 10 * 128 * (256 + 96) / 2 * 1e-9);
    json_decref(json);
    free(t.ms);
}

/* The same work by one launch. */
static void a_short_prompt_is_one_step(void **state) {
    (void)state;
    const struct plan p = test_plan();
    struct prefill_times t = open_times();
    for (int r = 0; r < 3; r++)
        add_run(&t, &p, 1, N_TOKENS);
    json_t *queue = described(&t, &p);
    t.one_launch = true;
    json_t *json = described(&t, &p);
    const json_t *all = json_object_get(queue, "total"), *step = step_of(json, STEP_SHORT);
    assert_int_equal(json_array_size(json_object_get(json, "steps")), 2);
    assert_work(step, real(all, "bytes"), real(all, "gflop") * 1e9, NULL);
    assert_int_equal(real(step, "launches"), 1);
    assert_near(real(step, "us"), 1);
    assert_near(real(step_of(json, STEP_END), "us"), 2);
    assert_near(real(json_object_get(json, "us"), "median"), 3);
    json_decref(queue), json_decref(json);
    free(t.ms);
}

static void other_chunks_begin_anew_and_old_runs_make_room(void **state) {
    (void)state;
    const struct plan p = test_plan();
    struct prefill_times t = open_times();
    add_run(&t, &p, 1, N_TOKENS);
    assert_int_equal(prefill_times_held(&t), 1);
    add_run(&t, &p, 1, N_TOKENS);
    assert_int_equal(prefill_times_held(&t), 1);
    add_run(&t, &p, 1, N_TOKENS);
    assert_int_equal(prefill_times_held(&t), 2);
    add_run(&t, &p, 1, N_TOKENS + 1);
    assert_int_equal(prefill_times_held(&t), 1);
    for (int r = 0; r < 2 * PREFILL_MOST_RUNS; r++)
        add_run(&t, &p, r < PREFILL_MOST_RUNS ? 1 : 2, N_TOKENS + 1);
    assert_int_equal(prefill_times_held(&t), PREFILL_MOST_RUNS);
    json_t *json = described(&t, &p);
    assert_near(real(json_object_get(json, "us"), "min"), LAUNCHES * (LAUNCHES + 1));
    json_decref(json);
    free(t.ms);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(launches_are_summed_by_step_and_medians_taken),
        cmocka_unit_test(bytes_and_operations_are_those_of_the_model),
        cmocka_unit_test(a_deltanet_has_steps_of_its_own),
        cmocka_unit_test(a_short_prompt_is_one_step),
        cmocka_unit_test(other_chunks_begin_anew_and_old_runs_make_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
