/* Arithmetic of attention that decoding and prompts share, because both must make the same of a position. */
#ifndef REEL_KERNELS_ATTENTION_MATH_CUH
#define REEL_KERNELS_ATTENTION_MATH_CUH

#include "maths.cuh"
#include "mma.cuh"

#define ATTENTION_NEVER (-1e30f) /* the largest score m, where there is no position at all */

/* Returns two values of the result as a pair of bf16, after their gates where the model has gates. */
DEV u32 gated_pair(float low, float high, u32 gates) {
    return M_GATED ? bf16_pair(low * sigmoid(bf16_low(gates)), high * sigmoid(bf16_high(gates))) : bf16_pair(low, high);
}

/* Makes sine and cosine of an angle from 0 to 2^20, to a little more than half a unit in the last place. */
DEV void sine_cosine(float angle, float *sine, float *cosine) {
    const int turns = (int)((double)angle * 0.63661977236758134308 + 0.5);
    const double r = (double)angle - (double)turns * 1.57079632679489661923, z = r * r;
    const double s =
        r + r * z * (-1.0 / 6 + z * (1.0 / 120 + z * (-1.0 / 5040 + z * (1.0 / 362880 - z * (1.0 / 39916800)))));
    const double c =
        1.0 + z * (-0.5 + z * (1.0 / 24 +
                               z * (-1.0 / 720 + z * (1.0 / 40320 + z * (-1.0 / 3628800 + z * (1.0 / 479001600))))));
    const double a = turns & 1 ? c : s, b = turns & 1 ? s : c;
    *sine = (float)(turns & 2 ? -a : a);
    *cosine = (float)((turns + 1) & 2 ? -b : b);
}

/* Applies the gains g to two words of a q or k row, rotates them and multiplies them with `factor`. The words have dims
 * d and d + 1 and the two that lie M_ROTARY / 2 further on; g has the gains in that order. */
DEV void pair_rotate(u32 *first, u32 *second, const float *g, const float *cosine, const float *sine, float factor) {
    const u32 low = *first, high = *second;
    float y[4];
    y[0] = bf16_low(low) * (g[0] * cosine[0]) - bf16_low(high) * (g[2] * sine[0]);
    y[1] = bf16_high(low) * (g[1] * cosine[1]) - bf16_high(high) * (g[3] * sine[1]);
    y[2] = bf16_low(high) * (g[2] * cosine[0]) + bf16_low(low) * (g[0] * sine[0]);
    y[3] = bf16_high(high) * (g[3] * cosine[1]) + bf16_high(low) * (g[1] * sine[1]);
    *first = bf16_pair(y[0] * factor, y[1] * factor), *second = bf16_pair(y[2] * factor, y[3] * factor);
}

#endif
