/* The GPU as a backend: what its parts share.
 *
 *   cuda_backend.c  opening, memory plan
 *   cuda_kernels.c  compiling and loading the kernels
 *   cuda_load.c     weights from the file into the tapes
 *   cuda_launch.c   one launch: epochs, waiting, faults
 *   cuda_prefill.c  launches that read prompts, and their scratch memory
 *   cuda_eval.c     given positions, and decoding many tokens
 *   cuda_state.c    a session's memory: KV cache and what launches need
 *   cuda_head.c     of that, what its prompt's last token became
 *   cuda_delta.c    what Gated DeltaNets need besides: gates and constants, recurrent states
 *   cuda_profile.c  what a launch's time stamps say
 *   cuda_prefill_timer.c  how long each launch took that read a prompt
 *
 * Everything of a device is ordered by one stream, the context's default one (NULL): launches of
 * all sessions, of all models and of all threads of a process come one after the other, and so do
 * copies of what they wrote. A kernel that needs every SM for itself must not meet another one half
 * resident. */
#ifndef REEL_CUDA_CUDA_BACKEND_H
#define REEL_CUDA_CUDA_BACKEND_H

#include "cuda/compile/nvrtc.h"
#include "cuda/driver/driver.h"
#include "cuda/measure/prefill_profile.h"
#include "cuda/run/tuning.h"
#include "kernels/args.h"
#include "kernels/prefill_args.h"
#include "plan/checkpoints.h"
#include "plan/plan.h"
#include "runtime/backend.h"

#include <pthread.h>

/* Classes of launches whose times are remembered. */
enum { CUDA_PREFILL_SIZES = 16 };

/* What opening cost, in milliseconds. */
struct cuda_open_times {
    double driver, compile, memory, load;
};

/* The kernels of prefill.cu. */
enum {
    PREFILL_EMBED,
    PREFILL_THIN,
    PREFILL_HALVES,
    PREFILL_WIDE1,
    PREFILL_WIDE2,
    PREFILL_ROPE,
    PREFILL_ATTENTION,
    PREFILL_CONV, /* of Gated DeltaNets, as those that follow */
    PREFILL_CHUNK,
    PREFILL_CHAIN,
    PREFILL_ANSWER,
    PREFILL_END,
    CUDA_PREFILL_KERNELS
};
struct prefill_kernel {
    const char *name; /* NULL: the model has no use for it */
    int threads, shared_bytes;
    int blocks; /* of a launch; 0: as many as the GPU has SMs */
};

/* The kernels of encoder.cu. */
enum {
    ENCODER_HALVES,
    ENCODER_WIDE1,
    ENCODER_WIDE2,
    ENCODER_STEM,
    ENCODER_NORM,
    ENCODER_ATTENTION,
    CUDA_ENCODER_KERNELS
};

/* The audio tower of a speech model; all 0 where there is none. */
struct cuda_encoder {
    struct cu_module *module;
    struct cuda_function kernels[CUDA_ENCODER_KERNELS];
    cu_address weights, numbers, scratch, abort;
    struct decode_mailbox *mailbox; /* for faults */
    cu_address mailbox_address;
    pthread_mutex_t mutex; /* of a run: there is one scratch memory */
    bool mutex_made;
};

struct backend {
    const struct model *model;
    struct cuda_tuning tuning;
    struct cuda_driver driver;
    struct cuda_gpu gpu;
    struct plan plan;
    struct cu_module *module;
    struct cuda_function decode;
    struct cu_module *prefill_module; /* NULL: prompts go through the decode kernel */
    struct cuda_function prefill[CUDA_PREFILL_KERNELS];
    struct cu_module *prefill_delta_module; /* NULL: the model has no Gated DeltaNets */
    struct cu_module *short_module;         /* NULL: short prompts are read as others */
    struct cuda_function prefill_short;
    struct cuda_encoder encoder;
    struct cuda_open_times times;

    cu_address tape, embedding; /* embedding: 0 when tied */
    cu_address norms, qk_norms, rope;
    cu_address delta_gates, delta_constants; /* or 0 */
    cu_address words;
    cu_address scratch;       /* plan.scratch and behind it plan.short_words; or 0 */
    int scratch_room;         /* tokens that its activations were last laid out for; 0: none yet */
    struct cu_stream *rescue; /* waits for nothing: reaches the device while a launch hangs */
    unsigned *leave;          /* pinned: ABORT_LEAVE, which rescue copies */

