#include "cuda/run/cuda_pages.h"

#include "base/memory.h"
#include "base/numbers.h"
#include "cuda/run/cuda_backend.h"
#include "cuda/run/cuda_memory.h"
#include "cuda/run/cuda_state.h"
#include "kernels/kv_layout.h"

#include <stdio.h>
#include <string.h>

enum reel_status cuda_pages_open_pool(struct backend *b, struct reel_error *err) {
    struct cuda_pool_use use = { .name = "K and V",
                                 .memory = gpu_part_text(GPU_KV),
                                 .advice = "; the GPU option kv_pool_mb sets its size",
                                 .piece_bytes = b->plan.kv_page_bytes,
                                 .most_bytes = (uint64_t)b->tuning.kv_pool_mb << 20,
                                 .poison = b->tuning.poison };
    (void)snprintf(use.pieces, sizeof use.pieces, "pages of %d positions",
                   b->plan.kv_page * KV_POSITIONS);
    return cuda_pool_open(&b->pool, &b->gpu, &use, err);
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
    if (table) memset(table, 0, (size_t)(b->gpu.n * p->most) * sizeof *p->table);
    p->table = table;
    if (status == REEL_OK)
        status = cuda_part_alloc(&b->gpu, &s->memory, GPU_KV_TABLE, &p->device, err);
    return status;
}

void cuda_pages_close(struct backend_state *s) {
    struct cuda_pages *p = &s->pages;
    struct backend *b = s->backend;
    cuda_pages_keep(s, 0);
    if (!cuda_untouchable(b)) {
        cuda_free(&b->gpu, p->device);
        cuda_host_free(&b->gpu, p->table);
    }
    mem_free(p->page);
}

static void set_page(struct backend_state *s, int i, const struct cuda_piece *taken) {
    struct cuda_pages *p = &s->pages;
    p->page[i] = taken->number;
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
    struct cuda_piece own;
    if (!cuda_pool_is_shared(&b->pool, old)) return REEL_OK;
    enum reel_status status = cuda_pool_take(&b->pool, &own, err);
    if (status != REEL_OK) return status;
    status =
        cuda_queue_copy(&b->gpu, own.at, s->pages.table[i], (size_t)b->plan.kv_page_bytes, err);
    cuda_pool_give_back(&b->pool, status == REEL_OK ? &old : &own.number, 1);
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
        struct cuda_piece taken;
        *reached = int_max(from, int_min(end, p->n * page_positions(s)));
        if (*reached == end) break;
        status = cuda_pool_take(&s->backend->pool, &taken, err);
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
    cuda_pool_give_back(&b->pool, p->page + kept, p->n - kept);
    p->n = kept;
}

void cuda_pages_share(struct backend_state *dst, const struct backend_state *src, int n) {
    struct backend *b = dst->backend;
    const int pages = gpu_kv_pages(&b->plan, n);
    cuda_pages_keep(dst, 0);
    cuda_pool_share(&b->pool, src->pages.page, pages);
    for (int i = 0; i < pages; i++)
        set_page(dst, i, &(struct cuda_piece){ src->pages.page[i], src->pages.table[i] });
    dst->pages.n = pages;
}

enum reel_status cuda_pages_queue_table(struct backend_state *s, struct reel_error *err) {
    struct cuda_pages *p = &s->pages;
    if (p->n_stale == 0) return REEL_OK;
    const struct cuda_gpu *gpu = &s->backend->gpu;
    const size_t n = (size_t)p->n_stale * sizeof *p->table;
    enum reel_status status = cuda_queue_upload_of(gpu, 0, p->device, p->table, n, err);
    for (int g = 1; g < gpu->n && status == REEL_OK; g++) {
        unsigned long long *table = p->table + (size_t)g * (size_t)p->most;
        for (int i = 0; i < p->n_stale; i++)
            table[i] = cuda_on(gpu, p->table[i], g);
        status = cuda_queue_upload_of(gpu, g, p->device, table, n, err);
    }
    if (status == REEL_OK) p->n_stale = 0;
    return status;
}
