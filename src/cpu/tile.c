#include "cpu/tile.h"

#include "cpu/blocks.h"
#include "cpu/panels.h"

#include <string.h>

enum {
    ROWS_FLOATS = PANEL_LANES * T_TILE_K / 2,
    PANELS_FLOATS = TILE_ROWS * T_TILE_K / 2,
    SCALES_FLOATS = T_TILE_K / 16 * TILE_ROWS,
    MINS_FLOATS = T_TILE_K / BLOCK * TILE_ROWS,
    WIDE_K = T_TILE_K / 4, /* columns that are float32 at a time */
    WIDE_ROWS = 32,        /* vectors */
    WIDE_FLOATS = WIDE_ROWS * WIDE_K
};

size_t tile_scratch_floats(int m) {
    return 2 * ROWS_FLOATS + 2 * PANELS_FLOATS + SCALES_FLOATS + MINS_FLOATS + WIDE_FLOATS +
           (size_t)m * TILE_ROWS;
}

void tile_scratch_place(struct tile_scratch *s, float *memory) {
    s->rows = (uint16_t *)memory;
    s->panels = (uint16_t *)(memory + ROWS_FLOATS);
    s->row_rests = (uint16_t *)(memory + ROWS_FLOATS + PANELS_FLOATS);
    s->panel_rests = (uint16_t *)(memory + 2 * ROWS_FLOATS + PANELS_FLOATS);
    s->scales = memory + 2 * ROWS_FLOATS + 2 * PANELS_FLOATS;
    s->mins = s->scales + SCALES_FLOATS;
    s->wide = s->mins + MINS_FLOATS;
    s->c = s->wide + WIDE_FLOATS;
}

static int whole_blocks(int n) { return (n + BLOCK - 1) / BLOCK * BLOCK; }

void tile_round(const struct kernels *kernels, bool blocks, const float *values, int n,
                uint16_t *row, uint16_t *seconds, float *factors, size_t factors_stride) {
    if (blocks && kernels->split_panel) {
        const size_t rest = (size_t)(whole_blocks(n) - n) * sizeof *row;
        kernels->round_row(values, n, row, seconds);
        memset(row + n, 0, rest);
        memset(seconds + n, 0, rest);
        return;
    }
    kernels->round_bf16(values, n, row);
    if (n & 1) row[n] = 0;
    if (blocks) kernels->round_words(values, n, (int16_t *)seconds, factors, factors_stride);
}

/* Weights that are float32 in products: those of planes, and Q2_K, whose minima change every 16
 * elements. Block formats but that one are whole numbers. */
static bool is_wide(const struct matrix *w) { return w->planes || w->dtype == DTYPE_Q2_K; }
static bool is_words(const struct matrix *w) { return !is_wide(w) && block_format(w->dtype); }

/* Elements [k, k + n) of row r of w as `unpack` gives them, with scales that are whole. */
static void unpack_lane(const struct kernels *kernels, const struct matrix *w, int r, int k, int n,
                        int term, uint16_t *row, float *scales, float *mins) {
    kernels->unpack[w->dtype](w->data + (size_t)r * w->row_bytes, k, n, term, row, scales, mins);
    for (int i = 0; w->factor != 0 && i < n / 16; i++) /* NVFP4: a scale for 16 */
        scales[(size_t)i * TILE_ROWS] *= w->factor;
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
        if (first + lane < w->rows) {
            unpack_lane(kernels, w, first + lane, k, n, term, row, s->scales + at, s->mins + at);
        } else
            memset(row, 0, (size_t)n * sizeof *row);
        if (even != n) row[n] = 0;
    }
    kernels->interleave((const unsigned char *)s->rows, T_TILE_K * sizeof *s->rows, even, panel);
}

/* ---- whole numbers ---- */

/* Elements [k, k + n) of 16 rows of w as whole numbers, into panel p. */
static void fill_words(const struct kernels *kernels, const struct matrix *w, int first, int k,
                       int n, int p, const struct tile_scratch *s) {
    int16_t *words = (int16_t *)s->panels + (size_t)p * PANEL_LANES * T_TILE_K;
    const int panel = first / PANEL_ROWS;
    if (!w->panels)
        fill_panel(kernels, w, first, k, n, 0, p, s);
    else if (panel < panels_count(w))
        kernels->panel_words[w->dtype](w->panels + (size_t)panel * panels_bytes(w), k / BLOCK,
                                       n / BLOCK, words, s->scales + p * PANEL_LANES,
                                       s->mins + p * PANEL_LANES);
    else
        memset(words, 0, (size_t)n * PANEL_LANES * sizeof *words);
}

