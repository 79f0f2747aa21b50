/* chain: takes the state of a head through the chunks, one after the other. prefill_delta.cuh has the names and
 * formulas.
 *   reads    delta.w and .k through the stages (chain_produce), .u, .decay, .kept; the session's state
 *   writes   delta.states, .learned; the session's state, and that before the last token (keep_state)
 *   split    items (value head, 16 of its columns) over blocks; keys of the state, tokens of what it learns over
 *            warps
 *
 * The state stays in registers, turned: its rows are columns of the head, and a warp has 16 keys of it. So what a
 * product leaves is the next product's A operand as it lies, and passes from warp to warp through shared memory as
 * quads. Each chunk has two barriers: at the first the state is there for all warps, at the second what was learned
 * is. */
#ifndef REEL_KERNELS_PREFILL_DELTA_CHAIN_CUH
#define REEL_KERNELS_PREFILL_DELTA_CHAIN_CUH

#include "mma.cuh"
#include "prefill_delta.cuh"

enum { CHAIN_ITEMS = GPU_VALUE_HEADS * VALUE_TILES, CHAIN_K_AT = STAGE_BYTES / 2 };

/* This struct lies over the exchange of struct prefill_shared. */
struct ALIGN(16) chain_shared {
    struct quad state[KEY_TILES][2][LANES]; /* rounded, rest */
    struct quad learned[CHUNK_TILES][2][LANES];
};
STATIC_ASSERT(sizeof(struct chain_shared) <= EXCHANGE_FLOATS * 4, "operands of chain do not fit");

struct chain_item {
    int head, columns; /* columns: which 16 of the head */
};
DEV struct chain_item chain_item_of(int i) {
    struct chain_item it;
    it.head = i / VALUE_TILES, it.columns = i % VALUE_TILES;
    return it;
}

/* The producer warp fills one stage for each chunk: with w, and with k from CHAIN_K_AT on. */
DEV void chain_produce(struct prompt_worker *r) {
    const struct prefill_delta *d = &r->a->delta;
    const int chunks = delta_chunks(r);
    if (r->w.lane >= FILL_LANES) return;
    NO_UNROLL
    for (int i = r->w.block; i < CHAIN_ITEMS; i += (int)block_count()) {
        const int head = chain_item_of(i).head;
        NO_UNROLL
        for (int chunk = 0; chunk < chunks; chunk++)
            stage_fill(r, d->w + chunk_at(head, chunk, KEYS_BYTES), KEYS_BYTES,
                       d->k + chunk_at(head / HEAD_KEYS, chunk, KEYS_BYTES), KEYS_BYTES, CHAIN_K_AT);
    }
}

/* A lane's part of the state: columns lane / 4 and + 8, keys 2 (lane % 4) and + 1 of both blocks of 8. */
struct chain_state {
    float s[2][4];
};

/* Where element i of block b of this lane lies in `states`, or NULL where its column is padding. */
DEV float *state_at(const struct prompt_worker *r, float *states, int nth, const struct chain_item *it, int b, int i) {
    const struct delta_layout d = delta_shape();
    const int column = 16 * it->columns + r->w.lane / 4 + i / 2 * 8;
    const int key = 16 * r->w.warp + 8 * b + r->w.lane % 4 * 2 + i % 2;
    return column < M_VALUE_DIM ? states + delta_state(&d, nth, model_head(r, it->head), column) + key : 0;
}

DEV void state_load(const struct prompt_worker *r, int nth, const struct chain_item *it, struct chain_state *x) {
    UNROLL
    for (int i = 0; i < 8; i++) {
        const float *from = state_at(r, r->w.a->delta.state, nth, it, i / 4, i % 4);
        x->s[i / 4][i % 4] = from ? bits_float(plain_load32((const u32 *)from)) : 0;
    }
}
DEV void state_store(const struct prompt_worker *r, float *states, int nth, const struct chain_item *it,
                     const struct chain_state *x) {
    UNROLL
    for (int i = 0; i < 8; i++) {
        float *to = state_at(r, states, nth, it, i / 4, i % 4);
        if (to) plain_store32((u32 *)to, float_bits(x->s[i / 4][i % 4]));
    }
}

/* A warp stores its keys of the state as an operand: in shared memory for this block's warps, and in delta.states,
 * rounded, for answer. */
