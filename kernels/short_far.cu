/* Reads a short prompt with many positions before it: as short.cu, but the SMs of a group share the positions
 * (short_far.cuh). It is a program of its own, because what that takes would hold registers in the other. */
#define SHORT_FAR 1
#include "short.cuh"

KERNEL(P_THREADS) prefill_short(const PARAMETER struct prefill_args args GPUS_PARAMETER) {
    short_launch(&args, GPUS_POINTER);
}
