/* A growing byte buffer with a hard cap, always terminated after a successful append. */
#ifndef REEL_BASE_BUFFER_H
#define REEL_BASE_BUFFER_H

#include "base/error.h"

struct buffer {
    char *bytes; /* NULL until the first append */
    size_t size;
    size_t capacity;
    size_t limit; /* 0: none; otherwise append fails with REEL_E_LIMIT beyond it */
};

enum reel_status buffer_append(struct buffer *b, const void *bytes, size_t n,
                               struct reel_error *err);
enum reel_status buffer_text(struct buffer *b, const char *text, struct reel_error *err);
enum reel_status buffer_printf(struct buffer *b, struct reel_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Hands the bytes to the caller (free with mem_free) and empties the buffer. */
char *buffer_detach(struct buffer *b, size_t *n);

void buffer_release(struct buffer *b);

#endif
