/* conv: makes q, k, v of the heads from what mix made of the chunk's tokens, and the heads' gates from x.
 *   reads    qkv (q, k, v); x and ssq; the session's window; taps, gates' weights
 *   writes   delta.q, .k (normed, q divided by the root of its size), .v, zeros beyond the last token;
 *            delta.gates; the window for what comes next, and that before the last token
 *   split    items (chunk, task of WARP_HEADS heads) over blocks, from the first block on; 8 tokens of the chunk for
 *            each warp, 8 channels for each lane. gates: 16 tokens and 32 rows of weights over blocks, from the last
 *            block on; hidden over warps
 *   moves    a block's warps read the inputs before their first token out of L1, where the warp before brings them */
#ifndef REEL_KERNELS_PREFILL_DELTA_CONV_CUH
#define REEL_KERNELS_PREFILL_DELTA_CONV_CUH

#include "mma.cuh"
#include "prefill_delta.cuh"

enum {
    CONV_PARTS = 2 * GPU_KEY_HEADS + GPU_VALUE_HEADS, /* heads: q, k, v */
    CONV_BLOCKS = KEY_BLOCKS > VALUE_BLOCKS ? KEY_BLOCKS : VALUE_BLOCKS,
    HEAD_LANES = CONV_BLOCKS <= 2   ? 2
                 : CONV_BLOCKS <= 4 ? 4
                 : CONV_BLOCKS <= 8 ? 8
                                    : 16,
    WARP_HEADS = LANES / HEAD_LANES,
    CONV_TASKS = (CONV_PARTS + WARP_HEADS - 1) / WARP_HEADS, /* tasks of a chunk: WARP_HEADS heads each */
    PAST = M_TAPS - 1,
    TAP_QUADS = 8 * M_TAPS / 4,      /* of a lane's channels */
    GATE_ROWS = 2 * GPU_VALUE_HEADS, /* a and b of each head */
    GATE_TILES = 2,                  /* tiles of weights in an item, and runs of 8 tokens */
    GATE_PARTS = (GATE_ROWS + 16 * GATE_TILES - 1) / (16 * GATE_TILES)
};
/* The logarithm of a decay goes down to -DECAY_MOST. e^-100 is as good as 0. Without a limit the running sum of a
 * chunk's 64 logarithms could become too large for differences between its tokens to be exact. */
#define DECAY_MOST 100.0f

/* The shared memory of a block. The host gives it PREFILL_CONV_BYTES. */
struct ALIGN(16) conv_shared {
    struct quad taps[TAP_QUADS][LANES]; /* of the task's channels, lane by lane */
    union {
        struct quad made[READ_WARPS][LANES][8];                     /* a lane's 8 tokens of 8 channels, see made_at */
        float sums[READ_WARPS][4 * GATE_TILES * GATE_TILES][LANES]; /* each warp's partial sums of the gates */
    } u;
};
STATIC_ASSERT((int)CHUNK_BLOCKS == (int)READ_WARPS, "a warp has 8 tokens of a chunk");
STATIC_ASSERT((int)sizeof(struct conv_shared) + STAGE_ALIGN == PREFILL_CONV_BYTES(M_TAPS),
              "the host counts shared memory of conv otherwise");

/* ---- convolution ---- */

struct conv_part {
    int channel, dim, blocks; /* the head's first channel; its columns; its blocks, padding included */
    u8 *to;                   /* where its first chunk lies */
    size_t chunk_bytes;
};

DEV void conv_part_make(const struct prompt_worker *r, int part, struct conv_part *p) {
    const struct prefill_delta *d = &r->a->delta;
    const int is_v = part >= 2 * GPU_KEY_HEADS, is_k = part >= GPU_KEY_HEADS;
    const int head = is_v ? part - 2 * GPU_KEY_HEADS : part % GPU_KEY_HEADS;
    p->channel = is_v ? 2 * GPU_KEY_HEADS * M_KEY_DIM + head * M_VALUE_DIM : part * M_KEY_DIM;
    p->dim = is_v ? M_VALUE_DIM : M_KEY_DIM, p->blocks = is_v ? VALUE_BLOCKS : KEY_BLOCKS;
    p->chunk_bytes = is_v ? VALUES_BYTES : KEYS_BYTES;
    p->to = (is_v ? d->v : is_k ? d->k : d->q) + chunk_at(head, 0, p->chunk_bytes);
}

