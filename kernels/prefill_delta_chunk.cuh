/* chunk: what the 64 tokens of a chunk do to each other, head by head (prefill_delta.cuh has names and formulas).
 *   reads    delta.q, .k, .v, .gates
 *   writes   delta.decay, .kept, .w, .u, .asked
 *   split    items (value head, chunk) over blocks, one at a time; two blocks share an SM where they fit
 *
 * T is made in float32. Each square of 16 by 16 on the diagonal is inverted by substitution, a column a lane. What
 * lies below the diagonal follows level by level from [A 0; B C]^-1 = [1/A 0; -1/C B 1/A  1/C], in products of two
 * bf16 terms each. */
#ifndef REEL_KERNELS_PREFILL_DELTA_CHUNK_CUH
#define REEL_KERNELS_PREFILL_DELTA_CHUNK_CUH

#include "mma.cuh"
#include "prefill_delta.cuh"

enum {
    CHUNK_COPIES = 3,
    OPERAND_BYTES = 2 * SQUARE_BYTES, /* both terms of T */
    Q_BYTES = KEYS_BYTES > OPERAND_BYTES ? KEYS_BYTES : OPERAND_BYTES,
    W_TILES = (KEY_TILES + 1) / 2 /* tiles of keys that one warp has */
};

/* chunk_shared_bytes (prefill_layout.h) counts the same parts. */
struct ALIGN(16) chunk_shared {
    u8 k[KEYS_BYTES], v[VALUES_BYTES];
    u8 q[Q_BYTES];                             /* q, later T beta, as u wants it */
    u8 weighted[OPERAND_BYTES];                /* T beta e^G */
    float t[DELTA_CHUNK * T_STRIDE];           /* M below the diagonal, then T */
    float sum[DELTA_CHUNK], beta[DELTA_CHUNK]; /* G and beta of each token */
    u64 full;
};

struct chunk_item {
    int head, chunk;
};

/* ---- gates ---- */

/* Warp 0, in the last chunk: stores to delta.kept what reaches the position before the launch's last token. */
DEV void kept_store(const struct prompt_worker *r, const struct chunk_item *it, const struct chunk_shared *s) {
    const int last = (r->n_tokens - 1) % DELTA_CHUNK;
    const float all = last ? s->sum[last - 1] : 0;
    u32 *to = (u32 *)r->a->delta.kept + it->head * DELTA_KEPT;
    for (int i = r->w.lane; i < DELTA_CHUNK; i += LANES)
        plain_store32(to + i, float_bits(i < last ? exp_of(all - s->sum[i]) : 0));
    if (r->w.lane == 0) plain_store32(to + DELTA_CHUNK, float_bits(exp_of(all)));
}

/* Warp 0 makes G and beta of the chunk's tokens, two in a lane. It also stores to delta.decay what reaches each token
 * from the chunk's start, e^G, and what reaches the chunk's end from each token, e^(G_n - G). */
DEV void chunk_gates(const struct prompt_worker *r, const struct chunk_item *it, struct chunk_shared *s) {
    const size_t at = (size_t)(2 * it->head) * P_PREFILL_TOKENS + (size_t)(it->chunk * DELTA_CHUNK);
    const u32 *decay = (const u32 *)r->a->delta.gates + at, *beta = decay + P_PREFILL_TOKENS;
    u32 *to = (u32 *)r->a->delta.decay + at;
    const int lane = r->w.lane, token = 2 * lane;
    const float low = bits_float(plain_load32(decay + token)), high = bits_float(plain_load32(decay + token + 1));
    float sum = low + high, g[2];
    UNROLL
    for (int i = 1; i < LANES; i *= 2) {
        const float before = bits_float(shuffle(float_bits(sum), lane - i));
        sum += lane < i ? 0 : before;
    }
    const float before = bits_float(shuffle(float_bits(sum), lane - 1));
    g[0] = (lane ? before : 0) + low, g[1] = g[0] + high;
    const float all = bits_float(shuffle(float_bits(g[1]), LANES - 1));
    UNROLL
    for (int i = 0; i < 2; i++) {
        s->sum[token + i] = g[i];
        s->beta[token + i] = bits_float(plain_load32(beta + token + i));
        plain_store32(to + token + i, float_bits(exp_of(g[i])));
        plain_store32(to + P_PREFILL_TOKENS + token + i, float_bits(exp_of(all - g[i])));
    }
    warp_sync();
    if (it->chunk == delta_chunks(r) - 1) kept_store(r, it, s);
}

