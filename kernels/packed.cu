/* Reads packed texts: what differs from the launches of prefill.cu where a chunk holds many whole texts and not a part
 * of one. Each text begins at position 0 and is blind to the others, though all lie in the same cache. The products,
 * embed and end are those of prefill.cu.
 *
 *   embed, [qkv, packed_rope, packed_attention, out, gate_up, down] x layers, packed_vectors, end */
#define PACKED 1
#include "prefill_attention.cuh"
#include "product.cuh"

KERNEL(READ_CONSUMERS) packed_rope(const PARAMETER struct packed_args args, int phase, int layer) {
    struct prompt_worker r;
    (void)phase;
    next_may_start();
    prompt_worker_make(&r, &args.prefill, layer, 0);
    rope_phase(&r, layer);
}

KERNEL(READ_THREADS) packed_attention(const PARAMETER struct packed_args args, int phase, int layer) {
    struct prompt_worker r;
    (void)phase;
    prompt_worker_start(&r, &args.prefill, layer, P_PREFILL_STAGES);
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

/* The scale of the final norm of h, f32 [M_HIDDEN]. One warp adds up the squares in the order in which the warps of the
 * decode kernel do (ssq_store, norm_scale), so that both give the same bits. */
DEV float row_scale(const float *h, int lane) {
    struct ALIGN(16) sums {
        float of_warp[P_WARPS];
    } sums;
    UNROLL
    for (int warp = 0; warp < P_WARPS; warp++) {
        float sum = 0;
        UNROLL
        for (int i = 0; i < SLICE; i++) {
            const int word = i * LANES + lane, pair = warp * SLICE_WORDS + word;
            const int have = word < SLICE_WORDS && pair < M_HIDDEN / 2;
            const u32 *from = (const u32 *)h + 2 * (have ? pair : 0);
            const float low = have ? bits_float(cached_load32(from)) : 0;
            const float high = have ? bits_float(cached_load32(from + 1)) : 0;
            sum += low * low;
            sum += high * high;
        }
        sums.of_warp[warp] = xor_sum(sum, 1, LANES);
    }
    return norm_scale(sums.of_warp);
}

/* packed_vectors: the final norm of each text's last token.
 *   reads    h at `lasts`; the final norm's gains
 *   writes   vectors, f32 [n_texts, M_HIDDEN], straight to the host's memory: whole lines of 512 bytes a warp
 *   split    texts over the warps of all blocks; must equal hidden_leave (phase_head.cuh) to the bit */
KERNEL(READ_CONSUMERS) packed_vectors(const PARAMETER struct packed_args args, int phase, int layer) {
    const float *gain = args.prefill.decode.norms + (size_t)2 * M_LAYERS * M_HIDDEN;
    const int lane = (int)(thread_index() % LANES), warps = (int)block_count() * READ_WARPS;
    const int first = (int)block_index() * READ_WARPS + (int)(thread_index() / LANES);
    (void)phase, (void)layer;
    next_may_start();
    previous_over();
    NO_UNROLL
    for (int text = first; text < args.n_texts; text += warps) {
        const int last = (int)const_load32((const u32 *)args.lasts + text);
        const float *h = args.prefill.h + (size_t)last * M_HIDDEN;
        struct quad *to = (struct quad *)(args.vectors + (size_t)text * M_HIDDEN);
        const float scale = row_scale(h, lane);
        NO_UNROLL
        for (int i = lane; i < M_HIDDEN / 4; i += LANES) {
            const struct quad v = cached_load128((const struct quad *)h + i);
            const float *g = gain + 4 * i;
            struct quad y;
            y.x = float_bits(bits_float(v.x) * const_loadf(g) * scale);
            y.y = float_bits(bits_float(v.y) * const_loadf(g + 1) * scale);
            y.z = float_bits(bits_float(v.z) * const_loadf(g + 2) * scale);
            y.w = float_bits(bits_float(v.w) * const_loadf(g + 3) * scale);
            plain_store128(to + i, y);
        }
    }
}
