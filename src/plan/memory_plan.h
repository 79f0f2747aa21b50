/* How much memory a model needs on a CPU, before anything is allocated. `inspect` prints it, and
 * a session gets its context length by it when nobody names one. */
#ifndef REEL_PLAN_MEMORY_PLAN_H
#define REEL_PLAN_MEMORY_PLAN_H

#include "model/weights.h"

/* Positions a prefill evaluates together; scratch is sized for that many. */
#define MEMORY_PLAN_CHUNK 512

/* Earlier recurrent states that a session keeps, to go back to (runtime/backend.h, resume). */
#define MEMORY_PLAN_CHECKPOINTS 4

struct memory_plan {
    int context;                      /* positions */
    uint64_t weight_bytes;            /* as stored: pages of the mapped file */
    uint64_t owned_bytes;             /* norms and reordered rows, copied out of the file */
    uint64_t kv_position_bytes;       /* bf16 K and V of one position in all attention layers */
    uint64_t kv_codes_position_bytes; /* the same in int8 or fp8, with their scales */
    uint64_t kv_bytes;                /* of `context` positions */
    uint64_t state_bytes;             /* recurrent state and its checkpoints; 0: no such layers */
    uint64_t scratch_bytes;           /* f32 activations of one chunk, and one row of logits */
    uint64_t total_bytes;
    uint64_t token_bytes;      /* weight bytes that decoding one token reads, as stored */
    uint64_t token_bytes_bf16; /* the same where every weight has been made bf16 */
};

void memory_plan_fill(struct memory_plan *plan, const struct model_config *config,
                      const struct weights *weights, int context);

/* Bytes of one recurrent state, f32: matrices and convolution windows of all DeltaNet layers. */
uint64_t memory_plan_recurrent_bytes(const struct model_config *config);

/* The context a session gets by default: max_context, or as many positions as fit into three
 * quarters of the available bytes that fixed_bytes leave, in steps of 256 and never below 256 (or
 * max_context). available_bytes 0 means unknown: at most 4096. */
int memory_plan_context(int max_context, uint64_t fixed_bytes, uint64_t position_bytes,
                        uint64_t available_bytes);

#endif
