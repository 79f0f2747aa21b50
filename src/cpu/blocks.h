/* The block formats of GGUF, 32 elements at a time, as small integers with scale and minimum:
 *   value = scale * q + min
 * Each function computes the scale and minimum exactly as dtype_to_f32 does. Layouts: ggml's
 * block_* structs, described in docs/MODEL_llama.md. */
#ifndef REEL_CPU_BLOCKS_H
#define REEL_CPU_BLOCKS_H

#include "model/dtype.h"

#include <string.h>
#if defined(__F16C__) || defined(__SSSE3__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

struct block {
    int8_t q[32];
    float scale[2]; /* of each half: they differ where block_halves says so */
    float min[2];   /* likewise, in Q2_K alone */
};

#define ALWAYS_INLINE static inline __attribute__((always_inline))

ALWAYS_INLINE float block_half(const unsigned char *p) {
    uint16_t h;
    memcpy(&h, p, sizeof h);
#if defined(__F16C__)
    return _cvtsh_ss(h);
#elif defined(__aarch64__)
    __fp16 half;
    memcpy(&half, p, sizeof half);
    return (float)half;
#else
    return f16_to_f32(h);
#endif
}

/* 16 quants at a time in the compiler's vector types, which every target has. */
typedef uint8_t block_bytes __attribute__((vector_size(16)));

ALWAYS_INLINE block_bytes block_load(const unsigned char *p) {
    block_bytes v;
    memcpy(&v, p, sizeof v);
    return v;
}
ALWAYS_INLINE void block_store(int8_t *p, block_bytes v) { memcpy(p, &v, sizeof v); }

/* 16 where bit i of `bits` is set, else 0. */
ALWAYS_INLINE block_bytes block_fifth(uint32_t bits) {
    const block_bytes one = { 1, 2, 4, 8, 16, 32, 64, 128, 1, 2, 4, 8, 16, 32, 64, 128 };
    typedef uint64_t block_words __attribute__((vector_size(16)));
    const block_words halves = { (bits & 255) * 0x0101010101010101u,
                                 (bits >> 8 & 255) * 0x0101010101010101u };
    const block_bytes spread = (block_bytes)halves;
    return (block_bytes)((spread & one) == one) & 16;
}

/* Whether the scale changes every 16 elements. */
ALWAYS_INLINE bool block_halves(enum dtype type) {
    return type == DTYPE_Q6_K || type == DTYPE_Q2_K || type == DTYPE_Q3_K || type == DTYPE_NVFP4;
}

/* Whether the format has a minimum for 32 elements: y = scale q . x + min (sum of x). Q2_K has one
 * for 16, and block sums say nothing of them. */
ALWAYS_INLINE bool block_has_min(enum dtype type) {
    return type == DTYPE_Q4_1 || type == DTYPE_Q5_1 || type == DTYPE_Q4_K || type == DTYPE_Q5_K;
}

ALWAYS_INLINE bool block_format(enum dtype type) {
    return type != DTYPE_F32 && type != DTYPE_F16 && type != DTYPE_BF16;
}

/* Low nibbles are elements 0 to 15, high ones 16 to 31; bit i of qh is bit 4 of element i. */
ALWAYS_INLINE void block_nibbles(const unsigned char *qs, bool fifth, uint32_t qh, int offset,
                                 int8_t *q) {
    block_bytes packed = block_load(qs), low = packed & 15, high = packed >> 4;
    if (fifth) {
        low |= block_fifth(qh);
        high |= block_fifth(qh >> 16);
    }
    block_store(q, low - (uint8_t)offset);
    block_store(q + 16, high - (uint8_t)offset);
}

/* What 16 codes of 4 bits stand for. */
ALWAYS_INLINE block_bytes block_look_up(const int8_t *values, block_bytes codes) {
    const block_bytes table = block_load((const unsigned char *)values);
#if defined(__SSSE3__)
    return (block_bytes)_mm_shuffle_epi8((__m128i)table, (__m128i)codes);
#elif defined(__aarch64__)
    return (block_bytes)vqtbl1q_u8((uint8x16_t)table, (uint8x16_t)codes);
#else
    block_bytes out;
    for (int i = 0; i < 16; i++)
        out[i] = table[codes[i]];
    return out;
#endif
}

