/* What becomes of a narrow tile (tile_format.h): operands of its codes, and sums multiplied by its scales.
 *
 * An operand of a part has the codes' values as bf16, and every value is a bf16 number: integers of 8 bits have 8
 * significant bits or fewer, floats of 8 and 4 bits have 4 and 2. So nothing of a weight is rounded. The parts of a run
 * are multiplied first and added up; then the sum, one for each row and column, is multiplied by the scale. Where
 * weights have offsets, the sum of the inputs is needed besides: a product with an operand of ones gives it.
 *
 * That is the way of everything but the products of prompts (prefill_items.cuh, prefill_product.cuh) with weights of
 * TILE_ROUNDED formats. A prompt's sums are many, and to multiply them by a scale for each 16 or 32 columns, or to make
 * a second product for the offsets, costs as much as the products themselves. There an operand has what the weights are
 * worth, computed in float and rounded to bf16 once (tile_rounded). Packages that widen such weights round them so,
 * too. */
#ifndef REEL_KERNELS_TILE_CODES_CUH
#define REEL_KERNELS_TILE_CODES_CUH

#include "maths.cuh"
#include "memory.cuh"
#include "mma.cuh"
#include "tape.h"

/* Words of scales and offsets that a lane holds of a tile of any phase. */
#define TILES_NARROW                                                                                                   \
    (P_QKV_FORMAT || P_OUT_FORMAT || P_GATE_UP_FORMAT || P_DOWN_FORMAT || P_HEAD_FORMAT || P_MIX_FORMAT)
#define MOST_WORDS(a, b) (TILE_SCALE_WORDS(a) > TILE_SCALE_WORDS(b) ? TILE_SCALE_WORDS(a) : TILE_SCALE_WORDS(b))
enum {
    HELD_LAYER = MOST_WORDS(P_QKV_FORMAT, P_OUT_FORMAT),
    HELD_MLP = MOST_WORDS(P_GATE_UP_FORMAT, P_DOWN_FORMAT),
    HELD_ENDS = MOST_WORDS(P_HEAD_FORMAT, P_MIX_FORMAT),
    HELD_SOME = HELD_LAYER > HELD_MLP ? HELD_LAYER : HELD_MLP,
    HELD_WORDS = HELD_SOME > HELD_ENDS ? HELD_SOME : HELD_ENDS
};

/* What a lane reads of a tile. scale: words of 4 bytes, two rows' numbers in a word or, with f32, in two; or steps and
 * units (tile_format.h). */
struct held {
    struct quad codes;
#if TILES_NARROW
    u32 scale[HELD_WORDS > 0 ? HELD_WORDS : 1];
#endif
};

/* ---- reading --------------------------------------------------------------------------------- */

/* Reads a tile in shared memory, with `scaled` its scales too; `at` is the lane's byte of it, tile_lane. */
DEV void held_read(struct held *t, const u8 *at, int lane, const int scaled, const int format) {
    t->codes = *(const struct quad *)at;
#if TILES_NARROW
    const u8 *tile = at - tile_lane(format, lane);
    if (!scaled) return;
    if (TILE_STEPS(format) && TILE_SCALE_WORDS(format) == 4) {
        const struct quad all = *(const struct quad *)(tile + tile_scale_word_at(format, 0, lane / 4));
        UNROLL
        for (int i = 0; i < TILE_SCALE_WORDS(format); i++)
            t->scale[i] = i == 0 ? all.x : i == 1 ? all.y : i == 2 ? all.z : all.w;
        return;
    }
    UNROLL
    for (int i = 0; i < TILE_SCALE_WORDS(format); i++)
        t->scale[i] = *(const u32 *)(tile + tile_scale_word_at(format, i, lane / 4));
#endif
    (void)lane, (void)scaled, (void)format;
}

