/* Many vectors through 64 rows of weights: the rows are unpacked into panels once, in pieces of K
 * that stay in the second-level cache, and every vector passes over them. */
#ifndef REEL_CPU_TILE_H
#define REEL_CPU_TILE_H

#include "cpu/kernels.h"

#define T_TILE_K 1024 /* elements of K unpacked at a time; a multiple of 256 */

/* A matrix [m, n], each row as tile_round made it of a vector. Rows of F32, F16 and BF16 weights
 * meet it in bf16, which is what a bf16 model computes with. Block formats and planes meet whole
 * numbers of 16 bits, with a scale for each BLOCK of them; or, on a path that splits weights, the
 * sum of two bf16 values. */
struct tile_input {
    int m;
    const uint16_t *rows; /* bf16 [m, stride], zero-filled to an even length */
    size_t stride;
    const uint16_t *seconds; /* [m, stride] whole numbers (int16_t), or what rounding left (bf16) */
    const float *factors;    /* f32 [n / BLOCK, 2, factors_stride] of whole numbers (round_words) */
    size_t factors_stride;
};

/* Where in `factors` those of column n begin, a multiple of BLOCK; so what n columns take. */
static inline size_t tile_factors(size_t n, size_t stride) { return n / BLOCK * 2 * stride; }

/* A row of an input, from n values. blocks: some product wants `seconds`, too, which has room for
 * whole blocks. */
void tile_round(const struct kernels *kernels, bool blocks, const float *values, int n,
                uint16_t *row, uint16_t *seconds, float *factors, size_t factors_stride);

/* Terms of bf16 whose sum is exactly a value of the type. */
static inline int tile_terms(enum dtype type) {
    return type == DTYPE_F32 ? 3 : type == DTYPE_F16 ? 2 : 1;
}

/* One thread's scratch. */
struct tile_scratch {
    uint16_t *rows;                    /* bf16 or int16_t [PANEL_LANES, T_TILE_K] */
    uint16_t *panels;                  /* the same [PANELS, T_TILE_K / 2, PANEL_LANES, 2] */
    uint16_t *row_rests, *panel_rests; /* the same, second terms of weights that are split */
    float *scales;                     /* f32 [T_TILE_K / 16, TILE_ROWS] */
    float *mins;                       /* f32 [T_TILE_K / BLOCK, TILE_ROWS] */
    float *wide;                       /* f32 [32, T_TILE_K / 4], of weights that are float32 */
    float *c;                          /* f32 [m, TILE_ROWS] */
};

/* Floats that the scratch of one thread takes for m vectors, and its parts in that memory. */
size_t tile_scratch_floats(int m);
void tile_scratch_place(struct tile_scratch *scratch, float *memory);

/* c[m, 16 * n_panels] = input . rows first .. first + 16 * n_panels - 1 of w, with rows of c
 * TILE_ROWS apart; those past the matrix's end are of no use. first is a multiple of PANEL_LANES.
 */
void tile_product(const struct kernels *kernels, const struct matrix *w, int first, int n_panels,
                  const struct tile_input *input, const struct tile_scratch *scratch, float *c);

#endif
