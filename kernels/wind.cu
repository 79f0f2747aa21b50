/* Winds some rows of a matrix: puts each weight to the place on the tapes that tape_locate (tape.h) gives it. Threads
 * take grain after grain (tile_format.h) of a row in the order of the source, so that they read whole lines. The four
 * bytes of a grain always lie together on the tape. Where a tile reaches beyond the matrix, the tape keeps the zeros
 * that it was cleared to. Of narrow weights a thread takes a word of codes of a tile's row, or a scale or offset.
 *   reads    rows as tile_format.h stages them: bf16 [n_rows, columns], or codes and scales
 *   writes   the tapes, by plain stores; the launch's end makes them visible */
#include "args.h"
#include "memory.cuh"
#include "prelude.cuh"
#include "sync.cuh"

enum { TILE_WORDS_A_ROW = 8 /* of codes, in a narrow tile */ };

/* What a thread writes at once beside codes: a scale or an offset; of steps two, or a unit. */
DEV int wind_numbers(int format) {
    if (TILE_STEPS(format)) return TILE_STEP_WORDS(format) + TILE_NUMBERS(format);
    return TILE_RUNS(format) * TILE_NUMBERS(format);
}

/* Whether the tile at this place is one of this GPU's SMs. One GPU has all of them, and is spared the division. */
DEV int is_here(const struct wind_args *a, u64 place) {
    if (a->n_sms == a->shape.n_sms) return 1;
    const int sm = (int)(place / a->shape.sm_bytes) - a->first_sm;
    return sm >= 0 && sm < a->n_sms;
}

/* Winds such an item of the tile whose first column in the row is `column`; the slice has `left` columns from there
 * on. */
DEV void wind_number(const struct wind_args *a, const u8 *from, int row, int item, int column, int left) {
    const int format = a->shape.segment[a->phase].format, width = TILE_K * TILE_RUN(format);
    const int group = TILE_K << TILE_GROUP(format), in_row = TILE_GROUP(format) == TILE_GROUP_ROW;
    const struct tape_place place = tape_place(&a->shape, a->phase, a->layer, row, column);
    u8 *tile = a->tape + place.tile;
    if (left <= 0 || !is_here(a, place.tile)) return; /* without columns left there is no such tile */
    if (!TILE_STEPS(format)) {
        const int run = item % TILE_RUNS(format), number = item / TILE_RUNS(format);
        if (run * width >= left) return;
        const int which = in_row ? 0 : (column + run * width) / group;
        const u16 *number_at = (const u16 *)(from + tile_staged_at(format, a->columns, number, which));
        u16 *to = (u16 *)(tile + tile_scale_at(format, run, number, place.row));
        plain_store16(to, number_at[0]);
        if (TILE_SCALE_BYTES(format) == 4) plain_store16(to + 1, number_at[1]);
        return;
    }
    if (item >= TILE_STEP_WORDS(format)) {
        const int number = item - TILE_STEP_WORDS(format), unit = column / (TILE_K * TILE_PARTS(format));
        plain_store16((u16 *)(tile + tile_unit_at(format, number, place.row)),
                      *(const u16 *)(from + tile_staged_unit_at(format, a->columns, number, unit)));
        return;
    }
    u32 steps = 0;
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int which = 2 * item + i, run = which % TILE_RUNS(format), number = which / TILE_RUNS(format);
        if (number >= TILE_NUMBERS(format) || run * width >= left) continue;
        steps |= (u32)from[tile_staged_at(format, a->columns, number, (column + run * width) / group)] << 8 * i;
    }
    const int first = 2 * item;
    plain_store16(
        (u16 *)(tile + tile_scale_at(format, first % TILE_RUNS(format), first / TILE_RUNS(format), place.row)),
        (u16)steps);
}

/* Winds item i of a row of narrow weights; items are counted through the tiles of each slice of the row. */
DEV void wind_narrow(const struct wind_args *a, const u8 *from, int row, int i, int tiles, int slice) {
    const int format = a->shape.segment[a->phase].format, parts = TILE_PARTS(format);
    const int items = TILE_WORDS_A_ROW + wind_numbers(format);
    const int item = i % items, tile = i / items % tiles, group = i / items / tiles;
    const int end = slice < a->columns - group * slice ? slice : a->columns - group * slice;
    int k = tile * TILE_K * parts; /* in the slice */
    u32 word = 0;
    if (item < TILE_WORDS_A_ROW) {
        const int first = item / 4 * (parts == 4 ? 2 : 1);
        k += first * TILE_K + item % 4 * 2;
        if (k >= end) return;
        UNROLL
        for (int j = 0; j < 8; j++) { /* the even part's columns, then, with 4 bits, the odd part's */
            const int column = k + j / 4 * TILE_K + j % 2 * 8 + j / 2 % 2;
            if (column >= end || (j >= 4 && parts < 4)) continue;
            const u32 code = from[group * slice + column];
            word |= (parts == 4 ? code & 15u : code) << tile_code_shift(format, column);
        }
        const u64 at = tape_locate(&a->shape, a->phase, a->layer, row, group * slice + k);
        if (is_here(a, at)) plain_store32((u32 *)(a->tape + at), tile_word_stored(format, word));
        return;
    }
    wind_number(a, from, row, item - TILE_WORDS_A_ROW, group * slice + k, end - k);
}

KERNEL(WIND_THREADS) wind(struct wind_args a) {
    const int format = a.shape.segment[a.phase].format, grain = tile_grain(format);
    int grains = (a.columns + grain - 1) / grain;
    u32 n = (u32)a.n_rows * (u32)grains, step = block_count() * thread_count();
    if (TILE_NARROW(format)) {
        const int slice = tape_slice(&a.shape, a.phase, a.layer, a.columns);
        const int tiles = (slice + TILE_K * TILE_PARTS(format) - 1) / (TILE_K * TILE_PARTS(format));
        const int items = (TILE_WORDS_A_ROW + wind_numbers(format)) * tiles * ((a.columns + slice - 1) / slice);
        const u64 bytes = tile_staged_bytes(format, a.columns), all = (u64)(u32)a.n_rows * (u32)items;
        NO_UNROLL
        for (u64 i = block_index() * thread_count() + thread_index(); i < all; i += step) {
            const int row = (int)(i / (u32)items);
            wind_narrow(&a, a.rows + (u64)(u32)row * bytes, a.first_row + row, (int)(i % (u32)items), tiles, slice);
        }
        return;
    }
    NO_UNROLL
    for (u32 i = block_index() * thread_count() + thread_index(); i < n; i += step) {
        int row = (int)(i / (u32)grains), k = (int)(i % (u32)grains) * grain;
        const u16 *from = (const u16 *)a.rows + (u64)(u32)row * (u32)a.columns + k;
        u32 made = tile_grain_make(format, from, a.columns - k);
        u64 at = tape_locate(&a.shape, a.phase, a.layer, a.first_row + row, k);
        if (is_here(&a, at)) plain_store32((u32 *)(a.tape + at), made);
    }
}
