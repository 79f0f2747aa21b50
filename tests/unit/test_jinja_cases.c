/* Small templates against what transformers' own Jinja environment made of them
 * (tools/make_jinja_goldens.py): every operator, filter, test, method and block, and what is an
 * error. */
#include "jinja/jinja.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The clock of the goldens: 2024-01-05 15:04:09, a Friday. */
static const struct tm now = { .tm_year = 124,
                               .tm_mday = 5,
                               .tm_hour = 15,
                               .tm_min = 4,
                               .tm_sec = 9,
                               .tm_wday = 5,
                               .tm_yday = 4 };

static json_t *goldens(void) {
    json_error_t err;
    json_t *root = json_load_file("tests/fixtures/jinja/cases.json", JSON_ALLOW_NUL, &err);
    if (!root) fail_msg("cases.json: %s", err.text);
    return root;
}

static struct jinja_values *variables(const json_t *texts) {
    struct jinja_values *values = NULL;
    const char *name = NULL;
    json_t *text = NULL;
    assert_int_equal(jinja_values_open(&values, NULL, NULL), REEL_OK);
    json_object_foreach((json_t *)texts, name, text) jinja_variable(
        values, name,
        jinja_json_text(values, name, json_string_value(text), json_string_length(text)));
    return values;
}

/* What is wrong with an error, or NULL. */
static const char *wrong_error(const json_t *wanted, const struct reel_error *err) {
    const char *kind = json_string_value(json_object_get(wanted, "error"));
    const char *message = json_string_value(json_object_get(wanted, "message"));
    char place[32];
    if (!strcmp(kind, "TemplateSyntaxError")) {
        snprintf(place, sizeof place,
                 "case:%d: ", (int)json_integer_value(json_object_get(wanted, "line")));
        if (strncmp(err->text, place, strlen(place)) != 0) return "the line";
    }
    if (!strcmp(kind, "TemplateError") && err->status != REEL_E_ARGUMENT) return "the status";
    if (message && !strstr(err->text, message)) return "the message";
    return NULL;
}

/* Whether the case is as transformers has it; says how not. */
static bool agrees(const json_t *wanted, struct jinja_values *values) {
    const json_t *source = json_object_get(wanted, "template");
    const json_t *text = json_object_get(wanted, "out");
    struct jinja_template *template = NULL;
    struct jinja_output out = { 0 };
    struct reel_error err = { 0 };
    enum reel_status status = jinja_template_open(&template, "case", json_string_value(source),
                                                  json_string_length(source), NULL, &err);
    if (status == REEL_OK) status = jinja_render(&out, template, values, &now, &err);
    const char *wrong = NULL;
    if ((status == REEL_OK) != (text != NULL))
        wrong = "whether it is an error";
    else if (!text)
        wrong = wrong_error(wanted, &err);
    else if (out.n_bytes != json_string_length(text) ||
             memcmp(out.text, json_string_value(text), out.n_bytes) != 0)
        wrong = "the text";
    if (wrong) {
        char *all = json_dumps(wanted, 0);
        print_error("%s differs: %s\n  found: %s\n", wrong, all,
                    status == REEL_OK ? out.text : err.text);
        free(all);
    }
    jinja_output_release(&out);
    jinja_template_close(template);
    return !wrong;
}

static void every_case_is_as_transformers_has_it(void **state) {
    (void)state;
    json_t *root = goldens();
    const json_t *cases = json_object_get(root, "cases");
    struct jinja_values *values = variables(json_object_get(root, "vars"));
    int wrong = 0;
    for (size_t i = 0; i < json_array_size(cases); i++)
        wrong += !agrees(json_array_get(cases, i), values);
    assert_true(json_array_size(cases) > 1000);
    assert_int_equal(wrong, 0);
    jinja_values_close(values);
    json_decref(root);
}

/* ---- marks ----------------------------------------------------------------------------------- */

/* The letters of text in another alphabet, which has both cases too. */
static json_t *in_cyrillic(const char *text, size_t n) {
    char *out = malloc(2 * n + 1), *p = out;
    assert_non_null(out);
    for (size_t i = 0; i < n; i++) {
        bool upper = text[i] >= 'A' && text[i] <= 'Z', lower = text[i] >= 'a' && text[i] <= 'z';
        if (!upper && !lower) {
            *p++ = text[i];
            continue;
        }
        unsigned code =
            upper ? 0x410u + (unsigned)(text[i] - 'A') : 0x430u + (unsigned)(text[i] - 'a');
        *p++ = (char)(0xC0 | code >> 6);
        *p++ = (char)(0x80 | (code & 0x3F));
    }
    json_t *value = json_stringn(out, (size_t)(p - out));
    free(out);
    assert_non_null(value);
    return value;
}

