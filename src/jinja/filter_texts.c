/* Filters that make texts and numbers. */
#include "jinja/filter.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

static struct text *as_text(struct job *job, struct value v) { return arg_text(job, v, ""); }

static struct value cased(struct job *job, struct value in, enum letter_case first,
                          enum letter_case rest) {
    struct text *t = as_text(job, in);
    if (!t || !job_look(job, t->n)) return v_failed();
    struct sink out = { .job = job, .safe = t->safe };
    size_t head = t->n ? char_bytes(t->bytes[0]) : 0;
    sink_cased(&out, t, 0, head, first);
    sink_cased(&out, t, head, t->n, rest);
    return sink_value(&out);
}

struct value filter_upper(struct job *job, struct value in, const struct args *args) {
    if (!args_bind(job, args, "upper", "", 0, NULL)) return v_failed();
    return cased(job, in, CASE_UPPER, CASE_UPPER);
}
struct value filter_lower(struct job *job, struct value in, const struct args *args) {
    if (!args_bind(job, args, "lower", "", 0, NULL)) return v_failed();
    return cased(job, in, CASE_LOWER, CASE_LOWER);
}
struct value filter_capitalize(struct job *job, struct value in, const struct args *args) {
    if (!args_bind(job, args, "capitalize", "", 0, NULL)) return v_failed();
    return cased(job, in, CASE_TITLE, CASE_LOWER);
}

struct value filter_title(struct job *job, struct value in, const struct args *args) {
    struct text *t = as_text(job, in);
    struct sink out = { .job = job };
    if (!args_bind(job, args, "title", "", 0, NULL) || !t || !job_look(job, t->n))
        return v_failed();
    bool begins = true;
    for (size_t i = 0, size = 0; i < t->n; i += size) {
        uint32_t c = char_at(t, i, &size);
        bool divides = is_space(c) || (c < 0x80 && c && strchr("-({[<", (int)c));
        if (divides)
            sink_part(&out, t, i, i + size);
        else
            sink_cased(&out, t, i, i + size, begins ? CASE_UPPER : CASE_LOWER);
        begins = divides;
    }
    return sink_value(&out);
}

struct value filter_string(struct job *job, struct value in, const struct args *args) {
    if (!args_bind(job, args, "string", "", 0, NULL)) return v_failed();
    return value_str(job, in);
}

static struct value marked_safe(struct job *job, struct value v) {
    v = value_str(job, v);
    if (is_failed(v) || v.text->safe) return v;
    struct text *t = text_part(job, v.text, 0, v.text->n);
    if (t) t->safe = true;
    return v_text(t);
}

struct value filter_safe(struct job *job, struct value in, const struct args *args) {
    if (!args_bind(job, args, "safe", "", 0, NULL)) return v_failed();
    return marked_safe(job, in);
}

static struct value escaped(struct job *job, struct value in) {
    struct text *t = as_text(job, in);
    struct sink out = { .job = job, .safe = true };
    if (!t || !job_look(job, t->n)) return v_failed();
    for (size_t i = 0; i < t->n && !job->failed; i++) {
        const char *word = NULL;
        switch (t->bytes[i]) {
        case '&':
            word = "&amp;";
            break;
        case '<':
            word = "&lt;";
            break;
        case '>':
            word = "&gt;";
            break;
        case '"':
            word = "&#34;";
            break;
        case '\'':
            word = "&#39;";
            break;
        }
        if (word)
            sink_word(&out, word, t->marks ? t->marks[i] : t->foreign);
        else
            sink_part(&out, t, i, i + 1);
    }
    return sink_value(&out);
}

struct value filter_escape(struct job *job, struct value in, const struct args *args) {
    if (!args_bind(job, args, "escape", "", 0, NULL)) return v_failed();
    return in.kind == V_TEXT && in.text->safe ? in : escaped(job, in);
}

struct value filter_forceescape(struct job *job, struct value in, const struct args *args) {
    if (!args_bind(job, args, "forceescape", "", 0, NULL)) return v_failed();
    return escaped(job, in);
}

struct value filter_trim(struct job *job, struct value in, const struct args *args) {
    struct value chars;
    struct text *t = as_text(job, in), *set = NULL;
    if (!args_bind(job, args, "trim", "chars", 0, &chars) || !t || !job_look(job, t->n))
        return v_failed();
    if (is_given(chars) && chars.kind != V_NONE) {
        if (!is_text(chars)) return fail_python(job, "strip arg must be None or str");
        set = chars.text;
        if (!job_step(job, 1 + t->n * (1 + set->n) / 16)) return v_failed();
    }
    size_t from = strip_left(t, set);
    struct text *part = text_part(job, t, from, strip_right(t, set, from));
    if (part) part->safe = t->safe;
    return v_text(part);
}

