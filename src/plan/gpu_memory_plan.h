/* How much memory a model and a session need on a GPU, before anything is allocated. */
#ifndef REEL_PLAN_GPU_MEMORY_PLAN_H
#define REEL_PLAN_GPU_MEMORY_PLAN_H

#include "plan/plan.h"

struct gpu_memory_plan {
    int context;              /* positions */
    uint64_t tape_bytes;      /* of all SMs, padding included */
    uint64_t embedding_bytes; /* bf16, 0 when tied: rows are looked up in the tapes */
    uint64_t norm_bytes;    /* f32 gains and rotation frequencies; a DeltaNet's gates, taps, ... */
    uint64_t word_bytes;    /* exchange memory */
    uint64_t prefill_bytes; /* scratch of launches that read prompts, and their words */
    uint64_t encoder_bytes; /* the audio tower: weights and scratch */
    uint64_t staging_bytes; /* while loading, given back before the first session */
    uint64_t session_bytes; /* of one session besides its KV cache and */
    uint64_t state_bytes;   /* its recurrent state with those that are kept; or 0 */
    uint64_t kv_position_bytes;
    uint64_t kv_bytes;    /* of `context` positions, in pieces of 16 */
    uint64_t total_bytes; /* weights and one session, or loading when that is more */
    int most_context;     /* positions that fit into the GPU's memory; 0: not one, or unknown */
};

/* context 0: the model's. Weights and sessions are as src/cuda makes them. */
void gpu_memory_plan_fill(struct gpu_memory_plan *m, const struct plan *plan,
                          const struct model_config *config, int context);

#endif
