/* Threads that spin briefly, then sleep: a decode step is hundreds of parallel regions of a few
 * microseconds, and a pool that slept between them would cost more than the work. */
#ifndef REEL_CPU_THREAD_POOL_H
#define REEL_CPU_THREAD_POOL_H

#include "base/error.h"

struct thread_pool;

/* n_threads counts the calling thread; 0 means one per core the process may use. */
enum reel_status thread_pool_open(struct thread_pool **out, int n_threads, struct reel_error *err);
void thread_pool_close(struct thread_pool *pool);
int thread_pool_size(const struct thread_pool *pool);

/* Runs work(user, t, n) on every thread t < n and returns when all are done. One caller at a time;
 * a second one waits. */
void thread_pool_run(struct thread_pool *pool, void (*work)(void *user, int thread, int n_threads),
                     void *user);

#endif
