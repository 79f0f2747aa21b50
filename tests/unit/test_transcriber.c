/* Recordings through a miniature speech model of random weights: how pieces, segments, callbacks
 * and failures behave. What it says means nothing; that it is right is
 * tests/golden/test_transcribe.c's. */
#define _DEFAULT_SOURCE
#include "base/file_map.h"
#include "reel_measure.h"
#include "support/small_tokenizer.h"
#include "support/speech_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define RATE REEL_AUDIO_RATE

static struct speech_model speech;
static struct reel_error err;

static void require(enum reel_status status) {
    if (status != REEL_OK) fail_msg("%s: %s", reel_status_name(status), err.text);
}

static int enter(void **state) {
    (void)state;
    return speech_model_open(&speech, 1);
}

static int leave(void **state) {
    (void)state;
    return speech_model_close(&speech);
}

/* Noise with a short silence every second. */
static float *noise(size_t n) {
    float *samples = malloc((n + 1) * sizeof *samples);
    uint32_t state = 12345;
    assert_non_null(samples);
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        float x = (float)(int32_t)state / 2147483648.0f;
        samples[i] = i % RATE < RATE / 8 ? 0 : 0.3f * x;
    }
    return samples;
}

struct listener {
    char text[40000];
    size_t n;
    int n_calls, last_segment, stop_after;
    int n_progress, stop_progress_after;
};

static bool on_text(void *user, const char *text, size_t n, int segment) {
    struct listener *l = user;
    assert_true(n > 0 && l->n + n < sizeof l->text);
    assert_true(segment >= l->last_segment);
    memcpy(l->text + l->n, text, n);
    l->n += n;
    l->text[l->n] = '\0';
    l->last_segment = segment;
    return ++l->n_calls != l->stop_after;
}

static bool on_progress(void *user, const char *stage, uint64_t done, uint64_t total) {
    struct listener *l = user;
    (void)done;
    assert_string_equal(stage, "transcribing");
    assert_int_equal(total, 0);
    return ++l->n_progress != l->stop_progress_after;
}

static struct reel_transcriber_options few_tokens(struct listener *l) {
    return (struct reel_transcriber_options){ .size = sizeof(struct reel_transcriber_options),
                                              .segment_seconds = 6,
                                              .max_tokens = 12,
                                              .on_text = l ? on_text : NULL,
                                              .user = l,
                                              .progress = l ? on_progress : NULL,
                                              .progress_user = l };
}

static struct reel_transcriber *start(const struct reel_transcriber_options *options) {
    struct reel_transcriber *t = NULL;
    require(reel_transcriber_open(&t, speech.model, options, &err));
    assert_non_null(t);
    return t;
}

static void push(struct reel_transcriber *t, const float *samples, size_t n, size_t piece) {
    for (size_t at = 0; at < n; at += piece)
        require(reel_transcriber_push(t, samples + at, n - at < piece ? n - at : piece, &err));
}

static struct reel_transcript finish(struct reel_transcriber *t) {
    struct reel_transcript out = { .size = sizeof out };
    require(reel_transcriber_finish(t, &out, &err));
    return out;
}

static void expect_same(const struct reel_transcript *a, const struct reel_transcript *b) {
    assert_string_equal(a->text, b->text);
    assert_int_equal(a->n_segments, b->n_segments);
    for (int i = 0; i < a->n_segments; i++) {
        const struct reel_segment *x = reel_transcript_segment(a, i),
                                  *y = reel_transcript_segment(b, i);
        assert_true(x->start == y->start && x->end == y->end);
        assert_int_equal(x->n_ids, y->n_ids);
        assert_memory_equal(x->ids, y->ids, (size_t)x->n_ids * sizeof *x->ids);
    }
}

/* ---- recordings ---- */