DEV void state_show(const struct prompt_worker *r, const struct chain_item *it, int chunk,
                    const struct chain_state *x) {
    struct chain_shared *c = (struct chain_shared *)r->s->exchange;
    u8 *to = r->a->delta.states + chunk_at(it->head, chunk, STATE_BYTES) +
             (it->columns * KEY_TILES + r->w.warp) * BF16_TILE_BYTES + r->w.lane * 16;
    struct quad a[2];
    struct terms v[4];
    UNROLL
    for (int i = 0; i < 4; i++)
        v[i] = terms_of(x->s[i / 2][i % 2 * 2], x->s[i / 2][i % 2 * 2 + 1]);
    a[0].x = v[0].rounded, a[0].y = v[1].rounded, a[0].z = v[2].rounded, a[0].w = v[3].rounded;
    a[1].x = v[0].rest, a[1].y = v[1].rest, a[1].z = v[2].rest, a[1].w = v[3].rest;
    c->state[r->w.warp][0][r->w.lane] = a[0], c->state[r->w.warp][1][r->w.lane] = a[1];
    plain_store128((struct quad *)to, a[0]);
}

/* What chain needs of a chunk besides its stage. A warp asks for it a chunk ahead. */
struct chain_ahead {
    struct quad u;        /* of this warp's 8 tokens */
    float left[2], whole; /* the factors with which two tokens, and the state, reach the chunk's end */
};
DEV void ahead_load(const struct prompt_worker *r, const struct chain_item *it, int chunk, struct chain_ahead *x) {
    const u8 *u = (const u8 *)r->a->delta.u + chunk_at(it->head, chunk, U_BYTES) +
                  ((it->columns * CHUNK_BLOCKS + r->w.warp) * LANES + r->w.lane) * 16;
    const u32 *decay =
        (const u32 *)r->a->delta.decay + (size_t)(2 * it->head) * P_PREFILL_TOKENS + (size_t)(chunk * DELTA_CHUNK);
    const u32 *left = decay + P_PREFILL_TOKENS + 8 * r->w.warp + r->w.lane % 4 * 2;
    x->u = cached_load128((const struct quad *)u);
    x->left[0] = bits_float(plain_load32(left)), x->left[1] = bits_float(plain_load32(left + 1));
    x->whole = bits_float(plain_load32(decay + DELTA_CHUNK - 1));
}

/* d = u - w S for this warp's 8 tokens. A lane has columns lane / 4 and + 8 of tokens 2 (lane % 4) and + 1. */
DEV void tokens_learn(const struct prompt_worker *r, smem w, const struct quad *u, float *d) {
    const struct chain_shared *c = (const struct chain_shared *)r->s->exchange;
    float said[2][4];
    UNROLL
    for (int i = 0; i < 8; i++)
        said[i / 4][i % 4] = 0;
    UNROLL
    for (int t = 0; t < KEY_TILES; t += 2) {
        const int two = t + 1 < KEY_TILES;
        const int column = 2 * t + (two ? r->w.lane / 8 : r->w.lane / 8 % 2);
        const struct quad b =
            matrices_load(w + (u32)((r->w.warp * KEY_BLOCKS + column) * MATRIX_BYTES + r->w.lane % 8 * 16));
        tile_mma(said[0], c->state[t][0][r->w.lane], b.x, b.y);
        tile_mma(said[1], c->state[t][1][r->w.lane], b.x, b.y);
        if (!two) break;
        tile_mma(said[0], c->state[t + 1][0][r->w.lane], b.z, b.w);
        tile_mma(said[1], c->state[t + 1][1][r->w.lane], b.z, b.w);
    }
    d[0] = bits_float(u->x) - (said[0][0] + said[1][0]), d[1] = bits_float(u->y) - (said[0][1] + said[1][1]);
    d[2] = bits_float(u->z) - (said[0][2] + said[1][2]), d[3] = bits_float(u->w) - (said[0][3] + said[1][3]);
}

/* Where this warp's 8 tokens lie in an operand of 16: the tile, and the first of their words of a quad. */
DEV int learned_tile(const struct prompt_worker *r) { return r->w.warp / 2; }
DEV int learned_word(const struct prompt_worker *r) { return r->w.warp % 2 * 2; }

/* Stores what was learned for answer, as it is. */
DEV void learned_show(const struct prompt_worker *r, const struct chain_item *it, int chunk, const float *d) {
    u8 *to = r->a->delta.learned + chunk_at(it->head, chunk, LEARNED_BYTES) +
             (it->columns * 2 * CHUNK_TILES + learned_tile(r)) * BF16_TILE_BYTES + r->w.lane * 16 + learned_word(r) * 4;
    UNROLL
    for (int i = 0; i < 2; i++) {
        const struct terms v = terms_of(d[2 * i], d[2 * i + 1]);
        plain_store32((u32 *)to + i, v.rounded);
        plain_store32((u32 *)(to + CHUNK_TILES * BF16_TILE_BYTES) + i, v.rest);
    }
}

