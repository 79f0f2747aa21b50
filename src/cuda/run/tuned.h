/* What reel_model_tune found, on disk: one file for each GPU, model shape,
 * formats of narrow weights and version of reel. */
#ifndef REEL_CUDA_TUNED_H
#define REEL_CUDA_TUNED_H

#include "base/buffer.h"
#include "cuda/driver/driver.h"
#include "model/model_config.h"
#include "plan/plan.h"

/* CACHE/tuned-GPU-HASH-VERSION.json. formats: those of the weights, as in plan_options. */
enum reel_status tuned_path(struct buffer *path, const char *cache_dir, const struct cuda_gpu *gpu,
                            const struct model_config *config, const int formats[TAPE_N_PHASES],
                            struct reel_error *err);

/* *options stays all zero where there is no such file; *damage says what is wrong with one that is
 * ignored, else NULL. Fails for memory only. */
enum reel_status tuned_read(struct plan_options *options, const char **damage, const char *path,
                            struct reel_error *err);

/* text: "key=value,...". Atomic. */
enum reel_status tuned_write(const char *path, const char *text, double before, double after,
                             struct reel_error *err);

#endif
