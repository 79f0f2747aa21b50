#include "server/logprobs.h"

#include "server/json_out.h"

#include <string.h>

enum reel_status logprobs_number(struct buffer *out, float logprob, struct reel_error *err) {
    return buffer_printf(out, err, "%.6g", logprob > -9999 ? (double)logprob : -9999.0);
}

/* "token", "logprob" and "bytes" of one id; the object stays open. */
static enum reel_status put_token(struct buffer *out, const struct reel_tokenizer *tok, int32_t id,
                                  float logprob, struct reel_error *err) {
    size_t n = 0;
    const char *bytes = reel_token_bytes(tok, id, &n);
    enum reel_status status = buffer_text(out, "{\"token\":", err);
    if (status == REEL_OK) status = json_out_text(out, bytes ? bytes : "", n, err);
    if (status == REEL_OK) status = buffer_text(out, ",\"logprob\":", err);
    if (status == REEL_OK) status = logprobs_number(out, logprob, err);
    if (status == REEL_OK) status = buffer_text(out, ",\"bytes\":[", err);
    for (size_t i = 0; i < n && status == REEL_OK; i++)
        status = buffer_printf(out, err, "%s%u", i ? "," : "", (unsigned)(unsigned char)bytes[i]);
    return status == REEL_OK ? buffer_text(out, "]", err) : status;
}

enum reel_status logprobs_chat_token(struct buffer *out, const struct reel_tokenizer *tok,
                                     const struct reel_token *token, struct reel_error *err) {
    enum reel_status status = out->size ? buffer_text(out, ",", err) : REEL_OK;
    if (status == REEL_OK) status = put_token(out, tok, token->id, token->logprob, err);
    if (status == REEL_OK) status = buffer_text(out, ",\"top_logprobs\":[", err);
    for (int i = 0; i < token->n_top && status == REEL_OK; i++) {
        if (i) status = buffer_text(out, ",", err);
        if (status == REEL_OK)
            status = put_token(out, tok, token->top[i].id, token->top[i].logprob, err);
        if (status == REEL_OK) status = buffer_text(out, "}", err);
    }
    return status == REEL_OK ? buffer_text(out, "]}", err) : status;
}

/* ---- responses ---- */

struct mark {
    size_t end;    /* of its JSON in the queue's tokens */
    size_t n_text; /* bytes that the token stands for */
};

enum reel_status logprobs_queue_add(struct logprobs_queue *q, const struct reel_tokenizer *tok,
                                    const struct reel_token *token, struct reel_error *err) {
    struct buffer one = { 0 };
    struct mark mark = { 0 };
    enum reel_status status = logprobs_chat_token(&one, tok, token, err);
    if (status == REEL_OK) status = buffer_append(&q->tokens, one.bytes, one.size, err);
    buffer_release(&one);
    if (status != REEL_OK) return status;
    (void)reel_token_bytes(tok, token->id, &mark.n_text);
    mark.end = q->tokens.size;
    return buffer_append(&q->marks, &mark, sizeof mark, err);
}

enum reel_status logprobs_queue_take(struct logprobs_queue *q, struct buffer *out, size_t n_text,
                                     bool begins, struct reel_error *err) {
    const size_t n = q->marks.size / sizeof(struct mark);
    enum reel_status status = REEL_OK;
    size_t left = 0, begin = 0;
    struct mark mark;
    for (size_t i = 0; i < n; i++) {
        memcpy(&mark, q->marks.bytes + i * sizeof mark, sizeof mark);
        left += mark.n_text;
    }
    for (size_t i = 0; i < n && status == REEL_OK; i++) {
        memcpy(&mark, q->marks.bytes + i * sizeof mark, sizeof mark);
        left -= mark.n_text;
        begins = begins && left >= n_text;
        if (!begins && out->size) status = buffer_text(out, ",", err);
        if (!begins && status == REEL_OK)
            status = buffer_append(out, q->tokens.bytes + begin, mark.end - begin, err);
        begin = mark.end;
    }
    logprobs_queue_empty(q);
    return status;
}

void logprobs_queue_empty(struct logprobs_queue *q) { q->tokens.size = q->marks.size = 0; }

void logprobs_queue_release(struct logprobs_queue *q) {
    buffer_release(&q->tokens);
    buffer_release(&q->marks);
}

/* ---- completions ---- */

