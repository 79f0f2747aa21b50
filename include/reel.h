/* reel: small language models at the lowest latency one machine allows.
 *
 * This header is the whole public interface; it is plain C17 and usable from C++.
 *
 *   model    an opened checkpoint: immutable, shared by any number of sessions and threads
 *   session  one timeline of tokens with its KV cache; one thread at a time, except _cancel
 *
 * Conventions
 * - What can fail returns enum reel_status; REEL_OK is 0. The last argument is a caller-owned
 *   struct reel_error (or NULL) that receives the status and one line of text.
 * - Option and result structs begin with their size: set `size = sizeof s`, leave the rest zero for
 *   defaults. A library newer or older than the program then reads and writes only what both know.
 * - Text is UTF-8 with an explicit byte count. Token ids are int32_t. Vectors are float32.
 * - The library never prints, never exits, installs no signal handler and reads no environment.
 *   The token loop allocates nothing.
 */
#ifndef REEL_H
#define REEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define REEL_API      __attribute__((visibility("default")))
#define REEL_MUST_USE __attribute__((warn_unused_result))
#else
#define REEL_API
#define REEL_MUST_USE
#endif

#define REEL_VERSION_MAJOR 0
#define REEL_VERSION_MINOR 1
#define REEL_VERSION_PATCH 0

/* ---- errors ---------------------------------------------------------------------------------- */

/* name, value, meaning. The command line tool exits with the value. */
#define REEL_STATUS_LIST(X)                                                                        \
    X(REEL_OK, 0, "success")                                                                       \
    X(REEL_E_MISMATCH, 1, "a check ran and did not hold")                                          \
    X(REEL_E_ARGUMENT, 2, "an argument is outside what is allowed")                                \
    X(REEL_E_NOT_FOUND, 3, "a file, model or name does not exist")                                 \
    X(REEL_E_IO, 4, "reading or writing failed")                                                   \
    X(REEL_E_FORMAT, 5, "a file breaks the rules of its format")                                   \
    X(REEL_E_UNSUPPORTED, 6, "well-formed, but not something reel runs")                           \
    X(REEL_E_LIMIT, 7, "larger than a stated limit")                                               \
    X(REEL_E_MEMORY, 8, "out of memory")                                                           \
    X(REEL_E_CONTEXT, 9, "the session's context is full")                                          \
    X(REEL_E_STATE, 10, "the call is not allowed now")                                             \
    X(REEL_E_DEVICE, 11, "the device or its driver failed")                                        \
    X(REEL_E_NETWORK, 12, "a download failed")                                                     \
    X(REEL_E_CANCELLED, 13, "cancelled by the caller")

enum reel_status {
#define REEL_STATUS_ENUM(name, value, text) name = value,
    REEL_STATUS_LIST(REEL_STATUS_ENUM)
#undef REEL_STATUS_ENUM
};

struct reel_error {
    enum reel_status status;
    char text[500]; /* one line, always terminated; empty after success */
};

REEL_API const char *reel_status_name(enum reel_status status); /* "REEL_E_IO" */
REEL_API const char *reel_status_text(enum reel_status status); /* the meaning above */
REEL_API const char *reel_version(void);                        /* "0.1.0" */
REEL_API void reel_free(void *p); /* frees what a reel_* call said the caller frees */

/* Where the library takes its memory: the C library's malloc, or these. They may be called from any
 * thread. Not asked: GPU memory, mapped files, and what libcuda, NVRTC, jansson, libsoxr and
 * libsndfile take for themselves. */
struct reel_allocator {
    size_t size;
    /* n_bytes is above 0, alignment a power of two. NULL says that there is no memory. */
    void *(*alloc)(void *user, size_t n_bytes, size_t alignment);
    /* p came from alloc or resize, aligned as for malloc, and stays valid when this returns NULL.
     */
    void *(*resize)(void *user, void *p, size_t n_bytes);
    void (*release)(void *user, void *p); /* p is not NULL */
    void *user;
};

/* For the whole process, once, before any other call but those of this section: REEL_E_STATE when
 * the library has taken memory already, or was given an allocator before. */
REEL_API REEL_MUST_USE enum reel_status reel_set_allocator(const struct reel_allocator *allocator,
                                                           struct reel_error *err);