/* All texts in it but the keys, by which templates look for things. */
static json_t *all_in_cyrillic(const json_t *value) {
    const char *key = NULL;
    json_t *item = NULL, *out = json_deep_copy(value);
    size_t i = 0;
    if (json_is_string(value)) {
        json_decref(out);
        return in_cyrillic(json_string_value(value), json_string_length(value));
    }
    json_object_foreach((json_t *)value, key, item)
        json_object_set_new(out, key, all_in_cyrillic(item));
    json_array_foreach((json_t *)value, i, item) json_array_set_new(out, i, all_in_cyrillic(item));
    return out;
}

/* Bytes of the output that no ASCII template can have written; each must be marked foreign. */
static size_t foreign_bytes(const struct jinja_output *out, const char *source) {
    size_t n = 0, at = 0;
    for (int i = 0; i < out->n_runs; at += out->runs[i++].n_bytes)
        for (size_t k = 0; k < out->runs[i].n_bytes; k++) {
            if (!(out->text[at + k] & 0x80)) continue;
            if (out->runs[i].own) fail_msg("%s: own at byte %zu of %s", source, at + k, out->text);
            n++;
        }
    return n;
}

static bool plain_ascii(const char *source) {
    if (strstr(source, "\\u") || strstr(source, "\\x") || strstr(source, "\\U")) return false;
    while (*source && !(*source & 0x80))
        source++;
    return !*source;
}

/* Every case again, with texts in letters that no template has. */
static void what_is_made_of_foreign_texts_is_foreign(void **state) {
    (void)state;
    json_t *root = goldens(), *texts = json_object_get(root, "vars");
    json_t *cases = json_object_get(root, "cases"), *wanted = NULL, *text = NULL;
    struct jinja_values *values = NULL;
    const char *name = NULL;
    size_t i = 0, bytes = 0, rendered = 0;
    assert_int_equal(jinja_values_open(&values, NULL, NULL), REEL_OK);
    json_object_foreach(texts, name, text) {
        json_t *value = json_loads(json_string_value(text), JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        if (!value) continue; /* an integer beyond 64 bits */
        json_t *changed = all_in_cyrillic(value);
        jinja_variable(values, name, jinja_json(values, changed));
        json_decref(changed);
        json_decref(value);
    }
    json_array_foreach(cases, i, wanted) {
        const char *source = json_string_value(json_object_get(wanted, "template"));
        struct jinja_template *template = NULL;
        struct jinja_output out = { 0 };
        enum reel_status status = REEL_E_FORMAT;
        if (plain_ascii(source))
            status = jinja_template_open(&template, "case", source, strlen(source), NULL, NULL);
        if (status == REEL_OK) status = jinja_render(&out, template, values, &now, NULL);
        size_t n = status == REEL_OK ? foreign_bytes(&out, source) : 0;
        bytes += n;
        rendered += n > 0;
        jinja_output_release(&out);
        jinja_template_close(template);
    }
    print_message("%zu cases write %zu foreign bytes\n", rendered, bytes);
    assert_true(rendered > 150);
    jinja_values_close(values);
    json_decref(root);
}

/* A template's text cut anywhere is a template or an error, never a crash or a hang. */
static void cut_templates_end_in_words(void **state) {
    (void)state;
    json_t *root = goldens();
    const json_t *cases = json_object_get(root, "cases");
    struct jinja_values *values = variables(json_object_get(root, "vars"));
    for (size_t i = 0; i < json_array_size(cases); i += 7) {
        const json_t *source = json_object_get(json_array_get(cases, i), "template");
        for (size_t n = 0; n < json_string_length(source); n++) {
            struct jinja_template *template = NULL;
            struct jinja_output out = { 0 };
            struct reel_error err = { 0 };
            enum reel_status status =
                jinja_template_open(&template, "cut", json_string_value(source), n, NULL, &err);
            if (status == REEL_OK) status = jinja_render(&out, template, values, &now, &err);
            assert_true((status == REEL_OK) == !err.text[0]);
            jinja_output_release(&out);
            jinja_template_close(template);
        }
    }
    jinja_values_close(values);
    json_decref(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_case_is_as_transformers_has_it),
        cmocka_unit_test(what_is_made_of_foreign_texts_is_foreign),
        cmocka_unit_test(cut_templates_end_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
