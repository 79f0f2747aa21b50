#include "cuda/run/cuda_pool.h"

#include "base/memory.h"
#include "base/numbers.h"

#include <string.h>

enum {
    SLAB_BYTES = 64 << 20,     /* that a slab should have: many small pieces, or few large ones */
    RESERVE_BYTES = 256 << 20, /* left to the driver and to others, where a pool has no limit; */
    RESERVE_PART = 16,         /* at most this part of a small GPU's memory */
    NAN_BYTE = 0xff
};

enum reel_status cuda_pool_open(struct cuda_pool *pool, const struct cuda_gpu *gpu,
                                const struct cuda_pool_use *use, struct reel_error *err) {
    pool->gpu = gpu;
    pool->use = *use;
    pool->mutex_made = pthread_mutex_init(&pool->mutex, NULL) == 0;
    return pool->mutex_made ? REEL_OK : err_memory(err, "a mutex", sizeof pool->mutex);
}

void cuda_pool_close(struct cuda_pool *pool, bool untouchable) {
    for (int i = 0; i < pool->room && !untouchable; i++)
        cuda_free(pool->gpu, pool->slabs[i].base);
    mem_free(pool->slabs);
    if (pool->mutex_made) pthread_mutex_destroy(&pool->mutex);
    *pool = (struct cuda_pool){ 0 };
}

/* ---- slabs; with the mutex held ---- */

static enum reel_status refuse_full(const struct cuda_pool *pool, const char *why,
                                    struct reel_error *err) {
    const struct cuda_pool_use *use = &pool->use;
    return err_set(err, REEL_E_MEMORY,
                   "the pool of %s is full: it holds %d %s, %.1f MB, all in use, and %s%s",
                   use->name, pool->n_pieces, use->pieces,
                   (double)pool->n_pieces * (double)use->piece_bytes * 1e-6, why, use->advice);
}

/* How many pieces the next slab may have. */
static enum reel_status slab_pieces(const struct cuda_pool *pool, int *n, struct reel_error *err) {
    const uint64_t piece = pool->use.piece_bytes;
    uint64_t n_free = 0, n_total = 0, room;
    enum reel_status status = cuda_memory(pool->gpu, &n_free, &n_total, err);
    if (status != REEL_OK) return status;
    const uint64_t held = (uint64_t)pool->n_pieces * piece;
    const uint64_t reserve = u64_min(RESERVE_BYTES, n_total / RESERVE_PART);
    room = n_free > reserve ? n_free - reserve : 0;
    if (pool->use.most_bytes) {
        const uint64_t limit = u64_max(pool->use.most_bytes, piece);
        const uint64_t left = limit > held ? limit - held : 0;
        if (left < piece) return refuse_full(pool, "that is its limit", err);
        room = u64_min(n_free, left);
    }
    if (piece == 0 || room < piece)
        return refuse_full(pool, "the GPU has no memory left for more", err);
    *n = (int)u64_min(u64_min(u64_max(SLAB_BYTES / piece, 1), SLAB_PIECES), room / piece);
    return REEL_OK;
}

/* A place for a slab, perhaps in a longer list. */
static enum reel_status slab_place(struct cuda_pool *pool, int *place, struct reel_error *err) {
    struct cuda_slab *longer = NULL;
    for (*place = 0; *place < pool->room; ++*place)
        if (!pool->slabs[*place].base) return REEL_OK;
    const int room = pool->room ? 2 * pool->room : 16;
    enum reel_status status =
        mem_zeroed(&longer, (size_t)room, sizeof *longer, "the list of a pool's slabs", err);
    if (status != REEL_OK) return status;
    if (pool->room) memcpy(longer, pool->slabs, (size_t)pool->room * sizeof *longer);
    mem_free(pool->slabs);
    pool->slabs = longer, pool->room = room;
    return REEL_OK;
}

