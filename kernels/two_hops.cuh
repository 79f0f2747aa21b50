/* Sums of out and down in two hops, with P_TWO_HOPS: an SM adds up the groups' sums of some words of some columns, and
 * publishes these words of h, so that a block reads a column's h once instead of a partial sum of each group.
 * The rows of a member, of all columns, are dealt to the SMs that are this member of their groups. An epilogue thread
 * keeps its words of h from layer to layer, in fp32. They go round so, too, and then h is the same number as in one
 * hop, added in the same order; or as pairs of 24 bits, with P_H_PAIRS. */
#ifndef REEL_KERNELS_TWO_HOPS_CUH
#define REEL_KERNELS_TWO_HOPS_CUH

#include "exchange.cuh"

DEV u64 *column_words(const struct worker *w, int exchange, int column) {
#if P_COLUMNS > 1
    return w->all->column[0].words + exchange + column * P_WORDS;
#else
    return (void)column, w->a->words + exchange;
#endif
}

/* Registers of a lane that wait for words side by side, of 8 bytes each. */
enum { GATHER_WORDS = M_DELTA || P_COLUMNS == 1 ? 16 : 32 };

#if P_TWO_HOPS
/* Two rows of h go round as one word of two values of 24 bits, or as two words of fp32. */
#if P_H_PAIRS
enum { H_WORDS = 1 };
DEV void h_load(const u64 *from, u64 *v) { v[0] = word_load(from); }
DEV u32 h_missing(const struct worker *w, const u64 *v) { return word_off24(v[0], w->epoch); }
DEV void h_take(const u64 *v, float *h) { h[0] = float24_low(v[0]), h[1] = float24_high(v[0]); }
DEV void h_tell(struct worker *w, u64 *to, const float *h) { word_tell(w, to, word_make24(h[0], h[1], w->epoch)); }
#else
enum { H_WORDS = 2 };
DEV void h_load(const u64 *from, u64 *v) { word_load2(from, v, v + 1); }
DEV u32 h_missing(const struct worker *w, const u64 *v) { return word_off(v[0], w->epoch) | word_off(v[1], w->epoch); }
DEV void h_take(const u64 *v, float *h) { h[0] = bits_float((u32)v[0]), h[1] = bits_float((u32)v[1]); }
DEV void h_tell(struct worker *w, u64 *to, const float *h) {
    word_tell(w, to, word_make(float_bits(h[0]), w->epoch));
    word_tell(w, to + 1, word_make(float_bits(h[1]), w->epoch));
}
#endif

/* Several columns' words of h are all asked for before the first is looked at. One column, and words of pairs, of which
 * there are half as many, lose by it (docs/EXPERIMENTS.md, "Words asked for at once"). */
enum { H_ASKED_FIRST = P_COLUMNS > 1 && !P_H_PAIRS };

/* Words of h, or twos of them, that a lane asks for at a time. With more of four columns Qwen3-1.7B's program puts
 * registers aside. */
enum { H_AT_ONCE = P_COLUMNS > 4 ? 8 : P_COLUMNS > 2 && H_ASKED_FIRST ? 4 : GATHER_WORDS / 2 };

