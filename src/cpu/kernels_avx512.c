/* AVX-512 with BF16, VBMI and VNNI. Block formats go through as whole numbers, most of them from
 * panels (kernels_avx512_panels.h). */
#include <immintrin.h>
#include <stdint.h>

#define LANES     16
#define GEMM_ROWS 6
#include "cpu/vector_types.h"

#define v_fma(a, b, c) ((vf)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))

#define HAVE_V_FROM_F16
static inline __attribute__((always_inline)) vf v_from_f16(const unsigned char *p) {
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

#define HAVE_V_FROM_I8
static inline __attribute__((always_inline)) vf v_from_i8(const int8_t *p) {
    return (vf)_mm512_cvtepi32_ps(
        _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}
#define HAVE_V_FROM_E4M3
static inline __attribute__((always_inline)) vf v_from_e4m3(const uint8_t *p) {
    const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    return (vf)_mm512_cvtph_ps(
        _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16((short)0xbf80)));
}

#define HAVE_V_FROM_U8
static inline __attribute__((always_inline)) vf v_from_u8(const uint8_t *p) {
    return (vf)_mm512_cvtepi32_ps(
        _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

/* 16 codes of 4 bits, each shifted to the right of a lane; what is left of it stays. */
static inline __attribute__((always_inline)) __m512i nibbles(const uint8_t *p) {
    int low, high;
    __builtin_memcpy(&low, p, sizeof low);
    __builtin_memcpy(&high, p + 4, sizeof high);
    const __m512i all = _mm512_mask_set1_epi32(_mm512_set1_epi32(low), 0xff00, high);
    return _mm512_srlv_epi32(
        all, _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28));
}

#define HAVE_V_FROM_U4
static inline __attribute__((always_inline)) vf v_from_u4(const uint8_t *p) {
    return (vf)_mm512_cvtepi32_ps(_mm512_and_si512(nibbles(p), _mm512_set1_epi32(15)));
}

#define HAVE_V_LOOKUP_U4
static inline __attribute__((always_inline)) vf v_lookup_u4(const float *table, const uint8_t *p) {
    return (vf)_mm512_permutexvar_ps(nibbles(p), _mm512_loadu_ps(table));
}
/* A byte of two codes becomes a word of them, one in each of its bytes. */
#define HAVE_STEP_LOOKUP
static inline __attribute__((always_inline)) void step_lookup(const int8_t *names, const uint8_t *p,
                                                              int8_t *q) {
    const __m256i wide = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *)(const void *)p));
    const __m256i at =
        _mm256_and_si256(_mm256_or_si256(wide, _mm256_slli_epi16(wide, 4)), _mm256_set1_epi8(15));
    const __m256i table =
        _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)names));
    _mm256_storeu_si256((__m256i *)(void *)q, _mm256_shuffle_epi8(table, at));
}
#define HAVE_V_LARGEST
static inline __attribute__((always_inline)) int32_t v_largest_whole(vi v) {
    return _mm512_reduce_max_epi32((__m512i)v);
}

#define HAVE_V_DOT_WORDS
static inline __attribute__((always_inline)) vi v_dot_words(vi sum, vi a, vi b) {
    return (vi)_mm512_dpwssd_epi32((__m512i)sum, (__m512i)a, (__m512i)b);
}
#define WORDS_ROWS   6
#define WORDS_PANELS 2
#include "cpu/kernels_body.h"

ALWAYS_INLINE __m512 dot(__m512 sum, __m512i a, __m512i b) {
    return _mm512_dpbf16_ps(sum, (__m512bh)a, (__m512bh)b);
}
ALWAYS_INLINE __m512i load(const void *p) { return _mm512_loadu_si512(p); }

/* ---- plain types ------------------------------------------------------------------------------
 *
 * Here and below, a function takes the vectors of `n` columns, a constant at every call, and adds
 * up each column's sums by itself: they do not depend on how many columns there are. */

