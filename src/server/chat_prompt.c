#include "server/chat_prompt.h"

#include "base/memory.h"

#include "server/api_error.h"

#include <string.h>

#define MOST_MESSAGES 65536

static bool no_memory(struct exchange *x) {
    api_error(x, 503, NULL, NULL, "out of memory");
    return false;
}

/* The text is the prompt's from now on. */
static bool keep(struct chat_prompt *p, struct exchange *x, char *text) {
    if (p->n_kept == p->most_kept) {
        int most = p->most_kept ? 2 * p->most_kept : 16;
        char **kept = mem_resize(p->kept, (size_t)most * sizeof *kept);
        if (!kept) {
            mem_free(text);
            return no_memory(x);
        }
        p->kept = kept;
        p->most_kept = most;
    }
    p->kept[p->n_kept++] = text;
    return true;
}

static bool keep_json(struct chat_prompt *p, struct exchange *x, const json_t *value,
                      const char **out) {
    char *text = NULL;
    struct reel_error err = { 0 };
    if (json_write_compact(&text, value, "a list of tools", &err) != REEL_OK) {
        api_error_from(x, &err);
        return false;
    }
    *out = text;
    return keep(p, x, text);
}

/* ---- content ---- */

static bool add_part(struct exchange *x, struct buffer *text, const json_t *part) {
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *piece = json_object_get(part, "text");
    bool is_text = type && (strcmp(type, "text") == 0 || strcmp(type, "input_text") == 0 ||
                            strcmp(type, "output_text") == 0);
    if (json_is_string(part)) piece = part;
    if (!json_is_string(piece) || (!is_text && piece != part))
        return field_refuse(x, "messages",
                            "has a content part of type '%.40s'; this server reads 'text' alone",
                            type ? type : "?");
    if (strlen(json_string_value(piece)) != json_string_length(piece))
        return field_refuse(x, "messages", "has a content with a zero byte in it");
    return buffer_append(text, json_string_value(piece), json_string_length(piece), NULL) == REEL_OK
               ? true
               : no_memory(x);
}

static bool join_parts(struct chat_prompt *p, struct exchange *x, const json_t *parts,
                       const char **out) {
    struct buffer text = { 0 };
    bool good = buffer_text(&text, "", NULL) == REEL_OK || no_memory(x);
    for (size_t i = 0; i < json_array_size(parts) && good; i++)
        good = add_part(x, &text, json_array_get(parts, i));
    if (!good) {
        buffer_release(&text);
        return false;
    }
    char *whole = buffer_detach(&text, NULL);
    *out = whole;
    return keep(p, x, whole);
}

static bool read_content(struct chat_prompt *p, struct exchange *x, const json_t *message,
                         const char **out) {
    const json_t *content = json_object_get(message, "content");
    if (json_is_array(content)) return join_parts(p, x, content, out);
    if (content && !json_is_null(content) && !json_is_string(content))
        return field_refuse(x, "messages", "has a content that is neither a text nor a list");
    return field_text(x, message, "content", out);
}

/* ---- tools ---- */

/* {"id", "type", "function": {"name", "arguments"}} to {"name", "arguments"}; arguments that are
 * JSON in a text become that JSON. */
static json_t *plain_call(const json_t *call) {
    const json_t *function = json_object_get(call, "function");
    if (!function) function = call;
    const char *name = json_string_value(json_object_get(function, "name"));
    json_t *arguments = json_object_get(function, "arguments");
    json_t *own = NULL;
    if (!name) return NULL;
    if (json_is_string(arguments))
        own = json_loadb(json_string_value(arguments), json_string_length(arguments),
                         JSON_DECODE_ANY, NULL);
    if (!own) own = arguments ? json_incref(arguments) : json_object();
    return json_pack("{s:s, s:o}", "name", name, "arguments", own);
}

/* An assistant's call in the older form, as one in a list of the newer. */
static bool read_old_call(struct chat_prompt *p, struct exchange *x, const json_t *message,
                          const char **out) {
    const json_t *old = json_object_get(message, "function_call");
    if (!old || json_is_null(old)) return true;
    json_t *call = json_is_object(old) ? plain_call(old) : NULL;
    if (!call) return field_refuse(x, "messages", "has a function_call without a name");
    json_t *list = json_pack("[o]", call);
    const bool good = keep_json(p, x, list, out);
    json_decref(list);
    return good;
}

