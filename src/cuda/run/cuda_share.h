/* Several GPUs that share a model: what a launch of each of them is told.
 *
 * Host code has one set of arguments, with addresses of the first GPU. Here each other GPU's are
 * made of them. */
#ifndef REEL_CUDA_SHARE_H
#define REEL_CUDA_SHARE_H

#include "cuda/run/cuda_backend.h"
#include "kernels/prefill_args.h"

/* The arguments of a launch of decode.cu or columns.cu, on GPU after GPU. */
struct cuda_shared_args {
    const struct backend *b;
    const struct decode_args *decode;   /* of the first GPU, or */
    const struct columns_args *columns; /* these */
    struct decode_args own_decode;      /* of the GPU at hand */
    struct columns_args own_columns;
    struct gpu_args gpus;
    void *own[2];
};

/* For struct cuda_launch: arguments_of and, as user, a struct cuda_shared_args. */
void **cuda_share_args(void *user, int g);

/* The arguments of a launch of prefill.cu, on GPU after GPU. */
struct cuda_shared_prefill {
    struct cuda_shared_args all;
    const struct prefill_args *prefill; /* of the first GPU */
    int *phase, *layer;
    struct prefill_args own;
    void *arguments[3];
};

/* For struct cuda_launch, as cuda_share_args; the second for short.cu, whose blocks are counted
 * through all GPUs. */
void **cuda_share_prefill(void *user, int g);
void **cuda_share_short(void *user, int g);

/* Where SM 0's tape would lie on GPU g, if the tapes of the GPUs before it came before its own. */
cu_address cuda_share_tape(const struct backend *b, int g);

#endif
