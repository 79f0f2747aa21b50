/* A consumer warp multiplies its tiles of a phase with a vector and stores partial sums in shared memory, which
 * publish.cuh adds up. The sizes are compile-time constants of the plan, also where they are passed as arguments,
 * because everything here is inlined. */
#ifndef REEL_KERNELS_PRODUCT_CUH
#define REEL_KERNELS_PRODUCT_CUH

#include "decode_shared.cuh"
#include "digits.cuh"
#include "mma.cuh"
#include "ring.cuh"

/* How many tiles a warp has in a phase. */
#define TILES(S) (P_##S##_WARP_ROWS * P_##S##_WARP_K / TILE_PARTS(P_##S##_FORMAT) - P_##S##_HALF * P_##S##_WARP_K / 2)
/* Tiles that a warp streams in a round, after which a tile is of the same row tile, and of the same place in a slot,
 * again. Rounds are a loop: written out, a layer of an 8B model is half a megabyte of instructions, and one of eight
 * columns more than an SM keeps, whose fetching takes longer than its arithmetic. */
#define STREAM_ROUND(warp_rows)                                                                                        \
    ((warp_rows) == 1 ? 2 * P_SLOT_TILES : (warp_rows) % P_SLOT_TILES ? (warp_rows)*P_SLOT_TILES : (warp_rows))
#define ROUND(S) STREAM_ROUND(P_##S##_WARP_ROWS)
/* The same with half tiles: whole slots, and an even number of k tiles. */
#define HALF_ROUND(warp_rows) ((2 * (warp_rows)-1) * P_SLOT_TILES)
/* How many tiles a warp holds in registers before its input arrives. Tiles that are held are written out. Where a layer
 * is more code than an SM keeps and a phase's rounds are a loop, one round is held at most: the other tiles wait in the
 * ring until the loop comes to them. */
