/* Vectors as a program or a person wants them. */
#ifndef REEL_CLI_VECTOR_OUT_H
#define REEL_CLI_VECTOR_OUT_H

#include "base/buffer.h"

enum vector_format { VECTORS_JSON, VECTORS_JSONL, VECTORS_NPY, VECTORS_TEXT };

struct vector_out {
    enum vector_format format;
    const char *path;  /* of the file, which is written whole at the end; NULL: stdout */
    const char *model; /* its name */
    int n, dimensions; /* of all vectors */
    bool normalised;
    int written;         /* vectors so far */
    struct buffer bytes; /* not written yet */
};

struct vector_row {
    const float *values; /* f32 [dimensions] */
    int tokens;
    bool truncated;
};

/* All of `out` but written and bytes is set. npy goes to stdout in one piece, too: a part of one is
 * not a file that says so. */
enum reel_status vector_out_begin(struct vector_out *out, struct reel_error *err);
enum reel_status vector_out_add(struct vector_out *out, const struct vector_row *row,
                                struct reel_error *err);
/* What is certain may go. */
enum reel_status vector_out_flush(struct vector_out *out, struct reel_error *err);
enum reel_status vector_out_end(struct vector_out *out, struct reel_error *err);
void vector_out_release(struct vector_out *out);

#endif
