/* A session's K and V as bytes of the host, for snapshots.
 *
 * The bytes are [attention layers][kv_heads][kv_pieces(n)][piece]: row by row, the pieces of a row
 * out of all pages, so that they do not depend on the size of a page. In a page the parts of all
 * rows lie one behind the other. So a page travels as a whole, by way of a pinned buffer of the
 * model, and the host puts the parts of its rows where they belong. A page that is larger than the
 * buffer goes in some copies of whole rows. */
#ifndef REEL_CUDA_CUDA_SAVED_H
#define REEL_CUDA_CUDA_SAVED_H

#include "base/error.h"

#include <pthread.h>

struct backend;
struct backend_state;

struct cuda_stage {
    pthread_mutex_t mutex; /* guards what follows */
    bool mutex_made;
    void *host; /* GPU_SAVED: taken when a session is saved or restored for the first time */
};

enum reel_status cuda_stage_open(struct cuda_stage *stage, struct reel_error *err);
void cuda_stage_close(struct backend *b);

/* Of the first n positions. */
size_t cuda_saved_bytes(const struct backend_state *s, int n);
/* What lies behind position n in the last piece is zeros. */
enum reel_status cuda_saved_read(const struct backend_state *s, int n, unsigned char *bytes,
                                 struct reel_error *err);
/* The session has pages for n positions. */
enum reel_status cuda_saved_write(struct backend_state *s, int n, const unsigned char *bytes,
                                  struct reel_error *err);

#endif
