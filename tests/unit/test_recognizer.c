/* Answers to a piece while it is heard, from a miniature of random weights: what it says means
 * nothing, but it must say the same whatever was kept of earlier answers. */
#define _DEFAULT_SOURCE
#include "asr/recognizer.h"
#include "support/speech_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    RATE = REEL_AUDIO_RATE,
    SECONDS = 20,
    N = SECONDS * RATE,
    WINDOW_FRAMES = 200,
    WINDOW_TOKENS = 26,
    MAX_TOKENS = 24
};

static struct speech_model speech;
static struct reel_error err;

static void require(enum reel_status status) {
    if (status != REEL_OK) fail_msg("%s: %s", reel_status_name(status), err.text);
}

static int enter(void **state) {
    (void)state;
    return speech_model_open(&speech, 2);
}

static int leave(void **state) {
    (void)state;
    return speech_model_close(&speech);
}

static struct recognizer *opened(void) {
    const struct recognizer_options options = { .most_samples = N, .max_tokens = MAX_TOKENS };
    struct recognizer *r = NULL;
    require(recognizer_open(&r, speech.model, &options, &err));
    return r;
}

static float *noise(float level) {
    float *samples = malloc(N * sizeof *samples);
    uint32_t state = 12345;
    assert_non_null(samples);
    for (size_t i = 0; i < N; i++) {
        state = state * 1664525u + 1013904223u;
        samples[i] = level * ((float)(int32_t)state / 2147483648.0f);
    }
    return samples;
}

/* An answer's ids, copied: the recognizer's are borrowed. */
struct kept {
    int32_t ids[MAX_TOKENS];
    int n_ids, n_reused;
};

static struct kept copy_of(const struct recognized *heard) {
    struct kept k = { .n_ids = heard->n_ids, .n_reused = heard->n_reused };
    assert_in_range(heard->n_ids, 1, MAX_TOKENS);
    memcpy(k.ids, heard->ids, (size_t)heard->n_ids * sizeof *k.ids);
    assert_int_equal(heard->ends[heard->n_ids - 1], heard->n_bytes);
    return k;
}

static struct kept whole(struct recognizer *r, const float *samples) {
    struct recognized heard;
    require(recognizer_run(r, samples, N, 1, &heard, &err));
    return copy_of(&heard);
}

/* Hears samples second by second, answers each time, and returns the last answer; n_reused[s] is
 * what the answer after second s needed not hear again. */
static struct kept growing(struct recognizer *r, const float *samples, int *n_reused) {
    struct recognized heard = { 0 };
    recognizer_begin(r);
    for (int s = 0; s < SECONDS; s++) {
        const struct recognizer_turn turn = { .max_tokens = 4, .last = false };
        const struct recognizer_turn last = { .last = true };
        require(recognizer_hear(r, samples + s * RATE, RATE, 1, &err));
        require(recognizer_answer(r, s == SECONDS - 1 ? &last : &turn, &heard, &err));
        n_reused[s] = heard.n_reused;
    }
    return copy_of(&heard);
}

static void assert_same(const struct kept *a, const struct kept *b) {
    assert_int_equal(a->n_ids, b->n_ids);
    assert_memory_equal(a->ids, b->ids, (size_t)a->n_ids * sizeof *a->ids);
}

/* Whole windows in the answer before that after second s: the last frames of a growing piece wait
 * for what comes after them. */
static int windows_before(int s) { return s == 0 ? 0 : (s * 100 - 2) / WINDOW_FRAMES; }

static void what_was_answered_before_changes_no_answer(void **state) {
    (void)state;
    struct recognizer *r = opened();
    float *samples = noise(0.3f);
    int n_reused[SECONDS];
    struct kept once = whole(r, samples), steps = growing(r, samples, n_reused);
    assert_same(&once, &steps);
    assert_int_equal(once.n_reused, 0);
    for (int s = 0; s < SECONDS; s++)
        assert_int_equal(n_reused[s], windows_before(s) * WINDOW_TOKENS);
    once = whole(r, samples);
    assert_same(&once, &steps);
    free(samples);
    recognizer_close(r);
}

