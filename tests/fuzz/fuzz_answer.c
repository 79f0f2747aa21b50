/* Answers: the first byte chooses template and options, then the tools end in a NUL (byte 1 alone
 * means none), and the rest is what a model wrote. */
#include "answer_templates.h"
#include "model/chat_answer.h"
#include "model/chat_json.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* What must hold whatever the input: success has content, calls are a JSON list that renders. */
static void check(const struct chat_template *chat, const struct chat_answer *answer) {
    struct json_span calls;
    if (!answer->content) abort();
    if (!answer->tool_calls) return;
    if (json_span_open(&calls, "calls", answer->tool_calls, NULL) != REEL_OK) abort();
    if (json_span_kind(calls) != '[') abort();
    const struct reel_message messages[] = {
        { .role = "user", .content = "x" },
        { .role = "assistant", .content = "", .tool_calls = answer->tool_calls },
    };
    struct chat_text text = { 0 };
    if (chat_render(chat, messages, 2, NULL, &text, NULL) != REEL_OK) abort();
    chat_text_release(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static struct chat_template chats[N_TEMPLATES];
    if (n < 1) return 0;
    char *copy = malloc(n + 1);
    if (!copy) return 0;
    memcpy(copy, data, n);
    copy[n] = '\0';
    size_t tools_bytes = strlen(copy + 1), at = tools_bytes + 2 < n ? tools_bytes + 2 : n;
    const struct reel_chat_options options = {
        .size = sizeof options,
        .thinking = (enum reel_thinking)((data[0] >> 2) % 3),
        .tools = strcmp(copy + 1, "\1") == 0 ? NULL : copy + 1,
    };
    const size_t which = data[0] % N_TEMPLATES;
    const struct chat_sources sources = { .text = templates[which],
                                          .n_bytes = strlen(templates[which]) };
    struct chat_template *chat = &chats[which];
    struct chat_answer answer;
    struct reel_error err = { 0 };
    if (!chat->parsed) {
        if (chat_template_init(chat, &sources, NULL, NULL, &err) != REEL_OK) abort();
        if (chat->syntax.calls == CHAT_CALLS_NONE) abort(); /* it would try nothing */
    }
    enum reel_status status = chat_answer_read(&answer, chat, &options, copy + at, n - at, &err);
    if (status == REEL_OK) check(chat, &answer);
    if (status != REEL_OK && (!err.text[0] || answer.content)) abort();
    chat_answer_release(&answer);
    free(copy);
    return 0;
}
