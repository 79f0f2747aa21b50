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

/* Element types that hold codes, or what belongs to codes (coded.h). */
enum stored_code {
    STORED_NONE,
    STORED_U8,
    STORED_I8,
    STORED_I32,
    STORED_I64,
    STORED_E4M3,
    STORED_E8M0
};

/* A well-formed tensor that is no matrix or vector by itself: of integers or floats of 8 bits, or
 * with too many dimensions. */
struct tensor_ignored {
    const char *name;      /* owned by the tensor_file */
    const char *what;      /* "type I64", "more than 4 dimensions" */
    enum stored_code code; /* STORED_NONE: nothing in reel can use it, and what follows is 0 */
    int rank, file;        /* from here on as in struct tensor */
    int64_t shape[TENSOR_MAX_RANK];
    const unsigned char *data;
    size_t n_bytes;
};

struct tensor_file {
    struct tensor *tensors; /* sorted by name; names are unique */
    int n_tensors;
    struct tensor_ignored *ignored; /* likewise */
    int n_ignored;
    struct quant_config *quant; /* owned: what the folder says of codes; NULL: it has none */
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

/* "[576, 1536]" */
const char *tensor_shape_text(int rank, const int64_t *shape, char text[96]);

/* The file a tensor lies in, for messages. */
const char *tensor_file_path(const struct tensor_file *file, const struct tensor *tensor);

/* For readers: sorts, and refuses a name that occurs twice. */
enum reel_status tensor_file_sort(struct tensor_file *file, struct reel_error *err);

void tensor_file_release(struct tensor_file *file);

#endif
