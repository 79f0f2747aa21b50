/* A chat template from its text: which one counts, what its tokenizer's words are. */
#include "model/chat_template.h"

#include "base/memory.h"
#include "jinja/jinja.h"

#include <string.h>

const char *const chat_word_names[CHAT_WORDS] = { "bos_token", "eos_token", "unk_token",
                                                  "sep_token", "pad_token", "cls_token",
                                                  "mask_token" };

const char *chat_template_name(const struct chat_template *chat) {
    if (!chat->parsed) return NULL;
    return chat->builtin ? chat->builtin : "evaluated";
}

bool chat_thinks(const struct chat_template *chat) { return chat->syntax.thinks; }

bool chat_opens_thinking(const struct chat_template *chat,
                         const struct reel_chat_options *options) {
    if (options && (options->no_generation_prompt || options->continue_final_message)) return false;
    return chat->syntax.opens_thinking[options ? options->thinking : REEL_THINKING_DEFAULT];
}

static bool holds(const char *words, const char *token, size_t n) {
    for (const char *p = words; p && (p = strchr(p, *token)); p++)
        if (strncmp(p, token, n) == 0) return true;
    return false;
}

bool chat_is_answer_word(const struct chat_template *chat, const char *token, size_t n_bytes) {
    const struct chat_syntax *s = &chat->syntax;
    const struct chat_call_words *w = &s->words;
    const char *const all[] = { s->think_open, s->think_close, w->before,      w->open,
                                w->close,      w->between,     w->after,       w->name_end,
                                w->key_open,   w->key_close,   w->value_close, w->key_close_typed };
    if (n_bytes == 0) return false;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (holds(all[i], token, n_bytes)) return true;
    return false;
}

/* ---- loading --------------------------------------------------------------------------------- */

static bool is_template_text(const char *text) { return strstr(text, "{{") || strstr(text, "{%"); }

/* What `given` says instead of the model's own template. */
static enum reel_status choose(struct chat_template *chat, struct chat_sources *s,
                               const char *given, const char *from, struct reel_error *err) {
    if (is_template_text(given)) {
        *s = (struct chat_sources){ .name = from ? from : "the given chat template",
                                    .text = given,
                                    .n_bytes = strlen(given) };
        return REEL_OK;
    }
    const struct chat_builtin *builtin = chat_builtin_find(given);
    if (builtin) {
        chat->builtin = builtin->name;
        *s = (struct chat_sources){ .name = builtin->name,
                                    .text = builtin->text,
                                    .n_bytes = strlen(builtin->text) };
        return REEL_OK;
    }
    return err_set(err, REEL_E_ARGUMENT,
                   "chat template \"%.200s\" is unknown; allowed are " CHAT_BUILTINS
                   ", or a template's text, which holds {{ or {%%",
                   given);
}

/* What is wrong with a text goes to chat->problem; only memory running out is an error. */
static enum reel_status parse(struct chat_template *chat, struct jinja_template **out,
                              const char *name, const char *text, size_t n,
                              struct reel_error *err) {
    enum reel_status status = jinja_template_open(out, name, text, n, NULL, &chat->problem);
    if (status == REEL_E_MEMORY) return err_set(err, status, "%s", chat->problem.text);
    return REEL_OK;
}

static enum reel_status copy_words(struct chat_template *chat, const struct chat_sources *sources,
                                   struct reel_error *err) {
    for (int i = 0; i < CHAT_WORDS; i++) {
        const char *word = sources->words[i];
        enum reel_status status =
            word ? mem_text(&chat->words[i], word, strlen(word), "a token's name", err) : REEL_OK;
        if (status != REEL_OK) return status;
    }
    return REEL_OK;
}

static enum reel_status fill(struct chat_template *chat, const struct chat_sources *s,
                             struct reel_error *err) {
    const char *name = s->name ? s->name : "chat template";
    size_t n = s->n_bytes;
    enum reel_status status = mem_text(&chat->source, s->text, n, "the chat template", err);
    if (status != REEL_OK) return status;
    chat->source_bytes = n;
    sha256_hex(s->text, n && s->text[n - 1] == '\n' ? n - 1 : n, chat->hash);
    status = parse(chat, &chat->parsed, name, s->text, n, err);
    if (status == REEL_OK && chat->parsed && s->tools_text)
        status = parse(chat, &chat->with_tools, name, s->tools_text, s->tools_bytes, err);
    if (status == REEL_OK && chat->parsed) status = chat_probe(chat, err);
    return status;
}

enum reel_status chat_template_init(struct chat_template *chat, const struct chat_sources *sources,
                                    const char *given, const char *from, struct reel_error *err) {
    struct chat_sources s = *sources;
    *chat = (struct chat_template){ 0 };
    enum reel_status status = copy_words(chat, sources, err);
    if (status == REEL_OK && given) status = choose(chat, &s, given, from, err);
    if (status == REEL_OK && s.text) status = fill(chat, &s, err);
    if (status == REEL_OK && given && !chat->parsed)
        status = err_set(err, REEL_E_ARGUMENT, "%s", chat->problem.text);
    if (status != REEL_OK) chat_template_release(chat);
    return status;
}

void chat_template_release(struct chat_template *chat) {
    if (!chat) return;
    jinja_template_close(chat->parsed);
    jinja_template_close(chat->with_tools);
    chat_syntax_release(&chat->syntax);
    for (int i = 0; i < CHAT_WORDS; i++)
        mem_free(chat->words[i]);
    mem_free(chat->source);
    *chat = (struct chat_template){ 0 };
}
