/* Shared libraries opened at run time. */
#ifndef REEL_CUDA_LIBRARY_H
#define REEL_CUDA_LIBRARY_H

#include <stdbool.h>
#include <stddef.h>

#define LIBRARY_WHY 200

/* The only folders looked in, as in reel_model_options; NULL: where the system keeps them. */
struct cuda_folders {
    const char *driver; /* libcuda, NVML */
    const char *nvrtc;  /* NULL: as driver */
};

static inline const char *folder_of_nvrtc(const struct cuda_folders *folders) {
    return folders->nvrtc ? folders->nvrtc : folders->driver;
}

/* The first of names (NULL-terminated) in `folder`, or with NULL as it stands: where the loader
 * looks, or at an absolute path. NULL when there is none, and `why` says what the loader said of
 * the first one that is there and does not load, else of the first one. Libraries stay loaded until
 * the process ends: NVIDIA's start threads and register exit handlers, and opening them again is
 * then free. */
void *library_open(const char *folder, const char *const *names, char why[LIBRARY_WHY]);

/* One function pointer at an offset of a struct. */
struct library_symbol {
    const char *name;
    size_t offset;
};

/* Fills table; the name of the first symbol that the library lacks, or NULL. */
const char *library_bind(void *library, void *table, const struct library_symbol *symbols, int n);

/* Where the library that holds this function was found, or "". */
void library_path(const void *function, char *path, size_t size);

/* Whether both addresses are of one library. */
bool library_is_same(const void *address, const void *other);

/* Gives the handle back. */
void library_close(void *library);

#endif