/* ---- models ---------------------------------------------------------------------------------- */

struct reel_model;
struct reel_session;
struct reel_tokenizer;

/* Called now and then during long work, on the calling thread; `total` is 0 when unknown. Returning
 * false ends the work with REEL_E_CANCELLED. `stage` is a short English phrase: "loading". */
typedef bool (*reel_progress_fn)(void *user, const char *stage, uint64_t done, uint64_t total);

/* Called with one line, on the calling thread, for what does not stop the work but should be known:
 * a GPU that cannot be used, a cache file that was damaged. */
typedef void (*reel_warning_fn)(void *user, const char *text);

enum reel_rounding {
    REEL_ROUNDING_FAST = 0, /* float32 inside fused regions, bf16 where something is stored */
    REEL_ROUNDING_FAITHFUL, /* rounds where the Hugging Face bf16 reference rounds; slow, CPU only
                             */
    REEL_ROUNDING_EXACT     /* float32 throughout, to see what rounding does; slow, CPU only */
};

struct reel_model_options {
    size_t size;
    const char *device;   /* NULL or "auto": a GPU that runs this model, else the CPU; "cpu"; "gpu":
                             the first that can be used; "gpu:N" */
    const char *cpu_path; /* NULL or "auto", "portable", "avx2", "avx512", ...; "reference"; or
                             "reference-bf16": on weights rounded to bf16, as a GPU holds them */
    int n_threads;        /* 0: one per core the process may use */
    enum reel_rounding rounding;
    const char *chat_template; /* NULL: recognised by its hash; else a name of reel_model_info */
    const char *cache_dir;     /* NULL: no tokenizer or kernel cache is read or written */
    reel_progress_fn progress;
    void *progress_user;
    const char *gpu_options; /* NULL, or "key=value,key=value": keys in src/cuda/tuning.h */
    const char *cuda_dir;    /* NULL: where the system keeps them; else the only folder in which the
                                NVIDIA driver's library, NVRTC and NVML are looked for */
    reel_warning_fn warning; /* or NULL */
    void *warning_user;
};

/* Opens a folder with config.json and safetensors, or a .gguf file. On success *out is the caller's
 * to close, after every session on it. */
REEL_API REEL_MUST_USE enum reel_status reel_model_open(struct reel_model **out, const char *path,
                                                        const struct reel_model_options *options,
                                                        struct reel_error *err);

/* A file that is already in memory, named as it would be in a model folder. */
struct reel_memory_file {
    const char *name;
    const void *bytes;
    size_t n_bytes;
};

/* As reel_model_open, from memory the caller keeps alive and unchanged until reel_model_close. */
REEL_API REEL_MUST_USE enum reel_status
reel_model_open_memory(struct reel_model **out, const char *name,
                       const struct reel_memory_file *files, int n_files,
                       const struct reel_model_options *options, struct reel_error *err);

/* After fork() an opened model is the parent's alone: its threads and its GPU context are not in
 * the child. There opening a session, evaluating and generating are refused with REEL_E_STATE;
 * closing works and leaves the GPU alone. A child that needs a model opens it again; on a GPU only
 * if its parent had none open, since CUDA does not survive fork(). */
REEL_API void reel_model_close(struct reel_model *model);

struct reel_sampling;

struct reel_model_info {
    size_t size;
    const char *name;         /* from the file, or the last part of its path */
    const char *family;       /* "qwen3", "llama", "qwen3_5" */
    const char *weight_type;  /* "bf16", "q4_1", ...: the type most bytes have */
    const char *backend;      /* "cpu", "cuda" */
    const char *backend_path; /* "reference", "portable", "avx2", "avx512", ..., GPU name */
    uint64_t n_parameters;    /* a tied output matrix counted once */
    uint64_t weight_bytes;    /* as stored, a tied output matrix counted once */
    uint64_t token_bytes;     /* weight bytes one decoded token reads, where the model runs */
    uint64_t kv_token_bytes;  /* KV cache bytes per position, over all layers */
    int n_threads;
    int n_layers;
    int hidden;
    int n_heads;
    int n_kv_heads;
    int head_dim;
    int intermediate;
    int vocab;       /* rows of the output matrix: the length of a logits vector */
    int max_context; /* positions the model was made for */
    int n_stop_ids;
    const int32_t *stop_ids;          /* borrowed from the model */
    const char *chat_template;        /* "qwen3", "qwen3.5", "smollm2", "chatml", or NULL when
                                         unknown */
    const char *chat_template_sha256; /* of the text the model carries; NULL when it carries none */
    double driver_ms;  /* of opening, on a GPU: finding it and starting its driver, */
    double compile_ms; /* compiling the kernels (0: they were cached), */
    double load_ms;    /* bringing the weights to the device */
    bool chat_thinks;  /* the chat template knows thinking */
    /* "bf16": the device holds every matrix rounded to it (a GPU); NULL: the file's own values */
    const char *device_weight_type;
};

