/* Methods of texts, lists and dicts. */
#include "jinja/eval.h"
#include "jinja/filter.h"

#define METHOD(name)                                                                               \
    static struct value name(struct job *job, struct value self, const struct args *args)

static bool text_arg(struct job *job, struct value v, const char *what) {
    if (is_text(v)) return true;
    if (v.kind == V_UNDEFINED)
        fail_undefined(job, v);
    else
        fail_python(job, "%s needs a str, found %s", what, type_name(v));
    return false;
}

/* No arguments; the text has been looked at. */
static bool alone(struct job *job, struct value self, const struct args *args, const char *what) {
    return args_bind(job, args, what, "", 0, NULL) &&
           job_look(job, is_text(self) ? self.text->n : 0);
}

/* ---- letters --------------------------------------------------------------------------------- */

static struct value recased(struct job *job, struct text *t, enum letter_case first,
                            enum letter_case rest) {
    struct sink out = { .job = job };
    size_t head = t->n ? char_bytes(t->bytes[0]) : 0;
    sink_cased(&out, t, 0, head, first);
    sink_cased(&out, t, head, t->n, rest);
    return sink_value(&out);
}

METHOD(text_upper) {
    return alone(job, self, args, "upper") ? recased(job, self.text, CASE_UPPER, CASE_UPPER)
                                           : v_failed();
}
METHOD(text_lower) {
    return alone(job, self, args, "lower") ? recased(job, self.text, CASE_LOWER, CASE_LOWER)
                                           : v_failed();
}
METHOD(text_capitalize) {
    return alone(job, self, args, "capitalize") ? recased(job, self.text, CASE_TITLE, CASE_LOWER)
                                                : v_failed();
}