/* One row after the other: the one stream that the hardware prefetcher follows best. */
ALWAYS_INLINE void dot_row_bf16(const unsigned char *row, int columns,
                                const struct cpu_vector *const *x, float *const *y, int r,
                                const int n) {
    __m512 sum[4][4];
#pragma GCC unroll 4
    for (int c = 0; c < n; c++)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            sum[c][j] = _mm512_setzero_ps();
    int i = 0;
    for (; i + 128 <= columns; i += 128)
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            const unsigned char *p = row + 2 * (size_t)(i + 32 * j);
            _mm_prefetch((const char *)p + T_PREFETCH, _MM_HINT_T0);
            const __m512i weights = load(p);
#pragma GCC unroll 4
            for (int c = 0; c < n; c++)
                sum[c][j] = dot(sum[c][j], weights, load(x[c]->bf16[0] + i + 32 * j));
        }
    for (; i < columns; i += 32) {
        __mmask32 rest = columns - i >= 32 ? ~0u : (1u << (columns - i)) - 1;
        const __m512i weights = _mm512_maskz_loadu_epi16(rest, row + 2 * (size_t)i);
#pragma GCC unroll 4
        for (int c = 0; c < n; c++)
            sum[c][0] = dot(sum[c][0], weights, _mm512_maskz_loadu_epi16(rest, x[c]->bf16[0] + i));
    }
#pragma GCC unroll 4
    for (int c = 0; c < n; c++)
        y[c][r] = _mm512_reduce_add_ps(_mm512_add_ps(_mm512_add_ps(sum[c][0], sum[c][1]),
                                                     _mm512_add_ps(sum[c][2], sum[c][3])));
}

/* Registers hold the sums of four columns. */
ALWAYS_INLINE void multiply_bf16(const struct matrix *w, const struct cpu_vector *const *x,
                                 int first, int last, float *const *y, const int n) {
    for (int r = first; r < last; r++) {
        const unsigned char *row = w->data + (size_t)r * w->row_bytes;
#pragma GCC unroll 2
        for (int c = 0; c < n; c += 4)
            dot_row_bf16(row, w->columns, x + c, y + c, r, n - c < 4 ? n - c : 4);
    }
}

static void dot_rows_bf16(const struct matrix *w, const struct cpu_vector *x, int first, int last,
                          float *y) {
    multiply_bf16(w, &x, first, last, &y, 1);
}

static void dot_columns_bf16(const struct matrix *w, const struct cpu_columns *x, int first,
                             int last, float *const *y) {
    const struct cpu_vector *vectors[MOST_COLUMNS];
    float *out[MOST_COLUMNS];
    for (int c = 0; c < x->slots; c++) {
        vectors[c] = &x->vectors[c < x->n ? c : x->n - 1];
        out[c] = y[c < x->n ? c : x->n - 1];
    }
#define CALL(slots) multiply_bf16(w, vectors, first, last, out, slots)
    SLOTS_SWITCH(x->slots, CALL);
#undef CALL
}

/* ---- block formats ---- */

#include "cpu/kernels_avx512_blocks.h"

/* Formats that come in panels. */
#define PANEL_FORMATS(X)                                                                           \
    X(q8_0, DTYPE_Q8_0)                                                                            \
    X(q4_0, DTYPE_Q4_0)                                                                            \
    X(q4_1, DTYPE_Q4_1)                                                                            \
    X(q5_0, DTYPE_Q5_0)                                                                            \
    X(q5_1, DTYPE_Q5_1)                                                                            \
    X(q4_k, DTYPE_Q4_K)                                                                            \
    X(q5_k, DTYPE_Q5_K)                                                                            \
    X(q6_k, DTYPE_Q6_K)                                                                            \
    X(iq4_nl, DTYPE_IQ4_NL)                                                                        \
    X(iq4_xs, DTYPE_IQ4_XS)                                                                        \
    X(mxfp4, DTYPE_MXFP4)

#define MULTIPLY_PANELS(name, type)                                                                \
    static void dot_rows_##name(const struct matrix *w, const struct cpu_vector *x, int first,     \
                                int last, float *y) {                                              \
        multiply_panels(type, w, &x, first, last, &y, 1);                                          \
    }                                                                                              \
    static void dot_columns_##name(const struct matrix *w, const struct cpu_columns *x, int first, \
                                   int last, float *const *y) {                                    \
        const struct cpu_vector *vectors[MOST_COLUMNS];                                            \
        for (int c = 0; c < x->n; c++)                                                             \
            vectors[c] = &x->vectors[c];                                                           \
        multiply_panels(type, w, vectors, first, last, y, x->n);                                   \
    }                                                                                              \
    static void panel_words_##name(const unsigned char *panel, int first, int n, int16_t *words,   \
                                   float *scales, float *mins) {                                   \
        panel_to_words(type, panel, first, n, words, scales, mins);                                \
    }
