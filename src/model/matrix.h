/* A matrix as it lies in memory, and what its weights are worth. */
#ifndef REEL_MODEL_MATRIX_H
#define REEL_MODEL_MATRIX_H

#include "model/dtype.h"

/* How weights are coded where that is not a dtype. Files have many layouts of these four: a loader
 * puts the codes in rows once and leaves them as narrow as they are. */
enum matrix_form {
    MATRIX_INTEGERS, /* (code - zero point) scale */
    MATRIX_E4M3,     /* floats of 8 bits: code scale */
    MATRIX_E2M1,     /* floats of 4 bits: code scale */
    MATRIX_TABLE     /* 16 floats that the codes name: table[code] scale */
};

/* What a scale or a zero point is stored as. */
enum plane_type {
    PLANE_F32,
    PLANE_F16,
    PLANE_BF16,
    PLANE_E4M3,
    PLANE_E8M0, /* a power of two, its exponent + 127 */
    PLANE_U8
};

/* One value for each block of weights. data NULL: there is no such plane. */
struct matrix_plane {
    const unsigned char *data; /* borrowed; values of a row of blocks lie together, */
    size_t row_bytes;          /* and this far from those of the next */
    enum plane_type type;
    int rows, columns; /* of a block; at the matrix's end a block may have fewer */
};

struct matrix_planes {
    enum matrix_form form;
    int bits;                   /* of a code, 4 or 8; of two that share a byte the lower half comes
                                   first. E4M3 has 8, E2M1 and tables have 4. */
    struct matrix_plane scales; /* without the plane a scale is 1 */
    struct matrix_plane zeros;  /* of integers; without it */
    int zero;                   /* every zero point is this */
    float factor;               /* every scale is multiplied by this */
    float divisor;      /* not 0: every scale is divided by this instead, of which factor is the
                           reciprocal, rounded: as good where sums are rounded anyway */
    const float *table; /* [16], borrowed; or NULL */
    const int *order;   /* [columns], borrowed: scale and zero point of column k are those of
                           column order[k]; NULL: those of k */
};

/* A matrix [rows, columns], row-major, y = W x. Rows are contiguous, row_bytes apart. */
struct matrix {
    enum dtype dtype;
    int rows, columns;
    size_t row_bytes;
    const unsigned char *data;          /* borrowed; 64-byte alignment is not promised */
    const struct matrix_planes *planes; /* borrowed; NULL: data has elements or blocks of dtype.
                                           Else data has codes, and dtype says nothing: what goes by
                                           dtype does not take such a matrix. */
    const unsigned char *panels; /* borrowed: the blocks of data, as cpu/panels.h has them; NULL */
    float factor; /* not 0: the second scale of NVFP4's blocks: every scale of theirs is multiplied
                     by this */
};

/* Row r as f32 [columns]: what every weight is worth. Everything that reads a matrix must equal it
 * before it rounds. */
void matrix_row_f32(const struct matrix *m, int r, float *out);

/* Columns first to first + n - 1 of a row of a matrix with planes, likewise: out has n of them. */
void matrix_codes_f32(const struct matrix *m, int r, int first, int n, float *out);

/* A plane's value for the weight (r, k), before `factor`. */
float matrix_plane_at(const struct matrix_plane *p, int r, int k);

/* The floats of 8 bits (sign, 4 of exponent, 3 of fraction; no infinity) and of 4 (code < 16). */
float e4m3_to_f32(uint8_t x);
float e2m1_to_f32(int code);

#endif