/* Fills the first info->size bytes; strings and lists are borrowed from the model. */
REEL_API void reel_model_get_info(const struct reel_model *model, struct reel_model_info *info);

/* The sampling its makers recommend (generation_config.json); greedy when they say nothing. */
REEL_API void reel_model_default_sampling(const struct reel_model *model,
                                          struct reel_sampling *sampling);

/* What is in a model file, without reading its weights: one JSON object as text with "config",
 * "tensors", "tokenizer", "memory". *json is the caller's to reel_free. */
REEL_API REEL_MUST_USE enum reel_status reel_model_inspect(const char *path, char **json,
                                                           struct reel_error *err);

/* How the model's work would be split over a GPU's SMs, and what that takes of the GPU's memory:
 * text for people. gpu: NULL for the first GPU of this machine, or a name such as "h200" or
 * "rtx4090"; the message about another name lists them. *text is the caller's to reel_free. */
REEL_API REEL_MUST_USE enum reel_status reel_model_plan(const char *path, const char *gpu,
                                                        char **text, struct reel_error *err);

/* What this machine has, as one JSON object: "cpu" (cores, paths, memory), "gpus" (name, compute
 * capability, memory, versions, whether reel can use it), "notes" (what is missing, what to do). */
REEL_API REEL_MUST_USE enum reel_status reel_devices(char **json, struct reel_error *err);

/* Bytes a second that n_threads (0: one per core) read from memory, the best of a few passes over
 * 1 GB: what decoding, which reads every weight for every token, cannot beat. Takes a second. */
REEL_API REEL_MUST_USE enum reel_status
reel_measure_read_bandwidth(int n_threads, double *bytes_per_s, struct reel_error *err);

struct reel_limits_options {
    size_t size;
    const char *device;    /* NULL, "auto" or "gpu": the first GPU that can be used; "gpu:N" */
    const char *cache_dir; /* NULL: no kernel cache is read or written */
    const char *cuda_dir;  /* as in reel_model_options */
    bool only_read;        /* the read ceiling alone: a quarter of a second */
    reel_progress_fn progress;
    void *progress_user;
    reel_warning_fn warning; /* or NULL */
    void *warning_user;
};

/* What a GPU can do at best, measured with what decoding is made of; takes about three seconds. One
 * JSON object: "gpu", "sms", "read_bytes_per_s" (the ceiling), and lists "read" (bytes in flight a
 * SM, bytes a second), "exchange" (all-to-all of words among readers, beside copies: microseconds)
 * and "launch" (microseconds until the host knows). *json is the caller's to reel_free. */
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

/* ---- text and tokens ------------------------------------------------------------------------- */

/* The model's tokenizer, borrowed from it. */
REEL_API const struct reel_tokenizer *reel_model_tokenizer(const struct reel_model *model);

/* A tokenizer alone, from the same paths as reel_model_open. cache_dir may be NULL. */
REEL_API REEL_MUST_USE enum reel_status reel_tokenizer_open(struct reel_tokenizer **out,
                                                            const char *path, const char *cache_dir,
                                                            struct reel_error *err);
REEL_API void reel_tokenizer_close(struct reel_tokenizer *tok);
REEL_API int reel_tokenizer_size(const struct reel_tokenizer *tok); /* ids are below this */

enum {
    REEL_ENCODE_CONTROL = 1 /* "<|im_end|>" in the text becomes its token; off for foreign text */
};

