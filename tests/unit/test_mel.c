/* Log-mel features: what the clip's ends, its maximum and its cutting into pushes do. Their values
 * are tests/golden/test_mel.c's business. */
#include "audio/mel.h"
#include "audio/mel_frames.h"
#include "base/cpu_features.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define ROOM 40000
#define LONG 200000 /* several rounds that threads share */

static float *allocate(size_t n) {
    float *out = malloc((n + 1) * sizeof *out);
    assert_non_null(out);
    return out;
}

static void fill(float *samples, int n, float amplitude) {
    uint32_t seed = 12345;
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        samples[i] = amplitude * ((float)(seed >> 8) / 8388608.0f - 1.0f);
    }
}

static struct mel *opened(void) {
    struct mel *m = NULL;
    struct reel_error err = { 0 };
    assert_int_equal(mel_open(&m, 2, &err), REEL_OK);
    return m;
}

/* All frames of a clip that comes in pushes of `piece` (0: of growing lengths); the caller frees.
 */
static float *features(struct mel *m, const float *samples, int n, int piece, size_t least) {
    int at = 0, some = piece ? piece : 1;
    while (at < n) {
        if (some > n - at) some = n - at;
        assert_int_equal(mel_push(m, samples + at, (size_t)some, NULL), REEL_OK);
        at += some;
        some = piece ? piece : some * 2 + 1;
    }
    assert_int_equal(mel_finish(m, least, NULL), REEL_OK);
    float *out = allocate((size_t)mel_frames(m) * MEL_BINS);
    mel_write(m, 0, mel_frames(m), out);
    return out;
}

static void any_cutting_into_pushes_gives_the_same_bits(void **state) {
    (void)state;
    static const int lengths[] = { 1, 200, 201, 399, 401, 4700, 5003, 16159, ROOM };
    static const int pieces[] = { 1, 7, 159, 160, 161, 400, 4495, 4496, 4497, 0 };
    static float samples[ROOM];
    struct mel *m = opened();
    fill(samples, ROOM, 0.5f);
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        mel_restart(m);
        float *whole = features(m, samples, lengths[l], ROOM, 0);
        int n_frames = mel_frames(m);
        for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
            mel_restart(m);
            float *cut = features(m, samples, lengths[l], pieces[p], 0);
            assert_int_equal(mel_frames(m), n_frames);
            assert_memory_equal(cut, whole, (size_t)n_frames * MEL_BINS * sizeof *cut);
            free(cut);
        }
        free(whole);
    }
    mel_close(m);
}

static void threads_change_no_bit(void **state) {
    (void)state;
    static float samples[LONG];
    struct mel *one = NULL, *three = NULL;
    fill(samples, LONG, 0.5f);
    assert_int_equal(mel_open(&one, 1, NULL), REEL_OK);
    assert_int_equal(mel_open(&three, 3, NULL), REEL_OK);
    float *a = features(one, samples, LONG, LONG, 0), *b = features(three, samples, LONG, LONG, 0);
    assert_int_equal(mel_frames(one), mel_frames(three));
    assert_memory_equal(a, b, (size_t)mel_frames(one) * MEL_BINS * sizeof *a);
    free(a);
    free(b);
    mel_close(one);
    mel_close(three);
}

static void frames_are_ready_as_soon_as_their_samples_are(void **state) {
    (void)state;
    static float samples[ROOM];
    struct mel *m = opened();
    fill(samples, ROOM, 0.5f);
    assert_int_equal(mel_push(m, samples, 200, NULL), REEL_OK);
    assert_int_equal(mel_frames(m), 0); /* the reflection takes sample 200 */
    assert_int_equal(mel_push(m, samples + 200, 1, NULL), REEL_OK);
    assert_int_equal(mel_frames(m), 1);
    assert_int_equal(mel_push(m, samples + 201, 158, NULL), REEL_OK);
    assert_int_equal(mel_frames(m), 1);
    assert_int_equal(mel_push(m, samples + 359, 1, NULL), REEL_OK);
    assert_int_equal(mel_frames(m), 2);
    mel_close(m);
}