DEV size_t window_at(const struct prompt_worker *r, int nth, int channel) {
    const struct delta_layout d = delta_shape();
    return (size_t)delta_window(&d, nth, model_channel(r, channel));
}

struct two_quads {
    struct quad rounded, rest;
};
DEV struct two_quads inputs_ask(const struct prompt_worker *r, int token, int channel) {
    const u16 *row = r->a->qkv + (size_t)token * MIX_WIDTH + channel;
    struct two_quads v;
    v.rounded = cached_load128((const struct quad *)row);
    v.rest = cached_load128((const struct quad *)(row + MIX_COLUMNS));
    return v;
}
DEV u32 quad_word(const struct quad *v, int i) { return i == 0 ? v->x : i == 1 ? v->y : i == 2 ? v->z : v->w; }
/* x = channels 2 word and 2 word + 1 of v, both terms added up. */
DEV void inputs_of(const struct two_quads *v, int word, float *x) {
    const u32 rounded = quad_word(&v->rounded, word), rest = quad_word(&v->rest, word);
    x[0] = bf16_low(rounded) + bf16_low(rest), x[1] = bf16_high(rounded) + bf16_high(rest);
}

/* Loads the n inputs before token `end` of 8 channels, all asked for together. For tokens below 0 it loads token 0's
 * inputs, which the caller replaces. */
DEV void past_load(const struct prompt_worker *r, int end, const int n, int channel, float (*x)[8]) {
    struct two_quads v[PAST + 1];
    UNROLL
    for (int j = 0; j < n; j++)
        v[j] = inputs_ask(r, end - n + j > 0 ? end - n + j : 0, channel);
    UNROLL
    for (int j = 0; j < n; j++) {
        UNROLL
        for (int i = 0; i < 4; i++)
            inputs_of(&v[j], i, x[j] + 2 * i);
    }
}
/* Quads of a window of 8 channels. */
enum { WINDOW_QUADS = 8 * PAST / 4 };
DEV void window_load(const struct prompt_worker *r, int nth, int channel, float (*x)[8]) {
    const struct quad *from = (const struct quad *)(r->w.a->delta.window + window_at(r, nth, channel));
    UNROLL
    for (int i = 0; i < WINDOW_QUADS; i++) {
        const struct quad v = cached_load128(from + i);
        UNROLL
        for (int j = 4 * i; j < 4 * i + 4; j++)
            x[j % PAST][j / PAST] = bits_float(quad_word(&v, j % 4));
    }
}
DEV void window_store(const struct prompt_worker *r, float *to, int nth, int channel, float (*x)[8]) {
    struct quad *quads = (struct quad *)(to + window_at(r, nth, channel));
    UNROLL
    for (int i = 0; i < WINDOW_QUADS; i++) {
        u32 v[4];
        UNROLL
        for (int j = 0; j < 4; j++)
            v[j] = float_bits(x[(4 * i + j) % PAST][(4 * i + j) / PAST]);
        const struct quad four = { v[0], v[1], v[2], v[3] };
        plain_store128(quads + i, four);
    }
}

/* This lane's channels of task `task`. */
struct conv_lane {
    int channel, there; /* there: 0 where the lane has no channels; it then reads others and makes zeros */
};
DEV struct conv_lane conv_lane_make(const struct prompt_worker *r, int task) {
    const int part = task * WARP_HEADS + r->w.lane / HEAD_LANES, at = r->w.lane % HEAD_LANES;
    struct conv_lane l;
    struct conv_part p;
    conv_part_make(r, part < CONV_PARTS ? part : 0, &p);
    l.there = part < CONV_PARTS && 8 * at < p.dim;
    l.channel = p.channel + (l.there ? 8 * at : 0);
    return l;
}

/* Stores the session's window for what comes next, and the window before the last token to keep_window. No other lane
 * has this lane's channels. */
