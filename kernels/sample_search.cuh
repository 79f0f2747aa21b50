/* Top-p that keeps more ids than lists have room for. The blocks search for the logit where the kept ids end: all
 * blocks publish what their rows at or above a few split points weigh, and the sums say between which two points the
 * end lies. Once few ids lie there, the blocks list and judge these. Each block draws among its own rows above, which
 * are kept for certain. */
#ifndef REEL_KERNELS_SAMPLE_SEARCH_CUH
#define REEL_KERNELS_SAMPLE_SEARCH_CUH

#include "sample_list.cuh"

/* A split point has two words (docs/GLOSSARY.md). The first holds the lower 44 bits of the weight; the second the upper
 * 20, and above them the number of ids. Both have 16 bits of epoch and 4 of round. Two buffers are enough: a block two
 * rounds ahead would need what this one has not published. */
enum {
    SPLITS = 4, /* points of a round; one warp gathers one of them */
    SEARCH_ROUNDS = 15,
    WINDOW_MOST = P_SMS < 16 ? LIST_MOST : PICK_ITEMS * 3 / 4
};
#define SPLIT_WEIGHT ((1ull << 44) - 1)

struct split {
    u32 key;
    u32 n;      /* ids at or above the key */
    u64 weight; /* of these ids */
};

/* Where the kept ids end: ids at or above `high` are kept, and no id below `low` is. */
struct window {
    struct split low, high;
};

DEV float finite(float x) {
    if (x > SAMPLING_LARGEST) return SAMPLING_LARGEST;
    return x < -SAMPLING_LARGEST ? -SAMPLING_LARGEST : x;
}

/* Returns the i-th of SPLITS points inside the window, from above. Points are even in logits, or in keys where the
 * window has few keys. */
DEV u32 split_key(const struct window *x, int i) {
    const u32 low = x->low.key, high = x->high.key, steps = SPLITS + 1;
    if (high - low < 1024) return high - (high - low) * (u32)(i + 1) / steps;
    const float part = sampling_div((float)(i + 1), (float)steps);
    const float a = sampling_mul(finite(sampling_from_order(high)), sampling_add(1.0f, -part));
    const u32 key = sampling_order(sampling_add(a, sampling_mul(finite(sampling_from_order(low)), part)));
    return key < low ? low : key > high ? high : key;
}

DEV u64 split_tag(const struct worker *w, int round) { return (u64)(w->epoch & 0xffffu) << 48 | (u64)round << 44; }

/* Sums this warp's rows at or above each point, into the block's scratch. */
DEV void split_own(struct worker *w, const struct window *x, float largest) {
    const u32 *keys = kept_keys(w->s);
    u32 point[SPLITS], n[SPLITS];
    u64 sum[SPLITS];
    UNROLL
    for (int j = 0; j < SPLITS; j++)
        point[j] = split_key(x, j), n[j] = 0, sum[j] = 0;
    NO_UNROLL
    EACH_OWN_ROW(w, row) {
        const u32 key = keys[row];
        const u64 weight = key ? weight_of(w, key, largest) : 0;
        UNROLL
        for (int j = 0; j < SPLITS; j++)
            if (key >= point[j]) n[j]++, sum[j] += weight;
    }
    UNROLL
    for (int j = 0; j < SPLITS; j++) {
        const u64 all = warp_sum64(sum[j]);
        const struct quad item = { point[j], split_sum(n[j], LANES), (u32)all, (u32)(all >> 32) };
        if (w->lane == 0) w->s->PICK_AT.item[w->warp * SPLITS + j] = item;
    }
}

DEV struct split split_of(struct quad item) {
    const struct split s = { item.x, item.y, (u64)item.w << 32 | item.z };
    return s;
}

DEV void split_publish(const struct worker *w, int round) {
    u64 *to = own_words(w) + SPLIT_WORD + round % 2 * 2 * SPLITS + 2 * w->lane;
    if (w->lane >= SPLITS) return;
    struct split sum = { 0, 0, 0 };
    for (int i = 0; i < P_WARPS; i++) {
        const struct split part = split_of(w->s->PICK_AT.item[i * SPLITS + w->lane]);
        sum.n += part.n, sum.weight += part.weight;
    }
    word_tell(w, to, split_tag(w, round) | (sum.weight & SPLIT_WEIGHT));
    word_tell(w, to + 1, split_tag(w, round) | (u64)sum.n << 20 | sum.weight >> 44);
}

DEV int split_is_there(u64 tag, u64 a, u64 b) { return a >> 44 == tag >> 44 && b >> 44 == tag >> 44; }

