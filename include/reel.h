/* reel: small language models at the lowest latency one machine allows.
 *
 * Plain C17, usable from C++. It brings reel_speech.h along: speech to text. reel_measure.h, which
 * measures, tunes and makes models, is for those who include it.
 *
 *   model    an opened checkpoint: immutable, shared by any number of sessions and threads
 *   session  one timeline of tokens with its KV cache; one thread at a time, except _cancel
 *
 * Sessions of one model that many threads use take turns at computing, in the order in which they
 * ask. While another waits a turn lasts 20 ms, or a token or a chunk of a prompt where that takes
 * longer. Sessions that generate at the same time do so together where the backend can, and share
 * every reading of the weights; their turn comes after each of the others'. A session makes the
 * same tokens whatever the others do.
 *
 * Conventions
 * - What can fail returns enum reel_status; REEL_OK is 0. The last argument is a caller-owned
 *   struct reel_error (or NULL) that receives the status and one line of text.
 * - Structs begin with their size: zero them, set `size = sizeof s`, leave what is not needed zero.
 *   Program and library may then be of different versions. Of a struct that the caller fills, the
 *   library takes what is missing as zero; a byte beyond what it knows that is not zero is refused
 *   with REEL_E_UNSUPPORTED, as an option that would be lost. Of one that the library fills, both
 *   sides' common part is written. A size that no version had, such as 0, is REEL_E_ARGUMENT.
 *   New members come at the end, never into padding, and leave none before them.
 * - The elements of a list have a size too, all of them the same: it is the step from one to the
 *   next. A program steps by sizeof through lists that it made, and reads the library's with a
 *   call, such as reel_transcript_segment.
 * - Without a size, as they will not grow: reel_error, reel_memory_file, reel_logit_bias,
 *   reel_top_logprob.
 * - NULL for a handle, or for a pointer that is not said to be optional, is REEL_E_ARGUMENT. A call
 *   that returns no status then answers 0, NULL, -1 or false; _close and _release do nothing.
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
#define REEL_VERSION_MINOR 3
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
REEL_API const char *reel_version(void);                        /* "0.3.0" */
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

enum reel_log_level {
    REEL_LOG_WARNING = 0, /* did not stop the work but should be known: a GPU that cannot be used */
    REEL_LOG_INFO         /* what was chosen and what it took: device, kernels, tuned settings */
};

/* Called with one line, on the calling thread. Higher levels may come: leave out what is above the
 * one wanted. */
typedef void (*reel_log_fn)(void *user, enum reel_log_level level, const char *text);

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
    const char *chat_template; /* NULL: the model's own; "chatml", "gemma", "llama3", "mistral",
                                  "phi3", "qwen3", "qwen3.5", "smollm2", "zephyr": a built-in one;
                                  else the text of a template in Jinja, which holds {{ or {% */
    const char *cache_dir;     /* NULL: no tokenizer or kernel cache is read or written */
    reel_progress_fn progress;
    void *progress_user;
    reel_log_fn log; /* or NULL */
    void *log_user;
    const char *gpu_options; /* NULL, or "key=value,key=value" for experiments and tests: `reel help
                                gpu-options` and docs/GPU_OPTIONS.md list the keys */
    const char *cuda_dir;    /* NULL: where the system keeps them; else the only folder in which the
                                NVIDIA driver's library and NVML are looked for, and NVRTC unless
                                nvrtc_dir names another */
    const char *nvrtc_dir;   /* NULL: as above; else the only folder in which NVRTC, the compiler of
                                the kernels, is looked for: a package's lib folder */
    const char *chat_template_from; /* where chat_template's text is from, for messages: a file's
                                       name; NULL: "the given chat template" */
    int prompt_slice;    /* positions of a prompt that are read in one turn: prompts are cut at its
                            multiples, and other sessions wait for one slice at a time; 0: as many as
                            are read fastest, in turns of 20 ms. Where a prompt is cut may change how
                            its vectors are rounded, so it is cut there whether others wait or not. */
    const char *weights; /* NULL: as the file has them; "int8", "int4", "fp8": wider matrices are
                            quantised while the model is loaded; "bf16": all become bf16 */
    const char *kv; /* what sessions keep keys and values in: NULL or "bf16"; "int8", "fp8" (e4m3):
                       in 8 bits with a scale for each position and KV head, which takes about half
                       of the memory and changes results */
    const char *draft_head; /* NULL, or the folder of an EAGLE-3 head that was trained for this
                               model (config.json and safetensors), which guesses in place of a
                               draft layer of its own; on a CPU's fast paths and on one GPU */
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
    const char *chat_template;        /* "evaluated": the model's own, or the text that was given;
                                         or the name of a built-in one; NULL: there is none, or it
                                         cannot be evaluated */
    const char *chat_template_sha256; /* of the template's text; NULL when there is none */
    double driver_ms;  /* of opening, on a GPU: finding it and starting its driver, */
    double compile_ms; /* compiling the kernels (0: they were cached), */
    double load_ms;    /* bringing the weights to the device */
    bool chat_thinks;  /* the chat template knows thinking */
    /* "bf16": the device holds every matrix rounded to it (a GPU); NULL: the file's own values */
    const char *device_weight_type;
    const char *chat_template_problem; /* why the template that the model carries cannot be
                                          evaluated; NULL when it can, or there is none */
    int most_columns;    /* sessions whose tokens one reading of the weights serves at most, when as
                            many threads generate at once; 1: each reads them for itself */
    const char *kv_type; /* "bf16", "int8" or "fp8": what its sessions keep keys and values in */
    double token_weight_bits; /* token_bytes for each weight that a decoded token reads, in bits:
                                 16 of bf16, 8.5 of q8_0; scales count, and what pads a GPU's narrow
                                 weights */
    int most_drafts;  /* guesses that a pass checks at most (reel_speculation); 0: passes take none
                       */
    int draft_layers; /* 1: the model has a draft layer that guesses here (REEL_SPECULATION_MTP), or
                         was opened with an EAGLE-3 head that does */
};

