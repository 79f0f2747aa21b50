/* One value head of a Gated DeltaNet: one position by the recurrence, many by its chunked form
 * (docs/MODEL_qwen35.md). Everything is float32. */
#ifndef REEL_CPU_DELTA_H
#define REEL_CPU_DELTA_H

#include "cpu/kernels.h"

/* Positions of one chunk: a chunk's own work grows with it, what it does with the state shrinks.
 * 16, 32 and 64 cost the same within a quarter. */
#define T_DELTA_CHUNK 32

/* Rows of a prompt's positions, `row_stride` floats apart. */
struct delta_rows {
    const float *q, *k, *v; /* of this head, after the convolution */
    const float *b, *a;     /* of this head */
    float *out;             /* [value_dim], rows out_stride apart */
    size_t row_stride, out_stride;
};

struct delta_head {
    const struct kernels *kernels;
    int key_dim, value_dim, value_stride;
    const float *q_scale, *k_scale; /* f32 [key_dim], gains that make `norm` an L2 norm */
    float rate, dt_bias;
    float *state; /* f32 [key_dim, value_stride] */
};

/* One position; columns first to first + n - 1 of the state, n at most DELTA_COLUMNS. q and k are
 * the head's, as the convolution left them. */
#define DELTA_COLUMNS 64
void delta_decode(const struct delta_head *head, const struct delta_rows *row, int first, int n);

/* n_rows positions after one another in the same way, each with the bits of delta_decode, by a copy
 * of the state's columns: the state stays as it is. Scratch: delta_scratch_floats. */
void delta_try(const struct delta_head *head, const struct delta_rows *rows, int n_rows, int first,
               int n, float *scratch);

/* n positions. Scratch: delta_scratch_floats. */
void delta_prefill(const struct delta_head *head, const struct delta_rows *rows, int n,
                   float *scratch);
size_t delta_scratch_floats(int key_dim, int value_stride);

#endif
