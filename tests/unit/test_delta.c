/* The delta rule: its chunked form, its step and the plain reference give the same, on every path,
 * however positions are cut; and a session's states are kept, found and lost as said. */
#include "cpu/cpu_path.h"
#include "cpu/delta.h"
#include "cpu/recurrent.h"
#include "cpu/reference.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define BOUND     1e-5 /* of the largest value, or for states of the values written */
#define POSITIONS 150
#define MAX_DIM   128

/* ---- one head -------------------------------------------------------------------------------- */

struct scene {
    int key_dim, value_dim, stride;
    float rate;
    double largest;                         /* of expected */
    float rows[POSITIONS][3 * MAX_DIM + 2]; /* q, k, v, b, a */
    float expected[POSITIONS][MAX_DIM];
    float states[POSITIONS + 1][MAX_DIM * MAX_DIM]; /* after so many positions */
};

static uint32_t seed = 1;

static float draw(void) {
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) / (float)(1 << 23) - 1.0f;
}

static double largest_of(const float *x, int n) {
    double largest = 0;
    for (int i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)x[i]));
    return largest;
}

/* Decays are slow for small rates and instant for large ones. */
static void fill(struct scene *s, int key_dim, int value_dim, float rate) {
    s->key_dim = key_dim;
    s->value_dim = value_dim;
    s->stride = (value_dim + RECURRENT_PAD - 1) / RECURRENT_PAD * RECURRENT_PAD;
    s->rate = rate;
    const struct delta_shape shape = { key_dim, value_dim, (size_t)s->stride };
    memset(s->states[0], 0, sizeof s->states[0]);
    memset(s->expected, 0, sizeof s->expected);
    for (int i = 0; i < POSITIONS; i++) {
        float *row = s->rows[i], q[MAX_DIM], k[MAX_DIM], beta, decay, dt_bias = -1;
        for (int j = 0; j < 3 * MAX_DIM + 2; j++)
            row[j] = draw() * (j < 3 * MAX_DIM ? 1 : 4);
        memcpy(q, row, sizeof q);
        memcpy(k, row + MAX_DIM, sizeof k);
        cpu_l2_norm(q, key_dim, 1 / sqrtf((float)key_dim));
        cpu_l2_norm(k, key_dim, 1);
        cpu_delta_gates(row + 3 * MAX_DIM, row + 3 * MAX_DIM + 1, &rate, &dt_bias, 1, &beta, &decay,
                        REF_EXACT);
        memcpy(s->states[i + 1], s->states[i], sizeof s->states[i]);
        cpu_delta_step(&shape, s->states[i + 1], q, k, row + 2 * MAX_DIM, decay, beta,
                       s->expected[i], REF_EXACT);
    }
    s->largest = largest_of(s->expected[0], POSITIONS * MAX_DIM);
}

static void expect_close(const float *made, const float *expected, int n, double largest,
                         const char *path, const char *what, int at) {
    double worst = 0;
    for (int i = 0; i < n; i++) {
        double error = fabs((double)made[i] - (double)expected[i]);
        if (!(error <= worst)) worst = error;
    }
    if (!(worst <= BOUND * largest))
        fail_msg("%s: %s at %d: error %g of %g", path, what, at, worst, largest);
}

/* From the state after `first` positions, n more: n is 0 for one at a time to the end. */
static void check_run(const struct scene *s, const struct kernels *k, int first, int n) {
    static _Alignas(64) float state[MAX_DIM * MAX_DIM];
    static float out[POSITIONS][MAX_DIM], scratch[1 << 17];
    float q_scale[MAX_DIM], k_scale[MAX_DIM];
    const int end = n ? first + n : POSITIONS;
    assert_true(delta_scratch_floats(s->key_dim, s->stride) <= sizeof scratch / sizeof *scratch);
    for (int i = 0; i < s->key_dim; i++) {
        k_scale[i] = 1 / sqrtf((float)s->key_dim);
        q_scale[i] = 1 / (float)s->key_dim;
    }
    memcpy(state, s->states[first], sizeof state);
    struct delta_head head = { k,       s->key_dim, s->value_dim, s->stride, q_scale,
                               k_scale, s->rate,    -1,           state };
    struct delta_rows rows = { .row_stride = sizeof s->rows[0] / sizeof(float),
                               .out_stride = MAX_DIM };
    for (int i = first; i < end; i += n ? n : 1) {
        rows.q = s->rows[i];
        rows.k = s->rows[i] + MAX_DIM;
        rows.v = s->rows[i] + 2 * MAX_DIM;
        rows.b = s->rows[i] + 3 * MAX_DIM;
        rows.a = rows.b + 1;
        rows.out = out[i];
        if (n) delta_prefill(&head, &rows, n, scratch);
        for (int c = 0; !n && c < s->stride; c += DELTA_COLUMNS)
            delta_decode(&head, &rows, c,
                         s->stride - c < DELTA_COLUMNS ? s->stride - c : DELTA_COLUMNS);
    }
    for (int i = first; i < end; i++)
        expect_close(out[i], s->expected[i], s->value_dim, s->largest, k->name,
                     n ? "chunks" : "steps", i);
    const int n_state = s->key_dim * s->stride;
    expect_close(state, s->states[end], n_state, fmax(1, largest_of(s->states[end], n_state)),
                 k->name, "the state", end);
}

