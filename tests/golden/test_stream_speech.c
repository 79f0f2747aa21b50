/* The trained speech model of models/speech while it is spoken to: the text of a stream against the
 * text of the whole recording, and how it comes. It hears what is as short as its training data
 * was; of longer segments it loses words, and there the texts differ. */
#define _DEFAULT_SOURCE
#include "reel.h"
#include "support/spoken.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RATE = SPOKEN_RATE, LOG = 1 << 20 };

static struct spoken spoken;
static struct reel_model *model;
static struct reel_error err;

static void need(enum reel_status status) {
    if (status != REEL_OK) fail_msg("%s: %s", reel_status_name(status), err.text);
}

static int enter(void **state) {
    (void)state;
    const struct reel_model_options cpu = {
        .size = sizeof cpu, .device = "cpu", .cpu_path = "auto", .n_threads = 1
    };
    spoken_open(&spoken);
    return reel_model_open(&model, "models/speech", &cpu, &err) == REEL_OK ? 0 : -1;
}

static int leave(void **state) {
    (void)state;
    reel_model_close(model);
    spoken_close(&spoken);
    return 0;
}

/* ---- recordings ---- */

/* Clips by a small generator, with pauses from `least` to twice that between them. */
static struct recording joined(uint32_t seed, int n_clips, double least, char *said, size_t room) {
    struct recording r = { 0 };
    *said = '\0';
    for (int i = 0; i < n_clips; i++) {
        seed = seed * 1664525u + 1013904223u;
        const struct spoken_clip *clip = &spoken.clips[(seed >> 16) % SPOKEN_CLIPS];
        recording_add(&r, clip->samples, clip->n);
        recording_pause(&r, least * (1 + (double)(seed >> 8 & 255) / 255));
        snprintf(said + strlen(said), room - strlen(said), "%s%s", i ? " " : "", clip->said);
    }
    return r;
}

/* ---- what is told ---- */

struct listener {
    char text[60000]; /* what is certain, joined */
    size_t n;
    char partial[4000];
    char *log; /* [LOG] every call, or NULL */
    size_t n_log;
    int n_texts, n_partials;
    int stop_text, stop_partial, stop_progress, n_progress;
};

static void write_log(struct listener *l, char what, const char *text, size_t n, int segment) {
    if (!l->log) return;
    assert_true(l->n_log + n + 20 < LOG);
    l->n_log += (size_t)sprintf(l->log + l->n_log, "%c%d:%.*s\n", what, segment, (int)n, text);
}

static bool on_text(void *user, const char *text, size_t n, int segment) {
    struct listener *l = user;
    assert_true(n > 0 && l->n + n < sizeof l->text);
    memcpy(l->text + l->n, text, n);
    l->n += n;
    write_log(l, 'T', text, n, segment);
    return ++l->n_texts != l->stop_text;
}

static bool on_partial(void *user, const char *text, size_t n, int segment) {
    struct listener *l = user;
    assert_true(n < sizeof l->partial);
    memcpy(l->partial, text, n);
    l->partial[n] = '\0';
    write_log(l, 'P', text, n, segment);
    return ++l->n_partials != l->stop_partial;
}

static bool on_progress(void *user, const char *stage, uint64_t done, uint64_t total) {
    struct listener *l = user;
    (void)stage, (void)done, (void)total;
    return ++l->n_progress != l->stop_progress;
}

static struct reel_transcriber_options steps_of(double seconds, struct listener *l) {
    return (struct reel_transcriber_options){ .size = sizeof(struct reel_transcriber_options),
                                              .stream_seconds = seconds,
                                              .on_text = l ? on_text : NULL,
                                              .on_partial = l ? on_partial : NULL,
                                              .user = l,
                                              .progress = l ? on_progress : NULL,
                                              .progress_user = l };
}

static struct reel_transcript transcribe(struct reel_transcriber *t, const struct recording *r,
                                         size_t piece) {
    struct reel_transcript made = { .size = sizeof made };
    for (size_t at = 0; at < r->n; at += piece)
        need(
            reel_transcriber_push(t, r->samples + at, r->n - at < piece ? r->n - at : piece, &err));
    need(reel_transcriber_finish(t, &made, &err));
    return made;
}

/* ---- the same text ---- */