/* Strings and lists are borrowed from the model. */
REEL_API REEL_MUST_USE enum reel_status reel_model_get_info(const struct reel_model *model,
                                                            struct reel_model_info *info,
                                                            struct reel_error *err);

/* The sampling its makers recommend (generation_config.json); greedy when they say nothing. */
REEL_API REEL_MUST_USE enum reel_status reel_model_default_sampling(const struct reel_model *model,
                                                                    struct reel_sampling *sampling,
                                                                    struct reel_error *err);

/* What is in a model file, without reading its weights: one JSON object as text with "config",
 * "tensors", "tokenizer", "memory". *json is the caller's to reel_free. */
REEL_API REEL_MUST_USE enum reel_status reel_model_inspect(const char *path, char **json,
                                                           struct reel_error *err);

/* Whether reel runs a checkpoint, as far as these files tell, for a program that fetches models and
 * wants the answer before the weights travel. The files: config.json and others of its folder (a
 * tokenizer is judged where its files are among them), or the first bytes of one .gguf file, whose
 * metadata and list of tensors are judged. Status and text of a refusal are those of opening the
 * model, with `name` before them. *complete (or NULL) is false when metadata or list go on behind
 * the bytes given: ask again with more of them. */
REEL_API REEL_MUST_USE enum reel_status reel_model_check(const char *name,
                                                         const struct reel_memory_file *files,
                                                         int n_files, bool *complete,
                                                         struct reel_error *err);

/* How the model's work would be split over a GPU's SMs, and what that takes of the GPU's memory:
 * text for people. gpu: NULL for the first GPU of this machine, or a name such as "h200" or
 * "rtx4090"; the message about another name lists them. *text is the caller's to reel_free. */
REEL_API REEL_MUST_USE enum reel_status reel_model_plan(const char *path, const char *gpu,
                                                        char **text, struct reel_error *err);

struct reel_plan_options {
    size_t size;
    const char *gpu; /* as above */
    const char
        *gpu_options; /* as in reel_model_options: groups, rings, whether weights stay narrow */
    const char *kv;   /* as in reel_model_options */
    int n_gpus;       /* of this kind, that share the model; 0: one */
};
/* The same with GPU options. Where weights stay narrow their scales are looked at. */
REEL_API REEL_MUST_USE enum reel_status
reel_model_plan_with(const char *path, const struct reel_plan_options *options, char **text,
                     struct reel_error *err);

