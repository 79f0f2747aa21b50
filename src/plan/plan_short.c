/* Short prompts: how many tokens one launch of kernels/short.cu takes through all layers, its
 * shared memory and its exchange words. Blocks, tapes and their cuts are those of decoding. */
#include "base/numbers.h"
#include "plan/plan_layout.h"

enum {
    PAIR = 2,              /* atoms that a product of few tokens takes at once */
    WIDE = 4,              /* and of more */
    SUM_BYTES = 512,       /* sums of 16 rows by 8 tokens */
    TILE_WORDS = 64,       /* exchange words of 16 rows by 8 tokens */
    MOST_RING = 128 << 10, /* of weights; beyond this nothing is left to hide */
    MOST_SLOTS = 32,       /* a lane each */
    LEAST_SLOTS = 4,
    MBAR_BYTES = 8,
    REST_BYTES = 256,
    ALIGN_BYTES = 128,
    MOST_LAYERS = 255 - PLAN_SHORT_EPOCHS /* 8 bits tell their epochs apart */
};

static int pair_of(int tokens) { return int_min(PAIR, tokens / ATOM_TOKENS); }
static int wide_of(int tokens) { return int_min(WIDE, tokens / ATOM_TOKENS); }
static int hidden_tiles(const struct plan *p) { return plan_ceil(p->tape.hidden, TILE_K); }

/* ---- shared memory --------------------------------------------------------------------------- */

/* Partial sums of one phase, and what attention needs there to merge its warps' results. */
static int part_bytes(const struct plan *p, int tokens) {
    const int head_tiles = p->head_dim / TILE_K;
    const int merge = (p->tape.warps - 1) * (head_tiles + 1) * SUM_BYTES;
    int bytes = plan_ceil(merge, 2 * ALIGN_BYTES) * ALIGN_BYTES;
    for (int phase = TAPE_QKV; phase < TAPE_HEAD; phase++) {
        const struct tape_segment *g = &p->tape.segment[phase];
        bytes = int_max(bytes, g->row_tiles * pair_of(tokens) * g->k_parts * SUM_BYTES);
    }
    return bytes;
}

int plan_short_shared_bytes(const struct plan *p, int tokens, int slots) {
    const int atoms = tokens / ATOM_TOKENS, head_tiles = p->head_dim / TILE_K;
    const int pieces = plan_ceil(tokens, TILE_K); /* of K and V, 16 positions each */
    const int q = p->tape.segment[TAPE_OUT].k_tiles * atoms * BF16_TILE_BYTES / 2;
    const int kv = 2 * p->group_kv_heads * pieces * head_tiles * BF16_TILE_BYTES;
    /* cosine and sine of a position: of its piece, and of its place in one; in padded rows */
    const int angles = (pieces + TILE_K) * (p->head_dim + 16) * 4;
    const int ssq = 2 * p->tape.warps * wide_of(tokens) * ATOM_TOKENS * 4;
    return slots * (p->slot_bytes + 2 * MBAR_BYTES) + 2 * part_bytes(p, tokens) + q + kv + angles +
           ssq + REST_BYTES + ALIGN_BYTES;
}

static int slots_that_fit(const struct plan *p, int tokens) {
    int slots = int_min(MOST_RING / p->slot_bytes, MOST_SLOTS);
    while (slots > 0 && plan_short_shared_bytes(p, tokens, slots) > p->gpu.shared_bytes)
        slots--;
    return slots;
}

/* ---- exchange words -------------------------------------------------------------------------- */

static unsigned lines(int words) {
    return (unsigned)plan_ceil(words, PLAN_WORD_ALIGN) * PLAN_WORD_ALIGN;
}

unsigned plan_short_words(const struct plan *p, int tokens) {
    const struct tape_shape *t = &p->tape;
    const int atoms = tokens / ATOM_TOKENS, k = hidden_tiles(p), tile = atoms * TILE_WORDS;
    const int qkv_tiles = plan_ceil(t->group_q + 2 * t->group_kv, TILE_ROWS);
    return lines(2 * k * tile) +                   /* x, for qkv and for gate_up */
           lines(2 * k * tokens) +                 /* sums of squares */
           lines(t->n_groups * qkv_tiles * tile) + /* q, k, v */
           2 * lines(t->n_groups * k * tile) +     /* sums of out, and of down */
           lines(t->n_groups * t->segment[TAPE_DOWN].k_tiles * tile); /* gated */
}

/* ---- how many -------------------------------------------------------------------------------- */

/* Tiles are taken into registers out of slots that are all there. */
int plan_short_preload(const struct plan *p, int slots) {
    return int_min(p->preload_tiles, slots * p->slot_tiles);
}

/* Blocks of 8 rows by some q heads of a KV head (short_attention.cuh), one a warp. */
static int attention_blocks(const struct plan *p, int tokens) {
    const int queries = p->group_heads / p->group_kv_heads;
    const int heads = queries % 2 == 0 ? 2 : p->head_dim <= 64 && queries % 3 == 0 ? 3 : 1;
    return p->group_heads / heads * (tokens / ATOM_TOKENS);
}

/* Weights of a phase are read once: for several pairs of atoms they stay in the ring. And each tile
 * of the residual stream is one warp's. */
static bool holds(const struct plan *p, int tokens) {
    const int slots = slots_that_fit(p, tokens);
    if (slots < LEAST_SLOTS) return false;
    if (tokens > PAIR * ATOM_TOKENS && plan_ceil(plan_most_tiles(p), p->slot_tiles) > slots)
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
