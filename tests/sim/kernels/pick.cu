/* Picking by itself: logits come from a table instead of a product, and what orders tokens between
 * blocks is one exchange that everyone writes and everyone reads. */
#include "phase_pick.cuh"

/* As head_consume leaves them: keys, perhaps logits, the warp's best. */
DEV void head(struct worker *w, const float *logits) {
    struct best best = { 0, 0 };
    for (int i = w->warp; i < P_HEAD_ROW_TILES; i += P_WARPS) {
        const int id = (i * P_SMS + w->block) * TILE_ROWS + w->lane;
        const int there = i < head_tiles(w) && id < M_VOCAB;
        if (w->lane >= TILE_ROWS) continue;
        head_logit(w, i * TILE_ROWS + w->lane, id, there, there ? const_loadf(logits + id) : 0, 0,
                   &best);
    }
    best = best_of_warp(best);
    if (w->lane == 0) w->s->best_key[w->warp] = best.key, w->s->best_id[w->warp] = best.id;
}

DEV void all_said(struct worker *w, const u64 *words) {
    u32 polls = 0;
    for (int first = 0; first < P_SMS; first += LANES) {
        const int i = first + w->lane < P_SMS ? first + w->lane : 0;
        while (!warp_all(word_is(word_load(words + i), w->epoch) | w->dead))
            wait_failed(w, &polls, WAIT_QKV, w->epoch, 0);
    }
}

DEV void consume(struct worker *w) {
    const struct decode_args *a = w->a;
    for (int t = 0; t < a->n_tokens; t++) {
        w->token = t;
        w->epoch = epoch_next(w->epoch);
        if (w->warp == 0) all_said(w, a->words + X_QKV);
        consumers_sync();
        if (t >= a->head_from) head(w, a->embeddings + t * M_VOCAB);
        w->epoch = epoch_next(w->epoch);
        parts_done(w);
        pick_token(w, t, t >= a->head_from);
        parts_done(w);
        if (w->s->end) return;
    }
}

DEV void finish(struct worker *w) {
    const struct decode_args *a = w->a;
    for (int t = 0; t < a->n_tokens; t++) {
        w->token = t;
        if (w->block == 0 && w->lane == 0) {
            w->s->stop = mapped_load32(&a->mailbox->stop);
            w->s->taken = mapped_load32(&a->mailbox->taken);
        }
        w->epoch = epoch_next(w->epoch);
        if (w->lane == 0) word_store(a->words + X_QKV + w->block, word_make(0, w->epoch));
        w->epoch = epoch_next(w->epoch);
        fence_gpu();
        parts_wait(w);
        best_publish(w);
        tokens_over_tell(w);
        parts_wait(w);
        if (w->s->end) return;
    }
}

KERNEL(P_THREADS) pick(const PARAMETER struct decode_args args) {
    struct worker w;
    w.a = &args;
    w.s = (struct block_shared *)shared_base();
    w.warp = (int)(thread_index() / LANES), w.lane = (int)(thread_index() % LANES);
    w.block = (int)block_index();
    w.epoch = args.epoch;
    w.parts = 0, w.token = 0, w.layer = 0, w.dead = 0;
    for (u32 i = thread_index(); i < sizeof *w.s / 4; i += thread_count())
        ((u32 *)w.s)[i] = 0;
    block_sync();
    if (w.warp < P_WARPS)
        consume(&w);
    else
        finish(&w);
}
