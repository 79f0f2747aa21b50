/* Audio of a session, its items and their transcriber; the dialects say what happens. */
#include "server/realtime_core.h"

#include "server/base64.h"
#include "server/json_out.h"

#include "base/clock.h"
#include "base/memory.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    PIECE = 1600,        /* samples at 16,000 Hz given on at once: 100 ms */
    LEAST_COMMIT = 1600, /* likewise; OpenAI refuses less */
    BEHIND = 40,         /* likewise: 2.5 ms, which struct reel_resampler is behind */
    BEHIND_SLOW = 96     /* 6 ms, of rates below 16,000 Hz */
};

/* ---- events ---- */

void realtime_put(struct realtime *r, const char *format, ...) {
    char text[600];
    va_list list;
    va_start(list, format);
    const int n = vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (n < 0 || (size_t)n >= sizeof text || buffer_append(&r->out, text, (size_t)n, NULL) != 0)
        r->over = true;
}

void realtime_put_text(struct realtime *r, const char *text, size_t n) {
    if (json_out_text(&r->out, text, n, NULL) != REEL_OK) r->over = true;
}

void realtime_put_string(struct realtime *r, const char *text) {
    if (json_out_string(&r->out, text, NULL) != REEL_OK) r->over = true;
}

void realtime_send(struct realtime *r) {
    if (!r->over && !r->host.send(r->host.user, r->out.bytes, r->out.size)) r->over = true;
    r->out.size = 0;
}

long long realtime_ms(uint64_t n_samples) { return (long long)(n_samples / 16); }

