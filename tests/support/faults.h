/* Failing calls on demand: allocation, file I/O and thread creation of everything linked statically
 * into a test, wrapped at link time (FAULT_WRAPS in the Makefile; programs in tests/failure/ get
 * them). jansson is made to allocate through the same wrap by faults_install(). What shared
 * libraries call inside themselves is not seen.
 *
 * Counters are process-wide and may be used from any thread; arming is for one thread. */
#ifndef REEL_TESTS_FAULTS_H
#define REEL_TESTS_FAULTS_H

#include "reel.h"

enum fault_kind {
    FAULT_ALLOC = 0, /* malloc, calloc, realloc, aligned_alloc, posix_memalign, strdup, ...: NULL */
    FAULT_IO,        /* open, read, pread, write, fstat, mmap, fsync, rename, ...: EIO */
    FAULT_THREAD,    /* pthread_create: EAGAIN */
    FAULT_KINDS
};

enum fault_mode {
    FAULT_ONCE = 0, /* the n-th call only: does the caller clean up and report it? */
    FAULT_ONWARD, /* the n-th call and all after it: does the clean-up itself need what is gone? */
    FAULT_SHORT,  /* from the n-th on, read, pread and write move half of what they could */
    FAULT_INTERRUPT /* the n-th read, pread or write fails with EINTR */
};

/* Routes jansson's allocations through the wraps; call before the first use of jansson. */
void faults_install(void);

/* Makes the n-th call (1-based, counted from now) of a kind fail. n = 0 only counts. */
void faults_arm(enum fault_kind kind, enum fault_mode mode, long n);
void faults_disarm(void);
long faults_count(enum fault_kind kind); /* calls since arming, also after disarming */
bool faults_hit(void);                   /* whether the armed failure happened */

/* What is held now; equal before and after when nothing leaks. */
struct faults_held {
    long blocks; /* allocated through the wraps and not freed */
    long maps;   /* mmap less munmap */
    int files;   /* open descriptors */
};
struct faults_held faults_held(void);

/* Allocations between begin and end, of all threads: the token loop must show none. The message on
 * standard error names the caller of the first one by address. */
void faults_guard_begin(void);
long faults_guard_end(void);

/* One operation to try with every call of a kind failing in turn. */
struct faults_sweep {
    const char *name; /* in messages */
    enum reel_status (*run)(void *context, struct reel_error *err);
    void *context;
    /* Looked at after each failing run; NULL when run's status says everything. */
    void (*check)(void *context, enum reel_status status);
    bool may_succeed; /* some of the calls are optional: a cache that cannot be written */
    int most;         /* runs in a quick pass: the first half, then a seeded sample; 0: 1000 */
};

/* Runs it once untouched, then with the 1st, 2nd, ... call failing: all of them when the
 * environment has REEL_SOAK=1, under a sanitizer then four times as many as in a quick pass. Every
 * run must return the kind's status with a message, or REEL_OK when nothing was hit, and hold what
 * was held before. Fails the cmocka test otherwise. */
void faults_sweep(const struct faults_sweep *sweep, enum fault_kind kind, enum fault_mode mode);

#endif
