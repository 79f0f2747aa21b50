#include "server/responses_prompt.h"

#include "server/api_error.h"

#include <string.h>

struct reading {
    struct exchange *x;
    json_t *messages; /* what is made */
    json_t *turn;     /* the assistant's message that further items belong to, or NULL; borrowed */
    json_t *names;    /* of calls, by their ids: a call's output tells its id alone */
    bool failed;      /* out of memory */
};

static void keep(struct reading *r, int code) {
    if (code != 0) r->failed = true;
}

static const char *string_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

/* ---- items ---- */

/* A text, or a list of parts that are text; anything else is refused. */
static bool check_content(struct reading *r, const json_t *content) {
    if (json_is_string(content)) return true;
    if (!json_is_array(content))
        return field_refuse(r->x, "input", "has a content that is neither a text nor a list");
    for (size_t i = 0; i < json_array_size(content); i++) {
        const json_t *part = json_array_get(content, i);
        const char *type = string_of(part, "type");
        if (!type || !json_is_string(json_object_get(part, "text")) ||
            (strcmp(type, "input_text") != 0 && strcmp(type, "output_text") != 0 &&
             strcmp(type, "text") != 0))
            return field_refuse(r->x, "input",
                                "has a content part of type '%.40s'; this server reads input_text "
                                "and output_text alone",
                                type ? type : "?");
    }
    return true;
}

static void begin_turn(struct reading *r) {
    r->turn = json_pack("{s:s, s:s}", "role", "assistant", "content", "");
    keep(r, json_array_append_new(r->messages, r->turn));
    if (r->failed) r->turn = NULL;
}

static bool read_message(struct reading *r, const json_t *item) {
    const char *role = string_of(item, "role");
    json_t *content = json_object_get(item, "content");
    if (!role) return field_refuse(r->x, "input", "has a message without a role");
    if (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0 &&
        strcmp(role, "system") != 0 && strcmp(role, "developer") != 0)
        return field_refuse(r->x, "input",
                            "has a role '%.40s'; allowed are user, assistant, system, developer",
                            role);
    if (!check_content(r, content)) return false;
    if (strcmp(role, "assistant") == 0) { /* behind its reasoning, where there was some */
        if (!r->turn || json_string_length(json_object_get(r->turn, "content")) ||
            json_is_array(json_object_get(r->turn, "content")))
            begin_turn(r);
        if (r->turn) keep(r, json_object_set(r->turn, "content", content));
        return true;
    }
    r->turn = NULL;
    keep(r, json_array_append_new(r->messages,
                                  json_pack("{s:s, s:O}", "role", role, "content", content)));
    return true;
}

static bool read_call(struct reading *r, const json_t *item) {
    const char *name = string_of(item, "name"), *id = string_of(item, "call_id");
    json_t *arguments = json_object_get(item, "arguments");
    if (!name || !id || !json_is_string(arguments))
        return field_refuse(r->x, "input",
                            "has a function_call without call_id, name or arguments");
    if (!r->turn) begin_turn(r);
    if (!r->turn) return true;
    json_t *calls = json_object_get(r->turn, "tool_calls");
    if (!calls) keep(r, json_object_set_new(r->turn, "tool_calls", calls = json_array()));
    keep(r, json_object_set_new(r->names, id, json_string(name)));
    keep(r, json_array_append_new(calls, json_pack("{s:s, s:{s:s, s:O}}", "id", id, "function",
                                                   "name", name, "arguments", arguments)));
    return true;
}

static bool read_output(struct reading *r, const json_t *item) {
    const char *id = string_of(item, "call_id");
    json_t *output = json_object_get(item, "output");
    json_t *name = id ? json_object_get(r->names, id) : NULL;
    if (!id) return field_refuse(r->x, "input", "has a function_call_output without call_id");
    if (!name)
        return field_refuse(r->x, "input",
                            "has a function_call_output for '%.60s', which nobody called", id);
    if (!check_content(r, output)) return false;
    r->turn = NULL;
    keep(r, json_array_append_new(r->messages,
                                  json_pack("{s:s, s:O, s:s, s:O}", "role", "tool", "content",
                                            output, "tool_call_id", id, "name", name)));
    return true;
}

static bool read_reasoning(struct reading *r, const json_t *item) {
    const json_t *content = json_object_get(item, "content");
    json_t *text = json_object_get(json_array_get(content, 0), "text");
    if (!json_is_string(text)) return true; /* encrypted, or a summary: nothing that a prompt has */
    begin_turn(r);
    if (r->turn) keep(r, json_object_set(r->turn, "reasoning_content", text));
    return true;
}

static bool read_item(struct reading *r, const json_t *item) {
    const char *type = string_of(item, "type");
    if (!json_is_object(item)) return field_refuse(r->x, "input", "has an entry that is no object");
    if (!type || strcmp(type, "message") == 0) return read_message(r, item);
    if (strcmp(type, "function_call") == 0) return read_call(r, item);
    if (strcmp(type, "function_call_output") == 0) return read_output(r, item);
    if (strcmp(type, "reasoning") == 0) return read_reasoning(r, item);
    return field_refuse(r->x, "input",
                        "has an item of type '%.40s'; allowed are message, function_call, "
                        "function_call_output and reasoning",
                        type);
}

