#include "asr/cuts.h"

#include <assert.h>
#include <math.h>
#include <stdint.h>

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
