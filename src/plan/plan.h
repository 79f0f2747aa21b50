/* The plan: who computes what, for one model on one GPU. It is pure data and is made without a
 * GPU. Its constants compile the kernels, its map winds the tapes, and `inspect --plan` prints
 * it. Words such as group, tape, ring and exchange are explained in docs/GLOSSARY.md.
 *
 * Exchanges, in the order of a layer (words of 8 bytes; kernels/exchange.cuh):
 *   qkv       in the group      bf16 pairs of the group's q, k, v rows
 *   attention in the group      only when positions are split: each SM's partial result
 *   merged    in the group      only then, where a group is large: bf16 pairs of the whole result
 * or, where the layer is a Gated DeltaNet,
 *   mix       in the group      pairs of 24-bit floats of the group's q, k, v, z rows
 *   delta     in the group      pairs of 24-bit floats of the group's value columns
 * and then
 *   out_sum   all SMs           [group][hidden / 2] pairs of 24-bit floats, summed by every reader
 *   gated     in the group      bf16 pairs of silu(gate) * up
 *   down_sum  all SMs           as out_sum
 *   out_h, down_h   all SMs     only with sums in two hops: what comes of out_sum and down_sum, h
 * and after the head: best (each SM's largest logit), pick (sampling candidates). */
#ifndef REEL_PLAN_PLAN_H
#define REEL_PLAN_PLAN_H

#include "base/buffer.h"
#include "kernels/args.h"
#include "kernels/encoder_layout.h"
#include "kernels/prefill_args.h"
#include "kernels/tape.h"
#include "model/model_config.h"
#include "model/weights.h"

/* What the planner needs to know of a GPU. */
struct gpu_limits {
    char name[64];
    int compute; /* 90 for sm_90 */
    int n_sms;
    int shared_bytes;      /* of a block at most, opt-in: 227 KB on sm_90, 99 KB on sm_86 */
    int registers;         /* of a SM: 65536 */
    int max_threads;       /* of a block at most: 1024 */
    uint64_t memory_bytes; /* of the device; 0: unknown */
    int n_gpus;            /* that share a model, all like this one; 0 or 1: it is alone */
};

/* What a caller wishes; 0 leaves the choice to the planner. */
struct plan_options {
    int compute; /* compile for an older GPU than there is: 75, 80; 0 = the GPU's */
    int n_groups, group_sms;
    int warps;
    int epilogue_warps;
    int ring_slots, kv_slots;
    int slot_tiles;                   /* tiles that a warp has in a slot of weights */
    int cap_layers, cap_head, cap_kv; /* slots in flight */
    int hops;                         /* in which sums of out and down reach every SM: 1 or 2 */
    int h_bits;                       /* of a value of h that phases take: 24 or 32 */
    int split_from;                   /* positions from which attention is split over the group */
    int kv_page;                      /* pieces of a page of the KV cache; a power of two */
    int kv_form;                      /* of the KV cache: enum kv_codes (kernels/kv_layout.h) */
    int kv_given;                     /* 1: the model's file has scales for that form */
    int prefill_tokens;               /* of a prompt, read by one launch; a multiple of 128 */
    int formats[TAPE_N_PHASES]; /* of the phases' weights as they are stored (tile_format.h) */
};

/* EXCHANGE(number, name for people, how often its words are used). Kernels know the number as a
 * constant of the same name, whose value is where the exchange's words begin. */
#define PLAN_EXCHANGES(EXCHANGE)                                                                   \
    EXCHANGE(X_QKV, "qkv", "a layer")                                                              \
    EXCHANGE(X_ATTENTION, "attention", "a layer, when split")                                      \
    EXCHANGE(X_OUT_SUM, "out_sum", "a layer")                                                      \
    EXCHANGE(X_GATED, "gated", "a layer")                                                          \
    EXCHANGE(X_DOWN_SUM, "down_sum", "a layer")                                                    \
    EXCHANGE(X_BEST, "best", "a token")                                                            \
    EXCHANGE(X_PICK, "pick", "a token, when sampling")                                             \
    EXCHANGE(X_MERGED, "merged", "a layer, when split")                                            \
    EXCHANGE(X_MIX, "mix", "a DeltaNet")                                                           \
    EXCHANGE(X_DELTA, "delta", "a DeltaNet")                                                       \
    EXCHANGE(X_GUESS, "guess", "a pass with drafts")                                               \
    EXCHANGE(X_OUT_H, "out_h", "a layer, with sums in two hops")                                   \
    EXCHANGE(X_DOWN_H, "down_h", "a layer, with sums in two hops")

#define PLAN_EXCHANGE_NUMBER(number, name, when) number,
enum plan_exchange { PLAN_EXCHANGES(PLAN_EXCHANGE_NUMBER) PLAN_N_EXCHANGES };
#undef PLAN_EXCHANGE_NUMBER

