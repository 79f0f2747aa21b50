/* The pre_tokenizer of tokenizer.json: a chain of stages that ends in bytes. */
#include "base/json.h"
#include "model/tokenizer_parts.h"

struct chain {
    struct tokenizer_parts *parts;
    int n_steps;
    bool bytes; /* ByteLevel was there */
};

static const char *type_of(const json_t *object) {
    const char *type = json_string_value(json_object_get(object, "type"));
    return type ? type : "(no type)";
}

static bool is_type(const json_t *object, const char *type) {
    return strcmp(type_of(object), type) == 0;
}

static enum reel_status add(const struct chain *c, enum split_what what,
                            enum split_behaviour behaviour, bool inverted, const char *regex,
                            struct reel_error *err) {
    return split_add(&c->parts->plan, what, behaviour, inverted, regex, err);
}

static enum reel_status get_flag(const struct chain *c, const json_t *step, const char *key,
                                 bool fallback, bool *out, struct reel_error *err) {
    return json_get_bool(step, c->parts->name, key, fallback, out, err);
}

/* `fallback` where the file need not name it; NULL where it must. */
static enum reel_status get_behaviour(const struct chain *c, const json_t *step,
                                      const char *fallback, enum split_behaviour *out,
                                      struct reel_error *err) {
    static const struct {
        const char *name;
        enum split_behaviour behaviour;
    } known[] = {
        { "Isolated", SPLIT_ISOLATED },        { "Removed", SPLIT_REMOVED },
        { "Contiguous", SPLIT_CONTIGUOUS },    { "MergedWithPrevious", SPLIT_WITH_PREVIOUS },
        { "MergedWithNext", SPLIT_WITH_NEXT },
    };
    const char *name = json_string_value(json_object_get(step, "behavior"));
    if (!name) name = fallback;
    for (size_t i = 0; name && i < sizeof known / sizeof known[0]; i++) {
        *out = known[i].behaviour;
        if (strcmp(name, known[i].name) == 0) return REEL_OK;
    }
    return err_set(
        err, REEL_E_UNSUPPORTED,
        "%s: %s with behavior \"%.40s\" is not supported: Isolated, Removed, Contiguous, "
        "MergedWithPrevious and MergedWithNext are",
        c->parts->name, type_of(step), name ? name : "(none)");
}

/* A text to look for as the expression that finds it. */
static enum reel_status quote(struct buffer *out, const char *text, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    for (; status == REEL_OK && *text; text++) {
        unsigned char c = (unsigned char)*text;
        bool plain = c >= 0x80 || c == ' ' || c == '_' || (c >= '0' && c <= '9') ||
                     ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
        status = buffer_printf(out, err, plain ? "%c" : "\\%c", c);
    }
    return status;
}

static enum reel_status add_split(const struct chain *c, const json_t *step,
                                  struct reel_error *err) {
    const json_t *pattern = json_object_get(step, "pattern");
    const char *regex = json_string_value(json_object_get(pattern, "Regex"));
    const char *text = json_string_value(json_object_get(pattern, "String"));
    enum split_behaviour behaviour = SPLIT_ISOLATED;
    struct buffer quoted = { 0 };
    bool inverted = false;
    if (!regex && !text)
        return err_set(err, REEL_E_FORMAT,
                       "%s: a Split needs a \"pattern\" of \"Regex\" or \"String\"",
                       c->parts->name);
    enum reel_status status = get_behaviour(c, step, NULL, &behaviour, err);
    if (status == REEL_OK) status = get_flag(c, step, "invert", false, &inverted, err);
    if (status == REEL_OK && !regex) status = quote(&quoted, text, err);
    if (status == REEL_OK)
        status = add(c, SPLIT_REGEX, behaviour, inverted,
                     regex          ? regex
                     : quoted.bytes ? quoted.bytes
                                    : "",
                     err);
    buffer_release(&quoted);
    return status;
}

static enum reel_status add_byte_level(struct chain *c, const json_t *step,
                                       struct reel_error *err) {
    bool prefix = true, use_regex = true;
    enum reel_status status = get_flag(c, step, "add_prefix_space", true, &prefix, err);
    if (status == REEL_OK) status = get_flag(c, step, "use_regex", true, &use_regex, err);
    if (status != REEL_OK) return status;
    if (c->bytes)
        return err_set(err, REEL_E_UNSUPPORTED, "%s: a second ByteLevel is not supported",
                       c->parts->name);
    if (prefix && c->n_steps > 0)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: ByteLevel with \"add_prefix_space\" true behind another pre_tokenizer "
                       "is not supported",
                       c->parts->name);
    if (prefix) status = add(c, SPLIT_PREFIX, SPLIT_ISOLATED, false, "", err);
    if (status == REEL_OK && use_regex)
        status = add(c, SPLIT_REGEX, SPLIT_ISOLATED, false, split_regex_gpt2, err);
    if (status == REEL_OK) status = add(c, SPLIT_BYTES, SPLIT_ISOLATED, false, "", err);
    c->bytes = true;
    return status;
}

static enum reel_status add_step(struct chain *c, const json_t *step, struct reel_error *err) {
    enum split_behaviour behaviour = SPLIT_ISOLATED;
    enum reel_status status = REEL_OK;
    bool single = false;
    if (is_type(step, "Split")) {
        status = add_split(c, step, err);
    } else if (is_type(step, "ByteLevel")) {
        status = add_byte_level(c, step, err);
    } else if (is_type(step, "Digits")) {
        status = get_flag(c, step, "individual_digits", false, &single, err);
        behaviour = single ? SPLIT_ISOLATED : SPLIT_CONTIGUOUS;
        if (status == REEL_OK) status = add(c, SPLIT_NUMERIC, behaviour, false, "", err);
    } else if (is_type(step, "Punctuation")) {
        status = get_behaviour(c, step, "Isolated", &behaviour, err);
        if (status == REEL_OK) status = add(c, SPLIT_PUNCTUATION, behaviour, false, "", err);
    } else if (is_type(step, "WhitespaceSplit")) {
        status = add(c, SPLIT_REGEX, SPLIT_REMOVED, false, "\\s", err);
    } else {
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: pre_tokenizer \"%.80s\" is not supported: ByteLevel, Split, Digits, "
                       "Punctuation, WhitespaceSplit and Sequences of them are",
                       c->parts->name, type_of(step));
    }
    c->n_steps++;
    return status;
}

enum reel_status parts_read_pre_tokenizer(struct tokenizer_parts *parts, const json_t *step,
                                          struct reel_error *err) {
    struct chain c = { .parts = parts };
    enum reel_status status = REEL_OK;
    if (step && is_type(step, "Sequence")) {
        const json_t *list = json_object_get(step, "pretokenizers");
        for (size_t i = 0; status == REEL_OK && i < json_array_size(list); i++)
            status = add_step(&c, json_array_get(list, i), err);
    } else {
        status = add_step(&c, step, err);
    }
    if (status != REEL_OK || c.bytes) return status;
    return err_set(err, REEL_E_UNSUPPORTED,
                   "%s: the pre_tokenizer has no ByteLevel: this vocabulary is not one of bytes",
                   parts->name);
}

enum reel_status parts_set_regex(struct tokenizer_parts *parts, const char *regex,
                                 struct reel_error *err) {
    parts->plan.size = 0;
    enum reel_status status =
        split_add(&parts->plan, SPLIT_REGEX, SPLIT_ISOLATED, false, regex, err);
    if (status == REEL_OK)
        status = split_add(&parts->plan, SPLIT_BYTES, SPLIT_ISOLATED, false, "", err);
    return status;
}
