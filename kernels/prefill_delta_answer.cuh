/* answer: o of a chunk's tokens, normed and multiplied by silu(z). prefill_delta.cuh has the names and formulas.
 *   reads    delta.q, .asked, .states, .learned, .decay; z in qkv; the norm's gains
 *   writes   attention, bf16, columns as out's k tiles have them
 *   split    items (value head, chunk) over blocks, one at a time; 16 tokens and every other tile of columns over
 *            warps */
#ifndef REEL_KERNELS_PREFILL_DELTA_ANSWER_CUH
#define REEL_KERNELS_PREFILL_DELTA_ANSWER_CUH

#include "mma.cuh"
#include "prefill_delta.cuh"

enum { ANSWER_COPIES = 4, ANSWER_TILES = (VALUE_TILES + 1) / 2 /* tiles of columns that one warp has */ };

/* answer_shared_bytes (prefill_layout.h) counts the same parts. */
struct ALIGN(16) answer_shared {
    u8 q[KEYS_BYTES], asked[2 * SQUARE_BYTES];
    struct quad states[VALUE_TILES][KEY_TILES][LANES];
    struct quad learned[VALUE_TILES][2][CHUNK_TILES][LANES];
    float squares[2][2][DELTA_CHUNK]; /* sums of squares [item's parity][half of the warps][token] */
    u64 full;
};

struct answer {
    int head, chunk, tile, half; /* tile: which 16 tokens; half: whether its columns' tiles are the even or odd ones */
    float d[ANSWER_TILES][2][4]; /* tokens lane / 4 and + 8, columns 2 (lane % 4) and + 1 of each block of 8 */
    u32 z[ANSWER_TILES][2][2];   /* z of the same tokens and columns */
};

DEV int answer_column(const struct prompt_worker *r, const struct answer *x, int i, int b) {
    return 16 * (2 * i + x->half) + 8 * b + r->w.lane % 4 * 2;
}
DEV int answer_token(const struct prompt_worker *r, const struct answer *x, int half) {
    return x->chunk * DELTA_CHUNK + 16 * x->tile + r->w.lane / 4 + 8 * half;
}

/* Asks for z while the copies are on their way. */
DEV void gates_ask(const struct prompt_worker *r, struct answer *x) {
    const int last = r->n_tokens - 1;
    UNROLL
    for (int half = 0; half < 2; half++) {
        const int token = answer_token(r, x, half);
        const u16 *row = r->a->qkv + (size_t)(token < last ? token : last) * MIX_WIDTH + CHANNELS;
        UNROLL
        for (int i = 0; i < 2 * ANSWER_TILES; i++) {
            const int column = answer_column(r, x, i / 2, i % 2);
            const u32 *z = (const u32 *)(row + x->head * M_VALUE_DIM + (column < M_VALUE_DIM ? column : 0));
            x->z[i / 2][i % 2][half] = plain_load32(z);
        }
    }
}

DEV void answer_fill(const struct prompt_worker *r, const struct answer *x, struct answer_shared *s) {
    const struct prefill_delta *d = &r->a->delta;
    const smem full = smem_of(&s->full);
    if (r->w.warp != 0 || r->w.lane >= FILL_LANES) return;
    ring_fill(smem_of(s->q), d->q + chunk_at(x->head / HEAD_KEYS, x->chunk, KEYS_BYTES), KEYS_BYTES, full);
    ring_fill(smem_of(s->states), d->states + chunk_at(x->head, x->chunk, STATE_BYTES), STATE_BYTES, full);
    ring_fill(smem_of(s->asked), d->asked + chunk_at(x->head, x->chunk, 2 * SQUARE_BYTES), 2 * SQUARE_BYTES, full);
    ring_fill(smem_of(s->learned), d->learned + chunk_at(x->head, x->chunk, LEARNED_BYTES), LEARNED_BYTES, full);
}

/* d = e^G q S: what the tokens get from the state that the chunk begins with. */
DEV void state_ask(const struct prompt_worker *r, const struct answer_shared *s, struct answer *x) {
    const u32 *decay = (const u32 *)r->a->delta.decay + (size_t)(2 * x->head) * P_PREFILL_TOKENS +
                       (size_t)(x->chunk * DELTA_CHUNK + 16 * x->tile + r->w.lane / 4);
    const float e[2] = { bits_float(plain_load32(decay)), bits_float(plain_load32(decay + 8)) };
    const smem q = smem_of(s->q);
    UNROLL
    for (int i = 0; i < ANSWER_TILES * 8; i++)
        x->d[i / 8][i / 4 % 2][i % 4] = 0;
    NO_UNROLL
    for (int t = 0; t < KEY_TILES; t++) {
        const struct quad a = matrices_load(tile_rows(q, KEY_BLOCKS, 2 * x->tile, 2 * t, r->w.lane));
        UNROLL
        for (int i = 0; i < ANSWER_TILES; i++) {
            const int columns = 2 * i + x->half;
            if (columns >= VALUE_TILES) break;
            const struct quad b = s->states[columns][t][r->w.lane];
            tile_mma(x->d[i][0], a, b.x, b.z), tile_mma(x->d[i][1], a, b.y, b.w);
        }
    }
    UNROLL
    for (int i = 0; i < ANSWER_TILES * 8; i++)
        x->d[i / 8][i / 4 % 2][i % 4] *= e[i % 4 / 2];
}