/* Two runs of 8 bytes of codes: the low nibbles of each, then its high ones. */
ALWAYS_INLINE void block_nvfp4(const unsigned char *p, int half, struct block *out) {
    for (int i = 0; i < 2; i++) {
        const int sub = 2 * half + i;
        typedef uint64_t block_words __attribute__((vector_size(16)));
        uint64_t packed;
        memcpy(&packed, p + 4 + 8 * sub, sizeof packed);
        const block_words codes = { packed & 0x0f0f0f0f0f0f0f0fu,
                                    packed >> 4 & 0x0f0f0f0f0f0f0f0fu };
        block_store(out->q + 16 * i, block_look_up(dtype_fp4_values, (block_bytes)codes));
        out->scale[i] = dtype_nvfp4_scale(p[sub]);
    }
}

ALWAYS_INLINE void block_codes(const int8_t *values, const unsigned char *qs, int8_t *q) {
    const block_bytes packed = block_load(qs);
    block_store(q, block_look_up(values, packed & 15));
    block_store(q + 16, block_look_up(values, packed >> 4));
}

/* Two bits of each element of a quarter: bytes [32] of its half, in place k. */
ALWAYS_INLINE block_bytes block_two_bits(const unsigned char *bytes, int i, int k) {
    return block_load(bytes + i) >> 2 * k & 3;
}

ALWAYS_INLINE void block_q2_k(const unsigned char *p, int j, struct block *out) {
    const unsigned char *bytes = p + 16 + 32 * (j / 4);
    const float d = block_half(p + 80), dmin = block_half(p + 82);
    for (int i = 0; i < 2; i++) {
        const int both = p[2 * j + i];
        out->scale[i] = d * (float)(both & 15);
        out->min[i] = -(dmin * (float)(both >> 4));
        block_store(out->q + 16 * i, block_two_bits(bytes, 16 * i, j & 3));
    }
}

ALWAYS_INLINE void block_q3_k(const unsigned char *p, int j, struct block *out) {
    const unsigned char *bytes = p + 32 + 32 * (j / 4);
    const float d = block_half(p + 108);
    for (int i = 0; i < 2; i++) {
        const block_bytes third = block_load(p + 16 * i) >> j & 1;
        out->scale[i] = d * (float)dtype_q3_k_scale(p + 96, 2 * j + i);
        block_store(out->q + 16 * i, (block_two_bits(bytes, 16 * i, j & 3) | third << 2) - 4);
    }
}