struct value filter_default(struct job *job, struct value in, const struct args *args) {
    struct value a[2];
    if (!args_bind(job, args, "default", "default_value boolean", 0, a)) return v_failed();
    bool other = in.kind == V_UNDEFINED || (arg_true(a[1], false) && !value_true(in));
    if (!other) return in;
    return is_given(a[0]) ? a[0] : v_word(job, "", false);
}

struct value filter_replace(struct job *job, struct value in, const struct args *args) {
    struct value a[3];
    int64_t count = -1;
    if (!args_bind(job, args, "replace", "old new count", 2, a)) return v_failed();
    if (a[2].kind == V_NONE) a[2] = v_missing();
    struct text *t = as_text(job, in), *old = as_text(job, a[0]), *new = as_text(job, a[1]);
    if (!t || !old || !new || !arg_int(job, a[2], "replace", -1, &count)) return v_failed();
    struct value out = text_replace(job, t, old, new, count);
    if (is_failed(out) || !out.text->safe) return out;
    return v_text(text_part(job, out.text, 0, out.text->n)); /* no Markup any more */
}

struct value filter_center(struct job *job, struct value in, const struct args *args) {
    struct value width;
    struct text *t = as_text(job, in);
    int64_t n = 80;
    if (!args_bind(job, args, "center", "width", 0, &width) || !t) return v_failed();
    if (!arg_int(job, width, "center", 80, &n)) return v_failed();
    return text_pad(job, t, n, PAD_CENTER, NULL);
}

struct value filter_format(struct job *job, struct value in, const struct args *args) {
    struct text *t = as_text(job, in);
    if (!t) return v_failed();
    if (args->n && args->n_keywords)
        return fail_python(job, "can't handle positional and keyword arguments at the same time");
    if (args->n_keywords) {
        struct dict *dict = dict_new(job, (size_t)args->n_keywords);
        for (int i = 0; i < args->n_keywords; i++)
            if (!dict_set(job, dict, v_text(args->keywords[i].name), args->keywords[i].value))
                return v_failed();
        return text_percent(job, t, v_dict(dict));
    }
    struct list *list = list_new(job, (size_t)args->n);
    for (int i = 0; i < args->n; i++)
        if (!list_add(job, list, args->items[i])) return v_failed();
    return text_percent(job, t, v_tuple(list));
}

struct value filter_indent(struct job *job, struct value in, const struct args *args) {
    struct value a[3];
    int64_t width = 4;
    if (!args_bind(job, args, "indent", "width first blank", 0, a)) return v_failed();
    if (in.kind == V_UNDEFINED) return fail_undefined(job, in);
    if (!is_text(in)) return fail_python(job, "indent needs a str, found %s", type_name(in));
    struct sink space = { .job = job };
    if (is_text(a[0]))
        sink_text(&space, a[0].text);
    else if (!arg_int(job, a[0], "indent", 4, &width))
        return v_failed();
    else if (width > 0)
        sink_fill(&space, ' ', (size_t)width, false);
    struct value indent = sink_value(&space);
    if (is_failed(indent) || !job_look(job, in.text->n)) return v_failed();
    struct list *lines = text_lines(job, in.text, false);
    if (!lines) return v_failed();
    /* The filter adds a newline before it splits: one at the end is a line of its own. */
    struct text *t = in.text;
    if (!t->n || text_ends_line(t))
        if (!list_add(job, lines, v_word(job, "", t->foreign))) return v_failed();
    struct sink out = { .job = job, .safe = t->safe };
    if (arg_true(a[1], false)) sink_text(&out, indent.text);
    for (size_t i = 0; i < lines->n && !job->failed; i++) {
        const struct text *line = lines->items[i].text;
        if (i) sink_put(&out, "\n", 1, value_foreign(in));
        if (i && (line->n || arg_true(a[2], false))) sink_text(&out, indent.text);
        sink_text(&out, line);
    }
    return sink_value(&out);
}

