/* The arithmetic of one instruction set, as a table of functions. Everything above it (phases,
 * threads, caches) is the same for all; everything below it that can be shared lies in
 * kernels_body.h, compiled once for each.
 *
 * Three ways through a matrix:
 *   dot_rows     one vector: reads the weights once, straight from the file or from panels
 *                (panels.h), whatever their type
 *   dot_columns  up to MOST_COLUMNS vectors, each with the bits that dot_rows gives: a row is read
 *                once for all
 *   gemm         many vectors: 64 rows at a time are unpacked into panels (tile.h), which stay in
 *                cache while all vectors pass; sums are added in another order
 *
 * Weights are not rounded below what their file holds: block formats go through as small integers,
 * and their scales multiply float32 sums. The exception is gemm on AMX, where a sum that has to
 * leave its tile for every scale costs more than a third product: there what a weight is worth
 * becomes the sum of two bf16 values, as exact as vectors are. How vectors are rounded: see
 * cpu_vector for one or a few of them, and tile.h for many. */
#ifndef REEL_CPU_KERNELS_H
#define REEL_CPU_KERNELS_H

#include "base/cpu_features.h"
#include "model/kv_form.h"
#include "model/weights.h"

#define VECTOR_PAD  64 /* vectors are zero-filled up to a multiple of this */
#define PANEL_LANES 16 /* rows in one panel */
#define PANELS      4  /* panels in one tile of weights */
#define TILE_ROWS   (PANEL_LANES * PANELS)
#define BLOCK       32 /* elements that share a minimum; Q6_K's scales change every 16 */

/* Bytes ahead of the current load that a row's weights are asked for: what one core has to keep in
 * flight. The hardware prefetcher alone reaches 70 % of the bandwidth (docs/EXPERIMENTS.md). */
#define T_PREFETCH 8192

/* A block of a vector as whole numbers of 16 bits, in two digits of 8, the higher one first. */
struct cpu_block {
    int8_t digits[2][BLOCK];
    float factors[4]; /* the scale; the sum of the numbers, and of those of each half */
};

/* AMX takes four blocks at a time, and reads some behind the last one. */
static inline size_t vector_blocks(size_t padded) { return padded / BLOCK + 4; }

/* One vector as matrix input, in the forms the paths like, each filled by round_vector: the sum of
 * two bf16 values, 16 significant bits. Block formats take both. bf16 weights on AVX-512, and on
 * every path when there are many vectors, take the first alone, as the bf16 reference does: there a
 * second product would cost speed. AVX2 and AVX-512 take block formats with digits of whole numbers
 * instead (kernels_avx2_blocks.h, kernels_avx512_blocks.h). */
struct cpu_vector {
    uint16_t *bf16[2]; /* [padded] the value rounded, and what that left, rounded */
    float *values;     /* f32 [padded], their sum */
    float *sums;       /* f32 [padded / BLOCK] sums of each block's values */
    int16_t *digits;   /* [padded / BLOCK, 2, BLOCK] high and low digits of whole numbers (AVX2) */
    float digit_scale; /* what a high digit is worth */
    float *digit_sums; /* f32 [padded / BLOCK] sums of the whole numbers' values */
    struct cpu_block *blocks; /* [vector_blocks(padded)] whole numbers of 16 bits (AVX-512) */
};

#define MOST_COLUMNS 8  /* vectors that dot_columns takes */
#define COLUMN_SUMS  16 /* floats from one block's sums to the next one's, below */

/* Several vectors beside each other. Kernels work on `slots` of them; where that is n + 1, the last
 * one is there twice. */
struct cpu_columns {
    int n;                      /* 2 to MOST_COLUMNS */
    int slots;                  /* n, up to an even number */
    struct cpu_vector *vectors; /* [n] */
    /* What spread_column fills from each, in the order in which a row meets it. */
    float *values;   /* f32 [padded / BLOCK, slots, BLOCK] */
    float *sums;     /* f32 [padded / BLOCK, COLUMN_SUMS] */
    int16_t *digits; /* [padded / BLOCK, slots, 2, BLOCK] */
    float digit_scales[MOST_COLUMNS];
    float *digit_sums; /* f32 [padded / BLOCK, COLUMN_SUMS] */
    int8_t *bytes;     /* [vector_blocks, 2, slots, BLOCK] digits of vectors' blocks (AMX) */
    float *factors;    /* f32 [vector_blocks, MOST_COLUMNS, 2] their factors */
};

/* CALL with the number of slots as a constant. Sanitizers make each body many times as large, and
 * clang as slow: there one takes all numbers (KERNELS_ONE_BODY, Makefile). */
#ifdef KERNELS_ONE_BODY
#define SLOTS_SWITCH(slots, CALL) CALL(slots)
#else
#define SLOTS_SWITCH(slots, CALL)                                                                  \
    switch (slots) {                                                                               \
    case 2:                                                                                        \
        CALL(2);                                                                                   \
        break;                                                                                     \
    case 4:                                                                                        \
        CALL(4);                                                                                   \
        break;                                                                                     \
    case 6:                                                                                        \
        CALL(6);                                                                                   \
        break;                                                                                     \
    default:                                                                                       \
        CALL(MOST_COLUMNS);                                                                        \
    }
