/* Reads a short prompt (docs/GLOSSARY.md) in one launch: all of its tokens go through the layers together, as
 * decode's one token does. Blocks, groups and tapes are decode's. So is the ring of weights (ring.cuh), whose
 * producer never waits for activations. Each SM has one block, and all blocks are resident. The P_WARPS consumers of
 * a block walk the phases and split k; a producer brings weights.
 *
 *   qkv        x                  -> q, k, v rows, to the group
 *   attention  the group's q, k, v, the cache -> in shared memory; the chunk's K and V to the cache
 *   out        attention          -> the group's partial sums, to their owners
 *   (owners)   sums of all groups -> h, and x = h * gain of the next norm, to all
 *   gate_up    x                  -> gated values, to the group
 *   down       gated              -> partial sums, to their owners, who make h and x of the next layer
 *
 * The residual stream is cut into units. A unit is a k tile (16 columns) of an atom (8 tokens), and one warp of one
 * SM owns it.
 *
 * Owners are SMs of all GPUs, where several share the model: what they make goes to all of them, and a partial sum to
 * the GPU of its owner. All other exchanges are those of a group, whose SMs are on one GPU.
 *
 * Each arrow of this list has one buffer. One is enough if no block overwrites words of layer l before all their
 * readers have taken them. A block publishes its results for a run of atoms (those that go through a product
 * together) after all its warps have taken the input of that run's products, and the whole input of the phases
 * before. So, for each run:
 *   x for qkv(l + 1)   its owner has down(l) from one SM of each group. That SM had gated(l) from its whole group,
 *                      and each SM of the group had taken x for qkv(l) before
 *   qkv(l + 1)         the SM has x for qkv(l + 1) from all owners, who had down(l) from SMs of all groups. That of
 *                      this SM's group had gated(l) from the whole group, whose SMs had done attention(l) before
 *   out(l + 1)         the SM has x for qkv(l + 1), which owners made after they had taken out(l)
 *   x for gate_up(l+1) its owner has out(l + 1) from one SM of each group. That SM had qkv(l + 1) from its whole
 *                      group, and each SM of the group had taken x for gate_up(l) before
 *   gated(l + 1)       the SM had qkv(l + 1) from its whole group, and each SM of the group had taken gated(l) before
 *   down(l + 1)        the SM has x for gate_up(l + 1) from all owners, who had taken down(l) before */
#ifndef REEL_KERNELS_SHORT_CUH
#define REEL_KERNELS_SHORT_CUH

#include "mma.cuh"
#include "short_attention.cuh"
#include "short_product.cuh"

#include "draft_head.cuh"
#include "phase_embed.cuh"

/* ---- the residual stream ---- */

/* A lane holds four values of its warp's unit: two columns, 8 apart, of two tokens. They lie as a product leaves its
 * sums. */
DEV int unit_column(const struct short_worker *b) { return b->unit_tile * TILE_K + b->w.lane / 4; }
DEV int unit_token(const struct short_worker *b) { return b->unit_atom * ATOM_TOKENS + b->w.lane % 4 * 2; }

DEV float embedding_of(const struct short_worker *b, int token, int column) {
    const struct decode_args *a = b->w.a;
    if (a->embeddings) return const_loadf(a->embeddings + (size_t)token * M_HIDDEN + column);
    if (NARROW_EMBEDDING) {
        float two[2];
        embedding_two(&b->w, a, a->ids ? const_load32((const u32 *)a->ids + token) : 0, column / 2, two);
        return column % 2 ? two[1] : two[0];
    }
    const u32 both = embedding_pair(&b->w, a, a->ids ? const_load32((const u32 *)a->ids + token) : 0, column / 2);
    return column % 2 ? bf16_high(both) : bf16_low(both);
}
DEV void unit_embed(struct short_worker *b) {
    const int unit = b->w.warp * P_SMS + b->w.block, there = unit < b->padded * H_TILES;
    b->unit_tile = unit % H_TILES, b->unit_atom = there ? unit / H_TILES : -1;
    UNROLL
    for (int i = 0; i < 4; i++) {
        const int token = unit_token(b) + i % 2;
        b->h[i] = there && token < b->n_tokens ? embedding_of(b, token, unit_column(b) + i / 2 * 8) : 0;
    }
}

