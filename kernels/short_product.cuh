/* Short prompts: the products of a layer with a few tokens. A run of atoms (8 tokens each) goes through a product
 * together. Up to 16 tokens are one narrow run; more tokens are wide runs. Warps split k. Then all warps add up the
 * partial sums of a run and publish the results, a row tile of an atom each.
 *   qkv      x                -> q, k, v rows, to the group
 *   out      attention, in q  -> the group's partial sums, to their owners
 *   gate_up  x                -> gated values, to the group
 *   down     gated            -> partial sums, to their owners */
#ifndef REEL_KERNELS_SHORT_PRODUCT_CUH
#define REEL_KERNELS_SHORT_PRODUCT_CUH

#include "mma.cuh"
#include "short_shared.cuh"

/* TILES: tiles of a warp in a phase. PRELOAD: those that it takes into registers before its input arrives. */
#define TILES(S)   (P_##S##_WARP_ROWS * P_##S##_WARP_K / TILE_PARTS(P_##S##_FORMAT) - P_##S##_HALF * P_##S##_WARP_K / 2)
#define PRELOAD(S) (TILES(S) < PRELOAD_TILES ? TILES(S) : PRELOAD_TILES)
/* Row tiles of a warp at most; the warp holds their sums. */
enum { MOST_ROWS = MAX(MAX(P_QKV_WARP_ROWS, P_OUT_WARP_ROWS), MAX(P_GATE_UP_WARP_ROWS, P_DOWN_WARP_ROWS)) };
/* MOST_ATOMS: atoms of a run at most. A warp takes its input in parts: NARROW_K and WIDE_K are the k tiles of a part
 * at most, TAKE_FRAGMENTS its fragments. A narrow run whose tiles, sums and two parts would be more than MOST_QUADS of
 * four registers each takes FEW_K at most, because the compiler would put what does not fit aside; with several GPUs
 * waiting takes some, too. */
enum { MOST_ATOMS = WIDE, NARROW_K = 6, FEW_K = 4, MOST_QUADS = P_GPUS > 1 ? 40 : 44, WIDE_K = 2 };
enum { TAKE_FRAGMENTS = MAX(NARROW_K * PAIR, WIDE_K *WIDE) };

/* ---- the norm's scale ---- */

/* SQUARES: how many words of sums of squares a lane takes for a run. The lane has one token, and every
 * SQUARES_STEP-th of the warp's k tiles. */
#define SQUARES_STEP(some) (LANES / ((some)*ATOM_TOKENS))
#define SQUARES(some)      ((P_QKV_WARP_K + SQUARES_STEP(some) - 1) / SQUARES_STEP(some))
struct squares {
    u64 v[SQUARES(WIDE)];
};

/* Where the lane's words lie for the norm before qkv (which is 0) or gate_up (1). */
DEV const u64 *squares_at(const struct short_worker *b, int which, const int some) {
    const int tokens = some * ATOM_TOKENS, tile = b->w.warp * P_QKV_WARP_K + b->w.lane / tokens;
    return b->w.a->words + S_SSQ + (which * H_TILES + tile) * P_SHORT_TOKENS + b->w.lane % tokens;
}
DEV void squares_ask(const struct short_worker *b, struct squares *s, const u64 *from, const int some) {
    const int tokens = some * ATOM_TOKENS, step = SQUARES_STEP(some), tile = b->w.lane / tokens;
    const int exact = H_TILES == P_WARPS * P_QKV_WARP_K && P_QKV_WARP_K % step == 0;
    const int there = some > PAIR || b->w.lane % tokens < b->padded * ATOM_TOKENS;
    const int left = H_TILES - b->w.warp * P_QKV_WARP_K, tiles = left < P_QKV_WARP_K ? left : P_QKV_WARP_K;
    UNROLL
    for (int i = 0; i < SQUARES(some); i++)
        s->v[i] = there && (exact || tile + i * step < tiles) ? word_load(from + i * step * P_SHORT_TOKENS)
                                                              : word_make(0, b->w.epoch);
}
/* Waits for the words that squares_ask has asked for, and leaves their sums in shared memory for all warps. */
DEV void squares_take(struct short_worker *b, struct squares *s, const u64 *from, const int some) {
    const int tokens = some * ATOM_TOKENS, step = SQUARES_STEP(some);
    u32 polls = 0;
    float sum = 0;
    NO_UNROLL
    for (;;) {
        u32 off = 0;
        UNROLL
        for (int i = 0; i < SQUARES(some); i++)
            off |= (u32)(s->v[i] >> 32) ^ b->w.epoch;
        if (warp_all(off == 0 || b->w.dead)) break;
        if (wait_failed(&b->w, &polls, WAIT_SSQ, b->w.epoch, (u32)(s->v[0] >> 32))) break;
        UNROLL
        for (int i = 0; i < SQUARES(some); i++)
            if (!word_is(s->v[i], b->w.epoch)) s->v[i] = word_load(from + i * step * P_SHORT_TOKENS);
    }
    UNROLL
    for (int i = 0; i < SQUARES(some); i++)
        sum += bits_float((u32)s->v[i]);
    sum = xor_sum(sum, tokens, LANES);
    if (b->w.lane < tokens) b->w.s->ssq[b->turn][b->w.warp][b->w.lane] = sum;
}

