/* POST /v1/responses. An answer is a list of items: reasoning, a message, calls. Of a stream every
 * item and its one part begin, grow and end by events, in OpenAI's order; a whole answer has the
 * items at once. Nothing is kept: there is no response to go on from. */
#include "server/chat_run.h"
#include "server/handlers.h"
#include "server/json_out.h"
#include "server/logprobs.h"
#include "server/responses_prompt.h"

#include "base/memory.h"

#include "server/api_error.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum item { NO_ITEM, REASONING, MESSAGE, CALL };

struct response {
    struct text_request text;
    struct chat_prompt prompt;
    int64_t created;
    struct buffer echo; /* members of the response that repeat the request */
    enum item item;     /* that is open */
    int n_items;        /* begun so far */
    int n_events;
    int n_reasoning;     /* tokens */
    struct buffer piece; /* all of the open item's text, of which n_told have gone out */
    size_t n_told;
    /* Where they are asked for: tokens whose text has not come yet, and the open message's as JSON,
     * of which logprobs_told bytes have gone out. */
    struct logprobs_queue waiting;
    struct buffer logprobs;
    size_t logprobs_told;
    struct buffer name;  /* of an open call, as JSON */
    struct buffer items; /* those that have ended, as JSON */
    struct buffer out;
    enum reel_status status; /* of writing: memory */
};

static void note(struct response *r, enum reel_status status) {
    if (r->status == REEL_OK) r->status = status;
}
static void put(struct response *r, const char *text) { note(r, buffer_text(&r->out, text, NULL)); }
static void put_string(struct response *r, const char *text, size_t n) {
    note(r, json_out_text(&r->out, text ? text : "", n, NULL));
}
static void put_text(struct response *r) { put_string(r, r->piece.bytes, r->piece.size); }

/* ---- the response object ---- */

static void put_usage(struct response *r, const struct text_outcome *o) {
    note(r, buffer_printf(&r->out, NULL,
                          "\"usage\":{\"input_tokens\":%d,\"input_tokens_details\":{"
                          "\"cached_tokens\":%d,\"cache_write_tokens\":0},\"output_tokens\":%d,"
                          "\"output_tokens_details\":{\"reasoning_tokens\":%d},"
                          "\"total_tokens\":%d},",
                          o->n_prompt, o->n_reused, o->n_generated, r->n_reasoning,
                          o->n_prompt + o->n_generated));
    note(r, text_timings(&r->out, o));
}

/* With an outcome it is the response at its end. */
static void put_response(struct response *r, const char *status, const struct text_outcome *o) {
    const bool cut = strcmp(status, "incomplete") == 0;
    note(r, buffer_printf(&r->out, NULL,
                          "{\"id\":\"resp_%s\",\"object\":\"response\",\"created_at\":%" PRId64
                          ",\"status\":\"%s\",\"error\":null,\"incomplete_details\":%s,\"model\":",
                          exchange_id(r->text.x), r->created, status,
                          cut ? "{\"reason\":\"max_output_tokens\"}" : "null"));
    note(r, json_out_string(&r->out, r->text.model->name, NULL));
    put(r, r->echo.bytes ? r->echo.bytes : "");
    put(r, ",\"output\":[");
    if (r->items.size) note(r, buffer_append(&r->out, r->items.bytes, r->items.size, NULL));
    put(r, "],");
    if (o) {
        put_usage(r, o);
    } else {
        put(r, "\"usage\":null");
    }
    put(r, "}");
}

static void echo_value(struct response *r, const char *key, const json_t *value,
                       const char *otherwise) {
    char *text = NULL;
    if (value && !json_is_null(value))
        note(r, json_write_compact(&text, value, "a request's field", NULL));
    note(r, buffer_printf(&r->echo, NULL, ",\"%s\":%s", key, text ? text : otherwise));
    mem_free(text);
}

