/* What a tile of weights is, for host and device.
 *
 * The tapes (tape.h) and the audio tower's weights (encoder_layout.h) are sequences of tiles. A tile is 16 rows by 16
 * columns (k) of a matrix, or by 32 or 64 columns where weights are narrow: then it is 2 or 4 parts of 16 columns. A
 * tile's format says how many bytes the tile has, where in them a weight lies, what the winder (wind.cu) writes and
 * what a lane makes of the bytes that it reads. This file says all of that but the arithmetic, which is in
 * tile_codes.cuh; src/plan/plan_format.c says which weights have which format.
 *
 * Every format keeps to these rules, which its readers rely on:
 *   - A tile's size is a multiple of 32 bytes, so that bulk copies of whole tiles are aligned.
 *   - A lane reads 16 bytes of a tile, on a 16-byte boundary: struct quad of prelude.cuh. Of a narrow tile it reads
 *     the scales of its two rows besides.
 *   - The winder writes grains of 4 bytes, on a 4-byte boundary, which hold weights of one row: neighbours in a tile of
 *     bf16, four or eight columns of its parts in a narrow one.
 *   - Zero bytes are zero weights. Tapes are cleared, and the padding of a tile is never wound. */
#ifndef REEL_KERNELS_TILE_FORMAT_H
#define REEL_KERNELS_TILE_FORMAT_H

#if defined(__CUDACC__)
#define TAPE_FN __device__ static __forceinline__
#else
#define TAPE_FN static inline
#endif

enum { TILE_ROWS = 16, TILE_K = 16 };

/* X(name, text): what weights are coded as. A tile of TILE_BF16 is an operand, see below; the others are narrow. */
#define TILE_FORMAT_LIST(X)                                                                                            \
    X(TILE_BF16, "bf16")                                                                                               \
    X(TILE_INT8, "int8")                                                                                               \
    X(TILE_INT4, "int4")                                                                                               \
    X(TILE_UINT4, "uint4")                                                                                             \
    X(TILE_IQ4, "iq4")                                                                                                 \
    X(TILE_NF4, "nf4")                                                                                                 \
    X(TILE_FP4, "fp4")                                                                                                 \
    X(TILE_E4M3, "e4m3")                                                                                               \
    X(TILE_E2M1, "e2m1")

enum tile_format {
#define TILE_FORMAT_ENUM(name, text) name,
    TILE_FORMAT_LIST(TILE_FORMAT_ENUM)
#undef TILE_FORMAT_ENUM
        TILE_FORMATS
};

/* ---- narrow formats -------------------------------------------------------------------------- */

/* A narrow tile has 512 bytes of codes, 8 or 4 bits each, and behind them the scales of its 16 rows. Its format is a
 * number of four parts: the code (enum tile_format), how many columns share a scale, what a scale is stored as, and
 * whether there are offsets beside the scales. A weight is worth
 *     scale * value                   without offsets,
 *     scale * value + offset          with TILE_MINIMA,
 *     scale * (value - offset)        with TILE_ZEROS,
 * where the value of an integer code is two's complement, but for TILE_UINT4 and for those of 4 bits that name an
 * integer of a table (tile_table). Offsets are stored as scales are. Where the scale of a tile's columns is that of
 * more columns than the tile has, each tile has it.
 *
 * Offsets of TILE_ZEROS are whole numbers of 15 bits or less.
 *
 * With TILE_SCALE_STEPS a scale is a step, an integer of 8 bits, times a unit, an f16 number that a row of the tile has
 * once; an offset is a step of its own times a unit of its own. So GGUF's K-quants have scales, and a product of the
 * two is exact in float. */
enum { TILE_GROUP_ROW = 4 }; /* else 16 << group columns share a scale */
enum { TILE_SCALE_F16, TILE_SCALE_BF16, TILE_SCALE_F32, TILE_SCALE_STEPS };
enum { TILE_NO_OFFSETS, TILE_MINIMA, TILE_ZEROS };
#define TILE_FORMAT(code, group, scale, offsets) ((code) | (group) << 4 | (scale) << 8 | (offsets) << 10)
#define TILE_CODE(format)                        ((format)&15)
#define TILE_GROUP(format)                       ((format) >> 4 & 15)
#define TILE_SCALE(format)                       ((format) >> 8 & 3)
#define TILE_OFFSETS(format)                     ((format) >> 10 & 3)

