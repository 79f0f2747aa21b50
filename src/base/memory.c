#include "base/memory.h"

#include "base/checked.h"

#include <stdlib.h>
#include <string.h>

/* `out` is the address of some pointer type: written bytewise, as C has no pointer to "any
 * pointer". */
static void store_pointer(void *out, void *p) { memcpy(out, &p, sizeof p); }

enum reel_status mem_zeroed(void *out, size_t n, size_t size, const char *what,
                            struct reel_error *err) {
    void *p = calloc(n ? n : 1, size ? size : 1);
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
    void *p = aligned_alloc(64, padded);
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
    char *copy = malloc(bytes);
    if (!copy) return err_memory(err, what, bytes);
    if (n) memcpy(copy, text, n);
    copy[n] = '\0';
    *out = copy;
    return REEL_OK;
}

void reel_free(void *p) { free(p); }

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