struct reel_quantize_options {
    size_t size;
    const char *weights;  /* "int8", "int4" or "fp8" */
    int n_threads;        /* 0: one per core the process may use */
    uint64_t shard_bytes; /* a file of weights ends before it is longer; 0: 5,000,000,000 */
    reel_progress_fn progress;
    void *progress_user;
};

struct reel_quantize_result {
    size_t size;
    int n_matrices;        /* quantised */
    int n_files;           /* of weights */
    uint64_t n_weights;    /* in the quantised matrices */
    uint64_t matrix_bytes; /* codes and scales of these */
    uint64_t bytes;        /* of all tensors */
    double error; /* root of the sum of squared errors of the quantised weights, as a share of the
                     root of the sum of their squares */
};

/* Writes a model folder in which the layers' matrices are quantised, in the format of the
 * compressed-tensors package (pack-quantized; fp8: float-quantized), which transformers and vLLM
 * read. The embedding and the output matrix stay as they are. The model has to be a folder, or its
 * files in memory, with wide weights, and opened without reel_model_options.weights. `folder` is
 * new; it appears when it is whole and on the disk. result may be NULL. */
REEL_API REEL_MUST_USE enum reel_status
reel_model_quantize(const struct reel_model *model, const char *folder,
                    const struct reel_quantize_options *options,
                    struct reel_quantize_result *result, struct reel_error *err);

struct reel_devices_options {
    size_t size;
    const char *cuda_dir;  /* as in reel_model_options, */
    const char *nvrtc_dir; /* likewise */
};

/* What this machine has, as one JSON object: "cpu" (cores, paths, memory), "gpus" (name, compute
 * capability, memory, versions, whether reel can use it, and in "links" with which others it can
 * share a model), "notes" (what is missing, what to do). */
REEL_API REEL_MUST_USE enum reel_status reel_devices(const struct reel_devices_options *options,
                                                     char **json, struct reel_error *err);

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
    REEL_ENCODE_CONTROL = 1, /* "<|im_end|>" in the text becomes its token; off for foreign text */
    REEL_ENCODE_SPECIAL = 2  /* with what the model's post-processor puts around a text: Llama 3's
                                begin-of-text token, Qwen3-Embedding's token at the end */
};

/* Encodes n_bytes of UTF-8. *n_ids receives the number of ids even when it is above cap, then with
 * REEL_E_LIMIT; ids may be NULL when cap is 0. Never more than 3 ids a byte, and more than one only
 * for the few characters that Unicode normalisation takes apart; REEL_ENCODE_SPECIAL adds at
 * most 16. Invalid UTF-8 is refused with REEL_E_ARGUMENT and the offset of the first bad byte. */
REEL_API REEL_MUST_USE enum reel_status reel_encode(const struct reel_tokenizer *tok,
                                                    const char *text, size_t n_bytes,
                                                    unsigned flags, int32_t *ids, size_t cap,
                                                    size_t *n_ids, struct reel_error *err);

/* The bytes of one id, borrowed from the tokenizer; not necessarily whole UTF-8 characters. NULL
 * and 0 for an id without text. n_bytes may be NULL. */
REEL_API const char *reel_token_bytes(const struct reel_tokenizer *tok, int32_t id,
                                      size_t *n_bytes);
REEL_API bool reel_token_is_control(const struct reel_tokenizer *tok, int32_t id);

/* The id whose bytes are exactly this text, or -1. */
REEL_API int32_t reel_token_find(const struct reel_tokenizer *tok, const char *text,
                                 size_t n_bytes);

struct reel_message {
    size_t size;
    const char *role;         /* "system", "user", "assistant", "tool", "developer" */
    const char *content;      /* UTF-8, terminated; NULL: none, refused by most templates */
    const char *reasoning;    /* an assistant's earlier thinking, or NULL */
    const char *tool_calls;   /* JSON list of {"name", "arguments"}, or NULL */
    const char *name;         /* a tool's answer: the tool's name, or NULL; */
    const char *tool_call_id; /* and the id of the call, which some templates want, or NULL */
};

enum reel_thinking { REEL_THINKING_DEFAULT = 0, REEL_THINKING_ON, REEL_THINKING_OFF };

