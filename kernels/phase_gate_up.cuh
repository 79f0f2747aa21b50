/* gate_up: this SM's rows of the gate and up projections times the normed h, then silu(gate) * up.
 *   reads    h (registers), completed by the sums of out
 *   writes   bf16 pairs to the group (docs/GLOSSARY.md), X_GATED */
#ifndef REEL_KERNELS_PHASE_GATE_UP_CUH
#define REEL_KERNELS_PHASE_GATE_UP_CUH

#include "phase_qkv.cuh"

DEV u64 *gated_words(const struct worker *w) { return w->a->words + X_GATED + w->group * (P_GROUP_INTERMEDIATE / 2); }

DEV void gate_up_consume(struct worker *w, const struct held *t, const float *h, const float *gain) {
    NORMED_PRODUCT(w, t, GATE_UP, h, gain, w->s->ssq[1]);
    parts_done(w);
}

DEV void gate_up_publish(struct worker *w) {
    const struct block_shared *s = w->s;
    const int first = w->member * GATE_UP_PAIRS;
    u64 *to = gated_words(w) + first / 2;
    parts_wait(w);
    const float scale = norm_scale(s->ssq[1]);
    UNROLL
    for (int r = 0; r < GATE_UP_PAIRS; r += P_EPILOGUE_WARPS * LANES) {
        const int mine = r + (w->warp - WARP_EPILOGUE) * LANES + w->lane;
        const int row = mine < GATE_UP_PAIRS ? mine : 0;
        const float gate = row_sum(s->part[0], tape_pair_row(row, 0), P_GATE_UP_K_PARTS) * scale;
        const float up = row_sum(s->part[0], tape_pair_row(row, 1), P_GATE_UP_K_PARTS) * scale;
        publish_pair(w, to, mine, mine < GATE_UP_PAIRS ? P_GROUP_INTERMEDIATE - first : 0, silu(gate) * up);
    }
}

#endif
