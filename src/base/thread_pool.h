/* Threads that spin briefly, then sleep: a decoded token is a hundred or more phases of a few
 * microseconds each, and a pool that slept between them would cost more than the work.
 *
 * One region per token or prefill chunk; inside it the phases are separated by barriers and take
 * their pieces of work from a shared counter, so that a thread that loses its core for a while
 * delays the others by one piece, not by half a phase. */
#ifndef REEL_BASE_THREAD_POOL_H
#define REEL_BASE_THREAD_POOL_H

#include "base/error.h"

#define THREAD_POOL_MAX 256

struct thread_pool;

/* n_threads counts the calling thread; 0 means one per core the process may use. */
enum reel_status thread_pool_open(struct thread_pool **out, int n_threads, struct reel_error *err);
/* In a forked child the threads are gone: it frees the memory and waits for nobody. */
void thread_pool_close(struct thread_pool *pool);
int thread_pool_size(const struct thread_pool *pool);

/* Runs work(user, t, n) on every thread t < n and returns when all are done. One caller at a time;
 * a second one waits. */
void thread_pool_run(struct thread_pool *pool, void (*work)(void *user, int thread, int n_threads),
                     void *user);

/* Inside a region only. All threads meet; what each wrote before is seen by all afterwards. */
void thread_pool_barrier(struct thread_pool *pool);

/* Inside a region only: 0, 1, 2, ... each to one thread, from 0 again after every barrier. */
int thread_pool_take(struct thread_pool *pool);

/* Cores this process may use: its affinity, cut by a cgroup's CPU quota. At least 1. */
int thread_pool_cores(void);

#endif