    pthread_mutex_t mutex; /* guards what follows, and submitting */
    bool mutex_made;
    uint32_t epoch;                     /* the next launch's first */
    uint64_t epochs_used;               /* since the words were cleared */
    uint64_t pick_epochs, split_epochs; /* since the sampler's, split attention's words were */
    bool dirty;                         /* a launch was aborted: clear the words before the next */
    uint32_t short_epoch;               /* as epoch and dirty, of short prompts, whose words are */
    bool short_dirty;                   /* their own */
    int in_flight;                      /* launches submitted and not known to be over */
    double token_ms;                    /* of recent launches */
    double
        prefill_ms[CUDA_PREFILL_SIZES]; /* of the last launch that read 1, 2-3, 4-7, ... tokens */
    bool lost;                          /* the context is: a kernel hung or failed */
    bool hung; /* lost with a kernel that does not end: nothing can be given back,
                  the calls would never return */
    char lost_why[200];
};

/* Host memory that the device sees, of one session. */
struct cuda_mapped {
    struct decode_mailbox *mailbox, *prefill_mailbox;
    int32_t *ids;   /* [CUDA_MAPPED_IDS] of a launch that is given few */
    unsigned *seen; /* [vocab] */
    float *bias;    /* [vocab] */
    float *logits;  /* [vocab] */
};

/* Times the launches of one session's prompts. */
struct cuda_prefill_timer {
    struct cu_event **events; /* [prefill_launches() + 1]: before each, and behind the last */
    int n_events;             /* made */
    int n_marked;             /* of the chunk under way */
    struct prefill_times times;
};

struct backend_state {
    struct backend *backend;
    int max_positions;
    int n_positions; /* evaluated so far */
    cu_address head; /* f32 [hidden] of a prompt's last token, which decoding begins with */
    int head_end;    /* positions up to that token, itself included; 0: there is none */
    int32_t head_id; /* the token */
    int kv_pieces;   /* of each attention layer and head */
    cu_address kv;
    cu_address states; /* the recurrent one, then MEMORY_PLAN_CHECKPOINTS kept ones; or 0 */
    struct checkpoints checkpoints;

    void *host; /* holds all of `mapped` */
    cu_address host_address;
    struct cuda_mapped mapped;
    cu_address abort;
    cu_address ids;        /* i32 [cuda_most_ids] */
    cu_address embeddings; /* f32 [cuda_most_ids, hidden] */
    cu_address out;        /* f32 [out_floats]: logits or hidden states of a launch */
    size_t out_floats;
    cu_address seen, bias; /* taken on first use */
    cu_address profile;    /* u32 [tuning.profile][SMs][stamps], or 0 */
    int profiled_tokens;   /* of the last decoding launch; 0: it did not end well */
    int profiled_position; /* of the first of them */
    struct cuda_prefill_timer *prefill_timer; /* with `profile`, where prompts are read; or NULL */
};

/* Given tokens of a decoding launch at most, and ids that are read
 * out of mapped memory. */
enum { CUDA_MAX_GIVEN = 256, CUDA_MAPPED_IDS = 64 };

/* ---- cuda_kernels.c ---- */

/* Fills b->module, b->decode, ...; times.compile is 0 when all came from the cache. The caller
 * unloads *wind_module, also after a failure. */
enum reel_status cuda_open_kernels(struct backend *b, const struct backend_options *options,
                                   struct cu_module **wind_module, struct reel_error *err);

/* ---- cuda_load.c ---- */

/* Winds all weights into b->tape, which is cleared, and fills b->embedding. */
enum reel_status cuda_load(struct backend *b, const struct backend_options *options,
                           struct cu_module *wind_module, struct reel_error *err);
/* That prepare weights on the host. */
int cuda_load_threads(const struct cuda_tuning *tuning);
/* Device and pinned bytes that loading takes and gives back. */
uint64_t cuda_load_bytes(const struct cuda_tuning *tuning);

/* ---- cuda_launch.c ---- */

/* Most tokens a launch may have: about tuning.launch_ms long, and few enough that no 16-bit epoch
 * comes round between the launch that wrote a word and the one that waits for it. */
int cuda_launch_tokens(struct backend *b);

/* A launch under way. */
struct cuda_run {
    struct backend_state *state;
    struct decode_mailbox *mailbox;       /* of the last of its kernels, whose end is awaited */
    const struct decode_mailbox *prefill; /* of one that reads a prompt, or NULL */
    int n_launches;                       /* 1, or 2: a prompt's, then the head of its last token */
    int n_tokens;
    bool decodes;        /* picks ids: all its tokens have a head */
    int n_read;          /* ids taken from the mailbox */
    double submitted_ms; /* when */
    double due_ms;       /* how long reading a prompt is expected to take */
    double news_ms;      /* when it last showed life */
    double looked_ms;    /* when the driver was last asked */
    int ahead;           /* launches that came before */
    bool over;
    bool failed;
};

/* Fills in everything of args that does not depend on what is to be done. */
void cuda_args_start(const struct backend_state *s, struct decode_args *args);

/* Puts a launch into the device's queue: of the prefill kernel, of the decode kernel, or of both
 * with nothing between them; the other is NULL. Only one of a state at a time. */
