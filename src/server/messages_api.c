/* POST /v1/messages and /v1/messages/count_tokens, Anthropic's Messages API. An answer is a list of
 * blocks: thinking, text, calls. Of a stream every block begins, grows and ends by events; a whole
 * answer has them at once. */
#include "server/chat_run.h"
#include "server/handlers.h"
#include "server/json_out.h"
#include "server/messages_prompt.h"

#include "server/api_error.h"

#include <string.h>

enum block { NO_BLOCK, THINKING, TEXT, CALL };

struct message {
    struct text_request text;
    struct chat_prompt prompt;
    enum block block;     /* that is open */
    int n_blocks;         /* begun so far */
    struct buffer piece;  /* of a stream, the open block's bytes since the last event; else all */
    struct buffer head;   /* of an open call: its id and name, as members of its object */
    struct buffer blocks; /* of a whole answer, those that have ended */
    struct buffer out;
    enum reel_status status; /* of writing: memory */
};

static void note(struct message *m, enum reel_status status) {
    if (m->status == REEL_OK) m->status = status;
}
static void put(struct message *m, const char *text) { note(m, buffer_text(&m->out, text, NULL)); }
static void put_text(struct message *m, const struct buffer *text) {
    note(m, json_out_text(&m->out, text->bytes ? text->bytes : "", text->size, NULL));
}

/* ---- events ---- */

static void begin_event(struct message *m, const char *type) {
    note(m, buffer_printf(&m->out, NULL, "event: %s\ndata: {\"type\":\"%s\"", type, type));
}

static void begin_block_event(struct message *m, const char *type) {
    begin_event(m, type);
    note(m, buffer_printf(&m->out, NULL, ",\"index\":%d", m->n_blocks - 1));
}

static void end_event(struct message *m) { put(m, "}\n\n"); }

static bool send(struct message *m) {
    if (!exchange_begun(m->text.x)) exchange_begin(m->text.x, 200, "text/event-stream");
    bool sent = m->status == REEL_OK &&
                (!m->out.size || exchange_put(m->text.x, m->out.bytes, m->out.size));
    m->out.size = 0;
    return sent;
}

static void put_usage(struct message *m, int n_prompt, int n_reused, int n_generated) {
    note(m, buffer_printf(&m->out, NULL,
                          "\"usage\":{\"input_tokens\":%d,\"cache_creation_input_tokens\":0,"
                          "\"cache_read_input_tokens\":%d,\"output_tokens\":%d}",
                          n_prompt - n_reused, n_reused, n_generated));
}

static void put_message_head(struct message *m) {
    note(m, buffer_printf(&m->out, NULL,
                          "\"id\":\"msg_%s\",\"type\":\"message\",\"role\":\"assistant\","
                          "\"model\":",
                          exchange_id(m->text.x)));
    note(m, json_out_string(&m->out, m->text.model->name, NULL));
}

/* ---- blocks ---- */

/* The open block's bytes since the last event. */
static void put_delta(struct message *m) {
    static const char *const kinds[] = { "", "thinking_delta\",\"thinking", "text_delta\",\"text",
                                         "input_json_delta\",\"partial_json" };
    if (m->block == NO_BLOCK || !m->piece.size) return;
    begin_block_event(m, "content_block_delta");
    note(m, buffer_printf(&m->out, NULL, ",\"delta\":{\"type\":\"%s\":", kinds[m->block]));
    put_text(m, &m->piece);
    put(m, "}");
    end_event(m);
    m->piece.size = 0;
}