struct plan_words {
    unsigned offset, words; /* in exchange memory */
    int readers;            /* SMs that read one word */
};

/* Of short prompts: epochs of a launch besides one for each layer; most tokens of a launch. */
enum { PLAN_SHORT_EPOCHS = 2, PLAN_SHORT_TOKENS = 64 };

enum { PLAN_PICK_WORDS = 128 }; /* of one SM, see phase_pick.cuh */

/* Scratch memory of prefill: where its parts begin (struct prefill_args), and its bytes in all.
 */
struct plan_scratch {
    uint64_t h, ssq, x, qkv, attention, mixed, gated; /* mixed: the Gated DeltaNets' attention */
    uint64_t parts;                                   /* with several GPUs: sums of out and down */
    struct {
        uint64_t q, k, v, gates, decay, kept, w, u, asked, learned, states;
    } delta; /* struct prefill_delta */
    uint64_t bytes;
};

/* What the plan says of Gated DeltaNets; all 0 where the model has none. */
struct plan_delta {
    int n_layers;
    int key_heads, value_heads, key_dim, value_dim; /* as in model_config */
    int taps;                                       /* of the convolution */
    int group_key_heads, group_value_heads;
    int unit, units; /* value columns of one head that a SM takes at once; units of a group */
    uint64_t state_bytes, window_bytes; /* of a session */
};

/* The audio tower of a speech model (kernels/encoder.cu). */
struct plan_encoder {
    struct encoder_shape shape; /* its layers are 0 where the kernels do not take the tower */
    const char *none;           /* why they do not; NULL: they do, or the model does not hear */
    int chunks;                 /* chunks that the convolutions take at once */
    int most_chunks;            /* chunks of one run at most: whole windows */
    uint64_t features, taps2, taps3, binned, h, x, qkv, attended, wide,
        out; /* where the parts of its scratch memory begin (struct encoder_args) */
    uint64_t scratch_bytes;
};

struct plan {
    struct gpu_limits gpu;
    struct tape_shape tape; /* over all SMs of all GPUs: those of the first one come first */
    int n_gpus;             /* groups of SMs are shared out to them evenly */
    int columns;            /* of a pass: 1, or as plan_columns was asked */
    bool two_hops; /* sums of out and down: SMs add up shares and hand them round, instead of each
                      SM reading all */
    bool h_pairs;  /* what they hand round is in pairs of 24-bit floats, not in fp32; with one hop h
                      is rounded so before phases take it, as several columns may have two */
    bool follows;  /* several columns may be of one session, at consecutive positions: drafts. The
                      kernel for that is slower, so it is another one */
    bool leaves; /* such columns leave what the layers made of their tokens, for the draft layer */
    bool overlaid;   /* several columns: parts of shared memory share their place */
    bool half_fills; /* slots are filled in halves: half a slot less than a cap is in flight */
    int copy;        /* G_COPY: 2 bulk, 1 cp.async, 0 plain loads */
    int compute;     /* target of the compiler */

    /* the model */
    int n_heads, n_kv_heads, head_dim;
    /* So many of the KV heads, the last ones, are none of the model's. They and the heads that
     * share them have weights of 0, and make the number a multiple of the GPUs'. */
    int none_kv_heads;
    int rotary_dim; /* entries of a head that are rotated */
    int group_heads, group_kv_heads;
    bool qk_norm, qkv_bias, tied;
    bool is_draft;        /* the model is a draft layer or an EAGLE-3 head */
    bool given_biases;    /* it is a head: biases of q, k and v are given with each token */
    int taps[DRAFT_TAPS]; /* layers in front of which its EAGLE-3 head sees the residual stream; 0:
                             it has no head */
    float rms_eps;
    struct plan_delta delta;

    /* threads: warps consumers, then epilogue, weight producer, KV producer */
    int epilogue_warps, threads;
    int preload_tiles; /* of a phase, taken into registers before its input arrives */
    int ready_parts;   /* of narrow tiles, that are operands in registers then; 0: none are */
    int out_held; /* of these, out's with one column, whose attention all numbers of columns make */
    int registers_consumer,
        registers_other; /* of a thread, moved between warpgroups; 0: as launched */
    int attention_warps; /* of the consumers; kv_slots is a multiple of it */
    bool merge_scatter;  /* split attention: each SM merges a share of the columns and publishes it,
                            instead of merging all of them for itself */

    /* shared memory */
    int slot_tiles; /* tiles of each warp in a slot: 1, 2 or 4 */
    int slot_bytes, ring_slots;
    int kv_form;        /* enum kv_codes (kernels/kv_layout.h) */
    int kv_given;       /* 1: scales of K and V lie behind gains or biases of q, k and v */
    int kv_piece_bytes; /* K and V of 16 positions of one KV head */
    int kv_page;        /* pieces of a page, of each layer and KV head (kernels/kv_layout.h) */
    int kv_slots;
    int shared_bytes; /* of a block, everything in it */

