#include "model/call_stream.h"

#include <string.h>

enum {
    MAX_ID_BYTES = 100, /* between a name and its arguments, as in chat_calls.c */
    /* Closing words may stand in a value: after so many attempts the next one waits until the text
     * is longer by an eighth, so that all of them cost a few readings of it. */
    FREE_ATTEMPTS = 8
};

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

static struct span part(struct span text, size_t from, size_t end) {
    return (struct span){ text.at + from, end - from };
}

/* ---- telling --------------------------------------------------------------------------------- */

static void tell(struct call_stream *c, struct reel_answer_piece piece) {
    piece.size = sizeof piece;
    piece.call = c->n_calls;
    if (!piece.text) piece.text = "";
    if (c->reader.status != REEL_OK || c->on_piece(c->user, &piece)) return;
    c->reader.status = err_set(c->reader.err, REEL_E_CANCELLED, "the answer's reader was stopped");
}

static void tell_name(struct call_stream *c) {
    tell(c, (struct reel_answer_piece){
                .kind = REEL_ANSWER_CALL, .text = c->name.bytes, .text_bytes = c->name.size });
}

static void tell_arguments(struct call_stream *c, struct span s) {
    if (s.n == 0) return;
    tell(c, (struct reel_answer_piece){
                .kind = REEL_ANSWER_ARGUMENTS, .text = s.at, .text_bytes = s.n });
}

static void tell_end(struct call_stream *c, bool broken) {
    tell(c, (struct reel_answer_piece){ .kind = REEL_ANSWER_CALL_END, .broken = broken });
    c->n_calls++;
    c->begun = false;
}

void call_stream_break(struct call_stream *c) {
    if (c->begun) tell_end(c, true);
}

/* ---- on trust -------------------------------------------------------------------------------- */

static void set_name(struct call_stream *c, struct json_span name) {
    c->name.size = 0;
    if (c->reader.status == REEL_OK)
        c->reader.status = buffer_append(&c->name, "", 0, c->reader.err);
    if (c->reader.status == REEL_OK)
        c->reader.status = json_span_text(&c->name, name, c->reader.err);
}

/* c->name is a call's, whose arguments begin at `at`. */
static void begin_on_trust(struct call_stream *c, size_t at) {
    c->begun = true;
    c->arguments = c->told = at;
    c->arguments_end = 0;
    tell_name(c);
}

/* Bytes of the string that s begins with, quotes included; 0 where it does not end. */
static size_t string_bytes(struct span s) {
    for (size_t i = 1; i < s.n; i++) {
        if (s.at[i] == '\\')
            i++;
        else if (s.at[i] == '"')
            return i + 1;
    }
    return 0;
}

static bool take_string(struct span *s, struct span *string) {
    span_skip_blanks(s);
    const size_t n = s->n && *s->at == '"' ? string_bytes(*s) : 0;
    *string = (struct span){ s->at, n };
    s->at += n, s->n -= n;
    return n > 0;
}

static bool is_key(struct span string, const char *key) {
    return key && string.n == strlen(key) + 2 && memcmp(string.at + 1, key, string.n - 2) == 0;
}

static bool take_literal(struct span *s) {
    size_t n = 0;
    while (n < s->n && !is_blank(s->at[n]) && !strchr(",{}[]\":", s->at[n]))
        n++;
    s->at += n, s->n -= n;
    return n > 0;
}

/* Whether an object that begins so has a name, in *name, and comes to its arguments now. Whatever
 * is written otherwise is told when it is whole. */
static bool comes_to_arguments(const struct chat_call_words *w, struct span s, struct span *name) {
    struct span key, value = { 0 };
    bool named = false;
    for (;;) {
        if (!take_string(&s, &key)) return false;
        span_skip_blanks(&s);
        if (!span_take(&s, ":")) return false;
        span_skip_blanks(&s);
        if (s.n == 0) return named && is_key(key, w->arguments_key);
        if (*s.at != '"' ? !take_literal(&s) : !take_string(&s, &value)) return false;
        if (is_key(key, w->name_key)) {
            if (s.at[-1] != '"') return false;
            *name = value;
            named = true;
        }
        span_skip_blanks(&s);
        if (!span_take(&s, ",")) return false;
    }
}