static void chunks_and_steps_equal_the_reference(void **state) {
    (void)state;
    static struct scene s;
    static const int dims[][2] = { { 16, 16 }, { 16, 24 }, { 6, 4 }, { 128, 128 }, { 20, 96 } };
    static const float rates[] = { 0.001f, 0.3f, 30 };
    static const char *const paths[] = { "portable", "avx2", "avx512", "neon" };
    char here[CPU_PATH_TEXT];
    cpu_path_list(here);
    for (size_t d = 0; d < 15; d++) {
        fill(&s, dims[d / 3][0], dims[d / 3][1], rates[d % 3]);
        for (size_t p = 0; p < 4; p++) {
            struct kernels k;
            if (!strstr(here, paths[p])) continue;
            assert_int_equal(cpu_path_choose(&k, paths[p], NULL), REEL_OK);
            check_run(&s, &k, 0, 0);
            check_run(&s, &k, 77, 0);
            for (int n = 1; n <= POSITIONS; n += n < 70 ? 1 : 40)
                check_run(&s, &k, n % 3 ? 0 : POSITIONS - n, n);
        }
    }
}

/* ---- a session's states ---------------------------------------------------------------------- */

static const struct model_config config = {
    .n_layers = 3,
    .layer_kinds = { LAYER_DELTA, LAYER_ATTENTION, LAYER_DELTA },
    .delta = { 1, 2, 4, 5, 3 },
};

static struct recurrent open_states(void) {
    struct recurrent r;
    assert_int_equal(recurrent_open(&r, &config, NULL), REEL_OK);
    return r;
}

/* A run as the layers do it; a state's values are the positions it has seen. */
static void run(struct recurrent *r, int first, int n, bool to_the_end) {
    recurrent_run_begin(r);
    for (int layer = 0; layer < r->n_layers; layer++) {
        int after = 0;
        float *keep = recurrent_keep(r, layer, first, n, &after);
        float *live = recurrent_layer(r, r->live, layer);
        for (size_t i = 0; i < r->layer_floats; i++) {
            if (n) assert_true(live[i] == (float)first);
            live[i] = (float)(first + n);
            if (keep) keep[i] = (float)(first + after);
        }
        if (!to_the_end) return;
    }
    recurrent_run_end(r, first, n);
}

static void evaluate(struct recurrent *r, int first, int n) {
    assert_int_equal(recurrent_resume(r, first), first);
    recurrent_begin(r, first, n);
    run(r, first, n, true);
    assert_int_equal(recurrent_resume(r, first + n), first + n);
}

static void a_session_without_such_layers_goes_back_anywhere(void **state) {
    (void)state;
    struct recurrent r;
    const struct model_config plain = { .n_layers = 3 };
    assert_int_equal(recurrent_bytes(&plain), 0);
    assert_int_equal(recurrent_open(&r, &plain, NULL), REEL_OK);
    recurrent_begin(&r, 7, 3);
    recurrent_run_begin(&r);
    recurrent_run_end(&r, 7, 3);
    assert_int_equal(recurrent_resume(&r, 5), 5);
    assert_int_equal(recurrent_save_bytes(&r, 5), 0);
    recurrent_release(&r);
}

static void states_are_kept_around_each_prompt(void **state) {
    (void)state;
    struct recurrent r = open_states();
    evaluate(&r, 0, 100);
    assert_int_equal(recurrent_resume(&r, 99), 99); /* before its last position */
    assert_int_equal(recurrent_resume(&r, 98), 0);
    for (int i = 100; i < 120; i++)
        evaluate(&r, i, 1);
    evaluate(&r, 120, 30);
    assert_int_equal(recurrent_resume(&r, 148), 120);
    assert_int_equal(recurrent_resume(&r, 119), 99);
    evaluate(&r, 120, 1); /* what came after 120 is gone */
    assert_int_equal(recurrent_resume(&r, 1000), 121);
    evaluate(&r, 99, 2);
    evaluate(&r, 0, 1);
    assert_int_equal(recurrent_resume(&r, 99), 1);
    recurrent_release(&r);
}

static void decoding_keeps_a_state_now_and_then(void **state) {
    (void)state;
    struct recurrent r = open_states();
    for (int i = 0; i < 3 * CHECKPOINT_STEP; i++)
        evaluate(&r, i, 1);
    assert_int_equal(recurrent_resume(&r, 2 * CHECKPOINT_STEP + 7), 2 * CHECKPOINT_STEP);
    assert_int_equal(recurrent_resume(&r, 2 * CHECKPOINT_STEP - 1), CHECKPOINT_STEP);
    recurrent_release(&r);
}

