#include "model/stop_ids.h"

#include "base/json.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

static enum reel_status read_file(json_t **root, const struct model_source *source,
                                  const char *name, struct reel_error *err) {
    struct file_map map = { 0 };
    char *shown = NULL;
    enum reel_status status = model_source_map(source, name, &map, &shown, err);
    if (status == REEL_OK) status = json_read(root, shown, map.bytes, map.size, err);
    mem_free(shown);
    file_map_close(&map);
    return status;
}

/* A text, or the object that describes an added token; NULL for anything else. */
static const char *eos_text(const json_t *tokenizer_config) {
    const json_t *value = json_object_get(tokenizer_config, "eos_token");
    return json_string_value(json_is_object(value) ? json_object_get(value, "content") : value);
}

static bool is_token(const json_t *token, const char *text) {
    const char *content = json_string_value(json_object_get(token, "content"));
    return content && strcmp(content, text) == 0;
}

/* In "added_tokens_decoder" of tokenizer_config.json, an object whose keys are ids; -1: not there.
 */
static long long find_decoded(json_t *tokenizer_config, const char *text) {
    const char *key;
    json_t *token;
    json_object_foreach(json_object_get(tokenizer_config, "added_tokens_decoder"), key, token) {
        if (is_token(token, text)) return strtoll(key, NULL, 10);
    }
    return -1;
}

/* In "added_tokens" of tokenizer.json; *id stays as it is when it is not there. */
static enum reel_status find_added(const struct model_source *source, const char *text,
                                   long long *id, struct reel_error *err) {
    static const char name[] = "tokenizer.json";
    json_t *root = NULL, *token;
    size_t i;
    if (!model_source_has(source, name)) return REEL_OK;
    enum reel_status status = read_file(&root, source, name, err);
    json_array_foreach(json_object_get(root, "added_tokens"), i, token) {
        const json_t *value = json_object_get(token, "id");
        if (is_token(token, text) && json_is_integer(value)) *id = json_integer_value(value);
    }
    json_decref(root);
    return status;
}

enum reel_status stop_ids_add_tokenizers(struct model_config *config,
                                         const struct model_source *source,
                                         const struct reel_tokenizer *tok, struct reel_error *err) {
    static const char name[] = "tokenizer_config.json";
    json_t *root = NULL;
    long long id = -1;
    if (source->is_gguf || !model_source_has(source, name)) return REEL_OK;
    enum reel_status status = read_file(&root, source, name, err);
    const char *text = status == REEL_OK ? eos_text(root) : NULL;
    if (text) id = tok ? tokenizer_find_added(tok, text) : find_decoded(root, text);
    if (text && !tok && id < 0) status = find_added(source, text, &id, err);
    if (id >= 0 && id < config->vocab) (void)model_add_stop_id(config, (int)id);
    json_decref(root);
    return status;
}
