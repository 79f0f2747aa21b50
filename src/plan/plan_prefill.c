/* Reading prompts: how many tokens a launch of kernels/prefill.cu takes, its shared memory and its
 * scratch memory, and how a product is cut into items for the SMs. */
#include "base/numbers.h"
#include "plan/plan_layout.h"

#include <string.h>

enum {
    MOST_STAGES = 6, /* beyond this nothing is left to hide */
    LEAST_STAGES = 2,
    TOKENS = 2048,
    MEMORY_SHARE = 8 /* scratch takes at most one part in this many of what weights leave */
};

/* ---- shared memory --------------------------------------------------------------------------- */

int plan_prefill_chunk_bytes(const struct plan_delta *d) {
    return d->n_layers ? prefill_chunk_bytes(d->key_dim, d->value_dim) : 0;
}

/* k tiles of a product. out and down have those of all groups. The others have those of x in
 * whole blocks of columns, twice: x as rounded, and what rounding left. */
static int k_tiles(const struct plan *p, int phase) {
    enum { BLOCK_TILES = ATOM_COLUMNS / TILE_K };
    const int tiles = p->tape.segment[phase].k_tiles;
    if (phase == TAPE_OUT || phase == TAPE_DOWN) return p->tape.n_groups / p->n_gpus * tiles;
    return 2 * plan_ceil(tiles, BLOCK_TILES) * BLOCK_TILES;
}

/* Places of k tiles that kernels/prefill_product.cuh keeps for one product at a time, in whole
 * stages: the most of any product. */
static int k_places(const struct plan *p) {
    int n = 0;
    for (int phase = TAPE_QKV; phase < TAPE_HEAD; phase++)
        n = int_max(n, plan_ceil(k_tiles(p, phase), STAGE_TILES) * STAGE_TILES);
    return n;
}

static int stages_that_fit(const struct plan *p) {
    int stages = MOST_STAGES;
    while (stages > 0 && prefill_shared_bytes(stages, p->prefill_k_places) > p->gpu.shared_bytes)
        stages--;
    return stages;
}

/* ---- scratch --------------------------------------------------------------------------------- */

/* Bytes of activations: bf16 in blocks of 64 columns. */
static uint64_t activations(int columns, uint64_t tokens) {
    return (uint64_t)plan_ceil(columns, ATOM_COLUMNS) * ATOM_COLUMNS * 2 * tokens;
}

struct part {
    uint64_t *at, bytes;
};
enum { PARTS = 8, DELTA_PARTS = 11 };

static void common_parts(struct part parts[PARTS], struct plan_scratch *s, const struct plan *p,
                         uint64_t n) {
    const struct tape_shape *t = &p->tape;
    const int heads = (p->n_heads * (t->gate_dim ? 2 : 1) + 2 * p->n_kv_heads) / p->n_gpus;
    const int groups = t->n_groups / p->n_gpus * TILE_K;
    const int out = groups * t->segment[TAPE_OUT].k_tiles;
    /* mix has all rows but z's twice: rounded, and what rounding left over */
    const int mix = t->n_groups / p->n_gpus * (2 * plan_mix_rows(t) - t->group_value);
    const int rows = int_max(heads * p->head_dim, mix);
    /* slots of row tiles; SMs whose rows do not fill their tiles have more than hidden needs */
    const int slots = t->group_sms * t->segment[TAPE_OUT].row_tiles;
    const struct part all[PARTS] = {
        { &s->h, (uint64_t)t->hidden * 4 * n },
        { &s->ssq, (uint64_t)slots * 4 * n },
        { &s->x, 2 * activations(t->segment[TAPE_QKV].k_tiles * TILE_K, n) },
        { &s->qkv, (uint64_t)rows * 2 * n },
        { &s->attention, activations(out, n) },
        { &s->mixed, p->delta.n_layers ? activations(out, n) : 0 },
        { &s->gated, activations(groups * t->segment[TAPE_DOWN].k_tiles, n) },
        { &s->parts,
          p->n_gpus > 1 ? 2 * (uint64_t)p->n_gpus * 4 * PREFILL_PART_FLOATS(slots, n) : 0 },
    };
    memcpy(parts, all, sizeof all);
}

