/* The wraps themselves and the sweep over all failing calls. */
#include "support/faults.h"
#include "support/sanitized.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static atomic_bool armed;
static atomic_bool hit;
static atomic_long n_calls[FAULT_KINDS];
static enum fault_kind armed_kind;
static enum fault_mode armed_mode;
static long armed_n;

static atomic_long held_blocks;
static atomic_long held_maps;
static atomic_bool guarding;
static atomic_long guarded;

/* Counts a call and says whether it is the one to fail. */
static bool due(enum fault_kind kind, enum fault_mode mode_of_call) {
    if (!atomic_load(&armed)) return false;
    long n = atomic_fetch_add(&n_calls[kind], 1) + 1;
    if (kind != armed_kind || mode_of_call != armed_mode || armed_n == 0) return false;
    bool now = armed_mode == FAULT_ONWARD ? n >= armed_n : n == armed_n;
    if (now) atomic_store(&hit, true);
    return now;
}

static bool fails(enum fault_kind kind) {
    enum fault_mode mode = armed_mode == FAULT_ONWARD ? FAULT_ONWARD : FAULT_ONCE;
    return due(kind, mode);
}

void faults_arm(enum fault_kind kind, enum fault_mode mode, long n) {
    for (int i = 0; i < FAULT_KINDS; i++)
        atomic_store(&n_calls[i], 0);
    atomic_store(&hit, false);
    armed_kind = kind;
    armed_mode = mode;
    armed_n = n;
    atomic_store(&armed, true);
}

void faults_disarm(void) { atomic_store(&armed, false); }
long faults_count(enum fault_kind kind) { return atomic_load(&n_calls[kind]); }
bool faults_hit(void) { return atomic_load(&hit); }

struct faults_held faults_held(void) {
    struct faults_held held = { .blocks = atomic_load(&held_blocks),
                                .maps = atomic_load(&held_maps) };
    for (int fd = 0; fd < 1024; fd++)
        if (fcntl(fd, F_GETFD) != -1) held.files++;
    return held;
}

void faults_guard_begin(void) {
    atomic_store(&guarded, 0);
    atomic_store(&guarding, true);
}

long faults_guard_end(void) {
    atomic_store(&guarding, false);
    return atomic_load(&guarded);
}

/* ---- allocation ------------------------------------------------------------------------------ */

static void guard(const void *caller) {
    if (!atomic_load(&guarding)) return;
    if (atomic_fetch_add(&guarded, 1) == 0)
        fprintf(stderr, "allocation inside a guarded stretch, called from %p\n", caller);
}

static void *taken(void *p) {
    if (p) atomic_fetch_add(&held_blocks, 1);
    return p;
}

#define ALLOCATION(type, name, parameters, arguments)                                              \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters {                                                                \
        guard(__builtin_return_address(0));                                                        \
        if (fails(FAULT_ALLOC)) {                                                                  \
            errno = ENOMEM;                                                                        \
            return NULL;                                                                           \
        }                                                                                          \
        return taken(__real_##name arguments);                                                     \
    }

ALLOCATION(void *, malloc, (size_t n), (n))
ALLOCATION(void *, calloc, (size_t n, size_t size), (n, size))
ALLOCATION(void *, aligned_alloc, (size_t alignment, size_t n), (alignment, n))
ALLOCATION(char *, strdup, (const char *s), (s))
ALLOCATION(char *, strndup, (const char *s, size_t n), (s, n))
ALLOCATION(char *, realpath, (const char *path, char *out), (path, out))

void *__real_realloc(void *old, size_t n);
void *__wrap_realloc(void *old, size_t n);
void *__wrap_realloc(void *old, size_t n) {
    guard(__builtin_return_address(0));
    if (fails(FAULT_ALLOC)) {
        errno = ENOMEM;
        return NULL;
    }
    void *p = __real_realloc(old, n);
    return old ? p : taken(p);
}

int __real_posix_memalign(void **out, size_t alignment, size_t n);
int __wrap_posix_memalign(void **out, size_t alignment, size_t n);
int __wrap_posix_memalign(void **out, size_t alignment, size_t n) {
    guard(__builtin_return_address(0));
    if (fails(FAULT_ALLOC)) return ENOMEM;
    int code = __real_posix_memalign(out, alignment, n);
    if (code == 0) taken(*out);
    return code;
}

