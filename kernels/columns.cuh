/* The phases of columns.cu that have weights, but for the head: those of decode.cu, with a vector for each column. Each
 * column's sums are added in the order in which decode.cu adds them, so a column's numbers do not depend on how many
 * columns there are or on what is in the others. Words of column c (docs/GLOSSARY.md) lie P_WORDS behind those of
 * column c - 1 in every exchange. */
#ifndef REEL_KERNELS_COLUMNS_CUH
#define REEL_KERNELS_COLUMNS_CUH

#include "exchange.cuh"
#include "phase_qkv.cuh"
#include "profile.cuh"
#include "publish.cuh"

/* From here on the functions that are about one column mean this one. */
DEV void column_take(struct worker *w, int column) { w->column = column, w->a = &w->all->column[column]; }

DEV int column_runs(const struct worker *w, int column) { return (int)(w->running >> column & 1); }
DEV int column_attended(const struct worker *w, int column) { return (int)(w->attends >> column & 1); }

/* How many tokens of this launch come before a column's token. */
DEV int column_turn(const struct worker *w, int column) {
#if P_FOLLOWS
    return (int)w->s->turn[column];
#else
    return w->token - (int)w->s->waited[column];
#endif
}

/* The position of a column's token; a column that is over stands at 0, where nothing comes before it. */
DEV int column_position(const struct worker *w, int column) {
    return column_runs(w, column) ? w->all->column[column].position + column_turn(w, column) : 0;
}

#if COLUMNS_WAIT
DEV int column_waits(const struct worker *w, int column) { return w->s->column_end[column] == DECODE_WAITS; }
#else
DEV int column_waits(const struct worker *w, int column) { return (void)w, (void)column, 0; }
#endif

#if P_FOLLOWS
/* Whether a column is the first of a session that may have drafts. */
DEV int column_leads(const struct worker *w, int column) { return (int)(w->all->follows >> column & 3) == 2; }
DEV int column_follows(const struct worker *w, int column) { return (int)(w->all->follows >> column & 1); }

/* Columns of the session whose first one this is. */
DEV int session_columns(const struct worker *w, int first) {
    int n = 1;
    while (first + n < COLUMNS && column_follows(w, first + n))
        n++;
    return n;
}
#else
DEV int column_follows(const struct worker *w, int column) { return (void)w, (void)column, 0; }
DEV int session_columns(const struct worker *w, int first) { return (void)w, (void)first, 1; }
#endif

/* ---- who runs, and the producer of K and V ---- */

/* Where the columns stand changes when a block picks. Its producer of K and V must have looked before. It may have
 * nothing to bring for a token, and then nothing else holds the block up until it has. So the epilogue publishes no
 * best logit of a token, and the block does not pick, before all lanes of the producer have arrived. */
enum { KV_PRODUCERS = STAGED ? (int)P_ATTENTION_WARPS : (int)FILL_LANES };

/* The producer knows where the columns stand: it has stored what depends on it. */
DEV void columns_looked(const struct worker *w) { mbar_arrive(smem_of(&w->s->looked)); }

DEV void columns_looked_wait(struct worker *w) {
    if (w->lane == 0) mbar_wait(w, smem_of(&w->s->looked), (u32)w->token & 1, WAIT_LOOKED);
    warp_sync();
    lanes_agree(w);
}

/* ---- products ---- */

/* Stores this warp's slice of a column's h times gain as B fragments, as fragments_store does. */
DEV void column_fragments(const struct worker *w, int column, const float *h, const float *gain) {
    u32 *x =
        w->s->vectors.x + column / SET_COLUMNS * X_SET + w->warp * P_QKV_WARP_K * X_STRIDE + column % SET_COLUMNS * 16;
    UNROLL
    for (int i = 0; i < SLICE; i++) {
        const int word = i * LANES + w->lane, at = word / 8 * X_STRIDE + word % 4 * 2 + word % 8 / 4;
        const float a = h[2 * i] * gain[2 * i], b = h[2 * i + 1] * gain[2 * i + 1];
        const u32 both = bf16_pair(a, b);
        if (word >= SLICE_WORDS) continue;
        x[at] = both;
        x[at + 8] = bf16_pair(a - bf16_low(both), b - bf16_high(both));
    }
}

