/* The machine's read bandwidth as decoding sees it: a buffer much larger than the caches, streamed
 * once by all threads, with the prefetch distance and the turns that decoding uses. */
#define _GNU_SOURCE /* madvise */
#include "base/clock.h"
#include "base/memory.h"
#include "base/thread_pool.h"
#include "cpu/kernels.h"
#include "reel_measure.h"

#include <string.h>
#include <sys/mman.h>

#define BUFFER_BYTES ((size_t)1 << 30) /* several times any last-level cache */
#define HUGE_PAGE    ((size_t)2 << 20)
#define PIECE        ((size_t)256 << 10) /* taken by turns: the slower thread does not decide */
#define LINE         64
#define ROUNDS       5

struct stream {
    struct thread_pool *pool;
    unsigned char *bytes;
    uint64_t *sums; /* [threads * 8]: a cache line each; keeps the reads from being dropped */
    bool fill;
};

static uint64_t read_piece(const unsigned char *p) {
    typedef uint64_t lanes __attribute__((vector_size(16)));
    lanes sum[4] = { 0 };
    for (size_t i = 0; i < PIECE; i += LINE) {
        __builtin_prefetch(p + i + T_PREFETCH);
#pragma GCC unroll 4
        for (size_t j = 0; j < 4; j++) {
            lanes v;
            memcpy(&v, p + i + j * sizeof v, sizeof v);
            sum[j] ^= v;
        }
    }
    lanes all = sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
    return all[0] ^ all[1];
}

static void stream_pieces(void *user, int thread, int n_threads) {
    struct stream *s = user;
    (void)n_threads;
    for (int i; (i = thread_pool_take(s->pool, thread, BUFFER_BYTES / PIECE)) >= 0;) {
        unsigned char *piece = s->bytes + (size_t)i * PIECE;
        if (s->fill)
            memset(piece, i & 255, PIECE);
        else
            s->sums[(size_t)thread * 8] ^= read_piece(piece);
    }
}

enum reel_status reel_measure_read_bandwidth(int n_threads, double *bytes_per_s,
                                             struct reel_error *err) {
    struct stream s = { .fill = true };
    err_clear(err);
    enum reel_status status = err_if_null(err, "bytes_per_s", (const void *const[]){ bytes_per_s });
    if (status != REEL_OK) return status;
    *bytes_per_s = 0;
    status = thread_pool_open(&s.pool, n_threads, err);
    if (status != REEL_OK) return status;
    size_t n = (size_t)thread_pool_size(s.pool);
    status = mem_aligned(&s.sums, n * 8, sizeof *s.sums, "sums", err);
    if (status == REEL_OK) {
        s.bytes =
            mem_alloc_aligned(HUGE_PAGE, BUFFER_BYTES); /* not mem_aligned: threads touch it */
        if (!s.bytes) status = err_memory(err, "measuring read bandwidth", BUFFER_BYTES);
    }
    if (status == REEL_OK) {
        /* The measure is memory, not address translation; a refusal costs a few per cent. */
        (void)madvise(s.bytes, BUFFER_BYTES, MADV_HUGEPAGE);
        thread_pool_run(s.pool, stream_pieces, &s);
    }
    s.fill = false;
    for (int i = 0; i < ROUNDS && status == REEL_OK; i++) {
        double start = clock_s();
        thread_pool_run(s.pool, stream_pieces, &s);
        double rate = (double)BUFFER_BYTES / (clock_s() - start);
        if (rate > *bytes_per_s) *bytes_per_s = rate;
    }
    mem_free(s.bytes);
    mem_free(s.sums);
    thread_pool_close(s.pool);
    return status;
}