struct reel_chat_options {
    size_t size;
    enum reel_thinking thinking;
    const char *tools;         /* JSON list of tool descriptions, or NULL */
    bool no_generation_prompt; /* leave out the opening of the assistant's turn */
    char unused[7];            /* where older programs had none of the following */
    /* The last message is the assistant's, and its answer goes on behind the message's content: the
     * text ends there. White space at the content's ends goes where the template cuts it off.
     * Refused where nothing but white space is in it, it has calls, or the template writes it
     * differently. The answer that is read later has the new text alone. */
    bool continue_final_message;
};

/* The conversation as the model's template writes it. *text is terminated and the caller's to
 * reel_free; n_bytes may be NULL. */
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

/* What a model wrote, taken apart. Texts are the struct's; reel_answer_release frees them. Its size
 * is that of this header or more, as a text without a place would be lost. */
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

/* The same while the answer is being written. Its pieces, put together, are what
 * reel_chat_read_answer makes of the whole text, however that was cut. */
enum reel_answer_kind {
    REEL_ANSWER_REASONING,
    REEL_ANSWER_CONTENT,
    REEL_ANSWER_CALL,      /* a call begins: the text is its name */
    REEL_ANSWER_ARGUMENTS, /* of that call, the next part of a JSON object */
    REEL_ANSWER_CALL_END
};

struct reel_answer_piece {
    size_t size;
    enum reel_answer_kind kind;
    const char *text; /* [text_bytes], the library's until the callback returns; not terminated */
    size_t text_bytes;
    int call;    /* counts calls from 0, those that end as broken too; -1 for text */
    bool broken; /* at CALL_END: it was no call after all, see reel_answer_reader_options */
};

/* Return false to stop: the push then fails with REEL_E_CANCELLED. */
typedef bool (*reel_answer_fn)(void *user, const struct reel_answer_piece *piece);

struct reel_answer_reader;
struct reel_answer_reader_options {
    size_t size;
    const struct reel_chat_options *chat; /* those of the prompt, or NULL; copied */
    /* Tell each call when it is complete. Without, a call that is written as JSON is told as it
     * comes, from the first brace of its arguments on. What then turns out not to be a well-formed
     * call ends as broken, its arguments cut off or no JSON; all of its text follows as content, as
     * if no call had been told. Calls between tags are always told when complete. */
    bool whole_calls;
    reel_answer_fn on_piece;
    void *user;
};

/* The model must outlive the reader, which one thread uses at a time. */
REEL_API REEL_MUST_USE enum reel_status
reel_answer_reader_open(struct reel_answer_reader **out, const struct reel_model *model,
                        const struct reel_answer_reader_options *options, struct reel_error *err);
/* Reads on and tells what is certain. Held back is only what may belong to a tag or a call, and
 * white space that may be cut off. A piece ends inside a character only where a push did. */
REEL_API REEL_MUST_USE enum reel_status reel_answer_reader_push(struct reel_answer_reader *reader,
                                                                const char *text, size_t n_bytes,
                                                                struct reel_error *err);
/* The answer is complete: tells the rest. Nothing can be pushed afterwards. */
REEL_API REEL_MUST_USE enum reel_status reel_answer_reader_finish(struct reel_answer_reader *reader,
                                                                  struct reel_error *err);
REEL_API void reel_answer_reader_close(struct reel_answer_reader *reader);

/* ---- sessions -------------------------------------------------------------------------------- */

/* Speculation: what may come next is guessed, and one pass over the weights checks several guesses
 * at once. It changes no id, no log-probability and no text, only how soon they come. */
enum reel_speculation {
    REEL_SPECULATION_AUTO = 0, /* where it makes ids come faster, as measured while they are made */
    REEL_SPECULATION_OFF,
    REEL_SPECULATION_NGRAM, /* whenever the last ids stood in the session before: what followed them
                               then is the guess. REEL_E_UNSUPPORTED where passes take no guesses.
                             */
    REEL_SPECULATION_MTP,   /* before every pass: what the model's own draft layer (multi-token
                               prediction) tells. REEL_E_UNSUPPORTED where there is none that runs. */
    REEL_SPECULATION_DRAFT, /* before every pass: what the session's draft model tells.
                               REEL_E_UNSUPPORTED where it has none, or passes take no guesses. */
    REEL_SPECULATION_EAGLE3 /* as REEL_SPECULATION_MTP: what the EAGLE-3 head tells that the model
                               was opened with, draft_head */
};

