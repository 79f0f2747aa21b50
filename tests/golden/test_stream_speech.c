/* The trained speech model of models/speech while it is spoken to: the text of a stream against the
 * text of the whole recording, and how it comes. It hears what is as short as its training data
 * was; of longer segments it loses words, and there the texts differ. */
#define _DEFAULT_SOURCE
#include "asr/recognizer.h"
#include "reel.h"
#include "support/sanitized.h"
#include "support/shares.h"
#include "support/spoken.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { RATE = SPOKEN_RATE, LOG = 1 << 20 };

#if SANITIZED
/* memory is only judged from the third minute on */
enum { MINUTES = 1, LONG_RECORDINGS = 1, N_JOINED = 5 };
#else
enum { MINUTES = 4, LONG_RECORDINGS = 8, N_JOINED = 20 };
#endif

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
    expect_same("twelve utterances, 0.5 s", r, soaking_in_full() ? N_JOINED : LONG_RECORDINGS,
                options);
    release_all(r);
}

/* Words of a text that are not those of the other: inserted, left out or exchanged. */
static int word_errors(const char *text, const char *said) {
    static const char *words[2][400];
    static int cost[401];
    char copies[2][4000];
    int n[2] = { 0, 0 };
    for (int k = 0; k < 2; k++) {
        snprintf(copies[k], sizeof copies[k], "%s", k ? said : text);
        for (char *word = strtok(copies[k], " "); word; word = strtok(NULL, " "))
            words[k][n[k]++] = word;
    }
    for (int b = 0; b <= n[1]; b++)
        cost[b] = b;
    for (int a = 1; a <= n[0]; a++) {
        int before = cost[0];
        cost[0] = a;
        for (int b = 1; b <= n[1]; b++) {
            const int exchanged = before + (strcmp(words[0][a - 1], words[1][b - 1]) != 0);
            before = cost[b];
            const int one = (cost[b] < cost[b - 1] ? cost[b] : cost[b - 1]) + 1;
            cost[b] = one < exchanged ? one : exchanged;
        }
    }
    return cost[n[1]];
}

/* Eight utterances in one segment are longer than what the model was trained on: it leaves some
 * out, and others when it hears them one after the other. A stream has fixed them by then, so its
 * text differs, in both directions: a word fixed before what follows it was heard, or one that the
 * whole clip's text has lost. */
static void longer_segments_have_other_texts_that_are_no_worse(void **state) {
    char said[2000];
    struct reel_transcriber *stream = NULL, *whole = NULL;
    struct reel_transcriber_options options = steps_of(2, NULL);
    int n_same = 0, errors[2] = { 0, 0 };
    (void)state;
    need(reel_transcriber_open(&stream, model, &options, &err));
    options.stream_seconds = 0;
    need(reel_transcriber_open(&whole, model, &options, &err));
    for (uint32_t i = 0; i < N_JOINED; i++) {
        struct recording r = joined(i * 7919 + 8, 8, 0.3, said, sizeof said);
        const struct reel_transcript a = transcribe(whole, &r, r.n),
                                     b = transcribe(stream, &r, 4000);
        n_same += strcmp(a.text, b.text) == 0;
        errors[0] += word_errors(a.text, said);
        errors[1] += word_errors(b.text, said);
        recording_release(&r);
    }
    printf("eight utterances in a segment: %d of %d texts are those of the whole; words wrong: %d "
           "of the whole recordings', %d of the streams'\n",
           n_same, N_JOINED, errors[0], errors[1]);
    assert_true(errors[1] <= errors[0] + 20);
    reel_transcriber_close(whole);
    reel_transcriber_close(stream);
}

/* A shout halfway makes everything before it quieter, and lifts the floor of its features. Nothing
 * of so short a segment is fixed: the answer must be that to all of it, heard again. */
