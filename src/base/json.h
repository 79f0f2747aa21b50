/* JSON files (jansson) with typed look-ups whose errors name file and key. */
#ifndef REEL_BASE_JSON_H
#define REEL_BASE_JSON_H

#include "base/error.h"

#include <jansson.h>

/* Parses n bytes of hostile JSON: duplicate keys, bad UTF-8, deep nesting and trailing bytes are
 * refused. `name` is the file in messages. *out is released with json_decref. */
enum reel_status json_read(json_t **out, const char *name, const void *bytes, size_t n,
                           struct reel_error *err);

/* The same for texts that programs hand over: \u0000 is allowed in values, every number is read as
 * a double. */
enum reel_status json_read_lenient(json_t **out, const char *name, const void *bytes, size_t n,
                                   struct reel_error *err);

/* For requests: \u0000 is allowed in values, and integers stay integers, so that they are written
 * as such where a part of the request is written again. */
enum reel_status json_read_request(json_t **out, const char *name, const void *bytes, size_t n,
                                   struct reel_error *err);

/* An integer in [min, max]; a missing key (or null) gives `fallback`, or an error when `required`.
 */
struct json_int_rule {
    const char *key;
    int64_t min, max;
    int64_t fallback;
    bool required;
};
enum reel_status json_get_int(const json_t *object, const char *name,
                              const struct json_int_rule *rule, int64_t *out,
                              struct reel_error *err);

/* A finite number in [min, max]. */
struct json_real_rule {
    const char *key;
    double min, max;
    double fallback;
    bool required;
};
enum reel_status json_get_real(const json_t *object, const char *name,
                               const struct json_real_rule *rule, double *out,
                               struct reel_error *err);

enum reel_status json_get_bool(const json_t *object, const char *name, const char *key,
                               bool fallback, bool *out, struct reel_error *err);

/* A string, borrowed from the object; NULL when missing or null. */
enum reel_status json_get_text(const json_t *object, const char *name, const char *key,
                               const char **out, struct reel_error *err);

/* *text (caller frees) is the value as indented JSON. jansson's own json_dumps can leave out a
 * piece when memory runs out and still succeed; this one cannot. `what` names it in messages. */
enum reel_status json_write(char **text, const json_t *value, const char *what,
                            struct reel_error *err);
/* The same on one line, without spaces. */
enum reel_status json_write_compact(char **text, const json_t *value, const char *what,
                                    struct reel_error *err);

#endif
