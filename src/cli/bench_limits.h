/* What a GPU can do at best, for reel bench. */
#ifndef REEL_CLI_BENCH_LIMITS_H
#define REEL_CLI_BENCH_LIMITS_H

#include "cli/options.h"

/* reel bench --limits: measures and prints, as --output says. */
enum reel_status bench_limits(const struct cli_args *args, struct reel_error *err);

/* The read ceiling alone, of the GPU that --device means. */
enum reel_status bench_gpu_read(const struct cli_args *args, double *bytes_per_s,
                                struct reel_error *err);

#endif
