/* mix: this SM's q, k, v and z rows of a Gated DeltaNet times the normed h (group, word: docs/GLOSSARY.md).
 *   reads    h (registers)
 *   writes   pairs of 24-bit floats to the group, X_MIX, one word for two rows: [q of the group's key heads][k]
 *            [v of its value heads][z]; q, k and v have been through the convolution and silu
 *
 * A channel's convolution needs that channel's last inputs alone. So the epilogue thread that has the channel's row
 * keeps them, in the session's memory: what it stores, the same thread reads at the next token.
 *
 * The weights of a and b, two rows for each value head, are not in the tape. Each SM makes a and b of the heads that
 * it has units of (phase_delta.cuh), as plain dot products. The warps leave partial sums in block_shared.gates, which
 * the consumers read after a barrier. In the next layer these sums are written again by warps that have down's sums:
 * down needs gate_up of all blocks, gate_up needs out of all blocks, and this block hands in out after all its warps
 * have read. So one buffer is enough, as it is for the norm's sum of squares, which delta reads as well.
 *
 * One buffer for X_MIX is enough: a block that stores the next DeltaNet's words has the sums of down of every reader,
 * and a reader hands in down after it has read. */
#ifndef REEL_KERNELS_PHASE_MIX_CUH
#define REEL_KERNELS_PHASE_MIX_CUH

#include "delta_layout.h"
#include "delta_math.cuh"
#include "phase_qkv.cuh"

enum {
    MIX_GROUP_ROWS = 2 * P_GROUP_KEY + 2 * P_GROUP_VALUE,
    GROUP_CHANNELS = 2 * P_GROUP_KEY + P_GROUP_VALUE, /* rows before those of z */
    VALUE_HEAD_UNITS = M_VALUE_DIM / P_DELTA_UNIT     /* units of a value head */
};

DEV struct delta_layout delta_here(void) {
    struct delta_layout d;
    d.hidden = M_HIDDEN, d.taps = M_TAPS;
    d.key_heads = M_KEY_HEADS, d.value_heads = M_VALUE_HEADS, d.key_dim = M_KEY_DIM, d.value_dim = M_VALUE_DIM;
    return d;
}
DEV const float *delta_constants_of(const struct worker *w, int nth) {
    const struct delta_layout layout = delta_here();
    return w->a->delta.constants + (size_t)nth * (size_t)delta_constants(&layout);
}

DEV u64 *mix_words(const struct worker *w) { return w->a->words + X_MIX + w->group * (MIX_GROUP_ROWS / 2); }

/* ---- a and b ---- */

enum {
    GATE_REGISTERS = GATE_SLOTS * 2 * SLICE,
    EARLY_GATES = GATE_REGISTERS <= 8, /* their weights come from memory, behind the tape's stream */
    GATES_HELD = EARLY_GATES ? GATE_SLOTS : 1
};

/* Returns the value head of the group whose a and b slot n of block_shared.gates holds. */
DEV int gate_head(const struct worker *w, int n) {
    const int unit = w->member + n * P_GROUP_SMS;
    if (!GATES_BY_TURN) return n;
    return unit < P_DELTA_UNITS ? unit / VALUE_HEAD_UNITS : 0;
}

/* Loads this warp's slice of the two rows of slot n. */
DEV void gate_load(const struct worker *w, int n, u32 (*g)[SLICE]) {
    const struct delta_layout layout = delta_here();
    const int head = w->group * P_GROUP_VALUE_HEADS + gate_head(w, n);
    const u32 *row = (const u32 *)(w->a->delta.gates + delta_gate(&layout, delta_nth(w->layer), head, 0));
    UNROLL
    for (int i = 0; i < SLICE; i++) {
        const int word = i * LANES + w->lane, pair = w->warp * SLICE_WORDS + word;
        const int have = word < SLICE_WORDS && pair < M_HIDDEN / 2;
        g[0][i] = have ? const_load32(row + pair) : 0;
        g[1][i] = have ? const_load32(row + M_HIDDEN / 2 + pair) : 0;
    }
}

/* Loads the rows of all slots while there is time, if there are registers for them. */
DEV void gates_load(const struct worker *w, u32 (*g)[2][SLICE]) {
    UNROLL
    for (int n = 0; n < GATES_HELD; n++)
        if (EARLY_GATES) gate_load(w, n, g[n]);
}

/* This lane's part of a and b. */
DEV void gate_part(u32 (*g)[SLICE], const float *h, const float *gain, float *a, float *b) {
    *a = *b = 0;
    UNROLL
    for (int i = 0; i < SLICE; i++) {
        const float x = h[2 * i] * gain[2 * i], y = h[2 * i + 1] * gain[2 * i + 1];
        *a += bf16_low(g[0][i]) * x + bf16_high(g[0][i]) * y;
        *b += bf16_low(g[1][i]) * x + bf16_high(g[1][i]) * y;
    }
}

#if P_COLUMNS == 1
DEV void gate_dot(struct worker *w, int n, u32 (*g)[SLICE], const float *h, const float *gain) {
    float a, b;
    gate_part(g, h, gain, &a, &b);
    a = xor_sum(a, 1, LANES), b = xor_sum(b, 1, LANES);
    if (w->lane == 0) w->s->gates[n][0][w->warp] = a, w->s->gates[n][1][w->warp] = b;
}

