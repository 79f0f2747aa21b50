/* gate_up: this SM's rows of the gate and up projections times the normed h, then silu(gate) * up.
 *   reads    h (registers), completed by the sums of out
 *   writes   bf16 pairs to the group (docs/GLOSSARY.md), X_GATED */
#ifndef REEL_KERNELS_PHASE_GATE_UP_CUH
#define REEL_KERNELS_PHASE_GATE_UP_CUH

#include "phase_qkv.cuh"

DEV u64 *gated_words(const struct worker *w) { return w->a->words + X_GATED + w->group * (P_GROUP_INTERMEDIATE / 2); }

DEV void gate_up_consume(struct worker *w, const struct held *t, const float *h, const float *gain) {
    NORMED_PRODUCT(w, t, GATE_UP, h, gain, w->s->ssq[1]);
    gate_up_publish(w);
}

#endif
