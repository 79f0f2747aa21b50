/* One vector or several against rows of block formats: part of kernels_avx512.c, which includes
 * this file.
 *
 * A vector is whole numbers of 24 bits for each block, in three digits of 8, and a scale
 * (round_vector). Codes are made unsigned, and vpdpbusd takes 64 products of them at a time,
 * exactly. Blocks of 32 lie in panels (kernels_avx512_panels.h). Of superblocks a group of four
 * blocks is two registers of codes: the first 16 of each block, and its last 16; a block has four
 * lanes, and both registers go to the same. What codes have too much, and minima, are multiplied
 * with the sums of the numbers. */

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

/* The digits of 16 whole numbers, places `at` of half `half`; returns the numbers. */
ALWAYS_INLINE __m512i round_half(__m512 x, __m512 inverse, struct cpu_group *g, size_t at,
                                 struct cpu_block *block, int half) {
    const __m512i q = _mm512_cvtps_epi32(_mm512_mul_ps(x, inverse));
    const __m512i middle = _mm512_srai_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(0x80)), 8);
    const __m512i high = _mm512_srai_epi32(_mm512_add_epi32(q, _mm512_set1_epi32(0x8080)), 16);
    const __m512i digits[] = { high, middle, q };
#pragma GCC unroll 3
    for (int i = 0; i < 3; i++) {
        const __m128i bytes = _mm512_cvtepi32_epi8(digits[i]);
        _mm_storeu_si128((__m128i *)(void *)(g->digits[i][half] + at), bytes);
        _mm_storeu_si128((__m128i *)(void *)(block->digits[i] + 16 * half), bytes);
    }
    return q;
}

/* Sums of each four of 16 numbers, as lanes of vpdpbusd have them. */
ALWAYS_INLINE __m128 sums_of_4(__m512i q) {
    const __m512i pairs = _mm512_add_epi32(q, _mm512_shuffle_epi32(q, _MM_PERM_CDAB));
    const __m512i fours = _mm512_add_epi32(pairs, _mm512_shuffle_epi32(pairs, _MM_PERM_BADC));
    const __m512i first = _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0);
    return _mm_cvtepi32_ps(_mm512_castsi512_si128(_mm512_permutexvar_epi32(first, fours)));
}

