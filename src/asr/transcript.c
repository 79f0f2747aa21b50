#include "asr/transcript.h"

#include "asr/answer.h"
#include "asr/subtitles.h"
#include "base/memory.h"
#include "base/struct_size.h"
#include "model/tokenizer_utf8.h"

#include <limits.h>
#include <stddef.h>
#include <string.h>

/* ---- joining ---- */

/* Thai, Lao, Myanmar, Khmer; Han, kana and their punctuation, also full width. Korean has spaces.
 */
bool transcript_dense(uint32_t c) {
    return (c >= 0x0e00 && c < 0x0f00) || (c >= 0x1000 && c < 0x10a0) ||
           (c >= 0x1780 && c < 0x1800) || (c >= 0x2e80 && c < 0xa000) ||
           (c >= 0xf900 && c < 0xfb00) || (c >= 0xff00 && c < 0xffa0) ||
           (c >= 0x20000 && c < 0x32000);
}

const char *transcript_joint(const struct transcript *t, const char *text, size_t n) {
    int length;
    if (n == 0 || t->text.size == 0) return "";
    const char *last = t->text.bytes + t->text.size - 1;
    while (last > t->text.bytes && ((unsigned char)*last & 0xc0) == 0x80)
        last--;
    bool dense = transcript_dense(utf8_decode((const unsigned char *)last, &length)) ||
                 transcript_dense(utf8_decode((const unsigned char *)text, &length));
    return dense ? "" : " ";
}

/* ---- segments ---- */

static void segment_release(struct reel_segment *s) {
    mem_free((void *)s->text);
    mem_free((void *)s->language);
    mem_free((void *)s->ids);
}

static enum reel_status make_room(struct transcript *t, struct reel_error *err) {
    if (t->n_segments < t->capacity) return REEL_OK;
    if (t->capacity > INT_MAX / 2) return err_set(err, REEL_E_LIMIT, "too many segments");
    int capacity = t->capacity ? 2 * t->capacity : 16;
    struct reel_segment *grown =
        mem_resize(t->segments, (size_t)capacity * sizeof *grown); /* 88 bytes each */
    if (!grown) return err_memory(err, "segments", (size_t)capacity * sizeof *grown);
    t->segments = grown;
    t->capacity = capacity;
    return REEL_OK;
}

static enum reel_status copy_segment(struct reel_segment *s, const char *text, const char *language,
                                     const struct recognized *heard, struct reel_error *err) {
    char *own_text = NULL, *own_language = NULL;
    int32_t *ids = NULL;
    const size_t n = (size_t)heard->n_ids;
    enum reel_status status = mem_text(&own_text, text, strlen(text), "a segment's text", err);
    if (status == REEL_OK)
        status = mem_text(&own_language, language, strlen(language), "a segment's language", err);
    if (status == REEL_OK) status = mem_zeroed(&ids, n, sizeof *ids, "a segment's ids", err);
    if (status == REEL_OK && n) memcpy(ids, heard->ids, n * sizeof *ids);
    s->text = own_text;
    s->language = own_language;
    s->ids = ids;
    s->n_ids = heard->n_ids;
    s->cut_short = heard->cut_short;
    return status;
}

static enum reel_status join(struct transcript *t, const struct reel_segment *s,
                             struct reel_error *err) {
    const char *joint = transcript_joint(t, s->text, strlen(s->text));
    enum reel_status status = buffer_text(&t->text, joint, err);
    if (status == REEL_OK) status = buffer_text(&t->text, s->text, err);
    return status;
}

void transcript_spent(struct transcript *t, const struct recognized *heard) {
    t->sum.n_audio_tokens += heard->n_audio_tokens - heard->n_reused;
    t->sum.n_prompt_tokens += heard->n_prompt_tokens;
    t->sum.n_tokens += heard->n_ids - heard->n_given;
    t->sum.features_ms += heard->features_ms;
    t->sum.encoder_ms += heard->encoder_ms;
    t->sum.prompt_ms += heard->prompt_ms;
    t->sum.generate_ms += heard->generate_ms;
}

enum reel_status transcript_add(struct transcript *t, double start, double end, const char *text,
                                const char *language, const struct recognized *heard,
                                struct reel_error *err) {
    enum reel_status status = make_room(t, err);
    if (status != REEL_OK) return status;
    struct reel_segment *s = &t->segments[t->n_segments];
    *s = (struct reel_segment){ .size = sizeof *s, .start = start, .end = end };
    status = copy_segment(s, text, language, heard, err);
    if (status == REEL_OK) status = join(t, s, err);
    if (status != REEL_OK) {
        segment_release(s);
        return status;
    }
    t->n_segments++;
    t->sum.seconds = end;
    transcript_spent(t, heard);
    return REEL_OK;
}

