/* Attention's scratch in shared memory; see phase_attention.cuh. Included by shared.cuh only. */
#ifndef REEL_KERNELS_PHASE_ATTENTION_SHARED_CUH
#define REEL_KERNELS_PHASE_ATTENTION_SHARED_CUH

struct ALIGN(16) attention_shared {
    float cos_sin[M_HEAD_DIM]; /* of this token: cos[head_dim / 2], sin[head_dim / 2] */
};

#endif
