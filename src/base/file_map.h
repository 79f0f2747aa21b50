/* A whole file as read-only bytes: mapped from disk, or borrowed from memory. */
#ifndef REEL_BASE_FILE_MAP_H
#define REEL_BASE_FILE_MAP_H

#include "base/error.h"

struct file_map {
    const unsigned char *bytes; /* never NULL after success, also when size is 0 */
    size_t size;
    bool mapped;
};

/* Maps a regular file. Refuses folders, devices and pipes in words. */
enum reel_status file_map_open(struct file_map *map, const char *path, struct reel_error *err);
/* The same for a file of at most this many bytes. A longer one is refused with REEL_E_LIMIT before
 * any of it is mapped or read. */
enum reel_status file_map_open_most(struct file_map *map, const char *path, size_t most,
                                    struct reel_error *err);

/* Borrows bytes the caller keeps alive. */
void file_map_borrow(struct file_map *map, const void *bytes, size_t size);

/* Accepts a zeroed or closed map. */
void file_map_close(struct file_map *map);

/* Writes n bytes to path: into a temporary file beside it, synced, then renamed over it, so that
 * readers see the old file or the whole new one. Messages name path. */
enum reel_status file_write_atomic(const char *path, const void *bytes, size_t n,
                                   struct reel_error *err);

#endif
