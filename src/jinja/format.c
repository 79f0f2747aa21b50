/* "..." % values and "...".format(values), as far as templates use them: flags, width, precision
 * and the types of texts and numbers. */
#include "jinja/filter.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* What stands between % and its letter, or behind the colon of a replacement field. */
struct spec {
    uint32_t fill;
    char align; /* '<' '>' '^' '=' or 0 */
    char sign;  /* '+' ' ' or 0 */
    bool alternate, comma, zero;
    int64_t width, precision; /* precision -1: none */
    char type;                /* 0: none */
};

/* A number's digits, with sign and prefix, still without padding. */
struct digits {
    char text[512];
    size_t n, head; /* head: bytes of sign and prefix, behind which zeros go */
};

static bool too_wide(struct job *job, const struct spec *s) {
    if (s->width <= 1 << 20 && s->precision <= 100) return false;
    fail(job, REEL_E_LIMIT, "a format wider than %d or more precise than 100, which are the limits",
         1 << 20);
    return true;
}

static void add_commas(struct digits *d, size_t whole) {
    char out[sizeof d->text];
    size_t n = 0;
    for (size_t i = 0; i < d->n && n + 2 < sizeof out; i++) {
        bool inside = i > d->head && i < d->head + whole;
        if (inside && (d->head + whole - i) % 3 == 0) out[n++] = ',';
        out[n++] = d->text[i];
    }
    memcpy(d->text, out, n);
    d->n = n;
}

static void format_integer(struct digits *d, int64_t i, const struct spec *s) {
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    char body[80];
    size_t n = 0;
    char type = s->type ? s->type : 'd';
    if (type == 'b') {
        do
            body[n++] = (char)('0' + (u & 1));
        while (u >>= 1);
        for (size_t k = 0; k < n / 2; k++) {
            char swap = body[k];
            body[k] = body[n - 1 - k];
            body[n - 1 - k] = swap;
        }
    } else {
        const char *how = type == 'x'   ? "%llx"
                          : type == 'X' ? "%llX"
                          : type == 'o' ? "%llo"
                                        : "%llu";
        n = (size_t)snprintf(body, sizeof body, how, (unsigned long long)u);
    }
    if (i < 0 || s->sign) d->text[d->n++] = i < 0 ? '-' : s->sign;
    if (s->alternate && strchr("xXob", type)) {
        d->text[d->n++] = '0';
        d->text[d->n++] = type;
    }
    d->head = d->n;
    memcpy(d->text + d->n, body, n);
    d->n += n;
    if (s->comma) add_commas(d, n);
}

/* printf's decimal point is the locale's. */
static void plain_point(char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!strchr("0123456789+-eEinfaINFA", text[i])) text[i] = '.';
}

static void format_real(struct digits *d, double f, const struct spec *s) {
    char type = s->type ? s->type : 'g', how[8] = "%.*f", body[450];
    int precision = s->precision < 0 ? 6 : (int)s->precision;
    bool percent = type == '%';
    if (percent) f *= 100;
    if (signbit(f) && !isnan(f)) {
        d->text[d->n++] = '-';
        f = -f;
    } else if (s->sign) {
        d->text[d->n++] = s->sign;
    }
    d->head = d->n;
    how[3] = percent ? 'f' : type;
    size_t n = 0;
    if (!s->type && s->precision < 0)
        n = float_repr(f, body);
    else
        n = (size_t)snprintf(body, sizeof body, how, precision, f);
    plain_point(body, n);
    if (percent) body[n++] = '%';
    size_t whole = 0;
    while (whole < n && body[whole] >= '0' && body[whole] <= '9')
        whole++;
    memcpy(d->text + d->n, body, n);
    d->n += n;
    if (s->comma) add_commas(d, whole);
}

static void put_padded(struct sink *out, const struct text *body, size_t head, int64_t more,
                       char align, const struct spec *s) {
    char fill[4];
    size_t n = utf8_write(s->fill ? s->fill : ' ', fill);
    int64_t left = align == '>' ? more : align == '^' ? more / 2 : 0;
    if (more < 0) more = left = 0;
    if (align != '=') head = 0;
    if (align == '=') left = more;
    sink_part(out, body, 0, head);
    sink_repeat(out, fill, n, (size_t)left, body->foreign);
    sink_part(out, body, head, body->n);
    sink_repeat(out, fill, n, (size_t)(more - left), body->foreign);
}

