/* AVX2 with FMA and F16C. */
#include <immintrin.h>
#include <stdint.h>

#define LANES     8
#define GEMM_ROWS 4
#include "cpu/vector_types.h"

#define v_fma(a, b, c) ((vf)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))

#define HAVE_V_FROM_F16
static inline __attribute__((always_inline)) vf v_from_f16(const unsigned char *p) {
    return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

#define HAVE_V_FROM_I8
static inline __attribute__((always_inline)) vf v_from_i8(const int8_t *p) {
    return (vf)_mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

/* gcc 12 converts the halves apart and joins them. */
#define HAVE_V_FROM_BF16
static inline __attribute__((always_inline)) vf v_from_bf16(const uint16_t *p) {
    const __m128i h = _mm_loadu_si128((const __m128i *)(const void *)p);
    return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16);
}

/* v_sum of each of eight vectors, by its tree: the vectors are turned while they are added. */
#define HAVE_V_SUMS
static inline __attribute__((always_inline)) void v_sums_of_8(const vf v[8], float out[8]) {
    __m256 halves[4], quarters[2];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        const __m256 a = (__m256)v[2 * i], b = (__m256)v[2 * i + 1];
        halves[i] = _mm256_permute2f128_ps(a, b, 0x20) + _mm256_permute2f128_ps(a, b, 0x31);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        const __m256 a = halves[2 * i], b = halves[2 * i + 1];
        quarters[i] = _mm256_shuffle_ps(a, b, 0x44) + _mm256_shuffle_ps(a, b, 0xee);
    }
    const __m256 sums = _mm256_shuffle_ps(quarters[0], quarters[1], 0x88) +
                        _mm256_shuffle_ps(quarters[0], quarters[1], 0xdd);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_ps(out, _mm256_permutevar8x32_ps(sums, order));
}
#define HAVE_V_FROM_E4M3
static inline __attribute__((always_inline)) vf v_from_e4m3(const uint8_t *p) {
    const __m128i wide = _mm_cvtepi8_epi16(_mm_loadl_epi64((const __m128i *)(const void *)p));
    return (vf)_mm256_cvtph_ps(
        _mm_and_si128(_mm_slli_epi16(wide, 7), _mm_set1_epi16((short)0xbf80)));
}