/* Features have a floor 80 dB below the loudest, which a shout lifts. */
static void a_louder_sound_makes_quiet_windows_be_heard_again(void **state) {
    (void)state;
    struct recognizer *r = opened();
    float *samples = noise(0.00001f);
    int n_reused[SECONDS];
    const int shout = 18;
    for (int i = 0; i < RATE; i++)
        samples[shout * RATE + i] *= 80000;
    struct kept once = whole(r, samples), steps = growing(r, samples, n_reused);
    assert_same(&once, &steps);
    assert_int_equal(n_reused[shout - 1], windows_before(shout - 1) * WINDOW_TOKENS);
    assert_int_equal(n_reused[shout], 0);
    assert_int_equal(n_reused[shout + 1], windows_before(shout + 1) * WINDOW_TOKENS);
    free(samples);
    recognizer_close(r);
}

static void a_louder_sound_that_lifts_nothing_keeps_them(void **state) {
    (void)state;
    struct recognizer *r = opened();
    float *samples = noise(0.3f);
    int n_reused[SECONDS];
    for (int i = 0; i < RATE; i++)
        samples[18 * RATE + i] *= 3;
    struct kept once = whole(r, samples), steps = growing(r, samples, n_reused);
    assert_same(&once, &steps);
    assert_int_equal(n_reused[18], windows_before(18) * WINDOW_TOKENS);
    free(samples);
    recognizer_close(r);
}

static void an_answer_goes_on_from_ids_that_are_given(void **state) {
    (void)state;
    struct recognizer *r = opened();
    struct recognized heard;
    float *samples = noise(0.3f);
    char raw[4096];
    require(recognizer_run(r, samples, N, 1, &heard, &err));
    const struct kept once = copy_of(&heard);
    const size_t n_bytes = heard.n_bytes;
    assert_true(n_bytes < sizeof raw);
    memcpy(raw, heard.raw, n_bytes);
    for (int n = 1; n < once.n_ids; n++) {
        /* the recognizer's own list, as it is */
        const struct recognizer_turn turn = { .ids = heard.ids, .n_ids = n, .last = true };
        recognizer_begin(r);
        require(recognizer_hear(r, samples, N, 1, &err));
        require(recognizer_answer(r, &turn, &heard, &err));
        const struct kept rest = copy_of(&heard);
        assert_same(&once, &rest);
        assert_int_equal(heard.n_bytes, n_bytes);
        assert_memory_equal(heard.raw, raw, n_bytes);
    }
    free(samples);
    recognizer_close(r);
}

static void an_answer_is_no_longer_than_its_turn_allows(void **state) {
    (void)state;
    struct recognizer *r = opened();
    struct recognized heard;
    float *samples = noise(0.3f);
    const struct kept once = whole(r, samples);
    assert_true(once.n_ids > 6);
    for (int n = 0; n <= 5; n += 5) {
        const struct recognizer_turn turn = { .ids = once.ids, .n_ids = n, .max_tokens = 5 };
        recognizer_begin(r);
        require(recognizer_hear(r, samples, N, 1, &err));
        require(recognizer_answer(r, &turn, &heard, &err));
        assert_int_equal(heard.n_ids, 5);
        assert_true(heard.cut_short);
    }
    free(samples);
    recognizer_close(r);
}

static void zero_bytes_are_replaced_as_in_the_final_text(void **state) {
    (void)state;
    struct recognizer *r = opened();
    struct recognized heard;
    float *samples = noise(0.3f);
    int32_t ids[3];
    size_t n = 0;
    require(reel_encode(reel_model_tokenizer(speech.model), "a\0", 2, 0, ids, 3, &n, &err));
    assert_int_equal(n, 2);
    ids[2] = ids[1];
    const struct recognizer_turn turn = { .ids = ids, .n_ids = 3, .max_tokens = 3, .last = true };
    recognizer_begin(r);
    require(recognizer_hear(r, samples, N, 1, &err));
    require(recognizer_answer(r, &turn, &heard, &err));
    assert_int_equal(heard.n_bytes, 7);
    assert_memory_equal(heard.raw, "a\xef\xbf\xbd\xef\xbf\xbd", 7);
    assert_int_equal(heard.ends[1], 4);
    free(samples);
    recognizer_close(r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_answered_before_changes_no_answer),
        cmocka_unit_test(a_louder_sound_makes_quiet_windows_be_heard_again),
        cmocka_unit_test(a_louder_sound_that_lifts_nothing_keeps_them),
        cmocka_unit_test(an_answer_goes_on_from_ids_that_are_given),
        cmocka_unit_test(an_answer_is_no_longer_than_its_turn_allows),
        cmocka_unit_test(zero_bytes_are_replaced_as_in_the_final_text),
    };
    return cmocka_run_group_tests_name("the recognizer", tests, enter, leave);
}
