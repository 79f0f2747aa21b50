/* head: the final norm and the output matrix.
 *   reads    h (registers), complete
 *   writes   logits; each warp's best logit in shared memory
 *   split    row tiles are dealt out to all SMs in turn
 *
 * A strip of 16 rows belongs to one warp from beginning to end, so nothing orders the warps until they agree on the
 * best logit. */
#ifndef REEL_KERNELS_PHASE_HEAD_CUH
#define REEL_KERNELS_PHASE_HEAD_CUH

#include "draft_head.cuh"
#include "mma.cuh"
#include "phase_pick.cuh"
#include "phase_qkv.cuh"

#if P_COLUMNS == 1
/* Stores the digits of this warp's slice of the head's input. All warps multiply all slices, so these have one unit,
 * which is returned. */
DEV float head_digits(struct worker *w, const float *h, const float *gain) {
#if HEAD_DIGITS
    u32 *x = w->s->x + w->warp * (P_QKV_WARP_K / 2) * DIGIT_STEP;
    float v[2 * SLICE];
    slice_normed(h, gain, v);
    u32 most = digits_most(v, 2 * SLICE);
    if (w->lane == 0) w->s->most[w->warp] = most;
    consumers_sync();
    UNROLL
    for (int i = 0; i < P_WARPS; i++)
        most = w->s->most[i] > most ? w->s->most[i] : most;
    digits_store(x, v, SLICE, SLICE_WORDS, digits_factor(most), w->lane, LANES);
    return digits_unit(most);
#else
    return (void)w, (void)h, (void)gain, 0;
#endif
}

/* The final norm. Each warp stores h times the gains as B fragments, and its sum of squares; behind the barrier all
 * warps may read both. Returns the norm's scale; unit: that of digits, if the head has them. */
DEV float head_norm(struct worker *w, const float *h, const float *gain, float *unit) {
    *unit = 1;
    if (DIGITS(P_HEAD_FORMAT))
        *unit = head_digits(w, h, gain);
    else
        fragments_store(w, h, gain);
    ssq_store(w, h, w->s->ssq[0]);
    consumers_sync();
    return norm_scale(w->s->ssq[0]);
}

/* Block 0 stores what the head reads, the normed h, in memory; with M_GIVEN_BIASES h itself, which the next guess is
 * made of. hidden: f32 [hidden]. */
DEV void hidden_leave(const struct worker *w, const float *h, const float *gain, float scale, float *hidden) {
    UNROLL
    for (int i = 0; i < SLICE; i++) {
        const int word = i * LANES + w->lane, pair = w->warp * SLICE_WORDS + word;
        if (word >= SLICE_WORDS || pair >= M_HIDDEN / 2 || w->block != 0) continue;
        UNROLL
        for (int j = 2 * i; j < 2 * i + 2; j++)
            plain_store32((u32 *)hidden + 2 * pair + j % 2, float_bits(M_GIVEN_BIASES ? h[j] : h[j] * gain[j] * scale));
    }
}

/* As head_unit; `tiles` are this lane's bytes of the warp's first tile. */
DEV void head_unit_narrow(struct worker *w, int q, const u8 *tiles, float (*d)[4]) {
    const u32 *x = w->s->x + (q * P_HEAD_UNIT * TILE_PARTS(P_HEAD_FORMAT) * 4 + w->lane % 4) * 2;
    UNROLL_BY(4)
    for (int k = 0; k < P_HEAD_UNIT; k++) {
        struct held t;
        held_read(&t, tiles + k * (int)tile_bytes(P_HEAD_FORMAT), w->lane, 1, P_HEAD_FORMAT);
        product_narrow(d + (k & 1), &t, x + k * TILE_PARTS(P_HEAD_FORMAT) * 8, 1, w->lane, 0, 1, 1, P_HEAD_FORMAT, 0);
    }
}

#if TILES_NARROW
/* As head_unit, with weights that are integers. */
DEV void head_unit_digits(struct worker *w, int q, struct digit_sums *s) {
    const int bytes = (int)tile_bytes(P_HEAD_FORMAT), steps = TILE_PARTS(P_HEAD_FORMAT) / 2;
    const u8 *tiles =
        w->ring + (size_t)w->slot * P_SLOT_BYTES +
        (size_t)(w->warp % HEAD_SLOT_WARPS * P_HEAD_UNIT * bytes + (int)tile_lane(P_HEAD_FORMAT, w->lane));
    const u32 *x = w->s->x + q * P_HEAD_UNIT * steps * DIGIT_STEP;
    UNROLL_BY(8)
    for (int k = 0; k < P_HEAD_UNIT; k++) {
        struct held t;
        held_read(&t, tiles + k * bytes, w->lane, k == 0 || !ROW_SCALED(P_HEAD_FORMAT), P_HEAD_FORMAT);
        digits_product(s, &t, x, w->lane, k, 1, 1, P_HEAD_FORMAT, 0);
    }
}
#endif

