/* The input of tile_product, made of vectors, and what its rows are worth. */
#ifndef REEL_TESTS_TILE_ROWS_H
#define REEL_TESTS_TILE_ROWS_H

#include "cpu/tile.h"

struct tile_rows {
    struct tile_input input;
    float *values; /* f32 [m, columns] */
};

/* x [m, columns]. blocks: for block formats or planes; else for F32, F16 and BF16. */
void tile_rows_make(struct tile_rows *t, const struct kernels *kernels, bool blocks, const float *x,
                    int m, int columns);
void tile_rows_free(struct tile_rows *t);

#endif
