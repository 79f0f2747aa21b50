/* JSON as values: from a text, as Python's json.loads reads it, and from a tree of jansson's. */
#include "jinja/json_value.h"

#include <stdlib.h>

struct reader {
    struct job *job;
    const char *what;
    const char *at, *begin, *end;
    int depth;
};

static struct value read_value(struct reader *r);

static struct value bad(struct reader *r, const char *words) {
    return fail(r->job, REEL_E_FORMAT, "%s: %s at byte %zu of its JSON", r->what, words,
                (size_t)(r->at - r->begin));
}

static void skip_space(struct reader *r) {
    while (r->at < r->end && *r->at && strchr(" \t\r\n", *r->at))
        r->at++;
}

static bool take(struct reader *r, char c) {
    skip_space(r);
    if (r->at >= r->end || *r->at != c) return false;
    r->at++;
    return true;
}

static bool hex4(struct reader *r, uint32_t *out) {
    *out = 0;
    if (r->end - r->at < 4) return false;
    for (int i = 0; i < 4; i++) {
        char c = *r->at++;
        int v = c >= '0' && c <= '9'                     ? c - '0'
                : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                         : -1;
        if (v < 0) return false;
        *out = *out << 4 | (uint32_t)v;
    }
    return true;
}

/* Behind "\u". */
static bool read_unicode(struct reader *r, struct sink *out) {
    uint32_t code = 0, low = 0;
    if (!hex4(r, &code)) return false;
    if (code >= 0xD800 && code < 0xDC00) {
        if (r->end - r->at < 6 || r->at[0] != '\\' || r->at[1] != 'u') return false;
        r->at += 2;
        if (!hex4(r, &low) || low < 0xDC00 || low > 0xDFFF) return false;
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    } else if (code >= 0xDC00 && code < 0xE000) {
        return false;
    }
    sink_char(out, code, true);
    return true;
}

/* Behind the first quote. Without escapes the text is the JSON's own bytes, which are copied once
 * for all (json_read_value). */
static struct value read_text(struct reader *r) {
    const char *from = r->at;
    while (r->at < r->end && *r->at != '"' && *r->at != '\\' && (unsigned char)*r->at >= 0x20)
        r->at++;
    if (r->at < r->end && *r->at == '"')
        return v_text(text_of(r->job, from, (size_t)(r->at++ - from), true));
    struct sink out = { .job = r->job };
    sink_put(&out, from, (size_t)(r->at - from), true);
    while (r->at < r->end && *r->at != '"' && !r->job->failed) {
        static const char letters[] = "\"\\/bfnrt", codes[] = "\"\\/\b\f\n\r\t";
        char c = *r->at;
        if ((unsigned char)c < 0x20) return bad(r, "a control character in a string");
        if (c != '\\') {
            from = r->at;
            while (r->at < r->end && *r->at != '"' && *r->at != '\\' &&
                   (unsigned char)*r->at >= 0x20)
                r->at++;
            sink_put(&out, from, (size_t)(r->at - from), true);
            continue;
        }
        r->at++;
        c = (char)(r->at < r->end ? *r->at++ : '\0');
        const char *found = c ? strchr(letters, c) : NULL;
        if (found)
            sink_put(&out, &codes[found - letters], 1, true);
        else if (c != 'u' || !read_unicode(r, &out))
            return bad(r, "a bad escape");
    }
    if (!take(r, '"')) return bad(r, "a string without end");
    struct value v = sink_value(&out);
    if (!is_failed(v) && !v.text->n) v.text->foreign = false;
    return v;
}

static struct value read_number(struct reader *r) {
    const char *from = r->at;
    bool real = false;
    if (r->at < r->end && *r->at == '-') r->at++;
    const char *first = r->at;
    while (r->at < r->end && *r->at && strchr("0123456789.eE+-", *r->at)) {
        real |= *r->at == '.' || (*r->at | 0x20) == 'e';
        r->at++;
    }
    size_t n = (size_t)(r->at - from);
    bool zeros = r->at - first > 1 && first[0] == '0' && first[1] >= '0' && first[1] <= '9';
    if (r->at == first || zeros || *first < '0' || *first > '9' || r->at[-1] < '0' ||
        r->at[-1] > '9')
        return bad(r, "a bad number");
    char *text = job_raw(r->job, n + 1, 1);
    if (!text) return v_failed();
    memcpy(text, from, n);
    text[n] = '\0';
    if (real) {
        double f = 0;
        if (!number_read(text, n, &f)) return bad(r, "a bad number");
        return v_marked(v_float(f), true);
    }
    if (strspn(text + (*text == '-'), "0123456789") + (*text == '-') != n)
        return bad(r, "a bad number");
    if (n < 19) return v_marked(v_int(strtoll(text, NULL, 10)), true);
    return big_or_int(r->job, text, n, true);
}

