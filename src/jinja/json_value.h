/* JSON as foreign values. */
#ifndef REEL_JINJA_JSON_VALUE_H
#define REEL_JINJA_JSON_VALUE_H

#include "jinja/text.h"

/* `what` names the text in messages. */
struct value json_read_value(struct job *job, const char *what, const char *text, size_t n);
struct value json_tree_value(struct job *job, const json_t *json);

/* Decimal digits, which the value may borrow, as an integer of any length. */
struct value big_or_int(struct job *job, const char *text, size_t n, bool foreign);

#endif
