/* The few calls a backend answers. A backend knows the model and positions; token lists, sampling
 * policy and text belong to the runtime. */
#ifndef REEL_RUNTIME_BACKEND_H
#define REEL_RUNTIME_BACKEND_H

#include "base/json.h"
#include "model/kv_form.h"
#include "model/model.h"

#include <stdatomic.h>

struct backend;       /* one per opened model: weights in the form the device wants */
struct backend_state; /* one per session: KV cache and scratch */

/* Devices of one kind that run a model together; as a rule one. */
enum { BACKEND_MOST_DEVICES = 8 };
struct backend_devices {
    int n, index[BACKEND_MOST_DEVICES];
};

struct backend_options {
    struct backend_devices devices; /* what machine_ops.choose found */
    const char *cpu_path;
    int n_threads;
    enum reel_rounding rounding;
    enum kv_form kv;  /* of the states' keys and values */
    int prompt_slice; /* as in reel_model_options */
    const char *cache_dir;
    const char *gpu_options; /* as in reel_model_options */
    const char *cuda_dir;    /* as in reel_model_options */
    const char *nvrtc_dir;   /* as in reel_model_options */
    double driver_ms;        /* spent on finding the device */
    reel_progress_fn progress;
    void *progress_user;
    reel_log_fn log; /* or NULL */
    void *log_user;
};

struct backend_info {
    const char *name;  /* "cpu" */
    const char *path;  /* "avx512" */
    const char *uuids; /* of the GPUs, for the driver's tools, with commas between; NULL: none */
    int n_threads;
    int host_threads;         /* that what the host does beside it may take; 0: one per core */
    bool weights_are_bf16;    /* every matrix was rounded to bf16; false: they are as stored */
    uint64_t token_bytes;     /* of weights that a decoded token reads; 0: as the line above says */
    size_t state_fixed_bytes; /* of one session, independent of its length */
    size_t state_position_bytes; /* of one session, for each position */
    int eval_positions;          /* that one evaluation does best at once; 0: it does not matter */
    /* An evaluation in pieces of a multiple of so many positions, with 2 or more left for the last,
     * gives the same bits as in one; 0: pieces round otherwise. */
    int cut_step;
    int most_columns;   /* of a pass of step; 0: it has no step */
    int drafts;         /* that a pass of decode or, where there is no decode, of step takes of a
                         * session; 0: it takes none */
    float column_share; /* of a pass's time, that a further column costs; a first guess */
    bool guesses;       /* it runs the model's draft layer: guess answers */
    bool shares;        /* its states share the device well without the runtime's turns (turns.h) */
    bool queues;        /* what its states are asked for goes through one queue, in order */
    double driver_ms, compile_ms, load_ms; /* as in reel_model_info */
};

/* Evaluate n positions starting at `position`, which is at most the number evaluated before. What
 * was stored at or beyond `position` is overwritten, also when it fails; what lies before it never
 * is. States of one backend are used by many threads at once, each state by one. */
struct backend_eval {
    int position;
    int n;
    const int32_t *ids;      /* [n], each below vocab, or NULL */
    const float *embeddings; /* f32 [n, hidden], or NULL */
    /* The positions were decoded before, and the state of the last of them is gone: they are
     * evaluated one by one, as decoding does it, and leave the bits that they left then. */
    bool decoded;
    enum reel_output output;
    float *out;
    const atomic_bool *cancel; /* looked at between chunks: REEL_E_CANCELLED */
    reel_progress_fn progress; /* or NULL */
    /* Called when all of the evaluation is in the queue of backend_info.queues and nothing is
     * fetched behind it, or NULL. */
    void (*queued)(void *progress_user);
    void *progress_user;
};

/* How ids are drawn, for a backend that draws them itself. The settings stay as they are for a
 * whole call; what penalties know of changes with every id that is handed to on_id. */
struct backend_sampling {
    /* 0 and 1 are replaced by what they stand for: top_k 0, top_p 0 and min_p 0 are off,
     * repetition_penalty 1 is none. */
    struct reel_sampling set;
    bool penalises;     /* some penalty is on; without, the rest is empty */
    const int32_t *ids; /* [n_ids] that penalties know of, each once */
    int n_ids;
    const int32_t *generated; /* [vocab] times this call generated an id */
};

