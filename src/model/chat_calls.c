/* Calls are read element by element rather than up to the next closing tag, because an argument may
 * hold those very characters. */
#include "model/chat_calls.h"

#include <string.h>

/* Between the name of a call and its arguments. */
#define MAX_ID_BYTES 100

static struct span from(struct span s, const char *at) {
    return (struct span){ at, (size_t)(s.at + s.n - at) };
}

static struct span until(struct span s, const char *end) {
    return (struct span){ s.at, (size_t)(end - s.at) };
}

static bool is_bare(struct span s) { return span_without_blanks(s).n == 0; }

/* ---- writing --------------------------------------------------------------------------------- */

static void put_text(struct call_reader *r, const char *text) {
    if (r->status == REEL_OK) r->status = buffer_text(&r->call, text, r->err);
}

static void put_quoted(struct call_reader *r, struct span s) {
    if (r->status == REEL_OK) r->status = json_text_write(&r->call, s.at, s.n, r->err);
}

static void put_value(struct call_reader *r, struct json_span value) {
    if (r->status == REEL_OK) r->status = json_span_write(&r->call, value, r->err);
}

/* A terminated copy, good until the next one; NULL after a failure. */
static const char *copy_word(struct call_reader *r, struct span s) {
    r->word.size = 0;
    if (r->status == REEL_OK) r->status = buffer_append(&r->word, s.at, s.n, r->err);
    return r->status == REEL_OK ? r->word.bytes : NULL;
}

/* The value points into the last copied word. */
bool call_read_json(struct call_reader *r, struct span s, struct json_span *value) {
    const char *text = copy_word(r, s);
    struct reel_error why;
    if (!text || memchr(text, '\0', s.n)) return false;
    enum reel_status status = json_span_open(value, "a tool call", text, &why);
    if (status == REEL_E_MEMORY) r->status = err_set(r->err, status, "%s", why.text);
    return status == REEL_OK;
}

/* ---- what the tools say of their arguments --------------------------------------------------- */

static bool object_member(struct json_span object, const char *key, struct json_span *value) {
    return json_span_kind(object) == '{' && json_span_member(object, key, value);
}

/* The properties of the tool of that name; false when there are none. */
static bool find_properties(struct call_reader *r, struct span name, struct json_span *properties) {
    struct json_span tool, inner, its_name, parameters;
    size_t cursor = 0;
    const char *wanted = r->tools.at ? copy_word(r, name) : NULL;
    while (wanted && json_span_next(r->tools, &cursor, &tool)) {
        if (object_member(tool, "function", &inner)) tool = inner;
        if (!object_member(tool, "name", &its_name) || json_span_kind(its_name) != '"' ||
            !json_span_is(its_name, wanted))
            continue;
        return object_member(tool, "parameters", &parameters) &&
               object_member(parameters, "properties", properties) &&
               json_span_kind(*properties) == '{';
    }
    return false;
}

static bool names_text(struct json_span type) {
    return json_span_kind(type) == '"' && json_span_is(type, "string");
}

/* Whether the tool has an argument of this name that is of another type than text. */
static bool is_typed(struct call_reader *r, const struct json_span *properties, struct span key) {
    struct json_span property, type, item;
    size_t cursor = 0;
    const char *wanted = properties ? copy_word(r, key) : NULL;
    if (!wanted || !json_span_member(*properties, wanted, &property) ||
        !object_member(property, "type", &type))
        return false;
    if (json_span_kind(type) != '[') return !names_text(type);
    while (json_span_next(type, &cursor, &item))
        if (names_text(item)) return false;
    return true;
}

/* ---- arguments between tags ------------------------------------------------------------------ */

static void put_typed(struct call_reader *r, struct span value) {
    static const char *const words[][2] = { { "True", "true" },
                                            { "False", "false" },
                                            { "None", "null" } };
    struct span bare = span_without_blanks(value);
    struct json_span json;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (bare.n == strlen(words[i][0]) && memcmp(bare.at, words[i][0], bare.n) == 0) {
            put_text(r, words[i][1]);
            return;
        }
    if (bare.n && call_read_json(r, bare, &json))
        put_value(r, json);
    else
        put_quoted(r, value);
}

