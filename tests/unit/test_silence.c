/* The gate that tells sound from pauses and silence, over noises of many kinds. */
#include "asr/silence.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RATE = 16000 };

/* ---- sounds ---- */

static uint32_t seed;

/* In [-1, 1], of 16 bits. */
static double noise(void) {
    seed = seed * 1664525u + 1013904223u;
    return (int)(seed >> 16) / 32768.0 - 1;
}

static double amplitude(double level) { return pow(10, level / 20); }

/* White noise of a level in dB of full scale; noise() has a variance of 1/3. */
static float hiss(double level) { return (float)(sqrt(3) * amplitude(level) * noise()); }

/* ---- the gate ---- */

static struct silence_gate gate;

static void start(bool strict) {
    seed = 7;
    silence_gate_start(&gate, strict);
}

static void push(const float *samples, size_t n) {
    for (size_t at = 0; at < n;)
        at += silence_gate_push(&gate, samples + at, n - at);
}

/* Seconds of white noise. */
static void push_hiss(double seconds, double level) {
    for (size_t i = 0; i < (size_t)(seconds * RATE + 0.5); i++) {
        const float x = hiss(level);
        push(&x, 1);
    }
}

static double quiet_s(void) { return (double)silence_gate_quiet(&gate) / RATE; }
static double silent_s(void) { return (double)silence_gate_silent(&gate) / RATE; }

static void assert_seconds(double found, double wanted) {
    if (fabs(found - wanted) > 0.021) fail_msg("%.3f s instead of %.3f s", found, wanted);
}

static void sound_begins_within_40_ms(void **state) {
    (void)state;
    for (int strict = 0; strict < 2; strict++) {
        start(strict);
        push_hiss(1, -80);
        assert_seconds(silent_s(), 1);
        push_hiss(0.02, -30);
        assert_false(silence_gate_sounds(&gate));
        push_hiss(0.02, -30);
        assert_true(silence_gate_sounds(&gate));
        assert_true(quiet_s() == 0 && silent_s() == 0);
        push_hiss(3, -30);
        assert_true(silence_gate_sounds(&gate));
        push_hiss(0.3, -80);
        assert_seconds(quiet_s(), 0.3);
        assert_seconds(silent_s(), 0.3);
    }
}

static void a_click_is_silent_and_no_sound(void **state) {
    (void)state;
    start(false);
    push_hiss(1, -80);
    for (int i = 0; i < 10; i++) {
        push_hiss(0.02, -10);
        assert_false(silence_gate_sounds(&gate));
        push_hiss(0.1, -80);
    }
    assert_seconds(silent_s(), 2.2);
    assert_seconds(quiet_s(), 0.1);
}

/* After the first seconds, and of a noise that has just begun after eight. */
static void a_steady_noise_is_silent_up_to_a_level(void **state) {
    (void)state;
    static const struct {
        double level;
        bool silent;
    } noises[] = { { -120, true }, { -96, true },  { -76, true }, { -60, true },
                   { -48, true },  { -40, false }, { -30, false } };
    for (size_t i = 0; i < sizeof noises / sizeof *noises; i++) {
        start(false);
        push_hiss(6, noises[i].level);
        push_hiss(1, -10); /* speech over it is heard */
        assert_true(silence_gate_sounds(&gate) && quiet_s() == 0);
        push_hiss(2, noises[i].level);
        assert_seconds(quiet_s(), 2);
        assert_seconds(silent_s(), noises[i].silent ? 2 : 0);
    }
    start(false);
    push_hiss(5, -80);
    push_hiss(2, -50);
    assert_true(quiet_s() == 0);
    push_hiss(8, -50);
    assert_true(quiet_s() > 2 && silent_s() > 2);
}

/* Mains hum with its harmonics, rumble, and a noise that swells by 12 dB, all beside speech. */
static void hum_rumble_and_changing_noise_are_quiet_beside_speech(void **state) {
    (void)state;
    const double pi = acos(-1);
    for (int kind = 0; kind < 3; kind++) {
        double rumble = 0;
        start(false);
        for (int i = 0; i < 20 * RATE; i++) {
            const double t = (double)i / RATE;
            double x = 0;
            if (kind == 0)
                x = amplitude(-50) * (sin(2 * pi * 50 * t) + 0.3 * sin(2 * pi * 150 * t));
            if (kind == 1) x = rumble = 0.995 * rumble + 0.1 * amplitude(-45) * noise();
            if (kind == 2) x = (double)hiss(-63 + 6 * sin(2 * pi * t / 5));
            const bool speaks = i % (4 * RATE) < RATE;
            if (speaks && i % 4000 < 3000) x += (double)hiss(-25);
            const float sample = (float)x;
            push(&sample, 1);
            if (i > 4 * RATE && i % (4 * RATE) == 4 * RATE - 1 && quiet_s() < 2.9)
                fail_msg("kind %d: %.2f s are quiet after %d s", kind, quiet_s(), i / RATE + 1);
            if (speaks && i % 4000 == 2999) assert_true(quiet_s() == 0);
        }
    }
}

