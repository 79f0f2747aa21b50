/* Element types: the byte layouts of docs/MODEL_llama.md, widened one block at a time. Scales are
 * multiplied in the order the formats' own reference does, so that results agree to the bit. */
#include "model/dtype.h"

#include <string.h>

/* Mapped weights are used where they lie: every file format that reel reads is little-endian. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "reel needs a little-endian machine");

struct dtype_traits {
    const char *name;
    int block_elements;
    int block_bytes;
};

static const struct dtype_traits traits[DTYPE_COUNT] = {
#define TRAITS(id, text, n, bytes) [id] = { text, n, bytes },
    DTYPE_LIST(TRAITS)
#undef TRAITS
};

const char *dtype_name(enum dtype type) { return traits[type].name; }
int dtype_block_elements(enum dtype type) { return traits[type].block_elements; }
int dtype_block_bytes(enum dtype type) { return traits[type].block_bytes; }

static uint32_t bits_of(float x) {
    uint32_t bits = 0;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits) {
    float x = 0;
    memcpy(&x, &bits, sizeof x);
    return x;
}

uint16_t bf16_from_f32(float x) {
    uint32_t bits = bits_of(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return (uint16_t)((bits >> 16) | 0x40); /* quiet NaN */
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16);
}

float f16_to_f32(uint16_t x) {
    uint32_t sign = (uint32_t)(x & 0x8000) << 16;
    uint32_t exponent = (x >> 10) & 31;
    uint32_t fraction = x & 0x3ff;
    if (exponent == 31) return float_of(sign | 0x7f800000u | fraction << 13);
    if (exponent) return float_of(sign | (exponent + 112) << 23 | fraction << 13);
    float subnormal = (float)fraction * 0x1p-24f; /* exact: ten bits */
    return float_of(sign | bits_of(subnormal));
}

uint16_t f16_from_f32(float x) {
    uint32_t bits = bits_of(x);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00 | (magnitude >> 13 & 0x1ff)); /* quiet NaN */
    if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00);   /* 65520 and more round up */
    if (magnitude < 0x38800000u) {
        /* Below 2^-14 the result counts steps of 2^-24; adding 0.5 puts that step at the last bit
         * of the sum, so the addition itself rounds to nearest even. */
        uint32_t steps = bits_of(float_of(magnitude) + 0.5f) - 0x3f000000u;
        return (uint16_t)(sign | steps);
    }
    uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1);
    return (uint16_t)(sign | ((rounded >> 13) - (112u << 10)));
}

static uint16_t u16_at(const unsigned char *p) { return (uint16_t)(p[0] | p[1] << 8); }
static float f16_at(const unsigned char *p) { return f16_to_f32(u16_at(p)); }

