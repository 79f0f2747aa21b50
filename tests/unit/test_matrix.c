/* What the weights of a matrix are worth in each form: small matrices written by hand. */
#include "model/matrix.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { COLUMNS = 8 };

/* Bit by bit, so that a NaN or a negative zero counts. */
static void row_is(const struct matrix *m, int r, const float *want) {
    float got[COLUMNS];
    for (int k = 0; k < COLUMNS; k++)
        got[k] = 99;
    matrix_row_f32(m, r, got);
    for (int k = 0; k < m->columns; k++)
        if (memcmp(&got[k], &want[k], sizeof *got) != 0)
            fail_msg("row %d, column %d: %.9g, want %.9g", r, k, (double)got[k], (double)want[k]);
    for (int k = m->columns; k < COLUMNS; k++)
        assert_true(got[k] == 99);
}

static struct matrix coded(int rows, int columns, int bits, const void *codes,
                           const struct matrix_planes *planes) {
    return (struct matrix){ .rows = rows,
                            .columns = columns,
                            .row_bytes = (size_t)(columns * bits + 7) / 8,
                            .data = codes,
                            .planes = planes };
}

static void without_planes_a_dtype_says_it(void **state) {
    (void)state;
    static const uint16_t bf16[2][3] = { { 0x3f80, 0xc000, 0x3f00 }, { 0x0000, 0x4040, 0xbf80 } };
    const struct matrix m = {
        .dtype = DTYPE_BF16, .rows = 2, .columns = 3, .row_bytes = 6, .data = (const void *)bf16
    };
    row_is(&m, 0, (const float[]){ 1, -2, 0.5f });
    row_is(&m, 1, (const float[]){ 0, 3, -1 });
}

/* AWQ, GPTQ and pack-quantized: 4 bits, groups of 4, a zero point for each. */
static void integers_have_a_scale_and_a_zero_point_a_group(void **state) {
    (void)state;
    static const unsigned char codes[2][4] = { { 0x10, 0x32, 0xba, 0xfc },
                                               { 0x8f, 0, 0x77, 0x18 } };
    static const uint16_t scales[2][2] = { { 0x3800, 0x4000 },
                                           { 0x3c00, 0xb400 } }; /* .5 2 1 -.25 */
    static const unsigned char zeros[2][2] = { { 2, 12 }, { 8, 0 } };
    const struct matrix_planes p = { .form = MATRIX_INTEGERS,
                                     .bits = 4,
                                     .scales = { (const void *)scales, 4, PLANE_F16, 1, 4 },
                                     .zeros = { (const void *)zeros, 2, PLANE_U8, 1, 4 },
                                     .factor = 1 };
    const struct matrix m = coded(2, 8, 4, codes, &p);
    row_is(&m, 0, (const float[]){ -1, -0.5f, 0, 0.5f, -4, -2, 0, 6 });
    row_is(&m, 1, (const float[]){ 7, 0, -8, -8, -1.75f, -1.75f, -2, -0.25f });
}

/* W8A8: a scale a row, one zero point for all. */
static void integers_of_8_bits_share_a_zero_point(void **state) {
    (void)state;
    static const unsigned char codes[2][3] = { { 128, 129, 0 }, { 255, 127, 130 } };
    static const float scales[] = { 0.25f, 3 };
    const struct matrix_planes p = { .form = MATRIX_INTEGERS,
                                     .bits = 8,
                                     .scales = { (const void *)scales, 4, PLANE_F32, 1, 3 },
                                     .zero = 128,
                                     .factor = 1 };
    const struct matrix m = coded(2, 3, 8, codes, &p);
    row_is(&m, 0, (const float[]){ 0, 0.25f, -32 });
    row_is(&m, 1, (const float[]){ 381, -3, 6 });
}

/* GPTQ's activation order: column k belongs to the group that g_idx names. */
static void columns_may_be_of_groups_in_any_order(void **state) {
    (void)state;
    static const unsigned char codes[] = { 0x21, 0x43 };
    static const uint16_t scales[] = { 0x3f80, 0x4120 }; /* 1, 10 */
    static const unsigned char zeros[] = { 0, 1 };
    static const int order[] = { 2, 0, 3, 1 };
    const struct matrix_planes p = { .form = MATRIX_INTEGERS,
                                     .bits = 4,
                                     .scales = { (const void *)scales, 4, PLANE_BF16, 1, 2 },
                                     .zeros = { zeros, 2, PLANE_U8, 1, 2 },
                                     .factor = 1,
                                     .order = order };
    const struct matrix m = coded(1, 4, 4, codes, &p);
    row_is(&m, 0, (const float[]){ 0, 2, 20, 4 });
}

