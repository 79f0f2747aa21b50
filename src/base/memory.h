/* All memory of the library comes from here: the C library's, or what reel_set_allocator named.
 * Nothing else in src/ calls malloc or free; what a mem_ call returned goes back to mem_free. Tests
 * make the n-th call fail by wrapping malloc at link time. */
#ifndef REEL_BASE_MEMORY_H
#define REEL_BASE_MEMORY_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* As malloc, calloc, realloc and aligned_alloc: NULL when there is none. `alignment` is a power of
 * two and divides n_bytes; a block that was aligned is not resized. */
void *mem_alloc(size_t n_bytes);
void *mem_calloc(size_t n, size_t size);
void *mem_resize(void *p, size_t n_bytes);
void *mem_alloc_aligned(size_t alignment, size_t n_bytes);
void mem_free(void *p); /* of any of these and those below; NULL: nothing */

/* Makes all of these use *allocator (copied) from now on; false, changing nothing, when memory was
 * taken before or another was named. */
bool mem_settle(const struct reel_allocator *allocator);

/* Whether the program has named an allocator; from then on that stays so. */
bool mem_is_given(void);

/* *out = n * size zeroed bytes (never NULL on success, also for n = 0). */
enum reel_status mem_zeroed(void *out, size_t n, size_t size, const char *what,
                            struct reel_error *err);

/* The same, on a 64-byte boundary: vector loads and one cache line per owner. */
enum reel_status mem_aligned(void *out, size_t n, size_t size, const char *what,
                             struct reel_error *err);

/* *out = a terminated copy of n bytes. */
enum reel_status mem_text(char **out, const char *text, size_t n, const char *what,
                          struct reel_error *err);

/* Hands out 64-byte aligned parts of one block, one after the other. With a NULL block it only
 * counts: `used` is then what the block needs. */
struct carver {
    char *block;
    size_t used;
    bool overflow; /* the sum does not fit */
};

/* The next part, of n * size bytes; NULL while counting, or when the sum does not fit. */
void *carve(struct carver *c, size_t n, size_t size);

#endif
