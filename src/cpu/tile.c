#include "cpu/tile.h"

#include <string.h>

enum {
    ROWS_FLOATS = PANEL_LANES * T_TILE_K / 2,
    PANELS_FLOATS = TILE_ROWS * T_TILE_K / 2,
    SCALES_FLOATS = T_TILE_K / 16 * TILE_ROWS,
    MINS_FLOATS = T_TILE_K / BLOCK * TILE_ROWS
};

size_t tile_scratch_floats(int m) {
    return ROWS_FLOATS + PANELS_FLOATS + SCALES_FLOATS + MINS_FLOATS + (size_t)m * TILE_ROWS;
}

void tile_scratch_place(struct tile_scratch *s, float *memory) {
    s->rows = (uint16_t *)memory;
    s->panels = (uint16_t *)(memory + ROWS_FLOATS);
    s->scales = memory + ROWS_FLOATS + PANELS_FLOATS;
    s->mins = s->scales + SCALES_FLOATS;
    s->c = s->mins + MINS_FLOATS;
}

/* Elements [k, k + n) of 16 rows of w, into panel p. */
static void fill_panel(const struct kernels *kernels, const struct matrix *w, int first, int k,
                       int n, int term, int p, const struct tile_scratch *s) {
    const int even = (n + 1) & ~1;
    uint16_t *panel = s->panels + (size_t)p * PANEL_LANES * T_TILE_K;
    const unsigned char *data = w->data + (size_t)first * w->row_bytes;
    if (w->dtype == DTYPE_BF16 && first + PANEL_LANES <= w->rows && even == n) {
        kernels->interleave(data + 2 * (size_t)k, w->row_bytes, n, panel);
        return;
    }
    for (int lane = 0; lane < PANEL_LANES; lane++) {
        uint16_t *row = s->rows + (size_t)lane * T_TILE_K;
        size_t at = (size_t)(p * PANEL_LANES + lane);
        if (first + lane < w->rows)
            kernels->unpack[w->dtype](data + (size_t)lane * w->row_bytes, k, n, term, row,
                                      s->scales + at, s->mins + at);
        else
            memset(row, 0, (size_t)n * sizeof *row);
        if (even != n) row[n] = 0;
    }
    kernels->interleave((const unsigned char *)s->rows, T_TILE_K * sizeof *s->rows, even, panel);
}

void tile_product(const struct kernels *kernels, const struct matrix *w, int first, int n_panels,
                  const struct tile_input *input, const struct tile_scratch *s, float *c) {
    const enum dtype type = w->dtype;
    const bool blocks = dtype_block_elements(type) > 1;
    const bool mins =
        type == DTYPE_Q4_1 || type == DTYPE_Q5_1 || type == DTYPE_Q4_K || type == DTYPE_Q5_K;
    for (int k = 0; k < w->columns; k += T_TILE_K) {
        int n = w->columns - k < T_TILE_K ? w->columns - k : T_TILE_K;
        for (int term = 0; term < tile_terms(type); term++) {
            for (int p = 0; p < n_panels; p++)
                fill_panel(kernels, w, first + p * PANEL_LANES, k, n, term, p, s);
            struct gemm g = {
                .m = input->m,
                .n_panels = n_panels,
                .k_pairs = (n + 1) / 2,
                .a = input->rows + k,
                .a_stride = input->stride,
                .panels = s->panels,
                .panel_stride = PANEL_LANES * T_TILE_K,
                .step_stride = 2 * PANEL_LANES,
                .scales = blocks ? s->scales : NULL,
                .scale_block = type == DTYPE_Q6_K ? 16 : BLOCK,
                .mins = mins ? s->mins : NULL,
                .sums = input->sums + k / BLOCK,
                .sums_stride = input->sums_stride,
                .c = c,
                .c_stride = TILE_ROWS,
                .accumulate = k > 0 || term > 0,
            };
            kernels->gemm(&g);
            if (!blocks) continue;
            g.a = input->rests + k;
            g.mins = NULL; /* the sums were of both */
            g.accumulate = true;
            kernels->gemm(&g);
        }
    }
}
