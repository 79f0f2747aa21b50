/* Weights from the file into the tapes. */
#ifndef REEL_CUDA_CUDA_LOAD_H
#define REEL_CUDA_CUDA_LOAD_H

#include "base/error.h"

#include <stdint.h>

struct backend;
struct backend_options;
struct cu_module;
struct cuda_tuning;

/* Winds all weights into b->tape, which is cleared, and fills b->embedding. */
enum reel_status cuda_load(struct backend *b, const struct backend_options *options,
                           struct cu_module *wind_module, struct reel_error *err);
/* That prepare weights on the host. */
int cuda_load_threads(const struct cuda_tuning *tuning);

#endif
