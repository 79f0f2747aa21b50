/* Filters that go through items. Those that are generators in jinja2 give a list here, which
 * filter_apply hides behind a generator. */
#include "jinja/filter.h"

/* ---- attributes by a path -------------------------------------------------------------------- */

static bool all_digits(const struct text *t) {
    for (size_t i = 0; i < t->n; i++)
        if (t->bytes[i] < '0' || t->bytes[i] > '9') return false;
    return t->n > 0 && t->n < 18;
}

static struct value path_part(struct job *job, struct text *part) {
    if (!all_digits(part)) return v_text(part);
    int64_t i = 0;
    for (size_t k = 0; k < part->n; k++)
        i = i * 10 + (part->bytes[k] - '0');
    (void)job;
    return v_int(i);
}

/* item.a.b.0 for the path "a.b.0". What is undefined on the way becomes `fallback` if given. */
static struct value follow(struct job *job, struct value item, struct value path,
                           struct value fallback) {
    if (path.kind == V_NONE || !is_given(path)) return item;
    if (!is_text(path)) {
        item = value_item(job, item, path);
    } else {
        struct text dot = { .bytes = ".", .n = 1 };
        for (size_t from = 0; from <= path.text->n && !is_failed(item);) {
            ptrdiff_t at = text_find(path.text, &dot, from, path.text->n);
            size_t to = at < 0 ? path.text->n : (size_t)at;
            struct text *part = text_part(job, path.text, from, to);
            if (!part) return v_failed();
            item = value_item(job, item, path_part(job, part));
            if (item.kind == V_UNDEFINED && is_given(fallback) && fallback.kind != V_NONE)
                item = fallback;
            from = to + 1;
        }
        return item;
    }
    if (item.kind == V_UNDEFINED && is_given(fallback) && fallback.kind != V_NONE) item = fallback;
    return item;
}

static struct value folded(struct job *job, struct value v, bool fold) {
    if (!fold || !is_text(v)) return v;
    return filter_lower(job, v, &(struct args){ 0 });
}

/* ---- sorting --------------------------------------------------------------------------------- */

struct sorted {
    struct value key, item;
};

static bool merge(struct job *job, const struct sorted *in, struct sorted *out, size_t from,
                  size_t middle, size_t to, bool reverse) {
    size_t a = from, b = middle;
    for (size_t i = from; i < to; i++) {
        bool right = false;
        if (a >= middle) {
            right = true;
        } else if (b < to) {
            right = reverse ? value_less(job, in[a].key, in[b].key, "<")
                            : value_less(job, in[b].key, in[a].key, "<");
            if (!job_step(job, 1)) return false;
        }
        out[i] = right ? in[b++] : in[a++];
    }
    return true;
}

bool list_sort(struct job *job, struct list *list, const struct list *keys, bool reverse) {
    size_t n = list->n;
    struct sorted *a = job_raw(job, n, sizeof *a), *b = job_raw(job, n, sizeof *b);
    if (!a || !b) return false;
    for (size_t i = 0; i < n; i++)
        a[i] = (struct sorted){ keys ? keys->items[i] : list->items[i], list->items[i] };
    for (size_t width = 1; width < n; width *= 2) {
        for (size_t from = 0; from < n; from += 2 * width) {
            size_t middle = from + width < n ? from + width : n;
            size_t to = from + 2 * width < n ? from + 2 * width : n;
            if (!merge(job, a, b, from, middle, to, reverse)) return false;
        }
        struct sorted *swap = a;
        a = b;
        b = swap;
    }
    for (size_t i = 0; i < n; i++)
        list->items[i] = a[i].item;
    return true;
}

static struct list *copy_items(struct job *job, struct value in) {
    struct list *items = value_items(job, in);
    return items ? list_part(job, items, 0, items->n) : NULL;
}

