/* Reads a short prompt in one launch: all of its tokens go through the layers together, as decode's one token
 * does. Blocks, groups and tapes are decode's, and so is the ring that brings weights without ever waiting for
 * activations (ring.cuh). One block a SM, all resident; P_WARPS consumers walk the phases and split k, a
 * producer brings weights.
 *
 *   qkv        x                  -> q, k, v rows, to the group
 *   attention  the group's q, k, v, the cache -> in shared memory; the chunk's K and V to the cache
 *   out        attention          -> the group's partial sums, to their owners
 *   (owners)   sums of all groups -> h, and x = h * gain of the next norm, to all
 *   gate_up    x                  -> gated values, to the group
 *   down       gated              -> partial sums, to their owners; who make h and x of the next layer
 *
 * The residual stream is cut into units, a k tile of an atom of tokens, each owned by one warp of one SM.
 *
 * Why one buffer an edge is enough: words of a layer may be overwritten in the next one when all readers have
 * taken them. A block publishes of a pair of atoms after all its warps have taken what the products of that pair
 * are made of, and whole phases before it. So, for each pair:
 *   x for qkv(l + 1)   its owner has seen down(l) of one SM of each group, which had gated(l) of its whole group,
 *                      each of whom took x for qkv(l) before
 *   qkv(l + 1)         the SM has x for qkv(l + 1) from all owners, so down(l) of SMs of all groups, and down(l)
 *                      of one SM of its group needed gated(l) of all of it, after attention(l)
 *   out(l + 1)         the SM has x for qkv(l + 1), which owners made after they had taken out(l)
 *   x for gate_up(l+1) its owner has seen out(l + 1) of one SM of each group, which had qkv(l + 1) of its whole
 *                      group, each of whom took x for gate_up(l) before
 *   gated(l + 1)       the SM has had qkv(l + 1) of its whole group, each of whom took gated(l) before
 *   down(l + 1)        the SM has x for gate_up(l + 1) from all owners, who took down(l) before */
#include "short_attention.cuh"

#include "phase_embed.cuh"

/* Tiles of a warp in a phase, and those it holds in registers before its input arrives. */
#define TILES(S)   (P_##S##_WARP_ROWS * P_##S##_WARP_K)
#define PRELOAD(S) (TILES(S) < PRELOAD_TILES ? TILES(S) : PRELOAD_TILES)
/* Row tiles of a warp: sums it holds. */
enum { MOST_ROWS = MAX(MAX(P_QKV_WARP_ROWS, P_OUT_WARP_ROWS), MAX(P_GATE_UP_WARP_ROWS, P_DOWN_WARP_ROWS)) };
/* k tiles of a part of a warp's input at most. */
enum { TAKE_K = 6 };

/* ---- the residual stream ---- */

/* The four columns of a lane in the unit's k tile: two from here on, two 8 further on. */
DEV int unit_column(const struct brief *b) { return b->unit_tile * TILE_K + b->w.lane % 4 * 2; }
DEV int unit_token(const struct brief *b) { return b->unit_atom * ATOM_TOKENS + b->w.lane / 4; }

DEV void unit_embed(struct brief *b) {
    const struct decode_args *a = b->w.a;
    const int unit = b->w.warp * P_SMS + b->w.block, there = unit < b->atoms * H_TILES;
    b->unit_tile = unit % H_TILES, b->unit_atom = there ? unit / H_TILES : -1;
    b->h[0] = b->h[1] = b->h[2] = b->h[3] = 0;
    if (!there || unit_token(b) >= b->n_tokens) return;
    const u32 id = a->ids ? const_load32((const u32 *)a->ids + unit_token(b)) : 0;
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int column = unit_column(b) + 8 * i;
        if (a->embeddings) {
            const float *e = a->embeddings + (size_t)unit_token(b) * M_HIDDEN + column;
            b->h[2 * i] = const_loadf(e), b->h[2 * i + 1] = const_loadf(e + 1);
        } else {
            const u32 both = embedding_pair(a, id, column / 2);
            b->h[2 * i] = bf16_low(both), b->h[2 * i + 1] = bf16_high(both);
        }
    }
}

struct unit_gains {
    float g[4];
};
DEV struct unit_gains unit_gains_load(const struct brief *b, const float *norm) {
    const float *from = norm + (b->unit_atom < 0 ? 0 : unit_column(b));
    struct unit_gains g;
    g.g[0] = const_loadf(from), g.g[1] = const_loadf(from + 1);
    g.g[2] = const_loadf(from + 8), g.g[3] = const_loadf(from + 9);
    return g;
}