static void write_echo(struct response *r, const json_t *json) {
    const json_t *effort = json_object_get(json_object_get(json, "reasoning"), "effort");
    echo_value(r, "instructions", json_object_get(json, "instructions"), "null");
    echo_value(r, "metadata", json_object_get(json, "metadata"), "{}");
    echo_value(r, "tools", json_object_get(json, "tools"), "[]");
    echo_value(r, "tool_choice", json_object_get(json, "tool_choice"), "\"auto\"");
    echo_value(r, "max_output_tokens", json_object_get(json, "max_output_tokens"), "null");
    echo_value(r, "user", json_object_get(json, "user"), "null");
    note(r, buffer_text(&r->echo, ",\"reasoning\":{\"summary\":null", NULL));
    echo_value(r, "effort", effort, "null");
    note(r, buffer_printf(&r->echo, NULL,
                          "},\"temperature\":%.6g,\"top_p\":%.6g,\"top_logprobs\":%d,"
                          "\"parallel_tool_calls\":%s,"
                          "\"previous_response_id\":null,\"background\":false,\"store\":false,"
                          "\"truncation\":\"disabled\",\"text\":{\"format\":{\"type\":\"text\"}}",
                          r->text.temperature, r->text.top_p, r->text.n_top,
                          r->text.one_call ? "false" : "true"));
}

/* ---- events ---- */

static void begin_event(struct response *r, const char *type) {
    note(r, buffer_printf(&r->out, NULL,
                          "event: response.%s\ndata: {\"type\":\"response.%s\","
                          "\"sequence_number\":%d,",
                          type, type, r->n_events++));
}

static void end_event(struct response *r) { put(r, "}\n\n"); }

static bool send(struct response *r) {
    if (!exchange_begun(r->text.x)) exchange_begin(r->text.x, 200, "text/event-stream");
    bool sent = r->status == REEL_OK &&
                (!r->out.size || exchange_put(r->text.x, r->out.bytes, r->out.size));
    r->out.size = 0;
    return sent;
}

static void response_event(struct response *r, const char *type, const char *status,
                           const struct text_outcome *o) {
    begin_event(r, type);
    put(r, "\"response\":");
    put_response(r, status, o);
    end_event(r);
}

/* ---- items ---- */

static void put_item_id(struct response *r) {
    static const char *const kinds[] = { "", "rs", "msg", "fc" };
    note(r, buffer_printf(&r->out, NULL, "\"%s_%s_%d\"", kinds[r->item], exchange_id(r->text.x),
                          r->n_items - 1));
}

/* Of the open message, the tokens' behind `from`, which is 0 or an end that was told. */
static void put_logprobs(struct response *r, size_t from) {
    const struct buffer *all = &r->logprobs;
    if (from > 0 && from < all->size) from++; /* a comma */
    put(r, "\"logprobs\":[");
    if (from < all->size)
        note(r, buffer_append(&r->out, all->bytes + from, all->size - from, NULL));
    put(r, "],");
}

static void put_part(struct response *r) {
    if (r->item == REASONING) {
        put(r, "{\"type\":\"reasoning_text\",");
    } else {
        put(r, "{\"type\":\"output_text\",\"annotations\":[],");
        put_logprobs(r, 0);
    }
    put(r, "\"text\":");
    put_text(r);
    put(r, "}");
}

/* The open item; in_progress: as it is before anything is in it. */
static void put_item(struct response *r, const char *status) {
    static const char *const kinds[] = { "", "reasoning\",\"summary\":[],\"content\":[",
                                         "message\",\"role\":\"assistant\",\"content\":[",
                                         "function_call\",\"arguments\":" };
    put(r, "{\"id\":");
    put_item_id(r);
    note(r,
         buffer_printf(&r->out, NULL, ",\"status\":\"%s\",\"type\":\"%s", status, kinds[r->item]));
    if (r->item == CALL) {
        put_text(r);
        note(r, buffer_printf(&r->out, NULL, ",\"call_id\":\"call_%s_%d\",\"name\":%s}",
                              exchange_id(r->text.x), r->n_items - 1, r->name.bytes));
        return;
    }
    if (strcmp(status, "in_progress") != 0) put_part(r);
    put(r, "]}");
}

static void begin_item_event(struct response *r, const char *type) {
    begin_event(r, type);
    note(r, buffer_printf(&r->out, NULL, "\"output_index\":%d,", r->n_items - 1));
}