/* The second brace of an object has come, at c->scan. */
static void consider_arguments(struct call_stream *c, struct span text) {
    struct json_span value = { 0 };
    struct span name = { 0 };
    c->trusts = false; /* this is the one chance */
    if (!comes_to_arguments(&c->reader.syntax->words, part(text, c->after_name + 1, c->scan),
                            &name))
        return;
    if (!call_read_json(&c->reader, name, &value) || json_span_kind(value) != '"') return;
    set_name(c, value);
    begin_on_trust(c, c->scan);
}

/* ---- reading --------------------------------------------------------------------------------- */

void call_stream_begin(struct call_stream *c, size_t body, bool quietly) {
    c->stage = c->reader.syntax->calls == CHAT_CALLS_JSON ? CALL_BLANKS : CALL_NAME;
    c->trusts = !quietly && !c->whole_calls;
    c->body = c->scan = body;
    c->search = (struct loose_search){ .from = body };
    c->name_has_text = c->name_has_line = false;
    c->depth = c->attempts = 0;
    c->quoted = c->escaped = c->untried = false;
    c->next_attempt = 0;
    if (!quietly) c->begun = false;
}

static enum loose skip_blanks(struct call_stream *c, struct span text) {
    while (c->scan < text.n && is_blank(text.at[c->scan]))
        c->scan++;
    if (c->scan == text.n) return LOOSE_MAYBE;
    if (text.at[c->scan] != '{') return LOOSE_NO;
    c->after_name = c->scan;
    c->stage = CALL_OBJECT;
    return LOOSE_MAYBE;
}

/* A name stands on one line. Looks at what was added to it. */
static bool name_goes_on(struct call_stream *c, struct span added) {
    for (size_t i = 0; i < added.n; i++) {
        if (added.at[i] == '\n' && (c->name_has_text || !c->name_is_trimmed))
            c->name_has_line = true;
        else if (!is_blank(added.at[i]) && c->name_has_line)
            return false;
        else if (!is_blank(added.at[i]))
            c->name_has_text = true;
    }
    return !c->name_has_line || c->name_is_trimmed;
}

/* Words close the name, or nothing does: it then ends where a tag begins, or the line. */
static enum loose read_name(struct call_stream *c, struct span text) {
    if (c->name_end.n) {
        const size_t from = c->search.from;
        const enum loose found = loose_search_go(&c->search, &c->name_end, text, false);
        if (!name_goes_on(c, part(text, from, c->search.from))) return LOOSE_NO;
        if (found != LOOSE_YES) return LOOSE_MAYBE;
        c->name_end_at = c->search.from;
        c->after_name = c->search.match.at;
    } else {
        while (c->scan < text.n && !strchr("<\n{", text.at[c->scan]))
            c->scan++;
        if (c->scan == text.n) return LOOSE_MAYBE;
        if (span_without_blanks(part(text, c->body, c->scan)).n == 0) return LOOSE_NO;
        c->name_end_at = c->after_name = c->scan;
    }
    c->scan = c->after_name;
    c->match = c->key = (struct loose_match){ .at = c->after_name };
    c->stage = c->reader.syntax->calls == CHAT_CALLS_TAGGED ? CALL_PARAMETER : CALL_BRACE;
    return LOOSE_MAYBE;
}

static enum loose find_brace(struct call_stream *c, struct span text) {
    for (;; c->scan++) {
        if (c->scan - c->after_name > MAX_ID_BYTES) return LOOSE_NO;
        if (c->scan == text.n) return LOOSE_MAYBE;
        if (text.at[c->scan] == '{') break;
    }
    if (c->trusts) {
        struct span name = part(text, c->body, c->name_end_at);
        if (c->name_is_trimmed || !c->name_end.n) name = span_without_blanks(name);
        c->name.size = 0;
        if (c->reader.status == REEL_OK)
            c->reader.status = buffer_append(&c->name, name.at, name.n, c->reader.err);
        begin_on_trust(c, c->scan);
    }
    c->stage = CALL_OBJECT;
    return LOOSE_MAYBE;
}

