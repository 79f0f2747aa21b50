/* delta: the step of a Gated DeltaNet for one token (group, word, state: docs/GLOSSARY.md).
 *   reads    the group's q, k, v and z words, X_MIX; this SM's sums for a and b
 *   writes   bf16 pairs of the group's value columns in block_shared.attention; the state in the session's memory
 *
 * Units of P_DELTA_UNIT value columns are dealt to the SMs of the group: member m has units m, m + P_GROUP_SMS
 * and so on. KEY_LANES lanes share a column of the state S, and each holds KEY_ROWS of its key rows. A lane loads
 * these rows from the session's memory while mix's words are on their way, and stores them there once they are made:
 * what a thread stores, it alone reads at the next token. The warps that use q and k norm them. With s = S^T k and
 * r = S^T q of the old state, one reading of the state is enough:
 *
 *     d = beta (v - left s),   o = left r + (k . q) d,   S = left S + k d^T
 *
 * An SM publishes o as it is, X_DELTA, in pairs of 24-bit floats. out needs all of the group's columns, and the norm
 * whole heads. So every SM gathers all heads, norms them and multiplies them with silu(z), which it gathers as well.
 *
 * The phase begins with a barrier behind which all warps of the block have handed in mix. The warps would wait for
 * words of other SMs there anyway. The barrier has two reasons: behind it all sums for a and b are there; and words of
 * other SMs tell nothing of this block's warps, which without it might be two phases behind.
 *
 * One buffer for X_DELTA is enough, for the same reason as for X_MIX (phase_mix.cuh): a block stores its columns
 * behind that barrier, so all its warps have the sums of down of all readers. */
#ifndef REEL_KERNELS_PHASE_DELTA_CUH
#define REEL_KERNELS_PHASE_DELTA_CUH

#include "exchange.cuh"
#include "mma.cuh"
#include "phase_mix.cuh"
#include "profile.cuh"

enum {
    KEY_LANES = M_KEY_DIM <= 8    ? 1
                : M_KEY_DIM <= 16 ? 2
                : M_KEY_DIM <= 32 ? 4
                : M_KEY_DIM <= 64 ? 8
                                  : 16,
    KEY_QUADS = (M_KEY_DIM + 4 * KEY_LANES - 1) / (4 * KEY_LANES), /* quads of 4 key rows that a lane has */
    KEY_ROWS = 4 * KEY_QUADS,
    WARP_COLUMNS = LANES / KEY_LANES,
    BLOCK_COLUMNS = P_WARPS * WARP_COLUMNS,     /* that a block takes at a time */
    DELTA_COLUMNS = DELTA_TURNS * P_DELTA_UNIT, /* that an SM has at most */
    DELTA_PASSES = (DELTA_COLUMNS + BLOCK_COLUMNS - 1) / BLOCK_COLUMNS,
    DELTA_BATCH = MIN(DELTA_PASSES, 2), /* passes whose state is asked for at once */
    HEAD_WORDS = M_VALUE_DIM / 2,
    HEAD_TURNS = (HEAD_WORDS + LANES - 1) / LANES,
    /* Each warp gathers just the head that it multiplies with in out. */
    OWN_HEADS = P_GROUP_VALUE_HEADS == P_WARPS && P_OUT_K_PARTS == P_WARPS && P_OUT_WARP_K * TILE_K == M_VALUE_DIM
};
STATIC_ASSERT(M_KEY_DIM % 4 == 0 && M_VALUE_DIM % 2 == 0 && P_DELTA_UNIT % 2 == 0 && M_VALUE_DIM % P_DELTA_UNIT == 0,
              "words and 16 bytes hold whole pairs and quads of rows");

DEV u64 *delta_words(const struct worker *w) { return w->a->words + X_DELTA + w->group * (P_GROUP_VALUE / 2); }

/* ---- one column ---- */

struct delta_column {
    int there;            /* this lane has one */
    int column, key_head; /* of the group */
    int slot;             /* place of its head's a and b in block_shared.gates */
    float rate, dt_bias;
    float s[KEY_ROWS];
};

/* Returns the first of the 4 key rows of this lane's quad i; neighbouring lanes have neighbouring quads. */
DEV int quad_row(const struct worker *w, int i) { return (i * KEY_LANES + w->lane % KEY_LANES) * 4; }