static bool read_calls(struct chat_prompt *p, struct exchange *x, const json_t *message,
                       const char **out) {
    const json_t *calls = json_object_get(message, "tool_calls");
    if (!calls || json_is_null(calls)) return read_old_call(p, x, message, out);
    if (!json_is_array(calls))
        return field_refuse(x, "messages", "has tool_calls that are no list");
    if (json_array_size(calls) == 0) return true;
    json_t *plain = json_array();
    for (size_t i = 0; i < json_array_size(calls); i++) {
        json_t *call = plain_call(json_array_get(calls, i));
        if (!call) {
            json_decref(plain);
            return field_refuse(x, "messages", "has a tool call without a function's name");
        }
        json_array_append_new(plain, call);
    }
    bool good = keep_json(p, x, plain, out);
    json_decref(plain);
    return good;
}

static bool refuse_if_given(struct exchange *x, const json_t *json, const char *key,
                            const char *why) {
    const json_t *value = json_object_get(json, key);
    return !value || json_is_null(value) || field_refuse(x, key, "%s", why);
}

/* What would change the prompt or the calls, and is not done here. */
static bool refuse_others(struct exchange *x, const json_t *json) {
    return refuse_if_given(x, json, "chat_template",
                           "is not taken from requests: --chat-template gives a model another") &&
           refuse_if_given(x, json, "functions",
                           "is the older form of 'tools', which this server reads") &&
           refuse_if_given(x, json, "function_call",
                           "is the older form of 'tool_choice', which this server reads");
}

static bool read_tools(struct chat_prompt *p, struct exchange *x, const json_t *json) {
    const json_t *tools = json_object_get(json, "tools");
    const json_t *choice = json_object_get(json, "tool_choice");
    const char *word = json_string_value(choice);
    if (choice && !json_is_null(choice)) {
        if (!word || (strcmp(word, "auto") != 0 && strcmp(word, "none") != 0))
            return field_refuse(x, "tool_choice",
                                "asks for a call; this server cannot force one: allowed are "
                                "'auto' and 'none'");
        if (strcmp(word, "none") == 0) return true;
    }
    if (!tools || json_is_null(tools)) return true;
    if (!json_is_array(tools)) return field_refuse(x, "tools", "must be a list");
    if (json_array_size(tools) == 0) return true;
    for (size_t i = 0; i < json_array_size(tools); i++) {
        const json_t *tool = json_array_get(tools, i);
        const json_t *function = json_object_get(tool, "function");
        if (!json_is_string(json_object_get(function, "name")))
            return field_refuse(x, "tools", "has an entry %zu without a function's name", i);
    }
    p->has_tools = true;
    return keep_json(p, x, tools, &p->options.tools);
}

static bool read_thinking(struct chat_prompt *p, struct exchange *x, const json_t *json) {
    const json_t *more = json_object_get(json, "chat_template_kwargs");
    const char *effort = NULL;
    if (!field_text(x, json, "reasoning_effort", &effort)) return false;
    if (effort)
        p->options.thinking = strcmp(effort, "none") == 0 ? REEL_THINKING_OFF : p->options.thinking;
    if (!more || json_is_null(more)) return true;
    if (!json_is_object(more)) return field_refuse(x, "chat_template_kwargs", "must be an object");
    const json_t *on = json_object_get(more, "enable_thinking");
    if (!on || json_is_null(on)) return true;
    bool enabled = false;
    if (!field_bool(x, more, "enable_thinking", &enabled)) return false;
    p->options.thinking = enabled ? REEL_THINKING_ON : REEL_THINKING_OFF;
    return true;
}

/* ---- messages ---- */

