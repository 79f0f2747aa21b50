/* pick: which id comes next, and whether the launch is over. Every block decides for itself from the
 * same words, so all decide alike. In: each warp's best logit (shared memory), logits of this SM's
 * rows (global, as the head left them: without bias and penalties). Out: s->id, s->end. */
#ifndef REEL_KERNELS_PHASE_PICK_CUH
#define REEL_KERNELS_PHASE_PICK_CUH

#include "sampling.h"
#include "shared.cuh"

/* A logit after bias and penalties, in the host's order. Called by the block that owns the id. */
DEV float pick_adjust(const struct decode_args *a, int id, float logit) {
    const struct sampling_args *p = &a->sampling;
    if (p->bias) logit = sampling_add(logit, const_loadf(p->bias + id));
    const u32 seen = p->seen ? plain_load32(p->seen + id) : 0;
    if (seen)
        logit = sampling_penalise(logit, 1, (int)(seen & 0x7fffffffu), p->repetition, p->presence, p->frequency);
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
/* NaN and -infinity are never the best; of equals the lowest id is. */
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
    word_store(to, word_make(b.key, w->epoch));
    word_store(to + 1, word_make(b.id | stop, w->epoch));
}

/* Waits for all blocks' pairs, `stride` words apart. One warp calls. *stop: BEST_STOP when block 0
 * says so. */
DEV struct best best_gather(struct worker *w, const u64 *from, int stride, enum wait_kind kind, u32 *stop) {
    u64 key[BEST_SHARE], id[BEST_SHARE];
    struct best b = { 0, 0 };
    u32 polls = 0;
    NO_UNROLL
    for (;;) {
        int ok = 1;
        UNROLL
        for (int i = 0; i < BEST_SHARE; i++) {
            const int block = i * LANES + w->lane;
            word_load2(from + (block < P_SMS ? block : 0) * stride, &key[i], &id[i]);
        }
        UNROLL
        for (int i = 0; i < BEST_SHARE; i++)
            ok &= word_is(key[i], w->epoch) & word_is(id[i], w->epoch);
        if (warp_all(ok | w->dead)) break;
        wait_failed(w, &polls, kind, w->epoch, (u32)(key[0] >> 32));
    }
    UNROLL
    for (int i = 0; i < BEST_SHARE; i++)
        best_meet(&b, (u32)key[i], (u32)id[i] & ~BEST_STOP);
    w->dead = !warp_all(!w->dead); /* what a lane did not wait for is no answer to the others either */
    *stop = shuffle((u32)id[0], 0) & BEST_STOP;
    return best_of_warp(b);
}

/* Ids that this launch made before token t is over. */
DEV u32 ids_before(const struct decode_args *a, int t) {
    return a->pick && t >= a->n_given ? (u32)(t - a->n_given + 1) : 0;
}

/* The host wants no more, or is too far behind: the id to be made would lie more than `lead` ahead
 * of those it has taken. lead < MAILBOX_IDS. */
DEV u32 host_stops(const struct worker *w, int t) {
    const u32 ahead = ids_before(w->a, t) - shared_load(smem_of(&w->s->taken));
    return w->block == 0 && (shared_load(smem_of(&w->s->stop)) || (int)ahead > (int)w->a->lead) ? BEST_STOP : 0;
}

/* At each token's end, after a barrier with the consumers. The epilogue has fenced since the last layer:
 * K and V of this token are visible to a block that has seen these words and fenced. Without a head:
 * key 0. */
DEV void best_publish(struct worker *w) {
    const struct decode_args *a = w->a;
    struct best b = { 0, 0 };
    if (w->warp != WARP_EPILOGUE) return;
    if (w->token >= a->head_from && w->lane < P_WARPS)
        b.key = w->s->best_key[w->lane], b.id = w->s->best_id[w->lane];
    b = best_of_warp(b);
    if (w->lane == 0) best_store(w, a->words + X_BEST + 2 * w->block, b, host_stops(w, w->token));
}

/* The epilogue, which has time: once all blocks have published, this token's K and V may be fetched. A
 * fence takes microseconds beside a running stream, so no consumer makes one. */
DEV void tokens_over_tell(struct worker *w) {
    u32 stop;
    if (w->warp != WARP_EPILOGUE) return;
    (void)best_gather(w, w->a->words + X_BEST, 2, WAIT_BEST, &stop);
    fence_gpu();
    if (w->lane == 0) shared_store(smem_of(&w->s->tokens_over), (u32)w->token + 1);
}

/* ---- the end of a token ---- */

/* What a token ends with. */
struct picked {
    struct best best; /* key 0: no logit is a number */
    u32 stop;
    int makes;   /* an id is wanted */
    int settled; /* 0: only the host can draw it */
};

DEV int is_stop_id(const struct worker *w, u32 id) {
    const struct decode_args *a = w->a;
    return warp_ballot(w->lane < a->n_stop_ids && w->lane < ARGS_MAX_STOP_IDS &&
                       (u32)a->stop_ids[w->lane] == id) != 0;
}

DEV u32 end_reason(const struct worker *w, int t, const struct picked *p) {
    const int stops = is_stop_id(w, p->best.id);
    if (w->dead || p->stop) return DECODE_STOPPED;
    if (p->makes) {
        if (!p->best.key) return DECODE_NO_ID;
        if (!p->settled) return DECODE_HOST_PICKS;
        if (stops) return DECODE_STOP_ID;
    }
    return t == w->a->n_tokens - 1 ? DECODE_ALL_TOKENS : DECODE_RUNNING;
}

/* The id is one that the session holds now. Its row belongs to one block, which alone reads and
 * writes its count. */
DEV void id_seen(const struct worker *w, u32 id) {
    u32 *seen = w->a->sampling.seen;
    if (!seen || id / TILE_ROWS % P_SMS != (u32)w->block) return;
    plain_store32(seen + id, (plain_load32(seen + id) + 1) | 0x80000000u);
}

DEV void host_told(const struct worker *w, int t, const struct picked *p, int made, u32 end) {
    struct decode_mailbox *m = w->a->mailbox;
    u32 n = ids_before(w->a, t);
    if (w->block != 0 || w->dead) return;
    if (made) mapped_store64(&m->ids[n % MAILBOX_IDS], (u64)(n + 1) << 32 | p->best.id), n++;
    if (!end) return;
    mapped_store32(&m->n_made, n);
    mapped_store32(&m->n_evaluated, (u32)t + 1);
    fence_system();
    mapped_store32(&m->end, end);
}

/* One warp decides and tells: the host, and after the next barrier its block. */
DEV void pick_decide(const struct worker *w, int t, const struct picked *p) {
    const int made = p->makes && p->best.key && p->settled;
    const u32 end = end_reason(w, t, p);
    if (w->lane != 0) return;
    host_told(w, t, p, made, end);
    w->s->id = made ? p->best.id : 0;
    w->s->end = end;
    if (made && !w->dead) id_seen(w, p->best.id);
}

/* All consumer warps, when they have handed the warps' best to the epilogue. */
DEV void pick_token(struct worker *w, int t, int has_head) {
    if (w->warp == 0) {
        struct picked p = { { 0, 0 }, 0, w->a->pick && has_head && t >= w->a->n_given - 1, 1 };
        p.best = best_gather(w, w->a->words + X_BEST, 2, WAIT_BEST, &p.stop);
        pick_decide(w, t, &p);
    }
    consumers_sync();
}

#endif
