/* conv: what mix made of the chunk's tokens becomes q, k, v of the heads, and x becomes their gates.
 *   reads    qkv (q, k, v); x and ssq; the session's window; taps, gates' weights
 *   writes   delta.q, .k (normed, q divided by the root of its size), .v, zeros beyond the last token;
 *            delta.gates; the window for what comes next, and that before the last token
 *   split    gates: 8 tokens and 16 rows of weights over blocks, hidden over warps; the rest 8 tokens of some
 *            heads over warps, 8 channels a lane */
#ifndef REEL_KERNELS_PREFILL_DELTA_CONV_CUH
#define REEL_KERNELS_PREFILL_DELTA_CONV_CUH

#include "prefill_delta.cuh"

enum {
    CONV_PARTS = 2 * M_KEY_HEADS + M_VALUE_HEADS, /* heads: q, k, v */
    CONV_BLOCKS = KEY_BLOCKS > VALUE_BLOCKS ? KEY_BLOCKS : VALUE_BLOCKS,
    HEAD_LANES = CONV_BLOCKS <= 2 ? 2 : CONV_BLOCKS <= 4 ? 4 : CONV_BLOCKS <= 8 ? 8 : 16,
    WARP_HEADS = LANES / HEAD_LANES,
    CONV_TASKS = (CONV_PARTS + WARP_HEADS - 1) / WARP_HEADS, /* of 8 tokens */
    PAST = M_TAPS - 1,
    GATE_ROWS = 2 * M_VALUE_HEADS, /* a and b of each head */
    GATE_TILES = (GATE_ROWS + 15) / 16
};
/* e^-100 is nothing already; without a limit 64 of them would be too much to tell their differences from. */
#define DECAY_MOST 100.0f

/* ---- convolution ---- */

struct conv_part {
    int channel, dim, blocks; /* the first; columns; blocks, padding included */
    u8 *to;                   /* of its first chunk */
    size_t chunk_bytes;
    float scale; /* of the norm; 0: there is none */
};

DEV void conv_part_make(const struct reader *r, int part, struct conv_part *p) {
    const struct prefill_delta *d = &r->a->delta;
    const int is_v = part >= 2 * M_KEY_HEADS, is_k = part >= M_KEY_HEADS;
    const int head = is_v ? part - 2 * M_KEY_HEADS : part % M_KEY_HEADS;
    p->channel = is_v ? 2 * M_KEY_HEADS * M_KEY_DIM + head * M_VALUE_DIM : part * M_KEY_DIM;
    p->dim = is_v ? M_VALUE_DIM : M_KEY_DIM, p->blocks = is_v ? VALUE_BLOCKS : KEY_BLOCKS;
    p->chunk_bytes = is_v ? VALUES_BYTES : KEYS_BYTES;
    p->to = (is_v ? d->v : is_k ? d->k : d->q) + chunk_at(head, 0, p->chunk_bytes);
    p->scale = is_v ? 0 : is_k ? 1 : rsqrt_approx((float)M_KEY_DIM);
}

DEV size_t window_at(int nth, int channel) {
    const struct delta_layout d = delta_shape();
    return (size_t)delta_window(&d, nth, channel);
}

struct two_quads {
    struct quad rounded, rest;
};
DEV struct two_quads inputs_ask(const struct reader *r, int token, int channel) {
    const u16 *row = r->a->qkv + (size_t)token * MIX_WIDTH + channel;
    struct two_quads v;
    v.rounded = cached_load128((const struct quad *)row);
    v.rest = cached_load128((const struct quad *)(row + MIX_COLUMNS));
    return v;
}
DEV void inputs_of(const struct two_quads *v, float *x) {
    const u32 words[4] = { v->rounded.x, v->rounded.y, v->rounded.z, v->rounded.w };
    const u32 rests[4] = { v->rest.x, v->rest.y, v->rest.z, v->rest.w };
    UNROLL
    for (int i = 0; i < 4; i++) {
        x[2 * i] = bf16_low(words[i]) + bf16_low(rests[i]);
        x[2 * i + 1] = bf16_high(words[i]) + bf16_high(rests[i]);
    }
}

/* The PAST inputs before token `end` of 8 channels; tokens below 0 are in the window. */
DEV void past_load(const struct reader *r, int nth, int end, int channel, float (*x)[8]) {
    const u32 *window = (const u32 *)r->w.a->delta.window + window_at(nth, channel);
    UNROLL
    for (int j = 0; j < PAST; j++) {
        const int token = end - PAST + j;
        if (token >= 0) {
            const struct two_quads v = inputs_ask(r, token, channel);
            inputs_of(&v, x[j]);
            continue;
        }
        UNROLL
        for (int i = 0; i < 8; i++)
            x[j][i] = bits_float(plain_load32(window + i * PAST + PAST + token));
    }
}
DEV void window_store(float *to, int nth, int channel, float (*x)[8]) {
    UNROLL
    for (int j = 0; j < PAST; j++)
        UNROLL
        for (int i = 0; i < 8; i++)
            plain_store32((u32 *)to + window_at(nth, channel) + i * PAST + j, float_bits(x[j][i]));
}

