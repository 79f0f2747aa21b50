/* Many vectors through 64 rows of weights: the rows are unpacked into panels once, in pieces of K
 * that stay in the second-level cache, and every vector passes over them. */
#ifndef REEL_CPU_TILE_H
#define REEL_CPU_TILE_H

#include "cpu/kernels.h"

#define T_TILE_K 1024 /* elements of K unpacked at a time; a multiple of 256 */

/* A matrix [m, n]: what round_row made of m vectors. */
struct tile_input {
    int m;
    const uint16_t *rows; /* bf16 [m, stride], zero-filled to an even length */
    size_t stride;
    const uint16_t *rests; /* the same for what rounding left; block formats and planes take it */
    const float *sums;     /* f32 [m, sums_stride] */
    size_t sums_stride;
};

/* Terms of bf16 whose sum is exactly a value of the type. Block formats go through as integers, one
 * term, but for Q2_K, whose minima change every 16 elements: its values are terms as float32 is. */
static inline int tile_terms(enum dtype type) {
    return type == DTYPE_F32 || type == DTYPE_Q2_K ? 3 : type == DTYPE_F16 ? 2 : 1;
}

/* One thread's scratch. */
struct tile_scratch {
    uint16_t *rows;                    /* bf16 [PANEL_LANES, T_TILE_K] */
    uint16_t *panels;                  /* bf16 [PANELS, T_TILE_K / 2, PANEL_LANES, 2] */
    uint16_t *row_rests, *panel_rests; /* the same, second terms of weights that are split */
    float *scales;                     /* f32 [T_TILE_K / 16, TILE_ROWS] */
    float *mins;                       /* f32 [T_TILE_K / BLOCK, TILE_ROWS] */
    float *wide;                       /* f32 [32, T_TILE_K / 4], of matrices with planes */
    float *c;                          /* f32 [m, TILE_ROWS] */
};

/* Floats that the scratch of one thread takes for m vectors, and its parts in that memory. */
size_t tile_scratch_floats(int m);
void tile_scratch_place(struct tile_scratch *scratch, float *memory);

/* c[m, 16 * n_panels] = input . rows first .. first + 16 * n_panels - 1 of w, with rows of c
 * TILE_ROWS apart; rows past the end are zero. */
void tile_product(const struct kernels *kernels, const struct matrix *w, int first, int n_panels,
                  const struct tile_input *input, const struct tile_scratch *scratch, float *c);

#endif
