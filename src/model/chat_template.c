/* Which family a template text belongs to. */
#include "model/chat_template.h"

#include "base/memory.h"

#include <string.h>

/* Templates as published, by SHA-256 of their text without a last newline. */
static const struct known {
    const char *hash;
    enum chat_family family;
    bool null_is_empty, thinks_unasked;
} known_templates[] = {
    /* Qwen3 as released in April 2025, 4116 bytes */
    { "87a2728cb8dc9fe424d624542f6060ec05a1d285ebbec578bb078900e33396b5", CHAT_QWEN3, false, true },
    /* Qwen3 with `content is string` checks, 4168 bytes */
    { "a55ee1b1660128b7098723e0abcd92caa0788061051c62d51cbe87d9cf1974d8", CHAT_QWEN3, true, true },
    /* Qwen3.5 of 0.8B and 2B, 7755 bytes */
    { "273d8e0e683b885071fb17e08d71e5f2a5ddfb5309756181681de4f5a1822d80", CHAT_QWEN35, true,
      false },
    /* Qwen3.5 of 4B and more, 7756 bytes */
    { "a4aee8afcf2e0711942cf848899be66016f8d14a889ff9ede07bca099c28f715", CHAT_QWEN35, true, true },
    /* SmolLM2-Instruct, 368 bytes */
    { "872be49dbb638044ad01b60388f48d469ff2980e5f0dccdc22ec907db54d0788", CHAT_SMOLLM2, false,
      false },
};

const char *chat_family_name(enum chat_family family) {
    switch (family) {
    case CHAT_UNKNOWN:
        return NULL;
    case CHAT_QWEN3:
        return "qwen3";
    case CHAT_QWEN35:
        return "qwen3.5";
    case CHAT_SMOLLM2:
        return "smollm2";
    case CHAT_CHATML:
        return "chatml";
    }
    return NULL;
}

bool chat_thinks(const struct chat_template *chat) {
    return chat->family == CHAT_QWEN3 || chat->family == CHAT_QWEN35;
}

bool chat_opens_thinking(const struct chat_template *chat,
                         const struct reel_chat_options *options) {
    if (chat->family != CHAT_QWEN35 || (options && options->no_generation_prompt)) return false;
    enum reel_thinking asked = options ? options->thinking : REEL_THINKING_DEFAULT;
    return asked == REEL_THINKING_DEFAULT ? chat->thinks_unasked : asked == REEL_THINKING_ON;
}

static void recognise(struct chat_template *chat) {
    sha256_hex(chat->source, chat->source_bytes, chat->hash);
    for (size_t i = 0; i < sizeof known_templates / sizeof *known_templates; i++) {
        const struct known *k = &known_templates[i];
        if (strcmp(k->hash, chat->hash) != 0) continue;
        chat->family = k->family;
        chat->recognised = true;
        chat->null_is_empty = k->null_is_empty;
        chat->thinks_unasked = k->thinks_unasked;
    }
}

/* A family forced on a model keeps that model's own wording only when it is that family's. */
static enum reel_status apply_override(struct chat_template *chat, const char *name,
                                       struct reel_error *err) {
    static const enum chat_family families[] = { CHAT_QWEN3, CHAT_QWEN35, CHAT_SMOLLM2,
                                                 CHAT_CHATML };
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        if (strcmp(name, chat_family_name(families[i])) != 0) continue;
        if (chat->family == families[i]) return REEL_OK;
        chat->family = families[i];
        chat->recognised = false;
        chat->null_is_empty = false;
        chat->thinks_unasked = families[i] == CHAT_QWEN3; /* of Qwen3.5 the small ones do not */
        return REEL_OK;
    }
    return err_set(err, REEL_E_ARGUMENT,
                   "chat template \"%s\" is unknown, allowed are " CHAT_FAMILIES, name);
}

enum reel_status chat_template_init(struct chat_template *chat, const char *text, size_t n_bytes,
                                    const char *override, struct reel_error *err) {
    *chat = (struct chat_template){ 0 };
    enum reel_status status = REEL_OK;
    if (text) {
        if (n_bytes && text[n_bytes - 1] == '\n') n_bytes--; /* Jinja drops it too */
        status = mem_text(&chat->source, text, n_bytes, "the chat template", err);
        if (status != REEL_OK) return status;
        chat->source_bytes = n_bytes;
        recognise(chat);
    }
    if (override) status = apply_override(chat, override, err);
    if (status != REEL_OK) chat_template_release(chat);
    return status;
}

void chat_template_release(struct chat_template *chat) {
    if (!chat) return;
    mem_free(chat->source);
    *chat = (struct chat_template){ 0 };
}
