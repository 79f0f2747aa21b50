/* Conversations as text, by evaluating the template that the model carries (jinja/jinja.h). */
#ifndef REEL_MODEL_CHAT_TEMPLATE_H
#define REEL_MODEL_CHAT_TEMPLATE_H

#include "base/buffer.h"
#include "base/sha256.h"
#include "model/chat_syntax.h"
#include "model/tokenizer.h"

struct jinja_template;

/* Words of a template that its tokenizer names: bos_token and its like. */
enum chat_word {
    CHAT_BOS,
    CHAT_EOS,
    CHAT_UNK,
    CHAT_SEP,
    CHAT_PAD,
    CHAT_CLS,
    CHAT_MASK,
    CHAT_WORDS /* how many there are */
};
extern const char *const chat_word_names[CHAT_WORDS]; /* "bos_token", ... */

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT, CHAT_TOOL };

struct chat_template {
    const char *builtin; /* the name of the built-in template; NULL: source is the model's or the
                            caller's */
    char *source;        /* the text that is evaluated; NULL when the model has none */
    size_t source_bytes;
    char hash[SHA256_HEX]; /* of source without a last newline; empty when there is no source */
    struct jinja_template *parsed;     /* NULL: there is none, or `problem` says why */
    struct jinja_template *with_tools; /* the one called tool_use, or NULL */
    struct reel_error problem;         /* of a source that cannot be evaluated */
    char *words[CHAT_WORDS];           /* NULL: the tokenizer names none */
    struct chat_syntax syntax;         /* of with_tools where there is one */
};

/* What a model's files say, borrowed. A text is NULL where there is none. */
struct chat_sources {
    const char *name; /* where the texts are from, for messages */
    const char *text, *tools_text;
    size_t n_bytes, tools_bytes;
    const char *words[CHAT_WORDS]; /* terminated */
};

/* Looks for chat_template.jinja, then in tokenizer_config.json (chat_template as text or as a list
 * of named ones, of which "default" is taken, and "tool_use" for conversations with tools), the
 * order of Hugging Face transformers; in GGUF for tokenizer.chat_template. `given` is NULL, the
 * name of a built-in template, or a template's text, which then takes the place of the model's, and
 * which messages call `from` (NULL: "the given chat template"). A model without a template or with
 * one that cannot be evaluated loads: rendering is what is refused. */
enum reel_status chat_template_load(struct chat_template *chat, const struct model_source *source,
                                    const struct gguf *gguf, const char *given, const char *from,
                                    struct reel_error *err);

/* The same from what is in memory. */
enum reel_status chat_template_init(struct chat_template *chat, const struct chat_sources *sources,
                                    const char *given, const char *from, struct reel_error *err);
void chat_template_release(struct chat_template *chat);

/* "evaluated", the name of a built-in template, or NULL where nothing can be rendered. */
const char *chat_template_name(const struct chat_template *chat);
bool chat_thinks(const struct chat_template *chat); /* the template knows thinking */

/* Whether the rendered text ends inside thinking: the answer then starts there, and only its
 * closing tag is the model's. */
bool chat_opens_thinking(const struct chat_template *chat, const struct reel_chat_options *options);

/* Whether the text of a control token is part of how the template's models write thinking or
 * calls, so that it belongs to an answer's text. */
bool chat_is_answer_word(const struct chat_template *chat, const char *token, size_t n_bytes);

/* A rendered conversation: pieces point into `text`. Pieces from the template allow control tokens,
 * pieces from messages do not. */
struct chat_text {
    struct buffer text;
    struct text_piece *pieces;
    int n_pieces;
};

/* options may be NULL. What the Jinja template fails on is refused, and so are an unknown role,
 * parts of a message that the template would leave out in silence, JSON with duplicate keys and
 * JSON numbers that a double does not hold. */
enum reel_status chat_render(const struct chat_template *chat, const struct reel_message *messages,
                             int n_messages, const struct reel_chat_options *options,
                             struct chat_text *out, struct reel_error *err);
void chat_text_release(struct chat_text *text);

/* chat_render without the checks that need what probing finds, and with little to spend: for
 * probing. */
enum reel_status chat_render_probe(const struct chat_template *chat,
                                   const struct reel_message *messages, int n_messages,
                                   const struct reel_chat_options *options, struct chat_text *out,
                                   struct reel_error *err);

/* Fills chat->syntax. A template that fails on a question leaves it unanswered; only memory running
 * out is an error. */
enum reel_status chat_probe(struct chat_template *chat, struct reel_error *err);

/* Templates of the most common kinds, in reel's own words, for models that carry none. */
struct chat_builtin {
    const char *name, *text;
};
const struct chat_builtin *chat_builtin_find(const char *name); /* NULL: there is none */
#define CHAT_BUILTINS "chatml, gemma, llama3, mistral, phi3, qwen3, qwen3.5, smollm2, zephyr"

#endif