/* x and the sum of squares of this unit, for the norm before qkv (0) or gate_up (1). */
DEV void unit_publish(const struct brief *b, const struct unit_gains *gains, int which) {
    if (b->unit_atom < 0) return;
    const float *h = b->h, *g = gains->g;
    u64 *x = b->w.a->words + S_X + which * VECTOR_WORDS + (b->unit_tile * ATOMS + b->unit_atom) * TILE_WORDS;
    u64 *ssq = b->w.a->words + S_SSQ + (which * H_TILES + b->unit_tile) * P_SHORT_TOKENS;
    word_store(x + b->w.lane * 2, word_x(h[0] * g[0], h[1] * g[1], b->w.epoch));
    word_store(x + b->w.lane * 2 + 1, word_x(h[2] * g[2], h[3] * g[3], b->w.epoch));
    const float sum = xor_sum(h[0] * h[0] + h[1] * h[1] + (h[2] * h[2] + h[3] * h[3]), 1, 4);
    if (b->w.lane % 4 == 0) word_store(ssq + unit_token(b), word_make(float_bits(sum), b->w.epoch));
}

DEV int sum_there(const struct brief *b, const struct fragment *f) {
    return word_is24(f->low, b->w.epoch) & word_is24(f->high, b->w.epoch);
}

/* Adds the groups' partial sums of out (0) or down (1) to h, in the order of groups. */
DEV void unit_add(struct brief *b, int which, enum wait_kind kind) {
    struct fragment f[P_GROUPS];
    if (b->unit_atom < 0) return;
    const u64 *from = b->w.a->words + S_SUMS + which * P_GROUPS * VECTOR_WORDS +
                      (b->unit_tile * ATOMS + b->unit_atom) * TILE_WORDS + b->w.lane * 2;
    u32 polls = 0;
    UNROLL
    for (int g = 0; g < P_GROUPS; g++)
        f[g].low = f[g].high = (u64)~b->w.epoch << 48;
    NO_UNROLL
    for (;;) {
        int ok = 1;
        UNROLL
        for (int g = 0; g < P_GROUPS; g++)
            if (!sum_there(b, &f[g])) word_load2(from + g * VECTOR_WORDS, &f[g].low, &f[g].high);
        UNROLL
        for (int g = 0; g < P_GROUPS; g++)
            ok &= sum_there(b, &f[g]);
        if (warp_all(ok | b->w.dead)) break;
        wait_failed(&b->w, &polls, kind, b->w.epoch & 0xffffu, (u32)(f[0].low >> 48));
    }
    UNROLL
    for (int g = 0; g < P_GROUPS; g++) {
        b->h[0] += float24_low(f[g].low), b->h[1] += float24_high(f[g].low);
        b->h[2] += float24_low(f[g].high), b->h[3] += float24_high(f[g].high);
    }
}

/* h to memory, where the head finds it. */
DEV void unit_store(const struct brief *b) {
    if (b->unit_atom < 0 || unit_token(b) >= b->n_tokens) return;
    u32 *to = (u32 *)b->a->h + (size_t)unit_token(b) * M_HIDDEN + unit_column(b);
    UNROLL
    for (int i = 0; i < 4; i++)
        plain_store32(to + i / 2 * 8 + i % 2, float_bits(b->h[i]));
}

/* ---- the norm's scale ---- */

enum { SSQ_TAKEN = (P_QKV_WARP_K * PAIR_TOKENS + LANES - 1) / LANES };

/* Sums of squares of this warp's k tiles for a pair of atoms: this lane's words. */
struct squares {
    u64 v[SSQ_TAKEN];
};