enum reel_status cuda_submit(struct cuda_run *run, struct backend_state *s,
                             struct prefill_args *prefill, struct decode_args *decode,
                             struct reel_error *err);

/* The next id, waiting for it; -1 when the launch is over and all its ids have been read. Asks the
 * launch to stop when *cancel turns true (NULL: never), and goes on. */
enum reel_status cuda_next_id(struct cuda_run *run, const atomic_bool *cancel, int32_t *id,
                              struct reel_error *err);

/* Asks the launch to end after the token in hand, or waits for its end; ids not read are dropped.
 */
void cuda_stop(struct cuda_run *run);
enum reel_status cuda_finish(struct cuda_run *run, const atomic_bool *cancel,
                             struct reel_error *err);

/* REEL_OK, or why nothing can run any more. */
enum reel_status cuda_alive(struct backend *b, struct reel_error *err);
/* The context is unusable from now on; `err` says why. Returns its status. */
enum reel_status cuda_lose(struct backend *b, struct reel_error *err);

/* ---- cuda_encoder.c ---- */

/* Whether the model has an audio tower that runs here; plan.encoder.none says why not. */
bool cuda_encodes(const struct backend *b);
uint64_t cuda_encoder_bytes(const struct backend *b);
struct prefill_kernel cuda_encoder_kernel(const struct backend *b, int kernel);
/* Weights and scratch memory; after the kernels. */
enum reel_status cuda_encoder_open(struct backend *b, struct reel_error *err);
void cuda_encoder_close(struct backend *b);
/* As in backend_ops. */
enum reel_status cuda_encode(struct backend *b, const float *features, int n_frames, float *out,
                             struct reel_error *err);

/* ---- cuda_fault.c ---- */

/* What a wait that gave up was waiting for, in words. */
enum reel_status cuda_describe_fault(const struct cuda_run *run, struct reel_error *err);
/* What a mailbox says of a wait that gave up; `kernel`: whose. */
enum reel_status cuda_describe_wait(const struct backend *b, const struct decode_mailbox *m,
                                    const char *kernel, struct reel_error *err);
/* "the prefill kernel": the one that is running, as far as its mailbox says. */
const char *cuda_kernel_name(const struct cuda_run *run);

/* ---- cuda_prefill.c ---- */

bool cuda_prefills(const struct backend *b);
/* Whether short prompts have a launch of their own, and this one is such a prompt. */
bool cuda_reads_shorts(const struct backend *b);
bool cuda_prefill_is_short(const struct backend *b, int position, int n_tokens);
/* One of the kernels, as it is launched. */
struct prefill_kernel cuda_prefill_kernel(const struct backend *b, int kernel);
uint64_t cuda_prefill_bytes(const struct backend *b);
enum reel_status cuda_prefill_open(struct backend *b, struct reel_error *err);
/* Positions of the next launch that reads `left` or fewer; 0: the decode kernel is to read them. */
int cuda_prefill_chunk(const struct backend *b, int position, int left);
/* As cuda_args_start. */
void cuda_prefill_start(const struct backend_state *s, struct prefill_args *args);
/* Where a launch leaves a token's residual stream, f32 [hidden], until the next prompt's launch. */
cu_address cuda_prefill_h(const struct backend *b, int token);
/* Launches what reads the prompt: one launch for a short one, else a queue of them, whose products
 * are cut as is best. With a timer (or NULL) launches do not overlap. b->mutex is held. */
enum reel_status cuda_prefill_launch(struct backend *b, struct prefill_args *args,
                                     struct cuda_prefill_timer *timer, struct reel_error *err);
/* How long a launch of this many tokens took the last time, 0: unknown; and telling that, with
 * b->mutex held. */
double cuda_prefill_ms(struct backend *b, int n_tokens);
void cuda_prefill_took(struct backend *b, int n_tokens, double ms);

/* ---- cuda_prefill_timer.c ---- */

enum reel_status cuda_timer_open(struct cuda_prefill_timer **timer, const struct backend *b,
                                 struct reel_error *err);
void cuda_timer_close(struct cuda_prefill_timer *timer,
                      const struct backend *b); /* NULL: nothing */
/* Records the next event. */
enum reel_status cuda_timer_mark(struct cuda_prefill_timer *timer, const struct backend *b,
                                 struct reel_error *err);
/* Adds a chunk that was read to the times. */
enum reel_status cuda_timer_take(struct cuda_prefill_timer *timer, const struct backend *b,
                                 const struct prefill_args *args, struct reel_error *err);

/* ---- cuda_eval.c ---- */

enum reel_status cuda_eval(struct backend_state *s, const struct backend_eval *eval,
                           struct reel_error *err);
enum reel_status cuda_decode(struct backend_state *s, const struct backend_decode *decode,
                             struct reel_error *err);

