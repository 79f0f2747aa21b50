/* What an EAGLE-3 head (docs/SPECULATION.md) takes from the model that it guesses for, and what its guesses mean there.
 * Its taps are the residual stream in front of ARGS_TAPS layers, which is left in memory as it comes by: f32
 * [ARGS_TAPS, hidden] of a token. */
#ifndef REEL_KERNELS_DRAFT_HEAD_CUH
#define REEL_KERNELS_DRAFT_HEAD_CUH

#include "shared.cuh"

/* Returns the model's id of a guess; M_VOCAB: it has none. meant: [n], or NULL where guesses are the model's ids. */
DEV u32 guess_means(u32 guess, const int *meant, int n) {
    if (!meant) return guess < M_VOCAB ? guess : M_VOCAB;
    return guess < (u32)n ? const_load32((const u32 *)meant + guess) : M_VOCAB;
}

#if P_TAPS
/* The layer in front of which the nth is. Two may be the same. */
DEV int tap_layer(const int n) { return n == 0 ? P_TAP_0 : n == 1 ? P_TAP_1 : P_TAP_2; }

/* Whether there is one in front of a layer. */
DEV int tap_is(int layer) { return layer == P_TAP_0 || layer == P_TAP_1 || layer == P_TAP_2; }

/* Stores element `at` of a token's residual stream in front of a layer. taps: of that token. */
DEV void tap_store(float *taps, int layer, int at, float value) {
    UNROLL
    for (int n = 0; n < ARGS_TAPS; n++)
        if (tap_layer(n) == layer) plain_store32((u32 *)taps + n * M_HIDDEN + at, float_bits(value));
}

/* Block 0 leaves h where it is a tap: each consumer warp its slice. taps: as tap_store takes them, or NULL. */
DEV void taps_leave(const struct worker *w, const float *h, float *taps) {
    if (!taps || w->block != 0 || !tap_is(w->layer)) return;
    UNROLL
    for (int i = 0; i < 2 * SLICE; i++) {
        const int word = i / 2 * LANES + w->lane, pair = w->warp * SLICE_WORDS + word;
        if (word < SLICE_WORDS && pair < M_HIDDEN / 2) tap_store(taps, w->layer, 2 * pair + i % 2, h[i]);
    }
}
#endif

#endif