static void a_run_that_breaks_off_is_never_gone_on_from(void **state) {
    (void)state;
    struct recurrent r = open_states();
    evaluate(&r, 0, 40);
    recurrent_begin(&r, 40, 60);
    run(&r, 40, 30, true);
    run(&r, 70, 30, false);
    assert_int_equal(recurrent_resume(&r, 100), 40);
    evaluate(&r, 40, 60);
    recurrent_begin(&r, 0, 60); /* from the beginning there is nothing to keep */
    run(&r, 0, 60, false);
    assert_int_equal(recurrent_resume(&r, 100), 0);
    evaluate(&r, 0, 60);
    recurrent_release(&r);
}

/* With many prompts the kept states thin out towards the beginning, and never vanish. */
static void old_states_thin_out(void **state) {
    (void)state;
    struct recurrent r = open_states();
    int end = 0;
    for (; end < 20000; end += 100)
        evaluate(&r, end, 100);
    assert_int_equal(recurrent_resume(&r, end - 1), end - 1);
    assert_int_equal(recurrent_resume(&r, end - 2), end - 100);
    int oldest = end, at = end - 1, held = 0;
    for (; at > 0; at = recurrent_resume(&r, at - 1), held++)
        oldest = at;
    assert_int_equal(held, MEMORY_PLAN_CHECKPOINTS);
    assert_true(oldest < end * 3 / 4);
    recurrent_release(&r);
}

static void a_state_is_moved_whole(void **state) {
    (void)state;
    struct recurrent a = open_states(), b = open_states(), c = open_states();
    evaluate(&a, 0, 20);
    evaluate(&a, 20, 20);
    evaluate(&b, 0, 5);
    size_t n = recurrent_save_bytes(&a, 20);
    float *bytes = malloc(n);
    assert_non_null(bytes);
    recurrent_save(&a, 20, bytes);
    for (size_t i = 0; i < n / sizeof *bytes; i++)
        assert_true(bytes[i] == 20);
    recurrent_load(&b, 20, bytes);
    recurrent_copy(&c, &a, 39);
    assert_int_equal(recurrent_resume(&b, 100), 20);
    assert_int_equal(recurrent_resume(&b, 19), 0);
    assert_int_equal(recurrent_resume(&c, 100), 39);
    evaluate(&b, 20, 3);
    evaluate(&c, 39, 3);
    recurrent_copy(&c, &a, 0);
    evaluate(&c, 0, 3);
    free(bytes);
    recurrent_release(&a);
    recurrent_release(&b);
    recurrent_release(&c);
}

static int n_shared(const struct recurrent *r) {
    int n = 0;
    for (int i = 0; i < MEMORY_PLAN_CHECKPOINTS; i++)
        n += r->kept[i]->holders > 1;
    return n;
}

/* A copy can go back as far as its source could, and neither sees what becomes of the other. */
static void copies_share_what_is_kept(void **state) {
    (void)state;
    struct recurrent a = open_states(), b = open_states();
    evaluate(&a, 0, 10);
    evaluate(&a, 10, 10);
    evaluate(&b, 0, 7); /* and forgets this */
    recurrent_copy(&b, &a, 20);
    assert_int_equal(n_shared(&a), 3); /* 9, 10 and 19 */
    for (int i = 0; i < MEMORY_PLAN_CHECKPOINTS; i++)
        if (a.positions.position[i]) assert_ptr_equal(a.kept[i], b.kept[i]);
    assert_int_equal(recurrent_resume(&b, 18), 10);
    evaluate(&b, 10, 30); /* writes the slots of 19 and of another */
    evaluate(&b, 40, 30);
    evaluate(&b, 70, 30);
    evaluate(&a, 19, 5); /* run() checks that it begins with 19 */
    evaluate(&a, 10, 2);
    recurrent_copy(&b, &a, 10); /* not what lies beyond */
    assert_int_equal(recurrent_resume(&b, 100), 10);
    recurrent_release(&a);
    assert_int_equal(n_shared(&b), 0);
    evaluate(&b, 9, 5);
    recurrent_release(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chunks_and_steps_equal_the_reference),
        cmocka_unit_test(a_session_without_such_layers_goes_back_anywhere),
        cmocka_unit_test(states_are_kept_around_each_prompt),
        cmocka_unit_test(decoding_keeps_a_state_now_and_then),
        cmocka_unit_test(a_run_that_breaks_off_is_never_gone_on_from),
        cmocka_unit_test(old_states_thin_out),
        cmocka_unit_test(a_state_is_moved_whole),
        cmocka_unit_test(copies_share_what_is_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