/* The norm's scales of tokens 2 (lane % 4) and + 1 of an atom of the run at hand. */
DEV void scales_of(const struct short_worker *b, int atom, const int some, float *scale) {
    float sum = 0;
    UNROLL
    for (int i = 0; i < P_WARPS; i++)
        sum += b->w.s->ssq[b->turn][i][b->w.lane % (some * ATOM_TOKENS)];
    const u32 mine = float_bits(rsqrt_approx(sum * (1.0f / M_HIDDEN) + M_RMS_EPS));
    scale[0] = bits_float(shuffle(mine, atom * ATOM_TOKENS + b->w.lane % 4 * 2));
    scale[1] = bits_float(shuffle(mine, atom * ATOM_TOKENS + b->w.lane % 4 * 2 + 1));
}

/* ---- where results go ---- */

/* Loads the biases, for tokens `token` and the next, of the two rows of row tile `row` of qkv whose sums this lane has;
 * 0 for padding. */
DEV void row_biases_load(const struct short_worker *b, int row, int token, struct row_biases *bias) {
#if M_QKV_BIAS
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int local = row * TILE_ROWS + 8 * i + b->w.lane / 4, of_group = b->w.member * P_QKV_ROWS + local;
        const int have = local < P_QKV_ROWS && of_group < QKV_GROUP_ROWS && (!M_GIVEN_BIASES || token < b->n_tokens);
        const int of = have ? qkv_model_row(b->w.group, of_group) : 0;
        bias[i].low = bias[i].high = have ? qkv_bias_load(b->w.a, b->w.layer, token, of) : 0;
        if (M_GIVEN_BIASES && have && token + 1 < b->n_tokens)
            bias[i].high = qkv_bias_load(b->w.a, b->w.layer, token + 1, of);
    }
#else
    (void)b, (void)row, (void)token, (void)bias;
#endif
}

DEV void qkv_finish(const struct short_worker *b, const float *d, int row, int token, const float *scale,
                    const struct row_biases *bias) {
    const u32 both[2] = { transpose8(biased_pair(d[0] * scale[0], d[1] * scale[1], bias[0])),
                          transpose8(biased_pair(d[2] * scale[0], d[3] * scale[1], bias[1])) };
    u64 *to = b->w.a->words + S_QKV + b->w.group * (QKV_TILES * ATOMS * TILE_WORDS);
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int local = row * TILE_ROWS + 8 * i + b->w.lane % 4 * 2, of_group = b->w.member * P_QKV_ROWS + local;
        if (local < P_QKV_ROWS && of_group < QKV_GROUP_ROWS)
            word_store(to + word_of(of_group, token), word_make(both[i], b->w.epoch));
    }
}

/* A row tile has 8 rows of gate and the 8 of up that belong to them. */
DEV void gate_up_finish(const struct short_worker *b, const float *d, int row, int token, const float *scale) {
    const float x = silu(d[0] * scale[0]) * (d[2] * scale[0]), y = silu(d[1] * scale[1]) * (d[3] * scale[1]);
    const u32 both = transpose8(bf16_pair(x, y));
    const int local = row * 8 + b->w.lane % 4 * 2, column = b->w.member * GATE_UP_PAIRS + local;
    u64 *to = b->w.a->words + S_GATED + b->w.group * (P_DOWN_K_TILES * ATOMS * TILE_WORDS);
    if (local < GATE_UP_PAIRS && column < P_GROUP_INTERMEDIATE)
        word_store(to + word_of(column, token), word_make(both, b->w.epoch));
}