/* ---- k k^T and q k^T ---- */

/* A warp multiplies 16 rows of `a` with the rows of k. d[j] has columns 8 j to 8 j + 7, up to the diagonal's. */
DEV void rows_products(const struct prompt_worker *r, smem a, smem k, int tile, float (*d)[4]) {
    const int lane = r->w.lane;
    UNROLL
    for (int j = 0; j < CHUNK_BLOCKS; j++)
        d[j][0] = d[j][1] = d[j][2] = d[j][3] = 0;
    UNROLL_BY(2)
    for (int t = 0; t < KEY_TILES; t++) {
        const struct quad rows = matrices_load(tile_rows(a, KEY_BLOCKS, 2 * tile, 2 * t, lane));
        UNROLL
        for (int j = 0; j < CHUNK_TILES; j++) {
            if (j > tile) break;
            const struct quad b = matrices_load(tile_columns(k, KEY_BLOCKS, 2 * j, 2 * t, lane));
            tile_mma(d[2 * j], rows, b.x, b.y);
            tile_mma(d[2 * j + 1], rows, b.z, b.w);
        }
    }
}

/* Stores M - I to t: beta_i (k_i . k_j) e^(G_i - G_j) below the diagonal, 0 on it and above. Tiles above the diagonal's
 * stay unwritten. */
DEV void among_store(const struct prompt_worker *r, struct chunk_shared *s, int tile, float (*d)[4]) {
    const int row = 16 * tile + r->w.lane / 4, pair = r->w.lane % 4 * 2;
    UNROLL
    for (int j = 0; j < CHUNK_BLOCKS; j++) {
        if (j > 2 * tile + 1) break;
        UNROLL
        for (int i = 0; i < 4; i++) {
            const int token = row + i / 2 * 8, other = 8 * j + pair + i % 2;
            const float v = s->beta[token] * d[j][i] * exp_of(s->sum[token] - s->sum[other]);
            s->t[token * T_STRIDE + other] = other < token ? v : 0;
        }
    }
}

DEV void asked_store(const struct prompt_worker *r, const struct chunk_item *it, const struct chunk_shared *s, int tile,
                     float (*d)[4]) {
    const int row = 16 * tile + r->w.lane / 4, pair = r->w.lane % 4 * 2;
    u8 *to = r->a->delta.asked + chunk_at(it->head, it->chunk, 2 * SQUARE_BYTES) + r->w.lane * 4;
    UNROLL
    for (int j = 0; j < CHUNK_BLOCKS; j++) {
        if (j > 2 * tile + 1) break;
        UNROLL
        for (int half = 0; half < 2; half++) {
            const int token = row + 8 * half, other = 8 * j + pair;
            float v[2];
            UNROLL
            for (int i = 0; i < 2; i++) {
                v[i] = d[j][2 * half + i] * exp_of(s->sum[token] - s->sum[other + i]);
                v[i] = other + i <= token ? v[i] : 0;
            }
            const struct terms both = terms_of(v[0], v[1]);
            u8 *at = to + ((2 * tile + half) * CHUNK_BLOCKS + j) * MATRIX_BYTES;
            plain_store32((u32 *)at, both.rounded);
            plain_store32((u32 *)(at + SQUARE_BYTES), both.rest);
        }
    }
}

/* ---- T ---- */

/* Loads this lane's words of a tile of M or T as an A operand of two terms. */
DEV void tile_terms(const float *t, int row, int column, int lane, struct quad *a) {
    const float *from = t + (row + lane / 4) * T_STRIDE + column + lane % 4 * 2;
    struct terms v[4];
    UNROLL
    for (int i = 0; i < 4; i++) {
        const float *at = from + i % 2 * 8 * T_STRIDE + i / 2 * 8;
        v[i] = terms_of(at[0], at[1]);
    }
    a[0].x = v[0].rounded, a[0].y = v[1].rounded, a[0].z = v[2].rounded, a[0].w = v[3].rounded;
    a[1].x = v[0].rest, a[1].y = v[1].rest, a[1].z = v[2].rest, a[1].w = v[3].rest;
}

