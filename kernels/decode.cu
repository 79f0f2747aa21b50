/* The megakernel of decoding: one launch takes a session's tokens through all layers, one token after the other, and
 * picks the next tokens itself. Each SM has one block, and all blocks are resident at once. The plan says what each
 * block computes. The warps of a block have these roles (docs/KERNELS.md):
 *
 *   consumers   walk through the phases: embed, [qkv, attention, out, gate_up, down] x layers, head, pick;
 *               mix and delta instead of qkv and attention where a layer is a Gated DeltaNet
 *   epilogue    does what would hold the consumers up (publish.cuh)
 *   producers   bring the tape's weights, and K and V of past positions, into the rings */
#include "phase_attention.cuh"
#include "phase_down.cuh"
#include "phase_embed.cuh"
#include "phase_gate_up.cuh"
#include "phase_head.cuh"
#include "phase_out.cuh"
#include "phase_pick.cuh"
#include "phase_qkv.cuh"
#include "profile.cuh"
#include "two_hops.cuh"
#if M_DELTA
#include "phase_delta.cuh"
#endif

STATIC_ASSERT(SHARED_BYTES == P_SHARED_BYTES, "the plan counts shared memory of decoding otherwise");

/* A norm's gains come from memory, behind the stream of weights. Where there are registers for them, a warp asks for
 * them half a layer before it needs them. */
enum { EARLY_GAINS = 2 * SLICE <= 8 };

/* Completes h with the sums of out or down, if they are wanted: in front of the first layer h is the token's vector.
 * seen: h as phases take it, which with P_H_PAIRS is rounded as two hops round it (two_hops.cuh). */
DEV void sum_take(struct worker *w, int is_down, int wanted, float *h, float *seen) {
    const enum wait_kind kind = is_down ? WAIT_DOWN_SUM : WAIT_OUT_SUM;
#if P_TWO_HOPS
    if (wanted) h_gather(w, is_down ? X_DOWN_H : X_OUT_H, (float(*)[2 * SLICE]) h, kind);
#else
    gather_sum(w, w->a->words + (is_down ? X_DOWN_SUM : X_OUT_SUM), wanted, h, kind);
#endif
    UNROLL
    for (int i = 0; i < 2 * SLICE; i++)
        seen[i] = P_H_PAIRS && !P_TWO_HOPS && wanted ? float24(h[i]) : h[i];
}

/* Loads the gains of a layer's first norm; with EARLY_GAINS those of its second, as the first are there already. */
DEV void layer_gains(struct worker *w, float *gain, float *gate_up_gain) {
    const float *norms = w->a->norms + (size_t)2 * w->layer * M_HIDDEN;
    if (EARLY_GAINS)
        gains_load(w, norms + M_HIDDEN, gate_up_gain);
    else
        gains_load(w, norms, gain);
}

/* The consumers' part of a layer that mixes positions, qkv and attention. Leaves the tiles of out in t. */
DEV void attention_layer(struct worker *w, int position, struct held *t, float *h, float *gain, float *gate_up_gain) {
    TILES_TAKE(w, t, QKV);
    profile_layer(w, MARK_QKV_WEIGHTS);
    layer_gains(w, gain, gate_up_gain);
    float bias = 0;
#if M_QKV_BIAS
    bias = qkv_bias_ask(w, w->warp * LANES);
#endif
    float seen[2 * SLICE];
    sum_take(w, 1, w->layer > 0, h, seen);
    w->epoch = epoch_next(w->epoch);
    profile_layer(w, MARK_QKV_INPUT);
#if P_TAPS
    float *taps = w->a->taps;
    taps_leave(w, seen, taps ? taps + (size_t)w->token * ARGS_TAPS * M_HIDDEN : 0);
#endif
    qkv_consume(w, t, seen, gain, bias);
    profile_layer(w, MARK_QKV);
    worker_anew(w);
    TILES_TAKE(w, t, OUT);
    profile_layer(w, MARK_OUT_WEIGHTS);
    attention_consume(w, attention_nth(w->layer), position);
    profile_layer(w, MARK_ATTENTION);
}

#if M_DELTA
/* The same part of a layer that is a Gated DeltaNet: mix and delta. Leaves the tiles of out in t. */
DEV void delta_layer(struct worker *w, struct held *t, float *h, float *gain, float *gate_up_gain) {
    u32 gates[GATES_HELD][2][SLICE];
    struct delta_early early;
    TILES_TAKE(w, t, MIX);
    profile_layer(w, MARK_MIX_WEIGHTS);
    layer_gains(w, gain, gate_up_gain);
    gates_load(w, gates);
    if (EARLY_STATE) delta_ask(w, &early);
    float seen[2 * SLICE];
    sum_take(w, 1, w->layer > 0, h, seen);
    w->epoch = epoch_next(w->epoch);
    profile_layer(w, MARK_MIX_INPUT);
    mix_consume(w, t, seen, gain);
    profile_layer(w, MARK_MIX);
    worker_anew(w);
    if (!EARLY_STATE) delta_ask(w, &early);
    gates_dot(w, gates, seen, gain);
    TILES_TAKE(w, t, OUT);
    profile_layer(w, MARK_OUT_WEIGHTS);
    delta_consume(w, &early);
    profile_layer(w, MARK_DELTA);
}
#endif