/* Encodes n_bytes of UTF-8. *n_ids receives the number of ids even when it is above cap, then with
 * REEL_E_LIMIT; ids may be NULL when cap is 0. Never more than 3 ids a byte, and more than one only
 * for the few characters that Unicode normalisation takes apart. Invalid UTF-8 is refused with
 * REEL_E_ARGUMENT and the offset of the first bad byte. */
REEL_API REEL_MUST_USE enum reel_status reel_encode(const struct reel_tokenizer *tok,
                                                    const char *text, size_t n_bytes,
                                                    unsigned flags, int32_t *ids, size_t cap,
                                                    size_t *n_ids, struct reel_error *err);

/* The bytes of one id, borrowed from the tokenizer; not necessarily whole UTF-8 characters. NULL
 * and 0 for an id without text. */
REEL_API const char *reel_token_bytes(const struct reel_tokenizer *tok, int32_t id,
                                      size_t *n_bytes);
REEL_API bool reel_token_is_control(const struct reel_tokenizer *tok, int32_t id);

/* The id whose bytes are exactly this text, or -1. */
REEL_API int32_t reel_token_find(const struct reel_tokenizer *tok, const char *text,
                                 size_t n_bytes);

struct reel_message {
    const char *role;       /* "system", "user", "assistant", "tool" */
    const char *content;    /* UTF-8, terminated; NULL: none, refused by most templates */
    const char *reasoning;  /* an assistant's earlier thinking, or NULL */
    const char *tool_calls; /* JSON list of {"name", "arguments"}, or NULL */
};

enum reel_thinking { REEL_THINKING_DEFAULT = 0, REEL_THINKING_ON, REEL_THINKING_OFF };

struct reel_chat_options {
    size_t size;
    enum reel_thinking thinking;
    const char *tools;         /* JSON list of tool descriptions, or NULL */
    bool no_generation_prompt; /* leave out the opening of the assistant's turn */
};

/* The conversation as the model's template writes it. *text is the caller's to reel_free. */
REEL_API REEL_MUST_USE enum reel_status
reel_chat_text(const struct reel_model *model, const struct reel_message *messages, int n_messages,
               const struct reel_chat_options *options, char **text, size_t *n_bytes,
               struct reel_error *err);

/* The same as ids. Control tokens come from the template only: text inside messages that looks like
 * one is encoded as the characters it is. *ids is the caller's to reel_free. */
REEL_API REEL_MUST_USE enum reel_status
reel_chat_ids(const struct reel_model *model, const struct reel_message *messages, int n_messages,
              const struct reel_chat_options *options, int32_t **ids, size_t *n_ids,
              struct reel_error *err);

/* Whether the prompt so rendered ends inside thinking: the answer then begins there, and of the
 * tags holds only the closing one. */
REEL_API bool reel_chat_opens_thinking(const struct reel_model *model,
                                       const struct reel_chat_options *options);

/* What a model wrote, taken apart. Texts are the struct's; reel_answer_release frees them. */
struct reel_answer {
    size_t size;
    char *reasoning;  /* thinking without its tags; NULL when there was none */
    char *content;    /* the rest, never NULL after success */
    char *tool_calls; /* JSON list of {"name", "arguments"}; NULL when there is none */
};

/* Takes the text of an answer apart; `options` are those of its prompt, or NULL. Calls are looked
 * for when they name tools; what is no well-formed call stays in the content. Arguments that the
 * model writes without quotes are texts unless their tool says that they are of another type. */
REEL_API REEL_MUST_USE enum reel_status
reel_chat_read_answer(const struct reel_model *model, const struct reel_chat_options *options,
                      const char *text, size_t n_bytes, struct reel_answer *answer,
                      struct reel_error *err);
REEL_API void reel_answer_release(struct reel_answer *answer);

/* ---- sessions -------------------------------------------------------------------------------- */

struct reel_session_options {
    size_t size;
    int max_context; /* positions to hold; 0: the model's, or less where memory is short */
    /* Called by sync and eval with "evaluating", positions, positions. On the session it may call
     * only _length, _ids, _max_context and _cancel. */
    reel_progress_fn progress;
    void *progress_user;
};