DEV const u64 *squares_at(const struct brief *b, int which, int pair) {
    const int tile = b->w.warp * P_QKV_WARP_K + b->w.lane / PAIR_TOKENS;
    return b->w.a->words + S_SSQ + (which * H_TILES + tile) * P_SHORT_TOKENS + pair * PAIR_TOKENS + b->w.lane % PAIR_TOKENS;
}
DEV void squares_ask(const struct brief *b, struct squares *s, int which, int pair) {
    const int of_warp = b->w.lane / PAIR_TOKENS, step = LANES / PAIR_TOKENS;
    const int there = pair * PAIR_TOKENS + b->w.lane % PAIR_TOKENS < b->atoms * ATOM_TOKENS;
    UNROLL
    for (int i = 0; i < SSQ_TAKEN; i++) {
        const int k = of_warp + i * step;
        s->v[i] = word_make(0, b->w.epoch);
        if (there && k < P_QKV_WARP_K && b->w.warp * P_QKV_WARP_K + k < H_TILES)
            s->v[i] = word_load(squares_at(b, which, pair) + i * step * P_SHORT_TOKENS);
    }
}
/* Leaves their sum for all warps. */
DEV void squares_take(struct brief *b, struct squares *s, int which, int pair) {
    u32 polls = 0;
    float sum = 0;
    NO_UNROLL
    for (;;) {
        int ok = 1;
        UNROLL
        for (int i = 0; i < SSQ_TAKEN; i++)
            ok &= word_is(s->v[i], b->w.epoch);
        if (warp_all(ok | b->w.dead)) break;
        if (wait_failed(&b->w, &polls, WAIT_SSQ, b->w.epoch, (u32)(s->v[0] >> 32))) break;
        UNROLL
        for (int i = 0; i < SSQ_TAKEN; i++)
            if (!word_is(s->v[i], b->w.epoch))
                s->v[i] = word_load(squares_at(b, which, pair) + i * (LANES / PAIR_TOKENS) * P_SHORT_TOKENS);
    }
    UNROLL
    for (int i = 0; i < SSQ_TAKEN; i++)
        sum += bits_float((u32)s->v[i]);
    sum = xor_sum(sum, PAIR_TOKENS, LANES);
    if (b->w.lane < PAIR_TOKENS) b->w.s->ssq[b->turn][b->w.warp][b->w.lane] = sum;
}

/* Scales of tokens 2 (lane % 4) and + 1 of an atom of the pair at hand. */
DEV void scales_of(const struct brief *b, int atom, float *scale) {
    float sum = 0;
    UNROLL
    for (int i = 0; i < P_WARPS; i++)
        sum += b->w.s->ssq[b->turn][i][b->w.lane % PAIR_TOKENS];
    const u32 mine = float_bits(rsqrt_approx(sum * (1.0f / M_HIDDEN) + M_RMS_EPS));
    scale[0] = bits_float(shuffle(mine, atom * ATOM_TOKENS + b->w.lane % 4 * 2));
    scale[1] = bits_float(shuffle(mine, atom * ATOM_TOKENS + b->w.lane % 4 * 2 + 1));
}

/* ---- where results go ---- */

DEV void qkv_finish(const struct brief *b, const float *d, int row, int token, const float *scale) {
    const u32 both[2] = { transpose8(bf16_pair(d[0] * scale[0], d[1] * scale[1])),
                          transpose8(bf16_pair(d[2] * scale[0], d[3] * scale[1])) };
    u64 *to = b->w.a->words + S_QKV + b->w.group * (QKV_TILES * ATOMS * TILE_WORDS);
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int local = row * TILE_ROWS + 8 * i + b->w.lane % 4 * 2, of_group = b->w.member * P_QKV_ROWS + local;
        if (local < P_QKV_ROWS && of_group < QKV_GROUP_ROWS)
            word_store(to + word_of(of_group, token), word_make(both[i], b->w.epoch));
    }
}

/* A row tile has 8 gate rows and their up rows. */
DEV void gate_up_finish(const struct brief *b, const float *d, int row, int token, const float *scale) {
    const float x = silu(d[0] * scale[0]) * (d[2] * scale[0]), y = silu(d[1] * scale[1]) * (d[3] * scale[1]);
    const u32 both = transpose8(bf16_pair(x, y));
    const int local = row * 8 + b->w.lane % 4 * 2, column = b->w.member * GATE_UP_PAIRS + local;
    u64 *to = b->w.a->words + S_GATED + b->w.group * (P_DOWN_K_TILES * ATOMS * TILE_WORDS);
    if (local < GATE_UP_PAIRS && column < P_GROUP_INTERMEDIATE)
        word_store(to + word_of(column, token), word_make(both, b->w.epoch));
}