static void pieces_of_any_size_give_the_same_ids(void **state) {
    (void)state;
    const size_t n = 15 * RATE + 321, pieces[] = { n, 1000, RATE, 37777 };
    const struct reel_transcriber_options options = few_tokens(NULL);
    float *samples = noise(n);
    struct reel_transcriber *whole = start(&options);
    push(whole, samples, n, n);
    const struct reel_transcript expected = finish(whole);
    assert_in_range(expected.n_segments, 2, 5);
    for (size_t i = 1; i < sizeof pieces / sizeof *pieces; i++) {
        struct reel_transcriber *t = start(&options);
        push(t, samples, n, pieces[i]);
        const struct reel_transcript made = finish(t);
        expect_same(&expected, &made);
        reel_transcriber_close(t);
    }
    reel_transcriber_close(whole);
    free(samples);
}

static void segments_partition_the_recording_and_are_counted(void **state) {
    (void)state;
    const size_t n = 33 * RATE;
    const struct reel_transcriber_options options = few_tokens(NULL);
    float *samples = noise(n);
    struct reel_transcriber *t = start(&options);
    push(t, samples, n, RATE);
    const struct reel_transcript made = finish(t);
    double end = 0;
    int n_ids = 0;
    for (int i = 0; i < made.n_segments; i++) {
        assert_true(reel_transcript_segment(&made, i)->start == end &&
                    reel_transcript_segment(&made, i)->end > end);
        assert_true(reel_transcript_segment(&made, i)->end - end <= 11);
        end = reel_transcript_segment(&made, i)->end;
        n_ids += reel_transcript_segment(&made, i)->n_ids;
    }
    assert_true(end == 33 && made.seconds == 33);
    assert_int_equal(made.n_tokens, n_ids);
    assert_in_range(made.n_audio_tokens, 33 * 13, 33 * 13 + made.n_segments);
    assert_true(made.features_ms > 0 && made.encoder_ms > 0 && made.prompt_ms > 0 &&
                made.generate_ms > 0);
    reel_transcriber_close(t);
    free(samples);
}

static void each_segment_is_heard_as_a_clip_of_its_own(void **state) {
    (void)state;
    const size_t n = 25 * RATE;
    const struct reel_transcriber_options options = few_tokens(NULL);
    float *samples = noise(n);
    struct reel_transcriber *t = start(&options), *alone = start(&options);
    push(t, samples, n, RATE);
    const struct reel_transcript made = finish(t);
    int n_alike = 0;
    assert_true(made.n_segments >= 3);
    for (int i = 0; i < made.n_segments; i++) {
        const struct reel_segment *s = reel_transcript_segment(&made, i);
        size_t from = (size_t)(s->start * RATE + 0.5), to = (size_t)(s->end * RATE + 0.5);
        if (to - from > 6 * RATE) continue; /* above the limit: it would be cut again */
        push(alone, samples + from, to - from, 1000);
        const struct reel_transcript one = finish(alone);
        assert_int_equal(one.n_segments, 1);
        assert_int_equal(reel_transcript_segment(&one, 0)->n_ids, s->n_ids);
        assert_memory_equal(reel_transcript_segment(&one, 0)->ids, s->ids,
                            (size_t)s->n_ids * sizeof *s->ids);
        assert_string_equal(one.text, s->text);
        n_alike++;
    }
    assert_true(n_alike >= 2);
    reel_transcriber_close(alone);
    reel_transcriber_close(t);
    free(samples);
}

static void texts_given_to_the_callback_join_to_the_transcripts(void **state) {
    (void)state;
    const size_t n = 20 * RATE;
    struct listener l = { 0 };
    struct reel_transcriber_options options = few_tokens(&l);
    float *samples = noise(n);
    options.max_tokens = 60;
    struct reel_transcriber *t = start(&options);
    push(t, samples, n, RATE);
    const struct reel_transcript made = finish(t);
    assert_string_equal(l.text, made.text);
    assert_true(l.n_calls >= made.n_segments);
    assert_true(made.first_text_ms > 0);
    reel_transcriber_close(t);
    free(samples);
}