/* Parts of a tile, each 16 columns and an operand. */
#define TILE_PARTS(format)                                                                                             \
    (TILE_CODE(format) == TILE_INT8 || TILE_CODE(format) == TILE_E4M3  ? 2                                             \
     : TILE_CODE(format) > TILE_BF16 && TILE_CODE(format) <= TILE_E2M1 ? 4                                             \
                                                                       : 1)
#define TILE_NARROW(format) (TILE_PARTS(format) > 1)
/* Whether codes are integers or name integers, TILE_INT8 to TILE_FP4. In numbers, since the preprocessor asks as well.
 */
#define TILE_INTEGERS(format) (TILE_CODE(format) >= 1 && TILE_CODE(format) <= 6)
#define TILE_NAMES(format)    (TILE_CODE(format) >= 4 && TILE_CODE(format) <= 6) /* TILE_IQ4 to TILE_FP4 */
/* Digits of 8 bits that an integer has: 2 of those that stand for bitsandbytes' floats. */
#define TILE_DIGITS(format) (TILE_CODE(format) == TILE_NF4 || TILE_CODE(format) == TILE_FP4 ? 2 : 1)
#define TILE_FLOATS(format) (TILE_NARROW(format) && !TILE_INTEGERS(format))
/* A run is the parts of a tile that share a scale. */
#define TILE_RUN(format)  (1 << TILE_GROUP(format) < TILE_PARTS(format) ? 1 << TILE_GROUP(format) : TILE_PARTS(format))
#define TILE_RUNS(format) (TILE_PARTS(format) / TILE_RUN(format))
/* Whether the products of prompts take operands of what weights are worth, rounded to bf16 (tile_codes.cuh): where a
 * scale is that of fewer than 64 columns, where there are offsets, or where integers have two digits. */
#define TILE_ROUNDED(format)                                                                                           \
    (TILE_NARROW(format) && (TILE_GROUP(format) < 2 || TILE_OFFSETS(format) || TILE_DIGITS(format) > 1))
#define TILE_STEPS(format) (TILE_SCALE(format) == TILE_SCALE_STEPS)
#define TILE_SCALE_BYTES(format)                                                                                       \
    (TILE_SCALE(format) == TILE_SCALE_F32 ? 4 : TILE_STEPS(format) ? 1 : 2) /* a step's: 1 */
/* Numbers beside the codes that a row of a run has: a scale, perhaps an offset. */
#define TILE_NUMBERS(format) (TILE_OFFSETS(format) ? 2 : 1)
/* Words of 4 bytes that a lane reads of them; of steps, two of each of its rows in a word, then the units. */
#define TILE_STEP_WORDS(format) ((TILE_RUNS(format) * TILE_NUMBERS(format) + 1) / 2)
#define TILE_SCALE_WORDS(format)                                                                                       \
    (!TILE_NARROW(format) ? 0                                                                                          \
     : TILE_STEPS(format) ? TILE_STEP_WORDS(format) + TILE_NUMBERS(format)                                             \
                          : TILE_RUNS(format) * TILE_NUMBERS(format) * TILE_SCALE_BYTES(format) / 2)

/* The integers that codes of 4 bits name. A digit of those of codes 4 i to 4 i + 3, a byte each: digit 0 from -128 to
 * 127, digit 1 what is left, times 256. TILE_IQ4 has GGUF's table. TILE_NF4 and TILE_FP4 have bitsandbytes' floats over
 * a unit, and their scales are multiplied by it: fp4's floats are 192nds of 1; nf4's are rounded to integers, with a
 * unit for which that changes none by more than 0.000035 of it. Digits 2 and 3 of these two: the lower and the upper
 * byte of the integer as bf16. */
