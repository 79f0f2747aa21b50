/* What a set of GPUs has once on each of them: memory, streams, events, modules, functions. Callers
 * know each thing by the first GPU's address or handle, and these tables by what it is on the
 * others. */
#ifndef REEL_CUDA_TWINS_H
#define REEL_CUDA_TWINS_H

#include "base/error.h"

#include <pthread.h>
#include <stdint.h>

enum { CUDA_MOST_GPUS = 8 };

/* `n` bytes from `from` on, on the first GPU; a handle has one byte. */
struct cuda_twin {
    uint64_t from, n;
    uint64_t on[CUDA_MOST_GPUS]; /* on[0] is `from` */
};

struct cuda_twins {
    pthread_mutex_t mutex; /* guards what follows */
    bool mutex_made;
    struct cuda_twin *all; /* [room], by `from` */
    int n, room;
};

enum reel_status cuda_twins_open(struct cuda_twins *t, struct reel_error *err);
void cuda_twins_close(struct cuda_twins *t);

/* Nothing in the table overlaps it. */
enum reel_status cuda_twins_add(struct cuda_twins *t, const struct cuda_twin *twin,
                                struct reel_error *err);
/* Takes what begins at `from` out of the table, into *twin; false: there is nothing. */
bool cuda_twins_take(struct cuda_twins *t, uint64_t from, struct cuda_twin *twin);

/* What `at`, or the place inside something at which it points, is on GPU g of the set. What the
 * table does not have is the same on all GPUs: the default stream, and what the host sees. */
uint64_t cuda_twins_find(struct cuda_twins *t, uint64_t at, int g);

#endif