/* A voice 35 dB under another is quiet beside it, and never silent. */
static void a_distant_voice_is_never_silent(void **state) {
    (void)state;
    start(false);
    for (int i = 0; i < 10; i++) {
        push_hiss(0.4, -20);
        push_hiss(0.1, -75);
    }
    for (int i = 0; i < 10; i++) {
        push_hiss(0.4, -56);
        assert_true(silent_s() == 0);
        push_hiss(0.1, -75);
    }
    assert_true(quiet_s() > 4);
}

/* Without having heard any pause. */
static void a_recording_may_begin_with_a_word(void **state) {
    (void)state;
    start(false);
    push_hiss(0.6, -30);
    assert_true(silence_gate_sounds(&gate) && quiet_s() == 0);
    push_hiss(0.3, -70);
    assert_seconds(quiet_s(), 0.3);
}

/* Packets that were lost are zeros: a tenth of a noise does not make the rest of it sound. */
static void gaps_in_a_noise_leave_the_floor(void **state) {
    (void)state;
    start(false);
    push_hiss(6, -55);
    for (int i = 0; i < 6; i++) {
        push_hiss(0.1, -120);
        push_hiss(1.4, -55);
    }
    assert_true(silent_s() > 10);
}

static void a_strict_gate_wants_more_to_call_it_sound(void **state) {
    (void)state;
    start(true);
    push_hiss(2, -62);
    push_hiss(0.5, -52); /* 10 dB over the floor */
    assert_false(silence_gate_sounds(&gate));
    assert_seconds(silent_s(), 2.5);
    assert_true(quiet_s() == 0);
    push_hiss(0.5, -40);
    assert_true(silence_gate_sounds(&gate) && silent_s() == 0);
    start(true);
    push_hiss(2, -90);
    push_hiss(1, -57); /* far over the floor */
    assert_seconds(silent_s(), 3);
}

static void a_constant_is_silence(void **state) {
    (void)state;
    static float samples[RATE];
    for (size_t i = 0; i < RATE; i++)
        samples[i] = 0.9f;
    start(false);
    push(samples, RATE);
    assert_seconds(silent_s(), 1);
}

static void blocks_are_judged_alike_however_samples_are_pushed(void **state) {
    (void)state;
    enum { N = 20 * RATE, BLOCKS = N / SILENCE_BLOCK };
    static const size_t pieces[] = { 1, 319, 320, 321, 5000 };
    static float samples[N];
    static struct {
        size_t quiet, silent;
        int loud;
    } judged[BLOCKS];
    seed = 7;
    for (size_t i = 0; i < N; i++)
        samples[i] = hiss(i / RATE % 3 ? -30 : -70);
    for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
        size_t block = 0;
        silence_gate_start(&gate, false);
        for (size_t at = 0; at < N;) {
            const size_t left = N - at;
            at += silence_gate_push(&gate, samples + at, left < pieces[p] ? left : pieces[p]);
            assert_int_equal(gate.n_block, at % SILENCE_BLOCK);
            if (gate.n_block != 0) continue;
            if (p == 0) {
                judged[block].quiet = gate.n_quiet;
                judged[block].silent = gate.n_silent;
                judged[block].loud = gate.n_loud;
            }
            assert_int_equal(gate.n_quiet, judged[block].quiet);
            assert_int_equal(gate.n_silent, judged[block].silent);
            assert_int_equal(gate.n_loud, judged[block].loud);
            block++;
        }
        assert_int_equal(block, BLOCKS);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sound_begins_within_40_ms),
        cmocka_unit_test(a_click_is_silent_and_no_sound),
        cmocka_unit_test(a_steady_noise_is_silent_up_to_a_level),
        cmocka_unit_test(hum_rumble_and_changing_noise_are_quiet_beside_speech),
        cmocka_unit_test(a_distant_voice_is_never_silent),
        cmocka_unit_test(a_recording_may_begin_with_a_word),
        cmocka_unit_test(gaps_in_a_noise_leave_the_floor),
        cmocka_unit_test(a_strict_gate_wants_more_to_call_it_sound),
        cmocka_unit_test(a_constant_is_silence),
        cmocka_unit_test(blocks_are_judged_alike_however_samples_are_pushed),
    };
    return cmocka_run_group_tests_name("silence", tests, NULL, NULL);
}
