/* Blocks of 16 rows from panels (panels.h), for kernels_avx512.c and kernels_amx.c.
 *
 * A lane is a row. What a block of a row and one of a vector come to is two whole numbers, one for
 * each digit of the vector's, exact in whatever order they are added up: on AVX-512 by vpdpbusd, on
 * AMX in tiles. From there on both go the same way (panel_value, panel_add), so that a
 * column's bits depend neither on the number of columns nor on which of the two it was. */
#ifndef REEL_CPU_KERNELS_AVX512_PANELS_H
#define REEL_CPU_KERNELS_AVX512_PANELS_H

#include "cpu/blocks.h"
#include "cpu/kernels.h"
#include "cpu/panels.h"

#include <immintrin.h>

enum { BLOCK_WORDS = BLOCK / 4 };

/* One block of 16 rows: a weight is scale * (code - over) + min. Codes are unsigned bytes. */
struct panel_block {
    __m512i codes[BLOCK_WORDS];
    __m512 scale[2]; /* of each half; the first of all, where the format has no halves */
    __m512 min;      /* where it has minima */
};

/* ---- what differs between the formats, all constant after inlining ---- */

/* What codes have too much. */
ALWAYS_INLINE int panel_over(enum dtype type) {
    switch (type) {
    case DTYPE_Q4_0:
        return 8;
    case DTYPE_Q5_0:
        return 16;
    case DTYPE_Q6_K:
        return 32;
    case DTYPE_MXFP4:
        return 12;
    case DTYPE_Q8_0:
    case DTYPE_IQ4_NL:
    case DTYPE_IQ4_XS:
        return 128;
    default:
        return 0;
    }
}

/* ---- reading ---- */

ALWAYS_INLINE __m512i panel_load(const unsigned char *p) { return _mm512_loadu_si512(p); }
ALWAYS_INLINE __m512i panel_bytes(int byte) { return _mm512_set1_epi8((char)byte); }
ALWAYS_INLINE __m512i panel_low(__m512i codes) { return _mm512_and_si512(codes, panel_bytes(15)); }
ALWAYS_INLINE __m512i panel_high(__m512i codes) { return panel_low(_mm512_srli_epi16(codes, 4)); }

/* Halves of 16 rows. */
ALWAYS_INLINE __m512 panel_floats(const unsigned char *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

/* Adds 16 to codes 4 i to 4 i + 3 of a row where its bits are set. */
ALWAYS_INLINE __m512i panel_fifth(__m512i codes, __m512i bits, const int i) {
    const int at = i / 2;
    const __m512i own = _mm512_shuffle_epi8(
        bits, _mm512_set4_epi32(0x0c0c0c0c + 0x01010101 * at, 0x08080808 + 0x01010101 * at,
                                0x04040404 + 0x01010101 * at, 0x01010101 * at));
    const __m512i test = _mm512_set1_epi32(i % 2 ? (int)0x80402010u : 0x08040201);
    return _mm512_mask_add_epi8(codes, _mm512_test_epi8_mask(own, test), codes, panel_bytes(16));
}

/* What codes of four bits name, `over` added. */
ALWAYS_INLINE __m512i panel_names(enum dtype type, __m512i codes) {
    const int8_t *values = type == DTYPE_MXFP4 ? dtype_fp4_values : dtype_iq4_values;
    const __m512i table =
        _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)values));
    return _mm512_add_epi8(_mm512_shuffle_epi8(table, codes), panel_bytes(panel_over(type)));
}

/* Codes of four bits, at p. */
ALWAYS_INLINE void panel_nibbles(const unsigned char *p, __m512i *codes) {
#pragma GCC unroll 4
    for (int i = 0; i < BLOCK_WORDS / 2; i++) {
        const __m512i word = panel_load(p + 64 * i);
        codes[i] = panel_low(word);
        codes[i + 4] = panel_high(word);
    }
}

/* Half of what MXFP4's codes of 8 bits stand for, as dtype_mxfp4_scale. */
ALWAYS_INLINE __m512 panel_powers(const unsigned char *p) {
    const __m512i code = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    const __m512i one = _mm512_set1_epi32(1);
    const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(code, one), 23);
    return _mm512_castsi512_ps(_mm512_mask_sllv_epi32(normal, _mm512_cmple_epi32_mask(code, one),
                                                      _mm512_set1_epi32(0x00200000), code));
}

/* Blocks in a unit, as panels.c has them. In those of 32 a file's block is one; superblocks have
 * eight. */
ALWAYS_INLINE int panel_unit(enum dtype type) {
    if (block_of_256(type)) return 8;
    if (type == DTYPE_MXFP4) return 4;
    return block_has_min(type) ? 1 : 2;
}

/* Words of codes, and of fifth bits, in a block of 32. */
ALWAYS_INLINE int panel_words(enum dtype type) {
    return type == DTYPE_Q8_0 ? 8 : type == DTYPE_Q5_0 || type == DTYPE_Q5_1 ? 5 : 4;
}

