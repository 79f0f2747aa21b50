/* Fields of a request's JSON. A field that is missing or null leaves *out as it was. A value that
 * is not allowed is answered with 400, naming the field, and gives false. */
#ifndef REEL_SERVER_FIELDS_H
#define REEL_SERVER_FIELDS_H

#include "base/json.h"
#include "server/exchange.h"

/* The body as an object; json_decref. Answers 400 for anything else. */
bool fields_body(struct exchange *x, json_t **out);

bool field_int(struct exchange *x, const json_t *object, const char *key, int64_t least,
               int64_t most, int64_t *out);
bool field_real(struct exchange *x, const json_t *object, const char *key, double least,
                double most, double *out);
bool field_bool(struct exchange *x, const json_t *object, const char *key, bool *out);
/* Borrowed from the object; refuses a text with a zero byte. */
bool field_text(struct exchange *x, const json_t *object, const char *key, const char **out);

/* Answers 400 and gives false. */
bool field_refuse(struct exchange *x, const char *key, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
