/* A prompt's attention by itself: the steps between qkv, which the host has made, and out. */
#define PACKED 0
#include "prefill_attention.cuh"

KERNEL(READ_CONSUMERS) rope(const PARAMETER struct prefill_args args, int layer) {
    struct prompt_worker r;
    prompt_worker_make(&r, &args, layer, 0);
    rope_phase(&r, layer);
}

KERNEL(READ_THREADS) attention(const PARAMETER struct prefill_args args, int layer) {
    struct prompt_worker r;
    prompt_worker_start(&r, &args, layer, P_PREFILL_STAGES);
    if (r.w.warp < READ_WARPS) {
        attention_phase(&r, layer);
    } else if (r.w.warp == READ_WARPS) {
        attention_produce(&r, layer);
    }
}