ALWAYS_INLINE size_t panel_unit_bytes(enum dtype type) {
    if (type == DTYPE_Q6_K) return 53 * 64;
    if (block_of_256(type)) return PANEL_ROWS * block_file_bytes(type);
    return (size_t)(64 + 64 * panel_words(type) * panel_unit(type));
}

/* Block j of blocks of 32. */
ALWAYS_INLINE void panel_read_32(enum dtype type, const unsigned char *p, const int j,
                                 struct panel_block *to) {
    const unsigned char *words = p + 64 + 64 * panel_words(type) * j;
    to->scale[0] = type == DTYPE_MXFP4 ? panel_powers(p + 16 * j) : panel_floats(p + 32 * j);
    if (block_has_min(type)) to->min = panel_floats(p + 32);
    if (type == DTYPE_Q8_0) {
#pragma GCC unroll 8
        for (int i = 0; i < BLOCK_WORDS; i++)
            to->codes[i] = panel_load(words + 64 * i);
        return;
    }
    const bool five = type == DTYPE_Q5_0 || type == DTYPE_Q5_1;
    panel_nibbles(five ? words + 64 : words, to->codes);
#pragma GCC unroll 8
    for (int i = 0; i < BLOCK_WORDS; i++) {
        if (five) to->codes[i] = panel_fifth(to->codes[i], panel_load(words), i);
        if (type == DTYPE_IQ4_NL || type == DTYPE_MXFP4)
            to->codes[i] = panel_names(type, to->codes[i]);
    }
}

/* In a superblock j, its block, is a constant: what several blocks need is made once. */

/* Byte j % 4 of each word, with or without its sign, as floats. */
ALWAYS_INLINE __m512 panel_byte(__m512i words, const int j, const bool with_sign) {
    if (with_sign)
        return _mm512_cvtepi32_ps(
            _mm512_srai_epi32(_mm512_slli_epi32(words, (unsigned)(24 - 8 * (j % 4))), 24));
    const int last = j % 4;
    const __m512i place =
        _mm512_set4_epi32((int)0x80808000u + 12 + last, (int)0x80808000u + 8 + last,
                          (int)0x80808000u + 4 + last, (int)0x80808000u + last);
    return _mm512_cvtepi32_ps(_mm512_shuffle_epi8(words, place));
}

enum { OR_AND = 0xf8 }; /* of three inputs: a | (b & c) */

/* Scales and minima of six bits: those of four blocks are bytes of one word. */
ALWAYS_INLINE void panel_k_scales(const unsigned char *p, const int j, struct panel_block *to) {
    const __m512i a = panel_load(p + 64), b = panel_load(p + 128);
    __m512i scales, mins;
    if (j < 4) {
        scales = _mm512_and_si512(a, panel_bytes(63));
        mins = _mm512_and_si512(b, panel_bytes(63));
    } else {
        const __m512i c = panel_load(p + 192), two = panel_bytes(0x30);
        scales = _mm512_ternarylogic_epi32(panel_low(c), _mm512_srli_epi16(a, 2), two, OR_AND);
        mins = _mm512_ternarylogic_epi32(panel_high(c), _mm512_srli_epi16(b, 2), two, OR_AND);
    }
    to->scale[0] = _mm512_mul_ps(panel_floats(p), panel_byte(scales, j, false));
    const __m512 minus = _mm512_sub_ps(_mm512_setzero_ps(), panel_floats(p + 32));
    to->min = _mm512_mul_ps(minus, panel_byte(mins, j, false));
}

/* The bits of the bytes at p `up` places higher, or lower where that is below 0. */
ALWAYS_INLINE __m512i panel_moved(const unsigned char *p, const int up) {
    typedef uint16_t words __attribute__((vector_size(64)));
    const words bytes = (words)panel_load(p);
    return (__m512i)(up > 0 ? bytes << up : bytes >> -up);
}

/* Where word i of the j-th eight words of codes is: those of the first eight have a word of upper
 * bits behind each, at + 64. */
ALWAYS_INLINE const unsigned char *panel_codes(const unsigned char *first, int j, int i) {
    return first + (j == 0 ? 128 * i : 1024 + 512 * (j - 1) + 64 * i);
}

ALWAYS_INLINE void panel_q4_k(const unsigned char *p, const int j, struct panel_block *to) {
    panel_k_scales(p, j, to);
    /* Upper halves of bytes stay where they are: 16 times a code. */
    if (j % 2) to->scale[0] = _mm512_mul_ps(to->scale[0], _mm512_set1_ps(0x1p-4f));
#pragma GCC unroll 8
    for (int i = 0; i < BLOCK_WORDS; i++)
        to->codes[i] = _mm512_and_si512(panel_load(p + 256 + 512 * (j / 2) + 64 * i),
                                        panel_bytes(j % 2 ? 0xf0 : 0x0f));
}

ALWAYS_INLINE void panel_q5_k(const unsigned char *p, const int j, struct panel_block *to) {
    panel_k_scales(p, j, to);
#pragma GCC unroll 8
    for (int i = 0; i < BLOCK_WORDS; i++) {
        const __m512i both = panel_load(panel_codes(p + 256, j / 2, i));
        to->codes[i] = _mm512_ternarylogic_epi32(
            j % 2 ? panel_high(both) : panel_low(both),
            panel_moved(panel_codes(p + 256, 0, i) + 64, 4 - j), panel_bytes(16), OR_AND);
    }
}