#endif

/* C[m, 16 * n_panels] (+)= A[m, 2 * k_pairs] . panels
 * A panel holds, for each pair of k, 16 lanes of two bf16. */
struct gemm {
    int m, n_panels, k_pairs;
    const uint16_t *a;     /* bf16 [m, a_stride] */
    const uint16_t *rests; /* the same, added to a, or NULL; only with panel_rests */
    size_t a_stride;
    const uint16_t *panels;
    const uint16_t *panel_rests; /* the same, added to panels, or NULL; only a path that has
                                    split_panel takes it: C is then the sum of all products but that
                                    of both rests */
    size_t panel_stride;         /* from one panel to the next, in uint16_t */
    size_t step_stride;          /* from one pair of k to the next, in uint16_t */
    size_t ahead; /* in uint16_t: how far before its use a step is fetched; 0: it is in cache */
    float *c;     /* f32 [m, c_stride] */
    size_t c_stride;
    bool accumulate;
};

/* C[m, 16 * n_panels] (+)= A . W^T, where both are whole numbers with scales: A has 16 bits and a
 * scale for each BLOCK of k (round_words), W has 8, a scale for each scale_block and, where there
 * are minima, one for each BLOCK that is added to all of its weights. Sums of scale_block products
 * are exact. */
struct gemm_words {
    int m, n_panels;
    int k;            /* a multiple of BLOCK */
    const int16_t *a; /* [m, a_stride] */
    size_t a_stride;
    const float
        *factors; /* f32 [k / BLOCK, 2, factors_stride]: of each row, what round_words gives */
    size_t factors_stride;
    const int16_t *panels; /* as those of struct gemm: whole numbers in the place of bf16 */
    size_t panel_stride;   /* in int16_t; from one pair of k to the next: 2 * PANEL_LANES */
    const float *scales;   /* f32 [k / scale_block, TILE_ROWS] */
    int scale_block;       /* 32 or 16 */
    const float *mins;     /* f32 [k / BLOCK, TILE_ROWS] or NULL */
    float *c;              /* f32 [m, c_stride] */
    size_t c_stride;
    bool accumulate;
};

/* C[m, n] (+)= A . B, all float32; n is a multiple of PANEL_LANES. */
struct gemm_f32 {
    int m, n, k;
    const float *a; /* [m, a_stride] */
    size_t a_stride;
    const float *b; /* [k, b_stride] */
    size_t b_stride;
    float *c; /* [m, c_stride] */
    size_t c_stride;
    bool accumulate;
};

/* One position of the delta rule on some columns of a head's state, cpu_delta_step in
 * cpu/reference.h. */
struct delta_step {
    float *state; /* [key_dim, stride] from the first column on */
    size_t stride;
    int key_dim, columns;  /* columns: a multiple of PANEL_LANES */
    const float *q, *k;    /* [key_dim] normed */
    const float *v;        /* [columns] */
    float kq, alpha, beta; /* k . q, decay, strength of writing */
    float *out;            /* [columns] */
};

