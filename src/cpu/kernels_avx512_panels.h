/* 16 rows of a block format beside each other, for kernels_avx512.c and kernels_amx.c.
 *
 * A panel is up to four blocks of 16 rows: a lane is a row, and holds four codes at a time. Rows
 * are read as they lie, 16 bytes of each, and transposed. What a block of a row and one of a vector
 * come to is three whole numbers, one for each digit of the vector's, exact in whatever order they
 * are added up: on AVX-512 by vpdpbusd, on AMX in tiles. From there on both go the same way
 * (panel_value, panel_add), so that a column's bits depend neither on the number of columns nor on
 * which of the two it was. */
#ifndef REEL_CPU_KERNELS_AVX512_PANELS_H
#define REEL_CPU_KERNELS_AVX512_PANELS_H

#include "cpu/blocks.h"
#include "cpu/kernels.h"

#include <immintrin.h>

enum {
    PANEL_ROWS = 16,
    PANEL_BLOCKS = 4, /* of a group, whose sum is added to the row's at once */
    BLOCK_WORDS = BLOCK / 4
};

/* Tiles take codes as they are; those of four bits times 16 as well, behind which they stand.
 * vpdpbusd takes them without a sign, with `over` added. */
enum panel_form { PANEL_UNSIGNED, PANEL_TILES };

struct panel {
    __m512i codes[PANEL_BLOCKS][2 * BLOCK_WORDS];
    __m512 scales[PANEL_BLOCKS], mins[PANEL_BLOCKS];
};

/* What differs between the formats, all constant after inlining. */
struct block_layout {
    int bytes; /* of one block */
    int codes; /* offset of the codes */
    int bits;  /* offset of the 32 fifth bits, or 0 */
    int over;  /* what the codes, made unsigned, are too large by */
};

ALWAYS_INLINE struct block_layout block_layout(enum dtype type) {
    switch (type) {
    case DTYPE_Q4_0:
        return (struct block_layout){ 18, 2, 0, 8 };
    case DTYPE_Q4_1:
        return (struct block_layout){ 20, 4, 0, 0 };
    case DTYPE_Q5_0:
        return (struct block_layout){ 22, 6, 2, 16 };
    case DTYPE_Q5_1:
        return (struct block_layout){ 24, 8, 4, 0 };
    case DTYPE_Q8_0:
        return (struct block_layout){ 34, 2, 0, 128 };
    default:
        return (struct block_layout){ 0 };
    }
}

/* ---- rows to lanes ---- */

ALWAYS_INLINE __m512i low_bits(__m512i codes) {
    return _mm512_and_si512(codes, _mm512_set1_epi8(15));
}

/* 16 bytes of 16 rows, the first one's at p, as four words of each. */
ALWAYS_INLINE void panel_words(const unsigned char *p, size_t stride, __m512i words[4]) {
    __m512i r[4];
#pragma GCC unroll 4
    for (size_t j = 0; j < 4; j++) {
        const unsigned char *row = p + j * stride;
        r[j] = _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)row));
#pragma GCC unroll 3
        for (size_t i = 1; i < 4; i++)
            r[j] = _mm512_mask_broadcast_i32x4(
                r[j], (__mmask16)(0xf << 4 * i),
                _mm_loadu_si128((const __m128i *)(const void *)(row + 4 * i * stride)));
    }
    const __m512i a = _mm512_unpacklo_epi32(r[0], r[1]), b = _mm512_unpackhi_epi32(r[0], r[1]);
    const __m512i c = _mm512_unpacklo_epi32(r[2], r[3]), d = _mm512_unpackhi_epi32(r[2], r[3]);
    words[0] = _mm512_unpacklo_epi64(a, c);
    words[1] = _mm512_unpackhi_epi64(a, c);
    words[2] = _mm512_unpacklo_epi64(b, d);
    words[3] = _mm512_unpackhi_epi64(b, d);
}

/* The word at p of each of 16 rows. */
ALWAYS_INLINE __m512i panel_word(const unsigned char *p, size_t stride) {
    const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return _mm512_i32gather_epi32(_mm512_mullo_epi32(lanes, _mm512_set1_epi32((int)stride)), p, 1);
}

