/* The public calls about speech: a recording comes in pieces of any size, is cut into segments, and
 * each goes through the recognizer. */
#include "asr/answer.h"
#include "asr/cuts.h"
#include "asr/live_text.h"
#include "asr/prompt.h"
#include "asr/transcript.h"
#include "base/memory.h"
#include "runtime/struct_size.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define DEFAULT_SECONDS  30
#define MOST_SECONDS     1200 /* what the published programs give the model at once */
#define TOKENS_A_SECOND  8    /* twice what fast speech has */
#define LEAST_MAX_TOKENS 512
#define MOST_MAX_TOKENS  4096
#define PAST_TEXT_BYTES  400 /* of earlier text: some 80 words */
#define WORD_BYTES       30  /* that most words are shorter than */

struct reel_transcriber {
    struct reel_transcriber_options set;
    char *language, *context; /* own copies; NULL: none */
    struct recognizer *recognizer;
    size_t limit;   /* samples of a segment, but for where the cut falls */
    float *samples; /* [capacity] of the recording, not yet transcribed */
    size_t capacity, n;
    uint64_t n_before; /* samples of the recording before them */
    float peak;        /* largest magnitude so far, at least 1 */
    bool failed, ended;
    struct transcript transcript;
    /* the running segment */
    struct live_text live;
    size_t shown; /* bytes of its text that on_text got, without what joins */
    double started_ms;
    bool stopped; /* on_text returned false */
};

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

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

static enum reel_status check_options(struct reel_transcriber_options *o, struct reel_error *err) {
    if (o->segment_seconds == 0) o->segment_seconds = DEFAULT_SECONDS;
    if (!(o->segment_seconds >= 1 && o->segment_seconds <= MOST_SECONDS))
        return err_set(err, REEL_E_ARGUMENT, "segment_seconds is %g; allowed are 1 to %d",
                       o->segment_seconds, MOST_SECONDS);
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
        .most_context = t->set.past_text ? PAST_TEXT_BYTES + 1 : 0,
        .most_samples = t->capacity,
        .max_tokens = t->set.max_tokens,
        .on_raw = on_raw,
        .go_on = go_on,
        .user = t,
    };
    return recognizer_open(&t->recognizer, model, &options, err);
}

enum reel_status reel_transcriber_open(struct reel_transcriber **out,
                                       const struct reel_model *model,
                                       const struct reel_transcriber_options *given,
                                       struct reel_error *err) {
    struct reel_transcriber_options set;
    struct reel_transcriber *t = NULL;
    *out = NULL;
    err_clear(err);
    enum reel_status status = struct_read(&set, sizeof set, given, "reel_transcriber_options", err);
    if (status == REEL_OK) status = check_language(set.language, &set.language, err);
    if (status == REEL_OK) status = check_options(&set, err);
    if (status == REEL_OK) status = mem_zeroed(&t, 1, sizeof *t, "a transcriber", err);
    if (status != REEL_OK) return status;
    t->set = set;
    t->peak = 1;
    t->limit = (size_t)(set.segment_seconds * REEL_AUDIO_RATE);
    t->capacity = t->limit + CUT_SEARCH;
    if (set.context && *set.context)
        status = mem_text(&t->context, set.context, strlen(set.context), "a context", err);
    if (status == REEL_OK) status = open_recognizer(t, model, err);
    if (status == REEL_OK)
        status = mem_zeroed(&t->samples, t->capacity, sizeof *t->samples, "a segment's audio", err);
    if (status != REEL_OK) {
        reel_transcriber_close(t);
        return status;
    }
    *out = t;
    return REEL_OK;
}

void reel_transcriber_close(struct reel_transcriber *t) {
    if (!t) return;
    transcript_release(&t->transcript);
    recognizer_close(t->recognizer);
    free(t->samples);
    free(t->context);
    free(t);
}

void reel_transcriber_reset(struct reel_transcriber *t) {
    transcript_release(&t->transcript);
    t->n = 0;
    t->n_before = 0;
    t->peak = 1;
    t->failed = t->ended = false;
}

/* ---- text as it is made ---- */

static bool show(struct reel_transcriber *t, const char *text, size_t n) {
    if (n == 0 || !t->set.on_text) return true;
    const char *joint = t->shown ? "" : transcript_joint(&t->transcript, text, n);
    int segment = t->transcript.n_segments;
    if (t->transcript.sum.first_text_ms == 0)
        t->transcript.sum.first_text_ms = now_ms() - t->started_ms;
    if (*joint && !t->set.on_text(t->set.user, joint, strlen(joint), segment)) t->stopped = true;
    if (!t->stopped && !t->set.on_text(t->set.user, text, n, segment)) t->stopped = true;
    t->shown += n;
    return !t->stopped;
}

static bool on_raw(void *user, const char *raw, size_t n) {
    struct reel_transcriber *t = user;
    live_text_push(&t->live, raw, n);
    if (!t->live.has_begin) return true;
    size_t from = t->live.begin + t->shown;
    return t->live.certain <= from || show(t, raw + from, t->live.certain - from);
}

static bool go_on(void *user) {
    const struct reel_transcriber *t = user;
    const struct reel_transcriber_options *o = &t->set;
    if (!o->progress) return true;
    return o->progress(o->progress_user, "transcribing", t->n_before * 1000 / REEL_AUDIO_RATE, 0);
}

/* ---- segments ---- */

/* Where the last PAST_TEXT_BYTES of a text begin: at a word, or where none begins nearby, as in a
 * script without spaces, at a character. */
