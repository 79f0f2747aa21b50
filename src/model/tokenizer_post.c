/* The post_processor of tokenizer.json: the tokens that it puts around a single text. */
#include "base/json.h"
#include "model/tokenizer_parts.h"

static const char *type_of(const json_t *object) {
    const char *type = json_string_value(json_object_get(object, "type"));
    return type ? type : "(no type)";
}

/* Puts the ids of a template's special token on the side of the text where it stands. */
static enum reel_status add_special(struct tokenizer_parts *parts, const json_t *template,
                                    const char *name, bool after, struct reel_error *err) {
    const json_t *token = json_object_get(json_object_get(template, "special_tokens"), name);
    const json_t *ids = json_object_get(token, "ids");
    const size_t n = json_array_size(ids);
    if (n == 0)
        return err_set(err, REEL_E_FORMAT,
                       "%s: the post_processor has no \"ids\" for its special token \"%.40s\"",
                       parts->name, name);
    enum reel_status status = REEL_OK;
    for (size_t i = 0; status == REEL_OK && i < n; i++) {
        const json_t *id = json_array_get(ids, after ? i : n - 1 - i); /* from the text outwards */
        if (!json_is_integer(id))
            return err_set(err, REEL_E_FORMAT,
                           "%s: the ids of the post_processor's \"%.40s\" must be integers",
                           parts->name, name);
        status = parts_add_around(parts, json_integer_value(id), after, err);
    }
    return status;
}

static enum reel_status add_place(struct tokenizer_parts *parts, const json_t *template, size_t at,
                                  bool after, struct reel_error *err) {
    const json_t *place = json_array_get(json_object_get(template, "single"), at);
    const char *name =
        json_string_value(json_object_get(json_object_get(place, "SpecialToken"), "id"));
    if (name) return add_special(parts, template, name, after, err);
    return err_set(
        err, REEL_E_FORMAT,
        "%s: the post_processor's \"single\" must hold special tokens and the text A once",
        parts->name);
}

/* The text's place in the template; its length when the text has none. */
static size_t text_at(const json_t *single) {
    size_t at = 0;
    while (at < json_array_size(single) && !json_object_get(json_array_get(single, at), "Sequence"))
        at++;
    return at;
}

static enum reel_status read_template(struct tokenizer_parts *parts, const json_t *template,
                                      struct reel_error *err) {
    const json_t *single = json_object_get(template, "single");
    const size_t n = json_array_size(single), text = text_at(single);
    const char *which = json_string_value(
        json_object_get(json_object_get(json_array_get(single, text), "Sequence"), "id"));
    if (!which || strcmp(which, "A") != 0)
        return err_set(err, REEL_E_FORMAT,
                       "%s: the post_processor's \"single\" must be a list that holds the text A",
                       parts->name);
    enum reel_status status = REEL_OK;
    for (size_t i = text; status == REEL_OK && i-- > 0;)
        status = add_place(parts, template, i, false, err);
    for (size_t i = text + 1; status == REEL_OK && i < n; i++)
        status = add_place(parts, template, i, true, err);
    return status;
}

static enum reel_status read_step(struct tokenizer_parts *parts, const json_t *step,
                                  struct reel_error *err) {
    const char *type = type_of(step);
    if (strcmp(type, "ByteLevel") == 0) return REEL_OK; /* concerns offsets alone */
    if (strcmp(type, "TemplateProcessing") == 0) return read_template(parts, step, err);
    return err_set(err, REEL_E_UNSUPPORTED,
                   "%s: post_processor \"%.80s\" is not supported: ByteLevel, TemplateProcessing "
                   "or a Sequence of these",
                   parts->name, type);
}

enum reel_status parts_read_post_processor(struct tokenizer_parts *parts, const json_t *post,
                                           struct reel_error *err) {
    if (!post || json_is_null(post)) return REEL_OK;
    if (strcmp(type_of(post), "Sequence") != 0) return read_step(parts, post, err);
    const json_t *steps = json_object_get(post, "processors");
    enum reel_status status = REEL_OK;
    for (size_t i = 0; status == REEL_OK && i < json_array_size(steps); i++)
        status = read_step(parts, json_array_get(steps, i), err);
    return status;
}