DEV void windows_move(struct prompt_worker *r, int nth, int task) {
    prompt_worker_anew(r);
    const struct conv_lane l = conv_lane_make(r, task);
    const int channel = l.channel;
    const u32 *window = (const u32 *)r->w.a->delta.window + window_at(r, nth, channel);
    float x[PAST + 1][8];
    past_load(r, r->n_tokens, PAST + 1, channel, x);
    if (r->n_tokens <= PAST) { /* the window has the rest */
        UNROLL
        for (int i = 0; i < 8 * (PAST + 1); i++) {
            const int token = r->n_tokens - PAST - 1 + i % (PAST + 1), c = i / (PAST + 1);
            if (token < 0) x[i % (PAST + 1)][c] = bits_float(plain_load32(window + c * PAST + PAST + token));
        }
    }
    if (!l.there) return;
    if (r->a->delta.keep_window) window_store(r, r->a->delta.keep_window, nth, channel, x);
    window_store(r, r->w.a->delta.window, nth, channel, x + 1);
}

/* A thread's share of the taps of a task's channels. taps_ask loads it, and taps_put stores it where all warps find it
 * after a barrier. */
struct tap_share {
    struct quad v[(TAP_QUADS + READ_WARPS - 1) / READ_WARPS];
};
DEV void taps_ask(const struct prompt_worker *r, int nth, int task, struct tap_share *t) {
    const struct delta_layout d = delta_shape();
    const float *from = delta_numbers(r, nth) + delta_taps_offset(&d) +
                        (size_t)model_channel(r, conv_lane_make(r, task).channel) * M_TAPS;
    UNROLL
    for (int first = 0; first < TAP_QUADS; first += READ_WARPS)
        if (first + r->w.warp < TAP_QUADS)
            t->v[first / READ_WARPS] = cached_load128((const struct quad *)from + first + r->w.warp);
}
DEV void taps_put(const struct prompt_worker *r, struct conv_shared *s, const struct tap_share *t) {
    UNROLL
    for (int first = 0; first < TAP_QUADS; first += READ_WARPS)
        if (first + r->w.warp < TAP_QUADS) s->taps[first + r->w.warp][r->w.lane] = t->v[first / READ_WARPS];
}

/* A lane makes y, 8 tokens of 8 channels. It takes two channels at a time, so that the values made can have the
 * registers of the words that they are made of. */
DEV void channels_convolve(const struct prompt_worker *r, const struct conv_shared *s, float (*past)[8],
                           const struct two_quads *inputs, float (*y)[8]) {
    UNROLL
    for (int word = 0; word < 4; word++) {
        const int first = 2 * M_TAPS * word;
        float x[M_TAPS][2], taps[2 * M_TAPS];
        UNROLL
        for (int i = first / 4; i <= (first + 2 * M_TAPS - 1) / 4; i++) {
            const struct quad v = s->taps[i][r->w.lane];
            UNROLL
            for (int j = 0; j < 4; j++)
                if (4 * i + j >= first && 4 * i + j < first + 2 * M_TAPS)
                    taps[4 * i + j - first] = bits_float(quad_word(&v, j));
        }
        UNROLL
        for (int i = 0; i < 2 * PAST; i++)
            x[i / 2][i % 2] = past[i / 2][2 * word + i % 2];
        UNROLL
        for (int i = 0; i < 8; i++) {
            inputs_of(&inputs[i], word, x[(PAST + i) % M_TAPS]);
            UNROLL
            for (int c = 0; c < 2; c++) {
                float sum = 0;
                UNROLL
                for (int j = 0; j < M_TAPS; j++)
                    sum += taps[c * M_TAPS + j] * x[(i + j) % M_TAPS][c];
                y[i][2 * word + c] = silu(sum);
            }
        }
    }
}

/* Where a lane's quad of a token lies. No bank is met twice when 8 lanes write their quads, nor when the quads of one
 * lane are read. */
DEV struct quad *made_at(const struct prompt_worker *r, struct conv_shared *s, int lane, int token) {
    return &s->u.made[r->w.warp][lane][token ^ lane % 8];
}

/* Norms heads of q and k, and stores this lane's rows to shared memory as bf16. It stores zeros beyond the last token
 * and where there is no channel. */
