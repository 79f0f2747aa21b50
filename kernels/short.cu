/* Reads a short prompt with few positions before it in one launch (short.cuh): every SM of a group attends to all of
 * these positions. */
#define SHORT_FAR 0
#include "short.cuh"

KERNEL(P_THREADS) prefill_short(const PARAMETER struct prefill_args args GPUS_PARAMETER) {
#if P_GPUS > 1
    short_launch(&args, &gpus);
#else
    short_launch(&args, 0);
#endif
}