static void put_number(struct sink *out, struct value v, const struct spec *s) {
    struct digits d = { .n = 0 };
    bool real = v.kind == V_FLOAT || (s->type && strchr("eEfFgG%", s->type));
    if (real)
        format_real(&d, as_float(v), s);
    else
        format_integer(&d, as_int(v), s);
    struct text body = { .bytes = d.text, .n = d.n, .foreign = v.foreign };
    struct spec padded = *s;
    char align = s->align ? s->align : '>';
    if (s->zero && !s->align) {
        align = '=';
        padded.fill = '0';
    }
    put_padded(out, &body, d.head, s->width - (int64_t)d.n, align, &padded);
}

static void put_words(struct sink *out, struct text *t, const struct spec *s, char align) {
    if (s->precision >= 0 && (int64_t)text_chars(t) > s->precision)
        t = text_part(out->job, t, 0, text_offset(t, (size_t)s->precision));
    if (!t) return;
    put_padded(out, t, 0, s->width - (int64_t)text_chars(t), s->align ? s->align : align, s);
}

/* ---- % --------------------------------------------------------------------------------------- */

struct percent {
    struct job *job;
    struct text *format;
    size_t at;
    struct value arg;
    size_t used; /* of a tuple's items */
};

static struct value next_arg(struct percent *p) {
    bool tuple = p->arg.kind == V_TUPLE;
    if (p->used >= (tuple ? p->arg.list->n : 1))
        return fail_python(p->job, "not enough arguments for format string");
    p->used++;
    return tuple ? p->arg.list->items[p->used - 1] : p->arg;
}

static struct value named_arg(struct percent *p, bool *named) {
    const struct text *f = p->format;
    *named = p->at < f->n && f->bytes[p->at] == '(';
    if (!*named) return v_missing();
    size_t from = ++p->at;
    for (int open = 1; p->at < f->n && open; p->at++)
        open += f->bytes[p->at] == '(' ? 1 : f->bytes[p->at] == ')' ? -1 : 0;
    if (p->arg.kind != V_DICT) return fail_python(p->job, "format requires a mapping");
    struct text *key = text_part(p->job, f, from, p->at - 1);
    struct pair *pair = key ? dict_find_text(p->job, p->arg.dict, key) : NULL;
    if (pair) return pair->item;
    return fail_python(p->job, "the mapping of a format has no key '%.*s'", key ? (int)key->n : 0,
                       key ? key->bytes : "");
}

/* Digits, or * for an argument. */
static bool read_width(struct percent *p, int64_t *out) {
    const struct text *f = p->format;
    if (p->at < f->n && f->bytes[p->at] == '*') {
        p->at++;
        struct value v = next_arg(p);
        if (is_failed(v)) return false;
        if (!is_int(v)) fail_python(p->job, "* wants int");
        *out = as_int(v);
        return !p->job->failed;
    }
    while (p->at < f->n && f->bytes[p->at] >= '0' && f->bytes[p->at] <= '9' && *out < 1 << 24)
        *out = *out * 10 + (f->bytes[p->at++] - '0');
    return true;
}

static bool read_percent_spec(struct percent *p, struct spec *s) {
    const struct text *f = p->format;
    *s = (struct spec){ .precision = -1 };
    for (; p->at < f->n && f->bytes[p->at] && strchr("-+ 0#", f->bytes[p->at]); p->at++) {
        char c = f->bytes[p->at];
        if (c == '-') s->align = '<';
        if (c == '+' || (c == ' ' && !s->sign)) s->sign = c;
        if (c == '0') s->zero = true;
        if (c == '#') s->alternate = true;
    }
    if (!read_width(p, &s->width)) return false;
    if (s->width < 0) {
        s->align = '<';
        s->width = -s->width;
    }
    if (p->at < f->n && f->bytes[p->at] == '.') {
        p->at++;
        s->precision = 0;
        if (!read_width(p, &s->precision)) return false;
    }
    while (p->at < f->n && f->bytes[p->at] && strchr("hlL", f->bytes[p->at]))
        p->at++;
    if (p->at >= f->n) {
        fail_python(p->job, "incomplete format");
        return false;
    }
    s->type = f->bytes[p->at++];
    return !too_wide(p->job, s);
}

