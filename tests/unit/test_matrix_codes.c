/* What a GPU is given of narrow weights: codes, scales and offsets of every type of GGUF and of
 * every form of planes, alone and in formats that several matrices share. Weights put together
 * again from a staged row (kernels/tile_format.h) are those of matrix_row_f32, bit for bit. */
#include "cuda/run/narrow_rows.h"
#include "kernels/tile_format.h"
#include "plan/plan_layout.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS = 5, MOST_COLUMNS = 1024, MXFP4_NAN = 255 };

static uint32_t random_bits(void) { /* xorshift */
    static uint32_t x = 2463534242u;
    x ^= x << 13, x ^= x >> 17, x ^= x << 5;
    return x;
}

static void *must(void *p) {
    assert_non_null(p);
    return p;
}

/* ---- a staged row, put together again -------------------------------------------------------- */

static float number_of(int format, const unsigned char *from) {
    uint32_t word = 0;
    float x = 0;
    memcpy(&word, from, (size_t)TILE_SCALE_BYTES(format));
    memcpy(&x, &word, sizeof x);
    if (TILE_SCALE(format) == TILE_SCALE_F32) return x;
    return TILE_SCALE(format) == TILE_SCALE_F16 ? f16_to_f32((uint16_t)word)
                                                : bf16_to_f32((uint16_t)word);
}

/* What a code of a byte is worth; four bits of it are all that a tile of 4 bits keeps. */
static float value_of(int format, unsigned char code) {
    switch (TILE_CODE(format)) {
    case TILE_INT8:
        return (float)(signed char)code;
    case TILE_INT4:
        return (float)((code & 15) >= 8 ? (code & 15) - 16 : code & 15);
    case TILE_UINT4:
        return (float)(code & 15);
    case TILE_IQ4:
        return (float)dtype_iq4_values[code & 15];
    case TILE_NF4:
    case TILE_FP4:
        return (float)tile_table_value(format, code & 15);
    case TILE_E4M3:
        return e4m3_to_f32(code);
    default:
        return e2m1_to_f32(code & 15);
    }
}

static float staged_number(int format, const unsigned char *row, int columns, int number, int k) {
    const int unit = k / (TILE_K * TILE_PARTS(format)), of_16 = TILE_STEPS(format) ? k / 16 : 0;
    if (TILE_STEPS(format)) {
        const unsigned char *step =
            row + tile_staged_at(format, columns, number, of_16 >> TILE_GROUP(format));
        uint16_t half;
        memcpy(&half, row + tile_staged_unit_at(format, columns, number, unit), sizeof half);
        return f16_to_f32(half) * (float)(signed char)*step;
    }
    const int group = TILE_GROUP(format) == TILE_GROUP_ROW ? 0 : k / (TILE_K << TILE_GROUP(format));
    return number_of(format, row + tile_staged_at(format, columns, number, group));
}

static float staged_weight(int format, const unsigned char *row, int columns, int k) {
    const float value = value_of(format, row[k]);
    const float scale = staged_number(format, row, columns, 0, k);
    if (!TILE_OFFSETS(format)) return scale * value;
    const float offset = staged_number(format, row, columns, 1, k);
    return TILE_OFFSETS(format) == TILE_ZEROS ? (value - offset) * scale : value * scale + offset;
}

/* In a format that it shares a weight of -0 may be +0. Integers stand for bitsandbytes' floats. */
static bool same(int format, float a, float b, bool shared) {
    if (TILE_DIGITS(format) > 1) return fabsf(a - b) <= 4e-5f * fabsf(b);
    return memcmp(&a, &b, sizeof a) == 0 || (shared && a == b);
}

static void check_staged(const struct matrix *m, int format, bool shared, const char *what) {
    static float want[MOST_COLUMNS], numbers[2 * MOST_COLUMNS];
    struct matrix_codes codes;
    assert_true(matrix_codes(m, &codes));
    const size_t bytes = (size_t)tile_staged_bytes(format, m->columns);
    assert_true(narrow_row_floats(&codes, m->columns) <= 2 * MOST_COLUMNS);
    unsigned char *row = must(malloc(bytes)); /* the sanitizer sees a byte too many */
    for (int r = 0; r < m->rows; r++) {
        memset(row, 0xa5, bytes);
        narrow_row_stage(m, &codes, r, format, numbers, row);
        matrix_row_f32(m, r, want);
        for (int k = 0; k < m->columns; k++) {
            const float made = staged_weight(format, row, m->columns, k);
            if (!same(format, made, want[k], shared))
                fail_msg("%s: (%d, %d) in format %d is %.9g, expected %.9g", what, r, k, format,
                         (double)made, (double)want[k]);
        }
    }
    free(row);
}

