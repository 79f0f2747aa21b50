/* Tells sound from pauses and pauses from silence while samples come: mono, 16,000 a second.
 *
 * Blocks of 20 ms are judged by their level: energy about the means of pieces of 2.5 ms, so that a
 * constant is nothing, and hum and rumble are little. Beside it the gate knows the last 8 s, in
 * pieces of 100 ms: the least block and the mean of each. The floor is what a tenth of the least
 * lie under, and the ceiling what a tenth of the means lie over. So the gaps that syllables have
 * are enough to see the floor between them, while one gap in a noise does not lower it, nor does a
 * bang raise the ceiling. The floor is never under -80 dB of full scale, and in the first seconds
 * not over -65 dB and 10 dB more for each second, so that a recording that begins with a word does
 * not begin with a pause.
 *
 *   quiet    a block less than 8 dB over the floor, or 30 dB under the ceiling. Dither, hiss, hum
 *            and a room are, and so may a distant voice be beside a near one: quiet is where a
 *            recording may be cut, not what may be left out
 *   silent   a block less than 6 dB over the floor and under -45 dB; a single other block between
 *            two such, a click, is silent, too. This may be left out
 *   sound    two blocks in a row that are not quiet
 *
 * A strict gate, for who wants as little as possible, calls a block sound only from 12 dB over the
 * floor and -55 dB on, and everything else silent; under -60 dB all is quiet. */
#ifndef REEL_ASR_SILENCE_H
#define REEL_ASR_SILENCE_H

#include <stdbool.h>
#include <stddef.h>

enum {
    SILENCE_BLOCK = 320,    /* samples judged at once: 20 ms */
    SILENCE_ONSET = 2 * 320 /* that are not quiet when sound is found */
};

enum {
    GATE_LEVEL_BLOCKS = 5, /* 100 ms */
    GATE_LEVELS = 80       /* 8 s */
};

/* Levels of the last 8 s in dB of full scale. */
struct gate_levels {
    double ring[GATE_LEVELS];
    double ordered[GATE_LEVELS]; /* the same, the smallest first */
    int n, oldest;
};

/* Read-only outside silence.c. */
struct silence_gate {
    bool strict;
    float block[SILENCE_BLOCK];
    int n_block; /* samples of the block that is under way */
    double energy, least;
    int n_energy; /* blocks that are in them */
    struct gate_levels leasts, means;
    int n_heard; /* pieces so far, until the floor is free */
    double floor, ceiling;
    int n_loud;       /* blocks of sound in a row */
    int n_not_silent; /* in a row */
    size_t n_quiet;   /* in a row */
    size_t n_silent;  /* in a row, with clicks */
};

void silence_gate_start(struct silence_gate *g, bool strict);

/* Takes samples up to the end of the block that is under way, or all n; returns how many. */
size_t silence_gate_push(struct silence_gate *g, const float *samples, size_t n);

/* Samples up to the last whole block that are quiet, or silent, without an end. */
static inline size_t silence_gate_quiet(const struct silence_gate *g) {
    return g->n_quiet * SILENCE_BLOCK;
}
static inline size_t silence_gate_silent(const struct silence_gate *g) {
    return g->n_silent * SILENCE_BLOCK;
}

/* Whether the last blocks are sound. */
static inline bool silence_gate_sounds(const struct silence_gate *g) {
    return g->n_loud * SILENCE_BLOCK >= SILENCE_ONSET;
}

#endif
