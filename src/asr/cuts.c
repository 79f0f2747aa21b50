#include "asr/cuts.h"

#include <assert.h>
#include <math.h>
#include <stdint.h>

/* ---- cuts ---- */

/* Sums over a moving window are of integers, so that what left it has left nothing: in floating
 * point the silence after a loud word would be a little louder than the one before it. Samples
 * beyond the largest are that large: 1,600 of them still fit. */
#define FIXED_POINT   4294967296.0f
#define LARGEST_VALUE 1e6f

static uint64_t loudness(float sample) {
    float size = fabsf(sample);
    if (!(size <= LARGEST_VALUE)) size = LARGEST_VALUE;
    return (uint64_t)(size * FIXED_POINT);
}

/* Where the quietest CUT_WINDOW of n samples (at least that many) begins. */
static size_t quietest_window(const float *samples, size_t n) {
    uint64_t sum = 0;
    for (size_t i = 0; i < CUT_WINDOW; i++)
        sum += loudness(samples[i]);
    uint64_t least = sum;
    size_t at = 0;
    for (size_t i = CUT_WINDOW; i < n; i++) {
        sum += loudness(samples[i]) - loudness(samples[i - CUT_WINDOW]);
        if (sum >= least) continue;
        least = sum;
        at = i - CUT_WINDOW + 1;
    }
    return at;
}

static size_t nearest_to_zero(const float *samples, size_t n) {
    size_t at = 0;
    for (size_t i = 1; i < n; i++)
        if (fabsf(samples[i]) < fabsf(samples[at])) at = i;
    return at;
}

size_t cut_quietest(const float *samples, size_t n) {
    assert(n >= CUT_WINDOW);
    const size_t window = quietest_window(samples, n);
    return window + nearest_to_zero(samples + window, CUT_WINDOW);
}

size_t cut_search(size_t limit) { return limit / 2 < CUT_SEARCH ? limit / 2 : CUT_SEARCH; }

size_t cut_find(const float *samples, size_t n, size_t limit) {
    assert(limit > 0 && n > limit);
    const size_t search = cut_search(limit);
    size_t from = limit - search, to = n - limit < search ? n : limit + search;
    if (to - from <= CUT_WINDOW) return limit;
    return from + cut_quietest(samples + from, to - from);
}

/* ---- silence ---- */

enum {
    BLOCK = SILENCE_BLOCK,
    LOUD_BLOCKS = 2,  /* a click is one */
    QUIET_BLOCKS = 15 /* pauses between words are shorter */
};

#define BACKGROUND_START -50.0
#define BACKGROUND_LEAST -67.0
#define BACKGROUND_RISE  ((double)BLOCK / CUT_RATE) /* dB a block: 1 a second */
#define LOUD_ABOVE       12.0
#define QUIET_ABOVE      8.0
#define LOUD_LEVEL       -55.0
#define QUIET_LEVEL      -60.0
#define SILENT_LEVEL     -120.0 /* lower than the quietest step of 16 bits */

void silence_gate_start(struct silence_gate *g) {
    *g = (struct silence_gate){ .background = BACKGROUND_START };
}

/* dB of full scale of the block that is complete. */
static double block_level(const struct silence_gate *g) {
    double mean = g->sum / BLOCK, energy = g->squares / BLOCK - mean * mean;
    return energy > 1e-12 ? 10 * log10(energy) : SILENT_LEVEL;
}

/* Whether the block turned silence into sound or back. */
static bool end_block(struct silence_gate *g) {
    double level = block_level(g), above = level - g->background;
    bool loud = above >= LOUD_ABOVE && level >= LOUD_LEVEL;
    bool quiet = above < QUIET_ABOVE || level < QUIET_LEVEL;
    bool was = g->sound;
    g->n_loud = loud ? g->n_loud + 1 : 0;
    g->n_quiet = quiet ? g->n_quiet + 1 : 0;
    if (g->n_loud >= LOUD_BLOCKS) g->sound = true;
    if (g->n_quiet >= QUIET_BLOCKS) g->sound = false;
    g->background = fmax(fmin(level, g->background + BACKGROUND_RISE), BACKGROUND_LEAST);
    g->sum = g->squares = 0;
    g->n_block = 0;
    return g->sound != was;
}

size_t silence_gate_push(struct silence_gate *g, const float *samples, size_t n) {
    for (size_t i = 0; i < n; i++) {
        double sample = (double)samples[i];
        g->sum += sample;
        g->squares += sample * sample;
        if (++g->n_block == BLOCK && end_block(g)) return i + 1;
    }
    return n;
}

size_t silence_gate_quiet(const struct silence_gate *g) { return (size_t)g->n_quiet * BLOCK; }