/* What may come behind the last id that was handed out. */
enum { BACKEND_MOST_EXPECTED = 15 };
struct backend_expected {
    int n;     /* ids[0] is the next one */
    int worth; /* drafts of one pass that are worth their columns, 0: none are */
    bool asks; /* those are backend_decode.draft's, not these, */
    bool
        of_layer; /* or with `asks` those of the state's draft layer, which decode asks by itself */
    int32_t ids[BACKEND_MOST_EXPECTED];
};

/* What some passes of decode took. n_passes 0: what it took to go on without drafts, from the last
 * id to the first of a launch that has none. */
struct backend_taken {
    int columns; /* of its passes, of which one is no draft */
    int n_passes, n_ids, n_drafted;
    double ms;
};

/* Decode many tokens in one go. NULL in backend_ops when the runtime's own loop (eval one position,
 * sample on the host) serves just as well. REEL_E_UNSUPPORTED before the first id hands these
 * settings to that loop. Afterwards every position up to the one before the last id made has been
 * evaluated; ids past the one whose on_id returned false are as if never made. */
struct backend_decode {
    int position; /* of `id` */
    int32_t id;   /* the last token; may have been evaluated before */
    int max_tokens;
    const struct backend_sampling *sampling;
    const int32_t *stop_ids; /* [n_stop_ids] ids after which on_id will return false anyway */
    int n_stop_ids;
    /* Called in order as ids are made; returning false stops. */
    bool (*on_id)(void *user, int32_t id);
    /* Looked at with each id; true ends the call soon. Nothing is lost then: each id that was made
     * is handed to on_id, and the positions before the last of them have been evaluated. */
    bool (*enough)(void *user);
    /* Draws the id for `position` from f32 logits [vocab] on the host; -1: none is left. */
    int32_t (*draw)(void *user, const float *logits, int64_t position);
    bool host_draws; /* for step: it draws each id, whatever the backend could draw itself */
    /* Asked before each pass of step where backend_info.drafts says so, or NULL: writes ids that
     * may come next, [`most`] at most and each below vocab, and says how many. They take columns
     * that nobody else has. Each id is drawn as without them; those of a draft that was wrong, and
     * of what stood behind it, are never drawn. decode asks between two launches, where `expect`
     * says so: for the only pass of the second one. It may take its time. */
    int (*draft)(void *user, int32_t *ids, int most);
    /* The same for decode, where backend_info.drafts says so; or all NULL. `expect` is asked when
     * ids have been handed out, ahead of the pass that may look at drafts: `ahead` ids will come
     * before the first of them. guessed: what the draft layer said of the only pass of a launch, in
     * whose ids that will show, and how long it took; n 0: it has failed. drafted: the next id for
     * on_id was a draft. took: passes are over.
     */
    void (*expect)(void *user, struct backend_expected *expected, int ahead);
    void (*guessed)(void *user, const int32_t *ids, int n, double ms);
    void (*drafted)(void *user);
    void (*took)(void *user, const struct backend_taken *taken);
    int most_drafts;  /* of a pass; 0: as many as it has columns */
    bool drafts_wait; /* for the program that looks at drafts, which may have to be made first */
    void *user;
    const atomic_bool *cancel;
};

/* One column of a pass (docs/BATCHES.md): a state that decodes beside others. */
struct backend_column {
    struct backend_state *state;
    const struct backend_decode *decode; /* as for backend_ops.decode */
    /* Filled in by step: the column takes no part in further passes, and what decode would have
     * returned. */
    bool over;
    enum reel_status status;
    struct reel_error err;
};

/* Passes of several states, each of which decodes. The callbacks of every column, and `enough`, are
 * called by the thread that calls step. */
struct backend_batch {
    struct backend_column *columns; /* [n] of different states, none over */
    int n;                          /* 1 to backend_info.most_columns; drafts take what is left */
    bool (*enough)(void *user);     /* looked at with each pass; true: step returns soon */
    void *user;
};

/* Texts in one pass, each from position 0 and blind to the others: for each the vector after the
 * final norm of its last token. What the state held is lost. */
struct backend_embed {
    const int32_t *ids; /* of all texts, one behind the other, each below vocab */
    const int *lengths; /* [n_texts] each at least 1; their sum is at most what the state has
                           positions for */
    int n_texts;
    float *out; /* f32 [n_texts, hidden] */
    const atomic_bool *cancel;
    reel_progress_fn progress; /* or NULL: between parts of the pass, with "embedding" */
    void *progress_user;
};

