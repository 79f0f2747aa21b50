/* attention's partial results become one: first those of the block's warps, then, where positions are split over the
 * group, those of the group's SMs, its members.
 *   reads    what phase_attention.cuh left in attention_shared; the gates, X_QKV
 *   writes   bf16 pairs in block_shared.attention
 *
 * A member publishes its partial result as ATTENTION_SPAN words (docs/GLOSSARY.md) of X_ATTENTION: each head's o
 * divided by its l, as pairs of 24-bit floats, then m + log2(l) of each head. In a small group every SM merges the
 * results of all members. In a large group that would be too many words (P_MERGE_SCATTER): each SM merges its share of
 * the columns and publishes bf16 pairs, X_MERGED. There a member without a piece of positions publishes no partial
 * result, and nobody waits for one. */
#ifndef REEL_KERNELS_PHASE_ATTENTION_MERGE_CUH
#define REEL_KERNELS_PHASE_ATTENTION_MERGE_CUH

#include "attention_math.cuh"
#include "exchange.cuh"
#include "phase_qkv.cuh"
#include "product.cuh"

enum {
    RESULT_WORDS = P_GROUP_Q / 2,
    ATTENTION_SPAN = (RESULT_WORDS + P_GROUP_HEADS + 15) / 16 * 16,
    /* Registers of a thread that out's tiles leave free. With several columns they are counted as with one, because
     * this number decides in which order results are merged. */
    SPARE_REGISTERS = (G_REGISTERS ? P_REGISTERS_CONSUMER : 65536 / P_THREADS) - 4 * P_OUT_HELD,
    MERGE_PUBLISHES = P_MERGE_SCATTER || P_COLUMNS > 1 /* who merges a column publishes it */
};

/* ---- in a block ---- */

/* What the current position's v is worth besides what stands in kv: of codes their scale. */
DEV float own_value_scale(const struct attention_shared *at, int head) {
    return P_KV_FORM ? at->q_ssq[P_GROUP_HEADS + head / AT_HEADS][1] : 1.0f;
}

struct merged {
    float low, high, m, l; /* two dims, not yet divided by l */
};

/* Which words of the result a thread merges, and where their inputs lie; made before there is something to merge. */
enum { MERGE_TURNS = (RESULT_WORDS + CONSUMER_THREADS - 1) / CONSUMER_THREADS };
struct merge_place {
    int word, head, o, v; /* o, v: places in attention_shared; word >= RESULT_WORDS: none */
};

DEV void merge_places(const struct worker *w, struct merge_place *at) {
    UNROLL
    for (int n = 0; n < MERGE_TURNS; n++) {
        const u32 i = (u32)(n * CONSUMER_THREADS + w->warp * LANES + w->lane);
        const u32 head = i < RESULT_WORDS ? i / AT_WORDS : 0, j = i % AT_WORDS, row = 2 * j % 8;
        const u32 kv_head = head / AT_HEADS, column = head % AT_HEADS;
        at[n].word = (int)i;
        at[n].head = opaque((int)head);
        at[n].o = opaque((int)((kv_head * AT_HEADS + column) * 8 * AT_O_STRIDE + row * AT_O_STRIDE + 2 * j / 16 * 2 +
                               2 * j / 8 % 2));
        at[n].v = opaque((int)((P_GROUP_KV_HEADS + kv_head) * AT_WORDS + j));
    }
}

/* Merges a word of the warps' partial results, of which each KV head has `parts`, and the current position's if `own`.
 * o: where the first warp's values of the word lie; each further one's lie P_GROUP_KV_HEADS * AT_O_FLOATS behind. v:
 * the current position's values of the word. What is added of a part that there is not is 0 times the first part, or
 * times 0 where there is none. */