/* Passes what was learned to the warps that move the state, times what of each token is `left`. */
DEV void learned_pass(const struct prompt_worker *r, const float *d, const float *left) {
    struct chain_shared *c = (struct chain_shared *)r->s->exchange;
    u32 *rounded = &c->learned[learned_tile(r)][0][r->w.lane].x + learned_word(r);
    u32 *rest = &c->learned[learned_tile(r)][1][r->w.lane].x + learned_word(r);
    UNROLL
    for (int i = 0; i < 2; i++) {
        const struct terms v = terms_of(d[2 * i] * left[0], d[2 * i + 1] * left[1]);
        rounded[i] = v.rounded, rest[i] = v.rest;
    }
}

/* S <- whole S + k^T (what was passed) for this warp's keys. `whole` is e^G_n, and in state_keep the state's factor of
 * delta.kept. */
DEV void state_move(const struct prompt_worker *r, smem k, float whole, struct chain_state *x) {
    const struct chain_shared *c = (const struct chain_shared *)r->s->exchange;
    float rest[2][4];
    UNROLL
    for (int i = 0; i < 8; i++)
        x->s[i / 4][i % 4] *= whole, rest[i / 4][i % 4] = 0;
    UNROLL
    for (int t = 0; t < CHUNK_TILES; t++) {
        const struct quad b = matrices_load_turned(tile_rows(k, KEY_BLOCKS, 2 * t, 2 * r->w.warp, r->w.lane));
        tile_mma(x->s[0], c->learned[t][0][r->w.lane], b.x, b.y);
        tile_mma(x->s[1], c->learned[t][0][r->w.lane], b.z, b.w);
        tile_mma(rest[0], c->learned[t][1][r->w.lane], b.x, b.y);
        tile_mma(rest[1], c->learned[t][1][r->w.lane], b.z, b.w);
    }
    UNROLL
    for (int i = 0; i < 8; i++)
        x->s[i / 4][i % 4] += rest[i / 4][i % 4];
}

/* In the last chunk: makes the state before the launch's last token and stores it to keep_state. x is a copy of the
 * state that the chunk begins with. */
DEV void state_keep(const struct prompt_worker *r, int nth, const struct chain_item *it, smem k, const float *d,
                    struct chain_state x) {
    const u32 *kept = (const u32 *)r->a->delta.kept + it->head * DELTA_KEPT;
    const u32 *own = kept + 8 * r->w.warp + r->w.lane % 4 * 2;
    const float left[2] = { bits_float(plain_load32(own)), bits_float(plain_load32(own + 1)) };
    learned_pass(r, d, left);
    readers_sync();
    if (r->w.warp < KEY_TILES) {
        state_move(r, k, bits_float(plain_load32(kept + DELTA_CHUNK)), &x);
        state_store(r, r->a->delta.keep_state, nth, it, &x);
    }
    readers_sync(); /* what was learned is passed on once more */
}

DEV void chain_phase(struct prompt_worker *r, int layer) {
    const int nth = delta_nth(layer), chunks = delta_chunks(r), has_keys = r->w.warp < KEY_TILES;
    NO_UNROLL
    for (int i = r->w.block; i < CHAIN_ITEMS; i += (int)block_count()) {
        const struct chain_item it = chain_item_of(i);
        struct chain_ahead next;
        struct chain_state x;
        if (has_keys) state_load(r, nth, &it, &x);
        ahead_load(r, &it, 0, &next);
        NO_UNROLL
        for (int chunk = 0; chunk < chunks; chunk++) {
            const struct chain_ahead now = next;
            const int last = chunk + 1 == chunks;
            float d[4];
            if (has_keys) state_show(r, &it, chunk, &x);
            if (!last) ahead_load(r, &it, chunk + 1, &next);
            const smem stage = smem_of(stage_take(r));
            readers_sync(); /* the state is there */
            tokens_learn(r, stage, &now.u, d);
            learned_show(r, &it, chunk, d);
            if (last && r->a->delta.keep_state) state_keep(r, nth, &it, stage + CHAIN_K_AT, d, x);
            learned_pass(r, d, now.left);
            readers_sync(); /* what was learned is there, and nobody reads the state any more */
            if (has_keys) state_move(r, stage + CHAIN_K_AT, now.whole, &x);
            stage_give(r, float_bits(d[0]) ^ (has_keys ? float_bits(x.s[0][0]) ^ float_bits(x.s[1][0]) : 0));
        }
        if (has_keys) state_store(r, r->w.a->delta.state, nth, &it, &x);
    }
}

#endif
