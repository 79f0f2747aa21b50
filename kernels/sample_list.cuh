/* Top-k and top-p by lists. Each block publishes its candidates, and for top-p the weight of all its rows. Every block
 * then judges all candidates alike. The order is logit descending, then id ascending. A candidate's fate depends on
 * the candidates that precede it: how many they are, and what they weigh. There are a few hundred candidates at most,
 * so threads count what precedes each of them, and nothing is sorted.
 *
 * The bar is the n-th largest of the blocks' best logits. Candidates are the logits at or above the bar, and there are
 * at least n of them. That is never too few for top-k of n; about 1.4 n are found when large logits fall on blocks at
 * random. A block with too many candidates raises its own bar and says so. What the blocks' bars leave incomplete is
 * not judged. */
#ifndef REEL_KERNELS_SAMPLE_LIST_CUH
#define REEL_KERNELS_SAMPLE_LIST_CUH

#include "sample.cuh"

/* A block's words (docs/GLOSSARY.md): [0] its bar and its number of candidates; [1], [2] the weight of all its rows;
 * then the candidates, each an order key and a local row. A block always writes the words of the first line, with key 0
 * where it has no candidate. A word has 48 bits of payload and 16 of epoch. Blocks do not write these words at every
 * token, so the host clears them before a launch that could take old ones for new. */
enum {
    LIST_LINE = 8,
    LIST_PAIRS = LIST_LINE / 2,
    LIST_HEAD = 3,
    LIST_FIRST = LIST_LINE - LIST_HEAD,
    LIST_MOST = LIST_FIRST + LANES,
    LIST_SHARE = (P_SMS * LIST_PAIRS + CONSUMER_THREADS - 1) / CONSUMER_THREADS
};
DEV u64 list_word(const struct worker *w, u32 low, u32 high) {
    return (u64)(w->epoch & 0xffffu) << 48 | (u64)high << 32 | low;
}
DEV u32 list_high(u64 word) { return (u32)(word >> 32) & 0xffffu; }

/* Returns the n of the bar. 0: the blocks are too few for a bar, and every number is a candidate as long as all blocks'
 * lists have room. */
enum { BAR_BLOCKS = P_SMS * 3 / 4, BAR_WORTH = 64 };
DEV int bar_blocks(int top_k) {
    if (top_k > 0 && top_k <= BAR_BLOCKS) return top_k;
    return P_SMS >= BAR_WORTH ? BAR_BLOCKS : 0;
}

/* How many lanes share the n comparisons of one key. */
#define SPLIT(n)                                                                                                       \
    ((n)*16 <= CONSUMER_THREADS  ? 16                                                                                  \
     : (n)*8 <= CONSUMER_THREADS ? 8                                                                                   \
     : (n)*4 <= CONSUMER_THREADS ? 4                                                                                   \
     : (n)*2 <= CONSUMER_THREADS ? 2                                                                                   \
                                 : 1)

DEV u32 split_sum(u32 v, int split) {
    NO_UNROLL
    for (int i = 1; i < split; i *= 2)
        v += shuffle_xor(v, i);
    return v;
}

/* Finds the n-th largest of the blocks' best. All consumers may read it, s->cutoff, after the next barrier. */
DEV void bar_find(struct worker *w, int n) {
    enum { LANES_A_KEY = SPLIT(P_SMS), KEYS = CONSUMER_THREADS / LANES_A_KEY };
    struct pick_shared *s = &w->s->PICK_AT;
    const int thread = w->warp * LANES + w->lane;
    for (int first = 0; first < P_SMS; first += KEYS) {
        const int i = first + thread / LANES_A_KEY;
        const u32 key = i < P_SMS ? s->key[i] : 0;
        u32 before = 0;
        UNROLL_BY(8)
        for (int turn = 0; turn < (P_SMS + LANES_A_KEY - 1) / LANES_A_KEY; turn++) {
            const int j = turn * LANES_A_KEY + thread % LANES_A_KEY;
            const u32 other = s->key[j < P_SMS ? j : 0];
            before += j < P_SMS && (other > key || (other == key && j < i));
        }
        before = split_sum(before, LANES_A_KEY);
        if (i < P_SMS && thread % LANES_A_KEY == 0 && (int)before == n - 1) s->cutoff = key ? key : 1;
    }
}

/* Counts this thread's rows whose key is in [bar, high). */
DEV u32 keys_within(const struct worker *w, u32 bar, u32 high) {
    const u32 *keys = kept_keys(w->s);
    u32 n = 0;
    NO_UNROLL
    EACH_OWN_ROW(w, row) n += keys[row] >= bar && keys[row] < high;
    return n;
}