/* Gives partial sums to the unit's owner (unit_embed). A word has one row of two tokens and lies where the lane that
 * owns both will read it. */
DEV void sums_finish(const struct short_worker *b, const float *d, int row, int atom, int which) {
    u64 *to = b->w.a->words + S_SUMS + (which * P_GROUPS + b->w.group) * VECTOR_WORDS;
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int local = row * TILE_ROWS + 8 * i + b->w.lane / 4, hidden = b->w.member * P_OUT_ROWS + local;
        const int lane = hidden % 8 * 4 + b->w.lane % 4, tile = hidden / TILE_K, unit = atom * H_TILES + tile;
        if (local < P_OUT_ROWS && hidden < M_HIDDEN)
            word_give(&b->w, unit % P_SMS / GPU_SMS,
                      to + ((tile * ATOMS + atom) * LANES + lane) * 2 + hidden % TILE_K / 8,
                      word_make24(d[2 * i], d[2 * i + 1], b->w.epoch));
    }
}

/* Where the partial sums of a run's atoms lie: [row tile][atom][k part][lane]. Narrow runs take the two buffers in
 * turn; a wide run needs both. */
DEV struct quad_float *parts_of(const struct short_worker *b, const int some) {
    return b->w.s->part[0] + (some > PAIR ? 0 : b->turn * ALL_PARTS);
}

/* Adds up the partial sums of a run of atoms from `first` on and publishes the results. A warp does one row tile of
 * an atom at a time. */
DEV void run_finish(const struct short_worker *b, int phase, int first, const int some, int row_tiles, int k_parts) {
    NO_UNROLL
    for (int i = b->w.warp; i < row_tiles * some; i += P_WARPS) {
        const int row = i / some, atom = i % some, token = (first + atom) * ATOM_TOKENS + b->w.lane / 4;
        const struct quad_float *part = parts_of(b, some) + i * k_parts * LANES + b->w.lane;
        float d[4] = { 0, 0, 0, 0 }, scale[2];
        struct row_biases bias[2] = { { 0, 0 }, { 0, 0 } };
        if (first + atom >= b->padded) continue;
        if (phase == TAPE_QKV) row_biases_load(b, row, (first + atom) * ATOM_TOKENS + b->w.lane % 4 * 2, bias);
        UNROLL_BY(4)
        for (int k = 0; k < k_parts; k++) {
            const struct quad_float v = part[k * LANES];
            d[0] += v.x, d[1] += v.y, d[2] += v.z, d[3] += v.w;
        }
        if (phase == TAPE_QKV || phase == TAPE_GATE_UP) scales_of(b, atom, some, scale);
        if (phase == TAPE_QKV)
            qkv_finish(b, d, row, token, scale, bias);
        else if (phase == TAPE_GATE_UP)
            gate_up_finish(b, d, row, token, scale);
        else
            sums_finish(b, d, row, first + atom, phase == TAPE_DOWN);
    }
}

/* ---- products ---- */

/* Where a warp's input lies: its first k tile, and how many columns the warp has from there on. */
struct input {
    const u64 *words; /* 0 for out, whose input lies in shared memory */
    int tile, columns;
};

DEV struct input input_of(const struct short_worker *b, int phase, int warp_k, int k_parts) {
    const int tile = b->w.warp % k_parts * warp_k;
    const u64 *words = b->w.a->words;
    struct input in;
    const int columns = phase == TAPE_DOWN ? P_GROUP_INTERMEDIATE : M_HIDDEN, most = warp_k * TILE_K;
    in.tile = tile;
    in.columns = columns == k_parts * most || columns - tile * TILE_K > most ? most : columns - tile * TILE_K;
    in.words = 0;
    if (phase == TAPE_QKV || phase == TAPE_GATE_UP)
        in.words = words + S_X + (phase == TAPE_GATE_UP) * VECTOR_WORDS + tile * ATOMS * TILE_WORDS;
    if (phase == TAPE_DOWN) in.words = words + S_GATED + (b->w.group * P_DOWN_K_TILES + tile) * ATOMS * TILE_WORDS;
    return in;
}