static void a_transcriber_takes_one_recording_after_the_other(void **state) {
    (void)state;
    const struct reel_transcriber_options options = few_tokens(NULL);
    float *samples = noise(4 * RATE);
    struct reel_transcriber *used = start(&options), *fresh = start(&options);
    push(used, samples + 777, 3 * RATE, RATE);
    (void)finish(used);
    push(used, samples, 3 * RATE, RATE);
    push(fresh, samples, 3 * RATE, RATE);
    const struct reel_transcript a = finish(used), b = finish(fresh);
    expect_same(&a, &b);
    push(used, samples + 5, RATE, RATE);
    reel_transcriber_reset(used); /* half a recording is forgotten */
    push(used, samples, 3 * RATE, RATE);
    const struct reel_transcript again = finish(used);
    expect_same(&again, &b);
    reel_transcriber_close(fresh);
    reel_transcriber_close(used);
    free(samples);
}

static void an_empty_recording_has_an_empty_transcript(void **state) {
    (void)state;
    const struct reel_transcriber_options options = few_tokens(NULL);
    struct reel_transcriber *t = start(&options);
    for (int i = 0; i < 2; i++) {
        const struct reel_transcript made = finish(t);
        assert_string_equal(made.text, "");
        assert_string_equal(made.language, "");
        assert_int_equal(made.n_segments, 0);
        assert_true(made.seconds == 0);
    }
    reel_transcriber_close(t);
}

static void a_single_sample_is_a_recording(void **state) {
    (void)state;
    const struct reel_transcriber_options options = few_tokens(NULL);
    struct reel_transcriber *t = start(&options);
    const float sample = 0.5f;
    push(t, &sample, 1, 1);
    const struct reel_transcript made = finish(t);
    assert_int_equal(made.n_segments, 1);
    assert_true(made.seconds == 1.0 / RATE);
    assert_int_equal(made.n_audio_tokens, 7); /* half a second of zeros after it: 50 frames */
    reel_transcriber_close(t);
}

/* Of which the first and the last have nothing that could be heard. */
static void silence_clipping_and_a_constant_are_recordings(void **state) {
    (void)state;
    const struct reel_transcriber_options options = few_tokens(NULL);
    float *samples = noise(2 * RATE);
    struct reel_transcriber *t = start(&options);
    static const float levels[] = { 0, 1, 0.25f };
    for (int k = 0; k < 3; k++) {
        for (size_t i = 0; i < 2 * RATE; i++)
            samples[i] = k == 1 && i % 2 ? -levels[k] : levels[k];
        push(t, samples, 2 * RATE, RATE);
        const struct reel_transcript made = finish(t);
        assert_int_equal(made.n_segments, k == 1);
        assert_true(made.seconds == 2);
    }
    reel_transcriber_close(t);
    free(samples);
}

static void samples_beyond_one_are_divided_by_the_peak(void **state) {
    (void)state;
    const struct reel_transcriber_options options = few_tokens(NULL);
    float *samples = noise(3 * RATE);
    struct reel_transcriber *quiet = start(&options), *loud = start(&options);
    samples[100] = 1;
    push(quiet, samples, 3 * RATE, RATE);
    for (size_t i = 0; i < 3 * RATE; i++)
        samples[i] *= 4; /* a power of two: the quotient is the same bits */
    push(loud, samples, 3 * RATE, RATE);
    const struct reel_transcript a = finish(quiet), b = finish(loud);
    expect_same(&a, &b);
    reel_transcriber_close(quiet);
    reel_transcriber_close(loud);
    free(samples);
}

/* A byte-level tokenizer ends at 258; published speech models have their audio tokens far behind.
 */