/* What reel_session_profile asks for. */
struct backend_profile {
    int trace_sms, trace_tokens; /* 0: all, a few */
    char **json;                 /* receives text for reel_free */
    char **trace;                /* likewise, or NULL */
};

/* The audio tower of a speech model: log-mel frames in, vectors for a prompt out. */
struct audio_tower; /* works for one thread at a time */

struct audio_tower_ops {
    const char *name; /* of the backend that it is part of */
    /* REEL_E_UNSUPPORTED: not this model's; the CPU's serves. */
    enum reel_status (*open)(struct audio_tower **out, const struct model *model,
                             struct backend *backend, struct reel_error *err);
    /* features: f32 [bins, n_frames], a whole number of windows or the end of a clip, at least one
     * frame; out: f32 [audio_tokens(n_frames), output_dim]. */
    enum reel_status (*run)(struct audio_tower *tower, const float *features, int n_frames,
                            float *out, struct reel_error *err);
    void (*close)(struct audio_tower *tower); /* NULL: nothing */
};

/* Where the libraries of a GPU's driver are looked for, as in reel_model_options. */
struct backend_folders {
    const char *cuda_dir, *nvrtc_dir;
};

struct gpu_limits;
struct plan_options; /* plan/plan.h */
struct backend_meter;
struct reel_gpu_option;
struct reel_limits_options;

/* What a backend knows of the machine before it has opened a model. A call that it does not answer
 * is NULL. */
struct machine_ops {
    /* Which of its devices "auto", "gpu" (the first that can be used), "gpu:N", "gpu:N,M" or
     * "gpu:all" means. Anything but REEL_OK says why they cannot be used. */
    enum reel_status (*choose)(struct backend_devices *devices, const char *name,
                               const struct backend_folders *folders, struct reel_error *err);
    /* Whether it has a driver, so that a machine without a usable device deserves a word. */
    bool (*has_driver)(const struct backend_folders *folders);
    /* *devices: a list of objects; *notes (NULL for the CPU): a list of texts, what is missing and
     * what to do. The caller's to json_decref. */
    enum reel_status (*describe)(json_t **devices, json_t **notes,
                                 const struct backend_folders *folders, struct reel_error *err);
    /* The planner's view of a device. */
    enum reel_status (*gpu_limits)(struct gpu_limits *limits, const struct backend_devices *devices,
                                   const struct backend_folders *folders, struct reel_error *err);
    /* What gpu_options (or NULL) ask of the planner; narrow: an enum narrow_wish. */
    enum reel_status (*wishes)(struct plan_options *wishes, int *narrow, const char *gpu_options,
                               struct reel_error *err);
    /* As reel_gpu_option, reel_gpu_limits; *out is the caller's to json_decref. */
    enum reel_status (*option)(struct reel_gpu_option *option, int index, struct reel_error *err);
    enum reel_status (*measure)(json_t **out, const struct backend_devices *devices,
                                const struct reel_limits_options *options, struct reel_error *err);
    /* Energy since the driver was loaded, and power now, of the devices with these uuids, together.
     */
    enum reel_status (*meter_open)(struct backend_meter **out, const char *uuids,
                                   const char *cuda_dir, struct reel_error *err);
    enum reel_status (*meter_read)(const struct backend_meter *meter, double *joules, double *watts,
                                   struct reel_error *err);
    void (*meter_close)(struct backend_meter *meter);
};

/* A setting of an opened model that can change between launches and changes no id but where
 * rounding decides. */
struct backend_setting {
    const char *name; /* a key of gpu_options */
    int value;
    int least, most; /* that are worth a try; the same where there is no choice */
    bool doubles;    /* from one value worth a try to the next; else by steps */
};
enum { BACKEND_MOST_SETTINGS = 4 };

/* What reel_model_tune needs. */
struct tuning_ops {
    /* Fills the list for contexts of up to `longest`; how many there are. */
    int (*settings)(const struct backend *backend,
                    struct backend_setting settings[BACKEND_MOST_SETTINGS], int longest);
    void (*set)(struct backend *backend, int setting, int value);
    /* Writes gpu_options where the next model of this shape finds it on such a device; `path`
     * receives the file's name. before, after: speeds, for people. */
    enum reel_status (*remember)(const struct backend *backend, const char *cache_dir,
                                 const char *gpu_options, double before, double after,
                                 struct buffer *path, struct reel_error *err);
};