/* A warp takes the input of a run of atoms in an even number of parts: while it multiplies one, another is on its
 * way. */
struct taken {
    struct fragment f[2][TAKE_FRAGMENTS];
    struct squares squares;
};

/* A warp's sums for a run of atoms. */
struct sums {
    float d[MOST_ROWS][MOST_ATOMS][4];
};
DEV void sums_clear(struct sums *s, const int rows, const int some) {
    UNROLL
    for (int i = 0; i < rows * some * 4; i++)
        s->d[i / 4 / some][i / 4 % some][i % 4] = 0;
}
/* Multiplies one k tile: `rows` of the warp's rows, from `first` on, by a run of atoms. f is not used for out, whose
 * input lies in shared memory. An operand is two neighbouring registers, and a fragment's two words are not neighbours.
 * An `or` with a 0 that the compiler does not know moves them together once; a plain copy would be made again for every
 * row. */
DEV void sums_add(const struct short_worker *b, struct sums *s, int phase, const struct quad *row, const int first,
                  const int rows, const struct fragment *f, int k, int atom, const int some) {
    const int split = phase == TAPE_QKV || phase == TAPE_GATE_UP;
    UNROLL
    for (int a = 0; a < some; a++) {
        struct pair x;
        if (phase == TAPE_OUT)
            x = b->w.s->q[(k * ATOMS + atom + a) * LANES + b->w.lane];
        else
            x.low = f[a].q.x | b->w.zero, x.high = f[a].q.z | b->w.zero;
        UNROLL
        for (int r = 0; r < rows; r++)
            tile_mma(s->d[first + r][a], row[r], x.low, x.high);
        if (split) x.low = rest_of(f[a].q.y), x.high = rest_of(f[a].q.w);
        UNROLL
        for (int r = 0; split && r < rows; r++)
            tile_mma(s->d[first + r][a], row[r], x.low, x.high);
    }
}
/* What two columns of B are of the same input: of a normed vector the second is what rounding left over. */
DEV struct pair input_pair(const struct short_worker *b, int phase, const struct fragment *f, int k, int atom,
                           const int rest) {
    struct pair x;
    if (phase == TAPE_OUT)
        x = b->w.s->q[(k * ATOMS + atom) * LANES + b->w.lane];
    else if (rest)
        x.low = rest_of(f->q.y), x.high = rest_of(f->q.w);
    else
        x.low = f->q.x | b->w.zero, x.high = f->q.z | b->w.zero;
    return x;
}
/* As sums_add, with tiles that have scales (tile_codes.cuh): multiplies n neighbouring parts, from `part` on, of the
 * warp's `rows` tiles. They share a scale, which their sums are multiplied by. f: the fragments of k tile k, the first
 * of them, then those of the next ones. */
