/* Launches that read prompts, and their scratch memory. */
#ifndef REEL_CUDA_CUDA_PREFILL_H
#define REEL_CUDA_CUDA_PREFILL_H

#include "cuda/driver/driver.h"
#include "cuda/run/cuda_kernels.h"
#include "kernels/prefill_args.h"

struct backend;
struct backend_state;
struct cuda_prefill_timer;

/* The kernels of prefill.cu. */
enum {
    PREFILL_EMBED,
    PREFILL_THIN,
    PREFILL_HALVES,
    PREFILL_WIDE1,
    PREFILL_WIDE2,
    PREFILL_ROPE,
    PREFILL_ATTENTION,
    PREFILL_CONV, /* of Gated DeltaNets, as those that follow */
    PREFILL_CHUNK,
    PREFILL_CHAIN,
    PREFILL_ANSWER,
    PREFILL_JOIN, /* with several GPUs, behind out and down */
    PREFILL_END,
    CUDA_PREFILL_KERNELS
};

/* Classes of launches whose times are remembered. */
enum { CUDA_PREFILL_SIZES = 16 };

bool cuda_prefills(const struct backend *b);
/* Whether short prompts have a launch of their own, and this one is such a prompt. */
bool cuda_reads_shorts(const struct backend *b);
/* ... or, where more positions lie before them than that takes, with short_far.cu. */
bool cuda_reads_shorts_far(const struct backend *b);
bool cuda_prefill_is_short(const struct backend *b, int position, int n_tokens);
/* One of the kernels, as it is launched. */
struct cuda_kernel_shape cuda_prefill_kernel(const struct backend *b, int kernel);
enum reel_status cuda_prefill_open(struct backend *b, struct reel_error *err);
/* Positions of the next launch that reads `left` or fewer; 0: the decode kernel is to read them. */
int cuda_prefill_chunk(const struct backend *b, int position, int left);
/* As cuda_args_start. */
void cuda_prefill_start(const struct backend_state *s, struct prefill_args *args);
/* Where a launch leaves a token's residual stream, f32 [hidden], until the next prompt's launch. */
cu_address cuda_prefill_h(const struct backend *b, int token);
/* Launches what reads the prompt: one launch for a short one, else a queue of them, whose products
 * are cut as is best. With a timer (or NULL) launches do not overlap. b->mutex is held. */
enum reel_status cuda_prefill_launch(struct backend *b, struct prefill_args *args,
                                     struct cuda_prefill_timer *timer, struct reel_error *err);
/* The queue of launches that reads packed texts; b->mutex is held, and b->packed is there. */
enum reel_status cuda_prefill_launch_packed(struct backend *b, struct packed_args *args,
                                            struct reel_error *err);
/* How long a launch of this many tokens took the last time, 0: unknown; and telling that, with
 * b->mutex held. */
double cuda_prefill_ms(struct backend *b, int n_tokens);
void cuda_prefill_took(struct backend *b, int n_tokens, double ms);

#endif
