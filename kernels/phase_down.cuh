/* down: the down projection of the group's columns (docs/GLOSSARY.md).
 *   reads    the group's gated words, X_GATED
 *   writes   partial sums to all SMs: the group's vector of X_DOWN_SUM
 *   split    hidden / group_sms rows an SM */
#ifndef REEL_KERNELS_PHASE_DOWN_CUH
#define REEL_KERNELS_PHASE_DOWN_CUH

#include "phase_gate_up.cuh"
#include "phase_out.cuh"
#include "profile.cuh"

DEV void down_consume(struct worker *w, const struct held *t) {
    const int first = w->warp % P_DOWN_K_PARTS * (P_DOWN_WARP_K * 8);
    u32 x[XWORDS(DOWN)];
    enum {
        LONG = (SLICE > 4 || DIGITS(P_DOWN_FORMAT)) && XWORDS(DOWN) > 4 &&
               P_GROUP_INTERMEDIATE == P_DOWN_K_PARTS * P_DOWN_WARP_K * TILE_K
    };
    int have = LONG ? P_DOWN_WARP_K * 8 : P_GROUP_INTERMEDIATE / 2 - first; /* as with LONG_SLICES */
    if (have > P_DOWN_WARP_K * 8) have = P_DOWN_WARP_K * 8;
    gather_pairs(w, gated_words(w) + first, x, P_DOWN_WARP_K * 8, have, WAIT_GATED);
    profile_layer(w, MARK_DOWN_INPUT);
    GROUP_PRODUCT(w, t, DOWN, x);
    down_publish(w);
}

#endif