/* Counts the block's rows whose key is in [bar, high). turn: how many counts of own_bar came before. */
DEV u32 own_count(struct worker *w, u32 bar, u32 high, int turn) {
    struct pick_shared *s = &w->s->PICK_AT;
    u32 n = keys_within(w, bar, high);
    if (warp_ballot(n != 0)) n = split_sum(n, LANES);
    if (n && w->lane == 0) (void)shared_add(smem_of(&s->count[turn % 3]), n);
    consumers_sync();
    n = shared_load(smem_of(&s->count[turn % 3]));
    /* the count of the call before this one: all have read it, and none adds to it before the next barrier */
    if (w->warp == 0 && w->lane == 0) shared_store(smem_of(&s->count[(turn + 2) % 3]), 0);
    return n;
}

/* Returns a bar, from `bar` on, that leaves this block at most `most` candidates below `high`; *n: how many. */
DEV u32 own_bar(struct worker *w, u32 bar, u32 high, u32 most, u32 *n) {
    const u32 end = high;
    u32 low = bar; /* a bar at low leaves too many, one at high few enough */
    int turn = 0;
    *n = own_count(w, bar, end, turn++);
    if (*n <= most) return bar;
    *n = 0;
    NO_UNROLL
    while (high - low > 1 && *n <= most / 2) {
        const u32 middle = low + (high - low) / 2, there = own_count(w, middle, end, turn++);
        if (there > most)
            low = middle;
        else
            high = middle, *n = there;
    }
    return high;
}

DEV u64 weight_of(const struct worker *w, u32 key, float largest) {
    return sampling_weight(sampling_exp(own_scaled(w, sampling_from_order(key), largest)));
}

/* Sums the weight of this warp's rows. */
DEV void own_weight(struct worker *w, float largest) {
    const u32 *keys = kept_keys(w->s);
    u64 sum = 0;
    NO_UNROLL
    EACH_OWN_ROW(w, row) if (keys[row]) sum += weight_of(w, keys[row], largest);
    sum = warp_sum64(sum);
    if (w->lane == 0) w->s->PICK_AT.sum[0][w->warp] = sum;
}

/* Publishes the n rows whose keys lie in [bar, high). at: LIST_WORD, or LIST_AGAIN_WORD for a token's second list. */
DEV void list_publish(struct worker *w, int at, u32 bar, u32 high, u32 n, int weigh) {
    struct pick_shared *s = &w->s->PICK_AT;
    const u32 *keys = kept_keys(w->s);
    u64 *to = own_words(w) + at;
    NO_UNROLL
    EACH_OWN_ROW(w, row) {
        const u32 key = keys[row];
        if (key < bar || key >= high) continue;
        word_tell(w, to + LIST_HEAD + shared_add(smem_of(&s->n_own), 1), list_word(w, key, (u32)row));
    }
    if (w->warp != 0 || w->lane >= LIST_LINE) return;
    const u64 total = weigh ? warps_sum(s->sum[0]) : 0;
    if (w->lane == 0) word_tell(w, to, list_word(w, bar, n));
    if (w->lane == 1) word_tell(w, to + 1, list_word(w, (u32)total, 0));
    if (w->lane == 2) word_tell(w, to + 2, list_word(w, (u32)(total >> 32), 0));
    if (w->lane >= LIST_HEAD + (int)n) word_tell(w, to + w->lane, list_word(w, 0, 0));
}

DEV void item_take(struct worker *w, u64 word, int block, float largest) {
    struct pick_shared *s = &w->s->PICK_AT;
    const u32 key = (u32)word;
    if (!key) return;
    const u64 weight = weight_of(w, key, largest);
    const u32 at = shared_add(smem_of(&s->n_items), 1);
    const struct quad item = { key, (u32)own_id(block, (int)list_high(word)), (u32)weight, (u32)(weight >> 32) };
    if (at < PICK_ITEMS) s->item[at] = item;
}

/* Takes the candidates of a block that its first line has no room for. All lanes call it. */
DEV void list_rest(struct worker *w, int at, int block, int n, float largest) {
    const u64 *from = w->a->words + X_PICK + block * P_PICK_WORDS + at + LIST_LINE + w->lane;
    const int mine = w->lane < n - LIST_FIRST;
    u64 v = list_word(w, 0, 0);
    u32 polls = 0;
    NO_UNROLL
    for (;;) {
        if (mine) v = word_load(from);
        if (warp_all(word_is24(v, w->epoch) | w->dead)) break;
        wait_failed(w, &polls, WAIT_PICK, w->epoch & 0xffffu, (u32)(v >> 48));
    }
    if (word_is24(v, w->epoch)) item_take(w, v, block, largest);
}

