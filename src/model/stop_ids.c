#include "model/stop_ids.h"

#include "base/json.h"

#include <stdlib.h>

/* A text, or the object that describes an added token; NULL for anything else. */
static const char *eos_text(const json_t *tokenizer_config) {
    const json_t *value = json_object_get(tokenizer_config, "eos_token");
    return json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
}

static void add(struct model_config *config, int32_t id) {
    if (id < 0 || id >= config->vocab) return;
    for (int i = 0; i < config->n_stop_ids; i++)
        if (config->stop_ids[i] == id) return;
    if (config->n_stop_ids < MODEL_MAX_STOP_IDS) config->stop_ids[config->n_stop_ids++] = id;
}

enum reel_status stop_ids_add_tokenizers(struct model_config *config,
                                         const struct model_source *source,
                                         const struct reel_tokenizer *tok, struct reel_error *err) {
    static const char name[] = "tokenizer_config.json";
    struct file_map map = { 0 };
    char *shown = NULL;
    json_t *root = NULL;
    if (source->is_gguf || !model_source_has(source, name)) return REEL_OK;
    enum reel_status status = model_source_map(source, name, &map, &shown, err);
    if (status == REEL_OK) status = json_read(&root, shown, map.bytes, map.size, err);
    const char *text = status == REEL_OK ? eos_text(root) : NULL;
    if (text) add(config, tokenizer_find_added(tok, text));
    json_decref(root);
    free(shown);
    file_map_close(&map);
    return status;
}
