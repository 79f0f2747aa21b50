/* The few allocation shapes used everywhere. Plain malloc underneath: tests make the n-th call
 * fail by wrapping it at link time. Every pointer is freed with free(). */
#ifndef REEL_BASE_MEMORY_H
#define REEL_BASE_MEMORY_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

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
