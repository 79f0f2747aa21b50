/* Past positions whose keys and values are codes of 8 bits, multiplied as integers (KV_DIGITS, phase_attention_shared).
 *
 * The tensor cores take codes as they lie in their piece, without an instruction to widen them. As with weights that
 * are integers (digits.cuh), it is the other operand that becomes integers of 22 bits, three digits each: the q heads,
 * once a layer, and the weights of softmax, times V's scales, once a piece. A set is two q heads. It takes the eight
 * columns of a product: columns 4 h to 4 h + 2 are the digits of head h of the set, and column 4 h + 3 is idle. So the
 * lanes whose lane % 4 is 2 h or 2 h + 1 have the results of head h, an even lane those of the lower two digits and an
 * odd lane that of the third.
 *
 * Sums of weights times V stay in integers from piece to piece, which needs the same m and the same unit for all of
 * them. So m is not the largest score so far but one that was the largest at some time, and the unit leaves two bits
 * above the largest weight of that time. A piece with larger weights than these bits can hold makes the warp settle:
 * the integers become floats, and m and the unit are chosen anew. Weights relative to another m are as good, since the
 * result is divided by their sum. An integer is off by half a unit, less than 2^-20 of the weights that were largest.
 */
#ifndef REEL_KERNELS_ATTENTION_DIGITS_CUH
#define REEL_KERNELS_ATTENTION_DIGITS_CUH

#include "digits.cuh"
#include "kv_codes.cuh"

enum {
    K_STEPS = (AT_TILES + 1) / 2, /* of 32 dims */
    /* A piece adds less than 2^18 to a sum: 16 codes times digits of up to 128. */
    MOST_PIECES = 4096
};
#define WEIGHT_MOST 4194303.0f /* the largest integer of three digits that digits_of makes */

/* The digits of the q heads, B operands: a word for each tile of K. factor: of this lane's head, what sums are
 * multiplied by to become scores in base 2, without K's scales. */
struct asked {
    u32 digits[AT_SETS][2 * K_STEPS];
    float factor[AT_SETS];
};

/* One warp's online softmax: of each set for this lane's head. l has only this lane's positions. n are the sums of rows
 * (dims) lane / 4 and + 8, for this lane's digits; what they were before they settled stands in part_o. */
struct attended {
    float m[AT_SETS], l[AT_SETS], unit[AT_SETS], by[AT_SETS]; /* by: 1 / unit */
    int n[AT_SETS][AT_TILES][4];
    int pieces; /* whose weights are in n */
};

/* The sum of a lane's two columns, as floats. */
DEV float digits_sum(float low, float high, int lane) { return lane & 1 ? 65536.0f * low : low + 256.0f * high; }

/* The q head that a lane's column or, with lane % 4 * 2, a lane's results belong to, counted from the KV head's first.
 */
DEV int set_head(int set, int column) {
    const int head = 2 * set + column / 4;
    return head < AT_HEADS ? head : AT_HEADS - 1;
}

/* Makes the digits of the q heads from `first` on. */
DEV struct asked asked_make(const struct attention_shared *at, int first, int q_at, int lane) {
    const int column = lane / 4, digit = column % 4 % 3;
    const u32 pick = (u32)(0x11 * digit + 0x40);
    struct asked a;
    (void)q_at;
    UNROLL
    for (int set = 0; set < AT_SETS; set++) {
        const struct quad *from = (const struct quad *)at->q[first + set_head(set, column)] + lane % 4;
        struct quad x[K_STEPS]; /* words of dims c, c + 8, c + 16 and c + 24 of a step, c = 2 (lane % 4) */
        u32 largest = 0;
        UNROLL
        for (int i = 0; i < K_STEPS; i++) {
            x[i] = from[4 * i];
            if (2 * i + 1 == AT_TILES) x[i].z = x[i].w = 0;
            largest = kv_largest(kv_largest(largest, x[i].x), x[i].y);
            largest = kv_largest(kv_largest(largest, x[i].z), x[i].w);
        }
        const u32 most = kv_largest_of(largest, 1, 4) << 16;
        const float factor = digits_factor(most);
        UNROLL
        for (int i = 0; i < 2 * K_STEPS; i++) {
            const u32 near = i % 2 ? x[i / 2].z : x[i / 2].x, far = i % 2 ? x[i / 2].w : x[i / 2].y;
            const u32 even = bytes_pick(digits_of(bf16_low(near), factor), digits_of(bf16_low(far), factor), pick);
            const u32 odd = bytes_pick(digits_of(bf16_high(near), factor), digits_of(bf16_high(far), factor), pick);
            a.digits[set][i] = bytes_pick(even, odd, 0x5410);
        }
        const u32 mine = shuffle(most, lane % 4 / 2 * 16); /* of the head whose results this lane has */
        a.factor[set] = digits_unit(mine) * q_factor(at, first + set_head(set, lane % 4 * 2));
    }
    return a;
}