/* d += asked learned: what the tokens get from the tokens of their own chunk. */
DEV void chunk_ask(const struct prompt_worker *r, const struct answer_shared *s, struct answer *x) {
    const smem asked = smem_of(s->asked);
    NO_UNROLL
    for (int t = 0; t <= x->tile; t++) {
        const struct quad a = matrices_load(tile_rows(asked, CHUNK_BLOCKS, 2 * x->tile, 2 * t, r->w.lane));
        const struct quad rest =
            matrices_load(tile_rows(asked + SQUARE_BYTES, CHUNK_BLOCKS, 2 * x->tile, 2 * t, r->w.lane));
        UNROLL
        for (int i = 0; i < ANSWER_TILES; i++) {
            const int columns = 2 * i + x->half;
            if (columns >= VALUE_TILES) break;
            const struct quad b = s->learned[columns][0][t][r->w.lane], low = s->learned[columns][1][t][r->w.lane];
            tile_mma(x->d[i][0], a, b.x, b.z), tile_mma(x->d[i][1], a, b.y, b.w);
            tile_mma(x->d[i][0], rest, b.x, b.z), tile_mma(x->d[i][1], rest, b.y, b.w);
            tile_mma(x->d[i][0], a, low.x, low.z), tile_mma(x->d[i][1], a, low.y, low.w);
        }
    }
}

/* Makes the scale of the norm for this lane's two tokens, over all of the head's columns. Two warps share these
 * columns, so their sums of squares meet in shared memory. */
DEV void answer_scales(const struct prompt_worker *r, struct answer_shared *s, const struct answer *x, u32 turn,
                       float *scale) {
    const int token = 16 * x->tile + r->w.lane / 4;
    float sum[2] = { 0, 0 };
    UNROLL
    for (int i = 0; i < ANSWER_TILES * 8; i++)
        sum[i % 4 / 2] += x->d[i / 8][i / 4 % 2][i % 4] * x->d[i / 8][i / 4 % 2][i % 4];
    UNROLL
    for (int i = 0; i < 2; i++) {
        sum[i] = xor_sum(sum[i], 1, 4);
        if (r->w.lane % 4 == 0) s->squares[turn][x->half][token + 8 * i] = sum[i];
    }
    readers_sync();
    UNROLL
    for (int i = 0; i < 2; i++) {
        const float all = s->squares[turn][0][token + 8 * i] + s->squares[turn][1][token + 8 * i];
        scale[i] = rsqrt_approx(all * (1.0f / M_VALUE_DIM) + M_RMS_EPS);
    }
}

DEV void answer_store(const struct prompt_worker *r, const float *gains, const struct answer *x, const float *scale) {
    const int to =
        x->head / P_GROUP_VALUE_HEADS * (P_OUT_K_TILES * TILE_K) + x->head % P_GROUP_VALUE_HEADS * M_VALUE_DIM;
    UNROLL
    for (int i = 0; i < 2 * ANSWER_TILES; i++) {
        const int column = answer_column(r, x, i / 2, i % 2);
        if (column >= M_VALUE_DIM) continue;
        const float low = const_loadf(gains + column), high = const_loadf(gains + column + 1);
        UNROLL
        for (int half = 0; half < 2; half++) {
            const int token = answer_token(r, x, half);
            const float *d = x->d[i / 2][i % 2] + 2 * half;
            const u32 z = x->z[i / 2][i % 2][half];
            if (token < r->n_tokens)
                activation_store(r, r->a->attention, token, to + column,
                                 bf16_pair(d[0] * scale[half] * low * silu(bf16_low(z)),
                                           d[1] * scale[half] * high * silu(bf16_high(z))));
        }
    }
}

DEV void answer_phase(struct prompt_worker *r, int layer, struct answer_shared *s) {
    const struct delta_layout shape = delta_shape();
    const float *gains = delta_numbers(r, delta_nth(layer)) + delta_norm_offset(&shape);
    const int n = delta_chunks(r) * GPU_VALUE_HEADS;
    const smem full = smem_of(&s->full);
    u32 parity = 0;
    NO_UNROLL
    for (int i = r->w.block; i < n; i += (int)block_count(), parity ^= 1) {
        struct answer x;
        float scale[2];
        x.head = i % GPU_VALUE_HEADS, x.chunk = i / GPU_VALUE_HEADS;
        x.half = r->w.warp / 4, x.tile = x.half ? 7 - r->w.warp : r->w.warp; /* as much for a scheduler's two warps */
        answer_fill(r, &x, s);
        gates_ask(r, &x);
        copies_wait(r, full, parity);
        state_ask(r, s, &x);
        chunk_ask(r, s, &x);
        answer_scales(r, s, &x, parity, scale); /* and all have read what was copied */
        answer_store(r, gains, &x, scale);
    }
}

#endif