DEV struct merged parts_merge(const struct attention_shared *at, int head, const float *o, u32 v, int parts, int own) {
    const float m_own = own ? at->m_own[head] : ATTENTION_NEVER;
    float m[AT_PARTS], l[AT_PARTS], low[AT_PARTS], high[AT_PARTS], top[AT_PARTS];
    float sum[3][2]; /* l, low, high: two chains of additions each */
    struct merged r;
    UNROLL
    for (int p = 0; p < AT_PARTS; p++) {
        const int there = p < parts, from = there ? p : 0;
        top[p] = m[p] = there ? at->m[head][from] : ATTENTION_NEVER, l[p] = parts ? at->l[head][from] : 0;
        low[p] = parts ? o[from * P_GROUP_KV_HEADS * AT_O_FLOATS] : 0;
        high[p] = parts ? o[from * P_GROUP_KV_HEADS * AT_O_FLOATS + AT_O_STRIDE] : 0;
    }
    UNROLL
    for (int n = AT_PARTS; n > 1; n = (n + 1) / 2) {
        UNROLL
        for (int p = 0; p < n / 2; p++)
            top[p] = max_float(top[p], top[p + (n + 1) / 2]);
    }
    r.m = max_float(m_own, top[0]);
    sum[0][0] = own ? exp2_approx(m_own - r.m) : 0;
    const float own_weight = P_KV_FORM ? sum[0][0] * own_value_scale(at, head) : sum[0][0];
    sum[1][0] = own_weight * bf16_low(v), sum[2][0] = own_weight * bf16_high(v);
    sum[0][1] = sum[1][1] = sum[2][1] = 0;
    UNROLL
    for (int p = 0; p < AT_PARTS; p++) {
        const float f = exp2_approx(m[p] - r.m);
        const int i = p % 2 == 0;
        sum[0][i] += f * l[p], sum[1][i] += f * low[p], sum[2][i] += f * high[p];
    }
    r.l = sum[0][0] + sum[0][1], r.low = sum[1][0] + sum[1][1], r.high = sum[2][0] + sum[2][1];
    return r;
}

#if P_COLUMNS > 1
/* In programs that leave hidden states ptxas has read sums that were cleared, and added to under a condition, before
 * they were clear. So there a part that the block does not have is added as 0 times the first one. In others the
 * condition is faster. */
enum { ADD_ABSENT = P_LEAVES };

/* The same without the current position, for the few parts that a block has of a column that is split. */
DEV struct merged share_merge(const struct attention_shared *at, int head, const float *o, int parts) {
    float sum[3][2];
    struct merged r = { 0, 0, ATTENTION_NEVER, 0 };
    UNROLL
    for (int i = 0; i < 3; i++)
        sum[i][0] = sum[i][1] = 0;
    UNROLL
    for (int p = 0; p < AT_PARTS; p++)
        if (p < parts) r.m = max_float(r.m, at->m[head][p]);
    UNROLL
    for (int p = 0; p < AT_PARTS; p++) {
        if (!ADD_ABSENT && p >= parts) continue;
        const int there = !ADD_ABSENT || p < parts, of = there ? p : 0, any = !ADD_ABSENT || parts, i = p % 2 == 0;
        const float f = there ? exp2_approx(at->m[head][of] - r.m) : 0, *from = o + of * P_GROUP_KV_HEADS * AT_O_FLOATS;
        const float l = any ? at->l[head][of] : 0, low = any ? from[0] : 0, high = any ? from[AT_O_STRIDE] : 0;
        sum[0][i] += f * l, sum[1][i] += f * low, sum[2][i] += f * high;
    }
    r.l = sum[0][0] + sum[0][1], r.low = sum[1][0] + sum[1][1], r.high = sum[2][0] + sum[2][1];
    return r;
}
#endif

#if !STAGED
/* The same where every warp has a place. Warps without pieces count too: their m is ATTENTION_NEVER, their l and o are
 * what was there before, and shared memory starts as zeros. */
DEV struct merged merge_warps(const struct worker *w, const struct merge_place *place, int own) {
    const struct attention_shared *at = attention_of(w);
    return parts_merge(at, place->head, attention_o(w)[0][0] + place->o, at->kv[0][place->v], AT_PARTS, own);
}
#endif

/* Returns the words of the gates. They come with q, k and v. Where the block's result is the whole, a thread asks for
 * the gates of the words that it merges before the warps' products, and waits for them only afterwards. */
DEV u64 *gate_words(const struct worker *w) { return qkv_words(w) + RESULT_WORDS; }

DEV void gates_ask(const struct worker *w, const struct merge_place *place, u64 *gate, int wanted) {
    UNROLL
    for (int n = 0; n < MERGE_TURNS; n++) {
        gate[n] = word_make(0, w->epoch);
        if (M_GATED && wanted && place[n].word < RESULT_WORDS) gate[n] = word_load(gate_words(w) + place[n].word);
    }
}

