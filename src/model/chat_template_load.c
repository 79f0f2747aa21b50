/* Where a model keeps its chat template, and the tokens that templates name. */
#include "base/json.h"
#include "base/memory.h"
#include "model/chat_template.h"

#include <stdlib.h>
#include <string.h>

/* The files of a folder, while their texts are borrowed. */
struct folder {
    struct file_map template, tool_use;
    json_t *config, *special; /* tokenizer_config.json, special_tokens_map.json, or NULL */
};

static void folder_close(struct folder *f) {
    file_map_close(&f->template);
    file_map_close(&f->tool_use);
    json_decref(f->config);
    json_decref(f->special);
}

static enum reel_status read_json(json_t **out, const struct model_source *source, const char *name,
                                  struct reel_error *err) {
    struct file_map map = { 0 };
    char *shown = NULL;
    if (!model_source_has(source, name)) return REEL_OK;
    enum reel_status status = model_source_map(source, name, &map, &shown, err);
    if (status == REEL_OK) status = json_read(out, shown, map.bytes, map.size, err);
    mem_free(shown);
    file_map_close(&map);
    return status;
}

/* "chat_template": a text, or a list of named ones. */
static enum reel_status named_templates(struct chat_sources *s, const json_t *config,
                                        struct reel_error *err) {
    static const char shown[] = "tokenizer_config.json";
    const json_t *value = json_object_get(config, "chat_template");
    s->name = shown;
    if (!json_is_array(value)) {
        enum reel_status status = json_get_text(config, shown, "chat_template", &s->text, err);
        s->n_bytes = status == REEL_OK && s->text ? strlen(s->text) : 0;
        return status;
    }
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *entry = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        const char *body = json_string_value(json_object_get(entry, "template"));
        if (!name || !body)
            return err_set(err, REEL_E_FORMAT,
                           "%s: \"chat_template\" entry %zu must have a \"name\" and a "
                           "\"template\", both strings",
                           shown, i);
        if (strcmp(name, "default") == 0) {
            s->text = body;
            s->n_bytes = strlen(body);
        } else if (strcmp(name, "tool_use") == 0) {
            s->tools_text = body;
            s->tools_bytes = strlen(body);
        }
    }
    return REEL_OK;
}

/* A token's text, or the object that describes an added token; NULL for anything else. */
static const char *token_text(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
}

static enum reel_status open_folder(struct folder *f, struct chat_sources *s,
                                    const struct model_source *source, struct reel_error *err) {
    static const char own_file[] = "chat_template.jinja";
    enum reel_status status = read_json(&f->config, source, "tokenizer_config.json", err);
    if (status == REEL_OK) status = read_json(&f->special, source, "special_tokens_map.json", err);
    for (int i = 0; i < CHAT_WORDS && status == REEL_OK; i++) {
        s->words[i] = token_text(f->config, chat_word_names[i]);
        if (!s->words[i]) s->words[i] = token_text(f->special, chat_word_names[i]);
    }
    if (status != REEL_OK || !model_source_has(source, own_file))
        return status == REEL_OK && f->config ? named_templates(s, f->config, err) : status;
    status = model_source_map(source, own_file, &f->template, NULL, err);
    if (status != REEL_OK) return status;
    s->name = own_file;
    s->text = (const char *)f->template.bytes;
    s->n_bytes = f->template.size;
    return REEL_OK;
}

static enum reel_status load_folder(struct chat_template *chat, const struct model_source *source,
                                    const char *given, const char *from, struct reel_error *err) {
    struct folder f = { 0 };
    struct chat_sources s = { 0 };
    enum reel_status status = open_folder(&f, &s, source, err);
    if (status == REEL_OK) status = chat_template_init(chat, &s, given, from, err);
    folder_close(&f);
    return status;
}

/* ---- GGUF ------------------------------------------------------------------------------------ */

/* A copy of the text of token `id`, the caller's to free; NULL where there is none. */
static enum reel_status gguf_token(char **out, const struct gguf *gguf, int64_t id,
                                   struct reel_error *err) {
    const struct gguf_value *tokens = gguf_find(gguf, "tokenizer.ggml.tokens");
    const char *bytes;
    size_t n;
    if (!tokens || tokens->type != GGUF_ARRAY || tokens->element_type != GGUF_STRING)
        return REEL_OK;
    const unsigned char *cursor = tokens->bytes;
    while (gguf_next_text(tokens, &cursor, &bytes, &n))
        if (id-- == 0) return mem_text(out, bytes, n, "a token's name", err);
    return REEL_OK;
}

static enum reel_status load_gguf(struct chat_template *chat, const struct gguf *gguf,
                                  const char *given, const char *from, struct reel_error *err) {
    static const char *const keys[CHAT_WORDS] = {
        "tokenizer.ggml.bos_token_id",     "tokenizer.ggml.eos_token_id",
        "tokenizer.ggml.unknown_token_id", "tokenizer.ggml.seperator_token_id",
        "tokenizer.ggml.padding_token_id", "tokenizer.ggml.cls_token_id",
        "tokenizer.ggml.mask_token_id",
    };
    struct chat_sources s = { .name = "tokenizer.chat_template" };
    char *words[CHAT_WORDS] = { NULL };
    enum reel_status status =
        gguf_get_text(gguf, "tokenizer.chat_template", false, &s.text, &s.n_bytes, err);
    if (status == REEL_OK)
        status = gguf_get_text(gguf, "tokenizer.chat_template.tool_use", false, &s.tools_text,
                               &s.tools_bytes, err);
    for (int i = 0; i < CHAT_WORDS && status == REEL_OK; i++) {
        const struct gguf_value *value = gguf_find(gguf, keys[i]);
        int64_t id = -1;
        if (value && gguf_value_int(value, 0, &id) && id >= 0)
            status = gguf_token(&words[i], gguf, id, err);
        s.words[i] = words[i];
    }
    if (status == REEL_OK) status = chat_template_init(chat, &s, given, from, err);
    for (int i = 0; i < CHAT_WORDS; i++)
        mem_free(words[i]);
    return status;
}

enum reel_status chat_template_load(struct chat_template *chat, const struct model_source *source,
                                    const struct gguf *gguf, const char *given, const char *from,
                                    struct reel_error *err) {
    *chat = (struct chat_template){ 0 };
    return gguf ? load_gguf(chat, gguf, given, from, err)
                : load_folder(chat, source, given, from, err);
}
