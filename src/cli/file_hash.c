#include "cli/file_hash.h"

#include "base/memory.h"

#include <errno.h>
#include <nettle/sha1.h>
#include <nettle/sha2.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct file_hash {
    bool git;
    union {
        struct sha256_ctx sha256;
        struct sha1_ctx sha1;
    } as;
};

enum reel_status file_hash_open(struct file_hash **hash, bool git, int64_t n_bytes,
                                struct reel_error *err) {
    enum reel_status status = mem_zeroed(hash, 1, sizeof **hash, "a hash", err);
    if (status != REEL_OK) return status;
    (*hash)->git = git;
    if (git) {
        char head[32];
        int n = snprintf(head, sizeof head, "blob %lld", (long long)n_bytes);
        sha1_init(&(*hash)->as.sha1);
        file_hash_add(*hash, head, (size_t)n + 1); /* git hashes the terminator too */
    } else {
        sha256_init(&(*hash)->as.sha256);
    }
    return REEL_OK;
}

void file_hash_add(struct file_hash *hash, const void *bytes, size_t n_bytes) {
    if (hash->git)
        sha1_update(&hash->as.sha1, n_bytes, bytes);
    else
        sha256_update(&hash->as.sha256, n_bytes, bytes);
}

enum reel_status file_hash_add_file(struct file_hash *hash, int fd, const char *path,
                                    struct reel_error *err) {
    static const size_t chunk = 1 << 20;
    unsigned char *bytes = mem_alloc(chunk);
    if (!bytes) return err_memory(err, "hashing", chunk);
    enum reel_status status = REEL_OK;
    for (off_t at = 0;;) {
        ssize_t n = pread(fd, bytes, chunk, at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) status = err_set(err, REEL_E_IO, "%s: cannot read: %s", path, strerror(errno));
        if (n <= 0) break;
        file_hash_add(hash, bytes, (size_t)n);
        at += n;
    }
    mem_free(bytes);
    return status;
}

void file_hash_text(struct file_hash *hash, char text[FILE_HASH_TEXT]) {
    uint8_t digest[SHA256_DIGEST_SIZE];
    size_t n = hash->git ? SHA1_DIGEST_SIZE : SHA256_DIGEST_SIZE;
    if (hash->git)
        sha1_digest(&hash->as.sha1, n, digest);
    else
        sha256_digest(&hash->as.sha256, n, digest);
    for (size_t i = 0; i < n; i++)
        snprintf(text + 2 * i, 3, "%02x", digest[i]);
}

void file_hash_close(struct file_hash *hash) { mem_free(hash); }