DEV void sums_add_scaled(const struct short_worker *b, struct sums *s, int phase, const struct held *tile,
                         const int rows, const struct fragment *f, int k, int atom, const int some, const int part,
                         const int n, const int format) {
#if TILES_NARROW
    const int halves = phase == TAPE_QKV || phase == TAPE_GATE_UP ? 2 : 1;
    float ones[MOST_ATOMS][4];
    UNROLL
    for (int r = 0; r < rows; r++) {
        float sum[MOST_ATOMS][4];
        UNROLL
        for (int a = 0; a < some; a++) {
            sum[a][0] = sum[a][1] = sum[a][2] = sum[a][3] = 0;
            if (r == 0) ones[a][0] = ones[a][1] = ones[a][2] = ones[a][3] = 0;
        }
        UNROLL
        for (int i = 0; i < n; i++) {
            const struct quad w = tile_part(format, tile[r].codes, part + i);
            UNROLL
            for (int a = 0; a < some; a++) {
                UNROLL
                for (int half = 0; half < halves; half++) {
                    const struct pair x = input_pair(b, phase, f + i * some + a, k + i, atom + a, half);
                    tile_mma(sum[a], w, x.low, x.high);
                    if (TILE_OFFSETS(format) && r == 0) tile_mma(ones[a], tile_ones(), x.low, x.high);
                }
            }
        }
        const struct factors by = held_factors(&tile[r], format, part / TILE_RUN(format));
        UNROLL
        for (int a = 0; a < some; a++)
            run_add(s->d[r][a], sum[a], ones[a], 4, &by, format);
    }
#else
    (void)b, (void)s, (void)phase, (void)tile, (void)rows, (void)f, (void)k, (void)atom, (void)some, (void)part;
    (void)n, (void)format;
#endif
}
/* How many of the next k tiles are in the run of k tile k, which is counted from a tile's beginning; at most `left`. */
DEV int run_left(const int format, const int k, const int left) {
    const int rest = TILE_RUN(format) - k % TILE_RUN(format);
    return rest < left ? rest : left;
}
DEV void sums_give(const struct short_worker *b, const struct sums *s, const int rows, const int some, int k_parts) {
    UNROLL
    for (int i = 0; i < rows * some; i++) {
        const int r = b->w.warp / k_parts * rows + i / some;
        const float *from = s->d[i / some][i % some];
        struct quad_float v;
        v.x = from[0], v.y = from[1], v.z = from[2], v.w = from[3];
        parts_of(b, some)[((r * some + i % some) * k_parts + b->w.warp % k_parts) * LANES + b->w.lane] = v;
    }
}

/* ---- half tiles (tape.h) ---- */

/* How many tiles a warp's `rows` row tiles of warp_k k tiles are, and which of them has row tile r of k tile k. A half
 * tile has both k and the k tile beside it. */
DEV int warp_tiles(const int rows, const int warp_k, const int half, const int format) {
    return rows * warp_k / TILE_PARTS(format) - half * warp_k / 2;
}
DEV int warp_tile(const int k, const int r, const int rows, const int half) {
    const int full = rows - 1;
    if (!half) return k * rows + r;
    return k / 2 * (2 * full + 1) + (r == full ? 2 * full : k % 2 * full + r);
}

/* ---- narrow runs ---- */

/* Ask and wait for k tiles [first, first + most) of a narrow run, which is the whole launch. */
DEV void narrow_ask(const struct short_worker *b, struct fragment *f, const struct input *in, int phase, int first,
                    int most) {
    if (phase != TAPE_OUT)
        fragments_ask(b, f, in->words + first * ATOMS * TILE_WORDS, 0, most, PAIR, in->columns - first * TILE_K,
                      phase != TAPE_DOWN);
}
DEV void narrow_wait(struct short_worker *b, struct fragment *f, const struct input *in, int phase, int first,
                     int most) {
    if (phase != TAPE_OUT)
        fragments_wait(b, f, in->words + first * ATOMS * TILE_WORDS, 0, most, PAIR, in->columns - first * TILE_K,
                       phase != TAPE_DOWN, phase != TAPE_DOWN ? WAIT_X : WAIT_GATED);
}

/* Does a phase for few tokens, one narrow run. t holds the first `preload` tiles of weights; the rest comes from the
 * ring. */