static void silence_is_minus_one_and_a_half(void **state) {
    (void)state;
    static const float zeros[16000];
    struct mel *m = opened();
    float *out = features(m, zeros, 16000, 999, 0);
    assert_int_equal(mel_frames(m), 100);
    for (int i = 0; i < 100 * MEL_BINS; i++)
        assert_true(fabsf(out[i] + 1.5f) < 1e-6f);
    assert_true(mel_floor(m) == -18.0f);
    free(out);
    mel_close(m);
}

static void short_clips_are_padded_and_empty_ones_only_when_asked(void **state) {
    (void)state;
    static const struct {
        int n;
        size_t least;
        int n_frames;
    } cases[] = { { 0, 0, 0 },       { 0, 8000, 50 }, { 0, 1, 0 },        { 1, 0, 1 },
                  { 160, 0, 1 },     { 200, 0, 1 },   { 201, 0, 1 },      { 319, 0, 1 },
                  { 320, 0, 2 },     { 1, 8000, 50 }, { 7999, 8000, 50 }, { 8000, 8000, 50 },
                  { 8160, 8000, 51 } };
    static float samples[ROOM];
    struct mel *m = opened();
    fill(samples, ROOM, 0.5f);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        mel_restart(m);
        free(features(m, samples, cases[i].n, ROOM, cases[i].least));
        assert_int_equal(mel_frames(m), cases[i].n_frames);
    }
    mel_close(m);
}

static void padding_is_the_same_as_zeros(void **state) {
    (void)state;
    static float samples[MEL_LEAST_SAMPLES];
    struct mel *m = opened();
    fill(samples, 3000, 0.5f);
    float *padded = features(m, samples, 3000, ROOM, MEL_LEAST_SAMPLES);
    mel_restart(m);
    float *written = features(m, samples, MEL_LEAST_SAMPLES, ROOM, 0);
    assert_memory_equal(padded, written, 50 * MEL_BINS * sizeof *padded);
    free(padded);
    free(written);
    mel_close(m);
}

/* The floor is 8 below the loudest of the clip: a loud second lifts the quiet one before it. */
static void a_louder_sound_later_lifts_what_was_written_before(void **state) {
    (void)state;
    static float quiet[16000], loud[16000], before[90 * MEL_BINS], after[90 * MEL_BINS];
    struct mel *m = opened();
    fill(quiet, 16000, 1e-5f);
    fill(loud, 16000, 1.0f);
    assert_int_equal(mel_push(m, quiet, 16000, NULL), REEL_OK);
    float before_floor = mel_floor(m);
    mel_write(m, 0, 90, before);
    assert_int_equal(mel_push(m, loud, 16000, NULL), REEL_OK);
    assert_true(mel_floor(m) > before_floor + 8);
    mel_write(m, 0, 90, after);
    for (int i = 0; i < 90 * MEL_BINS; i++) {
        assert_true(after[i] > before[i]);
        assert_true(after[i] == (mel_floor(m) + 4) / 4);
    }
    mel_close(m);
}

static void a_part_is_written_as_in_the_whole(void **state) {
    (void)state;
    static float samples[ROOM], part[37 * MEL_BINS];
    struct mel *m = opened();
    fill(samples, ROOM, 0.5f);
    float *whole = features(m, samples, ROOM, ROOM, 0);
    int n_frames = mel_frames(m);
    mel_write(m, 101, 37, part);
    for (int bin = 0; bin < MEL_BINS; bin++)
        assert_memory_equal(part + bin * 37, whole + bin * n_frames + 101, 37 * sizeof *part);
    free(whole);
    mel_close(m);
}

static void what_is_no_number_is_refused_whole(void **state) {
    (void)state;
    static float samples[ROOM];
    const float bad[] = { NAN, INFINITY, -INFINITY, 2e12f };
    struct mel *m = opened();
    fill(samples, ROOM, 0.5f);
    float *want = features(m, samples, 5000, ROOM, 0);
    int n_frames = mel_frames(m);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct reel_error err = { 0 };
        float saved = samples[4999];
        mel_restart(m);
        assert_int_equal(mel_push(m, samples, 3000, NULL), REEL_OK);
        samples[4999] = bad[i];
        assert_int_equal(mel_push(m, samples + 3000, 2000, &err), REEL_E_ARGUMENT);
        assert_non_null(strstr(err.text, "sample 4999 is"));
        samples[4999] = saved;
        float *made = features(m, samples + 3000, 2000, ROOM, 0);
        assert_memory_equal(made, want, (size_t)n_frames * MEL_BINS * sizeof *made);
        free(made);
    }
    free(want);
    mel_close(m);
}