static uint32_t u32_at(const unsigned char *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void widen_f32(const unsigned char *block, float *out) { *out = float_of(u32_at(block)); }
static void widen_f16(const unsigned char *block, float *out) { *out = f16_at(block); }
static void widen_bf16(const unsigned char *block, float *out) {
    *out = bf16_to_f32(u16_at(block));
}

static void widen_q8_0(const unsigned char *block, float *out) {
    float d = f16_at(block);
    for (int i = 0; i < 32; i++)
        out[i] = (float)(int8_t)block[2 + i] * d;
}

/* The 32-element types of 4 and 5 bits share one order: the low nibble of byte i is element i, the
 * high nibble element i + 16. */
static void widen_q4_0(const unsigned char *block, float *out) {
    float d = f16_at(block);
    for (int i = 0; i < 16; i++) {
        int byte = block[2 + i];
        out[i] = (float)((byte & 15) - 8) * d;
        out[i + 16] = (float)((byte >> 4) - 8) * d;
    }
}

static void widen_q4_1(const unsigned char *block, float *out) {
    float d = f16_at(block), m = f16_at(block + 2);
    for (int i = 0; i < 16; i++) {
        int byte = block[4 + i];
        out[i] = (float)(byte & 15) * d + m;
        out[i + 16] = (float)(byte >> 4) * d + m;
    }
}

static void widen_q5_0(const unsigned char *block, float *out) {
    float d = f16_at(block);
    uint32_t high = u32_at(block + 2);
    for (int i = 0; i < 16; i++) {
        int byte = block[6 + i];
        int low_bit = (int)(high >> i & 1), high_bit = (int)(high >> (i + 16) & 1);
        out[i] = (float)(((byte & 15) | low_bit << 4) - 16) * d;
        out[i + 16] = (float)(((byte >> 4) | high_bit << 4) - 16) * d;
    }
}

static void widen_q5_1(const unsigned char *block, float *out) {
    float d = f16_at(block), m = f16_at(block + 2);
    uint32_t high = u32_at(block + 4);
    for (int i = 0; i < 16; i++) {
        int byte = block[8 + i];
        int low_bit = (int)(high >> i & 1), high_bit = (int)(high >> (i + 16) & 1);
        out[i] = (float)((byte & 15) | low_bit << 4) * d + m;
        out[i + 16] = (float)((byte >> 4) | high_bit << 4) * d + m;
    }
}

/* Six-bit scale and minimum of sub-block j < 8, packed into 12 bytes. */
static void k_scale_min(const unsigned char *packed, int j, int *scale, int *min) {
    if (j < 4) {
        *scale = packed[j] & 63;
        *min = packed[j + 4] & 63;
    } else {
        *scale = (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
        *min = packed[j + 4] >> 4 | (packed[j] >> 6) << 4;
    }
}

/* Q4_K and Q5_K: eight sub-blocks of 32. Sub-blocks 2p and 2p + 1 share 32 bytes of nibbles; bit j
 * of fifth[i] is the fifth bit of element i of sub-block j. */
static void widen_k45(const unsigned char *block, const unsigned char *fifth,
                      const unsigned char *nibbles, float *out) {
    float d = f16_at(block), dmin = f16_at(block + 2);
    for (int j = 0; j < 8; j++) {
        int scale = 0, min = 0;
        k_scale_min(block + 4, j, &scale, &min);
        float step = d * (float)scale, offset = dmin * (float)min;
        const unsigned char *bytes = nibbles + (size_t)(j / 2) * 32;
        for (int i = 0; i < 32; i++) {
            int q = j & 1 ? bytes[i] >> 4 : bytes[i] & 15;
            if (fifth) q |= (fifth[i] >> j & 1) << 4;
            out[j * 32 + i] = step * (float)q - offset;
        }
    }
}

static void widen_q4_k(const unsigned char *block, float *out) {
    widen_k45(block, NULL, block + 16, out);
}

static void widen_q5_k(const unsigned char *block, float *out) {
    widen_k45(block, block + 16, block + 48, out);
}

/* Sixteen sub-blocks of 16 with int8 scales. Of each half of 128 elements, quarter k takes its four
 * low bits from bytes[32 * (k & 1)] (low nibble for k < 2) and its two high bits from bits 2k. */
static void widen_q6_k(const unsigned char *block, float *out) {
    float d = f16_at(block + 208);
    for (size_t half = 0; half < 2; half++) {
        const unsigned char *low = block + half * 64, *high = block + 128 + half * 32;
        const unsigned char *scales = block + 192 + half * 8;
        for (size_t k = 0; k < 4; k++) {
            for (size_t i = 0; i < 32; i++) {
                int byte = low[32 * (k & 1) + i];
                int q = (k < 2 ? byte & 15 : byte >> 4) | (high[i] >> 2 * k & 3) << 4;
                float step = d * (float)(int8_t)scales[2 * k + i / 16];
                out[half * 128 + k * 32 + i] = step * (float)(q - 32);
            }
        }
    }
}

/* Sixteen sub-blocks of 16, each with four bits of scale and four of minimum. Of each half of 128
 * elements, quarter k lies in bits 2k of the half's 32 bytes. */
static void widen_q2_k(const unsigned char *block, float *out) {
    float d = f16_at(block + 80), dmin = f16_at(block + 82);
    for (size_t half = 0; half < 2; half++) {
        const unsigned char *bytes = block + 16 + half * 32, *scales = block + half * 8;
        for (size_t k = 0; k < 4; k++)
            for (size_t i = 0; i < 32; i++) {
                int both = scales[2 * k + i / 16];
                float step = d * (float)(both & 15), offset = dmin * (float)(both >> 4);
                out[half * 128 + k * 32 + i] = step * (float)(bytes[i] >> 2 * k & 3) - offset;
            }
    }
}

/* The same with a third bit apart, clear where 4 is taken off, and six bits of scale. */
static void widen_q3_k(const unsigned char *block, float *out) {
    float d = f16_at(block + 108);
    for (size_t half = 0; half < 2; half++) {
        const unsigned char *bytes = block + 32 + half * 32;
        for (size_t k = 0; k < 4; k++)
            for (size_t i = 0; i < 32; i++) {
                size_t sub = half * 8 + 2 * k + i / 16;
                float step = d * (float)dtype_q3_k_scale(block + 96, (int)sub);
                int q = (bytes[i] >> 2 * k & 3) - (block[i] >> (half * 4 + k) & 1 ? 0 : 4);
                out[half * 128 + k * 32 + i] = step * (float)q;
            }
    }
}

const int8_t dtype_iq4_values[16] = { -127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113 };
const int8_t dtype_fp4_values[16] = { 0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12 };

/* n bytes: the low nibbles, then the high ones. */
static void widen_codes(const int8_t *values, float step, const unsigned char *bytes, int n,
                        float *out) {
    for (int i = 0; i < n; i++) {
        out[i] = step * (float)values[bytes[i] & 15];
        out[i + n] = step * (float)values[bytes[i] >> 4];
    }
}

static void widen_iq4_nl(const unsigned char *block, float *out) {
    widen_codes(dtype_iq4_values, f16_at(block), block + 2, 16, out);
}

static void widen_iq4_xs(const unsigned char *block, float *out) {
    float d = f16_at(block);
    for (int j = 0; j < 8; j++)
        widen_codes(dtype_iq4_values, d * (float)dtype_iq4_xs_scale(block, j),
                    block + 8 + (size_t)j * 16, 16, out + (size_t)j * 32);
}

static void widen_mxfp4(const unsigned char *block, float *out) {
    widen_codes(dtype_fp4_values, dtype_mxfp4_scale(block[0]), block + 1, 16, out);
}

/* Four sub-blocks of 16 with a scale each. */
static void widen_nvfp4(const unsigned char *block, float *out) {
    for (int j = 0; j < 4; j++)
        widen_codes(dtype_fp4_values, dtype_nvfp4_scale(block[j]), block + 4 + (size_t)j * 8, 8,
                    out + (size_t)j * 16);
}

typedef void (*widen_fn)(const unsigned char *block, float *out);

static const widen_fn widen[DTYPE_COUNT] = {
    [DTYPE_F32] = widen_f32,     [DTYPE_F16] = widen_f16,       [DTYPE_BF16] = widen_bf16,
    [DTYPE_Q8_0] = widen_q8_0,   [DTYPE_Q4_0] = widen_q4_0,     [DTYPE_Q4_1] = widen_q4_1,
    [DTYPE_Q5_0] = widen_q5_0,   [DTYPE_Q5_1] = widen_q5_1,     [DTYPE_Q4_K] = widen_q4_k,
    [DTYPE_Q5_K] = widen_q5_k,   [DTYPE_Q6_K] = widen_q6_k,     [DTYPE_Q2_K] = widen_q2_k,
    [DTYPE_Q3_K] = widen_q3_k,   [DTYPE_IQ4_NL] = widen_iq4_nl, [DTYPE_IQ4_XS] = widen_iq4_xs,
    [DTYPE_MXFP4] = widen_mxfp4, [DTYPE_NVFP4] = widen_nvfp4,
};

void dtype_to_f32(enum dtype type, const void *row, float *out, size_t n) {
    const unsigned char *block = row;
    size_t elements = (size_t)traits[type].block_elements, bytes = (size_t)traits[type].block_bytes;
    for (size_t i = 0; i < n; i += elements, block += bytes)
        widen[type](block, out + i);
}