DEV void rows_make(const struct prompt_worker *r, struct conv_shared *s, int task, int token, int there,
                   float (*y)[8]) {
    const int part = task * WARP_HEADS + r->w.lane / HEAD_LANES, normed = part < 2 * GPU_KEY_HEADS;
    const float scale = part < GPU_KEY_HEADS ? rsqrt_approx((float)M_KEY_DIM) : 1;
    float factor[8];
    if (task * WARP_HEADS < 2 * GPU_KEY_HEADS) {
        UNROLL
        for (int i = 0; i < 8; i++) {
            float sum = 0;
            UNROLL
            for (int c = 0; c < 8; c++)
                sum += y[i][c] * y[i][c];
            factor[i] = scale * rsqrt_approx(xor_sum(there ? sum : 0, 1, HEAD_LANES) + L2_NORM_EPS);
        }
    }
    UNROLL
    for (int i = 0; i < 8; i++) {
        const float f = normed ? factor[i] : 1;
        const u32 is = there && token + i < r->n_tokens ? ~0u : 0;
        struct quad v;
        v.x = bf16_pair(y[i][0] * f, y[i][1] * f) & is, v.y = bf16_pair(y[i][2] * f, y[i][3] * f) & is;
        v.z = bf16_pair(y[i][4] * f, y[i][5] * f) & is, v.w = bf16_pair(y[i][6] * f, y[i][7] * f) & is;
        *made_at(r, s, r->w.lane, i) = v;
    }
}

/* Stores whole blocks. A lane holds all 8 rows of a block; so that a warp's stores lie side by side, lanes store rows
 * of other lanes. */
DEV void rows_store(const struct prompt_worker *r, struct conv_shared *s, int chunk, int task, int made) {
    enum { STORES = (8 * CONV_BLOCKS + LANES - 1) / LANES };
    UNROLL
    for (int head = 0; head < WARP_HEADS; head++) {
        const int part = task * WARP_HEADS + head;
        struct quad v[STORES];
        struct conv_part p;
        if (part >= CONV_PARTS) break;
        conv_part_make(r, part, &p);
        struct quad *to =
            (struct quad *)(p.to + (size_t)chunk * p.chunk_bytes + (size_t)(r->w.warp * p.blocks * MATRIX_BYTES)) +
            r->w.lane;
        UNROLL
        for (int i = 0; i < STORES; i++)
            v[i].x = v[i].y = v[i].z = v[i].w = 0;
        if (made) {
            UNROLL
            for (int i = 0; i < STORES; i++) {
                const int nth = LANES * i + r->w.lane, lane = head * HEAD_LANES + nth / 8;
                if (nth < 8 * p.blocks) v[i] = *made_at(r, s, lane, nth % 8);
            }
        }
        UNROLL
        for (int i = 0; i < STORES; i++)
            if (LANES * i + r->w.lane < 8 * p.blocks) plain_store128(to + LANES * i, v[i]);
    }
}

/* A warp makes 8 tokens of the heads of a task; a lane has 8 channels of one head. taps: what taps_ask loaded, or NULL
 * where the taps are in shared memory already. The warp waits for them after it has asked for the inputs, as taps come
 * from farther away. */
DEV void conv_task(struct prompt_worker *r, struct conv_shared *s, int nth, int chunk, int task,
                   const struct tap_share *taps) {
    const int token = chunk * DELTA_CHUNK + 8 * r->w.warp, last = r->n_tokens - 1;
    const struct conv_lane l = conv_lane_make(r, task);
    struct two_quads inputs[8];
    float past[PAST][8], y[8][8];
    prompt_worker_anew(r);
    UNROLL
    for (int i = 0; i < 8; i++) /* tokens beyond the last one: what is loaded for them does not matter */
        inputs[i] = inputs_ask(r, token + i < last ? token + i : last, l.channel);
    past_load(r, token < last ? token : last, PAST, l.channel, past);
    if (token == 0) window_load(r, nth, l.channel, past);
    if (taps) {
        taps_put(r, s, taps);
        readers_sync(); /* the taps are there */
    }
    if (token <= last) {
        channels_convolve(r, s, past, inputs, y);
        prompt_worker_anew(r);
        warp_sync(); /* the task before is stored */
        rows_make(r, s, task, token, l.there, y);
        warp_sync();
    }
    rows_store(r, s, chunk, task, token <= last);
    if (token == 0) windows_move(r, nth, task);
}

/* ---- gates ---- */

/* Multiplies an item's tiles of the gates' weights with its runs of 8 tokens of x, over this warp's share of hidden.
 * The warp takes k in another order, 8 columns a lane, so that a lane loads 16 bytes at once. d: [tile][run]. */