/* Loads a tile from memory, or zeros without `there`; `at` is the lane's byte of it, tile_lane. */
DEV void held_load(struct held *t, const u8 *at, int there, int lane, const int format) {
    t->codes = const_load128(at, there);
#if TILES_NARROW
    const u8 *tile = at - tile_lane(format, lane);
    if (TILE_STEPS(format) && TILE_SCALE_WORDS(format) == 4) {
        const struct quad all = const_load128(tile + tile_scale_word_at(format, 0, lane / 4), there);
        UNROLL
        for (int i = 0; i < TILE_SCALE_WORDS(format); i++)
            t->scale[i] = i == 0 ? all.x : i == 1 ? all.y : i == 2 ? all.z : all.w;
        return;
    }
    UNROLL
    for (int i = 0; i < TILE_SCALE_WORDS(format); i++)
        t->scale[i] = there ? const_load32((const u32 *)(tile + tile_scale_word_at(format, i, lane / 4))) : 0;
#endif
    (void)lane, (void)format;
}

/* Whether the tiles of a row have the same scale, and nothing else. */
#define ROW_SCALED(format)                                                                                             \
    (TILE_NARROW(format) && TILE_GROUP(format) == TILE_GROUP_ROW && !TILE_OFFSETS(format) && TILE_DIGITS(format) == 1)
enum { ALL_SCALED = 1 << 30 }; /* more tiles than there are */

/* Whether a lane can read the numbers of one run alone. Steps of several runs share a word, so they stay together. */
#define TILE_ALONE(format) (TILE_RUNS(format) > 1 && !TILE_STEPS(format))

/* held_load for held_worth_alone: where TILE_ALONE says so, no other numbers than those of a run, which need not be
 * known early. */
DEV void held_load_alone(struct held *t, const u8 *at, int there, int lane, int run, const int format) {
    if (!TILE_ALONE(format)) {
        held_load(t, at, there, lane, format);
        return;
    }
    t->codes = const_load128(at, there);
#if TILES_NARROW
    const u8 *tile = at - tile_lane(format, lane);
    const int words = TILE_SCALE_BYTES(format) / 2;
    UNROLL
    for (int i = 0; i < TILE_NUMBERS(format) * words; i++) {
        const u8 *word = tile + tile_scale_at(format, run, i / words, lane / 4) + i % words * 4;
        t->scale[i] = there ? const_load32((const u32 *)word) : 0;
    }
#endif
    (void)lane, (void)run, (void)format;
}

/* Something that depends on all that was read: see mbar_arrive_after. */
DEV u32 held_seen(const struct held *t, const int scaled, const int format) {
    u32 seen = t->codes.w;
#if TILES_NARROW
    UNROLL
    for (int i = 0; i < TILE_SCALE_WORDS(format); i++)
        if (scaled) seen ^= t->scale[i];
#endif
    (void)scaled, (void)format;
    return seen;
}

/* ---- operands -------------------------------------------------------------------------------- */

/* Two of a word's codes as bf16: those that the mask 0x00ff00ff takes of word >> shift, or 0x000f000f. shift: 0 or 8,
 * of 4 bits also 4 or 12. */
DEV u32 codes_pair(const int format, u32 word, int shift) {
    const u32 w = word >> shift;
    switch (TILE_CODE(format)) {
    case TILE_INT8: /* the last seven bits over 128, less 128 or, with the sign, 256: it is the exponent's last bit */
        return bf16_less((w & 0x007f007fu) | 0x43004300u, (w & 0x00800080u) | 0x43004300u);
    case TILE_INT4: /* 128 + n has n in its last bits */
        return bf16_scaled((w & 0x000f000fu) ^ 0x43084308u, 1.0f, -136.0f);
    case TILE_UINT4: return bf16_scaled((w & 0x000f000fu) | 0x43004300u, 1.0f, -128.0f);
    case TILE_E4M3: { /* the exponents differ by 120; see tile_word_stored */
        const u32 even = word & 0x87f087f0u, odd = (word << 4 & 0x80f080f0u) | (word >> 4 & 0x07000700u);
        return bf16_scaled(shift ? odd : even, 1.329227995784916e36f, -0.0f);
    }
    default: /* TILE_E2M1; here by 126 */
        return bf16_scaled((w & 0x00080008u) << 12 | (w & 0x00070007u) << 6, 8.507059173023462e37f, -0.0f);
    }
}

/* The digits that the four codes of half a word name (tile_word_stored), in a byte each. Three picks find them: a
 * code's lower bits among each half of the table, and its last bit the half. */
DEV u32 table_look(const int format, const int digit, u32 codes) {
    const u32 at = codes & 0x7777u, half = (codes >> 1 & 0x4444u) | 0x3210u;
    return bytes_pick(bytes_pick(tile_table(format, digit, 0), tile_table(format, digit, 1), at),
                      bytes_pick(tile_table(format, digit, 2), tile_table(format, digit, 3), at), half);
}