static bool is_cased_char(uint32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

METHOD(text_title) {
    struct sink out = { .job = job };
    if (!alone(job, self, args, "title")) return v_failed();
    bool inside = false;
    for (size_t i = 0, size = 0; i < self.text->n; i += size) {
        uint32_t c = char_at(self.text, i, &size);
        sink_cased(&out, self.text, i, i + size, inside ? CASE_LOWER : CASE_TITLE);
        inside = is_cased_char(c);
    }
    return sink_value(&out);
}

METHOD(text_swapcase) {
    struct sink out = { .job = job };
    if (!alone(job, self, args, "swapcase")) return v_failed();
    for (size_t i = 0, size = 0; i < self.text->n; i += size) {
        uint32_t c = char_at(self.text, i, &size);
        if (is_upper(c) || is_lower(c))
            sink_cased(&out, self.text, i, i + size, is_upper(c) ? CASE_LOWER : CASE_UPPER);
        else
            sink_part(&out, self.text, i, i + size);
    }
    return sink_value(&out);
}

typedef bool class_fn(uint32_t c);
static struct value all_of(struct job *job, struct value self, const struct args *args,
                           class_fn *is, bool empty) {
    if (!alone(job, self, args, "this method")) return v_failed();
    for (size_t i = 0, size = 0; i < self.text->n; i += size)
        if (!is(char_at(self.text, i, &size))) return v_bool(false);
    return v_bool(empty || self.text->n);
}

static bool is_alnum_char(uint32_t c) { return is_alpha(c) || is_numeric(c); }
static bool is_ascii_char(uint32_t c) { return c < 0x80; }
METHOD(text_isspace) { return all_of(job, self, args, is_space, false); }
METHOD(text_isalpha) { return all_of(job, self, args, is_alpha, false); }
METHOD(text_isdigit) { return all_of(job, self, args, is_digit, false); }
METHOD(text_isdecimal) { return all_of(job, self, args, is_decimal, false); }
METHOD(text_isnumeric) { return all_of(job, self, args, is_numeric, false); }
METHOD(text_isalnum) { return all_of(job, self, args, is_alnum_char, false); }
METHOD(text_isascii) { return all_of(job, self, args, is_ascii_char, true); }
METHOD(text_isprintable) { return all_of(job, self, args, is_printable, true); }
METHOD(text_isupper) { return test_find("upper", 5)->fn(job, self, args); }
METHOD(text_islower) { return test_find("lower", 5)->fn(job, self, args); }

/* ---- ends ------------------------------------------------------------------------------------ */

static struct value stripped(struct job *job, struct value self, const struct args *args, bool left,
                             bool right) {
    struct value chars;
    if (!args_bind(job, args, "strip", "chars", 0, &chars)) return v_failed();
    const struct text *set = NULL;
    if (is_given(chars) && chars.kind != V_NONE) {
        if (!text_arg(job, chars, "strip")) return v_failed();
        set = chars.text;
    }
    if (!job_step(job, 1 + self.text->n * (set ? 1 + set->n : 1) / 16)) return v_failed();
    size_t from = left ? strip_left(self.text, set) : 0;
    size_t to = right ? strip_right(self.text, set, from) : self.text->n;
    return v_text(text_part(job, self.text, from, to));
}
METHOD(text_strip) { return stripped(job, self, args, true, true); }
METHOD(text_lstrip) { return stripped(job, self, args, true, false); }
METHOD(text_rstrip) { return stripped(job, self, args, false, true); }

METHOD(text_removeprefix) {
    struct value v;
    if (!args_bind(job, args, "removeprefix", "prefix", 1, &v)) return v_failed();
    if (!text_arg(job, v, "removeprefix") || !job_look(job, v.text->n)) return v_failed();
    bool has = v.text->n <= self.text->n && !memcmp(self.text->bytes, v.text->bytes, v.text->n);
    return has ? v_text(text_part(job, self.text, v.text->n, self.text->n)) : self;
}
METHOD(text_removesuffix) {
    struct value v;
    if (!args_bind(job, args, "removesuffix", "suffix", 1, &v)) return v_failed();
    if (!text_arg(job, v, "removesuffix") || !job_look(job, v.text->n)) return v_failed();
    size_t n = self.text->n;
    bool has = v.text->n && v.text->n <= n &&
               !memcmp(self.text->bytes + n - v.text->n, v.text->bytes, v.text->n);
    return has ? v_text(text_part(job, self.text, 0, n - v.text->n)) : self;
}

/* The bytes that optional start and end arguments choose; false when there is no such place, which
 * Python tells from an empty one. */
static bool window(struct job *job, struct text *t, const struct value ends[2], size_t *from,
                   size_t *to) {
    int64_t n = (int64_t)text_chars(t), place[2] = { 0, n };
    for (int i = 0; i < 2; i++) {
        if (!is_given(ends[i]) || ends[i].kind == V_NONE) continue;
        if (!arg_int(job, ends[i], "a place in a text", 0, &place[i])) return false;
        if (place[i] < 0) place[i] = place[i] < -n ? 0 : place[i] + n;
    }
    if (place[0] > n || place[0] > (place[1] > n ? n : place[1])) return false;
    *from = text_offset(t, (size_t)place[0]);
    *to = text_offset(t, (size_t)(place[1] > n ? n : place[1]));
    return true;
}

static bool has_end(const struct text *t, const struct text *part, size_t from, size_t to,
                    bool start) {
    if (to - from < part->n) return false;
    return !memcmp(t->bytes + (start ? from : to - part->n), part->bytes, part->n);
}

static struct value ends_with(struct job *job, struct value self, const struct args *args,
                              bool start) {
    struct value a[3];
    size_t from = 0, to = 0;
    const char *what = start ? "startswith" : "endswith";
    if (!args_bind(job, args, what, "prefix start end", 1, a)) return v_failed();
    if ((is_given(a[1]) || is_given(a[2])) && !job_look(job, self.text->n)) return v_failed();
    bool inside = window(job, self.text, a + 1, &from, &to);
    if (job->failed) return v_failed();
    struct value one = a[0];
    size_t n = one.kind == V_TUPLE ? one.list->n : 1;
    for (size_t i = 0; i < n; i++) {
        struct value part = one.kind == V_TUPLE ? one.list->items[i] : one;
        if (!text_arg(job, part, what) || !job_look(job, part.text->n)) return v_failed();
        if (inside && has_end(self.text, part.text, from, to, start)) return v_bool(true);
    }
    return v_bool(false);
}
METHOD(text_startswith) { return ends_with(job, self, args, true); }
METHOD(text_endswith) { return ends_with(job, self, args, false); }

/* ---- finding --------------------------------------------------------------------------------- */

static struct value found_at(struct job *job, struct value self, const struct args *args,
                             const char *what, bool last, bool must) {
    struct value a[3];
    size_t from = 0, to = 0;
    if (!args_bind(job, args, what, "sub start end", 1, a)) return v_failed();
    if (!text_arg(job, a[0], what) || !job_look(job, self.text->n)) return v_failed();
    bool inside = window(job, self.text, a + 1, &from, &to);
    if (job->failed) return v_failed();
    ptrdiff_t at = -1;
    if (inside)
        at = last ? text_find_last(self.text, a[0].text, from, to)
                  : text_find(self.text, a[0].text, from, to);
    if (at < 0 && must) return fail_python(job, "substring not found");
    return v_marked(v_int(at < 0 ? -1 : (int64_t)text_index(self.text, (size_t)at)),
                    self.text->foreign);
}
METHOD(text_method_find) { return found_at(job, self, args, "find", false, false); }
METHOD(text_rfind) { return found_at(job, self, args, "rfind", true, false); }
METHOD(text_method_index) { return found_at(job, self, args, "index", false, true); }
METHOD(text_rindex) { return found_at(job, self, args, "rindex", true, true); }

METHOD(text_count) {
    struct value a[3];
    size_t from = 0, to = 0;
    int64_t count = 0;
    if (!args_bind(job, args, "count", "sub start end", 1, a)) return v_failed();
    if (!text_arg(job, a[0], "count") || !job_look(job, self.text->n)) return v_failed();
    if (window(job, self.text, a + 1, &from, &to)) {
        const struct text *sub = a[0].text;
        struct text part = { .bytes = self.text->bytes + from, .n = to - from, .n_chars = -1 };
        if (!sub->n) count = (int64_t)text_chars(&part) + 1;
        for (ptrdiff_t at = 0; sub->n && (at = text_find(self.text, sub, from, to)) >= 0; count++)
            from = (size_t)at + sub->n;
    }
    return job->failed ? v_failed() : v_marked(v_int(count), self.text->foreign);
}

METHOD(text_method_replace) {
    struct value a[3];
    int64_t count = -1;
    if (!args_bind(job, args, "replace", "old new count", 2, a)) return v_failed();
    if (!text_arg(job, a[0], "replace") || !text_arg(job, a[1], "replace")) return v_failed();
    if (!arg_int(job, a[2], "replace", -1, &count)) return v_failed();
    a[1] = beside_markup(job, self.text, a[1]);
    if (is_failed(a[1])) return a[1];
    return text_replace(job, self.text, a[0].text, a[1].text, count);
}

/* ---- cutting --------------------------------------------------------------------------------- */

static bool add_part(struct job *job, struct list *list, struct text *t, size_t from, size_t to) {
    return list_add(job, list, v_text(text_part(job, t, from, to)));
}

static size_t char_before(const struct text *t, size_t at) {
    do
        at--;
    while (((unsigned char)t->bytes[at] & 0xC0) == 0x80);
    return at;
}

static bool space_at(const struct text *t, size_t at, size_t *size) {
    return is_space(char_at(t, at, size));
}

static struct list *split_space(struct job *job, struct text *t, int64_t max) {
    struct list *out = list_new(job, 0);
    size_t at = 0, size = 0;
    while (out) {
        while (at < t->n && space_at(t, at, &size))
            at += size;
        if (at >= t->n) break;
        size_t from = at;
        if (max >= 0 && (int64_t)out->n >= max) {
            if (!add_part(job, out, t, from, t->n)) return NULL;
            break;
        }
        while (at < t->n && !space_at(t, at, &size))
            at += size;
        if (!add_part(job, out, t, from, at)) return NULL;
    }
    return out;
}

static bool reverse_list(struct list *list) {
    for (size_t i = 0, k = list->n; i + 1 < k; i++) {
        struct value swap = list->items[i];
        list->items[i] = list->items[--k];
        list->items[k] = swap;
    }
    return true;
}

static struct list *rsplit_space(struct job *job, struct text *t, int64_t max) {
    struct list *out = list_new(job, 0);
    size_t at = t->n, size = 0;
    while (out) {
        while (at > 0 && space_at(t, char_before(t, at), &size))
            at = char_before(t, at);
        if (!at) break;
        size_t to = at;
        if (max >= 0 && (int64_t)out->n >= max) {
            if (!add_part(job, out, t, 0, to)) return NULL;
            break;
        }
        while (at > 0 && !space_at(t, char_before(t, at), &size))
            at = char_before(t, at);
        if (!add_part(job, out, t, at, to)) return NULL;
    }
    if (out) reverse_list(out);
    return out;
}

static struct list *split_by(struct job *job, struct text *t, const struct text *sep, int64_t max) {
    struct list *out = list_new(job, 0);
    size_t from = 0;
    while (out && (max < 0 || (int64_t)out->n < max)) {
        ptrdiff_t at = text_find(t, sep, from, t->n);
        if (at < 0) break;
        if (!add_part(job, out, t, from, (size_t)at)) return NULL;
        from = (size_t)at + sep->n;
    }
    return out && add_part(job, out, t, from, t->n) ? out : NULL;
}

static struct list *rsplit_by(struct job *job, struct text *t, const struct text *sep,
                              int64_t max) {
    struct list *out = list_new(job, 0);
    size_t to = t->n;
    while (out && (max < 0 || (int64_t)out->n < max)) {
        ptrdiff_t at = text_find_last(t, sep, 0, to);
        if (at < 0) break;
        if (!add_part(job, out, t, (size_t)at + sep->n, to)) return NULL;
        to = (size_t)at;
    }
    if (!out || !add_part(job, out, t, 0, to)) return NULL;
    reverse_list(out);
    return out;
}

static struct value split_text(struct job *job, struct value self, const struct args *args,
                               bool right) {
    struct value a[2];
    int64_t max = -1;
    const char *what = right ? "rsplit" : "split";
    if (!args_bind(job, args, what, "sep maxsplit", 0, a)) return v_failed();
    if (!arg_int(job, a[1], what, -1, &max) || !job_look(job, self.text->n)) return v_failed();
    if (!is_given(a[0]) || a[0].kind == V_NONE)
        return v_list(right ? rsplit_space(job, self.text, max) : split_space(job, self.text, max));
    if (!text_arg(job, a[0], what)) return v_failed();
    if (!a[0].text->n) return fail_python(job, "empty separator");
    return v_list(right ? rsplit_by(job, self.text, a[0].text, max)
                        : split_by(job, self.text, a[0].text, max));
}
METHOD(text_split) { return split_text(job, self, args, false); }
METHOD(text_rsplit) { return split_text(job, self, args, true); }

static struct value parted(struct job *job, struct value self, const struct args *args,
                           bool right) {
    struct value sep;
    const char *what = right ? "rpartition" : "partition";
    if (!args_bind(job, args, what, "sep", 1, &sep) || !text_arg(job, sep, what)) return v_failed();
    if (!sep.text->n) return fail_python(job, "empty separator");
    if (!job_look(job, self.text->n)) return v_failed();
    struct text *t = self.text;
    ptrdiff_t at = right ? text_find_last(t, sep.text, 0, t->n) : text_find(t, sep.text, 0, t->n);
    size_t from = at < 0 ? (right ? 0 : t->n) : (size_t)at;
    size_t to = at < 0 ? from : from + sep.text->n;
    struct list *three = list_new(job, 3);
    if (!three || !add_part(job, three, t, 0, from) || !add_part(job, three, t, from, to) ||
        !add_part(job, three, t, to, t->n))
        return v_failed();
    return v_tuple(three);
}
METHOD(text_partition) { return parted(job, self, args, false); }
METHOD(text_rpartition) { return parted(job, self, args, true); }

METHOD(text_splitlines) {
    struct value keep;
    if (!args_bind(job, args, "splitlines", "keepends", 0, &keep)) return v_failed();
    if (!job_look(job, self.text->n)) return v_failed();
    return v_list(text_lines(job, self.text, arg_true(keep, false)));
}

/* ---- joining, padding, formatting ------------------------------------------------------------ */

METHOD(text_method_join) {
    struct value items, item;
    struct iter it;
    struct sink out = { .job = job };
    size_t n = 0;
    if (!args_bind(job, args, "join", "iterable", 1, &items) || !iter_open(job, items, &it))
        return v_failed();
    while (iter_next(job, &it, &item)) {
        if (!is_text(item))
            return fail_python(job, "sequence item %zu: expected str instance, %s found", n,
                               type_name(item));
        item = beside_markup(job, self.text, item);
        if (is_failed(item)) return item;
        if (n++) sink_text(&out, self.text);
        sink_text(&out, item.text);
    }
    return sink_value(&out);
}

static struct value padded(struct job *job, struct value self, const struct args *args,
                           enum pad side) {
    struct value a[2];
    int64_t width = 0;
    if (!args_bind(job, args, "padding", "width fillchar", 1, a)) return v_failed();
    if (!arg_int(job, a[0], "padding", 0, &width)) return v_failed();
    if (is_given(a[1]) && !text_arg(job, a[1], "padding")) return v_failed();
    if (is_given(a[1]) && text_chars(a[1].text) != 1)
        return fail_python(job, "The fill character must be exactly one character long");
    return text_pad(job, self.text, width, side, is_given(a[1]) ? a[1].text : NULL);
}
METHOD(text_ljust) { return padded(job, self, args, PAD_RIGHT); }
METHOD(text_rjust) { return padded(job, self, args, PAD_LEFT); }
METHOD(text_center) { return padded(job, self, args, PAD_CENTER); }

METHOD(text_zfill) {
    struct value v;
    int64_t width = 0;
    if (!args_bind(job, args, "zfill", "width", 1, &v) || !arg_int(job, v, "zfill", 0, &width))
        return v_failed();
    struct text *t = self.text;
    size_t sign = t->n && (t->bytes[0] == '+' || t->bytes[0] == '-');
    int64_t zeros = width - (int64_t)text_chars(t);
    struct sink out = { .job = job };
    sink_part(&out, t, 0, sign);
    if (zeros > 0) sink_fill(&out, '0', (size_t)zeros, t->foreign);
    sink_part(&out, t, sign, t->n);
    return sink_value(&out);
}

METHOD(text_method_format) { return text_format(job, self.text, args); }

METHOD(text_expandtabs) {
    struct value v;
    int64_t size = 8;
    struct sink out = { .job = job };
    if (!args_bind(job, args, "expandtabs", "tabsize", 0, &v) || !job_look(job, self.text->n))
        return v_failed();
    if (!arg_int(job, v, "expandtabs", 8, &size)) return v_failed();
    int64_t column = 0;
    for (size_t i = 0, n = 0; i < self.text->n && !job->failed; i += n) {
        uint32_t c = char_at(self.text, i, &n);
        if (c == '\t') {
            int64_t more = size > 0 ? size - column % size : 0;
            sink_fill(&out, ' ', (size_t)more, self.text->foreign);
            column += more;
            continue;
        }
        column = c == '\n' || c == '\r' ? 0 : column + 1;
        sink_part(&out, self.text, i, i + n);
    }
    return sink_value(&out);
}

/* ---- dicts and lists ------------------------------------------------------------------------- */

struct value dict_view(struct job *job, struct dict *dict, enum view_part part) {
    struct view *view = dict ? job_raw(job, 1, sizeof *view) : NULL;
    if (!view) return v_failed();
    *view = (struct view){ dict, part };
    return (struct value){ .kind = V_VIEW, .view = view };
}
METHOD(dict_items) {
    return alone(job, self, args, "items") ? dict_view(job, self.dict, VIEW_ITEMS) : v_failed();
}
METHOD(dict_keys) {
    return alone(job, self, args, "keys") ? dict_view(job, self.dict, VIEW_KEYS) : v_failed();
}
METHOD(dict_values) {
    return alone(job, self, args, "values") ? dict_view(job, self.dict, VIEW_VALUES) : v_failed();
}
METHOD(dict_get) {
    struct value a[2];
    if (!args_bind(job, args, "get", "key default", 1, a)) return v_failed();
    struct pair *pair = dict_find(job, self.dict, a[0]);
    if (job->failed) return v_failed();
    return pair ? pair->item : is_given(a[1]) ? a[1] : v_none();
}
METHOD(dict_copy) {
    if (!alone(job, self, args, "copy")) return v_failed();
    struct dict *copy = dict_new(job, self.dict->n);
    for (size_t i = 0; i < self.dict->n; i++)
        if (!dict_set(job, copy, self.dict->pairs[i].key, self.dict->pairs[i].item))
            return v_failed();
    return v_dict(copy);
}
METHOD(list_copy) {
    if (!alone(job, self, args, "copy")) return v_failed();
    return v_list(list_part(job, self.list, 0, self.list->n));
}
METHOD(list_index) {
    struct value a[3];
    int64_t from = 0, to = 0;
    struct list *list = value_items(job, self);
    if (!list || !args_bind(job, args, "index", "value start stop", 1, a)) return v_failed();
    int64_t n = (int64_t)list->n;
    if (!arg_int(job, a[1], "index", 0, &from) || !arg_int(job, a[2], "index", n, &to))
        return v_failed();
    if (from < 0) from = from < -n ? 0 : from + n;
    if (to < 0) to += n;
    for (int64_t i = from; i < to && i < n; i++)
        if (values_equal(job, list->items[i], a[0])) return v_marked(v_int(i), value_foreign(self));
    return fail_python(job, "the value is not in the list");
}
METHOD(list_count) {
    struct value v;
    int64_t count = 0;
    struct list *list = value_items(job, self);
    if (!list || !args_bind(job, args, "count", "value", 1, &v)) return v_failed();
    for (size_t i = 0; i < list->n; i++)
        count += values_equal(job, list->items[i], v);
    return job->failed ? v_failed() : v_marked(v_int(count), value_foreign(self));
}

/* ---- cycler ---------------------------------------------------------------------------------- */

METHOD(cycler_next) {
    if (!alone(job, self, args, "next")) return v_failed();
    struct value now = self.cycler->items->items[self.cycler->at];
    self.cycler->at = (self.cycler->at + 1) % self.cycler->items->n;
    return now;
}
METHOD(cycler_reset) {
    if (!alone(job, self, args, "reset")) return v_failed();
    self.cycler->at = 0;
    return v_none();
}

static const struct method_entry text_methods[] = {
    { "strip", text_strip, false },
    { "split", text_split, false },
    { "startswith", text_startswith, false },
    { "endswith", text_endswith, false },
    { "lstrip", text_lstrip, false },
    { "rstrip", text_rstrip, false },
    { "replace", text_method_replace, false },
    { "upper", text_upper, false },
    { "lower", text_lower, false },
    { "title", text_title, false },
    { "capitalize", text_capitalize, false },
    { "swapcase", text_swapcase, false },
    { "casefold", text_lower, false },
    { "rsplit", text_rsplit, false },
    { "splitlines", text_splitlines, false },
    { "partition", text_partition, false },
    { "rpartition", text_rpartition, false },
    { "find", text_method_find, false },
    { "rfind", text_rfind, false },
    { "index", text_method_index, false },
    { "rindex", text_rindex, false },
    { "count", text_count, false },
    { "join", text_method_join, false },
    { "format", text_method_format, false },
    { "removeprefix", text_removeprefix, false },
    { "removesuffix", text_removesuffix, false },
    { "ljust", text_ljust, false },
    { "rjust", text_rjust, false },
    { "center", text_center, false },
    { "zfill", text_zfill, false },
    { "expandtabs", text_expandtabs, false },
    { "isspace", text_isspace, false },
    { "isalpha", text_isalpha, false },
    { "isdigit", text_isdigit, false },
    { "isdecimal", text_isdecimal, false },
    { "isnumeric", text_isnumeric, false },
    { "isalnum", text_isalnum, false },
    { "isascii", text_isascii, false },
    { "isprintable", text_isprintable, false },
    { "isupper", text_isupper, false },
    { "islower", text_islower, false },
    { NULL, NULL, false },
};

static const struct method_entry dict_methods[] = {
    { "items", dict_items, false }, { "keys", dict_keys, false }, { "values", dict_values, false },
    { "get", dict_get, false },     { "copy", dict_copy, false }, { "update", NULL, true },
    { "pop", NULL, true },          { "popitem", NULL, true },    { "clear", NULL, true },
    { "setdefault", NULL, true },   { NULL, NULL, false },
};

static const struct method_entry list_methods[] = {
    { "index", list_index, false }, { "count", list_count, false }, { "copy", list_copy, false },
    { "append", NULL, true },       { "extend", NULL, true },       { "insert", NULL, true },
    { "pop", NULL, true },          { "remove", NULL, true },       { "clear", NULL, true },
    { "reverse", NULL, true },      { "sort", NULL, true },         { NULL, NULL, false },
};

static const struct method_entry tuple_methods[] = { { "index", list_index, false },
                                                     { "count", list_count, false },
                                                     { NULL, NULL, false } };
static const struct method_entry loop_methods[] = { { "cycle", loop_cycle, false },
                                                    { "changed", loop_changed, false },
                                                    { NULL, NULL, false } };
static const struct method_entry cycler_methods[] = { { "next", cycler_next, false },
                                                      { "reset", cycler_reset, false },
                                                      { NULL, NULL, false } };

/* Markup in what a method of Markup gives: a text, or a list or tuple of texts. */
static struct value made_safe(struct job *job, struct value v) {
    if (v.kind == V_LIST || v.kind == V_TUPLE) {
        for (size_t i = 0; i < v.list->n; i++)
            v.list->items[i] = made_safe(job, v.list->items[i]);
        return v;
    }
    if (!is_text(v) || v.text->safe) return v;
    struct text *t = text_part(job, v.text, 0, v.text->n);
    if (t) t->safe = true;
    return v_text(t);
}

struct value method_call(struct job *job, const struct method *method, const struct args *args) {
    struct value v = method->entry->fn(job, method->self, args);
    if (!is_text(method->self) || !method->self.text->safe) return v;
    v = made_safe(job, v);
    return job->failed ? v_failed() : v;
}

const struct method_entry *method_find(enum kind kind, const char *name, size_t n) {
    const struct method_entry *entry = kind == V_TEXT     ? text_methods
                                       : kind == V_DICT   ? dict_methods
                                       : kind == V_LIST   ? list_methods
                                       : kind == V_TUPLE  ? tuple_methods
                                       : kind == V_RANGE  ? tuple_methods
                                       : kind == V_LOOP   ? loop_methods
                                       : kind == V_CYCLER ? cycler_methods
                                                          : NULL;
    struct text word = { .bytes = name, .n = n };
    for (; entry && entry->name; entry++)
        if (text_is(&word, entry->name)) return entry;
    return NULL;
}
