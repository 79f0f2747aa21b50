/* Linear layers (and embeddings) whose weights a safetensors file has as codes: docs/WEIGHTS.md.
 * Each format of files is a small reader that finds a layer's tensors by name, checks them against
 * each other and the shape that the model must have, and says how codes, scales and zero points
 * lie in them. One function then makes a matrix with planes of any of these. What already lies in
 * rows is mapped; the rest is put in rows once. */
#ifndef REEL_MODEL_CODED_H
#define REEL_MODEL_CODED_H

#include "model/matrix.h"
#include "model/quant_config.h"
#include "model/tensor_file.h"

#define CODED_MAX_NAME (TENSOR_MAX_NAME + 1)

enum coded_type {
    CODED_F32,
    CODED_F16,
    CODED_BF16,
    CODED_U8,
    CODED_I8,
    CODED_I32,
    CODED_I64,
    CODED_E4M3,
    CODED_E8M0
};

/* A tensor of a layer, of whichever list of the tensor_file; data NULL: the layer has none. */
struct coded_part {
    const char *name; /* borrowed from the tensor_file */
    enum coded_type type;
    int rank, file;
    const int64_t *shape;
    const unsigned char *data;
    size_t n_bytes;
};

/* How the file has codes. */
enum codes_order {
    CODES_IN_ROWS,
    CODES_SIGNED,       /* in rows, as int8 */
    CODES_HIGH_FIRST,   /* in rows, the upper half of a byte first */
    CODES_DOWN_COLUMNS, /* GPTQ: words [columns / codes a word, rows], lowest bits first */
    CODES_DEALT         /* AWQ: words [columns, rows / 8], rows in the order of awq_rows */
};

/* How it has scales. */
enum scales_order {
    SCALES_IN_ROWS,
    SCALES_IN_COLUMNS, /* [groups, rows] */
    SCALES_FLAT,       /* one for each `block` weights, rows following each other */
    SCALES_NESTED      /* the same, and themselves codes with scales */
};

/* And zero points. */
enum zeros_order {
    ZEROS_NONE,         /* all are `zero` */
    ZEROS_SIGNED,       /* int8 of the scales' shape */
    ZEROS_PACKED_DOWN,  /* words [rows / codes a word, groups], lowest bits first */
    ZEROS_PACKED_ALONG, /* GPTQ: words [groups, rows / codes a word]; `zero_step` is added to each
                         */
    ZEROS_DEALT         /* AWQ: the same, rows in the order of awq_rows */
};

/* A layer that was found and checked; no weight of it was read. */
struct coded_layer {
    const char *format; /* "gptq int4", what people call it */
    int rows, columns;
    enum matrix_form form;
    int bits;
    struct coded_part codes, scales, zeros, index;
    struct coded_part divisor, factor;             /* F32 [1] */
    struct coded_part table;                       /* F32 [16] */
    struct coded_part nested_scales, nested_table; /* F32 [n], F32 [256] */
    enum codes_order codes_order;
    enum scales_order scales_order;
    enum zeros_order zeros_order;
    int block_rows, block_columns; /* of a scale: weights that share it */
    int zero;
    uint32_t zero_step;
    int flat_block, nested_block; /* weights of a scale, and scales of a nested one */
    float nested_offset;
    bool zero_scales; /* a scale may be 0: its weights are */
    uint64_t n_bytes; /* of all its tensors */
};

/* Finds the tensors of layer `name` (as "model.layers.0.mlp.up_proj"), a matrix [rows, columns].
 * *found is false, and nothing is wrong, where it has no codes: it may be wide then. `file` needs
 * its `quant`. */
enum reel_status coded_find(struct coded_layer *coded, const struct tensor_file *file,
                            const char *name, int rows, int columns, bool *found,
                            struct reel_error *err);

/* Makes the matrix, and checks the values of scales, zero points and indices. *owned (mem_free)
 * has its planes, and what had to be put in order; the rest is borrowed from the file. */
enum reel_status coded_read(const struct coded_layer *coded, const struct tensor_file *file,
                            struct matrix *out, void **owned, struct reel_error *err);

/* Bytes that coded_read will allocate. */
size_t coded_owned_bytes(const struct coded_layer *coded);

/* Whether a tensor is there that the weights of layer `name` could begin with, wide or not. */
bool coded_is_there(const struct tensor_file *file, const char *name);

/* For readers: the tensor `name``suffix`, data NULL where there is none; and the name of a type. */
struct coded_part coded_part_find(const struct tensor_file *file, const char *name,
                                  const char *suffix);
const char *coded_type_name(enum coded_type type);

#endif