/* A lane's share of the operand of a step, two parts of a tile, for products of integers (digits.cuh). Codes of
 * TILE_INT4 come out times 16. digit: of tile_table. */
DEV struct quad tile_step(const int format, const struct quad codes, const int step, const int digit) {
    struct quad a = codes;
    if (TILE_PARTS(format) == 2) return a;
    const u32 top = step ? codes.z : codes.x, bottom = step ? codes.w : codes.y;
    if (TILE_NAMES(format)) {
        a.x = table_look(format, digit, top), a.y = table_look(format, digit, bottom);
        a.z = table_look(format, digit, top >> 16), a.w = table_look(format, digit, bottom >> 16);
    } else if (TILE_CODE(format) == TILE_INT4) {
        a.x = top << 4 & 0xf0f0f0f0u, a.y = bottom << 4 & 0xf0f0f0f0u;
        a.z = top & 0xf0f0f0f0u, a.w = bottom & 0xf0f0f0f0u;
    } else {
        a.x = top & 0x0f0f0f0fu, a.y = bottom & 0x0f0f0f0fu;
        a.z = top >> 4 & 0x0f0f0f0fu, a.w = bottom >> 4 & 0x0f0f0f0fu;
    }
    return a;
}

/* A lane's share of the operand of a part of a tile whose codes are values. */
DEV struct quad codes_part(const int format, const struct quad codes, const int part) {
    const int four = TILE_PARTS(format) == 4, upper = four ? part % 2 * 4 : 0, second = four ? part / 2 : part;
    const u32 top = second ? codes.z : codes.x, bottom = second ? codes.w : codes.y;
    struct quad a;
    a.x = codes_pair(format, top, upper), a.y = codes_pair(format, bottom, upper);
    a.z = codes_pair(format, top, upper + 8), a.w = codes_pair(format, bottom, upper + 8);
    return a;
}

/* A lane's share of the operand of a part of a tile. Integers of two digits are rounded to bf16. */
DEV struct quad tile_part(const int format, const struct quad codes, const int part) {
    if (!TILE_NARROW(format)) return tile_operand(format, codes);
    if (!TILE_NAMES(format)) return codes_part(format, codes, part);
    if (TILE_DIGITS(format) == 1) return codes_part(TILE_INT8, tile_step(format, codes, part / 2, 0), part % 2);
    const struct quad low = tile_step(format, codes, part / 2, 2), high = tile_step(format, codes, part / 2, 3);
    const u32 top[2] = { part % 2 ? low.z : low.x, part % 2 ? high.z : high.x };
    const u32 bottom[2] = { part % 2 ? low.w : low.y, part % 2 ? high.w : high.y };
    struct quad a;
    a.x = bytes_pick(top[0], top[1], 0x6240), a.y = bytes_pick(bottom[0], bottom[1], 0x6240);
    a.z = bytes_pick(top[0], top[1], 0x7351), a.w = bytes_pick(bottom[0], bottom[1], 0x7351);
    return a;
}

/* How many operands a tile becomes when it is made ready: one for each part or, of integers, for each step and digit.
 */
#define TILE_OPERANDS(format)                                                                                          \
    (TILE_INTEGERS(format) ? TILE_PARTS(format) / 2 * TILE_DIGITS(format) : TILE_PARTS(format))

/* Makes a tile's operands, each in the place of a tile; the first keeps the scales. */
DEV void tile_make_ready(struct held *tile, const int format) {
    const struct quad codes = tile->codes;
    UNROLL
    for (int i = 0; i < TILE_OPERANDS(format); i++)
        tile[i].codes = TILE_INTEGERS(format)
                            ? tile_step(format, codes, i / TILE_DIGITS(format), i % TILE_DIGITS(format))
                            : tile_part(format, codes, i);
}

DEV struct quad tile_ones(void) {
    struct quad a;
    a.x = a.y = a.z = a.w = 0x3f803f80u;
    return a;
}

/* ---- scales ---------------------------------------------------------------------------------- */

/* A step, the lowest byte, as a number. */
DEV float step_value(u32 x) { return bits_float(0x4b000000u | ((x & 0xffu) ^ 0x80u)) - 8388736.0f; } /* 2^23 + n */

