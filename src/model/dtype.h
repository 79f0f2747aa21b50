/* Element types of stored tensors: sizes, names, and widening to float32. */
#ifndef REEL_MODEL_DTYPE_H
#define REEL_MODEL_DTYPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* name, text, elements per block, bytes per block */
#define DTYPE_LIST(X)                                                                              \
    X(DTYPE_F32, "f32", 1, 4)                                                                      \
    X(DTYPE_F16, "f16", 1, 2)                                                                      \
    X(DTYPE_BF16, "bf16", 1, 2)                                                                    \
    X(DTYPE_Q8_0, "q8_0", 32, 34)                                                                  \
    X(DTYPE_Q4_0, "q4_0", 32, 18)                                                                  \
    X(DTYPE_Q4_1, "q4_1", 32, 20)                                                                  \
    X(DTYPE_Q5_0, "q5_0", 32, 22)                                                                  \
    X(DTYPE_Q5_1, "q5_1", 32, 24)                                                                  \
    X(DTYPE_Q4_K, "q4_k", 256, 144)                                                                \
    X(DTYPE_Q5_K, "q5_k", 256, 176)                                                                \
    X(DTYPE_Q6_K, "q6_k", 256, 210)                                                                \
    X(DTYPE_Q2_K, "q2_k", 256, 84)                                                                 \
    X(DTYPE_Q3_K, "q3_k", 256, 110)                                                                \
    X(DTYPE_IQ4_NL, "iq4_nl", 32, 18)                                                              \
    X(DTYPE_IQ4_XS, "iq4_xs", 256, 136)                                                            \
    X(DTYPE_MXFP4, "mxfp4", 32, 17)                                                                \
    X(DTYPE_NVFP4, "nvfp4", 64, 36)

enum dtype {
#define DTYPE_ENUM(name, text, n, bytes) name,
    DTYPE_LIST(DTYPE_ENUM)
#undef DTYPE_ENUM
        DTYPE_COUNT
};

const char *dtype_name(enum dtype type);   /* "q4_1" */
int dtype_block_elements(enum dtype type); /* 1, 32, 64 or 256 */
int dtype_block_bytes(enum dtype type);

/* Bytes of n elements in a row; n must be a multiple of the block. */
static inline size_t dtype_row_bytes(enum dtype type, size_t n) {
    return n / (size_t)dtype_block_elements(type) * (size_t)dtype_block_bytes(type);
}

/* Widens n elements (a multiple of the block) starting at `row` to float32, exactly as the format
 * defines the value. `row` needs no alignment. */
void dtype_to_f32(enum dtype type, const void *row, float *out, size_t n);

/* The values that the codes of 4 bits stand for: those of IQ4_NL and IQ4_XS, and those of MXFP4 and
 * NVFP4, which are floats of 4 bits times 2. */
extern const int8_t dtype_iq4_values[16], dtype_fp4_values[16];

/* Half of an MXFP4 block's scale, 2^(code - 128), of which the two smallest are subnormal; and half
 * of an NVFP4 one's, which has four bits of exponent and three of fraction. The values above are
 * doubled. As ggml has them: no code is a NaN (of NVFP4 that one is worth 0), and NVFP4's sign bit
 * counts for nothing. */
static inline float dtype_mxfp4_scale(uint8_t code) {
    union {
        uint32_t bits;
        float value;
    } u = { .bits = code < 2 ? 0x00200000u << code : (uint32_t)(code - 1) << 23 };
    return u.value;
}
static inline float dtype_nvfp4_scale(uint8_t code) {
    const uint32_t exponent = code >> 3 & 15, fraction = code & 7;
    union {
        uint32_t bits;
        float value;
    } u = { .bits = (exponent + 119) << 23 | fraction << 20 };
    if (code == 0x7f) return 0;
    return exponent ? u.value : (float)fraction * 0x1p-10f;
}

/* The scale of sub-block j < 16 of Q3_K, of the 12 bytes that hold them, and of sub-block j < 8 of
 * an IQ4_XS block, as integers with a sign. */
static inline int dtype_q3_k_scale(const unsigned char *packed, int j) {
    const int low = packed[j % 8] >> (j < 8 ? 0 : 4) & 15;
    return (low | (packed[8 + j % 4] >> 2 * (j / 4) & 3) << 4) - 32;
}
static inline int dtype_iq4_xs_scale(const unsigned char *block, int j) {
    const int high = block[2] | block[3] << 8;
    return ((block[4 + j / 2] >> 4 * (j % 2) & 15) | (high >> 2 * j & 3) << 4) - 32;
}

/* bf16 and fp16 scalars. Rounding is to nearest even; NaN stays NaN. */
uint16_t bf16_from_f32(float x);
uint16_t f16_from_f32(float x);
float f16_to_f32(uint16_t x);
static inline float bf16_to_f32(uint16_t x) {
    union {
        uint32_t bits;
        float value;
    } u = { .bits = (uint32_t)x << 16 };
    return u.value;
}

#endif