struct value filter_sort(struct job *job, struct value in, const struct args *args) {
    struct value a[3];
    if (!args_bind(job, args, "sort", "reverse case_sensitive attribute", 0, a)) return v_failed();
    struct list *list = copy_items(job, in), *keys = list_new(job, 0);
    bool fold = !arg_true(a[1], false);
    struct text comma = { .bytes = ",", .n = 1 };
    for (size_t i = 0; list && i < list->n; i++) {
        struct list *key = list_new(job, 1);
        if (!is_text(a[2])) {
            if (!list_add(job, key,
                          folded(job, follow(job, list->items[i], a[2], v_missing()), fold)))
                return v_failed();
        } else {
            for (size_t from = 0; from <= a[2].text->n;) {
                ptrdiff_t at = text_find(a[2].text, &comma, from, a[2].text->n);
                size_t to = at < 0 ? a[2].text->n : (size_t)at;
                struct value path = v_text(text_part(job, a[2].text, from, to));
                if (is_failed(path)) return path;
                struct value part = follow(job, list->items[i], path, v_missing());
                if (!list_add(job, key, folded(job, part, fold))) return v_failed();
                from = to + 1;
            }
        }
        if (!list_add(job, keys, v_list(key))) return v_failed();
    }
    if (!list || !list_sort(job, list, keys, arg_true(a[0], false))) return v_failed();
    return v_list(list);
}

struct value filter_dictsort(struct job *job, struct value in, const struct args *args) {
    struct value a[3];
    if (!args_bind(job, args, "dictsort", "case_sensitive by reverse", 0, a)) return v_failed();
    struct text *by = arg_text(job, a[1], "key");
    if (!by) return v_failed();
    bool value = text_is(by, "value");
    if (!value && !text_is(by, "key"))
        return fail_python(job, "You can only sort by either \"key\" or \"value\"");
    if (in.kind == V_UNDEFINED) return fail_undefined(job, in);
    if (in.kind != V_DICT)
        return fail_python(job, "dictsort needs a dict, found %s", type_name(in));
    struct list *items = value_items(job, dict_view(job, in.dict, VIEW_ITEMS));
    struct list *keys = list_new(job, in.dict->n);
    for (size_t i = 0; items && i < items->n; i++)
        if (!list_add(job, keys,
                      folded(job, items->items[i].list->items[value], !arg_true(a[0], false))))
            return v_failed();
    if (!items || !list_sort(job, items, keys, arg_true(a[2], false))) return v_failed();
    return v_list(items);
}

struct value filter_groupby(struct job *job, struct value in, const struct args *args) {
    struct value a[3];
    if (!args_bind(job, args, "groupby", "attribute default case_sensitive", 1, a))
        return v_failed();
    bool fold = !arg_true(a[2], false);
    struct list *items = copy_items(job, in), *keys = list_new(job, 0), *groups = list_new(job, 0);
    for (size_t i = 0; items && i < items->n; i++)
        if (!list_add(job, keys, folded(job, follow(job, items->items[i], a[0], a[1]), fold)))
            return v_failed();
    if (!items || !list_sort(job, items, keys, false)) return v_failed();
    struct value last = v_missing();
    for (size_t i = 0; i < items->n; i++) {
        struct value own = follow(job, items->items[i], a[0], a[1]);
        struct value key = folded(job, own, fold);
        if (is_failed(key)) return key;
        if (!is_given(last) || !values_equal(job, last, key)) {
            struct list *group = list_new(job, 2);
            if (!list_add(job, group, own) || !list_add(job, group, v_list(list_new(job, 0))))
                return v_failed();
            group->group = true;
            if (!list_add(job, groups, v_tuple(group))) return v_failed();
            last = key;
        }
        struct list *group = groups->items[groups->n - 1].list;
        if (!list_add(job, group->items[1].list, items->items[i])) return v_failed();
        group->foreign |= group->items[1].list->foreign;
        groups->foreign |= group->foreign;
    }
    return v_list(groups);
}

