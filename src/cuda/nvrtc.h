/* NVRTC, NVIDIA's compiler as a library, opened at run time. */
#ifndef REEL_CUDA_NVRTC_H
#define REEL_CUDA_NVRTC_H

#include "base/error.h"
#include "cuda/cuda_calls.h"

struct nvrtc {
    void *library;
    struct nvrtc_calls call; /* all set */
    int major, minor;
    char path[256]; /* where it was found */
};

/* Opens the newest NVRTC whose code a driver of this version (13000 is 13.0) can load. `folder` is
 * the only place looked in, or NULL: where the loader looks, then the usual folders. None, or only
 * newer ones than the driver, is REEL_E_UNSUPPORTED with the packages that have it. */
enum reel_status nvrtc_open(struct nvrtc *nvrtc, const char *folder, int driver_version,
                            struct reel_error *err);
/* Accepts a zeroed or closed one. */
void nvrtc_close(struct nvrtc *nvrtc);

#endif