DEV void narrow_read(struct short_worker *b, int phase, const struct held *t, const int preload, const int rows,
                     const int warp_k, const int k_parts, const int row_tiles, const int half, const int format) {
    const int of_tile =
        TILE_PARTS(format); /* k tiles that a tile has; each part of the input has those of whole ones */
    const int is_x = phase == TAPE_QKV || phase == TAPE_GATE_UP, tiles = warp_tiles(rows, warp_k, half, format);
    const int few = of_tile > 2 || preload + (rows + 2 * NARROW_K) * PAIR > MOST_QUADS, fit = few ? FEW_K : NARROW_K;
    const int parts = (warp_k + 2 * fit - 1) / (2 * fit) * 2;
    const int whole = half ? 2 : of_tile, most = ((warp_k + parts - 1) / parts + whole - 1) / whole * whole;
    const struct input in = input_of(b, phase, warp_k, k_parts);
    const u64 *squares = squares_at(b, phase == TAPE_GATE_UP, PAIR);
    struct taken taken;
    struct sums sums;
    struct held more[P_SLOT_TILES];
    UNROLL
    for (int i = 0; i < 2; i++)
        narrow_ask(b, taken.f[i], &in, phase, i * most, most);
    if (is_x) squares_ask(b, &taken.squares, squares, PAIR);
    sums_clear(&sums, rows, PAIR);
    UNROLL
    for (int part = 0; part < parts; part++) {
        const int first = part * most;
        narrow_wait(b, taken.f[part % 2], &in, phase, first, most);
        UNROLL
        for (int i = 0; i < most && TILE_NARROW(format); i += of_tile) {
            const int k = first + i;
            struct held row[MOST_ROWS];
            if (k >= warp_k) break;
            UNROLL
            for (int r = 0; r < rows; r++) {
                const int late = k / of_tile * rows + r - preload, left = tiles - preload - late;
                if (late >= 0 && late % P_SLOT_TILES == 0)
                    tiles_take(&b->w, more, left < P_SLOT_TILES ? left : P_SLOT_TILES, ALL_SCALED, format, 0, 0);
                row[r] = late < 0 ? t[k / of_tile * rows + r] : more[late % P_SLOT_TILES];
            }
            UNROLL
            for (int j = 0; j < of_tile; j += TILE_RUN(format))
                sums_add_scaled(b, &sums, phase, row, rows, taken.f[part % 2] + (i + j) * PAIR, in.tile + k + j, 0,
                                PAIR, j, TILE_RUN(format), format);
        }
        UNROLL
        for (int i = 0; i < (TILE_NARROW(format) ? 0 : most); i++) {
            const int k = first + i;
            struct quad row[MOST_ROWS];
            if (k >= warp_k) break;
            UNROLL
            for (int r = 0; r < rows; r++) {
                const int at = warp_tile(k, r, rows, half), late = at - preload, left = tiles - at;
                if (half && r == rows - 1 && k % 2 == 0) break; /* the half tile comes behind the next k tile's */
                if (late >= 0 && late % P_SLOT_TILES == 0)
                    tiles_take(&b->w, more, left < P_SLOT_TILES ? left : P_SLOT_TILES, ALL_SCALED, format, 0, 0);
                row[r] = tile_operand(format, late < 0 ? t[at].codes : more[late % P_SLOT_TILES].codes);
            }
            const struct fragment *f = taken.f[part % 2] + i * PAIR;
            sums_add(b, &sums, phase, row, 0, rows - half, f, in.tile + k, 0, PAIR);
            UNROLL
            for (int j = 1; half && k % 2 && j >= 0; j--) {
                const struct quad both = half_operand(row[rows - 1], !j);
                sums_add(b, &sums, phase, &both, rows - 1, 1, f - j * PAIR, in.tile + k - j, 0, PAIR);
            }
        }
        if (part == 0 && is_x) squares_take(b, &taken.squares, squares, PAIR);
        if (part + 2 < parts) narrow_ask(b, taken.f[part % 2], &in, phase, first + 2 * most, most);
    }
    sums_give(b, &sums, rows, PAIR, k_parts);
    consumers_sync();
    run_finish(b, phase, 0, PAIR, row_tiles, k_parts);
    b->turn ^= 1;
}

/* ---- wide runs ---- */

/* A wide run reads a phase's tiles where they lie in the ring, as the run before did, and the last run gives the
 * slots back. Slots are counted from the worker's next one: `ahead`, or n slots from `first` on. */
DEV int slot_ahead(const struct worker *w, int ahead) {
    const int slot = w->slot + ahead;
    return slot >= RING_SLOTS ? slot - RING_SLOTS : slot;
}
/* The lane's bytes of tile i from the slot `ahead` on, as it lies in the ring. */
DEV const u8 *held_at(const struct worker *w, int ahead, int i, const int format) {
    const u8 *slot = w->ring + (size_t)slot_ahead(w, ahead + i / P_SLOT_TILES) * P_SLOT_BYTES;
    return slot + (i % P_SLOT_TILES * P_WARPS + w->warp) * (int)tile_bytes(format) + (int)tile_lane(format, w->lane);
}
DEV struct quad held_tile(const struct worker *w, int ahead, int i, const int format) {
    return *(const struct quad *)held_at(w, ahead, i, format);
}
DEV void held_give(const struct worker *w, int first, int n, u32 seen) {
    warp_sync();
    if (w->lane < n) mbar_arrive_after(w, w->empty + (smem)slot_ahead(w, first + w->lane) * 8, seen);
}
DEV void held_pass(struct worker *w, int n) {
    w->slot += n;
    if (w->slot >= RING_SLOTS) w->slot -= RING_SLOTS, w->parity ^= 1;
}

