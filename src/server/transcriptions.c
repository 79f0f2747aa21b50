/* POST /v1/audio/transcriptions. The upload is decoded and transcribed piece by piece, so that its
 * decoded size never stands in memory, and ends where --max-audio-seconds is passed. */
#include "server/handlers.h"
#include "server/json_out.h"
#include "server/server_state.h"
#include "server/speech.h"
#include "server/transcription_form.h"

#include "server/api_error.h"

#include "base/clock.h"
#include "base/json.h"
#include "base/memory.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <time.h>

enum { PIECE = REEL_AUDIO_RATE }; /* samples read at once */

struct job {
    struct exchange *x;
    struct multipart parts;
    struct transcription_form form;
    struct served_model *model;
    struct reel_audio *audio;
    struct reel_transcriber *transcriber;
    struct reel_transcript transcript;
    int64_t created;
    bool said;         /* some text went out */
    struct buffer out; /* an event, or the whole answer */
    float samples[PIECE];
};

/* ---- events of a stream ---- */

static bool send_event(struct job *job) {
    enum reel_status status = buffer_text(&job->out, "\n\n", NULL);
    const bool sent = status == REEL_OK && exchange_put(job->x, job->out.bytes, job->out.size);
    job->out.size = 0;
    return sent;
}

/* data: {"type":"transcript.text.delta","delta":...} */
static enum reel_status put_delta(struct job *job, const char *text, size_t n,
                                  struct reel_error *err) {
    enum reel_status status =
        buffer_text(&job->out, "data: {\"type\":\"transcript.text.delta\",\"delta\":", err);
    if (status == REEL_OK) status = json_out_text(&job->out, text, n, err);
    return status == REEL_OK ? buffer_text(&job->out, "}", err) : status;
}

static enum reel_status put_chunk_head(struct job *job, struct reel_error *err) {
    enum reel_status status =
        buffer_printf(&job->out, err,
                      "data: {\"id\":\"trsc-%s\",\"object\":\"transcription.chunk\",\"created\":"
                      "%" PRId64 ",\"model\":",
                      exchange_id(job->x), job->created);
    if (status == REEL_OK) status = json_out_string(&job->out, job->model->name, err);
    return status == REEL_OK ? buffer_text(&job->out, ",\"choices\":[", err) : status;
}

static enum reel_status put_chunk(struct job *job, const char *text, size_t n, const char *finish,
                                  struct reel_error *err) {
    enum reel_status status = put_chunk_head(job, err);
    if (status == REEL_OK)
        status = buffer_text(&job->out, "{\"index\":0,\"delta\":{\"content\":", err);
    if (status == REEL_OK) status = json_out_text(&job->out, text, n, err);
    if (status == REEL_OK) status = buffer_text(&job->out, "},\"finish_reason\":", err);
    if (status == REEL_OK) status = json_out_string(&job->out, finish, err);
    return status == REEL_OK ? buffer_text(&job->out, "}]}", err) : status;
}

static bool on_text(void *user, const char *text, size_t n, int segment) {
    struct job *job = user;
    (void)segment;
    if (!job->said)
        exchange_figures(job->x)->first_token_ms = clock_ms() - exchange_start_ms(job->x);
    job->said = true;
    if (!job->form.stream) return true;
    enum reel_status status =
        job->form.chunks ? put_chunk(job, text, n, NULL, NULL) : put_delta(job, text, n, NULL);
    return status == REEL_OK && send_event(job);
}

static bool on_progress(void *user, const char *stage, uint64_t done, uint64_t total) {
    struct job *job = user;
    (void)stage, (void)done, (void)total;
    return !exchange_is_gone(job->x) && !session_pool_is_over(job->model);
}

/* ---- a whole answer ---- */

/* Of the fields that OpenAI's segments have, those that are known: no probabilities. */
static bool complete_segments(json_t *json, const struct reel_transcript *t) {
    json_t *list = json_object_get(json, "segments");
    bool good = true;
    for (size_t i = 0; i < json_array_size(list) && good; i++) {
        json_t *one = json_array_get(list, i), *ids = json_array();
        const struct reel_segment *s = reel_transcript_segment(t, (int)i);
        for (int k = 0; s && k < s->n_ids; k++)
            good = json_array_append_new(ids, json_integer(s->ids[k])) == 0 && good;
        good = json_object_set_new(one, "tokens", ids) == 0 && good;
        good = json_object_set_new(one, "seek", json_integer(0)) == 0 && good;
        good = json_object_set_new(one, "temperature", json_real(0)) == 0 && good;
    }
    return good;
}

