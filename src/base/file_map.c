/* Files on disk: mapping for reading, atomic replacement for writing. */
#include "base/file_map.h"

#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static const unsigned char empty_file[1];

static enum reel_status open_failed(const char *path, struct reel_error *err) {
    enum reel_status status = errno == ENOENT || errno == ENOTDIR ? REEL_E_NOT_FOUND : REEL_E_IO;
    return err_set(err, status, "%s: cannot open: %s", path, strerror(errno));
}

enum reel_status file_map_open(struct file_map *map, const char *path, struct reel_error *err) {
    return file_map_open_most(map, path, SIZE_MAX, err);
}

enum reel_status file_map_open_most(struct file_map *map, const char *path, size_t most,
                                    struct reel_error *err) {
    *map = (struct file_map){ 0 };
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe must not block the open */
    if (fd < 0) return open_failed(path, err);
    struct stat st;
    enum reel_status status = REEL_OK;
    if (fstat(fd, &st) != 0)
        status = err_set(err, REEL_E_IO, "%s: cannot stat: %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode))
        status = err_set(err, REEL_E_IO, "%s: not a regular file", path);
    else if ((uint64_t)st.st_size > most)
        status = err_set(err, REEL_E_LIMIT, "%s: %lld bytes, at most %zu are allowed", path,
                         (long long)st.st_size, most);
    if (status == REEL_OK && st.st_size == 0) file_map_borrow(map, empty_file, 0);
    if (status == REEL_OK && st.st_size > 0) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED)
            status = err_set(err, REEL_E_IO, "%s: cannot map %lld bytes: %s", path,
                             (long long)st.st_size, strerror(errno));
        else
            *map = (struct file_map){ .bytes = p, .size = (size_t)st.st_size, .mapped = true };
    }
    close(fd);
    return status;
}

void file_map_borrow(struct file_map *map, const void *bytes, size_t size) {
    *map = (struct file_map){ .bytes = bytes ? bytes : empty_file, .size = size };
}

void file_map_close(struct file_map *map) {
    if (!map) return;
    if (map->mapped) munmap((void *)(uintptr_t)map->bytes, map->size);
    *map = (struct file_map){ 0 };
}

/* `path` is the name that the file will have: nobody knows the one it has until then. */
static enum reel_status write_all(int fd, const char *path, const unsigned char *p, size_t n,
                                  struct reel_error *err) {
    while (n > 0) {
        ssize_t done = write(fd, p, n);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) return err_set(err, REEL_E_IO, "%s: cannot write: %s", path, strerror(errno));
        p += done;
        n -= (size_t)done;
    }
    if (fsync(fd) != 0)
        return err_set(err, REEL_E_IO, "%s: cannot sync: %s", path, strerror(errno));
    return REEL_OK;
}

/* A rename would put a file in the place of a device or a pipe. */
static enum reel_status check_replaceable(const char *path, struct reel_error *err) {
    struct stat st;
    if (stat(path, &st) != 0)
        return errno == ENOENT ? REEL_OK : err_set(err, REEL_E_IO, "%s: %s", path, strerror(errno));
    return S_ISREG(st.st_mode)
               ? REEL_OK
               : err_set(err, REEL_E_IO, "%s: is there and not a regular file", path);
}

enum reel_status file_write_atomic(const char *path, const void *bytes, size_t n,
                                   struct reel_error *err) {
    static const char suffix[] = ".XXXXXX";
    enum reel_status allowed = check_replaceable(path, err);
    if (allowed != REEL_OK) return allowed;
    char *aside = mem_alloc(strlen(path) + sizeof suffix);
    if (!aside) return err_memory(err, path, strlen(path) + sizeof suffix);
    strcpy(aside, path);
    strcat(aside, suffix);
    int fd = mkstemp(aside);
    if (fd < 0) {
        enum reel_status status =
            err_set(err, REEL_E_IO, "%s: cannot create: %s", path, strerror(errno));
        mem_free(aside);
        return status;
    }
    enum reel_status status = write_all(fd, path, bytes, n, err);
    if (status == REEL_OK && fchmod(fd, 0644) != 0)
        status = err_set(err, REEL_E_IO, "%s: cannot set mode: %s", path, strerror(errno));
    if (close(fd) != 0 && status == REEL_OK)
        status = err_set(err, REEL_E_IO, "%s: cannot close: %s", path, strerror(errno));
    if (status == REEL_OK && rename(aside, path) != 0)
        status = err_set(err, REEL_E_IO, "%s: cannot rename: %s", path, strerror(errno));
    if (status != REEL_OK) unlink(aside);
    mem_free(aside);
    return status;
}