/* The format that holds both, or a alone. */
static int format_of(const struct matrix *a, const struct matrix *b) {
    struct layer_weights layer = { .kind = LAYER_ATTENTION, .q = *a, .k = b ? *b : *a, .v = *a };
    struct weights w = { .layers = &layer, .n_layers = 1 };
    int formats[TAPE_N_PHASES];
    plan_stored(&w, formats);
    for (int i = 0; i < TAPE_N_PHASES; i++)
        if (i != TAPE_QKV) assert_int_equal(formats[i], TILE_BF16);
    return formats[TAPE_QKV];
}

/* ---- blocks of GGUF -------------------------------------------------------------------------- */

/* Where the f16 numbers of a block begin; -1: no more. */
static const struct block_numbers {
    enum dtype type;
    int at[2];
    int format;
    float factor; /* of the matrix */
} block_types[] = {
    { DTYPE_Q8_0, { 0, -1 }, TILE_FORMAT(TILE_INT8, 1, TILE_SCALE_F16, TILE_NO_OFFSETS), 0 },
    { DTYPE_Q4_0, { 0, -1 }, TILE_FORMAT(TILE_INT4, 1, TILE_SCALE_F16, TILE_NO_OFFSETS), 0 },
    { DTYPE_Q4_1, { 0, 2 }, TILE_FORMAT(TILE_UINT4, 1, TILE_SCALE_F16, TILE_MINIMA), 0 },
    { DTYPE_Q5_0, { 0, -1 }, TILE_FORMAT(TILE_INT8, 1, TILE_SCALE_F16, TILE_NO_OFFSETS), 0 },
    { DTYPE_Q5_1, { 0, 2 }, TILE_FORMAT(TILE_INT8, 1, TILE_SCALE_F16, TILE_MINIMA), 0 },
    { DTYPE_Q4_K, { 0, 2 }, TILE_FORMAT(TILE_UINT4, 1, TILE_SCALE_STEPS, TILE_MINIMA), 0 },
    { DTYPE_Q5_K, { 0, 2 }, TILE_FORMAT(TILE_INT8, 1, TILE_SCALE_STEPS, TILE_MINIMA), 0 },
    { DTYPE_Q6_K, { 208, -1 }, TILE_FORMAT(TILE_INT8, 0, TILE_SCALE_STEPS, TILE_NO_OFFSETS), 0 },
    { DTYPE_Q2_K, { 80, 82 }, TILE_FORMAT(TILE_UINT4, 0, TILE_SCALE_STEPS, TILE_MINIMA), 0 },
    { DTYPE_Q3_K, { 108, -1 }, TILE_FORMAT(TILE_INT4, 0, TILE_SCALE_STEPS, TILE_NO_OFFSETS), 0 },
    { DTYPE_IQ4_NL, { 0, -1 }, TILE_FORMAT(TILE_IQ4, 1, TILE_SCALE_F16, TILE_NO_OFFSETS), 0 },
    { DTYPE_IQ4_XS, { 0, -1 }, TILE_FORMAT(TILE_IQ4, 1, TILE_SCALE_STEPS, TILE_NO_OFFSETS), 0 },
    { DTYPE_MXFP4, { -1, -1 }, TILE_FORMAT(TILE_E2M1, 1, TILE_SCALE_BF16, TILE_NO_OFFSETS), 0 },
    { DTYPE_NVFP4, { -1, -1 }, TILE_FORMAT(TILE_E2M1, 0, TILE_SCALE_F16, TILE_NO_OFFSETS), 0 },
    { DTYPE_NVFP4,
      { -1, -1 },
      TILE_FORMAT(TILE_E2M1, 0, TILE_SCALE_F32, TILE_NO_OFFSETS),
      0.0127f },
};
enum { N_BLOCK_TYPES = (int)(sizeof block_types / sizeof *block_types) };

