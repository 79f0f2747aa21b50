/* Many vectors: a panel is already what a B tile holds, 16 pairs of k by 16 lanes. Two A tiles (32
 * vectors) meet two B tiles (two panels) in four accumulators, which stay in their tiles for as
 * many steps of K as there are. What does not fill tiles goes to AVX-512. How many vectors there
 * are does not decide, so that a vector's bits do not depend on how many others it comes with. */
#include "cpu/kernels_amx.h"

#include "cpu/kernels_avx512_panels.h"

#include <immintrin.h>
#include <string.h>

enum {
    ROWS = 16,
    PAIRS = 16,
    ROW_BYTES = 64,
    TERMS_PAIRS = 128 /* of K at most at a time, with terms: what A and B hold stays in cache */
};

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
    /* gcc 12 takes the instruction for one that reads 8 bytes, and may drop what wrote the rest. */
    __asm__ volatile("" : : "r"(&config) : "memory");
    _tile_loadconfig(&config);
}

/* Up to 32 vectors and two panels. */
struct pair_of_tiles {
    const struct gemm *g;
    int m, first, second; /* vectors from m on: those of the first A tile, and of the second */
    int panel;
};

static void load_vectors(const struct pair_of_tiles *p, const uint16_t *a, int s) {
    const size_t stride = p->g->a_stride;
    const uint16_t *from = a + (size_t)p->m * stride + 2 * s;
    _tile_loadd(4, from, stride * sizeof *a);
    _tile_loadd(5, p->second ? from + ROWS * stride : from, stride * sizeof *a);
}

static void load_panels(const struct pair_of_tiles *p, const uint16_t *panels, int s) {
    const struct gemm *g = p->g;
    const uint16_t *from = panels + (size_t)p->panel * g->panel_stride + (size_t)s * g->step_stride;
    _tile_loadd(6, from, g->step_stride * sizeof *panels);
    _tile_loadd(7, from + g->panel_stride, g->step_stride * sizeof *panels);
}

static void multiply(void) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
}

/* c[m, 16] (+)= sum, a stored tile */
static void add_tile(const struct pair_of_tiles *p, const float *sum, int m, int n, int panel,
                     bool accumulate) {
    const struct gemm *g = p->g;
    for (int i = 0; i < n; i++) {
        float *c = g->c + (size_t)(m + i) * g->c_stride + panel * PANEL_LANES;
        const __m512 total = accumulate ? _mm512_loadu_ps(c) : _mm512_setzero_ps();
        _mm512_storeu_ps(c, _mm512_add_ps(_mm512_load_ps(sum + i * PANEL_LANES), total));
    }
}

/* Asks for the columns of a step of the 32 vectors behind these, of half of them for each of a
 * tile's pairs of panels. The prefetcher does not see that they are next: they are as many streams
 * as there are vectors. */
static void prefetch_vectors(const struct pair_of_tiles *p, const uint16_t *a, int s) {
    const int first = p->m + 2 * ROWS + (p->panel ? ROWS : 0);
    for (int i = first; i < first + ROWS && i < p->g->m; i++)
        _mm_prefetch((const char *)(a + (size_t)i * p->g->a_stride + 2 * s), _MM_HINT_T0);
}

/* C (+)= what pairs k to last - 1 of K come to. Of two terms each three products are made: the
 * fourth is below what rounding to two terms left out. */
static void two_by_two(const struct pair_of_tiles *p, int k, int last) {
    const struct gemm *g = p->g;
    _Alignas(64) float sums[4][ROWS * PANEL_LANES];
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int s = k; s < last; s += PAIRS) {
        load_vectors(p, g->a, s);
        if (g->panel_rests) {
            prefetch_vectors(p, g->a, s);
            prefetch_vectors(p, g->rests, s);
            load_panels(p, g->panel_rests, s);
            multiply();
        }
        load_panels(p, g->panels, s);
        multiply();
        if (g->panel_rests) {
            load_vectors(p, g->rests, s);
            multiply();
        }
    }
    _tile_stored(0, sums[0], ROW_BYTES);
    _tile_stored(1, sums[1], ROW_BYTES);
    _tile_stored(2, sums[2], ROW_BYTES);
    _tile_stored(3, sums[3], ROW_BYTES);
    for (int i = 0; i < 2; i++) {
        add_tile(p, sums[i], p->m, p->first, p->panel + i, k > 0 || g->accumulate);
        add_tile(p, sums[2 + i], p->m + p->first, p->second, p->panel + i, k > 0 || g->accumulate);
    }
}

