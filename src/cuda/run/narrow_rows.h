/* Rows of narrow weights on their way to the winder: a matrix's codes, scales and offsets
 * (model/matrix_codes.h) in the bytes that a tile format wants (kernels/tile_format.h), which may
 * be one that several matrices share. */
#ifndef REEL_CUDA_NARROW_ROWS_H
#define REEL_CUDA_NARROW_ROWS_H

#include "model/matrix_codes.h"

/* Floats that narrow_row_stage needs besides: scales and offsets of a row. */
static inline int narrow_row_floats(const struct matrix_codes *codes, int columns) {
    return 2 * matrix_code_groups(codes, columns);
}

/* Writes row r of `m`, whose codes are `codes`, as a row of `format`: tile_staged_bytes bytes. The
 * format is narrow and holds what the matrix holds (plan_stored). `numbers`: narrow_row_floats. */
void narrow_row_stage(const struct matrix *m, const struct matrix_codes *codes, int r, int format,
                      float *numbers, unsigned char *to);

#endif