TAPE_FN unsigned tile_table(int format, int digit, int i) {
    switch (TILE_CODE(format) * 16 + digit * 4 + i) {
    case TILE_IQ4 * 16: return 0xbfad9881u;     /* -127 -104 -83 -65 */
    case TILE_IQ4 * 16 + 1: return 0xf6eaddcfu; /* -49 -35 -22 -10 */
    case TILE_IQ4 * 16 + 2: return 0x26190d01u; /* 1 13 25 38 */
    case TILE_IQ4 * 16 + 3: return 0x71594535u; /* 53 69 89 113 */
    case TILE_NF4 * 16: return 0x1af76060u;     /* -27808 -19360 -14601 -10982 */
    case TILE_NF4 * 16 + 1: return 0x001cee1au; /* -7910 -5138 -2532 0 */
    case TILE_NF4 * 16 + 2: return 0xb5bc7ba5u; /* 2213 4475 6844 9397 */
    case TILE_NF4 * 16 + 3: return 0xa0881ddfu; /* 12255 15645 20104 27808 */
    case TILE_NF4 * 16 + 4: return 0xd5c7b493u;
    case TILE_NF4 * 16 + 5: return 0x00f6ece1u;
    case TILE_NF4 * 16 + 6: return 0x251b1109u;
    case TILE_NF4 * 16 + 7: return 0x6d4f3d30u;
    case TILE_NF4 * 16 + 8: return 0x2c6497d9u;
    case TILE_NF4 * 16 + 9: return 0x001ea1f7u;
    case TILE_NF4 * 16 + 10: return 0x13d68c0au;
    case TILE_NF4 * 16 + 11: return 0xd99d743fu;
    case TILE_NF4 * 16 + 12: return 0xc6c6c6c6u;
    case TILE_NF4 * 16 + 13: return 0x00c5c5c5u;
    case TILE_NF4 * 16 + 14: return 0x46454545u;
    case TILE_NF4 * 16 + 15: return 0x46464646u;
    case TILE_FP4 * 16: return 0x0000a000u;     /* 160 times 0 1 128 192 */
    case TILE_FP4 * 16 + 1: return 0x00000000u; /* 160 times 64 96 32 48 */
    case TILE_FP4 * 16 + 2: return 0x00006000u; /* the same less than 0 */
    case TILE_FP4 * 16 + 3: return 0x00000000u;
    case TILE_FP4 * 16 + 4: return 0x78500100u;
    case TILE_FP4 * 16 + 5: return 0x1e143c28u;
    case TILE_FP4 * 16 + 6: return 0x88b0ff00u;
    case TILE_FP4 * 16 + 7: return 0xe2ecc4d8u;
    case TILE_FP4 * 16 + 8: return 0xf0a02000u;
    case TILE_FP4 * 16 + 9: return 0xf0a07020u;
    case TILE_FP4 * 16 + 10: return 0xf0a02000u;
    case TILE_FP4 * 16 + 11: return 0xf0a07020u;
    case TILE_FP4 * 16 + 12: return 0x46464300u;
    case TILE_FP4 * 16 + 13: return 0x45454646u;
    case TILE_FP4 * 16 + 14: return 0xc6c6c300u;
    case TILE_FP4 * 16 + 15: return 0xc5c5c6c6u;
    default: return 0;
    }
}
TAPE_FN int tile_table_value(int format, int code) {
    int value = 0;
    for (int digit = TILE_DIGITS(format) - 1; digit >= 0; digit--)
        value = value * 256 + (signed char)(tile_table(format, digit, code / 4) >> code % 4 * 8);
    return value;
}
/* What 1 of bitsandbytes' floats is in these integers. */
TAPE_FN float tile_table_one(int format) {
    return TILE_CODE(format) == TILE_NF4 ? 27808.0f : TILE_CODE(format) == TILE_FP4 ? 192.0f * 160.0f : 1.0f;
}

enum { TILE_CODES_BYTES = 512 };

/* Where in a narrow tile a scale begins, or with `number` 1 an offset: those of row r of a run. A lane's two rows, r
 * and r + 8, are neighbours. Steps lie two by two, so that a row's two make the half of a word. */
