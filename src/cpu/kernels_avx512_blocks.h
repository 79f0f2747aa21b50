/* One vector or several against panels of block formats: part of kernels_avx512.c, which includes
 * this file.
 *
 * A vector is whole numbers of 16 bits for each block, in two digits of 8, and a scale. Codes are
 * unsigned, and vpdpbusd takes 64 products of them at a time, exactly. */

#include "cpu/kernels_avx512_panels.h"

/* ---- the vector ---- */

/* The largest magnitude of a block; NaN where there is one: its bits are the largest. */
ALWAYS_INLINE float largest(__m512 a, __m512 b) {
    const __m512i sign = _mm512_set1_epi32(0x7fffffff);
    const __m512i both = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(a), sign),
                                          _mm512_and_si512(_mm512_castps_si512(b), sign));
    const uint32_t bits = _mm512_reduce_max_epu32(both);
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

/* The digits of 16 whole numbers, and the sum of these. */
ALWAYS_INLINE int32_t round_half(__m512 x, __m512 inverse, struct cpu_block *block, int half) {
    const __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse));
    const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(0x80)), 8);
    _mm_storeu_si128((__m128i *)(void *)(block->digits[0] + 16 * half), _mm512_cvtepi32_epi8(high));
    _mm_storeu_si128((__m128i *)(void *)(block->digits[1] + 16 * half), _mm512_cvtepi32_epi8(q));
    return _mm512_reduce_add_epi32(q);
}

/* Numbers of up to MOST for the largest of 32 values. */
static void round_block(const float *x, struct cpu_block *block) {
    enum { MOST = 127 * 256 + 127 };
    const __m512 a = _mm512_loadu_ps(x), c = _mm512_loadu_ps(x + 16);
    const float most = largest(a, c), bound = most < 0x1p-100f ? 0x1p-100f : most;
    const __m512 inverse = _mm512_set1_ps(MOST / bound);
    const int32_t first = round_half(a, inverse, block, 0), last = round_half(c, inverse, block, 1);
    block->factors[0] = bound / MOST;
    block->factors[1] = (float)(first + last);
    block->factors[2] = (float)first;
    block->factors[3] = (float)last;
}

/* ---- products ---- */

ALWAYS_INLINE __m512i four_digits(const int8_t *p) {
    int32_t bits;
    memcpy(&bits, p, sizeof bits);
    return _mm512_set1_epi32(bits);
}

/* What words first to last - 1 of a block's codes and x's come to, in units of both scales. Digits
 * begin with a number that makes each sum a float's lower bits: no sum reaches 2^22, and none needs
 * to be converted. */
ALWAYS_INLINE __m512 panel_products(const struct panel_block *block, const struct cpu_block *x,
                                    const int first, const int last) {
    const __m512i bits = _mm512_set1_epi32(0x4b400000);
    const __m512 base = _mm512_castsi512_ps(bits); /* 3 * 2^22 */
    const __m512i none = _mm512_setzero_si512();
    __m512i high[2] = { bits, none }, low[2] = { bits, none }; /* chains: each waits for itself */
#pragma GCC unroll 8
    for (int i = first; i < last; i++) {
        const __m512i codes = block->codes[i];
        high[i % 2] = _mm512_dpbusd_epi32(high[i % 2], codes, four_digits(x->digits[0] + 4 * i));
        low[i % 2] = _mm512_dpbusd_epi32(low[i % 2], codes, four_digits(x->digits[1] + 4 * i));
    }
    const __m512i sums[2] = { _mm512_add_epi32(high[0], high[1]),
                              _mm512_add_epi32(low[0], low[1]) };
    return panel_value(_mm512_sub_ps(_mm512_castsi512_ps(sums[0]), base),
                       _mm512_sub_ps(_mm512_castsi512_ps(sums[1]), base));
}

/* The sum with what block and x add to it. */
ALWAYS_INLINE __m512 panel_multiply(enum dtype type, const struct panel_block *block,
                                    const struct cpu_block *x, __m512 sum) {
    __m512 value[2];
    if (block_halves(type)) {
        value[0] = panel_products(block, x, 0, BLOCK_WORDS / 2);
        value[1] = panel_products(block, x, BLOCK_WORDS / 2, BLOCK_WORDS);
    } else {
        value[0] = panel_products(block, x, 0, BLOCK_WORDS);
    }
    return panel_add(type, block, value, x->factors, sum);
}

/* n is 1, or no constant: there are many formats. */
ALWAYS_INLINE void multiply_panels(enum dtype type, const struct matrix *w,
                                   const struct cpu_vector *const *x, int first, int last,
                                   float *const *y, const int n) {
    const int unit = panel_unit(type), blocks = w->columns / BLOCK;
    for (int r = first; r < last;) {
        const struct panel_place place = panel_place(w, r, last);
        __m512 sum[MOST_COLUMNS];
        for (int c = 0; c < n; c++)
            sum[c] = _mm512_setzero_ps();
        for (int b = 0; b < blocks; b += unit) {
            const unsigned char *p = panel_at(type, place.panel, b / unit);
#pragma GCC unroll 8
            for (int j = 0; j < unit; j++) {
                struct panel_block block;
                if (unit < 8 && b + j >= blocks) break;
                panel_read(type, p, j, &block);
                for (int c = 0; c < n; c++)
                    sum[c] = panel_multiply(type, &block, &x[c]->blocks[b + j], sum[c]);
            }
        }
        for (int c = 0; c < n; c++)
            _mm512_mask_storeu_ps(y[c] + place.first, place.lanes, sum[c]);
        r = place.next;
    }
}

/* ---- many vectors ---- */

/* Blocks [first, first + n) as gemm_words has them: pairs of words for each row, less what codes
 * have too much. */
ALWAYS_INLINE void panel_to_words(enum dtype type, const unsigned char *panel, int first, int n,
                                  int16_t *words, float *scales, float *mins) {
    const __m512i over = _mm512_set1_epi16((short)panel_over(type));
    const int halves = block_halves(type) ? 2 : 1;
    const __m512i spread[2] = { _mm512_broadcast_i32x4(_mm_setr_epi8(0, -1, 1, -1, 4, -1, 5, -1, 8,
                                                                     -1, 9, -1, 12, -1, 13, -1)),
                                _mm512_broadcast_i32x4(_mm_setr_epi8(2, -1, 3, -1, 6, -1, 7, -1, 10,
                                                                     -1, 11, -1, 14, -1, 15, -1)) };
    const int unit = panel_unit(type);
    for (int b = 0; b < n; b += unit) {
        const unsigned char *p = panel_at(type, panel, (first + b) / unit);
#pragma GCC unroll 8
        for (int j = 0; j < unit; j++) {
            struct panel_block block;
            if (unit < 8 && b + j >= n) break;
            panel_read(type, p, j, &block);
#pragma GCC unroll 16
            for (int i = 0; i < 2 * BLOCK_WORDS; i++, words += 2 * PANEL_LANES) {
                const __m512i own = _mm512_shuffle_epi8(block.codes[i / 2], spread[i % 2]);
                _mm512_storeu_si512(words, _mm512_sub_epi16(own, over));
            }
#pragma GCC unroll 2
            for (int half = 0; half < halves; half++, scales += TILE_ROWS)
                _mm512_storeu_ps(scales, block.scale[half]);
            if (block_has_min(type))
                _mm512_storeu_ps(mins + (size_t)(b + j) * TILE_ROWS, block.min);
        }
    }
}
