/* The tensors of a checkpoint, whatever its container: names, types, shapes and mapped bytes, all
 * validated before anyone sees them. */
#ifndef REEL_MODEL_TENSOR_FILE_H
#define REEL_MODEL_TENSOR_FILE_H

#include "base/file_map.h"
#include "model/dtype.h"

#define TENSOR_MAX_RANK  4
#define TENSOR_MAX_NAME  255
#define TENSOR_MAX_COUNT 65536
#define TENSOR_MAX_FILES 512

struct tensor {
    const char *name; /* owned by the tensor_file */
    enum dtype dtype;
    int rank;                       /* 0 to TENSOR_MAX_RANK */
    int64_t shape[TENSOR_MAX_RANK]; /* outermost first, as PyTorch prints it: [rows, columns] */
    const unsigned char *data;      /* borrowed from a map of the tensor_file; any alignment */
    size_t n_bytes;
    int file; /* index into the tensor_file's maps, for messages */
};

/* A well-formed tensor that nothing in reel can use: an integer type, or too many dimensions. */
struct tensor_ignored {
    const char *name; /* owned by the tensor_file */
    const char *what; /* "type I64", "more than 4 dimensions" */
};

struct tensor_file {
    struct tensor *tensors; /* sorted by name; names are unique */
    int n_tensors;
    struct tensor_ignored *ignored;
    int n_ignored;
    struct file_map *maps;
    char **map_names; /* [n_maps] paths, for messages */
    int n_maps;
    char *names; /* one block that all names point into */
};

/* NULL when there is none. */
const struct tensor *tensor_find(const struct tensor_file *file, const char *name);
const struct tensor_ignored *tensor_find_ignored(const struct tensor_file *file, const char *name);

/* The tensor of this name and shape; an error says which it is not. */
enum reel_status tensor_require(const struct tensor_file *file, const char *name, int rank,
                                const int64_t *shape, const struct tensor **out,
                                struct reel_error *err);

/* The file a tensor lies in, for messages. */
const char *tensor_file_path(const struct tensor_file *file, const struct tensor *tensor);

/* For readers: sorts, and refuses a name that occurs twice. */
enum reel_status tensor_file_sort(struct tensor_file *file, struct reel_error *err);

void tensor_file_release(struct tensor_file *file);

#endif
