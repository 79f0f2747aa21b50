/* Weights that are integers (tile_format.h) times a vector in fixed point.
 *
 * The tensor cores multiply integers of 8 bits and add the products up without rounding. So the codes of such weights
 * are multiplied as they lie in the tape, and it is the vector that is turned into integers, once for all the weights
 * that it meets. A number x of a vector becomes
 *     unit * (d0 + 256 * d1 + 65536 * d2),
 * three digits from -128 to 127. `unit` is a power of two. It is chosen for a slice of the vector, such that the
 * slice's largest number becomes an integer of 22 bits. Each other number is off by half a unit at most, which is less
 * than what the largest number loses as two bf16 halves. The digits of a token take three of the eight columns of B,
 * which one token leaves idle.
 *
 * Sums of digits are ints. Where columns of weights share a scale, a run, the ints of the run become floats and are
 * multiplied by the scale; where a whole row shares one, that happens once, when the slice is over. The digits meet at
 * the end. So each step but the fixed point is exact or is rounded as it is with bf16 weights, and sums do not depend
 * on how many columns B has. */
#ifndef REEL_KERNELS_DIGITS_CUH
#define REEL_KERNELS_DIGITS_CUH

#include "mma.cuh"
#include "shared.cuh"
#include "tile_codes.cuh"

/* Whether a format's weights are multiplied as integers. sm_75 has no such product of this shape. */
#define DIGITS(format) (G_COPY >= 1 && TILE_INTEGERS(format))
STATIC_ASSERT((int)TILE_INT8 == 1 && (int)TILE_IQ4 == 4 && (int)TILE_FP4 == 6,
              "TILE_INTEGERS and TILE_NAMES count on this");
/* The format of a phase's tiles for a warp. With ROW_SCALED formats sums become floats at the end of a slice, not run
 * by run; where all columns of a warp's slice share one scale that is done too, as if it were the row's. In out and
 * down slices are counted from the first column that the SMs of a group have, which is a multiple of GROUP_PART. */
