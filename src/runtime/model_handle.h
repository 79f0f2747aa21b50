/* What stands behind struct reel_model: the checkpoint, the backend that runs it, and what sessions
 * need to know about both. Immutable once opened. */
#ifndef REEL_RUNTIME_MODEL_HANDLE_H
#define REEL_RUNTIME_MODEL_HANDLE_H

#include "base/sha256.h"
#include "runtime/backend.h"

struct reel_model {
    struct model model;
    const struct backend_ops *ops;
    struct backend *backend;
    struct backend_info backend_info;
    enum reel_rounding rounding;
    char identity[SHA256_HEX]; /* of config, tensor table and the beginning of every tensor */
    size_t max_token_bytes;    /* of the longest token's text */
};

/* Opens the backend over handle->model, which is loaded already, and fills in the rest. On failure
 * the caller still releases the model. */
enum reel_status model_handle_start(struct reel_model *handle, const struct backend_ops *ops,
                                    const struct backend_options *options, struct reel_error *err);

#endif
