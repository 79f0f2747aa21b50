/* tokenizer.json: the format of Hugging Face `tokenizers`. What reel does not do is refused by name
 * rather than left out; truncation and padding are the caller's business and ignored. */
#include "base/json.h"
#include "model/tokenizer_nfc.h"
#include "model/tokenizer_parts.h"
#include "model/tokenizer_utf8.h"

static enum reel_status refuse(const struct tokenizer_parts *parts, const char *what,
                               const char *found, const char *allowed, struct reel_error *err) {
    return err_set(err, REEL_E_UNSUPPORTED, "%s: %s \"%.80s\" is not supported: %s", parts->name,
                   what, found, allowed);
}

static const char *type_of(const json_t *object) {
    const char *type = json_string_value(json_object_get(object, "type"));
    return type ? type : "(no type)";
}

static bool is_type(const json_t *object, const char *type) {
    return strcmp(type_of(object), type) == 0;
}

static enum reel_status read_normalizer(struct tokenizer_parts *parts, const json_t *root,
                                        struct reel_error *err) {
    const json_t *normalizer = json_object_get(root, "normalizer");
    if (normalizer && is_type(normalizer, "Sequence")) {
        const json_t *list = json_object_get(normalizer, "normalizers");
        if (json_array_size(list) == 0) return REEL_OK;
        normalizer = json_array_get(list, 0);
        if (json_array_size(list) > 1)
            return refuse(parts, "a sequence of normalizers with", type_of(json_array_get(list, 1)),
                          "NFC or none", err);
    }
    if (!normalizer || json_is_null(normalizer)) return REEL_OK;
    if (!is_type(normalizer, "NFC"))
        return refuse(parts, "normalizer", type_of(normalizer), "NFC or none", err);
    parts->nfc = true;
    return REEL_OK;
}

/* The decoder may only be ByteLevel: it decodes as reel does. */
static enum reel_status read_decoder(const struct tokenizer_parts *parts, const json_t *root,
                                     struct reel_error *err) {
    const json_t *decoder = json_object_get(root, "decoder");
    if (decoder && is_type(decoder, "ByteLevel")) return REEL_OK;
    return refuse(parts, "decoder", type_of(decoder), "ByteLevel", err);
}

static enum reel_status need_empty(const struct tokenizer_parts *parts, const json_t *model,
                                   const char *key, struct reel_error *err) {
    const char *text;
    enum reel_status status = json_get_text(model, parts->name, key, &text, err);
    if (status != REEL_OK || !text || !*text) return status;
    return refuse(parts, key, text, "it must be empty", err);
}

static enum reel_status read_model_options(struct tokenizer_parts *parts, const json_t *model,
                                           struct reel_error *err) {
    const char *unknown;
    const struct json_real_rule dropout = { .key = "dropout", .min = 0, .max = 0 };
    double zero;
    if (json_object_get(model, "type") && !is_type(model, "BPE"))
        return refuse(parts, "model", type_of(model), "BPE", err);
    enum reel_status status = json_get_text(model, parts->name, "unk_token", &unknown, err);
    parts->drops_unknown = !unknown;
    if (status == REEL_OK) status = need_empty(parts, model, "continuing_subword_prefix", err);
    if (status == REEL_OK) status = need_empty(parts, model, "end_of_word_suffix", err);
    if (status == REEL_OK) status = json_get_real(model, parts->name, &dropout, &zero, err);
    bool fallback = false;
    if (status == REEL_OK)
        status = json_get_bool(model, parts->name, "byte_fallback", false, &fallback, err);
    if (fallback) parts->kind = KIND_SENTENCEPIECE;
    if (status == REEL_OK)
        status =
            json_get_bool(model, parts->name, "ignore_merges", false, &parts->ignore_merges, err);
    return status;
}