PANEL_FORMATS(MULTIPLY_PANELS)

/* ---- many vectors ------------------------------------------------------------------------------
 */

/* Transposes 16 by 16 double words, each a pair of k. */
ALWAYS_INLINE void transpose(__m512i r[16]) {
    __m512i t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
    /* r[4 g + c] holds column c + 4 q of rows 4 g .. 4 g + 3 in its quarter q. */
#pragma GCC unroll 4
    for (int c = 0; c < 4; c++) {
        __m512i a = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x88);
        __m512i b = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x88);
        __m512i d = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xdd);
        __m512i e = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xdd);
        t[c] = _mm512_shuffle_i32x4(a, b, 0x88);
        t[8 + c] = _mm512_shuffle_i32x4(a, b, 0xdd);
        t[4 + c] = _mm512_shuffle_i32x4(d, e, 0x88);
        t[12 + c] = _mm512_shuffle_i32x4(d, e, 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i++)
        r[i] = t[i];
}

static void interleave(const unsigned char *rows, size_t stride, int n, uint16_t *dst) {
    int i = 0;
    for (; i + 32 <= n; i += 32) {
        __m512i r[16];
#pragma GCC unroll 16
        for (int lane = 0; lane < 16; lane++)
            r[lane] = load(rows + (size_t)lane * stride + 2 * (size_t)i);
        transpose(r);
#pragma GCC unroll 16
        for (int k = 0; k < 16; k++)
            _mm512_store_si512(dst + (size_t)(i / 2 + k) * 32, r[k]);
    }
    if (i < n) body_interleave(rows + 2 * (size_t)i, stride, n - i, dst + (size_t)i * PANEL_LANES);
}

/* rows and panels are constants at every call: sums stay in registers. */
ALWAYS_INLINE void gemm_block(const struct gemm *g, int m, int panel, const int rows,
                              const int panels) {
    const uint16_t *b = g->panels + (size_t)panel * g->panel_stride;
    const uint16_t *a = g->a + (size_t)m * g->a_stride;
    float *c = g->c + (size_t)m * g->c_stride + panel * PANEL_LANES;
    __m512 sum[6][4];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++)
            sum[r][p] = g->accumulate
                            ? _mm512_loadu_ps(c + (size_t)r * g->c_stride + p * PANEL_LANES)
                            : _mm512_setzero_ps();
    for (int s = 0; s < g->k_pairs; s++) {
        __m512i w[4];
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++)
            w[p] = load(b + (size_t)p * g->panel_stride + (size_t)s * g->step_stride);
        if (g->ahead)
#pragma GCC unroll 4
            for (int p = 0; p < panels; p++)
                __builtin_prefetch(b + (size_t)p * g->panel_stride + (size_t)s * g->step_stride +
                                   g->ahead);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            int pair;
            memcpy(&pair, a + (size_t)r * g->a_stride + 2 * (size_t)s, sizeof pair);
            __m512i x = _mm512_set1_epi32(pair);
#pragma GCC unroll 4
            for (int p = 0; p < panels; p++)
                sum[r][p] = dot(sum[r][p], w[p], x);
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int p = 0; p < panels; p++)
            _mm512_storeu_ps(c + (size_t)r * g->c_stride + p * PANEL_LANES, sum[r][p]);
}

ALWAYS_INLINE void gemm_rows(const struct gemm *g, int m, const int rows) {
    int panel = 0;
    for (; panel + 4 <= g->n_panels; panel += 4)
        gemm_block(g, m, panel, rows, 4);
    for (; panel + 2 <= g->n_panels; panel += 2)
        gemm_block(g, m, panel, rows, 2);
    if (panel < g->n_panels) gemm_block(g, m, panel, rows, 1);
}

static void gemm(const struct gemm *g) {
    int m = 0;
    for (; m + 6 <= g->m; m += 6)
        gemm_rows(g, m, 6);
    switch (g->m - m) {
    case 5:
        gemm_rows(g, m, 5);
        break;
    case 4:
        gemm_rows(g, m, 4);
        break;
    case 3:
        gemm_rows(g, m, 3);
        break;
    case 2:
        gemm_rows(g, m, 2);
        break;
    case 1:
        gemm_rows(g, m, 1);
        break;
    default:
        break;
    }
}

