/* What GPUs this machine has, for the planner and for people. */
#ifndef REEL_CUDA_GPU_INFO_H
#define REEL_CUDA_GPU_INFO_H

#include "cuda/driver/driver.h"
#include "cuda/driver/library.h"
struct gpu_limits; /* plan/plan.h */

#include <jansson.h>

/* The planner's view of n GPUs of one kind. */
void gpu_limits_fill(struct gpu_limits *limits, const struct cuda_gpu_facts *facts, int n);

/* Which GPUs "auto", "gpu" (the first that can be used), "gpu:N", "gpu:N,M" or "gpu:all" means:
 * *n numbers in index[CUDA_MOST_GPUS]. Anything but REEL_OK says why they cannot be used: no
 * driver, no GPU, too old, no NVRTC, no such number. No context is made. */
enum reel_status gpu_choose(int *index, int *n, const char *device,
                            const struct cuda_folders *folders, struct reel_error *err);

/* *gpus = a list of objects (name, uuid, compute, sms, memory_bytes, memory_free_bytes, driver,
 * nvrtc, power_w, usable, links: the GPUs with which it can share a model, ...); *notes = a list of
 * texts: what is missing and what to do. The caller's to json_decref. Fails only for memory: no
 * driver is an empty list and a note. */
enum reel_status gpu_describe(json_t **gpus, json_t **notes, const struct cuda_folders *folders,
                              struct reel_error *err);

#endif