struct value filter_truncate(struct job *job, struct value in, const struct args *args) {
    struct value a[4];
    int64_t length = 255, leeway = 5;
    if (!args_bind(job, args, "truncate", "length killwords end leeway", 0, a)) return v_failed();
    if (a[3].kind == V_NONE) a[3] = v_missing();
    if (!arg_int(job, a[0], "truncate", 255, &length) ||
        !arg_int(job, a[3], "truncate", 5, &leeway))
        return v_failed();
    struct text *end = arg_text(job, a[2], "...");
    if (!end) return v_failed();
    if (!is_text(in)) {
        if (in.kind == V_UNDEFINED) return v_word(job, "", false);
        return fail_python(job, "truncate needs a str, found %s", type_name(in));
    }
    int64_t end_chars = (int64_t)text_chars(end);
    if (length < end_chars || leeway < 0)
        return fail_python(job,
                           "truncate: a length of at least %lld and no negative leeway are "
                           "allowed",
                           (long long)end_chars);
    if ((int64_t)text_chars(in.text) <= length || (int64_t)text_chars(in.text) - length <= leeway)
        return in;
    size_t cut = text_offset(in.text, (size_t)(length - end_chars));
    if (!arg_true(a[1], false)) {
        struct text space = { .bytes = " ", .n = 1 };
        ptrdiff_t at = text_find_last(in.text, &space, 0, cut);
        if (at >= 0) cut = (size_t)at;
    }
    struct sink out = { .job = job, .safe = in.text->safe };
    struct value last = beside_markup(job, in.text, v_text(end));
    if (is_failed(last)) return last;
    sink_part(&out, in.text, 0, cut);
    sink_text(&out, last.text);
    return sink_value(&out);
}

struct value filter_wordcount(struct job *job, struct value in, const struct args *args) {
    struct text *t = as_text(job, in);
    int64_t words = 0;
    bool inside = false;
    if (!args_bind(job, args, "wordcount", "", 0, NULL) || !t || !job_look(job, t->n))
        return v_failed();
    for (size_t i = 0, size = 0; i < t->n; i += size) {
        bool word = is_word(char_at(t, i, &size));
        words += word && !inside;
        inside = word;
    }
    return v_marked(v_int(words), t->foreign);
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* Digits with single underscores between them are copied without; false when it is no number. */
static bool plain_number(const char *p, size_t n, char *out, size_t cap) {
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] == '_') {
            bool between = i && i + 1 < n && p[i - 1] != '_' && p[i + 1] >= '0' &&
                           p[i + 1] <= '9' && p[i - 1] >= '0' && p[i - 1] <= '9';
            if (!between) return false;
            continue;
        }
        if (k + 1 >= cap || !p[i]) return false;
        out[k++] = p[i];
    }
    out[k] = '\0';
    return k > 0;
}

static bool is_number_word(const char *p) {
    p += *p == '+' || *p == '-';
    return !strcasecmp(p, "inf") || !strcasecmp(p, "infinity") || !strcasecmp(p, "nan");
}

bool number_read(const char *text, size_t n, double *out) {
    struct text t = { .bytes = text, .n = n };
    char plain[400];
    size_t from = strip_left(&t, NULL), to = strip_right(&t, NULL, from);
    if (!plain_number(text + from, to - from, plain, sizeof plain - 8)) return false;
    if (is_number_word(plain)) {
        *out = strtod(plain, NULL);
        return true;
    }
    if (strspn(plain, "0123456789+-.eE") != strlen(plain)) return false;
    char *point = strchr(plain, '.');
    const char *local = localeconv()->decimal_point;
    if (point && strcmp(local, ".") != 0) { /* strtod reads the locale's decimal point */
        size_t size = strlen(local);
        if (size > 4) return false;
        memmove(point + size, point + 1, strlen(point + 1) + 1);
        memcpy(point, local, size);
    }
    char *end = plain;
    *out = strtod(plain, &end);
    return end > plain && !*end;
}

/* An integer from text in a base, as int("...", base) reads it. */
static bool integer_text(struct job *job, const struct text *t, int base, struct value *out) {
    char plain[80];
    size_t from = strip_left(t, NULL), to = strip_right(t, NULL, from);
    if (!plain_number(t->bytes + from, to - from, plain, sizeof plain)) return false;
    char *p = plain + (*plain == '+' || *plain == '-');
    bool prefixed = p[0] == '0' && p[1] &&
                    strchr(base == 2    ? "bB"
                           : base == 8  ? "oO"
                           : base == 16 ? "xX"
                                        : "?",
                           p[1]);
    if (prefixed) memmove(p, p + 2, strlen(p + 2) + 1);
    char *end = p;
    if (*p == '+' || *p == '-' || is_space((unsigned char)*p)) return false;
    errno = 0;
    long long value = strtoll(plain, &end, base);
    if (end == plain || *end || !*p) return false;
    if (errno == ERANGE) fail(job, REEL_E_LIMIT, "an integer beyond 64 bits, which is the limit");
    *out = v_marked(v_int(value), t->foreign);
    return true;
}

