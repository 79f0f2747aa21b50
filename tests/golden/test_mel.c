/* Log-mel features against Hugging Face's extractor on 100 clips, which tools/make_mel_golden.py
 * makes from the same formulas. REEL_MEL_DUMP=FILE writes the features of all clips, for the
 * script's --compare. */
#include "audio/mel.h"
#include "support/golden.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define CLIPS     100
#define KINDS     12
#define ROWS      6
#define STEP      (1.0 / (1 << 17))
#define TOLERANCE 1e-4

/* 32 bits that look random, of 32 bits. */
static uint32_t mix(uint32_t x) {
    x ^= x >> 16;
    x *= 0x7feb352du;
    x ^= x >> 15;
    x *= 0x846ca68bu;
    return x ^ x >> 16;
}

static int length(int clip) {
    static const int edges[] = { 1,   2,   159,  160,  161,  199,   200,   201,   202,   319,
                                 320, 321, 399,  400,  401,  559,   560,   561,   639,   640,
                                 679, 680, 7999, 8000, 8001, 16000, 16159, 16160, 16161, 560000 };
    if (clip < (int)(sizeof edges / sizeof *edges)) return edges[clip];
    if (clip == CLIPS - 1) return 35 * 16000 + 77;
    return 300 + (int)(mix((uint32_t)clip * 9 + 1) % 64000);
}

static double noise(int clip, int i) {
    uint32_t bits = mix((uint32_t)i + (uint32_t)clip * 0x9e3779b9u);
    return (double)(bits >> 8) / 8388608.0 - 1.0;
}

static double wave(double turns) { return sin(2 * acos(-1.0) * (turns - floor(turns))); }

static double tone(double hz, int i) { return wave(hz * i / 16000.0); }

static double pcm16(double x) { return rint(x * 32767.0) / 32768.0; }

static double voice(int clip, int i) {
    double x = 0;
    for (int h = 1; h <= 20; h++)
        x = x + tone((95.0 + clip) * h, i) / h;
    return x * (0.2 - 0.2 * tone(3.0, i));
}

static double sample(int clip, int i, int n) {
    switch (clip % KINDS) {
    case 0:
        return 0;
    case 1:
        return 0.3;
    case 2:
        return 0.5 * noise(clip, i);
    case 3:
        return pcm16(0.001 * noise(clip, i));
    case 4:
        return 0.5 * tone(110.0 + 37.0 * clip, i);
    case 5:
        return 0.7 * wave(4000.0 * i * i / (16000.0 * n));
    case 6:
        return fmin(fmax(4.0 * tone(97.0 + clip, i), -1.0), 1.0);
    case 7:
        return noise(clip, i) < 0 ? -1.0 : 1.0;
    case 8:
        return i == n / 2;
    case 9:
        return pcm16(voice(clip, i) + 0.001 * noise(clip, i));
    case 10:
        return (i < 0.7 * n ? 0.0001 : 0.9) * noise(clip, i);
    default:
        return pcm16(0.1 + 0.02 * voice(clip, i));
    }
}

/* Features [MEL_BINS, *n_frames] of a clip; the caller frees. */
static float *features(struct mel *m, int clip, int *n_frames) {
    int n = length(clip);
    float *samples = malloc((size_t)n * sizeof *samples);
    assert_non_null(samples);
    for (int i = 0; i < n; i++)
        samples[i] = (float)sample(clip, i, n);
    mel_restart(m);
    assert_int_equal(mel_push(m, samples, (size_t)n, NULL), REEL_OK);
    assert_int_equal(mel_finish(m, clip % 2 ? MEL_LEAST_SAMPLES : 0, NULL), REEL_OK);
    free(samples);
    *n_frames = mel_frames(m);
    float *out = malloc((size_t)*n_frames * MEL_BINS * sizeof *out);
    assert_non_null(out);
    mel_write(m, 0, *n_frames, out);
    return out;
}

/* Of the k-th frame that the golden holds. */
static int stored_frame(int k, int n_frames) {
    if (n_frames <= ROWS || k == 0) return k;
    return k == ROWS - 1 ? n_frames - 1 : 1 + (n_frames - 2) * k / (ROWS - 1);
}

static double largest(double a, double b) { return b > a || isnan(b) ? b : a; }

static double row_error(const float *made, int frame, int n_frames, const int32_t *row) {
    double worst = 0;
    for (int bin = 0; bin < MEL_BINS; bin++)
        worst = largest(worst, fabs((double)made[bin * n_frames + frame] - row[bin] * STEP));
    return worst;
}

static double mean_error(const float *made, int n_frames, const float *means) {
    double worst = 0;
    for (int bin = 0; bin < MEL_BINS; bin++) {
        double sum = 0;
        for (int i = 0; i < n_frames; i++)
            sum += (double)made[bin * n_frames + i];
        worst = largest(worst, fabs(sum / n_frames - (double)means[bin]));
    }
    return worst;
}

static void features_of_a_hundred_clips_are_hugging_faces(void **state) {
    (void)state;
    struct golden golden;
    struct mel *m = NULL;
    const char *path = getenv("REEL_MEL_DUMP");
    FILE *dump = path ? fopen(path, "wb") : NULL;
    golden_open(&golden, "mel");
    assert_int_equal(mel_open(&m, 2, NULL), REEL_OK);
    int32_t *frames = golden_int(&golden, "frames"), *rows = golden_int(&golden, "rows");
    float *means = golden_f32(&golden, "means");
    int n_rows = golden_count(&golden, "rows") / MEL_BINS, row = 0;
    double worst = 0;
    for (int clip = 0; clip < CLIPS; clip++) {
        int n_frames = 0;
        float *made = features(m, clip, &n_frames);
        double error = 0;
        assert_int_equal(n_frames, frames[clip]);
        for (int k = 0; k < ROWS && k < n_frames; k++, row++) {
            assert_true(row < n_rows);
            error = largest(error, row_error(made, stored_frame(k, n_frames), n_frames,
                                             rows + (size_t)row * MEL_BINS));
        }
        error = largest(error, mean_error(made, n_frames, means + clip * MEL_BINS));
        if (!(error <= TOLERANCE)) fail_msg("clip %d is off by %g", clip, error);
        worst = largest(worst, error);
        if (dump) fwrite(made, sizeof *made, (size_t)n_frames * MEL_BINS, dump);
        free(made);
    }
    assert_int_equal(row, n_rows);
    print_message("stored frames and means differ by at most %.1e\n", worst);
    if (dump) fclose(dump);
    free(frames);
    free(rows);
    free(means);
    mel_close(m);
    golden_close(&golden);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(features_of_a_hundred_clips_are_hugging_faces),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
