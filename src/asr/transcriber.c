/* The public calls about speech: a recording comes in pieces of any size, is cut into segments, and
 * each goes through the recognizer, in steps while it is spoken or when it is whole. */
#include "asr/prompt.h"
#include "asr/segmenter.h"
#include "asr/stream.h"
#include "audio/pcm.h"
#include "base/memory.h"
#include "base/struct_size.h"
#include "runtime/model_handle.h"

#include <math.h>
#include <string.h>

#define DEFAULT_SECONDS     30
#define MOST_SECONDS        1200 /* what the published programs give the model at once */
#define MOST_STREAM_SECONDS 55   /* with what a cut is looked for in, a minute is held */
#define DEFAULT_PAUSE       2
#define LEAST_PAUSE         0.3
#define MOST_PAUSE          10
#define LEAST_STEP          0.5 /* seconds */
#define MOST_STEP           10
#define MOST_PEAK           1e30f /* of a sample: its features are numbers */
#define TOKENS_A_SECOND     8     /* twice what fast speech has */
#define LEAST_MAX_TOKENS    512
#define MOST_MAX_TOKENS     4096
#define LEAST_STEP_TOKENS   32 /* what the last few ids and a step without an answer leave to say */

struct reel_transcriber {
    struct reel_transcriber_options set;
    char *context; /* own copy; NULL: none */
    struct recognizer *recognizer;
    struct transcript transcript;
    struct outlet outlet;
    struct stream stream;
    struct segmenter_rules rules;
    struct segmenter segmenter;
    size_t chunk;   /* samples from step to step; 0: no steps */
    float *samples; /* [capacity] of the recording, from n_before on: the running segment */
    size_t capacity, n;
    uint64_t n_before; /* samples of the recording before them */
    float peak;        /* largest magnitude so far, at least 1 */
    bool failed, ended;
};

/* ---- opening ---- */

static enum reel_status check_language(const char *language, const char **name,
                                       struct reel_error *err) {
    struct buffer names = { 0 };
    *name = language ? asr_language_find(language) : NULL;
    if (!language || *name) return REEL_OK;
    enum reel_status status = REEL_OK;
    for (int i = 0; asr_language_name(i) && status == REEL_OK; i++)
        status = buffer_printf(&names, err, "%s%s", i ? ", " : "", asr_language_name(i));
    if (status == REEL_OK)
        status =
            err_set(err, REEL_E_ARGUMENT, "language \"%s\" is none of %s", language, names.bytes);
    buffer_release(&names);
    return status;
}

static enum reel_status check_seconds(struct reel_transcriber_options *o, struct reel_error *err) {
    const bool stream = o->stream_seconds != 0;
    const int most = stream ? MOST_STREAM_SECONDS : MOST_SECONDS;
    if (o->segment_seconds == 0) o->segment_seconds = DEFAULT_SECONDS;
    if (!(o->segment_seconds >= 1 && o->segment_seconds <= most))
        return err_set(err, REEL_E_ARGUMENT, "segment_seconds is %g; allowed are 1 to %d%s",
                       o->segment_seconds, most, stream ? " with stream_seconds" : "");
    if (stream && !(o->stream_seconds >= LEAST_STEP && o->stream_seconds <= MOST_STEP))
        return err_set(err, REEL_E_ARGUMENT,
                       "stream_seconds is %g; allowed are %g to %d, or 0 for no steps",
                       o->stream_seconds, LEAST_STEP, MOST_STEP);
    return REEL_OK;
}

static enum reel_status check_pause(struct reel_transcriber_options *o, struct reel_error *err) {
    if (o->pause_seconds == 0) o->pause_seconds = DEFAULT_PAUSE;
    if (o->pause_seconds >= LEAST_PAUSE && o->pause_seconds <= MOST_PAUSE) return REEL_OK;
    return err_set(err, REEL_E_ARGUMENT, "pause_seconds is %g; allowed are %g to %d",
                   o->pause_seconds, LEAST_PAUSE, MOST_PAUSE);
}

