/* Compiled kernels on disk: one file each, whose header says what it is and whether it is whole. */
#ifndef REEL_CUDA_KERNEL_CACHE_H
#define REEL_CUDA_KERNEL_CACHE_H

#include "base/error.h"
#include "base/sha256.h"

/* *bytes (caller frees; a zero follows them) = what was stored under key, or NULL when there is
 * nothing or something unusable; then *damage says what is wrong with it, or stays NULL. Fails only
 * for memory. */
enum reel_status kernel_cache_read(void **bytes, size_t *n_bytes, const char **damage,
                                   const char *path, const char key[SHA256_HEX],
                                   struct reel_error *err);

/* Atomic: readers see the old file or the whole new one. */
enum reel_status kernel_cache_write(const char *path, const char key[SHA256_HEX], const void *bytes,
                                    size_t n_bytes, struct reel_error *err);

#endif
