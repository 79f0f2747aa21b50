/* Short prompts: how many tokens one launch of kernels/short.cu takes through all layers, its
 * shared memory and its exchange words. Blocks, tapes and their cuts are those of decoding. */
#include "base/numbers.h"
#include "kernels/short_layout.h"
#include "plan/plan_layout.h"

enum {
    MOST_RING = 128 << 10, /* of weights; beyond this nothing is left to hide */
    MOST_SLOTS = 32,       /* a lane of a warp for each */
    LEAST_SLOTS = 4,
    SPARE_BYTES = 384,                    /* as in plan_layout.c */
    MOST_LAYERS = 255 - PLAN_SHORT_EPOCHS /* 8 bits tell their epochs apart */
};

static int hidden_tiles(const struct plan *p) { return plan_ceil(p->tape.hidden, TILE_K); }

/* ---- shared memory --------------------------------------------------------------------------- */

int plan_short_shared_bytes(const struct plan *p, int tokens, int slots) {
    return slots * p->slot_bytes + short_shared_bytes(&p->tape, p->group_kv_heads, p->head_dim,
                                                      p->kv_form, tokens / ATOM_TOKENS, slots,
                                                      p->n_gpus);
}

static int slots_that_fit(const struct plan *p, int tokens) {
    int slots = int_min(MOST_RING / p->slot_bytes, MOST_SLOTS);
    while (slots > 0 &&
           plan_short_shared_bytes(p, tokens, slots) + SPARE_BYTES > p->gpu.shared_bytes)
        slots--;
    return slots;
}

/* ---- exchange words -------------------------------------------------------------------------- */

unsigned plan_short_words(const struct plan *p, int tokens) {
    return short_exchange_words(&p->tape, p->group_heads, p->head_dim, tokens / ATOM_TOKENS);
}

/* ---- how many -------------------------------------------------------------------------------- */

/* A warp takes tiles into registers only out of slots that are all there. */
int plan_short_preload(const struct plan *p, int slots) {
    return int_min(p->preload_tiles, slots * p->slot_tiles);
}

/* Blocks of attention (short_attention.cuh), one a warp: 8 tokens of some q heads of a KV head.
 */
static int attention_blocks(const struct plan *p, int tokens) {
    const int queries = p->group_heads / p->group_kv_heads;
    return p->group_heads / SHORT_HEADS(queries, p->head_dim) * (tokens / ATOM_TOKENS);
}

/* Whether a launch of `tokens` is possible. A phase's weights are read once, so for several runs
 * of tokens they must all stay in the ring. Each tile of the residual stream needs a warp of its
 * own. */
static bool holds(const struct plan *p, int tokens) {
    const int slots = slots_that_fit(p, tokens);
    if (slots < LEAST_SLOTS) return false;
    if (tokens > SHORT_PAIR(tokens / ATOM_TOKENS) * ATOM_TOKENS &&
        plan_ceil(plan_most_tiles(p), p->slot_tiles) > slots)
        return false;
    if (attention_blocks(p, tokens) > p->tape.warps) return false;
    return hidden_tiles(p) * (tokens / ATOM_TOKENS) <= p->tape.n_sms * p->tape.warps;
}

void plan_short(struct plan *p) {
    static const int choices[] = { PLAN_SHORT_TOKENS, 32, 16, 8 };
    if (p->prefill_tokens == 0 || p->tape.hidden % TILE_K || p->tape.n_layers > MOST_LAYERS) return;
    if (p->delta.n_layers || p->tape.gate_dim || p->rotary_dim != p->head_dim) return;
    for (size_t i = 0; i < sizeof choices / sizeof choices[0] && p->short_tokens == 0; i++)
        if (holds(p, choices[i])) p->short_tokens = choices[i];
    if (p->short_tokens == 0) return;
    p->short_slots = slots_that_fit(p, p->short_tokens);
    p->short_preload = plan_short_preload(p, p->short_slots);
    p->short_shared = plan_short_shared_bytes(p, p->short_tokens, p->short_slots);
    p->short_words = plan_short_words(p, p->short_tokens);
}