static enum reel_status check_options(struct reel_transcriber_options *o, struct reel_error *err) {
    enum reel_status status = check_seconds(o, err);
    if (status == REEL_OK) status = check_pause(o, err);
    if (status != REEL_OK) return status;
    if (o->max_tokens < 0)
        return err_set(err, REEL_E_ARGUMENT,
                       "max_tokens is %d; allowed is 1 or more, or 0 for what the segment's length "
                       "suggests",
                       o->max_tokens);
    if (o->max_tokens == 0) {
        int n = (int)(o->segment_seconds * TOKENS_A_SECOND);
        o->max_tokens = n < LEAST_MAX_TOKENS  ? LEAST_MAX_TOKENS
                        : n > MOST_MAX_TOKENS ? MOST_MAX_TOKENS
                                              : n;
    }
    return REEL_OK;
}

static bool on_raw(void *user, const char *raw, size_t n);
static bool go_on(void *user);

static enum reel_status open_recognizer(struct reel_transcriber *t, const struct reel_model *model,
                                        struct reel_error *err) {
    const struct recognizer_options options = {
        .language = t->set.language,
        .context = t->context,
        .most_context = t->set.past_text ? STREAM_PAST_BYTES + 1 : 0,
        .most_samples = t->capacity,
        .max_tokens = t->set.max_tokens,
        .on_raw = on_raw,
        .go_on = go_on,
        .user = t,
    };
    return recognizer_open(&t->recognizer, model, &options, err);
}

/* What the parts borrow from each other. */
static void connect(struct reel_transcriber *t, const struct reel_model *model) {
    const struct reel_transcriber_options *o = &t->set;
    t->outlet = (struct outlet){ .on_text = o->on_text,
                                 .on_partial = t->chunk ? o->on_partial : NULL,
                                 .user = o->user,
                                 .transcript = &t->transcript,
                                 .language = o->language };
    t->stream = (struct stream){ .recognizer = t->recognizer,
                                 .outlet = &t->outlet,
                                 .transcript = &t->transcript,
                                 .tok = model->model.tokenizer,
                                 .language = o->language,
                                 .context = t->context,
                                 .past_text = o->past_text,
                                 .max_tokens = o->max_tokens };
    if (t->chunk)
        t->stream.step_tokens =
            LEAST_STEP_TOKENS + (int)ceil(2 * TOKENS_A_SECOND * o->stream_seconds);
}

static enum reel_status open_parts(struct reel_transcriber *t, const struct reel_model *model,
                                   struct reel_error *err) {
    const struct reel_transcriber_options *o = &t->set;
    enum reel_status status = REEL_OK;
    if (o->context && *o->context)
        status = mem_text(&t->context, o->context, strlen(o->context), "a context", err);
    if (status == REEL_OK) status = open_recognizer(t, model, err);
    connect(t, model);
    if (status == REEL_OK) status = stream_open(&t->stream, err);
    if (status == REEL_OK)
        status = mem_zeroed(&t->samples, t->capacity, sizeof *t->samples, "a segment's audio", err);
    return status;
}

static void start_recording(struct reel_transcriber *t) {
    t->n = 0;
    t->n_before = 0;
    t->peak = 1;
    t->failed = t->ended = false;
    segmenter_start(&t->segmenter, &t->rules);
    stream_begin(&t->stream);
}

