/* Memory of a model that its sessions take in pieces of one size: pages of K and V, and recurrent
 * states. Several sessions may hold a piece; who wants to write it then takes one of its own and
 * copies.
 *
 * A pool asks the driver for slabs of some pieces as they are needed, up to its limit, or until the
 * driver has no more than a reserve left. Slabs without a piece in use go back when a session
 * closes, all but one while others are open.
 *
 * A piece that one session gives back may be another's in the next launch: the launches of all
 * sessions come one after the other, and a session gives a piece back only between its own. */
#ifndef REEL_CUDA_CUDA_POOL_H
#define REEL_CUDA_CUDA_POOL_H

#include "base/error.h"
#include "cuda/driver/driver.h"

#include <pthread.h>

enum { SLAB_PIECES = 32 }; /* at most */

struct cuda_slab {
    cu_address base; /* 0: none, its place is free */
    int n_pieces, n_used;
    int holders[SLAB_PIECES]; /* of a piece */
};

/* What a pool is for. */
struct cuda_pool_use {
    const char *name; /* what errors say is full */
    char pieces[48];  /* what they call its pieces, in the plural */
    const char *memory;
    const char *advice;   /* ends the error of a full pool; or "" */
    uint64_t piece_bytes; /* 0: there is nothing to take */
    uint64_t most_bytes;  /* of all slabs; 0: what is free, less a reserve */
    bool poison;          /* a piece that is taken is filled with NaN */
};

struct cuda_pool {
    const struct cuda_gpu *gpu;
    struct cuda_pool_use use;
    pthread_mutex_t mutex; /* guards what follows */
    bool mutex_made;
    struct cuda_slab *slabs; /* [room] */
    int room;
    int n_pieces, n_used; /* in all slabs */
};

/* A piece is known by the number that its pool gave it; -1: none. */
struct cuda_piece {
    int number;
    cu_address at;
};

enum reel_status cuda_pool_open(struct cuda_pool *pool, const struct cuda_gpu *gpu,
                                const struct cuda_pool_use *use, struct reel_error *err);
/* All sessions are closed. Frees nothing on the device when that is untouchable. */
void cuda_pool_close(struct cuda_pool *pool, bool untouchable);

/* A piece that nobody else holds. REEL_E_MEMORY: there is none left. */
enum reel_status cuda_pool_take(struct cuda_pool *pool, struct cuda_piece *piece,
                                struct reel_error *err);
/* One more holder of these pieces. */
void cuda_pool_share(struct cuda_pool *pool, const int *numbers, int n);
/* Gives these pieces back. */
void cuda_pool_give_back(struct cuda_pool *pool, const int *numbers, int n);
/* Whether others hold a piece, too. */
bool cuda_pool_is_shared(struct cuda_pool *pool, int number);
/* Frees slabs without a piece in use, but for n_spare of them. */
void cuda_pool_shrink(struct cuda_pool *pool, int n_spare);

#endif