static void audio_tokens_may_lie_behind_a_gap(void **state) {
    (void)state;
    struct buffer text = { 0 };
    struct reel_model *far = NULL;
    struct reel_transcriber *t = NULL;
    struct reel_transcript made = { .size = sizeof made };
    const struct reel_model_options cpu = { .size = sizeof cpu, .device = "cpu", .n_threads = 1 };
    const struct reel_transcriber_options options = few_tokens(NULL);
    float *samples = noise(RATE);
    char config[80], made_folder[80];
    struct file_map file = { 0 };
    snprintf(config, sizeof config, "%s/far.json", speech.root);
    snprintf(made_folder, sizeof made_folder, "%s/far", speech.root);
    require(file_map_open(&file, "tests/golden/models/asr-a.json", &err));
    require(buffer_append(&text, file.bytes, file.size, &err));
    file_map_close(&file);
    replace_once(&text, "\"audio_token_id\": 261", "\"audio_token_id\": 307");
    replace_once(&text, "\"audio_start_token_id\": 259", "\"audio_start_token_id\": 300");
    replace_once(&text, "\"audio_end_token_id\": 260", "\"audio_end_token_id\": 301");
    require(file_write_atomic(config, text.bytes, text.size, &err));
    require(reel_synthesize(made_folder, config, 1, NULL, NULL, &err));
    require(reel_model_open(&far, made_folder, &cpu, &err));
    require(reel_transcriber_open(&t, far, &options, &err));
    require(reel_transcriber_push(t, samples, RATE, &err));
    require(reel_transcriber_finish(t, &made, &err));
    assert_int_equal(made.n_segments, 1);
    assert_int_equal(made.n_audio_tokens, 13);
    reel_transcriber_close(t);
    reel_model_close(far);
    buffer_release(&text);
    free(samples);
}

/* The last answer to a segment is that to a clip of its samples, whatever was heard in steps. */
static void expect_clips(const struct reel_transcript *made, const float *samples) {
    struct reel_transcriber_options options = few_tokens(NULL);
    options.segment_seconds = 20;
    struct reel_transcriber *alone = start(&options);
    for (int i = 0; i < made->n_segments; i++) {
        const struct reel_segment *s = reel_transcript_segment(made, i);
        const size_t from = (size_t)(s->start * RATE + 0.5), to = (size_t)(s->end * RATE + 0.5);
        push(alone, samples + from, to - from, 4000);
        const struct reel_transcript one = finish(alone);
        assert_int_equal(reel_transcript_segment(&one, 0)->n_ids, s->n_ids);
        assert_memory_equal(reel_transcript_segment(&one, 0)->ids, s->ids,
                            (size_t)s->n_ids * sizeof *s->ids);
    }
    reel_transcriber_close(alone);
}

/* What random weights say has no language tag, so nothing of it is fixed unless the language is
 * given. */
static void steps_partition_the_recording_too(void **state) {
    (void)state;
    const size_t n = 33 * RATE;
    float *samples = noise(n);
    for (int forced = 0; forced < 2; forced++) {
        struct listener l = { 0 };
        struct reel_transcriber_options options = few_tokens(&l);
        options.stream_seconds = 0.5;
        options.language = forced ? "en" : NULL;
        struct reel_transcriber *t = start(&options);
        push(t, samples, n, 5000);
        const struct reel_transcript made = finish(t);
        double end = 0;
        for (int i = 0; i < made.n_segments; i++) {
            assert_true(reel_transcript_segment(&made, i)->start == end &&
                        reel_transcript_segment(&made, i)->end > end);
            assert_true(reel_transcript_segment(&made, i)->end - end <= 9);
            end = reel_transcript_segment(&made, i)->end;
        }
        assert_true(end == 33 && made.seconds == 33 && made.n_segments >= 3);
        assert_true(made.stream_steps > 33 && made.stream_worst_ms > 0);
        assert_string_equal(l.text, made.text);
        if (!forced) expect_clips(&made, samples);
        reel_transcriber_close(t);
    }
    free(samples);
}

/* What is held is full when the silence has lasted long enough. */
static void silence_behind_a_short_segment_is_let_go_of(void **state) {
    (void)state;
    const size_t n = 9 * RATE, sound_end = RATE + RATE / 5;
    float *samples = calloc(n, sizeof *samples);
    struct reel_transcriber_options options = few_tokens(NULL);
    assert_non_null(samples);
    for (size_t i = RATE; i < sound_end; i++)
        samples[i] = i % 32 < 16 ? 0.3f : -0.3f;
    options.segment_seconds = 1;
    options.skip_silence = true;
    struct reel_transcriber *t = start(&options);
    push(t, samples, n, n);
    const struct reel_transcript made = finish(t);
    assert_in_range(made.n_segments, 1, 2);
    for (int i = 0; i < made.n_segments; i++)
        assert_true(reel_transcript_segment(&made, i)->start < (double)sound_end / RATE);
    reel_transcriber_close(t);
    free(samples);
}

