/* Short prompts behind many positions. Every SM of a group attends for all of the launch's tokens, but to its own share
 * of the positions: pieces (docs/GLOSSARY.md) in turn. What an SM made of a block of rows is not the attention yet, so
 * two exchanges follow, both within the group:
 *
 *   partials   a block's unscaled sums over an SM's positions, their maxima and weights -> the SM that merges the rows
 *   attended   the merged rows, as B operands of out                                    -> every SM of the group
 *
 * A pair is an atom of tokens of a head; pair p is merged by SM p % P_GROUP_SMS of the group, a k tile a warp. Partials
 * are added in the order of SMs, so the bits depend on nothing but the positions and the number of tokens.
 *
 * One buffer is enough for either (short.cuh has the proofs of the others). An SM publishes partials of layer l + 1
 * after it had qkv(l + 1) from its whole group. Each SM of the group had published qkv(l + 1) after it had taken all
 * attended rows of layer l, which every SM makes after it has taken its partials of layer l. */
#ifndef REEL_KERNELS_SHORT_FAR_CUH
#define REEL_KERNELS_SHORT_FAR_CUH

#include "short_shared.cuh"

/* SMs whose partials a warp has on their way. With four of them, kernels for heads of 64 would put 588 bytes of
 * registers aside (TinyLlama on sm_90a, as compiled). */
enum { MERGE_AT_ONCE = M_HEAD_DIM <= 64 ? 1 : 4 };

/* ---- partials ---- */

/* An SM's partials of a pair: SHORT_TILE_WORDS words for each k tile of the head, a lane's two, 24 bits a value; then
 * for each lane below 4 the maxima of its two rows and their sums of weights, f32. */
DEV u64 *partial_words(const struct short_worker *b, int member, int head, int atom) {
    const int sm = b->w.group * P_GROUP_SMS + member;
    return b->w.a->words + S_PARTIAL + ((sm * P_GROUP_HEADS + head) * ATOMS + atom) * SHORT_PARTIAL_WORDS(AT_TILES);
}

/* Publishes what this SM made of a pair. o, m and l are as in struct rows (short_attention.cuh). */
DEV void partial_publish(const struct short_worker *b, int head, int atom, float (*o)[4], const float *m,
                         const float *l) {
    u64 *to = partial_words(b, b->w.member, head, atom);
    u64 *end = to + AT_TILES * SHORT_TILE_WORDS + b->w.lane * 4;
    UNROLL
    for (int t = 0; t < AT_TILES; t++) {
        u64 *at = to + t * SHORT_TILE_WORDS + b->w.lane * 2;
        word_store(at, word_make24(o[t][0], o[t][1], b->w.epoch));
        word_store(at + 1, word_make24(o[t][2], o[t][3], b->w.epoch));
    }
    if (b->w.lane >= 4) return;
    UNROLL
    for (int i = 0; i < 2; i++) {
        word_store(end + i, word_make(float_bits(m[i]), b->w.epoch));
        word_store(end + 2 + i, word_make(float_bits(l[i]), b->w.epoch));
    }
}

/* What a lane takes of one SM's partials: its words of a k tile, its rows' maxima and sums of weights. */
struct partial {
    u64 o[2], m[2], l[2];
};
DEV int partial_there(const struct short_worker *b, const struct partial *p) {
    return word_is24(p->o[0], b->w.epoch) & word_is24(p->o[1], b->w.epoch) & word_is(p->m[0], b->w.epoch) &
           word_is(p->m[1], b->w.epoch) & word_is(p->l[0], b->w.epoch) & word_is(p->l[1], b->w.epoch);
}
DEV void partial_load(struct partial *p, const u64 *o, const u64 *ends) {
    word_load2(o, &p->o[0], &p->o[1]);
    word_load2(ends, &p->m[0], &p->m[1]);
    word_load2(ends + 2, &p->l[0], &p->l[1]);
}

/* Rows while SMs' partials are merged: two dims, lane / 4 and + 8 of a k tile, of two rows. */
struct merged {
    float o[4], m[2], l[2];
};
DEV void partial_merge(struct merged *x, const struct partial *p) {
    UNROLL
    for (int i = 0; i < 2; i++) {
        const float m_its = bits_float((u32)p->m[i]), m = max_float(x->m[i], m_its);
        const float mine = exp2_approx(x->m[i] - m), its = exp2_approx(m_its - m);
        x->m[i] = m;
        x->l[i] = x->l[i] * mine + bits_float((u32)p->l[i]) * its;
        x->o[i] = x->o[i] * mine + (i ? float24_high(p->o[0]) : float24_low(p->o[0])) * its;
        x->o[2 + i] = x->o[2 + i] * mine + (i ? float24_high(p->o[1]) : float24_low(p->o[1])) * its;
    }
}