/* A whole block, or one that is to grow: then m->piece is empty. */
static void put_block(struct message *m) {
    switch (m->block) {
    case NO_BLOCK:
        break;
    case THINKING:
        put(m, "{\"type\":\"thinking\",\"thinking\":");
        put_text(m, &m->piece);
        put(m, ",\"signature\":\"\"}");
        break;
    case TEXT:
        put(m, "{\"type\":\"text\",\"text\":");
        put_text(m, &m->piece);
        put(m, "}");
        break;
    case CALL:
        note(m, buffer_printf(&m->out, NULL, "{\"type\":\"tool_use\",%s,\"input\":",
                              m->head.bytes ? m->head.bytes : ""));
        note(m, m->piece.size ? buffer_append(&m->out, m->piece.bytes, m->piece.size, NULL)
                              : buffer_text(&m->out, "{}", NULL));
        put(m, "}");
        break;
    }
}

static void close_block(struct message *m) {
    if (m->block == NO_BLOCK) return;
    if (m->text.stream) {
        put_delta(m);
        begin_block_event(m, "content_block_stop");
        end_event(m);
    } else {
        if (m->blocks.size) put(m, ",");
        put_block(m);
        note(m, buffer_append(&m->blocks, m->out.bytes, m->out.size, NULL));
        m->out.size = 0;
    }
    m->piece.size = 0;
    m->block = NO_BLOCK;
}

static void open_block(struct message *m, enum block block) {
    close_block(m);
    m->block = block;
    m->n_blocks++;
    if (!m->text.stream) return;
    begin_block_event(m, "content_block_start");
    put(m, ",\"content_block\":");
    put_block(m);
    end_event(m);
}

static void open_call(struct message *m, int call, const char *name, size_t n) {
    close_block(m);
    m->head.size = 0;
    note(m, buffer_printf(&m->head, NULL,
                          "\"id\":\"toolu_%s_%d\",\"name\":", exchange_id(m->text.x), call));
    note(m, json_out_text(&m->head, name, n, NULL));
    open_block(m, CALL);
}

/* ---- the writer ---- */

static void on_piece(void *user, enum chat_piece kind, int call, const char *text, size_t n) {
    struct message *m = user;
    const enum block block = kind == CHAT_REASONING ? THINKING : TEXT;
    switch (kind) {
    case CHAT_REASONING:
    case CHAT_CONTENT:
        if (n == 0) break;
        if (m->block != block) open_block(m, block);
        note(m, buffer_append(&m->piece, text, n, NULL));
        break;
    case CHAT_CALL_BEGIN:
        open_call(m, call, text, n);
        break;
    case CHAT_CALL_ARGUMENTS:
        note(m, buffer_append(&m->piece, text, n, NULL));
        break;
    case CHAT_CALL_END:
        close_block(m);
        break;
    }
}

static bool on_token(void *user, const struct reel_token *token, bool last) {
    struct message *m = user;
    (void)token;
    (void)last;
    if (!m->text.stream) return m->status == REEL_OK;
    put_delta(m);
    return send(m);
}

/* The prompt's length is known before it is evaluated; what of it needs no evaluation is told at
 * the end. */
static void on_begin(void *user, int choice) {
    struct message *m = user;
    (void)choice;
    if (!m->text.stream) return;
    begin_event(m, "message_start");
    put(m, ",\"message\":{");
    put_message_head(m);
    put(m, ",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,");
    put_usage(m, m->text.n_prompt, 0, 0);
    put(m, "}");
    end_event(m);
    begin_event(m, "ping");
    end_event(m);
    send(m);
}

static const char *stop_reason(const struct text_outcome *o, const char *finish) {
    if (strcmp(finish, "tool_calls") == 0) return "tool_use";
    switch (o->reason) {
    case REEL_STOP_STRING:
        return "stop_sequence";
    case REEL_STOP_MAX_TOKENS:
        return "max_tokens";
    case REEL_STOP_CONTEXT:
    case REEL_STOP_MEMORY:
        return "model_context_window_exceeded";
    default:
        return "end_turn";
    }
}

