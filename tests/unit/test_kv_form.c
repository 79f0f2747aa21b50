/* Keys and values as codes of 8 bits: every code, every border, and how far off a value can be. */
#include "model/kv_form.h"
#include "model/matrix.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { DIM = 128 };

static float random_size(void) { return ldexpf((float)rand() / (float)RAND_MAX, rand() % 12 - 6); }

static void fill(float *x) {
    for (int i = 0; i < DIM; i++)
        x[i] = rand() % 2 ? random_size() : -random_size();
}

static float largest(const float *x) {
    float most = 0;
    for (int i = 0; i < DIM; i++)
        most = fmaxf(most, fabsf(x[i]));
    return most;
}

static void names_and_forms(void **state) {
    (void)state;
    assert_int_equal(kv_form_of(NULL), KV_BF16);
    for (int i = 0; i < KV_FORMS; i++)
        assert_int_equal(kv_form_of(kv_form_name((enum kv_form)i)), i);
    assert_int_equal(kv_form_of("int4"), KV_FORMS);
    assert_int_equal(kv_form_of(""), KV_FORMS);
}

/* Half a scale, and what a float32 quotient and product round: 3 of 2^-24 of up to 127 scales. */
static void int8_is_off_by_half_a_scale_at_most(void **state) {
    (void)state;
    for (int turn = 0; turn < 2000; turn++) {
        float x[DIM], worst = 0;
        uint8_t codes[DIM];
        fill(x);
        const float scale = kv_quantise(KV_INT8, x, DIM, 0, codes);
        assert_true(scale == largest(x) / 127);
        for (int i = 0; i < DIM; i++) {
            const float off = fabsf(scale * kv_code_value(KV_INT8, codes[i]) - x[i]);
            worst = fmaxf(worst, off);
            assert_true(off <= scale * (0.5f + 3 * 127 * 0x1p-24f));
        }
        assert_true(worst > 0.4f * scale); /* else the scale were too fine to be true */
    }
}

/* e4m3 has 4 significant bits: 2^-4 of the value at most, and half of 2^-9 scales below 2^-6. */
static void fp8_is_off_by_a_sixteenth_at_most(void **state) {
    (void)state;
    for (int turn = 0; turn < 2000; turn++) {
        float x[DIM];
        uint8_t codes[DIM];
        fill(x);
        const float scale = kv_quantise(KV_FP8, x, DIM, 0, codes);
        assert_true(scale == largest(x) / 448);
        for (int i = 0; i < DIM; i++) {
            const float value = kv_code_value(KV_FP8, codes[i]), size = fabsf(x[i]);
            const float bound = fmaxf(size * 0x1p-4f, scale * 0x1p-10f) * (1 + 0x1p-20f);
            assert_true(fabsf(scale * value - x[i]) <= bound);
        }
    }
}

/* With a scale of 1 every code's value becomes that code again, and what lies between two goes to
 * the nearer one, at the middle to the even one. */
static void codes_and_their_borders(void **state) {
    (void)state;
    uint8_t codes[3];
    for (int code = 0; code < 127; code++) { /* 0x7f is NaN, and 0x80 minus 0 */
        const float value = e4m3_to_f32((uint8_t)code);
        const float x[3] = { value, -value,
                             code == 126 ? value : e4m3_to_f32((uint8_t)(code + 1)) };
        assert_true(kv_quantise(KV_FP8, x, 3, 1, codes) == 1);
        assert_int_equal(codes[0], code);
        assert_int_equal(codes[1] & 127, code);
        if (code == 126) continue;
        const float middle = 0.5f * (x[0] + x[2]);
        const float y[3] = { middle, nextafterf(middle, 0), nextafterf(middle, 1000) };
        assert_true(kv_quantise(KV_FP8, y, 3, 1, codes) == 1);
        assert_int_equal(codes[0], code + (code & 1));
        assert_int_equal(codes[1], code);
        assert_int_equal(codes[2], code + 1);
    }
    const float halves[3] = { 127, 2.5f, -3.5f };
    assert_true(kv_quantise(KV_INT8, halves, 3, 0, codes) == 1);
    assert_int_equal((int8_t)codes[0], 127);
    assert_int_equal((int8_t)codes[1], 2);
    assert_int_equal((int8_t)codes[2], -4);
}

/* As formats with a scale in the file define it: stored is x / scale, at most 448. */
static void a_given_scale_is_kept(void **state) {
    (void)state;
    const float x[3] = { 100, 0.25f, -3 };
    const float far[2] = { 1e30f, -449 * 0.125f };
    const float none[2] = { 0, 0 };
    uint8_t codes[3];
    assert_true(kv_quantise(KV_FP8, x, 3, 0.125f, codes) == 0.125f);
    assert_true(kv_code_value(KV_FP8, codes[0]) == 448);
    assert_true(kv_code_value(KV_FP8, codes[1]) == 2);
    assert_true(kv_code_value(KV_FP8, codes[2]) == -24);
    assert_true(kv_quantise(KV_FP8, far, 2, 0.125f, codes) == 0.125f);
    assert_true(kv_code_value(KV_FP8, codes[0]) == 448);
    assert_true(kv_code_value(KV_FP8, codes[1]) == -448);
    assert_true(kv_quantise(KV_FP8, none, 2, 0.125f, codes) == 0.125f);
    assert_int_equal(codes[0], 0);
}

static void zeros_and_what_is_no_number(void **state) {
    (void)state;
    static const float odd[] = { NAN, INFINITY, -INFINITY };
    for (int form = KV_INT8; form <= KV_FP8; form++) {
        float x[DIM] = { 0 };
        uint8_t codes[DIM];
        memset(codes, 0xee, sizeof codes);
        assert_true(kv_quantise((enum kv_form)form, x, DIM, 0, codes) == 0);
        for (int i = 0; i < DIM; i++)
            assert_int_equal(codes[i], 0);
        x[3] = 0x1p-125f; /* its scale would have few bits left */
        assert_true(kv_quantise((enum kv_form)form, x, DIM, 0, codes) == 0);
        x[3] = 0x1p-119f;
        const float scale = kv_quantise((enum kv_form)form, x, DIM, 0, codes);
        assert_true(fabsf(scale * kv_code_value((enum kv_form)form, codes[3]) / x[3] - 1) < 1e-6f);
        for (int i = 0; i < 3; i++) {
            x[77] = odd[i];
            assert_true(isnan(kv_quantise((enum kv_form)form, x, DIM, 0, codes)));
            assert_true(isnan(kv_quantise((enum kv_form)form, x, DIM, 2, codes)));
            assert_int_equal(codes[3], 0);
        }
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_forms),
        cmocka_unit_test(int8_is_off_by_half_a_scale_at_most),
        cmocka_unit_test(fp8_is_off_by_a_sixteenth_at_most),
        cmocka_unit_test(codes_and_their_borders),
        cmocka_unit_test(a_given_scale_is_kept),
        cmocka_unit_test(zeros_and_what_is_no_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