/* One that is about the item's text. */
static void begin_text_event(struct response *r, const char *suffix) {
    static const char *const kinds[] = { "", "reasoning_text.", "output_text.",
                                         "function_call_arguments." };
    char type[64];
    const bool is_part = strncmp(suffix, "content_part", 12) == 0;
    snprintf(type, sizeof type, "%s%s", is_part ? "" : kinds[r->item], suffix);
    begin_item_event(r, type);
    put(r, "\"item_id\":");
    put_item_id(r);
    put(r, r->item == CALL ? "," : ",\"content_index\":0,");
}

static void item_event(struct response *r, const char *type, const char *status) {
    begin_item_event(r, type);
    put(r, "\"item\":");
    put_item(r, status);
    end_event(r);
}

static void part_event(struct response *r, const char *type) {
    if (r->item == CALL) return;
    begin_text_event(r, type);
    put(r, "\"part\":");
    put_part(r);
    end_event(r);
}

static void tell_delta(struct response *r) {
    if (r->item == NO_ITEM || r->n_told == r->piece.size) return;
    begin_text_event(r, "delta");
    if (r->item == MESSAGE) put_logprobs(r, r->logprobs_told);
    put(r, "\"delta\":");
    put_string(r, r->piece.bytes + r->n_told, r->piece.size - r->n_told);
    end_event(r);
    r->n_told = r->piece.size;
    r->logprobs_told = r->logprobs.size;
}

static void tell_end(struct response *r, const char *status) {
    tell_delta(r);
    begin_text_event(r, "done");
    if (r->item == MESSAGE) put_logprobs(r, 0);
    if (r->item == CALL) note(r, buffer_printf(&r->out, NULL, "\"name\":%s,", r->name.bytes));
    put(r, r->item == CALL ? "\"arguments\":" : "\"text\":");
    put_text(r);
    end_event(r);
    part_event(r, "content_part.done");
    item_event(r, "output_item.done", status);
}

static void close_item(struct response *r, const char *status) {
    if (r->item == NO_ITEM) return;
    if (r->text.stream) tell_end(r, status);
    const size_t before = r->out.size;
    if (r->items.size) note(r, buffer_text(&r->items, ",", NULL));
    put_item(r, status);
    if (r->status == REEL_OK)
        note(r, buffer_append(&r->items, r->out.bytes + before, r->out.size - before, NULL));
    r->out.size = before;
    r->piece.size = r->n_told = 0;
    r->logprobs.size = r->logprobs_told = 0;
    r->item = NO_ITEM;
}

static void open_item(struct response *r, enum item item) {
    close_item(r, "completed");
    r->item = item;
    r->n_items++;
    if (!r->text.stream) return;
    item_event(r, "output_item.added", "in_progress");
    part_event(r, "content_part.added");
}

/* ---- the writer ---- */

static void on_comes(void *user, const struct reel_token *token) {
    struct response *r = user;
    if (r->text.logprobs)
        note(r, logprobs_queue_add(&r->waiting, reel_model_tokenizer(r->text.model->model), token,
                                   NULL));
}

/* The open item gets n more bytes: what waits are its tokens. Thoughts have no list for them. */
static void take_logprobs(struct response *r, size_t n) {
    if (r->item == MESSAGE)
        note(r, logprobs_queue_take(&r->waiting, &r->logprobs, n, r->piece.size == 0, NULL));
    else
        logprobs_queue_empty(&r->waiting);
}

static void on_piece(void *user, enum chat_piece kind, int call, const char *text, size_t n) {
    struct response *r = user;
    const enum item item = kind == CHAT_REASONING ? REASONING : MESSAGE;
    (void)call;
    switch (kind) {
    case CHAT_REASONING:
    case CHAT_CONTENT:
        if (n == 0) break;
        if (r->item != item) open_item(r, item);
        take_logprobs(r, n);
        note(r, buffer_append(&r->piece, text, n, NULL));
        break;
    case CHAT_CALL_BEGIN:
        close_item(r, "completed");
        logprobs_queue_empty(&r->waiting);
        r->name.size = 0;
        note(r, json_out_text(&r->name, text, n, NULL));
        if (r->status == REEL_OK) open_item(r, CALL);
        break;
    case CHAT_CALL_ARGUMENTS:
        note(r, buffer_append(&r->piece, text, n, NULL));
        break;
    case CHAT_CALL_END:
        close_item(r, "completed");
        logprobs_queue_empty(&r->waiting);
        break;
    }
}

