/* A session's memory on the GPU: its KV cache, and what launches read and write besides. */
#ifndef REEL_CUDA_CUDA_STATE_H
#define REEL_CUDA_CUDA_STATE_H

#include "cuda/run/cuda_backend.h"
#include "cuda/run/cuda_pages.h"
#include "cuda/run/cuda_recurrent.h"
#include "kernels/args.h"

struct cuda_prefill_timer;
struct packed_buffers;

/* Host memory that the device sees, of one session. */
struct cuda_mapped {
    struct decode_mailbox *mailbox, *prefill_mailbox;
    int32_t *ids;   /* [GPU_MAPPED_IDS] of a launch that is given few */
    unsigned *seen; /* [vocab] */
    float *bias;    /* [vocab] */
    float *logits;  /* [vocab] */
};

struct backend_state {
    struct backend *backend;
    struct backend_state *next_spare;
    struct gpu_memory_plan memory;
    int max_positions;
    int n_positions;         /* evaluated so far */
    cu_address last_row;     /* f32 [hidden] of a prompt's last token, which decoding begins with */
    int last_row_end;        /* positions up to that token, itself included; 0: there is none */
    int32_t last_row_id;     /* the token */
    struct cuda_pages pages; /* of K and V */
    struct cuda_recurrent recurrent;
    struct cuda_draft_state *drafts; /* NULL: the draft layer does not follow the session */

    void *host; /* holds all of `mapped` */
    cu_address host_address;
    struct cuda_mapped mapped;
    cu_address abort;
    cu_address ids;          /* i32 [gpu_most_given] */
    cu_address embeddings;   /* f32 [gpu_most_given, hidden] */
    cu_address given_biases; /* f32 [of those, rows of q, k and v], borrowed; 0 but where the model
                                is an EAGLE-3 head */
    cu_address out;          /* f32 [out_floats]: logits or hidden states of a launch */
    size_t out_floats;
    cu_address seen, bias;         /* these and embeddings: taken on first use, else 0 */
    struct packed_buffers *packed; /* taken with the first packed texts; or NULL */
    cu_address profile;            /* u32 [tuning.profile][SMs][stamps], or 0 */
    int profiled_tokens;           /* of the last decoding launch; 0: it did not end well */
    int profiled_position;         /* of the first of them */
    struct cuda_prefill_timer *prefill_timer; /* with `profile`, where prompts are read; or NULL */
};

enum reel_status cuda_state_open(struct backend_state **out, struct backend *b, int max_positions,
                                 struct reel_error *err);
void cuda_state_close(struct backend_state *s);
/* Positions from n on are over. */
void cuda_keep(struct backend_state *s, int n);
size_t cuda_save_bytes(const struct backend_state *s, int n);
enum reel_status cuda_save(const struct backend_state *s, int n, void *bytes,
                           struct reel_error *err);
enum reel_status cuda_restore(struct backend_state *s, int n, const void *bytes, size_t n_bytes,
                              struct reel_error *err);
enum reel_status cuda_copy_state(struct backend_state *dst, const struct backend_state *src, int n,
                                 struct reel_error *err);

/* Takes a part of GPU_OF_USE, where the session does not have it yet. */
enum reel_status cuda_state_need(struct backend_state *s, enum gpu_part part, cu_address *at,
                                 struct reel_error *err);

/* The device address of something inside s->host. */
static inline cu_address cuda_mapped_address(const struct backend_state *s, const void *p) {
    return s->host_address + (cu_address)((const char *)p - (const char *)s->host);
}

#endif
