/* Conversations: the first byte chooses template and options, then texts end in a NUL: the tools,
 * and four a message (role by its first byte, content, reasoning, tool_calls). Byte 1 alone means
 * that the text is absent. */
#include "model/chat_template.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MAX_MESSAGES 8

/* The wording a renderer looks for, in a template that hashes to nothing known. */
static const char source[] = "'<|im_start|>system\nhelp' \"# Tools\\n\\nwords \\\"quoted\\\"\" "
                             "\"\\n</tools>\\nmore\" '\\n\\nIf you choose to call'";

static const char *next_text(char **at, const char *end) {
    if (*at >= end) return NULL;
    char *text = *at;
    *at += strlen(text) + 1;
    return strcmp(text, "\1") == 0 ? NULL : text;
}

static int read_messages(char *at, const char *end, struct reel_message *messages) {
    static const char *const roles[] = { "user", "assistant", "tool", "system", "robot", NULL };
    int n = 0;
    while (at < end && n < MAX_MESSAGES) {
        const char *role = next_text(&at, end);
        struct reel_message *m = &messages[n++];
        m->role = roles[role ? (unsigned char)role[0] % 6 : 0];
        m->content = next_text(&at, end);
        m->reasoning = next_text(&at, end);
        m->tool_calls = next_text(&at, end);
    }
    return n;
}

/* What must hold whatever the input: pieces tile the text, a failure has words and leaves nothing.
 */
static void check(enum reel_status status, const struct chat_text *text,
                  const struct reel_error *err) {
    size_t total = 0;
    for (int i = 0; i < text->n_pieces; i++)
        total += text->pieces[i].n_bytes;
    if (total != text->text.size) abort();
    if (status != REEL_OK && (!err->text[0] || text->text.bytes)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const char *const families[] = { "qwen3", "smollm2", "chatml", "qwen3", "qwen3.5" };
    if (n < 1) return 0;
    char *copy = malloc(n + 1);
    if (!copy) return 0;
    memcpy(copy, data, n);
    copy[n] = '\0';
    char *at = copy + 1;

    struct reel_message messages[MAX_MESSAGES] = { 0 };
    struct reel_chat_options options = { .size = sizeof options,
                                         .thinking = (enum reel_thinking)((data[0] >> 2) % 3),
                                         .no_generation_prompt = data[0] & 32,
                                         .tools = next_text(&at, copy + n) };
    struct chat_template chat;
    struct chat_text text = { 0 };
    struct reel_error err = { 0 };
    int n_messages = read_messages(at, copy + n, messages);
    enum reel_status status = chat_template_init(&chat, source, sizeof source - 1,
                                                 families[data[0] & 64 ? 4 : data[0] & 3], &err);
    if (status == REEL_OK) {
        chat.recognised = true;
        chat.null_is_empty = (data[0] & 3) == 3;
        check(chat_render(&chat, messages, n_messages, &options, &text, &err), &text, &err);
    }
    chat_text_release(&text);
    chat_template_release(&chat);
    free(copy);
    return 0;
}
