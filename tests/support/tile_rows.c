#include "tests/support/tile_rows.h"

#include "base/numbers.h"

#include <stdlib.h>
#include <string.h>

/* Every byte set: NaN, where floats or bf16 are read that nobody wrote. */
static void *take(size_t n) {
    void *p = aligned_alloc(64, (n + 63) / 64 * 64);
    if (!p) abort();
    return memset(p, 0xff, (n + 63) / 64 * 64);
}

void tile_rows_make(struct tile_rows *t, const struct kernels *kernels, bool blocks, const float *x,
                    int m, int columns) {
    const size_t n = (size_t)columns, stride = (n + VECTOR_PAD - 1) / VECTOR_PAD * VECTOR_PAD;
    const size_t all = (size_t)m, factors_stride = all + 3;
    uint16_t *rows = take(all * stride * 2), *seconds = take(all * stride * 2);
    float *factors = take(tile_factors(stride, factors_stride) * 4);
    t->values = take(all * n * 4);
    for (size_t i = 0; i < all; i++) {
        const uint16_t *row = rows + i * stride, *second = seconds + i * stride;
        tile_round(kernels, blocks, x + i * n, columns, rows + i * stride, seconds + i * stride,
                   factors + i, factors_stride);
        for (size_t k = 0; k < n; k++) {
            float *value = &t->values[i * n + k];
            if (!blocks)
                *value = bf16_to_f32(row[k]);
            else if (kernels->split_panel)
                *value = bf16_to_f32(row[k]) + bf16_to_f32(second[k]);
            else
                *value = (float)(int16_t)second[k] * factors[tile_factors(k, factors_stride) + i];
        }
    }
    t->input = (struct tile_input){ m, rows, stride, seconds, factors, factors_stride };
}

void tile_rows_free(struct tile_rows *t) {
    free((void *)t->input.rows);
    free((void *)t->input.seconds);
    free((void *)t->input.factors);
    free(t->values);
}