/* The parts of struct prefill_delta; n is a multiple of a chunk (DELTA_CHUNK). */
static void delta_parts(struct part parts[DELTA_PARTS], struct plan_scratch *s,
                        const struct plan *p, uint64_t n) {
    const struct plan_delta *d = &p->delta;
    const uint64_t key = (uint64_t)d->key_dim, heads = (uint64_t)(d->value_heads / p->n_gpus),
                   keys = (uint64_t)(d->key_heads / p->n_gpus) * key,
                   values = heads * (uint64_t)(plan_ceil(d->value_dim, TILE_K) * TILE_K);
    const struct part all[DELTA_PARTS] = {
        { &s->delta.q, keys * 2 * n },
        { &s->delta.k, keys * 2 * n },
        { &s->delta.v, values * 2 * n },
        { &s->delta.gates, heads * 8 * n },
        { &s->delta.decay, heads * 8 * n },
        { &s->delta.kept, heads * DELTA_KEPT * 4 },
        { &s->delta.w, heads * key * 2 * n },
        { &s->delta.u, values * 4 * n },
        { &s->delta.asked, heads * DELTA_CHUNK * 4 * n },
        { &s->delta.learned, values * 4 * n },
        { &s->delta.states, values * key * 2 * (n / DELTA_CHUNK) },
    };
    memcpy(parts, all, sizeof all);
}

void plan_prefill_scratch(struct plan_scratch *s, const struct plan *p, int n_tokens) {
    enum { ALIGN = 1024 }; /* an atom of activations */
    struct part parts[PARTS + DELTA_PARTS];
    common_parts(parts, s, p, (uint64_t)n_tokens);
    delta_parts(parts + PARTS, s, p, (uint64_t)n_tokens);
    s->bytes = 0;
    for (int i = 0; i < PARTS + DELTA_PARTS; i++) {
        *parts[i].at = s->bytes;
        s->bytes += (parts[i].bytes + ALIGN - 1) / ALIGN * ALIGN;
    }
}

/* How many tokens a launch takes: `most`, or fewer where the context or the memory is small. 0:
 * the memory does not even hold the least. */
static int tokens_that_fit(const struct plan *p, const struct model_config *c, int most) {
    uint64_t weights = p->tape_bytes + plan_embedding_bytes(c);
    uint64_t left = p->gpu.memory_bytes > weights ? p->gpu.memory_bytes - weights : 0;
    const int context = plan_ceil(c->max_context, PLAN_PREFILL_STEP) * PLAN_PREFILL_STEP;
    int tokens = most < context ? most : context;
    while (p->gpu.memory_bytes > 0 && tokens > 0) {
        struct plan_scratch s;
        plan_prefill_scratch(&s, p, tokens);
        if (s.bytes <= left / MEMORY_SHARE) break;
        tokens = tokens / 2 / PLAN_PREFILL_STEP * PLAN_PREFILL_STEP;
    }
    return tokens;
}

/* Why these kernels cannot read this model's prompts on this GPU; NULL: they can. */
static const char *refusal(const struct plan *p) {
    const struct plan_delta *d = &p->delta;
    if (p->copy == 0) return "needs compute capability 8.0 or more";
    if (p->head_dim != 64 && p->head_dim != 128 && p->head_dim != 256)
        return "needs a head_dim of 64, 128 or 256";
    if (d->n_layers &&
        (d->key_dim % 16 || d->key_dim > 128 || d->value_dim % 8 || d->value_dim > 128))
        return "needs DeltaNets whose keys are a multiple of 16 and values of 8, both up to 128";
    if (p->tape.hidden % ATOM_COLUMNS) return "needs a hidden size that is a multiple of 64";
    if (stages_that_fit(p) < LEAST_STAGES || plan_prefill_chunk_bytes(d) > p->gpu.shared_bytes)
        return "needs more shared memory";
    return NULL;
}