static bool read_role(struct exchange *x, const json_t *message, const char **role) {
    static const char *const known[] = { "system", "user", "assistant", "tool", "developer" };
    if (!field_text(x, message, "role", role)) return false;
    if (!*role) return field_refuse(x, "messages", "has a message without a role");
    if (strcmp(*role, "function") == 0) *role = "tool";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(*role, known[i]) == 0) return true;
    return field_refuse(x, "messages",
                        "has a role '%.40s'; allowed are system, developer, user, assistant, tool",
                        *role);
}

static bool read_message(struct chat_prompt *p, struct exchange *x, const json_t *message,
                         struct reel_message *out) {
    *out = (struct reel_message){ .size = sizeof *out };
    if (!json_is_object(message))
        return field_refuse(x, "messages", "has an entry that is no object");
    if (!read_role(x, message, &out->role) || !read_content(p, x, message, &out->content) ||
        !field_text(x, message, "name", &out->name) ||
        !field_text(x, message, "tool_call_id", &out->tool_call_id) ||
        !field_text(x, message, "reasoning_content", &out->reasoning) ||
        !read_calls(p, x, message, &out->tool_calls))
        return false;
    if (!out->reasoning && !field_text(x, message, "reasoning", &out->reasoning)) return false;
    if (!out->content && !out->tool_calls)
        return field_refuse(x, "messages", "has a message of role %s without content", out->role);
    if (!out->content) out->content = "";
    return true;
}

/* Whether the assistant's turn is opened behind the messages, or its last one goes on; vLLM's
 * fields, and one of reel's own. */
static bool read_opening(struct chat_prompt *p, struct exchange *x, const json_t *json) {
    const char *last = p->messages[p->n - 1].role;
    bool opens = false, closed = false;
    if (json_is_false(json_object_get(json, "add_generation_prompt"))) closed = true;
    if (!field_bool(x, json, "add_generation_prompt", &opens) ||
        !field_bool(x, json, "no_generation_prompt", &closed) ||
        !field_bool(x, json, "continue_final_message", &p->options.continue_final_message))
        return false;
    p->options.no_generation_prompt = closed;
    if (!p->options.continue_final_message) return true;
    if (opens)
        return field_refuse(x, "continue_final_message",
                            "and add_generation_prompt cannot both be true");
    if (strcmp(last, "assistant") != 0)
        return field_refuse(x, "continue_final_message",
                            "wants the assistant's message as the last one, found %s's", last);
    return true;
}

bool chat_prompt_read(struct chat_prompt *p, struct exchange *x, const json_t *json) {
    const json_t *messages = json_object_get(json, "messages");
    size_t n = json_array_size(messages);
    p->options.size = sizeof p->options;
    if (!refuse_others(x, json)) return false;
    if (!json_is_array(messages) || n == 0 || n > MOST_MESSAGES)
        return field_refuse(x, "messages", "must be a list of 1 to %d messages", MOST_MESSAGES);
    if (mem_zeroed(&p->messages, n, sizeof *p->messages, "messages", NULL) != REEL_OK)
        return no_memory(x);
    for (size_t i = 0; i < n; i++)
        if (!read_message(p, x, json_array_get(messages, i), &p->messages[p->n++])) return false;
    return read_tools(p, x, json) && read_thinking(p, x, json) && read_opening(p, x, json);
}

void chat_prompt_release(struct chat_prompt *p) {
    for (int i = 0; i < p->n_kept; i++)
        mem_free(p->kept[i]);
    mem_free(p->kept);
    mem_free(p->messages);
}

bool chat_prompt_ids(const struct chat_prompt *p, struct exchange *x, const struct served_model *m,
                     int32_t **ids, size_t *n_ids) {
    struct reel_error err = { 0 };
    if (!m->info.chat_template) {
        api_error(x, 400, "model", NULL,
                  "%s has no chat template%s%s; /v1/completions takes its text", m->name,
                  m->info.chat_template_problem ? " that can be evaluated: " : "",
                  m->info.chat_template_problem ? m->info.chat_template_problem : "");
        return false;
    }
    enum reel_status status =
        reel_chat_ids(m->model, p->messages, p->n, &p->options, ids, n_ids, &err);
    if (status == REEL_OK) return true;
    api_error_from(x, &err);
    return false;
}