#define HAVE_V_FROM_U8
static inline __attribute__((always_inline)) vf v_from_u8(const uint8_t *p) {
    return (vf)_mm256_cvtepi32_ps(
        _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

/* Eight codes of 4 bits, each shifted to the right of a lane; what is left of it stays. */
static inline __attribute__((always_inline)) __m256i nibbles(const uint8_t *p) {
    int all;
    __builtin_memcpy(&all, p, sizeof all);
    return _mm256_srlv_epi32(_mm256_set1_epi32(all),
                             _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
}

#define HAVE_V_FROM_U4
static inline __attribute__((always_inline)) vf v_from_u4(const uint8_t *p) {
    return (vf)_mm256_cvtepi32_ps(_mm256_and_si256(nibbles(p), _mm256_set1_epi32(15)));
}

/* Permutations go by three bits of an index: the fourth chooses between two. */
#define HAVE_V_LOOKUP_U4
static inline __attribute__((always_inline)) vf v_lookup_u4(const float *table, const uint8_t *p) {
    const __m256i at = nibbles(p);
    const __m256 low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), at);
    const __m256 high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(table + 8), at);
    return (vf)_mm256_blendv_ps(low, high, (__m256)_mm256_slli_epi32(at, 28));
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
    __m128i m =
        _mm_max_epi32(_mm256_castsi256_si128((__m256i)v), _mm256_extracti128_si256((__m256i)v, 1));
    m = _mm_max_epi32(m, _mm_shuffle_epi32(m, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(m, _mm_shuffle_epi32(m, 0xb1)));
}

#define HAVE_V_DOT_WORDS
static inline __attribute__((always_inline)) vi v_dot_words(vi sum, vi a, vi b) {
    return sum + (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
}
#define WORDS_ROWS   6
#define WORDS_PANELS 1
#include "cpu/kernels_body.h"

#include "cpu/kernels_avx2_blocks.h"

/* ---- many vectors -------------------------------------------------------------------
 *
 * body_gemm widens bf16 in its inner loop, for every six products anew. Here pieces of the panels
 * and of A are widened once into the first-level cache, and the inner loop is products and loads.
 * Every sum has body_gemm's order: along K from zero, then what C holds. */

enum {
    ROWS = 6,     /* of A in registers together */
    BLOCK_M = 96, /* rows of A for which a piece of the panels is widened */
    PIECE_K = 128 /* elements of K widened at a time */
};

struct wide {
    float panels[PANELS][PIECE_K][PANEL_LANES];
    float rows[ROWS][PIECE_K];
    float sums[BLOCK_M][TILE_ROWS];
};

/* Pairs [first, first + n) of `panels` panels from `panel` on. */
static void widen_panels(const struct gemm *g, int panel, int panels, int first, int n,
                         struct wide *w) {
    for (int p = 0; p < panels; p++)
        for (int i = 0; i < n; i++) {
            const uint16_t *pairs = g->panels + (size_t)(panel + p) * g->panel_stride +
                                    (size_t)(first + i) * g->step_stride;
            if (g->ahead) __builtin_prefetch(pairs + g->ahead);
            for (int v = 0; v < PANEL_LANES / LANES; v++) {
                vu pair;
                memcpy(&pair, pairs + 2 * LANES * v, sizeof pair);
                v_store(w->panels[p][2 * i] + LANES * v, (vf)(pair << 16));
                v_store(w->panels[p][2 * i + 1] + LANES * v, (vf)(pair & 0xffff0000u));
            }
        }
}

static void widen_rows(const struct gemm *g, int m, int rows, int first, int n, struct wide *w) {
    for (int r = 0; r < rows; r++) {
        const uint16_t *a = g->a + (size_t)(m + r) * g->a_stride + 2 * (size_t)first;
        int i = 0;
        for (; i + LANES <= 2 * n; i += LANES)
            v_store(w->rows[r] + i, v_from_bf16(a + i));
        for (; i < 2 * n; i++)
            w->rows[r][i] = bf16_to_f32(a[i]);
    }
}

/* Where sums of some rows begin, and where they go. */
struct way {
    const float *from; /* f32 [rows, TILE_ROWS]; NULL: at zero */
    float *to;
    size_t to_stride;
    bool accumulate; /* what `to` holds is added */
};

/* to[rows, 16] = from + rows . panel; rows is a constant at every call. */
ALWAYS_INLINE void multiply_rows(const struct wide *w, int panel, int n, const struct way *way,
                                 const int rows) {
    vf sum[ROWS][2];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
        sum[r][0] = sum[r][1] = v_set(0);
    if (way->from) {
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            sum[r][0] = v_load(way->from + r * TILE_ROWS);
            sum[r][1] = v_load(way->from + r * TILE_ROWS + LANES);
        }
    }
    for (int k = 0; k < n; k++) {
        const vf low = v_load(w->panels[panel][k]), high = v_load(w->panels[panel][k] + LANES);
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const vf x = v_set(w->rows[r][k]);
            sum[r][0] = v_fma(low, x, sum[r][0]);
            sum[r][1] = v_fma(high, x, sum[r][1]);
        }
    }
    if (way->accumulate) {
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            const float *c = way->to + (size_t)r * way->to_stride;
            sum[r][0] = v_load(c) + sum[r][0];
            sum[r][1] = v_load(c + LANES) + sum[r][1];
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++) {
        float *to = way->to + (size_t)r * way->to_stride;
        v_store(to, sum[r][0]);
        v_store(to + LANES, sum[r][1]);
    }
}

static void multiply_some(const struct wide *w, int panel, int n, const struct way *way, int rows) {
    switch (rows) {
    case 1:
        multiply_rows(w, panel, n, way, 1);
        break;
    case 2:
        multiply_rows(w, panel, n, way, 2);
        break;
    case 3:
        multiply_rows(w, panel, n, way, 3);
        break;
    case 4:
        multiply_rows(w, panel, n, way, 4);
        break;
    case 5:
        multiply_rows(w, panel, n, way, 5);
        break;
    default:
        multiply_rows(w, panel, n, way, ROWS);
    }
}

