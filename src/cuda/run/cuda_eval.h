/* Given positions, and tokens that the device picks itself. */
#ifndef REEL_CUDA_CUDA_EVAL_H
#define REEL_CUDA_CUDA_EVAL_H

#include "runtime/backend.h"

enum reel_status cuda_eval(struct backend_state *s, const struct backend_eval *eval,
                           struct reel_error *err);
enum reel_status cuda_decode(struct backend_state *s, const struct backend_decode *decode,
                             struct reel_error *err);

#endif
