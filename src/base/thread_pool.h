/* Threads that spin briefly, then sleep: a decoded token is a hundred or more phases of a few
 * microseconds each, and a pool that slept between them would cost more than the work.
 *
 * A region is one token or one chunk of a prompt. Its phases are parted by barriers, and a phase is
 * a number of pieces of work. A phase is over when its pieces are done, not when all threads have
 * come: on a busy machine a thread may lose its core for as long as thousands of phases take, and
 * the others go on without it. The thread that was late finds nothing left to take in the phases
 * that it missed, and catches up in a moment. Only a thread that loses its core in the middle of a
 * piece holds up the others.
 *
 * So whatever a phase writes, and whatever it reads of an earlier phase, belongs into its pieces:
 *
 *     for (int i; (i = thread_pool_take(pool, thread, n_rows)) >= 0;)
 *         ... row i ...
 *     if (!thread_pool_barrier(pool, thread)) return;
 *
 * Between a barrier and its first piece a thread may be late. Others may then be writing what it
 * would read, so it touches nothing but what is constant in the region and what is its own. */
#ifndef REEL_BASE_THREAD_POOL_H
#define REEL_BASE_THREAD_POOL_H

#include "base/error.h"

#include <stdbool.h>

#define THREAD_POOL_MAX 256

struct thread_pool;

/* n_threads counts the calling thread; 0 means one per core the process may use. */
enum reel_status thread_pool_open(struct thread_pool **out, int n_threads, struct reel_error *err);
/* In a forked child the threads are gone: it frees the memory and waits for nobody. */
void thread_pool_close(struct thread_pool *pool);
int thread_pool_size(const struct thread_pool *pool);

/* Runs work(user, thread, n_threads) on the calling thread, which is thread 0, and on those of the
 * others that have a core to run on. Returns when thread 0 has returned and no other thread is
 * inside any more: afterwards nobody touches `user`. Thread 0 goes through all phases, or gives the
 * region up by returning early. One caller at a time; a second one waits. */
void thread_pool_run(struct thread_pool *pool, void (*work)(void *user, int thread, int n_threads),
                     void *user);

/* Inside a region only. A piece of this phase that nobody else has, of 0 .. n - 1, or -1 when all
 * are taken. All threads give the same n, at least 1. A thread takes until it gets -1. */
int thread_pool_take(struct thread_pool *pool, int thread, int n);

/* Inside a region only. Waits until the phase's pieces are done: what they wrote is seen by all
 * pieces afterwards. False: the region has ended without this thread, which has to return from it
 * at once and may not touch its data. Thread 0 never sees false. */
__attribute__((warn_unused_result)) bool thread_pool_barrier(struct thread_pool *pool, int thread);

/* Cores this process may use: its affinity, cut by a cgroup's CPU quota. At least 1. */
int thread_pool_cores(void);

#endif