ALWAYS_INLINE void panel_q6_k(const unsigned char *p, const int j, struct panel_block *to) {
    const __m512i scales = panel_load(p + 64 + 64 * (j / 2));
    const unsigned char *half = p + 320 + 1536 * (j / 4);
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++)
        to->scale[i] = _mm512_mul_ps(panel_floats(p), panel_byte(scales, 2 * j + i, true));
#pragma GCC unroll 8
    for (int i = 0; i < BLOCK_WORDS; i++) {
        const __m512i both = panel_load(panel_codes(half, j % 2, i));
        to->codes[i] = _mm512_ternarylogic_epi32(
            j % 4 < 2 ? panel_low(both) : panel_high(both),
            panel_moved(panel_codes(half, 0, i) + 64, 4 - 2 * (j % 4)), panel_bytes(0x30), OR_AND);
    }
}

ALWAYS_INLINE void panel_iq4_xs(const unsigned char *p, const int j, struct panel_block *to) {
    const __m512i high =
        _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(p + 32)));
    const __m512i own = _mm512_and_si512(_mm512_srli_epi32(panel_load(p + 64), (unsigned)(4 * j)),
                                         _mm512_set1_epi32(15));
    const __m512i more =
        _mm512_and_si512(_mm512_srli_epi32(high, (unsigned)(2 * j)), _mm512_set1_epi32(3));
    const __m512i scale =
        _mm512_sub_epi32(_mm512_or_si512(own, _mm512_slli_epi32(more, 4)), _mm512_set1_epi32(32));
    to->scale[0] = _mm512_mul_ps(panel_floats(p), _mm512_cvtepi32_ps(scale));
    panel_nibbles(p + 128 + 256 * j, to->codes);
#pragma GCC unroll 8
    for (int i = 0; i < BLOCK_WORDS; i++)
        to->codes[i] = panel_names(DTYPE_IQ4_XS, to->codes[i]);
}

/* Where unit i begins. */
ALWAYS_INLINE const unsigned char *panel_at(enum dtype type, const unsigned char *panel, int i) {
    return panel + (size_t)i * panel_unit_bytes(type);
}

/* Block j of the unit at p. */
ALWAYS_INLINE void panel_read(enum dtype type, const unsigned char *p, const int j,
                              struct panel_block *to) {
    if (!block_of_256(type)) panel_read_32(type, p, j, to);
    if (type == DTYPE_Q4_K) panel_q4_k(p, j, to);
    if (type == DTYPE_Q5_K) panel_q5_k(p, j, to);
    if (type == DTYPE_Q6_K) panel_q6_k(p, j, to);
    if (type == DTYPE_IQ4_XS) panel_iq4_xs(p, j, to);
}

/* ---- rows ---- */

/* Which of a panel's lanes are rows r to last - 1, and the row behind them. */
struct panel_place {
    const unsigned char *panel;
    int first, next;
    __mmask16 lanes;
};

ALWAYS_INLINE struct panel_place panel_place(const struct matrix *w, int r, int last) {
    const int first = r / PANEL_ROWS * PANEL_ROWS;
    const int next = last < first + PANEL_ROWS ? last : first + PANEL_ROWS;
    const unsigned lanes = (1u << (next - first)) - (1u << (r - first));
    return (struct panel_place){ w->panels + (size_t)(first / PANEL_ROWS) * panels_bytes(w), first,
                                 next, (__mmask16)lanes };
}

/* ---- sums ---- */

ALWAYS_INLINE __m512 panel_value(__m512 high, __m512 low) {
    return _mm512_fmadd_ps(high, _mm512_set1_ps(256), low);
}

/* Less what codes have too much; sum: of the vector's numbers. */
ALWAYS_INLINE __m512 panel_less(enum dtype type, __m512 value, float sum) {
    const float over = (float)panel_over(type);
    return over == 0 ? value : _mm512_fnmadd_ps(_mm512_set1_ps(over), _mm512_set1_ps(sum), value);
}

/* The sum with what a block adds to it: `value` of it, or of each half, and minima. `x`: the
 * vector's scale, the sum of its numbers and those of the halves'. */
ALWAYS_INLINE __m512 panel_add(enum dtype type, const struct panel_block *block,
                               const __m512 value[2], const float *x, __m512 sum) {
    __m512 own;
    if (block_halves(type)) {
        own = _mm512_mul_ps(panel_less(type, value[0], x[2]), block->scale[0]);
        own = _mm512_fmadd_ps(panel_less(type, value[1], x[3]), block->scale[1], own);
    } else {
        own = _mm512_mul_ps(panel_less(type, value[0], x[1]), block->scale[0]);
    }
    if (block_has_min(type)) own = _mm512_fmadd_ps(block->min, _mm512_set1_ps(x[1]), own);
    return _mm512_fmadd_ps(own, _mm512_set1_ps(x[0]), sum);
}

#endif