/* attention_keep, where the layer attends. */
DEV void layer_keep(struct worker *w, int position) {
#if M_DELTA
    if (layer_is_delta(w->layer)) return;
#endif
    attention_keep(w, attention_nth(w->layer), position);
}

/* The consumers' part of one layer. h comes in without the sums of the layer before, for which this layer waits. With
 * EARLY_GAINS, `gain` comes in with the gains of this layer's first norm and leaves with those of the next layer's. */
DEV void layer_consume(struct worker *w, int layer, int position, float *h, float *gain) {
    const struct decode_args *a = w->a;
    const float *norms = a->norms + (size_t)2 * layer * M_HIDDEN;
    struct held t[HELD_TILES];
    float gate_up_gain[2 * SLICE];
    w->layer = layer;
    worker_anew(w);
#if M_DELTA
    if (layer_is_delta(layer))
        delta_layer(w, t, h, gain, gate_up_gain);
    else
#endif
        attention_layer(w, position, t, h, gain, gate_up_gain);
    out_consume(w, t);
    profile_layer(w, MARK_OUT);
    worker_anew(w);
    TILES_TAKE(w, t, GATE_UP);
    profile_layer(w, MARK_GATE_UP_WEIGHTS);
    if (EARLY_GAINS)
        gains_load(w, norms + 2 * M_HIDDEN, gain);
    else
        gains_load(w, norms + M_HIDDEN, gate_up_gain);
    float seen[2 * SLICE];
    sum_take(w, 0, 1, h, seen);
    profile_layer(w, MARK_GATE_UP_INPUT);
    gate_up_consume(w, t, seen, gate_up_gain);
    profile_layer(w, MARK_GATE_UP);
    worker_anew(w);
    TILES_TAKE(w, t, DOWN);
    profile_layer(w, MARK_DOWN_WEIGHTS);
    down_consume(w, t);
    layer_keep(w, position);
    layer_done(w);
    profile_layer(w, MARK_DOWN);
}

/* After the last layer: leaves the hidden state, the logits and the warp's best logit. The flag `hides` says whether
 * there is a hidden state to leave. A pointer that is NULL or not would not do: ptxas 13.0 made code of it that read
 * the pointer before it was there. */
DEV void token_end(struct worker *w, int t, float *h, float *gain) {
    const struct decode_args *a = w->a;
    const int head = t >= a->head_from, hides = a->hidden != 0 && t >= a->hidden_from;
    if (!head && !hides) return;
    if (!EARLY_GAINS) gains_load(w, a->norms + (size_t)2 * M_LAYERS * M_HIDDEN, gain);
    float seen[2 * SLICE];
    sum_take(w, 1, !layers_done(a, t), h, seen);
    profile_token(w, MARK_HEAD_INPUT);
    float unit;
    const float scale = head_norm(w, seen, gain, &unit);
    if (hides) hidden_leave(w, seen, gain, scale, a->hidden + (size_t)(t - a->hidden_from) * M_HIDDEN);
    if (head) head_consume(w, scale, unit, a->pick ? 0 : t - a->head_from);
}

/* What a consumer warp does in a launch. `finish` walks through the same phases. */
DEV void consume(struct worker *w) {
    const struct decode_args *a = w->a;
    u32 id = a->ids ? const_load32((const u32 *)a->ids) : 0;
    for (int t = 0; t < a->n_tokens; t++) {
        float h[2 * SLICE], gain[2 * SLICE];
        w->token = t;
        profile_token(w, MARK_TOKEN);
        const int first = layers_done(a, t) ? M_LAYERS : 0;
        gains_load(w, a->norms + (size_t)2 * first * M_HIDDEN, gain);
        embed(w, t, id, h);
        attention_token_start(w, a->position + t);
        profile_token(w, MARK_EMBED);
        NO_UNROLL
        for (int layer = first; layer < M_LAYERS; layer++)
            layer_consume(w, layer, a->position + t, h, gain);
        profile_token(w, MARK_LAYERS);
        token_end(w, t, h, gain);
        profile_token(w, MARK_HEAD);
        w->epoch = epoch_next(w->epoch);
        parts_done(w);
        pick_token(w, t, t >= a->head_from);
        profile_token(w, MARK_PICK);
        parts_done(w); /* the epilogue may read s->end */
        if (w->s->end) return;
        id = t + 1 < a->n_given && a->ids ? const_load32((const u32 *)a->ids + t + 1) : w->s->id;
    }
}

#if P_TWO_HOPS
/* Makes the words of h that an epilogue thread keeps, once the token before has been picked. As in token_end, what
 * says whether a vector is given is no pointer. */
