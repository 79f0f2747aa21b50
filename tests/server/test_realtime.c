/* Sessions of /v1/realtime without a socket: messages in, events out, with the demo speech model.
 */
#include "server/realtime.h"

#include "server/base64.h"
#include "server/voice.h"

#include "base/json.h"
#include "support/spoken.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { RATE = SPOKEN_RATE, MOST_EVENTS = 4000, CLIPS = 8 };

static struct reel_model *model;
static struct spoken spoken;
static struct reel_error err;

/* ---- the world of a session ---- */

struct world {
    struct realtime *r;
    json_t *events[MOST_EVENTS];
    int n, read; /* there, and looked at */
    int n_taken; /* transcribers that are out */
    bool leave, full, wanted;
    int leave_after; /* events; 0: never */
};

static bool on_send(void *user, const char *json, size_t n) {
    struct world *w = user;
    json_t *event = NULL;
    assert_true(w->n < MOST_EVENTS);
    if (json_read(&event, "an event", json, n, &err) != REEL_OK)
        fail_msg("%s: %.*s", err.text, (int)n, json);
    w->events[w->n++] = event;
    return !w->leave_after || w->n < w->leave_after;
}

static bool on_gone(void *user) { return ((struct world *)user)->leave; }
static bool on_wanted(void *user) { return ((struct world *)user)->wanted; }

static enum reel_status on_find(void *user, const char **name, const struct reel_model **out,
                                struct reel_transcriber_options *options, struct reel_error *e) {
    (void)user;
    if (**name && strcmp(*name, "speech") != 0)
        return err_set(e, REEL_E_NOT_FOUND, "there is no model '%s'", *name);
    *name = "speech";
    *out = model;
    *options = (struct reel_transcriber_options){
        .size = sizeof *options, .segment_seconds = 8, .pause_seconds = 0.45, .stream_seconds = 0.5
    };
    return REEL_OK;
}

static enum reel_status on_take(void *user, struct reel_error *e) {
    struct world *w = user;
    if (w->full) return err_set(e, REEL_E_LIMIT, "too many wait");
    w->n_taken++;
    return REEL_OK;
}

static void on_give(void *user) { ((struct world *)user)->n_taken--; }

static void on_spent(void *user, const struct reel_transcript *t) {
    (void)user;
    assert_true(t->n_tokens > 0);
}

static void open_world(struct world *w, bool openai) {
    *w = (struct world){ .read = 0 };
    const struct realtime_host host = { .user = w,
                                        .id = "1",
                                        .most_seconds = 60,
                                        .quiet_seconds = 0.2,
                                        .send = on_send,
                                        .gone = on_gone,
                                        .find = on_find,
                                        .take = on_take,
                                        .give = on_give,
                                        .wanted = on_wanted,
                                        .spent = on_spent };
    assert_int_equal(realtime_open(&w->r, &host, openai, NULL, &err), REEL_OK);
}

static void close_world(struct world *w) {
    realtime_close(w->r);
    assert_int_equal(w->n_taken, 0);
    for (int i = 0; i < w->n; i++)
        json_decref(w->events[i]);
}

static bool say(struct world *w, const char *message) {
    return realtime_message(w->r, message, strlen(message));
}

static const char *text_of(const json_t *event, const char *key) {
    const char *text = json_string_value(json_object_get(event, key));
    return text ? text : "";
}

/* The next event that was not looked at. */
static const json_t *next(struct world *w) {
    if (w->read == w->n) fail_msg("no more events");
    return w->events[w->read++];
}

static const json_t *expect(struct world *w, const char *type) {
    const json_t *event = next(w);
    if (strcmp(text_of(event, "type"), type) != 0) {
        char *text = json_dumps(event, 0);
        fail_msg("wanted %s, got %s", type, text);
    }
    return event;
}

static void expect_error(struct world *w, const char *code, const char *says) {
    const json_t *error = json_object_get(expect(w, "error"), "error");
    assert_string_equal(text_of(error, "code"), code);
    if (!strstr(text_of(error, "message"), says)) fail_msg("%s", text_of(error, "message"));
}

/* ---- audio ---- */