/* Random bytes, but for scales and minima, which are finite: some are subnormal, 0 or negative. */
static struct matrix blocks_make(const struct block_numbers *t, int columns) {
    struct matrix m = { .dtype = t->type, .rows = ROWS, .columns = columns, .factor = t->factor };
    m.row_bytes = dtype_row_bytes(t->type, (size_t)columns) + 3; /* rows need not lie together */
    unsigned char *data = must(malloc(m.row_bytes * ROWS));
    for (size_t i = 0; i < m.row_bytes * ROWS; i++)
        data[i] = (unsigned char)(random_bits() >> 9);
    for (int r = 0; r < ROWS; r++)
        for (int b = 0; b < columns / dtype_block_elements(t->type); b++)
            for (int i = 0; i < 2 && t->at[i] >= 0; i++) {
                unsigned char *at = data + (size_t)r * m.row_bytes +
                                    (size_t)(b * dtype_block_bytes(t->type) + t->at[i]);
                const uint32_t bits = random_bits() >> 7 & 0xffff;
                const uint32_t half = b % 7 == 3                  ? bits & 0x83ff
                                      : (bits & 0x7c00) == 0x7c00 ? 0
                                                                  : bits;
                at[0] = (unsigned char)half, at[1] = (unsigned char)(half >> 8);
            }
    for (size_t i = 0; t->type == DTYPE_MXFP4 && i < m.row_bytes * ROWS; i++)
        if (i % m.row_bytes % 17 == 0 && data[i] == MXFP4_NAN) data[i] = 0;
    m.data = data;
    return m;
}

static void blocks_are_worth_what_their_type_says(void **state) {
    (void)state;
    for (int i = 0; i < N_BLOCK_TYPES; i++) {
        struct matrix m = blocks_make(&block_types[i], MOST_COLUMNS);
        const char *name = dtype_name(m.dtype);
        if (format_of(&m, NULL) != block_types[i].format)
            fail_msg("%s: format %d, expected %d", name, format_of(&m, NULL),
                     block_types[i].format);
        check_staged(&m, block_types[i].format, false, name);
        free((void *)m.data);
    }
}

static void blocks_of_two_types_share_a_format_that_holds_both(void **state) {
    (void)state;
    for (int i = 0; i < N_BLOCK_TYPES; i++)
        for (int j = 0; j < N_BLOCK_TYPES; j++) {
            struct matrix a = blocks_make(&block_types[i], 512),
                          b = blocks_make(&block_types[j], 512);
            const int format = format_of(&a, &b);
            char what[80];
            snprintf(what, sizeof what, "%s with %s", dtype_name(a.dtype), dtype_name(b.dtype));
            assert_int_equal(format, format_of(&b, &a));
            if (TILE_INTEGERS(block_types[i].format) == TILE_INTEGERS(block_types[j].format)) {
                assert_true(TILE_NARROW(format) && tile_format_is(format));
                check_staged(&a, format, true, what);
                check_staged(&b, format, true, what);
            } else {
                assert_int_equal(format, TILE_BF16);
            }
            free((void *)a.data), free((void *)b.data);
        }
}

/* Each of the 256 scales that a byte can be, with each of the 16 codes; code 8 is 0 and not -0. */
static void scales_of_a_byte_are_all_held(void **state) {
    (void)state;
    static const struct {
        enum dtype type;
        int scales, at, part; /* scales of a block, where its codes begin, bytes of a scale's */
        int format;
    } kinds[] = {
        { DTYPE_MXFP4, 1, 1, 16, TILE_FORMAT(TILE_E2M1, 1, TILE_SCALE_BF16, TILE_NO_OFFSETS) },
        { DTYPE_NVFP4, 4, 4, 8, TILE_FORMAT(TILE_E2M1, 0, TILE_SCALE_F16, TILE_NO_OFFSETS) },
    };
    for (int kind = 0; kind < 2; kind++) {
        unsigned char block[36] = { 0 };
        const enum dtype type = kinds[kind].type;
        const struct matrix m = { .dtype = type,
                                  .rows = 1,
                                  .columns = dtype_block_elements(type),
                                  .row_bytes = sizeof block,
                                  .data = block };
        const int n_codes = kinds[kind].scales * kinds[kind].part;
        for (int scale = 0; scale < 256; scale++) {
            if (type == DTYPE_MXFP4 && scale == MXFP4_NAN) continue;
            for (int i = 0; i < kinds[kind].scales; i++)
                block[i] = (unsigned char)scale;
            for (int i = 0; i < n_codes; i++)
                block[kinds[kind].at + i] = (unsigned char)(0x10 + i % 8 * 0x22);
            check_staged(&m, kinds[kind].format, false, dtype_name(type));
        }
    }
}

/* The format's own NaN, which ggml takes for 2^127, is nothing that a tile can hold. */
static void a_scale_that_is_no_number_makes_none(void **state) {
    (void)state;
    unsigned char block[17] = { MXFP4_NAN, 0x11, 0x12 }, row[64];
    const struct matrix m = {
        .dtype = DTYPE_MXFP4, .rows = 1, .columns = 32, .row_bytes = 17, .data = block
    };
    const int format = format_of(&m, NULL);
    struct matrix_codes codes;
    float numbers[2];
    assert_true(matrix_codes(&m, &codes) && tile_staged_bytes(format, 32) <= sizeof row);
    narrow_row_stage(&m, &codes, 0, format, numbers, row);
    for (int k = 0; k < 32; k++)
        if (isfinite(staged_weight(format, row, 32, k))) fail_msg("column %d is finite", k);
}

