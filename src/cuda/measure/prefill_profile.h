/* From the times of a prompt's launches to where its time goes. Pure: no GPU is asked.
 *
 * A run is one chunk that was read: its launches in their order, embed, those of the layers, end;
 * or the one that reads a short prompt, end. Runs of the same chunk are kept beside each other; a
 * chunk of other tokens begins anew. */
#ifndef REEL_CUDA_PREFILL_PROFILE_H
#define REEL_CUDA_PREFILL_PROFILE_H

#include "base/json.h"
#include "plan/plan.h"

enum prefill_step {
    STEP_EMBED,
    STEP_QKV,
    STEP_ROPE,
    STEP_ATTENTION,
    STEP_MIX, /* these of Gated DeltaNets, instead of the three before */
    STEP_CONV,
    STEP_CHUNK,
    STEP_CHAIN,
    STEP_ANSWER,
    STEP_OUT,
    STEP_GATE_UP,
    STEP_DOWN,
    STEP_SHORT, /* all of them at once */
    STEP_END,
    PREFILL_N_STEPS
};
extern const char *const prefill_step_names[PREFILL_N_STEPS];

/* Launches of a layer of attention, of a Gated DeltaNet, of a short prompt, and of a chunk at most.
 */
enum { PREFILL_LAYER_STEPS = 6, PREFILL_DELTA_STEPS = 8, PREFILL_SHORT_LAUNCHES = 2 };
int prefill_launches(const struct plan *plan);

/* Runs kept at most; then the oldest make room. */
enum { PREFILL_MOST_RUNS = 128 };

struct prefill_times {
    float *ms;       /* [PREFILL_MOST_RUNS][prefill_launches()] */
    int n_runs;      /* read, also those that made room; the first is dropped when others come */
    int position;    /* of the chunk's first token */
    int n_tokens;    /* of it */
    int most_tokens; /* that a chunk may have */
    bool one_launch; /* reads all of it: a short prompt */
    struct prefill_cut cut[TAPE_N_PHASES];
};

/* Launches of the chunk, and what one does. */
int prefill_times_launches(const struct prefill_times *times, const struct plan *plan);
enum prefill_step prefill_times_step(const struct prefill_times *times, const struct plan *plan,
                                     int launch);

/* Where the next run of such a chunk goes: ms[prefill_launches()]. It counts once n_runs is more.
 */
float *prefill_times_next(struct prefill_times *times, const struct plan *plan, int position,
                          int n_tokens);
int prefill_times_held(const struct prefill_times *times);

/* The times, of one run at least, as one JSON object; *out is released with json_decref. */
enum reel_status prefill_profile_describe(json_t **out, const struct prefill_times *times,
                                          const struct plan *plan, struct reel_error *err);

#endif