/* Loads 8 columns as a B operand: its half with rows `row` to row + 7. */
DEV struct terms column_terms(const float *t, int row, int column, int lane) {
    const float *from = t + (row + lane % 4 * 2) * T_STRIDE + column + lane / 4;
    return terms_of(from[0], from[T_STRIDE]);
}

/* Turns what a product left into a B operand of the next product. */
DEV struct terms turned_terms(const float *d) {
    struct terms v = terms_of(d[0], d[1]);
    v.rounded = transpose8(v.rounded), v.rest = transpose8(v.rest);
    return v;
}

/* Inverts a square of 16 by 16 on the diagonal. Each lane makes one column, apart from all other lanes. */
DEV void diagonal_invert(struct chunk_shared *s, int tile, int lane) {
    float *t = s->t + 16 * tile * (T_STRIDE + 1), x[16];
    const int column = lane % 16;
    UNROLL
    for (int i = 0; i < 16; i++) {
        float v = i == column ? 1.0f : 0.0f;
        UNROLL
        for (int j = 0; j < i; j++)
            v -= t[i * T_STRIDE + j] * x[j];
        x[i] = v;
    }
    warp_sync();
    if (lane < 16) {
        UNROLL
        for (int i = 0; i < 16; i++)
            t[i * T_STRIDE + column] = x[i];
    }
}

/* x = 1/C B 1/A for 8 columns; below_store changes the sign. A, B and C have n tiles each way. A begins at
 * (first, first), and C follows on the diagonal. */
DEV void below_make(const struct chunk_shared *s, int first, int column, const int n, int lane, float (*x)[4]) {
    const int below = first + 16 * n;
    struct quad a[2];
    struct terms b[2][2];
    UNROLL
    for (int j = 0; j < n; j++) {
        UNROLL
        for (int half = 0; half < 2; half++) {
            const int there = first + 16 * j + 15 >= column; /* above the diagonal nobody wrote */
            b[j][half] = column_terms(s->t, first + 16 * j + 8 * half, column, lane);
            b[j][half].rounded = there ? b[j][half].rounded : 0, b[j][half].rest = there ? b[j][half].rest : 0;
        }
    }
    UNROLL
    for (int i = 0; i < n; i++) {
        x[i][0] = x[i][1] = x[i][2] = x[i][3] = 0;
        UNROLL
        for (int j = 0; j < n; j++) {
            tile_terms(s->t, below + 16 * i, first + 16 * j, lane, a);
            terms_mma(x[i], a, b[j][0], b[j][1]);
        }
    }
    UNROLL
    for (int j = 0; j < n; j++)
        b[j][0] = turned_terms(x[j]), b[j][1] = turned_terms(x[j] + 2);
    UNROLL
    for (int i = 0; i < n; i++) {
        x[i][0] = x[i][1] = x[i][2] = x[i][3] = 0;
        UNROLL
        for (int j = 0; j <= i; j++) {
            tile_terms(s->t, below + 16 * i, below + 16 * j, lane, a);
            terms_mma(x[i], a, b[j][0], b[j][1]);
        }
    }
}

DEV void below_store(struct chunk_shared *s, int first, int column, const int n, int lane, float (*x)[4]) {
    float *to = s->t + (first + 16 * n + lane / 4) * T_STRIDE + column + lane % 4 * 2;
    UNROLL
    for (int i = 0; i < 4 * n; i++)
        to[(i / 4 * 16 + i % 4 / 2 * 8) * T_STRIDE + i % 2] = -x[i / 4][i % 4];
}

/* Four warps make T where M was; the other warps only wait. */
DEV void invert(const struct prompt_worker *r, struct chunk_shared *s) {
    const int warp = r->w.warp, lane = r->w.lane, busy = warp < 4;
    const int first = warp / 2 * 32, column = first + warp % 2 * 8;
    float x[2][4];
    if (busy) diagonal_invert(s, warp, lane);
    readers_sync();
    if (busy) below_make(s, first, column, 1, lane, x);
    readers_sync(); /* two warps read the same tiles */
    if (busy) below_store(s, first, column, 1, lane, x);
    readers_sync();
    if (busy) below_make(s, 0, 8 * warp, 2, lane, x);
    readers_sync();
    if (busy) below_store(s, 0, 8 * warp, 2, lane, x);
    warp_sync(); /* nobody else needs these columns: operands_make */
}