enum reel_status reel_transcriber_open(struct reel_transcriber **out,
                                       const struct reel_model *model,
                                       const struct reel_transcriber_options *given,
                                       struct reel_error *err) {
    struct reel_transcriber_options set;
    struct reel_transcriber *t = NULL;
    err_clear(err);
    if (out) *out = NULL;
    enum reel_status status = err_if_null(err, "out model", (const void *const[]){ out, model });
    if (status == REEL_OK)
        status = struct_read(&set, sizeof set, given, "reel_transcriber_options", err);
    if (status == REEL_OK) status = check_language(set.language, &set.language, err);
    if (status == REEL_OK) status = check_options(&set, err);
    if (status == REEL_OK) status = mem_zeroed(&t, 1, sizeof *t, "a transcriber", err);
    if (status != REEL_OK) return status;
    t->set = set;
    t->chunk = (size_t)(set.stream_seconds * REEL_AUDIO_RATE);
    t->rules =
        (struct segmenter_rules){ .limit = (size_t)(set.segment_seconds * REEL_AUDIO_RATE),
                                  .pause = (size_t)(set.pause_seconds * REEL_AUDIO_RATE + 0.5),
                                  .skip_silence = set.skip_silence };
    t->capacity = segmenter_most(t->rules.limit);
    status = open_parts(t, model, err);
    if (status != REEL_OK) {
        reel_transcriber_close(t);
        return status;
    }
    start_recording(t);
    *out = t;
    return REEL_OK;
}

void reel_transcriber_close(struct reel_transcriber *t) {
    if (!t) return;
    stream_release(&t->stream);
    outlet_release(&t->outlet);
    transcript_release(&t->transcript);
    recognizer_close(t->recognizer);
    mem_free(t->samples);
    mem_free(t->context);
    mem_free(t);
}

void reel_transcriber_reset(struct reel_transcriber *t) {
    if (!t) return;
    transcript_release(&t->transcript);
    start_recording(t);
}

/* ---- while an answer is made ---- */

static bool on_raw(void *user, const char *raw, size_t n) {
    struct reel_transcriber *t = user;
    return stream_heard(&t->stream, raw, n);
}

static bool go_on(void *user) {
    const struct reel_transcriber *t = user;
    const struct reel_transcriber_options *o = &t->set;
    const uint64_t done = t->n_before + t->stream.n_answered;
    return !o->progress ||
           o->progress(o->progress_user, "transcribing", done * 1000 / REEL_AUDIO_RATE, 0);
}

/* ---- the recording ---- */

static enum reel_status check_state(const struct reel_transcriber *t, struct reel_error *err) {
    err_clear(err);
    if (!t) return err_set(err, REEL_E_ARGUMENT, "transcriber is NULL");
    if (!t->failed) return REEL_OK;
    return err_set(err, REEL_E_STATE,
                   "an earlier call on this transcriber failed; reset it to begin a recording");
}

/* *peak: the largest magnitude of n samples. */
static enum reel_status check_samples(const struct reel_transcriber *t, const float *samples,
                                      size_t n, float *peak, struct reel_error *err) {
    size_t i = 0;
    *peak = pcm_peak(samples, n);
    if (*peak <= MOST_PEAK) return REEL_OK;
    while (fabsf(samples[i]) <= MOST_PEAK)
        i++;
    return err_set(err, REEL_E_ARGUMENT, "sample %llu of the recording is %g",
                   (unsigned long long)(t->segmenter.at + i), (double)samples[i]);
}

/* Lets go of samples before the running segment. */
static void drop(struct reel_transcriber *t) {
    const size_t n = (size_t)(t->segmenter.begin - t->n_before);
    if (n == 0) return;
    memmove(t->samples, t->samples + n, (t->n - n) * sizeof *t->samples);
    t->n -= n;
    t->n_before += n;
}

static void hold(struct reel_transcriber *t, const float *samples, size_t n, float peak) {
    if (peak > t->peak) t->peak = peak;
    memcpy(t->samples + t->n, samples, n * sizeof *samples);
    t->n += n;
    drop(t);
}

/* The first n of the samples held are a segment. */
static enum reel_status end_segment(struct reel_transcriber *t, size_t n, struct reel_error *err) {
    enum reel_status status = stream_end(&t->stream, t->samples, n, t->peak, t->n_before, err);
    if (status == REEL_OK) drop(t);
    return status;
}

