/* What the planner's files share on the way from a choice of sizes to a whole plan. Parts of
 * src/cuda use it too. */
#ifndef REEL_PLAN_PLAN_LAYOUT_H
#define REEL_PLAN_PLAN_LAYOUT_H

#include "kernels/delta_layout.h"
#include "kernels/prefill_layout.h"
#include "plan/plan.h"

enum {
    PLAN_MIN_WARPS = 4,
    PLAN_MAX_WARPS = 16,
    PLAN_MAX_GROUPS = 32,    /* every lane keeps a word of each group's partial sums */
    PLAN_EXTRA_WARPS = 2,    /* behind the epilogue: the weights' and the K/V producer */
    PLAN_MAX_PRELOAD = 24,   /* tiles in registers */
    PLAN_WORD_ALIGN = 16,    /* words of a 128-byte line */
    PLAN_MAX_KV_SLOTS = 32,  /* one bit each in the kernels */
    PLAN_MAX_KV_PAGE = 1024, /* pieces */
    PLAN_MAX_HEADS_A_KV = 8, /* columns of a product */
    PLAN_KEY_ROWS = 8,       /* of a DeltaNet's state that a thread holds */
    PLAN_PREFILL_STEP = ITEM_TOKENS,
    PLAN_PREFILL_CONSUMERS = READ_WARPS * 32 /* threads of a block that compute */
};

struct plan_choice {
    int n_groups, group_sms, warps, slot_tiles;
};

/* How many GPUs share a model, and their SMs. */
static inline int plan_gpus(const struct gpu_limits *gpu) {
    return gpu->n_gpus > 1 ? gpu->n_gpus : 1;
}
static inline int plan_all_sms(const struct gpu_limits *gpu) { return gpu->n_sms * plan_gpus(gpu); }

static inline int plan_ceil(int a, int b) { return (a + b - 1) / b; }

/* A model's KV heads, and as many more as make them a multiple of the GPUs. */
static inline int plan_kv_heads(const struct model_config *c, const struct gpu_limits *gpu) {
    return plan_ceil(c->n_kv_heads, plan_gpus(gpu)) * plan_gpus(gpu);
}
/* Rows of q (with its gates), and of k or v, of a layer: those that are none of the model's too. */
static inline int plan_q_rows(const struct plan *p) {
    return p->n_heads * p->head_dim * (p->tape.gate_dim ? 2 : 1);
}
static inline int plan_kv_rows(const struct plan *p) { return p->n_kv_heads * p->head_dim; }
/* Biases of a layer, or of a token where they are given. */
static inline int plan_bias_rows(const struct plan *p) {
    return plan_q_rows(p) + 2 * plan_kv_rows(p);
}

static inline int plan_even(int a) { return a + (a & 1); }

/* Rows of a group in qkv and in a DeltaNet's mix. */
static inline int plan_qkv_rows(const struct tape_shape *t) {
    return t->group_q * (t->gate_dim ? 2 : 1) + 2 * t->group_kv;
}
static inline int plan_mix_rows(const struct tape_shape *t) {
    return 2 * (t->group_key + t->group_value);
}

/* Bytes of a model's own embedding, bf16; 0 for a tied one, whose rows are looked up in the
 * tapes. */
static inline uint64_t plan_embedding_bytes(const struct model_config *c) {
    return c->tied ? 0 : (uint64_t)c->vocab * (uint64_t)c->hidden * 2;
}

/* What each GPU has of the plan's SMs, and of its groups. */
static inline int plan_gpu_sms(const struct plan *p) { return p->tape.n_sms / p->n_gpus; }

/* How the numbers of the plan's Gated DeltaNets lie in memory. */
static inline struct delta_layout plan_delta_layout(const struct plan *p) {
    const struct plan_delta *d = &p->delta;
    return (struct delta_layout){ .hidden = p->tape.hidden,
                                  .key_heads = d->key_heads,
                                  .value_heads = d->value_heads,
                                  .key_dim = d->key_dim,
                                  .value_dim = d->value_dim,
                                  .taps = d->taps };
}

/* Fills *plan. `options` may hold wishes for what `choice` does not say. */
enum reel_status plan_layout(struct plan *plan, const struct model_config *config,
                             const struct gpu_limits *gpu, const struct plan_choice *choice,
                             const struct plan_options *options, struct reel_error *err);