struct kernels {
    const char *name;
    /* y[r] = row r of w . x, for first <= r < last */
    void (*dot_rows[DTYPE_COUNT])(const struct matrix *w, const struct cpu_vector *x, int first,
                                  int last, float *y);
    /* y[c][r] = row r of w . column c, for each column and first <= r < last */
    void (*dot_columns[DTYPE_COUNT])(const struct matrix *w, const struct cpu_columns *x, int first,
                                     int last, float *const *y);
    /* The same for a matrix with planes; and columns [first, first + n) of row r, `first` a
     * multiple of BLOCK, as matrix_row_f32 has them. */
    void (*planes_rows)(const struct matrix *w, const struct cpu_vector *x, int first, int last,
                        float *y);
    void (*planes_columns)(const struct matrix *w, const struct cpu_columns *x, int first, int last,
                           float *const *y);
    void (*planes_widen)(const struct matrix *w, int r, int first, int n, float *out);
    /* Column `column` of x is now v [n], which x->vectors has. */
    void (*spread_column)(const struct cpu_vector *v, int n, struct cpu_columns *x, int column);
    void (*gemm)(const struct gemm *g);
    void (*gemm_words)(const struct gemm_words *g);
    /* Formats of which dot_rows, dot_columns and gemm_words want panels (cpu/panels.h): a matrix
     * has them then. */
    bool from_panels[DTYPE_COUNT];
    /* Blocks [first, first + n) of a panel, as gemm_words has them: whole numbers [n * BLOCK / 2,
     * PANEL_LANES, 2], scales and minima TILE_ROWS apart. */
    void (*panel_words[DTYPE_COUNT])(const unsigned char *panel, int first, int n, int16_t *words,
                                     float *scales, float *mins);
    /* A row's elements [first, first + n). F32, F16, BF16: as bf16; what does not fit is the exact
     * sum of three or two terms, asked for one at a time. Block formats but Q2_K, where first and n
     * are multiples of BLOCK: as whole numbers of int16_t, with their scales and minima TILE_ROWS
     * apart. */
    void (*unpack[DTYPE_COUNT])(const unsigned char *row, int first, int n, int term, uint16_t *out,
                                float *scales, float *mins);
    /* What n whole numbers of 16 rows are worth, from what a panel or unpack gives (codes [n / 2,
     * PANEL_LANES, 2], scales for each scale_block and minima or NULL, TILE_ROWS apart), as the sum
     * of two bf16 values: 17 significant bits. NULL: gemm takes no panel_rests. panel may be codes.
     */
    void (*split_panel)(const int16_t *codes, const float *scales, const float *mins, int n,
                        int scale_block, uint16_t *panel, uint16_t *rest);
    /* dst: n / 2 pairs of 16 lanes from 16 rows of n bf16 (n even), `stride` bytes apart */
    void (*interleave)(const unsigned char *rows, size_t stride, int n, uint16_t *dst);
    void (*round_vector)(const float *x, int n, struct cpu_vector *out);
    void (*round_bf16)(const float *x, int n, uint16_t *out);
    /* n values, which need not be a multiple of BLOCK, as the sum of two bf16 values: 16
     * significant bits. */
    void (*round_row)(const float *x, int n, uint16_t *out, uint16_t *rest);
    /* The same as whole numbers, of up to 32,767 for the largest of BLOCK values, zero-filled up to
     * whole blocks; of each block factors has what 1 is worth and what the sum of all is worth,
     * `stride` floats apart. */
    void (*round_words)(const float *x, int n, int16_t *words, float *factors, size_t stride);
    /* What they are worth, as float32; n is a multiple of BLOCK. */
    void (*join_words)(const int16_t *words, const float *factors, size_t stride, int n,
                       float *out);
    void (*norm)(const float *x, const float *weight, int n, float eps, float *out);
    void (*rope)(float *head, int head_dim, const float *cos, const float *sin);
    void (*swiglu)(const float *gate, const float *up, int n, float *out);
    void (*add)(float *x, const float *y, int n);
    void (*scale)(float *x, float factor, int n);
    /* One step of an online softmax over n scores: p = exp(score * scale - max) as bf16, where max
     * is *max or larger; *max and *sum are brought up to date; returns what earlier results have
     * to be multiplied with. p is zero-filled to an even count. */
    float (*softmax)(const float *scores, int n, float scale, uint16_t *p, float *max, float *sum);
    /* The same of scores[i] * k_scales[i], with p = exp(...) * v_scales[i]; *sum is that of the exp
     * alone. */
    float (*softmax_scaled)(const float *scores, const float *k_scales, const float *v_scales,
                            int n, float scale, uint16_t *p, float *max, float *sum);
    /* Codes of a KV cache, which is not in bf16, as bf16; n is a multiple of PANEL_LANES. */
    void (*widen_kv)(enum kv_form form, const uint8_t *codes, size_t n, uint16_t *out);
    /* x = x * sigmoid(gate) */
    void (*sigmoid_gate)(float *x, const float *gate, int n);
    /* out = silu(sum over j < width of taps[j] * inputs[j]), taps taps_stride apart; out may be one
     * of the inputs */
    void (*convolve)(const float *const *inputs, const float *taps, size_t taps_stride, int width,
                     int n, float *out);
    void (*gemm_f32)(const struct gemm_f32 *g);
    void (*delta_step)(const struct delta_step *step);
    /* out = GELU(x + bias), by the error function; out may be x */
    void (*gelu)(const float *x, const float *bias, int n, float *out);
    /* out = (x - mean) / sqrt(variance + eps) * weight + bias */
    void (*layer_norm)(const float *x, const float *weight, const float *bias, int n, float eps,
                       float *out);
};

/* y[r] = row r of w . x, whatever w's weights are; and for several vectors. */
static inline void kernels_rows(const struct kernels *k, const struct matrix *w,
                                const struct cpu_vector *x, int first, int last, float *y) {
    (w->planes ? k->planes_rows : k->dot_rows[w->dtype])(w, x, first, last, y);
}
static inline void kernels_columns(const struct kernels *k, const struct matrix *w,
                                   const struct cpu_columns *x, int first, int last,
                                   float *const *y) {
    (w->planes ? k->planes_columns : k->dot_columns[w->dtype])(w, x, first, last, y);
}

/* Those of the architecture the compiler targets. */
extern const struct kernels kernels_portable;
#if defined(__x86_64__)
extern const struct kernels kernels_avx2, kernels_avx512;
#elif defined(__aarch64__)
extern const struct kernels kernels_neon;
#endif

#endif
