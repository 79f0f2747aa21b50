/* Chat templates in Jinja, evaluated as Hugging Face transformers evaluates them: jinja2's
 * ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks, loop controls, `generation`
 * blocks, and transformers' own tojson, raise_exception and strftime_now. docs/TEMPLATES.md says
 * what is evaluated and what is refused.
 *
 *   struct jinja_template   a parsed template: immutable, shared by any number of threads
 *   struct jinja_values     the variables of a rendering, and the memory it works in: one thread
 *
 * Templates come from strangers. A rendering can read no file and call nothing outside, and each of
 * its costs has a limit.
 *
 * Text is marked. Each byte of the output either comes from the template (its own words, and texts
 * that the caller declares as its own) or is foreign (messages, tools, documents). A byte that is
 * made from foreign text in any way is foreign. The caller lets only a template's own bytes become
 * control tokens. */
#ifndef REEL_JINJA_JINJA_H
#define REEL_JINJA_JINJA_H

#include "base/json.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Beyond any of these: REEL_E_LIMIT, and the message names the limit and the line. */
struct jinja_limits {
    size_t source_bytes; /* of a template's text */
    int parse_depth;     /* blocks, parentheses and operators inside each other */
    size_t steps;        /* a step is an expression, a statement, an item, or some 16 bytes of text
                            that are looked at */
    size_t memory_bytes; /* of values and their texts, those of the variables included */
    size_t output_bytes;
    int call_depth;  /* macros and recursive loops inside each other */
    int value_depth; /* lists and mappings inside each other */
};
struct jinja_limits jinja_default_limits(void);

struct jinja_template;

/* `name` is the template's in messages ("chat_template.jinja"). limits may be NULL: the defaults.
 * What jinja2 refuses before rendering is refused here: bad syntax, unknown tags, filters and
 * tests; REEL_E_FORMAT. include, import, extends, block and autoescape are REEL_E_UNSUPPORTED. */
enum reel_status jinja_template_open(struct jinja_template **out, const char *name,
                                     const char *text, size_t n_bytes,
                                     const struct jinja_limits *limits, struct reel_error *err);
void jinja_template_close(struct jinja_template *template);

/* Whether the template reads a variable of this name anywhere ("tools", "enable_thinking"). */
bool jinja_template_reads(const struct jinja_template *template, const char *name);

/* ---- values ---------------------------------------------------------------------------------- */

/* Whose word a value is. */
enum jinja_origin { JINJA_FOREIGN, JINJA_OWN };

struct jinja_values;
struct jinja_value; /* lives as long as its struct jinja_values; never changes once it is rendered
                     */

/* limits may be NULL: the defaults. */
enum reel_status jinja_values_open(struct jinja_values **out, const struct jinja_limits *limits,
                                   struct reel_error *err);
void jinja_values_close(struct jinja_values *values);

/* What makes values returns NULL when it fails (no memory, a limit, text that is not UTF-8). The
 * first failure is kept: later calls do nothing, take NULL for any value, and jinja_render returns
 * that failure. So a caller needs no checks while it builds. */
struct jinja_value *jinja_none(struct jinja_values *values);
struct jinja_value *jinja_bool(struct jinja_values *values, bool b);
struct jinja_value *jinja_int(struct jinja_values *values, int64_t i);
/* Copies the text, which is UTF-8 and may hold NUL bytes. */
struct jinja_value *jinja_text(struct jinja_values *values, const char *text, size_t n_bytes,
                               enum jinja_origin origin);
/* As Python's json.loads: the last of duplicate keys counts, integers of any length stay exact,
 * 1.0 stays a float. Everything in it, keys too, is foreign. `what` names it in messages. */
struct jinja_value *jinja_json_text(struct jinja_values *values, const char *what, const char *text,
                                    size_t n_bytes);
/* The same of a tree. */
struct jinja_value *jinja_json(struct jinja_values *values, const json_t *json);
struct jinja_value *jinja_list(struct jinja_values *values);
void jinja_list_append(struct jinja_values *values, struct jinja_value *list,
                       const struct jinja_value *item);
/* Keys keep the order in which they were first set. A key is copied. */
struct jinja_value *jinja_map(struct jinja_values *values);
void jinja_map_set(struct jinja_values *values, struct jinja_value *map, const char *key,
                   const struct jinja_value *item);

/* Names a variable of the template: "messages", "bos_token". A second call replaces the first. A
 * variable that has no name here is undefined, which a template can ask; None is another thing. */
void jinja_variable(struct jinja_values *values, const char *name, const struct jinja_value *value);

/* ---- rendering ------------------------------------------------------------------------------- */

struct jinja_run {
    size_t n_bytes; /* above 0 */
    bool own;       /* the template's own words; else foreign */
};

/* Neighbouring runs differ in `own`; together they are the whole text. */
struct jinja_output {
    char *text; /* NUL after it; never NULL after success */
    size_t n_bytes;
    struct jinja_run *runs;
    int n_runs;
};

/* The same values may be rendered by several templates, one after the other. `now` is what
 * strftime_now tells (local time is the caller's business); NULL: the clock's local time.
 * raise_exception is REEL_E_ARGUMENT with the template's words; what Python raises while it renders
 * is REEL_E_FORMAT. Both messages begin with the template's name and the line. */
enum reel_status jinja_render(struct jinja_output *out, const struct jinja_template *template,
                              struct jinja_values *values, const struct tm *now,
                              struct reel_error *err);
void jinja_output_release(struct jinja_output *output);

#endif
