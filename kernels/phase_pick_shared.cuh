/* Scratch of the sampler in shared memory; see phase_pick.cuh. Included by shared.cuh only. */
#ifndef REEL_KERNELS_PHASE_PICK_SHARED_CUH
#define REEL_KERNELS_PHASE_PICK_SHARED_CUH

struct pick_shared {
    u32 any;
};

#endif
