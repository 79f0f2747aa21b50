/* What GPUs this machine has, for the planner and for people. */
#ifndef REEL_CUDA_GPU_INFO_H
#define REEL_CUDA_GPU_INFO_H

#include "cuda/driver.h"
#include "plan/plan.h"

#include <jansson.h>

/* The planner's view of a GPU. */
void gpu_limits_fill(struct gpu_limits *limits, const struct cuda_gpu_facts *facts);

/* Which GPU "auto", "gpu" or "gpu:N" means. *index = -1: none that can be used, and err says why
 * (no driver, no GPU, too old, no NVRTC); the status is that of the reason. Other texts are
 * REEL_E_ARGUMENT. Opens and closes the driver: no context is made. */
enum reel_status gpu_choose(int *index, const char *device, const char *cuda_dir,
                            struct reel_error *err);

/* *gpus = a list of objects (name, uuid, compute, sms, memory_bytes, memory_free_bytes, driver,
 * nvrtc, power_w, usable, ...); *notes = a list of texts: what is missing and what to do. The
 * caller's to json_decref. Fails only for memory: no driver is an empty list and a note. */
enum reel_status gpu_describe(json_t **gpus, json_t **notes, const char *cuda_dir,
                              struct reel_error *err);

#endif