/* What is made of a block's digits and its scale. */
ALWAYS_INLINE void sum_digits(struct cpu_block *block, float scale) {
    const __m256i ones = _mm256_set1_epi8(1);
    __m256i sums[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        sums[i] = i == 3 ? _mm256_setzero_si256()
                         : _mm256_dpbusd_epi32(
                               _mm256_setzero_si256(), ones,
                               _mm256_loadu_si256((const __m256i *)(const void *)block->digits[i]));
    const __m256i halves =
        _mm256_hadd_epi32(_mm256_hadd_epi32(sums[0], sums[1]), _mm256_hadd_epi32(sums[2], sums[3]));
    const __m128i all =
        _mm_add_epi32(_mm256_castsi256_si128(halves), _mm256_extracti128_si256(halves, 1));
    memcpy(block->digit_sums, &all, sizeof block->digit_sums);
    block->factors[0] = scale;
    const int32_t *of = block->digit_sums;
    block->factors[1] = (float)(65536 * of[0] + 256 * of[1] + of[2]);
}

/* Block b: numbers of up to MOST for the largest of 32 values. */
static void round_block(const float *x, int b, struct cpu_vector *out) {
    enum { MOST = 0x7f7f00 }; /* three digits of 127, less what rounding may add */
    struct cpu_group *g = &out->groups[b / 4];
    const size_t at = (size_t)(b % 4) * 16;
    const __m512 a = _mm512_loadu_ps(x), c = _mm512_loadu_ps(x + 16);
    const float most = largest(a, c), bound = most < 0x1p-100f ? 0x1p-100f : most;
    const __m512 inverse = _mm512_set1_ps(MOST / bound);
    const float scale = bound / MOST;
    struct cpu_block *block = &out->blocks[b];
    const __m128 first = sums_of_4(round_half(a, inverse, g, at, block, 0));
    const __m128 second = sums_of_4(round_half(c, inverse, g, at, block, 1));
    sum_digits(block, scale);
    const __m128 all = _mm_add_ps(first, second);
    _mm_storeu_ps(g->half_sums[0] + at / 4, first);
    _mm_storeu_ps(g->half_sums[1] + at / 4, second);
    _mm_storeu_ps(g->sums + at / 4, all);
    _mm_storeu_ps(g->scales + at / 4, _mm_set1_ps(scale));
    float four[4];
    _mm_storeu_ps(four, all);
    out->byte_sums[b] = (four[0] + four[1] + (four[2] + four[3])) * scale;
}

/* ---- blocks, four at a time ---- */

struct group {
    __m512i codes[2];
};

/* 16 bytes for the blocks of a group that `lanes` has. */
ALWAYS_INLINE __m512i bytes16(__m512i to, __mmask16 lanes, const unsigned char *p) {
    return _mm512_mask_broadcast_i32x4(to, lanes,
                                       _mm_loadu_si128((const __m128i *)(const void *)p));
}

ALWAYS_INLINE uint32_t load_bits(const unsigned char *p) {
    uint32_t bits;
    memcpy(&bits, p, sizeof bits);
    return bits;
}

/* Lanes that each hold one number for a block of the group. */
ALWAYS_INLINE __m512i of_blocks(int a, int b, int c, int d) {
    return _mm512_setr_epi32(a, a, a, a, b, b, b, b, c, c, c, c, d, d, d, d);
}

/* What codes of up to 63 and the numbers of four lanes' values, or codes of up to 31 and those of
 * eight, come to: below 2^31. Each digit goes on from the sum of those above it. */
ALWAYS_INLINE __m512 half_products(__m512i codes, const struct cpu_group *x, const int half) {
    __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 3
    for (int digit = 0; digit < 3; digit++) {
        if (digit > 0) sum = _mm512_slli_epi32(sum, 8);
        sum = _mm512_dpbusd_epi32(sum, codes, load(x->digits[digit][half]));
    }
    return _mm512_cvtepi32_ps(sum);
}

ALWAYS_INLINE __m512 group_products(const struct group *g, const struct cpu_group *x) {
    __m512i sum = _mm512_setzero_si512();
#pragma GCC unroll 3
    for (int digit = 0; digit < 3; digit++) {
        if (digit > 0) sum = _mm512_slli_epi32(sum, 8);
        sum = _mm512_dpbusd_epi32(sum, g->codes[0], load(x->digits[digit][0]));
        sum = _mm512_dpbusd_epi32(sum, g->codes[1], load(x->digits[digit][1]));
    }
    return _mm512_cvtepi32_ps(sum);
}

/* ---- panels ---- */

/* What block b of a panel's rows and x's come to, in units of both scales. Digits begin with a
 * number that makes each sum a float's lower bits: no sum reaches 2^22, and none needs to be
 * converted. */
ALWAYS_INLINE __m512 panel_products(enum dtype type, const struct panel *panel, const int b,
                                    const struct cpu_block *x) {
    const __m512i bits = _mm512_set1_epi32(0x4b400000);
    const __m512 base = _mm512_castsi512_ps(bits); /* 3 * 2^22 */
    const int over = block_layout(type).over;
    const int shift = over == 128 ? 7 : over == 16 ? 4 : 3;
    __m512i sum[3];
#pragma GCC unroll 3
    for (int digit = 0; digit < 3; digit++)
        sum[digit] =
            over ? _mm512_sub_epi32(bits, _mm512_slli_epi32(_mm512_set1_epi32(x->digit_sums[digit]),
                                                            (unsigned)shift))
                 : bits;
#pragma GCC unroll 8
    for (int i = 0; i < BLOCK_WORDS; i++)
#pragma GCC unroll 3
        for (int digit = 0; digit < 3; digit++)
            sum[digit] = _mm512_dpbusd_epi32(
                sum[digit], panel->codes[b][i],
                _mm512_set1_epi32((int)load_bits((const void *)(x->digits[digit] + 4 * i))));
    __m512 value[3];
#pragma GCC unroll 3
    for (int digit = 0; digit < 3; digit++)
        value[digit] = _mm512_sub_ps(_mm512_castsi512_ps(sum[digit]), base);
    return panel_value(value[0], value[1], value[2]);
}

/* Few loops are unrolled here: there are many formats. */
ALWAYS_INLINE void multiply_blocks(enum dtype type, const struct matrix *w,
                                   const struct cpu_vector *const *x, int first, int last,
                                   float *const *y, const int n) {
    const int blocks = w->columns / BLOCK;
    for (int r = first; r < last;) {
        const struct panel_place place = panel_place(w, r, last);
        __m512 sum[MOST_COLUMNS];
        for (int c = 0; c < n; c++)
            sum[c] = _mm512_setzero_ps();
        for (int at = 0; at < blocks; at += PANEL_BLOCKS) {
            const int some = blocks - at < PANEL_BLOCKS ? blocks - at : PANEL_BLOCKS;
            struct panel panel;
            panel_group(type, &place, at, some, PANEL_UNSIGNED, &panel);
            for (int c = 0; c < n; c++) {
                const struct cpu_block *v = x[c]->blocks + at;
                __m512 own = _mm512_setzero_ps();
                for (int b = 0; b < some; b++) {
                    if (c == 0) panel_fetch(type, &place, at + b);
                    own = panel_add(type, &panel, b, panel_products(type, &panel, b, v + b),
                                    v[b].factors, own);
                }
                sum[c] = _mm512_add_ps(sum[c], own);
            }
        }
        for (int c = 0; c < n; c++)
            _mm512_mask_storeu_ps(y[c] + place.first, place.lanes, sum[c]);
        r = place.next;
    }
}

/* ---- superblocks of 256 ------------------------------------------------------------------------
 */

/* The eight scales and eight minima of Q4_K and Q5_K as floats, not yet times d and dmin. */
ALWAYS_INLINE void k_scales(const unsigned char *packed, __m256 *scales, __m256 *mins) {
    uint32_t a = load_bits(packed), b = load_bits(packed + 4), c = load_bits(packed + 8);
    uint64_t low = (a & 0x3f3f3f3f) | (uint64_t)((c & 0x0f0f0f0f) | (a >> 6 & 0x03030303) << 4)
                                          << 32;
    uint64_t high =
        (b & 0x3f3f3f3f) | (uint64_t)((c >> 4 & 0x0f0f0f0f) | (b >> 6 & 0x03030303) << 4) << 32;
    *scales = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)low)));
    *mins = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_cvtsi64_si128((long long)high)));
}

