/* What a GPU can do at best: read ceiling, exchange latency, launch cost. reel_gpu_limits with its
 * sizes as parameters, which tests make small. */
#ifndef REEL_CUDA_LIMITS_H
#define REEL_CUDA_LIMITS_H

#include "base/error.h"
#include "reel_measure.h"
#include "runtime/backend.h"

#include <jansson.h>

struct limits_sizes {
    uint64_t data_bytes; /* that reading goes over: many times the L2 cache */
    int read_ms;         /* one timed read takes about this long */
    int repeats;         /* of reads and exchanges; medians are given */
    int rounds;          /* exchanges one after the other in a launch */
    int launches;
    int group; /* SMs of a closed set of readers */
    unsigned settle_ns;
    int gather_words[2];
};

void limits_sizes_full(struct limits_sizes *sizes);

/* *out is the caller's to json_decref. */
enum reel_status limits_measure(json_t **out, const struct backend_devices *devices,
                                const struct reel_limits_options *options,
                                const struct limits_sizes *sizes, struct reel_error *err);

#endif