/* ---- cuda_state.c ---- */

enum reel_status cuda_state_open(struct backend_state **out, struct backend *b, int max_positions,
                                 struct reel_error *err);
void cuda_state_close(struct backend_state *s);
uint64_t cuda_state_fixed_bytes(const struct backend *b);
/* Ids that a launch may be given. */
size_t cuda_most_ids(const struct backend *b);
size_t cuda_save_bytes(const struct backend_state *s, int n);
enum reel_status cuda_save(const struct backend_state *s, int n, void *bytes,
                           struct reel_error *err);
enum reel_status cuda_restore(struct backend_state *s, int n, const void *bytes, size_t n_bytes,
                              struct reel_error *err);
enum reel_status cuda_copy_state(struct backend_state *dst, const struct backend_state *src, int n,
                                 struct reel_error *err);

/* ---- cuda_head.c ---- */

uint64_t cuda_head_bytes(const struct backend *b);
enum reel_status cuda_head_open(struct backend_state *s, struct reel_error *err);
/* Whether the row is that of this token, with the session's state behind it: then the token's
 * launch needs the head alone. */
bool cuda_head_is(const struct backend_state *s, int position, int32_t id);
/* Before a launch that evaluates positions from this one on: forgets a row that depends on them. */
void cuda_head_pass(struct backend_state *s, int position);
/* Puts a copy of the row behind the launches of a prompt, of whose tokens it is `token`; b->mutex
 * is held. Once they have ended well: which token that was. */
enum reel_status cuda_head_take(struct backend_state *s, int token, struct reel_error *err);
void cuda_head_taken(struct backend_state *s, int position, int32_t id);
/* The row of n positions, where one of them has it; the receiver has forgotten its own. */
size_t cuda_head_saved_bytes(const struct backend_state *s, int n);
enum reel_status cuda_head_save(const struct backend_state *s, int n, void *bytes,
                                struct reel_error *err);
enum reel_status cuda_head_restore(struct backend_state *s, int n, const void *bytes,
                                   struct reel_error *err);
enum reel_status cuda_head_copy(struct backend_state *dst, const struct backend_state *src, int n,
                                struct reel_error *err);

/* ---- cuda_delta.c: all of it does nothing for a model without such layers ---- */

uint64_t cuda_delta_bytes(const struct backend *b);
enum reel_status cuda_delta_open(struct backend *b, struct reel_error *err);

uint64_t cuda_states_bytes(const struct backend *b);
enum reel_status cuda_states_open(struct backend_state *s, struct reel_error *err);
void cuda_states_give(const struct backend_state *s, struct delta_args *args);
/* As in backend_ops. */
int cuda_resume(const struct backend_state *s, int n);
/* Makes the live state that of `position`, one that resume gives. */
enum reel_status cuda_states_go(struct backend_state *s, int position, struct reel_error *err);
/* Keeps the live state, that of `position`, but not in place of that of `spared`. */
enum reel_status cuda_states_keep(struct backend_state *s, int position, int spared,
                                  struct reel_error *err);
/* A place for the state of `position`, not that of `spared`, which a launch fills on its way; or
 * CHECKPOINT_NONE: none is needed. It is kept once the launch has ended well. */
int cuda_states_take(struct backend_state *s, int position, int spared, struct prefill_delta *args);
void cuda_states_taken(struct backend_state *s, int slot, int position);
/* Before a launch: its state is nothing until it has ended well; and then, having been decoded up
 * to `position`: kept where it is due. */
void cuda_states_leave(struct backend_state *s);
enum reel_status cuda_states_reach(struct backend_state *s, int position, struct reel_error *err);
/* The state after n positions, one that resume gives; and behind it, in room for both, the one
 * before the last of them, where that is kept, or is among the bytes (`before`). */
bool cuda_states_before(const struct backend_state *s, int n);
size_t cuda_states_saved_bytes(const struct backend_state *s, int n, bool before);
enum reel_status cuda_states_save(const struct backend_state *s, int n, void *bytes,
                                  struct reel_error *err);
enum reel_status cuda_states_restore(struct backend_state *s, int n, const void *bytes, bool before,
                                     struct reel_error *err);
enum reel_status cuda_states_copy(struct backend_state *dst, const struct backend_state *src, int n,
                                  struct reel_error *err);

/* ---- cuda_profile.c ---- */

enum reel_status cuda_profile(const struct backend_state *s, const struct backend_profile *profile,
                              struct reel_error *err);

/* The device address of something inside s->host. */
static inline cu_address cuda_mapped_address(const struct backend_state *s, const void *p) {
    return s->host_address + (cu_address)((const char *)p - (const char *)s->host);
}

/* An address as the pointer that kernels take. */
static inline void *cuda_pointer(cu_address address) { return (void *)(uintptr_t)address; }

#endif
