/* The functions that a template finds without being given them. */
#include "jinja/filter.h"

#include <stdio.h>

enum { RANGE_MAX = 100000 }; /* the sandbox's */

static struct value call_range(struct job *job, const struct args *args) {
    struct value a[3];
    int64_t n[3] = { 0, 0, 1 };
    if (!args_bind(job, args, "range", "start stop step", 1, a)) return v_failed();
    for (int i = 0; i < 3; i++)
        if (!arg_int(job, a[i], "range", n[i], &n[i])) return v_failed();
    if (!is_given(a[1])) {
        n[1] = n[0];
        n[0] = 0;
    }
    if (n[2] == 0) return fail_python(job, "range() arg 3 must not be zero");
    uint64_t way = 0, step = n[2] > 0 ? (uint64_t)n[2] : 0 - (uint64_t)n[2];
    if (n[2] > 0 ? n[1] > n[0] : n[0] > n[1])
        way = n[2] > 0 ? (uint64_t)n[1] - (uint64_t)n[0] : (uint64_t)n[0] - (uint64_t)n[1];
    uint64_t count = way / step + (way % step != 0);
    if (count > RANGE_MAX)
        return fail_python(
            job, "Range too big. The sandbox blocks ranges larger than MAX_RANGE (%d).", RANGE_MAX);
    struct range *r = job_raw(job, 1, sizeof *r);
    if (!r) return v_failed();
    *r = (struct range){ n[0], n[1], n[2], (size_t)count };
    bool foreign = a[0].foreign || a[1].foreign || a[2].foreign;
    return (struct value){ .kind = V_RANGE, .range = r, .foreign = foreign };
}

static bool add_pairs(struct job *job, struct dict *dict, struct value from) {
    struct iter it;
    struct value pair;
    if (from.kind == V_DICT) {
        for (size_t i = 0; i < from.dict->n; i++)
            if (!dict_set(job, dict, from.dict->pairs[i].key, from.dict->pairs[i].item))
                return false;
        return true;
    }
    if (!iter_open(job, from, &it)) return false;
    while (iter_next(job, &it, &pair)) {
        struct list *two = value_items(job, pair);
        if (!two) return false;
        if (two->n != 2) {
            fail_python(job, "dictionary update sequence element has length %zu; 2 is required",
                        two->n);
            return false;
        }
        if (!dict_set(job, dict, two->items[0], two->items[1])) return false;
    }
    return !job->failed;
}

static struct dict *build_dict(struct job *job, const struct args *args) {
    struct dict *dict = dict_new(job, 0);
    if (!dict) return NULL;
    if (args->n > 1) {
        fail_python(job, "dict expected at most 1 argument, got %d", args->n);
        return NULL;
    }
    if (args->n && !add_pairs(job, dict, args->items[0])) return NULL;
    for (int i = 0; i < args->n_keywords; i++)
        if (!dict_set(job, dict, v_text(args->keywords[i].name), args->keywords[i].value))
            return NULL;
    return dict;
}

static struct value call_dict(struct job *job, const struct args *args) {
    return v_dict(build_dict(job, args));
}

static struct value call_namespace(struct job *job, const struct args *args) {
    struct dict *dict = build_dict(job, args);
    for (size_t i = 0; dict && i < dict->n; i++) {
        struct value key = dict->pairs[i].key;
        if (is_text(key) && key.text->n && key.text->bytes[0] == '_')
            return fail_python(job,
                               "Chat templates cannot store underscore-prefixed attributes on a "
                               "namespace, but got '%.*s'.",
                               (int)key.text->n, key.text->bytes);
    }
    struct value v = v_dict(dict);
    if (!is_failed(v)) v.kind = V_NAMESPACE;
    return v;
}

static struct value call_cycler(struct job *job, const struct args *args) {
    struct cycler *cycler = job_take(job, 1, sizeof *cycler);
    if (!cycler) return v_failed();
    if (!args->n || args->n_keywords)
        return fail_python(job, "at least one item has to be provided");
    cycler->items = list_new(job, (size_t)args->n);
    for (int i = 0; i < args->n; i++)
        if (!list_add(job, cycler->items, args->items[i])) return v_failed();
    return (struct value){ .kind = V_CYCLER, .cycler = cycler };
}

static struct value call_joiner(struct job *job, const struct args *args) {
    struct value sep;
    if (!args_bind(job, args, "joiner", "sep", 0, &sep)) return v_failed();
    struct joiner *joiner = job_take(job, 1, sizeof *joiner);
    if (!joiner) return v_failed();
    joiner->sep = is_given(sep) ? sep : v_word(job, ", ", false);
    return (struct value){ .kind = V_JOINER, .joiner = joiner };
}

static struct value call_raise(struct job *job, const struct args *args) {
    struct value message;
    if (!args_bind(job, args, "raise_exception", "message", 1, &message)) return v_failed();
    struct value words = value_str(job, message);
    if (is_failed(words)) return words;
    return fail(job, REEL_E_ARGUMENT, "the template refuses: %.*s", (int)words.text->n,
                words.text->bytes);
}

static struct value call_strftime(struct job *job, const struct args *args) {
    struct value format;
    if (!args_bind(job, args, "strftime_now", "format", 1, &format)) return v_failed();
    if (!is_text(format))
        return fail_python(job, "strftime_now needs a str, found %s", type_name(format));
    return text_strftime(job, format.text);
}

static const struct function functions[] = {
    { "range", call_range },           { "dict", call_dict },     { "namespace", call_namespace },
    { "cycler", call_cycler },         { "joiner", call_joiner }, { "raise_exception", call_raise },
    { "strftime_now", call_strftime },
};

const struct function *function_find(const char *name, size_t n) {
    struct text word = { .bytes = name, .n = n };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (text_is(&word, functions[i].name)) return &functions[i];
    return NULL;
}