/* All memory a session needs is taken here. The model must outlive it. */
REEL_API REEL_MUST_USE enum reel_status
reel_session_open(struct reel_session **out, const struct reel_model *model,
                  const struct reel_session_options *options, struct reel_error *err);
/* Not from a callback of the session. An open generation ends with it. */
REEL_API void reel_session_close(struct reel_session *session);

REEL_API int reel_session_length(const struct reel_session *session);      /* tokens held */
REEL_API int reel_session_max_context(const struct reel_session *session); /* tokens it can hold */

/* The ids held, [length], borrowed and valid until the next call on the session. A position that
 * was given as an embedding reads -1. */
REEL_API const int32_t *reel_session_ids(const struct reel_session *session);

/* Makes the session hold exactly these ids: keeps the longest common prefix, drops the rest,
 * evaluates what is new. *n_reused (or NULL) receives how many positions needed no evaluation. An
 * argument that is refused changes nothing; on any other failure, and on cancellation, the session
 * holds a prefix of ids. */
REEL_API REEL_MUST_USE enum reel_status reel_session_sync(struct reel_session *session,
                                                          const int32_t *ids, int n_ids,
                                                          int *n_reused, struct reel_error *err);

enum reel_output {
    REEL_OUTPUT_NONE = 0,
    REEL_OUTPUT_LAST_LOGITS, /* f32 [vocab] of the last position */
    REEL_OUTPUT_ALL_LOGITS,  /* f32 [n, vocab] */
    REEL_OUTPUT_LAST_HIDDEN, /* f32 [hidden] after the final norm */
    REEL_OUTPUT_ALL_HIDDEN   /* f32 [n, hidden] after the final norm */
};

struct reel_eval {
    size_t size;
    int n;                   /* positions to append, at least 1 */
    const int32_t *ids;      /* [n], or NULL when embeddings are given */
    const float *embeddings; /* f32 [n, hidden], or NULL when ids are given */
    enum reel_output output;
    float *out;        /* as `output` says; caller-owned; NULL with REEL_OUTPUT_NONE */
    size_t out_floats; /* capacity of out, checked */
};

/* Appends n positions and evaluates them. On failure the session is as it was. A generation after
 * it needs the logits of the last position: they are on hand after REEL_OUTPUT_NONE and the logits
 * outputs, and made again from an id, but not from an embedding whose hidden state was asked for.
 */
REEL_API REEL_MUST_USE enum reel_status reel_session_eval(struct reel_session *session,
                                                          const struct reel_eval *eval,
                                                          struct reel_error *err);

/* Keeps the first n tokens. A model with recurrent layers goes back to some positions only: what
 * lies between the last such and n is evaluated again by the next call, and where that was given as
 * embeddings the cut is refused with REEL_E_STATE, changing nothing. */
REEL_API REEL_MUST_USE enum reel_status reel_session_truncate(struct reel_session *session, int n,
                                                              struct reel_error *err);

/* Makes dst hold what src holds. Both must be open on the same model, and nothing else may use src
 * meanwhile. A failure of the device leaves dst empty, any other as it was. */
REEL_API REEL_MUST_USE enum reel_status
reel_session_copy(struct reel_session *dst, const struct reel_session *src, struct reel_error *err);

/* A snapshot is bytes the caller owns; it carries a check sum and the model's identity and is
 * refused by any other model. `restore` trusts nothing in it; on failure the session is empty. */
REEL_API size_t reel_session_snapshot_bytes(const struct reel_session *session);
REEL_API REEL_MUST_USE enum reel_status reel_session_snapshot(const struct reel_session *session,
                                                              void *bytes, size_t n_bytes,
                                                              struct reel_error *err);
REEL_API REEL_MUST_USE enum reel_status reel_session_restore(struct reel_session *session,
                                                             const void *bytes, size_t n_bytes,
                                                             struct reel_error *err);

/* Ends the running sync, eval or generation soon, with REEL_E_CANCELLED (a generation: with
 * REEL_STOP_CANCELLED). The one call allowed from any thread. With nothing running it does nothing:
 * a request never outlives the call it was meant for. */
REEL_API void reel_session_cancel(struct reel_session *session);

