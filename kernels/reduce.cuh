/* What the lanes of a warp do together: shuffles, votes, sums and maxima. All lanes of the warp call. */
#ifndef REEL_KERNELS_REDUCE_CUH
#define REEL_KERNELS_REDUCE_CUH

#include "maths.cuh"

#if defined(REEL_SIM)
#include "sim_device.h"
#else

DEV void warp_sync(void) { __syncwarp(); }
DEV u32 shuffle(u32 v, int lane) { return __shfl_sync(0xffffffffu, v, lane); }
DEV u32 shuffle_xor(u32 v, int mask) { return __shfl_xor_sync(0xffffffffu, v, mask); }
DEV u32 shuffle_down(u32 v, int delta) { return __shfl_down_sync(0xffffffffu, v, delta); }
DEV int warp_all(int yes) { return __all_sync(0xffffffffu, yes); }
DEV u32 warp_ballot(int yes) { return __ballot_sync(0xffffffffu, yes); }

#endif

/* ---- made of the above, the same on both sides ---- */

/* The largest of all lanes' numbers. */
DEV u32 warp_max(u32 v) {
#if !defined(REEL_SIM) && G_COPY >= 1
    u32 most;
    asm volatile("redux.sync.max.u32 %0, %1, 0xffffffff;" : "=r"(most) : "r"(v));
    return most;
#else
    UNROLL
    for (int i = 1; i < 32; i *= 2) {
        const u32 other = shuffle_xor(v, i);
        v = other > v ? other : v;
    }
    return v;
#endif
}

DEV float shuffle_float(float v, int lane) { return bits_float(shuffle(float_bits(v), lane)); }
DEV float shuffle_xor_float(float v, int mask) { return bits_float(shuffle_xor(float_bits(v), mask)); }
DEV float shuffle_down_float(float v, int d) { return bits_float(shuffle_down(float_bits(v), d)); }

/* Sum and maximum over the lanes whose numbers differ only in the bits from `from` on and below `to`; both are powers
 * of 2, so (1, 32) is all lanes. */
DEV float xor_sum(float v, int from, int to) {
    UNROLL
    for (int i = from; i < to; i *= 2)
        v += shuffle_xor_float(v, i);
    return v;
}
/* xor_sum over all lanes of n numbers at once, with the same additions in the same order; n is a power of 2, at most
 * LANES. v is used up. Each lane gets the sum of the number that xor_sums_which names. In the first steps a lane keeps
 * half of its numbers and hands the other half to the lane that keeps those, so that eight sums take 9 exchanges and
 * not 40. */
DEV float xor_sums(float *v, const int n, int lane) {
    UNROLL
    for (int i = 1; i < n; i *= 2) {
        UNROLL
        for (int k = 0; k < n / i / 2; k++) {
            const float low = v[k], high = v[k + n / i / 2];
            const float mine = lane & i ? high : low, other = lane & i ? low : high;
            v[k] = mine + shuffle_xor_float(other, i);
        }
    }
    return xor_sum(v[0], n, 32);
}
DEV int xor_sums_which(const int n, int lane) {
    int which = 0;
    UNROLL
    for (int i = 1; i < n; i *= 2)
        which += lane & i ? n / i / 2 : 0;
    return which;
}
DEV float xor_max(float v, int from, int to) {
    UNROLL
    for (int i = from; i < to; i *= 2)
        v = max_float(v, shuffle_xor_float(v, i));
    return v;
}

#endif