enum reel_status parts_add_vocabulary(struct tokenizer_parts *parts, const json_t *vocab,
                                      struct reel_error *err) {
    if (!json_is_object(vocab))
        return err_set(err, REEL_E_FORMAT, "%s: the vocabulary must be an object of texts and ids",
                       parts->name);
    for (void *i = json_object_iter((json_t *)(uintptr_t)vocab); i;
         i = json_object_iter_next((json_t *)(uintptr_t)vocab, i)) {
        const char *text = json_object_iter_key(i);
        const json_t *id = json_object_iter_value(i);
        if (!json_is_integer(id))
            return err_set(err, REEL_E_FORMAT, "%s: the id of token \"%.40s\" must be an integer",
                           parts->name, text);
        enum reel_status status =
            parts_add_word(parts, json_integer_value(id), text, strlen(text), err);
        if (status != REEL_OK) return status;
    }
    return REEL_OK;
}

static enum reel_status read_merges(struct tokenizer_parts *parts, const json_t *merges,
                                    struct reel_error *err) {
    if (!json_is_array(merges))
        return err_set(err, REEL_E_FORMAT, "%s: \"merges\" must be a list", parts->name);
    enum reel_status status = REEL_OK;
    for (size_t i = 0; status == REEL_OK && i < json_array_size(merges); i++) {
        const json_t *merge = json_array_get(merges, i);
        const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
        if (json_is_string(merge))
            status = parts_add_merge_line(parts, json_string_value(merge),
                                          json_string_length(merge), err);
        else if (json_array_size(merge) == 2 && json_is_string(left) && json_is_string(right))
            status = parts_add_merge(parts, json_string_value(left), json_string_length(left),
                                     json_string_value(right), json_string_length(right), err);
        else
            status = err_set(err, REEL_E_FORMAT, "%s: merge %zu must be \"a b\" or [\"a\", \"b\"]",
                             parts->name, i);
    }
    return status;
}

/* A token that is looked for in normalised text must be written in it. */
static enum reel_status check_normal(const struct tokenizer_parts *parts, const char *text,
                                     struct reel_error *err) {
    struct nfc_scratch scratch = { 0 };
    const char *normal = text;
    size_t n = strlen(text);
    if (!parts->nfc || n == 0 || utf8_valid_prefix(text, n) != n) return REEL_OK;
    enum reel_status status = nfc_text(&scratch, &normal, &n, err);
    if (status == REEL_OK && (n != strlen(text) || memcmp(normal, text, n) != 0))
        status = err_set(err, REEL_E_UNSUPPORTED,
                         "%s: added token \"%.40s\" with \"normalized\" true is not in NFC itself, "
                         "which is not supported",
                         parts->name, text);
    nfc_scratch_release(&scratch);
    return status;
}

static enum reel_status read_conditions(const struct tokenizer_parts *parts,
                                        const json_t *described, const char *text, uint32_t *flags,
                                        struct reel_error *err) {
    static const struct {
        const char *key;
        enum token_flag flag;
    } known[] = {
        { "lstrip", TOKEN_LSTRIP },
        { "rstrip", TOKEN_RSTRIP },
        { "single_word", TOKEN_SINGLE_WORD },
        { "normalized", TOKEN_NORMALIZED },
    };
    *flags = 0;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        bool set;
        enum reel_status status =
            json_get_bool(described, parts->name, known[i].key, false, &set, err);
        if (status != REEL_OK) return status;
        if (set) *flags |= known[i].flag;
    }
    /* Behind SentencePiece's normalizers a token is looked for with U+2581 in front of it.
     * Metaspace is none of them: such a token is found as it stands. */
    if (*flags & TOKEN_NORMALIZED && parts->normalizes)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: added token \"%.40s\" with \"normalized\" true is not supported with "
                       "the normalizer Prepend or Replace",
                       parts->name, text);
    if (parts->kind == KIND_SENTENCEPIECE) *flags &= ~(uint32_t)TOKEN_NORMALIZED;
    return *flags & TOKEN_NORMALIZED ? check_normal(parts, text, err) : REEL_OK;
}

