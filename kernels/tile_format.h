/* What a tile of weights is, for host and device.
 *
 * The tapes (tape.h) and the audio tower's weights (encoder_layout.h) are sequences of tiles, each
 * 16 rows by 16 columns (k) of a matrix. A tile's format says how many bytes the tile has, where in
 * them a weight lies, what the winder (wind.cu) writes and what a lane makes of the bytes that it
 * reads. All of that is in this file alone; src/plan/plan_format.c says which weights have which format.
 *
 * Every format keeps to these rules, which its readers rely on:
 *   - A tile's size is a multiple of 128 bytes, so that bulk copies of whole tiles are aligned.
 *   - A lane reads 16 bytes of a tile, on a 16-byte boundary: struct quad of prelude.cuh.
 *   - The winder writes grains of 4 bytes, on a 4-byte boundary: neighbours of one row.
 *   - Zero bytes are zero weights. Tapes are cleared, and the padding of a tile is never wound. */
#ifndef REEL_KERNELS_TILE_FORMAT_H
#define REEL_KERNELS_TILE_FORMAT_H

#if defined(__CUDACC__)
#define TAPE_FN __device__ static __forceinline__
#else
#define TAPE_FN static inline
#endif

enum { TILE_ROWS = 16, TILE_K = 16 };

/* X(name, text). A tile of TILE_BF16 is an operand, see below. */
#define TILE_FORMAT_LIST(X) X(TILE_BF16, "bf16")

enum tile_format {
#define TILE_FORMAT_ENUM(name, text) name,
    TILE_FORMAT_LIST(TILE_FORMAT_ENUM)
#undef TILE_FORMAT_ENUM
        TILE_FORMATS
};

/* ---- operands -------------------------------------------------------------------------------- */

/* How the A operand of mma.m16n8k16 lies in memory: 16 rows by 16 columns of bf16, with 16 bytes for each lane. For
 * r < 8 and even k < 8, lane 4 r + k / 2 has four pairs of neighbours of one row, which begin at (r, k), (r + 8, k),
 * (r, k + 8) and (r + 8, k + 8). Keys, values and the states of a Gated DeltaNet lie like this whatever format the
 * weights have. */
enum { BF16_TILE_BYTES = 512 };

/* Where in an operand the value (r, k) begins, in bytes. */
TAPE_FN unsigned bf16_tile_at(int r, int k) {
    unsigned lane = (unsigned)(r % 8 * 4 + k % 8 / 2), reg = (unsigned)(k % 16 / 8 * 2 + r % 16 / 8);
    return lane * 16 + reg * 4 + (unsigned)(k % 2) * 2;
}

/* ---- size and order -------------------------------------------------------------------------- */

TAPE_FN unsigned tile_bytes(int format) {
    switch (format) {
    default: /* TILE_BF16 */ return BF16_TILE_BYTES;
    }
}

/* Where in a tile the 16 bytes that a lane reads begin. */
TAPE_FN unsigned tile_lane(int format, int lane) {
    switch (format) {
    default: /* TILE_BF16 */ return (unsigned)lane * 16;
    }
}

/* How many weights a grain has. The column of its first weight is a multiple of this number. */
TAPE_FN int tile_grain(int format) {
    switch (format) {
    default: /* TILE_BF16 */ return 2;
    }
}

/* Where in a tile the grain begins that holds weight (r, k). r and k may be those of the whole matrix. */
TAPE_FN unsigned tile_grain_at(int format, int r, int k) {
    switch (format) {
    default: /* TILE_BF16 */ return bf16_tile_at(r, k & ~1);
    }
}

/* ---- winding --------------------------------------------------------------------------------- */

/* How many bytes a row of `columns` weights has when it comes to the winder. Rows come as bf16 for every format. */
TAPE_FN unsigned long long tile_staged_bytes(int format, int columns) {
    switch (format) {
    default: /* TILE_BF16 */ return (unsigned long long)(unsigned)columns * 2;
    }
}

/* Makes a grain of the weights that begin at `from`. The row has `left` weights from there on; the rest are zeros. */
TAPE_FN unsigned tile_grain_make(int format, const unsigned short *from, int left) {
    const unsigned pair = from[0] | (left > 1 ? (unsigned)from[1] << 16 : 0);
    switch (format) {
    default: /* TILE_BF16 */ return pair;
    }
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The weights at columns k (even) and k + 1 as two bf16 values, out of the grain that holds them. The weight at k is in
 * the lower half. */
TAPE_FN unsigned tile_grain_pair(int format, unsigned grain, int k) {
    (void)k;
    switch (format) {
    default: /* TILE_BF16 */ return grain;
    }
}

/* Turns the 16 bytes that a lane has read into that lane's share of the A operand, which products multiply. */
#if defined(__CUDACC__) || defined(REEL_SIM)
#include "prelude.cuh"
DEV struct quad tile_operand(const int format, struct quad read) {
    switch (format) {
    default: /* TILE_BF16 */ return read;
    }
}
#endif

#endif