/* Returns where the state of the group's value column `column` lies. */
DEV float *state_column(const struct worker *w, int column) {
    const struct delta_layout layout = delta_here();
    const int head = w->group * P_GROUP_VALUE_HEADS + column / M_VALUE_DIM;
    return w->a->delta.state + delta_state(&layout, delta_nth(w->layer), head, column % M_VALUE_DIM);
}

/* Asks for what this lane's column of a pass needs and what does not depend on the token: state and constants. */
DEV void column_ask(const struct worker *w, int pass, struct delta_column *c) {
    const struct delta_layout layout = delta_here();
    const int i = pass * BLOCK_COLUMNS + w->warp * WARP_COLUMNS + w->lane / KEY_LANES, turn = i / P_DELTA_UNIT;
    const int unit = w->member + turn * P_GROUP_SMS;
    c->there = i < DELTA_COLUMNS && unit < P_DELTA_UNITS;
    c->column = c->there ? unit * P_DELTA_UNIT + i % P_DELTA_UNIT : 0;
    const int head = c->column / M_VALUE_DIM;
    c->key_head = head / (P_GROUP_VALUE_HEADS / P_GROUP_KEY_HEADS);
    c->slot = GATES_BY_TURN ? (c->there ? turn : 0) : head;
    const float *constants = delta_constants_of(w, delta_nth(w->layer)) + w->group * P_GROUP_VALUE_HEADS + head;
    const struct quad *from = (const struct quad *)state_column(w, c->column);
    UNROLL
    for (int n = 0; n < KEY_QUADS; n++) {
        struct quad v;
        v.x = v.y = v.z = v.w = 0;
        if (c->there && quad_row(w, n) < M_KEY_DIM) v = own_load128(from + quad_row(w, n) / 4);
        c->s[4 * n] = bits_float(v.x), c->s[4 * n + 1] = bits_float(v.y);
        c->s[4 * n + 2] = bits_float(v.z), c->s[4 * n + 3] = bits_float(v.w);
    }
    c->rate = const_loadf(constants), c->dt_bias = const_loadf(constants + delta_bias_offset(&layout));
}

/* ---- its input ---- */

struct delta_input {
    u64 q[KEY_QUADS][2], k[KEY_QUADS][2], v;
};

DEV int pair_is(const u64 *words, u32 epoch) { return word_is24(words[0], epoch) & word_is24(words[1], epoch); }
DEV u32 pair_off(const u64 *words, u32 epoch) { return word_off24(words[0], epoch) | word_off24(words[1], epoch); }

/* Waits for q, k and v of the columns of a batch. */
DEV void inputs_poll(struct worker *w, const struct delta_column *c, struct delta_input *in) {
    const u64 *from = mix_words(w);
    u32 polls = 0;
    UNROLL
    for (int p = 0; p < DELTA_BATCH; p++) {
        in[p].v = (u64)(w->epoch & 0xffffu) << 48;
        UNROLL
        for (int n = 0; n < KEY_QUADS; n++)
            in[p].q[n][0] = in[p].q[n][1] = in[p].k[n][0] = in[p].k[n][1] = in[p].v;
    }
    NO_UNROLL
    for (;;) {
        u32 off = 0;
        UNROLL
        for (int p = 0; p < DELTA_BATCH; p++) {
            const u64 *q = from + c[p].key_head * (M_KEY_DIM / 2), *k = q + P_GROUP_KEY / 2;
            if (!c[p].there) continue;
            UNROLL
            for (int n = 0; n < KEY_QUADS; n++) {
                const int word = quad_row(w, n) / 2;
                if (quad_row(w, n) >= M_KEY_DIM) continue;
                if (!polls || !pair_is(in[p].q[n], w->epoch)) word_load2(q + word, &in[p].q[n][0], &in[p].q[n][1]);
                if (!polls || !pair_is(in[p].k[n], w->epoch)) word_load2(k + word, &in[p].k[n][0], &in[p].k[n][1]);
            }
            if (!polls || !word_is24(in[p].v, w->epoch)) in[p].v = word_load(from + P_GROUP_KEY + c[p].column / 2);
        }
        UNROLL
        for (int p = 0; p < DELTA_BATCH; p++) {
            off |= word_off24(in[p].v, w->epoch);
            UNROLL
            for (int n = 0; n < KEY_QUADS; n++)
                off |= pair_off(in[p].q[n], w->epoch) | pair_off(in[p].k[n], w->epoch);
        }
        if (warp_all(off == 0 || w->dead)) break;
        wait_failed(w, &polls, WAIT_MIX, w->epoch & 0xffffu, (u32)(in[0].v >> 48));
    }
}

