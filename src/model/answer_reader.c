/* The text is kept from the first byte on that is not certain yet. What steps over it is a machine
 * whose states are those that chat_answer.c passes through; each goes on where it had to stop, so
 * that a push costs what is new in it. Whether a call is one is asked of call_read_body, when its
 * last brace or tag has come; until then its arguments are told on trust. */
#include "model/answer_reader.h"

#include "base/memory.h"
#include "model/call_stream.h"
#include "model/chat_answer.h"
#include "model/chat_words.h"

#include <string.h>

enum phase {
    THINK_OPEN,  /* is there a tag that opens thinking? */
    THINKING,    /* reasoning, up to the tag that ends it */
    THINK_CLOSE, /* the words behind that tag */
    AFTER_THINKING,
    TEXT,    /* content without calls */
    CONTENT, /* content, up to the words before a call */
    BARE,    /* the whole answer is calls, or none of it: the words before the first */
    CALL,
    NEXT,  /* the words between calls */
    AFTER, /* the words after the last one */
    BARE_END,
    OVER
};

struct reel_answer_reader {
    const struct chat_syntax *syntax;
    struct loose_word think_open, think_tag, think_close, python, first, next, after;
    char *tools; /* what call.reader.tools points into */
    reel_answer_fn on_piece;
    void *user;
    bool opens_thinking, wants_calls;

    struct buffer text; /* not told yet, or held */
    size_t at;          /* before it all is told or dropped */
    size_t sure;        /* [at, sure) is certain to be told; behind it white space may wait */
    bool whole;         /* no more text comes */
    bool ended;         /* a NUL has ended it */
    bool failed;
    enum phase phase;
    struct loose_search search;
    struct loose_match match;

    bool said_thinking, said_content;
    bool after_call; /* nothing but white space has come since */
    int malformed;
    size_t open_at;     /* where the words before the call at hand begin */
    size_t call_from;   /* where the section goes on or ends */
    bool is_first;      /* of its section */
    bool bare;          /* inside BARE .. BARE_END */
    struct buffer kept; /* bare: calls as JSON, each with a NUL behind it */
    struct call_stream call;
};

static struct span text_of(const struct reel_answer_reader *r) {
    return (struct span){ r->text.bytes ? r->text.bytes : "", r->text.size };
}

