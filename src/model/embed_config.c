#include "model/embed_config.h"

#include "base/json.h"
#include "base/memory.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define MODULES "modules.json"
#define POOLING "1_Pooling/config.json"
#define PROMPTS "config_sentence_transformers.json"

enum { MOST_PROMPTS = 1000 };

__attribute__((format(printf, 3, 4))) static enum reel_status
refuse(struct embed_config *config, struct reel_error *err, const char *format, ...) {
    struct reel_error line;
    char text[sizeof line.text];
    va_list args;
    if (config->refused) return REEL_OK; /* the first reason is the one told */
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    err_set(&line, REEL_OK, "%s", text); /* files may hold control characters */
    return mem_text(&config->refused, line.text, strlen(line.text), "a reason", err);
}

static enum reel_status read_file(json_t **root, const struct model_source *source,
                                  const char *name, char **shown, struct reel_error *err) {
    struct file_map map = { 0 };
    enum reel_status status = model_source_map(source, name, &map, shown, err);
    if (status == REEL_OK) status = json_read(root, *shown, map.bytes, map.size, err);
    file_map_close(&map);
    return status;
}

/* ---- modules.json ---- */

/* "Pooling" of "sentence_transformers.models.Pooling" */
static const char *last_word(const char *type) {
    const char *dot = strrchr(type, '.');
    return dot ? dot + 1 : type;
}

static enum reel_status read_module(struct embed_config *config, const char *shown,
                                    const json_t *module, bool *pools, struct reel_error *err) {
    const char *type = NULL, *path = NULL;
    enum reel_status status = json_get_text(module, shown, "type", &type, err);
    if (status == REEL_OK) status = json_get_text(module, shown, "path", &path, err);
    if (status != REEL_OK) return status;
    if (!type) return err_set(err, REEL_E_FORMAT, "%s: a module has no \"type\"", shown);
    if (!path) path = "";
    const char *word = last_word(type);
    if (strcmp(word, "Normalize") == 0) return REEL_OK;
    if (strcmp(word, "Pooling") == 0) {
        *pools = true;
        if (strcmp(path, "1_Pooling") == 0) return REEL_OK;
        return refuse(config, err, "%s: its pooling is in \"%s\"; reel reads %s", shown, path,
                      POOLING);
    }
    if (strcmp(word, "Transformer") != 0)
        return refuse(config, err, "%s: module \"%s\"; reel has Transformer, Pooling and Normalize",
                      shown, type);
    if (!path[0]) return REEL_OK;
    return refuse(config, err, "%s: its transformer is in \"%s\", not in the folder itself", shown,
                  path);
}

static enum reel_status read_modules(struct embed_config *config, const json_t *root,
                                     const char *shown, bool *pools, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    if (!json_is_array(root))
        return err_set(err, REEL_E_FORMAT, "%s: not a list of modules", shown);
    for (size_t i = 0; status == REEL_OK && i < json_array_size(root); i++) {
        const json_t *module = json_array_get(root, i);
        if (!json_is_object(module))
            return err_set(err, REEL_E_FORMAT, "%s: module %zu is not an object", shown, i);
        status = read_module(config, shown, module, pools, err);
    }
    return status;
}

/* ---- 1_Pooling/config.json: a flag for each way, or (since version 5) one word ---- */

static enum reel_status read_pooling(struct embed_config *config, json_t *root, const char *shown,
                                     struct reel_error *err) {
    static const char flag[] = "pooling_mode_";
    const char *word = json_string_value(json_object_get(root, "pooling_mode")), *key;
    bool last = word && strcmp(word, "lasttoken") == 0;
    json_t *value;
    if (word && !last)
        return refuse(config, err, "%s: pooling_mode is \"%s\"; reel pools \"lasttoken\"", shown,
                      word);
    json_object_foreach(root, key, value) {
        if (strncmp(key, flag, sizeof flag - 1) != 0 || !json_is_true(value)) continue;
        if (strcmp(key, "pooling_mode_lasttoken") != 0)
            return refuse(config, err, "%s: %s is true; reel pools by pooling_mode_lasttoken",
                          shown, key);
        last = true;
    }
    if (last) return REEL_OK;
    return refuse(config, err, "%s: pooling_mode_lasttoken is not true; reel has no other", shown);
}

/* ---- config_sentence_transformers.json ---- */

