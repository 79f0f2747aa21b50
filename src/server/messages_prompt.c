#include "server/messages_prompt.h"

#include "server/api_error.h"

#include <string.h>

struct reading {
    struct exchange *x;
    json_t *messages; /* what is made */
    json_t *names;    /* of calls, by their ids: a tool's answer tells its id alone */
    bool failed;      /* out of memory */
};

/* What the blocks of one message come to. */
struct parts {
    json_t *text, *calls, *results, *reasoning;
};

static void keep(struct reading *r, int code) {
    if (code != 0) r->failed = true;
}

static const char *string_of(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

/* ---- blocks ---- */

static bool read_use(struct reading *r, const json_t *block, struct parts *p) {
    const char *name = string_of(block, "name"), *id = string_of(block, "id");
    json_t *input = json_object_get(block, "input");
    if (!name || !id) return field_refuse(r->x, "messages", "has a tool_use without name or id");
    if (input && !json_is_object(input))
        return field_refuse(r->x, "messages", "has a tool_use whose input is no object");
    json_t *arguments = input ? json_incref(input) : json_object();
    keep(r, json_object_set_new(r->names, id, json_string(name)));
    keep(r, json_array_append_new(p->calls, json_pack("{s:s, s:{s:s, s:o}}", "id", id, "function",
                                                      "name", name, "arguments", arguments)));
    return true;
}

static bool read_result(struct reading *r, const json_t *block, struct parts *p) {
    const char *id = string_of(block, "tool_use_id");
    json_t *content = json_object_get(block, "content");
    if (!id) return field_refuse(r->x, "messages", "has a tool_result without tool_use_id");
    json_t *name = json_object_get(r->names, id);
    if (!name)
        return field_refuse(r->x, "messages", "has a tool_result for '%.60s', which nobody called",
                            id);
    content = content && !json_is_null(content) ? json_incref(content) : json_string("");
    keep(r, json_array_append_new(p->results,
                                  json_pack("{s:s, s:o, s:s, s:O}", "role", "tool", "content",
                                            content, "tool_call_id", id, "name", name)));
    return true;
}

static bool read_block(struct reading *r, json_t *block, struct parts *p) {
    const char *type = string_of(block, "type");
    if (!type) return field_refuse(r->x, "messages", "has a content block without a type");
    if (strcmp(type, "text") == 0) {
        keep(r, json_array_append(p->text, block));
    } else if (strcmp(type, "tool_use") == 0) {
        return read_use(r, block, p);
    } else if (strcmp(type, "tool_result") == 0) {
        return read_result(r, block, p);
    } else if (strcmp(type, "thinking") == 0) {
        json_decref(p->reasoning);
        p->reasoning = json_incref(json_object_get(block, "thinking"));
    } else if (strcmp(type, "redacted_thinking") != 0) {
        return field_refuse(r->x, "messages",
                            "has a content block of type '%.40s'; allowed are text, thinking, "
                            "tool_use and tool_result",
                            type);
    }
    return true;
}

/* ---- messages ---- */

/* Tools' answers come before what the person says beside them. */
static void add_parts(struct reading *r, const char *role, struct parts *p) {
    const bool results = json_array_size(p->results) > 0;
    keep(r, json_array_extend(r->messages, p->results));
    if (results && json_array_size(p->text) == 0) return;
    json_t *message = json_pack("{s:s, s:O}", "role", role, "content", p->text);
    if (json_array_size(p->calls)) keep(r, json_object_set(message, "tool_calls", p->calls));
    if (p->reasoning) keep(r, json_object_set(message, "reasoning_content", p->reasoning));
    keep(r, json_array_append_new(r->messages, message));
}

static bool read_message(struct reading *r, json_t *message) {
    const char *role = string_of(message, "role");
    const json_t *content = json_object_get(message, "content");
    struct parts p = { json_array(), json_array(), json_array(), NULL };
    bool good = true;
    if (!role || (strcmp(role, "user") != 0 && strcmp(role, "assistant") != 0))
        good = field_refuse(r->x, "messages", "has a role '%.40s'; allowed are user and assistant",
                            role ? role : "?");
    if (good && !json_is_string(content) && !json_is_array(content))
        good = field_refuse(r->x, "messages", "has a content that is neither a text nor a list");
    for (size_t i = 0; i < json_array_size(content) && good; i++)
        good = read_block(r, json_array_get(content, i), &p);
    if (good && json_is_string(content)) {
        keep(r, json_array_append_new(r->messages,
                                      json_pack("{s:s, s:O}", "role", role, "content", content)));
    } else if (good) {
        add_parts(r, role, &p);
    }
    json_decref(p.text);
    json_decref(p.calls);
    json_decref(p.results);
    json_decref(p.reasoning);
    return good;
}

static bool read_messages(struct reading *r, const json_t *json, json_t *chat) {
    const json_t *messages = json_object_get(json, "messages");
    json_t *system = json_object_get(json, "system");
    const size_t n = json_array_size(messages);
    if (n == 0) return field_refuse(r->x, "messages", "must be a list of messages");
    if (system && !json_is_null(system)) {
        if (!json_is_string(system) && !json_is_array(system))
            return field_refuse(r->x, "system", "must be a text or a list of text blocks");
        keep(r, json_array_append_new(
                    r->messages, json_pack("{s:s, s:O}", "role", "system", "content", system)));
    }
    for (size_t i = 0; i < n; i++)
        if (!read_message(r, json_array_get(messages, i))) return false;
    const char *last = string_of(json_array_get(messages, n - 1), "role");
    if (strcmp(last, "assistant") != 0) return true;
    const json_t *begun = json_array_get(r->messages, json_array_size(r->messages) - 1);
    if (json_object_get(begun, "tool_calls"))
        return field_refuse(r->x, "messages", "ends with a tool_use, which has no tool_result yet");
    keep(r, json_object_set_new(chat, "continue_final_message", json_true()));
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
        const json_t *tool = json_array_get(tools, i);
        const char *type = string_of(tool, "type"), *name = string_of(tool, "name");
        json_t *schema = json_object_get(tool, "input_schema");
        json_t *about = json_object_get(tool, "description");
        if (!name || !json_is_object(schema) || (type && strcmp(type, "custom") != 0))
            return field_refuse(r->x, "tools",
                                "has an entry %zu that is no tool with a name and an input_schema",
                                i);
        json_t *function = json_pack("{s:s, s:O}", "name", name, "parameters", schema);
        if (json_is_string(about)) keep(r, json_object_set(function, "description", about));
        keep(r, json_array_append_new(
                    list, json_pack("{s:s, s:o}", "type", "function", "function", function)));
    }
    return true;
}

