/* A Gated DeltaNet's phases by themselves: h comes from a table instead of the layer before,
 * results go to memory, and what orders layers and tokens is one exchange that everyone writes and
 * everyone reads. Layers that are not DeltaNets are left out, in the tape as well. */
#include "phase_delta.cuh"

/* Waits until every block has said that it is through with the layer. Layers take two buffers in
 * turn. */
DEV void all_said(struct worker *w, const u64 *words) {
    u32 polls = 0;
    for (int first = 0; first < P_SMS; first += LANES) {
        const int i = first + w->lane < P_SMS ? first + w->lane : 0;
        while (!warp_all(word_is(word_load(words + i), w->epoch) | w->dead))
            wait_failed(w, &polls, WAIT_OUT_SUM, w->epoch, 0);
    }
}

DEV u64 *said(struct worker *w) {
    return w->a->words + X_OUT_SUM + delta_nth(w->layer) % 2 * P_SMS;
}

DEV void layer_consume(struct worker *w, const float *from, float *h) {
    struct quad t[PRELOAD_TILES];
    float gain[2 * SLICE];
    u32 gates[GATES_HELD][2][SLICE];
    struct delta_early early;
    TILES_TAKE(w, t, MIX);
    gains_load(w, w->a->norms + w->layer * M_HIDDEN, gain);
    gates_load(w, gates);
    if (EARLY_STATE) delta_ask(w, &early);
    gains_load(w, from, h);
    w->epoch = epoch_next(w->epoch);
    mix_consume(w, t, h, gain);
    if (!EARLY_STATE) delta_ask(w, &early);
    gates_dot(w, gates, h, gain);
    delta_consume(w, &early);
}

DEV void consume(struct worker *w) {
    const struct decode_args *a = w->a;
    for (int t = 0; t < a->n_tokens; t++) {
        w->token = t;
        for (int layer = 0; layer < M_LAYERS; layer++) {
            if (!layer_is_delta(layer)) continue;
            const int at = t * M_DELTA + delta_nth(layer);
            float h[2 * SLICE];
            w->layer = layer;
            layer_consume(w, a->embeddings + at * M_HIDDEN, h);
            consumers_sync(); /* other warps' heads: here it is not out that reads them */
            u32 *to = (u32 *)a->hidden + (at * P_SMS + w->block) * (P_GROUP_VALUE / 2);
            for (int i = w->warp * LANES + w->lane; i < P_GROUP_VALUE / 2; i += CONSUMER_THREADS)
                plain_store32(to + i, w->s->attention[i]);
            consumers_sync();
            parts_done(w); /* out */
            all_said(w, said(w));
        }
    }
}

DEV void finish(struct worker *w) {
    for (int t = 0; t < w->a->n_tokens; t++) {
        w->token = t;
        for (int layer = 0; layer < M_LAYERS; layer++) {
            if (!layer_is_delta(layer)) continue;
            w->layer = layer;
            w->epoch = epoch_next(w->epoch);
            mix_publish(w);
            parts_wait(w);
            if (w->lane == 0 && w->warp == WARP_EPILOGUE)
                word_store(said(w) + w->block, word_make(0, w->epoch));
        }
    }
}

DEV void produce(struct worker *w) {
    struct weight_stream p;
    stream_start(w, &p);
    if (w->lane >= FILL_LANES) return;
    for (int t = 0, go = 1; t < w->a->n_tokens && go; t++) {
        p.src = w->a->tape + (u64)w->block * M_DELTA * P_MIX_BYTES;
        for (int nth = 0; nth < M_DELTA && go; nth++)
            go = STREAM_SEGMENT(w, &p, MIX);
    }
    stream_drain(&p);
}

KERNEL(P_THREADS) delta(const PARAMETER struct decode_args args) {
    u8 *base = shared_base();
    struct worker w;
    w.a = &args;
    w.ring = base, w.kv_ring = base + RING_BYTES;
    w.s = (struct block_shared *)(base + RING_BYTES + KV_RING_BYTES);
    w.warp = (int)(thread_index() / LANES), w.lane = (int)(thread_index() % LANES);
    w.block = (int)block_index();
    w.group = w.block / P_GROUP_SMS, w.member = w.block % P_GROUP_SMS;
    w.full = smem_of(w.s->full), w.empty = smem_of(w.s->empty);
    w.slot = 0, w.parity = 0, w.parts = 0;
    w.epoch = args.epoch;
    w.token = 0, w.layer = 0, w.phase = 0, w.zero = 0, w.dead = 0;
    for (u32 i = thread_index(); i < sizeof *w.s / 4; i += thread_count())
        ((u32 *)w.s)[i] = 0;
    block_sync();
    if (thread_index() == 0) {
        for (int i = 0; i < RING_SLOTS; i++)
            mbar_init(&w.s->full[i], FILL_LANES), mbar_init(&w.s->empty[i], P_WARPS);
        caps_start(&w);
        mbar_init_done();
    }
    block_sync();
    if (w.warp < P_WARPS)
        consume(&w);
    else if (w.warp < WARP_WEIGHTS)
        finish(&w);
    else if (w.warp == WARP_WEIGHTS)
        produce(&w);
}