/* 16 bytes for the first two blocks of a group, and 16 for the others. */
ALWAYS_INLINE __m512i two_pairs(const unsigned char *first, const unsigned char *second) {
    const __m512i both = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)first));
    return bytes16(both, 0xff00, second);
}

/* Half `half` of blocks 4 i to 4 i + 3: two blocks are the low and high bits of the same bytes. */
ALWAYS_INLINE __m512i k_codes(bool five, const unsigned char *p, const int i, const int half) {
    const unsigned char *qs = p + 16 + (five ? 32 : 0) + 64 * i + 16 * half;
    __m512i q = low_bits(_mm512_srlv_epi32(two_pairs(qs, qs + 32), of_blocks(0, 4, 0, 4)));
    if (five) {
        const __m512i bits =
            _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)(p + 16 + 16 * half)));
        const __m512i own = of_blocks(0x01010101 << 4 * i, 0x02020202 << 4 * i, 0x04040404 << 4 * i,
                                      (int)(0x08080808u << 4 * i));
        q = _mm512_mask_add_epi8(q, _mm512_test_epi8_mask(bits, own), q, _mm512_set1_epi8(16));
    }
    return q;
}

ALWAYS_INLINE void multiply_q4_q5_k(enum dtype type, const struct matrix *w,
                                    const struct cpu_vector *const *x, int first, int last,
                                    float *const *y, const int n) {
    const bool five = type == DTYPE_Q5_K;
    const size_t bytes = five ? 176 : 144;
    for (int r = first; r < last; r++) {
        const unsigned char *p = w->data + (size_t)r * w->row_bytes;
        __m512 sum[MOST_COLUMNS];
        __m256 minima[MOST_COLUMNS];
#pragma GCC unroll 8
        for (int c = 0; c < n; c++) {
            sum[c] = _mm512_setzero_ps();
            minima[c] = _mm256_setzero_ps();
        }
        for (int i = 0; i < w->columns / 256; i++, p += bytes) {
            __m256 scales8, mins;
            k_scales(p + 4, &scales8, &mins);
            scales8 = _mm256_mul_ps(scales8, _mm256_set1_ps(block_half(p)));
            mins = _mm256_mul_ps(mins, _mm256_set1_ps(block_half(p + 2)));
            const __m512 scales = _mm512_castps256_ps512(scales8);
#pragma GCC unroll 3
            for (size_t line = 0; line < bytes; line += 64)
                _mm_prefetch((const char *)p + T_PREFETCH + line, _MM_HINT_T0);
#pragma GCC unroll 8
            for (int c = 0; c < n; c++)
                minima[c] =
                    _mm256_fmadd_ps(mins, _mm256_loadu_ps(x[c]->byte_sums + 8 * i), minima[c]);
#pragma GCC unroll 2
            for (int half = 0; half < 2; half++) {
                const int f = 4 * half;
                const struct group g = { { k_codes(five, p, half, 0), k_codes(five, p, half, 1) } };
                const __m512 scale =
                    _mm512_permutexvar_ps(of_blocks(f, f + 1, f + 2, f + 3), scales);
#pragma GCC unroll 8
                for (int c = 0; c < n; c++) {
                    const struct cpu_group *v = x[c]->groups + 2 * i + half;
                    const __m512 both = _mm512_mul_ps(scale, _mm512_loadu_ps(v->scales));
                    sum[c] = _mm512_fmadd_ps(group_products(&g, v), both, sum[c]);
                }
            }
        }
#pragma GCC unroll 8
        for (int c = 0; c < n; c++)
            y[c][r] =
                _mm512_reduce_add_ps(_mm512_sub_ps(sum[c], _mm512_zextps256_ps512(minima[c])));
    }
}

