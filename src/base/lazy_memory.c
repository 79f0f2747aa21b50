#define _GNU_SOURCE /* memfd_create */
#include "base/lazy_memory.h"

#include "base/checked.h"
#include "base/memory.h"

#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { ALIGN = 64 };

struct lazy_file {
    int descriptor;
    size_t size;
    atomic_int holders;
};

/* ---- memory ---- */

static enum reel_status open_block(struct lazy_memory *m, size_t size, const char *what,
                                   struct reel_error *err) {
    size_t room = 0;
    if (!size_add(size, ALIGN, &room)) return err_memory(err, what, SIZE_MAX);
    enum reel_status status = mem_zeroed(&m->block, room, 1, what, err);
    if (status == REEL_OK)
        m->bytes = (unsigned char *)(((uintptr_t)m->block + ALIGN - 1) & ~(uintptr_t)(ALIGN - 1));
    return status;
}

enum reel_status lazy_open(struct lazy_memory *m, size_t size, const char *what,
                           struct reel_error *err) {
    *m = (struct lazy_memory){ .size = size ? size : 1 };
    if (mem_is_given()) return open_block(m, m->size, what, err);
    void *p = mmap(NULL, m->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) return err_memory(err, what, size);
    m->bytes = p;
    return REEL_OK;
}

void lazy_release(struct lazy_memory *m) {
    if (m->block)
        mem_free(m->block);
    else if (m->bytes)
        munmap(m->bytes, m->size);
    lazy_file_release(m->file);
    *m = (struct lazy_memory){ 0 };
}

void lazy_give_back(struct lazy_memory *m, size_t from, size_t end) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const size_t first = (from + page - 1) / page * page, last = end / page * page;
    if (m->block || first >= last) return;
    /* At once, or when the machine wants memory: a page that is written again before costs nothing.
     * Views know only the first. Where the machine refuses, the memory is kept. */
    if (m->file || madvise(m->bytes + first, last - first, MADV_FREE) != 0)
        (void)madvise(m->bytes + first, last - first, MADV_DONTNEED);
}

/* ---- files ---- */

struct lazy_file *lazy_file_open(const struct lazy_memory *m) {
    struct lazy_file *file = NULL;
    if (m->block || mem_zeroed(&file, 1, sizeof *file, "shared memory", NULL) != REEL_OK)
        return NULL;
    atomic_init(&file->holders, 1);
    file->size = m->size;
    file->descriptor = memfd_create("reel", MFD_CLOEXEC);
    if (file->descriptor >= 0 && ftruncate(file->descriptor, (off_t)file->size) == 0) return file;
    lazy_file_release(file);
    return NULL;
}

void lazy_file_release(struct lazy_file *file) {
    if (!file || atomic_fetch_sub(&file->holders, 1) > 1) return;
    if (file->descriptor >= 0) close(file->descriptor);
    mem_free(file);
}

bool lazy_file_write(struct lazy_file *file, size_t at, const void *bytes, size_t n) {
    const char *from = bytes;
    while (n > 0) {
        const ssize_t written = pwrite(file->descriptor, from, n, (off_t)at);
        if (written <= 0) return false;
        from += written, at += (size_t)written, n -= (size_t)written;
    }
    return true;
}

bool lazy_view(struct lazy_memory *m, struct lazy_file *file) {
    if (m->block || m->size != file->size) return false;
    void *p = mmap(NULL, m->size, PROT_READ | PROT_WRITE, MAP_PRIVATE, file->descriptor, 0);
    if (p == MAP_FAILED) return false;
    atomic_fetch_add(&file->holders, 1);
    lazy_release(m);
    *m = (struct lazy_memory){ .bytes = p, .size = file->size, .file = file };
    return true;
}