/* ---- rounding ----------------------------------------------------------------------------------
 */

static void round_vector(const float *x, int n, struct cpu_vector *out) {
    body_round_vector(x, n, out);
    for (int b = 0; b * BLOCK < n; b++) {
        float rest[BLOCK] = { 0 };
        const float *from = x + b * BLOCK;
        if ((b + 1) * BLOCK > n) {
            memcpy(rest, from, (size_t)(n - b * BLOCK) * sizeof *rest);
            from = rest;
        }
        round_block(from, &out->blocks[b]);
    }
}

static void spread_column(const struct cpu_vector *v, int n, struct cpu_columns *x, int column) {
    const int last = column == x->n - 1 ? x->slots : column + 1;
    const size_t slots = (size_t)x->slots;
    body_spread_column(v, n, x, column);
    for (size_t b = 0; b * BLOCK < (size_t)n; b++)
        for (int c = column; c < last; c++) {
            const struct cpu_block *from = &v->blocks[b];
            for (size_t digit = 0; digit < 2; digit++)
                memcpy(x->bytes + ((2 * b + digit) * slots + (size_t)c) * BLOCK,
                       from->digits[digit], BLOCK);
            memcpy(x->factors + (b * MOST_COLUMNS + (size_t)c) * 2, from->factors,
                   2 * sizeof *from->factors);
        }
}

#define FROM_PANELS(name, type)       [type] = true,
#define PANEL_WORDS_ENTRY(name, type) [type] = panel_words_##name,
#define ROWS_ENTRY(name, type)        [type] = dot_rows_##name,
#define COLUMNS_ENTRY(name, type)     [type] = dot_columns_##name,

const struct kernels kernels_avx512 = {
    .name = "avx512",
    .from_panels = { PANEL_FORMATS(FROM_PANELS) },
    .panel_words = { PANEL_FORMATS(PANEL_WORDS_ENTRY) },
    .dot_rows = { [DTYPE_F32] = body_dot_rows_DTYPE_F32,
                  [DTYPE_F16] = body_dot_rows_DTYPE_F16,
                  [DTYPE_BF16] = dot_rows_bf16,
                  PANEL_FORMATS(ROWS_ENTRY)[DTYPE_Q2_K] = body_dot_rows_DTYPE_Q2_K,
                  [DTYPE_Q3_K] = body_dot_rows_DTYPE_Q3_K,
                  [DTYPE_NVFP4] = body_dot_rows_DTYPE_NVFP4 },
    .dot_columns = { [DTYPE_F32] = body_dot_columns_DTYPE_F32,
                     [DTYPE_F16] = body_dot_columns_DTYPE_F16,
                     [DTYPE_BF16] = dot_columns_bf16,
                     PANEL_FORMATS(COLUMNS_ENTRY)[DTYPE_Q2_K] = body_dot_columns_DTYPE_Q2_K,
                     [DTYPE_Q3_K] = body_dot_columns_DTYPE_Q3_K,
                     [DTYPE_NVFP4] = body_dot_columns_DTYPE_NVFP4 },
    .unpack = { [DTYPE_F32] = body_unpack_DTYPE_F32,
                [DTYPE_F16] = body_unpack_DTYPE_F16,
                [DTYPE_BF16] = body_unpack_DTYPE_BF16,
                [DTYPE_Q3_K] = body_unpack_DTYPE_Q3_K,
                [DTYPE_NVFP4] = body_unpack_DTYPE_NVFP4 },
    .interleave = interleave,
    .gemm = gemm,
    .gemm_words = body_gemm_words,
    .round_vector = round_vector,
    .round_bf16 = body_round_bf16,
    .spread_column = spread_column,
    .round_row = body_round_row,
    .round_words = body_round_words,
    .join_words = body_join_words,
    .norm = body_norm,
    .rope = body_rope,
    .swiglu = body_swiglu,
    .add = body_add,
    .scale = body_scale,
    .softmax = body_softmax,
    .softmax_scaled = body_softmax_scaled,
    BODY_DELTA,
    BODY_AUDIO,
    BODY_PLANES,
};
