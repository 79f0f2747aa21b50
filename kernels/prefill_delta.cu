/* Reading a prompt: the steps of Gated DeltaNets. They lie between the products of prefill.cu in the same queue of
 * launches. */
#define PROMPT_QUEUE 1
#include "prefill_delta_answer.cuh"
#include "prefill_delta_chain.cuh"
#include "prefill_delta_chunk.cuh"
#include "prefill_delta_conv.cuh"

STATIC_ASSERT(PREFILL_BYTES == P_PREFILL_SHARED, "the plan counts shared memory of chain otherwise");
STATIC_ASSERT(MAX(sizeof(struct chunk_shared), sizeof(struct answer_shared)) + STAGE_ALIGN == P_PREFILL_CHUNK,
              "the plan counts shared memory of chunk and answer otherwise");

PAIR_KERNEL(READ_CONSUMERS) prefill_conv(const PARAMETER struct prefill_args args, int phase, int layer) {
    struct prompt_worker r;
    (void)phase;
    next_may_start();
    prompt_worker_make(&r, &args, layer, 0);
    struct tap_share taps;
    conv_begin(&r, layer, &taps);
    previous_over();
    conv_phase(&r, (struct conv_shared *)r.s, layer, &taps);
}

KERNEL(READ_CONSUMERS) prefill_chunk(const PARAMETER struct prefill_args args, int phase, int layer) {
    struct prompt_worker r;
    (void)phase;
    next_may_start();
    prompt_worker_make(&r, &args, layer, 0);
    struct chunk_shared *s = (struct chunk_shared *)r.s;
    copies_start(&s->full, CHUNK_COPIES);
    chunk_phase(&r, s);
}

KERNEL(READ_THREADS) prefill_chain(const PARAMETER struct prefill_args args, int phase, int layer) {
    struct prompt_worker r;
    (void)phase;
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

KERNEL(READ_CONSUMERS) prefill_answer(const PARAMETER struct prefill_args args, int phase, int layer) {
    struct prompt_worker r;
    (void)phase;
    next_may_start();
    prompt_worker_make(&r, &args, layer, 0);
    struct answer_shared *s = (struct answer_shared *)r.s;
    copies_start(&s->full, ANSWER_COPIES);
    answer_phase(&r, layer, s);
}