DEV void gate_wait(struct worker *w, const u64 *from, u64 *gate) {
    u32 polls = 0;
    NO_UNROLL
    while (!warp_all(word_is(*gate, w->epoch) | w->dead)) {
        if (!word_is(*gate, w->epoch)) *gate = word_load(from);
        wait_failed(w, &polls, WAIT_QKV, w->epoch, (u32)(*gate >> 32));
    }
}

DEV void gates_wait(struct worker *w, const struct merge_place *place, u64 *gate) {
    UNROLL
    for (int n = 0; n < MERGE_TURNS; n++)
        if (M_GATED) gate_wait(w, gate_words(w) + place[n].word, gate + n);
}

/* ---- in a group ---- */

/* Returns how many members publish: those that have pieces, or all. */
DEV int members_with_results(int position) {
    const int pieces = (position + KV_POSITIONS - 1) / KV_POSITIONS;
    return P_MERGE_SCATTER && pieces < P_GROUP_SMS ? pieces : P_GROUP_SMS;
}

#if !STAGED
/* Publishes a word of this member's partial result. */
DEV void result_publish(struct worker *w, const struct merge_place *place, const struct merged *r, int some) {
    u64 *to = w->a->words + X_ATTENTION + w->block * ATTENTION_SPAN;
    const float f = some ? rcp_approx(r->l) : 0, lse = some ? r->m + log2_approx(r->l) : ATTENTION_NEVER;
    const int none = P_COLUMNS > 1 && !some; /* then o is what another column left */
    word_store(to + place->word, word_make24(none ? 0 : r->low * f, none ? 0 : r->high * f, w->epoch));
    if (place->word % AT_WORDS == 0) word_store(to + RESULT_WORDS + place->head, word_make(float_bits(lse), w->epoch));
}

#if P_COLUMNS > 1
DEV void attention_publish(struct worker *w, const struct merge_place *place, int some) {
    if (P_MERGE_SCATTER && !some) return;
    UNROLL
    for (int n = 0; n < MERGE_TURNS; n++) {
        if (place[n].word >= RESULT_WORDS) continue;
        const struct merged r = merge_warps(w, place + n, 0);
        result_publish(w, place + n, &r, some);
    }
}
#else
/* Merges the warps' partial results: with `split` into this member's, which is published; else into the whole result.
 * Both in one place, as a block comes to the one or to the other, and instructions that lie between are waited for. */
DEV void attention_merge(struct worker *w, const struct merge_place *place, const u64 *gate, int split, int some) {
    if (P_MERGE_SCATTER && split && !some) return;
    UNROLL
    for (int n = 0; n < MERGE_TURNS; n++) {
        if (place[n].word >= RESULT_WORDS) continue;
        const struct merged r = merge_warps(w, place + n, !split);
        if (split) {
            result_publish(w, place + n, &r, some);
        } else {
            const float f = rcp_approx(r.l);
            w->s->attention[place[n].word] = gated_pair(r.low * f, r.high * f, (u32)gate[n]);
        }
    }
}
#endif
#endif

DEV u64 *merged_words(const struct worker *w) { return w->a->words + X_MERGED + w->group * RESULT_WORDS; }

/* A warp gathers the members' results by units of neighbouring words of one head. Each lane takes two words. The lanes
 * read several members side by side, in turns; up to MOST_TURNS turns wait together, as registers allow. */
enum {
    WARP_WORDS = (RESULT_WORDS + P_WARPS - 1) / P_WARPS,
    UNIT_WORDS = P_MERGE_SCATTER                          ? 8
                 : WARP_WORDS >= 32 && AT_WORDS % 32 == 0 ? 32
                 : WARP_WORDS >= 16 && AT_WORDS % 16 == 0 ? 16
                                                          : 8,
    UNIT_LANES = UNIT_WORDS / 2,
    UNIT_MEMBERS = LANES / UNIT_LANES,
    ALL_TURNS = (P_GROUP_SMS + UNIT_MEMBERS - 1) / UNIT_MEMBERS,
    MOST_TURNS = SPARE_REGISTERS < 144 ? 2 : 8,
    MEMBER_TURNS = ALL_TURNS < MOST_TURNS ? ALL_TURNS : MOST_TURNS,
    UNITS = RESULT_WORDS / UNIT_WORDS
};

struct member_words {
    u64 o[MEMBER_TURNS][2], lse[MEMBER_TURNS];
};

