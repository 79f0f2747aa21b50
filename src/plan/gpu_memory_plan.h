/* How much memory a model and a session take on a GPU. Only this file says sizes: `inspect
 * --plan` prints them before anything is allocated, and src/cuda takes every allocation by its
 * part, but for pinned memory of a size that runtime asks for (backend_ops.host_alloc). */
#ifndef REEL_PLAN_GPU_MEMORY_PLAN_H
#define REEL_PLAN_GPU_MEMORY_PLAN_H

#include "plan/plan.h"

/* Who owns an allocation. A model holds its own while it is open. It holds the loader's too until
 * the weights are there. Each session holds its own, and takes some parts only when it needs them.
 */
enum gpu_owner {
    GPU_OF_MODEL,
    GPU_OF_LOADER,
    GPU_OF_SESSION,
    GPU_OF_USE,    /* a session's, taken with its first use */
    GPU_OF_POOL,   /* taken from a pool of the model as a session grows */
    GPU_OF_SAVING, /* the model's, taken when a session is first saved or restored */
    GPU_OF_STEP,   /* the model's, taken when several sessions first decode at a time */
    GPU_OF_DRAFTS, /* the model's, taken when a session that decodes alone first takes drafts */
    GPU_OF_PACKING
};

/* Every allocation: PART(name, owner, whether it is pinned memory of the host, what errors call
 * it). The loader takes each of its own GPU_STAGES times. */
#define GPU_PARTS(PART)                                                                            \
    PART(GPU_TAPES, GPU_OF_MODEL, false, "the weights")                                            \
    PART(GPU_EMBEDDING, GPU_OF_MODEL, false, "the embeddings")                                     \
    PART(GPU_NORMS, GPU_OF_MODEL, false, "norms")                                                  \
    PART(GPU_QKV_VECTORS, GPU_OF_MODEL, false, "norms or biases of q, k and v")                    \
    PART(GPU_ROPE, GPU_OF_MODEL, false, "rotation frequencies")                                    \
    PART(GPU_DELTA_GATES, GPU_OF_MODEL, false, "the DeltaNets' gates")                             \
    PART(GPU_DELTA_CONSTANTS, GPU_OF_MODEL, false, "the DeltaNets' constants")                     \
    PART(GPU_WORDS, GPU_OF_MODEL, false, "exchange words")                                         \
    PART(GPU_PROMPTS, GPU_OF_MODEL, false, "scratch memory for prompts")                           \
    PART(GPU_TOWER_WEIGHTS, GPU_OF_MODEL, false, "the audio tower's weights")                      \
    PART(GPU_TOWER_NUMBERS, GPU_OF_MODEL, false, "the audio tower's norms")                        \
    PART(GPU_TOWER_SCRATCH, GPU_OF_MODEL, false, "scratch memory for audio")                       \
    PART(GPU_TOWER_ABORT, GPU_OF_MODEL, false, "the audio tower's abort word")                     \
    PART(GPU_TOWER_MAILBOX, GPU_OF_MODEL, true, "the audio tower's mailbox")                       \
    PART(GPU_LEAVE, GPU_OF_MODEL, true, "a word that ends launches")                               \
    PART(GPU_STAGING, GPU_OF_LOADER, false, "staging")                                             \
    PART(GPU_HOST_STAGING, GPU_OF_LOADER, true, "staging on the host")                             \
    PART(GPU_KV, GPU_OF_POOL, false, "pages of K and V")                                           \
    PART(GPU_SAVED, GPU_OF_SAVING, true, "pages of K and V on the host")                           \
    PART(GPU_KV_TABLE, GPU_OF_SESSION, false, "a session's table of pages")                        \
    PART(GPU_KV_TABLE_HOST, GPU_OF_SESSION, true, "a session's table of pages on the host")        \
    PART(GPU_STATES, GPU_OF_POOL, false, "recurrent states")                                       \
    PART(GPU_LAST_ROW, GPU_OF_SESSION, false, "a prompt's last row")                               \
    PART(GPU_OUT, GPU_OF_SESSION, false, "logits of a session")                                    \
    PART(GPU_ABORT, GPU_OF_SESSION, false, "a session's abort word")                               \
    PART(GPU_IDS, GPU_OF_SESSION, false, "given ids")                                              \
    PART(GPU_SEEN, GPU_OF_USE, false, "penalty counts")                                            \
    PART(GPU_BIAS, GPU_OF_USE, false, "a logit bias")                                              \
    PART(GPU_GIVEN_EMBEDDINGS, GPU_OF_USE, false, "given embeddings")                              \
    PART(GPU_STAMPS, GPU_OF_SESSION, false, "time stamps")                                         \
    PART(GPU_MAPPED, GPU_OF_SESSION, true, "a session's mailbox")                                  \
    PART(GPU_STEP_WORDS, GPU_OF_STEP, false, "exchange words of several sessions")                 \
    PART(GPU_STEP_MAILBOX, GPU_OF_STEP, true, "a mailbox of several sessions")                     \
    PART(GPU_DRAFT_WORDS, GPU_OF_DRAFTS, false, "exchange words of drafts")                        \
    PART(GPU_DRAFT_MAILBOX, GPU_OF_DRAFTS, true, "a mailbox of drafts")                            \
    PART(GPU_PACKED, GPU_OF_PACKING, false, "ids of packed texts")                                 \
    PART(GPU_PACKED_HOST, GPU_OF_PACKING, true, "ids and vectors of packed texts")