DEV int lane_head(int set, int lane) { return 2 * set + lane % 4 / 2; }
/* Whether a lane keeps its head's results: one of two lanes that have them does, and a head may be none. */
DEV int keeps_head(int set, int lane) { return !(lane & 1) && lane_head(set, lane) < AT_HEADS; }

/* The integers of a set become floats, and all floats relative to the largest score m. fresh: there are none yet. */
DEV void attended_settle(const struct worker *w, struct attended *r, int fresh, int set, float m) {
    const float f = exp2_approx(r->m[set] - m);
    const int head = lane_head(set, w->lane);
    float *o = part_o(w)[head < AT_HEADS ? head : 0] + w->lane / 4 * AT_O_STRIDE;
    UNROLL
    for (int i = 0; i < 2 * AT_TILES; i++) {
        int *n = r->n[set][i / 2] + i % 2 * 2;
        const float sum = fresh ? 0 : xor_sum(digits_sum((float)n[0], (float)n[1], w->lane), 1, 2);
        if (keeps_head(set, w->lane)) o[i] = fresh ? 0 : (o[i] + sum * r->unit[set]) * f;
        n[0] = n[1] = 0;
    }
    r->l[set] = fresh ? 0 : r->l[set] * f, r->m[set] = m;
}

/* Chooses m and the unit of a set anew, so that weights of the scores s fit, times V's scales. NaN in these makes the
 * unit NaN. */