/* Half `half` of blocks 4 i to 4 i + 3: the low bits of two blocks, the high bits of two more, and
 * two more bits of each. */
ALWAYS_INLINE __m512i q6_codes(const unsigned char *p, const int i, const int half) {
    const unsigned char *ql = p + 64 * i + 16 * half, *qh = p + 128 + 32 * i + 16 * half;
    const __m512i both = _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)ql));
    const __m512i low = _mm512_srlv_epi32(bytes16(both, 0xf0f0, ql + 32), of_blocks(0, 0, 4, 4));
    const __m512i high = _mm512_rolv_epi32(
        _mm512_broadcast_i32x4(_mm_loadu_si128((const void *)qh)), of_blocks(4, 2, 0, 30));
    enum { OR_AND = 0xf8 }; /* a | (b & c) */
    return _mm512_ternarylogic_epi32(low_bits(low), high, _mm512_set1_epi8(0x30), OR_AND);
}

ALWAYS_INLINE void multiply_q6_k(enum dtype type, const struct matrix *w,
                                 const struct cpu_vector *const *x, int first, int last,
                                 float *const *y, const int n) {
    const __m512 over = _mm512_set1_ps(-32);
    (void)type;
    for (int r = first; r < last; r++) {
        const unsigned char *p = w->data + (size_t)r * w->row_bytes;
        __m512 sum[MOST_COLUMNS];
#pragma GCC unroll 8
        for (int c = 0; c < n; c++)
            sum[c] = _mm512_setzero_ps();
        for (int i = 0; i < w->columns / 256; i++, p += 210) {
            __m512 scales = _mm512_cvtepi32_ps(
                _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p + 192))));
            scales = _mm512_mul_ps(scales, _mm512_set1_ps(block_half(p + 208)));
#pragma GCC unroll 4
            for (size_t line = 0; line < 210; line += 64)
                _mm_prefetch((const char *)p + T_PREFETCH + line, _MM_HINT_T0);
#pragma GCC unroll 4
            for (int part = 0; part < 4; part++) { /* each half of each group has its scales */
                const int g = part / 2, half = part % 2, f = 8 * g + half;
                const __m512i codes = q6_codes(p, g, half);
                const __m512 scale =
                    _mm512_permutexvar_ps(of_blocks(f, f + 2, f + 4, f + 6), scales);
#pragma GCC unroll 8
                for (int c = 0; c < n; c++) {
                    const struct cpu_group *v = x[c]->groups + 2 * i + g;
                    __m512 own = half_products(codes, v, half);
                    own = _mm512_fmadd_ps(_mm512_loadu_ps(v->half_sums[half]), over, own);
                    const __m512 both = _mm512_mul_ps(scale, _mm512_loadu_ps(v->scales));
                    sum[c] = _mm512_fmadd_ps(own, both, sum[c]);
                }
            }
        }
#pragma GCC unroll 8
        for (int c = 0; c < n; c++)
            y[c][r] = _mm512_reduce_add_ps(sum[c]);
    }
}
