/* NVML, the driver's management library: energy and power of one GPU. Optional everywhere. */
#ifndef REEL_CUDA_NVML_H
#define REEL_CUDA_NVML_H

#include "base/error.h"

struct nvml_device;
struct nvml_memory {
    unsigned long long total, free, used;
};

struct nvml {
    void *library;
    struct nvml_device *device;
    int (*shutdown)(void);
    int (*read_energy)(struct nvml_device *device, unsigned long long *mj);
    int (*read_power)(struct nvml_device *device, unsigned *mw);
    int (*read_memory)(struct nvml_device *device, struct nvml_memory *memory);
    const char *(*error_text)(int error);
    char driver[80]; /* "580.82.07" */
};

/* Opens libnvidia-ml.so.1 (`folder` as in cuda_driver_open) and finds the GPU by its UUID.
 * REEL_E_UNSUPPORTED where there is none. */
enum reel_status nvml_open(struct nvml *nvml, const char *folder, const char *uuid,
                           struct reel_error *err);
/* Accepts a zeroed or closed one. */
void nvml_close(struct nvml *nvml);

/* Energy since the driver was loaded, in millijoules. REEL_E_UNSUPPORTED on GPUs that do not count
 * (older than Volta). */
enum reel_status nvml_energy(const struct nvml *nvml, uint64_t *mj, struct reel_error *err);
enum reel_status nvml_power(const struct nvml *nvml, double *w, struct reel_error *err);
/* What a program could take now, without making a context. */
enum reel_status nvml_memory_free(const struct nvml *nvml, uint64_t *n_bytes,
                                  struct reel_error *err);

#endif