static bool is_blank(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

/* ---- telling --------------------------------------------------------------------------------- */

static bool tell(struct reel_answer_reader *r, enum reel_answer_kind kind, struct span text) {
    const struct reel_answer_piece piece = {
        .size = sizeof piece, .kind = kind, .text = text.at, .text_bytes = text.n, .call = -1
    };
    struct call_reader *reader = &r->call.reader;
    if (text.n == 0 || reader->status != REEL_OK) return reader->status == REEL_OK;
    if (kind == REEL_ANSWER_CONTENT) r->said_content = true;
    if (!r->on_piece(r->user, &piece))
        reader->status = err_set(reader->err, REEL_E_CANCELLED, "the answer's reader was stopped");
    return reader->status == REEL_OK;
}

/* Tells [at, end). */
static void tell_to(struct reel_answer_reader *r, enum reel_answer_kind kind, size_t end) {
    if (end <= r->at) return;
    tell(r, kind, (struct span){ r->text.bytes + r->at, end - r->at });
    r->at = end;
}

/* [from, end) was found to be text: r->sure moves behind its last character that is not held. */
static void find_sure(struct reel_answer_reader *r, size_t from, size_t end, bool lines_only) {
    const char *text = r->text.bytes;
    while (end > from && (lines_only ? text[end - 1] == '\n' : is_blank(text[end - 1])))
        end--;
    if (end > from && end > r->sure) r->sure = end;
}

/* ---- from one phase to the next -------------------------------------------------------------- */

static void enter(struct reel_answer_reader *r, enum phase phase, size_t at) {
    r->phase = phase;
    r->at = r->sure = at;
    r->search = (struct loose_search){ .from = at };
    r->match = (struct loose_match){ .at = at };
}

static void enter_answer(struct reel_answer_reader *r, size_t at) {
    r->bare = r->wants_calls && r->first.n == 0;
    r->open_at = at;
    enter(r, !r->wants_calls ? TEXT : r->bare ? BARE : CONTENT, at);
}

static void enter_words(struct reel_answer_reader *r, enum phase phase) {
    r->phase = phase;
    r->match = (struct loose_match){ .at = r->call_from };
}

static void enter_call(struct reel_answer_reader *r, size_t at, bool is_first) {
    r->phase = CALL;
    r->is_first = is_first;
    call_stream_begin(&r->call, at, r->bare && !is_first);
}

/* ---- thinking -------------------------------------------------------------------------------- */

static bool open_thinking(struct reel_answer_reader *r) {
    const enum loose found = loose_match_go(&r->match, &r->think_open, text_of(r));
    if (found == LOOSE_MAYBE && !r->whole) return false;
    if (found == LOOSE_YES)
        enter(r, THINKING, r->match.at);
    else if (r->opens_thinking)
        enter(r, THINKING, 0);
    else
        enter_answer(r, 0);
    return true;
}

static bool think(struct reel_answer_reader *r) {
    const size_t from = r->search.from;
    const enum loose found = loose_search_go(&r->search, &r->think_tag, text_of(r), r->whole);
    find_sure(r, from, r->search.from, true);
    while (!r->said_thinking && r->at < r->sure && r->text.bytes[r->at] == '\n')
        r->at++;
    r->said_thinking |= r->at < r->sure;
    tell_to(r, REEL_ANSWER_REASONING, r->sure);
    if (found == LOOSE_MAYBE || (found == LOOSE_NO && !r->whole)) return false;
    if (found == LOOSE_NO) {
        r->phase = OVER;
        return false;
    }
    r->phase = THINK_CLOSE;
    r->match = (struct loose_match){ .at = r->search.from };
    return true;
}

static bool close_thinking(struct reel_answer_reader *r) {
    const enum loose found = loose_match_go(&r->match, &r->think_close, text_of(r));
    if (found == LOOSE_MAYBE && !r->whole) return false;
    enter(r, AFTER_THINKING, found == LOOSE_YES ? r->match.at : r->search.match.at);
    return true;
}

static bool skip_lines(struct reel_answer_reader *r) {
    while (r->at < r->text.size && r->text.bytes[r->at] == '\n')
        r->at++;
    if (r->at == r->text.size && !r->whole) return false;
    enter_answer(r, r->at);
    return true;
}

/* ---- content --------------------------------------------------------------------------------- */

static bool tell_text(struct reel_answer_reader *r) {
    tell_to(r, REEL_ANSWER_CONTENT, r->text.size);
    if (r->whole) r->phase = OVER;
    return false;
}

static void skip_blanks_after_call(struct reel_answer_reader *r) {
    while (r->at < r->text.size && is_blank(r->text.bytes[r->at]))
        r->at++;
    r->sure = r->at;
    if (r->search.from < r->at) r->search = (struct loose_search){ .from = r->at };
}

static bool read_content(struct reel_answer_reader *r) {
    if (r->after_call) skip_blanks_after_call(r);
    const size_t from = r->search.from;
    const enum loose found = loose_search_go(&r->search, &r->first, text_of(r), r->whole);
    if (r->after_call && r->search.from > r->at) {
        if (r->said_content) tell(r, REEL_ANSWER_CONTENT, span_of("\n"));
        r->after_call = false;
    }
    find_sure(r, from, r->search.from, false);
    tell_to(r, REEL_ANSWER_CONTENT, r->sure);
    if (found == LOOSE_YES) {
        r->open_at = r->search.from;
        enter_call(r, r->search.match.at, true);
        return true;
    }
    if (found == LOOSE_NO && r->whole) return tell_text(r);
    return false;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Where nothing stands before a call, the whole answer is one, or none of it. */
static bool open_bare(struct reel_answer_reader *r) {
    const enum loose found = loose_match_go(&r->match, &r->python, text_of(r));
    if (found == LOOSE_MAYBE && !r->whole) return false;
    enter_call(r, found == LOOSE_YES ? r->match.at : r->open_at, true);
    return true;
}

static void give_up_call(struct reel_answer_reader *r) {
    if (r->bare && !r->is_first) {
        enter_words(r, AFTER);
        return;
    }
    call_stream_break(&r->call);
    if (r->bare) {
        enter(r, TEXT, r->open_at);
    } else if (!r->is_first) {
        enter_words(r, AFTER);
    } else { /* its first character is text, and so is white space that waited */
        r->malformed++;
        r->after_call = false;
        r->sure = r->open_at + 1;
        r->search = (struct loose_search){ .from = r->sure };
        r->phase = r->malformed < CHAT_MAX_MALFORMED ? CONTENT : TEXT;
    }
}

static void keep_bare_call(struct reel_answer_reader *r) {
    struct call_reader *reader = &r->call.reader;
    if (reader->status == REEL_OK)
        reader->status =
            buffer_append(&r->kept, reader->call.bytes, reader->call.size + 1, reader->err);
}

static bool read_call(struct reel_answer_reader *r) {
    size_t end = 0;
    switch (call_stream_go(&r->call, text_of(r), r->whole, &end)) {
    case LOOSE_MAYBE:
        return false;
    case LOOSE_NO:
        give_up_call(r);
        return true;
    case LOOSE_YES:
        break;
    }
    if (r->bare)
        keep_bare_call(r);
    else
        call_stream_tell(&r->call, text_of(r), span_of(r->call.reader.call.bytes));
    r->at = r->sure = r->call_from = end;
    r->after_call = true;
    enter_words(r, NEXT);
    return true;
}

/* Objects need no words between them. */
static bool read_next(struct reel_answer_reader *r) {
    const bool follows = r->next.n > 0 || r->syntax->calls == CHAT_CALLS_JSON;
    const enum loose found = follows ? loose_match_go(&r->match, &r->next, text_of(r)) : LOOSE_NO;
    if (found == LOOSE_MAYBE && !r->whole) return false;
    if (found == LOOSE_YES)
        enter_call(r, r->match.at, false);
    else
        enter_words(r, AFTER);
    return true;
}

static bool read_after(struct reel_answer_reader *r) {
    const enum loose found = loose_match_go(&r->match, &r->after, text_of(r));
    if (found == LOOSE_MAYBE && !r->whole) return false;
    const size_t at = found == LOOSE_YES ? r->match.at : r->call_from;
    enter(r, r->bare ? BARE_END : CONTENT, at);
    return true;
}

static bool end_bare(struct reel_answer_reader *r) {
    while (r->at < r->text.size && is_blank(r->text.bytes[r->at]))
        r->at++;
    if (r->at < r->text.size) { /* the answer says more than calls: it says none */
        call_stream_break(&r->call);
        enter(r, TEXT, r->open_at);
        return true;
    }
    if (!r->whole) return false;
    for (size_t i = 0; i < r->kept.size; i += strlen(r->kept.bytes + i) + 1)
        call_stream_tell(&r->call, text_of(r), span_of(r->kept.bytes + i));
    r->phase = OVER;
    return false;
}

/* ---- the machine ----------------------------------------------------------------------------- */

/* True: there may be more to do with the text that is here. */
static bool step(struct reel_answer_reader *r) {
    switch (r->phase) {
    case THINK_OPEN:
        return open_thinking(r);
    case THINKING:
        return think(r);
    case THINK_CLOSE:
        return close_thinking(r);
    case AFTER_THINKING:
        return skip_lines(r);
    case TEXT:
        return tell_text(r);
    case CONTENT:
        return read_content(r);
    case BARE:
        return open_bare(r);
    case CALL:
        return read_call(r);
    case NEXT:
        return read_next(r);
    case AFTER:
        return read_after(r);
    case BARE_END:
        return end_bare(r);
    case OVER:
        break;
    }
    return false;
}

/* Forgets what was told, where no offset but those here points into the text. */
static void forget(struct reel_answer_reader *r) {
    const bool plain = r->phase == THINKING || r->phase == TEXT || r->phase == CONTENT;
    const size_t n = r->at;
    if (!plain || n == 0 || (n < r->text.size && n < 4096) || 2 * n < r->text.size) return;
    memmove(r->text.bytes, r->text.bytes + n, r->text.size - n);
    r->text.size -= n;
    r->at = 0;
    r->sure = r->sure > n ? r->sure - n : 0;
    r->search.from = r->search.from > n ? r->search.from - n : 0;
    r->search.match.at = r->search.match.at > n ? r->search.match.at - n : 0;
}

static enum reel_status go_on(struct reel_answer_reader *r, const char *text, size_t n,
                              struct reel_error *err) {
    struct call_reader *reader = &r->call.reader;
    reader->err = err;
    if (n) reader->status = buffer_append(&r->text, text, n, err);
    while (reader->status == REEL_OK && step(r))
        ;
    if (reader->status == REEL_OK) forget(r);
    reader->err = NULL;
    r->failed = reader->status != REEL_OK;
    return reader->status;
}

static enum reel_status check_open(const struct reel_answer_reader *r, struct reel_error *err) {
    if (!r->failed && !r->whole) return REEL_OK;
    return err_set(err, REEL_E_STATE,
                   r->failed ? "the answer's reader failed earlier; close it"
                             : "the answer is finished");
}

enum reel_status answer_reader_push(struct reel_answer_reader *r, const char *text, size_t n,
                                    struct reel_error *err) {
    enum reel_status status = check_open(r, err);
    if (status != REEL_OK || r->ended || n == 0) return status;
    const size_t until = strnlen(text, n);
    r->ended = until < n;
    return go_on(r, text, until, err);
}

enum reel_status answer_reader_finish(struct reel_answer_reader *r, struct reel_error *err) {
    enum reel_status status = check_open(r, err);
    if (status != REEL_OK) return status;
    r->whole = true;
    return go_on(r, NULL, 0, err);
}

/* ---- opening --------------------------------------------------------------------------------- */

static enum reel_status open_words(struct reel_answer_reader *r, struct reel_error *err) {
    const struct chat_syntax *s = r->syntax;
    const struct chat_call_words *w = &s->words;
    const char *close = s->think_close ? s->think_close : "</think>";
    enum reel_status status =
        loose_word_init(&r->think_open, s->think_open ? s->think_open : "<think>", NULL, err);
    if (status == REEL_OK) status = loose_word_init(&r->think_close, close, NULL, err);
    if (status == REEL_OK)
        status = loose_word_from(&r->think_tag, chat_answer_first_tag(span_of(close)), err);
    if (status == REEL_OK) status = loose_word_init(&r->python, "<|python_tag|>", NULL, err);
    if (status == REEL_OK) status = loose_word_init(&r->first, w->before, w->open, err);
    if (status == REEL_OK) status = loose_word_init(&r->next, w->between, w->open, err);
    if (status == REEL_OK) status = loose_word_init(&r->after, w->after, NULL, err);
    return status;
}

/* Whether calls are looked for: as chat_answer.c decides it. */
static enum reel_status open_tools(struct reel_answer_reader *r, const char *tools,
                                   struct reel_error *err) {
    struct json_span list;
    if (!tools || r->syntax->calls == CHAT_CALLS_NONE) return REEL_OK;
    enum reel_status status = mem_text(&r->tools, tools, strlen(tools), "tools", err);
    if (status == REEL_OK) status = json_span_open(&list, "tools", r->tools, err);
    if (status != REEL_OK || json_span_kind(list) != '[') return status;
    r->call.reader.tools = list;
    r->wants_calls = true;
    return REEL_OK;
}

enum reel_status answer_reader_open(struct reel_answer_reader **out,
                                    const struct chat_template *chat,
                                    const struct reel_chat_options *chat_options,
                                    const struct reel_answer_reader_options *options,
                                    struct reel_error *err) {
    struct reel_answer_reader *r = NULL;
    *out = NULL;
    enum reel_status status = mem_zeroed(&r, 1, sizeof *r, "a reader of answers", err);
    if (status != REEL_OK) return status;
    r->syntax = &chat->syntax;
    r->on_piece = options->on_piece;
    r->user = options->user;
    r->opens_thinking = chat_opens_thinking(chat, chat_options);
    status = open_words(r, err);
    if (status == REEL_OK) status = open_tools(r, chat_options ? chat_options->tools : NULL, err);
    if (status == REEL_OK)
        status = call_stream_open(&r->call, r->syntax, options->on_piece, options->user, err);
    if (status != REEL_OK) {
        answer_reader_close(r);
        return status;
    }
    r->call.whole_calls = options->whole_calls;
    *out = r;
    return REEL_OK;
}

void answer_reader_close(struct reel_answer_reader *r) {
    if (!r) return;
    loose_word_release(&r->think_open);
    loose_word_release(&r->think_tag);
    loose_word_release(&r->think_close);
    loose_word_release(&r->python);
    loose_word_release(&r->first);
    loose_word_release(&r->next);
    loose_word_release(&r->after);
    call_stream_close(&r->call);
    buffer_release(&r->text);
    buffer_release(&r->kept);
    mem_free(r->tools);
    mem_free(r);
}