/* As columns_multiply: with tiles that have scales. */
DEV void columns_narrow(float (*d)[COLUMN_SUMS], const struct held *t, const u32 *x, const int split, int lane,
                        int first, int n, int warp_rows, const int format) {
#if TILES_NARROW
    enum { MOST_RUNS = 4 };
    const int parts = TILE_PARTS(format), run = TILE_RUN(format), stride = split ? X_STRIDE : INPUT_STRIDE;
    float ones[MOST_RUNS][COLUMN_SUMS];
    UNROLL
    for (int i = first; i < first + n; i++) {
        const int k = i / warp_rows, r = i % warp_rows, fresh = i == first || r == 0;
        UNROLL
        for (int j = 0; j < parts; j += run) {
            float sum[COLUMN_SUMS], *one = ones[j / run];
            UNROLL
            for (int c = 0; c < COLUMN_SUMS; c++) {
                sum[c] = 0;
                if (fresh) one[c] = 0;
            }
            UNROLL
            for (int part = j; part < j + run; part++) {
                const struct quad a = tile_part(format, t[i - first].codes, part);
                const u32 *slice = x + (k * parts + part) * stride;
                if (split)
                    tile_columns_split(sum, a, slice, X_SET, lane);
                else
                    tile_columns(sum, a, slice, lane);
                if (!TILE_OFFSETS(format) || !fresh) continue;
                if (split)
                    tile_columns_split(one, tile_ones(), slice, X_SET, lane);
                else
                    tile_columns(one, tile_ones(), slice, lane);
            }
            const struct factors f = held_factors(&t[i - first], format, j / run);
            run_add(d[warp_rows == 1 ? k & 1 : r], sum, one, COLUMN_SUMS, &f, format);
        }
    }
#else
    (void)d, (void)t, (void)x, (void)split, (void)lane, (void)first, (void)n, (void)warp_rows, (void)format;
#endif
}

/* Multiplies the warp's n tiles from `first` on. x: the warp's first k tile of B fragments; split: of normed vectors.
 */
DEV void columns_multiply(float (*d)[COLUMN_SUMS], const struct held *t, const u32 *x, const int split, int lane,
                          int first, int n, int warp_rows, const int half, const int format) {
    if (TILE_NARROW(format)) columns_narrow(d, t, x, split, lane, first, n, warp_rows, format);
    UNROLL
    for (int i = first; i < first + (TILE_NARROW(format) ? 0 : n); i++) {
        const struct tile_where at = tile_where(i, warp_rows, half);
        UNROLL
        for (int k = at.k; k <= at.k + at.both; k++) {
            const struct quad a = warp_operand(format, t[i - first].codes, &at, k);
            float *to = d[warp_rows == 1 ? k & 1 : at.r];
            if (split)
                tile_columns_split(to, a, x + k * X_STRIDE, X_SET, lane);
            else
                tile_columns(to, a, x + k * INPUT_STRIDE, lane);
        }
    }
}

/* Stores this warp's partial sums of all columns, which lie `stride` floats apart, as parts_store does. */
DEV void columns_store(const struct worker *w, float (*d)[COLUMN_SUMS], const int split, float *part, int stride,
                       int warp_rows, int k_parts) {
    const int lane = w->lane, row = w->warp / k_parts * warp_rows * TILE_ROWS + lane / 4;
    float *p = part + row * PART_ROW(k_parts, P_COLUMNS) + part_place(w, k_parts);
    if (warp_rows == 1) {
        UNROLL
        for (int i = 0; i < COLUMN_SUMS; i++)
            d[0][i] += d[1][i];
    }
    UNROLL
    for (int r = 0; r < warp_rows; r++)
        tile_columns_end(d[r]);
    UNROLL
    for (int j = 0; j < (split ? SETS : 2); j++) {
        const int column = split ? j * SET_COLUMNS + lane % 4 : 2 * (lane % 4) + j;
        if (split ? lane % 4 >= SET_COLUMNS : column >= COLUMNS) continue;
        UNROLL
        for (int r = 0; r < warp_rows; r++) {
            UNROLL
            for (int i = 0; i < 2; i++)
                p[column * stride + (r * TILE_ROWS + 8 * i) * PART_ROW(k_parts, P_COLUMNS)] =
                    split ? tile_split_sum(d[r], j, i, lane) : tile_plain_sum(d[r], j, i, lane);
        }
    }
}

