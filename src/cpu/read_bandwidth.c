/* The machine's read bandwidth as decoding sees it: every thread streams its own part of a buffer
 * much larger than the caches, once. */
#include "base/memory.h"
#include "cpu/thread_pool.h"

#include <stdlib.h>
#include <time.h>

#define BUFFER_BYTES ((size_t)1 << 30) /* several times any last-level cache */
#define ROUNDS       5

struct stream {
    uint64_t *words;
    size_t n_words;
    uint64_t *sums; /* [threads * 8]: a cache line each; keeps the reads from being dropped */
    bool fill;
};

static void stream_part(void *user, int thread, int n_threads) {
    struct stream *s = user;
    size_t step = s->n_words / (size_t)n_threads & ~(size_t)63;
    uint64_t *p = s->words + step * (size_t)thread;
    uint64_t a = 0, b = 0, c = 0, d = 0;
    if (s->fill) {
        for (size_t i = 0; i < step; i++)
            p[i] = i * 0x9e3779b97f4a7c15u;
        return;
    }
    for (size_t i = 0; i < step; i += 32)
        for (size_t j = i; j < i + 32; j += 4) {
            a ^= p[j];
            b ^= p[j + 1];
            c ^= p[j + 2];
            d ^= p[j + 3];
        }
    s->sums[(size_t)thread * 8] = a ^ b ^ c ^ d;
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

enum reel_status reel_measure_read_bandwidth(int n_threads, double *bytes_per_s,
                                             struct reel_error *err) {
    struct thread_pool *pool = NULL;
    struct stream s = { .n_words = BUFFER_BYTES / sizeof *s.words, .fill = true };
    *bytes_per_s = 0;
    enum reel_status status = thread_pool_open(&pool, n_threads, err);
    if (status != REEL_OK) return status;
    size_t n = (size_t)thread_pool_size(pool);
    status = mem_aligned(&s.sums, n * 8, sizeof *s.sums, "sums", err);
    if (status == REEL_OK) {
        s.words = aligned_alloc(64, BUFFER_BYTES); /* not mem_aligned: threads touch it first */
        if (!s.words) status = err_memory(err, "measuring read bandwidth", BUFFER_BYTES);
    }
    if (status == REEL_OK) thread_pool_run(pool, stream_part, &s);
    s.fill = false;
    for (int i = 0; i < ROUNDS && status == REEL_OK; i++) {
        double start = now_s();
        thread_pool_run(pool, stream_part, &s);
        double rate =
            (double)(s.n_words / n & ~(size_t)63) * (double)n * sizeof *s.words / (now_s() - start);
        if (rate > *bytes_per_s) *bytes_per_s = rate;
    }
    free(s.words);
    free(s.sums);
    thread_pool_close(pool);
    return status;
}
