/* Types and conversions that all kernels use. The kernels are written in the common subset of C17 and CUDA C++: NVRTC
 * compiles them for the GPU, and the simulator compiles the same text for the host (REEL_SIM).
 *
 * Constants come from the plan as -D options. M_ is what the model says, P_ what the plan decided, G_ what the GPU is
 * and T_ what tuning chose. src/plan/plan_constants.c makes the list. */
#ifndef REEL_KERNELS_PRELUDE_CUH
#define REEL_KERNELS_PRELUDE_CUH

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

#if defined(REEL_SIM)
#define DEV                  static inline __attribute__((unused))
#define DEV_CALL             static __attribute__((unused))
#define KERNEL(threads)      void
#define PAIR_KERNEL(threads) void
#define ALIGN(n)             __attribute__((aligned(n)))
#define UNROLL
#define NO_UNROLL
#define UNROLL_BY(n)
#define PARAMETER
#else
#define DEV                  __device__ static __forceinline__
#define DEV_CALL             __device__ static __noinline__
#define KERNEL(threads)      extern "C" __global__ void __launch_bounds__(threads, 1)
#define PAIR_KERNEL(threads) extern "C" __global__ void __launch_bounds__(threads, 2) /* blocks of an SM */
#define ALIGN(n)             __align__(n)
#define UNROLL               _Pragma("unroll")
#define NO_UNROLL            _Pragma("unroll 1")
#define PRAGMA(text)         _Pragma(#text)
#define UNROLL_BY(n)         PRAGMA(unroll n)
#define PARAMETER            __grid_constant__ /* its address may be taken without a copy */
#endif

#if defined(REEL_SIM)
#define STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#else
#define STATIC_ASSERT(condition, text) static_assert(condition, text)
#endif

enum { LANES = 32, ALL_LANES = -1 };

/* 16 bytes, as a lane reads them of a tile. */
struct ALIGN(16) quad {
    u32 x, y, z, w;
};

struct ALIGN(16) quad_float {
    float x, y, z, w;
};

/* Two words of a B fragment. */
struct ALIGN(8) pair {
    u32 low, high;
};

DEV u32 float_bits(float x) {
    union {
        float value;
        u32 bits;
    } u;
    u.value = x;
    return u.bits;
}

DEV float bits_float(u32 bits) {
    union {
        u32 bits;
        float value;
    } u;
    u.bits = bits;
    return u.value;
}

/* A pair holds two bf16 values; the one with the lower index is in the low half. */
DEV float bf16_low(u32 pair) { return bits_float(pair << 16); }
DEV float bf16_high(u32 pair) { return bits_float(pair & 0xffff0000u); }

/* 48 bits hold two floats of 24 bits: a sign, an exponent of 8 bits and 15 bits of fraction. */
DEV u64 float24_pair(float low, float high) {
    u64 a = (float_bits(low) + 128) >> 8, b = (float_bits(high) + 128) >> 8;
    return b << 24 | a;
}
DEV float float24(float x) { return bits_float((float_bits(x) + 128) & ~255u); } /* the same rounding */
DEV float float24_low(u64 word) { return bits_float((u32)word << 8); }
DEV float float24_high(u64 word) { return bits_float((u32)(word >> 24) << 8); }

/* The next epoch. Its low 16 bits are never zero, so that neither a 32-bit nor a 16-bit epoch can
 * be mistaken for cleared memory. */
DEV u32 epoch_next(u32 epoch) {
    epoch++;
    return epoch & 0xffffu ? epoch : epoch + 1;
}

#endif
