/* Weights in tiles in the host's memory, for tests that fill tapes by themselves. */
#ifndef REEL_TESTS_WOUND_H
#define REEL_TESTS_WOUND_H

#include "kernels/tape.h"

#include <stdint.h>
#include <string.h>

/* The grain at column k of row r of a tile, whose first weight is *from; the row has `left` more.
 */
static inline void wound_grain(unsigned char *tile, int format, int r, int k, const uint16_t *from,
                               int left) {
    const unsigned made = tile_grain_make(format, from, left);
    memcpy(tile + tile_grain_at(format, r, k), &made, sizeof made);
}

/* Row `row` of a phase's matrix, bf16 [columns], to its places in all tapes. */
static inline void wound_row(unsigned char *tapes, const struct tape_shape *s, int phase, int layer,
                             int row, const uint16_t *from, int columns) {
    const int format = s->segment[phase].format;
    for (int k = 0; k < columns; k += tile_grain(format)) {
        const unsigned made = tile_grain_make(format, from + k, columns - k);
        memcpy(tapes + tape_locate(s, phase, layer, row, k), &made, sizeof made);
    }
}

#endif