enum reel_status parts_add_described(struct tokenizer_parts *parts, int64_t id,
                                     const json_t *described, struct reel_error *err) {
    const char *text;
    uint32_t flags = 0;
    bool control = false;
    const bool known =
        id >= 0 && (size_t)id < parts->n_tokens && parts->tokens[id].flags & TOKEN_ADDED;
    enum reel_status status = json_get_text(described, parts->name, "content", &text, err);
    if (status != REEL_OK) return status;
    if (!text)
        return err_set(err, REEL_E_FORMAT, "%s: added token %lld has no \"content\"", parts->name,
                       (long long)id);
    status = read_conditions(parts, described, text, &flags, err);
    if (status == REEL_OK)
        status = json_get_bool(described, parts->name, "special", false, &control, err);
    if (status == REEL_OK) status = parts_add_token(parts, id, text, strlen(text), control, err);
    if (status == REEL_OK && !known) parts->tokens[id].flags |= flags; /* the first file decides */
    return status;
}

static enum reel_status read_added(struct tokenizer_parts *parts, const json_t *root,
                                   struct reel_error *err) {
    const json_t *list = json_object_get(root, "added_tokens");
    const struct json_int_rule rule = { .key = "id",
                                        .max = TOKENIZER_MAX_TOKENS - 1,
                                        .required = true };
    if (list && !json_is_null(list) && !json_is_array(list))
        return err_set(err, REEL_E_FORMAT, "%s: \"added_tokens\" must be a list", parts->name);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *described = json_array_get(list, i);
        int64_t id;
        enum reel_status status = json_get_int(described, parts->name, &rule, &id, err);
        if (status == REEL_OK) status = parts_add_described(parts, id, described, err);
        if (status != REEL_OK) return status;
    }
    return REEL_OK;
}

static enum reel_status read_pipeline(struct tokenizer_parts *parts, const json_t *root,
                                      struct reel_error *err) {
    if (parts->kind == KIND_SENTENCEPIECE) return parts_read_spm(parts, root, err);
    enum reel_status status = read_normalizer(parts, root, err);
    if (status == REEL_OK)
        status = parts_read_pre_tokenizer(parts, json_object_get(root, "pre_tokenizer"), err);
    if (status == REEL_OK) status = read_decoder(parts, root, err);
    return status;
}

static enum reel_status read_root(struct tokenizer_parts *parts, const json_t *root,
                                  struct reel_error *err) {
    const json_t *model = json_object_get(root, "model");
    if (!json_is_object(model))
        return err_set(err, REEL_E_FORMAT, "%s: \"model\" must be an object", parts->name);
    enum reel_status status = read_model_options(parts, model, err);
    if (status == REEL_OK) status = read_pipeline(parts, root, err);
    if (status == REEL_OK)
        status = parts_read_post_processor(parts, json_object_get(root, "post_processor"), err);
    if (status == REEL_OK)
        status = parts_add_vocabulary(parts, json_object_get(model, "vocab"), err);
    if (status == REEL_OK) status = read_merges(parts, json_object_get(model, "merges"), err);
    if (status == REEL_OK) status = read_added(parts, root, err);
    return status;
}

enum reel_status parts_from_json(struct tokenizer_parts *parts, const char *name,
                                 const struct file_map *file, const char *config_name,
                                 const struct file_map *config, struct reel_error *err) {
    json_t *root = NULL;
    parts->name = name;
    enum reel_status status = json_read(&root, name, file->bytes, file->size, err);
    if (status == REEL_OK) status = read_root(parts, root, err);
    json_decref(root);
    if (status != REEL_OK || !config) return status;
    root = NULL;
    parts->name = config_name;
    status = json_read(&root, config_name, config->bytes, config->size, err);
    if (status == REEL_OK) status = parts_add_config_tokens(parts, root, err);
    json_decref(root);
    parts->name = name;
    return status;
}