/* A brace outside of strings. The arguments are the object itself, or one inside it. */
static void count_brace(struct call_stream *c, struct span text) {
    if (text.at[c->scan] == '{') {
        c->depth++;
        if (c->depth == 2 && c->trusts && c->reader.syntax->calls == CHAT_CALLS_JSON)
            consider_arguments(c, text);
    } else {
        c->depth--;
        const int outside = c->reader.syntax->calls == CHAT_CALLS_JSON;
        if (c->begun && c->body <= c->arguments && !c->arguments_end && c->depth == outside)
            c->arguments_end = c->scan + 1;
    }
}

/* Counts braces as span_object_bytes does. True: the last one has come, before c->scan. */
static bool count_braces(struct call_stream *c, struct span text) {
    for (bool over = false; c->scan < text.n && !over; c->scan++) {
        const char at = text.at[c->scan];
        if (c->quoted) {
            c->quoted = at != '"' || c->escaped;
            c->escaped = at == '\\' && !c->escaped;
        } else if (at == '"') {
            c->quoted = true;
        } else if (at == '{' || at == '}') {
            count_brace(c, text);
            over = c->depth == 0;
        }
        if (over) {
            c->scan++;
            return true;
        }
    }
    return false;
}

static enum loose read_object(struct call_stream *c, struct span text) {
    const bool over = count_braces(c, text);
    if (c->begun && c->body <= c->arguments) {
        const size_t end = c->arguments_end ? c->arguments_end : c->scan;
        tell_arguments(c, part(text, c->told, end));
        c->told = end;
    }
    if (!over) return LOOSE_MAYBE;
    struct span s = part(text, c->body, text.n);
    if (!call_read_body(&c->reader, &s) || !call_is_valid(&c->reader)) return LOOSE_NO;
    c->match = (struct loose_match){ .at = c->scan };
    c->stage = CALL_CLOSE;
    return LOOSE_MAYBE;
}

static enum loose read_close(struct call_stream *c, struct span text, size_t *end) {
    const enum loose found = loose_match_go(&c->match, &c->close, text);
    *end = c->match.at;
    return found;
}

/* Without closing words only what follows tells where a call ends: that is for the whole text. */
static enum loose find_parameter(struct call_stream *c, struct span text) {
    if (!c->close.n) return LOOSE_MAYBE;
    const enum loose closes = loose_match_go(&c->match, &c->close, text);
    const enum loose opens = loose_match_go(&c->key, &c->key_open, text);
    if (closes == LOOSE_NO && opens == LOOSE_NO) return LOOSE_NO;
    if (closes != LOOSE_YES && opens != LOOSE_YES) return LOOSE_MAYBE;
    c->search = (struct loose_search){ .from = c->after_name };
    c->stage = CALL_TAGS;
    return LOOSE_MAYBE;
}

static enum loose read_tags(struct call_stream *c, struct span text, size_t *end) {
    while (loose_search_go(&c->search, &c->close, text, false) == LOOSE_YES) {
        c->untried = true;
        c->search = (struct loose_search){ .from = c->search.from + 1 };
    }
    if (!c->untried || (c->attempts >= FREE_ATTEMPTS && text.n - c->body < c->next_attempt))
        return LOOSE_MAYBE;
    struct span s = part(text, c->body, text.n);
    c->untried = false;
    c->attempts++;
    c->next_attempt = s.n + s.n / 8;
    c->reader.unsure = false;
    if (!call_read_body(&c->reader, &s) || c->reader.unsure) return LOOSE_MAYBE;
    *end = (size_t)(s.at - text.at);
    return call_is_valid(&c->reader) ? LOOSE_YES : LOOSE_NO;
}