/* 16,000 Hz to 24,000 Hz by straight lines: clips are quiet where that matters. */
static int16_t *at_24000(const int16_t *in, size_t n, size_t *n_out) {
    int16_t *out = malloc((n * 3 / 2 + 1) * sizeof *out);
    assert_non_null(out);
    *n_out = n * 3 / 2;
    for (size_t i = 0; i < *n_out; i++) {
        const size_t at = i * 2 / 3;
        const double part = (double)(i * 2 % 3) / 3;
        const double b = at + 1 < n ? in[at + 1] : in[at];
        out[i] = (int16_t)(in[at] + part * (b - in[at]));
    }
    return out;
}

/* In messages of `piece` bytes. */
static bool append(struct world *w, const int16_t *samples, size_t n, size_t piece) {
    const char *bytes = (const char *)samples;
    bool good = true;
    for (size_t at = 0, all = n * 2; at < all && good; at += piece) {
        struct buffer message = { 0 };
        const char *head = "{\"type\":\"input_audio_buffer.append\",\"audio\":\"";
        assert_int_equal(buffer_text(&message, head, &err), REEL_OK);
        assert_int_equal(
            base64_write(&message, bytes + at, all - at < piece ? all - at : piece, &err), REEL_OK);
        assert_int_equal(buffer_text(&message, "\"}", &err), REEL_OK);
        good = realtime_message(w->r, message.bytes, message.size);
        buffer_release(&message);
    }
    return good;
}

static bool append_clip(struct world *w, int index, bool faster, size_t piece) {
    int16_t *samples = spoken_integers(&spoken.clips[index]), *fast = NULL;
    size_t n = spoken.clips[index].n;
    if (faster) fast = at_24000(samples, n, &n);
    const bool good = append(w, fast ? fast : samples, n, piece);
    free(fast);
    free(samples);
    return good;
}

static bool append_silence(struct world *w, double seconds, int rate) {
    const size_t n = (size_t)(seconds * rate);
    int16_t *samples = malloc(n * sizeof *samples);
    uint32_t seed = 1;
    assert_non_null(samples);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        samples[i] = (int16_t)((int)(seed >> 28) - 8); /* about -76 dB */
    }
    const bool good = append(w, samples, n, 960);
    free(samples);
    return good;
}

#define UPDATE(more)                                                                               \
    "{\"type\":\"session.update\",\"session\":{\"type\":\"transcription\",\"audio\":{\"input\":{"  \
    "\"transcription\":{\"model\":\"speech\",\"language\":\"en\"}" more "}}}}"
#define COMMIT "{\"type\":\"input_audio_buffer.commit\"}"
#define ITEM   "conversation.item.input_audio_transcription."

/* Deltas up to the commit, then the rest up to "completed": its text, of item `item`. */
static const char *expect_item(struct world *w, const char *item, bool partials) {
    static char told[2000];
    const json_t *event;
    bool committed = false;
    *told = '\0';
    for (;;) {
        event = next(w);
        const char *type = text_of(event, "type");
        assert_string_equal(text_of(event, "item_id"), item);
        if (strcmp(type, "input_audio_buffer.committed") == 0) {
            assert_false(committed);
            committed = true;
        } else if (strcmp(type, ITEM "delta") == 0) {
            assert_int_equal(json_integer_value(json_object_get(event, "content_index")), 0);
            strcat(told, text_of(event, "delta"));
        } else if (partials && strcmp(type, ITEM "partial") == 0) {
            /* certain words stand before the uncertain ones */
            const char *text = text_of(event, "text");
            const size_t n = strlen(told);
            assert_true(strlen(text) == n + strlen(text_of(event, "uncertain")));
            assert_memory_equal(text, told, n);
        } else {
            break;
        }
    }
    assert_true(committed);
    assert_string_equal(text_of(event, "type"), ITEM "completed");
    const json_t *usage = json_object_get(event, "usage");
    assert_string_equal(text_of(usage, "type"), "tokens");
    assert_true(json_integer_value(json_object_get(usage, "output_tokens")) > 0);
    assert_string_equal(text_of(event, "transcript"), told);
    return told;
}

/* ---- tests ---- */

