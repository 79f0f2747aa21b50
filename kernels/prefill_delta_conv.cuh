/* conv: what mix made of the chunk's tokens becomes q, k, v of the heads, and x becomes their gates.
 *   reads    qkv (q, k, v); x and ssq; the session's window; taps, gates' weights
 *   writes   delta.q, .k (normed, q divided by the root of its size), .v, zeros beyond the last token;
 *            delta.gates; the window for what comes next, and that before the last token
 *   split    gates: 8 tokens and 16 rows of weights over blocks, hidden over warps; the rest 8 tokens of a head
 *            over warps */
#ifndef REEL_KERNELS_PREFILL_DELTA_CONV_CUH
#define REEL_KERNELS_PREFILL_DELTA_CONV_CUH

#include "prefill_delta.cuh"

enum {
    CONV_PARTS = 2 * M_KEY_HEADS + M_VALUE_HEADS, /* heads: q, k, v */
    CONV_BLOCKS = KEY_BLOCKS > VALUE_BLOCKS ? KEY_BLOCKS : VALUE_BLOCKS,
    CONV_TURNS = (CONV_BLOCKS + 3) / 4, /* a lane has every fourth block of a row */
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

/* Inputs of 8 channels; tokens below 0 are in the window. */
DEV void inputs_load(const struct reader *r, int nth, int token, int channel, float *x) {
    if (token >= 0) {
        const u16 *row = r->a->qkv + (size_t)token * MIX_WIDTH + channel;
        const struct quad v = cached_load128((const struct quad *)row);
        const struct quad rest = cached_load128((const struct quad *)(row + MIX_COLUMNS));
        const u32 words[4] = { v.x, v.y, v.z, v.w }, rests[4] = { rest.x, rest.y, rest.z, rest.w };
        UNROLL
        for (int i = 0; i < 4; i++) {
            x[2 * i] = bf16_low(words[i]) + bf16_low(rests[i]);
            x[2 * i + 1] = bf16_high(words[i]) + bf16_high(rests[i]);
        }
        return;
    }
    const u32 *past = (const u32 *)r->w.a->delta.window + window_at(nth, channel) + PAST + token;
    UNROLL
    for (int i = 0; i < 8; i++)
        x[i] = bits_float(plain_load32(past + i * PAST));
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

DEV void convolve(const struct reader *r, int nth, const float *taps, int token, int channel, float *y) {
    float t[8 * M_TAPS], x[M_TAPS][8];
    UNROLL
    for (int j = 0; j < M_TAPS; j++)
        inputs_load(r, nth, token - PAST + j, channel, x[j]);
    taps_load(taps + (size_t)channel * M_TAPS, t);
    UNROLL
    for (int i = 0; i < 8; i++) {
        float sum = 0;
        UNROLL
        for (int j = 0; j < M_TAPS; j++)
            sum += t[i * M_TAPS + j] * x[j][i];
        y[i] = silu(sum);
    }
}

/* The inputs before token `end` of a head's channels, lane by lane. They may be those of the window itself. */
DEV void window_move(const struct reader *r, int nth, const struct conv_part *p, int end, float *to) {
    for (int i = r->w.lane; i < p->dim; i += LANES) {
        const int channel = p->channel + i;
        const u32 *window = (const u32 *)r->w.a->delta.window + window_at(nth, channel);
        u32 next[PAST];
        UNROLL
        for (int j = 0; j < PAST; j++) {
            const int token = end - PAST + j;
            if (token < 0) {
                next[j] = plain_load32(window + PAST + token);
                continue;
            }
            const u32 *pair = (const u32 *)(r->a->qkv + (size_t)token * MIX_WIDTH) + channel / 2;
            const u32 rounded = plain_load32(pair), rest = plain_load32(pair + MIX_COLUMNS / 2);
            next[j] = float_bits(channel % 2 ? bf16_high(rounded) + bf16_high(rest)
                                             : bf16_low(rounded) + bf16_low(rest));
        }
        UNROLL
        for (int j = 0; j < PAST; j++)
            plain_store32((u32 *)to + window_at(nth, channel) + j, next[j]);
    }
}

/* 8 tokens of a head. A lane has a token and every fourth block of 8 channels. */
DEV void conv_task(const struct reader *r, int nth, const float *taps, int block, int part) {
    const int token = 8 * block + r->w.lane / 4, first = r->w.lane % 4;
    const int last = r->n_tokens - 1, have = token <= last;
    struct conv_part p;
    u32 made[CONV_TURNS][4];
    float y[CONV_TURNS][8], sum = 0;
    conv_part_make(r, part, &p);
    UNROLL
    for (int turn = 0; turn < CONV_TURNS; turn++) {
        const int at = 4 * turn + first, there = have && 8 * at < p.dim;
        UNROLL
        for (int i = 0; i < 8; i++)
            y[turn][i] = 0;
        if (there) convolve(r, nth, taps, token, p.channel + 8 * at, y[turn]);
        UNROLL
        for (int i = 0; i < 8; i++)
            sum += y[turn][i] * y[turn][i];
    }
    const float factor = p.scale > 0 ? p.scale * rsqrt_approx(xor_sum(sum, 1, 4) + L2_NORM_EPS) : 1;
    u8 *to = p.to + (size_t)(block / CHUNK_BLOCKS) * p.chunk_bytes + r->w.lane / 4 * 16;
    UNROLL
    for (int turn = 0; turn < CONV_TURNS; turn++) {
        const int at = 4 * turn + first;
        struct quad v;
        UNROLL
        for (int i = 0; i < 4; i++)
            made[turn][i] = bf16_pair(y[turn][2 * i] * factor, y[turn][2 * i + 1] * factor);
        v.x = made[turn][0], v.y = made[turn][1], v.z = made[turn][2], v.w = made[turn][3];
        if (at < p.blocks)
            plain_store128((struct quad *)(to + (block % CHUNK_BLOCKS * p.blocks + at) * MATRIX_BYTES), v);
    }
    if (block > 0) return;
    warp_sync(); /* the window has been read */
    if (r->a->delta.keep_window) window_move(r, nth, &p, r->n_tokens - 1, r->a->delta.keep_window);
    window_move(r, nth, &p, r->n_tokens, r->w.a->delta.window);
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
    float d[4] = { 0, 0, 0, 0 }, sum = 0;
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
    if (there) sum *= token_scale(r, token);
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
    for (int i = r->w.block * READ_WARPS + r->w.warp; i < blocks * CONV_PARTS; i += step * READ_WARPS)
        conv_task(r, nth, taps, i / CONV_PARTS, i % CONV_PARTS);
}

#endif