DEV void gate_products(const struct prompt_worker *r, const u16 *weights, int tile, const int *tokens,
                       float (*d)[GATE_TILES][4]) {
    const int row = 16 * tile + r->w.lane / 4;
    NO_UNROLL
    for (int atom = r->w.warp; atom < M_HIDDEN / ATOM_COLUMNS; atom += READ_WARPS) {
        UNROLL
        for (int half = 0; half < 2; half++) {
            const int column = atom * ATOM_COLUMNS + half * 32 + r->w.lane % 4 * 8;
            const u16 *from = weights + (size_t)row * M_HIDDEN + column;
            struct quad high[GATE_TILES], low[GATE_TILES];
            UNROLL
            for (int i = 0; i < GATE_TILES; i++) {
                const u8 *x = r->a->x + activation_at(r->a->room, tokens[i] + r->w.lane / 4, column);
                const u8 *rest = r->a->x + activation_at(r->a->room, tokens[i] + r->w.lane / 4, X_LOW_COLUMN + column);
                high[i] = cached_load128((const struct quad *)x), low[i] = cached_load128((const struct quad *)rest);
            }
            UNROLL
            for (int i = 0; i < GATE_TILES; i++) {
                const struct quad a = const_load128(from + 16 * i * M_HIDDEN, row + 16 * i < GATE_ROWS);
                const struct quad b = const_load128(from + (16 * i + 8) * M_HIDDEN, row + 16 * i + 8 < GATE_ROWS);
                const struct quad first = { a.x, b.x, a.y, b.y }, second = { a.z, b.z, a.w, b.w };
                UNROLL
                for (int j = 0; j < GATE_TILES; j++) {
                    tile_mma(d[i][j], first, high[j].x, high[j].y);
                    tile_mma(d[i][j], first, low[j].x, low[j].y);
                    tile_mma(d[i][j], second, high[j].z, high[j].w);
                    tile_mma(d[i][j], second, low[j].z, low[j].w);
                }
            }
        }
    }
}

/* Asks for sums of squares of token `token`: slots lane / 8 + 4 i from `first` on. */
enum { SLOTS_AT_ONCE = 4 };
DEV void slots_ask(const struct prompt_worker *r, int token, int first, u32 *v) {
    const u32 *from = (const u32 *)r->a->ssq + token;
    UNROLL
    for (int i = 0; i < SLOTS_AT_ONCE; i++) {
        const int slot = first + r->w.lane / 8 + 4 * i;
        v[i] = slot < ssq_slots(r) ? plain_load32(from + (size_t)slot * P_PREFILL_TOKENS) : 0;
    }
}
/* Makes the scale of a token's norm, in all lanes that have the same lane % 8. v: the token's first slots. */
DEV float token_scale(const struct prompt_worker *r, int token, u32 *v) {
    float sum = 0;
    NO_UNROLL
    for (int first = 0; first < ssq_slots(r); first += 4 * SLOTS_AT_ONCE) {
        if (first) slots_ask(r, token, first, v);
        UNROLL
        for (int i = 0; i < SLOTS_AT_ONCE; i++)
            sum += bits_float(v[i]);
    }
    return rsqrt_approx(xor_sum(sum, 8, LANES) * (1.0f / M_HIDDEN) + M_RMS_EPS);
}

/* Constants of a head's decay: rate * softplus(a + bias). */
struct gate_numbers {
    float rate, bias;
};
DEV struct gate_numbers gate_numbers_ask(const struct prompt_worker *r, int nth, int row) {
    const float *numbers = delta_numbers(r, nth);
    const int head = model_head(r, row < GATE_ROWS ? row / 2 : 0);
    struct gate_numbers n;
    n.rate = const_loadf(numbers + head), n.bias = const_loadf(numbers + M_VALUE_HEADS + head);
    return n;
}

/* Stores a gate of a token, made of the value v of row `row`: the logarithm of a decay (even rows, a) or beta (odd
 * rows, b). Beyond the last token it stores 0. */
DEV void gate_store(const struct prompt_worker *r, const struct gate_numbers *n, int row, int token, float v) {
    const float made = row % 2 ? sigmoid(v) : max_float(n->rate * softplus(v + n->bias), -DECAY_MOST);
    plain_store32((u32 *)r->a->delta.gates + (size_t)row * P_PREFILL_TOKENS + token,
                  token < r->n_tokens ? float_bits(made) : 0);
}