DEV void members_poll(struct worker *w, struct member_words *v, int first, int members, int unit) {
    const u64 *from = w->a->words + X_ATTENTION + w->group * P_GROUP_SMS * ATTENTION_SPAN;
    const int head = unit * UNIT_WORDS / AT_WORDS;
    const u64 *p = from + (first + w->lane / UNIT_LANES) * ATTENTION_SPAN;
    const int o = unit * UNIT_WORDS + w->lane % UNIT_LANES * 2;
    u32 polls = 0;
    UNROLL
    for (int n = 0; n < MEMBER_TURNS; n++) {
        const int turn = n * UNIT_MEMBERS * ATTENTION_SPAN;
        v->o[n][0] = v->o[n][1] = (u64)(w->epoch & 0xffffu) << 48;
        v->lse[n] = word_make(float_bits(ATTENTION_NEVER), w->epoch);
        if (first + n * UNIT_MEMBERS + w->lane / UNIT_LANES >= members) continue;
        word_load2(p + turn + o, &v->o[n][0], &v->o[n][1]);
        v->lse[n] = word_load(p + turn + RESULT_WORDS + head);
    }
    NO_UNROLL
    for (;;) {
        u32 off = 0;
        UNROLL
        for (int n = 0; n < MEMBER_TURNS; n++)
            off |= word_off24(v->o[n][0], w->epoch) | word_off24(v->o[n][1], w->epoch) | word_off(v->lse[n], w->epoch);
        if (warp_all(off == 0 || w->dead)) break;
        wait_failed(w, &polls, WAIT_ATTENTION, w->epoch, (u32)(v->lse[0] >> 32));
        UNROLL
        for (int n = 0; n < MEMBER_TURNS; n++) {
            const int turn = n * UNIT_MEMBERS * ATTENTION_SPAN;
            if (!word_is24(v->o[n][0], w->epoch) || !word_is24(v->o[n][1], w->epoch))
                word_load2(p + turn + o, &v->o[n][0], &v->o[n][1]);
            if (!word_is(v->lse[n], w->epoch)) v->lse[n] = word_load(p + turn + RESULT_WORDS + head);
        }
    }
}

/* Merges all members' results for one unit, and the current position's. */
DEV void unit_merge(struct worker *w, int members, int unit) {
    struct attention_shared *at = attention_of(w);
    const int head = unit * UNIT_WORDS / AT_WORDS, lane = w->lane;
    const int word = unit * UNIT_WORDS + lane % UNIT_LANES * 2;
    const u32 *v = at->kv[P_GROUP_KV_HEADS + head / AT_HEADS] + word % AT_WORDS;
    /* the first member's lanes begin with the current position */
    float m = lane < UNIT_LANES ? at->m_own[head] : ATTENTION_NEVER, x[5];
    x[0] = lane < UNIT_LANES ? bf16_low(v[0]) : 0, x[1] = lane < UNIT_LANES ? bf16_high(v[0]) : 0;
    x[2] = lane < UNIT_LANES ? bf16_low(v[1]) : 0, x[3] = lane < UNIT_LANES ? bf16_high(v[1]) : 0;
    x[4] = lane < UNIT_LANES;
    UNROLL
    for (int i = 0; P_KV_FORM && i < 4; i++)
        x[i] *= own_value_scale(at, head);
    u64 gate[2];
    gate[0] = gate[1] = word_make(0, w->epoch);
    if (M_GATED) word_load2(gate_words(w) + word, gate, gate + 1);
    NO_UNROLL
    for (int first = 0; first < members; first += MEMBER_TURNS * UNIT_MEMBERS) {
        struct member_words words;
        members_poll(w, &words, first, members, unit);
        float top = m;
        UNROLL
        for (int n = 0; n < MEMBER_TURNS; n++)
            top = max_float(top, bits_float((u32)words.lse[n]));
        const float keep = exp2_approx(m - top);
        m = top;
        UNROLL
        for (int i = 0; i < 5; i++)
            x[i] *= keep;
        UNROLL
        for (int n = 0; n < MEMBER_TURNS; n++) {
            const float f = exp2_approx(bits_float((u32)words.lse[n]) - top);
            x[0] += f * float24_low(words.o[n][0]), x[1] += f * float24_high(words.o[n][0]);
            x[2] += f * float24_low(words.o[n][1]), x[3] += f * float24_high(words.o[n][1]);
            x[4] += f;
        }
    }
    const float f = exp2_approx(m - xor_max(m, UNIT_LANES, LANES));
    UNROLL
    for (int i = 0; i < 5; i++)
        x[i] *= f;
    UNROLL
    for (int step = UNIT_LANES; step < LANES; step *= 2) {
        UNROLL
        for (int i = 0; i < 5; i++)
            x[i] += shuffle_xor_float(x[i], step);
    }
    const float scale = rcp_approx(x[4]);
    if (M_GATED) gate_wait(w, gate_words(w) + word, gate), gate_wait(w, gate_words(w) + word + 1, gate + 1);
    if (lane >= UNIT_LANES) return;
    const u32 first_pair = gated_pair(x[0] * scale, x[1] * scale, (u32)gate[0]);
    const u32 second_pair = gated_pair(x[2] * scale, x[3] * scale, (u32)gate[1]);
    if (MERGE_PUBLISHES) {
        word_store(merged_words(w) + word, word_make(first_pair, w->epoch));
        word_store(merged_words(w) + word + 1, word_make(second_pair, w->epoch));
    } else {
        u32 *to = (u32 *)w->s->ATTENTION_RESULT + word;
        to[0] = first_pair, to[1] = second_pair;
    }
}