static bool read_input(struct reading *r, const json_t *json) {
    const json_t *input = json_object_get(json, "input");
    const char *instructions = NULL;
    if (!field_text(r->x, json, "instructions", &instructions)) return false;
    if (instructions)
        keep(r, json_array_append_new(r->messages, json_pack("{s:s, s:s}", "role", "system",
                                                             "content", instructions)));
    if (json_is_string(input)) {
        keep(r, json_array_append_new(r->messages,
                                      json_pack("{s:s, s:O}", "role", "user", "content", input)));
        return true;
    }
    if (json_array_size(input) == 0)
        return field_refuse(r->x, "input", "must be a text or a list of items");
    for (size_t i = 0; i < json_array_size(input); i++)
        if (!read_item(r, json_array_get(input, i))) return false;
    return true;
}

/* ---- the rest ---- */

static bool read_tools(struct reading *r, const json_t *json, json_t *chat) {
    const json_t *tools = json_object_get(json, "tools");
    if (!tools || json_is_null(tools)) return true;
    if (!json_is_array(tools)) return field_refuse(r->x, "tools", "must be a list");
    json_t *list = json_array();
    keep(r, json_object_set_new(chat, "tools", list));
    for (size_t i = 0; i < json_array_size(tools); i++) {
        json_t *tool = json_array_get(tools, i);
        const char *type = string_of(tool, "type");
        if (!type || strcmp(type, "function") != 0 || !string_of(tool, "name"))
            return field_refuse(r->x, "tools",
                                "has an entry %zu of type '%.40s'; allowed are functions with a "
                                "name",
                                i, type ? type : "?");
        json_t *function = json_copy(tool);
        json_object_del(function, "type");
        keep(r, json_array_append_new(
                    list, json_pack("{s:s, s:o}", "type", "function", "function", function)));
    }
    return true;
}

static bool is_given(const json_t *json, const char *key) {
    const json_t *value = json_object_get(json, key);
    return value && !json_is_null(value);
}

static bool refuse_state(struct exchange *x, const json_t *json) {
    static const char *const kept[] = { "previous_response_id", "conversation", "prompt" };
    bool background = false;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (is_given(json, kept[i]))
            return field_refuse(x, kept[i],
                                "is not supported: this server keeps no answers; send all items "
                                "as 'input'");
    if (!field_bool(x, json, "background", &background)) return false;
    return background ? field_refuse(x, "background", "is not supported") : true;
}

static bool refuse_truncation(struct exchange *x, const json_t *json) {
    const char *word = NULL;
    if (!field_text(x, json, "truncation", &word)) return false;
    if (!word || strcmp(word, "disabled") == 0) return true;
    return field_refuse(x, "truncation",
                        "is '%.40s'; allowed is 'disabled': this server drops nothing of what it "
                        "is sent",
                        word);
}

static bool read_shape(struct reading *r, const json_t *json, json_t *chat) {
    const json_t *format = json_object_get(json_object_get(json, "text"), "format");
    const json_t *metadata = json_object_get(json, "metadata");
    const json_t *reasoning = json_object_get(json, "reasoning");
    const char *type = string_of(format, "type");
    if (format && !json_is_null(format) && (!type || strcmp(type, "text") != 0))
        return field_refuse(r->x, "text.format",
                            "of type '%.40s' is not supported; allowed is "
                            "'text'",
                            type ? type : "?");
    if (is_given(json, "text") && !json_is_object(json_object_get(json, "text")))
        return field_refuse(r->x, "text", "must be an object");
    if (is_given(json, "metadata") && !json_is_object(metadata))
        return field_refuse(r->x, "metadata", "must be an object");
    if (is_given(json, "reasoning") && !json_is_object(reasoning))
        return field_refuse(r->x, "reasoning", "must be an object");
    if (is_given(reasoning, "effort"))
        keep(r, json_object_set(chat, "reasoning_effort", json_object_get(reasoning, "effort")));
    return true;
}

json_t *responses_to_chat(struct exchange *x, const json_t *json) {
    json_t *chat = json_copy((json_t *)json); /* its values are shared and stay as they are */
    struct reading r = { .x = x, .messages = json_array(), .names = json_object() };
    json_object_del(chat, "n"); /* one answer, always */
    json_object_del(chat, "tools");
    bool good = refuse_state(x, json) && refuse_truncation(x, json) && read_input(&r, json) &&
                read_tools(&r, json, chat) && read_shape(&r, json, chat);
    keep(&r, json_object_set_new(chat, "messages", r.messages));
    json_decref(r.names);
    if (good && r.failed) api_error(x, 503, NULL, NULL, "out of memory");
    if (good && !r.failed) return chat;
    json_decref(chat);
    return NULL;
}
