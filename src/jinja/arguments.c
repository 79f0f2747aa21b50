/* Arguments of filters, methods and functions, sorted by their names. */
#include "jinja/filter.h"

static size_t word_end(const char *names) { return strcspn(names, " "); }

static int count_words(const char *names) {
    int n = 0;
    for (; *names; names += word_end(names), names += *names == ' ')
        n++;
    return n;
}

/* The number of a parameter; -1 when there is none of that name. */
static int find_word(const char *names, const struct text *name) {
    for (int i = 0; *names; names += word_end(names), names += *names == ' ', i++)
        if (word_end(names) == name->n && !memcmp(names, name->bytes, name->n)) return i;
    return -1;
}

bool args_bind(struct job *job, const struct args *args, const char *what, const char *names,
               int required, struct value *out) {
    int n = count_words(names);
    for (int i = 0; i < n; i++)
        out[i] = i < args->n ? args->items[i] : v_missing();
    if (args->n > n) {
        fail_python(job, "%s takes at most %d arguments, %d were given", what, n, args->n);
        return false;
    }
    for (int i = 0; i < args->n_keywords; i++) {
        const struct text *name = args->keywords[i].name;
        int at = find_word(names, name);
        if (at < 0 || is_given(out[at])) {
            fail_python(job,
                        at < 0 ? "%s has no argument '%.*s'"
                               : "%s got several values for its argument '%.*s'",
                        what, (int)name->n, name->bytes);
            return false;
        }
        out[at] = args->keywords[i].value;
    }
    for (int i = 0; i < required; i++)
        if (!is_given(out[i])) {
            fail_python(job, "%s needs at least %d arguments, %d were given", what, required,
                        args->n + args->n_keywords);
            return false;
        }
    return true;
}

bool arg_int(struct job *job, struct value v, const char *what, int64_t fallback, int64_t *out) {
    *out = fallback;
    if (!is_given(v)) return true;
    if (is_int(v)) {
        *out = as_int(v);
        return true;
    }
    if (v.kind == V_UNDEFINED)
        fail_undefined(job, v);
    else
        fail_python(job, "%s needs an integer, found %s", what, type_name(v));
    return false;
}

struct text *arg_text(struct job *job, struct value v, const char *fallback) {
    if (!is_given(v)) return text_of(job, fallback, strlen(fallback), false);
    v = value_str(job, v);
    return is_failed(v) ? NULL : v.text;
}
