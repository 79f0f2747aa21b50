#include "asr/subtitles.h"

#include "base/json.h"
#include "base/memory.h"
#include "model/tokenizer_utf8.h"

#include <math.h>
#include <string.h>

static const char *const names[SUBTITLES_FORMATS] = { "text", "json", "verbose_json", "srt",
                                                      "vtt" };

const char *subtitles_format_name(enum subtitle_format format) { return names[format]; }

bool subtitles_format_find(const char *name, enum subtitle_format *format) {
    for (int i = 0; i < SUBTITLES_FORMATS; i++)
        if (strcmp(name, names[i]) == 0) {
            *format = (enum subtitle_format)i;
            return true;
        }
    return false;
}

/* ---- times ---- */

#define LARGEST_SECONDS 1e12

static long long milliseconds(double seconds) {
    if (!(seconds > 0)) return 0;
    return llround(fmin(seconds, LARGEST_SECONDS) * 1000);
}

/* 01:02:03,004 */
static enum reel_status write_time(struct buffer *b, long long ms, char point,
                                   struct reel_error *err) {
    return buffer_printf(b, err, "%02lld:%02lld:%02lld%c%03lld", ms / 3600000, ms / 60000 % 60,
                         ms / 1000 % 60, point, ms % 1000);
}

/* ---- cues ---- */

static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

/* Without the white space around it. */
static size_t strip(const char **text) {
    while (is_space(**text))
        ++*text;
    size_t n = strlen(*text);
    while (n && is_space((*text)[n - 1]))
        n--;
    return n;
}

/* What stands in a cue for the text at p, of which `left` bytes are left: *taken of them. */
static const char *cue_text(enum subtitle_format format, const char *p, size_t left,
                            size_t *taken) {
    *taken = 1;
    if (*p == '\n' || *p == '\r') {
        while (*taken < left && is_space(p[*taken]))
            ++*taken;
        return "\n";
    }
    size_t dashes = 0;
    while (dashes < left && p[dashes] == '-')
        dashes++;
    if (format == SUBTITLES_SRT && dashes >= 2 && dashes < left && p[dashes] == '>') {
        *taken = dashes + 1;
        return "->";
    }
    if (dashes) *taken = dashes;
    if (format != SUBTITLES_VTT) return NULL;
    return *p == '&' ? "&amp;" : *p == '<' ? "&lt;" : *p == '>' ? "&gt;" : NULL;
}

static enum reel_status write_cue_text(struct subtitles *s, const char *text, size_t n,
                                       struct reel_error *err) {
    enum reel_status status = REEL_OK;
    for (size_t at = 0, taken; at < n && status == REEL_OK; at += taken) {
        const char *instead = cue_text(s->format, text + at, n - at, &taken);
        status = instead ? buffer_text(&s->text, instead, err)
                         : buffer_append(&s->text, text + at, taken, err);
    }
    return status;
}

static enum reel_status write_cue(struct subtitles *s, long long start, long long end,
                                  const char *text, size_t n, struct reel_error *err) {
    char point = s->format == SUBTITLES_SRT ? ',' : '.';
    enum reel_status status = REEL_OK;
    if (s->format == SUBTITLES_SRT) status = buffer_printf(&s->text, err, "%d\n", s->n + 1);
    if (status == REEL_OK) status = write_time(&s->text, start, point, err);
    if (status == REEL_OK) status = buffer_text(&s->text, " --> ", err);
    if (status == REEL_OK) status = write_time(&s->text, end, point, err);
    if (status == REEL_OK) status = buffer_text(&s->text, "\n", err);
    if (status == REEL_OK) status = write_cue_text(s, text, n, err);
    if (status == REEL_OK) status = buffer_text(&s->text, "\n\n", err);
    return status;
}

/* ---- JSON ---- */

static enum reel_status check_utf8(const char *what, const char *text, struct reel_error *err) {
    size_t n = strlen(text), good = utf8_valid_prefix(text, n);
    if (good == n) return REEL_OK;
    return err_set(err, REEL_E_ARGUMENT, "%s is not UTF-8 at byte %zu", what, good);
}

