/* A template, a NUL, and its variables as JSON. Whatever the bytes: an output whose runs tile it,
 * or an error with words. */
#include "jinja/jinja.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void check(const struct jinja_output *out, enum reel_status status,
                  const struct reel_error *err) {
    if (status != REEL_OK) {
        if (!err->text[0] || out->text) abort();
        return;
    }
    size_t total = 0;
    for (int i = 0; i < out->n_runs; i++) {
        if (!out->runs[i].n_bytes || (i && out->runs[i].own == out->runs[i - 1].own)) abort();
        total += out->runs[i].n_bytes;
    }
    if (total != out->n_bytes || out->text[total]) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    static const struct tm now = { .tm_year = 124, .tm_mday = 5, .tm_wday = 5, .tm_yday = 4 };
    struct jinja_limits limits = jinja_default_limits();
    limits.steps = 20000;
    limits.memory_bytes = 4 << 20;
    limits.output_bytes = 1 << 20;
    const uint8_t *end = n ? memchr(data, 0, n) : NULL;
    size_t n_template = end ? (size_t)(end - data) : n;
    struct jinja_template *template = NULL;
    struct jinja_values *values = NULL;
    struct jinja_output out = { 0 };
    struct reel_error err = { 0 };
    enum reel_status status = jinja_template_open(&template, "fuzz", n ? (const char *)data : "",
                                                  n_template, &limits, &err);
    if (status == REEL_OK) status = jinja_values_open(&values, &limits, &err);
    if (status == REEL_OK) {
        if (end) {
            struct jinja_value *v =
                jinja_json_text(values, "x", (const char *)end + 1, n - n_template - 1);
            jinja_variable(values, "x", v);
            jinja_variable(values, "messages", v);
        }
        jinja_variable(values, "bos_token", jinja_text(values, "<s>", 3, JINJA_OWN));
        status = jinja_render(&out, template, values, &now, &err);
    }
    check(&out, status, &err);
    jinja_output_release(&out);
    jinja_values_close(values);
    jinja_template_close(template);
    return 0;
}
