/* The steps of a prompt's Gated DeltaNet by themselves, between what the product of mix left and
 * what that of out reads. */
#include "prefill_delta_answer.cuh"
#include "prefill_delta_chain.cuh"
#include "prefill_delta_chunk.cuh"
#include "prefill_delta_conv.cuh"

KERNEL(READ_CONSUMERS) conv(const PARAMETER struct prefill_args args, int layer) {
    struct prompt_worker r;
    prompt_worker_make(&r, &args, layer, 0);
    struct tap_share taps;
    conv_begin(&r, layer, &taps);
    previous_over();
    conv_phase(&r, (struct conv_shared *)r.s, layer, &taps);
}

KERNEL(READ_CONSUMERS) chunk(const PARAMETER struct prefill_args args, int layer) {
    struct prompt_worker r;
    (void)layer;
    prompt_worker_make(&r, &args, layer, 0);
    struct chunk_shared *s = (struct chunk_shared *)r.s;
    copies_start(&s->full, CHUNK_COPIES);
    chunk_phase(&r, s);
}

KERNEL(READ_THREADS) chain(const PARAMETER struct prefill_args args, int layer) {
    struct prompt_worker r;
    prompt_worker_start(&r, &args, layer, P_PREFILL_STAGES);
    previous_over();
    if (r.w.warp < READ_WARPS) {
        chain_phase(&r, layer);
    } else if (r.w.warp == READ_WARPS) {
        fence_copies();
        chain_produce(&r);
        stages_drain(&r);
    }
}

KERNEL(READ_CONSUMERS) answer(const PARAMETER struct prefill_args args, int layer) {
    struct prompt_worker r;
    prompt_worker_make(&r, &args, layer, 0);
    struct answer_shared *s = (struct answer_shared *)r.s;
    copies_start(&s->full, ANSWER_COPIES);
    answer_phase(&r, layer, s);
}