/* The halves in the lower parts of words. */
ALWAYS_INLINE __m512 panel_halves(__m512i words) {
    return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(words));
}

/* ---- blocks of 32 ---- */

/* Adds 16 to codes 4 i to 4 i + 3 where their bits are set. */
ALWAYS_INLINE __m512i panel_fifth(__m512i codes, __m512i bits, const int i) {
    const int at = i / 2;
    const __m512i own = _mm512_shuffle_epi8(
        bits, _mm512_set4_epi32(0x0c0c0c0c + 0x01010101 * at, 0x08080808 + 0x01010101 * at,
                                0x04040404 + 0x01010101 * at, 0x01010101 * at));
    const __m512i test = _mm512_set1_epi32(i % 2 ? (int)0x80402010u : 0x08040201);
    return _mm512_mask_add_epi8(codes, _mm512_test_epi8_mask(own, test), codes,
                                _mm512_set1_epi8(16));
}

/* Formats whose codes have four bits. */
ALWAYS_INLINE bool panel_is_narrow(enum dtype type) {
    return type == DTYPE_Q4_0 || type == DTYPE_Q4_1;
}

ALWAYS_INLINE __m512i panel_code(enum dtype type, __m512i code, const enum panel_form form) {
    const int over = block_layout(type).over;
    if (type == DTYPE_Q8_0)
        return form == PANEL_TILES ? code : _mm512_xor_si512(code, _mm512_set1_epi8((char)0x80));
    return form == PANEL_TILES && over ? _mm512_sub_epi8(code, _mm512_set1_epi8((char)over)) : code;
}

/* A code in the upper four bits, times 16; with `over` below 0. */
ALWAYS_INLINE __m512i panel_code_16(enum dtype type, __m512i code) {
    const __m512i own = _mm512_and_si512(code, _mm512_set1_epi8((char)0xf0));
    return block_layout(type).over ? _mm512_xor_si512(own, _mm512_set1_epi8((char)0x80)) : own;
}

/* Words of codes of one block; a word has four of eight bits, or four and the 16th from there on.
 */
ALWAYS_INLINE void panel_codes(enum dtype type, __m512i word, __m512i bits, const int i,
                               const enum panel_form form, __m512i *codes) {
    if (type == DTYPE_Q8_0) {
        codes[i] = panel_code(type, word, form);
        return;
    }
    __m512i *plain = codes;
    if (panel_is_narrow(type) && form == PANEL_TILES) {
        codes[i] = panel_code_16(type, _mm512_slli_epi16(word, 4));
        codes[i + 4] = panel_code_16(type, word);
        plain += BLOCK_WORDS;
    }
    __m512i low = low_bits(word), high = low_bits(_mm512_srli_epi16(word, 4));
    if (block_layout(type).bits) {
        low = panel_fifth(low, bits, i);
        high = panel_fifth(high, bits, i + 4);
    }
    plain[i] = panel_code(type, low, form);
    plain[i + 4] = panel_code(type, high, form);
}

ALWAYS_INLINE void panel_header(enum dtype type, __m512i word, struct panel *to, int b) {
    to->scales[b] = panel_halves(word);
    if (block_has_min(type)) to->mins[b] = panel_halves(_mm512_srli_epi32(word, 16));
}

/* One block, at p. */
ALWAYS_INLINE void panel_block(enum dtype type, const unsigned char *p, size_t stride,
                               const enum panel_form form, struct panel *to, int b) {
    const struct block_layout f = block_layout(type);
    const __m512i bits = f.bits ? panel_word(p + f.bits, stride) : _mm512_setzero_si512();
    panel_header(type, panel_word(p, stride), to, b);
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        __m512i words[4];
        if (i > 0 && type != DTYPE_Q8_0) break;
        panel_words(p + f.codes + 16 * i, stride, words);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            panel_codes(type, words[j], bits, 4 * i + j, form, to->codes[b]);
    }
}

