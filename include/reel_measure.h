/* reel: what measures, profiles and tunes, and makes models of synthetic weights.
 *
 * Apart from reel.h, as programs that only run models need none of it. The conventions are those of
 * reel.h.
 */
#ifndef REEL_MEASURE_H
#define REEL_MEASURE_H

#include "reel.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- what a machine can do ------------------------------------------------------------------- */

/* Bytes a second that n_threads (0: one per core) read from memory, the best of a few passes over
 * 1 GB: what decoding, which reads every weight for every token, cannot beat. Takes a second. */
REEL_API REEL_MUST_USE enum reel_status
reel_measure_read_bandwidth(int n_threads, double *bytes_per_s, struct reel_error *err);

struct reel_limits_options {
    size_t size;
    /* NULL, "auto" or "gpu": the first GPU that can be used; "gpu:N"; several that can share a
     * model: "gpu:0,1", "gpu:all" */
    const char *device;
    const char *cache_dir; /* NULL: no kernel cache is read or written */
    const char *cuda_dir;  /* as in reel_model_options, */
    const char *nvrtc_dir; /* likewise */
    bool only_read;        /* the read ceiling alone: a quarter of a second */
    reel_progress_fn progress;
    void *progress_user;
    reel_log_fn log; /* or NULL */
    void *log_user;
};

/* What a GPU can do at best, measured with what decoding is made of; takes about three seconds. One
 * JSON object: "gpu", "gpus" (how many), "sms" (of each), "read_bytes_per_s" (the first one's
 * ceiling), and lists "read" (bytes in flight a SM, bytes a second), "exchange" (all-to-all of
 * words among readers, all SMs of all GPUs or a group, beside copies: microseconds) and "launch"
 * (microseconds until the host knows). *json is the caller's to reel_free. */
REEL_API REEL_MUST_USE enum reel_status reel_gpu_limits(const struct reel_limits_options *options,
                                                        char **json, struct reel_error *err);

/* Energy and power of the GPU a model runs on, by the driver's NVML. */
struct reel_meter;
struct reel_meter_reading {
    size_t size;
    double
        joules;   /* since the driver was loaded; some GPUs count in steps of a tenth of a second */
    double watts; /* now, over the driver's own window */
};

/* REEL_E_UNSUPPORTED, with the reason, for a model on the CPU, where there is no NVML and on GPUs
 * that do not count. cuda_dir as in reel_model_options. The meter does not need the model to stay.
 */
REEL_API REEL_MUST_USE enum reel_status reel_meter_open(struct reel_meter **out,
                                                        const struct reel_model *model,
                                                        const char *cuda_dir,
                                                        struct reel_error *err);
REEL_API REEL_MUST_USE enum reel_status reel_meter_read(const struct reel_meter *meter,
                                                        struct reel_meter_reading *reading,
                                                        struct reel_error *err);
REEL_API void reel_meter_close(struct reel_meter *meter);

/* ---- settings of a GPU's plan and launches, for experiments ------------------------------------
 */

/* A key of reel_model_options.gpu_options. */
struct reel_gpu_option {
    size_t size;
    const char *key;
    const char *meaning; /* in words, without a capital or a full stop */
    int64_t least, most, standard;
};

/* Option `index`, counted from 0; REEL_E_NOT_FOUND after the last. */
REEL_API REEL_MUST_USE enum reel_status reel_gpu_option(int index, struct reel_gpu_option *option,
                                                        struct reel_error *err);

/* ---- where a GPU's time goes ----------------------------------------------------------------- */

struct reel_profile_options {
    size_t size;
    int trace_sms;    /* rows of the trace, evenly chosen; 0: one for every SM */
    int trace_tokens; /* in the trace; 0: 4 */
};

/* What the time stamps of the session's last generation say, of a model opened on a GPU with
 * "profile=N" among its gpu_options: kernels that leave stamps, for at most N tokens a launch, and
 * are slower for it. The last launch counts, without its first and its last token; it must have had
 * 3 tokens at least. *json: one object with the time of a token by phase, split into waiting for
 * weights, waiting for other SMs and arithmetic. Its member "prefill" has the steps of the last
 * prompt, or chunk of one, that kernels for prompts read: medians of as often as that chunk was
 * read in a row, without the first time; no such prompt, no such member. *trace (trace may be
 * NULL): Chrome's trace events, of the generation alone. Both are the caller's to reel_free. */
REEL_API REEL_MUST_USE enum reel_status
reel_session_profile(const struct reel_session *session, const struct reel_profile_options *options,
                     char **json, char **trace, struct reel_error *err);

/* ---- tuning --------------------------------------------------------------------------------- */

/* One value tried. Speeds are medians, in tokens a second. */
struct reel_tune_trial {
    size_t size;
    const char *name; /* "cap_layers", ...: keys of gpu_options; NULL: the values at the start */
    int value;
    double short_per_s, long_per_s; /* at a short and at a long context; 0: not run */
    bool same_ids;                  /* as at the start, but for ties that rounding decides */
    bool kept;
};
/* Return false to try no more: the best so far counts. */
typedef bool (*reel_tune_fn)(void *user, const struct reel_tune_trial *trial);

struct reel_tune_options {
    size_t size;
    const char *cache_dir; /* the model's, where the result is remembered; NULL: nowhere */
    double seconds;        /* after which no new value is tried; 0: 45 */
    int n_tokens;          /* of one decode; 0: by the model's speed */
    int repeats;           /* decodes of which the median counts; 0: 5 */
    int long_context;      /* 0: 4096, or less where the model is slow or its context small */
    reel_tune_fn on_trial; /* or NULL */
    void *user;
    reel_progress_fn progress;
    void *progress_user;
    bool apply; /* the opened model goes on with what was found */
};

struct reel_tune_result {
    size_t size;
    char gpu_options[160]; /* the best values: "cap_layers=3,..." */
    double before_short, before_long, after_short, after_long;
    int long_context;
    bool improved;
    char path[480]; /* where it was remembered; empty: it was not */
};

/* Finds the launch settings with which this GPU decodes this model fastest. Models of this shape
 * that are opened with the same cache folder on such a GPU use them from then on; the opened model
 * stays as it was unless `apply` is set. Nothing else may use the model meanwhile, as its settings
 * change while they are tried. Takes less than a minute. result may be NULL. */
REEL_API REEL_MUST_USE enum reel_status reel_model_tune(struct reel_model *model,
                                                        const struct reel_tune_options *options,
                                                        struct reel_tune_result *result,
                                                        struct reel_error *err);

/* ---- synthetic weights ----------------------------------------------------------------------- */

/* Writes a model folder (config.json, model.safetensors, a byte-level tokenizer) with the shapes of
 * `shape` ("qwen3-0.6b", "qwen3-1.7b", "smollm2-135m", ..., or the path of a config.json) and
 * weights from a counter-based generator: the same seed gives the same bytes on every machine. */
REEL_API REEL_MUST_USE enum reel_status reel_synthesize(const char *folder, const char *shape,
                                                        uint64_t seed, reel_progress_fn progress,
                                                        void *progress_user,
                                                        struct reel_error *err);

#ifdef __cplusplus
}
#endif
#endif
