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
    X(DTYPE_Q6_K, "q6_k", 256, 210)

enum dtype {
#define DTYPE_ENUM(name, text, n, bytes) name,
    DTYPE_LIST(DTYPE_ENUM)
#undef DTYPE_ENUM
        DTYPE_COUNT
};

const char *dtype_name(enum dtype type);   /* "q4_1" */
int dtype_block_elements(enum dtype type); /* 1, 32 or 256 */
int dtype_block_bytes(enum dtype type);

/* Bytes of n elements in a row; n must be a multiple of the block. */
static inline size_t dtype_row_bytes(enum dtype type, size_t n) {
    return n / (size_t)dtype_block_elements(type) * (size_t)dtype_block_bytes(type);
}

/* Widens n elements (a multiple of the block) starting at `row` to float32, exactly as the format
 * defines the value. `row` needs no alignment. */
void dtype_to_f32(enum dtype type, const void *row, float *out, size_t n);

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
