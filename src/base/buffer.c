#include "base/buffer.h"

#include "base/checked.h"
#include "base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static enum reel_status reserve(struct buffer *b, size_t n, struct reel_error *err) {
    size_t needed = 0;
    if (!size_add(b->size, n, &needed) || !size_add(needed, 1, &needed))
        return err_memory(err, "a buffer", SIZE_MAX);
    if (b->limit && needed - 1 > b->limit)
        return err_set(err, REEL_E_LIMIT, "%zu bytes, at most %zu are allowed", needed - 1,
                       b->limit);
    if (needed <= b->capacity) return REEL_OK;
    size_t capacity = b->capacity < SIZE_MAX / 2 ? b->capacity * 2 : needed;
    if (capacity < needed) capacity = needed;
    if (capacity < 64) capacity = 64;
    char *bytes = mem_resize(b->bytes, capacity);
    if (!bytes) return err_memory(err, "a buffer", capacity);
    b->bytes = bytes;
    b->capacity = capacity;
    return REEL_OK;
}

enum reel_status buffer_append(struct buffer *b, const void *bytes, size_t n,
                               struct reel_error *err) {
    enum reel_status status = reserve(b, n, err);
    if (status != REEL_OK) return status;
    if (n) memcpy(b->bytes + b->size, bytes, n);
    b->size += n;
    b->bytes[b->size] = '\0';
    return REEL_OK;
}

enum reel_status buffer_text(struct buffer *b, const char *text, struct reel_error *err) {
    return buffer_append(b, text, strlen(text), err);
}

enum reel_status buffer_printf(struct buffer *b, struct reel_error *err, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (n < 0) return err_set(err, REEL_E_ARGUMENT, "a value cannot be formatted");
    enum reel_status status = reserve(b, (size_t)n, err);
    if (status != REEL_OK) return status;
    va_start(args, format);
    vsnprintf(b->bytes + b->size, (size_t)n + 1, format, args);
    va_end(args);
    b->size += (size_t)n;
    return REEL_OK;
}

char *buffer_detach(struct buffer *b, size_t *n) {
    char *bytes = b->bytes;
    if (n) *n = b->size;
    *b = (struct buffer){ .limit = b->limit };
    return bytes;
}

void buffer_release(struct buffer *b) {
    if (!b) return;
    mem_free(b->bytes);
    *b = (struct buffer){ 0 };
}