static bool on_token(void *user, const struct reel_token *token, bool last) {
    struct response *r = user;
    (void)token;
    (void)last;
    if (r->item == REASONING) r->n_reasoning++;
    if (!r->text.stream) return r->status == REEL_OK;
    tell_delta(r);
    return send(r);
}

static void on_begin(void *user, int choice) {
    struct response *r = user;
    (void)choice;
    if (!r->text.stream) return;
    response_event(r, "created", "in_progress", NULL);
    response_event(r, "in_progress", "in_progress", NULL);
    send(r);
}

static void on_end(void *user, int choice, const struct text_outcome *o, const char *finish) {
    struct response *r = user;
    const char *status = strcmp(finish, "length") == 0 ? "incomplete" : "completed";
    (void)choice;
    close_item(r, status);
    if (!r->text.stream) {
        put_response(r, status, o);
        return;
    }
    response_event(r, status, status, o);
    send(r);
}

/* ---- the request ---- */

static bool find_model(struct response *r, struct exchange *x, const json_t *json) {
    const char *name = NULL;
    r->text.x = x;
    r->text.in_pieces = true;
    r->text.prompt_field = "input";
    if (!field_text(x, json, "model", &name)) return false;
    r->text.model = exchange_need_model(x, name, false);
    return r->text.model != NULL;
}

/* Values of "include" that this server has nothing for are passed over. */
static bool read_include(struct response *r, const json_t *chat) {
    const json_t *include = json_object_get(chat, "include");
    int64_t top = 0;
    if (!field_int(r->text.x, chat, "top_logprobs", 0, REEL_MAX_TOP_LOGPROBS, &top)) return false;
    if (include && !json_is_null(include) && !json_is_array(include))
        return field_refuse(r->text.x, "include", "must be a list of texts");
    for (size_t i = 0; i < json_array_size(include); i++) {
        const char *what = json_string_value(json_array_get(include, i));
        if (what && strcmp(what, "message.output_text.logprobs") == 0) r->text.logprobs = true;
    }
    r->text.n_top = r->text.logprobs ? (int)top : 0;
    return true;
}

static bool read_request(struct response *r, const json_t *chat) {
    int64_t most = 0;
    return field_int(r->text.x, chat, "max_output_tokens", 1, INT32_MAX, &most) &&
           read_include(r, chat) && text_request_read(&r->text, r->text.x, chat) &&
           chat_prompt_read(&r->prompt, r->text.x, chat);
}

static const struct chat_writer writer = { on_piece, on_token, on_begin, on_end, on_comes };

void handle_responses(struct exchange *x) {
    struct response r = { .created = (int64_t)time(NULL) };
    json_t *json = NULL;
    if (!fields_body(x, &json)) return;
    json_t *chat = find_model(&r, x, json) ? responses_to_chat(x, json) : NULL;
    bool done = chat && read_request(&r, chat);
    if (done) write_echo(&r, json);
    done = done && chat_run(&r.text, &r.prompt, &writer, &r);
    if (done && r.status != REEL_OK) api_error(x, 503, NULL, NULL, "out of memory");
    if (done && !r.text.stream && r.status == REEL_OK)
        exchange_reply_buffer(x, 200, "application/json", &r.out);
    buffer_release(&r.echo);
    buffer_release(&r.piece);
    buffer_release(&r.name);
    buffer_release(&r.items);
    logprobs_queue_release(&r.waiting);
    buffer_release(&r.logprobs);
    buffer_release(&r.out);
    chat_prompt_release(&r.prompt);
    text_request_release(&r.text);
    json_decref(chat);
    json_decref(json);
}