DEV void reduced_start(struct worker *w, int t, float (*kept)[2]) {
    const struct decode_args *a = w->a;
    const int is_given = t < a->n_given;
    UNROLL
    for (int n = 0; n < REDUCE_TURNS; n++) {
        const int word = reduced_at(w, n).word;
        if (is_given && a->embeddings) {
            const float *given = a->embeddings + (size_t)t * M_HIDDEN + 2 * word;
            kept[n][0] = const_loadf(given), kept[n][1] = const_loadf(given + 1);
        } else {
            const u32 id = is_given && a->ids ? const_load32((const u32 *)a->ids + t) : w->s->id;
            embedding_two(w, a, id, word, kept[n]);
        }
    }
}
#endif

/* Block 0 reads what the host wrote to the mailbox, once a token. That takes a microsecond, in which the consumers are
 * at the first layer's products. */
DEV void host_look(struct worker *w) {
    const struct decode_args *a = w->a;
    if (w->block != 0 || w->warp != WARP_EPILOGUE || w->lane != 0) return;
    w->s->stop = mapped_load32(&a->mailbox->stop);
    w->s->taken = mapped_load32(&a->mailbox->taken);
}

/* What an epilogue warp does in a launch. */
DEV void finish(struct worker *w) {
    for (int t = 0; t < w->a->n_tokens; t++) {
        w->token = t;
        host_look(w);
#if P_TWO_HOPS
        float kept[REDUCE_TURNS][2];
        reduced_start(w, t, kept);
#endif
        NO_UNROLL
        for (int layer = layers_done(w->a, t) ? M_LAYERS : 0; layer < M_LAYERS; layer++) {
            w->layer = layer;
            w->epoch = epoch_next(w->epoch);
#if M_DELTA
            worker_anew(w);
            if (layer_is_delta(layer)) mix_publish(w);
#endif
#if P_TWO_HOPS
            worker_anew(w);
            parts_wait(w);
            sums_reduce(w, X_OUT_SUM, X_OUT_H, kept, WAIT_OUT_SUM);
#endif
            if (down_is_told(w)) parts_wait(w);
#if P_TWO_HOPS
            worker_anew(w);
            sums_reduce(w, X_DOWN_SUM, X_DOWN_H, kept, WAIT_DOWN_SUM);
#endif
        }
        w->epoch = epoch_next(w->epoch);
        fence_gpu(); /* K and V rows of this token are ordered here, long before a block waits for its end */
        parts_wait(w);
        best_publish(w);
        tokens_over_tell(w);
        parts_wait(w); /* waits until the consumers have picked */
        if (w->s->end) return;
    }
}

/* Clears the block's shared memory and makes its barriers. All threads of the block call. */
DEV void block_start(struct worker *w) {
    struct block_shared *s = w->s;
    const u32 thread = thread_index(), threads = thread_count();
    for (u32 i = thread; i < sizeof *s / 4; i += threads)
        ((u32 *)s)[i] = 0;
    block_sync();
    if (thread == 0) {
        for (int i = 0; i < RING_SLOTS; i++)
            mbar_init(&s->full[i], FILL_LANES), mbar_init(&s->empty[i], P_WARPS);
        for (int i = 0; i < P_KV_SLOTS; i++)
            mbar_init(&s->kv_full[i], FILL_LANES), mbar_init(&s->kv_empty[i], 1);
        caps_start(w);
        mbar_init_done();
    }
    block_sync();
}

KERNEL(P_THREADS) decode(const PARAMETER struct decode_args args GPUS_PARAMETER) {
    u8 *base = shared_base();
    struct worker w;
    w.a = &args;
    w.ring = base, w.kv_ring = base + RING_BYTES;
    w.s = (struct block_shared *)(base + RING_BYTES + KV_RING_BYTES);
    /* These come out of a shuffle: the compiler would otherwise read the special registers again at every use. */
    const int thread = (int)shuffle_xor(thread_index(), 0);
    w.warp = thread / LANES, w.lane = thread % LANES;
    w.block = (int)shuffle_xor(block_index(), 0);
#if P_GPUS > 1
    w.block += (int)shuffle_xor((u32)gpus.gpu, 0) * GPU_SMS;
#endif
    w.group = w.block / P_GROUP_SMS, w.member = w.block % P_GROUP_SMS;
    w.full = smem_of(w.s->full), w.empty = smem_of(w.s->empty);
    w.slot = 0, w.parity = 0, w.parts = 0;
    w.kv_turn = 0, w.kv_laps = 0;
    w.epoch = args.epoch;
    w.token = 0, w.layer = 0, w.phase = 0, w.dead = 0;
    w.zero = args.patience >> 31;
#if defined(T_ABSENT)
    if (w.block == T_ABSENT) return; /* a fault on purpose: all other blocks wait for this one */
#endif
    block_start(&w);
#if P_GPUS > 1
    gpus_keep(w.s, &gpus);
#endif
    if (w.warp < P_WARPS) {
        REGISTERS_TAKE(P_REGISTERS_CONSUMER);
        consume(&w);
    } else {
        REGISTERS_GIVE(P_REGISTERS_OTHER);
        if (w.warp < WARP_WEIGHTS)
            finish(&w);
        else if (w.warp == WARP_WEIGHTS)
            weights_produce(&w);
        else
            kv_produce(&w);
    }
}
