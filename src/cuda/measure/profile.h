/* From the time stamps of kernels/profile.cuh to where a token's time goes. Pure: no GPU is asked.
 *
 * One warp of each block stamps, so the times are those of one consumer warp per SM. A token's
 * stamps cut it into spans without gaps: each ends with what its mark says. The first token of a
 * launch, which begins with empty rings, and the last, whose end is not stamped, are left out.
 *
 * This room, src/cuda/measure, says where time and energy go and which settings are fastest. It
 * sees all other rooms of src/cuda, and of runtime the opened model that it measures. */
#ifndef REEL_CUDA_PROFILE_H
#define REEL_CUDA_PROFILE_H

#include "base/json.h"
#include "plan/plan.h"

enum profile_phase {
    PROFILE_EMBED,
    PROFILE_QKV,
    PROFILE_ATTENTION,
    PROFILE_OUT,
    PROFILE_GATE_UP,
    PROFILE_DOWN,
    PROFILE_MIX, /* of DeltaNets, as are the next; last of a layer's since most models have none */
    PROFILE_DELTA,
    PROFILE_HEAD,
    PROFILE_PICK,
    PROFILE_N_PHASES
};

enum profile_kind {
    PROFILE_WEIGHTS,    /* waiting for the ring */
    PROFILE_EXCHANGE,   /* waiting for other SMs */
    PROFILE_ACROSS,     /* waiting for those of other GPUs, too, where several share the model */
    PROFILE_ARITHMETIC, /* with everything at hand */
    PROFILE_STREAMING,  /* arithmetic while the rest of the weights, or K and V, is on its way */
    PROFILE_N_KINDS
};

extern const char *const profile_phase_names[PROFILE_N_PHASES];

/* Whether a plan has layers with this phase. */
bool profile_has(const struct plan *plan, enum profile_phase phase);

/* Tokens of a launch beyond those that are measured, and the fewest that say anything. */
enum { PROFILE_LEFT_OUT = 2, PROFILE_LEAST_TOKENS = PROFILE_LEFT_OUT + 1 };

/* One decoding launch; everything is borrowed. */
struct profile_run {
    const struct plan *plan;
    const uint32_t *stamps; /* [n_tokens][plan's SMs][profile_stamps()] */
    int n_tokens;
    int position; /* of the first token */
};

int profile_stamps(const struct plan *plan); /* of one token on one SM */
int profile_spans(const struct plan *plan);  /* likewise */

struct profile_span {
    enum profile_phase phase;
    enum profile_kind kind;
    int layer; /* -1: of none */
    double ns;
};

/* Fills spans[profile_spans()] of a token that is not the launch's last, in order; together they
 * are as long as the token. *start_ns is the GPU's time at its beginning. Stamps that cannot be
 * true are REEL_E_DEVICE. */
enum reel_status profile_read(const struct profile_run *run, int token, int sm,
                              struct profile_span *spans, uint64_t *start_ns,
                              struct reel_error *err);

struct profile_spread {
    double min, median, max;
};

/* Of one token; means over tokens and SMs. */
struct profile_part {
    double us;
    double kind_us[PROFILE_N_KINDS];
    double bytes; /* over all SMs: of weights; attention: of K and V, each counted once; delta: of
                     the state, read and written */
    struct profile_spread sm;  /* over SMs: us */
    struct profile_spread own; /* over SMs: us without waiting for any other */
};

struct profile {
    int n_tokens;                   /* measured */
    int position;                   /* of the first of them */
    struct profile_spread token_us; /* over tokens */
    struct profile_spread ghz;      /* the SMs' clock, over tokens */
    struct profile_part phase[PROFILE_N_PHASES];
    struct profile_part total;
};

/* Fewer than PROFILE_LEAST_TOKENS tokens are REEL_E_STATE. */
enum reel_status profile_make(struct profile *profile, const struct profile_run *run,
                              struct reel_error *err);

/* The profile as one JSON object; *out is released with json_decref. */
enum reel_status profile_describe(json_t **out, const struct profile *profile,
                                  const struct plan *plan, struct reel_error *err);

/* Chrome's trace events (JSON), as chrome://tracing and Perfetto read them: a row for each of n_sms
 * SMs, evenly chosen (0: all), and in it the phases of the first n_tokens measured tokens, split
 * into waiting and arithmetic. */
enum reel_status profile_trace(struct buffer *text, const struct profile_run *run, int n_sms,
                               int n_tokens, struct reel_error *err);

#endif