static enum loose read_whole(struct call_stream *c, struct span text, size_t *end) {
    struct span s = part(text, c->body, text.n);
    if (!call_read(&c->reader, &s)) return LOOSE_NO;
    *end = (size_t)(s.at - text.at);
    return LOOSE_YES;
}

static enum loose read_stage(struct call_stream *c, struct span text, size_t *end) {
    switch (c->stage) {
    case CALL_BLANKS:
        return skip_blanks(c, text);
    case CALL_NAME:
        return read_name(c, text);
    case CALL_BRACE:
        return find_brace(c, text);
    case CALL_OBJECT:
        return read_object(c, text);
    case CALL_CLOSE:
        return read_close(c, text, end);
    case CALL_PARAMETER:
        return find_parameter(c, text);
    case CALL_TAGS:
        return read_tags(c, text, end);
    }
    return LOOSE_NO;
}

enum loose call_stream_go(struct call_stream *c, struct span text, bool whole, size_t *end) {
    if (whole) return read_whole(c, text, end);
    for (;;) {
        const enum call_stage stage = c->stage;
        const enum loose found = read_stage(c, text, end);
        if (found != LOOSE_MAYBE || c->stage == stage) return found;
    }
}

/* ---- the call is one ------------------------------------------------------------------------- */

static void put(struct call_stream *c, const char *text) {
    if (c->reader.status == REEL_OK)
        c->reader.status = buffer_text(&c->scratch, text, c->reader.err);
}

/* Whether what was told on trust is the call that `json` holds. */
static bool was_right(struct call_stream *c, struct span text, struct span json) {
    struct json_span arguments;
    if (!c->arguments_end ||
        !call_read_json(&c->reader, part(text, c->arguments, c->arguments_end), &arguments))
        return false;
    c->scratch.size = 0;
    put(c, "{\"name\": ");
    if (c->reader.status == REEL_OK)
        c->reader.status = json_text_write(&c->scratch, c->name.bytes, c->name.size, c->reader.err);
    put(c, ", \"arguments\": ");
    if (c->reader.status == REEL_OK)
        c->reader.status = json_span_write(&c->scratch, arguments, c->reader.err);
    put(c, "}");
    return c->scratch.size == json.n && memcmp(c->scratch.bytes, json.at, json.n) == 0;
}

void call_stream_tell(struct call_stream *c, struct span text, struct span json) {
    struct json_span call, name, arguments;
    if (c->begun && was_right(c, text, json)) {
        tell_arguments(c, part(text, c->told, c->arguments_end));
        tell_end(c, false);
        return;
    }
    call_stream_break(c);
    if (!call_read_json(&c->reader, json, &call) || !json_span_member(call, "name", &name) ||
        !json_span_member(call, "arguments", &arguments))
        return; /* no memory: the calls of call_read have both */
    set_name(c, name);
    tell_name(c);
    tell_arguments(c, (struct span){ arguments.at, arguments.n_bytes });
    tell_end(c, false);
}

/* ---- opening --------------------------------------------------------------------------------- */

enum reel_status call_stream_open(struct call_stream *c, const struct chat_syntax *syntax,
                                  reel_answer_fn on_piece, void *user, struct reel_error *err) {
    const struct chat_call_words *w = &syntax->words;
    const struct span name_end = span_of(w->name_end);
    c->reader.syntax = syntax;
    c->on_piece = on_piece;
    c->user = user;
    c->name_is_trimmed = span_without_blanks(name_end).at > name_end.at;
    enum reel_status status = loose_word_init(&c->close, w->close, NULL, err);
    if (status == REEL_OK) status = loose_word_init(&c->name_end, w->name_end, NULL, err);
    if (status == REEL_OK) status = loose_word_init(&c->key_open, w->key_open, NULL, err);
    return status;
}

void call_stream_close(struct call_stream *c) {
    call_reader_release(&c->reader);
    loose_word_release(&c->close);
    loose_word_release(&c->name_end);
    loose_word_release(&c->key_open);
    buffer_release(&c->name);
    buffer_release(&c->scratch);
}
