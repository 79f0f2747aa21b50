/* Memory that is zeros, and takes none of the machine's before it is written. What nobody needs any
 * more can be given back. What is held can be put into a file without a name, of which others have
 * views: a view takes memory for those pages alone that are written in it.
 *
 * Where the program has named an allocator (reel_set_allocator) the memory is that one's: nothing
 * is given back then, and there are no files. */
#ifndef REEL_BASE_LAZY_MEMORY_H
#define REEL_BASE_LAZY_MEMORY_H

#include "base/error.h"

/* Bytes that several views share. */
struct lazy_file;

struct lazy_memory {
    unsigned char *bytes; /* [size] on a 64-byte boundary */
    size_t size;
    struct lazy_file *file; /* that it is a view of; or NULL */
    void *block;            /* of an allocator; NULL: it is mapped */
};

enum reel_status lazy_open(struct lazy_memory *m, size_t size, const char *what,
                           struct reel_error *err);
void lazy_release(struct lazy_memory *m); /* zeroed: nothing */

/* Bytes from `from` to end - 1 are not needed any more. What they hold then is of no use, but each
 * of them was there before: 0, or written at some time. */
void lazy_give_back(struct lazy_memory *m, size_t from, size_t end);

/* A file of zeros for views of memory like this one, held by the caller until lazy_file_release;
 * NULL: there is none. */
struct lazy_file *lazy_file_open(const struct lazy_memory *m);
void lazy_file_release(struct lazy_file *file); /* NULL: nothing */
bool lazy_file_write(struct lazy_file *file, size_t at, const void *bytes, size_t n);

/* The memory becomes a view of the file, which has its size: what it held is gone, and `bytes` lie
 * elsewhere. False: nothing has changed. */
bool lazy_view(struct lazy_memory *m, struct lazy_file *file);

#endif