static bool read_choice(struct reading *r, const json_t *json, json_t *chat) {
    const json_t *choice = json_object_get(json, "tool_choice");
    const char *type = string_of(choice, "type");
    bool one = false;
    if (!choice || json_is_null(choice)) return true;
    if (!field_bool(r->x, choice, "disable_parallel_tool_use", &one)) return false;
    if (one) keep(r, json_object_set_new(chat, "parallel_tool_calls", json_false()));
    if (!type || (strcmp(type, "auto") != 0 && strcmp(type, "none") != 0))
        return field_refuse(r->x, "tool_choice",
                            "asks for a call; this server cannot force one: allowed are 'auto' and "
                            "'none'");
    keep(r, json_object_set_new(chat, "tool_choice", json_string(type)));
    return true;
}

static bool read_thinking(struct reading *r, const json_t *json, json_t *chat) {
    const json_t *thinking = json_object_get(json, "thinking");
    const char *type = string_of(thinking, "type");
    if (!thinking || json_is_null(thinking)) return true;
    if (type && strcmp(type, "adaptive") == 0) return true;
    if (!type || (strcmp(type, "enabled") != 0 && strcmp(type, "disabled") != 0))
        return field_refuse(r->x, "thinking",
                            "must have a type, which may be enabled, disabled or adaptive");
    keep(r,
         json_object_set_new(chat, "chat_template_kwargs",
                             json_pack("{s:b}", "enable_thinking", strcmp(type, "enabled") == 0)));
    return true;
}

static bool refuse_format(struct reading *r, const json_t *json) {
    const json_t *config = json_object_get(json, "output_config");
    const json_t *format = json_object_get(config, "format");
    if (config && !json_is_null(config) && !json_is_object(config))
        return field_refuse(r->x, "output_config", "must be an object");
    if (format && !json_is_null(format))
        return field_refuse(r->x, "output_config",
                            "has a format: output cannot be constrained yet");
    format = json_object_get(json, "output_format");
    if (format && !json_is_null(format))
        return field_refuse(r->x, "output_format",
                            "is not supported: output cannot be constrained "
                            "yet");
    return true;
}

json_t *messages_to_chat(struct exchange *x, const json_t *json) {
    json_t *chat = json_copy((json_t *)json); /* its values are shared and stay as they are */
    struct reading r = { .x = x, .messages = json_array(), .names = json_object() };
    json_object_del(chat, "n"); /* one answer, always */
    json_object_del(chat, "tools");
    json_object_del(chat, "tool_choice");
    json_object_del(chat, "parallel_tool_calls");
    json_object_del(chat, "add_generation_prompt");
    json_object_del(chat, "continue_final_message");
    bool good = read_messages(&r, json, chat) && read_tools(&r, json, chat) &&
                read_choice(&r, json, chat) && read_thinking(&r, json, chat) &&
                refuse_format(&r, json);
    keep(&r, json_object_set_new(chat, "messages", r.messages));
    json_decref(r.names);
    if (good && r.failed) api_error(x, 503, NULL, NULL, "out of memory");
    if (good && !r.failed) return chat;
    json_decref(chat);
    return NULL;
}