/* Warp j gathers point j of all blocks and leaves the sum in the block's scratch. */
DEV void split_gather(struct worker *w, const struct window *x, int round) {
    const u64 *from = w->a->words + X_PICK + SPLIT_WORD + round % 2 * 2 * SPLITS + 2 * w->warp;
    const u64 tag = split_tag(w, round);
    u64 low[BEST_SHARE], high[BEST_SHARE], weight = 0;
    u32 n = 0, polls = 0;
    UNROLL
    for (int i = 0; i < BEST_SHARE; i++)
        low[i] = 0, high[i] = 0; /* no epoch is 0 */
    NO_UNROLL
    for (;;) {
        int ok = 1;
        UNROLL
        for (int i = 0; i < BEST_SHARE; i++) {
            const int block = i * LANES + w->lane;
            if (!split_is_there(tag, low[i], high[i]))
                word_load2(from + (block < P_SMS ? block : 0) * P_PICK_WORDS, &low[i], &high[i]);
        }
        UNROLL
        for (int i = 0; i < BEST_SHARE; i++)
            ok &= split_is_there(tag, low[i], high[i]);
        if (warp_all(ok | w->dead)) break;
        wait_failed(w, &polls, WAIT_PICK, w->epoch & 0xffffu, (u32)(low[0] >> 48));
    }
    UNROLL
    for (int i = 0; i < BEST_SHARE; i++) {
        if (i * LANES + w->lane >= P_SMS) continue;
        weight += (low[i] & SPLIT_WEIGHT) + ((high[i] & 0xfffffu) << 44);
        n += (u32)((high[i] & SPLIT_WEIGHT) >> 20);
    }
    weight = warp_sum64(weight), n = split_sum(n, LANES);
    const struct quad item = { split_key(x, w->warp), n, (u32)weight, (u32)(weight >> 32) };
    if (w->lane == 0) w->s->PICK_AT.item[P_WARPS * SPLITS + w->warp] = item;
}

/* Returns the window to begin with. It ends 29 temperatures below the largest logit: weights are 0 from there on. */
DEV struct window window_start(const struct worker *w, u32 largest_key, u64 total) {
    const float largest = finite(sampling_from_order(largest_key));
    const float low = sampling_add(largest, -sampling_mul(29.0f, w->a->sampling.temperature));
    const struct window x = { { sampling_order(finite(low)), ~0u, total }, { largest_key + 1, 0, 0 } };
    return x;
}

/* Narrows the window until the ids in it fit a list, all blocks alike. Returns 0 if they never do. */
DEV int window_narrow(struct worker *w, float largest, u64 need, struct window *x) {
    const struct quad *sums = w->s->PICK_AT.item + P_WARPS * SPLITS;
    NO_UNROLL
    for (int round = 1; round <= SEARCH_ROUNDS; round++) {
        split_own(w, x, largest);
        consumers_sync();
        if (w->warp == 0) split_publish(w, round);
        if (w->warp < SPLITS) split_gather(w, x, round);
        consumers_sync();
        NO_UNROLL
        for (int j = 0; j < SPLITS; j++) {
            const struct split point = split_of(sums[j]);
            if (point.weight >= need) {
                x->low = point;
                break;
            }
            x->high = point;
        }
        if (x->low.n - x->high.n <= WINDOW_MOST) return 1;
    }
    return 0;
}

/* Draws where draw_listed did not settle it. It is a call, because few tokens need it and inlined it would cost the
 * others registers. */
enum { SEARCH_SETTLED = 1, SEARCH_DEAD = 2 };
DEV_CALL int draw_searched(const struct decode_args *a, struct block_shared *s, u32 epoch, int t, int dead, u64 total) {
    struct worker w = sampler_worker(a, s, epoch, t, dead);
    const u32 largest_key = s->PICK_AT.largest;
    const u64 position = position_of(&w);
    struct terms terms = { sampling_from_order(largest_key), 0, a->sampling.top_p, total, 0 };
    struct window x = window_start(&w, largest_key, total);
    consumers_sync(); /* the list's items have been read, they are scratch now */
    if (!window_narrow(&w, terms.largest, sampling_top_p_need(total, terms.top_p), &x)) return w.dead ? SEARCH_DEAD : 0;
    consumers_sync();
    if (w.warp == 0 && w.lane == 0) list_clear(&s->PICK_AT, x.low.key);
    const struct four f = four_load(&w, position, 4 * (w.warp * LANES + w.lane));
    const struct best b = own_draw(&w, f, position, terms.largest, x.high.key);
    consumers_sync();
    terms.certain = x.high.weight;
    const int settled = list_settle(&w, LIST_AGAIN_WORD, x.low.key, x.high.key, LIST_MOST, position, &terms, b);
    return (settled ? SEARCH_SETTLED : 0) | (w.dead ? SEARCH_DEAD : 0);
}

/* Draws an id by the way that suits the token. All consumer warps call it; warp 0 has the result. */
DEV void draw(struct worker *w, struct picked *p) {
    const struct decode_args *a = w->a;
    const u64 position = position_of(w);
    struct terms terms = { 0, 0, 0, 0, 0 };
    if (a->sampling.top_k > 0 && a->sampling.top_k < M_VOCAB) terms.top_k = (u32)a->sampling.top_k;
    if (a->sampling.top_p < 1) terms.top_p = a->sampling.top_p;
    consumers_sync(); /* all warps' logits are stored */
    if (!terms.top_k && !(terms.top_p > 0)) {
        draw_each(w, position, p);
        return;
    }
    const u32 largest_key = list_start(w, p);
    if (!largest_key) return;
    terms.largest = sampling_from_order(largest_key);
    p->settled = draw_listed(w, largest_key, position, &terms);
    const int search = !p->settled && !terms.top_k;
    if (search) {
        const int found = draw_searched(a, w->s, w->epoch, w->token, w->dead, terms.total);
        p->settled = found & SEARCH_SETTLED;
        w->dead |= found & SEARCH_DEAD;
    }
    consumers_sync();
    if (w->warp == 0 && p->settled) p->best = search ? score_exchange(w) : block_best(w);
}

#endif