/* One number, a scale or an offset, as it is stored: 2 bytes, or 4 for f32. */
DEV float number_value(const int format, u32 x) {
    if (TILE_SCALE(format) == TILE_SCALE_F32) return bits_float(x);
    return TILE_SCALE(format) == TILE_SCALE_F16 ? f16_value(x & 0xffffu) : bf16_low(x);
}

#if TILES_NARROW
/* A number of both of the lane's rows. */
DEV void held_numbers(const struct held *t, const int format, int run, int number, float both[2]) {
    const int which = number * TILE_RUNS(format) + run;
    if (TILE_STEPS(format)) {
        const u32 steps = t->scale[which / 2] >> which % 2 * 8, units = t->scale[TILE_STEP_WORDS(format) + number];
        both[0] = f16_value(units & 0xffffu) * step_value(steps);
        both[1] = f16_value(units >> 16) * step_value(steps >> 16);
        return;
    }
    if (TILE_SCALE(format) == TILE_SCALE_F32) {
        both[0] = bits_float(t->scale[2 * which]), both[1] = bits_float(t->scale[2 * which + 1]);
        return;
    }
    both[0] = number_value(format, t->scale[which]), both[1] = number_value(format, t->scale[which] >> 16);
}

/* What the sums of a run and the sums of its inputs are multiplied by, for the lane's two rows. */
struct factors {
    float scale[2], offset[2];
};
DEV struct factors held_factors(const struct held *t, const int format, int run) {
    struct factors f;
    held_numbers(t, format, run, 0, f.scale);
    f.offset[0] = f.offset[1] = 0;
    if (TILE_OFFSETS(format)) held_numbers(t, format, run, 1, f.offset);
    UNROLL
    for (int i = 0; i < 2; i++)
        if (TILE_OFFSETS(format) == TILE_ZEROS) f.offset[i] *= -f.scale[i];
    return f;
}

/* Adds n sums of a run to `to`. Of every four of them, as tile_mma leaves them, two belong to each of the lane's rows.
 * ones: the sums of the inputs, the same way; not read without offsets. */
DEV void run_add(float *to, const float *sum, const float *ones, int n, const struct factors *f, const int format) {
    UNROLL
    for (int i = 0; i < n; i++) {
        to[i] += f->scale[i % 4 / 2] * sum[i];
        if (TILE_OFFSETS(format)) to[i] += f->offset[i % 4 / 2] * ones[i];
    }
}
#endif

/* ---- rounded operands ------------------------------------------------------------------------ */

#if TILES_NARROW
/* An integer of two digits, byte i of each word, becomes a float as the lower bytes of the fraction of 2^23: 2^23 +
 * 2^15 + 2^7 more. */
DEV float based_digits(u32 lower, u32 upper, const int i) {
    const u32 both = bytes_pick(lower ^ 0x80808080u, upper ^ 0x80808080u, (u32)(4 + i) << 4 | (u32)i);
    return bits_float(bytes_pick(both, 0x4b000000u, 0x7610u));
}
#define DIGITS_BASE 8421504.0f

/* A code of an integer becomes a float as a byte of the fraction of 2^15: 2^15 + code + bias. Integers of two digits:
 * based_digits. */
#define CODE_BIAS(format)                                                                                              \
    (TILE_CODE(format) == TILE_INT8 || TILE_CODE(format) == TILE_IQ4 ? 128 : TILE_CODE(format) == TILE_INT4 ? 8 : 0)
#define CODE_BASE(format) (TILE_DIGITS(format) > 1 ? DIGITS_BASE : (float)((1 << 15) + CODE_BIAS(format)))
DEV float based_byte(u32 bytes, const int i) {
    return bits_float(bytes_pick(bytes, 0x47000000u, 0x7404u | (u32)i << 4));
}
/* Four codes of a word with their bias, a byte each; of 4 bits those in the lower halves. A table's are digits. */
DEV u32 codes_biased(const int format, u32 word) {
    if (TILE_CODE(format) == TILE_INT8 || TILE_NAMES(format)) return word ^ 0x80808080u;
    return (word & 0x0f0f0f0fu) ^ (TILE_CODE(format) == TILE_INT4 ? 0x08080808u : 0);
}

