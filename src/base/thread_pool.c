#define _GNU_SOURCE /* sched_getaffinity */
#include "base/thread_pool.h"

#include "base/memory.h"

#include <assert.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Looks at what is awaited before sleeping. A pause is 10 to 100 ns, so this is some 50 us: longer
 * than any phase of a small model, shorter than what a scheduler notices. */
#define T_SPINS 2000

#define CACHE_LINE 64

/* What a thread knows of the region it is in. Only `inside` is looked at by others. */
struct member {
    _Alignas(CACHE_LINE) atomic_bool inside; /* it may touch the region's data */
    uint64_t region;                         /* pool->region as it was when the thread came in */
    uint32_t phase;                          /* that its code has come to */
    int held;                                /* pieces it took in this phase and has not reported */
    bool ahead;                              /* it holds a piece of a later phase, */
    uint64_t mine;                           /* namely this one, as in pool->turn */
    struct thread_pool *pool;
    pthread_t thread; /* not of member 0, who calls */
    int index;
};

struct thread_pool {
    /* Each word that one thread polls and another writes has a cache line of its own. */
    _Alignas(CACHE_LINE) _Atomic uint64_t turn;   /* the phase << 32 | its next piece */
    _Alignas(CACHE_LINE) atomic_int done;         /* pieces of this phase that were reported */
    _Alignas(CACHE_LINE) _Atomic uint64_t region; /* counts openings and ends: odd while open */
    atomic_bool stop;
    _Alignas(CACHE_LINE) atomic_bool sleepers;   /* somebody sleeps on `wakes`, or is about to */
    atomic_uint wakes;                           /* counts them */
    _Alignas(CACHE_LINE) pthread_mutex_t caller; /* held for a whole region */
    void (*work)(void *user, int thread, int n_threads);
    void *user;
    uint32_t first_phase; /* of the region */
    pid_t process;        /* that has the threads: a forked child has none of them */
    int n_threads;
    int n_started;
    struct member members[THREAD_POOL_MAX];
};

