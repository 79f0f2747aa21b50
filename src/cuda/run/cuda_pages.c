#include "cuda/run/cuda_pages.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "cuda/run/cuda_backend.h"
#include "cuda/run/cuda_memory.h"
#include "cuda/run/cuda_state.h"
#include "kernels/kv_layout.h"

#include <string.h>

enum {
    SLAB_BYTES = 64 << 20,     /* that a slab should have: many small pages, or few large ones */
    RESERVE_BYTES = 256 << 20, /* left to the driver and to others, where the pool has no limit; */
    RESERVE_PART = 16,         /* at most this part of a small GPU's memory */
    NAN_BYTE = 0xff
};

/* ---- the pool ---- */

enum reel_status cuda_pool_open(struct cuda_pool *pool, struct reel_error *err) {
    pool->mutex_made = pthread_mutex_init(&pool->mutex, NULL) == 0;
    return pool->mutex_made ? REEL_OK : err_memory(err, "a mutex", sizeof pool->mutex);
}

void cuda_pool_close(struct backend *b) {
    struct cuda_pool *pool = &b->pool;
    for (int i = 0; i < pool->room && !cuda_untouchable(b); i++)
        cuda_free(&b->gpu, pool->slabs[i].base);
    mem_free(pool->slabs);
    if (pool->mutex_made) pthread_mutex_destroy(&pool->mutex);
    *pool = (struct cuda_pool){ 0 };
}

static cu_address page_address(const struct backend *b, int page) {
    return b->pool.slabs[page / SLAB_PAGES].base +
           (cu_address)((uint64_t)(page % SLAB_PAGES) * b->plan.kv_page_bytes);
}

static int *page_holders(const struct backend *b, int page) {
    return &b->pool.slabs[page / SLAB_PAGES].holders[page % SLAB_PAGES];
}

static enum reel_status refuse_full(const struct backend *b, const char *why,
                                    struct reel_error *err) {
    return err_set(
        err, REEL_E_MEMORY,
        "the pool of K and V is full: it holds %d pages of %d positions, %.1f MB, all in "
        "use, and %s; the GPU option kv_pool_mb sets its size",
        b->pool.n_pages, b->plan.kv_page * KV_POSITIONS,
        (double)b->pool.n_pages * (double)b->plan.kv_page_bytes * 1e-6, why);
}

