/* Exchanges carry results of a phase from the SMs that make them to the SMs that need them. They consist of words that
 * carry their own flag: the writer stores a word's payload and its epoch (docs/GLOSSARY.md) in one access, and the
 * reader polls the word itself until it has the epoch. Each exchange has one buffer. One is enough, because between two
 * uses of a buffer lies an exchange that every block writes and every block reads; docs/KERNELS.md has the proof for
 * each exchange. */
#ifndef REEL_KERNELS_EXCHANGE_CUH
#define REEL_KERNELS_EXCHANGE_CUH

#include "mma.cuh"
#include "shared.cuh"

/* In what a word that was read differs from one of this epoch (word_off). A word has 32 bits of epoch, or 16 with
 * `is24`, as it then carries two values of 24 bits. */
DEV u32 word_missing(const struct worker *w, u64 word, const int is24) {
    return is24 ? word_off24(word, w->epoch) : word_off(word, w->epoch);
}

/* Waits for the first `have` words of an exchange. Word i * 32 + lane goes to v[i]; words from `have` on are 0 with
 * this epoch. The loop does not read a word again that has come. */
DEV void words_gather(struct worker *w, const u64 *from, u64 *v, const int registers, int have, const int is24,
                      enum wait_kind kind) {
    u32 polls = 0;
    UNROLL
    for (int i = 0; i < registers; i++)
        v[i] = is24 ? (u64)(w->epoch & 0xffffu) << 48 : word_make(0, w->epoch);
    NO_UNROLL
    for (;;) {
        u32 off = 0;
        UNROLL
        for (int i = 0; i < registers; i++)
            if (i * LANES + w->lane < have && (!polls || word_missing(w, v[i], is24)))
                v[i] = word_load(from + i * LANES + w->lane);
        UNROLL
        for (int i = 0; i < registers; i++)
            off |= word_missing(w, v[i], is24);
        if (warp_all(off == 0 || w->dead)) break;
        wait_failed(w, &polls, kind, is24 ? w->epoch & 0xffffu : w->epoch, (u32)(v[0] >> (is24 ? 48 : 32)));
    }
}

/* Waits for n words of bf16 pairs. Word i goes to register i / 32 of lane i % 32. `from` is word 0; only the first
 * `have` words exist, which may be none, and the rest are 0. */
DEV void gather_pairs(struct worker *w, const u64 *from, u32 *x, int n, int have, enum wait_kind kind) {
    const int registers = (n + LANES - 1) / LANES;
    u64 v[(P_DOWN_WARP_K * 8 + LANES - 1) / LANES];
    words_gather(w, from, v, registers, have, 0, kind);
    UNROLL
    for (int i = 0; i < registers; i++)
        x[i] = (u32)v[i];
}

/* Waits for the groups' partial sums of this warp's slice and adds them to h, or adds nothing if they are not wanted.
 * That is no branch: ptxas moves behind a branch what makes operands of tiles, which is meant to be done while sums are
 * waited for. All words are asked for first, with nothing
 * to look at in between: so their loads follow one another from one address. The loop does not read a word again that
 * has come, because polls are themselves the load on the lines that they wait for (-24 us a token for Qwen3-0.6B). */
DEV void gather_sum(struct worker *w, const u64 *words, int wanted, float *h, enum wait_kind kind) {
    enum { CHUNK = P_GROUPS * SLICE <= 32 ? SLICE : (P_GROUPS >= 16 ? 1 : 16 / P_GROUPS) };
    const u64 *from = words + w->warp * SLICE_WORDS + w->lane;
    int have = WHOLE_SLICES ? SLICE_WORDS : M_HIDDEN / 2 - w->warp * SLICE_WORDS;
    if (have > SLICE_WORDS) have = SLICE_WORDS;
    UNROLL
    for (int first = 0; first < SLICE; first += CHUNK) {
        u32 polls = 0;
        u64 v[CHUNK][P_GROUPS];
        UNROLL
        for (int i = 0; i < CHUNK; i++) {
            UNROLL
            for (int g = 0; g < P_GROUPS; g++) {
                v[i][g] = (u64)(w->epoch & 0xffffu) << 48;
                if (wanted && first + i < SLICE && (first + i) * LANES + w->lane < have)
                    v[i][g] = word_load(from + (first + i) * LANES + g * (M_HIDDEN / 2));
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
                UNROLL
                for (int g = 0; g < P_GROUPS; g++)
                    if (first + i < SLICE && !word_is24(v[i][g], w->epoch))
                        v[i][g] = word_load(from + (first + i) * LANES + g * (M_HIDDEN / 2));
            }
        }
        UNROLL
        for (int i = 0; i < CHUNK; i++) {
            UNROLL
            for (int g = 0; g < P_GROUPS; g++)
                if (first + i < SLICE) {
                    h[2 * (first + i)] += float24_low(v[i][g]);
                    h[2 * (first + i) + 1] += float24_high(v[i][g]);
                }
        }
    }
}

/* Publishes row `row` of this lane and the next lane's row as one word; publish_pair24 makes a word of two
 * values of 24 bits. All lanes call. A lane whose row is odd, or not below `rows`, publishes nothing. `to` is the word
 * of row 0. */
DEV void publish_pair(struct worker *w, u64 *to, int row, int rows, float value) {
    const float next = shuffle_down_float(value, 1);
    if (row % 2 == 0 && row < rows) word_store(to + row / 2, word_make(bf16_pair(value, next), w->epoch));
}
DEV void publish_pair24(struct worker *w, u64 *to, int row, int rows, float value) {
    const float next = shuffle_down_float(value, 1);
    if (row % 2 == 0 && row < rows) word_store(to + row / 2, word_make24(value, next, w->epoch));
}
#if P_TWO_HOPS
enum {
    REDUCE_WORDS = P_OUT_ROWS / 2, /* of a column, of one member */
    REDUCE_SHARE = (P_COLUMNS * REDUCE_WORDS + P_GROUPS - 1) / P_GROUPS
};
#if P_OUT_ROWS != P_DOWN_ROWS
#error "a member has the same rows of out and of down"
#endif
#endif

/* The same for a column's partial sums: to all GPUs, or with two hops to the one whose SM adds them up (two_hops.cuh).
 */
DEV void publish_sum(struct worker *w, u64 *to, int column, int row, int rows, float value) {
    const float next = shuffle_down_float(value, 1);
    if (row % 2 || row >= rows) return;
    const u64 word = word_make24(value, next, w->epoch);
#if P_TWO_HOPS && P_GPUS > 1
    word_give(w, (column * REDUCE_WORDS + row / 2) / REDUCE_SHARE / GPU_GROUPS, to + row / 2, word);
#else
    (void)column, word_tell(w, to + row / 2, word);
#endif
}

#endif