/* Waits for this warp's slice of each column's h, whose sums other SMs have added up: sums_reduce. */
DEV void h_gather(struct worker *w, int exchange, float (*h)[2 * SLICE], enum wait_kind kind) {
    enum { ITEMS = P_COLUMNS * SLICE, CHUNK = MIN(ITEMS, H_AT_ONCE) };
    const u64 *from = column_words(w, exchange, 0) + H_WORDS * (w->warp * SLICE_WORDS + w->lane);
    int have = LONG_SLICES ? SLICE_WORDS : M_HIDDEN / 2 - w->warp * SLICE_WORDS;
    if (have > SLICE_WORDS) have = SLICE_WORDS;
    UNROLL
    for (int first = 0; first < ITEMS; first += CHUNK) {
        u32 polls = 0;
        u64 v[CHUNK][H_WORDS];
        UNROLL
        for (int i = 0; i < CHUNK; i++) {
            const int column = (first + i) / SLICE, turn = (first + i) % SLICE;
            UNROLL
            for (int n = 0; n < H_WORDS; n++)
                v[i][n] = P_H_PAIRS ? (u64)(w->epoch & 0xffffu) << 48 : word_make(0, w->epoch);
            if (H_ASKED_FIRST && first + i < ITEMS && turn * LANES + w->lane < have)
                h_load(from + column * P_WORDS + H_WORDS * turn * LANES, v[i]);
        }
        NO_UNROLL
        for (;;) {
            u32 off = 0;
            UNROLL
            for (int i = 0; i < CHUNK && (!H_ASKED_FIRST || polls); i++) {
                const int column = (first + i) / SLICE, turn = (first + i) % SLICE;
                if (first + i < ITEMS && turn * LANES + w->lane < have && (!polls || h_missing(w, v[i])))
                    h_load(from + column * P_WORDS + H_WORDS * turn * LANES, v[i]);
            }
            UNROLL
            for (int i = 0; i < CHUNK; i++)
                off |= h_missing(w, v[i]);
            if (warp_all(off == 0 || w->dead)) break;
            wait_failed(w, &polls, kind, P_H_PAIRS ? w->epoch & 0xffffu : w->epoch,
                        (u32)(v[0][0] >> (P_H_PAIRS ? 48 : 32)));
        }
        UNROLL
        for (int i = 0; i < CHUNK; i++) {
            const int column = (first + i) / SLICE, turn = (first + i) % SLICE;
            if (first + i < ITEMS) h_take(v[i], h[column] + 2 * turn);
        }
    }
}

enum { REDUCE_TURNS = (REDUCE_SHARE + P_EPILOGUE_WARPS * LANES - 1) / (P_EPILOGUE_WARPS * LANES) };

/* Which word of which column is this thread's n-th. */
struct reduced {
    int column, word, there;
};
DEV struct reduced reduced_at(const struct worker *w, int n) {
    const int at = (n * P_EPILOGUE_WARPS + w->warp - WARP_EPILOGUE) * LANES + w->lane;
    const int i = w->group * REDUCE_SHARE + at;
    struct reduced r;
    r.column = i / REDUCE_WORDS, r.word = w->member * REDUCE_WORDS + i % REDUCE_WORDS;
    r.there = at < REDUCE_SHARE && r.column < P_COLUMNS && r.word < M_HIDDEN / 2;
    if (!r.there) r.column = r.word = 0;
    return r;
}

DEV void sums_reduce(struct worker *w, int from, int to, float (*kept)[2], enum wait_kind kind) {
    enum { CHUNK = MIN(P_GROUPS, 8) };
    UNROLL
    for (int n = 0; n < REDUCE_TURNS; n++) {
        const struct reduced r = reduced_at(w, n);
        const u64 *words = column_words(w, from, r.column) + r.word;
        UNROLL
        for (int first = 0; first < P_GROUPS; first += CHUNK) {
            u64 v[CHUNK];
            u32 polls = 0;
            UNROLL
            for (int g = 0; g < CHUNK; g++)
                v[g] = (u64)(w->epoch & 0xffffu) << 48;
            NO_UNROLL
            for (;;) {
                u32 off = 0;
                UNROLL
                for (int g = 0; g < CHUNK; g++)
                    if (r.there && first + g < P_GROUPS && (!polls || !word_is24(v[g], w->epoch)))
                        v[g] = word_load(words + (first + g) * (M_HIDDEN / 2));
                UNROLL
                for (int g = 0; g < CHUNK; g++)
                    off |= word_off24(v[g], w->epoch);
                if (warp_all(off == 0 || w->dead)) break;
                wait_failed(w, &polls, kind, w->epoch & 0xffffu, (u32)(v[0] >> 48));
            }
            UNROLL
            for (int g = 0; g < CHUNK; g++)
                if (first + g < P_GROUPS) kept[n][0] += float24_low(v[g]), kept[n][1] += float24_high(v[g]);
        }
        if (r.there) h_tell(w, column_words(w, to, r.column) + H_WORDS * r.word, kept[n]);
    }
}
#endif

#endif