/* Cuts off the front what stands before `word`, which goes too; on one line. Blanks before the word
 * are the word's where the template writes some. */
static bool take_until(struct span *s, struct span word, struct span *found) {
    const char *end = span_find_loose(*s, word);
    if (!end) return false;
    *found = until(*s, end);
    if (span_without_blanks(word).at > word.at) *found = span_without_blanks(*found);
    if (memchr(found->at, '\n', found->n)) return false;
    *s = from(*s, end);
    return span_take_loose(s, word);
}

/* A value ends at the closing words with the line end before them, if the template writes one; or
 * without it. */
static bool take_value(struct call_reader *r, struct span *s, struct span close,
                       struct span *value) {
    struct span bare = span_without_blanks(close);
    struct span with_blanks = { close.at, (size_t)(bare.at + bare.n - close.at) };
    const char *end = NULL;
    for (struct span rest = *s; !end && with_blanks.n > bare.n;) { /* the exact words */
        const char *at = span_find_loose(rest, bare);
        size_t blanks = with_blanks.n - bare.n;
        if (!at) break;
        if ((size_t)(at - s->at) >= blanks && memcmp(at - blanks, with_blanks.at, blanks) == 0)
            end = at - blanks;
        rest = from(rest, at + 1);
    }
    if (!end) {
        r->unsure |= with_blanks.n > bare.n;
        end = span_find_loose(*s, bare);
    }
    if (!end) return false;
    *value = until(*s, end);
    *s = from(*s, end);
    return span_take_loose(s, bare);
}

/* Blanks that a template writes at the end of `word`, once. */
static void take_last_blanks(struct span *s, struct span word) {
    struct span bare = span_without_blanks(word);
    size_t n = (size_t)(word.at + word.n - (bare.at + bare.n));
    if (n && s->n >= n && memcmp(s->at, bare.at + bare.n, n) == 0) *s = from(*s, s->at + n);
}

static bool read_parameter(struct call_reader *r, struct span *s,
                           const struct json_span *properties, bool first) {
    const struct chat_call_words *w = &r->syntax->words;
    struct span key, value, rest, key_close = span_of(w->key_close);
    bool typed = false;
    if (!span_take_loose(s, span_of(w->key_open))) return false;
    rest = *s;
    if (!take_until(s, key_close, &key)) {
        r->unsure |= !span_find_loose(rest, key_close);
        *s = rest;
        key_close = span_of(w->key_close_typed);
        typed = true;
        if (is_bare(key_close) || !take_until(s, key_close, &key)) return false;
    }
    take_last_blanks(s, key_close);
    if (!take_value(r, s, span_of(w->value_close), &value)) return false;
    put_text(r, first ? "" : ", ");
    put_quoted(r, key);
    put_text(r, ": ");
    if (typed || (!w->key_close_typed && is_typed(r, properties, key)))
        put_typed(r, value);
    else
        put_quoted(r, value);
    return true;
}

/* A name that nothing closes ends where a tag begins, or the line. */
static bool take_name(struct span *s, struct span name_end, struct span *name) {
    if (!is_bare(name_end)) return take_until(s, name_end, name);
    size_t n = 0;
    while (n < s->n && s->at[n] != '<' && s->at[n] != '\n' && s->at[n] != '{')
        n++;
    *name = span_without_blanks((struct span){ s->at, n });
    *s = from(*s, s->at + n);
    return name->n > 0;
}

static bool read_tagged(struct call_reader *r, struct span *s) {
    const struct chat_call_words *w = &r->syntax->words;
    const struct span close = span_of(w->close);
    struct span name;
    struct json_span properties;
    if (!take_name(s, span_of(w->name_end), &name)) return false;
    bool described = find_properties(r, name, &properties);
    put_text(r, "{\"name\": ");
    put_quoted(r, name);
    put_text(r, ", \"arguments\": {");
    for (bool first = true; is_bare(close) || !span_take_loose(s, close); first = false) {
        struct span rest = *s;
        if (is_bare(close) && !span_take_loose(&rest, span_of(w->key_open))) break;
        if (!read_parameter(r, s, described ? &properties : NULL, first)) return false;
    }
    put_text(r, "}}");
    return true;
}