static struct value extreme(struct job *job, struct value in, const struct args *args, bool max) {
    struct value a[2], best = v_missing(), best_key = v_missing(), item;
    struct iter it;
    if (!args_bind(job, args, max ? "max" : "min", "case_sensitive attribute", 0, a))
        return v_failed();
    if (!iter_open(job, in, &it)) return v_failed();
    while (iter_next(job, &it, &item)) {
        struct value key =
            folded(job, follow(job, item, a[1], v_missing()), !arg_true(a[0], false));
        if (is_failed(key)) return key;
        bool better = !is_given(best) || (max ? value_less(job, best_key, key, ">")
                                              : value_less(job, key, best_key, "<"));
        if (job->failed) return v_failed();
        if (!better) continue;
        best = item;
        best_key = key;
    }
    if (job->failed) return v_failed();
    return is_given(best) ? best : undefined_hint(job, "No aggregated item, sequence was empty.");
}

struct value filter_min(struct job *job, struct value in, const struct args *args) {
    return extreme(job, in, args, false);
}
struct value filter_max(struct job *job, struct value in, const struct args *args) {
    return extreme(job, in, args, true);
}

struct value filter_unique(struct job *job, struct value in, const struct args *args) {
    struct value a[2], item;
    struct iter it;
    if (!args_bind(job, args, "unique", "case_sensitive attribute", 0, a)) return v_failed();
    struct list *out = list_new(job, 0);
    struct dict *seen = dict_new(job, 0);
    if (!iter_open(job, in, &it) || !seen || !out) return v_failed();
    while (iter_next(job, &it, &item)) {
        struct value key =
            folded(job, follow(job, item, a[1], v_missing()), !arg_true(a[0], false));
        if (is_failed(key)) return key;
        if (dict_find(job, seen, key)) continue;
        if (!dict_set(job, seen, key, v_none()) || !list_add(job, out, item)) return v_failed();
    }
    return job->failed ? v_failed() : v_list(out);
}

/* ---- one item, or a number ------------------------------------------------------------------- */

struct value filter_length(struct job *job, struct value in, const struct args *args) {
    if (!args_bind(job, args, "length", "", 0, NULL)) return v_failed();
    ptrdiff_t n = value_length(job, in);
    return n < 0 ? v_failed() : v_marked(v_int(n), value_foreign(in));
}

struct value filter_first(struct job *job, struct value in, const struct args *args) {
    struct iter it;
    struct value item;
    if (!args_bind(job, args, "first", "", 0, NULL) || !iter_open(job, in, &it)) return v_failed();
    if (iter_next(job, &it, &item)) return item;
    return job->failed ? v_failed() : undefined_hint(job, "No first item, sequence was empty.");
}

struct value filter_last(struct job *job, struct value in, const struct args *args) {
    if (!args_bind(job, args, "last", "", 0, NULL)) return v_failed();
    if (in.kind == V_GENERATOR || !is_iterable(in))
        return fail_python(job, "'%s' object is not reversible", type_name(in));
    if (is_text(in) && in.text->n) {
        if (!job_look(job, in.text->n)) return v_failed();
        size_t from = text_offset(in.text, text_chars(in.text) - 1);
        struct text *last = text_part(job, in.text, from, in.text->n);
        if (last) last->safe = in.text->safe;
        return v_text(last);
    }
    struct list *items = value_items(job, in);
    if (!items) return v_failed();
    if (items->n) return items->items[items->n - 1];
    return undefined_hint(job, "No last item, sequence was empty.");
}

struct value filter_sum(struct job *job, struct value in, const struct args *args) {
    struct value a[2], item;
    struct iter it;
    if (!args_bind(job, args, "sum", "attribute start", 0, a) || !iter_open(job, in, &it))
        return v_failed();
    struct value sum = is_given(a[1]) ? a[1] : v_int(0);
    if (is_text(sum)) return fail_python(job, "sum() can't sum strings [use ''.join(seq) instead]");
    while (iter_next(job, &it, &item)) {
        sum = operate(job, OP_ADD, sum, follow(job, item, a[0], v_missing()));
        if (is_failed(sum)) return sum;
    }
    return job->failed ? v_failed() : sum;
}