static int scale_block(const struct matrix *w) {
    return block_halves(w->dtype) ? BLOCK / 2 : BLOCK;
}

static void words_product(const struct kernels *kernels, const struct matrix *w, int first,
                          int n_panels, const struct tile_input *input,
                          const struct tile_scratch *s, float *c) {
    for (int k = 0; k < w->columns; k += T_TILE_K) {
        const int n = w->columns - k < T_TILE_K ? w->columns - k : T_TILE_K;
        for (int p = 0; p < n_panels; p++)
            fill_words(kernels, w, first + p * PANEL_LANES, k, n, p, s);
        kernels->gemm_words(&(struct gemm_words){
            .m = input->m,
            .n_panels = n_panels,
            .k = n,
            .a = (const int16_t *)input->seconds + k,
            .a_stride = input->stride,
            .factors = input->factors + tile_factors((size_t)k, input->factors_stride),
            .factors_stride = input->factors_stride,
            .panels = (const int16_t *)s->panels,
            .panel_stride = PANEL_LANES * T_TILE_K,
            .scales = s->scales,
            .scale_block = scale_block(w),
            .mins = block_has_min(w->dtype) ? s->mins : NULL,
            .c = c,
            .c_stride = TILE_ROWS,
            .accumulate = k > 0 });
    }
}

/* ---- float32 ---- */

/* Columns [k, k + n) of row r of w as what they are worth. */
static void widen_row(const struct kernels *kernels, const struct matrix *w, int r, int k, int n,
                      float *out) {
    if (w->planes)
        kernels->planes_widen(w, r, k, n, out);
    else
        dtype_to_f32(w->dtype,
                     w->data + (size_t)r * w->row_bytes + dtype_row_bytes(w->dtype, (size_t)k), out,
                     (size_t)n);
}

/* The same of 16 rows, into panel p: f32 [n, 16]. */
static void widen_panel(const struct kernels *kernels, const struct matrix *w, int first, int k,
                        int n, float *panel, float *rows) {
    for (int lane = 0; lane < PANEL_LANES; lane++) {
        float *row = rows + (size_t)lane * WIDE_K;
        if (first + lane < w->rows)
            widen_row(kernels, w, first + lane, k, n, row);
        else
            memset(row, 0, (size_t)n * sizeof *row);
    }
    /* A float takes the place of a pair of bf16. */
    kernels->interleave((const unsigned char *)rows, WIDE_K * sizeof *rows, 2 * n,
                        (uint16_t *)panel);
}

/* c (+)= some vectors, widened in s->wide, times panels of n columns. */
static void multiply_wide(const struct kernels *kernels, const struct tile_scratch *s, int m, int n,
                          int n_panels, float *c, bool accumulate) {
    for (int p = 0; p < n_panels; p++)
        kernels->gemm_f32(&(struct gemm_f32){ .m = m,
                                              .n = PANEL_LANES,
                                              .k = n,
                                              .a = s->wide,
                                              .a_stride = WIDE_K,
                                              .b = (float *)s->panels + p * PANEL_LANES * WIDE_K,
                                              .b_stride = PANEL_LANES,
                                              .c = c + p * PANEL_LANES,
                                              .c_stride = TILE_ROWS,
                                              .accumulate = accumulate });
}

/* Weights and vectors are what they are worth, and no scales are left. */
static void wide_product(const struct kernels *kernels, const struct matrix *w, int first,
                         int n_panels, const struct tile_input *input, const struct tile_scratch *s,
                         float *c) {
    for (int k = 0; k < w->columns; k += WIDE_K) {
        const int n = w->columns - k < WIDE_K ? w->columns - k : WIDE_K;
        for (int p = 0; p < n_panels; p++)
            widen_panel(kernels, w, first + p * PANEL_LANES, k, n,
                        (float *)s->panels + p * PANEL_LANES * WIDE_K, (float *)s->rows);
        for (int m = 0; m < input->m; m += WIDE_ROWS) {
            const int some = input->m - m < WIDE_ROWS ? input->m - m : WIDE_ROWS;
            for (size_t i = 0; i < (size_t)some; i++) {
                const size_t row = (size_t)m + i;
                kernels->join_words(
                    (const int16_t *)input->seconds + row * input->stride + (size_t)k,
                    input->factors + tile_factors((size_t)k, input->factors_stride) + row,
                    input->factors_stride, whole_blocks(n), s->wide + i * WIDE_K);
            }
            multiply_wide(kernels, s, some, n, n_panels, c + (size_t)m * TILE_ROWS, k > 0);
        }
    }
}

/* ---- weights as the sum of two terms ---- */