DEV void sums_finish(const struct brief *b, float *d, int row, int token, int which) {
    u64 *to = b->w.a->words + S_SUMS + (which * P_GROUPS + b->w.group) * VECTOR_WORDS;
    transpose8_float(d, d + 1), transpose8_float(d + 2, d + 3);
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int local = row * TILE_ROWS + 8 * i + b->w.lane % 4 * 2, hidden = b->w.member * P_OUT_ROWS + local;
        if (local < P_OUT_ROWS && hidden < M_HIDDEN)
            word_store(to + word_of(hidden, token), word_make24(d[2 * i], d[2 * i + 1], b->w.epoch));
    }
}

/* Adds up the partial sums of a pair of atoms and sends them on, a warp a row tile of an atom. */
DEV void pair_finish(const struct brief *b, int phase, int pair, int row_tiles, int k_parts) {
    NO_UNROLL
    for (int i = b->w.warp; i < row_tiles * PAIR; i += P_WARPS) {
        const int row = i / PAIR, atom = i % PAIR, token = (pair * PAIR + atom) * ATOM_TOKENS + b->w.lane / 4;
        const struct quad_float *part = b->w.s->part[b->turn] + i * k_parts * LANES + b->w.lane;
        float d[4] = { 0, 0, 0, 0 }, scale[2];
        if (pair * PAIR + atom >= b->atoms) continue;
        UNROLL_BY(4)
        for (int k = 0; k < k_parts; k++) {
            const struct quad_float v = part[k * LANES];
            d[0] += v.x, d[1] += v.y, d[2] += v.z, d[3] += v.w;
        }
        if (phase == TAPE_QKV || phase == TAPE_GATE_UP) scales_of(b, atom, scale);
        if (phase == TAPE_QKV)
            qkv_finish(b, d, row, token, scale);
        else if (phase == TAPE_GATE_UP)
            gate_up_finish(b, d, row, token, scale);
        else
            sums_finish(b, d, row, token, phase == TAPE_DOWN);
    }
}

/* ---- products ---- */

/* B operands of a k tile and an atom: what is there, and what rounding left over. */
struct operand {
    struct pair x, rest;
};

DEV struct operand operand_of(const struct fragment *f) {
    struct operand o;
    o.x.low = (u32)f->low, o.x.high = (u32)f->high;
    o.rest.low = word_rest(f->low), o.rest.high = word_rest(f->high); /* of no meaning but for x */
    return o;
}

/* Where a warp's input lies: its first k tile, and how many columns there are from there on. */
struct input {
    const u64 *words; /* out's lies in shared memory */
    int tile, columns;
};

DEV struct input input_of(const struct brief *b, int phase, int warp_k, int k_parts) {
    const int tile = b->w.warp % k_parts * warp_k;
    const u64 *words = b->w.a->words;
    struct input in;
    const int columns = phase == TAPE_DOWN ? P_GROUP_INTERMEDIATE : M_HIDDEN, most = warp_k * TILE_K;
    in.tile = tile;
    in.columns = columns == k_parts * most || columns - tile * TILE_K > most ? most : columns - tile * TILE_K;
    in.words = 0;
    if (phase == TAPE_QKV || phase == TAPE_GATE_UP)
        in.words = words + S_X + (phase == TAPE_GATE_UP) * VECTOR_WORDS + tile * ATOMS * TILE_WORDS;
    if (phase == TAPE_DOWN)
        in.words = words + S_GATED + (b->w.group * P_DOWN_K_TILES + tile) * ATOMS * TILE_WORDS;
    return in;
}

/* The input of a pair of atoms comes in an even number of parts: while one is multiplied another is on its way. */
struct taken {
    struct fragment f[2][TAKE_K * PAIR];
    struct squares squares;
};

/* k tiles [first, first + most). */
DEV void input_ask(const struct brief *b, struct taken *x, const struct input *in, int phase, int pair, int first, int most,
                   int part) {
    const int split = phase == TAPE_QKV || phase == TAPE_GATE_UP;
    if (phase == TAPE_OUT) return;
    fragments_ask(b, x->f[part], in->words + first * ATOMS * TILE_WORDS, pair * PAIR, most, PAIR,
                  in->columns - first * TILE_K, split);
    if (split && first == 0) squares_ask(b, &x->squares, phase == TAPE_GATE_UP, pair);
}
DEV void input_wait(struct brief *b, struct taken *x, const struct input *in, int phase, int pair, int first, int most,
                    int part) {
    const int split = phase == TAPE_QKV || phase == TAPE_GATE_UP;
    if (phase != TAPE_OUT)
        fragments_wait(b, x->f[part], in->words + first * ATOMS * TILE_WORDS, pair * PAIR, most, PAIR,
                       in->columns - first * TILE_K, split, split ? WAIT_X : WAIT_GATED);
}

