#include "base/memory.h"

#include "base/checked.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* ---- whose memory ---- */

/* The library's one variable: memory is taken before there is any object that could carry a choice,
 * and reel_free is given nothing but an address. The first block taken settles it. */
enum source { SOURCE_OPEN = 0, SOURCE_SYSTEM, SOURCE_GIVEN };
static atomic_int source;
static struct reel_allocator given; /* written before source becomes SOURCE_GIVEN, then constant */
static pthread_mutex_t settling = PTHREAD_MUTEX_INITIALIZER;

/* Settles on the system's when nobody chose before. */
bool mem_is_given(void) {
    int now = atomic_load_explicit(&source, memory_order_acquire);
    if (now == SOURCE_OPEN) {
        pthread_mutex_lock(&settling);
        now = atomic_load(&source);
        if (now == SOURCE_OPEN) atomic_store(&source, now = SOURCE_SYSTEM);
        pthread_mutex_unlock(&settling);
    }
    return now == SOURCE_GIVEN;
}

bool mem_settle(const struct reel_allocator *allocator) {
    pthread_mutex_lock(&settling);
    const bool open = atomic_load(&source) == SOURCE_OPEN;
    if (open) {
        given = *allocator;
        atomic_store_explicit(&source, SOURCE_GIVEN, memory_order_release);
    }
    pthread_mutex_unlock(&settling);
    return open;
}

void *mem_alloc(size_t n_bytes) {
    return mem_is_given() ? given.alloc(given.user, n_bytes ? n_bytes : 1, _Alignof(max_align_t))
                          : malloc(n_bytes);
}

void *mem_calloc(size_t n, size_t size) {
    size_t bytes = 0;
    if (!mem_is_given()) return calloc(n, size);
    void *p = size_mul(n, size, &bytes) ? mem_alloc(bytes) : NULL;
    if (p) memset(p, 0, bytes);
    return p;
}

void *mem_resize(void *p, size_t n_bytes) {
    if (!mem_is_given()) return realloc(p, n_bytes);
    return p ? given.resize(given.user, p, n_bytes ? n_bytes : 1) : mem_alloc(n_bytes);
}

void *mem_alloc_aligned(size_t alignment, size_t n_bytes) {
    return mem_is_given() ? given.alloc(given.user, n_bytes, alignment)
                          : aligned_alloc(alignment, n_bytes);
}

void mem_free(void *p) {
    if (!p) return;
    if (mem_is_given())
        given.release(given.user, p);
    else
        free(p);
}

void reel_free(void *p) { mem_free(p); }

/* ---- the shapes used everywhere ---- */

/* `out` is the address of some pointer type: written bytewise, as C has no pointer to "any
 * pointer". */
static void store_pointer(void *out, void *p) { memcpy(out, &p, sizeof p); }

enum reel_status mem_zeroed(void *out, size_t n, size_t size, const char *what,
                            struct reel_error *err) {
    void *p = mem_calloc(n ? n : 1, size ? size : 1);
    store_pointer(out, p);
    if (p) return REEL_OK;
    size_t bytes = 0;
    if (!size_mul(n, size, &bytes)) bytes = SIZE_MAX;
    return err_memory(err, what, bytes);
}

enum reel_status mem_aligned(void *out, size_t n, size_t size, const char *what,
                             struct reel_error *err) {
    size_t bytes = 0, padded = 0;
    store_pointer(out, NULL);
    if (!size_mul(n, size, &bytes) || !size_add(bytes, 127, &padded))
        return err_memory(err, what, SIZE_MAX);
    padded &= ~(size_t)63; /* at least 64: C17 wants a multiple of the alignment */
    void *p = mem_alloc_aligned(64, padded);
    if (!p) return err_memory(err, what, bytes);
    memset(p, 0, padded);
    store_pointer(out, p);
    return REEL_OK;
}

enum reel_status mem_text(char **out, const char *text, size_t n, const char *what,
                          struct reel_error *err) {
    size_t bytes = 0;
    *out = NULL;
    if (!size_add(n, 1, &bytes)) return err_memory(err, what, SIZE_MAX);
    char *copy = mem_alloc(bytes);
    if (!copy) return err_memory(err, what, bytes);
    if (n) memcpy(copy, text, n);
    copy[n] = '\0';
    *out = copy;
    return REEL_OK;
}

void *carve(struct carver *c, size_t n, size_t size) {
    size_t bytes = 0, end = 0;
    if (!size_mul(n, size, &bytes) || !size_add(bytes, 63, &bytes) ||
        !size_add(c->used, bytes & ~(size_t)63, &end)) {
        c->overflow = true;
        return NULL;
    }
    void *part = c->block ? c->block + c->used : NULL;
    c->used = end;
    return part;
}
