/* Compiling the kernels for one model, plan and GPU, and remembering the result.
 *
 * This room, src/cuda/compile, makes machine code. It sees the driver room beside it, which has the
 * compiler, and base; neither run nor measure. */
#ifndef REEL_CUDA_KERNEL_BUILD_H
#define REEL_CUDA_KERNEL_BUILD_H

#include "base/sha256.h"
#include "cuda/compile/kernel_sources.h"
#include "cuda/driver/nvrtc.h"

struct kernel_build {
    const struct nvrtc *nvrtc;
    const struct kernel_source *sources; /* [n_sources]: the program and all it includes */
    int n_sources;
    const char *program;   /* which of them is compiled: "decode.cu" */
    const char *constants; /* "NAME=value" a line, from plan_constants, or an option of the
                              compiler; NULL: none */
    int compute;           /* target: 90, at most the GPU's; 0: the GPU's */
    int gpu_compute;    /* the GPU's: where it is newer than the target by a major version, PTX is
                           made instead of machine code, and the driver translates it */
    int driver_version; /* 13000 is 13.0 */
    const char *cache_dir;     /* NULL: nothing is read or written */
    reel_progress_fn progress; /* or NULL; "compiling kernels", about ten times a second */
    void *progress_user;
    reel_log_fn log; /* or NULL: a cache file was unusable, ... */
    void *log_user;
};

struct kernel_image {
    void *bytes; /* for cuda_module_load; PTX is terminated by a zero */
    size_t n_bytes;
    bool from_cache;
    double compile_s;     /* 0 from the cache */
    char key[SHA256_HEX]; /* of everything the image depends on */
    char *log;            /* what the compiler said (warnings); NULL: nothing, or from the cache */
};

/* What does not compile is REEL_E_DEVICE with the first lines of the compiler's log and, when there
 * is a cache folder, the path of all of it. A progress callback that returns false ends it with
 * REEL_E_CANCELLED, as soon as the compiler lets go (NVRTC from 12.8 on: soon; older: at its end).
 */
enum reel_status kernel_build(struct kernel_image *image, const struct kernel_build *build,
                              struct reel_error *err);
/* Accepts a zeroed or released one. */
void kernel_image_release(struct kernel_image *image);

#endif