static void nothing_follows_the_end_but_a_restart(void **state) {
    (void)state;
    static float samples[ROOM];
    struct mel *m = opened();
    fill(samples, ROOM, 0.5f);
    float *first = features(m, samples, 5000, ROOM, 0);
    assert_int_equal(mel_push(m, samples, 1, NULL), REEL_E_STATE);
    assert_int_equal(mel_finish(m, 0, NULL), REEL_E_STATE);
    mel_restart(m);
    free(features(m, samples + 999, 30000, ROOM, 0));
    mel_restart(m);
    float *again = features(m, samples, 5000, ROOM, 0);
    assert_memory_equal(first, again, 31 * MEL_BINS * sizeof *first);
    free(first);
    free(again);
    mel_close(m);
}

/* log10 of a bin by the definition, in long double sums. */
static double bin_by_definition(const struct mel_tables *t, const float *samples, int bin) {
    long double turn = 2 * acosl(-1.0L) / MEL_WINDOW, sum = 0;
    const struct mel_filter *filter = t->filters + bin;
    for (int k = filter->first; k < filter->first + filter->n; k++) {
        long double re = 0, im = 0;
        for (int i = 0; i < MEL_WINDOW; i++) {
            long double x = samples[i] * (0.5L - 0.5L * cosl(turn * i));
            re += x * cosl(turn * (i * k % MEL_WINDOW));
            im -= x * sinl(turn * (i * k % MEL_WINDOW));
        }
        sum += (re * re + im * im) * t->weights[filter->at + k - filter->first];
    }
    return log10((double)(sum > 1e-10L ? sum : 1e-10L));
}

static void frames_are_what_the_definition_says(void **state) {
    (void)state;
    static struct mel_tables t;
    static float samples[MEL_READ], logs[MEL_LANES * MEL_BINS];
    mel_tables_make(&t);
    fill(samples, MEL_READ, 0.01f);
    for (int i = 0; i < MEL_READ; i++)
        samples[i] += sinf(0.3f * (float)i); /* loud beside quiet */
    mel_frames_portable(&t, samples, logs);
    for (int lane = 0; lane < MEL_LANES; lane++)
        for (int bin = 0; bin < MEL_BINS; bin += 5) {
            double want = bin_by_definition(&t, samples + (size_t)lane * MEL_HOP, bin);
            assert_true(fabs((double)logs[lane * MEL_BINS + bin] - want) < 2e-6);
        }
}

static void every_instruction_set_gives_the_same_bits(void **state) {
    (void)state;
    struct cpu_features features;
    cpu_features_detect(&features);
    if (!features.avx2) skip();
#ifdef __x86_64__
    static struct mel_tables t;
    static float samples[ROOM + MEL_READ], logs[2][MEL_LANES * MEL_BINS];
    mel_tables_make(&t);
    fill(samples, ROOM + MEL_READ, 0.7f);
    for (int at = 0; at < ROOM; at += 641) {
        mel_frames_portable(&t, samples + at, logs[0]);
        mel_frames_avx2(&t, samples + at, logs[1]);
        assert_memory_equal(logs[0], logs[1], sizeof logs[0]);
    }
#endif
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_cutting_into_pushes_gives_the_same_bits),
        cmocka_unit_test(threads_change_no_bit),
        cmocka_unit_test(frames_are_ready_as_soon_as_their_samples_are),
        cmocka_unit_test(silence_is_minus_one_and_a_half),
        cmocka_unit_test(short_clips_are_padded_and_empty_ones_only_when_asked),
        cmocka_unit_test(padding_is_the_same_as_zeros),
        cmocka_unit_test(a_louder_sound_later_lifts_what_was_written_before),
        cmocka_unit_test(a_part_is_written_as_in_the_whole),
        cmocka_unit_test(what_is_no_number_is_refused_whole),
        cmocka_unit_test(nothing_follows_the_end_but_a_restart),
        cmocka_unit_test(frames_are_what_the_definition_says),
        cmocka_unit_test(every_instruction_set_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