/* ---- options ---- */

static void past_text_changes_later_segments_only(void **state) {
    (void)state;
    const size_t n = 14 * RATE;
    struct reel_transcriber_options options = few_tokens(NULL);
    float *samples = noise(n);
    struct reel_transcriber *without = start(&options);
    options.past_text = true;
    struct reel_transcriber *with = start(&options);
    push(without, samples, n, RATE);
    push(with, samples, n, RATE);
    const struct reel_transcript a = finish(without), b = finish(with);
    assert_true(a.n_segments >= 2 && a.n_segments == b.n_segments);
    assert_memory_equal(reel_transcript_segment(&a, 0)->ids, reel_transcript_segment(&b, 0)->ids,
                        (size_t)reel_transcript_segment(&a, 0)->n_ids *
                            sizeof *reel_transcript_segment(&a, 0)->ids);
    assert_true(reel_transcript_segment(&a, 0)->text[0]);
    assert_true(b.n_prompt_tokens > a.n_prompt_tokens);
    reel_transcriber_close(with);
    reel_transcriber_close(without);
    free(samples);
}

static void context_and_language_are_part_of_the_prompt(void **state) {
    (void)state;
    struct reel_transcriber_options options = few_tokens(NULL);
    float *samples = noise(RATE);
    int n_tokens[3];
    for (int i = 0; i < 3; i++) {
        options.context = i >= 1 ? "abcd" : NULL;
        options.language = i >= 2 ? "fr" : NULL;
        struct reel_transcriber *t = start(&options);
        push(t, samples, RATE, RATE);
        const struct reel_transcript made = finish(t);
        n_tokens[i] = made.n_prompt_tokens;
        if (i == 2) assert_string_equal(made.language, "French");
        reel_transcriber_close(t);
    }
    /* a token is a byte here, but for <asr_text> */
    assert_int_equal(n_tokens[1] - n_tokens[0], 4);
    assert_int_equal(n_tokens[2] - n_tokens[1], (int)strlen("language French") + 1);
    free(samples);
}

static void an_answer_ended_by_max_tokens_says_so(void **state) {
    (void)state;
    struct reel_transcriber_options options = few_tokens(NULL);
    float *samples = noise(RATE);
    options.max_tokens = 1;
    struct reel_transcriber *t = start(&options);
    push(t, samples, RATE, RATE);
    const struct reel_transcript made = finish(t);
    assert_int_equal(reel_transcript_segment(&made, 0)->n_ids, 1);
    assert_true(reel_transcript_segment(&made, 0)->cut_short);
    reel_transcriber_close(t);
    free(samples);
}

static void expect_refused(const struct reel_transcriber_options *options, enum reel_status status,
                           const char *says) {
    struct reel_transcriber *t = NULL;
    assert_int_equal(reel_transcriber_open(&t, speech.model, options, &err), status);
    assert_null(t);
    if (!strstr(err.text, says)) fail_msg("the message is \"%s\"", err.text);
}