DEV void attended_renew(const struct worker *w, struct attended *r, int fresh, int set, const float *s,
                        const struct piece_scales *x) {
    const float top = xor_max(max_float(s[0], s[1]), 4, LANES), m = fresh ? top : max_float(r->m[set], top);
    /* the unit does not shrink, but where m grows */
    const float before = fresh ? 0 : r->unit[set] * 1048576.0f * exp2_approx(r->m[set] - m);
    u32 most = float_bits(before) & 0x7fffffffu;
    UNROLL
    for (int i = 0; i < 2; i++) {
        const u32 bits = float_bits(exp2_approx(s[i] - m) * x->v[i]) & 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    most = kv_largest_of(most, 4, LANES);
    attended_settle(w, r, fresh, set, m);
    r->unit[set] = 4 * digits_unit(most), r->by[set] = 0.25f * digits_factor(most);
}

/* p: the weights of the scores s; n: the integers that they are with V's scales, before rounding. Returns whether these
 * are small enough. */
DEV int weights_make(const struct attended *r, int set, const float *s, const struct piece_scales *x, float *p,
                     float *n) {
    int fit = 1;
    UNROLL
    for (int i = 0; i < 2; i++) {
        p[i] = exp2_approx(s[i] - r->m[set]);
        n[i] = p[i] * x->v[i] * r->by[set];
        fit &= n[i] <= WEIGHT_MOST && p[i] <= 65536.0f;
    }
    return fit;
}

/* Adds a piece to r, of whose positions the first `left` count. fresh: this is the warp's first piece. early: e holds
 * its first tiles. A code is a number whatever the cache holds, so V's beyond `left` need no clearing: their weights
 * are 0. */
DEV void piece_attend(const struct worker *w, struct attended *r, int fresh, int early, const struct early *e,
                      const KV_TILE *tiles, const struct asked *q, int left) {
    const int lane = w->lane;
    const u32 pick = lane & 1 ? 0x7362u : 0x5140u; /* digits 2 and none of two integers, or 0 and 1 */
    struct piece_scales scales = e->scales;
    float s[AT_SETS][2], p[AT_SETS][2], n[AT_SETS][2];
    int c[AT_SETS][2][4], fit = !fresh && r->pieces < MOST_PIECES;
    if (!early || !WHOLE_EARLY) piece_scales_read(&scales, tiles, lane, left);
    UNROLL
    for (int i = 0; i < 8 * AT_SETS; i++)
        c[i / 8][i / 4 % 2][i % 4] = 0;
    UNROLL
    for (int i = 0; i < K_STEPS; i++) {
        KV_TILE k[2];
        UNROLL
        for (int j = 0; j < 2; j++) {
            const int t = 2 * i + j;
            kv_tile_clear(&k[j]);
            if (t < AT_TILES) k[j] = early && t < EARLY_TILES ? e->k[t < EARLY_TILES ? t : 0] : tiles[t * LANES];
        }
        const struct quad a = { k[0].low, k[0].high, k[1].low, k[1].high };
        UNROLL
        for (int set = 0; set < AT_SETS; set++)
            tile_mma_s8(c[set][i % 2], a, q->digits[set][2 * i], q->digits[set][2 * i + 1]);
    }
    UNROLL
    for (int set = 0; set < AT_SETS; set++) {
        UNROLL
        for (int i = 0; i < 2; i++) {
            const int low = c[set][0][2 * i] + c[set][1][2 * i], high = c[set][0][2 * i + 1] + c[set][1][2 * i + 1];
            const float sum = xor_sum((float)(lane & 1 ? low : low + 256 * high) * (lane & 1 ? 65536.0f : 1.0f), 1, 2);
            s[set][i] = lane / 4 + 8 * i < left ? score_scaled(sum * q->factor[set], &scales, i) : ATTENTION_NEVER;
        }
        if (!fresh) fit &= weights_make(r, set, s[set], &scales, p[set], n[set]);
    }
    if (fresh || !warp_all(fit)) {
        UNROLL
        for (int set = 0; set < AT_SETS; set++) {
            attended_renew(w, r, fresh, set, s[set], &scales);
            weights_make(r, set, s[set], &scales, p[set], n[set]);
        }
        r->pieces = 0;
    }
    r->pieces++;
    UNROLL
    for (int set = 0; set < AT_SETS; set++) {
        r->l[set] += p[set][0] + p[set][1];
        const u32 b = transpose8(bytes_pick(digits_of(n[set][0], 1.0f), digits_of(n[set][1], 1.0f), pick));
        UNROLL
        for (int t = 0; t < AT_TILES; t++) {
            const KV_TILE v = early && t < EARLY_V ? e->v[t < V_ROOM ? t : 0] : tiles[(AT_TILES + t) * LANES];
            tile_mma_s8_half(r->n[set][t], v.low, v.high, b);
        }
    }
}

/* Returns a value that depends on all products with a piece; kv_give wants one. */
DEV u32 attended_seen(const struct attended *r) {
    u32 seen = 0;
    UNROLL
    for (int i = 0; i < AT_SETS * AT_TILES; i++)
        seen ^= (u32)r->n[i / AT_TILES][i % AT_TILES][0];
    return seen;
}

/* Stores the warp's partial results in shared memory. */
DEV void attended_store(const struct worker *w, struct attended *r) {
    struct attention_shared *at = attention_of(w);
    const int part = part_of(w) / P_GROUP_KV_HEADS;
    UNROLL
    for (int set = 0; set < AT_SETS; set++) {
        const int head = w->warp % P_GROUP_KV_HEADS * AT_HEADS + lane_head(set, w->lane);
        attended_settle(w, r, 0, set, r->m[set]);
        const float l = xor_sum(r->l[set], 4, LANES);
        if (w->lane < 4 && keeps_head(set, w->lane)) at->m[head][part] = r->m[set], at->l[head][part] = l;
    }
}

#endif