#define GPU_PART_NAME(name, owner, pinned, text) name,
enum gpu_part { GPU_PARTS(GPU_PART_NAME) GPU_N_PARTS };
#undef GPU_PART_NAME

enum {
    GPU_STAGES = 3,          /* buffers that the loader fills in turn */
    GPU_STAGE_KB = 16 << 10, /* KB of one such buffer, where tuning says nothing else */
    GPU_MOST_GIVEN = 256,    /* tokens that one launch of the decode kernel is given */
    GPU_MAPPED_IDS = 64,     /* ids that are read out of mapped memory */
    GPU_PACKED_SLOTS = 2,    /* passes over packed texts that are in the queue at a time */
    GPU_PACKED_TEXTS = 512   /* texts of a pass, at most */
};

/* What tuning can change of the plan. */
struct gpu_memory_use {
    bool prompts;       /* prompts are read by kernels of their own, where the plan has them, */
    bool short_prompts; /* and short ones in one launch */
    int stage_kb;       /* of one staging buffer */
    int profile_tokens; /* of a launch that leave time stamps; 0: none do */
};
/* The plan without tuning. */
extern const struct gpu_memory_use gpu_memory_usual;

struct gpu_memory_plan {
    int context;                 /* positions of the session */
    uint64_t bytes[GPU_N_PARTS]; /* 0: there is no such allocation */
    int most_context; /* positions of one session that fit into the GPU's memory; 0: not one, or
                         unknown */
};

/* Fills *m for a session of `context` positions; 0 means the most that the model allows. */
void gpu_memory_plan_fill(struct gpu_memory_plan *m, const struct plan *plan,
                          const struct model_config *config, int context,
                          const struct gpu_memory_use *use);

/* Bytes of all parts of one owner, on the device or pinned on the host. */
uint64_t gpu_memory_of(const struct gpu_memory_plan *m, enum gpu_owner owner, bool pinned);
/* Most device bytes at a time: the model with one full session and all that several take together,
 * or with its loader when that is more. */
uint64_t gpu_memory_most(const struct gpu_memory_plan *m);
/* Without what GPU_OF_STEP and GPU_OF_DRAFTS take: sessions do without, one after the other. */
uint64_t gpu_memory_least(const struct gpu_memory_plan *m);
/* The name that errors have for a part. */
const char *gpu_part_text(enum gpu_part part);

/* Bytes of a program's words: GPU_STEP_WORDS and GPU_DRAFT_WORDS are those of all programs. */
uint64_t gpu_column_bytes(const struct plan *columns);

/* Pages of the KV cache that n positions take. */
int gpu_kv_pages(const struct plan *plan, int n);

/* Tokens that one launch may be given as ids or embeddings. */
int gpu_most_given(const struct plan *plan);

/* Bytes from one of a session's recurrent states to the next; GPU_STATES holds several. 0: it has
 * none. */
uint64_t gpu_state_stride(const struct plan *plan);

/* Where the parts of GPU_MAPPED begin. */
struct gpu_mapped_layout {
    size_t mailbox, prefill_mailbox; /* struct decode_mailbox */
    size_t ids;                      /* i32 [GPU_MAPPED_IDS] */
    size_t seen, bias, logits;       /* 4 bytes [vocab] */
    size_t bytes;
};
struct gpu_mapped_layout gpu_mapped_layout(int vocab);

/* A pass over packed texts. GPU_PACKED holds the words of each slot. GPU_PACKED_HOST holds for each
 * slot its mailbox (struct decode_mailbox), the same words, and the vectors. */
struct gpu_packed_layout {
    int tokens, texts;     /* of a pass, at most */
    size_t words, vectors; /* where in a slot of the host they begin: i32 [tokens] of ids, [tokens]
                              of first slots, [texts] of last tokens; f32 [texts, hidden] */
    size_t word_bytes, slot_bytes; /* of a slot */
};
struct gpu_packed_layout gpu_packed_layout(const struct plan *plan);

#endif