enum { PLAN_FORMAT_AUDIO = TAPE_N_PHASES }; /* the audio tower's weights */
/* plan_format: the format of the tiles of a phase, or of PLAN_FORMAT_AUDIO, whose weights are
 * stored in the format `stored`; `slice` columns lie together, 0: all. It has as many columns to a
 * scale as both allow, or is bf16 where no scale fits. plan_stored: the formats that hold a model's
 * weights as they are, phase by phase; TILE_BF16 where none does. They are what
 * plan_options.formats may be. */
int plan_format(int phase, int stored, int slice);
void plan_stored(const struct weights *weights, int formats[TAPE_N_PHASES]);

/* Whether weights of 8 and 4 bits stay as they are stored, by the GPU option narrow. */
enum narrow_wish {
    NARROW_NEVER,
    NARROW_ALWAYS,
    NARROW_LARGE /* in a model whose bytes set a token's pace */
};
bool plan_keeps_narrow(enum narrow_wish wish, const struct weights *weights);
bool plan_narrow(const struct tape_shape *t); /* whether any segment is */
/* The largest number that divides both. */
int plan_common(int a, int b);
/* Bytes of the largest tile that a segment has. */
unsigned plan_widest_tile(const struct tape_shape *t);
/* The least number, `bytes` or more, that is whole lines of memory and a multiple of the tiles of
 * out and of down, which prompts read from the tapes of one group after the other. */
unsigned long long plan_whole_tiles(const struct tape_shape *t, unsigned long long bytes);

/* Tiles of a row tile, and those of a warp in a phase. */
static inline int plan_k_tiles(const struct tape_segment *g) {
    return g->k_tiles / TILE_PARTS(g->format);
}
static inline int plan_warp_tiles(const struct tape_segment *g) {
    return g->warp_rows * (g->warp_k / TILE_PARTS(g->format)) - g->half * g->warp_k / 2;
}

static inline unsigned plan_segment_bytes(const struct tape_segment *g) {
    return (unsigned)(g->row_tiles * plan_k_tiles(g) - g->half * g->k_tiles / 2) *
           tile_bytes(g->format);
}

/* Most tiles of a warp in a phase. */
int plan_most_tiles(const struct plan *plan);

/* Registers of a thread when `threads` of them share a SM of `registers`. */
int plan_thread_registers(int registers, int threads);

/* Bytes of shared memory of a decoding block, rings included. */
int plan_shared_bytes(const struct plan *plan);
/* Pieces of K and V that prompts copy at once, at most: half of a stage. */
int plan_half_pieces(int kv_form, int piece_bytes);

/* Fills in what the plan says of reading prompts. */
void plan_prefill(struct plan *plan, const struct model_config *config,
                  const struct plan_options *options);
/* Bytes of shared memory of a block of the DeltaNets' steps (launches) that have no ring; 0:
 * there are none. */
int plan_prefill_chunk_bytes(const struct plan_delta *delta);
/* Lays out the scratch memory of a launch of n_tokens. */
void plan_prefill_scratch(struct plan_scratch *scratch, const struct plan *plan, int n_tokens);

/* The best way to cut a product of row tiles by tokens into items that are wide or halves. */
struct prefill_cut plan_best_cut(const struct plan *plan, int row_tiles, int k_tiles, int n_tokens);

/* Fills in what the plan says of the audio tower; after plan_prefill. */
void plan_encoder(struct plan *plan, const struct model_config *config);

/* Fills in what the plan says of short prompts; after plan_prefill. */
void plan_short(struct plan *plan);
/* Bytes of shared memory of a block, and exchange words, of a short prompt's launch of `tokens`,
 * a multiple of 8. */
int plan_short_shared_bytes(const struct plan *plan, int tokens, int slots);
unsigned plan_short_words(const struct plan *plan, int tokens);
/* Most tiles that a warp of such a launch takes into registers at once. */
int plan_short_preload(const struct plan *plan, int slots);

/* Words that a SM publishes when attention is split: pairs of o, and one more word for each head.
 */
int plan_attention_words(const struct plan *plan);

/* ---- plan_cost.c ---- */

/* Estimated microseconds a token at short context: good for comparing plans, not for more. */
double plan_estimate_us(const struct plan *plan);

/* Bytes a microsecond that one SM can read of its GPU's memory while all SMs read. */
double plan_share_bytes_us(int compute);

#endif