void __real_free(void *p);
void __wrap_free(void *p);
void __wrap_free(void *p) {
    if (p) atomic_fetch_sub(&held_blocks, 1);
    __real_free(p);
}

void faults_install(void) { json_set_alloc_funcs(__wrap_malloc, __wrap_free); }

/* ---- files ----------------------------------------------------------------------------------- */

#define FILE_CALL(type, failed, name, parameters, arguments)                                       \
    type __real_##name parameters;                                                                 \
    type __wrap_##name parameters;                                                                 \
    type __wrap_##name parameters {                                                                \
        if (fails(FAULT_IO)) {                                                                     \
            errno = EIO;                                                                           \
            return failed;                                                                         \
        }                                                                                          \
        return __real_##name arguments;                                                            \
    }

FILE_CALL(int, -1, fstat, (int fd, struct stat *st), (fd, st))
FILE_CALL(int, -1, fsync, (int fd), (fd))
FILE_CALL(int, -1, fchmod, (int fd, mode_t mode), (fd, mode))
FILE_CALL(int, -1, ftruncate, (int fd, off_t n), (fd, n))
FILE_CALL(int, -1, rename, (const char *from, const char *to), (from, to))
FILE_CALL(int, -1, mkdir, (const char *path, mode_t mode), (path, mode))
FILE_CALL(int, -1, mkstemp, (char *path), (path))
FILE_CALL(DIR *, NULL, opendir, (const char *path), (path))
FILE_CALL(FILE *, NULL, fopen, (const char *path, const char *how), (path, how))
FILE_CALL(int, -1, __open_2, (const char *path, int flags), (path, flags))

/* A stat asks about a file that is opened next; failing alone it may change nothing. */
int __real_stat(const char *path, struct stat *st);
int __wrap_stat(const char *path, struct stat *st);
int __wrap_stat(const char *path, struct stat *st) {
    if (armed_mode == FAULT_ONWARD && fails(FAULT_IO)) {
        errno = EIO;
        return -1;
    }
    return __real_stat(path, st);
}

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...) {
    if (fails(FAULT_IO)) {
        errno = EIO;
        return -1;
    }
    mode_t mode = 0;
    if (flags & O_CREAT) {
        va_list args;
        va_start(args, flags);
        mode = va_arg(args, mode_t);
        va_end(args);
    }
    return __real_open(path, flags, mode);
}

/* How many bytes a transfer may move now, or -1 with errno when it is to fail. */
static ssize_t allowed(size_t n) {
    bool moves = atomic_load(&armed) && armed_kind == FAULT_IO;
    if (moves && armed_mode == FAULT_SHORT) {
        long call = atomic_fetch_add(&n_calls[FAULT_IO], 1) + 1;
        if (armed_n == 0 || call < armed_n || n < 2) return (ssize_t)n;
        atomic_store(&hit, true);
        return (ssize_t)(n / 2);
    }
    if (moves && armed_mode == FAULT_INTERRUPT) {
        if (!due(FAULT_IO, FAULT_INTERRUPT)) return (ssize_t)n;
        errno = EINTR;
        return -1;
    }
    if (!fails(FAULT_IO)) return (ssize_t)n;
    errno = EIO;
    return -1;
}

#define TRANSFER(name, parameters, n, ...)                                                         \
    ssize_t __real_##name parameters;                                                              \
    ssize_t __wrap_##name parameters;                                                              \
    ssize_t __wrap_##name parameters {                                                             \
        ssize_t m = allowed(n);                                                                    \
        return m < 0 ? -1 : __real_##name(__VA_ARGS__);                                            \
    }

TRANSFER(read, (int fd, void *to, size_t n), n, fd, to, (size_t)m)
TRANSFER(pread, (int fd, void *to, size_t n, off_t at), n, fd, to, (size_t)m, at)
TRANSFER(write, (int fd, const void *from, size_t n), n, fd, from, (size_t)m)
/* What read and pread become under _FORTIFY_SOURCE. */
TRANSFER(__read_chk, (int fd, void *to, size_t n, size_t room), n, fd, to, (size_t)m, room)
TRANSFER(__pread_chk, (int fd, void *to, size_t n, off_t at, size_t room), n, fd, to, (size_t)m, at,
         room)