/* The name of a token must be a text, and no other's. What is not whole characters is written as
 * OpenAI does, "bytes:\xe2\x80"; an id without text "token_id:7", as vLLM does. */
static enum reel_status put_name(struct buffer *out, const struct reel_tokenizer *tok, int32_t id,
                                 struct reel_error *err) {
    size_t n = 0;
    const char *bytes = reel_token_bytes(tok, id, &n);
    if (!bytes || n == 0) return buffer_printf(out, err, "\"token_id:%d\"", (int)id);
    if (json_out_is_text(bytes, n)) return json_out_text(out, bytes, n, err);
    enum reel_status status = buffer_text(out, "\"bytes:", err);
    for (size_t i = 0; i < n && status == REEL_OK; i++)
        status = buffer_printf(out, err, "\\\\x%02x", (unsigned)(unsigned char)bytes[i]);
    return status == REEL_OK ? buffer_text(out, "\"", err) : status;
}

static enum reel_status put_top(struct buffer *out, const struct reel_tokenizer *tok, int32_t id,
                                float logprob, const struct reel_top_logprob *top, int n_top,
                                struct reel_error *err) {
    bool listed = false;
    enum reel_status status = buffer_text(out, "{", err);
    for (int i = 0; i <= n_top && status == REEL_OK; i++) {
        if (i == n_top && listed) break;
        const int32_t one = i < n_top ? top[i].id : id;
        listed = listed || one == id;
        if (i) status = buffer_text(out, ",", err);
        if (status == REEL_OK) status = put_name(out, tok, one, err);
        if (status == REEL_OK) status = buffer_text(out, ":", err);
        if (status == REEL_OK)
            status = logprobs_number(out, i < n_top ? top[i].logprob : logprob, err);
    }
    return status == REEL_OK ? buffer_text(out, "}", err) : status;
}

enum reel_status logprobs_lists_add(struct logprobs_lists *l, const struct reel_tokenizer *tok,
                                    int32_t id, const float *logprob,
                                    const struct reel_top_logprob *top, int n_top,
                                    size_t text_offset, struct reel_error *err) {
    struct buffer *const lists[] = { &l->tokens, &l->token_logprobs, &l->top_logprobs };
    enum reel_status status =
        buffer_printf(&l->text_offset, err, "%s%zu", l->text_offset.size ? "," : "", text_offset);
    for (int i = 0; i < 3 && status == REEL_OK; i++)
        if (lists[i]->size) status = buffer_text(lists[i], ",", err);
    if (status == REEL_OK) status = put_name(&l->tokens, tok, id, err);
    if (status == REEL_OK && !logprob) {
        status = buffer_text(&l->token_logprobs, "null", err);
        return status == REEL_OK ? buffer_text(&l->top_logprobs, "null", err) : status;
    }
    if (status == REEL_OK) status = logprobs_number(&l->token_logprobs, *logprob, err);
    return status == REEL_OK ? put_top(&l->top_logprobs, tok, id, *logprob, top, n_top, err)
                             : status;
}

static enum reel_status put_list(struct buffer *out, const char *name, struct buffer *list,
                                 struct reel_error *err) {
    enum reel_status status =
        buffer_printf(out, err, "\"%s\":[%s]", name, list->size ? list->bytes : "");
    list->size = 0;
    return status;
}

enum reel_status logprobs_lists_put(struct buffer *out, struct logprobs_lists *l,
                                    struct reel_error *err) {
    enum reel_status status = buffer_text(out, "{", err);
    if (status == REEL_OK) status = put_list(out, "text_offset", &l->text_offset, err);
    if (status == REEL_OK) status = buffer_text(out, ",", err);
    if (status == REEL_OK) status = put_list(out, "token_logprobs", &l->token_logprobs, err);
    if (status == REEL_OK) status = buffer_text(out, ",", err);
    if (status == REEL_OK) status = put_list(out, "tokens", &l->tokens, err);
    if (status == REEL_OK) status = buffer_text(out, ",", err);
    if (status == REEL_OK) status = put_list(out, "top_logprobs", &l->top_logprobs, err);
    return status == REEL_OK ? buffer_text(out, "}", err) : status;
}

void logprobs_lists_release(struct logprobs_lists *l) {
    buffer_release(&l->tokens);
    buffer_release(&l->token_logprobs);
    buffer_release(&l->top_logprobs);
    buffer_release(&l->text_offset);
}