/* ---- planes ---------------------------------------------------------------------------------- */

struct coded {
    struct matrix m;
    struct matrix_planes planes;
    unsigned char *codes, *scales, *zeros;
};

static const struct variant {
    const char *name;
    enum matrix_form form;
    int bits, zero; /* zero: of MATRIX_TABLE the enum code_type */
    bool with_scales, with_zeros;
    enum plane_type scales, zeros;
    int block_rows; /* that share a scale */
    float factor, divisor;
    int code, scale, offsets; /* of the format */
} variants[] = {
    { "int8", MATRIX_INTEGERS, 8, 128, 1, 0, PLANE_F32, PLANE_U8, 1, 1, 0, TILE_INT8,
      TILE_SCALE_F32, TILE_NO_OFFSETS },
    { "int8, bf16 scales", MATRIX_INTEGERS, 8, 128, 1, 0, PLANE_BF16, PLANE_U8, 1, 1, 0, TILE_INT8,
      TILE_SCALE_BF16, TILE_NO_OFFSETS },
    { "int8, a factor", MATRIX_INTEGERS, 8, 128, 1, 0, PLANE_BF16, PLANE_U8, 1, 0.3f, 0, TILE_INT8,
      TILE_SCALE_F32, TILE_NO_OFFSETS },
    { "int8, one zero point", MATRIX_INTEGERS, 8, 100, 1, 0, PLANE_F16, PLANE_U8, 1, 1, 0,
      TILE_INT8, TILE_SCALE_F16, TILE_ZEROS },
    { "int8, zero point 256", MATRIX_INTEGERS, 8, 256, 1, 0, PLANE_BF16, PLANE_U8, 1, 1, 0,
      TILE_INT8, TILE_SCALE_BF16, TILE_ZEROS },
    { "int8, zero points", MATRIX_INTEGERS, 8, 128, 1, 1, PLANE_F16, PLANE_U8, 1, 1, 0, TILE_INT8,
      TILE_SCALE_F16, TILE_ZEROS },
    { "int8, no scales", MATRIX_INTEGERS, 8, 128, 0, 0, PLANE_F32, PLANE_U8, 1, 0.3f, 0, TILE_INT8,
      TILE_SCALE_F32, TILE_NO_OFFSETS },
    { "int4", MATRIX_INTEGERS, 4, 8, 1, 0, PLANE_F16, PLANE_U8, 1, 1, 0, TILE_INT4, TILE_SCALE_F16,
      TILE_NO_OFFSETS },
    { "int4, zero points", MATRIX_INTEGERS, 4, 8, 1, 1, PLANE_BF16, PLANE_U8, 1, 1, 0, TILE_INT4,
      TILE_SCALE_BF16, TILE_ZEROS },
    { "e4m3", MATRIX_E4M3, 8, 0, 1, 0, PLANE_BF16, PLANE_U8, 1, 1, 0, TILE_E4M3, TILE_SCALE_BF16,
      TILE_NO_OFFSETS },
    { "e4m3, blocks of rows", MATRIX_E4M3, 8, 0, 1, 0, PLANE_F32, PLANE_U8, 2, 1, 0, TILE_E4M3,
      TILE_SCALE_F32, TILE_NO_OFFSETS },
    { "e4m3, e8m0 scales", MATRIX_E4M3, 8, 0, 1, 0, PLANE_E8M0, PLANE_U8, 1, 1, 0, TILE_E4M3,
      TILE_SCALE_BF16, TILE_NO_OFFSETS },
    { "e4m3, one factor", MATRIX_E4M3, 8, 0, 0, 0, PLANE_F32, PLANE_U8, 1, 0.7f, 0, TILE_E4M3,
      TILE_SCALE_F32, TILE_NO_OFFSETS },
    { "e2m1, e4m3 scales", MATRIX_E2M1, 4, 0, 1, 0, PLANE_E4M3, PLANE_U8, 1, 1, 0, TILE_E2M1,
      TILE_SCALE_F16, TILE_NO_OFFSETS },
    { "e2m1, a divisor", MATRIX_E2M1, 4, 0, 1, 0, PLANE_E4M3, PLANE_U8, 1, 1 / 3.3f, 3.3f,
      TILE_E2M1, TILE_SCALE_F32, TILE_NO_OFFSETS },
    { "e2m1, e8m0 scales", MATRIX_E2M1, 4, 0, 1, 0, PLANE_E8M0, PLANE_U8, 1, 1, 0, TILE_E2M1,
      TILE_SCALE_BF16, TILE_NO_OFFSETS },
    { "nf4", MATRIX_TABLE, 4, CODE_NF4, 1, 0, PLANE_F32, PLANE_U8, 1, 1, 0, TILE_NF4,
      TILE_SCALE_F32, TILE_NO_OFFSETS },
    { "fp4, bf16 scales", MATRIX_TABLE, 4, CODE_FP4, 1, 0, PLANE_BF16, PLANE_U8, 1, 1, 0, TILE_FP4,
      TILE_SCALE_F32, TILE_NO_OFFSETS },
};
enum { N_VARIANTS = (int)(sizeof variants / sizeof *variants) };