static inline void relax(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static uint32_t phase_of(uint64_t turn) { return (uint32_t)(turn >> 32); }
static uint32_t piece_of(uint64_t turn) { return (uint32_t)turn; }
static uint64_t start_of(uint32_t phase) { return (uint64_t)phase << 32; }

/* ---- waiting --------------------------------------------------------------------------------- */

/* What a thread can wait for. */
typedef bool condition(struct thread_pool *pool, const struct member *m);

static bool region_is_new(struct thread_pool *pool, const struct member *m) {
    const uint64_t region = atomic_load(&pool->region);
    return (region % 2 == 1 && region != m->region) || atomic_load(&pool->stop);
}

static bool phase_is_over(struct thread_pool *pool, const struct member *m) {
    return phase_of(atomic_load(&pool->turn)) != m->phase ||
           atomic_load(&pool->region) != m->region;
}

static bool all_have_left(struct thread_pool *pool, const struct member *m) {
    (void)m;
    for (int i = 1; i <= pool->n_started; i++)
        if (atomic_load(&pool->members[i].inside)) return false;
    return true;
}

/* Sequentially consistent here and in wake(): either the waker sees this sleeper, or the sleeper
 * sees that its condition holds. Whoever takes `sleepers` away wakes all, by a new value of
 * `wakes`: one who has read the old one then does not fall asleep any more. */
static inline void await(struct thread_pool *pool, condition *holds, const struct member *m) {
    for (int i = 0; i < T_SPINS; i++) {
        if (holds(pool, m)) return;
        relax();
    }
    while (!holds(pool, m)) {
        const unsigned wakes = atomic_load(&pool->wakes);
        atomic_store(&pool->sleepers, true);
        if (holds(pool, m)) return;
        (void)syscall(SYS_futex, &pool->wakes, FUTEX_WAIT_PRIVATE, wakes, NULL, NULL, 0);
    }
}

/* After a change that somebody may wait for. */
static void wake(struct thread_pool *pool) {
    if (!atomic_load(&pool->sleepers) || !atomic_exchange(&pool->sleepers, false)) return;
    atomic_fetch_add(&pool->wakes, 1);
    (void)syscall(SYS_futex, &pool->wakes, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* ---- coming and going ------------------------------------------------------------------------ */

/* False when the region m->region is over. Sequentially consistent with thread_pool_run's end:
 * either it sees this thread inside and waits for it, or this thread sees that the region is over.
 */
static bool enter(struct thread_pool *pool, struct member *m) {
    atomic_store(&m->inside, true);
    return atomic_load(&pool->region) == m->region;
}

static void leave(struct thread_pool *pool, struct member *m) {
    atomic_store(&m->inside, false);
    if (atomic_load(&pool->region) != m->region) wake(pool); /* the caller waits for it */
}

static void start(struct member *m, uint32_t phase) {
    m->phase = phase;
    m->held = 0;
    m->ahead = false;
}

static void *member_main(void *argument) {
    struct member *m = argument;
    struct thread_pool *pool = m->pool;
    for (;;) {
        await(pool, region_is_new, m);
        if (atomic_load(&pool->stop)) return NULL;
        m->region = atomic_load(&pool->region);
        if (m->region % 2 == 0) continue; /* it is over already */
        if (enter(pool, m)) {
            start(m, pool->first_phase);
            pool->work(pool->user, m->index, pool->n_threads);
        }
        leave(pool, m);
    }
}

void thread_pool_run(struct thread_pool *pool, void (*work)(void *user, int thread, int n_threads),
                     void *user) {
    struct member *m = &pool->members[0];
    pthread_mutex_lock(&pool->caller);
    /* Nobody is inside. A region that was given up left a phase that is not over. */
    pool->work = work;
    pool->user = user;
    pool->first_phase = phase_of(atomic_load(&pool->turn)) + 1;
    start(m, pool->first_phase);
    atomic_store_explicit(&pool->done, 0, memory_order_relaxed);
    atomic_store_explicit(&pool->turn, start_of(m->phase), memory_order_relaxed);
    m->region = atomic_fetch_add(&pool->region, 1) + 1;
    wake(pool);
    work(user, 0, pool->n_threads);
    atomic_fetch_add(&pool->region, 1);
    await(pool, all_have_left, m);
    pthread_mutex_unlock(&pool->caller);
}

/* ---- phases ---------------------------------------------------------------------------------- */

/* Who reports the last piece of a phase begins the next one: nobody else writes then, as there is
 * nothing left to take. */
static void report(struct thread_pool *pool, struct member *m, int n) {
    const int held = m->held;
    if (held == 0) return;
    m->held = 0;
    if (atomic_fetch_add_explicit(&pool->done, held, memory_order_acq_rel) + held < n) return;
    atomic_store_explicit(&pool->done, 0, memory_order_relaxed);
    atomic_store(&pool->turn, start_of(m->phase + 1));
    wake(pool);
}

/* An addition, since many threads that compare and swap would mostly fail. It may come too late and
 * take a piece of a later phase. That phase then waits for this thread to get there, and the thread
 * does not wait on its way: all phases before are over. */
int thread_pool_take(struct thread_pool *pool, int thread, int n) {
    struct member *m = &pool->members[thread];
    assert(n > 0);
    if (!m->ahead) {
        m->mine = atomic_load_explicit(&pool->turn, memory_order_relaxed);
        if (phase_of(m->mine) == m->phase && piece_of(m->mine) < (uint32_t)n) {
            m->mine = atomic_fetch_add_explicit(&pool->turn, 1, memory_order_acquire);
            m->ahead = true;
        }
    }
    if (m->ahead && phase_of(m->mine) != m->phase) return -1;
    if (m->ahead && piece_of(m->mine) < (uint32_t)n) {
        m->ahead = false;
        m->held++;
        return (int)piece_of(m->mine);
    }
    m->ahead = false;
    report(pool, m, n);
    return -1;
}

bool thread_pool_barrier(struct thread_pool *pool, int thread) {
    struct member *m = &pool->members[thread];
    bool open = true;
    if (!phase_is_over(pool, m)) {
        /* Outside while it waits: if it sleeps past the end of the region, nobody waits for it. */
        leave(pool, m);
        await(pool, phase_is_over, m);
        open = enter(pool, m);
    } else if (!m->ahead) {
        open = atomic_load(&pool->region) == m->region;
    }
    m->phase++;
    return open;
}

/* ---- opening and closing --------------------------------------------------------------------- */

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
    pthread_mutex_init(&pool->caller, NULL);
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
        struct member *m = &pool->members[i];
        m->pool = pool;
        m->index = i;
        int error = pthread_create(&m->thread, NULL, member_main, m);
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
    wake(pool);
    for (int i = 1; i <= pool->n_started; i++)
        pthread_join(pool->members[i].thread, NULL);
    pthread_mutex_destroy(&pool->caller);
    mem_free(pool);
}

int thread_pool_size(const struct thread_pool *pool) { return pool->n_threads; }
