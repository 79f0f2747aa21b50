#define _GNU_SOURCE /* sched_getaffinity */
#include "base/thread_pool.h"

#include "base/memory.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Looks at the awaited word before sleeping. A pause is 10 to 100 ns, so this is some 50 us: longer
 * than any phase of a small model, shorter than what a scheduler notices. */
#define T_SPINS 2000

#define CACHE_LINE 64

struct thread_pool {
    /* Each word that one thread polls and another writes has a cache line of its own. */
    _Alignas(CACHE_LINE) atomic_uint job;     /* counts regions; a change starts one */
    _Alignas(CACHE_LINE) atomic_uint phase;   /* counts barriers; a change releases one */
    _Alignas(CACHE_LINE) atomic_int arrived;  /* threads at the current barrier */
    _Alignas(CACHE_LINE) atomic_int next;     /* next piece of work of this phase */
    _Alignas(CACHE_LINE) atomic_int sleepers; /* threads inside, or on their way into, `wake` */
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    pthread_mutex_t caller; /* held for a whole region */
    void (*work)(void *user, int thread, int n_threads);
    void *user;
    atomic_bool stop;
    pid_t process; /* that has the threads: a forked child has none of them */
    int n_threads;
    int n_started;
    struct worker {
        struct thread_pool *pool;
        pthread_t thread;
        int index;
    } workers[THREAD_POOL_MAX];
};

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Returns once *word differs from `old`. */
static void await_change(struct thread_pool *pool, atomic_uint *word, unsigned old) {
    for (int i = 0; i < T_SPINS; i++) {
        if (atomic_load_explicit(word, memory_order_acquire) != old) return;
        relax();
    }
    /* Sequentially consistent on both sides: either the waker sees this sleeper, or the sleeper
     * sees the changed word under the mutex. */
    atomic_fetch_add(&pool->sleepers, 1);
    pthread_mutex_lock(&pool->mutex);
    while (atomic_load(word) == old)
        pthread_cond_wait(&pool->wake, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
    atomic_fetch_sub(&pool->sleepers, 1);
}

static void change(struct thread_pool *pool, atomic_uint *word) {
    atomic_fetch_add(word, 1);
    if (atomic_load(&pool->sleepers) == 0) return;
    pthread_mutex_lock(&pool->mutex);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
}

void thread_pool_barrier(struct thread_pool *pool) {
    unsigned phase = atomic_load_explicit(&pool->phase, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&pool->arrived, 1, memory_order_acq_rel) != pool->n_threads - 1) {
        await_change(pool, &pool->phase, phase);
        return;
    }
    atomic_store_explicit(&pool->arrived, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    change(pool, &pool->phase);
}

int thread_pool_take(struct thread_pool *pool) {
    return atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
}

static void *worker_main(void *argument) {
    struct worker *worker = argument;
    struct thread_pool *pool = worker->pool;
    for (unsigned job = 0;; job++) {
        await_change(pool, &pool->job, job);
        if (atomic_load(&pool->stop)) return NULL;
        pool->work(pool->user, worker->index, pool->n_threads);
        thread_pool_barrier(pool);
    }
}

void thread_pool_run(struct thread_pool *pool, void (*work)(void *user, int thread, int n_threads),
                     void *user) {
    pthread_mutex_lock(&pool->caller);
    pool->work = work;
    pool->user = user;
    atomic_store_explicit(&pool->next, 0, memory_order_relaxed);
    change(pool, &pool->job);
    work(user, 0, pool->n_threads);
    thread_pool_barrier(pool);
    pthread_mutex_unlock(&pool->caller);
}

/* Whole cores a cgroup v2 quota leaves, or `cores` when there is none. Only the file at the root of
 * the visible tree is read: inside a container that is the container's own. */
static int quota_cores(int cores) {
    FILE *file = fopen("/sys/fs/cgroup/cpu.max", "re");
    if (!file) return cores;
    char line[64] = ""; /* "max 100000" or "150000 100000": microseconds in each period */
    char *rest = line;
    if (!fgets(line, sizeof line, file)) line[0] = '\0';
    long long quota = strtoll(line, &rest, 10), period = strtoll(rest, NULL, 10);
    if (quota > 0 && period > 0 && quota <= LLONG_MAX - period) {
        long long whole = (quota + period - 1) / period;
        if (whole < cores) cores = (int)whole;
    }
    fclose(file);
    return cores;
}

int thread_pool_cores(void) {
    cpu_set_t set;
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
    if (cores > THREAD_POOL_MAX) cores = THREAD_POOL_MAX;
    return quota_cores(cores > 0 ? (int)cores : 1);
}

enum reel_status thread_pool_open(struct thread_pool **out, int n_threads, struct reel_error *err) {
    *out = NULL;
    if (n_threads < 0 || n_threads > THREAD_POOL_MAX)
        return err_set(err, REEL_E_ARGUMENT, "%d threads, allowed are 0 (all cores) to %d",
                       n_threads, THREAD_POOL_MAX);
    struct thread_pool *pool = NULL;
    enum reel_status status = mem_aligned(&pool, 1, sizeof *pool, "a thread pool", err);
    if (status != REEL_OK) return status;
    pool->process = getpid();
    pool->n_threads = n_threads ? n_threads : thread_pool_cores();
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_mutex_init(&pool->caller, NULL);
    pthread_cond_init(&pool->wake, NULL);
    /* Signals are the program's business: workers inherit a mask of all but the faults, which
     * belong to the thread that made them. Blocked, a SIGBUS would pass over the handler by which
     * a program explains that its model file shrank. */
    static const int faults[] = { SIGBUS, SIGSEGV, SIGFPE, SIGILL };
    sigset_t others, before;
    sigfillset(&others);
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++)
        sigdelset(&others, faults[i]);
    pthread_sigmask(SIG_BLOCK, &others, &before);
    for (int i = 1; i < pool->n_threads && status == REEL_OK; i++) {
        struct worker *worker = &pool->workers[i];
        *worker = (struct worker){ .pool = pool, .index = i };
        int error = pthread_create(&worker->thread, NULL, worker_main, worker);
        if (error)
            status = err_set(err, REEL_E_MEMORY, "cannot start thread %d of %d: %s", i + 1,
                             pool->n_threads, strerror(error));
        else
            pool->n_started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (status == REEL_OK)
        *out = pool;
    else
        thread_pool_close(pool);
    return status;
}

void thread_pool_close(struct thread_pool *pool) {
    if (!pool) return;
    if (pool->process != getpid()) { /* nobody to wait for; its locks may be held by the absent */
        mem_free(pool);
        return;
    }
    atomic_store(&pool->stop, true);
    change(pool, &pool->job);
    for (int i = 1; i <= pool->n_started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->caller);
    pthread_mutex_destroy(&pool->mutex);
    mem_free(pool);
}

int thread_pool_size(const struct thread_pool *pool) { return pool->n_threads; }