/* Makes two operands of two terms each: T with its columns times beta, and T with its columns times beta e^G. A warp
 * makes 8 columns. No other warp has written to these columns since the last barrier. */
DEV void operands_make(const struct prompt_worker *r, struct chunk_shared *s) {
    const int lane = r->w.lane;
    UNROLL_BY(2)
    for (int i = r->w.warp; i < CHUNK_BLOCKS * CHUNK_BLOCKS; i += READ_WARPS) {
        const int row = i / CHUNK_BLOCKS, column = i % CHUNK_BLOCKS, other = 8 * column + lane % 4 * 2;
        const float *t = s->t + (8 * row + lane / 4) * T_STRIDE + other;
        u8 *u = s->q + i * MATRIX_BYTES + lane * 4, *w = s->weighted + i * MATRIX_BYTES + lane * 4;
        if (column / 2 > row / 2) continue;
        const float low = t[0] * s->beta[other], high = t[1] * s->beta[other + 1];
        const struct terms v = terms_of(low, high);
        const struct terms e = terms_of(low * exp_of(s->sum[other]), high * exp_of(s->sum[other + 1]));
        *(u32 *)u = v.rounded, *(u32 *)(u + SQUARE_BYTES) = v.rest;
        *(u32 *)w = e.rounded, *(u32 *)(w + SQUARE_BYTES) = e.rest;
    }
}

/* ---- w and u ---- */

/* A warp makes w for 16 tokens and every other tile of keys. */
DEV void w_make(const struct prompt_worker *r, const struct chunk_item *it, struct chunk_shared *s, int tile,
                int half) {
    const int lane = r->w.lane;
    const smem t = smem_of(s->weighted), k = smem_of(s->k);
    u8 *to = r->a->delta.w + chunk_at(it->head, it->chunk, KEYS_BYTES) + lane * 4;
    float d[2 * W_TILES][4];
    UNROLL
    for (int i = 0; i < 2 * W_TILES; i++)
        d[i][0] = d[i][1] = d[i][2] = d[i][3] = 0;
    NO_UNROLL
    for (int j = 0; j <= tile; j++) {
        const struct quad a = matrices_load(tile_rows(t, CHUNK_BLOCKS, 2 * tile, 2 * j, lane));
        const struct quad rest = matrices_load(tile_rows(t + SQUARE_BYTES, CHUNK_BLOCKS, 2 * tile, 2 * j, lane));
        UNROLL
        for (int i = 0; i < W_TILES; i++) {
            const int keys = 2 * i + half;
            if (keys >= KEY_TILES) break;
            const struct quad b = matrices_load_turned(tile_rows(k, KEY_BLOCKS, 2 * j, 2 * keys, lane));
            tile_mma(d[2 * i], a, b.x, b.y), tile_mma(d[2 * i + 1], a, b.z, b.w);
            tile_mma(d[2 * i], rest, b.x, b.y), tile_mma(d[2 * i + 1], rest, b.z, b.w);
        }
    }
    UNROLL
    for (int i = 0; i < 2 * W_TILES; i++) {
        const int column = 2 * (i / 2 * 2 + half) + i % 2;
        if (column >= KEY_BLOCKS) break;
        u8 *at = to + (2 * tile * KEY_BLOCKS + column) * MATRIX_BYTES;
        plain_store32((u32 *)at, bf16_pair(d[i][0], d[i][1]));
        plain_store32((u32 *)(at + KEY_BLOCKS * MATRIX_BYTES), bf16_pair(d[i][2], d[i][3]));
    }
}