/* ---- its step ---- */

/* Makes beta, and the part of the state that is left, of a head. ssq: of its column's h; ab: the warps' parts of a and
 * of b. */
DEV void head_gates(const float *ssq, const float (*ab)[PART_STRIDE(P_WARPS)], float rate, float dt_bias, float *beta,
                    float *left) {
    const float scale = norm_scale(ssq);
    const float a = sum_run(ab[0], P_WARPS) * scale, b = sum_run(ab[1], P_WARPS) * scale;
    *beta = sigmoid(b), *left = state_left(a, rate, dt_bias);
}

DEV float key_sum(float v) { return xor_sum(v, 1, KEY_LANES); }

/* Moves the column's state on in registers (column_keep stores it) and returns the column's o. */
DEV float column_step(struct worker *w, struct delta_column *c, const struct delta_input *in, float beta, float left) {
    float q[KEY_ROWS], k[KEY_ROWS], qq = 0, kk = 0, kq = 0, sk = 0, sq = 0;
    UNROLL
    for (int i = 0; i < KEY_ROWS; i++) {
        const u64 *from_q = in->q[i / 4], *from_k = in->k[i / 4];
        q[i] = i % 2 ? float24_high(from_q[i % 4 / 2]) : float24_low(from_q[i % 4 / 2]);
        k[i] = i % 2 ? float24_high(from_k[i % 4 / 2]) : float24_low(from_k[i % 4 / 2]);
        qq += q[i] * q[i], kk += k[i] * k[i], kq += k[i] * q[i];
        sk += c->s[i] * k[i], sq += c->s[i] * q[i];
    }
    qq = key_sum(qq), kk = key_sum(kk), kq = key_sum(kq), sk = key_sum(sk), sq = key_sum(sq);
    const float norm_q = rsqrt_approx((qq + L2_NORM_EPS) * M_KEY_DIM), norm_k = rsqrt_approx(kk + L2_NORM_EPS);
    const float v = c->column % 2 ? float24_high(in->v) : float24_low(in->v);
    const float d = beta * (v - left * (norm_k * sk)), learnt = norm_k * d;
    UNROLL
    for (int i = 0; i < KEY_ROWS; i++)
        c->s[i] = state_moved(c->s[i], left, k[i], learnt);
    return norm_q * (left * sq + learnt * kq);
}

DEV void column_keep(struct worker *w, const struct delta_column *c) {
    struct quad *to = (struct quad *)state_column(w, c->column);
    UNROLL
    for (int n = 0; n < KEY_QUADS; n++) {
        struct quad v;
        v.x = float_bits(c->s[4 * n]), v.y = float_bits(c->s[4 * n + 1]);
        v.z = float_bits(c->s[4 * n + 2]), v.w = float_bits(c->s[4 * n + 3]);
        if (c->there && quad_row(w, n) < M_KEY_DIM) plain_store128(to + quad_row(w, n) / 4, v);
    }
}

#if P_COLUMNS == 1
/* ---- the group's columns ---- */

