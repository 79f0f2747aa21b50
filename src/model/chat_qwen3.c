/* Qwen3: thinking, tools, several steps of tool use. Written against both published revisions of
 * the template; for text they differ only in whether a message may lack content. */
#include "model/chat_render.h"

#include <stdio.h>
#include <string.h>

struct span {
    const char *at;
    size_t n;
};

static struct span strip_start(struct span s) {
    while (s.n && *s.at == '\n')
        s.at++, s.n--;
    return s;
}

static struct span strip_end(struct span s) {
    while (s.n && s.at[s.n - 1] == '\n')
        s.n--;
    return s;
}

static struct span text_of(const struct reel_message *m) {
    const char *text = m->content ? m->content : "";
    return (struct span){ text, strlen(text) };
}

/* The last `word` inside s, or NULL. */
static const char *find_last(struct span s, const char *word) {
    size_t n = strlen(word);
    for (size_t i = s.n; i >= n; i--)
        if (memcmp(s.at + i - n, word, n) == 0) return s.at + i - n;
    return NULL;
}

/* An assistant's message as reasoning and answer. Reasoning given apart wins, even when empty, and
 * leaves <think> in the answer alone. */
static void split_thinking(const struct reel_message *m, struct span *reasoning,
                           struct span *answer) {
    static const char open[] = "<think>", close[] = "</think>";
    *answer = text_of(m);
    *reasoning = (struct span){ m->reasoning, m->reasoning ? strlen(m->reasoning) : 0 };
    const char *first = m->reasoning ? NULL : strstr(answer->at, close);
    if (!first) return;

    struct span before = strip_end((struct span){ answer->at, (size_t)(first - answer->at) });
    const char *opened = find_last(before, open);
    const char *begin = opened ? opened + strlen(open) : before.at;
    *reasoning = strip_start((struct span){ begin, (size_t)(before.at + before.n - begin) });

    const char *rest = find_last(*answer, close) + strlen(close);
    *answer = strip_start((struct span){ rest, (size_t)(answer->at + answer->n - rest) });
}

static bool is_role(const struct chat_job *job, int i, const char *role) {
    return i >= 0 && i < job->n_messages && strcmp(job->messages[i].role, role) == 0;
}

/* Index of the last message a person wrote: a user's that is no wrapped tool response. Thinking
 * after it belongs to the answer in the making and is kept; before it, it is dropped. */
static int last_query(const struct chat_job *job) {
    static const char open[] = "<tool_response>", close[] = "</tool_response>";
    for (int i = job->n_messages - 1; i >= 0; i--) {
        struct span text = text_of(&job->messages[i]);
        bool wrapped = strncmp(text.at, open, strlen(open)) == 0 && text.n >= strlen(close) &&
                       strcmp(text.at + text.n - strlen(close), close) == 0;
        /* a missing content is no string: such a message is passed over */
        if (is_role(job, i, "user") && job->messages[i].content && !wrapped) return i;
    }
    return job->n_messages - 1;
}

static void put_span(struct chat_job *job, struct span s) { chat_put_message(job, s.at, s.n); }

static void refuse(struct chat_job *job, int index, const char *what) {
    if (job->status == REEL_OK)
        job->status = err_set(job->err, REEL_E_ARGUMENT, "message %d (assistant): tool_calls: %s",
                              index + 1, what);
}

static void put_tool_call(struct chat_job *job, int index, struct json_span call) {
    struct json_span inner, name, arguments;
    if (json_span_kind(call) == '{' && json_span_member(call, "function", &inner) &&
        json_span_truthy(inner))
        call = inner;
    if (json_span_kind(call) != '{' || !json_span_member(call, "name", &name) ||
        json_span_kind(name) != '"' || !json_span_member(call, "arguments", &arguments)) {
        refuse(job, index, "each must be an object with \"name\" (a string) and \"arguments\"");
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
    const char *text = job->messages[index].tool_calls;
    if (!text || job->status != REEL_OK) return;
    struct json_span calls, call;
    char what[64];
    snprintf(what, sizeof what, "message %d (assistant): tool_calls", index + 1);
    job->status = json_span_open(&calls, what, text, job->err);
    if (job->status != REEL_OK) return;
    if (json_span_kind(calls) == 'n') return;
    if (json_span_kind(calls) != '[') {
        refuse(job, index, "must be a list");
        return;
    }
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
        put_span(job, strip_end(strip_start(reasoning)));
        chat_put_template(job, "\n</think>\n\n");
        put_span(job, strip_start(answer));
    } else {
        put_span(job, answer);
    }
    put_tool_calls(job, i, answer.n > 0);
    chat_put_template(job, "<|im_end|>\n");
}

static void put_tool_response(struct chat_job *job, int i) {
    if (!is_role(job, i - 1, "tool")) chat_put_template(job, "<|im_start|>user");
    chat_put_template(job, "\n<tool_response>\n");
    put_span(job, text_of(&job->messages[i]));
    chat_put_template(job, "\n</tool_response>");
    if (!is_role(job, i + 1, "tool")) chat_put_template(job, "<|im_end|>\n");
}

static void put_plain(struct chat_job *job, int i) {
    chat_put_template(job, "<|im_start|>");
    chat_put_template(job, job->messages[i].role); /* one of two words, checked */
    chat_put_template(job, "\n");
    put_span(job, text_of(&job->messages[i]));
    chat_put_template(job, "<|im_end|>\n");
}

/* Checks the list whole before anything is written. *n is 0 for no tools. */
static void open_tools(struct chat_job *job, struct json_span *tools, int *n) {
    struct json_span tool;
    size_t cursor = 0;
    *n = 0;
    if (!job->options.tools) return;
    job->status = json_span_open(tools, "tools", job->options.tools, job->err);
    if (job->status != REEL_OK || json_span_kind(*tools) == 'n') return;
    bool good = json_span_kind(*tools) == '[';
    while (good && json_span_next(*tools, &cursor, &tool)) {
        good = json_span_kind(tool) == '{';
        ++*n;
    }
    if (!good) job->status = err_set(job->err, REEL_E_ARGUMENT, "tools: must be a list of objects");
}

static void put_head(struct chat_job *job) {
    struct json_span tools, tool;
    size_t cursor = 0;
    int n_tools = 0;
    bool has_system = is_role(job, 0, "system");
    open_tools(job, &tools, &n_tools);
    if (n_tools == 0) {
        if (has_system) put_plain(job, 0);
        return;
    }
    chat_put_template(job, "<|im_start|>system\n");
    if (has_system) {
        put_span(job, text_of(&job->messages[0]));
        chat_put_template(job, "\n\n");
    }
    chat_put_literal(job, "\"# Tools\\n");
    while (json_span_next(tools, &cursor, &tool)) {
        chat_put_template(job, "\n");
        chat_put_json(job, tool);
    }
    chat_put_literal(job, "\"\\n</tools>\\n");
}

void chat_render_qwen3(struct chat_job *job) {
    int query = last_query(job);
    put_head(job);
    for (int i = 0; i < job->n_messages && job->status == REEL_OK; i++) {
        if (is_role(job, i, "assistant"))
            put_assistant(job, i, query);
        else if (is_role(job, i, "tool"))
            put_tool_response(job, i);
        else if (i > 0 || is_role(job, i, "user"))
            put_plain(job, i);
    }
    if (job->options.no_generation_prompt) return;
    chat_put_template(job, "<|im_start|>assistant\n");
    if (job->options.thinking == REEL_THINKING_OFF)
        chat_put_template(job, "<think>\n\n</think>\n\n");
}
