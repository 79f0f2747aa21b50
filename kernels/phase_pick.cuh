/* pick decides which id comes next, and whether the launch is over. Every block decides for itself from the same words
 * (docs/GLOSSARY.md), so all blocks decide alike.
 *   reads    each warp's best logit and this SM's logits, in shared memory
 *   writes   s->id and s->end; ids and the end to the mailbox */
#ifndef REEL_KERNELS_PHASE_PICK_CUH
#define REEL_KERNELS_PHASE_PICK_CUH

#include "sample_search.cuh"

#if P_COLUMNS == 1
/* Takes one logit of this SM, of its row `own`; without `there` the row is not one of the vocabulary's. The sampler
 * gets its order key (sampling_order), after bias and penalties; args.logits gets the logit as it is, before them. */
DEV void head_logit(struct worker *w, int own, int id, int there, float logit, int output, struct best *best) {
    const struct decode_args *a = w->a;
    u32 key = 0;
    if (there) {
        if (a->logits && (!a->pick || a->sampling.adjust))
            plain_store32((u32 *)a->logits + (size_t)output * M_VOCAB + id, float_bits(logit));
        if (a->sampling.adjust) logit = pick_adjust(a, id, logit);
        best_offer(best, logit, (u32)id);
        if (logit > bits_float(0xff800000u)) key = sampling_order(logit);
    }
    if (a->pick && own < OWN_ROWS) kept_keys(w->s)[own] = key;
}
#endif

/* Returns how many ids this launch has made before token t is over. */
DEV u32 ids_before(const struct decode_args *a, int t) {
    return a->pick && t >= a->n_given ? (u32)(t - a->n_given + 1) : 0;
}

/* Block 0 says BEST_STOP when the host wants no more ids, or is too far behind: the id to be made would lie more than
 * `lead` ahead of those that the host has taken. lead < MAILBOX_IDS. */
DEV u32 host_stops(const struct worker *w, int t) {
    const u32 ahead = ids_before(w->a, t) - shared_load(smem_of(&OF_COLUMN(w, taken)));
    return w->block == 0 && (shared_load(smem_of(&OF_COLUMN(w, stop))) || (int)ahead > (int)w->a->lead) ? BEST_STOP : 0;
}

#if P_COLUMNS == 1
/* The epilogue publishes the block's best logit at each token's end, after a barrier with the consumers. The epilogue
 * has fenced since the last layer: K and V of this token are visible to a block that has seen these words and fenced.
 * A token without a head has key 0. */
DEV void best_publish(struct worker *w) {
    const struct decode_args *a = w->a;
    struct best b = { 0, 0 };
    if (w->warp != WARP_EPILOGUE) return;
    if (w->token >= a->head_from && w->lane < P_WARPS) b.key = w->s->best_key[w->lane], b.id = w->s->best_id[w->lane];
    b = best_of_warp(b);
    if (w->lane == 0) best_store(w, a->words + X_BEST + 2 * w->block, b, host_stops(w, w->token));
}

/* The epilogue waits until all blocks have published, then tells the K/V producer that it may fetch this token's K and
 * V. The epilogue has time for that. A fence takes microseconds beside a running stream, so no consumer makes one. */
DEV void tokens_over_tell(struct worker *w) {
    if (w->warp != WARP_EPILOGUE) return;
    best_wait(w, w->a->words + X_BEST);
    fence_gpu();
    if (w->lane == 0) shared_store(smem_of(&w->s->tokens_over), (u32)w->token + 1);
}
#endif

/* ---- the end of a token ---- */

