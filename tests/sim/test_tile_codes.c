/* Operands of narrow tiles that are rounded (kernels/tile_codes.cuh), one weight at a time: those
 * of every format of TILE_ROUNDED have, bit for bit, what the codes, scales and offsets are worth
 * in float32, rounded to the nearest bf16 number. Lines of the kernel made wrong are seen. */
#include "kernels/tile_format.h"
#include "model/dtype.h"
#include "model/matrix.h"
#include "support/mutations.h"
#include "support/sim_gpu.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* WIDEST: the format whose tiles have most words of scales, so that struct held takes all. */
enum { TILES = 6, LARGEST_TILE = 1024, MOST_COLUMNS = 64 };
enum { WIDEST = TILE_FORMAT(TILE_INT4, 0, TILE_SCALE_F32, TILE_MINIMA) };

static uint64_t random_state;
static uint32_t random_bits(void) {
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(random_state >> 32);
}

/* ---- a tile, and what its weights are worth ---- */

struct tiles {
    int format;
    unsigned char bytes[TILES * LARGEST_TILE];
    float worth[TILES][TILE_ROWS][MOST_COLUMNS];
};

/* A scale or an offset as it is stored, into the low bits of *stored, and its value. Zero points
 * are whole numbers of as many bits as their type has. */
static float random_number(int format, bool is_zero_point, uint32_t *stored) {
    const int whole = (int)(random_bits() % 255) - 127;
    const uint32_t half = random_bits() & 0xffff;
    float x = ldexpf((float)(int32_t)random_bits(), (int)(random_bits() % 40) - 50);
    if (is_zero_point) x = (float)whole;
    if (TILE_SCALE(format) == TILE_SCALE_F32) {
        memcpy(stored, &x, sizeof x);
        return x;
    }
    if (TILE_SCALE(format) == TILE_SCALE_BF16) {
        *stored = bf16_from_f32(x);
        return bf16_to_f32((uint16_t)*stored);
    }
    /* f16: any but infinities and NaN, subnormal ones too */
    *stored = is_zero_point ? f16_from_f32(x) : (half & 0x7c00u) == 0x7c00 ? half ^ 0x4000u : half;
    return f16_to_f32((uint16_t)*stored);
}

static void put(unsigned char *to, uint32_t bits, int n) {
    for (int i = 0; i < n; i++)
        to[i] = (unsigned char)(bits >> 8 * i);
}

/* Writes the number of a row and run, and returns what it is worth. unit: the row's, with steps. */
static float number_make(int format, unsigned char *tile, int run, int number, int r, float unit) {
    const bool is_zero_point = number && TILE_OFFSETS(format) == TILE_ZEROS;
    unsigned char *at = tile + tile_scale_at(format, run, number, r);
    uint32_t stored;
    if (TILE_STEPS(format)) {
        stored = random_bits() & 0xff;
        put(at, stored, 1);
        return unit * (float)(int8_t)stored;
    }
    const float x = random_number(format, is_zero_point, &stored);
    put(at, stored, TILE_SCALE_BYTES(format));
    return x;
}

/* A row's unit of steps; that of zero points is a whole number. */
static float unit_make(int format, unsigned char *tile, int number, int r) {
    const int of_f16 = TILE_FORMAT(0, 0, TILE_SCALE_F16, 0);
    uint32_t stored;
    const float x = random_number(of_f16, number && TILE_OFFSETS(format) == TILE_ZEROS, &stored);
    put(tile + tile_unit_at(format, number, r), stored, 2);
    return x;
}

/* Writes a code, and returns what it is worth before its scale. */
static float code_make(int format, unsigned char *tile, int r, int k) {
    const int bits = TILE_PARTS(format) == 4 ? 4 : 8, shift = tile_code_shift(format, k);
    int code = (int)(random_bits() >> 8) & ((1 << bits) - 1);
    if (TILE_CODE(format) == TILE_E4M3 && (code & 127) == 127) code = 0; /* not NaN */
    tile[tile_word_at(format, r, k) + (unsigned)(shift / 8)] |= (unsigned char)(code << shift % 8);
    switch (TILE_CODE(format)) {
    case TILE_INT8:
        return (float)(int8_t)code;
    case TILE_INT4:
        return (float)(code < 8 ? code : code - 16);
    case TILE_UINT4:
        return (float)code;
    case TILE_IQ4:
    case TILE_NF4:
    case TILE_FP4:
        return (float)tile_table_value(format, code);
    case TILE_E4M3:
        return e4m3_to_f32((uint8_t)code);
    default: /* TILE_E2M1 */
        return e2m1_to_f32(code);
    }
}

static float worth_of(int format, float value, float scale, float offset) {
    switch (TILE_OFFSETS(format)) {
    case TILE_MINIMA:
        return fmaf(scale, value, offset);
    case TILE_ZEROS:
        return scale * (value - offset);
    default:
        return scale * value;
    }
}

static void row_make(struct tiles *t, int n, int r) {
    const int format = t->format, run = TILE_RUN(format) * TILE_K;
    unsigned char *tile = t->bytes + (size_t)n * tile_bytes(format);
    float unit[2] = { 0, 0 };
    for (int i = 0; TILE_STEPS(format) && i < TILE_NUMBERS(format); i++)
        unit[i] = unit_make(format, tile, i, r);
    for (int first = 0; first < TILE_PARTS(format) * TILE_K; first += run) {
        float number[2] = { 0, 0 };
        for (int i = 0; i < TILE_NUMBERS(format); i++)
            number[i] = number_make(format, tile, first / run, i, r, unit[i]);
        for (int k = first; k < first + run; k++)
            t->worth[n][r][k] =
                worth_of(format, code_make(format, tile, r, k), number[0], number[1]);
    }
}

