/* The device code inside this program: every file of kernels/, by its name there. */
#ifndef REEL_CUDA_KERNEL_SOURCES_H
#define REEL_CUDA_KERNEL_SOURCES_H

struct kernel_source {
    const char *name; /* "decode.cu" */
    const char *text; /* terminated */
};

/* Written by tools/embed_kernels.sh. */
extern const struct kernel_source kernel_sources[];
extern const int n_kernel_sources;

#endif