struct backend_ops {
    const char *name;
    const struct machine_ops *machine;
    const struct tuning_ops *tuning; /* NULL: nothing can be tuned */
    enum reel_status (*open)(struct backend **out, const struct model *model,
                             const struct backend_options *options, struct reel_error *err);
    void (*close)(struct backend *backend);
    void (*info)(const struct backend *backend, struct backend_info *info);
    /* Bytes that sessions may still take, 0 unknown; NULL: what the machine has. */
    uint64_t (*memory_available)(const struct backend *backend);

    enum reel_status (*state_open)(struct backend_state **out, struct backend *backend,
                                   int max_positions, struct reel_error *err);
    void (*state_close)(struct backend_state *state);
    enum reel_status (*eval)(struct backend_state *state, const struct backend_eval *eval,
                             struct reel_error *err);
    enum reel_status (*decode)(struct backend_state *state, const struct backend_decode *decode,
                               struct reel_error *err);
    /* Decodes all columns of a batch, one token of each in a pass and those of its drafts that were
     * right, until a column is over or `enough` says so; each column is then as decode would have
     * left its state. The ids of a column are those that it has alone. A backend without decode
     * draws each id with `draw`. NULL: sessions decode one after the other. */
    void (*step)(struct backend *backend, const struct backend_batch *batch);
    /* From here on the draft layer follows the state: evaluating costs more, and `guess` answers.
     * NULL where backend_info.guesses is false, as is guess. */
    enum reel_status (*guess_begin)(struct backend_state *state, struct reel_error *err);
    /* Ids that may follow `id`, the one at `position`, up to which all has been evaluated: writes
     * `most` at most and says how many. logits: f32 [vocab] that the last of them came from, or
     * NULL; a backend may guess among the first ids alone, whose logits these are. May be called
     * inside of backend_decode.draft. */
    int (*guess)(struct backend_state *state, int position, int32_t id, int32_t *ids, int most,
                 float *logits);
    /* NULL, or REEL_E_UNSUPPORTED: eval them one by one. */
    enum reel_status (*embed)(struct backend_state *state, const struct backend_embed *embed,
                              struct reel_error *err);
    /* The largest number of positions up to n from which eval, save and copy can go on; NULL: n
     * itself. Recurrent states cannot be cut back, so of those only some earlier ones are kept:
     * that of nothing, and always that before an evaluation of several positions which failed. */
    int (*resume)(const struct backend_state *state, int n);

    /* Positions from n on are not needed any more: their memory may be given back. NULL: nothing.
     */
    void (*keep)(struct backend_state *state, int n);

    /* The first n positions as bytes, for copy, snapshot and restore. The layout is the backend's
     * own; the runtime adds identity and check sum. */
    size_t (*save_bytes)(const struct backend_state *state, int n);
    enum reel_status (*save)(const struct backend_state *state, int n, void *bytes,
                             struct reel_error *err);
    enum reel_status (*restore)(struct backend_state *state, int n, const void *bytes,
                                size_t n_bytes, struct reel_error *err);
    enum reel_status (*copy)(struct backend_state *dst, const struct backend_state *src, int n,
                             struct reel_error *err);

    /* What the time stamps of the last decode say; NULL: it leaves none. */
    enum reel_status (*profile)(const struct backend_state *state,
                                const struct backend_profile *profile, struct reel_error *err);

    const struct audio_tower_ops *tower; /* NULL: it has none, the CPU's serves */

    /* Host memory that the backend reads and writes faster than other; NULL: it has none such. */
    enum reel_status (*host_alloc)(struct backend *backend, void **out, size_t n_bytes,
                                   const char *what, struct reel_error *err);
    void (*host_free)(struct backend *backend, void *host); /* NULL: nothing */
};

extern const struct backend_ops cpu_backend;
extern const struct backend_ops cuda_backend;
/* Where `backend` is NULL, which no other takes, it runs beside another backend: on all cores. */
extern const struct audio_tower_ops cpu_tower;

#endif