static void tiles_make(struct tiles *t, int format) {
    memset(t, 0, sizeof *t);
    random_state = (uint64_t)format;
    t->format = format;
    for (int n = 0; n < TILES; n++)
        for (int r = 0; r < TILE_ROWS; r++)
            row_make(t, n, r);
    for (int n = 0; n < TILES; n++)
        for (int i = 0; i < TILE_CODES_BYTES; i += 4) {
            unsigned char *at = t->bytes + (size_t)n * tile_bytes(format) + i;
            uint32_t codes;
            memcpy(&codes, at, 4);
            put(at, tile_word_stored(format, codes), 4);
        }
}

/* ---- the kernel ---- */

static unsigned long long device_tiles, device_operands;

static void start(void) {
    device_tiles = sim_gpu_alloc(TILES * LARGEST_TILE);
    device_operands = sim_gpu_alloc(TILES * 4 * BF16_TILE_BYTES);
    char widest[40];
    snprintf(widest, sizeof widest, "-DP_QKV_FORMAT=%d", WIDEST);
    const char *const options[] = {
        "-DG_COPY=2",        "-DG_WGMMA=1",          widest,
        "-DP_OUT_FORMAT=0",  "-DP_GATE_UP_FORMAT=0", "-DP_DOWN_FORMAT=0",
        "-DP_HEAD_FORMAT=0", "-DP_MIX_FORMAT=0",     NULL
    };
    sim_gpu_compile("codes.cu", options);
}

/* Whether the operands are right, made one way or (alone: 1) the other; where not, `why` says the
 * first weight that is not. */
static bool tiles_right(const struct tiles *t, int alone, char *why, size_t size) {
    const int parts = TILE_PARTS(t->format);
    const size_t bytes = TILES * tile_bytes(t->format);
    const size_t operands = (size_t)(TILES * parts) * BF16_TILE_BYTES;
    static unsigned char made[TILES * 4 * BF16_TILE_BYTES];
    int format = t->format;
    void *params[] = { &device_tiles, &device_operands, &format, &alone };
    sim_gpu_put(device_tiles, t->bytes, bytes);
    if (sim_gpu_launch("operands_rounded", TILES, 32, 0, params)) {
        snprintf(why, size, "%s", sim_gpu_current().cuda->report);
        return false;
    }
    sim_gpu_get(made, device_operands, operands);
    for (int n = 0; n < TILES; n++)
        for (int r = 0; r < TILE_ROWS; r++)
            for (int k = 0; k < parts * TILE_K; k++) {
                const unsigned char *operand =
                    made + (size_t)(n * parts + k / TILE_K) * BF16_TILE_BYTES;
                const uint16_t want = bf16_from_f32(t->worth[n][r][k]);
                uint16_t got;
                memcpy(&got, operand + bf16_tile_at(r, k % TILE_K), sizeof got);
                if (got == want || !((got | want) & 0x7fffu)) continue; /* a zero of either sign */
                snprintf(why, size,
                         "format %03x, tile %d, row %d, column %d: %.9g, want %.9g of %.9g",
                         (unsigned)format, n, r, k, (double)bf16_to_f32(got),
                         (double)bf16_to_f32(want), (double)t->worth[n][r][k]);
                return false;
            }
    return true;
}

/* Formats of all codes, groups, scales and offsets; 0 behind the last. */
static int next_rounded(int format) {
    for (format++; format < 1 << 12; format++)
        if (tile_format_is(format) && TILE_ROUNDED(format)) return format;
    return 0;
}

/* How many formats there are, and in `why` the first that is not right. */
static int check_all(char *why, size_t size) {
    struct tiles *t = malloc(sizeof *t);
    int n = 0;
    *why = 0;
    assert_non_null(t);
    for (int format = next_rounded(0); format && !*why; format = next_rounded(format), n++) {
        assert_true(tile_bytes(format) <= LARGEST_TILE);
        assert_true(TILE_SCALE_WORDS(format) <= TILE_SCALE_WORDS(WIDEST));
        tiles_make(t, format);
        for (int alone = 0; alone < 2 && !*why; alone++)
            if (!tiles_right(t, alone, why, size) && !*why)
                snprintf(why, size, "format %03x", (unsigned)format);
    }
    free(t);
    return n;
}

/* ---- tests ---- */

static void operands_are_what_weights_are_worth(void **state) {
    (void)state;
    char why[300];
    sim_gpu_open();
    start();
    const int n = check_all(why, sizeof why);
    if (*why) fail_msg("%s", why);
    printf("%d formats\n", n);
    sim_gpu_close();
    /* of 6 codes and 3 kinds of offsets: 4 scales in 4 groups and 3 of rows, or 4 in 2 groups; of 2
     * with two digits: all */
    assert_int_equal(n, 6 * (2 * (4 * 4 + 3) + 4 * 2) + 2 * 3 * (4 * 4 + 3));
}

static bool is_seen(const struct mutation *m) {
    char why[300];
    struct sim_gpu gpu = sim_gpu_open();
    mutation_apply(m, gpu.nvrtc);
    start();
    check_all(why, sizeof why);
    printf("%s: %s\n", m->what, *why ? why : "not seen");
    sim_gpu_close();
    return *why != 0;
}

static void mutations_are_seen(void **state) {
    (void)state;
    mutations_try(&rounded_mutations, is_seen);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(operands_are_what_weights_are_worth),
        cmocka_unit_test(mutations_are_seen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