/* Multiplies this warp's tiles from `from` on up to `to` as they come out of the ring; tile 0 is the first of x. */
DEV void columns_stream(struct worker *w, float (*d)[COLUMN_SUMS], const u32 *x, const int split, int from, int to,
                        int warp_rows, const int half, const int format) {
    UNROLL
    for (int i = from; i < to; i += P_SLOT_TILES) {
        struct held more[P_SLOT_TILES];
        const int left = to - i, n = left < P_SLOT_TILES ? left : P_SLOT_TILES;
        tiles_take(w, more, n, ALL_SCALED, format, 0, 0);
        columns_multiply(d, more, x, split, w->lane, i, n, warp_rows, half, format);
    }
}

/* Multiplies the tiles of a phase that were not preloaded. */
DEV void columns_rest(struct worker *w, float (*d)[COLUMN_SUMS], const u32 *x, const int split, int preload, int tiles,
                      int warp_rows, const int half, const int format) {
    const int stride = (split ? X_STRIDE : INPUT_STRIDE) * TILE_PARTS(format);
    const int round = half ? HALF_ROUND(warp_rows) : STREAM_ROUND(warp_rows);
    const int begin = (preload + round - 1) / round * round, end = tiles / round * round;
    if (preload >= tiles) return;
    stream_freely(w, 1);
    if (begin + round >= end) {
        columns_stream(w, d, x, split, preload, tiles, warp_rows, half, format);
    } else {
        columns_stream(w, d, x, split, preload, begin, warp_rows, half, format);
        NO_UNROLL
        for (int i = begin; i < end; i += round)
            columns_stream(w, d, x + tiles_k(i, warp_rows, half) * stride, split, 0, round, warp_rows, half, format);
        columns_stream(w, d, x + tiles_k(end, warp_rows, half) * stride, split, 0, tiles - end, warp_rows, half,
                       format);
    }
    stream_freely(w, 0);
}

