/* Conversations: the first byte chooses template and options, then texts end in a NUL: the tools,
 * and four a message (role by its first byte, content, reasoning, tool_calls). Byte 1 alone means
 * that the text is absent. */
#include "model/chat_template.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

#define MAX_MESSAGES 8

/* A template that looks at all that a conversation has. */
static const char source[] =
    "{% if tools %}<tools>{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}</tools>\n"
    "{% endif %}{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}<think>"
    "{{ m.reasoning_content | trim }}</think>{% endif %}"
    "{% if m.content is string %}{{ m.content.split('</think>')[-1] }}{% endif %}"
    "{% for call in m.tool_calls or [] %}<call>{{ call.function.name }}"
    "{{ call.function.arguments | tojson }}</call>{% endfor %}</{{ m.role }}>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% if enable_thinking %}<think>{% endif %}"
    "{% endif %}";

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
    static const char *const given[] = { "qwen3", "smollm2", "chatml", NULL, "mistral", "gemma" };
    static struct chat_template chats[6];
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
                                         .continue_final_message = data[0] & 128,
                                         .tools = next_text(&at, copy + n) };
    const struct chat_sources sources = { .text = source, .n_bytes = sizeof source - 1 };
    const int which = data[0] & 64 ? 3 : data[0] % 6;
    struct chat_template *chat = &chats[which];
    struct chat_text text = { 0 };
    struct reel_error err = { 0 };
    int n_messages = read_messages(at, copy + n, messages);
    if (!chat->parsed && chat_template_init(chat, &sources, given[which], NULL, &err) != REEL_OK)
        abort();
    check(chat_render(chat, messages, n_messages, &options, &text, &err), &text, &err);
    chat_text_release(&text);
    free(copy);
    return 0;
}