static enum reel_status complete_json(struct job *job, char **text, struct reel_error *err) {
    const bool verbose = job->form.format == REEL_TRANSCRIPT_VERBOSE_JSON;
    const struct reel_transcript *t = &job->transcript;
    enum reel_status (*const write)(char **, const json_t *, const char *, struct reel_error *) =
        job->form.stream ? json_write_compact : json_write; /* an event is one line */
    json_t *json = NULL, *usage = NULL;
    struct buffer made = { 0 };
    enum reel_status status = json_read(&json, "a transcript", *text, strlen(*text), err);
    if (status == REEL_OK)
        status = verbose ? buffer_printf(&made, err, "{\"type\":\"duration\",\"seconds\":%.0f}",
                                         ceil(t->seconds))
                         : speech_usage_tokens(&made, t, err);
    if (status == REEL_OK) status = json_read(&usage, "usage", made.bytes, made.size, err);
    if (status == REEL_OK) {
        const bool good = json_object_set_new(json, "usage", usage) == 0 &&
                          (!verbose || complete_segments(json, t));
        reel_free(*text);
        *text = NULL;
        status = good ? write(text, json, "a transcript", err) : err_memory(err, "a transcript", 0);
    }
    json_decref(json);
    buffer_release(&made);
    return status;
}

/* ---- the end of a stream ---- */

/* transcript.text.done with the text and its usage; for verbose_json with all that the whole answer
 * would have, so that who shows words as they come gets the segments, too. */
static enum reel_status put_done(struct job *job, struct reel_error *err) {
    const struct reel_transcript *t = &job->transcript;
    struct buffer *out = &job->out;
    enum reel_status status = buffer_text(out, "data: {\"type\":\"transcript.text.done\",", err);
    if (job->form.format == REEL_TRANSCRIPT_VERBOSE_JSON) {
        char *text = NULL;
        if (status == REEL_OK) status = reel_transcript_text(t, job->form.format, &text, NULL, err);
        if (status == REEL_OK) status = complete_json(job, &text, err);
        if (status == REEL_OK) status = buffer_text(out, text + 1, err); /* without its brace */
        reel_free(text);
        return status;
    }
    if (status == REEL_OK) status = buffer_text(out, "\"text\":", err);
    if (status == REEL_OK) status = json_out_string(out, t->text, err);
    if (status == REEL_OK) status = buffer_text(out, ",\"usage\":", err);
    if (status == REEL_OK) status = speech_usage_tokens(out, t, err);
    return status == REEL_OK ? buffer_text(out, "}", err) : status;
}

/* The last events: all the text, or why it ended, and what it took. */
static enum reel_status end_stream(struct job *job, struct reel_error *err) {
    const struct reel_transcript *t = &job->transcript;
    struct buffer *out = &job->out;
    enum reel_status status;
    if (!job->form.chunks) {
        status = put_done(job, err);
        if (status == REEL_OK) send_event(job);
        return status;
    }
    status = put_chunk(job, "", 0, "stop", err);
    if (status == REEL_OK && job->form.usage_chunk) {
        status = buffer_text(out, "\n\n", err);
        if (status == REEL_OK) status = put_chunk_head(job, err);
        if (status == REEL_OK) status = buffer_text(out, "],\"usage\":", err);
        if (status == REEL_OK) status = speech_usage_chat(out, t, err);
        if (status == REEL_OK) status = buffer_text(out, "}", err);
    }
    if (status == REEL_OK) status = buffer_text(out, "\n\ndata: [DONE]", err);
    if (status == REEL_OK) send_event(job);
    return status;
}

static enum reel_status reply(struct job *job, struct reel_error *err) {
    static const char *const types[] = { [REEL_TRANSCRIPT_TEXT] = "text/plain; charset=utf-8",
                                         [REEL_TRANSCRIPT_JSON] = "application/json",
                                         [REEL_TRANSCRIPT_VERBOSE_JSON] = "application/json",
                                         [REEL_TRANSCRIPT_SRT] = "text/plain; charset=utf-8",
                                         [REEL_TRANSCRIPT_VTT] = "text/vtt; charset=utf-8" };
    const enum reel_transcript_format format = job->form.format;
    char *text = NULL;
    enum reel_status status = reel_transcript_text(&job->transcript, format, &text, NULL, err);
    if (status == REEL_OK &&
        (format == REEL_TRANSCRIPT_JSON || format == REEL_TRANSCRIPT_VERBOSE_JSON))
        status = complete_json(job, &text, err);
    if (status == REEL_OK) exchange_reply(job->x, 200, types[format], text, strlen(text));
    reel_free(text);
    return status;
}

/* ---- the work ---- */

/* What is wrong with a recording is the request's fault. */
static void refuse_audio(struct exchange *x, const struct reel_error *err) {
    if (err->status == REEL_E_MEMORY || err->status == REEL_E_CANCELLED)
        api_error_from(x, err);
    else
        api_error(x, err->status == REEL_E_LIMIT ? 413 : 400, "file", NULL, "%s", err->text);
}

