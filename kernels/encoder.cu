/* The audio tower of a speech model turns log-mel frames into vectors, by a queue of launches:
 *
 *   [stem, conv2, conv3] a few chunks at a time; conv_out;
 *   [norm, qkv, attention, out, norm, fc1, fc2] x layers; norm, proj1, proj2
 *
 * A chunk is 100 frames (encoder_layout.h). Products are computed as those of prompts are (prefill_items.cuh). A
 * launch writes its results where the next one reads them. */
#include "encoder_attention.cuh"
#include "encoder_stem.cuh"

STATIC_ASSERT(PREFILL_BYTES == P_PREFILL_SHARED, "the plan counts shared memory of the tower otherwise");

DEV void tower_reader(struct prompt_worker *r, const struct encoder_args *a, int layer) {
    next_may_start();
    prompt_worker_make(r, &a->base, layer, 0);
    previous_over();
}

/* Returns 1 to consumers, which may then begin. To the other warps it returns 0 when they have nothing left to do. */
DEV int tower_start(struct prompt_worker *r, const struct encoder_args *a, int phase, int layer, int blocks, int rows) {
    prompt_worker_start(r, &a->base, layer, P_PREFILL_STAGES);
    r->k_tiles = product_k_tiles(phase);
    if (r->w.warp < READ_WARPS) {
        READERS_TAKE();
        return 1;
    }
    READERS_GIVE();
    if (r->w.warp == READ_WARPS) {
        previous_over();
        fence_copies();
        if (r->w.lane < FILL_LANES) wide_produce(r, phase, blocks, rows, 0);
        stages_drain(r);
    }
    return 0;
}

KERNEL(READ_THREADS) encoder_halves(const PARAMETER struct encoder_args args, int phase, int layer) {
    struct prompt_worker r;
    if (tower_start(&r, &args, phase, layer, 1, 4)) wide_items(&r, phase, layer, 1, 1, A_FORMAT);
}
KERNEL(READ_THREADS) encoder_wide1(const PARAMETER struct encoder_args args, int phase, int layer) {
    struct prompt_worker r;
    if (tower_start(&r, &args, phase, layer, 1, 8)) wide_items(&r, phase, layer, 1, 0, A_FORMAT);
}
KERNEL(READ_THREADS) encoder_wide2(const PARAMETER struct encoder_args args, int phase, int layer) {
    struct prompt_worker r;
    if (tower_start(&r, &args, phase, layer, 2, 8)) wide_items(&r, phase, layer, 2, 0, A_FORMAT);
}

KERNEL(READ_CONSUMERS) encoder_stem(const PARAMETER struct encoder_args args, int phase, int layer) {
    struct prompt_worker r;
    (void)phase;
    tower_reader(&r, &args, layer);
    stem_phase(&r);
}
KERNEL(READ_CONSUMERS) encoder_norm(const PARAMETER struct encoder_args args, int phase, int layer) {
    struct prompt_worker r;
    tower_reader(&r, &args, layer);
    norm_phase(&r, phase, layer);
}
KERNEL(READ_CONSUMERS) encoder_attention(const PARAMETER struct encoder_args args, int phase, int layer) {
    struct prompt_worker r;
    (void)phase;
    tower_reader(&r, &args, layer);
    attention_phase(&r);
}