struct value big_or_int(struct job *job, const char *text, size_t n, bool foreign) {
    int64_t i = 0;
    bool minus = *text == '-', over = false;
    for (size_t k = minus; k < n && !over; k++)
        over = __builtin_mul_overflow(i, 10, &i) ||
               (minus ? __builtin_sub_overflow(i, text[k] - '0', &i)
                      : __builtin_add_overflow(i, text[k] - '0', &i));
    if (!over) return v_marked(v_int(i), foreign);
    struct value v = v_text(text_of(job, text, n, foreign));
    if (!is_failed(v)) v.kind = V_BIG;
    return v;
}

static struct value read_word(struct reader *r) {
    static const struct {
        const char *word;
        enum kind kind;
        bool b;
    } words[] = { { "true", V_BOOL, true }, { "false", V_BOOL, false }, { "null", V_NONE, false } };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i].word);
        if ((size_t)(r->end - r->at) < n || memcmp(r->at, words[i].word, n) != 0) continue;
        r->at += n;
        struct value v = v_kind(words[i].kind);
        v.b = words[i].b;
        return v_marked(v, true);
    }
    return bad(r, "something that is no value");
}

static struct value read_list(struct reader *r) {
    struct list *list = list_new(r->job, 0);
    if (!list) return v_failed();
    list->foreign = true;
    if (take(r, ']')) return v_list(list);
    do {
        if (!list_add(r->job, list, read_value(r))) return v_failed();
    } while (take(r, ','));
    return take(r, ']') ? v_list(list) : bad(r, "a list without end");
}

static struct value read_dict(struct reader *r) {
    struct dict *dict = dict_new(r->job, 0);
    if (!dict) return v_failed();
    dict->foreign = true;
    if (take(r, '}')) return v_dict(dict);
    do {
        if (!take(r, '"')) return bad(r, "a key that is no string");
        struct value key = read_text(r);
        if (is_failed(key)) return key;
        if (!take(r, ':')) return bad(r, "a key without ':'");
        if (!dict_set(r->job, dict, key, read_value(r))) return v_failed();
    } while (take(r, ','));
    return take(r, '}') ? v_dict(dict) : bad(r, "an object without end");
}

static struct value read_value(struct reader *r) {
    skip_space(r);
    if (r->at >= r->end) return bad(r, "the end");
    char c = *r->at;
    if (c == '"') {
        r->at++;
        return read_text(r);
    }
    if (c == '-' || (c >= '0' && c <= '9')) return read_number(r);
    if (c != '[' && c != '{') return read_word(r);
    if (r->depth >= r->job->limits.value_depth)
        return fail_limit(r->job, "lists and mappings inside each other",
                          (size_t)r->job->limits.value_depth);
    r->at++;
    r->depth++;
    struct value v = c == '[' ? read_list(r) : read_dict(r);
    r->depth--;
    return v;
}

struct value json_read_value(struct job *job, const char *what, const char *text, size_t n) {
    if (!utf8_valid(text, n)) return fail(job, REEL_E_FORMAT, "%s: not valid UTF-8", what);
    struct text *copy = text_copy(job, text, n, true);
    if (!copy) return v_failed();
    struct reader r = { job, what, copy->bytes, copy->bytes, copy->bytes + n, 0 };
    struct value v = read_value(&r);
    if (is_failed(v)) return v;
    skip_space(&r);
    return r.at == r.end ? v : bad(&r, "something behind the value");
}

static struct value tree_value(struct job *job, const json_t *json, int depth);

static struct value tree_text(struct job *job, const char *bytes, size_t n) {
    return v_text(text_copy(job, bytes, n, true));
}

static struct value tree_list(struct job *job, const json_t *json, int depth) {
    struct list *list = list_new(job, json_array_size(json));
    if (!list) return v_failed();
    list->foreign = true;
    for (size_t i = 0; i < json_array_size(json); i++)
        if (!list_add(job, list, tree_value(job, json_array_get(json, i), depth + 1)))
            return v_failed();
    return v_list(list);
}

static struct value tree_dict(struct job *job, const json_t *json, int depth) {
    struct dict *dict = dict_new(job, json_object_size(json));
    if (!dict) return v_failed();
    dict->foreign = true;
    const char *name = NULL;
    json_t *item = NULL;
    json_object_foreach((json_t *)json, name, item) {
        struct value key = tree_text(job, name, strlen(name));
        if (!dict_set(job, dict, key, tree_value(job, item, depth + 1))) return v_failed();
    }
    return v_dict(dict);
}

static struct value tree_value(struct job *job, const json_t *json, int depth) {
    struct value v = v_none();
    if (depth > job->limits.value_depth)
        return fail_limit(job, "lists and mappings inside each other",
                          (size_t)job->limits.value_depth);
    switch (json_typeof(json)) {
    case JSON_OBJECT:
        return tree_dict(job, json, depth);
    case JSON_ARRAY:
        return tree_list(job, json, depth);
    case JSON_STRING:
        return tree_text(job, json_string_value(json), json_string_length(json));
    case JSON_INTEGER:
        v = v_int(json_integer_value(json));
        break;
    case JSON_REAL:
        v = v_float(json_real_value(json));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        v = v_bool(json_is_true(json));
        break;
    case JSON_NULL:
        break;
    }
    return v_marked(v, true);
}

struct value json_tree_value(struct job *job, const json_t *json) {
    return tree_value(job, json, 0);
}