static enum reel_status append_segment(struct subtitles *s, long long start, long long end,
                                       const char *text, size_t n, struct reel_error *err) {
    enum reel_status status = check_utf8("a segment's text", text, err);
    if (status != REEL_OK) return status;
    json_t *one = json_pack("{s:i, s:f, s:f, s:s%}", "id", s->n, "start", (double)start / 1000,
                            "end", (double)end / 1000, "text", text, n);
    if (!one || json_array_append_new(s->segments, one) != 0)
        return err_memory(err, "a segment", 0);
    return REEL_OK;
}

/* In small letters; the caller frees. */
static enum reel_status small_letters(char **out, const char *text, struct reel_error *err) {
    enum reel_status status = mem_text(out, text, strlen(text), "a language", err);
    if (status != REEL_OK) return status;
    for (char *p = *out; *p; p++)
        if (*p >= 'A' && *p <= 'Z') *p = (char)(*p + 'a' - 'A');
    return REEL_OK;
}

static enum reel_status whole_json(json_t **out, const struct subtitles *s,
                                   const struct subtitles_whole *whole, struct reel_error *err) {
    char *language = NULL;
    *out = NULL;
    enum reel_status status = check_utf8("a transcript", whole->text, err);
    if (status == REEL_OK && s->format == SUBTITLES_JSON) {
        *out = json_pack("{s:s}", "text", whole->text);
    } else if (status == REEL_OK) {
        status = check_utf8("a language", whole->language, err);
        if (status == REEL_OK) status = small_letters(&language, whole->language, err);
        if (status == REEL_OK)
            *out = json_pack("{s:s, s:s, s:f, s:s, s:O}", "task", "transcribe", "language",
                             language, "duration", (double)milliseconds(whole->seconds) / 1000,
                             "text", whole->text, "segments", s->segments);
    }
    mem_free(language);
    if (status == REEL_OK && !*out) status = err_memory(err, "a transcript", 0);
    return status;
}

static enum reel_status write_json(struct subtitles *s, const struct subtitles_whole *whole,
                                   struct reel_error *err) {
    json_t *json = NULL;
    char *text = NULL;
    enum reel_status status = whole_json(&json, s, whole, err);
    if (status == REEL_OK) status = json_write(&text, json, "a transcript", err);
    if (status == REEL_OK) status = buffer_text(&s->text, text, err);
    if (status == REEL_OK) status = buffer_text(&s->text, "\n", err);
    mem_free(text);
    json_decref(json);
    return status;
}

/* ---- the file ---- */

enum reel_status subtitles_start(struct subtitles *s, enum subtitle_format format,
                                 struct reel_error *err) {
    *s = (struct subtitles){ .format = format };
    if (format == SUBTITLES_VTT) return buffer_text(&s->text, "WEBVTT\n\n", err);
    if (format != SUBTITLES_VERBOSE_JSON) return REEL_OK;
    s->segments = json_array();
    return s->segments ? REEL_OK : err_memory(err, "segments", 0);
}

enum reel_status subtitles_add(struct subtitles *s, const struct subtitle *segment,
                               struct reel_error *err) {
    const char *text = segment->text;
    size_t n = strip(&text), before = s->text.size;
    long long start = milliseconds(segment->start), end = milliseconds(segment->end);
    if (end <= start) end = start + 1;
    enum reel_status status = REEL_OK;
    if (n == 0) return REEL_OK;
    if (s->format == SUBTITLES_VERBOSE_JSON)
        status = append_segment(s, start, end, text, n, err);
    else if (s->format >= SUBTITLES_SRT)
        status = write_cue(s, start, end, text, n, err);
    if (status == REEL_OK) {
        s->n++;
    } else if (s->text.size > before) { /* no half of a cue */
        s->text.size = before;
        s->text.bytes[before] = '\0';
    }
    return status;
}

enum reel_status subtitles_finish(struct subtitles *s, const struct subtitles_whole *whole,
                                  char **out, size_t *n, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    *out = NULL;
    if (s->format == SUBTITLES_TEXT)
        status = buffer_printf(&s->text, err, "%s\n", whole->text);
    else if (s->format < SUBTITLES_SRT)
        status = write_json(s, whole, err);
    else
        status = buffer_text(&s->text, "", err); /* an empty SRT is a file, too */
    if (status == REEL_OK) *out = buffer_detach(&s->text, n);
    return status;
}

void subtitles_release(struct subtitles *s) {
    buffer_release(&s->text);
    json_decref(s->segments);
    *s = (struct subtitles){ 0 };
}
