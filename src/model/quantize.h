/* Wide weights made narrow: a row of floats becomes codes and scales (struct matrix_planes).
 *
 * Every weight is rounded to the nearest code. The scale of a group is searched: of some candidates
 * that is taken which makes the sum of the squared errors of the group's weights least. The first
 * candidate is the one that reaches the largest weight, so the search never loses to having none.
 * Scales are bf16, so code * scale is exact in float32. */
#ifndef REEL_MODEL_QUANTIZE_H
#define REEL_MODEL_QUANTIZE_H

#include "model/matrix.h"

/* What --weights names. */
enum weight_form {
    WEIGHTS_STORED, /* as the file has them */
    WEIGHTS_BF16,
    WEIGHTS_INT8, /* a scale a row */
    WEIGHTS_INT4, /* a scale for a group of columns: see quantize_group */
    WEIGHTS_FP8,  /* e4m3, a scale a row */
    WEIGHTS_FORMS
};

const char *weight_form_name(enum weight_form form); /* "int8"; "stored" */
/* NULL is WEIGHTS_STORED; WEIGHTS_FORMS: none of the names, which `stored` is not among. */
enum weight_form weight_form_of(const char *name);

/* Codes of one matrix. */
struct quantize_shape {
    enum weight_form form; /* one with codes */
    int columns, group;    /* group: columns that share a scale */
    int bits;
    size_t row_bytes; /* of codes */
    int scales;       /* of a row */
};

/* Columns that share a scale: all, or of int4 the largest of 128, 64 and 32 that divides the
 * columns. 0: none of them does. */
int quantize_group(enum weight_form form, int columns);
/* False where quantize_group is 0. */
bool quantize_shape_fill(struct quantize_shape *shape, enum weight_form form, int columns);
/* What those codes mean, without the address of the scales. */
void quantize_planes_fill(struct matrix_planes *planes, const struct quantize_shape *shape);

/* Floats that a row takes here: its columns, and zeros up to the width of a vector. */
size_t quantize_row_floats(int columns);

/* How far the codes are from what they were made of. */
struct quantize_error {
    double lost; /* sum of squared differences */
    double all;  /* sum of squares */
};

/* row: f32 [quantize_row_floats], zeros behind the columns. codes: [row_bytes]; scales: bf16
 * [shape->scales]. `search` false takes the first candidate. Adds to *error. False, with nothing
 * said of the rest, where a weight is no finite number. */
bool quantize_row(const struct quantize_shape *shape, const float *row, bool search,
                  unsigned char *codes, uint16_t *scales, struct quantize_error *error);

#endif