static bool whole_float(struct job *job, double f, bool foreign, struct value *out) {
    if (!isfinite(f)) return false;
    if (fabs(f) >= 0x1p63)
        fail(job, REEL_E_LIMIT, "an integer beyond 64 bits, which is the limit");
    else
        *out = v_marked(v_int((int64_t)f), foreign);
    return true;
}

bool read_integer(struct job *job, struct value v, int base, struct value *out) {
    *out = v_failed();
    if (v.kind == V_BIG) {
        *out = v;
        return true;
    }
    if (is_int(v)) {
        *out = v_marked(v_int(as_int(v)), v.foreign);
        return true;
    }
    if (v.kind == V_FLOAT) return whole_float(job, v.f, v.foreign, out);
    if (!is_text(v)) return false;
    if (integer_text(job, v.text, base, out)) return true;
    double f = 0; /* "42.23" is 42 */
    char *copy = job_raw(job, v.text->n + 1, 1);
    if (!copy) return false;
    memcpy(copy, v.text->bytes, v.text->n);
    copy[v.text->n] = '\0';
    return number_read(copy, v.text->n, &f) && whole_float(job, f, v.text->foreign, out);
}

struct value filter_int(struct job *job, struct value in, const struct args *args) {
    struct value a[2], out;
    int64_t base = 10;
    if (!args_bind(job, args, "int", "default base", 0, a)) return v_failed();
    if (!arg_int(job, a[1], "int", 10, &base)) return v_failed();
    if (in.kind == V_UNDEFINED) return fail_undefined(job, in);
    if (base < 2 || base > 36) return fail_python(job, "int() base must be >= 2 and <= 36");
    if (read_integer(job, in, (int)base, &out)) return job->failed ? v_failed() : out;
    return is_given(a[0]) ? a[0] : v_int(0);
}

struct value filter_float(struct job *job, struct value in, const struct args *args) {
    struct value fallback;
    double f = 0;
    if (!args_bind(job, args, "float", "default", 0, &fallback)) return v_failed();
    if (in.kind == V_UNDEFINED) return fail_undefined(job, in);
    if (is_number(in)) return v_marked(v_float(as_float(in)), in.foreign);
    if (is_text(in) || in.kind == V_BIG) {
        char *copy = job_raw(job, in.text->n + 1, 1);
        if (!copy) return v_failed();
        memcpy(copy, in.text->bytes, in.text->n);
        copy[in.text->n] = '\0';
        if (number_read(copy, in.text->n, &f)) return v_marked(v_float(f), in.text->foreign);
    }
    return is_given(fallback) ? fallback : v_float(0);
}

struct value filter_abs(struct job *job, struct value in, const struct args *args) {
    if (!args_bind(job, args, "abs", "", 0, NULL)) return v_failed();
    if (in.kind == V_FLOAT) return v_marked(v_float(fabs(in.f)), in.foreign);
    if (is_int(in)) return as_int(in) < 0 ? negate(job, in, true) : negate(job, in, false);
    if (in.kind == V_UNDEFINED) return fail_undefined(job, in);
    return fail_python(job, "bad operand type for abs(): '%s'", type_name(in));
}

/* Python's round(float, digits): the nearest decimal, halves to even. */
static double rounded(double f, int64_t digits) {
    char text[400];
    if (!isfinite(f) || digits > 300) return f;
    if (digits < 0) {
        if (digits < -300) return copysign(0, f);
        double scale = pow(10, (double)-digits);
        return rint(f / scale) * scale;
    }
    snprintf(text, sizeof text, "%.*f", (int)digits, f);
    return strtod(text, NULL);
}