/* The j-th of eight 6-bit scales and minima that Q4_K and Q5_K pack into 12 bytes. */
ALWAYS_INLINE void block_k_scale(const unsigned char *s, int j, int *scale, int *min) {
    if (j < 4) {
        *scale = s[j] & 63;
        *min = s[j + 4] & 63;
    } else {
        *scale = (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
        *min = s[j + 4] >> 4 | (s[j] >> 6) << 4;
    }
}

ALWAYS_INLINE void block_q4_q5_k(bool five, const unsigned char *p, int j, struct block *out) {
    int scale, min;
    block_k_scale(p + 4, j, &scale, &min);
    out->scale[0] = out->scale[1] = block_half(p) * (float)scale;
    out->min[0] = -(block_half(p + 2) * (float)min);
    const unsigned char *qh = p + 16;
    const unsigned char *qs = qh + (five ? 32 : 0) + 32 * (j / 2);
    int shift = 4 * (j & 1);
    for (int i = 0; i < 32; i += 16) {
        block_bytes q = block_load(qs + i) >> shift & 15;
        if (five) q |= (block_load(qh + i) >> j & 1) << 4;
        block_store(out->q + i, q);
    }
}

ALWAYS_INLINE void block_q6_k(const unsigned char *p, int j, struct block *out) {
    const unsigned char *ql = p + 64 * (j / 4) + 32 * (j & 1), *qh = p + 128 + 32 * (j / 4);
    const signed char *scales = (const signed char *)p + 192 + 2 * j;
    float d = block_half(p + 208);
    out->scale[0] = d * (float)scales[0];
    out->scale[1] = d * (float)scales[1];
    int low_shift = j & 2 ? 4 : 0, high_shift = 2 * (j & 3);
    for (int i = 0; i < 32; i += 16) {
        block_bytes low = block_load(ql + i) >> low_shift & 15;
        block_bytes high = (block_load(qh + i) >> high_shift & 3) << 4;
        block_store(out->q + i, (low | high) - 32);
    }
}

/* Bytes of 32 elements, about: what a prefetch goes by. */
ALWAYS_INLINE size_t block_stride(enum dtype type) {
#define BLOCK_STRIDE(name, text, elements, bytes)                                                  \
    if (type == name) return (bytes)*32u / (elements);
    DTYPE_LIST(BLOCK_STRIDE)
#undef BLOCK_STRIDE
    return 0;
}

/* Bytes of one of the file's blocks. */
ALWAYS_INLINE size_t block_file_bytes(enum dtype type) {
#define FILE_BYTES(name, text, elements, bytes)                                                    \
    if (type == name) return (bytes);
    DTYPE_LIST(FILE_BYTES)
#undef FILE_BYTES
    return 0;
}

/* Block `index` & 7 of a superblock of 256. */
ALWAYS_INLINE void block_unpack_k(enum dtype type, const unsigned char *row, int index,
                                  struct block *out) {
    const unsigned char *p = row + (size_t)(index / 8) * block_file_bytes(type);
    const int j = index & 7;
    if (type == DTYPE_Q2_K) block_q2_k(p, j, out);
    if (type == DTYPE_Q3_K) block_q3_k(p, j, out);
    if (type == DTYPE_Q4_K) block_q4_q5_k(false, p, j, out);
    if (type == DTYPE_Q5_K) block_q4_q5_k(true, p, j, out);
    if (type == DTYPE_Q6_K) block_q6_k(p, j, out);
    if (type == DTYPE_IQ4_XS) {
        block_codes(dtype_iq4_values, p + 8 + 16 * j, out->q);
        out->scale[0] = out->scale[1] = block_half(p) * (float)dtype_iq4_xs_scale(p, j);
    }
}

ALWAYS_INLINE bool block_of_256(enum dtype type) {
    return type == DTYPE_Q2_K || type == DTYPE_Q3_K || type == DTYPE_Q4_K || type == DTYPE_Q5_K ||
           type == DTYPE_Q6_K || type == DTYPE_IQ4_XS;
}

/* Elements 32 index to 32 index + 31 of a row. */
ALWAYS_INLINE void block_unpack(enum dtype type, const unsigned char *row, int index,
                                struct block *out) {
    uint32_t qh = 0;
    if (block_of_256(type)) {
        block_unpack_k(type, row, index, out);
        return;
    }
    if (type == DTYPE_NVFP4) {
        block_nvfp4(row + (size_t)(index / 2) * block_file_bytes(type), index & 1, out);
        return;
    }
    const unsigned char *p = row + (size_t)index * block_file_bytes(type);
    switch (type) {
    case DTYPE_Q8_0:
        memcpy(out->q, p + 2, 32);
        break;
    case DTYPE_Q4_0:
        block_nibbles(p + 2, false, 0, 8, out->q);
        break;
    case DTYPE_Q4_1:
        block_nibbles(p + 4, false, 0, 0, out->q);
        break;
    case DTYPE_Q5_0:
        memcpy(&qh, p + 2, 4);
        block_nibbles(p + 6, true, qh, 16, out->q);
        break;
    case DTYPE_Q5_1:
        memcpy(&qh, p + 4, 4);
        block_nibbles(p + 8, true, qh, 0, out->q);
        break;
    case DTYPE_IQ4_NL:
        block_codes(dtype_iq4_values, p + 2, out->q);
        break;
    case DTYPE_MXFP4:
        block_codes(dtype_fp4_values, p + 1, out->q);
        break;
    default:
        break;
    }
    out->scale[0] = out->scale[1] = type == DTYPE_MXFP4 ? dtype_mxfp4_scale(p[0]) : block_half(p);
    out->min[0] = type == DTYPE_Q4_1 || type == DTYPE_Q5_1 ? block_half(p + 2) : 0;
}

#endif