static enum reel_status grow(struct cuda_pool *pool, struct reel_error *err) {
    int n = 0, place = 0;
    enum reel_status status = slab_pieces(pool, &n, err);
    if (status == REEL_OK) status = slab_place(pool, &place, err);
    if (status != REEL_OK) return status;
    struct cuda_slab *slab = &pool->slabs[place];
    status = cuda_alloc(pool->gpu, &slab->base, (size_t)n * (size_t)pool->use.piece_bytes,
                        pool->use.memory, err);
    if (status != REEL_OK) return status;
    slab->n_pieces = n, pool->n_pieces += n;
    return REEL_OK;
}

/* The first piece that nobody holds; -1: there is none. */
static int find_piece(const struct cuda_pool *pool) {
    for (int i = 0; pool->n_used < pool->n_pieces && i < pool->room; i++) {
        const struct cuda_slab *slab = &pool->slabs[i];
        for (int j = 0; slab->n_used < slab->n_pieces && j < slab->n_pieces; j++)
            if (slab->holders[j] == 0) return i * SLAB_PIECES + j;
    }
    return -1;
}

static int *holders(struct cuda_pool *pool, int number) {
    return &pool->slabs[number / SLAB_PIECES].holders[number % SLAB_PIECES];
}

static cu_address address(const struct cuda_pool *pool, int number) {
    return pool->slabs[number / SLAB_PIECES].base +
           (cu_address)((uint64_t)(number % SLAB_PIECES) * pool->use.piece_bytes);
}

/* ---- pieces ---- */

enum reel_status cuda_pool_take(struct cuda_pool *pool, struct cuda_piece *piece,
                                struct reel_error *err) {
    enum reel_status status = REEL_OK;
    pthread_mutex_lock(&pool->mutex);
    int number = find_piece(pool);
    if (number < 0) {
        status = grow(pool, err);
        if (status == REEL_OK) number = find_piece(pool);
    }
    if (status == REEL_OK) {
        *holders(pool, number) = 1;
        pool->slabs[number / SLAB_PIECES].n_used++, pool->n_used++;
        *piece = (struct cuda_piece){ number, address(pool, number) };
    }
    pthread_mutex_unlock(&pool->mutex);
    if (status == REEL_OK && pool->use.poison)
        status =
            cuda_fill(pool->gpu, piece->at, NAN_BYTE, (size_t)pool->use.piece_bytes, NULL, err);
    return status;
}

void cuda_pool_share(struct cuda_pool *pool, const int *numbers, int n) {
    pthread_mutex_lock(&pool->mutex);
    for (int i = 0; i < n; i++)
        ++*holders(pool, numbers[i]);
    pthread_mutex_unlock(&pool->mutex);
}

void cuda_pool_give_back(struct cuda_pool *pool, const int *numbers, int n) {
    pthread_mutex_lock(&pool->mutex);
    for (int i = 0; i < n; i++) {
        if (--*holders(pool, numbers[i]) > 0) continue;
        pool->slabs[numbers[i] / SLAB_PIECES].n_used--, pool->n_used--;
    }
    pthread_mutex_unlock(&pool->mutex);
}

bool cuda_pool_is_shared(struct cuda_pool *pool, int number) {
    pthread_mutex_lock(&pool->mutex);
    const bool shared = *holders(pool, number) > 1;
    pthread_mutex_unlock(&pool->mutex);
    return shared;
}

void cuda_pool_shrink(struct cuda_pool *pool, int n_spare) {
    pthread_mutex_lock(&pool->mutex);
    for (int i = 0; i < pool->room; i++) {
        struct cuda_slab *slab = &pool->slabs[i];
        if (!slab->base || slab->n_used > 0 || n_spare-- > 0) continue;
        cuda_free(pool->gpu, slab->base);
        pool->n_pieces -= slab->n_pieces;
        *slab = (struct cuda_slab){ 0 };
    }
    pthread_mutex_unlock(&pool->mutex);
}
