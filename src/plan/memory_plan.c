#include "plan/memory_plan.h"

/* Config limits (model_config.h) keep every product here far below 2^64. */
static uint64_t scratch(const struct model_config *c) {
    uint64_t q_dim = (uint64_t)c->n_heads * (uint64_t)c->head_dim;
    uint64_t kv_dim = (uint64_t)c->n_kv_heads * (uint64_t)c->head_dim;
    uint64_t attention = 2 * q_dim + 2 * kv_dim + (c->gated_attention ? q_dim : 0);
    uint64_t delta = (uint64_t)model_delta_channels(c) + 2 * (uint64_t)model_delta_width(c);
    uint64_t row = 3 * (uint64_t)c->hidden + (attention > delta ? attention : delta) +
                   2 * (uint64_t)c->intermediate;
    return (row * MEMORY_PLAN_CHUNK + (uint64_t)c->vocab) * sizeof(float);
}

static uint64_t matrix_bytes(const struct matrix *m) { return (uint64_t)m->rows * m->row_bytes; }

uint64_t memory_plan_recurrent_bytes(const struct model_config *c) {
    uint64_t matrices = (uint64_t)model_delta_width(c) * (uint64_t)c->delta.key_dim;
    uint64_t window = c->delta.conv_width ? (uint64_t)(c->delta.conv_width - 1) : 0;
    return (matrices + window * (uint64_t)model_delta_channels(c)) * sizeof(float) *
           (uint64_t)model_layer_count(c, LAYER_DELTA);
}

void memory_plan_fill(struct memory_plan *plan, const struct model_config *config,
                      const struct weights *weights, int context) {
    uint64_t kv_dim = (uint64_t)config->n_kv_heads * (uint64_t)config->head_dim;
    uint64_t kv_layers = (uint64_t)model_layer_count(config, LAYER_ATTENTION);
    *plan = (struct memory_plan){
        .context = context,
        .weight_bytes = weights->n_bytes,
        .owned_bytes =
            weights->owned_bytes + weights->audio.owned_bytes + weights->coded.owned_bytes,
        .kv_position_bytes = 2 * kv_dim * sizeof(uint16_t) * kv_layers,
        .kv_codes_position_bytes =
            2 * (kv_dim + (uint64_t)config->n_kv_heads * sizeof(float)) * kv_layers,
        .state_bytes = memory_plan_recurrent_bytes(config) * (1 + MEMORY_PLAN_CHECKPOINTS),
        .scratch_bytes = scratch(config)
    };
    plan->kv_bytes = plan->kv_position_bytes * (uint64_t)context;
    plan->total_bytes = plan->weight_bytes + plan->owned_bytes + plan->kv_bytes +
                        plan->state_bytes + plan->scratch_bytes;
    /* decoding reads all of the language model but the embedding, of which it reads one row; a
     * tied embedding is the head too and is read whole */
    const struct matrix *embedding = &weights->embedding;
    plan->token_bytes = weights->n_bytes - weights->audio.n_bytes;
    if (!config->tied) plan->token_bytes -= matrix_bytes(embedding) - embedding->row_bytes;
    plan->token_bytes_bf16 = 2 * (weights->n_parameters - weights->audio.n_parameters);
    if (!config->tied)
        plan->token_bytes_bf16 -=
            2 * (uint64_t)(embedding->rows - 1) * (uint64_t)embedding->columns;
}

int memory_plan_context(int max_context, uint64_t fixed_bytes, uint64_t position_bytes,
                        uint64_t available_bytes) {
    enum { STEP = 256, UNKNOWN = 4096 };
    if (available_bytes == 0) return max_context < UNKNOWN ? max_context : UNKNOWN;
    uint64_t left = available_bytes > fixed_bytes ? available_bytes - fixed_bytes : 0;
    uint64_t n = position_bytes ? left / 4 * 3 / position_bytes : (uint64_t)max_context;
    if (n >= (uint64_t)max_context) return max_context;
    n = n / STEP * STEP;
    if (n < STEP) n = STEP;
    return n < (uint64_t)max_context ? (int)n : max_context;
}