static size_t value_bytes(enum plane_type type) {
    return type == PLANE_F32 ? 4 : type == PLANE_F16 || type == PLANE_BF16 ? 2 : 1;
}

static void put_value(unsigned char *to, enum plane_type type, int bits) {
    const float x = ((float)(random_bits() >> 8) - 0x1p23f) * 0x1p-30f;
    const uint16_t f16 = f16_from_f32(x), bf16 = bf16_from_f32(x);
    if (type == PLANE_F32) memcpy(to, &x, 4);
    if (type == PLANE_F16) memcpy(to, &f16, 2);
    if (type == PLANE_BF16) memcpy(to, &bf16, 2);
    if (type == PLANE_E4M3) *to = (unsigned char)(random_bits() % 127);
    if (type == PLANE_E8M0) *to = (unsigned char)(random_bits() % 9 ? 60 + random_bits() % 100 : 0);
    if (type == PLANE_U8) *to = (unsigned char)(random_bits() >> 11 & (uint32_t)((1 << bits) - 1));
}

/* group 0: a row. */
static struct matrix_plane plane_make(enum plane_type type, int columns, int block_rows, int group,
                                      int bits, unsigned char **memory) {
    const int n = group ? (columns + group - 1) / group : 1, rows = (ROWS - 1) / block_rows + 1;
    const size_t row_bytes = (size_t)n * value_bytes(type) + 1;
    *memory = must(calloc(row_bytes, (size_t)rows));
    for (int r = 0; r < rows; r++)
        for (int i = 0; i < n; i++)
            put_value(*memory + (size_t)r * row_bytes + (size_t)i * value_bytes(type), type, bits);
    return (struct matrix_plane){ *memory, row_bytes, type, block_rows, group ? group : columns };
}

static void coded_make(struct coded *c, const struct variant *v, int columns, int group,
                       int zeros_group) {
    *c = (struct coded){ .planes = { .form = v->form,
                                     .bits = v->bits,
                                     .zero = v->zero,
                                     .factor = v->factor,
                                     .divisor = v->divisor } };
    if (v->form == MATRIX_TABLE) c->planes.table = matrix_code_floats((enum code_type)v->zero);
    if (v->with_scales)
        c->planes.scales = plane_make(v->scales, columns, v->block_rows, group, 8, &c->scales);
    if (v->with_zeros)
        c->planes.zeros = plane_make(v->zeros, columns, 1, zeros_group, v->bits, &c->zeros);
    c->m = (struct matrix){ .rows = ROWS,
                            .columns = columns,
                            .row_bytes = ((size_t)columns * (size_t)v->bits + 7) / 8,
                            .planes = &c->planes };
    c->codes = must(malloc(c->m.row_bytes * ROWS));
    for (size_t i = 0; i < c->m.row_bytes * ROWS; i++) {
        c->codes[i] = (unsigned char)(random_bits() >> 13);
        if (v->form == MATRIX_E4M3 && (c->codes[i] & 127) == 127) c->codes[i] = 0; /* no NaN */
    }
    c->m.data = c->codes;
}

static void coded_free(struct coded *c) { free(c->codes), free(c->scales), free(c->zeros); }

/* Columns that share a scale in a tile: the largest of 16, 32, 64 and 128 that divides a group. */
static int tile_group_of(int group) {
    int of = 3;
    if (group == 0) return TILE_GROUP_ROW;
    while (group % (TILE_K << of))
        of--;
    return of;
}

/* The group of a format, as columns; 0: a row. */
static const int groups[] = { 0, 16, 32, 64, 128, 48, 96, 256 };
static const int lengths[] = { 16, 96, 256, 144, 1000 };

