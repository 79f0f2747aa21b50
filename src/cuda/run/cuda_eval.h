/* Evaluating given positions. */
#ifndef REEL_CUDA_CUDA_EVAL_H
#define REEL_CUDA_CUDA_EVAL_H

#include "runtime/backend.h"

enum reel_status cuda_eval(struct backend_state *s, const struct backend_eval *eval,
                           struct reel_error *err);
/* Whether n positions can be evaluated at `position`. */
enum reel_status cuda_check_room(const struct backend_state *s, int position, int n,
                                 struct reel_error *err);

#endif
