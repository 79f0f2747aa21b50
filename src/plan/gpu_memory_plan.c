#include "plan/gpu_memory_plan.h"

#include "base/numbers.h"
#include "kernels/delta_layout.h"
#include "kernels/kv_layout.h"
#include "plan/memory_plan.h"

enum {
    STAGING = 3 * (16 << 20), /* stages of the loader, as tuned by default */
    LOGITS_FLOATS = 2 << 20,  /* or one row, when that is more */
    GIVEN_EMBEDDINGS = 256    /* of one launch */
};

static uint64_t norms(const struct model_config *c) {
    uint64_t floats = (2 * (uint64_t)c->n_layers + 1) * (uint64_t)c->hidden;
    if (c->qk_norm)
        floats += 2 * (uint64_t)model_layer_count(c, LAYER_ATTENTION) * (uint64_t)c->head_dim;
    return (floats + (uint64_t)c->head_dim / 2) * sizeof(float);
}

static uint64_t delta_tables(const struct plan *p) {
    const struct plan_delta *d = &p->delta;
    const struct delta_layout layout = { p->tape.hidden, d->key_heads, d->value_heads,
                                         d->key_dim,     d->value_dim, d->taps };
    if (d->n_layers == 0) return 0;
    return delta_gate(&layout, d->n_layers, 0, 0) * sizeof(uint16_t) +
           (uint64_t)d->n_layers * (uint64_t)delta_constants(&layout) * sizeof(float);
}

/* Logits of a launch, penalty counts, a bias, given embeddings. */
static uint64_t session(const struct model_config *c) {
    uint64_t vocab = (uint64_t)c->vocab, hidden = (uint64_t)c->hidden;
    return (u64_max(u64_max(vocab, hidden), LOGITS_FLOATS) + 2 * vocab +
            GIVEN_EMBEDDINGS * hidden) *
           sizeof(float);
}

void gpu_memory_plan_fill(struct gpu_memory_plan *m, const struct plan *p,
                          const struct model_config *c, int context) {
    if (context <= 0) context = c->max_context;
    uint64_t pieces = (uint64_t)kv_pieces(context);
    *m = (struct gpu_memory_plan){
        .context = context,
        .tape_bytes = p->tape_bytes,
        .embedding_bytes = c->tied ? 0 : (uint64_t)c->vocab * (uint64_t)c->hidden * 2,
        .norm_bytes = norms(c) + delta_tables(p),
        .word_bytes = (uint64_t)p->n_words * 8,
        .prefill_bytes = p->prefill_tokens ? p->scratch.bytes + (uint64_t)p->short_words * 8 : 0,
        .encoder_bytes = p->encoder.bytes,
        .staging_bytes = STAGING,
        .session_bytes = session(c),
        .state_bytes = memory_plan_recurrent_bytes(c) * (1 + MEMORY_PLAN_CHECKPOINTS),
        .kv_position_bytes = p->kv_position_bytes,
        .kv_bytes = pieces * KV_POSITIONS * p->kv_position_bytes,
    };
    uint64_t weights = m->tape_bytes + m->embedding_bytes + m->norm_bytes + m->word_bytes +
                       m->prefill_bytes + m->encoder_bytes;
    uint64_t state = m->session_bytes + m->state_bytes, fixed = weights + state;
    m->total_bytes = weights + u64_max(m->staging_bytes, state + m->kv_bytes);
    if (p->gpu.memory_bytes <= fixed) return;
    uint64_t n =
        (p->gpu.memory_bytes - fixed) / (KV_POSITIONS * m->kv_position_bytes) * KV_POSITIONS;
    m->most_context = n < (uint64_t)c->max_context ? (int)n : c->max_context;
}