static void put_percent(struct percent *p, struct sink *out, struct spec *s, struct value v) {
    char type = s->type;
    struct sink words = { .job = p->job };
    if (type == 's' || type == 'r' || type == 'a') {
        if (type == 's')
            sink_str(&words, beside_markup(p->job, p->format, v));
        else
            sink_repr(&words, v);
        struct value t = sink_value(&words);
        if (type != 's' && !is_failed(t)) t = beside_markup(p->job, p->format, t);
        s->fill = ' ';
        if (!is_failed(t)) put_words(out, t.text, s, '>');
        return;
    }
    if (type == 'c' && (is_int(v) || (is_text(v) && text_chars(v.text) == 1))) {
        if (is_text(v))
            sink_text(&words, v.text);
        else if (as_int(v) >= 0 && as_int(v) < 0x110000 && as_int(v) >> 11 != 0x1B)
            sink_char(&words, (uint32_t)as_int(v), v.foreign);
        struct value t = sink_value(&words);
        if (!is_failed(t)) put_words(out, t.text, s, '>');
        return;
    }
    if (!strchr("diuxXoeEfFgG", type)) {
        fail_python(p->job, "unsupported format character '%c'", type);
        return;
    }
    if (v.kind == V_UNDEFINED) {
        fail_undefined(p->job, v);
        return;
    }
    bool whole = strchr("diuxXo", type) != NULL;
    if (!is_number(v) || (v.kind == V_FLOAT && strchr("xXo", type))) {
        fail_python(p->job, "%%%c format: a number is required, not %s", type, type_name(v));
        return;
    }
    if (whole && v.kind == V_FLOAT) {
        if (!isfinite(v.f) || fabs(v.f) >= 0x1p63) {
            fail_python(p->job, "cannot convert this float to integer");
            return;
        }
        v = v_marked(v_int((int64_t)v.f), v.foreign);
    }
    if (strchr("diu", type)) s->type = 'd';
    if (s->align == '<') s->zero = false;
    put_number(out, v, s);
}

struct value text_percent(struct job *job, struct text *format, struct value arg) {
    struct percent p = { .job = job, .format = format, .arg = arg };
    struct sink out = { .job = job, .safe = format->safe };
    struct text sign = { .bytes = "%", .n = 1 };
    if (!job_look(job, format->n)) return v_failed();
    bool mapped = false;
    while (p.at < format->n && !job->failed) {
        ptrdiff_t at = text_find(format, &sign, p.at, format->n);
        sink_part(&out, format, p.at, at < 0 ? format->n : (size_t)at);
        if (at < 0) break;
        p.at = (size_t)at + 1;
        if (p.at < format->n && format->bytes[p.at] == '%') {
            sink_part(&out, format, p.at, p.at + 1);
            p.at++;
            continue;
        }
        struct spec s;
        bool named = false;
        struct value v = named_arg(&p, &named);
        mapped |= named;
        if (is_failed(v) || !read_percent_spec(&p, &s)) return v_failed();
        if (!named) v = next_arg(&p);
        if (is_failed(v)) return v;
        size_t before = out.n;
        put_percent(&p, &out, &s, v);
        if (part_foreign(format, (size_t)at, p.at)) sink_own_to_foreign(&out, before);
    }
    size_t given = arg.kind == V_TUPLE ? arg.list->n : 1;
    bool left = p.used < given && !mapped && arg.kind != V_DICT && arg.kind != V_LIST;
    if (left && !job->failed)
        return fail_python(job, "not all arguments converted during string formatting");
    return sink_value(&out);
}

/* ---- format ---------------------------------------------------------------------------------- */

struct fields {
    struct job *job;
    const struct args *args;
    struct text *format;
    int next; /* the number of the next {}; -1 once fields have numbers */
    int depth;
};

