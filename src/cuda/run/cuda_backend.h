/* The GPU as a backend: one opened model on a GPU.
 *
 * This room, src/cuda/run, runs a model: it sees the driver and compile rooms beside it, and plan,
 * model and base. Of the measure room it includes only what it must: it hands a launch's time
 * stamps to cuda_profile.h, it lets cuda_prefill_timer.h put events between a prompt's launches,
 * and its table names the machine's calls, cuda_machine.h. Each module has a header of its own with
 * the types that it owns:
 *
 *   cuda_backend   opening, tables of the model
 *   cuda_memory    allocations, each of the size that the memory plan says
 *   cuda_kernels   compiling and loading the kernels
 *   cuda_load      weights from the file into the tapes
 *   cuda_launch    one launch: epochs, waiting
 *   cuda_share     what each of several GPUs is told of it
 *   cuda_fault     what a kernel says that gave up waiting, in words
 *   cuda_prefill   launches that read prompts, and their scratch memory
 *   cuda_packed    many short texts in one pass, and what that takes
 *   cuda_encoder   the audio tower of a speech model
 *   cuda_eval      given positions
 *   cuda_decode    decoding many tokens
 *   cuda_programs  the kernel for several columns, compiled when it is wanted
 *   cuda_step      the same for several sessions at once
 *   cuda_drafts    the same with passes that look at drafts
 *   cuda_draft_layer the model's own draft layer, which guesses
 *   cuda_state     a session's memory: what launches need
 *   cuda_pool      memory that sessions take in pieces and share
 *   cuda_pages     its K and V: pages of a pool
 *   cuda_recurrent its recurrent states: pieces of a pool
 *   cuda_saved     of that, the bytes of a snapshot
 *   cuda_last_row  of that, what its prompt's last token became
 *   cuda_delta     what Gated DeltaNets need besides: gates and constants
 *   tuning         settings given as text; tuned: settings that reel_model_tune remembered
 *
 * Everything of a device is ordered by one stream, the context's default one (NULL): launches of
 * all sessions, of all models and of all threads of a process come one after the other, and so do
 * copies of what they wrote. A kernel that needs every SM for itself must not meet another one half
 * resident. */
#ifndef REEL_CUDA_CUDA_BACKEND_H
#define REEL_CUDA_CUDA_BACKEND_H

#include "cuda/driver/driver.h"
#include "cuda/run/cuda_draft_layer.h"
#include "cuda/run/cuda_drafts.h"
#include "cuda/run/cuda_encoder.h"
#include "cuda/run/cuda_packed.h"
#include "cuda/run/cuda_pages.h"
#include "cuda/run/cuda_prefill.h"
#include "cuda/run/cuda_programs.h"
#include "cuda/run/cuda_saved.h"
#include "cuda/run/tuning.h"
#include "plan/gpu_memory_plan.h"
#include "plan/plan.h"
#include "runtime/backend.h"

#include <pthread.h>

#include <sys/types.h>
#include <unistd.h>

/* What opening cost, in milliseconds. */
struct cuda_open_times {
    double driver, compile, memory, load;
};

/* What opening was told and what comes later needs: programs that are compiled when they are
 * wanted, and the draft layer. Copies, or NULL. */
struct cuda_later {
    char *cache_dir, *cuda_dir, *nvrtc_dir, *gpu_options;
    pthread_mutex_t mutex; /* guards opening the draft layer */
    bool mutex_made;
};

struct backend {
    const struct model *model;
    struct cuda_later later;
    struct cuda_tuning tuning;
    struct cuda_driver driver;
    struct cuda_gpu gpu;                    /* or several */
    char uuids[CUDA_MOST_GPUS * CUDA_UUID]; /* theirs, with commas between */
    struct plan plan;
    struct gpu_memory_plan memory; /* with the smallest session */
    struct cu_module *module;
    struct cuda_function decode;
    struct cu_module *prefill_module; /* NULL: prompts go through the decode kernel */
    struct cuda_function prefill[CUDA_PREFILL_KERNELS];
    struct cu_module *prefill_delta_module; /* NULL: the model has no Gated DeltaNets */
    struct cu_module *short_module;         /* NULL: short prompts are read as others */
    struct cuda_function prefill_short;
    struct cu_module *short_far_module; /* the same behind many positions; NULL: it is not wanted */
    struct cuda_function prefill_short_far;
    struct cuda_packed packed;
    struct cuda_encoder encoder;
    struct cuda_open_times times;
    struct cuda_pool pool;   /* of pages of K and V */
    struct cuda_pool states; /* of recurrent states */
    struct cuda_stage stage;
    struct cuda_programs step;            /* for passes of several sessions */
    struct cuda_programs drafts;          /* for drafts of one */
    struct cuda_programs layer_drafts;    /* the same, for sessions that the draft layer follows */
    struct cuda_draft_layer *draft_layer; /* NULL: nobody has asked for its guesses yet */
    /* NULL, or for measuring: says the draft at a position, in place of the layer's guess. */
    int32_t (*draft_oracle)(int position);

    cu_address tape, embedding; /* embedding: 0 when tied */
    cu_address norms, qkv_vectors, rope;
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
    uint64_t layer_epochs;              /* since a launch went through the layers */
    bool dirty;                         /* a launch was aborted: clear the words before the next */
    uint32_t short_epoch;               /* as epoch and dirty, of short prompts, whose words are */
    bool short_dirty;                   /* their own */
    int in_flight;                      /* launches submitted and not known to be over */
    double ended_ms;                    /* when the last of those over was seen to end */
    double busy_until_ms;               /* when what is in the queue is expected to be over */
    double token_ms;                    /* of recent launches */
    double
        prefill_ms[CUDA_PREFILL_SIZES]; /* of the last launch that read 1, 2-3, 4-7, ... tokens */
    int n_recovering;                   /* threads that wait for the queue to be empty */
    int n_states, n_spares;             /* states that sessions have; of closed ones: */
    struct backend_state *spares;       /* see cuda_state.c */
    bool lost;                          /* the context is: a kernel hung or failed */
    bool hung; /* lost with a kernel that does not end: nothing can be given back,
                  the calls would never return */
    char lost_why[200];
    pid_t process; /* whose driver all of it belongs to */
};

/* Nothing may be given back: a kernel hangs, or this process was forked after the model had been
 * opened, and the driver's handles are its parent's. */
static inline bool cuda_untouchable(const struct backend *b) {
    return b->hung || b->process != getpid();
}

#endif
