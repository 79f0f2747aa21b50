/* Functions of one number, in the approximations that the GPU has. */
#ifndef REEL_KERNELS_MATHS_CUH
#define REEL_KERNELS_MATHS_CUH

#include "prelude.cuh"

#if defined(REEL_SIM)
#include "sim_device.h"
#else

DEV float exp2_approx(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEV float log2_approx(float x) {
    float y;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEV float rsqrt_approx(float x) { return rsqrtf(x); }
DEV float rcp_approx(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

#endif

/* ---- made of the above, the same on both sides ---- */

#if defined(REEL_SIM)
DEV float rcp_approx(float x) { return 1.0f / x; }
#endif
DEV float max_float(float a, float b) {
#if defined(REEL_SIM)
    return a > b ? a : b;
#else
    return fmaxf(a, b); /* one instruction */
#endif
}
/* The number of the lowest bit that is set, of a number that is not 0. */
DEV int lowest_bit(u32 x) {
#if defined(REEL_SIM)
    return __builtin_ctz(x);
#else
    return __ffs((int)x) - 1;
#endif
}

/* a * b + c, rounded once. */
DEV float fma_float(float a, float b, float c) {
#if defined(REEL_SIM)
    return __builtin_fmaf(a, b, c);
#else
    return fmaf(a, b, c);
#endif
}

/* Two bf16 numbers times a power of two, plus a number; the results are bf16 numbers. */
DEV u32 bf16_scaled(u32 pair, float factor, float add) {
#if defined(REEL_SIM) || G_COPY == 0
    const u32 low = float_bits(bf16_low(pair) * factor + add), high = float_bits(bf16_high(pair) * factor + add);
    return low >> 16 | (high & 0xffff0000u);
#else
    const u32 f = float_bits(factor) >> 16, a = float_bits(add) >> 16;
    u32 d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(pair), "r"(f | f << 16), "r"(a | a << 16));
    return d;
#endif
}

/* a - b of two bf16 numbers each; the results are bf16 numbers. */
DEV u32 bf16_less(u32 a, u32 b) {
#if defined(REEL_SIM) || G_COPY == 0
    const u32 low = float_bits(bf16_low(a) - bf16_low(b)), high = float_bits(bf16_high(a) - bf16_high(b));
    return low >> 16 | (high & 0xffff0000u);
#else
    u32 d;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(b), "r"(0xbf80bf80u), "r"(a));
    return d;
#endif
}

/* Four bytes of eight: byte i is number (which >> 4 * i & 7), where a has the numbers 0 to 3 and b 4 to 7. */
DEV u32 bytes_pick(u32 a, u32 b, u32 which) {
#if defined(REEL_SIM)
    const u64 all = (u64)b << 32 | a;
    u32 r = 0;
    for (int i = 0; i < 4; i++)
        r |= (u32)(all >> (which >> 4 * i & 7) * 8 & 0xff) << 8 * i;
    return r;
#else
    u32 r;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "r"(which));
    return r;
#endif
}

/* What an fp16 number is worth. */
DEV float f16_value(u32 x) {
#if defined(REEL_SIM)
    const u32 sign = (x & 0x8000u) << 16, exponent = x >> 10 & 31, fraction = x & 0x3ff;
    if (exponent == 31) return bits_float(sign | 0x7f800000u | fraction << 13);
    if (exponent) return bits_float(sign | (exponent + 112) << 23 | fraction << 13);
    return bits_float(sign | float_bits((float)fraction * 5.9604644775390625e-8f));
#else
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((u16)x));
    return f;
#endif
}

#define LOG2_E 1.44269504f
DEV float sigmoid(float x) { return rcp_approx(1.0f + exp2_approx(x * -LOG2_E)); }
DEV float silu(float x) { return x * rcp_approx(1.0f + exp2_approx(x * -LOG2_E)); }

#endif