const char *realtime_text(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

bool realtime_copy(char *out, size_t cap, const char *text) {
    const size_t n = strlen(text);
    if (n >= cap) return false;
    memcpy(out, text, n + 1);
    return true;
}

/* ---- the transcriber ---- */

static bool on_text(void *user, const char *text, size_t n, int segment) {
    struct realtime *r = user;
    (void)segment;
    if (r->set.partials && buffer_append(&r->certain, text, n, NULL) != REEL_OK) r->over = true;
    r->dialect->delta(r, text, n);
    return !r->over;
}

static bool on_partial(void *user, const char *text, size_t n, int segment) {
    struct realtime *r = user;
    (void)segment;
    if (r->set.partials) r->dialect->partial(r, text, n);
    return !r->over;
}

static bool on_progress(void *user, const char *stage, uint64_t done, uint64_t total) {
    struct realtime *r = user;
    (void)stage, (void)done, (void)total;
    if (r->host.gone(r->host.user)) r->over = true;
    return !r->over;
}

static void close_transcriber(struct realtime *r) {
    reel_transcriber_close(r->transcriber);
    r->transcriber = NULL;
    if (r->taken) r->host.give(r->host.user);
    r->taken = false;
}

static enum reel_status find_model(struct realtime *r, struct reel_error *err) {
    const char *name = r->set.model;
    if (r->model) return REEL_OK;
    enum reel_status status = r->host.find(r->host.user, &name, &r->model, &r->options, err);
    if (status != REEL_OK) r->model = NULL;
    r->model_name = status == REEL_OK ? name : NULL;
    return status;
}

static enum reel_status open_transcriber(struct realtime *r, struct reel_error *err) {
    if (r->transcriber && r->stale) close_transcriber(r);
    if (r->transcriber) return REEL_OK;
    enum reel_status status = find_model(r, err);
    if (status == REEL_OK) status = r->host.take(r->host.user, err);
    if (status != REEL_OK) return status;
    r->taken = true;
    r->stale = false;
    struct reel_transcriber_options options = r->options;
    if (r->set.step_seconds > 0) options.stream_seconds = r->set.step_seconds;
    options.language = r->set.language[0] ? r->set.language : NULL;
    options.context = r->set.prompt[0] ? r->set.prompt : NULL;
    options.on_text = on_text;
    options.on_partial = on_partial;
    options.progress = on_progress;
    options.user = options.progress_user = r;
    status = reel_transcriber_open(&r->transcriber, r->model, &options, err);
    if (status != REEL_OK) close_transcriber(r);
    return status;
}

/* ---- items ---- */

static void begin_item(struct realtime *r) {
    if (r->open) return;
    r->open = true;
    r->item++;
    r->n_item = r->n_counted = 0;
    r->heard_ms = clock_ms();
    r->certain.size = 0;
    r->begin = r->n_heard;
}

/* Only audio counts, and only enough of it: neither a client's other messages nor a sample now and
 * then keep a transcriber from others. The time that the model takes is not the client's. */
static void note_audio(struct realtime *r) {
    if (r->n_item < r->n_counted + LEAST_COMMIT) return;
    r->n_counted = r->n_item;
    r->heard_ms = clock_ms();
}

static bool is_quiet(const struct realtime *r) {
    return clock_ms() - r->heard_ms > r->host.quiet_seconds * 1e3;
}

static void fail_item(struct realtime *r, const struct reel_error *err);

void realtime_rest(struct realtime *r) {
    struct reel_error err = { 0 };
    if (!r->transcriber || r->over || !r->host.wanted(r->host.user)) return;
    if (!r->open) {
        close_transcriber(r);
    } else if (is_quiet(r)) {
        (void)err_set(&err, REEL_E_STATE,
                      "less than 100 ms of audio came in %g seconds (--timeout) while others wait "
                      "for this transcriber; commit an item when it has been said",
                      r->host.quiet_seconds);
        fail_item(r, &err);
    }
}

/* The item is over, whatever became of it. */
static void end_item(struct realtime *r) {
    r->open = false;
    r->previous_item = r->item;
    r->n_item = 0;
    if (r->transcriber) reel_transcriber_reset(r->transcriber);
    realtime_rest(r);
}

static void fail_item(struct realtime *r, const struct reel_error *err) {
    if (!r->over) r->dialect->failed(r, err);
    voice_init(&r->voice, r->set.threshold, r->set.silence_ms);
    end_item(r);
}

/* Samples of silence that an item begins with, as many as the resampler is behind: a step comes
 * with the message that completes its half second then, and not with the one after it. */
static size_t head_start(const struct realtime *r) {
    if (!r->resampler || r->set.vad) return 0;
    return r->set.rate < REEL_AUDIO_RATE ? BEHIND_SLOW : BEHIND;
}

static void hear(struct realtime *r, const float *samples, size_t n) {
    static const float silence[BEHIND_SLOW];
    struct reel_error err = { 0 };
    enum reel_status status = open_transcriber(r, &err);
    if (status != REEL_OK) { /* nothing would be heard of what follows, either */
        if (!r->over && !on_progress(r, "", 0, 0)) return;
        r->dialect->error(r, status == REEL_E_LIMIT ? "overloaded" : "server_error", NULL,
                          err.text);
        r->over = true;
        return;
    }
    const size_t ahead = r->open ? 0 : head_start(r);
    begin_item(r);
    r->n_item += n + ahead;
    if ((double)r->n_item / REEL_AUDIO_RATE > r->host.most_seconds)
        status = err_set(&err, REEL_E_LIMIT, "the audio is longer than %g seconds",
                         r->host.most_seconds);
    if (status == REEL_OK && ahead > 0)
        status = reel_transcriber_push(r->transcriber, silence, ahead, &err);
    if (status == REEL_OK) status = reel_transcriber_push(r->transcriber, samples, n, &err);
    if (status != REEL_OK)
        fail_item(r, &err);
    else
        note_audio(r);
}

static void finish_item(struct realtime *r) {
    struct reel_transcript made = { .size = sizeof made };
    struct reel_error err = { 0 };
    r->dialect->committed(r);
    enum reel_status status = reel_transcriber_finish(r->transcriber, &made, &err);
    if (status != REEL_OK) {
        fail_item(r, &err);
        return;
    }
    r->host.spent(r->host.user, &made);
    r->dialect->completed(r, &made);
    end_item(r);
}

void realtime_commit(struct realtime *r) {
    if (r->over) return;
    if (!r->open || r->n_item < LEAST_COMMIT) {
        r->dialect->error(r, "input_audio_buffer_commit_empty", NULL,
                          "nothing to commit: less than 100 ms of audio came since the last item");
        return;
    }
    voice_init(&r->voice, r->set.threshold, r->set.silence_ms);
    finish_item(r);
}

void realtime_clear(struct realtime *r) {
    if (r->open) end_item(r);
    voice_init(&r->voice, r->set.threshold, r->set.silence_ms);
    r->n_frame = 0;
    r->n_before = 0;
    r->bytes.size = 0;
    r->dialect->cleared(r);
}

bool realtime_is_idle(const struct realtime *r) { return !r->open; }

/* ---- who speaks when ---- */

enum { BEFORE_ROOM = (REALTIME_MOST_PREFIX / 20 + VOICE_LATE + 1) * VOICE_FRAME };

static void keep_before(struct realtime *r, const float *samples) {
    for (int i = 0; i < VOICE_FRAME; i++) {
        r->before[r->before_at] = samples[i];
        r->before_at = (r->before_at + 1) % BEFORE_ROOM;
    }
    r->n_before += VOICE_FRAME;
    if (r->n_before > BEFORE_ROOM) r->n_before = BEFORE_ROOM;
}

/* Speech has begun VOICE_LATE frames ago; so much before it is heard, too. */
static void start_speech(struct realtime *r) {
    size_t n = (size_t)r->set.prefix_ms * 16 + (size_t)(VOICE_LATE + 1) * VOICE_FRAME;
    float piece[VOICE_FRAME];
    if (n > r->n_before) n = r->n_before;
    begin_item(r);
    r->begin = r->n_heard - n;
    r->dialect->started(r);
    for (size_t done = 0; done < n && r->open;) {
        size_t some = 0;
        for (; some < VOICE_FRAME && done < n; some++, done++)
            piece[some] = r->before[(r->before_at + BEFORE_ROOM - n + done) % BEFORE_ROOM];
        hear(r, piece, some);
    }
    r->n_before = 0;
}

static void hear_frame(struct realtime *r) {
    const bool speaking = r->voice.speaking;
    r->n_heard += VOICE_FRAME;
    const enum voice_change change = voice_frame(&r->voice, r->frame);
    if (!speaking) keep_before(r, r->frame);
    if (change == VOICE_STARTED) start_speech(r);
    if (speaking) hear(r, r->frame, VOICE_FRAME);
    if (change != VOICE_STOPPED || !r->open || r->over) return;
    r->end = r->n_heard;
    r->dialect->stopped(r);
    finish_item(r);
}

static void take_samples(struct realtime *r, const float *samples, size_t n) {
    if (!r->set.vad) {
        r->n_heard += n;
        if (n > 0) hear(r, samples, n);
        return;
    }
    for (size_t i = 0; i < n && !r->over; i++) {
        r->frame[r->n_frame++] = samples[i];
        if (r->n_frame < VOICE_FRAME) continue;
        r->n_frame = 0;
        hear_frame(r);
    }
}

/* ---- bytes to samples ---- */

static float from_ulaw(unsigned char byte) { /* ITU-T G.711 */
    const int u = ~byte & 0xff;
    const int magnitude = ((((u & 0x0f) << 3) + 0x84) << (u >> 4 & 7)) - 0x84;
    return (float)(u & 0x80 ? -magnitude : magnitude) / 32768;
}

static float from_alaw(unsigned char byte) {
    const int a = byte ^ 0x55, segment = a >> 4 & 7;
    int magnitude = (a & 0x0f) << 4 | 8;
    if (segment) magnitude = (magnitude | 0x100) << (segment - 1);
    return (float)(a & 0x80 ? magnitude : -magnitude) / 32768;
}

/* Up to n samples from bytes; how many. */
static size_t decode(const struct realtime *r, const unsigned char *bytes, size_t n_bytes,
                     float *out, size_t n) {
    const bool wide = r->set.encoding == REALTIME_PCM16;
    const size_t there = wide ? n_bytes / 2 : n_bytes;
    if (n > there) n = there;
    for (size_t i = 0; i < n; i++) {
        if (wide)
            out[i] = (float)(int16_t)(bytes[2 * i] | bytes[2 * i + 1] << 8) / 32768;
        else
            out[i] = r->set.encoding == REALTIME_ULAW ? from_ulaw(bytes[i]) : from_alaw(bytes[i]);
    }
    return n;
}

static bool settle_resampler(struct realtime *r, struct reel_error *err) {
    if (r->resampler_rate == r->set.rate) return true;
    reel_resampler_close(r->resampler);
    r->resampler = NULL;
    r->resampler_rate = r->set.rate;
    return r->set.rate == REEL_AUDIO_RATE ||
           reel_resampler_open(&r->resampler, r->set.rate, err) == REEL_OK;
}

static void resample(struct realtime *r, const float *samples, size_t n) {
    float out[PIECE];
    struct reel_error err = { 0 };
    if (!r->resampler) {
        take_samples(r, samples, n);
        return;
    }
    for (size_t at = 0, taken = 0, given = PIECE; (at < n || given == PIECE) && !r->over;) {
        if (reel_resampler_run(r->resampler, samples + at, n - at, &taken, out, PIECE, &given,
                               &err) != REEL_OK)
            return;
        at += taken;
        take_samples(r, out, given);
    }
}

void realtime_append(struct realtime *r, const char *base64, size_t n) {
    struct reel_error err = { 0 };
    float samples[PIECE];
    const size_t width = r->set.encoding == REALTIME_PCM16 ? 2 : 1;
    if (base64_read(&r->bytes, base64, n, &err) != REEL_OK || !settle_resampler(r, &err)) {
        r->bytes.size = 0;
        r->dialect->error(r, "invalid_audio", "audio", err.text);
        return;
    }
    size_t at = 0;
    while (r->bytes.size - at >= width && !r->over) {
        const size_t some = decode(r, (const unsigned char *)r->bytes.bytes + at,
                                   r->bytes.size - at, samples, PIECE);
        resample(r, samples, some);
        at += some * width;
    }
    /* Half a sample waits for the next message. */
    if (r->bytes.size > at) r->bytes.bytes[0] = r->bytes.bytes[at];
    r->bytes.size -= at;
}

/* ---- opening, settings, messages ---- */

/* Tried with a transcriber that hears a second: only the language can be wrong. */
static enum reel_status check_language(const struct realtime *r, const char *language,
                                       struct reel_error *err) {
    struct reel_transcriber_options options = r->options;
    struct reel_transcriber *t = NULL;
    options.language = language;
    options.stream_seconds = 0;
    options.segment_seconds = options.max_tokens = 1;
    enum reel_status status = reel_transcriber_open(&t, r->model, &options, err);
    reel_transcriber_close(t);
    return status;
}

bool realtime_configure(struct realtime *r, const struct realtime_settings *set) {
    const struct realtime_settings old = r->set;
    struct reel_error err = { 0 };
    const bool other = strcmp(old.model, set->model) != 0;
    if (other) r->model = NULL;
    r->set = *set;
    if (find_model(r, &err) != REEL_OK) {
        r->set = old;
        r->dialect->error(r, err.status == REEL_E_NOT_FOUND ? "model_not_found" : "model", "model",
                          err.text);
        return false;
    }
    if (set->language[0] && strcmp(old.language, set->language) != 0 &&
        check_language(r, set->language, &err) != REEL_OK) {
        r->set = old;
        r->dialect->error(r, "invalid_value", "language", err.text);
        return false;
    }
    r->stale |= other || strcmp(old.language, set->language) != 0 ||
                strcmp(old.prompt, set->prompt) != 0 || old.step_seconds != set->step_seconds;
    if (!r->voice.speaking) voice_init(&r->voice, set->threshold, set->silence_ms);
    return true;
}

enum reel_status realtime_open(struct realtime **out, const struct realtime_host *host, bool openai,
                               const char *model, struct reel_error *err) {
    struct realtime *r = NULL;
    *out = NULL;
    enum reel_status status = mem_zeroed(&r, 1, sizeof *r, "a realtime session", err);
    if (status != REEL_OK) return status;
    r->host = *host;
    r->created = (long long)time(NULL);
    r->decided = openai;
    r->dialect = &realtime_openai;
    r->set = (struct realtime_settings){
        .rate = 24000, .vad = true, .threshold = 0.5, .prefix_ms = 300, .silence_ms = 500
    };
    if (model && !realtime_copy(r->set.model, sizeof r->set.model, model)) r->set.model[0] = '\0';
    r->resampler_rate = REEL_AUDIO_RATE;
    voice_init(&r->voice, r->set.threshold, r->set.silence_ms);
    status = mem_zeroed(&r->before, BEFORE_ROOM, sizeof *r->before, "audio before speech", err);
    if (status != REEL_OK) {
        realtime_close(r);
        return status;
    }
    (void)find_model(r, NULL); /* for what the first event says; an error comes with the audio */
    r->dialect->message(r, "", NULL);
    *out = r;
    return REEL_OK;
}

void realtime_close(struct realtime *r) {
    if (!r) return;
    close_transcriber(r);
    reel_resampler_close(r->resampler);
    buffer_release(&r->bytes);
    buffer_release(&r->certain);
    buffer_release(&r->out);
    mem_free(r->before);
    mem_free(r);
}

/* vLLM's clients name the model at the top of session.update, and begin with a commit. */
static void decide(struct realtime *r, const char *type, const json_t *message) {
    if (r->decided) return;
    const bool update = strcmp(type, "session.update") == 0;
    const bool vllm = (update && !json_object_get(message, "session")) ||
                      (strcmp(type, "input_audio_buffer.commit") == 0 && !r->open);
    r->decided = true;
    if (!vllm) return;
    r->dialect = &realtime_vllm;
    r->set.rate = REEL_AUDIO_RATE;
    r->set.vad = false;
}

bool realtime_message(struct realtime *r, const char *text, size_t n) {
    struct reel_error err = { 0 };
    json_t *message = NULL;
    r->client_event[0] = '\0';
    if (json_read(&message, "the message", text, n, &err) != REEL_OK || !json_is_object(message)) {
        r->dialect->error(r, "invalid_json", NULL,
                          err.text[0] ? err.text : "a message has to be a JSON object");
        json_decref(message);
        return !r->over;
    }
    const char *type = realtime_text(message, "type");
    const char *id = realtime_text(message, "event_id");
    if (id && !realtime_copy(r->client_event, sizeof r->client_event, id)) r->client_event[0] = 0;
    if (type) {
        decide(r, type, message);
        r->dialect->message(r, type, message);
    } else {
        r->dialect->error(r, "missing_required_parameter", "type", "the message has no type");
    }
    json_decref(message);
    return !r->over;
}