/* Takes two words of a block's first line. Returns the block's number of candidates when these words hold it, or 0. */
DEV int list_take(struct worker *w, const u64 *v, int block, int pair, float largest, u32 bar, u64 *total) {
    if (pair == 0) {
        if ((u32)v[0] > bar) shared_max(smem_of(&w->s->PICK_AT.cutoff), (u32)v[0]);
        *total += (u32)v[1];
        return (int)list_high(v[0]);
    }
    if (pair == 1) *total += (u64)(u32)v[0] << 32;
    NO_UNROLL
    for (int i = pair == 1; i < 2; i++)
        item_take(w, i ? v[1] : v[0], block, largest);
    return 0;
}

DEV int list_is_there(const struct worker *w, const u64 *v) {
    return word_is24(v[0], w->epoch) & word_is24(v[1], w->epoch);
}

/* Waits for all blocks' lists. Each thread takes a pair of words, or a few. After the next barrier the items, their
 * number, the cutoff and the weight of all ids are complete. */
DEV void list_gather(struct worker *w, int at, float largest, u32 bar) {
    const u64 *from = w->a->words + X_PICK + at;
    const int thread = w->warp * LANES + w->lane;
    u64 v[LIST_SHARE][2], total = 0;
    u32 polls = 0;
    UNROLL
    for (int i = 0; i < LIST_SHARE; i++)
        v[i][0] = 0, v[i][1] = 0; /* no epoch is 0 */
    NO_UNROLL
    for (;;) {
        int ok = 1;
        UNROLL
        for (int i = 0; i < LIST_SHARE; i++) {
            const int mine = i * CONSUMER_THREADS + thread, block = mine / LIST_PAIRS;
            if (!list_is_there(w, v[i]))
                word_load2(from + (block < P_SMS ? block : 0) * P_PICK_WORDS + mine % LIST_PAIRS * 2, &v[i][0],
                           &v[i][1]);
        }
        UNROLL
        for (int i = 0; i < LIST_SHARE; i++)
            ok &= list_is_there(w, v[i]);
        if (warp_all(ok | w->dead)) break;
        wait_failed(w, &polls, WAIT_PICK, w->epoch & 0xffffu, (u32)(v[0][0] >> 48));
    }
    w->dead = !warp_all(!w->dead);
    UNROLL
    for (int i = 0; i < LIST_SHARE; i++) {
        const int mine = i * CONSUMER_THREADS + thread, block = mine / LIST_PAIRS;
        int n = 0;
        if (block < P_SMS && !w->dead) n = list_take(w, v[i], block, mine % LIST_PAIRS, largest, bar, &total);
        if (!warp_ballot(n > LIST_FIRST)) continue;
        NO_UNROLL
        for (int lane = 0; lane < LANES; lane += LIST_PAIRS) {
            const int there = (int)shuffle((u32)n, lane);
            if (there > LIST_FIRST) list_rest(w, at, (mine - w->lane + lane) / LIST_PAIRS, there, largest);
        }
    }
    total = warp_sum64(total);
    if (w->lane == 0) w->s->PICK_AT.sum[1][w->warp] = total;
}

/* What a list is judged by. */
struct terms {
    float largest;
    u32 top_k;   /* 0: off */
    float top_p; /* 0: off */
    u64 total;   /* top-p without top-k: the weight of all ids */
    u64 certain; /* the weight of ids kept without being candidates: they precede all candidates */
};

/* Judges the candidates; each warp leaves the best score of the candidates that it judged and of b. Returns 0 when the
 * candidates do not settle the draw; all threads of all blocks return the same. */
