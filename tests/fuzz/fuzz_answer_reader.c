/* Answers in pieces against whole ones: the first byte chooses template and options, the second how
 * the text is cut, then the tools end in a NUL (byte 1 alone means none), and the rest is what a
 * model wrote. */
#include "answer_templates.h"
#include "support/answer_pieces.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

/* Where a text is cut: nowhere, everywhere, or in places that the byte draws. */
static unsigned char *cut(unsigned how, size_t n) {
    unsigned char *cuts = calloc(n / 8 + 1, 1);
    unsigned state = how * 2654435761u;
    if (!cuts || how == 0) return cuts;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        if (how == 1 || (state >> 16) % (how % 16 + 2) == 0)
            cuts[i / 8] |= (unsigned char)(1u << i % 8);
    }
    return cuts;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static struct chat_template chats[N_TEMPLATES];
    if (n < 2) return 0;
    char *copy = malloc(n + 1);
    if (!copy) return 0;
    memcpy(copy, data, n);
    copy[n] = '\0';
    char *tools = copy + 2;
    size_t tools_bytes = strlen(tools), at = tools_bytes + 3 < n ? tools_bytes + 3 : n;
    const struct reel_chat_options options = {
        .size = sizeof options,
        .thinking = (enum reel_thinking)((data[0] >> 2) % 3),
        .tools = strcmp(tools, "\1") == 0 ? NULL : tools,
    };
    const size_t which = data[0] % N_TEMPLATES;
    const struct chat_sources sources = { .text = templates[which],
                                          .n_bytes = strlen(templates[which]) };
    struct chat_template *chat = &chats[which];
    if (!chat->parsed && chat_template_init(chat, &sources, NULL, NULL, NULL) != REEL_OK) abort();
    unsigned char *cuts = cut(data[1], n - at);
    if (!cuts) abort();
    const char *differ =
        answer_pieces_differ(chat, &options, data[0] & 128, copy + at, n - at, cuts);
    if (differ) {
        (void)fprintf(stderr, "%s\n", differ);
        abort();
    }
    free(cuts);
    free(copy);
    return 0;
}
