/* What runtime/backend.h asks of GPUs before a model is opened, and to tune one that is. */
#ifndef REEL_CUDA_CUDA_MACHINE_H
#define REEL_CUDA_CUDA_MACHINE_H

#include "runtime/backend.h"

extern const struct machine_ops cuda_machine;
extern const struct tuning_ops cuda_tuning_ops;

#endif