struct reel_session_options {
    size_t size;
    int max_context; /* positions to hold; 0: the model's, or less where memory is short */
    /* Called by sync and eval with "evaluating", positions, positions. On the session it may call
     * only _length, _ids, _max_context and _cancel. */
    reel_progress_fn progress;
    void *progress_user;
    /* REEL_SPECULATION_MTP: the draft layer follows the session from its first token on, so that
     * guesses are as good as they get; reading a prompt takes some more work. Otherwise it follows
     * from the first generation on that asks for its guesses. Fails as that does.
     * REEL_SPECULATION_AUTO: the same where the layer runs on the CPU, or is an EAGLE-3 head.
     * Where it follows, generations with REEL_SPECULATION_AUTO ask it, too, where that makes ids
     * come faster. */
    enum reel_speculation speculation;
    char unused[4]; /* where older programs had none of the following */
    /* A draft model: a smaller one with the same vocabulary that guesses for this session, with
     * REEL_SPECULATION_DRAFT before every pass and with REEL_SPECULATION_AUTO where that is
     * measured to be faster than guesses from the session's own ids, and than none. NULL: there is
     * none. It may guess for any number of sessions, of any threads, be used by itself meanwhile
     * and run on another device; it must outlive this session, as the session's own model must.
     * Each id below the length of the shorter of both vocabularies must be the same token of both,
     * and some id end the texts of both: else REEL_E_MISMATCH names the first that differs. Ids
     * beyond are never guessed.
     *
     * The session opens one on the draft model, of as many positions or as that was made for;
     * behind these there are no guesses. It reads a prompt when a generation first asks it. Its
     * memory comes on top, and counts where max_context is 0. Where passes take no guesses
     * (reel_model_info.most_drafts is 0) it is not opened. */
    const struct reel_model *draft_model;
};

/* What a session needs whatever its length is taken here; on the CPU that is all. On a GPU the
 * session takes memory for its positions as it grows, out of a pool that all sessions of the model
 * share, and a copy shares what it has in common with the session that it was made of. With the
 * pool full, reading a prompt waits a few seconds for other sessions at work to give memory back,
 * and fails with REEL_E_MEMORY; a generation that has made a token ends with REEL_STOP_MEMORY. The
 * model must outlive the session. */
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
    REEL_OUTPUT_NONE = 0,    /* nothing is made of the last position: the cheapest */
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
    float *out;        /* as `output` says; caller-owned; NULL with REEL_OUTPUT_NONE. NULL with
                          REEL_OUTPUT_LAST_LOGITS, too: they are kept for a generation alone. */
    size_t out_floats; /* capacity of out, checked; 0 where out is NULL */
};

/* Appends n positions and evaluates them. On failure the session is as it was. A generation after
 * it needs the logits of the last position: they are on hand after the logits outputs, and else
 * made from its id, which evaluates it again. They cannot be made from an embedding: ask for
 * REEL_OUTPUT_LAST_LOGITS where a generation follows one, with `out` NULL when only it needs them.
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

/* Ends the running sync, eval, embedding, reranking or generation soon, with REEL_E_CANCELLED (a
 * generation: with REEL_STOP_CANCELLED). The one call allowed from any thread. With nothing running
 * it does nothing: a request never outlives the call it was meant for. */
REEL_API void reel_session_cancel(struct reel_session *session);

/* ---- embedding and reranking ----------------------------------------------------------------- */

/* What a model's files say of embedding with it. */
struct reel_embed_info {
    size_t size;
    bool stated;                /* they say that it was made for that; any model can be tried */
    int n_prompts;              /* that they name: texts that go before a query or a document */
    const char *default_prompt; /* the name of that before every text, or NULL; borrowed */
};

/* REEL_E_UNSUPPORTED, saying what was found, where they ask for something that reel does not do,
 * such as the mean of all positions: reel takes the last one's vector. */
REEL_API REEL_MUST_USE enum reel_status reel_model_get_embed_info(const struct reel_model *model,
                                                                  struct reel_embed_info *info,
                                                                  struct reel_error *err);

/* The name of prompt `index`, and in *text (or NULL) its text, borrowed from the model; NULL past
 * the last. */