struct unit_gains {
    float g[2];
};
DEV struct unit_gains unit_gains_load(const struct short_worker *b, const float *norm) {
    const float *from = norm + (b->unit_atom < 0 ? 0 : unit_column(b));
    struct unit_gains g;
    g.g[0] = const_loadf(from), g.g[1] = const_loadf(from + 8);
    return g;
}

/* Publishes the unit's x and its sums of squares, for the norm before qkv (which is 0) or gate_up (1). */
DEV void unit_publish(const struct short_worker *b, const struct unit_gains *gains, int which) {
    if (b->unit_atom < 0) return;
    const float *h = b->h;
    u64 *x = b->w.a->words + S_X + which * VECTOR_WORDS + (b->unit_tile * ATOMS + b->unit_atom) * TILE_WORDS;
    u64 *ssq = b->w.a->words + S_SSQ + (which * H_TILES + b->unit_tile) * P_SHORT_TOKENS;
    UNROLL
    for (int i = 0; i < 2; i++) {
        const float v = h[2 * i] * gains->g[i], w = h[2 * i + 1] * gains->g[i];
        const u32 both = bf16_pair(v, w), rest = bf16_pair(v - bf16_low(both), w - bf16_high(both));
        word_tell(&b->w, x + b->w.lane * 2 + i, word_x(transpose8(both), transpose8(rest), b->w.epoch));
    }
    UNROLL
    for (int i = 0; i < 2; i++) {
        const float sum = xor_sum(h[i] * h[i] + h[2 + i] * h[2 + i], 4, LANES);
        if (b->w.lane < 4) word_tell(&b->w, ssq + unit_token(b) + i, word_make(float_bits(sum), b->w.epoch));
    }
}

/* A lane's two words of one group's partial sums; the columns of `high` are 8 further on. */
struct sum_words {
    u64 low, high;
};
DEV int sum_there(const struct short_worker *b, const struct sum_words *f) {
    return word_is24(f->low, b->w.epoch) & word_is24(f->high, b->w.epoch);
}

/* Waits for the partial sums of out (which is 0) or down (1) and adds them to h, in the order of groups. */
DEV void unit_add(struct short_worker *b, int which, enum wait_kind kind) {
    struct sum_words f[P_GROUPS];
    if (b->unit_atom < 0) return;
    const u64 *from = b->w.a->words + S_SUMS + which * P_GROUPS * VECTOR_WORDS +
                      (b->unit_tile * ATOMS + b->unit_atom) * TILE_WORDS + b->w.lane * 2;
    u32 polls = 0;
    UNROLL
    for (int g = 0; g < P_GROUPS; g++)
        f[g].low = f[g].high = (u64)~b->w.epoch << 48;
    NO_UNROLL
    for (;;) {
        int ok = 1;
        UNROLL
        for (int g = 0; g < P_GROUPS; g++)
            if (!sum_there(b, &f[g])) word_load2(from + g * VECTOR_WORDS, &f[g].low, &f[g].high);
        UNROLL
        for (int g = 0; g < P_GROUPS; g++)
            ok &= sum_there(b, &f[g]);
        if (warp_all(ok | b->w.dead)) break;
        wait_failed(&b->w, &polls, kind, b->w.epoch & 0xffffu, (u32)(f[0].low >> 48));
    }
    UNROLL
    for (int g = 0; g < P_GROUPS; g++) {
        b->h[0] += float24_low(f[g].low), b->h[1] += float24_high(f[g].low);
        b->h[2] += float24_low(f[g].high), b->h[3] += float24_high(f[g].high);
    }
}