/* Whether a based code is multiplied as it is, and the base's share is taken off in the same operation. That is exact
 * where base times scale is: the base has 13 significant bits or fewer, and a scale in f16 11. */
#define TILE_FUSED(format)                                                                                             \
    (TILE_INTEGERS(format) && TILE_DIGITS(format) == 1 && TILE_SCALE(format) == TILE_SCALE_F16 &&                      \
     TILE_OFFSETS(format) == TILE_NO_OFFSETS)

/* held_numbers of steps, the same bits by fewer instructions: a step becomes a float as a code of 8 bits does. */
DEV void held_steps(const struct held *t, const int format, int run, int number, float both[2]) {
    const int which = number * TILE_RUNS(format) + run;
    const u32 units = t->scale[TILE_STEP_WORDS(format) + number], steps = t->scale[which / 2] ^ 0x80808080u;
    UNROLL
    for (int i = 0; i < 2; i++) {
        const float unit = f16_value(i ? units >> 16 : units & 0xffffu);
        both[i] = fma_float(based_byte(steps, which % 2 + 2 * i), unit, -CODE_BASE(TILE_INT8) * unit);
    }
}

/* What makes weights of a run's codes, for the lane's two rows: scale and offset as their format says. Without offsets,
 * and with zero points, the offset takes the base off integers. */
DEV struct factors held_worth(const struct held *t, const int format, int run) {
    struct factors f;
    f.offset[0] = f.offset[1] = 0;
    UNROLL
    for (int number = 0; number < TILE_NUMBERS(format); number++) {
        float *both = number ? f.offset : f.scale;
        if (TILE_STEPS(format))
            held_steps(t, format, run, number, both);
        else
            held_numbers(t, format, run, number, both);
    }
    UNROLL
    for (int i = 0; i < 2; i++)
        if (TILE_FUSED(format))
            f.offset[i] = -CODE_BASE(format) * f.scale[i];
        else if (TILE_INTEGERS(format) && TILE_OFFSETS(format) != TILE_MINIMA)
            f.offset[i] += CODE_BASE(format); /* whole numbers of 16 bits */
    return f;
}

/* The same after held_load_alone, for the run that it was told. A tile whose numbers are those of one run is like one
 * of a format in which all its parts share a scale. */
DEV struct factors held_worth_alone(const struct held *t, const int format, int run) {
    const int all_parts = TILE_PARTS(format) == 4 ? 2 : 1;
    if (TILE_ALONE(format))
        return held_worth(t, TILE_FORMAT(TILE_CODE(format), all_parts, TILE_SCALE(format), TILE_OFFSETS(format)), 0);
    struct factors f = held_worth(t, format, 0);
    UNROLL
    for (int i = 1; i < TILE_RUNS(format); i++) { /* registers have no index that is known late */
        const struct factors other = held_worth(t, format, i);
        if (run == i) f = other;
    }
    return f;
}

/* Four codes of a word, a byte each; of 4 bits in the lower halves, or a table's digits. */
struct four_codes {
    u32 word, upper; /* upper: upper digits */
};
DEV struct four_codes codes_four(const int format, u32 word, int odd) {
    struct four_codes four = { TILE_PARTS(format) == 4 && odd ? word >> 4 : word, 0 };
    const u32 codes = odd ? word >> 16 : word;
    if (TILE_NAMES(format)) four.word = table_look(format, 0, codes);
    if (TILE_DIGITS(format) > 1) four.upper = table_look(format, 1, codes);
    return four;
}

/* Two neighbours of a row, the codes i and i + 2: what they are worth, rounded to bf16. */
DEV u32 pair_rounded(const int format, const struct four_codes *codes, const int i, float scale, float offset) {
    float v[2];
    if (TILE_DIGITS(format) > 1) {
        v[0] = based_digits(codes->word, codes->upper, i), v[1] = based_digits(codes->word, codes->upper, i + 2);
    } else if (TILE_INTEGERS(format)) {
        const u32 biased = codes_biased(format, codes->word);
        v[0] = based_byte(biased, i), v[1] = based_byte(biased, i + 2);
    } else {
        const u32 both = codes_pair(format, codes->word, 8 * i);
        v[0] = bf16_low(both), v[1] = bf16_high(both);
    }
    UNROLL
    for (int j = 0; j < 2; j++)
        if (TILE_FUSED(format))
            v[j] = fma_float(v[j], scale, offset);
        else if (TILE_OFFSETS(format) == TILE_MINIMA)
            v[j] = fma_float(TILE_INTEGERS(format) ? v[j] - CODE_BASE(format) : v[j], scale, offset);
        else
            v[j] = (v[j] - offset) * scale;
    return bf16_pair(v[0], v[1]);
}