REEL_API const char *reel_model_embed_prompt(const struct reel_model *model, int index,
                                             const char **text);

struct reel_embed {
    size_t size;
    const int32_t *ids; /* of all texts, one behind the other */
    const int *lengths; /* [n_texts] ids of each: 1 to the session's context */
    int n_texts;
    int dimensions;    /* 0: all; else so many from the first, for models trained so (Matryoshka) */
    bool no_normalise; /* vectors stay as long as they are; else they are made of length 1 */
    float *out;        /* f32 [n_texts, dimensions] */
    size_t out_floats; /* capacity of out, checked */
};

/* A vector for each text, of its last id and after the final norm. Any number of texts: they are
 * packed, short ones many to a pass, and none sees another. Reports "embedding" to the session's
 * progress. An argument that is refused changes nothing; otherwise the session is empty afterwards,
 * also after a failure. The model's end of text belongs to the ids: see reel_encode. */
REEL_API REEL_MUST_USE enum reel_status reel_session_embed(struct reel_session *session,
                                                           const struct reel_embed *embed,
                                                           struct reel_error *err);

struct reel_rerank {
    size_t size;
    const char *query;            /* UTF-8, terminated, as are the others */
    const char *instruction;      /* what to judge by; NULL: that of a web search */
    const char *const *documents; /* [n_documents] */
    int n_documents;
    int max_tokens;  /* of a query, its document and what is around them; 0: 8192, or the session's
                        context where that is less */
    float *scores;   /* f32 [n_documents] how likely it is that the document answers the query */
    bool *truncated; /* [n_documents] whether its end was cut off, to keep to max_tokens; or NULL */
};

/* Judges documents as Qwen3-Reranker was trained to, in its own prompt: the score is the share of
 * "yes" in "yes" and "no" as the next token. Otherwise as reel_session_embed. */
REEL_API REEL_MUST_USE enum reel_status reel_session_rerank(struct reel_session *session,
                                                            const struct reel_rerank *rerank,
                                                            struct reel_error *err);

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
    size_t size;
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
    REEL_STOP_CANCELLED,
    REEL_STOP_MEMORY /* there is no memory for another position; the tokens made are kept */
};

/* Return false to stop after this token. Called on the thread that called reel_generate, and may
 * take its time: others wait for a turn at most. On the session it may call only _length, _ids,
 * _max_context and _cancel. */
typedef bool (*reel_token_fn)(void *user, const struct reel_token *token);

#define REEL_MAX_DRAFTS 7

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
    enum reel_speculation speculation;
    int most_drafts; /* guesses that a pass checks at most: 1 to REEL_MAX_DRAFTS; 0: as many as it
                        takes, or 3 of a draft layer, each of which costs a reading of it; of a
                        draft model as many as are measured to be fastest. With
                        REEL_SPECULATION_DRAFT it is asked for just so many. */
};

struct reel_generation_result {
    size_t size;
    enum reel_stop_reason reason;
    int n_tokens;
    int stop_string;       /* index of the one that matched, or -1 */
    double first_token_ms; /* from the start of this call to the first token */
    double total_ms;
    int n_passes;   /* over the weights: n_tokens less n_accepted */
    int n_drafted;  /* guesses that were checked, */
    int n_accepted; /* and those of them that were right */
    char unused[4]; /* where older programs had none of the following */
    /* Why the draft model guessed no more, such as memory that it lacks; the session went on
     * without it. NULL: nothing was wrong. The session's, until its next call. */
    const char *draft_problem;
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
 * token is dropped. It fails for a wrong argument only, and then too the generation has ended. The
 * strings and lists named by `generation` must stay alive until then; in between, the session
 * answers only _length, _ids, _max_context and _cancel. */
REEL_API REEL_MUST_USE enum reel_status
reel_generation_start(struct reel_session *session, const struct reel_generation *generation,
                      struct reel_error *err);
REEL_API REEL_MUST_USE enum reel_status reel_generation_next(struct reel_session *session,
                                                             const struct reel_token **token,
                                                             struct reel_error *err);
REEL_API enum reel_status reel_generation_finish(struct reel_session *session,
                                                 struct reel_generation_result *result,
                                                 struct reel_error *err);

#ifdef __cplusplus
}
#endif

#include "reel_speech.h"

#endif
