#include "support/answer_pieces.h"

#include "model/answer_reader.h"
#include "model/chat_answer.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct heard {
    struct buffer reasoning, content, name, arguments;
    json_t *calls;
    int n_calls;
    bool in_call, may_break;
    const char *wrong;
};

static bool wrong(struct heard *h, const char *what) {
    if (!h->wrong) h->wrong = what;
    return true;
}

static void add(struct buffer *b, const struct reel_answer_piece *piece) {
    if (buffer_append(b, piece->text, piece->text_bytes, NULL) != REEL_OK) abort();
}

static void end_call(struct heard *h, bool broken) {
    h->in_call = false;
    h->n_calls++;
    if (broken) return;
    json_t *arguments =
        json_loadb(h->arguments.bytes, h->arguments.size, JSON_DECODE_INT_AS_REAL, NULL);
    json_t *name = json_stringn(h->name.bytes, h->name.size);
    if (!json_is_object(arguments)) wrong(h, "arguments are no object");
    json_array_append_new(h->calls, json_pack("{s:o?,s:o?}", "name", name, "arguments", arguments));
}

static bool hear(void *user, const struct reel_answer_piece *piece) {
    struct heard *h = user;
    const bool text = piece->kind == REEL_ANSWER_REASONING || piece->kind == REEL_ANSWER_CONTENT;
    if (text && (h->in_call || piece->call != -1)) return wrong(h, "text inside a call");
    if (!text && piece->call != h->n_calls) return wrong(h, "a call is counted otherwise");
    if (piece->text_bytes == 0 && (text || piece->kind == REEL_ANSWER_ARGUMENTS))
        return wrong(h, "a piece is empty");
    if (piece->kind == REEL_ANSWER_CALL ? h->in_call : !text && !h->in_call)
        return wrong(h, "a call begins or ends twice");
    if (piece->broken && (!h->may_break || piece->kind != REEL_ANSWER_CALL_END))
        return wrong(h, "a call is broken");
    switch (piece->kind) {
    case REEL_ANSWER_REASONING:
        if (h->content.size || h->n_calls) wrong(h, "reasoning comes late");
        add(&h->reasoning, piece);
        break;
    case REEL_ANSWER_CONTENT:
        add(&h->content, piece);
        break;
    case REEL_ANSWER_CALL:
        h->in_call = true;
        h->name.size = h->arguments.size = 0;
        add(&h->name, piece);
        break;
    case REEL_ANSWER_ARGUMENTS:
        add(&h->arguments, piece);
        break;
    case REEL_ANSWER_CALL_END:
        end_call(h, piece->broken);
        break;
    }
    return true;
}

static bool is_text(const struct buffer *b, const char *wanted) {
    return b->size == (wanted ? strlen(wanted) : 0) &&
           (b->size == 0 || memcmp(b->bytes, wanted, b->size) == 0);
}

static const char *compare(struct heard *h, const struct chat_answer *answer) {
    if (h->wrong) return h->wrong;
    if (h->in_call) return "a call does not end";
    if (!is_text(&h->reasoning, answer->reasoning)) return "the reasoning differs";
    if (!is_text(&h->content, answer->content)) return "the content differs";
    json_t *calls = answer->tool_calls
                        ? json_loads(answer->tool_calls, JSON_DECODE_INT_AS_REAL, NULL)
                        : json_array();
    const bool same = json_equal(calls, h->calls);
    json_decref(calls);
    return same ? NULL : "the calls differ";
}

/* Each piece has memory of its own, so that a look past its end is seen. */
static enum reel_status push(struct reel_answer_reader *reader, const char *text, size_t n,
                             struct reel_error *err) {
    char *own = malloc(n ? n : 1);
    if (!own) abort();
    memcpy(own, text, n);
    enum reel_status status = answer_reader_push(reader, own, n, err);
    free(own);
    return status;
}

static enum reel_status read_pieces(struct heard *h, const struct chat_template *chat,
                                    const struct reel_chat_options *options, bool whole_calls,
                                    const char *text, size_t n, const unsigned char *cuts,
                                    struct reel_error *err) {
    const struct reel_answer_reader_options reading = {
        .size = sizeof reading, .whole_calls = whole_calls, .on_piece = hear, .user = h
    };
    struct reel_answer_reader *reader = NULL;
    enum reel_status status = answer_reader_open(&reader, chat, options, &reading, err);
    size_t from = 0;
    for (size_t i = 0; i < n && status == REEL_OK; i++) {
        if (i + 1 < n && cuts && !(cuts[i / 8] >> i % 8 & 1)) continue;
        status = push(reader, text + from, i + 1 - from, err);
        from = i + 1;
    }
    if (status == REEL_OK) status = answer_reader_finish(reader, err);
    answer_reader_close(reader);
    return status;
}

const char *answer_pieces_differ(const struct chat_template *chat,
                                 const struct reel_chat_options *options, bool whole_calls,
                                 const char *text, size_t n, const unsigned char *cuts) {
    struct heard h = { .calls = json_array(), .may_break = !whole_calls };
    struct chat_answer answer;
    struct reel_error err = { 0 };
    const enum reel_status wanted = chat_answer_read(&answer, chat, options, text, n, NULL);
    const enum reel_status status =
        read_pieces(&h, chat, options, whole_calls, text, n, cuts, &err);
    const char *differ = status != wanted    ? "the status differs"
                         : status == REEL_OK ? compare(&h, &answer)
                                             : NULL;
    chat_answer_release(&answer);
    buffer_release(&h.reasoning);
    buffer_release(&h.content);
    buffer_release(&h.name);
    buffer_release(&h.arguments);
    json_decref(h.calls);
    return differ;
}

const char *answer_cuts_differ(const struct chat_template *chat,
                               const struct reel_chat_options *options, const char *text,
                               size_t n) {
    static char message[300];
    unsigned char *cuts = calloc(n / 8 + 2, 1);
    const char *differ = NULL;
    if (!cuts) abort();
    for (size_t i = 0; i <= n && !differ; i++) { /* n: not cut at all */
        cuts[i / 8] |= (unsigned char)(1u << i % 8);
        for (int whole = 0; whole < 2 && !differ; whole++)
            differ = answer_pieces_differ(chat, options, whole, text, n, i < n ? cuts : NULL);
        cuts[i / 8] = 0;
        if (differ) (void)snprintf(message, sizeof message, "%s, cut at %zu", differ, i);
    }
    free(cuts);
    return differ ? message : NULL;
}