TAPE_FN unsigned tile_scale_at(int format, int run, int number, int r) {
    const int which = number * TILE_RUNS(format) + run;
    const int row = which * TILE_ROWS + r % 8 * 2 + r % 16 / 8;
    if (TILE_STEPS(format))
        return (unsigned)(TILE_CODES_BYTES + (r % 8 * TILE_SCALE_WORDS(format) + which / 2) * 4 + r % 16 / 8 * 2 +
                          which % 2);
    return (unsigned)(TILE_CODES_BYTES + row * TILE_SCALE_BYTES(format));
}
/* Where the unit of steps begins. */
TAPE_FN unsigned tile_unit_at(int format, int number, int r) {
    const int word = r % 8 * TILE_SCALE_WORDS(format) + TILE_STEP_WORDS(format) + number;
    return (unsigned)(TILE_CODES_BYTES + word * 4 + r % 16 / 8 * 2);
}
/* Where word i begins of those that the lanes of rows `pair` and `pair` + 8 read. */
TAPE_FN unsigned tile_scale_word_at(int format, int i, int pair) {
    const int words = TILE_SCALE_BYTES(format) / 2, which = i / (words ? words : 1);
    if (TILE_STEPS(format)) return (unsigned)(TILE_CODES_BYTES + (pair * TILE_SCALE_WORDS(format) + i) * 4);
    return tile_scale_at(format, which % TILE_RUNS(format), which / TILE_RUNS(format), pair) +
           (unsigned)(i % words * 4);
}

/* Whether a number is a format. */
TAPE_FN int tile_format_is(int format) {
    if (format < 0 || format >> 12 || TILE_CODE(format) >= TILE_FORMATS) return 0;
    if (!TILE_NARROW(format)) return format == TILE_CODE(format);
    if (TILE_STEPS(format) && TILE_GROUP(format) == TILE_GROUP_ROW) return 0;
    return TILE_GROUP(format) <= TILE_GROUP_ROW && TILE_OFFSETS(format) <= TILE_ZEROS;
}

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
    if (TILE_NARROW(format)) return (unsigned)(TILE_CODES_BYTES + 8 * 4 * TILE_SCALE_WORDS(format));
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

/* How many neighbouring weights of a row a grain has. The column of the first is a multiple of this number. */
TAPE_FN int tile_grain(int format) {
    if (TILE_NARROW(format)) return 1;
    switch (format) {
    default: /* TILE_BF16 */ return 2;
    }
}

/* Codes of a narrow tile. Lane 4 r + c has, of each part, the columns 2 c, 2 c + 8, 2 c + 1 and 2 c + 9, in a word for
 * row r and a word for row r + 8: bytes in this order. With 4 bits the even parts have the lower halves of the bytes
 * and the odd parts the upper ones. So the masks 0x0f0f0f0f and 0x000f000f take operands of 8-bit and of 16-bit
 * numbers. */
TAPE_FN unsigned tile_word_at(int format, int r, int k) {
    const int part = k / TILE_K % TILE_PARTS(format), pair = TILE_PARTS(format) == 4 ? part / 2 : part;
    const unsigned lane = (unsigned)(r % 8 * 4 + k % 8 / 2);
    return lane * 16 + (unsigned)(pair * 2 + r % 16 / 8) * 4;
}
/* Where in its word a code is, in bits. */
TAPE_FN int tile_code_shift(int format, int k) {
    return (k % 2 * 2 + k % 16 / 8) * 8 + (TILE_PARTS(format) == 4 ? k / TILE_K % 2 * 4 : 0);
}

/* How a word of codes is stored, and back. In a word of TILE_E4M3 each half has the bits of two codes where few
 * operations make bf16 numbers of them (tile_codes.cuh): the sign, the exponent and the fraction of its lower byte in
 * bits 15 and 10 to 4, and in the bits that are left the upper byte's, in the order 14 to 12, 3 to 0, its sign in bit
 * 11. Codes that name integers select bytes of a table four at a time: the even part's lie in the lower half of the
 * word, the odd part's in the upper. */