/* ---- generation ------------------------------------------------------------------------------ */

struct reel_logit_bias {
    int32_t id;
    float bias; /* added to the logit before anything else; -INFINITY forbids the id */
};

/* Zero everywhere is greedy. Order: bias, penalties, temperature, top-k, top-p, min-p, draw. */
struct reel_sampling {
    size_t size;
    float temperature;        /* 0: the largest logit, lowest id on ties */
    int top_k;                /* 0: off; ties with the k-th are kept */
    float top_p;              /* 0 or 1: off */
    float min_p;              /* 0: off; drops ids below min_p times the largest probability */
    float repetition_penalty; /* 0 or 1: off; over all ids the session holds, prompt included */
    float presence_penalty;   /* over ids generated by this call */
    float frequency_penalty;  /* over ids generated by this call */
    uint64_t seed;            /* the same seed, logits and position give the same id */
    const struct reel_logit_bias *bias;
    int n_bias;
};

struct reel_top_logprob {
    int32_t id;
    float logprob;
};

#define REEL_MAX_TOP_LOGPROBS 20

struct reel_token {
    int32_t id;
    float logprob;     /* natural log of the unmodified distribution; only when asked for */
    const char *text;  /* bytes now certain: whole characters, no start of a stop string; control
                          tokens have none. What was held back comes with the last token. */
    size_t text_bytes; /* may be 0 */
    int n_top;
    const struct reel_top_logprob *top; /* [n_top], most likely first */
};

enum reel_stop_reason {
    REEL_STOP_NONE = 0, /* still running */
    REEL_STOP_ID,       /* a stop id was drawn; it is delivered, with no text */
    REEL_STOP_STRING,   /* a stop string came up; its text is not delivered, its ids are */
    REEL_STOP_MAX_TOKENS,
    REEL_STOP_CONTEXT,  /* the session is full */
    REEL_STOP_CALLBACK, /* on_token returned false */
    REEL_STOP_CANCELLED
};

/* Return false to stop after this token. Called on the generating thread. On the session it may
 * call only _length, _ids, _max_context and _cancel. */
typedef bool (*reel_token_fn)(void *user, const struct reel_token *token);

struct reel_generation {
    size_t size;
    const struct reel_sampling *sampling; /* NULL: greedy */
    int max_tokens;                       /* 0: until the context is full */
    const int32_t *stop_ids;              /* NULL: the model's stop ids */
    int n_stop_ids;
    bool ignore_stop_ids;
    const char *const *stop_strings; /* at most 16, each 1 to 256 bytes */
    int n_stop_strings;
    bool logprobs;          /* fill reel_token.logprob */
    int n_top_logprobs;     /* 0 to REEL_MAX_TOP_LOGPROBS; implies logprobs */
    reel_token_fn on_token; /* NULL: nobody listens, or reel_generation_next is used */
    void *user;
};

struct reel_generation_result {
    size_t size;
    enum reel_stop_reason reason;
    int n_tokens;
    int stop_string;       /* index of the one that matched, or -1 */
    double first_token_ms; /* from the start of this call to the first token */
    double total_ms;
};

/* Continues the session's timeline, token by token, until something stops it. Afterwards the
 * session holds exactly the tokens delivered. result may be NULL. Cancellation and a full context
 * are reasons, not errors. */
REEL_API REEL_MUST_USE enum reel_status reel_generate(struct reel_session *session,
                                                      const struct reel_generation *generation,
                                                      struct reel_generation_result *result,
                                                      struct reel_error *err);

/* The same, pulled: start, next until *token is NULL, finish; on_token is not called. `next`
 * returns one token as soon as there is one; it belongs to the session and is valid until the next
 * call on it. `finish` may be called at any time: what was computed ahead of the last delivered
 * token is dropped. The strings and lists named by `generation` must stay alive until then; in
 * between, the session answers only _length, _ids, _max_context and _cancel. */
REEL_API REEL_MUST_USE enum reel_status
reel_generation_start(struct reel_session *session, const struct reel_generation *generation,
                      struct reel_error *err);
REEL_API REEL_MUST_USE enum reel_status reel_generation_next(struct reel_session *session,
                                                             const struct reel_token **token,
                                                             struct reel_error *err);