enum {
    GROUP_PART_QKV = 0,
    GROUP_PART_MIX = 0,
    GROUP_PART_GATE_UP = 0,
    GROUP_PART_OUT = P_GROUP_Q | P_GROUP_VALUE, /* of either kind of layer; the size of a slice is a power of two */
    GROUP_PART_DOWN = P_GROUP_INTERMEDIATE
};
#define SLICE_IN_GROUP(S)                                                                                              \
    ((1 << TILE_GROUP(P_##S##_FORMAT)) % P_##S##_WARP_K == 0 && GROUP_PART_##S % (P_##S##_WARP_K * TILE_K) == 0)
#define SLICE_FORMAT(S)                                                                                                \
    (!TILE_NARROW(P_##S##_FORMAT) || TILE_STEPS(P_##S##_FORMAT) || TILE_OFFSETS(P_##S##_FORMAT) ||                     \
             TILE_DIGITS(P_##S##_FORMAT) > 1 || !SLICE_IN_GROUP(S)                                                     \
         ? P_##S##_FORMAT                                                                                              \
         : TILE_FORMAT(TILE_CODE(P_##S##_FORMAT), TILE_GROUP_ROW, TILE_SCALE(P_##S##_FORMAT), TILE_NO_OFFSETS))

/* A step is 32 columns of the weights, two parts (tile_format.h). The digits of a step are B fragments: for each column
 * of the pass and each digit, 8 words; word 2 c + i has the columns 2 c, 2 c + 8, 2 c + 1 and 2 c + 9 of part i. */
enum {
    DIGIT_WORDS = 8,
    DIGIT_COLUMN = 3 * DIGIT_WORDS,
    DIGIT_STEP = P_COLUMNS * DIGIT_COLUMN,
    DIGIT_SETS = (P_COLUMNS + 1) / 2, /* products of a tile's step: each takes the digits of two columns */
#if defined(REEL_SIM)
    DIGIT_SUMS = 6 * P_COLUMNS /* of a lane: for each column the digits of two rows, for the lane's own k */
#else
    DIGIT_SUMS = 4 * DIGIT_SETS
#endif
};

/* ---- the vector ------------------------------------------------------------------------------ */

/* The bits of the largest magnitude among n numbers of each lane of the warp. They order as the magnitudes do, and NaN
 * is above all. */
DEV u32 digits_most(const float *v, int n) {
    u32 most = 0;
    UNROLL
    for (int i = 0; i < n; i++) {
        const u32 bits = float_bits(v[i]) & 0x7fffffffu;
        most = bits > most ? bits : most;
    }
    return warp_max(most);
}

/* What numbers are multiplied by to become integers, and the unit, for a slice with this largest magnitude. A slice
 * that is not finite has the unit NaN, so its sums are NaN. Magnitudes below 2^-97 count as 2^-97. */
DEV u32 digits_exponent(u32 most) { return most >> 23 > 30 ? most >> 23 : 30; }
DEV float digits_factor(u32 most) { return bits_float((275 - digits_exponent(most)) << 23); }
DEV float digits_unit(u32 most) {
    return bits_float(most >= 0x7f800000u ? 0x7fc00000u : (digits_exponent(most) - 21) << 23);
}

/* The digits of a number in the lower three bytes, two's complement each. Adding 1.5 * 2^23 rounds to an integer and
 * leaves it in the fraction's bits. */
DEV u32 digits_of(float x, float factor) {
    const u32 bits = float_bits(x * factor + 12582912.0f);
    return (bits + (0x808080u - 0x4b400000u)) ^ 0x808080u;
}

/* Stores the digits of two numbers of each lane: words `word` of their slice, of which there are `words`. */
DEV void digits_store_word(u32 *to, float a0, float b0, int word, int words, float factor, int second) {
    const int part = word / 8;
    const u32 mine0 = digits_of(a0, factor), mine1 = digits_of(b0, factor);
    const u32 other0 = shuffle_xor(mine0, 4), other1 = shuffle_xor(mine1, 4);
    const u32 a = second ? other0 : mine0, b = second ? mine0 : other0;
    const u32 c = second ? other1 : mine1, d = second ? mine1 : other1;
    const u32 ab = bytes_pick(a, b, 0x5140), cd = bytes_pick(c, d, 0x5140); /* digits 0 and 1 */
    u32 *x = to + part / 2 * DIGIT_STEP + word % 4 * 2 + part % 2;
    if (word >= words) return;
    if (second) {
        x[DIGIT_WORDS] = bytes_pick(ab, cd, 0x7632);
    } else {
        x[0] = bytes_pick(ab, cd, 0x5410);
        x[2 * DIGIT_WORDS] = bytes_pick(bytes_pick(a, b, 0x0062), bytes_pick(c, d, 0x0062), 0x5410);
    }
}

/* Stores the digits of a slice. Lane l has its words `at` + i * step, of two numbers each, in v[2 * i] and v[2 * i +
 * 1]; there are `words` of them, a multiple of 16, and `at` is l or a multiple of 32 more. to: the column's first word
 * in the first step. Many turns are a loop, which finds the next numbers in the same registers: written out they are
 * kilobytes of instructions in each phase. */
enum { DIGIT_TURNS_WRITTEN = P_COLUMNS == 1 ? 6 : 4 };
DEV void digits_store(u32 *to, float *v, const int turns, int words, float factor, int at, const int step) {
    const int second = at & 4; /* of the columns 2 c + 8 and 2 c + 9 */
    if (turns <= DIGIT_TURNS_WRITTEN) {
        UNROLL
        for (int i = 0; i < turns; i++)
            digits_store_word(to, v[2 * i], v[2 * i + 1], at + i * step, words, factor, second);
        return;
    }
    NO_UNROLL
    for (int i = 0; i < turns; i++) {
        digits_store_word(to, v[0], v[1], at + i * step, words, factor, second);
        UNROLL
        for (int j = 0; j + 2 < 2 * turns; j++)
            v[j] = v[j + 2];
    }
}

/* ---- products -------------------------------------------------------------------------------- */

/* What makes codes of such operands, once for all sums or, beside offsets, run by run. */
#define DIGITS_CODE_SCALE(format) (TILE_CODE(format) == TILE_INT4 ? 0.0625f : 1.0f)
#define DIGITS_RUN_SCALE(format)  (TILE_OFFSETS(format) ? DIGITS_CODE_SCALE(format) : 1.0f)
#define DIGITS_END_SCALE(format)  (TILE_OFFSETS(format) ? 1.0f : DIGITS_CODE_SCALE(format))

/* Adds to the sums a step's operand times its digits x, of both parts (3), of the first (1) or of the second (2).
 * digits_row: which of the lane's two rows a sum belongs to. */
#if defined(REEL_SIM)
DEV int bytes_dot(u32 a, u32 b) {
    int sum = 0;
    for (int i = 0; i < 32; i += 8)
        sum += (int)(signed char)(a >> i) * (int)(signed char)(b >> i);
    return sum;
}
DEV void digits_multiply(int *sums, struct quad a, const u32 *x, const int parts, int lane) {
    for (int column = 0; column < P_COLUMNS; column++)
        for (int digit = 0; digit < 3; digit++) {
            const struct pair p =
                *(const struct pair *)(x + column * DIGIT_COLUMN + digit * DIGIT_WORDS + lane % 4 * 2);
            const u32 low = parts & 1 ? p.low : 0, high = parts & 2 ? p.high : 0;
            sums[6 * column + digit] += bytes_dot(a.x, low) + bytes_dot(a.z, high);
            sums[6 * column + 3 + digit] += bytes_dot(a.y, low) + bytes_dot(a.w, high);
        }
}
DEV int digits_row(int i) { return i % 6 / 3; }
#elif G_COPY >= 1
DEV void digits_multiply(int *sums, struct quad a, const u32 *x, const int parts, int lane) {
    /* Lane 4 n + c has column n of B: of four columns, three are a token's digits and the last is one again. Which one
     * is all the same, but programs of two and four columns are slower by the minimum, and others by the remainder. */
    const int column = lane / 16 % (P_COLUMNS > 1 ? 2 : 1), of_four = lane / 4 % 4;
    const int digit = P_COLUMNS == 2 || P_COLUMNS == 4 ? of_four % 3 : MIN(of_four, 2);
    const u32 *from = x + column * DIGIT_COLUMN + digit * DIGIT_WORDS + lane % 4 * 2;
    UNROLL
    for (int set = 0; set < DIGIT_SETS; set++) {
        const struct pair p = *(const struct pair *)(from + set * 2 * DIGIT_COLUMN);
        tile_mma_s8(sums + 4 * set, a, parts & 1 ? p.low : 0, parts & 2 ? p.high : 0);
    }
}
DEV int digits_row(int i) { return i % 4 / 2; }
#else
DEV void digits_multiply(int *sums, struct quad a, const u32 *x, const int parts, int lane) {
    (void)sums, (void)a, (void)x, (void)parts, (void)lane;
}
DEV int digits_row(int i) { return i; }
#endif

DEV struct quad digits_ones(void) {
    struct quad a;
    a.x = a.y = a.z = a.w = 0x01010101u;
    return a;
}

/* The sums of some row tiles. n: ints, where they are late; scale: then their rows' scales. */
struct digit_sums {
    float f[DIGIT_SUMS];
    int n[DIGIT_SUMS];
    float scale[2];
};
DEV void digits_zero(struct digit_sums *s, int tiles) {
    UNROLL
    for (int t = 0; t < tiles; t++) {
        UNROLL
        for (int i = 0; i < DIGIT_SUMS; i++)
            s[t].f[i] = 0, s[t].n[i] = 0;
        s[t].scale[0] = s[t].scale[1] = 0;
    }
}

#if TILES_NARROW
/* Adds a run's sums, of each digit that the weights have. ones: the sums of its digits, read with offsets alone. */
DEV void digits_run_add(struct digit_sums *to, int (*sum)[DIGIT_SUMS], const int *ones, const struct held *t,
                        const int run, const int format) {
    const struct factors f = held_factors(t, format, run);
    UNROLL
    for (int i = 0; i < DIGIT_SUMS; i++) {
        const float upper = TILE_DIGITS(format) > 1 ? 256.0f * (float)sum[1][i] : 0;
        to->f[i] += f.scale[digits_row(i)] * DIGITS_RUN_SCALE(format) *
                    (TILE_DIGITS(format) > 1 ? upper + (float)sum[0][i] : (float)sum[0][i]);
        if (TILE_OFFSETS(format)) to->f[i] += f.offset[digits_row(i)] * (float)ones[i];
    }
}

/* Multiplies the n tiles from `first` on with the digits of a slice, of which x is the first step. Tile i is of row
 * tile i % warp_rows. With `ready` they are operands already (tile_make_ready). A single row tile has two sums in turn,
 * so that the chains of products are shorter. */
DEV void digits_product(struct digit_sums *s, const struct held *t, const u32 *x, int lane, int first, int n,
                        int warp_rows, const int format, const int ready) {
    enum { MOST_RUNS = 4 };
    const int steps = TILE_PARTS(format) / 2, runs = TILE_RUNS(format), run_parts = TILE_RUN(format);
    const int each = TILE_DIGITS(format); /* operands of a step */
    int ones[MOST_RUNS][DIGIT_SUMS];
    UNROLL
    for (int i = first; i < first + n; i++) {
        const int k = i / warp_rows, r = i % warp_rows, fresh = i == first || r == 0;
        const struct held *tile = t + (i - first) * (ready ? TILE_OPERANDS(format) : 1);
        struct digit_sums *to = &s[warp_rows == 1 ? k & 1 : r];
        const u32 *digits = x + k * steps * DIGIT_STEP;
        if (ROW_SCALED(format)) {
            UNROLL
            for (int step = 0; step < steps; step++)
                digits_multiply(to->n, ready ? tile[step].codes : tile_step(format, tile->codes, step, 0),
                                digits + step * DIGIT_STEP, 3, lane);
            if (k > 0) continue;
            /* a slice's first tile has its scale; a later one may be padding, whose scale is 0 */
            const struct factors f = held_factors(tile, format, 0);
            UNROLL
            for (int j = 0; j < 2; j++)
                s[r].scale[j] = s[r].scale[j] == 0 ? f.scale[j] : s[r].scale[j];
            continue;
        }
        UNROLL
        for (int run = 0; run < runs; run++) {
            int sum[2][DIGIT_SUMS];
            UNROLL
            for (int j = 0; j < DIGIT_SUMS; j++) {
                sum[0][j] = sum[1][j] = 0;
                if (fresh) ones[run][j] = 0;
            }
            UNROLL
            for (int part = run * run_parts; part < (run + 1) * run_parts; part += 2) {
                const int step = part / 2, both = run_parts == 1 ? 1 << part % 2 : 3;
                const u32 *from = digits + step * DIGIT_STEP;
                UNROLL
                for (int of = 0; of < each; of++)
                    digits_multiply(sum[of],
                                    ready ? tile[step * each + of].codes : tile_step(format, tile->codes, step, of),
                                    from, both, lane);
                if (TILE_OFFSETS(format) && fresh) digits_multiply(ones[run], digits_ones(), from, both, lane);
            }
            digits_run_add(to, sum, ones[run], tile, run, format);
        }
    }
}

/* The sums of a row tile become those of two of the lane's rows. total[2 * set + i]: row lane / 4 + 8 * i of column
 * 2 * set + lane % 4 / 2, in lanes whose number is even; with one column in lanes that four divides. unit: that
 * column's, of each set. */
DEV void digits_end(struct digit_sums *s, const float *unit, float *total, const int format) {
    if (ROW_SCALED(format)) {
        UNROLL
        for (int i = 0; i < DIGIT_SUMS; i++)
            s->f[i] = s->scale[digits_row(i)] * (float)s->n[i];
    }
#if defined(REEL_SIM)
    const int lane = (int)(thread_index() % LANES);
    for (int i = 0; i < DIGIT_SUMS; i++)
        s->f[i] = xor_sum(s->f[i], 1, 4);
    for (int set = 0; set < DIGIT_SETS; set++)
        for (int i = 0; i < 2; i++) {
            const int second = P_COLUMNS > 1 && lane % 4 >= 2;
            const float *f = s->f + 6 * (2 * set + second) + 3 * i;
            total[2 * set + i] = ((f[0] + 256.0f * f[1]) + 65536.0f * f[2]) * (unit[set] * DIGITS_END_SCALE(format));
        }
#else
    UNROLL
    for (int set = 0; set < DIGIT_SETS; set++) {
        UNROLL
        for (int i = 0; i < 2; i++) {
            const float *f = s->f + 4 * set + 2 * i;
            const float third = shuffle_down_float(f[0], 1);
            total[2 * set + i] = ((f[0] + 256.0f * f[1]) + 65536.0f * third) * (unit[set] * DIGITS_END_SCALE(format));
        }
    }
#endif
}

/* Two sums of one row tile become one. */
DEV void digits_meet(struct digit_sums *to, const struct digit_sums *other) {
    UNROLL
    for (int i = 0; i < DIGIT_SUMS; i++)
        to->f[i] += other->f[i], to->n[i] += other->n[i];
}
#endif

#endif