/* C of rows [m, m + rows) and up to PANELS panels. Sums wait in w->sums from one piece of K to the
 * next; those of the last go to C. */
static void gemm_tile(const struct gemm *g, int m, int rows, int panel, int panels,
                      struct wide *w) {
    for (int k = 0; k < g->k_pairs; k += PIECE_K / 2) {
        const int n = g->k_pairs - k < PIECE_K / 2 ? g->k_pairs - k : PIECE_K / 2;
        const bool last = k + n == g->k_pairs;
        widen_panels(g, panel, panels, k, n, w);
        for (int r = 0; r < rows; r += ROWS) {
            const int some = rows - r < ROWS ? rows - r : ROWS;
            float *c = g->c + (size_t)(m + r) * g->c_stride + (size_t)panel * PANEL_LANES;
            widen_rows(g, m + r, some, k, n, w);
            for (int p = 0; p < panels; p++) {
                float *sums = w->sums[r] + p * PANEL_LANES;
                const struct way way = { .from = k > 0 ? sums : NULL,
                                         .to = last ? c + p * PANEL_LANES : sums,
                                         .to_stride = last ? g->c_stride : TILE_ROWS,
                                         .accumulate = last && g->accumulate };
                multiply_some(w, p, 2 * n, &way, some);
            }
        }
    }
}

/* Transposes 8 by 8 double words, each a pair of k. */
ALWAYS_INLINE void transpose(__m256i r[8]) {
    __m256i t[8], u[8];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        t[2 * i] = _mm256_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        u[i] = _mm256_unpacklo_epi64(t[i], t[i + 2]);
        u[i + 1] = _mm256_unpackhi_epi64(t[i], t[i + 2]);
        u[i + 2] = _mm256_unpacklo_epi64(t[i + 1], t[i + 3]);
        u[i + 3] = _mm256_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2x128_si256(u[i], u[i + 4], 0x31);
    }
}

static void interleave(const unsigned char *rows, size_t stride, int n, uint16_t *dst) {
    int i = 0;
    for (; i + 16 <= n; i += 16)
        for (int half = 0; half < 2; half++) {
            const unsigned char *from = rows + (size_t)(8 * half) * stride + 2 * (size_t)i;
            uint16_t *to = dst + (size_t)i * PANEL_LANES + 16 * half;
            __m256i r[8];
#pragma GCC unroll 8
            for (int lane = 0; lane < 8; lane++)
                r[lane] = _mm256_loadu_si256(
                    (const __m256i *)(const void *)(from + (size_t)lane * stride));
            transpose(r);
#pragma GCC unroll 8
            for (int k = 0; k < 8; k++)
                _mm256_storeu_si256((__m256i *)(void *)(to + 2 * PANEL_LANES * k), r[k]);
        }
    if (i < n) body_interleave(rows + 2 * (size_t)i, stride, n - i, dst + (size_t)i * PANEL_LANES);
}

static void gemm(const struct gemm *g) {
    struct wide w;
    if (g->m < ROWS) {
        body_gemm(g);
        return;
    }
    for (int m = 0; m < g->m; m += BLOCK_M)
        for (int panel = 0; panel < g->n_panels; panel += PANELS)
            gemm_tile(g, m, g->m - m < BLOCK_M ? g->m - m : BLOCK_M, panel,
                      g->n_panels - panel < PANELS ? g->n_panels - panel : PANELS, &w);
}

const struct kernels kernels_avx2 = {
    .name = "avx2",
    .dot_rows = { DTYPE_LIST(DOT_ROWS_ENTRY) },
    .dot_columns = { DTYPE_LIST(DOT_COLUMNS_ENTRY) },
    .unpack = { DTYPE_LIST(BODY_UNPACK_ENTRY) },
    .interleave = interleave,
    .gemm = gemm,
    BODY_ELEMENTWISE,
    .round_vector = round_vector,
    .spread_column = spread_column,
};