static void wrong_options_are_refused_in_words(void **state) {
    (void)state;
    struct reel_transcriber_options o = few_tokens(NULL);
    o.language = "Klingon";
    expect_refused(&o, REEL_E_ARGUMENT, "\"Klingon\" is none of Chinese, English");
    o = few_tokens(NULL);
    o.segment_seconds = 0.5;
    expect_refused(&o, REEL_E_ARGUMENT, "segment_seconds is 0.5");
    o.segment_seconds = 1201;
    expect_refused(&o, REEL_E_ARGUMENT, "segment_seconds is 1201");
    o.segment_seconds = (double)NAN;
    expect_refused(&o, REEL_E_ARGUMENT, "segment_seconds is");
    o = few_tokens(NULL);
    o.pause_seconds = 0.2;
    expect_refused(&o, REEL_E_ARGUMENT, "pause_seconds is 0.2; allowed are 0.3 to 10");
    o.pause_seconds = (double)NAN;
    expect_refused(&o, REEL_E_ARGUMENT, "pause_seconds is");
    o = few_tokens(NULL);
    o.stream_seconds = 0.4;
    expect_refused(&o, REEL_E_ARGUMENT, "stream_seconds is 0.4; allowed are 0.5 to 10");
    o.stream_seconds = -1;
    expect_refused(&o, REEL_E_ARGUMENT, "stream_seconds is -1");
    o.stream_seconds = (double)NAN;
    expect_refused(&o, REEL_E_ARGUMENT, "stream_seconds is");
    o.stream_seconds = 10.5;
    expect_refused(&o, REEL_E_ARGUMENT, "stream_seconds is 10.5");
    o.stream_seconds = 2;
    o.segment_seconds = 56;
    expect_refused(&o, REEL_E_ARGUMENT, "segment_seconds is 56; allowed are 1 to 55 with stream");
    o = few_tokens(NULL);
    o.max_tokens = -1;
    expect_refused(&o, REEL_E_ARGUMENT, "max_tokens is -1");
    o.max_tokens = 5000; /* the miniature has 4096 positions */
    expect_refused(&o, REEL_E_LIMIT, "the model has 4096");
    o = few_tokens(NULL);
    o.context = "ab\xff";
    expect_refused(&o, REEL_E_ARGUMENT, "UTF-8");
    o = few_tokens(NULL);
    o.size = 3;
    expect_refused(&o, REEL_E_ARGUMENT, "reel_transcriber_options");
}

static void a_model_that_does_not_hear_is_refused(void **state) {
    (void)state;
    struct reel_model *deaf = NULL;
    struct reel_transcriber *t = NULL;
    const struct reel_model_options cpu = { .size = sizeof cpu, .device = "cpu", .n_threads = 1 };
    require(reel_model_open(&deaf, "models/demo", &cpu, &err));
    assert_int_equal(reel_transcriber_open(&t, deaf, NULL, &err), REEL_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "does not hear"));
    assert_null(t);
    reel_model_close(deaf);
}

/* ---- failures ---- */

static void a_sample_that_is_no_number_is_refused_and_the_next_recording_is_not(void **state) {
    (void)state;
    const struct reel_transcriber_options options = few_tokens(NULL);
    float *samples = noise(2 * RATE);
    struct reel_transcript out = { .size = sizeof out };
    struct reel_transcriber *t = start(&options);
    samples[RATE + 7] = NAN;
    assert_int_equal(reel_transcriber_push(t, samples, 2 * RATE, &err), REEL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "sample 16007"));
    assert_int_equal(reel_transcriber_push(t, samples, 10, &err), REEL_E_STATE);
    assert_int_equal(reel_transcriber_finish(t, &out, &err), REEL_E_STATE);
    reel_transcriber_reset(t);
    push(t, samples, RATE, RATE);
    assert_int_equal(finish(t).n_segments, 1);
    reel_transcriber_close(t);
    free(samples);
}

static void a_callback_that_says_no_cancels(void **state) {
    (void)state;
    float *samples = noise(2 * RATE);
    for (int which = 0; which < 8; which++) {
        struct listener l = { .stop_after = which == 0, .stop_progress_after = which };
        const struct reel_transcriber_options options = few_tokens(&l);
        struct reel_transcript out = { .size = sizeof out };
        struct reel_transcriber *t = start(&options);
        push(t, samples, 2 * RATE, RATE);
        assert_int_equal(reel_transcriber_finish(t, &out, &err), REEL_E_CANCELLED);
        assert_int_equal(reel_transcriber_finish(t, &out, &err), REEL_E_STATE);
        l = (struct listener){ 0 };
        reel_transcriber_reset(t);
        push(t, samples, 2 * RATE, RATE);
        assert_string_equal(finish(t).text, l.text);
        reel_transcriber_close(t);
    }
    free(samples);
}