static void a_client_that_commits_gets_what_was_said(void **state) {
    struct world w;
    int n_right = 0;
    (void)state;
    open_world(&w, true);
    const json_t *session = json_object_get(expect(&w, "session.created"), "session");
    assert_string_equal(text_of(session, "type"), "transcription");
    assert_true(say(&w, UPDATE(",\"turn_detection\":null")));
    session = json_object_get(expect(&w, "session.updated"), "session");
    const json_t *input = json_object_get(json_object_get(session, "audio"), "input");
    assert_true(json_is_null(json_object_get(input, "turn_detection")));
    for (int i = 0; i < CLIPS; i++) {
        char item[20];
        snprintf(item, sizeof item, "item_1_%d", i + 1);
        assert_true(append_clip(&w, i, true, 960)); /* 20 ms */
        assert_false(realtime_is_idle(w.r));
        assert_true(say(&w, COMMIT));
        assert_true(realtime_is_idle(w.r));
        n_right += strcmp(expect_item(&w, item, false), spoken.clips[i].said) == 0;
    }
    assert_true(n_right >= CLIPS - 1);
    assert_int_equal(w.n_taken, 1);
    w.wanted = true; /* somebody waits: the transcriber goes to him after the item */
    assert_true(append_clip(&w, 0, true, 960) && say(&w, COMMIT));
    assert_int_equal(w.n_taken, 0);
    close_world(&w);
}

/* Odd pieces, half samples among them, and all at once: the same text, as 16,000 Hz have none of
 * it resampled. */
static void how_audio_is_cut_changes_nothing(void **state) {
    static const size_t pieces[] = { 333, 960, 100000 };
    char first[2000] = "";
    (void)state;
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        struct world w;
        open_world(&w, true);
        expect(&w, "session.created");
        say(&w, UPDATE(",\"turn_detection\":null,\"format\":{\"type\":\"audio/pcm\","
                       "\"rate\":16000}"));
        expect(&w, "session.updated");
        for (int k = 3; k < 6; k++) {
            assert_true(append_clip(&w, k, false, pieces[i]));
            assert_true(append_silence(&w, 1, RATE));
        }
        assert_true(say(&w, COMMIT));
        const char *told = expect_item(&w, "item_1_1", false);
        if (i == 0) strcpy(first, told);
        assert_string_equal(told, first);
        close_world(&w);
    }
}

static void the_server_finds_where_speech_begins_and_ends(void **state) {
    struct world w;
    double at = 1000;
    int n_right = 0;
    (void)state;
    open_world(&w, true);
    expect(&w, "session.created");
    assert_true(say(&w, UPDATE(",\"turn_detection\":{\"type\":\"server_vad\","
                               "\"silence_duration_ms\":600,\"prefix_padding_ms\":200}")));
    expect(&w, "session.updated");
    append_silence(&w, 1, 24000);
    assert_int_equal(w.read, w.n);
    for (int i = 0; i < CLIPS; i++) {
        char item[20];
        const double ms = (double)spoken.clips[i].n / 16;
        snprintf(item, sizeof item, "item_1_%d", i + 1);
        append_clip(&w, i, true, 960);
        append_silence(&w, 1.2, 24000);
        const json_t *event = expect(&w, "input_audio_buffer.speech_started");
        const double start = json_number_value(json_object_get(event, "audio_start_ms"));
        assert_true(start > at - 300 && start < at + 300);
        /* all but the end of speech is said by expect_item */
        for (int k = w.read; k < w.n; k++) {
            if (strcmp(text_of(w.events[k], "type"), "input_audio_buffer.speech_stopped") != 0)
                continue;
            const double end = json_number_value(json_object_get(w.events[k], "audio_end_ms"));
            assert_true(end > at + ms && end < at + ms + 1200);
            json_decref(w.events[k]);
            memmove(w.events + k, w.events + k + 1, (size_t)(w.n - k - 1) * sizeof *w.events);
            w.n--;
            break;
        }
        n_right += strcmp(expect_item(&w, item, false), spoken.clips[i].said) == 0;
        assert_int_equal(w.read, w.n);
        at += ms + 1200;
    }
    assert_true(n_right >= CLIPS - 1);
    say(&w, COMMIT); /* nothing is left */
    expect_error(&w, "input_audio_buffer_commit_empty", "nothing to commit");
    close_world(&w);
}

static void what_may_still_change_is_told_on_request(void **state) {
    struct world w;
    int n_partials = 0;
    (void)state;
    open_world(&w, true);
    expect(&w, "session.created");
    say(&w, "{\"type\":\"session.update\",\"session\":{\"audio\":{\"input\":{\"turn_detection\":"
            "null}},\"reel\":{\"partials\":true,\"step_seconds\":0.5}}}");
    expect(&w, "session.updated");
    for (int i = 0; i < 4; i++) {
        append_clip(&w, i, true, 960);
        append_silence(&w, 0.3, 24000);
    }
    say(&w, COMMIT);
    for (int i = 0; i < w.n; i++)
        n_partials += strcmp(text_of(w.events[i], "type"), ITEM "partial") == 0 &&
                      *text_of(w.events[i], "uncertain");
    assert_true(n_partials >= 3);
    expect_item(&w, "item_1_1", true);
    close_world(&w);
}

