/* Element types against what the gguf package, numpy and torch computed (fixtures/dtype). */
#include "base/file_map.h"
#include "model/dtype.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FIXTURE "tests/fixtures/dtype/blocks.bin"

struct record {
    char name[9];
    uint32_t n;
    uint32_t n_bytes;
    const unsigned char *bytes;
    const unsigned char *values; /* f32 [n], any alignment */
};

static struct file_map fixture;

static int open_fixture(void **state) {
    (void)state;
    return file_map_open(&fixture, FIXTURE, NULL) == REEL_OK ? 0 : -1;
}

static int close_fixture(void **state) {
    (void)state;
    file_map_close(&fixture);
    return 0;
}

static bool next_record(size_t *at, struct record *r) {
    if (*at == fixture.size) return false;
    assert_true(fixture.size - *at >= 16);
    const unsigned char *p = fixture.bytes + *at;
    memset(r, 0, sizeof *r);
    memcpy(r->name, p, 8);
    memcpy(&r->n, p + 8, 4);
    memcpy(&r->n_bytes, p + 12, 4);
    r->bytes = p + 16;
    r->values = r->bytes + r->n_bytes;
    *at += 16 + (size_t)r->n_bytes + (size_t)r->n * 4;
    assert_true(*at <= fixture.size);
    return true;
}

static struct record find_record(const char *name) {
    struct record r;
    size_t at = 0;
    while (next_record(&at, &r))
        if (strcmp(r.name, name) == 0) return r;
    fail_msg("no record %s", name);
    return r;
}

static void widens_to_its_values(enum dtype type, const struct record *r) {
    assert_int_equal(dtype_row_bytes(type, r->n), r->n_bytes);
    float *out = calloc(r->n + 1, sizeof *out);
    out[r->n] = 42;
    dtype_to_f32(type, r->bytes, out, r->n);
    for (uint32_t i = 0; i < r->n; i++)
        if (memcmp(out + i, r->values + 4 * (size_t)i, 4) != 0)
            fail_msg("element %u of record %s", i, r->name);
    assert_true(out[r->n] == 42);
    free(out);
}

static void every_type_widens_to_the_reference_bits(void **state) {
    (void)state;
    for (int type = 0; type < DTYPE_COUNT; type++) {
        struct record r = find_record(dtype_name((enum dtype)type));
        widens_to_its_values((enum dtype)type, &r);
    }
}

/* The types whose blocks have scales in fp16: the largest, the smallest, 0 and subnormal ones. */
static void scales_at_their_edges_give_the_reference_bits(void **state) {
    (void)state;
    for (int type = 0; type < DTYPE_COUNT; type++) {
        char name[9];
        snprintf(name, sizeof name, "%.7s+", dtype_name((enum dtype)type));
        if (dtype_block_elements((enum dtype)type) == 1 || type == DTYPE_MXFP4 ||
            type == DTYPE_NVFP4)
            continue; /* of the last two every code of a scale is in their record */
        struct record r = find_record(name);
        widens_to_its_values((enum dtype)type, &r);
    }
}

static void rows_may_begin_at_any_byte(void **state) {
    (void)state;
    for (int type = 0; type < DTYPE_COUNT; type++) {
        struct record r = find_record(dtype_name((enum dtype)type));
        unsigned char *moved = malloc(r.n_bytes + 1);
        float *out = malloc(r.n * sizeof *out);
        memcpy(moved + 1, r.bytes, r.n_bytes);
        dtype_to_f32((enum dtype)type, moved + 1, out, r.n);
        assert_memory_equal(out, r.values, r.n * sizeof *out);
        free(moved);
        free(out);
    }
}

static void rounding_equals_numpy_and_torch(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint16_t (*round)(float x);
    } cases[] = { { "f16<", f16_from_f32 }, { "bf16<", bf16_from_f32 } };
    for (int c = 0; c < 2; c++) {
        struct record r = find_record(cases[c].name);
        for (uint32_t i = 0; i < r.n; i++) {
            float x;
            uint16_t expected;
            memcpy(&x, r.values + 4 * i, 4);
            memcpy(&expected, r.bytes + 2 * i, 2);
            if (cases[c].round(x) != expected)
                fail_msg("%s of %a: %04x, expected %04x", cases[c].name, (double)x,
                         cases[c].round(x), expected);
        }
    }
}

static void every_half_survives_the_way_to_float_and_back(void **state) {
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        float half = f16_to_f32((uint16_t)bits), brain = bf16_to_f32((uint16_t)bits);
        if (isnan(half))
            assert_true(isnan(f16_to_f32(f16_from_f32(half))));
        else
            assert_int_equal(f16_from_f32(half), bits);
        if (isnan(brain))
            assert_true(isnan(bf16_to_f32(bf16_from_f32(brain))));
        else
            assert_int_equal(bf16_from_f32(brain), bits);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_widens_to_the_reference_bits),
        cmocka_unit_test(scales_at_their_edges_give_the_reference_bits),
        cmocka_unit_test(rows_may_begin_at_any_byte),
        cmocka_unit_test(rounding_equals_numpy_and_torch),
        cmocka_unit_test(every_half_survives_the_way_to_float_and_back),
    };
    return cmocka_run_group_tests(tests, open_fixture, close_fixture);
}
