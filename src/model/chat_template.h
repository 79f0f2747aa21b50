/* Conversations as text, by hand-written renderers recognised by the SHA-256 of the template. */
#ifndef REEL_MODEL_CHAT_TEMPLATE_H
#define REEL_MODEL_CHAT_TEMPLATE_H

#include "base/buffer.h"
#include "base/sha256.h"
#include "model/tokenizer.h"

enum chat_family { CHAT_UNKNOWN, CHAT_QWEN3, CHAT_QWEN35, CHAT_SMOLLM2, CHAT_CHATML };
#define CHAT_FAMILIES "qwen3, qwen3.5, smollm2, chatml" /* for messages */

struct chat_template {
    enum chat_family family;
    bool recognised;     /* the hash is known: source holds this family's own wording */
    bool null_is_empty;  /* a message without content renders as empty, an opening system
                            message of Qwen3 excepted */
    bool thinks_unasked; /* thinking is on where the caller leaves it open */
    char *source;        /* the template's own text, NULL when the model has none; the wording of
                            the tools block and of a default system message is taken from here */
    size_t source_bytes;
    char hash[SHA256_HEX]; /* of source, for messages; empty when there is no source */
};

/* Looks for chat_template.jinja, then in tokenizer_config.json (chat_template as text or as a list
 * of named ones, of which "default" is taken), the order of Hugging Face transformers; in GGUF for
 * tokenizer.chat_template. `override` names a family, or NULL. A model without a template or with
 * an unknown one loads: rendering is what is refused. */
enum reel_status chat_template_load(struct chat_template *chat, const struct model_source *source,
                                    const struct gguf *gguf, const char *override,
                                    struct reel_error *err);

/* The same from the template's text; NULL when the model has none. */
enum reel_status chat_template_init(struct chat_template *chat, const char *text, size_t n_bytes,
                                    const char *override, struct reel_error *err);
void chat_template_release(struct chat_template *chat);

const char *chat_family_name(enum chat_family family); /* NULL for CHAT_UNKNOWN */
bool chat_thinks(const struct chat_template *chat);    /* the template knows thinking */

/* Whether the rendered text ends inside thinking: the answer then starts there, and only its
 * closing tag is the model's. */
bool chat_opens_thinking(const struct chat_template *chat, const struct reel_chat_options *options);

/* A rendered conversation: pieces point into `text`. Pieces from the template allow control tokens,
 * pieces from messages do not. */
struct chat_text {
    struct buffer text;
    struct text_piece *pieces; /* text pointers are set once rendering is complete */
    int n_pieces, cap_pieces;
};

/* options may be NULL. What the Jinja template would fail on is refused, and so are an unknown
 * role, parts of a message that the template would leave out in silence, JSON with duplicate keys
 * and JSON numbers that a double does not hold. */
enum reel_status chat_render(const struct chat_template *chat, const struct reel_message *messages,
                             int n_messages, const struct reel_chat_options *options,
                             struct chat_text *out, struct reel_error *err);
void chat_text_release(struct chat_text *text);

#endif
