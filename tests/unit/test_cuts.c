/* Cuts of long recordings against a plain search. */
#include "asr/cuts.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SECOND ((size_t)CUT_RATE)

static uint32_t seed;

/* In [-1, 1], of 16 bits. */
static float noise(void) {
    seed = seed * 1664525u + 1013904223u;
    return (float)((int)(seed >> 16) - 32768) / 32768.0f;
}

static float *recording(size_t n, float amplitude) {
    float *out = calloc(n + 1, sizeof *out);
    assert_non_null(out);
    seed = 7;
    for (size_t i = 0; i < n; i++)
        out[i] = amplitude * noise();
    return out;
}

static void silence(float *samples, size_t from, size_t n) {
    memset(samples + from, 0, n * sizeof *samples);
}

static void the_cut_lies_in_the_pause_near_the_limit(void **state) {
    (void)state;
    const size_t limit = 30 * SECOND, n = 60 * SECOND;
    const size_t pauses[] = { 25 * SECOND + 10, 29 * SECOND, 34 * SECOND + 12000 };
    for (size_t i = 0; i < sizeof pauses / sizeof *pauses; i++) {
        float *samples = recording(n, 0.5f);
        silence(samples, 20 * SECOND, SECOND); /* deeper, but too far away */
        silence(samples, 36 * SECOND, SECOND);
        silence(samples, pauses[i], 1700);
        assert_int_equal(cut_find(samples, n, limit), pauses[i]);
        free(samples);
    }
}

static void of_equal_pauses_the_earliest_is_taken(void **state) {
    (void)state;
    const size_t limit = 30 * SECOND, n = 60 * SECOND;
    float *samples = recording(n, 1e3f); /* whatever was added up before must have left nothing */
    silence(samples, 28 * SECOND, 1600);
    silence(samples, 31 * SECOND, 8000);
    assert_int_equal(cut_find(samples, n, limit), 28 * SECOND);
    silence(samples, 0, n);
    assert_int_equal(cut_find(samples, n, limit), 25 * SECOND);
    free(samples);
}

/* The rule as it is written, with sums that are exact: 16 bit samples. */
static size_t plain_cut(const float *samples, size_t n, size_t limit) {
    size_t search = limit / 2 < CUT_SEARCH ? limit / 2 : CUT_SEARCH, best = 0;
    size_t from = limit - search, to = limit + search < n ? limit + search : n;
    if (to - from <= CUT_WINDOW) return limit;
    double *sums = calloc(to - from + 1, sizeof *sums);
    assert_non_null(sums);
    for (size_t i = 0; i < to - from; i++)
        sums[i + 1] = sums[i] + fabs((double)samples[from + i]);
    for (size_t i = 0; i + CUT_WINDOW <= to - from; i++)
        if (sums[i + CUT_WINDOW] - sums[i] < sums[best + CUT_WINDOW] - sums[best]) best = i;
    size_t at = from + best;
    for (size_t i = from + best; i < from + best + CUT_WINDOW; i++)
        if (fabsf(samples[i]) < fabsf(samples[at])) at = i;
    free(sums);
    return at;
}

static void cuts_are_those_of_a_plain_search(void **state) {
    (void)state;
    static const size_t limits[] = {
        1, 100, 1599, 1601, 3200, 3202, 16000, 100000, 160000, 480000
    };
    const size_t n = 40 * SECOND;
    float *samples = recording(n, 0.25f);
    for (size_t i = 0; i < n; i++) /* so that windows differ */
        samples[i] = rintf(samples[i] * (1.5f + sinf((float)i / 3000)) * 32768) / 32768;
    for (size_t l = 0; l < sizeof limits / sizeof *limits; l++)
        for (size_t more = 1; more <= n - limits[l]; more = more * 7 + 3)
            assert_int_equal(cut_find(samples, limits[l] + more, limits[l]),
                             plain_cut(samples, limits[l] + more, limits[l]));
    free(samples);
}

static void what_lies_beyond_the_search_changes_nothing(void **state) {
    (void)state;
    const size_t limit = 10 * SECOND, n = 20 * SECOND;
    float *samples = recording(n, 0.5f);
    size_t cut = cut_find(samples, limit + CUT_SEARCH, limit);
    silence(samples, limit + CUT_SEARCH, n - limit - CUT_SEARCH);
    assert_int_equal(cut_find(samples, n, limit), cut);
    free(samples);
}

static void pieces_make_up_the_recording(void **state) {
    (void)state;
    static const size_t limits[] = { 1, 2, 3, 1000, 8000, 16000, 160000, 480000 };
    for (size_t l = 0; l < sizeof limits / sizeof *limits; l++) {
        size_t limit = limits[l], n = limit < 100 ? 5000 : 70 * SECOND + 123, at = 0;
        float *samples = recording(n, 0.5f);
        while (n - at > limit) {
            size_t piece = cut_find(samples + at, n - at, limit);
            assert_true(piece >= 1 && piece >= limit / 2);
            assert_true(piece <= limit + limit / 2 && piece <= limit + CUT_SEARCH);
            at += piece;
            assert_true(at < n);
        }
        free(samples);
    }
}

static void samples_of_any_size_are_survived(void **state) {
    (void)state;
    const size_t limit = 2 * SECOND, n = 4 * SECOND;
    float *samples = recording(n, 0.5f);
    for (size_t i = 0; i < n; i += 3)
        samples[i] = i % 2 ? NAN : INFINITY;
    size_t cut = cut_find(samples, n, limit);
    assert_true(cut >= limit / 2 && cut < limit + limit / 2);
    free(samples);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_cut_lies_in_the_pause_near_the_limit),
        cmocka_unit_test(of_equal_pauses_the_earliest_is_taken),
        cmocka_unit_test(cuts_are_those_of_a_plain_search),
        cmocka_unit_test(what_lies_beyond_the_search_changes_nothing),
        cmocka_unit_test(pieces_make_up_the_recording),
        cmocka_unit_test(samples_of_any_size_are_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