/* Makes norm(o) * gain * silu(z) of one head. z is there already, so what is made of it costs no time. */
DEV void head_finish(struct worker *w, int head, const float (*gain)[2]) {
    u64 v[HEAD_TURNS];
    float factor[HEAD_TURNS][2], ssq = 0;
    words_gather(w, mix_words(w) + GROUP_CHANNELS / 2 + head * HEAD_WORDS, v, HEAD_TURNS, HEAD_WORDS, 1, WAIT_MIX);
    UNROLL
    for (int n = 0; n < HEAD_TURNS; n++) {
        factor[n][0] = gain[n][0] * silu(float24_low(v[n]));
        factor[n][1] = gain[n][1] * silu(float24_high(v[n]));
    }
    words_gather(w, delta_words(w) + head * HEAD_WORDS, v, HEAD_TURNS, HEAD_WORDS, 1, WAIT_DELTA);
    UNROLL
    for (int n = 0; n < HEAD_TURNS; n++)
        ssq += float24_low(v[n]) * float24_low(v[n]) + float24_high(v[n]) * float24_high(v[n]);
    const float scale = rsqrt_approx(xor_sum(ssq, 1, LANES) * (1.0f / M_VALUE_DIM) + M_RMS_EPS);
    UNROLL
    for (int n = 0; n < HEAD_TURNS; n++) {
        const int word = n * LANES + w->lane;
        const float low = float24_low(v[n]) * scale * factor[n][0], high = float24_high(v[n]) * scale * factor[n][1];
        if (word < HEAD_WORDS) w->s->attention[head * HEAD_WORDS + word] = bf16_pair(low, high);
    }
}

/* ---- the phase ---- */

/* A warp asks early for what does not depend on the token: before it waits for mix's input, where there are registers
 * for it beside mix's tiles, else before it waits for out's tiles. */
enum {
    DELTA_REGISTERS = DELTA_BATCH * (KEY_ROWS + 6) + 2 * HEAD_TURNS,
    BESIDE_TILES = (G_REGISTERS ? P_REGISTERS_CONSUMER : 65536 / P_THREADS) - 4 * PRELOAD(MIX) - 8 * SLICE,
    EARLY_STATE = BESIDE_TILES - DELTA_REGISTERS >= 92 /* with less the compiler was seen to spill */
};
struct delta_early {
    struct delta_column c[DELTA_BATCH];
    float gain[HEAD_TURNS][2];
};

DEV void delta_ask(const struct worker *w, struct delta_early *e) {
    const struct delta_layout layout = delta_here();
    const float *norm = delta_constants_of(w, delta_nth(w->layer)) + delta_norm_offset(&layout);
    UNROLL
    for (int p = 0; p < DELTA_BATCH; p++)
        column_ask(w, p, &e->c[p]);
    UNROLL
    for (int n = 0; n < HEAD_TURNS; n++) {
        const int word = n * LANES + w->lane, have = word < HEAD_WORDS;
        e->gain[n][0] = have ? const_loadf(norm + 2 * word) : 0;
        e->gain[n][1] = have ? const_loadf(norm + 2 * word + 1) : 0;
    }
}

DEV void columns_step(struct worker *w, struct delta_column *c, int first) {
    struct delta_input in[DELTA_BATCH];
    float beta[DELTA_BATCH], left[DELTA_BATCH];
    UNROLL
    for (int p = 0; p < DELTA_BATCH; p++)
        head_gates(w->s->ssq[0], w->s->gates[c[p].slot], c[p].rate, c[p].dt_bias, &beta[p], &left[p]);
    inputs_poll(w, c, in);
    if (first) profile_layer(w, MARK_DELTA_INPUT);
    UNROLL
    for (int p = 0; p < DELTA_BATCH; p++) {
        const float o = column_step(w, &c[p], &in[p], beta[p], left[p]);
        const float next = bits_float(shuffle_down(float_bits(o), KEY_LANES));
        if (c[p].there && c[p].column % 2 == 0 && w->lane % KEY_LANES == 0)
            word_store(delta_words(w) + c[p].column / 2, word_make24(o, next, w->epoch));
    }
    UNROLL
    for (int p = 0; p < DELTA_BATCH; p++)
        column_keep(w, &c[p]);
}

DEV void delta_consume(struct worker *w, struct delta_early *e) {
    consumers_sync();
    columns_step(w, e->c, 1);
    NO_UNROLL
    for (int first = DELTA_BATCH; first < DELTA_PASSES; first += DELTA_BATCH) {
        UNROLL
        for (int p = 0; p < DELTA_BATCH; p++)
            column_ask(w, first + p, &e->c[p]);
        columns_step(w, e->c, 0);
    }
    profile_layer(w, MARK_DELTA_OWN);
    NO_UNROLL
    for (int head = w->warp; head < P_GROUP_VALUE_HEADS; head += P_WARPS)
        head_finish(w, head, (const float(*)[2])e->gain);
    if (OWN_HEADS)
        warp_sync();
    else
        consumers_sync();
}
#endif

#endif