struct value filter_attr(struct job *job, struct value in, const struct args *args) {
    struct value name;
    if (!args_bind(job, args, "attr", "name", 1, &name)) return v_failed();
    if (!is_text(name)) return fail_python(job, "attr needs a name, found %s", type_name(name));
    if (in.kind == V_DICT && !method_find(V_DICT, name.text->bytes, name.text->n)) {
        struct value none = value_attribute(job, v_dict(dict_new(job, 0)), name.text);
        return none; /* not the item of that name */
    }
    return value_attribute(job, in, name.text);
}

struct value filter_join(struct job *job, struct value in, const struct args *args) {
    struct value a[2], item;
    struct iter it;
    struct sink out = { .job = job };
    if (!args_bind(job, args, "join", "d attribute", 0, a)) return v_failed();
    struct text *between = arg_text(job, a[0], "");
    if (!between || !iter_open(job, in, &it)) return v_failed();
    for (bool first = true; iter_next(job, &it, &item); first = false) {
        item = follow(job, item, a[1], v_missing());
        if (is_failed(item)) return item;
        if (!first) sink_text(&out, between);
        sink_str(&out, item);
    }
    return sink_value(&out);
}

/* ---- lists ----------------------------------------------------------------------------------- */

struct value filter_list(struct job *job, struct value in, const struct args *args) {
    if (!args_bind(job, args, "list", "", 0, NULL)) return v_failed();
    return v_list(copy_items(job, in));
}

struct value filter_items(struct job *job, struct value in, const struct args *args) {
    if (!args_bind(job, args, "items", "", 0, NULL)) return v_failed();
    if (in.kind == V_UNDEFINED) return v_list(list_new(job, 0));
    if (in.kind != V_DICT) return fail_python(job, "Can only get item pairs from a mapping.");
    return v_list(value_items(job, dict_view(job, in.dict, VIEW_ITEMS)));
}

struct value filter_reverse(struct job *job, struct value in, const struct args *args) {
    if (!args_bind(job, args, "reverse", "", 0, NULL)) return v_failed();
    if (is_text(in)) return value_slice(job, in, v_missing(), v_missing(), v_int(-1));
    if (!is_iterable(in)) return fail_python(job, "argument must be iterable");
    struct list *items = value_items(job, in);
    struct list *out = items ? list_new(job, items->n) : NULL;
    for (size_t i = items ? items->n : 0; i-- > 0;)
        if (!list_add(job, out, items->items[i])) return v_failed();
    if (!out) return v_failed();
    return in.kind == V_GENERATOR ? v_list(out) : generator_list(job, out);
}

struct value filter_batch(struct job *job, struct value in, const struct args *args) {
    struct value a[2], item;
    struct iter it;
    int64_t count = 0;
    if (!args_bind(job, args, "batch", "linecount fill_with", 1, a)) return v_failed();
    if (!arg_int(job, a[0], "batch", 0, &count) || !iter_open(job, in, &it)) return v_failed();
    struct list *out = list_new(job, 0), *row = list_new(job, 0);
    while (iter_next(job, &it, &item)) {
        if (row && (int64_t)row->n == count) {
            if (!list_add(job, out, v_list(row))) return v_failed();
            row = list_new(job, 0);
        }
        if (!list_add(job, row, item)) return v_failed();
    }
    if (!row || job->failed) return v_failed();
    if (!row->n) return v_list(out);
    bool fill = is_given(a[1]) && a[1].kind != V_NONE;
    while (fill && (int64_t)row->n < count)
        if (!list_add(job, row, a[1])) return v_failed();
    return list_add(job, out, v_list(row)) ? v_list(out) : v_failed();
}

struct value filter_slice(struct job *job, struct value in, const struct args *args) {
    struct value a[2];
    int64_t n = 0;
    if (!args_bind(job, args, "slice", "slices fill_with", 1, a)) return v_failed();
    if (!arg_int(job, a[0], "slice", 0, &n)) return v_failed();
    struct list *items = value_items(job, in), *out = list_new(job, 0);
    if (!items) return v_failed();
    if (n == 0) return fail_python(job, "integer division or modulo by zero");
    if (n < 0) return v_list(out);
    size_t each = items->n / (size_t)n, more = items->n % (size_t)n, at = 0;
    for (size_t i = 0; i < (size_t)n; i++) {
        size_t size = each + (i < more);
        struct list *part = list_part(job, items, at, size);
        at += size;
        if (is_given(a[1]) && a[1].kind != V_NONE && i >= more)
            if (!list_add(job, part, a[1])) return v_failed();
        if (!part || !list_add(job, out, v_list(part))) return v_failed();
    }
    return v_list(out);
}