/* At every chunk's end of the running segment, when there is something new to be heard. */
static enum reel_status step(struct reel_transcriber *t, struct reel_error *err) {
    const struct segmenter *s = &t->segmenter;
    if (t->chunk == 0 || t->n % t->chunk != 0 || !segmenter_sounds(s)) return REEL_OK;
    size_t sure = segmenter_sure(s);
    if (sure <= t->stream.n_answered) return REEL_OK;
    return stream_step(&t->stream, t->samples, sure, t->peak, segmenter_before_cuts(s), err);
}

/* Takes samples up to where something has to be done, and does it. */
static enum reel_status take(struct reel_transcriber *t, const float *samples, size_t n,
                             size_t *taken, struct reel_error *err) {
    if (n > t->capacity - t->n) n = t->capacity - t->n;
    if (t->chunk && n > t->chunk - t->n % t->chunk) n = t->chunk - t->n % t->chunk;
    float peak;
    enum reel_status status = check_samples(t, samples, n, &peak, err);
    if (status != REEL_OK) return status;
    *taken = segmenter_push(&t->segmenter, samples, n);
    hold(t, samples, *taken, *taken == n ? peak : pcm_peak(samples, *taken));
    const size_t whole = segmenter_take(&t->segmenter, t->samples);
    if (whole) return end_segment(t, whole, err);
    drop(t); /* silence that would have been a segment */
    return step(t, err);
}

enum reel_status reel_transcriber_push(struct reel_transcriber *t, const float *samples, size_t n,
                                       struct reel_error *err) {
    enum reel_status status = check_state(t, err);
    if (status != REEL_OK) return status;
    if (n > 0 && !samples) return err_set(err, REEL_E_ARGUMENT, "%zu samples at no address", n);
    if (t->ended) reel_transcriber_reset(t);
    for (size_t at = 0; at < n && status == REEL_OK;) {
        size_t taken = 0;
        status = take(t, samples + at, n - at, &taken, err);
        at += taken;
    }
    t->failed = status != REEL_OK;
    return status;
}

/* Before any work, so that a wrong size costs no recording. */
static enum reel_status check_result(struct reel_transcript *transcript, struct reel_error *err) {
    const struct reel_transcript none = { .size = sizeof none };
    return transcript ? struct_write(transcript, &none, sizeof none, "reel_transcript", err)
                      : REEL_OK;
}

enum reel_status reel_transcriber_finish(struct reel_transcriber *t,
                                         struct reel_transcript *transcript,
                                         struct reel_error *err) {
    enum reel_status status = check_state(t, err);
    if (status == REEL_OK) status = check_result(transcript, err);
    if (status != REEL_OK) return status;
    if (t->ended) reel_transcriber_reset(t); /* two ends in a row: an empty recording */
    for (size_t n = 1; n > 0 && status == REEL_OK;) {
        n = segmenter_finish(&t->segmenter, t->samples);
        if (n > 0) status = end_segment(t, n, err);
    }
    t->transcript.sum.seconds = (double)t->segmenter.at / REEL_AUDIO_RATE;
    struct reel_transcript view;
    if (status == REEL_OK) status = transcript_view(&t->transcript, &view, err);
    if (status == REEL_OK && transcript)
        status = struct_write(transcript, &view, sizeof view, "reel_transcript", err);
    t->ended = true;
    t->failed = status != REEL_OK;
    return status;
}

enum reel_status reel_transcriber_so_far(struct reel_transcriber *t,
                                         struct reel_transcript *transcript,
                                         struct reel_error *err) {
    struct reel_transcript view;
    err_clear(err);
    enum reel_status status =
        err_if_null(err, "transcriber transcript", (const void *const[]){ t, transcript });
    if (status == REEL_OK) status = check_result(transcript, err);
    if (status == REEL_OK) status = transcript_view(&t->transcript, &view, err);
    if (status != REEL_OK) return status;
    return struct_write(transcript, &view, sizeof view, "reel_transcript", err);
}