/* Whether k tiles, or blocks of columns, have room for more than the products' k. */
static bool padded(const struct plan *p) {
    const struct tape_shape *t = &p->tape;
    const int x = t->segment[TAPE_QKV].k_tiles * TILE_K;
    const int out = t->segment[TAPE_OUT].k_tiles * TILE_K;
    const int down = t->segment[TAPE_DOWN].k_tiles * TILE_K;
    return x != t->hidden || out != t->group_q || (p->delta.n_layers && out != t->group_value) ||
           down * t->n_groups != t->intermediate || x % ATOM_COLUMNS ||
           out * t->n_groups % ATOM_COLUMNS || down * t->n_groups % ATOM_COLUMNS;
}

void plan_prefill(struct plan *p, const struct model_config *c, const struct plan_options *o) {
    p->prefill_k_places = k_places(p);
    p->prefill_none = refusal(p);
    if (p->prefill_none) return;
    p->prefill_tokens = tokens_that_fit(p, c, o->prefill_tokens ? o->prefill_tokens : TOKENS);
    if (p->prefill_tokens == 0) {
        p->prefill_none = "needs more memory";
        return;
    }
    p->prefill_padded = padded(p);
    p->prefill_stages = stages_that_fit(p);
    p->prefill_shared = prefill_shared_bytes(p->prefill_stages, p->prefill_k_places);
    p->prefill_chunk_shared = plan_prefill_chunk_bytes(&p->delta);
    /* wgmma is of this architecture alone, neither of older nor of newer ones */
    p->wgmma = p->compute == 90 && p->gpu.compute == 90;
    const bool moves = REGISTERS_MOVE(p->wgmma, p->registers_consumer > 0, p->head_dim);
    p->prefill_threads = READ_BLOCK_THREADS(moves);
    plan_prefill_scratch(&p->scratch, p, p->prefill_tokens);
}

/* ---- cutting a product into items ------------------------------------------------------------ */

/* What an item costs apart from k, in units of the time that one k tile of 64 tokens takes. */
enum { ITEM_COST = 14 };

/* Estimated time of a product that is cut so. All SMs take items in rounds. */
static double cut_cost(const struct plan *p, int row_tiles, int tiles, int n_tokens,
                       const struct prefill_cut *cut) {
    const int tokens = ATOM_COLUMNS * cut->blocks;
    const int tail = p->wgmma && n_tokens > tokens ? ATOM_TOKENS : 0;
    const int items =
        plan_ceil(row_tiles, cut->split_k ? 4 : 8) * plan_ceil(n_tokens - tail, tokens);
    /* measured on an H200: halves of k, then a block of 64 tokens, then two blocks */
    const double item = tiles * (cut->split_k ? 0.55 : cut->blocks == 1 ? 0.76 : 1.0) + ITEM_COST;
    return plan_ceil(items, p->gpu.n_sms) * item;
}

struct prefill_cut plan_best_cut(const struct plan *p, int row_tiles, int tiles, int n_tokens) {
    static const struct prefill_cut choices[] = { { 2, 0 }, { 1, 0 }, { 1, 1 } };
    struct prefill_cut best = choices[0];
    for (size_t i = 1; i < sizeof choices / sizeof choices[0]; i++)
        if (cut_cost(p, row_tiles, tiles, n_tokens, &choices[i]) <
            cut_cost(p, row_tiles, tiles, n_tokens, &best))
            best = choices[i];
    return best;
}

/* Up to ALL_THIN_TOKENS all products are faster when cut thin. Up to THIN_TOKENS out and down
 * are, whose rows are few. Measured on an H200. */
enum { ALL_THIN_TOKENS = 24, THIN_TOKENS = 64 };

struct prefill_cut plan_prefill_cut(const struct plan *p, int phase, int n_tokens) {
    const bool grouped = phase == TAPE_OUT || phase == TAPE_DOWN; /* k goes through all groups */
    const int sms = grouped ? p->tape.group_sms : plan_gpu_sms(p);
    if (n_tokens <= THIN_TOKENS)
        return (struct prefill_cut){ .blocks = 1,
                                     .split_k = n_tokens <= ALL_THIN_TOKENS || grouped ? 8 : 1 };
    return plan_best_cut(p, sms * p->tape.segment[phase].row_tiles, k_tiles(p, phase), n_tokens);
}
