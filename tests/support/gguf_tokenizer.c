#include "support/gguf_tokenizer.h"

#include "base/json.h"
#include "support/model_bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    const char *text; /* borrowed from the JSON */
    uint32_t type;    /* 1 normal, 3 control, 4 user-defined */
};

struct entries {
    struct entry *list;
    uint32_t n;
    size_t room;
};

static void set_entry(struct entries *e, size_t at, const char *text, uint32_t type) {
    if (at >= e->n) {
        if (at >= e->room) {
            e->room = 2 * at + 1024;
            e->list = realloc(e->list, e->room * sizeof *e->list);
            if (!e->list) abort();
        }
        for (; e->n <= at; e->n++)
            e->list[e->n] = (struct entry){ "", 1 };
    }
    e->list[at] = (struct entry){ text, type };
}

static void set_added(struct entries *e, size_t at, const json_t *token) {
    set_entry(e, at, json_string_value(json_object_get(token, "content")),
              json_is_true(json_object_get(token, "special")) ? 3 : 4);
}

/* `config` is tokenizer_config.json, which can add tokens, or NULL. */
static void list_entries(struct entries *e, const json_t *json, const json_t *config) {
    json_t *vocab = json_object_get(json_object_get(json, "model"), "vocab"), *id, *token;
    json_t *added = json_object_get(json, "added_tokens");
    json_t *more = json_object_get(config, "added_tokens_decoder");
    const char *text;
    size_t i;
    json_object_foreach(vocab, text, id) { set_entry(e, (size_t)json_integer_value(id), text, 1); }
    json_array_foreach(added, i, token) {
        set_added(e, (size_t)json_integer_value(json_object_get(token, "id")), token);
    }
    json_object_foreach(more, text, token) { set_added(e, strtoul(text, NULL, 10), token); }
}

static void add_list(struct bytes *b, const char *key, uint32_t type, uint64_t n) {
    bytes_text(b, key);
    bytes_u32(b, GGUF_ARRAY);
    bytes_u32(b, type);
    bytes_u64(b, n);
}

static void add_around(struct bytes *b, const struct entries *e, const char *text, const char *flag,
                       const char *key) {
    const char *wanted = *text ? text : "<|im_start|>";
    uint32_t id = 0;
    while (id < e->n && strcmp(e->list[id].text, wanted) != 0)
        id++;
    bytes_gguf_u32(b, key, id);
    bytes_text(b, *text ? flag : "tokenizer.ggml.unused");
    bytes_u32(b, GGUF_BOOL);
    bytes_add(b, "\1", 1);
}

static void add_merges(struct bytes *b, const json_t *merges) {
    const json_t *merge;
    size_t i;
    add_list(b, "tokenizer.ggml.merges", GGUF_STRING, json_array_size(merges));
    json_array_foreach(merges, i, merge) {
        char both[2048];
        if (json_is_array(merge))
            snprintf(both, sizeof both, "%s %s", json_string_value(json_array_get(merge, 0)),
                     json_string_value(json_array_get(merge, 1)));
        bytes_text(b, json_is_array(merge) ? both : json_string_value(merge));
    }
}

static void add_metadata(struct bytes *b, const json_t *json, const struct entries *e,
                         const char *pre, const char *before, const char *after) {
    bytes_gguf_header(b, 3, 0, 6 + 2 * (uint64_t) !!before + 2 * (uint64_t) !!after);
    bytes_gguf_text(b, "general.architecture", "llama");
    bytes_gguf_text(b, "tokenizer.ggml.model", "gpt2");
    bytes_gguf_text(b, "tokenizer.ggml.pre", pre);
    add_list(b, "tokenizer.ggml.tokens", GGUF_STRING, e->n);
    for (uint32_t i = 0; i < e->n; i++)
        bytes_text(b, e->list[i].text);
    add_list(b, "tokenizer.ggml.token_type", GGUF_I32, e->n);
    for (uint32_t i = 0; i < e->n; i++)
        bytes_u32(b, e->list[i].type);
    add_merges(b, json_object_get(json_object_get(json, "model"), "merges"));
    if (before)
        add_around(b, e, before, "tokenizer.ggml.add_bos_token", "tokenizer.ggml.bos_token_id");
    if (after)
        add_around(b, e, after, "tokenizer.ggml.add_eos_token", "tokenizer.ggml.eos_token_id");
}

static enum reel_status load(struct reel_tokenizer **tok, const struct bytes *b,
                             struct reel_error *err) {
    const struct reel_memory_file file = { "model.gguf", b->data, b->n };
    struct model_source source = { 0 };
    struct tensor_file tensors = { 0 };
    struct gguf gguf = { 0 };
    enum reel_status status = model_source_open_memory(&source, "memory", &file, 1, err);
    if (status == REEL_OK) status = gguf_open(&gguf, &tensors, &source, err);
    if (status == REEL_OK) status = tokenizer_load(tok, &source, &gguf, NULL, err);
    gguf_release(&gguf);
    tensor_file_release(&tensors);
    model_source_release(&source);
    return status;
}

static enum reel_status read_file(json_t **json, const char *folder, const char *name,
                                  struct reel_error *err) {
    struct file_map map = { 0 };
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    enum reel_status status = file_map_open(&map, path, err);
    if (status == REEL_OK) status = json_read(json, path, map.bytes, map.size, err);
    file_map_close(&map);
    return status;
}

struct reel_tokenizer *gguf_tokenizer(const char *folder, const char *pre, const char *before,
                                      const char *after) {
    struct reel_tokenizer *tok = NULL;
    struct reel_error err = { 0 };
    struct entries e = { 0 };
    struct bytes b = { 0 };
    json_t *json = NULL, *config = NULL;
    enum reel_status status = read_file(&json, folder, "tokenizer.json", &err);
    if (status == REEL_OK) {
        if (read_file(&config, folder, "tokenizer_config.json", NULL) != REEL_OK) config = NULL;
        list_entries(&e, json, config);
        add_metadata(&b, json, &e, pre, before, after);
        status = load(&tok, &b, &err);
    }
    if (status != REEL_OK) fprintf(stderr, "%s: %s\n", pre, err.text);
    free(e.list);
    bytes_release(&b);
    json_decref(config);
    json_decref(json);
    return tok;
}