/* Also when a callback has ended it, and of a recording that goes on. */
static void what_is_finished_so_far_can_be_had(void **state) {
    (void)state;
    struct listener l = { 0 };
    const struct reel_transcriber_options options = few_tokens(&l);
    struct reel_transcriber *t = start(&options);
    struct reel_transcript part = { .size = sizeof part };
    float *samples = noise(14 * RATE);
    push(t, samples, 14 * RATE, RATE); /* noise with gaps: cut by the limit */
    require(reel_transcriber_so_far(t, &part, &err));
    assert_in_range(part.n_segments, 1, 2);
    assert_true(part.seconds == reel_transcript_segment(&part, part.n_segments - 1)->end);
    char *text = strdup(part.text);
    const int n = part.n_segments;
    l.stop_progress_after = l.n_progress + 1;
    assert_int_equal(reel_transcriber_finish(t, NULL, &err), REEL_E_CANCELLED);
    require(reel_transcriber_so_far(t, &part, &err));
    assert_int_equal(part.n_segments, n);
    assert_string_equal(part.text, text);
    assert_int_equal(reel_transcriber_finish(t, NULL, &err), REEL_E_STATE);
    reel_transcriber_reset(t);
    require(reel_transcriber_so_far(t, &part, &err));
    assert_int_equal(part.n_segments, 0);
    reel_transcriber_close(t);
    free(samples), free(text);
}

static void a_result_of_unknown_size_is_refused_and_the_recording_kept(void **state) {
    (void)state;
    const struct reel_transcriber_options options = few_tokens(NULL);
    struct reel_transcript out = { .size = 0 };
    struct reel_transcriber *t = start(&options);
    float *samples = noise(2 * RATE);
    push(t, samples, 2 * RATE, RATE);
    assert_int_equal(reel_transcriber_finish(t, &out, &err), REEL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "reel_transcript"));
    out.size = sizeof out;
    require(reel_transcriber_finish(t, &out, &err));
    assert_int_equal(out.n_segments, 1);
    assert_true(out.seconds == 2);
    require(reel_transcriber_finish(t, NULL, &err)); /* the callback may be all one wants */
    free(samples);
    reel_transcriber_close(t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_of_any_size_give_the_same_ids),
        cmocka_unit_test(segments_partition_the_recording_and_are_counted),
        cmocka_unit_test(each_segment_is_heard_as_a_clip_of_its_own),
        cmocka_unit_test(texts_given_to_the_callback_join_to_the_transcripts),
        cmocka_unit_test(a_transcriber_takes_one_recording_after_the_other),
        cmocka_unit_test(an_empty_recording_has_an_empty_transcript),
        cmocka_unit_test(a_single_sample_is_a_recording),
        cmocka_unit_test(silence_clipping_and_a_constant_are_recordings),
        cmocka_unit_test(samples_beyond_one_are_divided_by_the_peak),
        cmocka_unit_test(audio_tokens_may_lie_behind_a_gap),
        cmocka_unit_test(steps_partition_the_recording_too),
        cmocka_unit_test(silence_behind_a_short_segment_is_let_go_of),
        cmocka_unit_test(past_text_changes_later_segments_only),
        cmocka_unit_test(context_and_language_are_part_of_the_prompt),
        cmocka_unit_test(an_answer_ended_by_max_tokens_says_so),
        cmocka_unit_test(wrong_options_are_refused_in_words),
        cmocka_unit_test(a_model_that_does_not_hear_is_refused),
        cmocka_unit_test(a_sample_that_is_no_number_is_refused_and_the_next_recording_is_not),
        cmocka_unit_test(a_callback_that_says_no_cancels),
        cmocka_unit_test(what_is_finished_so_far_can_be_had),
        cmocka_unit_test(a_result_of_unknown_size_is_refused_and_the_recording_kept),
    };
    return cmocka_run_group_tests_name("transcriber", tests, enter, leave);
}
