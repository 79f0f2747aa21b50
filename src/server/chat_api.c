/* POST /v1/chat/completions. A token becomes one event at most, with everything that it made
 * certain: clients that measure take an event with choices for a token. */
#include "server/chat_run.h"
#include "server/handlers.h"
#include "server/json_out.h"
#include "server/logprobs.h"

#include "server/api_error.h"

#include "base/memory.h"

#include <inttypes.h>
#include <string.h>
#include <time.h>

struct chat {
    struct text_request text;
    struct chat_prompt prompt;
    int64_t created;
    int choice;
    bool wrote_role;
    /* Of a stream, the pieces since the last event; otherwise the whole answer. */
    struct buffer reasoning, content, calls, logprobs;
    int last_call; /* of a stream, the call at the end of `calls` */
    int n_calls;
    struct buffer out; /* an event, or the whole body */
    int n_reused, n_prompt, n_generated;
    struct text_outcome sum; /* of all answers */
    enum reel_status status; /* of writing: memory */
};

static void note(struct chat *c, enum reel_status status) {
    if (c->status == REEL_OK) c->status = status;
}
static void put(struct chat *c, const char *text) { note(c, buffer_text(&c->out, text, NULL)); }

/* ---- pieces ---- */

/* Of a stream, {"index", "id", "type", "function": {"name", "arguments"}} begins a call, and
 * {"index", "function": {"arguments"}} goes on. A whole answer has them without index and in one.
 */
static void begin_call(struct chat *c, int call, const char *name, size_t n) {
    if (c->calls.size) note(c, buffer_text(&c->calls, ",", NULL));
    note(c, buffer_text(&c->calls, "{", NULL));
    if (c->text.stream) note(c, buffer_printf(&c->calls, NULL, "\"index\":%d,", call));
    note(c, buffer_printf(&c->calls, NULL,
                          "\"id\":\"call_%s_%d_%d\",\"type\":\"function\",\"function\":{\"name\":",
                          exchange_id(c->text.x), c->choice, call));
    note(c, json_out_text(&c->calls, name, n, NULL));
    note(c, buffer_text(&c->calls, ",\"arguments\":", NULL));
    if (c->text.stream) note(c, buffer_text(&c->calls, "\"\"}}", NULL));
    c->last_call = call;
}

/* Puts text at the end of the string in `calls` that "}} ends. */
static void lengthen_call(struct chat *c, const char *text, size_t n) {
    const size_t at = c->calls.size - 4;
    const char before = c->calls.bytes[at]; /* where the new text's own quote comes to stand */
    c->calls.size = at;
    note(c, json_out_text(&c->calls, text, n, NULL));
    if (c->status == REEL_OK) c->calls.bytes[at] = before;
}

/* An event names a call once: clients put the pieces of one event side by side, and those of
 * several events together. */
static void go_on_call(struct chat *c, int call, const char *text, size_t n) {
    if (c->calls.size && c->last_call == call) {
        lengthen_call(c, text, n);
    } else {
        if (c->calls.size) note(c, buffer_text(&c->calls, ",", NULL));
        note(c, buffer_printf(&c->calls, NULL, "{\"index\":%d,\"function\":{\"arguments\":", call));
        note(c, json_out_text(&c->calls, text, n, NULL));
    }
    c->last_call = call;
    note(c, buffer_text(&c->calls, "}}", NULL));
}

static void on_piece(void *user, enum chat_piece kind, int call, const char *text, size_t n) {
    struct chat *c = user;
    switch (kind) {
    case CHAT_REASONING:
        note(c, buffer_append(&c->reasoning, text, n, NULL));
        break;
    case CHAT_CONTENT:
        note(c, buffer_append(&c->content, text, n, NULL));
        break;
    case CHAT_CALL_BEGIN:
        begin_call(c, call, text, n);
        break;
    case CHAT_CALL_ARGUMENTS:
        if (c->text.stream) go_on_call(c, call, text, n);
        break;
    case CHAT_CALL_END:
        break;
    }
}

/* ---- events ---- */

static void put_head(struct chat *c, const char *object) {
    note(c, buffer_printf(&c->out, NULL,
                          "{\"id\":\"chatcmpl-%s\",\"object\":\"%s\",\"created\":%" PRId64
                          ",\"model\":",
                          exchange_id(c->text.x), object, c->created));
    note(c, json_out_string(&c->out, c->text.model->name, NULL));
}

static void put_member(struct chat *c, bool *first, const char *name, struct buffer *text) {
    if (!text->size) return;
    note(c, buffer_printf(&c->out, NULL, "%s\"%s\":", *first ? "" : ",", name));
    note(c, json_out_text(&c->out, text->bytes, text->size, NULL));
    text->size = 0;
    *first = false;
}