/* How many pages the next slab may have; 0 and why: none. */
static enum reel_status slab_pages(const struct backend *b, int *n, struct reel_error *err) {
    const uint64_t page = b->plan.kv_page_bytes;
    uint64_t n_free = 0, n_total = 0, room;
    enum reel_status status = cuda_memory(&b->gpu, &n_free, &n_total, err);
    if (status != REEL_OK) return status;
    const uint64_t held = (uint64_t)b->pool.n_pages * page;
    const uint64_t reserve = u64_min(RESERVE_BYTES, n_total / RESERVE_PART);
    room = n_free > reserve ? n_free - reserve : 0;
    if (b->tuning.kv_pool_mb) {
        const uint64_t limit = u64_max((uint64_t)b->tuning.kv_pool_mb << 20, page);
        const uint64_t left = limit > held ? limit - held : 0;
        if (left < page) return refuse_full(b, "that is its limit", err);
        room = u64_min(n_free, left);
    }
    if (page == 0 || room < page) return refuse_full(b, "the GPU has no memory left for more", err);
    *n = (int)u64_min(u64_min(u64_max(SLAB_BYTES / page, 1), SLAB_PAGES), room / page);
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

static enum reel_status grow(struct backend *b, struct reel_error *err) {
    struct cuda_pool *pool = &b->pool;
    int n = 0, place = 0;
    enum reel_status status = slab_pages(b, &n, err);
    if (status == REEL_OK) status = slab_place(pool, &place, err);
    if (status != REEL_OK) return status;
    struct cuda_slab *slab = &pool->slabs[place];
    status = cuda_alloc(&b->gpu, &slab->base, (size_t)n * (size_t)b->plan.kv_page_bytes,
                        gpu_part_text(GPU_KV), err);
    if (status != REEL_OK) return status;
    slab->n_pages = n, pool->n_pages += n;
    return REEL_OK;
}

/* The first page that nobody holds; -1: there is none. */
static int find_page(const struct cuda_pool *pool) {
    for (int i = 0; pool->n_used < pool->n_pages && i < pool->room; i++) {
        const struct cuda_slab *slab = &pool->slabs[i];
        for (int j = 0; slab->n_used < slab->n_pages && j < slab->n_pages; j++)
            if (slab->holders[j] == 0) return i * SLAB_PAGES + j;
    }
    return -1;
}

struct taken {
    int page;
    cu_address at;
};

static enum reel_status take_page(struct backend *b, struct taken *taken, struct reel_error *err) {
    struct cuda_pool *pool = &b->pool;
    enum reel_status status = REEL_OK;
    pthread_mutex_lock(&pool->mutex);
    int page = find_page(pool);
    if (page < 0) {
        status = grow(b, err);
        if (status == REEL_OK) page = find_page(pool);
    }
    if (status == REEL_OK) {
        *page_holders(b, page) = 1;
        pool->slabs[page / SLAB_PAGES].n_used++, pool->n_used++;
        *taken = (struct taken){ page, page_address(b, page) };
    }
    pthread_mutex_unlock(&pool->mutex);
    if (status == REEL_OK && b->tuning.poison)
        status = cuda_fill(&b->gpu, taken->at, NAN_BYTE, (size_t)b->plan.kv_page_bytes, NULL, err);
    return status;
}

/* The pool's mutex is held. */
static void drop_page(struct backend *b, int page) {
    if (--*page_holders(b, page) > 0) return;
    b->pool.slabs[page / SLAB_PAGES].n_used--, b->pool.n_used--;
}

static void free_empty_slabs(struct backend *b) {
    struct cuda_pool *pool = &b->pool;
    pthread_mutex_lock(&pool->mutex);
    for (int i = 0; i < pool->room && !cuda_untouchable(b); i++) {
        struct cuda_slab *slab = &pool->slabs[i];
        if (!slab->base || slab->n_used > 0) continue;
        cuda_free(&b->gpu, slab->base);
        pool->n_pages -= slab->n_pages;
        *slab = (struct cuda_slab){ 0 };
    }
    pthread_mutex_unlock(&pool->mutex);
}

/* ---- a session's pages ---- */

enum reel_status cuda_pages_open(struct backend_state *s, struct reel_error *err) {
    struct cuda_pages *p = &s->pages;
    struct backend *b = s->backend;
    void *table = NULL;
    cu_address mapped = 0;
    p->most = gpu_kv_pages(&b->plan, s->max_positions);
    enum reel_status status =
        mem_zeroed(&p->page, (size_t)p->most, sizeof *p->page, "a table of pages", err);
    if (status == REEL_OK)
        status = cuda_part_host_alloc(&b->gpu, &s->memory, GPU_KV_TABLE_HOST, &table, &mapped, err);
    if (table) memset(table, 0, (size_t)p->most * sizeof *p->table);
    p->table = table;
    if (status == REEL_OK)
        status = cuda_part_alloc(&b->gpu, &s->memory, GPU_KV_TABLE, &p->device, err);
    return status;
}

void cuda_pages_close(struct backend_state *s) {
    struct cuda_pages *p = &s->pages;
    struct backend *b = s->backend;
    cuda_pages_keep(s, 0);
    free_empty_slabs(b);
    if (!cuda_untouchable(b)) {
        cuda_free(&b->gpu, p->device);
        cuda_host_free(&b->gpu, p->table);
    }
    mem_free(p->page);
}

static void set_page(struct backend_state *s, int i, const struct taken *taken) {
    struct cuda_pages *p = &s->pages;
    p->page[i] = taken->page;
    if (p->table[i] == taken->at) return; /* most often a session takes again what it gave back */
    p->table[i] = taken->at;
    p->n_stale = int_max(p->n_stale, i + 1);
}

static int page_positions(const struct backend_state *s) {
    return s->backend->plan.kv_page * KV_POSITIONS;
}

/* A page becomes the session's own: it copies one that others hold too. The copy comes before the
 * session's next launch in the device's queue, and the launches of those who take the old page
 * once nobody holds it come later still. */
static enum reel_status own_page(struct backend_state *s, int i, struct reel_error *err) {
    struct backend *b = s->backend;
    const int old = s->pages.page[i];
    struct taken own;
    pthread_mutex_lock(&b->pool.mutex);
    const bool shared = *page_holders(b, old) > 1;
    pthread_mutex_unlock(&b->pool.mutex);
    if (!shared) return REEL_OK;
    enum reel_status status = take_page(b, &own, err);
    if (status != REEL_OK) return status;
    status =
        cuda_queue_copy(&b->gpu, own.at, s->pages.table[i], (size_t)b->plan.kv_page_bytes, err);
    pthread_mutex_lock(&b->pool.mutex);
    drop_page(b, status == REEL_OK ? old : own.page);
    pthread_mutex_unlock(&b->pool.mutex);
    if (status == REEL_OK) set_page(s, i, &own);
    return status;
}

/* Takes pages up to `end`, as far as there are any. */
static enum reel_status take_up_to(struct backend_state *s, int from, int end, int *reached,
                                   struct reel_error *err) {
    struct cuda_pages *p = &s->pages;
    const int own = from / page_positions(s);
    enum reel_status status = REEL_OK;
    *reached = from;
    cuda_pages_keep(s, from + 1); /* those behind it may be shared, and what they hold is over */
    if (own < p->n) status = own_page(s, own, err);
    while (status == REEL_OK) {
        struct taken taken;
        *reached = int_max(from, int_min(end, p->n * page_positions(s)));
        if (*reached == end) break;
        status = take_page(s->backend, &taken, err);
        if (status == REEL_OK) set_page(s, p->n++, &taken);
    }
    return status;
}

enum reel_status cuda_pages_reach(struct backend_state *s, int from, int end, int *reached,
                                  struct reel_error *err) {
    enum reel_status status = take_up_to(s, from, end, reached, err);
    if (status != REEL_E_MEMORY || *reached == from) return status;
    err_clear(err);
    return REEL_OK;
}

enum reel_status cuda_pages_reach_all(struct backend_state *s, int from, int end,
                                      struct reel_error *err) {
    int reached = from;
    enum reel_status status = take_up_to(s, from, end, &reached, err);
    if (status != REEL_OK) cuda_pages_keep(s, from);
    return status;
}

void cuda_pages_keep(struct backend_state *s, int n) {
    struct cuda_pages *p = &s->pages;
    struct backend *b = s->backend;
    const int kept = gpu_kv_pages(&b->plan, n);
    if (p->n <= kept) return;
    pthread_mutex_lock(&b->pool.mutex);
    while (p->n > kept)
        drop_page(b, p->page[--p->n]);
    pthread_mutex_unlock(&b->pool.mutex);
}

void cuda_pages_share(struct backend_state *dst, const struct backend_state *src, int n) {
    struct backend *b = dst->backend;
    const int pages = gpu_kv_pages(&b->plan, n);
    cuda_pages_keep(dst, 0);
    pthread_mutex_lock(&b->pool.mutex);
    for (int i = 0; i < pages; i++) {
        const struct taken shared = { src->pages.page[i], src->pages.table[i] };
        ++*page_holders(b, shared.page);
        set_page(dst, i, &shared);
    }
    pthread_mutex_unlock(&b->pool.mutex);
    dst->pages.n = pages;
}

enum reel_status cuda_pages_queue_table(struct backend_state *s, struct reel_error *err) {
    struct cuda_pages *p = &s->pages;
    if (p->n_stale == 0) return REEL_OK;
    enum reel_status status = cuda_queue_upload(&s->backend->gpu, p->device, p->table,
                                                (size_t)p->n_stale * sizeof *p->table, err);
    if (status == REEL_OK) p->n_stale = 0;
    return status;
}