/* ---- arguments as JSON ----------------------------------------------------------------------- */

/* Arguments are an object, or a text that holds one. */
static bool put_arguments(struct call_reader *r, struct json_span arguments) {
    struct buffer text = { 0 };
    struct json_span inner = arguments;
    bool good = true;
    if (json_span_kind(arguments) == '"') {
        r->status = json_span_text(&text, arguments, r->err);
        good = r->status == REEL_OK && text.size > 0 &&
               call_read_json(r, (struct span){ text.bytes, text.size }, &inner);
    }
    good = good && json_span_kind(inner) == '{';
    if (good) put_value(r, inner);
    buffer_release(&text);
    return good;
}

static bool read_object(struct call_reader *r, struct span *s) {
    const struct chat_call_words *w = &r->syntax->words;
    struct json_span call, inner, name, arguments;
    span_skip_blanks(s);
    size_t n = span_object_bytes(*s);
    if (n == 0 || !call_read_json(r, (struct span){ s->at, n }, &call)) return false;
    if (object_member(call, "function", &inner) && json_span_kind(inner) == '{') call = inner;
    if (!json_span_member(call, w->name_key, &name) || json_span_kind(name) != '"' ||
        !json_span_member(call, w->arguments_key, &arguments))
        return false;
    put_text(r, "{\"name\": ");
    put_value(r, name);
    put_text(r, ", \"arguments\": ");
    if (!put_arguments(r, arguments)) return false;
    put_text(r, "}");
    *s = from(*s, s->at + n);
    return true;
}

static bool read_named(struct call_reader *r, struct span *s) {
    struct span name;
    struct json_span arguments;
    if (!take_name(s, span_of(r->syntax->words.name_end), &name)) return false;
    const char *object = span_find(*s, "{"); /* behind an id, if anything */
    if (!object || object - s->at > MAX_ID_BYTES) return false;
    *s = from(*s, object);
    size_t n = span_object_bytes(*s);
    if (n == 0 || !call_read_json(r, (struct span){ s->at, n }, &arguments)) return false;
    put_text(r, "{\"name\": ");
    put_quoted(r, name);
    put_text(r, ", \"arguments\": ");
    put_value(r, arguments);
    put_text(r, "}");
    *s = from(*s, s->at + n);
    return true;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Words that are one control token may be the end of the model's turn, which is no text. */
bool call_may_end_here(const struct chat_syntax *syntax, struct span rest) {
    const struct span close = span_without_blanks(span_of(syntax->words.close));
    return is_bare(rest) && close.n > 4 && memcmp(close.at, "<|", 2) == 0 &&
           span_find(close, "|>") == close.at + close.n - 2;
}

static bool read_any(struct call_reader *r, struct span *s) {
    switch (r->syntax->calls) {
    case CHAT_CALLS_NONE:
        return false;
    case CHAT_CALLS_TAGGED:
        return read_tagged(r, s); /* its own closing words included */
    case CHAT_CALLS_JSON:
        return read_object(r, s);
    case CHAT_CALLS_NAMED:
        return read_named(r, s);
    }
    return false;
}

bool call_read_body(struct call_reader *r, struct span *text) {
    struct span s = *text;
    r->call.size = 0;
    if (!read_any(r, &s) || r->status != REEL_OK) return false;
    *text = s;
    return true;
}

/* A name given twice, or bytes that are no UTF-8, would make JSON that nobody takes. */
bool call_is_valid(struct call_reader *r) {
    struct json_span whole;
    return call_read_json(r, (struct span){ r->call.bytes, r->call.size }, &whole);
}

bool call_read(struct call_reader *r, struct span *text) {
    struct span s = *text;
    if (!call_read_body(r, &s)) return false;
    if (r->syntax->calls != CHAT_CALLS_TAGGED &&
        !span_take_loose(&s, span_of(r->syntax->words.close)) && !call_may_end_here(r->syntax, s))
        return false;
    if (!call_is_valid(r)) return false;
    *text = s;
    return true;
}

void call_reader_release(struct call_reader *r) {
    buffer_release(&r->call);
    buffer_release(&r->word);
}
