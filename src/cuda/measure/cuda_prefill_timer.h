/* How long each launch took that read a session's prompt: events around all of them. */
#ifndef REEL_CUDA_CUDA_PREFILL_TIMER_H
#define REEL_CUDA_CUDA_PREFILL_TIMER_H

#include "cuda/measure/prefill_profile.h"
#include "kernels/prefill_args.h"

struct backend;
struct cu_event;

/* Times the launches of one session's prompts. */
struct cuda_prefill_timer {
    struct cu_event **events; /* [prefill_launches() + 1]: before each, and behind the last */
    int n_events;             /* made */
    int n_marked;             /* of the chunk under way */
    struct prefill_times times;
};

enum reel_status cuda_timer_open(struct cuda_prefill_timer **timer, const struct backend *b,
                                 struct reel_error *err);
void cuda_timer_close(struct cuda_prefill_timer *timer,
                      const struct backend *b); /* NULL: nothing */
/* Begins a chunk; NULL: nothing. Then records the next event of it. */
void cuda_timer_restart(struct cuda_prefill_timer *timer);
enum reel_status cuda_timer_mark(struct cuda_prefill_timer *timer, const struct backend *b,
                                 struct reel_error *err);
/* Adds a chunk that was read to the times. */
enum reel_status cuda_timer_add_chunk(struct cuda_prefill_timer *timer, const struct backend *b,
                                      const struct prefill_args *args, struct reel_error *err);

#endif