/* Multiplies one unit: P_HEAD_UNIT tiles of this warp's strip, in the slot at hand. */
DEV void head_unit(struct worker *w, int q, float (*d)[4]) {
    const u32 *x = w->s->x + (q * P_HEAD_UNIT * 4 + w->lane % 4) * 2;
    const int bytes = (int)tile_bytes(P_HEAD_FORMAT);
    const u8 *tiles =
        w->ring + (size_t)w->slot * P_SLOT_BYTES +
        (size_t)(w->warp % HEAD_SLOT_WARPS * P_HEAD_UNIT * bytes + (int)tile_lane(P_HEAD_FORMAT, w->lane));
    if (TILE_NARROW(P_HEAD_FORMAT)) head_unit_narrow(w, q, tiles, d);
#if !defined(REEL_SIM)
#pragma unroll 8
#endif
    for (int k = 0; k < (TILE_NARROW(P_HEAD_FORMAT) ? 0 : P_HEAD_UNIT); k++) {
        const struct quad a = tile_operand(P_HEAD_FORMAT, *(const struct quad *)(tiles + k * bytes));
        tile_product_split(d[k & 1], a, x + k * 8, X_LOW, w->lane);
    }
}
#endif

DEV void head_wait(struct worker *w) {
    if (w->lane == 0) mbar_wait(w, w->full + (smem)w->slot * 8, slot_parity(w, w->slot), WAIT_WEIGHTS);
    warp_sync();
}

/* Gives a slot back. The HEAD_SLOT_WARPS warps that share a slot make the P_WARPS arrivals it wants. A warp without a
 * strip waits and gives back like the others: its arrivals must not count for an earlier lap of the ring. */
DEV void head_release(struct worker *w, u32 seen) {
    warp_sync();
    if (w->lane < HEAD_ROW_SLOTS) mbar_arrive_after(w, w->empty + (smem)w->slot * 8, seen);
}

#if P_COLUMNS == 1
/* Takes the logits of a strip's two rows of this lane, which are the sums times the norm's scale. */
DEV void head_strip(struct worker *w, int tile, int mine, const float *sums, float scale, int output,
                    struct best *best) {
    if (w->lane % 4) return;
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int row = w->lane / 4 + 8 * i, id = (tile * P_SMS + w->block) * TILE_ROWS + row;
        head_logit(w, tile * TILE_ROWS + row, id, mine && id < M_VOCAB, sums[i] * scale, output, best);
    }
}

/* Multiplies a strip, as part of head_consume; there: some warp has one in this round. */
DEV void head_strip_multiply(struct worker *w, int mine, int there, float unit, float *sums) {
    const int before = w->warp / HEAD_SLOT_WARPS; /* slots of a row ahead of this warp's */
    float d[2][4] = { { 0, 0, 0, 0 }, { 0, 0, 0, 0 } };
#if TILES_NARROW
    struct digit_sums s[2];
    digits_zero(s, 2);
#endif
    for (int q = 0; q < HEAD_UNITS && there; q++) {
        u32 seen = 0;
        slots_skip(w, before);
        head_wait(w);
#if TILES_NARROW
        if (DIGITS(P_HEAD_FORMAT)) {
            if (mine) head_unit_digits(w, q, s);
            seen = float_bits(s[0].f[0]) ^ float_bits(s[1].f[0]) ^ (u32)s[0].n[0] ^ (u32)s[1].n[0] ^
                   float_bits(s[0].scale[0]);
            /* a scale of the lane's second row may be a load of its own */
            seen ^= float_bits(s[0].f[2]) ^ float_bits(s[1].f[2]) ^ float_bits(s[0].scale[1]);
        }
#endif
        if (!DIGITS(P_HEAD_FORMAT)) {
            if (mine) head_unit(w, q, d);
            seen = float_bits(d[0][0]) ^ float_bits(d[1][0]);
            if (TILE_NARROW(P_HEAD_FORMAT)) seen ^= float_bits(d[0][2]) ^ float_bits(d[1][2]);
        }
        head_release(w, seen);
        slots_skip(w, HEAD_ROW_SLOTS - before);
    }
#if TILES_NARROW
    if (DIGITS(P_HEAD_FORMAT)) {
        digits_meet(&s[0], &s[1]);
        digits_end(&s[0], &unit, sums, P_HEAD_FORMAT);
        return;
    }
#endif
    d[0][0] = (d[0][0] + d[0][1]) + (d[1][0] + d[1][1]);
    d[0][2] = (d[0][2] + d[0][3]) + (d[1][2] + d[1][3]);
    tile_product_end(d[0]);
    sums[0] = d[0][0], sums[1] = d[0][2];
    (void)unit;
}

/* Multiplies all strips of this SM. output: the row of args.logits, if that is not NULL; unit: head_norm's. */
DEV void head_consume(struct worker *w, float scale, float unit, int output) {
    const int tiles = head_tiles(w);
    struct best best = { 0, 0 };
    for (int first = 0; first < P_HEAD_ROW_TILES; first += P_WARPS) {
        const int tile = first + w->warp;
        float sums[2];
        head_strip_multiply(w, tile < tiles, first < tiles, unit, sums);
        head_strip(w, tile, tile < tiles, sums, scale, output, &best);
    }
    lanes_agree(w);
    best = best_of_warp(best);
    if (w->lane == 0) w->s->best_key[w->warp] = best.key, w->s->best_id[w->warp] = best.id;
}
#endif

#endif