DEV const u16 *gate_weights(const struct prompt_worker *r, int nth) {
    const struct delta_layout shape = delta_shape();
    return r->w.a->delta.gates + delta_gate(&shape, nth, model_head(r, 0), 0);
}

/* All warps make the gates of GATE_TILES tiles of weights from `tile` on, and of as many runs of 8 tokens from `token`
 * on. */
DEV void gate_task(struct prompt_worker *r, struct conv_shared *s, int nth, int tile, int token) {
    prompt_worker_anew(r);
    const int row = r->w.warp * (LANES / 8) + r->w.lane / 8, last = (r->n_tokens - 1) / 8 * 8;
    const struct gate_numbers numbers = gate_numbers_ask(r, nth, 16 * tile + row);
    float d[GATE_TILES][GATE_TILES][4];
    u32 slots[GATE_TILES][SLOTS_AT_ONCE];
    int tokens[GATE_TILES]; /* beyond the last ones others: what is made of them does not matter */
    UNROLL
    for (int i = 0; i < GATE_TILES; i++) {
        tokens[i] = token + 8 * i < last ? token + 8 * i : last;
        slots_ask(r, tokens[i] + r->w.lane % 8, 0, slots[i]);
    }
    UNROLL
    for (int i = 0; i < 4 * GATE_TILES * GATE_TILES; i++)
        d[i / 4 / GATE_TILES][i / 4 % GATE_TILES][i % 4] = 0;
    if (token < r->n_tokens) gate_products(r, gate_weights(r, nth), tile, tokens, d);
    prompt_worker_anew(r);
    readers_sync(); /* the task before is over */
    UNROLL
    for (int i = 0; i < 4 * GATE_TILES * GATE_TILES; i++)
        s->u.sums[r->w.warp][i][r->w.lane] = d[i / 4 / GATE_TILES][i / 4 % GATE_TILES][i % 4];
    readers_sync();
    UNROLL
    for (int i = 0; i < GATE_TILES; i++) {
        const int at = ((row / 16 * GATE_TILES + i) * 2 + row % 16 / 8) * 2 + r->w.lane % 2;
        const float scale = token_scale(r, tokens[i] + r->w.lane % 8, slots[i]);
        float sum = 0;
        UNROLL
        for (int warp = 0; warp < READ_WARPS; warp++)
            sum += s->u.sums[warp][at][row % 8 * 4 + r->w.lane % 8 / 2];
        if (16 * tile + row < GATE_ROWS)
            gate_store(r, &numbers, 16 * tile + row, token + 8 * i + r->w.lane % 8, sum * scale);
    }
}

/* ---- a block's items ---- */

/* Asks for what the launch before does not make: the taps of the block's first item. The last block also brings the
 * gates' weights to L2, for all blocks. */
DEV void conv_begin(const struct prompt_worker *r, int layer, struct tap_share *taps) {
    enum { SHARE = GATE_ROWS * M_HIDDEN * 2 / READ_WARPS };
    const int nth = delta_nth(layer);
    taps_ask(r, nth, r->w.block % CONV_TASKS, taps);
    if (r->w.block + 1 == (int)block_count() && r->w.lane == 0)
        l2_prefetch((const u8 *)gate_weights(r, nth) + r->w.warp * SHARE, SHARE);
}

DEV void conv_phase(struct prompt_worker *r, struct conv_shared *s, int layer, struct tap_share *taps) {
    const int nth = delta_nth(layer), step = (int)block_count(), n_items = delta_chunks(r) * CONV_TASKS;
    const int n_gates = delta_chunks(r) * (CHUNK_BLOCKS / GATE_TILES) * GATE_PARTS;
    int before = -1;
    NO_UNROLL
    for (int i = r->w.block; i < n_items; i += step) {
        const int task = i % CONV_TASKS, same = task == before;
        if (before >= 0 && !same) {
            readers_sync(); /* no one needs those before */
            taps_ask(r, nth, task, taps);
        }
        conv_task(r, s, nth, i / CONV_TASKS, task, same ? 0 : taps);
        before = task;
    }
    NO_UNROLL
    for (int i = step - 1 - r->w.block; i < n_gates; i += step)
        gate_task(r, s, nth, i % GATE_PARTS * GATE_TILES, i / GATE_PARTS * GATE_TILES * 8);
}

#endif