/* Makes a and b after the warp has handed in mix's sums: the epilogue, which has no use for a and b, need not wait for
 * them. */
DEV void gates_dot(struct worker *w, u32 (*g)[2][SLICE], const float *h, const float *gain) {
    if (EARLY_GATES) {
        UNROLL
        for (int n = 0; n < GATES_HELD; n++)
            gate_dot(w, n, g[n], h, gain);
    } else {
        NO_UNROLL
        for (int n = 0; n < GATE_SLOTS; n++) {
            gate_load(w, n, g[0]);
            gate_dot(w, n, g[0], h, gain);
        }
    }
}

/* ---- the product ---- */

DEV void mix_consume(struct worker *w, const struct held *t, const float *h, const float *gain) {
    NORMED_PRODUCT(w, t, MIX, h, gain, w->s->ssq[0]);
    parts_done(w);
}
#endif

/* ---- the convolution ---- */

enum {
    MIX_TURNS = (P_MIX_ROW_TILES * TILE_ROWS + P_EPILOGUE_WARPS * LANES - 1) / (P_EPILOGUE_WARPS * LANES),
    MIX_EARLY = MIX_TURNS < 2 ? MIX_TURNS : 2 /* rows of a thread whose taps and inputs it asks for early */
};

struct convolution {
    float tap[M_TAPS], past[M_TAPS - 1]; /* oldest first */
    u32 *window;                         /* where `past` lies in memory; NULL for a row of z */
};

/* Returns the model's number of the group's channel `local`. Both count q heads first, then k heads, then v heads. */
DEV int channel_of(const struct worker *w, int local) {
    const int is_k = local >= P_GROUP_KEY, is_v = local >= 2 * P_GROUP_KEY;
    if (is_v) return 2 * M_KEY_HEADS * M_KEY_DIM + w->group * P_GROUP_VALUE + local - 2 * P_GROUP_KEY;
    return is_k * (M_KEY_HEADS * M_KEY_DIM) + w->group * P_GROUP_KEY + local - is_k * P_GROUP_KEY;
}

#if P_COLUMNS == 1
/* Loads taps and past inputs of row `mine` of this SM. */
DEV void convolution_load(const struct worker *w, int mine, struct convolution *c) {
    const int local = w->member * P_MIX_ROWS + mine, have = mine < P_MIX_ROWS && local < GROUP_CHANNELS;
    const struct delta_layout layout = delta_here();
    const int nth = delta_nth(w->layer), channel = have ? channel_of(w, local) : 0;
    const float *taps = delta_constants_of(w, nth) + delta_taps_offset(&layout) + channel * M_TAPS;
    u32 *window = (u32 *)w->a->delta.window + delta_window(&layout, nth, channel);
    c->window = have ? window : 0;
    UNROLL
    for (int i = 0; i < M_TAPS; i++)
        c->tap[i] = have ? const_loadf(taps + i) : 0;
    UNROLL
    for (int i = 0; i < M_TAPS - 1; i++)
        c->past[i] = have ? bits_float(plain_load32(window + i)) : 0;
}
#endif

DEV float convolved(const struct convolution *c, float x) {
    float sum = 0;
    UNROLL
    for (int i = 0; i < M_TAPS - 1; i++)
        sum += c->tap[i] * c->past[i];
    return c->window ? silu(sum + c->tap[M_TAPS - 1] * x) : x;
}

DEV void window_move(const struct convolution *c, float x) {
    if (!c->window) return;
    UNROLL
    for (int i = 0; i < M_TAPS - 1; i++)
        plain_store32(c->window + i, float_bits(i < M_TAPS - 2 ? c->past[i + 1] : x));
}

/* Returns the row of this thread in its turn n. */
DEV int mix_row(const struct worker *w, int n) {
    return n * (P_EPILOGUE_WARPS * LANES) + (w->warp - WARP_EPILOGUE) * LANES + w->lane;
}

#if P_COLUMNS == 1
DEV void mix_row_publish(struct worker *w, int n, const struct convolution *c, float scale) {
    const int mine = mix_row(w, n), first = w->member * P_MIX_ROWS;
    const int row = mine < P_MIX_ROW_TILES * TILE_ROWS ? mine : 0;
    const float x = row_sum(w->s->part[0], row, P_MIX_K_PARTS) * scale;
    publish_pair24(w, mix_words(w) + first / 2, mine, mine < P_MIX_ROWS ? MIX_GROUP_ROWS - first : 0, convolved(c, x));
    window_move(c, x);
}

DEV void mix_publish(struct worker *w) {
    struct convolution c[MIX_EARLY];
    UNROLL
    for (int n = 0; n < MIX_EARLY; n++)
        convolution_load(w, mix_row(w, n), &c[n]);
    parts_wait(w);
    const float scale = norm_scale(w->s->ssq[0]);
    UNROLL
    for (int n = 0; n < MIX_EARLY; n++)
        mix_row_publish(w, n, &c[n], scale);
    NO_UNROLL
    for (int n = MIX_EARLY; n < MIX_TURNS; n++) {
        convolution_load(w, mix_row(w, n), &c[0]);
        mix_row_publish(w, n, &c[0], scale);
    }
}
#endif

#endif