static void put_delta(struct chat *c) {
    bool first = c->wrote_role;
    put(c, "\"delta\":{");
    if (!c->wrote_role) put(c, "\"role\":\"assistant\"");
    if (!c->wrote_role && !c->content.size && !c->reasoning.size && !c->calls.size)
        put(c, ",\"content\":\"\"");
    c->wrote_role = true;
    put_member(c, &first, "reasoning_content", &c->reasoning);
    put_member(c, &first, "content", &c->content);
    if (c->calls.size) {
        note(c, buffer_printf(&c->out, NULL, "%s\"tool_calls\":[%s]", first ? "" : ",",
                              c->calls.bytes));
        c->calls.size = 0;
    }
    put(c, "}");
}

static bool send(struct chat *c) {
    if (!exchange_begun(c->text.x)) exchange_begin(c->text.x, 200, "text/event-stream");
    put(c, "\n\n");
    bool sent = c->status == REEL_OK && exchange_put(c->text.x, c->out.bytes, c->out.size);
    c->out.size = 0;
    return sent;
}

static void put_timings(struct chat *c) {
    put(c, ",");
    note(c, text_timings(&c->out, &c->sum));
}

/* With `ends` it is the last event that has choices, and the last of all where none with the usage
 * follows. */
static bool send_event(struct chat *c, const char *finish, bool ends) {
    put(c, "data: ");
    put_head(c, "chat.completion.chunk");
    note(c, buffer_printf(&c->out, NULL, ",\"choices\":[{\"index\":%d,", c->choice));
    put_delta(c);
    if (c->text.logprobs) {
        note(c, buffer_printf(&c->out, NULL, ",\"logprobs\":{\"content\":[%s],\"refusal\":null}",
                              c->logprobs.size ? c->logprobs.bytes : ""));
        c->logprobs.size = 0;
    } else {
        put(c, ",\"logprobs\":null");
    }
    put(c, ",\"finish_reason\":");
    note(c, json_out_string(&c->out, finish, NULL));
    put(c, "}]");
    if (c->text.include_usage) put(c, ",\"usage\":null");
    if (ends && !c->text.include_usage) put_timings(c);
    put(c, "}");
    return send(c);
}

static bool on_token(void *user, const struct reel_token *token, bool last) {
    struct chat *c = user;
    c->n_generated++;
    if (c->text.logprobs)
        note(c, logprobs_chat_token(&c->logprobs, reel_model_tokenizer(c->text.model->model), token,
                                    NULL));
    bool news = c->reasoning.size || c->content.size || c->calls.size || c->logprobs.size;
    if (!c->text.stream || !news || last) return c->status == REEL_OK;
    return send_event(c, NULL, false);
}

static void on_begin(void *user, int choice) {
    struct chat *c = user;
    c->choice = choice;
    c->wrote_role = false;
    c->n_calls = 0;
}

/* ---- a whole answer ---- */

static void put_calls(struct chat *c, const char *calls) {
    json_t *list = calls ? json_loads(calls, 0, NULL) : NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *call = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(call, "name"));
        char *arguments = NULL;
        note(c, json_write_compact(&arguments, json_object_get(call, "arguments"), "a call", NULL));
        begin_call(c, (int)i, name ? name : "", name ? strlen(name) : 0);
        note(c, json_out_string(&c->calls, arguments ? arguments : "{}", NULL));
        note(c, buffer_text(&c->calls, "}}", NULL));
        mem_free(arguments);
        c->n_calls++;
    }
    json_decref(list);
}

static void put_text_or_null(struct chat *c, const char *name, const char *text) {
    note(c, buffer_printf(&c->out, NULL, ",\"%s\":", name));
    note(c, json_out_string(&c->out, text, NULL));
}

static void put_message(struct chat *c) {
    struct reel_answer answer = { .size = sizeof answer };
    note(c, reel_chat_read_answer(c->text.model->model, &c->prompt.options,
                                  c->content.bytes ? c->content.bytes : "", c->content.size,
                                  &answer, NULL));
    c->content.size = c->calls.size = 0;
    put_calls(c, answer.tool_calls);
    put(c, "\"message\":{\"role\":\"assistant\"");
    bool calls_alone = c->n_calls && answer.content && !answer.content[0];
    put_text_or_null(c, "content", calls_alone ? NULL : answer.content);
    if (answer.reasoning) put_text_or_null(c, "reasoning_content", answer.reasoning);
    if (c->n_calls) note(c, buffer_printf(&c->out, NULL, ",\"tool_calls\":[%s]", c->calls.bytes));
    put(c, ",\"refusal\":null}");
    reel_answer_release(&answer);
}

