/* NVRTC, NVIDIA's compiler as a library, opened at run time. */
#ifndef REEL_CUDA_NVRTC_H
#define REEL_CUDA_NVRTC_H

#include "base/error.h"
#include "cuda/driver/cuda_calls.h"

struct nvrtc {
    void *library;
    struct nvrtc_calls call; /* all set */
    /* From 12.8 on, else NULL: the compiler asks `asked` now and then and gives up when it
     * returns 1. */
    int (*set_flow)(struct nvrtc_program *program, int (*asked)(void *payload, void *reserved),
                    void *payload);
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

/* Whether it makes machine code for this compute capability (90). */
enum reel_status nvrtc_check_target(const struct nvrtc *nvrtc, int compute, struct reel_error *err);

/* What an error number of NVRTC means and what to do. */
const char *nvrtc_error_text(int error);

#endif