static void planes_are_worth_what_their_form_says(void **state) {
    (void)state;
    for (int i = 0; i < N_VARIANTS; i++)
        for (size_t g = 0; g < sizeof groups / sizeof *groups; g++)
            for (size_t n = 0; n < sizeof lengths / sizeof *lengths; n++) {
                const struct variant *v = &variants[i];
                struct coded c;
                char what[100];
                coded_make(&c, v, lengths[n], groups[g], groups[g]);
                snprintf(what, sizeof what, "%s, %d columns, groups of %d", v->name, lengths[n],
                         groups[g]);
                /* a group that is the row, or has more, is a row's */
                const bool of_row = groups[g] >= lengths[n] || !(v->with_scales || v->with_zeros);
                const int group = tile_group_of(of_row ? 0 : groups[g]);
                const int want = TILE_FORMAT(v->code, group, v->scale, v->offsets);
                if (format_of(&c.m, NULL) != want)
                    fail_msg("%s: format %d, expected %d", what, format_of(&c.m, NULL), want);
                check_staged(&c.m, want, false, what);
                coded_free(&c);
            }
}

/* Each code's integer, over what 1 is, is the float that the code names, but for the rounding that
 * tile_format.h tells; a table that is neither of the two has no format. */
static void integers_stand_for_the_floats_of_tables(void **state) {
    (void)state;
    static const struct {
        enum code_type type;
        int format;
        float off; /* of the float, at most */
    } tables[] = { { CODE_NF4, TILE_NF4, 3.5e-5f }, { CODE_FP4, TILE_FP4, 1e-7f } };
    float other[16];
    for (int i = 0; i < 2; i++)
        for (int code = 0; code < 16; code++) {
            const float want = matrix_code_floats(tables[i].type)[code];
            const float made =
                (float)tile_table_value(tables[i].format, code) / tile_table_one(tables[i].format);
            if (fabsf(made - want) > tables[i].off * fabsf(want))
                fail_msg("code %d of table %d is %.9g, expected %.9g", code, i, (double)made,
                         (double)want);
            other[code] = want;
        }
    for (int code = 0; code < 16; code++)
        assert_int_equal(tile_table_value(TILE_IQ4, code), dtype_iq4_values[code]);
    other[3] = 0.999f;
    struct coded c;
    coded_make(&c, &variants[N_VARIANTS - 1], 64, 64, 64);
    assert_int_equal(TILE_CODE(format_of(&c.m, NULL)), TILE_FP4);
    c.planes.table = other;
    assert_int_equal(format_of(&c.m, NULL), TILE_BF16);
    coded_free(&c);
}

static void scales_and_zero_points_may_have_groups_of_their_own(void **state) {
    (void)state;
    static const struct {
        int scales, zeros, group; /* of the format */
    } pairs[] = { { 32, 128, 1 }, { 128, 32, 1 }, { 0, 64, 2 }, { 64, 96, 1 }, { 48, 0, 0 } };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        struct coded c;
        struct matrix_codes codes;
        coded_make(&c, &variants[8], 384, pairs[i].scales, pairs[i].zeros);
        assert_true(matrix_codes(&c.m, &codes));
        const int format = format_of(&c.m, NULL);
        assert_int_equal(TILE_GROUP(format), pairs[i].group);
        check_staged(&c.m, format, false, variants[8].name);
        coded_free(&c);
    }
}

/* Integers of all kinds meet in int8. Where a minimum is made of a zero point and a float32 scale,
 * it is rounded, which no file makes happen: minima are GGUF's, zero points are not. */
static void planes_of_two_forms_share_a_format_or_none(void **state) {
    (void)state;
    for (int i = 0; i < N_VARIANTS; i++)
        for (int j = 0; j < N_VARIANTS; j++) {
            const struct variant *u = &variants[i], *v = &variants[j];
            struct coded a, b;
            char what[200];
            coded_make(&a, u, 256, i % 2 ? 32 : 0, 64), coded_make(&b, v, 256, 128, 128);
            const int format = format_of(&a.m, &b.m);
            const bool integers = u->form == MATRIX_INTEGERS && v->form == MATRIX_INTEGERS;
            snprintf(what, sizeof what, "%s with %s", u->name, v->name);
            const bool tables_differ = u->form == MATRIX_TABLE && u->zero != v->zero;
            if (integers || (u->form == v->form && !tables_differ)) {
                assert_true(TILE_NARROW(format) && tile_format_is(format));
                check_staged(&a.m, format, true, what), check_staged(&b.m, format, true, what);
            } else {
                assert_int_equal(format, TILE_BF16);
            }
            coded_free(&a), coded_free(&b);
        }
}

/* ---- formats of a model ---------------------------------------------------------------------- */