static void older_names_and_telephone_audio(void **state) {
    struct world w;
    (void)state;
    open_world(&w, true);
    expect(&w, "session.created");
    assert_true(say(&w, "{\"type\":\"transcription_session.update\",\"session\":{"
                        "\"input_audio_format\":\"g711_ulaw\",\"turn_detection\":null,"
                        "\"input_audio_transcription\":{\"model\":\"speech\"}}}"));
    const json_t *session = json_object_get(expect(&w, "transcription_session.updated"), "session");
    assert_string_equal(text_of(session, "input_audio_format"), "g711_ulaw");
    /* 0xff and 0x7f are zeros, 0x80 and 0x00 the largest */
    assert_true(say(&w, "{\"type\":\"input_audio_buffer.append\",\"audio\":\"/3+A\"}"));
    assert_true(say(&w, "{\"type\":\"input_audio_buffer.clear\"}"));
    expect(&w, "input_audio_buffer.cleared");
    close_world(&w);
}

static void vllms_clients_are_understood(void **state) {
    struct world w;
    char told[2000] = "";
    (void)state;
    open_world(&w, false);
    const json_t *event = expect(&w, "session.created");
    assert_true(json_is_string(json_object_get(event, "id")));
    assert_true(json_is_integer(json_object_get(event, "created")));
    assert_true(say(&w, "{\"type\":\"session.update\",\"model\":\"speech\"}"));
    for (int i = 0; i < 2; i++) {
        *told = '\0';
        assert_true(say(&w, COMMIT));
        assert_int_equal(w.read, w.n);
        assert_true(append_clip(&w, i, false, 4096));
        assert_true(say(&w, "{\"type\":\"input_audio_buffer.commit\",\"final\":true}"));
        for (event = next(&w); strcmp(text_of(event, "type"), "transcription.delta") == 0;
             event = next(&w))
            strcat(told, text_of(event, "delta"));
        assert_string_equal(text_of(event, "type"), "transcription.done");
        assert_string_equal(text_of(event, "text"), told);
        assert_string_equal(told, spoken.clips[i].said);
        const json_t *usage = json_object_get(event, "usage");
        assert_true(json_integer_value(json_object_get(usage, "completion_tokens")) > 0);
    }
    assert_true(say(&w, "{\"type\":\"input_audio_buffer.commit\",\"final\":true}"));
    assert_string_equal(text_of(expect(&w, "transcription.done"), "text"), "");
    assert_true(say(&w, "{\"type\":\"session.update\",\"model\":\"other\"}"));
    event = expect(&w, "error");
    assert_true(json_is_string(json_object_get(event, "error")));
    assert_string_equal(text_of(event, "code"), "model_not_found");
    close_world(&w);
}

