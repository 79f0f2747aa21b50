/* Qwen3.5: every text is trimmed, thinking since the last question is always shown, calls are
 * written in tags. The sizes' templates differ only in whether thinking is on by default. */
#include "model/chat_qwen.h"

#include <string.h>

static struct span trimmed(const struct chat_job *job, int i) {
    return span_trim(span_of(job->messages[i].content));
}

/* Index of the last message a person wrote; -1 fails the job, as the template does. */
static int last_query(struct chat_job *job) {
    for (int i = job->n_messages - 1; i >= 0; i--)
        if (chat_is_role(job, i, "user") && !span_is_tool_response(trimmed(job, i))) return i;
    job->status = err_set(job->err, REEL_E_ARGUMENT,
                          "none of the %d messages is a user's: this model's template needs one",
                          job->n_messages);
    return -1;
}

static void check_system(struct chat_job *job) {
    for (int i = 1; i < job->n_messages && job->status == REEL_OK; i++)
        if (chat_is_role(job, i, "system"))
            job->status = err_set(job->err, REEL_E_ARGUMENT,
                                  "message %d (system): in this model's template only the first "
                                  "message may be the system's",
                                  i + 1);
}

static void put_head(struct chat_job *job) {
    struct json_span tools;
    int n_tools = 0;
    bool has_system = chat_is_role(job, 0, "system");
    struct span system = has_system ? trimmed(job, 0) : span_of(NULL);
    chat_open_tools(job, &tools, &n_tools);
    if (n_tools == 0 && !has_system) return;
    chat_put_template(job, "<|im_start|>system\n");
    if (n_tools) {
        chat_put_literal(job, "\"# Tools\\n");
        chat_put_tools(job, tools);
        chat_put_literal(job, "\"\\n</tools>");
        chat_put_literal(job, "'\\n\\nIf you choose to call");
        if (system.n) chat_put_template(job, "\n\n");
    }
    chat_put_span(job, system);
    chat_put_template(job, "<|im_end|>\n");
}

/* A list or an object as JSON, anything else as Python's str() has it. */
static void put_value(struct chat_job *job, struct json_span value) {
    switch (json_span_kind(value)) {
    case '"':
        chat_put_json_string(job, value);
        break;
    case 't':
        chat_put_message(job, "True", 4);
        break;
    case 'f':
        chat_put_message(job, "False", 5);
        break;
    case 'n':
        chat_put_message(job, "None", 4);
        break;
    default:
        chat_put_json(job, value);
    }
}

static void put_arguments(struct chat_job *job, struct json_span arguments) {
    struct json_span key, value;
    size_t cursor = 0;
    while (job->status == REEL_OK && json_span_next_member(arguments, &cursor, &key, &value)) {
        chat_put_template(job, "<parameter=");
        chat_put_json_string(job, key);
        chat_put_template(job, ">\n");
        put_value(job, value);
        chat_put_template(job, "\n</parameter>\n");
    }
}

static const char bad_arguments[] =
    "\"arguments\" must be an object, or a text that holds one as JSON";

/* The template takes an object; a text with one in it is how OpenAI's interface hands calls over.
 */
static void put_arguments_text(struct chat_job *job, int index, struct json_span text) {
    struct buffer json = { 0 };
    struct json_span arguments;
    enum reel_status status = json_span_text(&json, text, job->err);
    if (status == REEL_OK) status = buffer_text(&json, "", job->err);
    if (status != REEL_OK) {
        job->status = status;
        goto out;
    }
    status = json_span_open(&arguments, "arguments", json.bytes, job->err);
    if (status == REEL_E_MEMORY)
        job->status = status;
    else if (status != REEL_OK || strlen(json.bytes) != json.size ||
             json_span_kind(arguments) != '{')
        chat_refuse_calls(job, index, bad_arguments);
    else
        put_arguments(job, arguments);
out:
    buffer_release(&json);
}

static void put_call(struct chat_job *job, int index, struct json_span call) {
    struct json_span inner, name, arguments;
    if (json_span_kind(call) == '{' && json_span_member(call, "function", &inner)) call = inner;
    if (json_span_kind(call) != '{' || !json_span_member(call, "name", &name) ||
        json_span_kind(name) != '"') {
        chat_refuse_calls(job, index, "each must be an object with \"name\" (a string)");
        return;
    }
    chat_put_template(job, "<tool_call>\n<function=");
    chat_put_json_string(job, name);
    chat_put_template(job, ">\n");
    if (json_span_member(call, "arguments", &arguments)) {
        char kind = json_span_kind(arguments);
        if (kind == '{')
            put_arguments(job, arguments);
        else if (kind == '"')
            put_arguments_text(job, index, arguments);
        else
            chat_refuse_calls(job, index, bad_arguments);
    }
    chat_put_template(job, "</function>\n</tool_call>");
}

static void put_calls(struct chat_job *job, int index, bool after_text) {
    struct json_span calls, call;
    size_t cursor = 0;
    if (!chat_open_calls(job, index, &calls)) return;
    for (bool first = true; json_span_next(calls, &cursor, &call); first = false) {
        if (!first)
            chat_put_template(job, "\n");
        else if (after_text)
            chat_put_template(job, "\n\n");
        put_call(job, index, call);
    }
}

static void put_assistant(struct chat_job *job, int i, int query) {
    const struct reel_message *m = &job->messages[i];
    struct span answer = trimmed(job, i), reasoning = span_of(m->reasoning);
    if (!m->reasoning) span_split_thinking(&answer, &reasoning);
    chat_put_template(job, "<|im_start|>assistant\n");
    if (i > query) {
        chat_put_template(job, "<think>\n");
        chat_put_span(job, span_trim(reasoning));
        chat_put_template(job, "\n</think>\n\n");
    }
    chat_put_span(job, answer);
    put_calls(job, i, span_trim(answer).n > 0);
    chat_put_template(job, "<|im_end|>\n");
}

static void put_user(struct chat_job *job, int i) {
    chat_put_template(job, "<|im_start|>user\n");
    chat_put_span(job, trimmed(job, i));
    chat_put_template(job, "<|im_end|>\n");
}

/* A response that opens the conversation gets no turn of its own: so the template has it. */
static void put_tool_response(struct chat_job *job, int i) {
    if (i > 0 && !chat_is_role(job, i - 1, "tool")) chat_put_template(job, "<|im_start|>user");
    chat_put_template(job, "\n<tool_response>\n");
    chat_put_span(job, trimmed(job, i));
    chat_put_template(job, "\n</tool_response>");
    if (!chat_is_role(job, i + 1, "tool")) chat_put_template(job, "<|im_end|>\n");
}

void chat_render_qwen35(struct chat_job *job) {
    int query = last_query(job);
    check_system(job);
    if (job->status == REEL_OK) put_head(job);
    for (int i = 0; i < job->n_messages && job->status == REEL_OK; i++) {
        if (chat_is_role(job, i, "assistant"))
            put_assistant(job, i, query);
        else if (chat_is_role(job, i, "tool"))
            put_tool_response(job, i);
        else if (chat_is_role(job, i, "user"))
            put_user(job, i);
    }
    if (job->options.no_generation_prompt) return;
    chat_put_template(job, "<|im_start|>assistant\n");
    chat_put_template(job, chat_opens_thinking(job->chat, &job->options)
                               ? "<think>\n"
                               : "<think>\n\n</think>\n\n");
}
