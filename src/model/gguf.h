/* GGUF version 2 and 3, little-endian, read-only. */
#ifndef REEL_MODEL_GGUF_H
#define REEL_MODEL_GGUF_H

#include "model/model_source.h"
#include "model/tensor_file.h"

enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64
};

struct gguf_value {
    const char *key; /* borrowed from the file, not terminated */
    size_t key_bytes;
    enum gguf_type type; /* GGUF_ARRAY: see element_type and count */
    enum gguf_type element_type;
    uint64_t count;             /* elements of an array; 1 otherwise */
    const unsigned char *bytes; /* the value (of a string: its text), or the first element */
    size_t n_bytes;
};

struct gguf {
    struct file_map map;
    char *path;
    struct gguf_value *values; /* sorted by key; keys are unique */
    int n_values;
};

/* Reads metadata and tensor list. Shapes are turned round to outermost-first. Tensors of block
 * types outside DTYPE_LIST are refused with the type's name; integers and f64 go to the list of
 * ignored ones. The maps of `file` are borrowed from
 * `gguf`, which must outlive it. */
enum reel_status gguf_open(struct gguf *gguf, struct tensor_file *file,
                           const struct model_source *source, struct reel_error *err);
/* The same from the first bytes of a file: no tensor has data. *complete is false when metadata or
 * tensor list go on behind these bytes; the values that are whole can then be asked for, and there
 * are no tensors. */
enum reel_status gguf_open_head(struct gguf *gguf, struct tensor_file *file,
                                const struct model_source *source, bool *complete,
                                struct reel_error *err);
void gguf_release(struct gguf *gguf);

const struct gguf_value *gguf_find(const struct gguf *gguf, const char *key);

/* Typed reads. A missing key gives REEL_E_FORMAT unless `required` is false, then *out is left. Any
 * integer type is accepted where the value fits. */
enum reel_status gguf_get_int(const struct gguf *gguf, const char *key, int64_t min, int64_t max,
                              bool required, int64_t *out, struct reel_error *err);
enum reel_status gguf_get_real(const struct gguf *gguf, const char *key, bool required, double *out,
                               struct reel_error *err);
enum reel_status gguf_get_text(const struct gguf *gguf, const char *key, bool required,
                               const char **bytes, size_t *n_bytes, struct reel_error *err);

enum reel_status gguf_get_bool(const struct gguf *gguf, const char *key, bool required, bool *out,
                               struct reel_error *err);

/* An integer value (index 0) or element of an array; false when it is not an integer or the index
 * is past the end. A u64 that does not fit reads as INT64_MAX. */
bool gguf_value_int(const struct gguf_value *value, uint64_t index, int64_t *out);

/* Walks an array of strings. *cursor starts at value->bytes and is moved past the string read. */
bool gguf_next_text(const struct gguf_value *value, const unsigned char **cursor,
                    const char **bytes, size_t *n_bytes);

#endif