static void expect_same(const char *what, const struct recording *recordings, int n,
                        struct reel_transcriber_options options) {
    struct reel_transcriber *stream = NULL, *whole = NULL;
    need(reel_transcriber_open(&stream, model, &options, &err));
    options.stream_seconds = 0;
    need(reel_transcriber_open(&whole, model, &options, &err));
    int n_steps = 0;
    for (int i = 0; i < n; i++) {
        const struct reel_transcript a = transcribe(whole, &recordings[i], recordings[i].n),
                                     b = transcribe(stream, &recordings[i], 4000);
        if (strcmp(a.text, b.text) != 0)
            fail_msg("%s %d: \"%s\" streamed is \"%s\"", what, i, a.text, b.text);
        assert_int_equal(a.n_segments, b.n_segments);
        n_steps += b.stream_steps;
    }
    printf("%s: %d texts in %d steps are those of the whole recordings\n", what, n, n_steps);
    reel_transcriber_close(whole);
    reel_transcriber_close(stream);
}

static void what_is_said_is_the_same_as_of_the_whole_clip(void **state) {
    (void)state;
    struct recording clips[SPOKEN_CLIPS];
    for (int i = 0; i < SPOKEN_CLIPS; i++)
        clips[i] = (struct recording){ .samples = spoken.clips[i].samples, .n = spoken.clips[i].n };
    expect_same("clips, 0.5 s", clips, SPOKEN_CLIPS, steps_of(0.5, NULL));
    expect_same("clips, 2 s", clips, SPOKEN_CLIPS, steps_of(2, NULL));
}

enum { N_JOINED = 20 };

static void join_all(struct recording *r, int n_clips, double least) {
    char said[2000];
    for (uint32_t i = 0; i < N_JOINED; i++)
        r[i] = joined(i * 7919 + (uint32_t)n_clips, n_clips, least, said, sizeof said);
}

static void release_all(struct recording *r) {
    for (int i = 0; i < N_JOINED; i++)
        recording_release(&r[i]);
}

static void three_utterances_in_a_row_are_the_same(void **state) {
    (void)state;
    struct recording r[N_JOINED];
    join_all(r, 3, 0.3);
    expect_same("three utterances, 0.5 s", r, N_JOINED, steps_of(0.5, NULL));
    expect_same("three utterances, 1 s", r, N_JOINED, steps_of(1, NULL));
    release_all(r);
}

static void minutes_of_utterances_with_silence_between_them_are_the_same(void **state) {
    (void)state;
    struct recording r[N_JOINED];
    struct reel_transcriber_options options = steps_of(0.5, NULL);
    join_all(r, 12, 2.1);
    options.skip_silence = true;
    expect_same("twelve utterances, 0.5 s", r, N_JOINED, options);
    release_all(r);
}

/* ---- how it comes ---- */

static void log_of(const struct recording *r, size_t piece, double seconds, struct listener *l) {
    struct reel_transcriber *t = NULL;
    struct reel_transcriber_options options = steps_of(seconds, l);
    options.segment_seconds = 10;
    l->log = malloc(LOG);
    assert_non_null(l->log);
    need(reel_transcriber_open(&t, model, &options, &err));
    const struct reel_transcript made = transcribe(t, r, piece);
    assert_string_equal(l->text, made.text); /* all that was certain, joined */
    assert_string_equal(l->partial, "");     /* the last segment has ended */
    assert_true(made.n_segments >= 2 && made.stream_steps > 10);
    assert_int_equal(l->n_partials, made.stream_steps);
    reel_transcriber_close(t);
}

static void calls_are_the_same_however_samples_are_pushed(void **state) {
    static const size_t pieces[] = { 777, 16000, 1000000 };
    char said[2000];
    struct recording r = joined(5, 14, 0.5, said, sizeof said);
    struct listener once = { 0 };
    (void)state;
    for (size_t i = 0; i < r.n; i++)
        if (i > 4 * RATE) r.samples[i] *= 9; /* beyond 1: what was heard is heard again */
    log_of(&r, 4000, 1, &once);
    assert_true(once.n_texts > 10);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        struct listener again = { 0 };
        log_of(&r, pieces[i], 1, &again);
        assert_int_equal(again.n_log, once.n_log);
        assert_memory_equal(again.log, once.log, once.n_log);
        free(again.log);
    }
    free(once.log);
    recording_release(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_said_is_the_same_as_of_the_whole_clip),
        cmocka_unit_test(three_utterances_in_a_row_are_the_same),
        cmocka_unit_test(minutes_of_utterances_with_silence_between_them_are_the_same),
        cmocka_unit_test(calls_are_the_same_however_samples_are_pushed),
    };
    return cmocka_run_group_tests_name("streams of the trained speech model", tests, enter, leave);
}