static void end_whole(struct chat *c, const char *finish) {
    note(c, buffer_printf(&c->out, NULL, "%s{\"index\":%d,", c->choice ? "," : "", c->choice));
    put_message(c);
    if (c->text.logprobs) {
        note(c, buffer_printf(&c->out, NULL, ",\"logprobs\":{\"content\":[%s],\"refusal\":null}",
                              c->logprobs.size ? c->logprobs.bytes : ""));
        c->logprobs.size = 0;
    } else {
        put(c, ",\"logprobs\":null");
    }
    put(c, ",\"finish_reason\":");
    note(c, json_out_string(&c->out, c->n_calls ? "tool_calls" : finish, NULL));
    put(c, "}");
}

static void put_usage(struct chat *c) {
    put(c, ",");
    note(c, text_usage(&c->out, c->n_prompt, c->n_reused, c->n_generated));
    put_timings(c);
    put(c, "}");
}

/* The last event has the usage alone, with choices [], where the client asked for it. */
static void end_stream(struct chat *c, const char *finish) {
    const bool ends = c->choice + 1 == c->text.n;
    if (!send_event(c, finish, ends) || !ends) return;
    if (c->text.include_usage) {
        put(c, "data: ");
        put_head(c, "chat.completion.chunk");
        put(c, ",\"choices\":[]");
        put_usage(c);
        send(c);
    }
    put(c, "data: [DONE]");
    send(c);
}

static void on_end(void *user, int choice, const struct text_outcome *outcome, const char *finish) {
    struct chat *c = user;
    text_outcome_add(&c->sum, outcome);
    if (choice == 0) {
        c->n_prompt = outcome->n_prompt;
        c->n_reused = outcome->n_reused;
    }
    if (c->text.stream) {
        end_stream(c, finish);
        return;
    }
    if (choice == 0) {
        put_head(c, "chat.completion");
        put(c, ",\"system_fingerprint\":null,\"choices\":[");
    }
    end_whole(c, finish);
    if (choice + 1 < c->text.n) return;
    put(c, "]");
    put_usage(c);
}

/* ---- the request ---- */

static bool read_logprobs(struct chat *c, const json_t *json) {
    struct text_request *r = &c->text;
    int64_t top = 0;
    if (!field_bool(r->x, json, "logprobs", &r->logprobs) ||
        !field_int(r->x, json, "top_logprobs", 0, REEL_MAX_TOP_LOGPROBS, &top))
        return false;
    if (top && !r->logprobs) return field_refuse(r->x, "top_logprobs", "needs logprobs to be true");
    r->n_top = (int)top;
    return true;
}

static bool refuse_media(struct exchange *x, const json_t *json) {
    const json_t *modalities = json_object_get(json, "modalities");
    if (modalities && !json_is_null(modalities) && !json_is_array(modalities))
        return field_refuse(x, "modalities", "must be a list of texts");
    for (size_t i = 0; i < json_array_size(modalities); i++) {
        const char *kind = json_string_value(json_array_get(modalities, i));
        if (kind && strcmp(kind, "text") != 0)
            return field_refuse(x, "modalities", "asks for %.40s; this server writes text", kind);
    }
    return true;
}

static bool chat_read(struct chat *c, struct exchange *x, const json_t *json) {
    const char *name = NULL;
    c->text.x = x;
    if (!field_text(x, json, "model", &name)) return false;
    c->text.model = exchange_need_model(x, name, false);
    return c->text.model && text_request_read(&c->text, x, json) && read_logprobs(c, json) &&
           refuse_media(x, json) && chat_prompt_read(&c->prompt, x, json);
}

static const struct chat_writer writer = { on_piece, on_token, on_begin, on_end, NULL };

void handle_chat(struct exchange *x) {
    struct chat c = { .created = (int64_t)time(NULL) };
    json_t *json = NULL;
    if (!fields_body(x, &json)) return;
    bool done = chat_read(&c, x, json) && chat_run(&c.text, &c.prompt, &writer, &c);
    if (done && !c.text.stream && c.status == REEL_OK)
        exchange_reply_buffer(x, 200, "application/json", &c.out);
    if (done && c.status != REEL_OK) api_error(x, 503, NULL, NULL, "out of memory");
    buffer_release(&c.reasoning);
    buffer_release(&c.content);
    buffer_release(&c.calls);
    buffer_release(&c.logprobs);
    buffer_release(&c.out);
    chat_prompt_release(&c.prompt);
    text_request_release(&c.text);
    json_decref(json);
}
