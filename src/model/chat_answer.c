/* Calls are read element by element rather than up to the next </tool_call>, because an argument
 * may hold those very characters. */
#include "model/chat_answer.h"

#include "base/memory.h"
#include "model/chat_json.h"
#include "model/chat_qwen.h"

#include <string.h>

/* Each malformed call may cost a pass over the text; beyond this many the rest is an answer. */
#define MAX_MALFORMED 16

static const char call_open[] = "<tool_call>", call_close[] = "</tool_call>";

struct reading {
    enum chat_family family;
    struct json_span tools; /* at is NULL when there are none */
    struct span rest;       /* not read yet */
    struct buffer content, calls;
    struct buffer call; /* the one being read, as JSON */
    struct buffer word; /* scratch: a terminated copy */
    struct reel_error *err;
    enum reel_status status; /* the first failure; malformed text is none */
};

/* ---- pieces of text -------------------------------------------------------------------------- */

static struct span from(struct span s, const char *at) {
    return (struct span){ at, (size_t)(s.at + s.n - at) };
}

static struct span until(struct span s, const char *end) {
    return (struct span){ s.at, (size_t)(end - s.at) };
}

static bool take(struct span *s, const char *word) {
    size_t n = strlen(word);
    if (s->n < n || memcmp(s->at, word, n) != 0) return false;
    *s = from(*s, s->at + n);
    return true;
}

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static void skip_blanks(struct span *s) {
    while (s->n && is_blank(*s->at))
        *s = from(*s, s->at + 1);
}

static struct span without_blanks(struct span s) {
    skip_blanks(&s);
    while (s.n && is_blank(s.at[s.n - 1]))
        s.n--;
    return s;
}

/* "<function=" and what follows on the line up to ">". */
static bool take_tag(struct span *s, const char *open, struct span *name) {
    struct span rest = *s;
    if (!take(&rest, open)) return false;
    const char *end = rest.n ? memchr(rest.at, '>', rest.n) : NULL;
    if (!end || memchr(rest.at, '\n', (size_t)(end - rest.at))) return false;
    *name = until(rest, end);
    *s = from(rest, end + 1);
    return true;
}

/* ---- writing --------------------------------------------------------------------------------- */

static void put(struct reading *r, struct buffer *out, const char *text, size_t n) {
    if (r->status == REEL_OK) r->status = buffer_append(out, text, n, r->err);
}

static void put_text(struct reading *r, struct buffer *out, const char *text) {
    put(r, out, text, strlen(text));
}

static void put_quoted(struct reading *r, struct span s) {
    if (r->status == REEL_OK) r->status = json_text_write(&r->call, s.at, s.n, r->err);
}

static void put_value(struct reading *r, struct json_span value) {
    if (r->status == REEL_OK) r->status = json_span_write(&r->call, value, r->err);
}

/* A terminated copy, good until the next one; NULL after a failure. */
static const char *copy_word(struct reading *r, struct span s) {
    r->word.size = 0;
    put(r, &r->word, s.at, s.n);
    return r->status == REEL_OK ? r->word.bytes : NULL;
}

/* Reads s as JSON; false when it is none. The value points into the last copied word. */
static bool read_json(struct reading *r, struct span s, struct json_span *value) {
    const char *text = copy_word(r, s);
    struct reel_error why;
    if (!text) return false;
    enum reel_status status = json_span_open(value, "a tool call", text, &why);
    if (status == REEL_E_MEMORY) r->status = err_set(r->err, status, "%s", why.text);
    return status == REEL_OK;
}

/* ---- what the tools say of their arguments --------------------------------------------------- */

static bool object_member(struct json_span object, const char *key, struct json_span *value) {
    return json_span_kind(object) == '{' && json_span_member(object, key, value);
}

