/* str() and repr() of values, and Python's shortest form of floats. */
#include "base/decimal.h"
#include "jinja/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* Plain from 1e-4 to below 1e16, else with an exponent; always with a fraction or an exponent. */
size_t float_repr(double f, char out[32]) {
    const char *sign = signbit(f) && !isnan(f) ? "-" : "";
    if (isnan(f)) return (size_t)snprintf(out, 32, "nan");
    if (isinf(f)) return (size_t)snprintf(out, 32, "%sinf", sign);
    if (f == 0) return (size_t)snprintf(out, 32, "%s0.0", sign);
    char digits[18];
    int exponent = 0;
    int n = (int)decimal_shortest(fabs(f), digits, &exponent);
    if (exponent < -4 || exponent >= 16) {
        const char *point = n > 1 ? "." : "";
        return (size_t)snprintf(out, 32, "%s%c%s%.*se%c%02d", sign, digits[0], point, n - 1,
                                digits + 1, exponent < 0 ? '-' : '+', abs(exponent));
    }
    if (exponent < 0)
        return (size_t)snprintf(out, 32, "%s0.%.*s%.*s", sign, -exponent - 1, "000", n, digits);
    if (n <= exponent + 1)
        return (size_t)snprintf(out, 32, "%s%.*s%.*s.0", sign, n, digits, exponent + 1 - n,
                                "0000000000000000");
    return (size_t)snprintf(out, 32, "%s%.*s.%.*s", sign, exponent + 1, digits, n - exponent - 1,
                            digits + exponent + 1);
}

static void repr_text(struct sink *out, const struct text *t) {
    bool one = memchr(t->bytes, '\'', t->n), two = memchr(t->bytes, '"', t->n);
    char quote = one && !two ? '"' : '\'';
    sink_put(out, &quote, 1, t->foreign);
    for (size_t i = 0, size = 0; i < t->n && !out->job->failed; i += size) {
        uint32_t c = char_at(t, i, &size);
        bool foreign = t->marks ? t->marks[i] : t->foreign;
        char escape[16];
        if (c == '\\' || c == (uint32_t)quote)
            snprintf(escape, sizeof escape, "\\%c", (char)c);
        else if (c == '\n' || c == '\r' || c == '\t')
            snprintf(escape, sizeof escape, "\\%c", c == '\n' ? 'n' : c == '\r' ? 'r' : 't');
        else if (c < 0x20 || (c >= 0x7F && c < 0x100 && !is_printable(c)))
            snprintf(escape, sizeof escape, "\\x%02x", c);
        else if (c >= 0x100 && !is_printable(c))
            snprintf(escape, sizeof escape, c < 0x10000 ? "\\u%04x" : "\\U%08x", c);
        else {
            sink_part(out, t, i, i + size);
            continue;
        }
        sink_word(out, escape, foreign);
    }
    sink_put(out, &quote, 1, t->foreign);
}

static void repr_items(struct sink *out, const struct list *list, const char *open,
                       const char *close, bool tuple) {
    bool foreign = list->foreign;
    sink_word(out, open, foreign);
    for (size_t i = 0; i < list->n && !out->job->failed; i++) {
        if (i) sink_word(out, ", ", foreign);
        sink_repr(out, list->items[i]);
    }
    if (tuple && list->n == 1) sink_word(out, ",", foreign);
    sink_word(out, close, foreign);
}

static void repr_dict(struct sink *out, const struct dict *dict) {
    bool foreign = dict->foreign;
    sink_word(out, "{", foreign);
    for (size_t i = 0; i < dict->n && !out->job->failed; i++) {
        if (i) sink_word(out, ", ", foreign);
        sink_repr(out, dict->pairs[i].key);
        sink_word(out, ": ", foreign);
        sink_repr(out, dict->pairs[i].item);
    }
    sink_word(out, "}", foreign);
}

static void repr_view(struct sink *out, struct value v) {
    static const char *const names[] = { "dict_keys(", "dict_values(", "dict_items(" };
    sink_word(out, names[v.view->part], value_foreign(v));
    struct list *items = value_items(out->job, v);
    if (!items) return;
    repr_items(out, items, "[", "]", false);
    sink_word(out, ")", value_foreign(v));
}

static void repr_range(struct sink *out, struct value v) {
    char text[80];
    const struct range *r = v.range;
    int n =
        snprintf(text, sizeof text, "range(%lld, %lld", (long long)r->start, (long long)r->stop);
    if (r->step != 1)
        n += snprintf(text + n, sizeof text - (size_t)n, ", %lld", (long long)r->step);
    snprintf(text + n, sizeof text - (size_t)n, ")");
    sink_word(out, text, v.foreign);
}

static void repr_nested(struct sink *out, struct value v) {
    if (v.kind == V_LIST) repr_items(out, v.list, "[", "]", false);
    if (v.kind == V_TUPLE) repr_items(out, v.list, "(", ")", true);
    if (v.kind == V_DICT) repr_dict(out, v.dict);
    if (v.kind == V_VIEW) repr_view(out, v);
    if (v.kind == V_NAMESPACE) {
        sink_word(out, "<Namespace ", false);
        repr_dict(out, v.dict);
        sink_word(out, ">", false);
    }
}

void sink_repr(struct sink *out, struct value v) {
    struct job *job = out->job;
    char number[32];
    if (!job_step(job, 1)) return;
    switch (v.kind) {
    case V_FAILED:
        return;
    case V_UNDEFINED:
        sink_word(out, "Undefined", false);
        return;
    case V_NONE:
        sink_word(out, "None", v.foreign);
        return;
    case V_BOOL:
        sink_word(out, v.b ? "True" : "False", v.foreign);
        return;
    case V_INT:
        snprintf(number, sizeof number, "%lld", (long long)v.i);
        sink_word(out, number, v.foreign);
        return;
    case V_FLOAT:
        sink_put(out, number, float_repr(v.f, number), v.foreign);
        return;
    case V_BIG:
        sink_text(out, v.text);
        return;
    case V_TEXT:
        if (!job_look(job, v.text->n)) return;
        if (v.text->safe) sink_word(out, "Markup(", v.text->foreign);
        repr_text(out, v.text);
        if (v.text->safe) sink_word(out, ")", v.text->foreign);
        return;
    case V_RANGE:
        repr_range(out, v);
        return;
    case V_LIST:
    case V_TUPLE:
    case V_DICT:
    case V_VIEW:
    case V_NAMESPACE:
        if (!job_enter(job)) return;
        repr_nested(out, v);
        job_leave(job);
        return;
    default:
        fail_python(job, "a %s is printed, which Python writes with its address: %s", type_name(v),
                    v.kind == V_GENERATOR ? "|list makes a list of it" : "call it");
    }
}

void sink_str(struct sink *out, struct value v) {
    if (v.kind == V_TEXT)
        sink_text(out, v.text);
    else if (v.kind != V_UNDEFINED)
        sink_repr(out, v);
}

struct value value_str(struct job *job, struct value v) {
    if (v.kind == V_TEXT || is_failed(v)) return v;
    struct sink out = { .job = job };
    sink_str(&out, v);
    return sink_value(&out);
}
