/* Reads a prompt: one launch takes up to P_PREFILL_TOKENS tokens through all layers and leaves their K
 * and V in the session's cache and the residual stream in a->h. All blocks resident, one an SM; every
 * SM of the GPU takes part, whatever the tapes' plan. */
#include "phase_embed.cuh"
#include "prefill_attention.cuh"
#include "prefill_product.cuh"

/* Embeddings to h; x and ssq for the first norm. A warp a token. */
DEV void embed_phase(struct reader *r) {
    const struct decode_args *a = r->w.a;
    for (int t = r->w.block * READ_WARPS + r->w.warp; t < a->n_tokens; t += (int)block_count() * READ_WARPS) {
        const u32 id = a->ids ? const_load32((const u32 *)a->ids + t) : 0;
        float sum = 0;
        UNROLL_BY(4)
        for (int pair = r->w.lane; pair < M_HIDDEN / 2; pair += LANES) {
            float low, high;
            if (a->embeddings) {
                const float *e = a->embeddings + (size_t)t * M_HIDDEN + 2 * pair;
                low = const_loadf(e), high = const_loadf(e + 1);
            } else {
                const u32 both = embedding_pair(a, id, pair);
                low = bf16_low(both), high = bf16_high(both);
            }
            u32 *h = (u32 *)r->a->h + (size_t)t * M_HIDDEN + 2 * pair;
            plain_store32(h, float_bits(low)), plain_store32(h + 1, float_bits(high));
            sum += low * low + high * high;
            const float *gain = a->norms + 2 * pair;
            activation_store(r->a->x, t, 2 * pair, bf16_pair(low * const_loadf(gain), high * const_loadf(gain + 1)));
        }
        sum = xor_sum(sum, 1, LANES);
        for (int slot = r->w.lane; slot < SSQ_SLOTS; slot += LANES)
            plain_store32((u32 *)r->a->ssq + (size_t)slot * P_PREFILL_TOKENS + t, float_bits(slot ? 0 : sum));
    }
}

/* The steps of a layer. */
enum { STEP_QKV, STEP_ROPE, STEP_ATTENTION, STEP_OUT, STEP_GATE_UP, STEP_DOWN, STEPS };
DEV int step_phase(int step) {
    return step == STEP_QKV ? TAPE_QKV : step == STEP_OUT ? TAPE_OUT : step == STEP_GATE_UP ? TAPE_GATE_UP : TAPE_DOWN;
}

DEV void consume(struct reader *r) {
    embed_phase(r);
    phase_end(r);
    NO_UNROLL
    for (int layer = 0; layer < r->a->layers; layer++) {
        r->w.layer = layer;
        NO_UNROLL
        for (int step = 0; step < STEPS; step++) {
            if (step == STEP_ROPE || step == STEP_ATTENTION) {
                phase_wait(r);
                if (step == STEP_ROPE)
                    rope_phase(r, layer);
                else
                    attention_phase(r, layer);
            } else {
                product_phase(r, step_phase(step), layer);
            }
            phase_end(r);
        }
    }
    phase_wait(r);
}

DEV void produce(struct reader *r) {
    for (int layer = 0; layer < r->a->layers; layer++) {
        r->w.layer = layer;
        NO_UNROLL
        for (int step = 0; step < STEPS; step++) {
            phase_follow(r);
            if (step == STEP_ATTENTION)
                attention_produce(r, layer);
            else if (step != STEP_ROPE)
                product_produce(r, step_phase(step));
            r->stage = (int)shuffle((u32)r->stage, 0), r->parity = shuffle(r->parity, 0);
            r->first_lap = (int)shuffle((u32)r->first_lap, 0);
            lanes_agree(&r->w);
        }
    }
}

/* Leaves with nothing in flight: a launch that gave up may have copies on their way to a slot that nobody
 * waits for. */
DEV void stages_drain(struct reader *r) {
    if (r->w.lane) return;
    for (int i = 0; i < P_PREFILL_STAGES; i++) {
        const int lap_before = i >= r->stage; /* slots from `stage` on were last filled a lap ago */
        if (lap_before && r->first_lap) continue;
        while (!mbar_test(smem_of(&r->s->full[i]), lap_before ? r->parity ^ 1 : r->parity)) {
        }
    }
}

DEV void host_told(const struct reader *r) {
    struct decode_mailbox *m = r->w.a->mailbox;
    if (r->w.block != 0 || r->w.warp != 0 || r->w.lane != 0 || r->w.dead) return;
    mapped_store32(&m->n_made, 0);
    mapped_store32(&m->n_evaluated, (u32)r->w.a->n_tokens);
    fence_system();
    mapped_store32(&m->end, DECODE_ALL_TOKENS);
}

KERNEL(READ_THREADS) prefill(const PARAMETER struct prefill_args args) {
    struct reader r;
    u8 *base = shared_base();
    base += (1024 - smem_of(base) % 1024) % 1024;
    r.a = &args, r.w.a = &args.decode;
    r.stages = base, r.s = (struct prefill_shared *)(base + P_PREFILL_STAGES * STAGE_BYTES);
    /* out of a shuffle: the compiler knows then that all lanes of a warp go the same way */
    r.w.warp = (int)shuffle(thread_index() / LANES, 0), r.w.lane = (int)(thread_index() % LANES);
    r.w.block = (int)shuffle(block_index(), 0);
#if defined(T_ABSENT)
    if (r.w.block == T_ABSENT) return; /* a fault on purpose: everybody else waits for this block */
#endif
    r.w.token = 0, r.w.layer = 0, r.w.dead = 0;
    r.w.zero = args.decode.patience >> 31;
    r.stage = 0, r.parity = 0, r.first_lap = 1, r.phases = 0;
    if (thread_index() == 0) {
        for (int i = 0; i < P_PREFILL_STAGES; i++)
            mbar_init(&r.s->full[i], STAGE_COPIES * FILL_LANES), mbar_init(&r.s->empty[i], READ_WARPS);
        mbar_init_done();
    }
    block_sync();
    if (r.w.warp < READ_WARPS) {
#if G_WGMMA
        REGISTERS_TAKE(232);
#endif
        consume(&r);
        host_told(&r);
    } else {
#if G_WGMMA
        REGISTERS_GIVE(40);
#endif
        if (r.w.warp == READ_WARPS) {
            produce(&r);
            stages_drain(&r);
        }
    }
}