/* The properties of the tool of that name; false when there are none. */
static bool find_properties(struct reading *r, struct span name, struct json_span *properties) {
    struct json_span tool, inner, its_name, parameters;
    size_t cursor = 0;
    const char *wanted = copy_word(r, name);
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
static bool is_typed(struct reading *r, const struct json_span *properties, struct span key) {
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

/* ---- calls ----------------------------------------------------------------------------------- */

static void put_typed(struct reading *r, struct span value) {
    static const char *const words[][2] = { { "True", "true" },
                                            { "False", "false" },
                                            { "None", "null" } };
    struct span bare = without_blanks(value);
    struct json_span json;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (bare.n == strlen(words[i][0]) && memcmp(bare.at, words[i][0], bare.n) == 0) {
            put_text(r, &r->call, words[i][1]);
            return;
        }
    if (bare.n && read_json(r, bare, &json))
        put_value(r, json);
    else
        put_quoted(r, value);
}

/* <parameter=KEY>, a line end, the value, a line end, </parameter>. */
static bool read_parameter(struct reading *r, struct span *s, const struct json_span *properties,
                           bool first) {
    struct span key, value;
    if (!take_tag(s, "<parameter=", &key)) return false;
    const char *end = span_find(*s, "\n</parameter>");
    if (!end) end = span_find(*s, "</parameter>");
    if (!end) return false;
    value = until(*s, end);
    *s = from(*s, end);
    take(&value, "\n");
    take(s, "\n");
    take(s, "</parameter>");
    put_text(r, &r->call, first ? "" : ", ");
    put_quoted(r, key);
    put_text(r, &r->call, ": ");
    if (is_typed(r, properties, key))
        put_typed(r, value);
    else
        put_quoted(r, value);
    return true;
}

static bool read_tagged_call(struct reading *r, struct span *s) {
    struct span name;
    struct json_span properties;
    if (!take_tag(s, "<function=", &name)) return false;
    bool described = find_properties(r, name, &properties);
    put_text(r, &r->call, "{\"name\": ");
    put_quoted(r, name);
    put_text(r, &r->call, ", \"arguments\": {");
    skip_blanks(s);
    for (bool first = true; !take(s, "</function>"); first = false) {
        if (!read_parameter(r, s, described ? &properties : NULL, first)) return false;
        skip_blanks(s);
    }
    put_text(r, &r->call, "}}");
    return true;
}

/* Bytes of the object that s begins with, as far as brackets and quotes tell; 0 for none. */
static size_t object_bytes(struct span s) {
    int depth = 0;
    bool quoted = false;
    for (size_t i = 0; i < s.n; i++) {
        char c = s.at[i];
        if (quoted) {
            if (c == '\\') i++;
            quoted = c != '"';
        } else if (c == '"') {
            quoted = true;
        } else if (c == '{') {
            depth++;
        } else if (c == '}' && --depth == 0) {
            return i + 1;
        }
        if (depth == 0) return 0;
    }
    return 0;
}

static bool read_json_call(struct reading *r, struct span *s) {
    struct json_span call, name, arguments;
    size_t n = object_bytes(*s);
    if (n == 0 || !read_json(r, (struct span){ s->at, n }, &call)) return false;
    if (!json_span_member(call, "name", &name) || json_span_kind(name) != '"' ||
        !json_span_member(call, "arguments", &arguments) || json_span_kind(arguments) != '{')
        return false;
    put_text(r, &r->call, "{\"name\": ");
    put_value(r, name);
    put_text(r, &r->call, ", \"arguments\": ");
    put_value(r, arguments);
    put_text(r, &r->call, "}");
    *s = from(*s, s->at + n);
    return true;
}

/* Reads the call that r->rest begins with into r->call; false, with r->rest as it was, when it is
 * none. */
static bool read_call(struct reading *r) {
    struct span s = r->rest;
    struct json_span whole;
    r->call.size = 0;
    take(&s, call_open);
    skip_blanks(&s);
    bool good = r->family == CHAT_QWEN35 ? read_tagged_call(r, &s) : read_json_call(r, &s);
    skip_blanks(&s);
    if (!good || r->status != REEL_OK || !take(&s, call_close)) return false;
    /* a name given twice, or bytes that are no UTF-8, would make JSON that nobody takes */
    if (!read_json(r, (struct span){ r->call.bytes, r->call.size }, &whole)) return false;
    r->rest = s;
    return true;
}

static void take_back_blanks(struct buffer *b) {
    while (b->size && is_blank(b->bytes[b->size - 1]))
        b->bytes[--b->size] = '\0';
}

static void read_calls(struct reading *r) {
    int malformed = 0;
    bool after_call = false;
    while (r->status == REEL_OK && r->rest.n) {
        const char *open = malformed < MAX_MALFORMED ? span_find(r->rest, call_open) : NULL;
        struct span text = until(r->rest, open ? open : r->rest.at + r->rest.n);
        if (after_call) skip_blanks(&text);
        if (after_call && text.n && r->content.size) put_text(r, &r->content, "\n");
        put(r, &r->content, text.at, text.n);
        after_call = after_call && text.n == 0;
        if (!open) return;
        r->rest = from(r->rest, open);
        if (read_call(r)) {
            put_text(r, &r->calls, r->calls.size ? ", " : "[");
            put(r, &r->calls, r->call.bytes, r->call.size);
            take_back_blanks(&r->content);
            after_call = true;
        } else if (r->status == REEL_OK) {
            malformed++;
            put_text(r, &r->content, call_open);
            r->rest = from(r->rest, r->rest.at + strlen(call_open));
            after_call = false;
        }
    }
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Cuts thinking off the answer; `reasoning` stays NULL inside when there is none. */
static void take_thinking(struct span *answer, struct span *reasoning, bool inside) {
    struct span s = span_strip_first_lines(*answer);
    if (take(&s, "<think>")) inside = true;
    if (!inside) return;
    const char *close = span_find(s, "</think>");
    *reasoning = span_strip_lines(close ? until(s, close) : s);
    *answer = close ? from(s, close) : from(s, s.at + s.n);
    take(answer, "</think>");
    *answer = span_strip_first_lines(*answer);
}

/* r->tools.at stays NULL when no calls are to be looked for. */
static void open_tools(struct reading *r, const struct reel_chat_options *options) {
    struct json_span tools;
    if (!options || !options->tools || (r->family != CHAT_QWEN3 && r->family != CHAT_QWEN35))
        return;
    r->status = json_span_open(&tools, "tools", options->tools, r->err);
    if (r->status == REEL_OK && json_span_kind(tools) == '[') r->tools = tools;
}

static void finish(struct reading *r, struct chat_answer *out, struct span reasoning) {
    put_text(r, &r->content, "");
    if (r->calls.size) put_text(r, &r->calls, "]");
    if (r->status == REEL_OK && reasoning.at)
        r->status = mem_text(&out->reasoning, reasoning.at, reasoning.n, "an answer", r->err);
    if (r->status != REEL_OK) return;
    size_t n;
    out->content = buffer_detach(&r->content, &n);
    if (r->calls.size) out->tool_calls = buffer_detach(&r->calls, &n);
}

enum reel_status chat_answer_read(struct chat_answer *out, const struct chat_template *chat,
                                  const struct reel_chat_options *options, const char *text,
                                  size_t n_bytes, struct reel_error *err) {
    struct reading r = { .family = chat->family, .err = err };
    struct span reasoning = { 0 };
    *out = (struct chat_answer){ 0 };
    r.rest = (struct span){ n_bytes ? text : "", n_bytes ? strnlen(text, n_bytes) : 0 };
    take_thinking(&r.rest, &reasoning, chat_opens_thinking(chat, options));
    open_tools(&r, options);
    if (r.status == REEL_OK && r.tools.at)
        read_calls(&r);
    else
        put(&r, &r.content, r.rest.at, r.rest.n);
    finish(&r, out, reasoning);
    buffer_release(&r.content);
    buffer_release(&r.calls);
    buffer_release(&r.call);
    buffer_release(&r.word);
    return r.status;
}

void chat_answer_release(struct chat_answer *answer) {
    if (!answer) return;
    mem_free(answer->reasoning);
    mem_free(answer->content);
    mem_free(answer->tool_calls);
    *answer = (struct chat_answer){ 0 };
}
