#include "server/transcription_form.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* A field that is being read. */
struct field {
    const char *name;
    const char *bytes;
    size_t n;
};

static bool is(const struct field *f, const char *word) {
    return f->n == strlen(word) && strncasecmp(f->bytes, word, f->n) == 0;
}

/* How much of a value a message quotes. */
static int shown(const struct field *f) { return f->n > 60 ? 60 : (int)f->n; }

/* out[cap]: terminated UTF-8 without control characters but for white space. */
static enum reel_status read_text(const struct field *f, char *out, size_t cap,
                                  struct reel_error *err) {
    if (f->n >= cap)
        return err_set(err, REEL_E_ARGUMENT, "%s has %zu bytes; at most %zu are allowed", f->name,
                       f->n, cap - 1);
    json_t *text = json_stringn(f->bytes, f->n); /* refuses what is not UTF-8 */
    const bool good = text && !memchr(f->bytes, '\0', f->n);
    json_decref(text);
    if (!good) return err_set(err, REEL_E_ARGUMENT, "%s is not UTF-8 text", f->name);
    if (f->n) memcpy(out, f->bytes, f->n);
    out[f->n] = '\0';
    return REEL_OK;
}

/* Python's clients write True and False. */
static enum reel_status read_bool(const struct field *f, bool *out, struct reel_error *err) {
    *out = is(f, "true") || is(f, "1");
    if (*out || is(f, "false") || is(f, "0") || f->n == 0) return REEL_OK;
    return err_set(err, REEL_E_ARGUMENT, "%s is \"%.*s\"; it has to be true or false", f->name,
                   shown(f), f->bytes);
}

static enum reel_status read_format(const struct field *f, enum reel_transcript_format *format,
                                    struct reel_error *err) {
    static const char *const names[] = { [REEL_TRANSCRIPT_TEXT] = "text",
                                         [REEL_TRANSCRIPT_JSON] = "json",
                                         [REEL_TRANSCRIPT_VERBOSE_JSON] = "verbose_json",
                                         [REEL_TRANSCRIPT_SRT] = "srt",
                                         [REEL_TRANSCRIPT_VTT] = "vtt" };
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (is(f, names[i])) {
            *format = (enum reel_transcript_format)i;
            return REEL_OK;
        }
    return err_set(err, REEL_E_ARGUMENT,
                   "response_format is \"%.*s\"; allowed are json, text, verbose_json, srt and vtt",
                   shown(f), f->bytes);
}

/* Any temperature that OpenAI allows is taken, since clients send one; answers are those of 0. */
static enum reel_status check_temperature(const struct field *f, struct reel_error *err) {
    char text[32] = "";
    char *end = text;
    double value = NAN;
    if (f->n > 0 && f->n < sizeof text && !memchr(f->bytes, '\0', f->n)) {
        memcpy(text, f->bytes, f->n);
        value = strtod(text, &end);
    }
    if (end != text && *end == '\0' && value >= 0 && value <= 1) return REEL_OK;
    return err_set(err, REEL_E_ARGUMENT, "temperature is \"%.*s\"; allowed are 0 to 1", shown(f),
                   f->bytes);
}

static enum reel_status check_granularity(const struct field *f, struct reel_error *err) {
    if (is(f, "segment")) return REEL_OK;
    if (is(f, "word"))
        return err_set(err, REEL_E_ARGUMENT,
                       "timestamp_granularities: times of words are not available, since the model "
                       "gives none; \"segment\" is");
    return err_set(err, REEL_E_ARGUMENT,
                   "timestamp_granularities is \"%.*s\"; allowed is \"segment\"", shown(f),
                   f->bytes);
}

/* logprobs is accepted and not answered: clients that ask for it do without. */
static enum reel_status check_include(const struct field *f, struct reel_error *err) {
    if (is(f, "logprobs")) return REEL_OK;
    return err_set(err, REEL_E_ARGUMENT, "include is \"%.*s\"; allowed is \"logprobs\"", shown(f),
                   f->bytes);
}

void transcription_language(char *language) {
    const size_t n = strcspn(language, "-_");
    if (n == 2 || n == 3) language[n] = '\0';
}

/* ---- the list of fields ---- */

enum field_kind {
    FIELD_FILE,
    FIELD_MODEL,
    FIELD_LANGUAGE,
    FIELD_PROMPT,
    FIELD_FORMAT,
    FIELD_TEMPERATURE,
    FIELD_STREAM,
    FIELD_USAGE,
    FIELD_CONTINUOUS_USAGE,
    N_SINGLE, /* those from here on may come more than once */
    FIELD_GRANULARITIES = N_SINGLE,
    FIELD_INCLUDE,
    N_FIELDS
};