static enum reel_status join_languages(struct transcript *t, struct reel_error *err) {
    const char **names = NULL;
    enum reel_status status =
        mem_zeroed(&names, (size_t)t->n_segments, sizeof *names, "languages", err);
    if (status != REEL_OK) return status;
    for (int i = 0; i < t->n_segments; i++)
        names[i] = t->segments[i].language;
    mem_free(t->language);
    t->language = NULL;
    status = asr_answer_languages(&t->language, names, t->n_segments, err);
    mem_free(names);
    return status;
}

enum reel_status transcript_view(struct transcript *t, struct reel_transcript *view,
                                 struct reel_error *err) {
    enum reel_status status = join_languages(t, err);
    if (status != REEL_OK) return status;
    *view = t->sum;
    view->size = sizeof *view;
    view->text = t->text.size ? t->text.bytes : "";
    view->language = t->language;
    view->segments = t->segments;
    view->n_segments = t->n_segments;
    return REEL_OK;
}

void transcript_release(struct transcript *t) {
    for (int i = 0; i < t->n_segments; i++)
        segment_release(&t->segments[i]);
    mem_free(t->segments);
    buffer_release(&t->text);
    mem_free(t->language);
    *t = (struct transcript){ 0 };
}

const struct reel_segment *reel_transcript_segment(const struct reel_transcript *t, int index) {
    const char *first =
        t && t->size >= offsetof(struct reel_transcript, n_audio_tokens) ? t->segments : NULL;
    if (!first || index < 0 || index >= t->n_segments) return NULL;
    const size_t stride = ((const struct reel_segment *)t->segments)->size;
    return (const struct reel_segment *)(const void *)(first + (size_t)index * stride);
}

/* ---- as a file ---- */

static enum reel_status write_all(struct subtitles *s, const struct reel_transcript *t,
                                  const struct reel_segment *segments, char **text, size_t *n,
                                  struct reel_error *err) {
    const struct subtitles_whole whole = { t->text, t->language, t->seconds };
    enum reel_status status = REEL_OK;
    for (int i = 0; i < t->n_segments && status == REEL_OK; i++) {
        const struct reel_segment *segment = &segments[i];
        const struct subtitle subtitle = { segment->start, segment->end, segment->text };
        status = subtitles_add(s, &subtitle, err);
    }
    return status == REEL_OK ? subtitles_finish(s, &whole, text, n, err) : status;
}

enum reel_status reel_transcript_text(const struct reel_transcript *given,
                                      enum reel_transcript_format format, char **text,
                                      size_t *n_bytes, struct reel_error *err) {
    static const enum subtitle_format formats[] = {
        [REEL_TRANSCRIPT_TEXT] = SUBTITLES_TEXT,
        [REEL_TRANSCRIPT_JSON] = SUBTITLES_JSON,
        [REEL_TRANSCRIPT_VERBOSE_JSON] = SUBTITLES_VERBOSE_JSON,
        [REEL_TRANSCRIPT_SRT] = SUBTITLES_SRT,
        [REEL_TRANSCRIPT_VTT] = SUBTITLES_VTT,
    };
    struct reel_transcript t;
    struct reel_segment *segments = NULL;
    struct subtitles s = { 0 };
    err_clear(err);
    if (text) *text = NULL;
    if (n_bytes) *n_bytes = 0;
    enum reel_status status =
        err_if_null(err, "transcript text", (const void *const[]){ given, text });
    if (status != REEL_OK) return status;
    if ((unsigned)format >= sizeof formats / sizeof *formats)
        return err_set(err, REEL_E_ARGUMENT,
                       "format is %d; it is none of enum reel_transcript_format", (int)format);
    status = struct_read(&t, sizeof t, given, "reel_transcript", err);
    if (status == REEL_OK && (!t.text || !t.language))
        status = err_set(err, REEL_E_ARGUMENT, "the transcript is one that no call has filled");
    if (status == REEL_OK && (t.n_segments < 0 || (t.n_segments > 0 && !t.segments)))
        status = err_set(err, REEL_E_ARGUMENT, "n_segments is %d with %s list", t.n_segments,
                         t.segments ? "a" : "no");
    if (status == REEL_OK)
        status = struct_read_list(&segments, sizeof *segments, t.segments, t.n_segments,
                                  "reel_segment", err);
    if (status == REEL_OK) status = subtitles_start(&s, formats[format], err);
    if (status == REEL_OK) status = write_all(&s, &t, segments, text, n_bytes, err);
    mem_free(segments);
    subtitles_release(&s);
    return status;
}