#define LOOPS(S)                                                                                                       \
    ((SLICE > 4 || TILE_NAMES(P_##S##_FORMAT)) && DIGITS(P_##S##_FORMAT) &&                                            \
     (PRELOAD_TILES + ROUND(S) - 1) / ROUND(S) * ROUND(S) < TILES(S) / ROUND(S) * ROUND(S))
/* Whether a phase's tiles are ready when its input comes: made operands of as they are taken, while exchanges are
 * waited for. All of the phase's operands fit into the registers then. Codes of 8 bits are operands as they lie. */
#define READY_PARTS(format, parts)                                                                                     \
    ((TILE_FLOATS(format) && (parts) <= P_READY_PARTS) ||                                                              \
     (TILE_INTEGERS(format) && TILE_PARTS(format) == 4 && (parts) / 2 * TILE_DIGITS(format) <= P_READY_PARTS))
#define READY(S)      READY_PARTS(P_##S##_FORMAT, P_##S##_WARP_ROWS *P_##S##_WARP_K)
#define ROUND_HELD(S) (PRELOAD_TILES < ROUND(S) ? 0 : ROUND(S))
#define PRELOAD(S)    (READY(S) || TILES(S) < PRELOAD_TILES ? TILES(S) : LOOPS(S) ? ROUND_HELD(S) : PRELOAD_TILES)
/* TILES_TAKE takes the preloaded tiles out of the ring into t, in the bytes of their format or ready. XWORDS is how
 * many words of the phase's input one lane holds. */
#define TILES_TAKE(w, t, S)                                                                                            \
    ((w)->phase = LAYER_PHASE(S), tiles_take(w, t, PRELOAD(S), SCALED(S), P_##S##_FORMAT, READY(S), READY(S)))
/* Of a phase that is preloaded whole, and in which a row has one scale, the first tile of each row tile is asked for
 * it. */
#define SCALED(S)                                                                                                      \
    (ROW_SCALED(SLICE_FORMAT(S)) && PRELOAD(S) == TILES(S) && (P_COLUMNS == 1 || DIGITS(P_##S##_FORMAT))               \
         ? P_##S##_WARP_ROWS                                                                                           \
         : ALL_SCALED)
#define XWORDS(S) ((P_##S##_WARP_K * 8 + LANES - 1) / LANES)
enum {
    PRELOAD_TILES = P_PRELOAD_TILES,
    HELD_TILES = MAX(P_PRELOAD_TILES, P_READY_PARTS), /* or parts, where they are ready */
#if M_DELTA
    FIRST_WARP_ROWS = MAX(P_QKV_WARP_ROWS, P_MIX_WARP_ROWS),
#else
    FIRST_WARP_ROWS = P_QKV_WARP_ROWS,
#endif
    MAX_WARP_ROWS = MAX(MAX(FIRST_WARP_ROWS, P_OUT_WARP_ROWS), MAX(P_GATE_UP_WARP_ROWS, P_DOWN_WARP_ROWS)),
    ACCUMULATORS = MAX(MAX_WARP_ROWS, 2)
};

/* Which row tile a warp's tile i is of, and which k tile: with `both` of the half tiles (tape.h) this one and the next.
 */
struct tile_where {
    int r, k, both;
};
DEV struct tile_where tile_where(int i, int warp_rows, const int half) {
    const int full = half ? warp_rows - 1 : warp_rows, round = 2 * full + 1, of_round = i % round;
    struct tile_where at = { full ? i % full : 0, full ? i / full : 0, 0 };
    if (!half) return at;
    at.both = of_round == 2 * full, at.k = i / round * 2 + (at.both || !full ? 0 : of_round / full);
    at.r = at.both || !full ? full : of_round % full;
    return at;
}

/* The operand of such a tile for its k tile k. */
DEV struct quad warp_operand(const int format, struct quad codes, const struct tile_where *at, int k) {
    return at->both ? half_operand(codes, k > at->k) : tile_operand(format, codes);
}

/* k tiles of a warp's first n tiles, which are whole rounds over its row tiles. */
DEV int tiles_k(int n, int warp_rows, const int half) { return half ? n / (2 * warp_rows - 1) * 2 : n / warp_rows; }

/* As product and, with `split`, as product_split: with tiles that have scales. Of rows that have one each, the first
 * tile's serve. */
DEV void product_narrow(float (*d)[4], const struct held *t, const u32 *x, const int split, int lane, int first, int n,
                        int warp_rows, const int format, const int ready) {
#if TILES_NARROW
    enum { MOST_PARTS = 4 };
    const int parts = TILE_PARTS(format), run = TILE_RUN(format);
    u32 b0[MOST_PARTS], b1[MOST_PARTS];
    float ones[MOST_PARTS][4]; /* of each run */
    struct factors f[MAX_WARP_ROWS];
    UNROLL
    for (int i = first; i < first + n; i++) {
        const int k = i / warp_rows, r = i % warp_rows, fresh = i == first || r == 0;
        const struct held *tile = t + (i - first) * (ready ? parts : 1);
        UNROLL
        for (int j = 0; j < parts; j++) {
            const int word = (k * parts + j) / 4, of_word = (k * parts + j) % 4 * 8;
            if (!fresh || split) continue;
            b0[j] = shuffle(x[word], of_word + (lane & 3));
            b1[j] = shuffle(x[word], of_word + 4 + (lane & 3));
        }
        UNROLL
        for (int j = 0; j < parts; j += run) {
            float sum[4] = { 0, 0, 0, 0 }, *one = ones[j / run];
            if (fresh) one[0] = one[1] = one[2] = one[3] = 0;
            UNROLL
            for (int part = j; part < j + run; part++) {
                const struct quad a = ready ? tile[part].codes : tile_part(format, tile->codes, part);
                const u32 *slice = x + (k * parts + part) * 8;
                if (split)
                    tile_product_split(sum, a, slice, X_LOW, lane);
                else
                    tile_product(sum, a, b0[part], b1[part]);
                if (!TILE_OFFSETS(format) || !fresh) continue;
                if (split)
                    tile_product_split(one, tile_ones(), slice, X_LOW, lane);
                else
                    tile_product(one, tile_ones(), b0[part], b1[part]);
            }
            if (!ROW_SCALED(format) || i < first + warp_rows) f[r] = held_factors(tile, format, j / run);
            run_add(d[warp_rows == 1 ? k & 1 : r], sum, one, 4, &f[r], format);
        }
    }
#else
    (void)d, (void)t, (void)x, (void)split, (void)lane, (void)first, (void)n, (void)warp_rows, (void)format;
    (void)ready;
#endif
}

/* Multiplies the warp's n tiles from `first` on, which are in the phase's format or ready. x holds the warp's slice of
 * the vector: word i of the slice is in register i / 32 of lane i % 32. A single row tile gets two accumulators, so
 * that the chains of dependent products are shorter. */
DEV void product(float (*d)[4], const struct held *t, const u32 *x, int lane, int first, int n, int warp_rows,
                 const int half, const int format, const int ready) {
    u32 b0 = 0, b1 = 0;
    if (TILE_NARROW(format)) {
        product_narrow(d, t, x, 0, lane, first, n, warp_rows, format, ready);
        return;
    }
    UNROLL
    for (int i = first; i < first + n; i++) {
        const struct tile_where at = tile_where(i, warp_rows, half);
        UNROLL
        for (int j = 0; j <= at.both; j++) {
            const int k = at.k + j;
            if (i == first || at.r == 0 || at.both) {
                b0 = shuffle(x[k / 4], k % 4 * 8 + (lane & 3));
                b1 = shuffle(x[k / 4], k % 4 * 8 + 4 + (lane & 3));
            }
            tile_product(d[warp_rows == 1 ? k & 1 : at.r], warp_operand(format, t[i - first].codes, &at, k), b0, b1);
        }
    }
}

/* Does the same with the warp's slice of the normed vector in shared memory. The vector is there in two halves, so it
 * has 16 significant bits instead of 8; the products have columns to spare for the second half. */
DEV void product_split(float (*d)[4], const struct held *t, const u32 *x, int lane, int first, int n, int warp_rows,
                       const int half, const int format, const int ready) {
    if (TILE_NARROW(format)) {
        product_narrow(d, t, x, 1, lane, first, n, warp_rows, format, ready);
        return;
    }
    UNROLL
    for (int i = first; i < first + n; i++) {
        const struct tile_where at = tile_where(i, warp_rows, half);
        UNROLL
        for (int k = at.k; k <= at.k + at.both; k++) {
            tile_product_split(d[warp_rows == 1 ? k & 1 : at.r], warp_operand(format, t[i - first].codes, &at, k),
                               x + k * 8, X_LOW, lane);
        }
    }
}

/* Stores this warp's share of sum(h^2) in shared memory. */
DEV float slice_ssq(const float *h) {
    float sum = 0;
    UNROLL
    for (int i = 0; i < 2 * SLICE; i++)
        sum += h[i] * h[i];
    return sum;
}
DEV void ssq_store(struct worker *w, const float *h, float *ssq) {
    const float sum = xor_sum(slice_ssq(h), 1, LANES);
    if (w->lane == 0) ssq[w->warp] = sum;
}

#if TILES_NARROW
/* Multiplies this warp's tiles from `from` on up to `to` as they come out of the ring; tile 0 is the first of x. They
 * are taken a round at a time where one column's registers hold it, since each wait for slots takes as long as a few
 * tiles. */
DEV void digits_stream(struct worker *w, struct digit_sums *s, const u32 *x, int from, int to, int warp_rows,
                       const int format) {
    const int round = STREAM_ROUND(warp_rows), most = P_COLUMNS == 1 && round <= HELD_TILES ? round : P_SLOT_TILES;
    UNROLL
    for (int i = from; i < to; i += most) {
        struct held more[HELD_TILES];
        const int left = to - i, n = left < most ? left : most;
        tiles_take(w, more, n, ALL_SCALED, format, 0, 1);
        digits_product(s, more, x, w->lane, i, n, warp_rows, format, 0);
    }
}

/* Multiplies the tiles of a phase that were not preloaded. */
DEV void digits_rest(struct worker *w, struct digit_sums *s, const u32 *x, int preload, int tiles, int warp_rows,
                     const int format) {
    const int steps = TILE_PARTS(format) / 2, round = STREAM_ROUND(warp_rows);
    const int begin = (preload + round - 1) / round * round, end = tiles / round * round;
    if (preload >= tiles) return;
    stream_freely(w, 1);
    if (begin >= end) {
        digits_stream(w, s, x, preload, tiles, warp_rows, format);
    } else {
        digits_stream(w, s, x, preload, begin, warp_rows, format);
        NO_UNROLL
        for (int i = begin; i < end; i += round)
            digits_stream(w, s, x + i / warp_rows * steps * DIGIT_STEP, 0, round, warp_rows, format);
        digits_stream(w, s, x + end / warp_rows * steps * DIGIT_STEP, 0, tiles - end, warp_rows, format);
    }
    stream_freely(w, 0);
}
#endif

/* ---- partial sums ---- */

/* Of several columns, warps store parts of the same rows of up to four columns at a time, and a lane that adds up a row
 * reads four parts at a time. So that either meets all banks, rows that begin at the same bank have their groups of
 * four parts in another order, and the four lanes that store a row the parts in a group. That changes no sum: in all
 * four orders (x + y) + (z + w) is the same. */
#define ROW_QUADS(k_parts) (P_COLUMNS == 1 || (k_parts) % 4 || (k_parts) & ((k_parts)-1) ? 1 : (k_parts) / 4)
DEV int row_turn(int row, int k_parts) { return (row * ROW_QUADS(k_parts) / 8 & (ROW_QUADS(k_parts) - 1)) * 4; }
/* The place of this warp's part in the rows that a lane stores, which are lane / 4 and each 8th one after it. */
DEV int part_place(const struct worker *w, int k_parts) {
    const int lanes = P_COLUMNS == 1 ? 0 : k_parts % 4 == 0 ? 3 : k_parts == 2;
    return (w->warp % k_parts) ^ row_turn(w->lane / 4, k_parts) ^ (w->lane & lanes);
}

#if P_COLUMNS == 1 && TILES_NARROW
/* As parts_store, after phase_digits. */
DEV void digits_parts_store(const struct worker *w, struct digit_sums *s, float unit, float *part, int warp_rows,
                            int k_parts, const int format) {
    const int row = w->warp / k_parts * warp_rows * TILE_ROWS + w->lane / 4;
    float *p = part + row * PART_ROW(k_parts, P_COLUMNS) + part_place(w, k_parts);
    if (warp_rows == 1) digits_meet(&s[0], &s[1]);
    UNROLL
    for (int r = 0; r < warp_rows; r++) {
        float total[2];
        digits_end(&s[r], &unit, total, format);
        if (w->lane % 4) continue;
        p[r * TILE_ROWS * PART_ROW(k_parts, P_COLUMNS)] = total[0];
        p[(r * TILE_ROWS + 8) * PART_ROW(k_parts, P_COLUMNS)] = total[1];
    }
}

/* As phase_product, for weights that are integers. x: the digits of this warp's slice, and their unit. */
DEV void phase_digits(struct worker *w, const struct held *t, int preload, const u32 *x, float unit, float *part,
                      int warp_rows, int warp_k, int k_parts, const int format, const float *h, float *ssq) {
    const int tiles = warp_rows * warp_k / TILE_PARTS(format);
    struct digit_sums s[ACCUMULATORS];
    digits_zero(s, ACCUMULATORS);
    digits_product(s, t, x, w->lane, 0, preload, warp_rows, format, READY_PARTS(format, warp_rows * warp_k));
    digits_rest(w, s, x, preload, tiles, warp_rows, format);
    if (h) ssq_store(w, h, ssq);
    digits_parts_store(w, s, unit, part, warp_rows, k_parts, format);
}

/* Stores the digits of a slice of n words of bf16 pairs, which the warp's lanes hold in turn; returns their unit. The
 * warps that have the same slice, k_parts apart, share the turns and wait for each other. */
DEV float pairs_digits(struct worker *w, u32 *to, const u32 *x, int n, const int k_parts) {
    enum { MOST = MAX(XWORDS(OUT), XWORDS(DOWN)) };
    const int turns = (n + LANES - 1) / LANES, sharers = P_WARPS / k_parts, mine = w->warp / k_parts;
    float v[2 * MOST], share[2 * MOST];
    UNROLL
    for (int i = 0; i < turns; i++)
        v[2 * i] = bf16_low(x[i]), v[2 * i + 1] = bf16_high(x[i]);
    const u32 most = digits_most(v, 2 * turns);
    UNROLL
    for (int i = 0; i < turns; i += sharers) {
        UNROLL
        for (int j = 0; j < sharers && i + j < turns; j++) {
            const float *of = v + 2 * (i + j);
            float *to_share = share + 2 * (i / sharers);
            to_share[0] = j == 0 || mine == j ? of[0] : to_share[0];
            to_share[1] = j == 0 || mine == j ? of[1] : to_share[1];
        }
    }
    digits_store(to, share, (turns + sharers - 1) / sharers, n, digits_factor(most), mine * LANES + w->lane,
                 sharers * LANES);
    if (sharers == 1)
        warp_sync();
    else
        barrier_wait(BARRIER_SLICES + w->warp % k_parts, sharers * LANES);
    return digits_unit(most);
}
#define PHASE_DIGITS(w, t, S, x, unit, part, h, ssq)                                                                   \
    phase_digits(w, t, PRELOAD(S), x, unit, part, P_##S##_WARP_ROWS, P_##S##_WARP_K, P_##S##_K_PARTS, SLICE_FORMAT(S), \
                 h, ssq)
#else
#define PHASE_DIGITS(w, t, S, x, unit, part, h, ssq) ((void)(x), (void)(unit))
DEV float pairs_digits(struct worker *w, u32 *to, const u32 *x, int n, const int k_parts) {
    return (void)w, (void)to, (void)x, (void)n, (void)k_parts, 0;
}
#endif

/* Stores this warp's partial sums in shared memory: the rows of its row part, in the column of its k part. */
DEV void parts_store(const struct worker *w, float (*d)[4], float *part, int warp_rows, int k_parts) {
    if (warp_rows == 1) {
        UNROLL
        for (int i = 0; i < 4; i++)
            d[0][i] += d[1][i];
    }
    UNROLL
    for (int r = 0; r < warp_rows; r++)
        tile_product_end(d[r]);
    if (w->lane % 4) return;
    const int row = w->warp / k_parts * warp_rows * TILE_ROWS + w->lane / 4;
    float *p = part + row * PART_ROW(k_parts, P_COLUMNS) + part_place(w, k_parts);
    UNROLL
    for (int r = 0; r < warp_rows; r++) {
        p[r * TILE_ROWS * PART_ROW(k_parts, P_COLUMNS)] = d[r][0];
        p[(r * TILE_ROWS + 8) * PART_ROW(k_parts, P_COLUMNS)] = d[r][2];
    }
}

#if P_COLUMNS == 1
/* Multiplies this warp's tiles from `from` on up to `to` as they come out of the ring; tile 0 is the first of x or,
 * where x is NULL, of the slice of the normed vector. `most` are taken at a time. */
DEV void product_stream(struct worker *w, float (*d)[4], const u32 *x, const u32 *slice, int from, int to, int most,
                        int warp_rows, const int half, const int format) {
    UNROLL
    for (int i = from; i < to; i += most) {
        struct held more[HELD_TILES];
        const int left = to - i, n = left < most ? left : most;
        tiles_take(w, more, n, ALL_SCALED, format, 0, 1);
        if (x)
            product(d, more, x, w->lane, i, n, warp_rows, half, format, 0);
        else
            product_split(d, more, slice, w->lane, i, n, warp_rows, half, format, 0);
    }
}

/* Multiplies the tiles of a phase that were not preloaded. Where slices are long, and with narrow tiles, of which each
 * is several operands' instructions, the rounds are a loop; a round with x takes one of the words that a lane holds of
 * it. */
DEV void product_rest(struct worker *w, float (*d)[4], const u32 *x, const u32 *slice, int preload, int tiles,
                      int warp_rows, const int half, const int format) {
    const int parts = TILE_PARTS(format), word_tiles = parts < 4 ? 4 / parts : 1;
    const int round = half ? HALF_ROUND(warp_rows) : x ? word_tiles * warp_rows : STREAM_ROUND(warp_rows);
    const int begin = (preload + round - 1) / round * round, end = tiles / round * round;
    const int loops = TILE_NARROW(format) ? round % P_SLOT_TILES == 0 : SLICE > 4 && !(half && x);
    const int most = TILE_NARROW(format) && loops && round <= HELD_TILES ? round : P_SLOT_TILES;
    if (preload >= tiles) return;
    stream_freely(w, 1);
    if (!loops || begin + round >= end) {
        product_stream(w, d, x, slice, preload, tiles, P_SLOT_TILES, warp_rows, half, format);
    } else {
        product_stream(w, d, x, slice, preload, begin, P_SLOT_TILES, warp_rows, half, format);
        NO_UNROLL
        for (int i = begin; i < end; i += round) {
            u32 word = 0;
            UNROLL
            for (int j = begin / round; x && j < end / round; j++)
                if (i == j * round) word = x[j];
            product_stream(w, d, x ? &word : x, slice + tiles_k(i, warp_rows, half) * parts * 8, 0, round, most,
                           warp_rows, half, format);
        }
        product_stream(w, d, x ? x + end / round : x, slice + tiles_k(end, warp_rows, half) * parts * 8, 0, tiles - end,
                       P_SLOT_TILES, warp_rows, half, format);
    }
    stream_freely(w, 0);
}

/* Takes one warp through a phase, from its input to its partial sums: first the `preload` tiles in t, then the rest
 * from the ring as it comes. The input is x, as in `product`. Where x is NULL the input is the normed vector in shared
 * memory, made of h; then the warp also stores its share of h's sum of squares in ssq, after the products. */
DEV void phase_product(struct worker *w, const struct held *t, int preload, const u32 *x, float *part, int warp_rows,
                       const int half, int warp_k, int k_parts, const int format, const float *h, float *ssq) {
    const u32 *slice = w->s->x + (w->warp * P_QKV_WARP_K * 4 + w->lane % 4) * 2;
    const int tiles = warp_rows * warp_k / TILE_PARTS(format) - half * warp_k / 2;
    const int ready = READY_PARTS(format, warp_rows * warp_k);
    float d[ACCUMULATORS][4];
    UNROLL
    for (int i = 0; i < ACCUMULATORS; i++)
        d[i][0] = d[i][1] = d[i][2] = d[i][3] = 0;
    if (x)
        product(d, t, x, w->lane, 0, preload, warp_rows, half, format, ready);
    else
        product_split(d, t, slice, w->lane, 0, preload, warp_rows, half, format, ready);
    product_rest(w, d, x, slice, preload, tiles, warp_rows, half, format);
    if (!x) {
        ssq_store(w, h, ssq);
        UNROLL
        for (int i = 0; i < ACCUMULATORS; i++)
            d[i][0] += d[i][1], d[i][2] += d[i][3];
    }
    parts_store(w, d, part, warp_rows, k_parts);
}
#endif

/* Adds up n neighbouring floats in a fixed order. Four of them, the i-th and those after it, are at i ^ turn
 * (row_turn). The first one's address is a multiple of 16. */
DEV float sum_turned(const float *p, int n, int turn) {
    float sum = 0;
    UNROLL
    for (int i = 0; i + 4 <= n; i += 4) {
        const struct quad_float v = *(const struct quad_float *)(p + (i ^ turn));
        sum += (v.x + v.y) + (v.z + v.w);
    }
    UNROLL
    for (int i = n & ~3; i < n; i++)
        sum += p[i];
    return sum;
}

DEV float sum_run(const float *p, int n) { return sum_turned(p, n, 0); }

DEV float row_sum(const float *part, int row, int k_parts) {
    return sum_turned(part + row * PART_ROW(k_parts, P_COLUMNS), k_parts, row_turn(row, k_parts));
}

/* ---- the norm in front of a product ---- */

/* 1 / sqrt(mean(h^2) + eps). It is a scalar, so it can be applied after the product. */
DEV float norm_scale(const float *ssq) { return rsqrt_approx(sum_run(ssq, P_WARPS) * (1.0f / M_HIDDEN) + M_RMS_EPS); }

#endif
