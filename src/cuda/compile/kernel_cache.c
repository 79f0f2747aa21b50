#include "cuda/compile/kernel_cache.h"

#include "base/file_map.h"
#include "base/memory.h"

#include <string.h>

struct header {
    char magic[8];
    uint32_t header_bytes;
    uint32_t zero;
    uint64_t n_bytes;
    char key[72];  /* SHA256_HEX of them used, the rest zero */
    char hash[72]; /* of the bytes */
};
_Static_assert(sizeof(struct header) == 168 && SHA256_HEX <= 72, "the file has no padding");

static const char magic[8] = "reelkern";

static const char *find_damage(const struct file_map *file, const char key[SHA256_HEX]) {
    struct header header;
    char hash[SHA256_HEX];
    if (file->size < sizeof header) return "it is shorter than its header";
    memcpy(&header, file->bytes, sizeof header);
    if (memcmp(header.magic, magic, sizeof magic) != 0 || header.header_bytes != sizeof header ||
        header.zero != 0)
        return "it is not a file of compiled kernels";
    if (memcmp(header.key, key, SHA256_HEX) != 0)
        return "it holds other kernels than its name says";
    if (header.n_bytes == 0 || header.n_bytes != file->size - sizeof header)
        return "its length is not what its header says";
    sha256_hex(file->bytes + sizeof header, (size_t)header.n_bytes, hash);
    return memcmp(header.hash, hash, SHA256_HEX) == 0 ? NULL : "its bytes have changed";
}

enum reel_status kernel_cache_read(void **bytes, size_t *n_bytes, const char **damage,
                                   const char *path, const char key[SHA256_HEX],
                                   struct reel_error *err) {
    struct file_map file = { 0 };
    *bytes = NULL;
    *n_bytes = 0;
    *damage = NULL;
    enum reel_status status = file_map_open(&file, path, NULL);
    if (status != REEL_OK) {
        if (status != REEL_E_NOT_FOUND) *damage = "it cannot be read";
        return REEL_OK;
    }
    *damage = find_damage(&file, key);
    if (!*damage) {
        size_t n = file.size - sizeof(struct header);
        status = mem_text((char **)bytes, (const char *)file.bytes + sizeof(struct header), n,
                          "compiled kernels", err);
        if (status == REEL_OK) *n_bytes = n;
    }
    file_map_close(&file);
    return status;
}

enum reel_status kernel_cache_write(const char *path, const char key[SHA256_HEX], const void *bytes,
                                    size_t n_bytes, struct reel_error *err) {
    struct header header = { .header_bytes = sizeof header, .n_bytes = n_bytes };
    char *file = NULL;
    memcpy(header.magic, magic, sizeof magic);
    memcpy(header.key, key, SHA256_HEX);
    sha256_hex(bytes, n_bytes, header.hash);
    enum reel_status status =
        mem_zeroed(&file, 1, sizeof header + n_bytes, "a file of compiled kernels", err);
    if (status != REEL_OK) return status;
    memcpy(file, &header, sizeof header);
    memcpy(file + sizeof header, bytes, n_bytes);
    status = file_write_atomic(path, file, sizeof header + n_bytes, err);
    mem_free(file);
    return status;
}