TAPE_FN unsigned tile_halves_pack(unsigned x) {
    x &= 0x0f0f0f0fu, x = (x | x >> 4) & 0x00ff00ffu;
    return (x | x >> 8) & 0xffffu;
}
TAPE_FN unsigned tile_halves_unpack(unsigned x) {
    x &= 0xffffu, x = (x | x << 8) & 0x00ff00ffu;
    return (x | x << 4) & 0x0f0f0f0fu;
}
TAPE_FN unsigned tile_word_stored(int format, unsigned codes) {
    const unsigned even = codes & 0x00ff00ffu, odd = codes >> 8 & 0x00ff00ffu;
    if (TILE_NAMES(format)) return tile_halves_pack(codes) | tile_halves_pack(codes >> 4) << 16;
    if (TILE_CODE(format) != TILE_E4M3) return codes;
    return (even & 0x00800080u) << 8 | (even & 0x007f007fu) << 4 | (odd & 0x00800080u) << 4 | (odd & 0x00700070u) << 8 |
           (odd & 0x000f000fu);
}
TAPE_FN unsigned tile_word_codes(int format, unsigned stored) {
    const unsigned even = (stored & 0x80008000u) >> 8 | (stored & 0x07f007f0u) >> 4;
    const unsigned odd = (stored & 0x08000800u) >> 4 | (stored & 0x70007000u) >> 8 | (stored & 0x000f000fu);
    if (TILE_NAMES(format)) return tile_halves_unpack(stored) | tile_halves_unpack(stored >> 16) << 4;
    return TILE_CODE(format) == TILE_E4M3 ? even | odd << 8 : stored;
}

/* Where in a tile the grain begins that holds weight (r, k). r and k may be those of the whole matrix. */
TAPE_FN unsigned tile_grain_at(int format, int r, int k) {
    if (TILE_NARROW(format)) return tile_word_at(format, r, k);
    switch (format) {
    default: /* TILE_BF16 */ return bf16_tile_at(r, k & ~1);
    }
}

/* ---- winding --------------------------------------------------------------------------------- */

/* A row of a narrow matrix comes to the winder as a byte for each code, then its scales, one for each group of columns,
 * then its offsets. Of steps the units follow, one for as many columns as a tile has, and those of offsets. Each of
 * these begins at a multiple of 4 bytes. */
TAPE_FN int tile_groups(int format, int columns) {
    const int group = TILE_K << TILE_GROUP(format);
    return TILE_GROUP(format) == TILE_GROUP_ROW ? 1 : (columns + group - 1) / group;
}
TAPE_FN unsigned tile_staged_at(int format, int columns, int number, int group) {
    const unsigned codes = ((unsigned)columns + 3) / 4 * 4;
    const unsigned numbers = ((unsigned)(tile_groups(format, columns) * TILE_SCALE_BYTES(format)) + 3) / 4 * 4;
    return codes + (unsigned)number * numbers + (unsigned)(group * TILE_SCALE_BYTES(format));
}
TAPE_FN int tile_units(int format, int columns) {
    const int width = TILE_K * TILE_PARTS(format);
    return TILE_STEPS(format) ? (columns + width - 1) / width : 0;
}
TAPE_FN unsigned tile_staged_unit_at(int format, int columns, int number, int unit) {
    const unsigned bytes = ((unsigned)tile_units(format, columns) + 1) / 2 * 4;
    return tile_staged_at(format, columns, TILE_NUMBERS(format), 0) + (unsigned)number * bytes + (unsigned)unit * 2;
}

/* How many bytes a row of `columns` weights has when it comes to the winder. Rows that are not narrow come as bf16. */
TAPE_FN unsigned long long tile_staged_bytes(int format, int columns) {
    if (TILE_NARROW(format)) return tile_staged_unit_at(format, columns, TILE_NUMBERS(format), 0);
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
/* The same of one of a half tile's (tape.h) two k tiles. The operand's lower 8 rows are zeros. */
DEV struct quad half_operand(struct quad read, const int second) {
    const struct quad a = { second ? read.z : read.x, 0, second ? read.w : read.y, 0 };
    return a;
}
#endif

#endif