/* One phase, a pair of atoms after the other: t holds the first `preload` tiles, the rest comes from the ring
 * (only where a prompt has one pair). */
DEV void phase_read(struct brief *b, int phase, const struct quad *t, int preload, int warp_rows, int warp_k,
                    int k_parts, int row_tiles) {
    const int split = phase == TAPE_QKV || phase == TAPE_GATE_UP, tiles = warp_rows * warp_k;
    const int parts = (warp_k + 2 * TAKE_K - 1) / (2 * TAKE_K) * 2, most = (warp_k + parts - 1) / parts;
    const struct input in = input_of(b, phase, warp_k, k_parts);
    struct taken taken;
    UNROLL
    for (int i = 0; i < 2; i++)
        input_ask(b, &taken, &in, phase, 0, i * most, most, i);
    NO_UNROLL
    for (int pair = 0; pair < b->pairs; pair++) {
        const int last = pair + 1 == b->pairs;
        float d[MOST_ROWS][PAIR][4];
        struct quad more[P_SLOT_TILES];
        UNROLL
        for (int i = 0; i < warp_rows * PAIR * 4; i++)
            d[i / 4 / PAIR][i / 4 % PAIR][i % 4] = 0;
        UNROLL
        for (int part = 0; part < parts; part++) {
            const int first = part * most, next = part + 2;
            input_wait(b, &taken, &in, phase, pair, first, most, part % 2);
            UNROLL
            for (int i = 0; i < most; i++) {
                const int k = first + i;
                struct quad row[MOST_ROWS];
                if (k >= warp_k) break;
                UNROLL
                for (int r = 0; r < warp_rows; r++) {
                    const int late = k * warp_rows + r - preload, left = tiles - preload - late;
                    if (late >= 0 && late % P_SLOT_TILES == 0)
                        tiles_take(&b->w, more, left < P_SLOT_TILES ? left : P_SLOT_TILES);
                    row[r] = late < 0 ? t[k * warp_rows + r] : more[late % P_SLOT_TILES];
                }
                UNROLL
                for (int a = 0; a < PAIR; a++) {
                    struct operand x;
                    if (phase == TAPE_OUT)
                        x.x = b->w.s->q[((in.tile + k) * ATOMS + pair * PAIR + a) * LANES + b->w.lane];
                    else
                        x = operand_of(&taken.f[part % 2][i * PAIR + a]);
                    UNROLL
                    for (int r = 0; r < warp_rows; r++)
                        tile_mma(d[r][a], row[r], x.x.low, x.x.high);
                    UNROLL
                    for (int r = 0; split && r < warp_rows; r++)
                        tile_mma(d[r][a], row[r], x.rest.low, x.rest.high);
                }
            }
            if (part == 0 && split) squares_take(b, &taken.squares, phase == TAPE_GATE_UP, pair);
            if (next < parts)
                input_ask(b, &taken, &in, phase, pair, next * most, most, part % 2);
            else if (!last)
                input_ask(b, &taken, &in, phase, pair + 1, (next - parts) * most, most, part % 2);
        }
        UNROLL
        for (int i = 0; i < warp_rows * PAIR; i++) {
            const int r = b->w.warp / k_parts * warp_rows + i / PAIR;
            const float *from = d[i / PAIR][i % PAIR];
            struct quad_float v;
            v.x = from[0], v.y = from[1], v.z = from[2], v.w = from[3];
            b->w.s->part[b->turn][((r * PAIR + i % PAIR) * k_parts + b->w.warp % k_parts) * LANES + b->w.lane] = v;
        }
        consumers_sync();
        pair_finish(b, phase, pair, row_tiles, k_parts);
        b->turn ^= 1;
    }
}

