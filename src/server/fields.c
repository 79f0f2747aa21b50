#include "server/fields.h"

#include "server/api_error.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A parsed value takes up to forty times its two bytes of text ("1,"), so their number is bounded.
 */
#define MOST_VALUES ((size_t)4 << 20)

/* At least as many as there are values: what stands between them, outside of texts. */
static size_t count_values(const char *body, size_t n) {
    size_t values = 0;
    bool inside = false;
    for (size_t i = 0; i < n; i++) {
        if (inside && body[i] == '\\') {
            i++;
        } else if (body[i] == '"') {
            inside = !inside;
        } else if (!inside) {
            values += body[i] == ',' || body[i] == '[' || body[i] == '{';
        }
    }
    return values;
}

bool fields_body(struct exchange *x, json_t **out) {
    size_t n = 0;
    const char *body = exchange_body(x, &n);
    struct reel_error err = { 0 };
    *out = NULL;
    if (count_values(body, n) > MOST_VALUES) {
        api_error(x, 413, NULL, NULL, "the body has more than %zu values", MOST_VALUES);
        return false;
    }
    if (json_read_request(out, "the body", body, n, &err) != REEL_OK) {
        api_error(x, 400, NULL, NULL, "%s", err.text);
        return false;
    }
    if (json_is_object(*out)) return true;
    json_decref(*out);
    *out = NULL;
    api_error(x, 400, NULL, NULL, "the body is no JSON object");
    return false;
}

bool field_refuse(struct exchange *x, const char *key, const char *format, ...) {
    char text[400];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    api_error(x, 400, key, NULL, "'%s' %s", key, text);
    return false;
}

static const char *kind_of(const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a text";
    case JSON_INTEGER:
    case JSON_REAL:
        return "a number";
    default:
        return json_is_null(value) ? "null" : "true or false";
    }
}

static const json_t *given(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return json_is_null(value) ? NULL : value;
}

bool field_int(struct exchange *x, const json_t *object, const char *key, int64_t least,
               int64_t most, int64_t *out) {
    const json_t *value = given(object, key);
    if (!value) return true;
    if (!json_is_number(value))
        return field_refuse(x, key, "is %s; it must be a whole number", kind_of(value));
    double number = json_number_value(value);
    if (!(number >= (double)least && number <= (double)most) || number != floor(number))
        return field_refuse(x, key, "is %g; allowed are %" PRId64 " to %" PRId64, number, least,
                            most);
    *out = json_is_integer(value) ? json_integer_value(value) : (int64_t)number;
    return true;
}

bool field_real(struct exchange *x, const json_t *object, const char *key, double least,
                double most, double *out) {
    const json_t *value = given(object, key);
    if (!value) return true;
    if (!json_is_number(value))
        return field_refuse(x, key, "is %s; it must be a number", kind_of(value));
    double number = json_number_value(value);
    if (!(number >= least && number <= most))
        return field_refuse(x, key, "is %g; allowed are %g to %g", number, least, most);
    *out = number;
    return true;
}

bool field_bool(struct exchange *x, const json_t *object, const char *key, bool *out) {
    const json_t *value = given(object, key);
    if (!value) return true;
    if (!json_is_boolean(value))
        return field_refuse(x, key, "is %s; it must be true or false", kind_of(value));
    *out = json_is_true(value);
    return true;
}

bool field_text(struct exchange *x, const json_t *object, const char *key, const char **out) {
    const json_t *value = given(object, key);
    if (!value) return true;
    if (!json_is_string(value))
        return field_refuse(x, key, "is %s; it must be a text", kind_of(value));
    if (strlen(json_string_value(value)) != json_string_length(value))
        return field_refuse(x, key, "has a zero byte in it");
    *out = json_string_value(value);
    return true;
}