struct value filter_round(struct job *job, struct value in, const struct args *args) {
    struct value a[2];
    int64_t digits = 0;
    if (!args_bind(job, args, "round", "precision method", 0, a)) return v_failed();
    if (!arg_int(job, a[0], "round", 0, &digits)) return v_failed();
    struct text *method = arg_text(job, a[1], "common");
    if (!method) return v_failed();
    bool ceiling = text_is(method, "ceil"), floored = text_is(method, "floor");
    if (!ceiling && !floored && !text_is(method, "common"))
        return fail_python(job, "method must be common, ceil or floor");
    if (in.kind == V_UNDEFINED) return fail_undefined(job, in);
    if (!is_number(in)) return fail_python(job, "round needs a number, found %s", type_name(in));
    if (!job_step(job, digits > 16 ? 160 : 16)) return v_failed(); /* of writing digits */
    if (!ceiling && !floored) {
        if (in.kind == V_FLOAT) return v_marked(v_float(rounded(in.f, digits)), in.foreign);
        if (digits >= 0) return v_marked(v_int(as_int(in)), in.foreign);
        return v_marked(v_int((int64_t)rounded(as_float(in), digits)), in.foreign);
    }
    double scale = pow(10, (double)digits), f = as_float(in) * scale;
    return v_marked(v_float((ceiling ? ceil(f) : floor(f)) / scale), in.foreign);
}

/* ---- other notations ------------------------------------------------------------------------- */

struct value filter_tojson(struct job *job, struct value in, const struct args *args) {
    struct value a[4];
    struct json_style style = { 0 };
    struct sink out = { .job = job };
    if (!args_bind(job, args, "tojson", "ensure_ascii indent separators sort_keys", 0, a))
        return v_failed();
    style.ascii = arg_true(a[0], false);
    style.sorted = arg_true(a[3], false);
    if (is_given(a[1]) && a[1].kind != V_NONE) {
        style.lines = true;
        int64_t width = 0;
        struct sink space = { .job = job };
        if (is_text(a[1]))
            sink_text(&space, a[1].text);
        else if (!arg_int(job, a[1], "indent", 0, &width))
            return v_failed();
        else if (width > 0)
            sink_fill(&space, ' ', (size_t)width, a[1].foreign);
        struct value indent = sink_value(&space);
        if (is_failed(indent)) return indent;
        style.indent = indent.text;
    }
    if (is_given(a[2]) && a[2].kind != V_NONE) {
        struct list *two = value_items(job, a[2]);
        if (!two) return v_failed();
        if (two->n != 2 || !is_text(two->items[0]) || !is_text(two->items[1]))
            return fail_python(job, "separators must be two strings");
        style.item_sep = two->items[0].text;
        style.key_sep = two->items[1].text;
    }
    sink_json(&out, in, &style);
    return sink_value(&out);
}

static void quote_url(struct sink *out, const struct text *t, bool query) {
    for (size_t i = 0; i < t->n && !out->job->failed; i++) {
        unsigned char c = (unsigned char)t->bytes[i];
        bool foreign = t->marks ? t->marks[i] : t->foreign;
        bool plain = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                     (c && strchr("_.-~", c)) || (c == '/' && !query);
        char code[4];
        if (plain)
            sink_put(out, &t->bytes[i], 1, foreign);
        else if (query && c == ' ')
            sink_put(out, "+", 1, foreign);
        else {
            snprintf(code, sizeof code, "%%%02X", c);
            sink_put(out, code, 3, foreign);
        }
    }
}

struct value filter_urlencode(struct job *job, struct value in, const struct args *args) {
    struct sink out = { .job = job };
    struct iter it;
    struct value pair;
    if (!args_bind(job, args, "urlencode", "", 0, NULL)) return v_failed();
    if (is_text(in) || !is_iterable(in)) {
        struct text *t = as_text(job, in);
        if (t) quote_url(&out, t, false);
        return sink_value(&out);
    }
    if (in.kind == V_DICT) in = dict_view(job, in.dict, VIEW_ITEMS);
    if (is_failed(in) || !iter_open(job, in, &it)) return v_failed();
    for (bool first = true; iter_next(job, &it, &pair); first = false) {
        struct list *two = value_items(job, pair);
        if (!two || two->n != 2)
            return fail_python(job, "urlencode needs pairs of a key and a value");
        struct text *key = as_text(job, two->items[0]), *item = as_text(job, two->items[1]);
        if (!key || !item) return v_failed();
        if (!first) sink_put(&out, "&", 1, value_foreign(in));
        quote_url(&out, key, true);
        sink_put(&out, "=", 1, value_foreign(in));
        quote_url(&out, item, true);
    }
    return sink_value(&out);
}