static void put_fields(struct fields *f, struct sink *out, struct text *t);

static bool is_align(uint32_t c) { return c < 0x80 && c && strchr("<>=^", (int)c); }

static bool read_field_spec(struct job *job, const struct text *t, struct spec *s) {
    size_t at = 0, size = 0;
    *s = (struct spec){ .precision = -1 };
    if (t->n) {
        uint32_t c = char_at(t, 0, &size);
        if (size < t->n && is_align((unsigned char)t->bytes[size])) {
            s->fill = c;
            s->align = t->bytes[size];
            at = size + 1;
        } else if (is_align(c)) {
            s->align = t->bytes[0];
            at = 1;
        }
    }
    if (at < t->n && t->bytes[at] && strchr("+- ", t->bytes[at])) {
        s->sign = (char)(t->bytes[at] == '-' ? 0 : t->bytes[at]);
        at++;
    }
    if (at < t->n && t->bytes[at] == '#') s->alternate = ++at;
    if (at < t->n && t->bytes[at] == '0') s->zero = ++at;
    for (; at < t->n && t->bytes[at] >= '0' && t->bytes[at] <= '9' && s->width < 1 << 24; at++)
        s->width = s->width * 10 + (t->bytes[at] - '0');
    if (at < t->n && t->bytes[at] == ',') s->comma = ++at;
    if (at < t->n && t->bytes[at] == '.') {
        s->precision = 0;
        for (at++;
             at < t->n && t->bytes[at] >= '0' && t->bytes[at] <= '9' && s->precision < 1 << 24;
             at++)
            s->precision = s->precision * 10 + (t->bytes[at] - '0');
    }
    if (at < t->n) s->type = t->bytes[at++];
    if (at < t->n) {
        fail_python(job, "Invalid format specifier '%.*s'", (int)t->n, t->bytes);
        return false;
    }
    return !too_wide(job, s);
}

static void put_formatted(struct fields *f, struct sink *out, struct value v, struct text *spec) {
    struct spec s;
    if (!spec->n) {
        if (out->safe) v = value_str(f->job, v);
        sink_str(out, out->safe && !is_failed(v) ? beside_markup(f->job, f->format, v) : v);
        return;
    }
    if (!read_field_spec(f->job, spec, &s)) return;
    bool number = is_number(v) && !(v.kind == V_BOOL && !s.type);
    if (number && (!s.type || strchr(v.kind == V_FLOAT ? "eEfFgG%" : "bdoxXeEfFgG%", s.type))) {
        put_number(out, v, &s);
        return;
    }
    if (is_text(v) && (!s.type || s.type == 's')) {
        put_words(out, v.text, &s, '<');
        return;
    }
    if (v.kind == V_BOOL && !s.type) {
        v = v_marked(v_int(v.b), v.foreign);
        put_number(out, v, &s);
        return;
    }
    fail_python(f->job, "unsupported format string '%.*s' for an object of type '%s'", (int)spec->n,
                spec->bytes, type_name(v));
}

/* The value that a field's name means: 0, name, 0.attribute, name[index]. */
static struct value field_value(struct fields *f, struct text *name) {
    size_t end = 0;
    while (end < name->n && name->bytes[end] != '.' && name->bytes[end] != '[')
        end++;
    struct text *first = text_part(f->job, name, 0, end);
    struct value v = v_missing();
    if (!first) return v_failed();
    struct value number = v_missing();
    if (!first->n) {
        if (f->next < 0)
            return fail_python(f->job, "cannot switch from manual field specification to automatic "
                                       "field numbering");
        number = v_int(f->next++);
    } else if (strspn(first->bytes, "0123456789") >= first->n && first->n < 9) {
        if (f->next > 0)
            return fail_python(f->job, "cannot switch from automatic field numbering to manual "
                                       "field specification");
        f->next = -1;
        read_integer(f->job, v_text(first), 10, &number);
    }
    if (is_given(number)) {
        if (is_failed(number)) return number;
        if (number.i >= f->args->n)
            return fail_python(f->job,
                               "Replacement index %lld out of range for positional args tuple",
                               (long long)number.i);
        v = f->args->items[number.i];
    }
    if (!job_step(f->job, 1 + (size_t)f->args->n_keywords / 2)) return v_failed();
    for (int i = 0; !is_given(v) && i < f->args->n_keywords; i++)
        if (texts_equal(f->args->keywords[i].name, first)) v = f->args->keywords[i].value;
    if (!is_given(v))
        return fail_python(f->job, "format has no argument '%.*s'", (int)first->n, first->bytes);
    while (end < name->n && !is_failed(v)) {
        bool item = name->bytes[end++] == '[';
        size_t from = end;
        while (end < name->n && (item ? name->bytes[end] != ']'
                                      : name->bytes[end] != '.' && name->bytes[end] != '['))
            end++;
        struct text *part = text_part(f->job, name, from, end);
        end += item;
        if (!part) return v_failed();
        struct value index = v_text(part);
        if (item && part->n && strspn(part->bytes, "0123456789") >= part->n && part->n < 18)
            read_integer(f->job, index, 10, &index);
        v = item ? value_item(f->job, v, index) : value_attribute(f->job, v, part);
    }
    return v;
}