static void what_gets_louder_is_heard_again_as_the_whole_is(void **state) {
    (void)state;
    struct recording r[SPOKEN_CLIPS] = { 0 };
    for (int k = 0; k < SPOKEN_CLIPS; k++) {
        recording_add(&r[k], spoken.clips[k].samples, spoken.clips[k].n);
        for (size_t i = r[k].n * 3 / 4; i < r[k].n; i++)
            r[k].samples[i] *= 20;
    }
    expect_same("louder, 0.5 s", r, SPOKEN_CLIPS, steps_of(0.5, NULL));
    for (int k = 0; k < SPOKEN_CLIPS; k++)
        recording_release(&r[k]);
}

static void a_language_and_past_text_are_told_in_steps_too(void **state) {
    (void)state;
    struct recording r[N_JOINED];
    struct reel_transcriber_options options = steps_of(0.5, NULL);
    join_all(r, 3, 2.1);
    options.language = "en";
    options.context = "numbers";
    options.past_text = options.skip_silence = true;
    expect_same("with context, 0.5 s", r, 5, options);
    release_all(r);
}

/* ---- silence ---- */

static void silence_is_in_no_segment_and_times_are_right(void **state) {
    (void)state;
    struct recording r = { 0 };
    double begins[4], ends[4];
    for (int i = 0; i < 4; i++) {
        const struct spoken_clip *clip = &spoken.clips[i + 3];
        recording_pause(&r, 3 + i);
        begins[i] = (double)r.n / RATE;
        recording_add(&r, clip->samples, clip->n);
        ends[i] = (double)r.n / RATE;
    }
    recording_pause(&r, 5);
    for (int steps = 0; steps < 2; steps++) {
        struct reel_transcriber_options options = steps_of(steps ? 0.5 : 0, NULL);
        struct reel_transcriber *t = NULL;
        options.skip_silence = true;
        need(reel_transcriber_open(&t, model, &options, &err));
        const struct reel_transcript made = transcribe(t, &r, 4000);
        assert_int_equal(made.n_segments, 4);
        assert_true(made.seconds == (double)r.n / RATE);
        for (int i = 0; i < 4; i++) {
            const struct reel_segment *s = reel_transcript_segment(&made, i);
            /* clips begin and end with some silence of their own */
            assert_true(s->start > begins[i] - 0.31 && s->start < begins[i] + 0.3);
            assert_true(s->end > ends[i] - 0.3 && s->end < ends[i] + 0.52);
            assert_string_equal(s->text, spoken.clips[i + 3].said);
        }
        reel_transcriber_close(t);
    }
    recording_release(&r);
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

/* The certain and the uncertain text of every step, joined: what a reader has before him. */
static void what_was_certain_stays(void **state) {
    char said[2000];
    struct recording r = joined(5, 14, 0.5, said, sizeof said);
    struct listener l = { 0 };
    (void)state;
    log_of(&r, 4000, 1, &l);
    char *certain = calloc(1, sizeof l.text);
    int n_early = 0;
    assert_non_null(certain);
    for (char *line = strtok(l.log, "\n"); line; line = strtok(NULL, "\n")) {
        const char *text = strchr(line, ':') + 1;
        if (*line == 'T') strcat(certain, text);
        if (*line == 'P' && *text && *certain) {
            assert_int_equal(*text, ' '); /* whole words are certain */
            n_early++;
        }
        assert_memory_equal(certain, l.text, strlen(certain));
    }
    assert_true(n_early > 5);
    assert_string_equal(certain, l.text);
    free(certain);
    free(l.log);
    recording_release(&r);
}

/* A call, and how much had been pushed by then. */
struct call {
    char what; /* T or P */
    int segment;
    size_t pushed;
};

struct calls {
    struct call all[4000];
    int n;
    size_t pushed;
};

static bool note(void *user, char what, int segment) {
    struct calls *c = user;
    assert_true(c->n < 4000);
    c->all[c->n++] = (struct call){ what, segment, c->pushed };
    return true;
}

static bool note_text(void *user, const char *text, size_t n, int segment) {
    (void)text, (void)n;
    return note(user, 'T', segment);
}

static bool note_partial(void *user, const char *text, size_t n, int segment) {
    (void)text, (void)n;
    return note(user, 'P', segment);
}

/* Answers of the running segment that have ended before call i, and whether the one that i belongs
 * to is its last. */
static int answers_before(const struct calls *c, int i, bool *last) {
    const int segment = c->all[i].segment;
    int n = 0, left = 0;
    for (int k = 0; k < c->n; k++)
        if (c->all[k].segment == segment && c->all[k].what == 'P') *(k < i ? &n : &left) += 1;
    *last = left == 1;
    return n;
}

/* Of 20 s segments the limit may cut from 15 s on; pauses are too short to end one before. */
static void nothing_is_told_before_two_answers_nor_where_a_cut_may_fall(void **state) {
    char said[2000];
    struct recording r = joined(4, 40, 0.08, said, sizeof said);
    struct calls calls = { .n = 0 };
    struct reel_transcriber_options options = steps_of(1, NULL);
    struct reel_transcript made = { .size = sizeof made };
    struct reel_transcriber *t = NULL;
    int n_told = 0, n_late = 0;
    (void)state;
    options.segment_seconds = 20;
    options.on_text = note_text;
    options.on_partial = note_partial;
    options.user = &calls;
    need(reel_transcriber_open(&t, model, &options, &err));
    for (size_t at = 0; at < r.n; at += 1000) {
        calls.pushed = at + 1000;
        need(reel_transcriber_push(t, r.samples + at, r.n - at < 1000 ? r.n - at : 1000, &err));
    }
    need(reel_transcriber_finish(t, &made, &err));
    assert_true(made.n_segments >= 2);
    for (int i = 0; i < calls.n; i++) {
        const struct call *c = &calls.all[i];
        const double heard =
            (double)c->pushed / RATE - reel_transcript_segment(&made, c->segment)->start;
        bool last;
        const int n = answers_before(&calls, i, &last);
        n_late += c->what == 'P' && !last && heard > 16;
        if (c->what == 'P' || last) continue;
        assert_true(n >= 2 && heard < 15.07);
        n_told++;
    }
    assert_true(n_told > 5 && n_late > 5);
    reel_transcriber_close(t);
    recording_release(&r);
}

static void every_callback_can_cancel(void **state) {
    char said[2000];
    struct recording r = joined(1, 4, 0.5, said, sizeof said);
    (void)state;
    for (int which = 0; which < 12; which += sanitized_briefly() ? 4 : 1) {
        struct listener l = { .stop_text = which < 3 ? which + 1 : 0,
                              .stop_partial = which >= 3 && which < 7 ? which - 2 : 0,
                              .stop_progress = which >= 7 ? which * 9 : 0 };
        const struct reel_transcriber_options options = steps_of(0.5, &l);
        struct reel_transcript made = { .size = sizeof made };
        struct reel_transcriber *t = NULL;
        need(reel_transcriber_open(&t, model, &options, &err));
        enum reel_status status = reel_transcriber_push(t, r.samples, r.n, &err);
        if (status == REEL_OK) status = reel_transcriber_finish(t, &made, &err);
        assert_int_equal(status, REEL_E_CANCELLED);
        assert_int_equal(reel_transcriber_push(t, r.samples, 1, &err), REEL_E_STATE);
        /* a stream begins anew after one callback of each kind */
        if (which == 1 || which == 5 || which == 9 || soaking_in_full()) {
            l = (struct listener){ 0 };
            reel_transcriber_reset(t);
            made = transcribe(t, &r, 4000);
            assert_string_equal(made.text, l.text);
        }
        reel_transcriber_close(t);
    }
    recording_release(&r);
}

/* ---- what is kept ---- */

/* Answers to a growing piece, with what earlier ones left in the session, and without. */
static void keeping_windows_changes_no_answer(void **state) {
    char said[2000];
    struct recording r = joined(3, 10, 0.3, said, sizeof said);
    const struct recognizer_options options = { .most_samples = r.n, .max_tokens = 64 };
    struct recognizer *growing = NULL, *anew = NULL;
    int n_reused = 0;
    (void)state;
    need(recognizer_open(&growing, model, &options, &err));
    need(recognizer_open(&anew, model, &options, &err));
    recognizer_begin(growing);
    for (size_t at = RATE; at <= r.n; at += RATE) {
        const struct recognizer_turn turn = { .last = false };
        struct recognized a = { 0 }, b = { 0 };
        need(recognizer_hear(growing, r.samples + at - RATE, RATE, 1, &err));
        need(recognizer_answer(growing, &turn, &a, &err));
        recognizer_begin(anew);
        need(recognizer_hear(anew, r.samples, at, 1, &err));
        need(recognizer_answer(anew, &turn, &b, &err));
        assert_int_equal(b.n_reused, 0);
        n_reused += a.n_reused;
        assert_int_equal(a.n_ids, b.n_ids);
        assert_memory_equal(a.ids, b.ids, (size_t)a.n_ids * sizeof *a.ids);
    }
    assert_true(n_reused > 0);
    recognizer_close(growing);
    recognizer_close(anew);
    recording_release(&r);
}

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static size_t heap_bytes(void) {
    const struct mallinfo2 m = mallinfo2(); /* zeros under the sanitizers */
    return m.uordblks + m.hblkhd;
}

struct minute {
    double median_ms, most_ms;
    size_t heap;
};

/* A minute of a recording that never ends, in steps of 2 s. */
static struct minute listen(struct reel_transcriber *t, const struct recording *r, size_t *at,
                            const struct listener *l) {
    double ms[100];
    size_t n = 0;
    for (size_t k = 0; k < 60 * RATE; k += 4000) {
        const int before = l->n_partials;
        const double start = now_ms();
        need(reel_transcriber_push(t, r->samples + *at, 4000, &err));
        *at = (*at + 4000) % (r->n / 4000 * 4000);
        if (l->n_partials > before && n < 100) ms[n++] = now_ms() - start;
    }
    assert_true(n >= 20);
    qsort(ms, n, sizeof *ms, by_size);
    return (struct minute){ ms[n / 2], ms[n - 1], heap_bytes() };
}

/* Text and ids of segments are kept: some 20 KB a minute. */
static void a_long_stream_takes_no_more_memory(void **state) {
    const int minutes = soaking_in_full() ? 120 : MINUTES;
    char said[4000];
    struct recording r = joined(9, 60, 0.4, said, sizeof said);
    struct listener l = { 0 };
    struct reel_transcriber_options options = steps_of(2, &l);
    struct reel_transcriber *t = NULL;
    size_t at = 0, heap = 0;
    (void)state;
    options.on_text = NULL; /* its buffer is for less */
    options.segment_seconds = 55;
    need(reel_transcriber_open(&t, model, &options, &err));
    for (int i = 1; i <= minutes; i++) {
        const struct minute m = listen(t, &r, &at, &l);
        if (i == 1 || i % 10 == 0)
            printf("minute %d in steps of 2 s: median %.1f ms, most %.1f ms; heap %zu KB\n", i,
                   m.median_ms, m.most_ms, m.heap >> 10);
        if (i == 2) heap = m.heap;
        if (i > 2) assert_true(m.heap < heap + (size_t)i * 40000);
    }
    reel_transcriber_close(t);
    recording_release(&r);
}

int main(void) {
    struct CMUnitTest tests[] = {
        in_turn(what_is_said_is_the_same_as_of_the_whole_clip),
        in_turn(three_utterances_in_a_row_are_the_same),
        in_turn(minutes_of_utterances_with_silence_between_them_are_the_same),
        in_turn(longer_segments_have_other_texts_that_are_no_worse),
        in_turn(what_gets_louder_is_heard_again_as_the_whole_is),
        in_turn(a_language_and_past_text_are_told_in_steps_too),
        in_turn(silence_is_in_no_segment_and_times_are_right),
        in_turn(calls_are_the_same_however_samples_are_pushed),
        in_turn(what_was_certain_stays),
        in_turn(nothing_is_told_before_two_answers_nor_where_a_cut_may_fall),
        in_turn(every_callback_can_cancel),
        in_turn(keeping_windows_changes_no_answer),
        in_turn(a_long_stream_takes_no_more_memory),
    };
    SHARE_TESTS("stream-speech", 4, tests);
    return cmocka_run_group_tests_name("streams of the trained speech model", tests, enter, leave);
}
