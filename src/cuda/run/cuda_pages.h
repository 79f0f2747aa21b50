/* The pages of K and V (kernels/kv_layout.h) of each session: pieces of a pool of the model
 * (cuda_pool.h).
 *
 * A session takes pages as it grows and shares those of a common prefix with its copies. Whoever
 * writes into a page that others hold too takes a page of its own first, and copies. */
#ifndef REEL_CUDA_CUDA_PAGES_H
#define REEL_CUDA_CUDA_PAGES_H

#include "cuda/run/cuda_pool.h"

struct backend;
struct backend_state;

/* Opens the model's pool of pages. */
enum reel_status cuda_pages_open_pool(struct backend *b, struct reel_error *err);

/* What a session holds. A page is known by the number that the pool gave it. */
struct cuda_pages {
    int *page;                 /* [most] page numbers; -1 from n on */
    unsigned long long *table; /* [GPUs][most] pinned: their addresses on each GPU */
    int n, most;
    cu_address device; /* the same table, for kernels */
    int n_stale;       /* entries of the table that have yet to go to the device: all before this */
};

enum reel_status cuda_pages_open(struct backend_state *s, struct reel_error *err);
void cuda_pages_close(struct backend_state *s);

/* Takes pages for positions `from` to end - 1, which a launch may write, and makes the page of
 * `from` the session's own. What lies before `from` stays. *reached: up to where pages are there;
 * REEL_E_MEMORY where not even for `from`. */
enum reel_status cuda_pages_reach(struct backend_state *s, int from, int end, int *reached,
                                  struct reel_error *err);
/* The same for all of them or none. */
enum reel_status cuda_pages_reach_all(struct backend_state *s, int from, int end,
                                      struct reel_error *err);
/* Gives back the pages that hold none of the first n positions. */
void cuda_pages_keep(struct backend_state *s, int n);
/* dst, which keeps none of its own, shares the pages of src's first n positions. */
void cuda_pages_share(struct backend_state *dst, const struct backend_state *src, int n);

/* Puts the table's upload into the queue, where it has changed. */
enum reel_status cuda_pages_queue_table(struct backend_state *s, struct reel_error *err);

#endif