/* A lane's share of the operand of a part of a tile whose run has these factors. part need not be known early. */
DEV struct quad part_rounded(const int format, const struct quad codes, const struct factors *f, int part) {
    const int halves = TILE_PARTS(format) == 4, pair = halves ? part / 2 : part;
    const struct four_codes top = codes_four(format, pair ? codes.z : codes.x, part % 2);
    const struct four_codes bottom = codes_four(format, pair ? codes.w : codes.y, part % 2);
    struct quad a;
    a.x = pair_rounded(format, &top, 0, f->scale[0], f->offset[0]);
    a.y = pair_rounded(format, &bottom, 0, f->scale[1], f->offset[1]);
    a.z = pair_rounded(format, &top, 1, f->scale[0], f->offset[0]);
    a.w = pair_rounded(format, &bottom, 1, f->scale[1], f->offset[1]);
    return a;
}
DEV struct quad tile_rounded(const int format, const struct held *t, const int part) {
    const struct factors f = held_worth(t, format, part / TILE_RUN(format));
    return part_rounded(format, t->codes, &f, part);
}
#endif

/* ---- one weight ------------------------------------------------------------------------------ */

/* What a code is worth before its scale. */
DEV float code_value(const int format, u32 code) {
    switch (TILE_CODE(format)) {
    case TILE_INT8: return (float)((int)((code & 0xffu) ^ 0x80u) - 128);
    case TILE_INT4: return (float)((int)((code & 15u) ^ 8u) - 8);
    case TILE_UINT4: return (float)(code & 15u);
    case TILE_IQ4:
    case TILE_NF4:
    case TILE_FP4: return (float)tile_table_value(format, (int)(code & 15u));
    case TILE_E4M3: return bits_float((code & 0x80u) << 24 | (code & 0x7fu) << 20) * 1.329227995784916e36f;
    default: /* TILE_E2M1 */ return bits_float((code & 8u) << 28 | (code & 7u) << 22) * 8.507059173023462e37f;
    }
}

/* A number of the row of a tile in memory. */
DEV float tile_number(const u8 *tile, const int format, int run, int number, int r) {
    const unsigned at = tile_scale_at(format, run, number, r);
    const u32 word = const_load32((const u32 *)(tile + (at & ~3u)));
    if (TILE_STEPS(format)) {
        const unsigned unit = tile_unit_at(format, number, r);
        const u32 units = const_load32((const u32 *)(tile + (unit & ~3u)));
        return f16_value(unit & 2u ? units >> 16 : units & 0xffffu) * step_value(word >> at % 4 * 8);
    }
    return number_value(format, at & 2u ? word >> 16 : word);
}

/* Weights (row, k) and (row, k + 1) of a narrow matrix in the tapes; k is even. */
DEV void tape_two(const u8 *tape, const struct tape_shape *s, int phase, int row, int k, const int format,
                  float two[2]) {
    const struct tape_place place = tape_place(s, phase, 0, row, k);
    const u8 *tile = tape + place.tile;
    const u32 stored = const_load32((const u32 *)(tile + tile_word_at(format, place.row, place.k)));
    const u32 word = tile_word_codes(format, stored);
    const int run = place.k / TILE_K % TILE_PARTS(format) / TILE_RUN(format);
    const float scale = tile_number(tile, format, run, 0, place.row);
    const float offset = TILE_OFFSETS(format) ? tile_number(tile, format, run, 1, place.row) : 0;
    UNROLL
    for (int i = 0; i < 2; i++) {
        const float value = code_value(format, word >> tile_code_shift(format, place.k + i));
        if (TILE_OFFSETS(format) == TILE_ZEROS)
            two[i] = scale * (value - offset);
        else
            two[i] = TILE_OFFSETS(format) ? scale * value + offset : scale * value;
    }
}

#endif