static enum reel_status read_prompts(struct embed_config *config, json_t *root, const char *shown,
                                     struct reel_error *err) {
    json_t *prompts = json_object_get(root, "prompts"), *value;
    const char *key, *chosen = NULL;
    enum reel_status status = json_get_text(root, shown, "default_prompt_name", &chosen, err);
    if (status != REEL_OK || !json_is_object(prompts)) return status;
    const size_t n = json_object_size(prompts);
    if (n > MOST_PROMPTS)
        return err_set(err, REEL_E_LIMIT, "%s: %zu prompts, at most %d are supported", shown, n,
                       MOST_PROMPTS);
    status = mem_zeroed(&config->prompts, n, sizeof *config->prompts, "prompts", err);
    json_object_foreach(prompts, key, value) {
        const char *text = json_string_value(value);
        struct embed_prompt *p = config->prompts ? &config->prompts[config->n_prompts] : NULL;
        if (status != REEL_OK || !p) break;
        if (!text)
            return err_set(err, REEL_E_FORMAT, "%s: prompt \"%s\" is not a text", shown, key);
        if (chosen && strcmp(chosen, key) == 0) config->default_prompt = config->n_prompts;
        config->n_prompts++;
        status = mem_text(&p->name, key, strlen(key), "a prompt's name", err);
        if (status == REEL_OK) status = mem_text(&p->text, text, strlen(text), "a prompt", err);
    }
    if (status == REEL_OK && chosen && config->default_prompt < 0)
        return err_set(err, REEL_E_FORMAT, "%s: default_prompt_name \"%s\" is none of its prompts",
                       shown, chosen);
    return status;
}

/* ---- both containers ---- */

static enum reel_status load_folder(struct embed_config *config, const struct model_source *source,
                                    struct reel_error *err) {
    json_t *root = NULL;
    char *shown = NULL;
    bool pools = false;
    enum reel_status status = read_file(&root, source, MODULES, &shown, err);
    if (status == REEL_OK) status = read_modules(config, root, shown, &pools, err);
    json_decref(root);
    mem_free(shown);
    if (status != REEL_OK) return status;
    config->stated = true;
    if (!pools) return refuse(config, err, MODULES ": no pooling; reel pools by the last token");
    if (!model_source_has(source, POOLING)) {
        return refuse(config, err, "%s: %s names it, and it is not there", POOLING, MODULES);
    }
    root = NULL;
    shown = NULL;
    status = read_file(&root, source, POOLING, &shown, err);
    if (status == REEL_OK) status = read_pooling(config, root, shown, err);
    json_decref(root);
    mem_free(shown);
    return status;
}

static enum reel_status load_prompts(struct embed_config *config, const struct model_source *source,
                                     struct reel_error *err) {
    json_t *root = NULL;
    char *shown = NULL;
    enum reel_status status = read_file(&root, source, PROMPTS, &shown, err);
    if (status == REEL_OK) status = read_prompts(config, root, shown, err);
    json_decref(root);
    mem_free(shown);
    return status;
}

/* llama.cpp's enum llama_pooling_type */
static enum reel_status load_gguf(struct embed_config *config, const struct gguf *gguf,
                                  struct reel_error *err) {
    static const char *const names[] = { "none", "mean", "cls", "last", "rank" };
    enum { LAST = 3 };
    const char *family = NULL;
    size_t n = 0;
    char key[128];
    int64_t type = -1;
    enum reel_status status = gguf_get_text(gguf, "general.architecture", false, &family, &n, err);
    if (status != REEL_OK || n == 0 || n > 64) return status;
    snprintf(key, sizeof key, "%.*s.pooling_type", (int)n, family);
    status = gguf_get_int(gguf, key, 0, 1000, false, &type, err);
    if (status != REEL_OK || type < 0) return status;
    config->stated = type > 0;
    if (type == LAST || type == 0) return REEL_OK;
    return refuse(config, err, "%s: %s is %d (%s); reel pools the last token, 3", gguf->path, key,
                  (int)type, type < (int64_t)(sizeof names / sizeof *names) ? names[type] : "?");
}

enum reel_status embed_config_load(struct embed_config *config, const struct model_source *source,
                                   const struct gguf *gguf, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    *config = (struct embed_config){ .default_prompt = -1 };
    if (gguf) status = load_gguf(config, gguf, err);
    if (!gguf && model_source_has(source, MODULES)) status = load_folder(config, source, err);
    if (status == REEL_OK && !gguf && model_source_has(source, PROMPTS))
        status = load_prompts(config, source, err);
    if (status != REEL_OK) embed_config_release(config);
    return status;
}

void embed_config_release(struct embed_config *config) {
    if (!config) return;
    for (int i = 0; i < config->n_prompts; i++) {
        mem_free(config->prompts[i].name);
        mem_free(config->prompts[i].text);
    }
    mem_free(config->prompts);
    mem_free(config->refused);
    *config = (struct embed_config){ .default_prompt = -1 };
}

enum reel_status embed_config_allows(const struct embed_config *config, struct reel_error *err) {
    return config->refused ? err_set(err, REEL_E_UNSUPPORTED, "%s", config->refused) : REEL_OK;
}