static void gemm(const struct gemm *g) {
    if (g->n_panels % 2 != 0 || g->k_pairs % PAIRS != 0 || g->k_pairs == 0) {
        kernels_avx512.gemm(g);
        return;
    }
    const int pieces = g->panel_rests ? (g->k_pairs + TERMS_PAIRS - 1) / TERMS_PAIRS : 1;
    const int steps = (g->k_pairs / PAIRS + pieces - 1) / pieces * PAIRS; /* about equal pieces */
    for (int k = 0; k < g->k_pairs; k += steps) {
        const int last = g->k_pairs - k < steps ? g->k_pairs : k + steps;
        for (int m = 0; m < g->m; m += 2 * ROWS) {
            const int n = g->m - m < 2 * ROWS ? g->m - m : 2 * ROWS;
            struct pair_of_tiles p = {
                .g = g, .m = m, .first = n < ROWS ? n : ROWS, .second = n > ROWS ? n - ROWS : 0
            };
            configure(p.first, p.second);
            for (; p.panel < g->n_panels; p.panel += 2)
                two_by_two(&p, k, last);
        }
    }
    _tile_release();
}

/* The first words of 16 pairs, or the second ones, times scales. */
static __m512 worth(__m512i pairs, bool second, __m512 scale, __m512 min) {
    const __m512i upper = second ? pairs : _mm512_slli_epi32(pairs, 16);
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_srai_epi32(upper, 16)), scale, min);
}

/* Two times 16 values as pairs of bf16; what is left of them stays in a and b. */
static __m512i round_pairs(__m512 *a, __m512 *b) {
    const __m512i low = _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(*a));
    const __m512i high =
        _mm512_slli_epi32(_mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(*b)), 16);
    *a = _mm512_sub_ps(*a, _mm512_castsi512_ps(_mm512_slli_epi32(low, 16)));
    *b = _mm512_sub_ps(*b, _mm512_castsi512_ps(high));
    return _mm512_or_si512(low, high);
}

static void split_panel(const int16_t *codes, const float *scales, const float *mins, int n,
                        int scale_block, uint16_t *panel, uint16_t *rest) {
    for (int i = 0; i < n; i += 2) {
        const size_t at = (size_t)i * PANEL_LANES;
        const __m512i pairs = _mm512_loadu_si512(codes + at);
        const __m512 scale = _mm512_loadu_ps(scales + (size_t)(i / scale_block) * TILE_ROWS);
        const __m512 min =
            mins ? _mm512_loadu_ps(mins + (size_t)(i / BLOCK) * TILE_ROWS) : _mm512_setzero_ps();
        __m512 a = worth(pairs, false, scale, min), b = worth(pairs, true, scale, min);
        _mm512_storeu_si512(panel + at, round_pairs(&a, &b));
        _mm512_storeu_si512(rest + at, round_pairs(&a, &b));
    }
}

/* ---- a few vectors against block formats ---- */

enum { GROUP = 4 }; /* blocks on their way at a time */

/* Blocks' sums: rows are columns of the higher digit and of the lower one. */
struct column_sums {
    _Alignas(64) int32_t of[GROUP][2 * MOST_COLUMNS][PANEL_ROWS];
};

/* Tiles 0 and 1: sums; 2 and 3: digits; 4 and 5: codes. */
static void configure_columns(int slots) {
    _Alignas(64) struct tile_config config = { .palette = 1 };
    const int rows[] = { 2 * slots, 2 * slots, 2 * slots, 2 * slots, BLOCK_WORDS, BLOCK_WORDS };
    for (int i = 0; i < 6; i++) {
        config.bytes[i] = i == 2 || i == 3 ? BLOCK : ROW_BYTES;
        config.rows[i] = (uint8_t)rows[i];
    }
    __asm__ volatile("" : : "r"(&config) : "memory"); /* as above */
    _tile_loadconfig(&config);
}

#define SUM_DIGITS(sum, x, weights, b)                                                             \
    do {                                                                                           \
        _tile_loadd(x, digits + 2 * slots * BLOCK * (b), BLOCK);                                   \
        _tile_loadd(weights, blocks[b].codes, ROW_BYTES);                                          \
        _tile_zero(sum);                                                                           \
        _tile_dpbsud(sum, x, weights);                                                             \
    } while (0)