DEV int is_stop_id(const struct worker *w, u32 id) {
    const struct decode_args *a = w->a;
    return warp_ballot(w->lane < a->n_stop_ids && w->lane < ARGS_MAX_STOP_IDS && (u32)a->stop_ids[w->lane] == id) != 0;
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

#if P_FOLLOWS
/* ---- drafts ---- */

/* What a session's next columns may need of what the host expects: behind the ids of a pass, those of the next one. */
enum { GUESSES = 2 * COLUMNS - 1 };
#define NO_GUESS 0xffffffffu

/* Whether all drafts of this pass before the column have proved right. */
DEV int column_reached(const struct worker *w, int column) {
    return !(w->s->drafts >> column & 1) || w->s->reached >> column & 1;
}

/* Whether the id is the next column's draft. */
DEV int draft_is_right(const struct worker *w, u32 id) {
    const int next = w->column + 1;
    return next < COLUMNS && w->s->drafts >> next & 1 && w->s->id[next] == id;
}
#else
DEV int column_reached(const struct worker *w, int column) { return (void)w, (void)column, 1; }
#endif

/* Notes that the session holds the id now, and counts it. The id's row belongs to one block, which alone reads and
 * writes the count. */
DEV void id_seen(const struct worker *w, u32 id) {
    u32 *seen = w->a->sampling.seen;
    if (!seen || id / TILE_ROWS % P_SMS != (u32)w->block) return;
    plain_store32(seen + id, (plain_load32(seen + id) + 1) | 0x80000000u);
}

DEV void host_told(const struct worker *w, int t, const struct picked *p, int made, u32 end) {
    struct decode_mailbox *m = w->a->mailbox;
    u32 n = ids_before(w->a, t);
    if (w->block != 0 || w->dead) return;
#if P_FOLLOWS
    const u32 drafted = w->s->drafts >> w->column & 1 ? MAILBOX_DRAFTED : 0;
    if (end) mapped_store32(&m->n_drafted, OF_COLUMN(w, drafted));
#else
    const u32 drafted = 0;
#endif
#if M_DRAFT
    if (made && n == 0 && w->a->guess) plain_store32(w->a->guess, p->best.id);
#endif
    if (made) mapped_store64(&m->ids[n % MAILBOX_IDS], (u64)(n + 1) << 32 | drafted | p->best.id), n++;
    if (!end) return;
    mapped_store32(&m->n_made, n);
    mapped_store32(&m->n_evaluated, (u32)t + 1);
    fence_system();
    mapped_store32(&m->end, end);
}

/* One warp decides and tells the host; its block reads the decision after the next barrier. */
DEV void pick_decide(const struct worker *w, int t, const struct picked *p) {
    const int made = p->makes && p->best.key && p->settled;
#if P_FOLLOWS
    /* a session that is to stop does so at the end of its pass */
    const int goes_on = made && draft_is_right(w, p->best.id);
    struct picked now = *p;
    if (goes_on) now.stop = 0;
    const u32 end = end_reason(w, t, &now);
    if (w->lane == 0 && goes_on && !end) w->s->reached |= 2u << w->column;
#else
    const u32 end = end_reason(w, t, p);
#endif
    if (w->lane != 0) return;
#if COLUMNS_WAIT
    if (end == DECODE_HOST_PICKS) {
        OF_COLUMN(w, COLUMN_END) = DECODE_WAITS, OF_COLUMN(w, waited)++;
        return;
    }
#endif
    host_told(w, t, p, made, end);
    OF_COLUMN(w, id) = made ? p->best.id : 0;
    OF_COLUMN(w, COLUMN_END) = end;
    if (made && !w->dead) id_seen(w, p->best.id);
}

/* Stores the logits for the host, which picks. With bias or penalties the head has stored them already. */
DEV void logits_leave(struct worker *w) {
    if (w->a->sampling.adjust) return;
    NO_UNROLL
    EACH_OWN_ROW(w, row) {
        const int id = own_id(w->block, row);
        if (id < M_VOCAB) plain_store32((u32 *)w->a->logits + id, float_bits(own_logit(w, row)));
    }
}

/* Picks by sampling; a call, as sampler_worker explains. Returns PICK_DEAD or 0; a column that may wait for the host
 * shows the logits itself, where PICK_UNSETTLED says so. */
enum { PICK_DEAD = 1, PICK_UNSETTLED = 2 };
DEV_CALL int pick_sampled(const struct decode_args *a, struct block_shared *s, u32 epoch, int t, int dead) {
    struct picked p = { { 0, 0 }, 0, 1, 1 };
    struct worker w = sampler_worker(a, s, epoch, t, dead);
    draw(&w, &p);
#if COLUMNS_WAIT
    const int unsettled = p.settled ? 0 : PICK_UNSETTLED;
#else
    const int unsettled = 0;
    if (!p.settled) logits_leave(&w);
#endif
    if (w.warp == 0) pick_decide(&w, t, &p);
    consumers_sync();
    return w.dead | unsettled;
}

#if P_COLUMNS == 1
DEV void pick_best(struct worker *w, int t, int makes) {
    if (w->warp == 0) {
        struct picked p = { { 0, 0 }, 0, makes, 1 };
        p.best = best_gather(w, w->a->words + X_BEST, 2, WAIT_BEST, 0, &p.stop);
        pick_decide(w, t, &p);
    }
    consumers_sync();
}

/* Picks what follows token t. All consumer warps call it, when they have handed the warps' best to the epilogue. */
DEV void pick_token(struct worker *w, int t, int has_head) {
    const struct decode_args *a = w->a;
    const int makes = a->pick && has_head && t >= a->n_given - 1;
    if (makes && a->sampling.temperature > 0)
        w->dead = pick_sampled(a, w->s, w->epoch, t, w->dead);
    else
        pick_best(w, t, makes);
}
#endif

#endif