static void what_cannot_be_is_refused_and_the_session_goes_on(void **state) {
    static const struct {
        const char *message, *code, *says;
    } bad[] = {
        { "", "invalid_json", "" },
        { "nonsense", "invalid_json", "" },
        { "[]", "invalid_json", "object" },
        { "{\"type\":\"a\",\"type\":\"b\"}", "invalid_json", "" },
        { "{}", "missing_required_parameter", "type" },
        { "{\"type\":7}", "missing_required_parameter", "type" },
        { "{\"type\":\"response.create\"}", "unknown_event", "response.create" },
        { "{\"type\":\"session.update\",\"session\":7}", "missing_required_parameter", "session" },
        { "{\"type\":\"session.update\",\"session\":{\"type\":\"realtime\"}}", "invalid_value",
          "hears" },
        { UPDATE(",\"turn_detection\":{\"type\":\"semantic_vad\"}"), "invalid_value",
          "server_vad" },
        { UPDATE(",\"turn_detection\":true"), "invalid_value", "object or null" },
        { UPDATE(",\"turn_detection\":{\"threshold\":1.5}"), "invalid_value", "0 to 1" },
        { UPDATE(",\"turn_detection\":{\"prefix_padding_ms\":1e9}"), "invalid_value", "2000" },
        { UPDATE(",\"turn_detection\":{\"silence_duration_ms\":-1}"), "invalid_value", "10000" },
        { UPDATE(",\"format\":{\"type\":\"audio/opus\"}"), "invalid_value", "audio/pcm" },
        { UPDATE(",\"format\":{\"rate\":44100}"), "invalid_value", "24000" },
        { "{\"type\":\"session.update\",\"session\":{\"audio\":{\"input\":{\"transcription\":{"
          "\"model\":\"whisper-1\"}}}}}",
          "model_not_found", "whisper-1" },
        { "{\"type\":\"session.update\",\"session\":{\"audio\":{\"input\":{\"transcription\":{"
          "\"language\":\"xx\"}}}}}",
          "invalid_value", "is none of" },
        { "{\"type\":\"session.update\",\"session\":{\"reel\":{\"step_seconds\":0.1}}}",
          "invalid_value", "0.5 to 10" },
        { "{\"type\":\"input_audio_buffer.append\"}", "missing_required_parameter", "audio" },
        { "{\"type\":\"input_audio_buffer.append\",\"audio\":\"!\"}", "invalid_audio", "base64" },
        { COMMIT, "input_audio_buffer_commit_empty", "nothing" },
    };
    struct world w;
    (void)state;
    open_world(&w, true);
    expect(&w, "session.created");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_true(say(&w, bad[i].message));
        expect_error(&w, bad[i].code, bad[i].says);
        assert_int_equal(w.read, w.n);
    }
    say(&w, "{\"type\":\"no.such\",\"event_id\":\"mine\"}");
    assert_string_equal(text_of(json_object_get(expect(&w, "error"), "error"), "event_id"), "mine");
    say(&w, UPDATE(",\"turn_detection\":null"));
    expect(&w, "session.updated");
    append_clip(&w, 0, true, 960);
    say(&w, COMMIT);
    assert_string_equal(expect_item(&w, "item_1_1", false), spoken.clips[0].said);
    close_world(&w);
}

static void what_was_cleared_is_in_no_item(void **state) {
    struct world w;
    (void)state;
    open_world(&w, true);
    expect(&w, "session.created");
    say(&w, UPDATE(",\"turn_detection\":null"));
    expect(&w, "session.updated");
    append_clip(&w, 0, true, 960);
    say(&w, "{\"type\":\"input_audio_buffer.clear\"}");
    assert_true(realtime_is_idle(w.r));
    append_clip(&w, 1, true, 960);
    say(&w, COMMIT);
    while (strcmp(text_of(next(&w), "type"), "input_audio_buffer.cleared") != 0)
        continue;
    assert_string_equal(expect_item(&w, "item_1_2", false), spoken.clips[1].said);
    close_world(&w);
}

static void who_leaves_or_finds_no_room_is_let_go(void **state) {
    struct world w;
    (void)state;
    open_world(&w, true); /* left while its audio is heard */
    say(&w, UPDATE(",\"turn_detection\":null"));
    append_clip(&w, 0, true, 960);
    w.leave = true;
    const int n = w.n;
    assert_false(say(&w, COMMIT));
    for (int i = n; i < w.n; i++)
        assert_string_not_equal(text_of(w.events[i], "type"), ITEM "completed");
    close_world(&w);

    open_world(&w, true); /* the socket takes no more */
    say(&w, UPDATE(",\"turn_detection\":null"));
    append_clip(&w, 0, true, 960);
    w.leave_after = w.n + 1;
    assert_false(say(&w, COMMIT));
    close_world(&w);

    open_world(&w, true); /* too many wait */
    say(&w, UPDATE(",\"turn_detection\":null"));
    w.read = w.n;
    w.full = true;
    assert_false(append_clip(&w, 0, true, 960));
    expect_error(&w, "overloaded", "too many");
    close_world(&w);
}

static void an_item_that_is_too_long_fails_alone(void **state) {
    struct world w;
    (void)state;
    open_world(&w, true);
    say(&w, UPDATE(",\"turn_detection\":null"));
    w.read = w.n;
    assert_true(append_silence(&w, 60.5, 24000));
    const json_t *event = expect(&w, ITEM "failed");
    assert_string_equal(text_of(event, "item_id"), "item_1_1");
    assert_string_equal(text_of(json_object_get(event, "error"), "code"), "audio_too_long");
    say(&w, "{\"type\":\"input_audio_buffer.clear\"}");
    expect(&w, "input_audio_buffer.cleared");
    append_clip(&w, 1, true, 960);
    say(&w, COMMIT);
    assert_string_equal(expect_item(&w, "item_1_3", false), spoken.clips[1].said);
    close_world(&w);
}

