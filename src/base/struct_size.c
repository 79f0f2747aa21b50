#include "base/struct_size.h"

#include "base/memory.h"

#include <string.h>

/* Larger than any struct of the interface will grow; a size beyond it was never set. */
#define STRUCT_MAX_BYTES 4096

static size_t size_of_given(const void *given) {
    size_t size;
    memcpy(&size, given, sizeof size);
    return size;
}

enum reel_status struct_check(const void *given, size_t own_bytes, const char *name,
                              struct reel_error *err) {
    if (!given) return err_set(err, REEL_E_ARGUMENT, "struct %s is NULL", name);
    size_t size = size_of_given(given);
    if (size >= sizeof size && size <= STRUCT_MAX_BYTES) return REEL_OK;
    return err_set(err, REEL_E_ARGUMENT,
                   "struct %s: size is %zu; set it to sizeof(struct %s) (%zu here)", name, size,
                   name, own_bytes);
}

/* What a program of a newer header set would be lost without a word. */
static enum reel_status check_rest(const void *given, size_t own_bytes, const char *name,
                                   struct reel_error *err) {
    const unsigned char *bytes = given;
    size_t size = size_of_given(given);
    for (size_t i = own_bytes; i < size; i++)
        if (bytes[i])
            return err_set(
                err, REEL_E_UNSUPPORTED,
                "struct %s: byte %zu of its %zu is not zero; reel %s knows the first %zu "
                "and would drop an option",
                name, i, size, reel_version(), own_bytes);
    return REEL_OK;
}

enum reel_status struct_read(void *own, size_t own_bytes, const void *given, const char *name,
                             struct reel_error *err) {
    memset(own, 0, own_bytes);
    if (given) {
        enum reel_status status = struct_check(given, own_bytes, name, err);
        if (status == REEL_OK) status = check_rest(given, own_bytes, name, err);
        if (status != REEL_OK) return status;
        size_t size = size_of_given(given);
        memcpy(own, given, size < own_bytes ? size : own_bytes);
    }
    memcpy(own, &own_bytes, sizeof own_bytes);
    return REEL_OK;
}

enum reel_status struct_read_list(void *own, size_t own_bytes, const void *given, int n,
                                  const char *name, struct reel_error *err) {
    char *list = NULL;
    enum reel_status status = mem_zeroed(&list, (size_t)n, own_bytes, name, err);
    memcpy(own, &list, sizeof list);
    if (status != REEL_OK || n == 0) return status;
    const size_t stride = size_of_given(given);
    for (int i = 0; i < n && status == REEL_OK; i++) {
        const char *one = (const char *)given + (size_t)i * stride;
        if (size_of_given(one) != stride)
            return err_set(err, REEL_E_ARGUMENT,
                           "struct %s: the list's first says that its size is %zu, number %d that "
                           "it is %zu",
                           name, stride, i, size_of_given(one));
        status = struct_read(list + (size_t)i * own_bytes, own_bytes, one, name, err);
    }
    return status;
}

enum reel_status struct_write(void *given, const void *own, size_t own_bytes, const char *name,
                              struct reel_error *err) {
    enum reel_status status = struct_check(given, own_bytes, name, err);
    if (status != REEL_OK) return status;
    size_t size = size_of_given(given), n = size < own_bytes ? size : own_bytes;
    memcpy((char *)given + sizeof size, (const char *)own + sizeof size, n - sizeof size);
    return REEL_OK;
}
