/* One run of the compiler, on a thread of its own while the caller hears of it. */
#ifndef REEL_CUDA_KERNEL_COMPILE_H
#define REEL_CUDA_KERNEL_COMPILE_H

#include "cuda/compile/kernel_build.h"

struct compile_input {
    const struct kernel_build *build;
    const char *const *options; /* [n_options] */
    int n_options;
    bool ptx;
};

/* Fills bytes, n_bytes, compile_s and log of the image; the log also when it fails. */
enum reel_status kernel_compile(struct kernel_image *image, const struct compile_input *input,
                                struct reel_error *err);

#endif
