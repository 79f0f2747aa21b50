/* Texts cut as the Qwen templates cut them, and the lists they write. */
#include "model/chat_qwen.h"

#include "model/tokenizer_utf8.h"

#include <stdio.h>
#include <string.h>

struct span span_of(const char *text) {
    return (struct span){ text ? text : "", text ? strlen(text) : 0 };
}

struct span span_strip_first_lines(struct span s) {
    while (s.n && *s.at == '\n')
        s.at++, s.n--;
    return s;
}

static struct span strip_last_lines(struct span s) {
    while (s.n && s.at[s.n - 1] == '\n')
        s.n--;
    return s;
}

struct span span_strip_lines(struct span s) {
    return strip_last_lines(span_strip_first_lines(s));
}

/* str.isspace: Unicode's White_Space and the four ASCII separators. */
static bool is_python_space(uint32_t c) {
    if (c <= 0x20) return c == 0x20 || (c >= 0x09 && c <= 0x0d) || c >= 0x1c;
    if (c < 0x1680) return c == 0x85 || c == 0xa0;
    return c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

static bool is_space_at(const char *p, int *n) {
    return is_python_space(utf8_decode((const unsigned char *)p, n));
}

struct span span_trim(struct span s) {
    int n;
    while (s.n && is_space_at(s.at, &n)) {
        s.at += n;
        s.n -= (size_t)n;
    }
    while (s.n) {
        size_t start = s.n - 1;
        while (start && ((unsigned char)s.at[start] & 0xc0) == 0x80)
            start--;
        if (!is_space_at(s.at + start, &n)) break;
        s.n = start;
    }
    return s;
}

const char *span_find(struct span s, const char *word) {
    size_t n = strlen(word);
    for (const char *p = s.at, *end = s.at + s.n; (size_t)(end - p) >= n; p++) {
        p = memchr(p, *word, (size_t)(end - p));
        if (!p || (size_t)(end - p) < n) return NULL;
        if (memcmp(p, word, n) == 0) return p;
    }
    return NULL;
}

const char *span_find_last(struct span s, const char *word) {
    size_t n = strlen(word);
    for (size_t i = s.n; i >= n; i--)
        if (memcmp(s.at + i - n, word, n) == 0) return s.at + i - n;
    return NULL;
}

bool span_is_tool_response(struct span s) {
    static const char open[] = "<tool_response>", close[] = "</tool_response>";
    return s.n >= strlen(close) && memcmp(s.at, open, strlen(open)) == 0 &&
           memcmp(s.at + s.n - strlen(close), close, strlen(close)) == 0;
}

void span_split_thinking(struct span *answer, struct span *reasoning) {
    static const char open[] = "<think>", close[] = "</think>";
    const char *first = span_find(*answer, close);
    if (!first) return;
    struct span before =
        strip_last_lines((struct span){ answer->at, (size_t)(first - answer->at) });
    const char *opened = span_find_last(before, open);
    const char *begin = opened ? opened + strlen(open) : before.at;
    *reasoning =
        span_strip_first_lines((struct span){ begin, (size_t)(before.at + before.n - begin) });

    const char *rest = span_find_last(*answer, close) + strlen(close);
    *answer =
        span_strip_first_lines((struct span){ rest, (size_t)(answer->at + answer->n - rest) });
}

void chat_put_span(struct chat_job *job, struct span s) { chat_put_message(job, s.at, s.n); }

bool chat_is_role(const struct chat_job *job, int i, const char *role) {
    return i >= 0 && i < job->n_messages && strcmp(job->messages[i].role, role) == 0;
}

void chat_open_tools(struct chat_job *job, struct json_span *tools, int *n) {
    struct json_span tool;
    size_t cursor = 0;
    *n = 0;
    if (!job->options.tools || job->status != REEL_OK) return;
    job->status = json_span_open(tools, "tools", job->options.tools, job->err);
    if (job->status != REEL_OK || json_span_kind(*tools) == 'n') return;
    bool good = json_span_kind(*tools) == '[';
    while (good && json_span_next(*tools, &cursor, &tool)) {
        good = json_span_kind(tool) == '{';
        ++*n;
    }
    if (!good) job->status = err_set(job->err, REEL_E_ARGUMENT, "tools: must be a list of objects");
}

void chat_put_tools(struct chat_job *job, struct json_span tools) {
    struct json_span tool;
    size_t cursor = 0;
    while (json_span_next(tools, &cursor, &tool)) {
        chat_put_template(job, "\n");
        chat_put_json(job, tool);
    }
}

void chat_refuse_calls(struct chat_job *job, int index, const char *what) {
    if (job->status == REEL_OK)
        job->status = err_set(job->err, REEL_E_ARGUMENT, "message %d (assistant): tool_calls: %s",
                              index + 1, what);
}

bool chat_open_calls(struct chat_job *job, int index, struct json_span *calls) {
    const char *text = job->messages[index].tool_calls;
    if (!text || job->status != REEL_OK) return false;
    char what[64];
    snprintf(what, sizeof what, "message %d (assistant): tool_calls", index + 1);
    job->status = json_span_open(calls, what, text, job->err);
    if (job->status != REEL_OK || json_span_kind(*calls) == 'n') return false;
    if (json_span_kind(*calls) == '[') return true;
    chat_refuse_calls(job, index, "must be a list");
    return false;
}
