/* out: the output projection of the group's columns (docs/GLOSSARY.md).
 *   reads    attention's result, or a DeltaNet's, in shared memory
 *   writes   partial sums to all SMs: the group's vector of X_OUT_SUM
 *   split    hidden / group_sms rows an SM */
#ifndef REEL_KERNELS_PHASE_OUT_CUH
#define REEL_KERNELS_PHASE_OUT_CUH

#include "exchange.cuh"
#include "publish.cuh"

/* A phase over the group's columns, from x, this warp's slice of the input, to its partial sums. */
#define GROUP_PRODUCT(w, t, S, x)                                                                                      \
    do {                                                                                                               \
        if (DIGITS(P_##S##_FORMAT)) {                                                                                  \
            u32 *digits = group_digits(w, (w)->warp % P_##S##_K_PARTS * P_##S##_WARP_K);                               \
            const float unit = pairs_digits(w, digits, x, P_##S##_WARP_K * 8, P_##S##_K_PARTS);                        \
            PHASE_DIGITS(w, t, S, digits, unit, (w)->s->part[1], 0, 0);                                                \
        } else {                                                                                                       \
            phase_product(w, t, PRELOAD(S), x, (w)->s->part[1], P_##S##_WARP_ROWS, P_##S##_HALF, P_##S##_WARP_K,       \
                          P_##S##_K_PARTS, P_##S##_FORMAT, 0, 0);                                                      \
        }                                                                                                              \
    } while (0)

/* Where the digits of k tile k of the group's input lie. */
DEV u32 *group_digits(const struct worker *w, int k) {
#if GROUP_DIGITS
    return w->s->digits + k / 2 * DIGIT_STEP;
#else
    return (void)w, (void)k, (u32 *)0;
#endif
}

DEV void out_consume(struct worker *w, const struct held *t) {
    const u32 *from = w->s->attention + w->warp % P_OUT_K_PARTS * (P_OUT_WARP_K * 8);
    u32 x[XWORDS(OUT)];
    UNROLL
    for (int i = 0; i < XWORDS(OUT); i++)
        x[i] = i * LANES + w->lane < P_OUT_WARP_K * 8 ? from[i * LANES + w->lane] : 0;
    GROUP_PRODUCT(w, t, OUT, x);
    out_publish(w);
}

#endif
