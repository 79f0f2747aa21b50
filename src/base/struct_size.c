#include "base/struct_size.h"

#include <string.h>

/* Larger than any struct of the interface will grow; a size beyond it was never set. */
#define STRUCT_MAX_BYTES 4096

static size_t size_of_given(const void *given) {
    size_t size;
    memcpy(&size, given, sizeof size);
    return size;
}

static bool size_sane(size_t size) { return size >= sizeof size && size <= STRUCT_MAX_BYTES; }

enum reel_status struct_read(void *own, size_t own_bytes, const void *given, const char *name,
                             struct reel_error *err) {
    memset(own, 0, own_bytes);
    if (given) {
        size_t size = size_of_given(given);
        if (!size_sane(size))
            return err_set(err, REEL_E_ARGUMENT,
                           "struct %s: size is %zu; set it to sizeof(struct %s) (%zu here)", name,
                           size, name, own_bytes);
        memcpy(own, given, size < own_bytes ? size : own_bytes);
    }
    memcpy(own, &own_bytes, sizeof own_bytes);
    return REEL_OK;
}

bool struct_write(void *given, const void *own, size_t own_bytes) {
    size_t size = size_of_given(given);
    if (!size_sane(size)) return false;
    size_t n = size < own_bytes ? size : own_bytes;
    memcpy((char *)given + sizeof size, (const char *)own + sizeof size, n - sizeof size);
    return true;
}
