/* reel_set_allocator: checks what is given; base/memory.c uses it. */
#include "base/memory.h"
#include "base/struct_size.h"

enum reel_status reel_set_allocator(const struct reel_allocator *given, struct reel_error *err) {
    struct reel_allocator allocator;
    err_clear(err);
    if (!given) return err_set(err, REEL_E_ARGUMENT, "the allocator is NULL");
    enum reel_status status =
        struct_read(&allocator, sizeof allocator, given, "reel_allocator", err);
    if (status != REEL_OK) return status;
    if (!allocator.alloc || !allocator.resize || !allocator.release)
        return err_set(err, REEL_E_ARGUMENT,
                       "struct reel_allocator: alloc, resize and release are all needed");
    if (!mem_settle(&allocator))
        return err_set(err, REEL_E_STATE,
                       "the library has taken memory already; name the allocator before the first "
                       "other call, and once");
    return REEL_OK;
}
