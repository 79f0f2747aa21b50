/* json.dumps(value, ensure_ascii, indent, separators, sort_keys), the tojson of transformers. What
 * stands between the values of a foreign list or mapping is foreign. */
#include "jinja/text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

struct writer {
    struct sink *out;
    struct job *job;
    const struct json_style *style;
    int level;
};

static void write_value(struct writer *w, struct value v);

static bool plain(uint32_t c, bool ascii) {
    return c >= 0x20 && c != '"' && c != '\\' && (c < 0x7F || !ascii);
}

static void write_escape(struct sink *out, uint32_t c, bool foreign) {
    static const char named[] = "\"\\\b\f\n\r\t", letters[] = "\"\\bfnrt";
    char text[16];
    const char *found = c && c < 0x80 ? strchr(named, (int)c) : NULL;
    if (found)
        snprintf(text, sizeof text, "\\%c", letters[found - named]);
    else if (c < 0x10000)
        snprintf(text, sizeof text, "\\u%04x", c);
    else
        snprintf(text, sizeof text, "\\u%04x\\u%04x", 0xD7C0 + (c >> 10), 0xDC00 + (c & 0x3FF));
    sink_word(out, text, foreign);
}

static void write_text(struct writer *w, const struct text *t) {
    if (!job_look(w->job, t->n)) return;
    sink_put(w->out, "\"", 1, t->foreign);
    size_t from = 0, size = 0;
    for (size_t i = 0; i < t->n; i += size) {
        uint32_t c = char_at(t, i, &size);
        if (plain(c, w->style->ascii)) continue;
        sink_part(w->out, t, from, i);
        write_escape(w->out, c, t->marks ? t->marks[i] : t->foreign);
        from = i + size;
    }
    sink_part(w->out, t, from, t->n);
    sink_put(w->out, "\"", 1, t->foreign);
}

static void write_number(struct writer *w, struct value v) {
    char number[32];
    size_t n = 0;
    if (v.kind == V_INT)
        n = (size_t)snprintf(number, sizeof number, "%lld", (long long)v.i);
    else if (isfinite(v.f))
        n = float_repr(v.f, number);
    else
        n = (size_t)snprintf(number, sizeof number, "%s",
                             isnan(v.f) ? "NaN"
                             : v.f < 0  ? "-Infinity"
                                        : "Infinity");
    sink_put(w->out, number, n, v.foreign);
}

static void write_line(struct writer *w, bool foreign) {
    if (!w->style->lines) return;
    sink_put(w->out, "\n", 1, foreign);
    for (int i = 0; i < w->level && w->style->indent; i++)
        sink_put(w->out, w->style->indent->bytes, w->style->indent->n,
                 foreign || w->style->indent->foreign);
}

static void write_sep(struct writer *w, const struct text *sep, const char *otherwise,
                      bool foreign) {
    if (sep)
        sink_put(w->out, sep->bytes, sep->n, foreign || sep->foreign);
    else
        sink_word(w->out, otherwise, foreign);
}

static void write_list(struct writer *w, const struct list *list) {
    if (!list->n) {
        sink_word(w->out, "[]", list->foreign);
        return;
    }
    sink_put(w->out, "[", 1, list->foreign);
    w->level++;
    for (size_t i = 0; i < list->n && !w->job->failed; i++) {
        if (i) write_sep(w, w->style->item_sep, w->style->lines ? "," : ", ", list->foreign);
        write_line(w, list->foreign);
        write_value(w, list->items[i]);
    }
    w->level--;
    write_line(w, list->foreign);
    sink_put(w->out, "]", 1, list->foreign);
}

/* A key as JSON has it: a text. */
static struct value key_text(struct writer *w, struct value key) {
    struct sink out = { .job = w->job };
    struct writer inner = { &out, w->job, w->style, 0 };
    switch (key.kind) {
    case V_TEXT:
        return key;
    case V_BOOL:
        return v_word(w->job, key.b ? "true" : "false", key.foreign);
    case V_NONE:
        return v_word(w->job, "null", key.foreign);
    case V_INT:
    case V_FLOAT:
        write_number(&inner, key);
        return sink_value(&out);
    default:
        return fail_python(w->job, "keys must be str, int, float, bool or None, not %s",
                           type_name(key));
    }
}

static void write_dict(struct writer *w, const struct dict *dict, struct list *order) {
    if (!dict->n) {
        sink_word(w->out, "{}", dict->foreign);
        return;
    }
    sink_put(w->out, "{", 1, dict->foreign);
    w->level++;
    for (size_t i = 0; i < dict->n && !w->job->failed; i++) {
        if (i) write_sep(w, w->style->item_sep, w->style->lines ? "," : ", ", dict->foreign);
        write_line(w, dict->foreign);
        const struct pair *pair = &dict->pairs[i];
        if (order) pair = dict_find(w->job, dict, order->items[i]);
        struct value key = pair ? key_text(w, pair->key) : v_failed();
        if (is_failed(key)) return;
        write_text(w, key.text);
        write_sep(w, w->style->key_sep, ": ", dict->foreign);
        write_value(w, pair->item);
    }
    w->level--;
    write_line(w, dict->foreign);
    sink_put(w->out, "}", 1, dict->foreign);
}

/* The keys, by Python's order of them. */
static struct list *sorted_keys(struct job *job, const struct dict *dict) {
    struct list *keys = list_new(job, dict->n);
    for (size_t i = 0; i < dict->n; i++)
        if (!list_add(job, keys, dict->pairs[i].key)) return NULL;
    return keys && list_sort(job, keys, NULL, false) ? keys : NULL;
}

static void write_nested(struct writer *w, struct value v) {
    if (w->level >= w->job->limits.value_depth) {
        fail_limit(w->job, "lists and mappings inside each other",
                   (size_t)w->job->limits.value_depth);
        return;
    }
    if (v.kind != V_DICT) {
        write_list(w, v.list);
        return;
    }
    struct list *order = w->style->sorted ? sorted_keys(w->job, v.dict) : NULL;
    if (!w->job->failed) write_dict(w, v.dict, order);
}

static void write_value(struct writer *w, struct value v) {
    if (!job_step(w->job, 1)) return;
    switch (v.kind) {
    case V_FAILED:
        return;
    case V_NONE:
        sink_word(w->out, "null", v.foreign);
        return;
    case V_BOOL:
        sink_word(w->out, v.b ? "true" : "false", v.foreign);
        return;
    case V_INT:
    case V_FLOAT:
        write_number(w, v);
        return;
    case V_BIG:
        sink_text(w->out, v.text);
        return;
    case V_TEXT:
        write_text(w, v.text);
        return;
    case V_LIST:
    case V_TUPLE:
    case V_DICT:
        if (!job_enter(w->job)) return;
        write_nested(w, v);
        job_leave(w->job);
        return;
    default:
        fail_python(w->job, "Object of type %s is not JSON serializable", type_name(v));
    }
}

void sink_json(struct sink *sink, struct value v, const struct json_style *style) {
    struct writer w = { sink, sink->job, style, 0 };
    write_value(&w, v);
}
