/* Arithmetic of a Gated DeltaNet that decoding and prompts share, because both must make the same of a position. */
#ifndef REEL_KERNELS_DELTA_MATH_CUH
#define REEL_KERNELS_DELTA_MATH_CUH

#include "maths.cuh"

#define L2_NORM_EPS 1e-6f /* added under the roots of q's and k's norms */

/* Returns log(1 + exp(x)). With e = exp(-|x|) it is max(x, 0) + 2 artanh(e / (2 + e)), whose argument is at most 1/3:
 * no digits are lost where e is small, as they would be in 1 + e. */
DEV float softplus(float x) {
    const float e = exp2_approx((x > 0 ? -x : x) * LOG2_E), t = e * rcp_approx(2.0f + e), z = t * t;
    const float series = 1.0f + z * (1.0f / 3 + z * (1.0f / 5 + z * (1.0f / 7 + z * (1.0f / 9 + z * (1.0f / 11)))));
    return (x > 0 ? x : 0) + 2.0f * t * series;
}

/* Returns exp(rate softplus(a + dt_bias)), the part of the state that is left; rate is -exp(A_log). */
DEV float state_left(float a, float rate, float dt_bias) { return exp2_approx(rate * softplus(a + dt_bias) * LOG2_E); }

/* A value of the state, moved on by a position. Written out: the compiler may make either product part of the addition,
 * and a draft that is paid for later (columns_delta.cuh) must leave the bits that it would have left at once. */
DEV float state_moved(float s, float left, float k, float learnt) {
#if defined(REEL_SIM)
    return left * s + learnt * k;
#else
    return __fmaf_rn(left, s, __fmul_rn(learnt, k));
#endif
}

#endif
