/* vocab.json + merges.txt + tokenizer_config.json: the older form of the same tokenizer. Its files
 * do not say how text is split; the class named in tokenizer_config.json does. */
#include "base/json.h"
#include "model/tokenizer_parts.h"

#include <errno.h>
#include <stdlib.h>

enum reel_status parts_add_config_tokens(struct tokenizer_parts *parts, const json_t *config,
                                         struct reel_error *err) {
    const json_t *added = json_object_get(config, "added_tokens_decoder");
    if (!added || json_is_null(added)) return REEL_OK;
    if (!json_is_object(added))
        return err_set(err, REEL_E_FORMAT, "%s: \"added_tokens_decoder\" must be an object",
                       parts->name);
    enum reel_status status = REEL_OK;
    for (void *i = json_object_iter((json_t *)(uintptr_t)added); status == REEL_OK && i;
         i = json_object_iter_next((json_t *)(uintptr_t)added, i)) {
        const char *key = json_object_iter_key(i);
        char *end;
        errno = 0;
        long long id = strtoll(key, &end, 10);
        if (errno || end == key || *end)
            return err_set(err, REEL_E_FORMAT,
                           "%s: \"added_tokens_decoder\": \"%.40s\" is not a token id", parts->name,
                           key);
        status = parts_add_described(parts, id, json_object_iter_value(i), err);
    }
    return status;
}

static bool is_class(const char *class, const char *name) {
    size_t n = strlen(name);
    return class && strncmp(class, name, n) == 0 &&
           (class[n] == '\0' || strcmp(class + n, "Fast") == 0);
}

/* Qwen3.5's files name the older class and give their own expression beside it. */
static enum reel_status read_class(struct tokenizer_parts *parts, const json_t *config,
                                   struct reel_error *err) {
    const char *class, *regex = NULL;
    enum reel_status status = json_get_text(config, parts->name, "tokenizer_class", &class, err);
    if (status == REEL_OK)
        status = json_get_text(config, parts->name, "pretokenize_regex", &regex, err);
    if (status != REEL_OK) return status;
    bool qwen35 = is_class(class, "Qwen3_5Tokenizer");
    if (!qwen35 && !is_class(class, "Qwen2Tokenizer"))
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: \"tokenizer_class\" is \"%.60s\": without tokenizer.json only "
                       "Qwen2Tokenizer and Qwen3_5Tokenizer are supported",
                       parts->name, class ? class : "(none)");
    parts->nfc = true;
    if (!regex) regex = qwen35 ? split_regex_qwen35 : split_regex_qwen2;
    return parts_set_regex(parts, regex, err);
}

static int64_t named_token(const struct tokenizer_parts *parts, const char *text) {
    for (size_t id = 0; id < parts->n_tokens; id++)
        if (parts->tokens[id].flags & TOKEN_ADDED && parts->tokens[id].n == strlen(text) &&
            memcmp(parts->text.bytes + parts->tokens[id].at, text, strlen(text)) == 0)
            return (int64_t)id;
    return -1;
}

/* Without tokenizer.json, and so without a post-processor, these two flags decide. The token is
 * named as a text or an object with "content"; `fallback`, which may be NULL, is its name where
 * nothing is said and also means that the flag is then true. */
enum reel_status parts_add_config_around(struct tokenizer_parts *parts, const json_t *config,
                                         bool after, const char *fallback, struct reel_error *err) {
    bool wanted;
    const char *flag = after ? "add_eos_token" : "add_bos_token";
    enum reel_status status =
        json_get_bool(config, parts->name, flag, fallback != NULL, &wanted, err);
    if (status != REEL_OK || !wanted) return status;
    const json_t *named = json_object_get(config, after ? "eos_token" : "bos_token");
    const char *text =
        json_string_value(json_is_object(named) ? json_object_get(named, "content") : named);
    if (!text) text = fallback;
    if (!text) return REEL_OK;
    int64_t id = named_token(parts, text);
    if (id >= 0) return parts_add_around(parts, id, after, err);
    if (!json_object_get(config, flag)) return REEL_OK;
    return err_set(err, REEL_E_FORMAT, "%s: \"%s\" is true, but its token is not an added token",
                   parts->name, flag);
}

static enum reel_status read_config(struct tokenizer_parts *parts, const struct file_map *file,
                                    struct reel_error *err) {
    json_t *config = NULL;
    enum reel_status status = json_read(&config, parts->name, file->bytes, file->size, err);
    if (status == REEL_OK) status = read_class(parts, config, err);
    if (status == REEL_OK) status = parts_add_config_tokens(parts, config, err);
    if (status == REEL_OK) status = parts_add_config_around(parts, config, false, NULL, err);
    if (status == REEL_OK) status = parts_add_config_around(parts, config, true, NULL, err);
    json_decref(config);
    return status;
}

static enum reel_status read_vocab(struct tokenizer_parts *parts, const struct file_map *file,
                                   struct reel_error *err) {
    json_t *vocab = NULL;
    enum reel_status status = json_read(&vocab, parts->name, file->bytes, file->size, err);
    if (status == REEL_OK) status = parts_add_vocabulary(parts, vocab, err);
    json_decref(vocab);
    return status;
}

/* One merge a line, in order of rank; the first line may be a comment. */
static enum reel_status read_merges(struct tokenizer_parts *parts, const struct file_map *file,
                                    struct reel_error *err) {
    const char *p = (const char *)file->bytes, *end = p + file->size;
    enum reel_status status = REEL_OK;
    for (bool first = true; status == REEL_OK && p < end; first = false) {
        const char *newline = memchr(p, '\n', (size_t)(end - p));
        const char *after = newline ? newline + 1 : end;
        size_t n = (size_t)((newline ? newline : end) - p);
        if (n && p[n - 1] == '\r') n--;
        bool comment = first && n >= 8 && memcmp(p, "#version", 8) == 0;
        if (n && !comment) status = parts_add_merge_line(parts, p, n, err);
        p = after;
    }
    return status;
}

enum reel_status parts_from_vocab(struct tokenizer_parts *parts, const char *vocab_name,
                                  const struct file_map *vocab, const char *merges_name,
                                  const struct file_map *merges, const char *config_name,
                                  const struct file_map *config, struct reel_error *err) {
    parts->name = vocab_name;
    enum reel_status status = read_vocab(parts, vocab, err);
    parts->name = merges_name;
    if (status == REEL_OK) status = read_merges(parts, merges, err);
    parts->name = config_name;
    if (status == REEL_OK) status = read_config(parts, config, err);
    parts->name = vocab_name;
    return status;
}
