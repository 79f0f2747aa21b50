/* Finds the best logit or score of many, among a warp's lanes and between blocks. Logits count after bias and
 * penalties. */
#ifndef REEL_KERNELS_BEST_CUH
#define REEL_KERNELS_BEST_CUH

#include "decode_shared.cuh"
#include "sampling.h"

/* Returns a logit after bias and penalties, which it applies in the host's order. Only the block that owns the id calls
 * it. */
DEV float pick_adjust(const struct decode_args *a, int id, float logit) {
    const struct sampling_args *p = &a->sampling;
    if (p->bias) logit = sampling_add(logit, const_loadf(p->bias + id));
    const u32 seen = p->seen ? plain_load32(p->seen + id) : 0;
    if (seen) logit = sampling_penalise(logit, 1, (int)(seen & 0x7fffffffu), p->repetition, p->presence, p->frequency);
    return logit;
}

/* ---- the best so far ---- */

/* key: sampling_order of a logit or a score, 0 = none yet (no number has that order). */
struct best {
    u32 key, id;
};

DEV void best_meet(struct best *b, u32 key, u32 id) {
    if (key < b->key || (key == b->key && id >= b->id)) return;
    b->key = key, b->id = id;
}
/* Offers a logit or a score. NaN and -infinity are never the best; of equals the lowest id is. */
DEV void best_offer(struct best *b, float logit, u32 id) {
    if (logit > bits_float(0xff800000u)) best_meet(b, sampling_order(logit), id);
}
DEV struct best best_of_warp(struct best b) {
    UNROLL
    for (int i = 1; i < LANES; i *= 2) {
        const u32 key = shuffle_xor(b.key, i), id = shuffle_xor(b.id, i);
        best_meet(&b, key, id);
    }
    return b;
}

/* ---- exchange of each block's best: (key, epoch), (id | stop << 31, epoch) ---- */

enum { BEST_SHARE = (P_SMS + LANES - 1) / LANES };
#define BEST_STOP 0x80000000u

DEV void best_store(const struct worker *w, u64 *to, struct best b, u32 stop) {
    word_tell(w, to, word_make(b.key, w->epoch));
    word_tell(w, to + 1, word_make(b.id | stop, w->epoch));
}

DEV int best_is_there(const struct worker *w, u64 key, u64 id) {
    return word_is(key, w->epoch) & word_is(id, w->epoch);
}

/* Waits for all blocks' pairs, which lie `stride` words apart, and returns the best of them. One warp calls it.
 * keys: u32 [P_SMS] for the blocks' keys, or NULL; *stop: BEST_STOP when block 0 says so. */
DEV struct best best_gather(struct worker *w, const u64 *from, int stride, enum wait_kind kind, u32 *keys, u32 *stop) {
    u64 key[BEST_SHARE], id[BEST_SHARE];
    struct best b = { 0, 0 };
    u32 polls = 0;
    UNROLL
    for (int i = 0; i < BEST_SHARE; i++)
        key[i] = 0, id[i] = 0; /* no epoch is 0 */
    NO_UNROLL
    for (;;) {
        int ok = 1;
        UNROLL
        for (int i = 0; i < BEST_SHARE; i++) {
            const int block = i * LANES + w->lane;
            if (!best_is_there(w, key[i], id[i]))
                word_load2(from + (block < P_SMS ? block : 0) * stride, &key[i], &id[i]);
        }
        UNROLL
        for (int i = 0; i < BEST_SHARE; i++)
            ok &= best_is_there(w, key[i], id[i]);
        if (warp_all(ok | w->dead)) break;
        wait_failed(w, &polls, kind, w->epoch, (u32)(key[0] >> 32));
    }
    UNROLL
    for (int i = 0; i < BEST_SHARE; i++) {
        best_meet(&b, (u32)key[i], (u32)id[i] & ~BEST_STOP);
        if (keys && i * LANES + w->lane < P_SMS) keys[i * LANES + w->lane] = (u32)key[i];
    }
    w->dead = !warp_all(!w->dead); /* if one lane gave up waiting, no lane has an answer */
    *stop = shuffle((u32)id[0], 0) & BEST_STOP;
    return best_of_warp(b);
}

/* Waits for the words of best_gather but keeps nothing. It is for warps that have time but few registers. */
DEV void best_wait(struct worker *w, const u64 *from) {
    u32 polls = 0;
    NO_UNROLL
    for (int first = 0; first < P_SMS; first += LANES) {
        const u64 *pair = from + 2 * (first + w->lane < P_SMS ? first + w->lane : 0);
        NO_UNROLL
        for (;;) {
            u64 key, id;
            word_load2(pair, &key, &id);
            if (warp_all(best_is_there(w, key, id) | w->dead)) break;
            wait_failed(w, &polls, WAIT_BEST, w->epoch, (u32)(key >> 32));
        }
    }
}

#endif
