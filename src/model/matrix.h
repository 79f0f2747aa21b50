/* A matrix as it lies in a checkpoint. */
#ifndef REEL_MODEL_MATRIX_H
#define REEL_MODEL_MATRIX_H

#include "model/dtype.h"

/* A matrix [rows, columns], row-major, y = W x. Rows are contiguous, row_bytes apart. */
struct matrix {
    enum dtype dtype;
    int rows, columns;
    size_t row_bytes;
    const unsigned char *data; /* borrowed; 64-byte alignment is not promised */
};

#endif