/* Stores a word of h on all GPUs. `to` is its place on this one. */
DEV void h_store(const struct short_worker *b, u32 *to, u32 word) {
#if P_GPUS > 1
    const struct prefill_args *a = b->a;
    UNROLL
    for (int g = 0; g < P_GPUS; g++) /* h lies as far from parts on all */
        plain_store32((u32 *)((u8 *)to + ((u8 *)a->parts[g] - (u8 *)a->parts[a->gpus.gpu])), word);
#else
    (void)b, plain_store32(to, word);
#endif
}
/* Writes h to memory, where the head finds it. */
DEV void unit_store(const struct short_worker *b) {
    UNROLL
    for (int i = 0; i < 4; i++) {
        const int token = unit_token(b) + i % 2;
        u32 *to = (u32 *)b->a->h + (size_t)token * M_HIDDEN + unit_column(b) + i / 2 * 8;
        if (b->unit_atom >= 0 && token < b->n_tokens) h_store(b, to, float_bits(b->h[i]));
    }
}

#if P_TAPS
/* Leaves the unit's part of the taps in front of a layer. */
DEV void unit_taps(const struct short_worker *b, int layer) {
    float *taps = b->w.a->taps;
    if (b->unit_atom < 0 || !taps || !tap_is(layer)) return;
    UNROLL
    for (int i = 0; i < 4; i++) {
        const int token = unit_token(b) + i % 2;
        if (token < b->n_tokens)
            tap_store(taps + (size_t)token * ARGS_TAPS * M_HIDDEN, layer, unit_column(b) + i / 2 * 8, b->h[i]);
    }
}
#endif

/* ---- layers ---- */

/* PHASE_TAKE takes a phase's first weights into registers before its input arrives. Wide runs take none: they read
 * weights where these lie. PHASE_READ does the rest of the phase. */
