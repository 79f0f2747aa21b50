/* A transcript as a file: plain text, JSON as OpenAI's transcription endpoint answers, SubRip or
 * WebVTT. Segments are added one by one. */
#ifndef REEL_ASR_SUBTITLES_H
#define REEL_ASR_SUBTITLES_H

#include "base/buffer.h"

#include <jansson.h>

enum subtitle_format {
    SUBTITLES_TEXT = 0,     /* the text and a line end */
    SUBTITLES_JSON,         /* {"text": ...} */
    SUBTITLES_VERBOSE_JSON, /* task, language, duration, text, segments with id, start, end, text */
    SUBTITLES_SRT,
    SUBTITLES_VTT,
    SUBTITLES_FORMATS
};

/* "text", "json", "verbose_json", "srt", "vtt": by which users know them. */
const char *subtitles_format_name(enum subtitle_format format);
bool subtitles_format_find(const char *name, enum subtitle_format *format);

/* Seconds; UTF-8. */
struct subtitle {
    double start, end;
    const char *text;
};

struct subtitles {
    enum subtitle_format format;
    struct buffer text; /* SRT and VTT so far: whole cues, which may be shown at once */
    json_t *segments;   /* verbose JSON so far */
    int n;              /* segments so far, without those left out */
};

/* The caller releases s, also after a failure. */
enum reel_status subtitles_start(struct subtitles *s, enum subtitle_format format,
                                 struct reel_error *err);

/* Times are rounded to milliseconds, an end that is not after its start is put 1 ms behind it, and
 * what is negative or no number is 0. A segment without text is left out.
 *
 * In a cue a blank line would end it, so line ends in a row become one. VTT's &, < and > are
 * escaped; SRT knows no escapes, there an arrow of two or more dashes becomes "->". */
enum reel_status subtitles_add(struct subtitles *s, const struct subtitle *segment,
                               struct reel_error *err);

/* What is said of the whole, where the format has a place for it. language: "English", or empty;
 * verbose JSON has it in small letters, as OpenAI. */
struct subtitles_whole {
    const char *text, *language;
    double seconds;
};

/* *out (n bytes and a terminator, the caller's to free) is the file. Nothing may be added after it.
 */
enum reel_status subtitles_finish(struct subtitles *s, const struct subtitles_whole *whole,
                                  char **out, size_t *n, struct reel_error *err);

void subtitles_release(struct subtitles *s);

#endif