void *__real_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset) {
    if (fails(fd < 0 ? FAULT_ALLOC : FAULT_IO)) {
        errno = fd < 0 ? ENOMEM : EIO;
        return MAP_FAILED;
    }
    void *p = __real_mmap(at, n, protection, flags, fd, offset);
    if (p != MAP_FAILED) atomic_fetch_add(&held_maps, 1);
    return p;
}

int __real_munmap(void *p, size_t n);
int __wrap_munmap(void *p, size_t n);
int __wrap_munmap(void *p, size_t n) {
    atomic_fetch_sub(&held_maps, 1);
    return __real_munmap(p, n);
}

/* ---- threads --------------------------------------------------------------------------------- */

int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*body)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*body)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attributes,
                          void *(*body)(void *), void *argument) {
    if (fails(FAULT_THREAD)) return EAGAIN;
    return __real_pthread_create(thread, attributes, body, argument);
}

/* ---- the sweep ------------------------------------------------------------------------------- */

static bool status_fits(enum fault_kind kind, enum reel_status status) {
    if (kind == FAULT_ALLOC) return status == REEL_E_MEMORY;
    if (kind == FAULT_IO) return status == REEL_E_IO;
    return status == REEL_E_MEMORY || status == REEL_E_DEVICE || status == REEL_E_LIMIT;
}

static void check_held(const char *name, long n, struct faults_held before) {
    struct faults_held now = faults_held();
    if (now.blocks != before.blocks || now.maps != before.maps || now.files != before.files)
        fail_msg("%s, call %ld failing: %+ld blocks, %+ld maps, %+d files left behind", name, n,
                 now.blocks - before.blocks, now.maps - before.maps, now.files - before.files);
}

static void run_failing(const struct faults_sweep *sweep, enum fault_kind kind,
                        enum fault_mode mode, long n) {
    struct faults_held before = faults_held();
    struct reel_error err = { 0 };
    faults_arm(kind, mode, n);
    enum reel_status status = sweep->run(sweep->context, &err);
    faults_disarm();
    bool harmless = mode == FAULT_SHORT || mode == FAULT_INTERRUPT;
    bool expect_ok = !faults_hit() || harmless;
    if (status == REEL_OK && !expect_ok && !sweep->may_succeed)
        fail_msg("%s: call %ld failed and the result was success", sweep->name, n);
    if (status != REEL_OK && (expect_ok || !status_fits(kind, status)))
        fail_msg("%s, call %ld %s: %s (%s)", sweep->name, n, harmless ? "cut short" : "failing",
                 reel_status_name(status), err.text);
    if (status != REEL_OK && (err.status != status || err.text[0] == '\0'))
        fail_msg("%s, call %ld failing: %s without a message", sweep->name, n,
                 reel_status_name(status));
    check_held(sweep->name, n, before);
    if (sweep->check) sweep->check(sweep->context, status);
}

void faults_sweep(const struct faults_sweep *sweep, enum fault_kind kind, enum fault_mode mode) {
    struct reel_error err = { 0 };
    /* The first run fills what lives as long as the process: locale tables, PCRE2's JIT stack. */
    if (sweep->run(sweep->context, &err) != REEL_OK)
        fail_msg("%s: fails untouched: %s", sweep->name, err.text);
    run_failing(sweep, kind, mode, 0);
    long total = faults_count(kind);
    long most = sweep->most ? sweep->most : 1000;
    if (SANITIZED && getenv("REEL_SOAK")) most *= 4;
    print_message("%s: %ld calls of kind %d, mode %d\n", sweep->name, total, (int)kind, (int)mode);
    if (soaking_in_full() || total <= most) {
        for (long n = 1; n <= total; n++)
            run_failing(sweep, kind, mode, n);
    } else {
        for (long n = 1; n <= most / 2; n++)
            run_failing(sweep, kind, mode, n);
        unsigned seed = 1;
        for (long i = most / 2; i < most; i++) {
            seed = seed * 1103515245u + 12345u;
            run_failing(sweep, kind, mode, 1 + (long)((seed >> 8) % (unsigned long)total));
        }
    }
    if (sweep->run(sweep->context, &err) != REEL_OK)
        fail_msg("%s: fails after the sweep: %s", sweep->name, err.text);
}
