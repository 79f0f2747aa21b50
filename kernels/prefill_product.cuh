/* The matrix products of prefill. Weights come straight from the tapes, whose tiles are A operands as they
 * lie: a warp loads its own into registers, a stage ahead. Activations, the B operand, come through the
 * ring of stages: 128 columns of k of the item's tokens each.
 *
 *   qkv, gate_up   in: x, scaled by the norm afterwards   out: qkv; gated
 *   out, down      in: attention; gated                   out: h, and x and ssq for the next norm
 *
 * An item is 8 row tiles, one for each warp, by 64 or 128 tokens; or, where that makes too few items, 4
 * row tiles by 64 tokens, the two halves of the warps sharing the k of a stage. */
#ifndef REEL_KERNELS_PREFILL_PRODUCT_CUH
#define REEL_KERNELS_PREFILL_PRODUCT_CUH

#include "phase_gate_up.cuh"
#include "prefill_shared.cuh"

enum {
    BLOCK_TOKENS = 64,
    BLOCK_BYTES = BLOCK_TOKENS * 128, /* of 64 columns */
    STAGE_TILES = 8,                  /* of k */
    SSQ_SLOTS = (P_GROUP_SMS * P_OUT_ROW_TILES + 3) / 4
};

/* ---- which weights ---- */

#define BY_PHASE(phase, f) \
    ((phase) == TAPE_QKV ? f(QKV) : (phase) == TAPE_OUT ? f(OUT) : (phase) == TAPE_GATE_UP ? f(GATE_UP) : f(DOWN))
#define ROW_TILES_OF(S) P_##S##_ROW_TILES
#define K_TILES_OF(S)   P_##S##_K_TILES

/* out and down: the groups' slices of k follow one another, their SMs have the same rows. */
DEV int sums_groups(int phase) { return phase == TAPE_OUT || phase == TAPE_DOWN; }
DEV int product_row_tiles(int phase) {
    return (sums_groups(phase) ? P_GROUP_SMS : P_SMS) * BY_PHASE(phase, ROW_TILES_OF);
}
DEV int product_k_tiles(int phase) { return (sums_groups(phase) ? P_GROUPS : 1) * BY_PHASE(phase, K_TILES_OF); }