/* Qwen's FP8: a scale for a block of rows and columns, the last ones cut short. */
static void floats_of_8_bits_have_a_scale_a_block(void **state) {
    (void)state;
    static const unsigned char codes[3][3] = { { 0x38, 0xb8, 0x7e },
                                               { 0x01, 0x08, 0x40 },
                                               { 0x38, 0x80, 0xc4 } };
    static const uint16_t scales[2][2] = { { 0x3f80, 0x4000 }, { 0x3f00, 0x4040 } };
    const struct matrix_planes p = { .form = MATRIX_E4M3,
                                     .bits = 8,
                                     .scales = { (const void *)scales, 4, PLANE_BF16, 2, 2 },
                                     .factor = 1 };
    const struct matrix m = coded(3, 3, 8, codes, &p);
    row_is(&m, 0, (const float[]){ 1, -1, 896 });
    row_is(&m, 1, (const float[]){ 0x1p-9f, 0x1p-6f, 4 });
    row_is(&m, 2, (const float[]){ 0.5f, -0.0f, -9 });
}

/* Every code, by the definition: sign, exponent less 7, fraction of 8. */
static void every_float_of_8_bits_is_its_definition(void **state) {
    (void)state;
    for (int code = 0; code < 256; code++) {
        const int e = code >> 3 & 15, f = code & 7;
        const double size = e ? (1 + f / 8.0) * pow(2, e - 7) : f / 8.0 * pow(2, -6);
        const float got = e4m3_to_f32((uint8_t)code);
        if ((code & 127) == 127) {
            assert_true(isnan(got));
            continue;
        }
        assert_true((double)got == (code & 128 ? -size : size));
        assert_int_equal(signbit(got) != 0, code >> 7);
    }
}

/* NVFP4: a scale of 8 bits for a few, and one for all; MXFP4: powers of two. */
static void floats_of_4_bits_have_two_scales_or_a_power_of_two(void **state) {
    (void)state;
    static const unsigned char codes[] = { 0x10, 0x32, 0xd4, 0xf6 };
    static const unsigned char e4m3[] = { 0x38, 0x44 }, e8m0[] = { 127, 125 }; /* 1 3; 1 1/4 */
    const struct matrix_planes nv = {
        .form = MATRIX_E2M1, .bits = 4, .scales = { e4m3, 2, PLANE_E4M3, 1, 4 }, .factor = 0.5f
    };
    const struct matrix_planes mx = {
        .form = MATRIX_E2M1, .bits = 4, .scales = { e8m0, 2, PLANE_E8M0, 1, 4 }, .factor = 1
    };
    const struct matrix a = coded(1, 8, 4, codes, &nv), b = coded(1, 8, 4, codes, &mx);
    row_is(&a, 0, (const float[]){ 0, 0.25f, 0.5f, 0.75f, 3, -4.5f, 6, -9 });
    row_is(&b, 0, (const float[]){ 0, 0.5f, 1, 1.5f, 0.5f, -0.75f, 1, -1.5f });
}

/* The ends of the exponents: the least is no normal float, the last is no number. */
static void powers_of_two_reach_both_ends(void **state) {
    (void)state;
    static const unsigned char codes[] = { 0x22, 0x22 }, scales[] = { 0, 1, 254, 255 };
    const struct matrix_planes p = {
        .form = MATRIX_E2M1, .bits = 4, .scales = { scales, 4, PLANE_E8M0, 1, 1 }, .factor = 1
    };
    const struct matrix m = coded(1, 4, 4, codes, &p);
    float got[4];
    matrix_row_f32(&m, 0, got);
    assert_true(got[0] == 0x1p-127f && got[1] == 0x1p-126f && got[2] == 0x1p127f && isnan(got[3]));
}

/* nf4 and IQ4: the codes name a table's entries. */
static void codes_may_name_the_entries_of_a_table(void **state) {
    (void)state;
    static const float table[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113 };
    static const unsigned char codes[] = { 0xf0, 0x87, 0x10, 0x2e };
    static const uint16_t scales[] = { 0x3c00, 0x3800 }; /* 1, .5 */
    const struct matrix_planes p = { .form = MATRIX_TABLE,
                                     .bits = 4,
                                     .scales = { (const void *)scales, 4, PLANE_F16, 1, 4 },
                                     .factor = 1,
                                     .table = table };
    const struct matrix m = coded(1, 8, 4, codes, &p);
    row_is(&m, 0, (const float[]){ -127, 113, -10, 1, -63.5f, -52, 44.5f, -41.5f });
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_planes_a_dtype_says_it),
        cmocka_unit_test(integers_have_a_scale_and_a_zero_point_a_group),
        cmocka_unit_test(integers_of_8_bits_share_a_zero_point),
        cmocka_unit_test(columns_may_be_of_groups_in_any_order),
        cmocka_unit_test(floats_of_8_bits_have_a_scale_a_block),
        cmocka_unit_test(every_float_of_8_bits_is_its_definition),
        cmocka_unit_test(floats_of_4_bits_have_two_scales_or_a_power_of_two),
        cmocka_unit_test(powers_of_two_reach_both_ends),
        cmocka_unit_test(codes_may_name_the_entries_of_a_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
