/* JSON given as text (tools, tool calls), written again as Jinja's tojson writes it in Hugging Face
 * chat templates: Python's json.dumps(json.loads(text), ensure_ascii=False). Separators ", " and
 * ": ", keys in their order, non-ASCII kept, integers of any length exact, fractions in Python's
 * shortest form. Works on spans of the checked text, because a parsed tree would not keep integers
 * above 64 bits. */
#ifndef REEL_MODEL_CHAT_JSON_H
#define REEL_MODEL_CHAT_JSON_H

#include "base/buffer.h"

/* One value inside text that json_span_open has accepted; no space around it. Borrowed. */
struct json_span {
    const char *at;
    size_t n_bytes;
};

/* Checks the whole text. `what` names it in messages. */
enum reel_status json_span_open(struct json_span *out, const char *what, const char *text,
                                struct reel_error *err);

/* '{' '[' '"' 't' 'f' 'n' or '0' for a number. */
char json_span_kind(struct json_span value);

/* Whether a string value is exactly this text. */
bool json_span_is(struct json_span string, const char *text);

/* The next item of a list; *cursor starts at 0. False at its end. */
bool json_span_next(struct json_span list, size_t *cursor, struct json_span *item);

/* The value under key of an object; false when there is none. */
bool json_span_member(struct json_span object, const char *key, struct json_span *value);

/* The next member of an object, key (a string) and value; *cursor starts at 0. False at its end. */
bool json_span_next_member(struct json_span object, size_t *cursor, struct json_span *key,
                           struct json_span *value);

/* Appends the value in Python's form. */
enum reel_status json_span_write(struct buffer *out, struct json_span value,
                                 struct reel_error *err);

/* Appends the characters of a string value. */
enum reel_status json_span_text(struct buffer *out, struct json_span value, struct reel_error *err);

/* Appends n bytes of plain text as a JSON string. */
enum reel_status json_text_write(struct buffer *out, const char *text, size_t n,
                                 struct reel_error *err);

#endif