static void put_stop(struct message *m, const struct text_outcome *o, const char *finish) {
    const bool by_text = o->reason == REEL_STOP_STRING && o->stop >= 0;
    note(m, buffer_printf(&m->out, NULL,
                          "\"stop_reason\":\"%s\",\"stop_sequence\":", stop_reason(o, finish)));
    note(m, json_out_string(&m->out, by_text ? m->text.stops[o->stop] : NULL, NULL));
}

static void on_end(void *user, int choice, const struct text_outcome *o, const char *finish) {
    struct message *m = user;
    (void)choice;
    close_block(m);
    if (m->text.stream) {
        begin_event(m, "message_delta");
        put(m, ",\"delta\":{");
        put_stop(m, o, finish);
        put(m, "},");
        put_usage(m, o->n_prompt, o->n_reused, o->n_generated);
        put(m, ",");
        note(m, text_timings(&m->out, o));
        end_event(m);
        begin_event(m, "message_stop");
        end_event(m);
        send(m);
        return;
    }
    put(m, "{");
    put_message_head(m);
    note(m,
         buffer_printf(&m->out, NULL, ",\"content\":[%s],", m->blocks.size ? m->blocks.bytes : ""));
    put_stop(m, o, finish);
    put(m, ",");
    put_usage(m, o->n_prompt, o->n_reused, o->n_generated);
    put(m, ",");
    note(m, text_timings(&m->out, o));
    put(m, "}");
}

/* ---- the request ---- */

static bool find_model(struct message *m, struct exchange *x, const json_t *json) {
    const char *name = NULL;
    m->text.x = x;
    m->text.in_pieces = true;
    if (!field_text(x, json, "model", &name)) return false;
    m->text.model = exchange_need_model(x, name, false);
    return m->text.model != NULL;
}

static bool read_request(struct message *m, const json_t *json) {
    int64_t most = 0;
    if (!field_int(m->text.x, json, "max_tokens", 1, INT32_MAX, &most)) return false;
    if (most == 0) return field_refuse(m->text.x, "max_tokens", "is missing");
    return text_request_read(&m->text, m->text.x, json) &&
           chat_prompt_read(&m->prompt, m->text.x, json);
}

static const struct chat_writer writer = { on_piece, on_token, on_begin, on_end, NULL };

void handle_messages(struct exchange *x) {
    struct message m = { 0 };
    json_t *json = NULL;
    if (!fields_body(x, &json)) return;
    json_t *chat = find_model(&m, x, json) ? messages_to_chat(x, json) : NULL;
    bool done = chat && read_request(&m, chat) && chat_run(&m.text, &m.prompt, &writer, &m);
    if (done && m.status != REEL_OK) api_error(x, 503, NULL, NULL, "out of memory");
    if (done && !m.text.stream && m.status == REEL_OK)
        exchange_reply_buffer(x, 200, "application/json", &m.out);
    buffer_release(&m.piece);
    buffer_release(&m.head);
    buffer_release(&m.blocks);
    buffer_release(&m.out);
    chat_prompt_release(&m.prompt);
    text_request_release(&m.text);
    json_decref(chat);
    json_decref(json);
}

static void count_tokens(struct message *m) {
    struct buffer out = { 0 };
    int32_t *ids = NULL;
    size_t n = 0;
    if (!chat_prompt_ids(&m->prompt, m->text.x, m->text.model, &ids, &n)) return;
    reel_free(ids);
    if (buffer_printf(&out, NULL, "{\"input_tokens\":%zu}", n) == REEL_OK)
        exchange_reply_buffer(m->text.x, 200, "application/json", &out);
}

void handle_count_tokens(struct exchange *x) {
    struct message m = { 0 };
    json_t *json = NULL;
    if (!fields_body(x, &json)) return;
    json_t *chat = find_model(&m, x, json) ? messages_to_chat(x, json) : NULL;
    if (chat && chat_prompt_read(&m.prompt, x, chat)) count_tokens(&m);
    chat_prompt_release(&m.prompt);
    json_decref(chat);
    json_decref(json);
}