static void minima_and_zero_points_meet_as_minima(void **state) {
    (void)state;
    struct matrix blocks = blocks_make(&block_types[2], 256);
    struct coded c;
    coded_make(&c, &variants[8], 256, 32, 32); /* bf16 scales: a minimum is exact in float32 */
    const int format = format_of(&blocks, &c.m);
    assert_int_equal(format, TILE_FORMAT(TILE_INT8, 1, TILE_SCALE_F32, TILE_MINIMA));
    check_staged(&blocks, format, true, "q4_1");
    check_staged(&c.m, format, true, "zero points as minima");
    coded_free(&c);
    free((void *)blocks.data);
}

/* Every phase is that of its own matrices, in all layers, and one matrix that is wide makes its
 * whole phase bf16. */
static void each_phase_has_the_format_of_its_own_matrices(void **state) {
    (void)state;
    struct matrix q[N_BLOCK_TYPES];
    int f[N_BLOCK_TYPES], made[TAPE_N_PHASES];
    for (int i = 0; i < N_BLOCK_TYPES; i++)
        q[i] = blocks_make(&block_types[i], 256), f[i] = block_types[i].format;
    const struct matrix wide = { .dtype = DTYPE_BF16, .rows = ROWS, .columns = 256 };
    struct layer_weights layers[2] = {
        { .kind = LAYER_ATTENTION,
          .q = q[0],
          .k = q[0],
          .v = q[0],
          .o = q[1],
          .gate = q[2],
          .up = q[2],
          .down = q[3] },
        { .kind = LAYER_DELTA,
          .delta = { .qkv = q[4], .z = q[4] },
          .o = q[1],
          .gate = q[2],
          .up = q[2],
          .down = q[3] },
    };
    struct weights w = { .layers = layers, .n_layers = 2, .head = q[5] };
    plan_stored(&w, made);
    assert_int_equal(made[TAPE_QKV], f[0]), assert_int_equal(made[TAPE_OUT], f[1]);
    assert_int_equal(made[TAPE_GATE_UP], f[2]), assert_int_equal(made[TAPE_DOWN], f[3]);
    assert_int_equal(made[TAPE_MIX], f[4]), assert_int_equal(made[TAPE_HEAD], f[5]);
    layers[1].down = q[7]; /* Q5_0 with Q6_K */
    layers[1].up = wide;
    plan_stored(&w, made);
    assert_int_equal(made[TAPE_DOWN], TILE_FORMAT(TILE_INT8, 0, TILE_SCALE_F32, TILE_NO_OFFSETS));
    assert_int_equal(made[TAPE_GATE_UP], TILE_BF16);
    layers[1].up = q[2], layers[1].delta.z = wide, layers[0].k = wide, w.head = wide;
    plan_stored(&w, made);
    assert_int_equal(made[TAPE_QKV], TILE_BF16), assert_int_equal(made[TAPE_MIX], TILE_BF16);
    assert_int_equal(made[TAPE_HEAD], TILE_BF16), assert_int_equal(made[TAPE_GATE_UP], f[2]);
    for (int i = 0; i < N_BLOCK_TYPES; i++)
        free((void *)q[i].data);
}

/* Whether each run of columns of each tile, in slices of `slice` columns, has one scale. */
static bool runs_fit(int format, int slice) {
    enum { COLUMNS = 4096 };
    const int run = TILE_K * TILE_RUN(format), group = TILE_K << TILE_GROUP(format);
    if (TILE_GROUP(format) == TILE_GROUP_ROW) return true;
    for (int begin = 0; begin < COLUMNS; begin += slice)
        for (int k = begin; k < begin + slice; k += run) {
            const int end = k + run < begin + slice ? k + run : begin + slice;
            if (k / group != (end - 1) / group) return false;
        }
    return true;
}

