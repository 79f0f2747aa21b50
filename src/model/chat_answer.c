/* Thinking, answer and calls, cut by the words that the template's own renderings have around them.
 */
#include "model/chat_answer.h"

#include "base/memory.h"
#include "model/chat_calls.h"

#include <string.h>

struct reading {
    struct call_reader reader;
    struct span rest; /* not read yet */
    struct buffer content, calls;
    struct buffer first, next; /* the words before the first call, and before each other */
};

static struct span from(struct span s, const char *at) {
    return (struct span){ at, (size_t)(s.at + s.n - at) };
}

static struct span until(struct span s, const char *end) {
    return (struct span){ s.at, (size_t)(end - s.at) };
}

static bool is_bare(struct span s) { return span_without_blanks(s).n == 0; }

static struct span span_of_buffer(const struct buffer *b) {
    return (struct span){ b->bytes ? b->bytes : "", b->size };
}

static void put(struct reading *r, struct buffer *out, const char *text, size_t n) {
    if (r->reader.status == REEL_OK) r->reader.status = buffer_append(out, text, n, r->reader.err);
}

static void put_text(struct reading *r, struct buffer *out, const char *text) {
    put(r, out, text, strlen(text));
}

static void take_back_blanks(struct buffer *b) {
    while (b->size && span_without_blanks((struct span){ b->bytes + b->size - 1, 1 }).n == 0)
        b->bytes[--b->size] = '\0';
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void keep_call(struct reading *r) {
    put_text(r, &r->calls, r->calls.size ? ", " : "[");
    put(r, &r->calls, r->reader.call.bytes, r->reader.call.size);
}

/* Reads the calls that r->rest begins with; false, with r->rest as it was, when there are none. */
static bool read_section(struct reading *r) {
    struct span s = r->rest, more;
    if (!span_take_loose(&s, span_of_buffer(&r->first)) || !call_read(&r->reader, &s)) return false;
    keep_call(r);
    for (more = s; r->reader.status == REEL_OK; s = more) { /* objects need no words between */
        if (is_bare(span_of_buffer(&r->next)) && r->reader.syntax->calls != CHAT_CALLS_JSON) break;
        if (!span_take_loose(&more, span_of_buffer(&r->next)) || !call_read(&r->reader, &more))
            break;
        keep_call(r);
    }
    (void)span_take_loose(&s, span_of(r->reader.syntax->words.after));
    r->rest = s;
    return r->reader.status == REEL_OK;
}

static void read_calls(struct reading *r) {
    const struct span first = span_without_blanks(span_of_buffer(&r->first));
    int malformed = 0;
    bool after_call = false;
    while (r->reader.status == REEL_OK && r->rest.n) {
        const char *open = malformed < CHAT_MAX_MALFORMED ? span_find_loose(r->rest, first) : NULL;
        struct span text = until(r->rest, open ? open : r->rest.at + r->rest.n);
        if (after_call) span_skip_blanks(&text);
        if (after_call && text.n && r->content.size) put_text(r, &r->content, "\n");
        put(r, &r->content, text.at, text.n);
        after_call = after_call && text.n == 0;
        if (!open) return;
        r->rest = from(r->rest, open);
        if (read_section(r)) {
            take_back_blanks(&r->content);
            after_call = true;
        } else if (r->reader.status == REEL_OK) {
            malformed++;
            put(r, &r->content, r->rest.at, 1);
            r->rest = from(r->rest, r->rest.at + 1);
            after_call = false;
        }
    }
}

/* Where nothing stands before a call, the whole answer is one, or none of it. */
static void read_bare_call(struct reading *r) {
    struct span whole = r->rest;
    (void)span_take_loose(&r->rest, span_of("<|python_tag|>"));
    if (read_section(r) && is_bare(r->rest)) return;
    r->calls.size = 0;
    put(r, &r->content, whole.at, whole.n);
}

/* ---- the whole ------------------------------------------------------------------------------- */

struct span chat_answer_first_tag(struct span words) {
    const char *end = span_find(words, *words.at == '[' ? "]" : ">");
    return end && end > words.at ? until(words, end + 1) : words;
}

/* Cuts thinking off the answer; `reasoning` stays NULL inside when there is none. */
static void take_thinking(struct span *answer, struct span *reasoning,
                          const struct chat_syntax *syntax, bool inside) {
    const struct span open = span_of(syntax->think_open ? syntax->think_open : "<think>");
    const struct span close = span_of(syntax->think_close ? syntax->think_close : "</think>");
    struct span s = span_strip_first_lines(*answer);
    if (span_take_loose(&s, open)) inside = true;
    if (!inside) return;
    const struct span tag = chat_answer_first_tag(close);
    const char *end = span_find_loose(s, tag);
    *reasoning = span_strip_lines(end ? until(s, end) : s);
    *answer = end ? from(s, end) : from(s, s.at + s.n);
    if (!span_take_loose(answer, close)) (void)span_take_loose(answer, tag);
    *answer = span_strip_first_lines(*answer);
}

/* False when no calls are to be looked for. */
static bool open_tools(struct reading *r, const struct reel_chat_options *options) {
    const struct chat_syntax *syntax = r->reader.syntax;
    struct json_span tools;
    if (!options || !options->tools || syntax->calls == CHAT_CALLS_NONE) return false;
    r->reader.status = json_span_open(&tools, "tools", options->tools, r->reader.err);
    if (r->reader.status != REEL_OK || json_span_kind(tools) != '[') return false;
    r->reader.tools = tools;
    put_text(r, &r->first, syntax->words.before);
    put_text(r, &r->first, syntax->words.open);
    put_text(r, &r->next, syntax->words.between);
    put_text(r, &r->next, syntax->words.open);
    return r->reader.status == REEL_OK;
}

static void finish(struct reading *r, struct chat_answer *out, struct span reasoning) {
    put_text(r, &r->content, "");
    if (r->calls.size) put_text(r, &r->calls, "]");
    if (r->reader.status == REEL_OK && reasoning.at)
        r->reader.status =
            mem_text(&out->reasoning, reasoning.at, reasoning.n, "an answer", r->reader.err);
    if (r->reader.status != REEL_OK) return;
    size_t n;
    out->content = buffer_detach(&r->content, &n);
    if (r->calls.size) out->tool_calls = buffer_detach(&r->calls, &n);
}

enum reel_status chat_answer_read(struct chat_answer *out, const struct chat_template *chat,
                                  const struct reel_chat_options *options, const char *text,
                                  size_t n_bytes, struct reel_error *err) {
    struct reading r = { .reader = { .syntax = &chat->syntax, .err = err } };
    struct span reasoning = { 0 };
    *out = (struct chat_answer){ 0 };
    r.rest = (struct span){ n_bytes ? text : "", n_bytes ? strnlen(text, n_bytes) : 0 };
    take_thinking(&r.rest, &reasoning, &chat->syntax, chat_opens_thinking(chat, options));
    bool calls = open_tools(&r, options);
    if (r.reader.status == REEL_OK && calls && is_bare(span_of_buffer(&r.first)))
        read_bare_call(&r);
    else if (r.reader.status == REEL_OK && calls)
        read_calls(&r);
    else
        put(&r, &r.content, r.rest.at, r.rest.n);
    finish(&r, out, reasoning);
    call_reader_release(&r.reader);
    buffer_release(&r.content);
    buffer_release(&r.calls);
    buffer_release(&r.first);
    buffer_release(&r.next);
    return r.reader.status;
}

void chat_answer_release(struct chat_answer *answer) {
    if (!answer) return;
    mem_free(answer->reasoning);
    mem_free(answer->content);
    mem_free(answer->tool_calls);
    *answer = (struct chat_answer){ 0 };
}