/* How many of a warp's k tiles, from some tile on, have this lane's first columns (low) and those 8 further on
 * (high). */
struct extent {
    int low, high;
};
DEV struct extent extent_from(const struct extent *e, int tile) {
    struct extent f;
    f.low = e->low - tile, f.high = e->high - tile;
    return f;
}

/* Ask and wait for the fragments of n k tiles by the atoms of a wide run, which all exist. Columns that a tile lacks
 * are 0; with `exact` no tile lacks any. The functions are few instructions, because with two warps a scheduler
 * nothing else hides their latencies. */
DEV void wide_ask(const struct short_worker *b, struct fragment *f, const u64 *from, const int n, const int exact,
                  struct extent e, const int is_x) {
    UNROLL
    for (int i = 0; i < n * WIDE; i++)
        if (exact || i / WIDE < e.low)
            f[i].q = word_load4(fragment_at(from, i, WIDE));
        else
            f[i] = fragment_blank(b, is_x);
}
DEV void wide_wait(struct short_worker *b, struct fragment *f, const u64 *from, const int n, const int exact,
                   struct extent e, const int is_x, enum wait_kind kind) {
    const u32 tag = tag_of(b, is_x);
    u32 polls = 0;
    NO_UNROLL
    for (;;) {
        u32 off = 0;
        UNROLL
        for (int i = 0; i < n * WIDE; i++) {
            if (!exact && i / WIDE >= e.high) f[i].q.z = 0, f[i].q.w = tag;
            off |= fragment_off(&f[i], tag, is_x);
        }
        if (warp_all(off == 0 || b->w.dead)) break;
        if (wait_failed(&b->w, &polls, kind, tag, f[0].q.y)) break;
        UNROLL
        for (int i = 0; i < n * WIDE; i++)
            if (fragment_off(&f[i], tag, is_x)) f[i].q = word_load4(fragment_at(from, i, WIDE));
    }
}

/* What wide_read works with. */
struct wide {
    const u64 *from; /* this lane's words of the warp's first k tile, and the first atom */
    struct extent all;
    int tile; /* the warp's first */
};

DEV struct wide wide_of(const struct short_worker *b, int phase, const int warp_k, const int k_parts) {
    const struct input in = input_of(b, phase, warp_k, k_parts);
    const int left = in.columns - b->w.lane % 4 * 2 + TILE_K - 1; /* TILE_K - 1 more, so that divisions round up */
    struct wide w;
    w.from = in.words + b->w.lane * 2, w.tile = in.tile;
    w.all.low = left / TILE_K, w.all.high = (left - 8) / TILE_K;
    return w;
}

/* Does a phase for more tokens, one wide run after the other. It reads tiles where they lie in the ring, so that
 * there are registers for the input that is on its way. A step takes two parts of the input. */