/* A warp makes u for 16 columns of the head. u lies turned, with these columns as rows, as chain keeps the state. */
DEV void u_make(const struct prompt_worker *r, const struct chunk_item *it, struct chunk_shared *s, int columns) {
    const int lane = r->w.lane;
    const smem t = smem_of(s->q), v = smem_of(s->v);
    u8 *to =
        (u8 *)r->a->delta.u + chunk_at(it->head, it->chunk, U_BYTES) + (columns * CHUNK_BLOCKS * LANES + lane) * 16;
    struct quad a[CHUNK_TILES];
    UNROLL
    for (int j = 0; j < CHUNK_TILES; j++)
        a[j] = matrices_load_turned(tile_columns(v, VALUE_BLOCKS, 2 * j, 2 * columns, lane));
    UNROLL
    for (int i = 0; i < CHUNK_TILES; i++) {
        float d[2][4];
        UNROLL
        for (int half = 0; half < 2; half++)
            d[half][0] = d[half][1] = d[half][2] = d[half][3] = 0;
        UNROLL
        for (int j = 0; j <= i; j++) {
            const struct quad b = matrices_load(tile_columns(t, CHUNK_BLOCKS, 2 * i, 2 * j, lane));
            const struct quad rest = matrices_load(tile_columns(t + SQUARE_BYTES, CHUNK_BLOCKS, 2 * i, 2 * j, lane));
            tile_mma(d[0], a[j], b.x, b.y), tile_mma(d[1], a[j], b.z, b.w);
            tile_mma(d[0], a[j], rest.x, rest.y), tile_mma(d[1], a[j], rest.z, rest.w);
        }
        UNROLL
        for (int half = 0; half < 2; half++) {
            struct quad made;
            made.x = float_bits(d[half][0]), made.y = float_bits(d[half][1]);
            made.z = float_bits(d[half][2]), made.w = float_bits(d[half][3]);
            plain_store128((struct quad *)(to + (2 * i + half) * LANES * 16), made);
        }
    }
}

/* ---- items ---- */

DEV void chunk_fill(const struct prompt_worker *r, const struct chunk_item *it, struct chunk_shared *s) {
    const struct prefill_delta *d = &r->a->delta;
    const smem full = smem_of(&s->full);
    const size_t keys = chunk_at(it->head / HEAD_KEYS, it->chunk, KEYS_BYTES);
    if (r->w.warp != 0 || r->w.lane >= FILL_LANES) return;
    ring_fill(smem_of(s->k), d->k + keys, KEYS_BYTES, full);
    ring_fill(smem_of(s->q), d->q + keys, KEYS_BYTES, full);
    ring_fill(smem_of(s->v), d->v + chunk_at(it->head, it->chunk, VALUES_BYTES), VALUES_BYTES, full);
}

DEV void chunk_item_make(struct prompt_worker *r, const struct chunk_item *it, struct chunk_shared *s) {
    const int warp = r->w.warp, is_q = warp >= 4;
    const int tile = is_q ? 7 - warp : warp; /* as much for warps that share a scheduler */
    float d[CHUNK_BLOCKS][4];
    rows_products(r, smem_of(is_q ? s->q : s->k), smem_of(s->k), tile, d);
    if (is_q)
        asked_store(r, it, s, tile, d);
    else
        among_store(r, s, tile, d);
    readers_sync();
    invert(r, s);
    operands_make(r, s);
    readers_sync();
    w_make(r, it, s, tile, is_q);
    NO_UNROLL
    for (int columns = warp; columns < VALUE_TILES; columns += READ_WARPS)
        u_make(r, it, s, columns);
}

DEV void chunk_phase(struct prompt_worker *r, struct chunk_shared *s) {
    const int chunks = delta_chunks(r), step = (int)block_count();
    const smem full = smem_of(&s->full);
    u32 parity = 0;
    NO_UNROLL
    for (int i = r->w.block; i < chunks * GPU_VALUE_HEADS; i += step, parity ^= 1) {
        struct chunk_item it;
        it.head = i % GPU_VALUE_HEADS, it.chunk = i / GPU_VALUE_HEADS;
        if (i != r->w.block) {
            fence_slot(); /* copies come where operands were */
            readers_sync();
        }
        chunk_fill(r, &it, s);
        if (r->w.warp == 0) chunk_gates(r, &it, s);
        copies_wait(r, full, parity);
        readers_sync();
        chunk_item_make(r, &it, s);
    }
}

#endif