/* From the start of all tapes to row tile `row` of a phase, k tile 0. */
#define ROW_AT(S) \
    ((u64)(row / P_##S##_ROW_TILES) * P_SM_BYTES + P_##S##_OFFSET + \
     (u64)((row % P_##S##_ROW_TILES % P_##S##_WARP_ROWS * P_WARPS + \
            row % P_##S##_ROW_TILES / P_##S##_WARP_ROWS * P_##S##_K_PARTS) * TILE_BYTES))
DEV const u8 *weights_row(const struct reader *r, int phase, int layer, int row) {
    return r->w.a->tape + (u64)layer * P_LAYER_BYTES + BY_PHASE(phase, ROW_AT) + (u64)r->w.lane * 16;
}
/* And from there to k tile k. */
#define K_AT(S) \
    ((u64)(k % P_##S##_K_TILES % P_##S##_WARP_K * P_##S##_WARP_ROWS * P_WARPS + \
           k % P_##S##_K_TILES / P_##S##_WARP_K) * TILE_BYTES + \
     (u64)(k / P_##S##_K_TILES) * P_GROUP_SMS * P_SM_BYTES)

/* n tiles from k tile `first` on; 0 beyond the end, where the stage holds a block twice. */
#define LOAD_TILES(S) \
    UNROLL \
    for (int i = 0; i < n; i++) { \
        const int k = first + i; \
        if (P_##S##_K_TILES % STAGE_TILES == 0 || k < n_k) \
            t[i] = const_load128(row + K_AT(S)); \
        else \
            t[i] = none; \
    }
DEV void weights_load(struct quad *t, int phase, const u8 *row, int first, int n) {
    const int n_k = product_k_tiles(phase);
    const struct quad none = { 0, 0, 0, 0 };
    switch (phase) {
    case TAPE_QKV: LOAD_TILES(QKV) break;
    case TAPE_OUT: LOAD_TILES(OUT) break;
    case TAPE_GATE_UP: LOAD_TILES(GATE_UP) break;
    default: LOAD_TILES(DOWN)
    }
}

/* ---- where results go ---- */

/* Column of qkv for local row `local` (even) of row tile `row`; -1: padding. */
DEV int qkv_column(int row, int local) {
    const int sm = row / P_QKV_ROW_TILES, group = sm / P_GROUP_SMS;
    int at = row % P_QKV_ROW_TILES * TILE_ROWS + local;
    if (at >= P_QKV_ROWS) return -1;
    at += sm % P_GROUP_SMS * P_QKV_ROWS;
    if (at < P_GROUP_Q) return group * P_GROUP_Q + at;
    at -= P_GROUP_Q;
    if (at >= 2 * P_GROUP_KV) return -1;
    return M_HEADS * M_HEAD_DIM + at / P_GROUP_KV * M_KV_HEADS * M_HEAD_DIM + group * P_GROUP_KV + at % P_GROUP_KV;
}

/* Column of gated for pair `pair` (below 8) of row tile `row`; -1: padding. */
DEV int gated_column(int row, int pair) {
    const int sm = row / P_GATE_UP_ROW_TILES, group = sm / P_GROUP_SMS;
    int at = row % P_GATE_UP_ROW_TILES * 8 + pair;
    if (at >= GATE_UP_PAIRS) return -1;
    at += sm % P_GROUP_SMS * GATE_UP_PAIRS;
    if (at >= P_GROUP_INTERMEDIATE || group * P_GROUP_INTERMEDIATE + at >= M_INTERMEDIATE) return -1;
    return group * P_DOWN_K_TILES * TILE_K + at;
}

/* Hidden index of local row `local` of row tile `row` of out or down; -1: padding. */
DEV int hidden_row(int row, int local) {
    const int at = row % P_OUT_ROW_TILES * TILE_ROWS + local;
    const int hidden = row / P_OUT_ROW_TILES * P_OUT_ROWS + at;
    return at < P_OUT_ROWS && hidden < M_HIDDEN ? hidden : -1;
}
#if P_OUT_ROWS != P_DOWN_ROWS || P_OUT_ROW_TILES != P_DOWN_ROW_TILES
#error "out and down have the same rows"
#endif

/* ---- one item ---- */

struct item {
    int row;    /* this warp's row tile; beyond the last one: none */
    int token;  /* the first */
    int which;  /* of the two scale buffers */
};

/* Scales of the norm for the item's tokens, for everyone after the next barrier. */
DEV void scales_make(struct reader *r, const struct item *it, int tokens) {
    const int mine = r->w.warp * LANES + r->w.lane;
    if (mine >= tokens) return;
    const u32 *from = (const u32 *)r->a->ssq + it->token + mine;
    float sum = 0;
    UNROLL_BY(8)
    for (int i = 0; i < SSQ_SLOTS; i++)
        sum += bits_float(plain_load32(from + (size_t)i * P_PREFILL_TOKENS));
    r->s->scale[it->which][mine] = rsqrt_approx(sum * (1.0f / M_HIDDEN) + M_RMS_EPS);
}

DEV void qkv_finish(struct reader *r, const struct item *it, const float *d, int block, int from, int to) {
    const int lane = r->w.lane, pair = lane % 4 * 2;
    const int low = qkv_column(it->row, pair), high = qkv_column(it->row, pair + 8);
    UNROLL
    for (int j = from; j < to; j++) {
        const float *scale = r->s->scale[it->which] + block * BLOCK_TOKENS + 8 * j + pair;
        const int token = it->token + block * BLOCK_TOKENS + 8 * j + lane / 4;
        const u32 a = transpose8(bf16_pair(d[4 * j] * scale[0], d[4 * j + 1] * scale[1]));
        const u32 b = transpose8(bf16_pair(d[4 * j + 2] * scale[0], d[4 * j + 3] * scale[1]));
        if (token >= r->w.a->n_tokens) continue;
        u16 *to_row = r->a->qkv + (size_t)token * QKV_COLUMNS;
        if (low >= 0) plain_store32((u32 *)(to_row + low), a);
        if (high >= 0) plain_store32((u32 *)(to_row + high), b);
    }
}

DEV void gate_up_finish(struct reader *r, const struct item *it, const float *d, int block, int from, int to) {
    const int lane = r->w.lane, pair = lane % 4 * 2, column = gated_column(it->row, pair);
    UNROLL
    for (int j = from; j < to; j++) {
        const float *scale = r->s->scale[it->which] + block * BLOCK_TOKENS + 8 * j + pair;
        const int token = it->token + block * BLOCK_TOKENS + 8 * j + lane / 4;
        const float a = silu(d[4 * j] * scale[0]) * (d[4 * j + 2] * scale[0]);
        const float b = silu(d[4 * j + 1] * scale[1]) * (d[4 * j + 3] * scale[1]);
        const u32 both = transpose8(bf16_pair(a, b));
        if (token < r->w.a->n_tokens && column >= 0) activation_store(r->a->gated, token, column, both);
    }
}

/* Adds to the residual stream; its squares' sums over the warp's rows go to shared memory. */
DEV void sums_finish(struct reader *r, const struct item *it, const float *d, int block, int from, int to,
                     const float *norm) {
    const int lane = r->w.lane, pair = lane % 4 * 2;
    UNROLL
    for (int first = from; first < to; first += 4) {
        float h[4][4], gain[2];
        int row[2];
        UNROLL
        for (int i = 0; i < 2; i++) {
            row[i] = hidden_row(it->row, lane / 4 + 8 * i);
            gain[i] = row[i] >= 0 ? const_loadf(norm + row[i]) : 0;
        }
        UNROLL
        for (int j = 0; j < 4; j++)
            UNROLL
            for (int i = 0; i < 4; i++) {
                const int token = it->token + block * BLOCK_TOKENS + 8 * (first + j) + pair + i % 2;
                const int there = token < r->w.a->n_tokens && row[i / 2] >= 0;
                h[j][i] = there ? bits_float(plain_load32((const u32 *)r->a->h + (size_t)token * M_HIDDEN + row[i / 2])) : 0;
            }
        UNROLL
        for (int j = 0; j < 4; j++) {
            const int local = block * BLOCK_TOKENS + 8 * (first + j);
            float square[2] = { 0, 0 };
            UNROLL
            for (int i = 0; i < 4; i++) {
                const int token = it->token + local + pair + i % 2;
                if (row[i / 2] < 0) continue;
                h[j][i] += d[4 * (first + j) + i];
                square[i % 2] += h[j][i] * h[j][i];
                if (token < r->w.a->n_tokens)
                    plain_store32((u32 *)r->a->h + (size_t)token * M_HIDDEN + row[i / 2], float_bits(h[j][i]));
            }
            UNROLL
            for (int i = 0; i < 2; i++) {
                const u32 both = transpose8(bf16_pair(h[j][2 * i] * gain[i], h[j][2 * i + 1] * gain[i]));
                const int column = hidden_row(it->row, pair + 8 * i), token = it->token + local + lane / 4;
                if (column >= 0 && token < r->w.a->n_tokens) activation_store(r->a->x, token, column, both);
                square[i] = xor_sum(square[i], 4, LANES);
                if (lane < 4) r->s->ssq[r->w.warp][local + pair + i] = square[i];
            }
        }
    }
}

/* The four warps' sums, of tokens [from, to) of the item, to their slot. */
DEV void ssq_finish(struct reader *r, const struct item *it, int from, int to) {
    const int half = r->w.warp / 4, slot = it->row / 4;
    barrier_wait(HALF_BARRIER + half, READ_CONSUMERS / 2);
    for (int i = from + r->w.warp % 4 * LANES + r->w.lane; i < to; i += READ_CONSUMERS / 2) {
        float sum = 0;
        UNROLL
        for (int warp = 0; warp < 4; warp++)
            sum += r->s->ssq[half * 4 + warp][i];
        if (slot < SSQ_SLOTS)
            plain_store32((u32 *)r->a->ssq + (size_t)slot * P_PREFILL_TOKENS + it->token + i, float_bits(sum));
    }
}

DEV void item_finish(struct reader *r, int phase, int layer, const struct item *it, const float *d, int block, int from,
                     int to) {
    if (phase == TAPE_QKV)
        qkv_finish(r, it, d, block, from, to);
    else if (phase == TAPE_GATE_UP)
        gate_up_finish(r, it, d, block, from, to);
    else
        sums_finish(r, it, d, block, from, to,
                    r->w.a->norms + (size_t)(2 * layer + (phase == TAPE_OUT ? 1 : 2)) * M_HIDDEN);
}

/* The other half's share of this half's tokens, which are 4 of the block's 8 columns of tokens. */
DEV void halves_meet(struct reader *r, float *d) {
    const int half = r->w.warp / 4, thread = r->w.warp % 4 * LANES + r->w.lane;
    UNROLL
    for (int i = 0; i < 16; i++) /* to the other one */
        r->s->exchange[(half * 16 + i) * 128 + thread] = half ? d[i] : d[16 + i];
    readers_sync();
    UNROLL
    for (int i = 0; i < 16; i++) {
        const float more = r->s->exchange[((1 - half) * 16 + i) * 128 + thread];
        if (half)
            d[16 + i] += more;
        else
            d[i] += more;
    }
}

/* All items of one phase. */
DEV void product_items(struct reader *r, int phase, int layer, const int blocks, const int split) {
    enum { MOST_BLOCKS = 2 };
    const int row_tiles = product_row_tiles(phase), n_k = product_k_tiles(phase);
    const int rows = split ? 4 : 8, tiles = split ? STAGE_TILES / 2 : STAGE_TILES, half = r->w.warp / 4;
    const int n_stages = (n_k + STAGE_TILES - 1) / STAGE_TILES;
    const int across = (r->w.a->n_tokens + BLOCK_TOKENS * blocks - 1) / (BLOCK_TOKENS * blocks);
    const int n_items = (row_tiles + rows - 1) / rows * across, step = (int)block_count();
    const int mine = split ? r->w.warp % 4 : r->w.warp, first_k = split ? half * tiles : 0;
    struct quad t[STAGE_TILES], next[STAGE_TILES];
    int waits = 1;
    struct item it;
    it.which = 0;
    UNROLL
    for (int i = 0; i < STAGE_TILES; i++)
        t[i].x = t[i].y = t[i].z = t[i].w = 0, next[i] = t[i];
    NO_UNROLL
    for (int item = r->w.block; item < n_items || waits; item += step) {
        float d[MOST_BLOCKS][32];
        it.row = item / across * rows + mine, it.token = item % across * BLOCK_TOKENS * blocks;
        const u8 *from = weights_row(r, phase, layer, it.row < row_tiles ? it.row : 0);
        if (waits) {
            if (item < n_items) weights_load(t, phase, from, first_k, tiles);
            phase_wait(r);
            waits = 0;
            if (item >= n_items) break;
        }
        if (!sums_groups(phase)) scales_make(r, &it, BLOCK_TOKENS * blocks);
        UNROLL
        for (int i = 0; i < 32 * blocks; i++)
            d[i / 32][i % 32] = 0;
        NO_UNROLL
        for (int stage = 0; stage < n_stages; stage++) {
            int k = (stage + 1) * STAGE_TILES + first_k;
            const u8 *later = from;
            if (stage + 1 == n_stages) { /* the next item's first */
                const int row = (item + step) / across * rows + mine;
                later = weights_row(r, phase, layer, row < row_tiles ? row : 0), k = first_k;
            }
            if (G_WGMMA) weights_load(next, phase, later, k, tiles);
            const smem b = smem_of(stage_take(r)) + (u32)(split ? half * BLOCK_BYTES : 0);
            panels_begin();
            UNROLL
            for (int i = 0; i < tiles; i++) {
                UNROLL
                for (int j = 0; j < blocks; j++)
                    panel_mma(d[j], t[i], b + (u32)((i / 4 * blocks + j) * BLOCK_BYTES), i % 4);
                if (!G_WGMMA) weights_load(t + i, phase, later, k + i, 1); /* it is free again at once */
            }
            panels_commit();
            panels_wait(d, blocks);
            u32 seen = 0;
            UNROLL
            for (int j = 0; j < 8 * blocks; j++)
                seen ^= float_bits(d[j / 8][j % 8 * 4]);
            stage_give(r, seen);
            UNROLL
            for (int i = 0; G_WGMMA && i < tiles; i++)
                t[i] = next[i];
        }
        readers_sync(); /* the scales are there, and everyone is done with the item before */
        if (it.row >= row_tiles) it.row = row_tiles; /* its rows are padding */
        if (split) halves_meet(r, d[0]);
        UNROLL
        for (int j = 0; j < blocks; j++)
            if (!split)
                item_finish(r, phase, layer, &it, d[j], j, 0, 8);
            else if (half)
                item_finish(r, phase, layer, &it, d[j], j, 4, 8);
            else
                item_finish(r, phase, layer, &it, d[j], j, 0, 4);
        if (sums_groups(phase)) ssq_finish(r, &it, split && half ? 32 : 0, split && !half ? 32 : BLOCK_TOKENS * blocks);
        it.which ^= 1;
    }
}

DEV void product_phase(struct reader *r, int phase, int layer) {
    const struct prefill_cut *cut = &r->a->cut[phase];
    const int blocks = (int)shuffle((u32)(cut->split_k ? 0 : cut->blocks), 0); /* uniform, as wgmma wants it */
    if (blocks == 0)
        product_items(r, phase, layer, 1, 1);
    else if (blocks == 1)
        product_items(r, phase, layer, 1, 0);
    else
        product_items(r, phase, layer, 2, 0);
}

/* The producer's part: the same items in the same order. */
DEV void product_produce(struct reader *r, int phase) {
    const struct prefill_cut *cut = &r->a->cut[phase];
    const int blocks = cut->split_k ? 1 : cut->blocks, rows = cut->split_k ? 4 : 8;
    const int n_blocks = (product_k_tiles(phase) + 3) / 4; /* of 64 columns */
    const int across = (r->w.a->n_tokens + BLOCK_TOKENS * blocks - 1) / (BLOCK_TOKENS * blocks);
    const int n_items = (product_row_tiles(phase) + rows - 1) / rows * across;
    const u8 *from = phase == TAPE_OUT ? r->a->attention : phase == TAPE_DOWN ? r->a->gated : r->a->x;
    const u32 bytes = (u32)(blocks * BLOCK_BYTES);
    const u64 column_bytes = (u64)P_PREFILL_TOKENS * 128;
    if (r->w.lane >= FILL_LANES) return;
    NO_UNROLL
    for (int item = r->w.block; item < n_items; item += (int)block_count()) {
        const u8 *tokens = from + (u64)(item % across) * bytes;
        NO_UNROLL
        for (int i = 0; i < n_blocks; i += 2)
            stage_fill(r, tokens + (u64)i * column_bytes, bytes,
                       tokens + (u64)(i + 1 < n_blocks ? i + 1 : i) * column_bytes, bytes, bytes);
    }
}

#endif
