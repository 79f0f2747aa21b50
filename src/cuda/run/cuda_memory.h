/* The allocations of a model and of its sessions, each of the size that the memory plan says. */
#ifndef REEL_CUDA_CUDA_MEMORY_H
#define REEL_CUDA_CUDA_MEMORY_H

#include "cuda/driver/driver.h"
#include "plan/gpu_memory_plan.h"

struct backend;

/* What the model and a session of `context` positions take, with the model's tuning. */
void cuda_memory_plan(struct gpu_memory_plan *m, const struct backend *b, int context);

/* Takes one part of the device's memory; *address stays 0 where the plan has none of it. */
enum reel_status cuda_part_alloc(const struct cuda_gpu *gpu, const struct gpu_memory_plan *m,
                                 enum gpu_part part, cu_address *address, struct reel_error *err);
/* The same of a part that is pinned; *host stays NULL. */
enum reel_status cuda_part_host_alloc(const struct cuda_gpu *gpu, const struct gpu_memory_plan *m,
                                      enum gpu_part part, void **host, cu_address *address,
                                      struct reel_error *err);

#endif
