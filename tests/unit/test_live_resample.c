/* The resampler of what is heard live, against what sines are. */
#include "audio/live_resample.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SAMPLES = 24000 };
#define PI 3.14159265358979323846

static struct reel_error err;

/* All of n samples, given `piece` at a time with `room` for answers; *late: the most samples by
 * which the output was behind, in milliseconds. */
static size_t resample(int rate, const float *in, size_t n, size_t piece, size_t room, float *out,
                       double *late) {
    struct live_resample *r = NULL;
    size_t given = 0, taken = 0;
    assert_int_equal(live_resample_open(&r, rate, &err), REEL_OK);
    for (size_t at = 0; at < n;) {
        const size_t some = n - at < piece ? n - at : piece;
        size_t now = 0, more = 0;
        do {
            live_resample_run(r, in + at, some - now, &taken, out + given, room, &more);
            assert_true(taken <= some - now && more <= room);
            at += taken;
            now += taken;
            given += more;
        } while (now < some || more == room);
        const double ms = (double)at * 1e3 / rate - (double)given / 16;
        if (late && ms > *late) *late = ms;
    }
    for (size_t more = 1; more > 0; given += more)
        live_resample_run(r, NULL, 0, &taken, out + given, room, &more);
    live_resample_close(r);
    return given;
}

static const int rates[] = { 8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000 };
enum { N_RATES = sizeof rates / sizeof *rates };

static void sine(float *out, size_t n, int rate, double hz) {
    for (size_t i = 0; i < n; i++)
        out[i] = (float)sin(2 * PI * hz * (double)i / rate);
}

static void a_sine_stays_one_and_soon(void **state) {
    static float in[SAMPLES], out[3 * SAMPLES];
    (void)state;
    for (int i = 0; i < N_RATES; i++) {
        const double highest = rates[i] < 16000 ? rates[i] * 0.44 : 7000;
        for (double hz = 100; hz <= highest; hz += (highest - 100) / 4) {
            double late = 0, worst = 0;
            sine(in, SAMPLES, rates[i], hz);
            const size_t n = resample(rates[i], in, SAMPLES, 97, 4000, out, &late);
            assert_int_equal(n,
                             ((size_t)SAMPLES * 16000 + (size_t)rates[i] - 1) / (size_t)rates[i]);
            for (size_t k = 200; k < n - 200; k++)
                worst = fmax(worst, fabs(out[k] - sin(2 * PI * hz * (double)k / 16000)));
            if (worst > 4e-4) fail_msg("%d Hz, sine of %g Hz: off by %g", rates[i], hz, worst);
            const double most = rates[i] < 16000 ? 6.1 : 3.2;
            if (late > most) fail_msg("%d Hz: %g ms late", rates[i], late);
        }
    }
}

static void what_16000_hz_cannot_hold_is_gone(void **state) {
    static float in[SAMPLES], out[SAMPLES];
    (void)state;
    for (int i = 0; i < N_RATES; i++)
        for (double hz = 8500; hz < rates[i] * 0.49; hz += 700) {
            double worst = 0;
            sine(in, SAMPLES, rates[i], hz);
            const size_t n = resample(rates[i], in, SAMPLES, 1000, 4000, out, NULL);
            for (size_t k = 200; k < n - 200; k++)
                worst = fmax(worst, fabs(out[k]));
            if (worst > 2e-4) fail_msg("%d Hz, sine of %g Hz: %g is left", rates[i], hz, worst);
        }
}

static void the_same_samples_come_however_they_are_cut(void **state) {
    static float in[5000], once[11000], again[11000];
    uint32_t seed = 1;
    (void)state;
    for (size_t i = 0; i < 5000; i++) {
        seed = seed * 1664525u + 1013904223u;
        in[i] = (float)(seed >> 8) / (1 << 23) - 1;
    }
    for (int i = 0; i < N_RATES; i++) {
        const size_t n = resample(rates[i], in, 5000, 5000, 11000, once, NULL);
        for (size_t piece = 1; piece < 4000; piece = piece * 5 + 3) {
            assert_int_equal(resample(rates[i], in, 5000, piece, piece % 7 + 1, again, NULL), n);
            assert_memory_equal(once, again, n * sizeof *once);
        }
    }
}

static void short_inputs_and_other_rates(void **state) {
    static const int others[] = { 0, -24000, 7999, 8001, 96000 };
    float in[4] = { 1, 1, 1, 1 }, out[16];
    struct live_resample *r = NULL;
    (void)state;
    for (size_t n = 0; n <= 4; n++)
        assert_int_equal(resample(24000, in, n, 1, 16, out, NULL), (n * 2 + 2) / 3);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_int_equal(live_resample_open(&r, others[i], &err), REEL_E_ARGUMENT);
        assert_null(r);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_sine_stays_one_and_soon),
        cmocka_unit_test(what_16000_hz_cannot_hold_is_gone),
        cmocka_unit_test(the_same_samples_come_however_they_are_cut),
        cmocka_unit_test(short_inputs_and_other_rates),
    };
    return cmocka_run_group_tests_name("resampling live", tests, NULL, NULL);
}
