/* Qwen3: thinking, tools, several steps of tool use. Written against both published revisions of
 * the template; for text they differ only in whether a message may lack content. */
#include "model/chat_qwen.h"

/* An assistant's message as reasoning and answer. Reasoning given apart wins, even when empty, and
 * leaves <think> in the answer alone. */
static void split_thinking(const struct reel_message *m, struct span *reasoning,
                           struct span *answer) {
    *answer = span_of(m->content);
    *reasoning = span_of(m->reasoning);
    if (!m->reasoning) span_split_thinking(answer, reasoning);
}

/* Index of the last message a person wrote: a user's that is no wrapped tool response. Thinking
 * after it belongs to the answer in the making and is kept; before it, it is dropped. */
static int last_query(const struct chat_job *job) {
    for (int i = job->n_messages - 1; i >= 0; i--) {
        const char *text = job->messages[i].content;
        /* a missing content is no string: such a message is passed over */
        if (chat_is_role(job, i, "user") && text && !span_is_tool_response(span_of(text))) return i;
    }
    return job->n_messages - 1;
}

static void put_tool_call(struct chat_job *job, int index, struct json_span call) {
    struct json_span inner, name, arguments;
    if (json_span_kind(call) == '{' && json_span_member(call, "function", &inner) &&
        json_span_truthy(inner))
        call = inner;
    if (json_span_kind(call) != '{' || !json_span_member(call, "name", &name) ||
        json_span_kind(name) != '"' || !json_span_member(call, "arguments", &arguments)) {
        chat_refuse_calls(job, index,
                          "each must be an object with \"name\" (a string) and \"arguments\"");
        return;
    }
    chat_put_template(job, "<tool_call>\n{\"name\": \"");
    chat_put_json_string(job, name);
    chat_put_template(job, "\", \"arguments\": ");
    if (json_span_kind(arguments) == '"') {
        chat_put_json_string(job, arguments); /* JSON already, or whatever the model had written */
    } else {
        chat_put_json(job, arguments);
    }
    chat_put_template(job, "}\n</tool_call>");
}

static void put_tool_calls(struct chat_job *job, int index, bool after_text) {
    struct json_span calls, call;
    if (!chat_open_calls(job, index, &calls)) return;
    size_t cursor = 0;
    while (json_span_next(calls, &cursor, &call)) {
        if (after_text) chat_put_template(job, "\n");
        after_text = true;
        put_tool_call(job, index, call);
    }
}

static void put_assistant(struct chat_job *job, int i, int query) {
    struct span reasoning, answer;
    split_thinking(&job->messages[i], &reasoning, &answer);
    chat_put_template(job, "<|im_start|>assistant\n");
    if (i > query && (i == job->n_messages - 1 || reasoning.n)) {
        chat_put_template(job, "<think>\n");
        chat_put_span(job, span_strip_lines(reasoning));
        chat_put_template(job, "\n</think>\n\n");
        chat_put_span(job, span_strip_first_lines(answer));
    } else {
        chat_put_span(job, answer);
    }
    put_tool_calls(job, i, answer.n > 0);
    chat_put_template(job, "<|im_end|>\n");
}

static void put_tool_response(struct chat_job *job, int i) {
    if (!chat_is_role(job, i - 1, "tool")) chat_put_template(job, "<|im_start|>user");
    chat_put_template(job, "\n<tool_response>\n");
    chat_put_span(job, span_of(job->messages[i].content));
    chat_put_template(job, "\n</tool_response>");
    if (!chat_is_role(job, i + 1, "tool")) chat_put_template(job, "<|im_end|>\n");
}

static void put_plain(struct chat_job *job, int i) {
    chat_put_template(job, "<|im_start|>");
    chat_put_template(job, job->messages[i].role); /* one of two words, checked */
    chat_put_template(job, "\n");
    chat_put_span(job, span_of(job->messages[i].content));
    chat_put_template(job, "<|im_end|>\n");
}

static void put_head(struct chat_job *job) {
    struct json_span tools;
    int n_tools = 0;
    bool has_system = chat_is_role(job, 0, "system");
    chat_open_tools(job, &tools, &n_tools);
    if (n_tools == 0) {
        if (has_system) put_plain(job, 0);
        return;
    }
    chat_put_template(job, "<|im_start|>system\n");
    if (has_system) {
        chat_put_span(job, span_of(job->messages[0].content));
        chat_put_template(job, "\n\n");
    }
    chat_put_literal(job, "\"# Tools\\n");
    chat_put_tools(job, tools);
    chat_put_literal(job, "\"\\n</tools>\\n");
}

void chat_render_qwen3(struct chat_job *job) {
    int query = last_query(job);
    put_head(job);
    for (int i = 0; i < job->n_messages && job->status == REEL_OK; i++) {
        if (chat_is_role(job, i, "assistant"))
            put_assistant(job, i, query);
        else if (chat_is_role(job, i, "tool"))
            put_tool_response(job, i);
        else if (i > 0 || chat_is_role(job, i, "user"))
            put_plain(job, i);
    }
    if (job->options.no_generation_prompt) return;
    chat_put_template(job, "<|im_start|>assistant\n");
    if (job->options.thinking == REEL_THINKING_OFF)
        chat_put_template(job, "<think>\n\n</think>\n\n");
}
