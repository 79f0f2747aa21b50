/* The hashes by which a hub names what is in a file: SHA-256, or git's SHA-1 of a blob. */
#ifndef REEL_CLI_FILE_HASH_H
#define REEL_CLI_FILE_HASH_H

#include "base/error.h"

#define FILE_HASH_TEXT 65

struct file_hash; /* one that is being computed */

/* The SHA-256, or with `git` the id of a blob of n_bytes. */
enum reel_status file_hash_open(struct file_hash **hash, bool git, int64_t n_bytes,
                                struct reel_error *err);
void file_hash_add(struct file_hash *hash, const void *bytes, size_t n_bytes);
/* All that fd gives from its beginning on; `path` for messages. */
enum reel_status file_hash_add_file(struct file_hash *hash, int fd, const char *path,
                                    struct reel_error *err);
/* As hex digits; nothing can be added afterwards. */
void file_hash_text(struct file_hash *hash, char text[FILE_HASH_TEXT]);
void file_hash_close(struct file_hash *hash);

#endif
