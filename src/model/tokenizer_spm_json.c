/* What tokenizer.json says about a SentencePiece tokenizer besides its vocabulary: how spaces are
 * written, and how tokens become text again. Two ways are in use: normalizers that put U+2581 in
 * front and replace spaces by it (Llama 2), and the pre-tokenizer Metaspace that does both (newer
 * files). They differ before a text that starts with a space: the first adds another. */
#include "base/json.h"
#include "model/tokenizer_parts.h"
#include "model/tokenizer_utf8.h"

static const char *type_of(const json_t *object) {
    const char *type = json_string_value(json_object_get(object, "type"));
    return type ? type : "(none)";
}

static bool is_type(const json_t *object, const char *type) {
    return strcmp(type_of(object), type) == 0;
}

static bool is_text(const json_t *object, const char *key, const char *wanted) {
    const char *text = json_string_value(json_object_get(object, key));
    return text && strcmp(text, wanted) == 0;
}

static bool is_absent(const json_t *object) { return !object || json_is_null(object); }

static enum reel_status refuse(const struct tokenizer_parts *parts, const char *what,
                               const char *found, const char *allowed, struct reel_error *err) {
    return err_set(err, REEL_E_UNSUPPORTED,
                   "%s: %s \"%.80s\" is not supported with byte_fallback: %s", parts->name, what,
                   found, allowed);
}

/* Replace, from one text to another. */
static bool is_replace(const json_t *step, const char *from, const char *to) {
    return is_type(step, "Replace") && is_text(json_object_get(step, "pattern"), "String", from) &&
           is_text(step, "content", to);
}

static enum reel_status read_normalizer(struct tokenizer_parts *parts, const json_t *normalizer,
                                        struct reel_error *err) {
    bool sequence = is_type(normalizer, "Sequence"), replaces = false;
    const json_t *list = sequence ? json_object_get(normalizer, "normalizers") : NULL;
    size_t n = sequence ? json_array_size(list) : 1;
    parts->normalizes = true;
    for (size_t i = 0; i < n; i++) {
        const json_t *step = sequence ? json_array_get(list, i) : normalizer;
        if (is_type(step, "Prepend") && is_text(step, "prepend", SPM_SPACE) &&
            parts->prefix == PREFIX_NONE)
            parts->prefix = PREFIX_EACH;
        else if (is_replace(step, " ", SPM_SPACE))
            replaces = true;
        else
            return refuse(parts, "normalizer", type_of(step),
                          "Prepend of U+2581 and Replace of a space by U+2581 are", err);
    }
    if (replaces) return REEL_OK;
    return refuse(parts, "a normalizer without", "Replace", "spaces must become U+2581", err);
}

/* Files of old versions have add_prefix_space instead of prepend_scheme. */
static enum reel_status read_scheme(struct tokenizer_parts *parts, const json_t *step,
                                    struct reel_error *err) {
    const char *scheme;
    bool prefix;
    enum reel_status status = json_get_text(step, parts->name, "prepend_scheme", &scheme, err);
    if (status == REEL_OK)
        status = json_get_bool(step, parts->name, "add_prefix_space", true, &prefix, err);
    if (status != REEL_OK) return status;
    if (!scheme) scheme = prefix ? "always" : "never";
    if (strcmp(scheme, "always") == 0)
        parts->prefix = PREFIX_EACH;
    else if (strcmp(scheme, "first") == 0)
        parts->prefix = PREFIX_FIRST;
    else if (strcmp(scheme, "never") != 0)
        return refuse(parts, "prepend_scheme", scheme, "always, first and never are", err);
    parts->prefix_new = true;
    return REEL_OK;
}

static enum reel_status read_metaspace(struct tokenizer_parts *parts, const json_t *step,
                                       struct reel_error *err) {
    if (!is_type(step, "Metaspace"))
        return refuse(parts, "pre_tokenizer", type_of(step), "Metaspace or none", err);
    if (!is_text(step, "replacement", SPM_SPACE))
        return refuse(parts, "Metaspace with another replacement than", SPM_SPACE,
                      "it must be U+2581", err);
    enum reel_status status = read_scheme(parts, step, err);
    if (status != REEL_OK) return status;
    return json_get_bool(step, parts->name, "split", true, &parts->cut_spaces, err);
}

/* Strip takes one space off the start of the whole text. */
static enum reel_status read_strip(struct tokenizer_parts *parts, const json_t *step,
                                   struct reel_error *err) {
    const struct json_int_rule start = { .key = "start", .max = 1 }, stop = { .key = "stop" };
    int64_t n_start, n_stop;
    enum reel_status status = json_get_int(step, parts->name, &start, &n_start, err);
    if (status == REEL_OK) status = json_get_int(step, parts->name, &stop, &n_stop, err);
    if (status != REEL_OK) return status;
    if (!is_text(step, "content", " "))
        return refuse(parts, "decoder Strip of", "another text", "a space is", err);
    parts->strip = n_start == 1;
    return REEL_OK;
}

static enum reel_status read_decoder(struct tokenizer_parts *parts, const json_t *decoder,
                                     struct reel_error *err) {
    static const char allowed[] =
        "a Sequence of Replace of U+2581 by a space, ByteFallback, Fuse and Strip is";
    const json_t *list = json_object_get(decoder, "decoders");
    size_t n = json_array_size(list);
    if (!is_type(decoder, "Sequence"))
        return refuse(parts, "decoder", type_of(decoder), allowed, err);
    if (n < 3 || n > 4 || !is_replace(json_array_get(list, 0), SPM_SPACE, " ") ||
        !is_type(json_array_get(list, 1), "ByteFallback") ||
        !is_type(json_array_get(list, 2), "Fuse") ||
        (n == 4 && !is_type(json_array_get(list, 3), "Strip")))
        return refuse(parts, "decoder", "another Sequence", allowed, err);
    return n == 4 ? read_strip(parts, json_array_get(list, 3), err) : REEL_OK;
}

enum reel_status parts_read_spm(struct tokenizer_parts *parts, const json_t *root,
                                struct reel_error *err) {
    const json_t *normalizer = json_object_get(root, "normalizer");
    const json_t *step = json_object_get(root, "pre_tokenizer");
    enum reel_status status = REEL_OK;
    if (parts->ignore_merges) return refuse(parts, "model with", "ignore_merges", "false is", err);
    if (is_absent(normalizer)) {
        status = read_metaspace(parts, step, err);
    } else {
        status = read_normalizer(parts, normalizer, err);
        if (status == REEL_OK && !is_absent(step))
            status = refuse(parts, "a normalizer with pre_tokenizer", type_of(step),
                            "only one of both may be there", err);
    }
    return status == REEL_OK ? read_decoder(parts, json_object_get(root, "decoder"), err) : status;
}
