/* Typed look-ups in a parsed tree. */
#include "base/json.h"

#include "base/buffer.h"

#include <math.h>
#include <stdlib.h>

static const char *type_name(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a fraction";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        return "null";
    }
    return "unknown";
}

/* The value under key, or NULL when it is missing or null. */
static const json_t *present(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return value && !json_is_null(value) ? value : NULL;
}

static enum reel_status missing(const char *name, const char *key, struct reel_error *err) {
    return err_set(err, REEL_E_FORMAT, "%s: \"%s\" is missing", name, key);
}

static enum reel_status wrong_type(const char *name, const char *key, const char *wanted,
                                   const json_t *found, struct reel_error *err) {
    return err_set(err, REEL_E_FORMAT, "%s: \"%s\" must be %s, found %s", name, key, wanted,
                   type_name(found));
}

enum reel_status json_get_int(const json_t *object, const char *name,
                              const struct json_int_rule *rule, int64_t *out,
                              struct reel_error *err) {
    const json_t *value = present(object, rule->key);
    *out = rule->fallback;
    if (!value) return rule->required ? missing(name, rule->key, err) : REEL_OK;
    if (!json_is_integer(value)) return wrong_type(name, rule->key, "an integer", value, err);
    *out = json_integer_value(value);
    if (*out >= rule->min && *out <= rule->max) return REEL_OK;
    return err_set(err, REEL_E_LIMIT, "%s: \"%s\" is %lld, allowed are %lld to %lld", name,
                   rule->key, (long long)*out, (long long)rule->min, (long long)rule->max);
}

enum reel_status json_get_real(const json_t *object, const char *name,
                               const struct json_real_rule *rule, double *out,
                               struct reel_error *err) {
    const json_t *value = present(object, rule->key);
    *out = rule->fallback;
    if (!value) return rule->required ? missing(name, rule->key, err) : REEL_OK;
    if (!json_is_number(value)) return wrong_type(name, rule->key, "a number", value, err);
    *out = json_number_value(value);
    if (isfinite(*out) && *out >= rule->min && *out <= rule->max) return REEL_OK;
    return err_set(err, REEL_E_LIMIT, "%s: \"%s\" is %g, allowed are %g to %g", name, rule->key,
                   *out, rule->min, rule->max);
}

enum reel_status json_get_bool(const json_t *object, const char *name, const char *key,
                               bool fallback, bool *out, struct reel_error *err) {
    const json_t *value = present(object, key);
    *out = fallback;
    if (!value) return REEL_OK;
    if (!json_is_boolean(value)) return wrong_type(name, key, "true or false", value, err);
    *out = json_is_true(value);
    return REEL_OK;
}

enum reel_status json_get_text(const json_t *object, const char *name, const char *key,
                               const char **out, struct reel_error *err) {
    const json_t *value = present(object, key);
    *out = NULL;
    if (!value) return REEL_OK;
    if (!json_is_string(value)) return wrong_type(name, key, "a string", value, err);
    *out = json_string_value(value);
    return REEL_OK;
}

struct json_writer {
    struct buffer text;
    bool failed;
};

static int write_piece(const char *piece, size_t n, void *user) {
    struct json_writer *w = user;
    if (!w->failed && buffer_append(&w->text, piece, n, NULL) != REEL_OK) w->failed = true;
    return w->failed ? -1 : 0;
}

static enum reel_status write_as(char **text, const json_t *value, size_t flags, const char *what,
                                 struct reel_error *err) {
    struct json_writer w = { 0 };
    int result = json_dump_callback(value, write_piece, &w,
                                    flags | JSON_REAL_PRECISION(15) | JSON_ENCODE_ANY);
    *text = NULL;
    if (result == 0 && !w.failed) *text = buffer_detach(&w.text, NULL);
    buffer_release(&w.text);
    return *text ? REEL_OK : err_memory(err, what, 0);
}

enum reel_status json_write(char **text, const json_t *value, const char *what,
                            struct reel_error *err) {
    return write_as(text, value, JSON_INDENT(2), what, err);
}

enum reel_status json_write_compact(char **text, const json_t *value, const char *what,
                                    struct reel_error *err) {
    return write_as(text, value, JSON_COMPACT, what, err);
}
