/* What stands behind struct reel_model: the checkpoint, the backend that runs it, and what sessions
 * need to know about both. Immutable once opened, but for whose turn it is. */
#ifndef REEL_RUNTIME_MODEL_HANDLE_H
#define REEL_RUNTIME_MODEL_HANDLE_H

#include "base/sha256.h"
#include "runtime/passes.h"
#include "runtime/turns.h"

#include <sys/types.h>

struct reel_model {
    struct model model;
    const struct backend_ops *ops;
    struct backend *backend;
    struct backend_info backend_info;
    struct turns *turns;   /* of its sessions; NULL: the backend needs none */
    struct passes *passes; /* likewise; NULL: the backend decodes one session at a time */
    int prompt_slice;      /* as in reel_model_options; set before model_handle_start */
    enum reel_rounding rounding;
    enum kv_form kv;           /* in which its sessions keep keys and values */
    char identity[SHA256_HEX]; /* of config, tensor table and the beginning of every tensor */
    size_t max_token_bytes;    /* of the longest token's text */
    pid_t process;             /* that opened it; 0: none did, as in tests of parts */
};

/* REEL_E_STATE in a process that was forked after the model had been opened: the pool's threads
 * are not there, and a GPU's context is the parent's. A system call of some 0.1 us, so it is made
 * once for each evaluation or token, not in loops inside. */
enum reel_status model_handle_is_here(const struct reel_model *handle, struct reel_error *err);

/* Opens the backend over handle->model, which is loaded already, and fills in the rest. On failure
 * the caller still releases the model. */
enum reel_status model_handle_start(struct reel_model *handle, const struct backend_ops *ops,
                                    const struct backend_options *options, struct reel_error *err);
/* Closes what it opened, also after a failure. */
void model_handle_stop(struct reel_model *handle);

/* The model's audio tower: its backend's, or the CPU's where that has none for it. */
struct model_tower {
    const struct reel_model *handle; /* borrowed */
    const struct audio_tower_ops *ops;
    struct audio_tower *tower;
};

enum reel_status model_tower_open(struct model_tower *t, const struct reel_model *handle,
                                  struct reel_error *err);
/* As in audio_tower_ops. */
enum reel_status model_tower_run(const struct model_tower *t, const float *features, int n_frames,
                                 float *out, struct reel_error *err);
void model_tower_close(struct model_tower *t); /* zeroed: nothing */

/* Host memory that the backend reads and writes best. */
enum reel_status model_floats_alloc(const struct reel_model *handle, float **out, size_t n,
                                    const char *what, struct reel_error *err);
void model_floats_free(const struct reel_model *handle, float *floats); /* NULL: nothing */

#endif