static const char *past_text(const struct buffer *text) {
    if (text->size <= PAST_TEXT_BYTES) return text->size ? text->bytes : "";
    const char *from = text->bytes + text->size - PAST_TEXT_BYTES;
    while (((unsigned char)*from & 0xc0) == 0x80)
        from++;
    const char *space = memchr(from, ' ', WORD_BYTES);
    return space ? space + 1 : from;
}

/* The end of the text so far, after the caller's context. */
static enum reel_status set_past_text(struct reel_transcriber *t, struct reel_error *err) {
    struct buffer context = { 0 };
    const char *past = past_text(&t->transcript.text);
    enum reel_status status = buffer_text(&context, t->context ? t->context : "", err);
    if (status == REEL_OK && *past)
        status = buffer_printf(&context, err, "%s%s", context.size ? "\n" : "", past);
    if (status == REEL_OK) status = recognizer_set_context(t->recognizer, context.bytes, err);
    buffer_release(&context);
    return status;
}

/* What is left of the segment's final text, when what was shown is its beginning. */
static enum reel_status show_rest(struct reel_transcriber *t, const char *raw, const char *text,
                                  struct reel_error *err) {
    size_t n = strlen(text);
    bool begins = t->shown <= n && memcmp(raw + t->live.begin, text, t->shown) == 0;
    if (!begins || show(t, text + t->shown, n - t->shown)) return REEL_OK;
    return err_set(err, REEL_E_CANCELLED, "cancelled by the caller");
}

static enum reel_status take_answer(struct reel_transcriber *t, const struct recognized *heard,
                                    size_t n, struct reel_error *err) {
    struct asr_answer answer = { 0 };
    enum reel_status status =
        asr_answer_read(&answer, heard->raw, heard->n_bytes, t->set.language, err);
    if (status == REEL_OK) status = show_rest(t, heard->raw, answer.text, err);
    if (status == REEL_OK)
        status = transcript_add(&t->transcript, (double)t->n_before / REEL_AUDIO_RATE,
                                (double)(t->n_before + n) / REEL_AUDIO_RATE, answer.text,
                                answer.language, heard, err);
    asr_answer_release(&answer);
    return status;
}

/* Transcribes the first n of the samples held and lets go of them. */
static enum reel_status run_segment(struct reel_transcriber *t, size_t n, struct reel_error *err) {
    struct recognized heard;
    enum reel_status status = REEL_OK;
    if (t->set.past_text) status = set_past_text(t, err);
    live_text_start(&t->live, t->set.language != NULL);
    t->shown = 0;
    t->stopped = false;
    t->started_ms = now_ms();
    if (status == REEL_OK)
        status = recognizer_run(t->recognizer, t->samples, n, t->peak, &heard, err);
    if (status == REEL_OK) status = take_answer(t, &heard, n, err);
    if (status != REEL_OK) return status;
    memmove(t->samples, t->samples + n, (t->n - n) * sizeof *t->samples);
    t->n -= n;
    t->n_before += n;
    return REEL_OK;
}

/* ---- the recording ---- */

static enum reel_status check_state(const struct reel_transcriber *t, struct reel_error *err) {
    err_clear(err);
    if (!t->failed) return REEL_OK;
    return err_set(err, REEL_E_STATE,
                   "an earlier call on this transcriber failed; reset it to begin a recording");
}

static enum reel_status take_samples(struct reel_transcriber *t, const float *samples, size_t n,
                                     struct reel_error *err) {
    for (size_t i = 0; i < n; i++) {
        float size = fabsf(samples[i]);
        if (!(size <= 1e30f))
            return err_set(err, REEL_E_ARGUMENT, "sample %llu of the recording is %g",
                           (unsigned long long)(t->n_before + t->n + i), (double)samples[i]);
        if (size > t->peak) t->peak = size;
    }
    memcpy(t->samples + t->n, samples, n * sizeof *samples);
    t->n += n;
    return REEL_OK;
}

enum reel_status reel_transcriber_push(struct reel_transcriber *t, const float *samples, size_t n,
                                       struct reel_error *err) {
    enum reel_status status = check_state(t, err);
    if (status != REEL_OK) return status;
    if (n > 0 && !samples) return err_set(err, REEL_E_ARGUMENT, "%zu samples at no address", n);
    if (t->ended) reel_transcriber_reset(t);
    while (n > 0 && status == REEL_OK) {
        size_t room = t->capacity - t->n, piece = n < room ? n : room;
        status = take_samples(t, samples, piece, err);
        samples += piece;
        n -= piece;
        if (status == REEL_OK && t->n == t->capacity)
            status = run_segment(t, cut_find(t->samples, t->n, t->limit), err);
    }
    t->failed = status != REEL_OK;
    return status;
}

enum reel_status reel_transcriber_finish(struct reel_transcriber *t,
                                         struct reel_transcript *transcript,
                                         struct reel_error *err) {
    enum reel_status status = check_state(t, err);
    if (t->ended) reel_transcriber_reset(t); /* two ends in a row: an empty recording */
    while (status == REEL_OK && t->n > 0)
        status = run_segment(t, t->n > t->limit ? cut_find(t->samples, t->n, t->limit) : t->n, err);
    struct reel_transcript view;
    if (status == REEL_OK) status = transcript_view(&t->transcript, &view, err);
    if (status == REEL_OK && transcript && !struct_write(transcript, &view, sizeof view))
        status = err_set(err, REEL_E_ARGUMENT,
                         "struct reel_transcript: size is %zu; set it to sizeof(struct "
                         "reel_transcript) (%zu here)",
                         transcript->size, sizeof view);
    t->ended = true;
    t->failed = status != REEL_OK;
    return status;
}