REEL_API void reel_generation_finish(struct reel_session *session,
                                     struct reel_generation_result *result);

/* ---- speech to text -------------------------------------------------------------------------- */

/* A recording as speech models hear it: mono float32 at 16,000 Hz, read in pieces; the memory it
 * takes does not depend on its length. Float files, lossy formats and resampling may go beyond 1.
 */
struct reel_audio;

#define REEL_AUDIO_RATE 16000

enum reel_audio_encoding {
    REEL_AUDIO_FILE = 0, /* the input says what it is */
    REEL_AUDIO_S16LE,    /* raw samples, no header: integers of 16, 24 or 32 bits, */
    REEL_AUDIO_S24LE,
    REEL_AUDIO_S32LE,
    REEL_AUDIO_F32LE /* or floats; all little-endian, channels in turn */
};

/* Called before a read of a pipe or terminal that may have to wait; may do the waiting. False ends
 * the read with REEL_E_CANCELLED. */
typedef bool (*reel_wait_fn)(void *user, int fd);

struct reel_audio_options {
    size_t size;
    enum reel_audio_encoding encoding;
    int rate, channels;  /* of raw samples; 0: 16000 and 1 */
    double most_seconds; /* of a longer recording, REEL_E_LIMIT; 0: no limit */
    reel_wait_fn wait;   /* or NULL */
    void *wait_user;
};

/* path: a WAV file (RIFF, RF64 or BW64), "-" for standard input, or, where libsndfile is installed,
 * any file it reads: FLAC, Ogg, Opus, MP3. Several channels become their mean. libsndfile 1.2.0
 * leaks 6 KB for each Ogg file that ends inside its headers: what takes files from strangers should
 * open them in a process that ends. */
REEL_API REEL_MUST_USE enum reel_status reel_audio_open(struct reel_audio **out, const char *path,
                                                        const struct reel_audio_options *options,
                                                        struct reel_error *err);
/* Up to n samples; *n_read is 0 at the end only. */
REEL_API REEL_MUST_USE enum reel_status reel_audio_read(struct reel_audio *audio, float *samples,
                                                        size_t n, size_t *n_read,
                                                        struct reel_error *err);
/* Of the whole recording, where its header says so; -1. */
REEL_API double reel_audio_seconds(const struct reel_audio *audio);
/* What was wrong with the input so far and did not stop it, such as an end that is missing; NULL:
 * nothing. Borrowed. */
REEL_API const char *reel_audio_warning(const struct reel_audio *audio);
REEL_API void reel_audio_close(struct reel_audio *audio);

/* One recording after the other through a speech model (family "qwen3_asr"), one thread at a time.
 * Long recordings are cut where they are quietest near the end of a segment, each segment is
 * transcribed by itself, and no more than a segment is held: an hour needs no more audio in memory
 * than a minute. With stream_seconds a segment is transcribed while it is spoken, too. */
struct reel_transcriber;

/* on_text: new text; all of a recording's, joined, is the text of its transcript. It comes as soon
 * as nothing after it can change it. on_partial: what the model takes the rest for so far; each
 * text (it may be empty) takes the place of the one before, and stands behind what on_text got. It
 * is empty when a segment ends. `segment` counts from 0. Return false to stop. May not call the
 * transcriber. */
typedef bool (*reel_text_fn)(void *user, const char *text, size_t n_bytes, int segment);

struct reel_transcriber_options {
    size_t size;
    const char *language;   /* a name or code of the model's languages: "English", "en"; NULL: the
                               model finds out, for each segment */
    const char *context;    /* names and words to expect, or what is spoken about; or NULL */
    double segment_seconds; /* 1 to 1200; 0: 30. A cut lies up to 5 s before or after it. */
    int max_tokens;         /* of a segment's answer; 0: 8 a second, at least 512, at most 4096 */
    bool past_text;         /* the end of the text so far is context of the next segment */
    reel_text_fn on_text;   /* or NULL */
    void *user;
    /* Called with "transcribing", milliseconds of audio, 0, often enough to cancel with. */
    reel_progress_fn progress;
    void *progress_user;
    bool skip_silence; /* 2 s without sound end a segment; the next begins 0.3 s before sound comes
                          again, and what lies between is in none */
    /* 0.5 to 10: whenever so much of a segment is new, all of it is answered for on_text and
     * on_partial. Text is certain once a later step has begun with it, so it may differ from that
     * without steps. The first pause within 5 s of the limit ends a segment; segment_seconds is at
     * most 55. The same text comes however pushes are cut. 0: no steps. */
    double stream_seconds;
    reel_text_fn on_partial; /* or NULL; only called in steps */
};