/* The largest groups with which that is so; bf16 where 16 columns are too many. */
static void slices_that_groups_do_not_divide_take_smaller_groups(void **state) {
    (void)state;
    static const int codes[] = { TILE_INT8, TILE_UINT4, TILE_E4M3 };
    enum { LEAST = 64 }; /* with less a tile is mostly padding */
    int lowered = 0;
    for (int slice = LEAST; slice <= 512; slice += 8)
        for (int i = 0; i < 3; i++)
            for (int group = 0; group <= TILE_GROUP_ROW; group++) {
                const int stored = TILE_FORMAT(codes[i], group, TILE_SCALE_F16, TILE_MINIMA);
                const int made = plan_format(TAPE_OUT, stored, slice);
                int want = group;
                while (want >= 0 && group != TILE_GROUP_ROW &&
                       !runs_fit(TILE_FORMAT(codes[i], want, 0, 0), slice))
                    want--;
                if (slice % TILE_K && group != TILE_GROUP_ROW) want = -1;
                const int format =
                    want < 0 ? TILE_BF16 : TILE_FORMAT(codes[i], want, TILE_SCALE_F16, TILE_MINIMA);
                if (made != format) fail_msg("format %d in slices of %d: %d", stored, slice, made);
                /* steps have a unit a tile, so tiles must be whole */
                const int scale =
                    slice % (TILE_K * TILE_PARTS(stored)) ? TILE_SCALE_F32 : TILE_SCALE_STEPS;
                if (want >= 0 && group < TILE_GROUP_ROW)
                    assert_int_equal(
                        plan_format(TAPE_DOWN,
                                    TILE_FORMAT(codes[i], group, TILE_SCALE_STEPS, TILE_MINIMA),
                                    slice),
                        TILE_FORMAT(codes[i], want, scale, TILE_MINIMA));
                lowered += made != stored;
            }
    assert_true(lowered > 100);
    assert_int_equal(plan_format(TAPE_OUT, TILE_BF16, 40), TILE_BF16);
    const int whole = TILE_FORMAT(TILE_UINT4, 3, TILE_SCALE_F32, TILE_ZEROS);
    assert_int_equal(plan_format(TAPE_QKV, whole, 0), whole); /* no slices */
}

/* ---- what is not narrow ---------------------------------------------------------------------- */

static void what_tiles_cannot_hold_is_refused(void **state) {
    (void)state;
    struct matrix_codes codes;
    static const enum dtype wide[] = { DTYPE_F32, DTYPE_F16, DTYPE_BF16 };
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        const struct matrix m = { .dtype = wide[i], .rows = ROWS, .columns = 256 };
        assert_false(matrix_codes(&m, &codes));
        assert_int_equal(format_of(&m, NULL), TILE_BF16);
    }
    static const int bad_groups[] = { 8, 24, 40, 7, 1 };
    for (size_t i = 0; i < sizeof bad_groups / sizeof *bad_groups; i++) {
        struct coded c;
        coded_make(&c, &variants[7], 240, bad_groups[i], 0);
        assert_false(matrix_codes(&c.m, &codes));
        assert_int_equal(format_of(&c.m, NULL), TILE_BF16);
        coded_free(&c);
    }
    struct coded c;
    int order[64];
    float table[16] = { 0 };
    coded_make(&c, &variants[7], 64, 32, 0);
    assert_true(matrix_codes(&c.m, &codes));
    for (int i = 0; i < 64; i++)
        order[i] = 63 - i;
    c.planes.order = order;
    assert_false(matrix_codes(&c.m, &codes)); /* an order of the columns */
    c.planes.order = NULL;
    c.planes.zeros = (struct matrix_plane){ c.scales, 5, PLANE_F16, 1, 32 };
    assert_false(matrix_codes(&c.m, &codes)); /* zero points that are no integers */
    c.planes.zeros.data = NULL;
    assert_true(matrix_codes(&c.m, &codes));
    c.planes.form = MATRIX_TABLE, c.planes.table = table;
    assert_false(matrix_codes(&c.m, &codes));
    coded_free(&c);
}

static void small_models_are_kept_wide_unless_asked(void **state) {
    (void)state;
    const struct weights small = { .n_parameters = (256 << 20) - 1 };
    const struct weights large = { .n_parameters = 256 << 20 };
    assert_false(plan_keeps_narrow(NARROW_LARGE, &small));
    assert_true(plan_keeps_narrow(NARROW_LARGE, &large));
    assert_true(plan_keeps_narrow(NARROW_ALWAYS, &small));
    assert_false(plan_keeps_narrow(NARROW_NEVER, &large));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_are_worth_what_their_type_says),
        cmocka_unit_test(blocks_of_two_types_share_a_format_that_holds_both),
        cmocka_unit_test(scales_of_a_byte_are_all_held),
        cmocka_unit_test(a_scale_that_is_no_number_makes_none),
        cmocka_unit_test(planes_are_worth_what_their_form_says),
        cmocka_unit_test(integers_stand_for_the_floats_of_tables),
        cmocka_unit_test(scales_and_zero_points_may_have_groups_of_their_own),
        cmocka_unit_test(planes_of_two_forms_share_a_format_or_none),
        cmocka_unit_test(minima_and_zero_points_meet_as_minima),
        cmocka_unit_test(each_phase_has_the_format_of_its_own_matrices),
        cmocka_unit_test(slices_that_groups_do_not_divide_take_smaller_groups),
        cmocka_unit_test(what_tiles_cannot_hold_is_refused),
        cmocka_unit_test(small_models_are_kept_wide_unless_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
