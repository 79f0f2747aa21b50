/* A panel is already what a B tile holds: 16 pairs of k by 16 lanes. Two A tiles (32 vectors) meet
 * two B tiles (two panels) in four accumulators. What does not fill tiles - the last steps of K,
 * formats with a scale every 16 - goes to AVX-512. How many vectors there are does not decide, so
 * that a vector's bits do not depend on how many others it comes with.
 *
 * No machine at hand has AMX. On one that has, the tests of every path passed at 6221e63, but for
 * three that compare bits, because fewer than 16 vectors went to AVX-512 then. That they no longer
 * do is checked by reading, not by running. */
#include "cpu/kernels_amx.h"

#include <immintrin.h>
#include <string.h>

enum { ROWS = 16, PAIRS = 16, ROW_BYTES = 64 };

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
};

/* Tiles 0-3: sums of (A0, B0), (A0, B1), (A1, B0), (A1, B1). 4-5: A. 6-7: B. `second` is the number
 * of vectors in A1, 0 to 16. */
static void configure(int first, int second) {
    _Alignas(64) struct tile_config config = { .palette = 1 };
    for (int i = 0; i < 8; i++) {
        config.bytes[i] = ROW_BYTES;
        config.rows[i] = ROWS;
    }
    config.rows[0] = config.rows[1] = config.rows[4] = (uint8_t)first;
    /* A tile of no rows is not allowed: one that is loaded from valid memory and not stored. */
    config.rows[2] = config.rows[3] = config.rows[5] = (uint8_t)(second ? second : 1);
    _tile_loadconfig(&config);
}

/* c[m, 16] (+)= sum * scale + min * sums[m]; sum is a stored tile. */
static void add_block(const struct gemm *g, const float *sum, int m, int n, int panel, size_t block,
                      bool first) {
    const size_t at = block * TILE_ROWS + (size_t)panel * PANEL_LANES;
    __m512 scale = g->scales ? _mm512_loadu_ps(g->scales + at) : _mm512_set1_ps(1);
    __m512 min = g->mins ? _mm512_loadu_ps(g->mins + at) : _mm512_setzero_ps();
    for (int i = 0; i < n; i++) {
        float *c = g->c + (size_t)(m + i) * g->c_stride + panel * PANEL_LANES;
        __m512 total = first ? _mm512_setzero_ps() : _mm512_loadu_ps(c);
        total = _mm512_fmadd_ps(_mm512_load_ps(sum + i * PANEL_LANES), scale, total);
        if (g->mins)
            total = _mm512_fmadd_ps(
                min, _mm512_set1_ps(g->sums[(size_t)(m + i) * g->sums_stride + block]), total);
        _mm512_storeu_ps(c, total);
    }
}

/* Up to 32 vectors from m on, two panels. steps: pairs of k between two uses of the sums. */
static void two_by_two(const struct gemm *g, int m, int n, int panel, int steps) {
    const int first = n < ROWS ? n : ROWS, second = n - first;
    const size_t a_bytes = g->a_stride * sizeof *g->a, b_bytes = g->step_stride * sizeof *g->panels;
    const uint16_t *a0 = g->a + (size_t)m * g->a_stride;
    const uint16_t *a1 = second ? a0 + ROWS * g->a_stride : a0;
    const uint16_t *b0 = g->panels + (size_t)panel * g->panel_stride, *b1 = b0 + g->panel_stride;
    _Alignas(64) float sums[4][ROWS * PANEL_LANES];
    for (int k = 0; k < g->k_pairs; k += steps) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int s = k; s < k + steps; s += PAIRS) {
            _tile_loadd(4, a0 + 2 * s, a_bytes);
            _tile_loadd(5, a1 + 2 * s, a_bytes);
            _tile_loadd(6, b0 + (size_t)s * g->step_stride, b_bytes);
            _tile_loadd(7, b1 + (size_t)s * g->step_stride, b_bytes);
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        _tile_stored(0, sums[0], ROW_BYTES);
        _tile_stored(1, sums[1], ROW_BYTES);
        _tile_stored(2, sums[2], ROW_BYTES);
        _tile_stored(3, sums[3], ROW_BYTES);
        const bool begin = k == 0 && !g->accumulate;
        const size_t block = (size_t)(k / steps);
        for (int i = 0; i < 2; i++) {
            add_block(g, sums[i], m, first, panel + i, block, begin);
            add_block(g, sums[2 + i], m + first, second, panel + i, block, begin);
        }
    }
}

void kernels_amx_gemm(const struct gemm *g) {
    const bool fits = g->n_panels % 2 == 0 && g->k_pairs % PAIRS == 0 && g->k_pairs > 0 &&
                      (!g->scales || g->scale_block == 2 * PAIRS);
    if (!fits) {
        kernels_avx512.gemm(g);
        return;
    }
    const int steps = g->scales ? PAIRS : g->k_pairs;
    for (int m = 0; m < g->m; m += 2 * ROWS) {
        int n = g->m - m < 2 * ROWS ? g->m - m : 2 * ROWS;
        configure(n < ROWS ? n : ROWS, n > ROWS ? n - ROWS : 0);
        for (int panel = 0; panel < g->n_panels; panel += 2)
            two_by_two(g, m, n, panel, steps);
    }
    _tile_release();
}