/* Up to four blocks; `digits`: of the first one. What is behind the last one is of no use. */
ALWAYS_INLINE void sum_digits(const struct panel_block blocks[GROUP], const int8_t *digits, int n,
                              const int slots, struct column_sums *sums) {
    __asm__ volatile("" : : "r"(blocks) : "memory"); /* gcc 12 does not see that tiles read it */
    SUM_DIGITS(0, 2, 4, 0);
    SUM_DIGITS(1, 3, 5, 1);
    _tile_stored(0, sums->of[0], ROW_BYTES);
    if (n > 2) SUM_DIGITS(0, 2, 4, 2);
    _tile_stored(1, sums->of[1], ROW_BYTES);
    if (n <= 2) return;
    SUM_DIGITS(1, 3, 5, 3);
    _tile_stored(0, sums->of[2], ROW_BYTES);
    _tile_stored(1, sums->of[3], ROW_BYTES);
}

ALWAYS_INLINE __m512 sums_of(const struct column_sums *sums, int b, int row) {
    return _mm512_cvtepi32_ps(_mm512_load_si512(sums->of[b][row]));
}

ALWAYS_INLINE void add_blocks(enum dtype type, const struct panel_block blocks[GROUP],
                              const struct column_sums *sums, const float *factors, int n,
                              const int slots, __m512 *to) {
    for (int b = 0; b < n; b++)
#pragma GCC unroll 8
        for (int c = 0; c < slots; c++) {
            const __m512 value[2] = { panel_value(sums_of(sums, b, c),
                                                  sums_of(sums, b, slots + c)) };
            to[c] = panel_add(type, &blocks[b], value, factors + (b * MOST_COLUMNS + c) * 2, to[c]);
        }
}

ALWAYS_INLINE void multiply_slots(enum dtype type, const struct matrix *w,
                                  const struct cpu_columns *x, int first, int last, float *const *y,
                                  const int slots) {
    const int blocks = w->columns / BLOCK, unit = panel_unit(type);
    configure_columns(slots);
    for (int r = first; r < last;) {
        const struct panel_place place = panel_place(w, r, last);
        __m512 sum[MOST_COLUMNS];
        for (int c = 0; c < slots; c++)
            sum[c] = _mm512_setzero_ps();
        for (int at = 0; at < blocks; at += GROUP) {
            const int n = blocks - at < GROUP ? blocks - at : GROUP;
            struct panel_block group[GROUP];
            struct column_sums sums;
            for (int b = 0; b < n; b++)
                panel_read(type, panel_at(type, place.panel, (at + b) / unit), (at + b) % unit,
                           &group[b]);
            sum_digits(group, x->bytes + (size_t)at * 2 * (size_t)slots * BLOCK, n, slots, &sums);
            add_blocks(type, group, &sums, x->factors + (size_t)at * MOST_COLUMNS * 2, n, slots,
                       sum);
        }
        for (int c = 0; c < x->n; c++)
            _mm512_mask_storeu_ps(y[c] + place.first, place.lanes, sum[c]);
        r = place.next;
    }
    _tile_release();
}

ALWAYS_INLINE void multiply_columns(enum dtype type, const struct matrix *w,
                                    const struct cpu_columns *x, int first, int last,
                                    float *const *y) {
    if (x->slots == 2) { /* they fill too little of a tile */
        kernels_avx512.dot_columns[type](w, x, first, last, y);
        return;
    }
#define CALL(slots) multiply_slots(type, w, x, first, last, y, slots)
    SLOTS_SWITCH(x->slots, CALL);
#undef CALL
}

#define COLUMNS(name, type)                                                                        \
    static void columns_##name(const struct matrix *w, const struct cpu_columns *x, int first,     \
                               int last, float *const *y) {                                        \
        multiply_columns(type, w, x, first, last, y);                                              \
    }
COLUMNS(q8_0, DTYPE_Q8_0)
COLUMNS(q4_0, DTYPE_Q4_0)
COLUMNS(q4_1, DTYPE_Q4_1)
COLUMNS(q5_0, DTYPE_Q5_0)
COLUMNS(q5_1, DTYPE_Q5_1)

void kernels_amx_set(struct kernels *kernels) {
    kernels->gemm = gemm;
    kernels->split_panel = split_panel;
    kernels->dot_columns[DTYPE_Q8_0] = columns_q8_0;
    kernels->dot_columns[DTYPE_Q4_0] = columns_q4_0;
    kernels->dot_columns[DTYPE_Q4_1] = columns_q4_1;
    kernels->dot_columns[DTYPE_Q5_0] = columns_q5_0;
    kernels->dot_columns[DTYPE_Q5_1] = columns_q5_1;
}
