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

#define LOG2_E 1.44269504f
DEV float sigmoid(float x) { return rcp_approx(1.0f + exp2_approx(x * -LOG2_E)); }
DEV float silu(float x) { return x * rcp_approx(1.0f + exp2_approx(x * -LOG2_E)); }

#endif