/* For what comes next, and before the last token. A lane's channels are nobody else's. */
DEV void windows_move(const struct reader *r, int nth, int channel) {
    float kept[PAST][8], next[PAST][8];
    past_load(r, nth, r->n_tokens - 1, channel, kept);
    past_load(r, nth, r->n_tokens, channel, next);
    if (r->a->delta.keep_window) window_store(r->a->delta.keep_window, nth, channel, kept);
    window_store(r->w.a->delta.window, nth, channel, next);
}

/* Of 8 channels, [channel][tap]. */
DEV void taps_load(const float *from, float *taps) {
#if M_TAPS == 4
    UNROLL
    for (int i = 0; i < 8; i++) {
        const struct quad v = const_load128(from + 4 * i, 1);
        taps[4 * i] = bits_float(v.x), taps[4 * i + 1] = bits_float(v.y);
        taps[4 * i + 2] = bits_float(v.z), taps[4 * i + 3] = bits_float(v.w);
    }
#else
    UNROLL
    for (int i = 0; i < 8 * M_TAPS; i++)
        taps[i] = const_loadf(from + i);
#endif
}

/* 8 tokens of 8 channels. x: the last M_TAPS inputs in turn, PAST of them there. */
DEV void channels_convolve(const struct reader *r, const struct conv_part *p, const float *taps, float (*x)[8],
                           const struct two_quads *inputs, int token, int here, u8 *to) {
    UNROLL
    for (int i = 0; i < 8; i++) {
        float y[8], sum = 0;
        struct quad v;
        inputs_of(&inputs[i], x[(PAST + i) % M_TAPS]);
        UNROLL
        for (int c = 0; c < 8; c++) {
            y[c] = 0;
            UNROLL
            for (int j = 0; j < M_TAPS; j++)
                y[c] += taps[c * M_TAPS + j] * x[(i + j) % M_TAPS][c];
            y[c] = here && token + i < r->n_tokens ? silu(y[c]) : 0;
            sum += y[c] * y[c];
        }
        sum = xor_sum(sum, 1, HEAD_LANES);
        const float factor = p->scale > 0 ? p->scale * rsqrt_approx(sum + L2_NORM_EPS) : 1;
        v.x = bf16_pair(y[0] * factor, y[1] * factor), v.y = bf16_pair(y[2] * factor, y[3] * factor);
        v.z = bf16_pair(y[4] * factor, y[5] * factor), v.w = bf16_pair(y[6] * factor, y[7] * factor);
        if (to) plain_store128((struct quad *)(to + i * 16), v);
    }
}

/* 8 tokens of the heads of a warp; a lane has 8 channels of one. */
DEV void conv_task(const struct reader *r, int nth, const float *taps, int block, int task) {
    const int part = task * WARP_HEADS + r->w.lane / HEAD_LANES, at = r->w.lane % HEAD_LANES;
    const int token = 8 * block, last = r->n_tokens - 1;
    struct two_quads inputs[8];
    struct conv_part p;
    float t[8 * M_TAPS], x[M_TAPS][8];
    conv_part_make(r, part < CONV_PARTS ? part : 0, &p);
    const int there = part < CONV_PARTS && at < p.blocks, here = there && 8 * at < p.dim && token <= last;
    const int channel = p.channel + (here ? 8 * at : 0);
    UNROLL
    for (int i = 0; i < 8; i++) /* tokens beyond the last one are zeros: what is loaded for them does not matter */
        inputs[i] = inputs_ask(r, token + i < last ? token + i : last, channel);
    past_load(r, nth, token < last ? token : last, channel, x);
    taps_load(taps + (size_t)channel * M_TAPS, t);
    u8 *to = p.to + (size_t)(block / CHUNK_BLOCKS) * p.chunk_bytes + (block % CHUNK_BLOCKS * p.blocks + at) * MATRIX_BYTES;
    channels_convolve(r, &p, t, x, inputs, token, here, there ? to : 0);
    if (block == 0 && here) windows_move(r, nth, channel);
}

/* ---- gates ---- */

/* Products of a tile of the gates' weights with 8 tokens of x: this warp's share of hidden. k is taken in another
 * order, 8 columns a lane, so that 16 bytes are loaded at once. */