#if P_COLUMNS == 1
/* Gathers the group's result from the members that merged it. */
DEV void merged_gather(struct worker *w) {
    enum { TURNS = (RESULT_WORDS / 2 + CONSUMER_THREADS - 1) / CONSUMER_THREADS };
    const int thread = w->warp * LANES + w->lane;
    u64 v[TURNS][2];
    u32 polls = 0;
    const u64 *from = merged_words(w) + 2 * thread;
    UNROLL
    for (int n = 0; n < TURNS; n++) {
        v[n][0] = v[n][1] = word_make(0, w->epoch);
        if (2 * (n * CONSUMER_THREADS + thread) < RESULT_WORDS)
            word_load2(from + 2 * n * CONSUMER_THREADS, &v[n][0], &v[n][1]);
    }
    NO_UNROLL
    for (;;) {
        u32 off = 0;
        UNROLL
        for (int n = 0; n < TURNS; n++)
            off |= word_off(v[n][0], w->epoch) | word_off(v[n][1], w->epoch);
        if (warp_all(off == 0 || w->dead)) break;
        wait_failed(w, &polls, WAIT_ATTENTION, w->epoch, (u32)(v[0][0] >> 32));
        UNROLL
        for (int n = 0; n < TURNS; n++)
            if (!word_is(v[n][0], w->epoch) || !word_is(v[n][1], w->epoch))
                word_load2(from + 2 * n * CONSUMER_THREADS, &v[n][0], &v[n][1]);
    }
    UNROLL
    for (int n = 0; n < TURNS; n++) {
        const int word = 2 * (n * CONSUMER_THREADS + thread);
        if (word >= RESULT_WORDS) continue;
        w->s->attention[word] = (u32)v[n][0], w->s->attention[word + 1] = (u32)v[n][1];
    }
}

/* Merges the members' partial results into the group's. Units are dealt to the warps of this block, or with
 * P_MERGE_SCATTER to the warps of all members. Returns w->dead. Not inlined: where attention is not split, all warps
 * would wait for the instructions behind it. */
DEV_CALL int members_merge_all(const struct decode_args *a, struct block_shared *s, int warp, int lane, int block,
                               u32 epoch, int token, int layer, int position, int dead) {
    struct worker w = { a, s };
    w.warp = warp, w.lane = lane, w.block = block, w.epoch = epoch, w.token = token, w.layer = layer, w.dead = dead;
    w.group = block / P_GROUP_SMS, w.member = block % P_GROUP_SMS;
    const int members = members_with_results(position);
    const int mine = P_MERGE_SCATTER ? warp * P_GROUP_SMS + w.member : warp;
    NO_UNROLL
    for (int unit = mine; unit < UNITS; unit += P_WARPS * (P_MERGE_SCATTER ? P_GROUP_SMS : 1))
        unit_merge(&w, members, unit);
    if (P_MERGE_SCATTER) merged_gather(&w);
    return w.dead;
}
DEV void members_merge(struct worker *w, int position) {
    w->dead =
        members_merge_all(w->a, w->s, w->warp, w->lane, w->block, w->epoch, w->token, w->layer, position, w->dead);
}
#endif

#endif