/* Merges one k tile of a pair, for some SMs at a time in their order. */
DEV void tile_merge(struct short_worker *b, struct merged *x, int head, int atom, int t) {
    const u64 *from = partial_words(b, 0, head, atom);
    const int step = P_GROUP_HEADS * ATOMS * SHORT_PARTIAL_WORDS(AT_TILES);
    const u64 *o = from + t * SHORT_TILE_WORDS + b->w.lane * 2;
    const u64 *ends = from + AT_TILES * SHORT_TILE_WORDS + b->w.lane % 4 * 4;
    NO_UNROLL
    for (int first = 0; first < P_GROUP_SMS; first += MERGE_AT_ONCE) {
        struct partial p[MERGE_AT_ONCE];
        u32 polls = 0;
        UNROLL
        for (int i = 0; i < MERGE_AT_ONCE; i++)
            if (first + i < P_GROUP_SMS) partial_load(&p[i], o + (first + i) * step, ends + (first + i) * step);
        NO_UNROLL
        for (;;) {
            int ok = 1;
            UNROLL
            for (int i = 0; i < MERGE_AT_ONCE; i++)
                if (first + i < P_GROUP_SMS) ok &= partial_there(b, &p[i]);
            if (warp_all(ok | b->w.dead)) break;
            wait_failed(&b->w, &polls, WAIT_ATTENTION, b->w.epoch, (u32)(p[0].m[0] >> 32));
            UNROLL
            for (int i = 0; i < MERGE_AT_ONCE; i++)
                if (first + i < P_GROUP_SMS && !partial_there(b, &p[i]))
                    partial_load(&p[i], o + (first + i) * step, ends + (first + i) * step);
        }
        UNROLL
        for (int i = 0; i < MERGE_AT_ONCE; i++)
            if (first + i < P_GROUP_SMS) partial_merge(x, &p[i]);
    }
}

/* ---- attended rows ---- */

DEV u64 *attended_words(const struct short_worker *b, int head) {
    return b->w.a->words + S_ATTENDED + (b->w.group * P_GROUP_HEADS + head) * (AT_TILES * ATOMS * TILE_WORDS);
}

/* Merges this SM's pairs and publishes them. A warp does a k tile at a time. */
DEV void pairs_merge(struct short_worker *b) {
    const int pairs = P_GROUP_HEADS * b->atoms, mine = (pairs - b->w.member + P_GROUP_SMS - 1) / P_GROUP_SMS;
    NO_UNROLL
    for (int i = b->w.warp; i < mine * AT_TILES; i += P_WARPS) {
        const int pair = b->w.member + i / AT_TILES * P_GROUP_SMS, t = i % AT_TILES;
        const int head = pair / b->atoms, atom = pair % b->atoms;
        struct merged x;
        x.o[0] = x.o[1] = x.o[2] = x.o[3] = 0;
        x.m[0] = x.m[1] = ATTENTION_NEVER, x.l[0] = x.l[1] = 0;
        tile_merge(b, &x, head, atom, t);
        const float f[2] = { rcp_approx(x.l[0]), rcp_approx(x.l[1]) };
        u64 *to = attended_words(b, head) + (t * ATOMS + atom) * TILE_WORDS + b->w.lane * 2;
        word_store(to, word_make(transpose8(bf16_pair(x.o[0] * f[0], x.o[1] * f[1])), b->w.epoch));
        word_store(to + 1, word_make(transpose8(bf16_pair(x.o[2] * f[0], x.o[3] * f[1])), b->w.epoch));
    }
}

/* Takes the group's attended rows to where q was. Nobody needs q of a pair any more when the pair's rows come: they
 * were made of what this SM's own warps published after they had read it. */
DEV void attended_take(struct short_worker *b) {
    NO_UNROLL
    for (int pair = b->w.warp; pair < P_GROUP_HEADS * b->atoms; pair += P_WARPS) {
        const int head = pair / b->atoms, atom = pair % b->atoms;
        struct pair *to = b->w.s->q + (head * AT_TILES * ATOMS + atom) * LANES + b->w.lane;
        struct fragment f[AT_TILES];
        fragments_ask(b, f, attended_words(b, head), atom, AT_TILES, 1, M_HEAD_DIM, 0);
        fragments_wait(b, f, attended_words(b, head), atom, AT_TILES, 1, M_HEAD_DIM, 0, WAIT_ATTENDED);
        UNROLL
        for (int t = 0; t < AT_TILES; t++)
            to[t * ATOMS * LANES].low = f[t].q.x, to[t * ATOMS * LANES].high = f[t].q.z;
    }
}

#endif