/* One field, [from, to) between its braces. */
static void put_field(struct fields *f, struct sink *out, struct text *t, size_t from, size_t to) {
    size_t name = from, bracket = 0;
    while (name < to && (bracket || (t->bytes[name] != ':' && t->bytes[name] != '!'))) {
        bracket = t->bytes[name] == '[' ? 1 : t->bytes[name] == ']' ? 0 : bracket;
        name++;
    }
    struct text *words = text_part(f->job, t, from, name);
    struct value v = words ? field_value(f, words) : v_failed();
    if (is_failed(v)) return;
    if (name < to && t->bytes[name] == '!') {
        char how = name + 1 < to ? t->bytes[name + 1] : '\0';
        struct sink turned = { .job = f->job };
        if (how != 's' && how != 'r') {
            fail_python(f->job, "Unknown conversion specifier '%c'", how ? how : '!');
            return;
        }
        if (how == 'r')
            sink_repr(&turned, v);
        else
            sink_str(&turned, v);
        v = sink_value(&turned);
        name += 2;
    }
    struct sink spec = { .job = f->job };
    if (name < to && t->bytes[name] == ':') {
        struct text *inner = text_part(f->job, t, name + 1, to);
        f->depth++;
        if (inner) put_fields(f, &spec, inner);
        f->depth--;
    }
    struct value ready = sink_value(&spec);
    size_t before = out->n;
    if (!is_failed(ready) && !is_failed(v)) put_formatted(f, out, v, ready.text);
    if (!is_failed(ready) && ready.text->foreign) sink_own_to_foreign(out, before);
}

static void put_fields(struct fields *f, struct sink *out, struct text *t) {
    if (f->depth > 2) {
        fail_python(f->job, "Max string recursion exceeded");
        return;
    }
    for (size_t i = 0; i < t->n && !f->job->failed;) {
        char c = t->bytes[i];
        if (c != '{' && c != '}') {
            size_t from = i;
            while (i < t->n && t->bytes[i] != '{' && t->bytes[i] != '}')
                i++;
            sink_part(out, t, from, i);
            continue;
        }
        if (i + 1 < t->n && t->bytes[i + 1] == c) {
            sink_part(out, t, i, i + 1);
            i += 2;
            continue;
        }
        size_t from = ++i;
        int open = 1;
        for (; c == '{' && i < t->n; i++) {
            open += t->bytes[i] == '{' ? 1 : t->bytes[i] == '}' ? -1 : 0;
            if (!open) break;
        }
        if (c == '}' || open) {
            fail_python(f->job, "Single '%c' encountered in format string", c);
            return;
        }
        size_t before = out->n;
        put_field(f, out, t, from, i++);
        if (part_foreign(t, from - 1, i)) sink_own_to_foreign(out, before);
    }
}

struct value text_format(struct job *job, struct text *format, const struct args *args) {
    struct fields f = { .job = job, .args = args, .format = format };
    struct sink out = { .job = job, .safe = format->safe };
    if (!job_look(job, format->n)) return v_failed();
    put_fields(&f, &out, format);
    return sink_value(&out);
}