/* A phase whose first tiles are in t. */
#define PHASE_READ(b, t, S)                                                                                      \
    phase_read(b, TAPE_##S, t, PRELOAD(S), P_##S##_WARP_ROWS, P_##S##_WARP_K, P_##S##_K_PARTS, P_##S##_ROW_TILES)

DEV void layer_read(struct brief *b, int layer) {
    const float *norms = b->w.a->norms + (size_t)2 * layer * M_HIDDEN;
    struct quad t[PRELOAD_TILES];
    struct unit_gains gains;
    b->w.layer = layer;
    brief_anew(b);
    tiles_take(&b->w, t, PRELOAD(QKV));
    PHASE_READ(b, t, QKV);
    brief_anew(b);
    tiles_take(&b->w, t, PRELOAD(OUT));
    attention_read(b);
    gains = unit_gains_load(b, norms + M_HIDDEN);
    PHASE_READ(b, t, OUT);
    brief_anew(b);
    unit_add(b, 0, WAIT_OUT_SUM);
    unit_publish(b, &gains, 1);
    tiles_take(&b->w, t, PRELOAD(GATE_UP));
    PHASE_READ(b, t, GATE_UP);
    brief_anew(b);
    tiles_take(&b->w, t, PRELOAD(DOWN));
    gains = unit_gains_load(b, norms + 2 * M_HIDDEN);
    PHASE_READ(b, t, DOWN);
    brief_anew(b);
    unit_add(b, 1, WAIT_DOWN_SUM);
    b->w.epoch++;
    if (layer + 1 < M_LAYERS) unit_publish(b, &gains, 0);
}

DEV void short_read(struct brief *b) {
    struct unit_gains gains;
    unit_embed(b);
    gains = unit_gains_load(b, b->w.a->norms);
    unit_publish(b, &gains, 0);
    NO_UNROLL
    for (int layer = 0; layer < M_LAYERS; layer++)
        layer_read(b, layer);
    unit_store(b);
    if (b->w.dead) shared_store(smem_of(&b->w.s->end), 1); /* the producer may wait for room that nobody makes */
}

/* The producer: the block's tape without its head. */
DEV void short_produce(struct worker *w) {
    struct weight_stream p;
    if (w->lane >= FILL_LANES) return;
    stream_start(w, &p);
    p.src = w->a->tape + (u64)w->block * P_SM_BYTES;
    for (int layer = 0, go = 1; layer < M_LAYERS && go; layer++)
        go = stream_segment(w, &p, P_QKV_BYTES) && stream_segment(w, &p, P_OUT_BYTES) &&
             stream_segment(w, &p, P_GATE_UP_BYTES) && stream_segment(w, &p, P_DOWN_BYTES);
    stream_drain(&p);
}

DEV void brief_make(struct brief *b, const struct prefill_args *args) {
    u8 *base = shared_base();
    struct worker *w = &b->w;
    b->a = args, w->a = &args->decode;
    w->ring = base, w->s = (struct block_shared *)(base + RING_BYTES);
    /* Out of a shuffle, or the compiler would read the special register again at every use. */
    const int thread = (int)shuffle_xor(thread_index(), 0);
    w->warp = thread / LANES, w->lane = thread % LANES;
    w->block = (int)shuffle_xor(block_index(), 0);
    w->group = w->block / P_GROUP_SMS, w->member = w->block % P_GROUP_SMS;
    w->full = smem_of(w->s->full), w->empty = smem_of(w->s->empty);
    w->slot = 0, w->parity = 0;
    w->epoch = args->decode.epoch;
    w->token = 0, w->layer = 0, w->dead = 0;
    w->zero = args->decode.patience >> 31;
    b->n_tokens = args->decode.n_tokens;
    b->atoms = (b->n_tokens + ATOM_TOKENS - 1) / ATOM_TOKENS;
    b->pairs = (b->atoms + PAIR - 1) / PAIR;
    b->turn = 0;
}

KERNEL(P_THREADS) prefill_short(const PARAMETER struct prefill_args args, int phase, int layer) {
    struct brief b;
    (void)phase, (void)layer;
    brief_make(&b, &args);
#if defined(T_ABSENT)
    if (b.w.block == T_ABSENT) return; /* a fault on purpose: everybody else waits for this block */
#endif
    if (thread_index() == 0) {
        for (int i = 0; i < RING_SLOTS; i++)
            mbar_init(&b.w.s->full[i], FILL_LANES), mbar_init(&b.w.s->empty[i], P_WARPS);
        b.w.s->cap = (u32)args.decode.cap_layers, b.w.s->end = 0;
        mbar_init_done();
    }
    attention_prepare(&b);
    block_sync();
    if (b.w.warp < P_WARPS) {
        REGISTERS_TAKE(P_REGISTERS_CONSUMER);
        short_read(&b);
    } else {
        REGISTERS_GIVE(P_REGISTERS_OTHER);
        if (b.w.warp == P_WARPS) short_produce(&b.w); /* those that decoding publishes with fill its warpgroup */
    }
}
