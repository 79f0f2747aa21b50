/* What Gated DeltaNets need besides their tapes: gates and constants of the model. Nothing for a
 * model without such layers. */
#ifndef REEL_CUDA_CUDA_DELTA_H
#define REEL_CUDA_CUDA_DELTA_H

#include "cuda/run/cuda_backend.h"

enum reel_status cuda_delta_open(struct backend *b, struct reel_error *err);

#endif
