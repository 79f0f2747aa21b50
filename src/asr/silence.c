#include "asr/silence.h"

#include <math.h>
#include <string.h>

enum {
    PIECE = 40,      /* samples whose mean is taken away: what is slower is no speech */
    TENTH = 10,      /* lie under the floor, and over the ceiling */
    PIECES_A_S = 10, /* of 100 ms */
    FREE_AFTER = 10 * PIECES_A_S
};

#define FLOOR_LEAST  -80.0
#define FLOOR_START  -65.0
#define FLOOR_RISE   10.0 /* dB a second in which nothing is known yet */
#define QUIET_ABOVE  8.0
#define QUIET_UNDER  30.0
#define SILENT_ABOVE 6.0
#define SILENT_LEVEL -45.0
#define STRICT_ABOVE 12.0
#define STRICT_LEVEL -55.0
#define STRICT_QUIET -60.0
#define LEAST_LEVEL  -120.0 /* lower than the quietest step of 16 bits */
#define LEAST_ENERGY 1e-12

void silence_gate_start(struct silence_gate *g, bool strict) {
    *g = (struct silence_gate){ .strict = strict, .floor = FLOOR_START, .ceiling = LEAST_LEVEL };
}

/* ---- levels ---- */

static double level_of(double energy) {
    return energy > LEAST_ENERGY ? 10 * log10(energy) : LEAST_LEVEL;
}

/* Of PIECE samples, about their mean. Four sums, for one would wait for itself. */
static double piece_energy(const float *samples) {
    double sums[4] = { 0 }, squares[4] = { 0 };
    for (int i = 0; i < PIECE; i += 4)
        for (int k = 0; k < 4; k++) {
            const double x = (double)samples[i + k];
            sums[k] += x;
            squares[k] += x * x;
        }
    const double sum = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    const double square = (squares[0] + squares[1]) + (squares[2] + squares[3]);
    return square - sum * sum / PIECE;
}

/* Mean energy of a sample of the block. */
static double block_energy(const struct silence_gate *g) {
    double energy = 0;
    for (int i = 0; i < SILENCE_BLOCK; i += PIECE)
        energy += piece_energy(g->block + i);
    return energy / SILENCE_BLOCK;
}

/* Where a level stands, or is to stand, among n that are in order. */
static int place(const double *ordered, int n, double level) {
    int at = 0;
    while (at < n && ordered[at] < level)
        at++;
    return at;
}

static void remember(struct gate_levels *l, double level) {
    double *const ordered = l->ordered;
    if (l->n == GATE_LEVELS) {
        const int gone = place(ordered, l->n, l->ring[l->oldest]);
        l->n--;
        memmove(ordered + gone, ordered + gone + 1, (size_t)(l->n - gone) * sizeof *ordered);
    }
    const int at = place(ordered, l->n, level);
    memmove(ordered + at + 1, ordered + at, (size_t)(l->n - at) * sizeof *ordered);
    ordered[at] = level;
    l->n++;
    l->ring[l->oldest] = level;
    l->oldest = (l->oldest + 1) % GATE_LEVELS;
}

/* 100 ms are complete. */
static void end_piece(struct silence_gate *g) {
    remember(&g->leasts, level_of(g->least));
    remember(&g->means, level_of(g->energy / GATE_LEVEL_BLOCKS));
    g->n_energy = 0;
    const int tenth = g->leasts.n / TENTH;
    g->floor = g->leasts.ordered[tenth];
    g->ceiling = g->means.ordered[g->means.n - 1 - tenth];
    if (g->n_heard < FREE_AFTER) {
        g->n_heard++;
        g->floor = fmin(g->floor, FLOOR_START + FLOOR_RISE * g->n_heard / PIECES_A_S);
    }
    g->floor = fmax(g->floor, FLOOR_LEAST);
}

/* ---- blocks ---- */

static bool is_quiet(const struct silence_gate *g, double level) {
    if (g->strict && level < STRICT_QUIET) return true;
    return level < g->floor + QUIET_ABOVE || level < g->ceiling - QUIET_UNDER;
}

static bool is_loud(const struct silence_gate *g, double level) {
    if (g->strict && (level < g->floor + STRICT_ABOVE || level < STRICT_LEVEL)) return false;
    return !is_quiet(g, level);
}

static bool is_silent(const struct silence_gate *g, double level) {
    if (g->strict) return !is_loud(g, level);
    return level < g->floor + SILENT_ABOVE && level < SILENT_LEVEL;
}

static void end_block(struct silence_gate *g) {
    const double energy = block_energy(g), level = level_of(energy);
    g->n_loud = is_loud(g, level) ? g->n_loud + 1 : 0;
    g->n_quiet = is_quiet(g, level) ? g->n_quiet + 1 : 0;
    g->n_not_silent = is_silent(g, level) ? 0 : g->n_not_silent + 1;
    g->n_silent = g->n_not_silent < 2 ? g->n_silent + 1 : 0;
    g->n_block = 0;
    g->energy = g->n_energy ? g->energy + energy : energy;
    g->least = g->n_energy ? fmin(g->least, energy) : energy;
    if (++g->n_energy == GATE_LEVEL_BLOCKS) end_piece(g);
}

size_t silence_gate_push(struct silence_gate *g, const float *samples, size_t n) {
    const size_t room = SILENCE_BLOCK - (size_t)g->n_block;
    if (n > room) n = room;
    memcpy(g->block + g->n_block, samples, n * sizeof *samples);
    g->n_block += (int)n;
    if (g->n_block == SILENCE_BLOCK) end_block(g);
    return n;
}