DEV int list_judge(struct worker *w, u64 position, const struct terms *terms, struct best b) {
    struct pick_shared *s = &w->s->PICK_AT;
    const u32 n = shared_load(smem_of(&s->n_items)), cutoff = shared_load(smem_of(&s->cutoff));
    if (n > PICK_ITEMS) return 0;
    int split = 1;
    while (split < LANES && (int)n * split * 2 <= CONSUMER_THREADS)
        split *= 2;
    const int thread = w->warp * LANES + w->lane;
    const u32 mine = (u32)(thread / split);
    const struct quad item = s->item[mine < n ? mine : 0];
    u32 above = 0, tied = 0;
    u64 before = 0, weight = (u64)item.w << 32 | item.z;
    UNROLL_BY(4)
    for (u32 j = (u32)(thread % split); j < n; j += (u32)split) {
        const struct quad other = s->item[j];
        if (other.x > item.x) above++, before += (u64)other.w << 32 | other.z;
        tied += other.x == item.x && other.y < item.y;
    }
    NO_UNROLL
    for (int i = 1; i < split; i *= 2) {
        above += shuffle_xor(above, i), tied += shuffle_xor(tied, i);
        before += shuffle_xor64(before, i);
    }
    before += terms->certain + tied * weight; /* equal logits weigh the same */
    const int whole = mine < n && thread % split == 0 && item.x >= cutoff;
    const int in = whole && (!terms->top_k || above < terms->top_k);
    if (whole) (void)shared_add(smem_of(&s->n_whole), 1);
    weight = warp_sum64(in ? weight : 0);
    if (w->lane == 0) s->sum[0][w->warp] = weight;
    consumers_sync();

    const u64 in_weight = terms->certain + warps_sum(s->sum[0]);
    u64 need = ~(u64)0;
    if (terms->top_p > 0) need = sampling_top_p_need(terms->top_k ? in_weight : terms->total, terms->top_p);
    if (in && before < need) {
        const float scaled = own_scaled(w, sampling_from_order(item.x), terms->largest);
        u32 r[4];
        sampling_random(w->a->sampling.seed, position, item.y / 4, &r[0], &r[1], &r[2], &r[3]);
        const u32 low = item.y & 1 ? r[1] : r[0], high = item.y & 1 ? r[3] : r[2];
        if (min_p_keeps(w, scaled))
            best_offer(&b, sampling_add(scaled, sampling_gumbel(item.y & 2 ? high : low)), item.y);
    }
    block_best_leave(w, b);
    if (cutoff <= 1) return 1; /* every number is a candidate */
    return terms->top_k ? shared_load(smem_of(&s->n_whole)) >= terms->top_k : in_weight >= need;
}

/* Empties the scratch for a list. One thread calls it, before a barrier. */
DEV void list_clear(struct pick_shared *s, u32 cutoff) {
    s->cutoff = cutoff, s->n_items = 0, s->n_whole = 0, s->n_own = 0;
    s->count[0] = 0, s->count[1] = 0, s->count[2] = 0;
}

/* Waits for the largest logit. Returns its order key; 0: there is none. */
DEV u32 list_start(struct worker *w, struct picked *p) {
    struct pick_shared *s = &w->s->PICK_AT;
    if (w->warp == 0) {
        p->best = best_gather(w, w->a->words + X_BEST, 2, WAIT_BEST, s->key, &p->stop);
        if (w->lane == 0) {
            s->largest = p->best.key;
            list_clear(s, 1);
        }
    }
    consumers_sync();
    return s->largest;
}

/* Publishes this block's keys in [bar, high), `most` of them at most; collects and judges those of all blocks. */
DEV int list_settle(struct worker *w, int at, u32 bar, u32 high, u32 most, u64 position, struct terms *terms,
                    struct best b) {
    const int weigh = terms->top_p > 0 && !terms->top_k && at == LIST_WORD;
    u32 n;
    const u32 own = own_bar(w, bar, high, most, &n);
    list_publish(w, at, own, high, n, weigh);
    list_gather(w, at, terms->largest, bar);
    consumers_sync();
    if (weigh) terms->total = warps_sum(w->s->PICK_AT.sum[1]);
    return list_judge(w, position, terms, b);
}

/* Draws by lists, whose bar comes from the blocks' bests. Returns 0 when lists do not settle the draw. After a barrier
 * block_best is the id. */
DEV int draw_listed(struct worker *w, u32 largest_key, u64 position, struct terms *terms) {
    const struct best none = { 0, 0 };
    const int blocks = bar_blocks((int)terms->top_k);
    u32 most = LIST_MOST;
    if (terms->top_p > 0 && !terms->top_k) own_weight(w, terms->largest);
    if (blocks) {
        bar_find(w, blocks);
        consumers_sync();
    } else if (most > PICK_ITEMS / P_SMS) {
        most = PICK_ITEMS / P_SMS;
    }
    const u32 bar = shared_load(smem_of(&w->s->PICK_AT.cutoff));
    return list_settle(w, LIST_WORD, bar, largest_key + 1, most, position, terms, none);
}

#endif
