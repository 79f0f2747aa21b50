/* Arithmetic on sizes that come from files. False means the result does not fit; *out is then
 * unspecified. */
#ifndef REEL_BASE_CHECKED_H
#define REEL_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool size_mul(size_t a, size_t b, size_t *out) {
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool size_add(size_t a, size_t b, size_t *out) {
    return !__builtin_add_overflow(a, b, out);
}

/* Whether [offset, offset + n) lies inside [0, total). */
static inline bool range_ok(uint64_t offset, uint64_t n, uint64_t total) {
    return offset <= total && n <= total - offset;
}

#endif