/* All memory is taken here but for the features, at most a segment's, and the transcript. The model
 * must outlive it. REEL_E_UNSUPPORTED for a model that does not hear. */
REEL_API REEL_MUST_USE enum reel_status
reel_transcriber_open(struct reel_transcriber **out, const struct reel_model *model,
                      const struct reel_transcriber_options *options, struct reel_error *err);
REEL_API void reel_transcriber_close(struct reel_transcriber *t);

/* n more samples of the recording, as struct reel_audio gives them. Transcribes what is complete.
 * Samples beyond 1 make it divide by the largest so far. After a failure, or a callback that
 * returned false (REEL_E_CANCELLED), only _reset and _close are allowed. */
REEL_API REEL_MUST_USE enum reel_status reel_transcriber_push(struct reel_transcriber *t,
                                                              const float *samples, size_t n,
                                                              struct reel_error *err);

struct reel_segment {
    double start, end;    /* seconds, of the cuts: words begin later and end earlier */
    const char *text;     /* without white space around it; may be empty */
    const char *language; /* "English"; empty: unknown, or nothing was said */
    const int32_t *ids;   /* [n_ids] as generated, language tag and stop id included */
    int n_ids;
    bool cut_short; /* max_tokens ended it */
};

struct reel_transcript {
    size_t size;
    const char *text;     /* of all segments, a space between them where the script has spaces */
    const char *language; /* those of the segments, joined by commas, each once in a row */
    const struct reel_segment *segments;
    int n_segments;
    /* Of all answers, those of steps included: vectors made of audio, ids read, generated. */
    int n_audio_tokens, n_prompt_tokens, n_tokens;
    double seconds;                                         /* of audio */
    double features_ms, encoder_ms, prompt_ms, generate_ms; /* where the time went */
    double first_text_ms;   /* from the end of the audio it was made of; 0: no text came */
    int stream_steps;       /* answers, those at the ends of segments included; 0 without steps */
    double stream_worst_ms; /* the slowest, from when its audio was there to its text */
};

/* The recording ends: transcribes the rest. *transcript (its size set; or NULL) is filled with what
 * is borrowed and valid until the next call on the transcriber. The next push begins another
 * recording; after a size that no version had (REEL_E_ARGUMENT) the call may be made again. */
REEL_API REEL_MUST_USE enum reel_status reel_transcriber_finish(struct reel_transcriber *t,
                                                                struct reel_transcript *transcript,
                                                                struct reel_error *err);

/* Forgets the recording; the next push begins another. */
REEL_API void reel_transcriber_reset(struct reel_transcriber *t);

enum reel_transcript_format {
    REEL_TRANSCRIPT_TEXT = 0,
    REEL_TRANSCRIPT_JSON,         /* {"text": ...} */
    REEL_TRANSCRIPT_VERBOSE_JSON, /* task, language, duration, text, segments */
    REEL_TRANSCRIPT_SRT,
    REEL_TRANSCRIPT_VTT
};

/* *text is the caller's to reel_free. */
REEL_API REEL_MUST_USE enum reel_status
reel_transcript_text(const struct reel_transcript *transcript, enum reel_transcript_format format,
                     char **text, size_t *n_bytes, struct reel_error *err);

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
};

struct reel_tune_result {
    size_t size;
    char gpu_options[160]; /* the best values: "cap_layers=3,..." */
    double before_short, before_long, after_short, after_long;
    int long_context;
    bool improved;
    char path[480]; /* where it was remembered; empty: it was not */
};

/* Finds the launch settings with which this GPU decodes this model fastest, and leaves the model
 * with them; models of this shape that are opened with the same cache folder on such a GPU use them
 * from then on. Nothing else may use the model meanwhile. Takes less than a minute. */
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
