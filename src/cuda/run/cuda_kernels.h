/* The kernels of a model: compiled or taken from the cache, loaded, and proven to be resident. */
#ifndef REEL_CUDA_CUDA_KERNELS_H
#define REEL_CUDA_CUDA_KERNELS_H

#include "base/error.h"

#include <stdatomic.h>

struct backend;
struct backend_options;
struct cu_module;
struct cuda_function;
struct plan;

/* How one of the kernels that read prompts or audio is launched. */
struct cuda_kernel_shape {
    const char *name; /* NULL: the model has no use for it */
    int threads, shared_bytes;
    int blocks; /* of a launch; 0: as many as the GPU has SMs */
};

/* Fills b->module, b->decode, ...; times.compile is 0 when all came from the cache. The caller
 * unloads *wind_module, also after a failure. */
enum reel_status cuda_open_kernels(struct backend *b, const struct backend_options *options,
                                   struct cu_module **wind_module, struct reel_error *err);
/* Fills b->packed, whose mutex is held; compiles on this thread, in silence. */
enum reel_status cuda_open_packed_kernels(struct backend *b, struct reel_error *err);
/* Those that make a draft layer's inputs, likewise. */
enum reel_status cuda_open_draft_kernels(struct backend *b, struct cu_module **module,
                                         struct cuda_function *halves,
                                         struct cuda_function *product, struct reel_error *err);
/* The kernel for so many sessions as the plan has columns, likewise. The caller unloads *module,
 * also after a failure. cancel (or NULL): once it is true compiling ends with REEL_E_CANCELLED, as
 * soon as the compiler lets go. */
enum reel_status cuda_open_columns_kernel(struct backend *b, const struct plan *plan,
                                          const atomic_bool *cancel, struct cu_module **module,
                                          struct cuda_function *function, struct reel_error *err);

#endif
