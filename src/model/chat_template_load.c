/* Where a model keeps its chat template. */
#include "base/json.h"
#include "base/memory.h"
#include "model/chat_template.h"

#include <string.h>

/* The text under "chat_template": a string, or of several named ones "default". NULL when there is
 * none. Borrowed from config. */
static enum reel_status named_template(const json_t *config, const char *shown, const char **text,
                                       struct reel_error *err) {
    const json_t *value = json_object_get(config, "chat_template");
    *text = NULL;
    if (!json_is_array(value)) return json_get_text(config, shown, "chat_template", text, err);
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *entry = json_array_get(value, i);
        const char *name = json_string_value(json_object_get(entry, "name"));
        const char *body = json_string_value(json_object_get(entry, "template"));
        if (!name || !body)
            return err_set(err, REEL_E_FORMAT,
                           "%s: \"chat_template\" entry %zu must have a \"name\" and a "
                           "\"template\", both strings",
                           shown, i);
        if (strcmp(name, "default") == 0) *text = body;
    }
    return REEL_OK;
}

static enum reel_status load_from_config(struct chat_template *chat,
                                         const struct model_source *source, const char *override,
                                         struct reel_error *err) {
    struct file_map map = { 0 };
    char *shown = NULL;
    json_t *config = NULL;
    const char *text = NULL;
    enum reel_status status = model_source_map(source, "tokenizer_config.json", &map, &shown, err);
    if (status == REEL_OK) status = json_read(&config, shown, map.bytes, map.size, err);
    if (status == REEL_OK) status = named_template(config, shown, &text, err);
    if (status == REEL_OK)
        status = chat_template_init(chat, text, text ? strlen(text) : 0, override, err);
    json_decref(config);
    mem_free(shown);
    file_map_close(&map);
    return status;
}

static enum reel_status load_from_file(struct chat_template *chat,
                                       const struct model_source *source, const char *override,
                                       struct reel_error *err) {
    struct file_map map = { 0 };
    enum reel_status status = model_source_map(source, "chat_template.jinja", &map, NULL, err);
    if (status != REEL_OK) return status;
    status = chat_template_init(chat, (const char *)map.bytes, map.size, override, err);
    file_map_close(&map);
    return status;
}

enum reel_status chat_template_load(struct chat_template *chat, const struct model_source *source,
                                    const struct gguf *gguf, const char *override,
                                    struct reel_error *err) {
    *chat = (struct chat_template){ 0 };
    const char *text = NULL;
    size_t n_bytes = 0;
    if (gguf) {
        enum reel_status status =
            gguf_get_text(gguf, "tokenizer.chat_template", false, &text, &n_bytes, err);
        if (status != REEL_OK) return status;
    } else if (model_source_has(source, "chat_template.jinja")) {
        return load_from_file(chat, source, override, err);
    } else if (model_source_has(source, "tokenizer_config.json")) {
        return load_from_config(chat, source, override, err);
    }
    return chat_template_init(chat, text, n_bytes, override, err);
}