static const char *const field_names[N_FIELDS] = {
    [FIELD_FILE] = "file",
    [FIELD_MODEL] = "model",
    [FIELD_LANGUAGE] = "language",
    [FIELD_PROMPT] = "prompt",
    [FIELD_FORMAT] = "response_format",
    [FIELD_TEMPERATURE] = "temperature",
    [FIELD_STREAM] = "stream",
    [FIELD_USAGE] = "stream_include_usage",
    [FIELD_CONTINUOUS_USAGE] = "stream_continuous_usage_stats",
    [FIELD_GRANULARITIES] = "timestamp_granularities",
    [FIELD_INCLUDE] = "include",
};

/* N_FIELDS: none that is known. Lists come as "include" or "include[]". */
static enum field_kind find_field(const char *name) {
    size_t n = strlen(name);
    const bool list = n > 2 && strcmp(name + n - 2, "[]") == 0;
    if (list) n -= 2;
    for (int i = list ? N_SINGLE : 0; i < N_FIELDS; i++)
        if (strlen(field_names[i]) == n && memcmp(field_names[i], name, n) == 0)
            return (enum field_kind)i;
    return N_FIELDS;
}

static enum reel_status read_field(struct transcription_form *form, enum field_kind kind,
                                   const struct field *f, struct reel_error *err) {
    bool continuous = false;
    switch (kind) {
    case FIELD_MODEL:
        return read_text(f, form->model, sizeof form->model, err);
    case FIELD_LANGUAGE:
        return read_text(f, form->language, sizeof form->language, err);
    case FIELD_PROMPT:
        return read_text(f, form->prompt, sizeof form->prompt, err);
    case FIELD_FORMAT:
        return read_format(f, &form->format, err);
    case FIELD_TEMPERATURE:
        return check_temperature(f, err);
    case FIELD_STREAM:
        return read_bool(f, &form->stream, err);
    case FIELD_USAGE:
        form->chunks = true;
        return read_bool(f, &form->usage_chunk, err);
    case FIELD_CONTINUOUS_USAGE:
        form->chunks = true;
        return read_bool(f, &continuous, err);
    case FIELD_GRANULARITIES:
        return check_granularity(f, err);
    case FIELD_INCLUDE:
        return check_include(f, err);
    case FIELD_FILE:
    case N_FIELDS:
        break;
    }
    return REEL_OK;
}

static enum reel_status check_whole(const struct transcription_form *form, const char **param,
                                    struct reel_error *err) {
    *param = "file";
    if (!form->file) return err_set(err, REEL_E_ARGUMENT, "the form has no part \"file\"");
    if (form->file->n_bytes == 0) return err_set(err, REEL_E_ARGUMENT, "the file is empty");
    *param = "response_format";
    const bool streams = form->format == REEL_TRANSCRIPT_JSON ||
                         form->format == REEL_TRANSCRIPT_TEXT ||
                         (form->format == REEL_TRANSCRIPT_VERBOSE_JSON && !form->chunks);
    if (form->stream && !streams)
        return err_set(err, REEL_E_ARGUMENT,
                       "with stream the response_format has to be json, text or verbose_json");
    *param = NULL;
    return REEL_OK;
}

enum reel_status transcription_form_read(struct transcription_form *form,
                                         const struct multipart *parts, const char **param,
                                         struct reel_error *err) {
    bool seen[N_SINGLE] = { false };
    *form = (struct transcription_form){ .format = REEL_TRANSCRIPT_JSON };
    for (int i = 0; i < parts->n_parts; i++) {
        const struct multipart_part *part = &parts->parts[i];
        const enum field_kind kind = find_field(part->name);
        if (kind == N_FIELDS) continue;
        const struct field f = { field_names[kind], part->bytes, part->n_bytes };
        *param = f.name;
        if (kind < N_SINGLE && seen[kind])
            return err_set(err, REEL_E_ARGUMENT, "the form has two parts \"%s\"", f.name);
        if (kind < N_SINGLE) seen[kind] = true;
        if (kind == FIELD_FILE) form->file = part;
        enum reel_status status = read_field(form, kind, &f, err);
        if (status != REEL_OK) return status;
    }
    transcription_language(form->language);
    return check_whole(form, param, err);
}