/* ---- map, select, reject --------------------------------------------------------------------- */

static struct value map_attribute(struct job *job, struct value in, const struct args *args) {
    struct value a[2], item;
    struct iter it;
    struct list *out = list_new(job, 0);
    if (!args_bind(job, args, "map", "attribute default", 1, a)) return v_failed();
    if (!out || !iter_open(job, in, &it)) return v_failed();
    while (iter_next(job, &it, &item))
        if (!list_add(job, out, follow(job, item, a[0], a[1]))) return v_failed();
    return job->failed ? v_failed() : v_list(out);
}

struct value filter_map(struct job *job, struct value in, const struct args *args) {
    struct value item;
    struct iter it;
    struct list *out = list_new(job, 0);
    if (!out || is_failed(in)) return v_failed();
    if (!value_true(in)) return v_list(out);
    if (!args->n) {
        for (int i = 0; i < args->n_keywords; i++)
            if (text_is(args->keywords[i].name, "attribute")) return map_attribute(job, in, args);
        return fail_python(job, "map requires a filter argument");
    }
    struct value name = args->items[0];
    const struct filter_entry *filter =
        is_text(name) ? filter_find(name.text->bytes, name.text->n) : NULL;
    if (!filter)
        return fail_python(job, "No filter named '%.*s'.", is_text(name) ? (int)name.text->n : 1,
                           is_text(name) ? name.text->bytes : "?");
    struct args rest = *args;
    rest.items++;
    rest.n--;
    if (!iter_open(job, in, &it)) return v_failed();
    while (iter_next(job, &it, &item))
        if (!list_add(job, out, filter_apply(job, filter, item, &rest))) return v_failed();
    return job->failed ? v_failed() : v_list(out);
}

static struct value chosen(struct job *job, struct value in, const struct args *args,
                           bool attribute, bool wanted) {
    struct value item;
    struct iter it;
    struct list *out = list_new(job, 0);
    const struct test_entry *test = NULL;
    struct args rest = *args;
    if (!out || is_failed(in)) return v_failed();
    if (!value_true(in)) return v_list(out);
    if (attribute && !rest.n) return fail_python(job, "Missing parameter for attribute name");
    struct value path = attribute ? rest.items[0] : v_missing();
    rest.items += attribute;
    rest.n -= attribute;
    if (rest.n) {
        struct value name = rest.items[0];
        test = is_text(name) ? test_find(name.text->bytes, name.text->n) : NULL;
        if (!test)
            return fail_python(job, "No test named '%.*s'.", is_text(name) ? (int)name.text->n : 1,
                               is_text(name) ? name.text->bytes : "?");
        rest.items++;
        rest.n--;
    }
    if (!iter_open(job, in, &it)) return v_failed();
    while (iter_next(job, &it, &item)) {
        struct value v = follow(job, item, path, v_missing());
        if (!is_failed(v) && test) v = test->fn(job, v, &rest);
        if (is_failed(v)) return v;
        if (value_true(v) == wanted && !list_add(job, out, item)) return v_failed();
    }
    return job->failed ? v_failed() : v_list(out);
}

struct value filter_select(struct job *job, struct value in, const struct args *args) {
    return chosen(job, in, args, false, true);
}
struct value filter_reject(struct job *job, struct value in, const struct args *args) {
    return chosen(job, in, args, false, false);
}
struct value filter_selectattr(struct job *job, struct value in, const struct args *args) {
    return chosen(job, in, args, true, true);
}
struct value filter_rejectattr(struct job *job, struct value in, const struct args *args) {
    return chosen(job, in, args, true, false);
}
