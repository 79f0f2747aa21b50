/* Reads a prompt. A queue of launches takes a chunk (docs/GLOSSARY.md) of up to P_PREFILL_TOKENS tokens through all
 * layers. It leaves their K and V in the session's cache and their residual stream in a->h.
 *
 * Each kind of step and of cut (docs/GLOSSARY.md) has a kernel of its own. In one kernel they would share their
 * registers, and spill. */
#define PACKED       0
#define PROMPT_QUEUE 1
#include "mma.cuh"
#include "phase_embed.cuh"
#include "prefill_attention.cuh"
#include "prefill_product.cuh"

STATIC_ASSERT(PREFILL_BYTES == P_PREFILL_SHARED, "the plan counts shared memory of prefill otherwise");

/* Writes the tokens' embeddings to h, and x and ssq for the first norm. Each warp makes one token at a time. */
DEV void embed_phase(struct prompt_worker *r) {
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
                const u32 both = NARROW_EMBEDDING ? 0 : embedding_pair(&r->w, a, id, pair);
                low = bf16_low(both), high = bf16_high(both);
                if (NARROW_EMBEDDING) {
                    float two[2];
                    embedding_two(&r->w, a, id, pair, two);
                    low = two[0], high = two[1];
                }
            }
            u32 *h = (u32 *)r->a->h + (size_t)t * M_HIDDEN + 2 * pair;
            plain_store32(h, float_bits(low)), plain_store32(h + 1, float_bits(high));
            sum += low * low + high * high;
            const float *gain = a->norms + 2 * pair;
            const float a0 = low * const_loadf(gain), a1 = high * const_loadf(gain + 1);
            const u32 both = bf16_pair(a0, a1);
            activation_store(r, r->a->x, t, 2 * pair, both);
            activation_store(r, r->a->x, t, X_LOW_COLUMN + 2 * pair, bf16_rest(both, a0, a1));
        }
        sum = xor_sum(sum, 1, LANES);
        for (int slot = r->w.lane; slot < SSQ_SLOTS; slot += LANES)
            plain_store32((u32 *)r->a->ssq + (size_t)slot * P_PREFILL_TOKENS + t, float_bits(slot ? 0 : sum));
    }
}

KERNEL(READ_CONSUMERS) prefill_embed(const PARAMETER struct prefill_args args, int phase, int layer) {
    struct prompt_worker r;
    (void)phase;
    next_may_start();
    prompt_worker_make(&r, &args, layer, 0);
    previous_over();
    embed_phase(&r);
}

/* Starts a block of a product. A consumer warp gets 1 and may begin its items. The other warps get 0: their part is
 * over then, since the producer fills all stages before it returns. */
DEV int product_start(struct prompt_worker *r, const struct prefill_args *a, int phase, int layer) {
    prompt_worker_start(r, a, layer, P_PREFILL_STAGES);
    if (r->w.warp < READ_WARPS) {
        READERS_TAKE();
        k_places_make(r, phase);
        readers_sync();
        return 1;
    }
    READERS_GIVE();
    if (r->w.warp == READ_WARPS) {
        product_produce(r, phase);
        stages_drain(r);
    }
    return 0;
}

KERNEL(READ_THREADS) prefill_thin(const PARAMETER struct prefill_args args, int phase, int layer) {
    struct prompt_worker r;
    if (!product_start(&r, &args, phase, layer)) return;
#define ITEMS(format) thin_items(&r, phase, layer, format)
    BY_FORMAT(phase, ITEMS);
#undef ITEMS
}
KERNEL(READ_THREADS) prefill_halves(const PARAMETER struct prefill_args args, int phase, int layer) {
    struct prompt_worker r;
    if (!product_start(&r, &args, phase, layer)) return;
#define ITEMS(format) wide_items(&r, phase, layer, 1, 1, format)
    BY_FORMAT(phase, ITEMS);
#undef ITEMS
}
KERNEL(READ_THREADS) prefill_wide1(const PARAMETER struct prefill_args args, int phase, int layer) {
    struct prompt_worker r;
    if (!product_start(&r, &args, phase, layer)) return;
#define ITEMS(format) wide_items(&r, phase, layer, 1, 0, format)
    BY_FORMAT(phase, ITEMS);
#undef ITEMS
}
KERNEL(READ_THREADS) prefill_wide2(const PARAMETER struct prefill_args args, int phase, int layer) {
    struct prompt_worker r;
    if (!product_start(&r, &args, phase, layer)) return;
#define ITEMS(format) wide_items(&r, phase, layer, 2, 0, format)
    BY_FORMAT(phase, ITEMS);
#undef ITEMS
}

KERNEL(READ_CONSUMERS) prefill_rope(const PARAMETER struct prefill_args args, int phase, int layer) {
    struct prompt_worker r;
    (void)phase;
    next_may_start();
    prompt_worker_make(&r, &args, layer, 0);
    rope_phase(&r, layer);
}

KERNEL(READ_THREADS) prefill_attention(const PARAMETER struct prefill_args args, int phase, int layer) {
    struct prompt_worker r;
    (void)phase;
    prompt_worker_start(&r, &args, layer, P_PREFILL_STAGES);
    previous_over();
    if (r.w.warp < READ_WARPS) {
        ATTENTION_TAKE();
        attention_phase(&r, layer);
    } else {
        ATTENTION_GIVE();
        if (r.w.warp == READ_WARPS) {
            fence_copies();
            attention_produce(&r, layer);
            stages_drain(&r);
        }
    }
}

/* Launched with several GPUs alone. */
KERNEL(READ_CONSUMERS) prefill_join(const PARAMETER struct prefill_args args, int phase, int layer) {
#if P_GPUS > 1
    struct prompt_worker r;
    next_may_start();
    prompt_worker_make(&r, &args, layer, 0);
    previous_over();
    join_item(&r, phase, layer);
#else
    (void)args, (void)phase, (void)layer;
#endif
}

/* One block of one warp waits for all launches before it and tells the host that the tokens are evaluated. Where a
 * launch gave up, this kernel writes nothing. */
KERNEL(LANES) prefill_end(const PARAMETER struct prefill_args args, int phase, int layer) {
    struct decode_mailbox *m = args.decode.mailbox;
    (void)phase, (void)layer;
#if P_GPUS > 1
    if (args.gpus.gpu != 0) return;
#endif
    previous_over();
    if (thread_index() != 0 || plain_load32(args.decode.abort) != ABORT_NONE) return;
    mapped_store32(&m->n_made, 0);
    mapped_store32(&m->n_evaluated, (u32)args.decode.n_tokens);
    fence_system();
    mapped_store32(&m->end, DECODE_ALL_TOKENS);
}