    struct plan_words exchange[PLAN_N_EXCHANGES];
    unsigned n_words;
    uint64_t
        kept_bytes; /* with drafts and DeltaNets: behind the words, what a pass keeps of drafts */

    /* reading prompts (kernels/prefill.cu), with all of the GPU's SMs */
    int prefill_tokens;       /* that one launch takes; 0: the decode kernel reads prompts */
    const char *prefill_none; /* why prefill_tokens is 0; NULL: it is not */
    int prefill_stages, prefill_shared; /* of its ring; bytes of shared memory of a block */
    int prefill_k_places;               /* k tiles of a product at most, in whole stages */
    int prefill_chunk_shared; /* of a block of the Gated DeltaNets' steps that have no ring; 0: none
                               */
    int prefill_threads;      /* of a block */
    bool prefill_padded;      /* some columns of its activations belong to no weight */
    bool wgmma;               /* its products use the instructions of sm_90a */
    struct plan_scratch scratch;

    /* short prompts (kernels/short.cu), with the SMs and the tapes of decoding */
    int short_tokens;  /* that one launch takes through all layers; 0: it cannot */
    int short_slots;   /* of its weight ring, slot_bytes each */
    int short_preload; /* as preload_tiles */
    int short_shared;  /* of a block, which has decoding's threads: registers move between the same
                          warps */
    unsigned short_words; /* its own exchange memory, of 8 bytes */

    struct plan_encoder encoder;

    /* parameters of a launch, which tuning may change without compiling */
    int cap_layers, cap_head, cap_kv, split_from;
    int cap_columns; /* cap_layers of several columns' plans, which are made of this one */

    /* what it costs */
    uint64_t tape_bytes;        /* of all SMs */
    uint64_t token_bytes;       /* that decoding one token reads from the tapes */
    uint64_t kv_position_bytes; /* of all GPUs */
    uint64_t kv_page_bytes;     /* of a whole page, on each GPU */
    double imbalance; /* most loaded SM's bytes a token over the mean of all the GPU's SMs */
};

/* Refuses with REEL_E_UNSUPPORTED what the kernels cannot do, saying which number and what is
 * allowed. */
enum reel_status plan_make(struct plan *plan, const struct model_config *config,
                           const struct gpu_limits *gpu, const struct plan_options *options,
                           struct reel_error *err);

/* There are passes of so many sizes: 2, 4 and 8 columns. */
enum { PLAN_MOST_COLUMNS = ARGS_MAX_COLUMNS, PLAN_COLUMN_SIZES = 3 };
static inline int plan_column_size(int i) { return 2 << i; }

/* The plan for passes of 2, 4 or 8 columns (kernels/columns.cu) of a model whose plan for one
 * column is `one`: groups, tapes, warps and the order of all sums are the same; rings and caps are
 * smaller, and there are `columns` times as many exchange words, one column's behind the other's.
 * follows: columns may follow others. REEL_E_UNSUPPORTED: this model has no such passes. */
enum reel_status plan_columns(struct plan *plan, const struct plan *one, int columns, bool follows,
                              struct reel_error *err);

/* Proves the plan: each weight stands in exactly one place; one SM computes each row of each
 * phase and publishes it where its readers look; each exchange is complete; everything keeps the
 * GPU's limits. The error says what is wrong. `thorough` also visits every weight's place, which
 * is slow. */
enum reel_status plan_check(const struct plan *plan, const struct model_config *config,
                            bool thorough, struct reel_error *err);

/* Writes the compiler's -D options, one a line without "-D": "M_HIDDEN=1024". The plan alone
 * decides the whole list, so its text identifies the compiled kernels. */
enum reel_status plan_constants(const struct plan *plan, struct buffer *text,
                                struct reel_error *err);

/* How a product (TAPE_QKV, ..., TAPE_DOWN) over n_tokens is best cut into items of work. */
struct prefill_cut plan_prefill_cut(const struct plan *plan, int phase, int n_tokens);

/* How a product of the audio tower (enum encoder_product) over n columns is best cut. */
struct prefill_cut plan_encoder_cut(const struct plan *plan, int product, int n);

/* Writes the plan for people: groups, phases with rows, bytes and imbalance, exchanges, memory.
 */
enum reel_status plan_print(const struct plan *plan, const struct model_config *config,
                            struct buffer *text, struct reel_error *err);

/* A GPU by name for planning without one: "h200", "rtx4090", ...; NULL when unknown. */
const struct gpu_limits *plan_known_gpu(const char *name);
extern const char *const plan_known_gpus; /* the names, for messages */

#endif