/* Four blocks of whole words, at p. */
ALWAYS_INLINE void panel_words_of_four(enum dtype type, const unsigned char *p, size_t stride,
                                       const enum panel_form form, struct panel *to) {
    const struct block_layout f = block_layout(type);
    const int of_block = f.bytes / 4, header = f.codes / 4;
    __m512i bits = _mm512_setzero_si512();
#pragma GCC unroll 6
    for (int i = 0; i < of_block; i++) {
        __m512i words[4];
        panel_words(p + 16 * i, stride, words);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++) {
            const int b = (4 * i + j) / of_block, at = (4 * i + j) % of_block;
            if (at == 0)
                panel_header(type, words[j], to, b);
            else if (at < header)
                bits = words[j];
            else
                panel_codes(type, words[j], bits, at - header, form, to->codes[b]);
        }
    }
}

/* ---- a group of blocks ---- */

/* Where the panel of row r begins - matrices of fewer than 16 rows are taken one by one, as 16
 * times the same - and which of its lanes are rows r to last - 1. */
struct panel_place {
    const unsigned char *rows;
    size_t stride;
    int first, next; /* the row of lane 0; the row behind the last one */
    __mmask16 lanes;
};

ALWAYS_INLINE struct panel_place panel_place(const struct matrix *w, int r, int last) {
    const bool narrow = w->rows < PANEL_ROWS;
    const int rows = narrow ? 1 : PANEL_ROWS;
    const int first = r + rows <= w->rows ? r : w->rows - rows;
    const int next = last < first + rows ? last : first + rows;
    const unsigned lanes = (1u << (next - first)) - (1u << (r - first));
    return (struct panel_place){ w->data + (size_t)first * w->row_bytes, narrow ? 0 : w->row_bytes,
                                 first, next, (__mmask16)lanes };
}

/* Asks for what is as far behind the next panel's begin as block b of 16 rows of this one would be
 * if each had its blocks beside each other. Between sums: where many lines are asked for at once
 * everything waits. */
ALWAYS_INLINE void panel_fetch(enum dtype type, const struct panel_place *place, int b) {
    const size_t bytes = PANEL_ROWS * (size_t)block_layout(type).bytes;
    const unsigned char *next = place->rows + PANEL_ROWS * place->stride + (size_t)b * bytes;
#pragma GCC unroll 9
    for (size_t i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)next + i, _MM_HINT_T0);
}

/* Blocks at to at + n - 1. */
ALWAYS_INLINE void panel_group(enum dtype type, const struct panel_place *place, int at,
                               const int n, const enum panel_form form, struct panel *to) {
    const size_t bytes = (size_t)block_layout(type).bytes;
    const unsigned char *p = place->rows + (size_t)at * bytes;
    if (n == PANEL_BLOCKS && bytes % 4 == 0) {
        panel_words_of_four(type, p, place->stride, form, to);
        return;
    }
    for (int b = 0; b < n; b++)
        panel_block(type, p + (size_t)b * bytes, place->stride, form, to, b);
}

/* ---- sums ---- */

/* 256 * (256 * a + b) + c */
ALWAYS_INLINE __m512 panel_value(__m512 a, __m512 b, __m512 c) {
    const __m512 lower = _mm512_fmadd_ps(b, _mm512_set1_ps(256), c);
    return _mm512_fmadd_ps(a, _mm512_set1_ps(65536), lower);
}

/* 4096 * a + b: with codes of four bits the same, as both are rounded once, at the end. */
ALWAYS_INLINE __m512 panel_narrow_value(__m512 a, __m512 b) {
    return _mm512_fmadd_ps(a, _mm512_set1_ps(4096), b);
}

/* The sum of a group with what block b adds to it: `value`, in units of both scales, and its
 * minima. `x`: the vector's scale and the sum of its numbers. */
ALWAYS_INLINE __m512 panel_add(enum dtype type, const struct panel *panel, int b, __m512 value,
                               const float *x, __m512 sum) {
    __m512 own = _mm512_mul_ps(value, panel->scales[b]);
    if (block_has_min(type)) own = _mm512_fmadd_ps(panel->mins[b], _mm512_set1_ps(x[1]), own);
    return _mm512_fmadd_ps(own, _mm512_set1_ps(x[0]), sum);
}

#endif
