/* Attention by itself: q, k, v words come from a table instead of a product, results go to memory,
 * and what orders layers and tokens is exchanged as in the decode kernel. */
#include "phase_attention.cuh"

enum { ROW_WORDS = QKV_GROUP_ROWS / 2 };

/* Waits until every block has said that it is here. Layers take two buffers in turn, since nothing
 * else that all wait for lies between two layers here. */
DEV void all_said(struct worker *w, const u64 *words, enum wait_kind kind) {
    u64 v = word_make(0, w->epoch);
    u32 polls = 0;
    for (;;) {
        if (w->lane < P_SMS) v = word_load(words + w->lane);
        if (warp_all(word_is(v, w->epoch) | w->dead)) break;
        wait_failed(w, &polls, kind, w->epoch, (u32)(v >> 32));
    }
}

DEV void consume(struct worker *w) {
    const struct decode_args *a = w->a;
    for (int t = 0; t < a->n_tokens; t++) {
        w->token = t;
        attention_token_start(w, a->position + t);
        for (int layer = 0; layer < M_LAYERS; layer++) {
            w->layer = layer;
            w->epoch = epoch_next(w->epoch);
            parts_done(w); /* qkv, behind whose products there is a barrier */
            consumers_sync();
            attention_consume(w, layer, a->position + t);
            u32 *to =
                (u32 *)a->hidden + ((t * M_LAYERS + layer) * P_SMS + w->block) * ATTENTION_WORDS;
            for (int i = w->warp * LANES + w->lane; i < ATTENTION_WORDS; i += CONSUMER_THREADS)
                plain_store32(to + i, w->s->attention[i]);
            attention_keep(w, layer, a->position + t);
            parts_done(w); /* out */
            all_said(w, a->words + X_OUT_SUM + layer % 2 * P_SMS, WAIT_OUT_SUM);
        }
        w->epoch = epoch_next(w->epoch);
        parts_done(w);
        parts_done(w);
    }
}

DEV void finish(struct worker *w) {
    const struct decode_args *a = w->a;
    for (int t = 0; t < a->n_tokens; t++) {
        for (int layer = 0; layer < M_LAYERS; layer++) {
            const u32 *from = (const u32 *)a->embeddings +
                              ((t * M_LAYERS + layer) * P_GROUPS + w->group) * ROW_WORDS;
            w->epoch = epoch_next(w->epoch);
            parts_wait(w);
            for (int i = w->lane; i < ROW_WORDS; i += LANES)
                if (i / 8 % P_GROUP_SMS == w->member)
                    word_store(qkv_words(w) + i, word_make(const_load32(from + i), w->epoch));
            parts_wait(w);
            if (w->lane == 0)
                word_store(a->words + X_OUT_SUM + layer % 2 * P_SMS + w->block,
                           word_make(0, w->epoch));
        }
        w->epoch = epoch_next(w->epoch);
        fence_gpu();
        parts_wait(w);
        if (w->lane == 0) word_store(a->words + X_BEST + w->block, word_make(0, w->epoch));
        all_said(w, a->words + X_BEST, WAIT_BEST);
        fence_gpu();
        if (w->lane == 0) shared_store(smem_of(&w->s->tokens_over), (u32)t + 1);
        parts_wait(w);
    }
}

KERNEL(P_THREADS) attention(const PARAMETER struct decode_args args) {
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
    w.kv_turn = 0, w.kv_laps = 0;
    w.epoch = args.epoch;
    w.token = 0, w.layer = 0, w.zero = 0, w.dead = 0;
    for (u32 i = thread_index(); i < sizeof *w.s / 4; i += thread_count())
        ((u32 *)w.s)[i] = 0;
    block_sync();
    if (thread_index() == 0) {
        for (int i = 0; i < P_KV_SLOTS; i++)
            mbar_init(&w.s->kv_full[i], FILL_LANES), mbar_init(&w.s->kv_empty[i], 1);
        mbar_init_done();
    }
    block_sync();
    if (w.warp < P_WARPS)
        consume(&w);
    else if (w.warp < WARP_WEIGHTS)
        finish(&w);
    else if (w.warp == WARP_KV)
        kv_produce(&w);
}