DEV void wide_read(struct short_worker *b, int phase, const int rows, const int warp_k, const int k_parts,
                   const int row_tiles, const int half, const int format) {
    const int is_x = phase == TAPE_QKV || phase == TAPE_GATE_UP, asked = phase != TAPE_OUT;
    const int most = asked ? WIDE_K : (warp_k + 1) / 2, steps = (warp_k + 2 * most - 1) / (2 * most);
    const int columns = phase == TAPE_DOWN ? P_GROUP_INTERMEDIATE : M_HIDDEN;
    const int exact = warp_k % (2 * most) == 0 && columns == k_parts * warp_k * TILE_K;
    /* a step has whole tiles: two or four k tiles of narrow weights, of which a part of the input may have two */
    const int of_tile = TILE_PARTS(format);
    const int step_tiles = half ? warp_tiles(rows, 2 * most, half, format) : (2 * most + of_tile - 1) / of_tile * rows;
    /* each step has slots of its own; or the first step waits for all of them, and the last gives them back */
    const int own = step_tiles % P_SLOT_TILES == 0;
    const int slots = (warp_tiles(rows, warp_k, half, format) + P_SLOT_TILES - 1) / P_SLOT_TILES;
    const int step_slots = own ? step_tiles / P_SLOT_TILES : slots;
    const struct wide in = wide_of(b, phase, warp_k, k_parts);
    const u64 *squares = squares_at(b, phase == TAPE_GATE_UP, WIDE);
    struct taken taken;
    UNROLL
    for (int i = 0; i < 2 && asked; i++)
        wide_ask(b, taken.f[i], in.from + i * most * ATOMS * TILE_WORDS, most, exact, extent_from(&in.all, i * most),
                 is_x);
    if (is_x) squares_ask(b, &taken.squares, squares, WIDE);
    NO_UNROLL
    for (int atom = 0; atom < b->padded; atom += WIDE) {
        const int last = atom + WIDE >= b->padded;
        struct sums sums;
        if (is_x) squares_take(b, &taken.squares, squares + atom * ATOM_TOKENS, WIDE);
        sums_clear(&sums, rows, WIDE);
        NO_UNROLL
        for (int step = 0; step < steps; step++) {
            const int over = step + 1 == steps, slot = own ? step * step_slots : 0;
            const int n = slots - slot < step_slots ? slots - slot : step_slots;
            u32 seen = 0;
            if (atom == 0 && (own || step == 0)) slots_wait(&b->w, slot, n, 0);
            UNROLL
            for (int part = 0; part < 2; part++) {
                const int first = (step * 2 + part) * most, next = over ? part * most : first + 2 * most;
                const u64 *at = in.from + (first * ATOMS + atom) * TILE_WORDS;
                if (asked)
                    wide_wait(b, taken.f[part], at, most, exact, extent_from(&in.all, first), is_x,
                              is_x ? WAIT_X : WAIT_GATED);
                UNROLL
                for (int i = 0, n; i < most && TILE_NARROW(format); i += n) {
                    const int in_step = part * most + i, left = of_tile - in_step % of_tile;
                    struct held row[MOST_ROWS];
                    n = run_left(format, in_step, most - i < left ? most - i : left);
                    if (warp_k % (2 * most) && first + i >= warp_k) break;
                    UNROLL
                    for (int r = 0; r < rows; r++) {
                        const int tile = (own ? in_step : first + i) / of_tile * rows + r;
                        held_read(&row[r], held_at(&b->w, slot, tile, format), b->w.lane, 1, format);
                        seen ^= held_seen(&row[r], 1, format);
                    }
                    sums_add_scaled(b, &sums, phase, row, rows, taken.f[part] + i * WIDE, in.tile + first + i, atom,
                                    WIDE, in_step % of_tile, n, format);
                }
                UNROLL
                for (int i = 0; i < (TILE_NARROW(format) ? 0 : most); i++) {
                    struct quad row[MOST_ROWS];
                    if (warp_k % (2 * most) && first + i >= warp_k) break;
                    UNROLL
                    for (int r = 0; r < rows; r++) {
                        const int k = (own ? part * most : first) + i;
                        const struct quad held = held_tile(&b->w, slot, warp_tile(k, r, rows, half), format);
                        row[r] = half && r == rows - 1 ? half_operand(held, (part * most + i) % 2)
                                                       : tile_operand(format, held);
                        seen ^= held.w;
                    }
                    sums_add(b, &sums, phase, row, 0, rows, taken.f[part] + i * WIDE, in.tile + first + i, atom, WIDE);
                }
                if (asked && !(over && last))
                    wide_ask(b, taken.f[part], in.from + (next * ATOMS + atom + (over ? WIDE : 0)) * TILE_WORDS, most,
                             exact, extent_from(&in.all, next), is_x);
            }
            if (last && (own || over)) held_give(&b->w, slot, n, seen);
        }
        if (is_x && !last) squares_ask(b, &taken.squares, squares + (atom + WIDE) * ATOM_TOKENS, WIDE);
        consumers_sync(); /* the run before has been added up */
        sums_give(b, &sums, rows, WIDE, k_parts);
        consumers_sync();
        run_finish(b, phase, atom, WIDE, row_tiles, k_parts);
        b->turn ^= 1;
    }
    held_pass(&b->w, slots);
}

#endif
