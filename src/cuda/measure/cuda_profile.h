/* What a launch's time stamps say. */
#ifndef REEL_CUDA_CUDA_PROFILE_H
#define REEL_CUDA_CUDA_PROFILE_H

#include "runtime/backend.h"

enum reel_status cuda_profile(const struct backend_state *s, const struct backend_profile *profile,
                              struct reel_error *err);

#endif