static void wait_ms(int ms) { nanosleep(&(struct timespec){ 0, (long)ms * 1000000 }, NULL); }

/* Messages that are no audio, and a few samples of it, are no reason to keep a transcriber. */
static void an_item_without_audio_fails_when_others_wait(void **state) {
    static const int16_t some[8] = { 0 };
    struct world w;
    (void)state;
    open_world(&w, true);
    say(&w, UPDATE(",\"turn_detection\":null"));
    append_clip(&w, 0, true, 960);
    w.read = w.n;
    wait_ms(250);
    realtime_rest(w.r); /* nobody waits */
    assert_false(realtime_is_idle(w.r));
    append_clip(&w, 0, true, 960);
    w.wanted = true;
    w.read = w.n;
    realtime_rest(w.r); /* it was heard just now */
    assert_int_equal(w.read, w.n);
    for (int i = 0; i < 7 && !realtime_is_idle(w.r); i++) {
        wait_ms(50);
        say(&w, UPDATE(",\"turn_detection\":null"));
        append(&w, some, 8, 16);
        realtime_rest(w.r);
    }
    while (strcmp(text_of(w.events[w.read], "type"), "session.updated") == 0)
        w.read++;
    const json_t *event = expect(&w, ITEM "failed"), *error = json_object_get(event, "error");
    assert_string_equal(text_of(event, "item_id"), "item_1_1");
    assert_string_equal(text_of(error, "code"), "audio_timeout");
    assert_string_equal(text_of(error, "type"), "invalid_request_error");
    assert_non_null(strstr(text_of(error, "message"), "0.2 seconds (--timeout)"));
    assert_true(realtime_is_idle(w.r));
    assert_int_equal(w.n_taken, 0);
    append_clip(&w, 1, true, 960); /* the session goes on */
    say(&w, COMMIT);
    assert_string_equal(expect_item(&w, "item_1_2", false), spoken.clips[1].said);
    close_world(&w);

    open_world(&w, false); /* vLLM's */
    say(&w, "{\"type\":\"session.update\",\"model\":\"speech\"}");
    say(&w, COMMIT);
    append_clip(&w, 0, false, 4096);
    w.wanted = true;
    w.read = w.n;
    wait_ms(250);
    realtime_rest(w.r);
    event = expect(&w, "error");
    assert_string_equal(text_of(event, "code"), "audio_timeout");
    assert_non_null(strstr(text_of(event, "error"), "--timeout"));
    assert_int_equal(w.n_taken, 0);
    assert_true(say(&w, "{\"type\":\"input_audio_buffer.commit\",\"final\":true}"));
    assert_string_equal(text_of(expect(&w, "transcription.done"), "text"), "");
    close_world(&w);
}

static int enter(void **state) {
    (void)state;
    const struct reel_model_options options = { .size = sizeof options, .device = "cpu" };
    if (reel_model_open(&model, "models/speech", &options, &err) != REEL_OK) return -1;
    spoken_open(&spoken);
    return 0;
}

static int leave(void **state) {
    (void)state;
    spoken_close(&spoken);
    reel_model_close(model);
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_that_commits_gets_what_was_said),
        cmocka_unit_test(how_audio_is_cut_changes_nothing),
        cmocka_unit_test(the_server_finds_where_speech_begins_and_ends),
        cmocka_unit_test(what_may_still_change_is_told_on_request),
        cmocka_unit_test(older_names_and_telephone_audio),
        cmocka_unit_test(vllms_clients_are_understood),
        cmocka_unit_test(what_cannot_be_is_refused_and_the_session_goes_on),
        cmocka_unit_test(what_was_cleared_is_in_no_item),
        cmocka_unit_test(who_leaves_or_finds_no_room_is_let_go),
        cmocka_unit_test(an_item_that_is_too_long_fails_alone),
        cmocka_unit_test(an_item_without_audio_fails_when_others_wait),
    };
    return cmocka_run_group_tests_name("realtime sessions", tests, enter, leave);
}