/* Columns [k, k + n), whole blocks, of 16 rows as two terms, into panel p of both. */
static void split_words(const struct kernels *kernels, const struct matrix *w, int first, int k,
                        int n, int p, const struct tile_scratch *s) {
    const size_t at = (size_t)p * PANEL_LANES * T_TILE_K;
    fill_words(kernels, w, first, k, n, p, s);
    kernels->split_panel((int16_t *)s->panels + at, s->scales + p * PANEL_LANES,
                         block_has_min(w->dtype) ? s->mins + p * PANEL_LANES : NULL, n,
                         scale_block(w), s->panels + at, s->panel_rests + at);
}

/* The same of weights that are float32; zeros follow up to whole blocks. */
static void split_wide(const struct kernels *kernels, const struct matrix *w, int first, int k,
                       int n, int p, const struct tile_scratch *s) {
    const size_t at = (size_t)p * PANEL_LANES * T_TILE_K, stride = T_TILE_K * sizeof *s->rows;
    const int whole = whole_blocks(n);
    for (int lane = 0; lane < PANEL_LANES; lane++) {
        uint16_t *row = s->rows + (size_t)lane * T_TILE_K;
        uint16_t *rest = s->row_rests + (size_t)lane * T_TILE_K;
        const int r = first + lane, some = r < w->rows ? n : 0;
        memset(row + some, 0, (size_t)(whole - some) * sizeof *row);
        memset(rest + some, 0, (size_t)(whole - some) * sizeof *rest);
        if (r >= w->rows) continue;
        widen_row(kernels, w, r, k, n, s->wide);
        kernels->round_row(s->wide, n, row, rest);
    }
    kernels->interleave((const unsigned char *)s->rows, stride, whole, s->panels + at);
    kernels->interleave((const unsigned char *)s->row_rests, stride, whole, s->panel_rests + at);
}

/* Every product of terms but the least is made in one call, and no scales are left. */
static void split_product(const struct kernels *kernels, const struct matrix *w, int first,
                          int n_panels, const struct tile_input *input,
                          const struct tile_scratch *s, float *c) {
    for (int k = 0; k < w->columns; k += T_TILE_K) {
        const int n = w->columns - k < T_TILE_K ? w->columns - k : T_TILE_K;
        for (int p = 0; p < n_panels; p++)
            (is_wide(w) ? split_wide : split_words)(kernels, w, first + p * PANEL_LANES, k, n, p,
                                                    s);
        kernels->gemm(&(struct gemm){ .m = input->m,
                                      .n_panels = n_panels,
                                      .k_pairs = whole_blocks(n) / 2,
                                      .a = input->rows + k,
                                      .rests = input->seconds + k,
                                      .a_stride = input->stride,
                                      .panels = s->panels,
                                      .panel_rests = s->panel_rests,
                                      .panel_stride = PANEL_LANES * T_TILE_K,
                                      .step_stride = 2 * PANEL_LANES,
                                      .c = c,
                                      .c_stride = TILE_ROWS,
                                      .accumulate = k > 0 });
    }
}

/* ---- bf16 ---- */

static void plain_product(const struct kernels *kernels, const struct matrix *w, int first,
                          int n_panels, const struct tile_input *input,
                          const struct tile_scratch *s, float *c) {
    for (int k = 0; k < w->columns; k += T_TILE_K) {
        int n = w->columns - k < T_TILE_K ? w->columns - k : T_TILE_K;
        for (int term = 0; term < tile_terms(w->dtype); term++) {
            for (int p = 0; p < n_panels; p++)
                fill_panel(kernels, w, first + p * PANEL_LANES, k, n, term, p, s);
            kernels->gemm(&(struct gemm){ .m = input->m,
                                          .n_panels = n_panels,
                                          .k_pairs = (n + 1) / 2,
                                          .a = input->rows + k,
                                          .a_stride = input->stride,
                                          .panels = s->panels,
                                          .panel_stride = PANEL_LANES * T_TILE_K,
                                          .step_stride = 2 * PANEL_LANES,
                                          .c = c,
                                          .c_stride = TILE_ROWS,
                                          .accumulate = k > 0 || term > 0 });
        }
    }
}

void tile_product(const struct kernels *kernels, const struct matrix *w, int first, int n_panels,
                  const struct tile_input *input, const struct tile_scratch *s, float *c) {
    if (!is_wide(w) && !is_words(w))
        plain_product(kernels, w, first, n_panels, input, s, c);
    else if (kernels->split_panel)
        split_product(kernels, w, first, n_panels, input, s, c);
    else
        (is_wide(w) ? wide_product : words_product)(kernels, w, first, n_panels, input, s, c);
}