/* Takes one warp through a phase, as phase_product does. */
DEV void columns_product(struct worker *w, const struct held *t, int preload, const u32 *x, const int split,
                         float *part, int stride, int warp_rows, const int half, int warp_k, int k_parts,
                         const int format) {
    float d[ACCUMULATORS][COLUMN_SUMS];
    const int tiles = warp_rows * warp_k / TILE_PARTS(format) - half * warp_k / 2;
    UNROLL
    for (int i = 0; i < ACCUMULATORS; i++) {
        UNROLL
        for (int j = 0; j < COLUMN_SUMS; j++)
            d[i][j] = 0;
    }
    columns_multiply(d, t, x, split, w->lane, 0, preload, warp_rows, half, format);
    columns_rest(w, d, x, split, preload, tiles, warp_rows, half, format);
    if (split) {
        UNROLL
        for (int i = 0; i < ACCUMULATORS; i++)
            tile_columns_fold(d[i]);
    }
    columns_store(w, d, split, part, stride, warp_rows, k_parts);
}
#define COLUMNS_PRODUCT(w, t, S, x, split, part)                                                                       \
    columns_product(w, t, PRELOAD(S), x, split, (part)[0], sizeof(part)[0] / sizeof(float), P_##S##_WARP_ROWS,         \
                    P_##S##_HALF, P_##S##_WARP_K, P_##S##_K_PARTS, P_##S##_FORMAT)

#if TILES_NARROW
/* As columns_product, for weights that are integers. x: the first step of the digits (digits.cuh) of this warp's slice
 * of all columns; unit: of each column. Called through COLUMNS_DIGITS. */
DEV void columns_digits(struct worker *w, const struct held *t, int preload, const u32 *x, const float *unit,
                        float *part, int stride, int warp_rows, int warp_k, int k_parts, const int format) {
    const int tiles = warp_rows * warp_k / TILE_PARTS(format), second = w->lane % 4 / 2;
    float *p = part + (w->warp / k_parts * warp_rows * TILE_ROWS + w->lane / 4) * PART_ROW(k_parts, P_COLUMNS) +
               part_place(w, k_parts);
    struct digit_sums s[ACCUMULATORS];
    float mine[DIGIT_SETS];
    digits_zero(s, ACCUMULATORS);
    digits_product(s, t, x, w->lane, 0, preload, warp_rows, format, 0);
    digits_rest(w, s, x, preload, tiles, warp_rows, format);
    if (warp_rows == 1) digits_meet(&s[0], &s[1]);
    UNROLL
    for (int set = 0; set < DIGIT_SETS; set++)
        mine[set] = second ? unit[2 * set + 1] : unit[2 * set];
    UNROLL
    for (int r = 0; r < warp_rows; r++) {
        float total[2 * DIGIT_SETS];
        digits_end(&s[r], mine, total, format);
        if (w->lane % 2) continue;
        UNROLL
        for (int i = 0; i < 2 * DIGIT_SETS; i++)
            p[(2 * (i / 2) + second) * stride + (r * TILE_ROWS + 8 * (i % 2)) * PART_ROW(k_parts, P_COLUMNS)] =
                total[i];
    }
}
#define COLUMNS_DIGITS(w, t, S, x, unit, part)                                                                         \
    columns_digits(w, t, PRELOAD(S), x, unit, (part)[0], sizeof(part)[0] / sizeof(float), P_##S##_WARP_ROWS,           \
                   P_##S##_WARP_K, P_##S##_K_PARTS, SLICE_FORMAT(S))
#else
#define COLUMNS_DIGITS(w, t, S, x, unit, part) ((void)(x), (void)(unit))
#endif

/* Makes all columns' vectors for qkv or gate_up. */
DEV void columns_norm(struct worker *w, float (*h)[2 * SLICE], const float *gain) {
    UNROLL
    for (int c = 0; c < COLUMNS; c++)
        column_fragments(w, c, h[c], gain);
    warp_sync();
}

/* The warp's first tile of the normed vectors. */
DEV const u32 *column_slice(const struct worker *w) { return w->s->vectors.x + w->warp * P_QKV_WARP_K * X_STRIDE; }

/* Where the digits of this warp's slice of the normed vectors lie: in the place of the halves. */
DEV u32 *column_digits(const struct worker *w) { return w->s->vectors.x + w->warp * (P_QKV_WARP_K / 2) * DIGIT_STEP; }

/* Stores the digits of this warp's slice of all columns' h times gain. most: their magnitudes, of the slice or of all;
 * NULL: they are to be found. */
DEV void columns_norm_digits(struct worker *w, float (*h)[2 * SLICE], const float *gain, const u32 *most, float *unit) {
    UNROLL
    for (int c = 0; c < COLUMNS; c++) {
        float v[2 * SLICE];
        slice_normed(h[c], gain, v);
        const u32 largest = most ? most[c] : digits_most(v, 2 * SLICE);
        digits_store(column_digits(w) + c * DIGIT_COLUMN, v, SLICE, SLICE_WORDS, digits_factor(largest), w->lane,
                     LANES);
        unit[c] = digits_unit(largest);
    }
    warp_sync();
}

#if GROUP_DIGITS
/* Turns the input of out or down, which is complete, into digits: k_parts slices of warp_k tiles. The warps that share
 * a slice share its columns. unit: of each column of this warp's slice. */
DEV void columns_group_digits(struct worker *w, const u32 *from, int warp_k, int k_parts, float *unit) {
    const int part = w->warp % k_parts, sharers = P_WARPS / k_parts, words = warp_k * 8;
    enum { MOST = MAX(XWORDS(OUT), XWORDS(DOWN)) };
    NO_UNROLL
    for (int c = w->warp / k_parts; c < COLUMNS; c += sharers) {
        float v[2 * MOST];
        UNROLL
        for (int i = 0; i < (words + LANES - 1) / LANES; i++) {
            const int word = i * LANES + w->lane;
            const u32 *at = from + (part * warp_k + word / 8) * INPUT_STRIDE + c * 8 + word % 4 * 2 + word % 8 / 4;
            const u32 two = word < words ? *at : 0;
            v[2 * i] = bf16_low(two), v[2 * i + 1] = bf16_high(two);
        }
        const u32 most = digits_most(v, 2 * ((words + LANES - 1) / LANES));
        digits_store(w->s->digits + part * (warp_k / 2) * DIGIT_STEP + c * DIGIT_COLUMN, v, (words + LANES - 1) / LANES,
                     words, digits_factor(most), w->lane, LANES);
        if (w->lane == 0) w->s->group_unit[part][c] = digits_unit(most);
    }
    consumers_sync();
    UNROLL
    for (int c = 0; c < COLUMNS; c++)
        unit[c] = w->s->group_unit[part][c];
}
#endif

/* From a column's vector to this warp's partial sums: a phase over the hidden vector, and one over the group's. */
#define COLUMNS_NORMED(w, t, S, h, gain)                                                                               \
    do {                                                                                                               \
        if (DIGITS(P_##S##_FORMAT)) {                                                                                  \
            float unit[COLUMNS];                                                                                       \
            columns_norm_digits(w, h, gain, 0, unit);                                                                  \
            COLUMNS_DIGITS(w, t, S, column_digits(w), unit, (w)->s->part_hidden);                                      \
        } else {                                                                                                       \
            columns_norm(w, h, gain);                                                                                  \
            COLUMNS_PRODUCT(w, t, S, column_slice(w), 1, (w)->s->part_hidden);                                         \
        }                                                                                                              \
    } while (0)
#if GROUP_DIGITS
#define COLUMNS_GROUP(w, t, S, from)                                                                                   \
    do {                                                                                                               \
        const int k = (w)->warp % P_##S##_K_PARTS * P_##S##_WARP_K;                                                    \
        if (DIGITS(P_##S##_FORMAT)) {                                                                                  \
            float unit[COLUMNS];                                                                                       \
            columns_group_digits(w, (from)[0], P_##S##_WARP_K, P_##S##_K_PARTS, unit);                                 \
            COLUMNS_DIGITS(w, t, S, (w)->s->digits + k / 2 * DIGIT_STEP, unit, (w)->s->part_group);                    \
        } else {                                                                                                       \
            COLUMNS_PRODUCT(w, t, S, (from)[k], 0, (w)->s->part_group);                                                \
        }                                                                                                              \
    } while (0)
#else
#define COLUMNS_GROUP(w, t, S, from)                                                                                   \
    COLUMNS_PRODUCT(w, t, S, (from)[(w)->warp % P_##S##_K_PARTS * P_##S##_WARP_K], 0, (w)->s->part_group)
#endif

/* ---- gathering ---- */

/* Moves each column's h by n places, so that a loop over columns finds the next ones in the same registers. */
DEV void columns_rotate(float (*h)[2 * SLICE], const int n) {
    UNROLL
    for (int i = 0; i < 2 * SLICE; i++) {
        float old[COLUMNS];
        UNROLL
        for (int c = 0; c < COLUMNS; c++)
            old[c] = h[c][i];
        UNROLL
        for (int c = 0; c < COLUMNS; c++)
            h[c][i] = old[(c + n) % COLUMNS];
    }
}

/* Waits for the groups' partial sums of this warp's slice of each column and adds them to h, as gather_sum does. */
DEV void columns_gather_sum(struct worker *w, int exchange, float (*h)[2 * SLICE], enum wait_kind kind) {
    enum {
        ITEMS = COLUMNS * SLICE,
        ROOM = GATHER_WORDS / P_GROUPS / SLICE,
        CHUNK = SLICE * (ROOM >= COLUMNS ? COLUMNS
                         : ROOM >= 4     ? 4
                         : ROOM >= 2     ? 2
                                         : 1)
    };
    STATIC_ASSERT(ITEMS % CHUNK == 0, "no chunk is cut");
    const u64 *from = column_words(w, exchange, 0) + w->warp * SLICE_WORDS + w->lane;
    int have = WHOLE_SLICES ? SLICE_WORDS : M_HIDDEN / 2 - w->warp * SLICE_WORDS;
    if (have > SLICE_WORDS) have = SLICE_WORDS;
    NO_UNROLL
    for (int first = 0; first < ITEMS; first += CHUNK) {
        u32 polls = 0;
        u64 v[CHUNK][P_GROUPS];
        UNROLL
        for (int i = 0; i < CHUNK; i++) {
            const int column = i / SLICE, turn = i % SLICE;
            UNROLL
            for (int g = 0; g < P_GROUPS; g++) {
                v[i][g] = (u64)(w->epoch & 0xffffu) << 48;
                if (turn * LANES + w->lane < have)
                    v[i][g] = word_load(from + column * P_WORDS + turn * LANES + g * (M_HIDDEN / 2));
            }
        }
        NO_UNROLL
        for (;;) {
            u32 off = 0;
            UNROLL
            for (int i = 0; i < CHUNK; i++) {
                UNROLL
                for (int g = 0; g < P_GROUPS; g++)
                    off |= word_off24(v[i][g], w->epoch);
            }
            if (warp_all(off == 0 || w->dead)) break;
            wait_failed(w, &polls, kind, w->epoch & 0xffffu, (u32)(v[0][0] >> 48));
            UNROLL
            for (int i = 0; i < CHUNK; i++) {
                const int column = i / SLICE, turn = i % SLICE;
                UNROLL
                for (int g = 0; g < P_GROUPS; g++)
                    if (!word_is24(v[i][g], w->epoch))
                        v[i][g] = word_load(from + column * P_WORDS + turn * LANES + g * (M_HIDDEN / 2));
            }
        }
        UNROLL
        for (int i = 0; i < CHUNK; i++) {
            const int column = i / SLICE, turn = i % SLICE;
            UNROLL
            for (int g = 0; g < P_GROUPS; g++) {
                h[column][2 * turn] += float24_low(v[i][g]);
                h[column][2 * turn + 1] += float24_high(v[i][g]);
            }
        }
        if (CHUNK < ITEMS) columns_rotate(h, CHUNK / SLICE);
        from += CHUNK / SLICE * P_WORDS;
    }
}

/* Completes h of all columns with the sums of out or down. */
DEV void columns_input(struct worker *w, int is_down, float (*h)[2 * SLICE]) {
    const enum wait_kind kind = is_down ? WAIT_DOWN_SUM : WAIT_OUT_SUM;
#if P_TWO_HOPS
    h_gather(w, is_down ? X_DOWN_H : X_OUT_H, h, kind);
#else
    columns_gather_sum(w, is_down ? X_DOWN_SUM : X_OUT_SUM, h, kind);
#endif
}

/* Waits for n words of bf16 pairs of each column and stores them as B fragments. All consumers of the block share the
 * work; the vectors are complete after a barrier. n is even. */
DEV void columns_gather_pairs(struct worker *w, int exchange, const int n, u32 *to, enum wait_kind kind) {
    enum { MOST = COLUMNS > 2 ? 4 : 2 };
    const int thread = w->warp * LANES + w->lane, pairs = COLUMNS * n / 2;
    const int all_turns = (pairs + CONSUMER_THREADS - 1) / CONSUMER_THREADS, turns = MIN(all_turns, (int)MOST);
    NO_UNROLL
    for (int first = 0; first < pairs; first += turns * CONSUMER_THREADS) {
        u64 v[MOST][2];
        u32 polls = 0;
        const u64 *from[MOST];
        UNROLL
        for (int i = 0; i < turns; i++) {
            const int at = first + i * CONSUMER_THREADS + thread, column = at / (n / 2), word = at % (n / 2) * 2;
            v[i][0] = v[i][1] = word_make(0, w->epoch);
            from[i] = column_words(w, exchange, column) + word;
            if (at < pairs) word_load2(from[i], &v[i][0], &v[i][1]);
        }
        NO_UNROLL
        for (;;) {
            u32 off = 0;
            UNROLL
            for (int i = 0; i < turns; i++)
                off |= word_off(v[i][0], w->epoch) | word_off(v[i][1], w->epoch);
            if (warp_all(off == 0 || w->dead)) break;
            wait_failed(w, &polls, kind, w->epoch, (u32)(v[0][0] >> 32));
            UNROLL
            for (int i = 0; i < turns; i++)
                if (!word_is(v[i][0], w->epoch) || !word_is(v[i][1], w->epoch)) word_load2(from[i], &v[i][0], &v[i][1]);
        }
        UNROLL
        for (int i = 0; i < turns; i++) {
            const int at = first + i * CONSUMER_THREADS + thread, column = at / (n / 2), word = at % (n / 2) * 2;
            u32 *x = to + word / 8 * INPUT_STRIDE + column * 8 + word % 4 * 2 + word % 8 / 4;
            if (at < pairs) x[0] = (u32)v[i][0], x[2] = (u32)v[i][1];
        }
    }
}

/* ---- the consumers' phases ---- */

DEV void columns_ssq(struct worker *w, float (*h)[2 * SLICE], int which) {
    float sum[COLUMNS];
    UNROLL
    for (int c = 0; c < COLUMNS; c++)
        sum[c] = slice_ssq(h[c]);
    const float mine = xor_sums(sum, COLUMNS, w->lane);
    if (w->lane < COLUMNS) w->s->ssq[which][xor_sums_which(COLUMNS, w->lane)][w->warp] = mine;
}

DEV void columns_qkv(struct worker *w, const struct held *t, float (*h)[2 * SLICE], const float *gain, float bias) {
    COLUMNS_NORMED(w, t, QKV, h, gain);
    columns_ssq(w, h, 0);
    qkv_publish(w, bias);
}

DEV void columns_out(struct worker *w, const struct held *t) {
    COLUMNS_GROUP(w, t, OUT, w->s->ATTENTION_RESULT);
    out_publish(w);
}

DEV void columns_gate_up(struct worker *w, const struct held *t, float (*h)[2 * SLICE], const float *gain) {
    COLUMNS_NORMED(w, t, GATE_UP, h, gain);
    columns_ssq(w, h, 1);
    gate_up_publish(w);
}

/* Where the gated values lie in the place of attention's scratch, tiles that are padding are cleared: their weights are
 * 0, but what lay there may be no number. */
#if P_OVERLAID
DEV void gated_clear(struct worker *w) {
    enum { FIRST = P_GROUP_INTERMEDIATE / TILE_K, END = P_DOWN_K_TILES };
    NO_UNROLL
    for (int i = FIRST * INPUT_STRIDE + w->warp * LANES + w->lane; i < END * INPUT_STRIDE; i += CONSUMER_THREADS)
        w->s->GATED_VALUES[0][i] = 0;
    if (FIRST * TILE_K < P_GROUP_INTERMEDIATE) consumers_sync(); /* the first of them has values, too */
}
#else
DEV void gated_clear(struct worker *w) { (void)w; }
#endif

DEV void columns_down(struct worker *w, const struct held *t) {
    gated_clear(w);
    columns_gather_pairs(w, X_GATED + w->group * (P_GROUP_INTERMEDIATE / 2), P_GROUP_INTERMEDIATE / 2,
                         w->s->GATED_VALUES[0], WAIT_GATED);
    consumers_sync();
    profile_layer(w, MARK_DOWN_INPUT);
    COLUMNS_GROUP(w, t, DOWN, w->s->GATED_VALUES);
    down_publish(w);
}

#endif