DEV void gate_products(const struct reader *r, const u16 *weights, int tile, int block, float *d) {
    const int row = 16 * tile + r->w.lane / 4;
    UNROLL_BY(2)
    for (int atom = r->w.warp; atom < M_HIDDEN / ATOM_COLUMNS; atom += READ_WARPS)
        UNROLL
        for (int half = 0; half < 2; half++) {
            const int column = atom * ATOM_COLUMNS + half * 32 + r->w.lane % 4 * 8, token = 8 * block + r->w.lane / 4;
            const u8 *x = r->a->x + activation_at(r->a->room, token, column);
            const u8 *rest = r->a->x + activation_at(r->a->room, token, X_LOW_COLUMN + column);
            const u16 *from = weights + (size_t)row * M_HIDDEN + column;
            const struct quad high = cached_load128((const struct quad *)x);
            const struct quad low = cached_load128((const struct quad *)rest);
            const struct quad a = const_load128(from, row < GATE_ROWS);
            const struct quad b = const_load128(from + 8 * M_HIDDEN, row + 8 < GATE_ROWS);
            struct quad t;
            t.x = a.x, t.y = b.x, t.z = a.y, t.w = b.y;
            tile_mma(d, t, high.x, high.y);
            tile_mma(d, t, low.x, low.y);
            t.x = a.z, t.y = b.z, t.z = a.w, t.w = b.w;
            tile_mma(d, t, high.z, high.w);
            tile_mma(d, t, low.z, low.w);
        }
}

/* The scale of the norm for token `token`, in all lanes that have the same lane % 8. */
DEV float token_scale(const struct reader *r, int token) {
    const u32 *from = (const u32 *)r->a->ssq + token;
    float sum = 0;
    for (int slot = r->w.lane / 8; slot < ssq_slots(r); slot += 4)
        sum += bits_float(plain_load32(from + (size_t)slot * P_PREFILL_TOKENS));
    return rsqrt_approx(xor_sum(sum, 8, LANES) * (1.0f / M_HIDDEN) + M_RMS_EPS);
}

/* Value of row `row` (a, b of each head) to the gates of a token. */
DEV void gate_store(const struct reader *r, const float *numbers, int row, int token, float v) {
    const int head = row / 2, is_b = row % 2;
    float made = 0;
    if (token < r->n_tokens) {
        const float rate = const_loadf(numbers + head), bias = const_loadf(numbers + M_VALUE_HEADS + head);
        made = is_b ? sigmoid(v) : max_float(rate * softplus(v + bias), -DECAY_MOST);
    }
    plain_store32((u32 *)r->a->delta.gates + (size_t)row * P_PREFILL_TOKENS + token, float_bits(made));
}

/* 16 rows of the gates' weights, 8 tokens; all consumers. */
DEV void gate_task(struct reader *r, int nth, const float *numbers, int tile, int block) {
    const struct delta_layout shape = delta_shape();
    const u16 *weights = r->w.a->delta.gates + delta_gate(&shape, nth, 0, 0);
    const int thread = r->w.warp * LANES + r->w.lane, row = thread / 8, token = 8 * block + thread % 8;
    const int there = 8 * block < r->n_tokens;
    float d[4] = { 0, 0, 0, 0 }, sum = 0, scale = 0;
    if (there && r->w.warp < 4) scale = token_scale(r, token);
    if (there) gate_products(r, weights, tile, block, d);
    readers_sync(); /* the task before is over */
    UNROLL
    for (int i = 0; i < 4; i++)
        r->s->exchange[(r->w.warp * 4 + i) * LANES + r->w.lane] = d[i];
    readers_sync();
    if (r->w.warp >= 4) return;
    UNROLL
    for (int warp = 0; warp < READ_WARPS; warp++)
        sum += r->s->exchange[(warp * 4 + row / 8 * 2 + token % 2) * LANES + row % 8 * 4 + token % 8 / 2];
    sum *= scale;
    if (16 * tile + row < GATE_ROWS) gate_store(r, numbers, 16 * tile + row, token, sum);
}

DEV void conv_phase(struct reader *r, int layer) {
    const struct delta_layout d = delta_shape();
    const int nth = delta_nth(layer), blocks = delta_chunks(r) * CHUNK_BLOCKS, step = (int)block_count();
    const float *numbers = delta_numbers(r, nth), *taps = numbers + delta_taps_offset(&d);
    NO_UNROLL
    for (int i = r->w.block; i < blocks * GATE_TILES; i += step)
        gate_task(r, nth, numbers, i % GATE_TILES, i / GATE_TILES);
    NO_UNROLL
    for (int i = r->w.block * READ_WARPS + r->w.warp; i < blocks * CONV_TASKS; i += step * READ_WARPS)
        conv_task(r, nth, taps, i / CONV_TASKS, i % CONV_TASKS);
}

#endif