#define PHASE_TAKE(b, t, wide, S)                                                                                      \
    do {                                                                                                               \
        if (!(wide)) tiles_take(&(b)->w, t, PRELOAD(S), ALL_SCALED, P_##S##_FORMAT, 0, 0);                             \
    } while (0)
#define SEGMENT(S) P_##S##_WARP_ROWS, P_##S##_WARP_K, P_##S##_K_PARTS, P_##S##_ROW_TILES, P_##S##_HALF, P_##S##_FORMAT
#define PHASE_READ(b, t, wide, S)                                                                                      \
    do {                                                                                                               \
        if (wide)                                                                                                      \
            wide_read(b, TAPE_##S, SEGMENT(S));                                                                        \
        else                                                                                                           \
            narrow_read(b, TAPE_##S, t, PRELOAD(S), SEGMENT(S));                                                       \
    } while (0)

DEV void layer_read(struct short_worker *b, int layer, const int wide) {
    const float *norms = b->w.a->norms + (size_t)2 * layer * M_HIDDEN;
    struct held t[PRELOAD_TILES];
    struct unit_gains gains;
    b->w.layer = layer;
    short_worker_anew(b);
    PHASE_TAKE(b, t, wide, QKV);
    PHASE_READ(b, t, wide, QKV);
    short_worker_anew(b);
    PHASE_TAKE(b, t, wide, OUT);
    attention_read(b);
    gains = unit_gains_load(b, norms + M_HIDDEN);
    PHASE_READ(b, t, wide, OUT);
    short_worker_anew(b);
    unit_add(b, 0, WAIT_OUT_SUM);
    unit_publish(b, &gains, 1);
    PHASE_TAKE(b, t, wide, GATE_UP);
    PHASE_READ(b, t, wide, GATE_UP);
    short_worker_anew(b);
    PHASE_TAKE(b, t, wide, DOWN);
    gains = unit_gains_load(b, norms + 2 * M_HIDDEN);
    PHASE_READ(b, t, wide, DOWN);
    short_worker_anew(b);
    unit_add(b, 1, WAIT_DOWN_SUM);
#if P_TAPS
    unit_taps(b, layer + 1);
#endif
    b->w.epoch++;
    if (layer + 1 < M_LAYERS) unit_publish(b, &gains, 0);
}

/* Each width has a loop of its own. In a common loop, what a phase does in one way would hold registers while it does
 * the other. */
DEV void short_read(struct short_worker *b) {
    struct unit_gains gains;
    unit_embed(b);
    gains = unit_gains_load(b, b->w.a->norms);
    unit_publish(b, &gains, 0);
    if (ATOMS <= PAIR || b->atoms <= PAIR) {
        NO_UNROLL
        for (int layer = 0; layer < M_LAYERS; layer++)
            layer_read(b, layer, 0);
    } else {
        NO_UNROLL
        for (int layer = 0; layer < M_LAYERS; layer++)
            layer_read(b, layer, 1);
    }
    unit_store(b);
    if (b->w.dead) shared_store(smem_of(&b->w.s->end), 1); /* the producer may wait for room that nobody makes */
}

/* The producer brings the layers of the block's tape. It fetches the beginning of the head into the L2 only, where
 * the next launch finds it. */
enum { HEAD_AHEAD = 192 << 10 };
DEV void short_produce(struct worker *w) {
    struct weight_stream p;
    if (w->lane >= FILL_LANES) return;
    stream_start(w, &p);
    p.src = w->a->tape + (u64)w->block * P_SM_BYTES;
    for (int layer = 0, go = 1; layer < M_LAYERS && go; layer++)
        go = STREAM_SEGMENT(w, &p, QKV) && STREAM_SEGMENT(w, &p, OUT) && STREAM_SEGMENT(w, &p, GATE_UP) &&
             STREAM_SEGMENT(w, &p, DOWN);
    stream_drain(&p);
    if (!w->dead) l2_prefetch(p.src, P_HEAD_BYTES < HEAD_AHEAD ? P_HEAD_BYTES : HEAD_AHEAD);
}

DEV void short_worker_make(struct short_worker *b, const struct prefill_args *args, const struct gpu_args *gpus) {
    u8 *base = shared_base();
    struct worker *w = &b->w;
    b->a = args, w->a = &args->decode;
    w->ring = base, w->s = (struct block_shared *)(base + RING_BYTES);
    /* The value comes out of a shuffle: otherwise the compiler would read the special register again at every use. */
    const int thread = (int)shuffle_xor(thread_index(), 0);
    w->warp = thread / LANES, w->lane = thread % LANES;
    w->block = (int)shuffle_xor(block_index(), 0);
#if P_GPUS > 1
    w->block += (int)shuffle_xor((u32)gpus->gpu, 0) * GPU_SMS;
#else
    (void)gpus;
#endif
    w->group = w->block / P_GROUP_SMS, w->member = w->block % P_GROUP_SMS;
    w->full = smem_of(w->s->full), w->empty = smem_of(w->s->empty);
    w->slot = 0, w->parity = 0;
    w->epoch = args->decode.epoch;
    w->token = 0, w->layer = 0, w->dead = 0;
    w->zero = args->decode.patience >> 31;
    b->n_tokens = args->decode.n_tokens;
    b->atoms = (b->n_tokens + ATOM_TOKENS - 1) / ATOM_TOKENS;
    b->padded = b->atoms <= PAIR ? b->atoms : (b->atoms + WIDE - 1) / WIDE * WIDE;
    b->turn = 0;
}

/* All of a launch. gpus: as the kernel's parameter, with several GPUs. */
DEV void short_launch(const struct prefill_args *args, const struct gpu_args *gpus) {
    struct short_worker b;
    short_worker_make(&b, args, gpus);
#if defined(T_ABSENT)
    if (b.w.block == T_ABSENT) return; /* a fault on purpose: everybody else waits for this block */
#endif
    if (thread_index() == 0) {
        for (int i = 0; i < RING_SLOTS; i++)
            mbar_init(&b.w.s->full[i], FILL_LANES), mbar_init(&b.w.s->empty[i], P_WARPS);
        caps_start(&b.w);
        b.w.s->end = 0;
        mbar_init_done();
    }
#if P_GPUS > 1
    gpus_keep(b.w.s, gpus);
#endif
    attention_prepare(&b);
    block_sync();
    if (b.w.warp < P_WARPS) {
        REGISTERS_TAKE(P_REGISTERS_CONSUMER);
        short_read(&b);
    } else {
        REGISTERS_GIVE(P_REGISTERS_OTHER);
        if (b.w.warp == P_WARPS) short_produce(&b.w); /* decoding's epilogue warps only fill the warpgroup here */
    }
}

#endif
