/* Reads a short prompt with few positions before it in one launch (short.cuh): every SM of a group attends to all of
 * these positions. */
#define SHORT_FAR 0
#include "short.cuh"

KERNEL(P_THREADS) prefill_short(const PARAMETER struct prefill_args args GPUS_PARAMETER) {
    short_launch(&args, GPUS_POINTER);
}