static bool read_request(struct job *job, struct reel_error *err) {
    const char *type = exchange_header(job->x, "Content-Type"), *param = NULL;
    size_t n;
    const char *body = exchange_body(job->x, &n);
    enum reel_status status = multipart_read(&job->parts, type, body, n, err);
    if (status == REEL_OK) status = transcription_form_read(&job->form, &job->parts, &param, err);
    if (status != REEL_OK) api_error(job->x, 400, param, NULL, "%s", err->text);
    return status == REEL_OK;
}

/* libsndfile 1.2.0 loses 6 KB with each Ogg Vorbis file that it cannot open (reel_speech.h). Who
 * sends such files without end costs no more memory than so many of them. */
#define MOST_BAD_OGG 256

static bool is_ogg(const struct multipart_part *file) {
    return file->n_bytes >= 4 && memcmp(file->bytes, "OggS", 4) == 0;
}

static bool open_audio(struct job *job, struct reel_error *err) {
    const struct multipart_part *file = job->form.file;
    atomic_int *n_bad = &exchange_server(job->x)->n_bad_ogg;
    if (is_ogg(file) && atomic_load(n_bad) >= MOST_BAD_OGG) {
        api_error(
            job->x, 400, "file", NULL,
            "%d damaged Ogg files were sent, and libsndfile keeps memory of each: no more Ogg "
            "files until the server is started again; send WAV, FLAC or MP3",
            MOST_BAD_OGG);
        return false;
    }
    const struct reel_audio_options options = {
        .size = sizeof options,
        .most_seconds = exchange_server(job->x)->options.max_audio_seconds,
    };
    enum reel_status status =
        reel_audio_open_memory(&job->audio, file->filename[0] ? file->filename : "the file",
                               file->bytes, file->n_bytes, &options, err);
    if (status == REEL_E_FORMAT && is_ogg(file)) atomic_fetch_add(n_bad, 1);
    if (status != REEL_OK) refuse_audio(job->x, err);
    return status == REEL_OK;
}

static bool open_transcriber(struct job *job, struct reel_error *err) {
    const struct transcription_form *form = &job->form;
    struct reel_transcriber_options options;
    speech_options(&options, job->model);
    options.language = form->language[0] ? form->language : NULL;
    options.context = form->prompt[0] ? form->prompt : NULL;
    options.on_text = on_text;
    options.user = options.progress_user = job;
    options.progress = on_progress;
    enum reel_status status =
        reel_transcriber_open(&job->transcriber, job->model->model, &options, err);
    /* Of the options, only the language can be one that is not allowed. */
    if (status == REEL_E_ARGUMENT)
        api_error(job->x, 400, "language", NULL, "%s", err->text);
    else if (status != REEL_OK)
        api_error_from(job->x, err);
    return status == REEL_OK;
}

/* Whether the whole recording was transcribed; otherwise the client has been told. */
static bool transcribe(struct job *job, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    for (size_t n = 1; n > 0 && status == REEL_OK;) {
        if (reel_audio_read(job->audio, job->samples, PIECE, &n, err) != REEL_OK) {
            refuse_audio(job->x, err);
            return false;
        }
        if (!on_progress(job, "", 0, 0))
            status = err_set(err, REEL_E_CANCELLED, "the server is ending");
        if (status == REEL_OK && n > 0)
            status = reel_transcriber_push(job->transcriber, job->samples, n, err);
    }
    if (status == REEL_OK)
        status = reel_transcriber_finish(job->transcriber, &job->transcript, err);
    if (status != REEL_OK) api_error_from(job->x, err);
    return status == REEL_OK;
}

static void work(struct job *job, struct reel_error *err) {
    if (!open_transcriber(job, err)) return;
    if (job->form.stream) exchange_begin(job->x, 200, "text/event-stream");
    if (!transcribe(job, err)) return;
    speech_note_figures(job->x, &job->transcript);
    enum reel_status status = job->form.stream ? end_stream(job, err) : reply(job, err);
    if (status != REEL_OK) api_error_from(job->x, err);
}

static void handle(struct job *job, struct reel_error *err) {
    struct session_lease lease;
    if (!read_request(job, err)) return;
    job->model = exchange_need_model(job->x, job->form.model, true);
    if (!job->model || !open_audio(job, err)) return;
    if (session_lease_take(&lease, job->model, job->x, NULL, 0, err) != REEL_OK) {
        api_error_from(job->x, err);
        return;
    }
    work(job, err);
    reel_transcriber_close(job->transcriber);
    session_lease_give(&lease, job->model, job->x);
    if (job->form.stream && exchange_begun(job->x)) exchange_end(job->x);
}

void handle_transcriptions(struct exchange *x) {
    struct reel_error err = { 0 };
    struct job *job = NULL;
    if (mem_zeroed(&job, 1, sizeof *job, "a transcription", &err) != REEL_OK) {
        api_error_from(x, &err);
        return;
    }
    job->x = x;
    job->created = (int64_t)time(NULL);
    job->transcript.size = sizeof job->transcript;
    handle(job, &err);
    reel_audio_close(job->audio);
    buffer_release(&job->out);
    mem_free(job);
}
