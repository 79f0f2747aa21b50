/* Items, attributes and slices, by the rules of jinja2's sandbox: a dot looks for an attribute
 * first, brackets for an item first, and what is not there is undefined. */
#include "jinja/eval.h"
#include "jinja/text.h"

#include "base/checked.h"

#include <stdio.h>

static struct value v_undefined(struct job *job, struct undefined what) {
    struct undefined *u = job_raw(job, 1, sizeof *u);
    if (!u) return v_failed();
    *u = what;
    return (struct value){ .kind = V_UNDEFINED, .undefined = u };
}

struct value undefined_name(struct job *job, const struct text *name) {
    return v_undefined(job, (struct undefined){ .name = name });
}

struct value undefined_hint(struct job *job, const char *hint) {
    return v_undefined(job, (struct undefined){ .hint = hint });
}

static const char *owner_name(struct value v) {
    if (v.kind == V_LOOP) return "jinja2.runtime.LoopContext";
    return v.kind == V_NONE ? "None" : type_name(v);
}

static struct value no_index(struct job *job, struct value owner, struct value index) {
    if (owner.kind == V_UNDEFINED) return fail_undefined(job, owner);
    if (is_text(index))
        return v_undefined(job,
                           (struct undefined){ .owner = owner_name(owner), .name = index.text });
    return v_undefined(job, (struct undefined){ .owner = owner_name(owner), .index = index });
}

static const char *object_word(const char *owner) { return strcmp(owner, "None") ? " object" : ""; }

struct value fail_undefined(struct job *job, struct value v) {
    const struct undefined *u = v.undefined;
    if (!u) return fail_python(job, "an undefined value is used");
    if (u->hint) return fail_python(job, "%s", u->hint);
    if (u->unsafe)
        return fail_python(job, "access to attribute '%.*s' of '%s' object is unsafe",
                           (int)u->name->n, u->name->bytes, u->owner);
    if (!u->owner) return fail_python(job, "'%.*s' is undefined", (int)u->name->n, u->name->bytes);
    if (u->name)
        return fail_python(job, "'%s%s' has no attribute '%.*s'", u->owner, object_word(u->owner),
                           (int)u->name->n, u->name->bytes);
    struct sink index = { .job = job };
    sink_repr(&index, u->index);
    if (job->failed) return v_failed();
    return fail_python(job, "%s%s has no element %.*s", u->owner, object_word(u->owner),
                       (int)index.n, index.bytes);
}

/* ---- items ----------------------------------------------------------------------------------- */

/* The place of a Python index among n items; false when there is none. */
static bool place_of(struct value index, size_t n, size_t *at) {
    int64_t i = as_int(index);
    if (i < 0) i += (int64_t)n;
    if (i < 0 || (uint64_t)i >= n) return false;
    *at = (size_t)i;
    return true;
}

/* What obj[index] gives; V_MISSING for a TypeError or a LookupError. */
static struct value plain_item(struct job *job, struct value v, struct value index) {
    size_t at = 0;
    switch (v.kind) {
    case V_LIST:
    case V_TUPLE:
        if (!is_int(index) || !place_of(index, v.list->n, &at)) return v_missing();
        return v.list->items[at];
    case V_TEXT: {
        if (!is_int(index) || !job_look(job, v.text->n)) return v_missing();
        if (!place_of(index, text_chars(v.text), &at)) return v_missing();
        size_t from = text_offset(v.text, at);
        struct text *c = text_part(job, v.text, from, from + char_bytes(v.text->bytes[from]));
        if (c) c->safe = v.text->safe;
        return v_text(c);
    }
    case V_RANGE:
        if (!is_int(index) || !place_of(index, v.range->n, &at)) return v_missing();
        return v_marked(v_int(v.range->start + (int64_t)at * v.range->step), v.foreign);
    case V_DICT: {
        if (index.kind == V_LIST || index.kind == V_DICT) return v_missing();
        struct pair *pair = dict_find(job, v.dict, index);
        return pair ? pair->item : v_missing();
    }
    default:
        return v_missing();
    }
}

/* ---- attributes ------------------------------------------------------------------------------ */

static struct value range_attribute(struct value v, const struct text *name) {
    int64_t i = text_is(name, "start")  ? v.range->start
                : text_is(name, "stop") ? v.range->stop
                                        : v.range->step;
    bool known = text_is(name, "start") || text_is(name, "stop") || text_is(name, "step");
    return known ? v_marked(v_int(i), v.foreign) : v_missing();
}

/* V_MISSING for an AttributeError. */
static struct value plain_attribute(struct job *job, struct value v, struct text *name) {
    switch (v.kind) {
    case V_NAMESPACE: {
        struct pair *pair = dict_find_text(job, v.dict, name);
        return pair ? pair->item : v_missing();
    }
    case V_LOOP: {
        struct value found = loop_attribute(job, v, name);
        if (is_given(found)) return found;
        break;
    }
    case V_MACRO:
        return macro_attribute(job, v, name);
    case V_CYCLER:
        if (text_is(name, "current")) return v.cycler->items->items[v.cycler->at];
        break;
    case V_TUPLE:
        if (v.list->group && text_is(name, "grouper")) return v.list->items[0];
        if (v.list->group && text_is(name, "list")) return v.list->items[1];
        break;
    case V_RANGE: {
        struct value found = range_attribute(v, name);
        if (is_given(found)) return found;
        break;
    }
    default:
        break;
    }
    const struct method_entry *entry = method_find((enum kind)v.kind, name->bytes, name->n);
    if (!entry) return v_missing();
    if (entry->unsafe)
        return v_undefined(
            job, (struct undefined){ .owner = type_name(v), .name = name, .unsafe = true });
    struct method *method = job_raw(job, 1, sizeof *method);
    if (!method) return v_failed();
    *method = (struct method){ v, entry };
    return (struct value){ .kind = V_METHOD, .method = method };
}

/* What the sandbox hides of every object. */
static bool is_private(struct value v, const struct text *name) {
    return v.kind != V_UNDEFINED && name->n > 4 && !memcmp(name->bytes, "__", 2) &&
           !memcmp(name->bytes + name->n - 2, "__", 2);
}

struct value value_attribute(struct job *job, struct value v, struct text *name) {
    if (is_failed(v)) return v;
    if (v.kind == V_UNDEFINED) return fail_undefined(job, v);
    struct value found = plain_attribute(job, v, name);
    if (is_given(found)) return found;
    found = plain_item(job, v, v_text(name));
    if (is_given(found)) return found;
    if (is_private(v, name))
        return v_undefined(
            job, (struct undefined){ .owner = type_name(v), .name = name, .unsafe = true });
    return no_index(job, v, v_text(name));
}

struct value value_item(struct job *job, struct value v, struct value index) {
    if (is_failed(v) || is_failed(index)) return v_failed();
    if (v.kind == V_UNDEFINED) return fail_undefined(job, v);
    struct value found = plain_item(job, v, index);
    if (is_given(found) || job->failed) return job->failed ? v_failed() : found;
    if (is_text(index)) {
        found = plain_attribute(job, v, index.text);
        if (is_given(found)) return found;
    }
    return no_index(job, v, index);
}

/* ---- slices ---------------------------------------------------------------------------------- */

/* One end of a slice, as Python's slice.indices moves it into the range. */
static bool slice_end(struct job *job, struct value v, size_t n, bool back, int64_t fallback,
                      int64_t *out) {
    *out = fallback;
    if (!is_given(v) || v.kind == V_NONE) return true;
    if (!is_int(v)) {
        if (v.kind == V_UNDEFINED)
            fail_undefined(job, v);
        else
            fail_python(job, "slice indices must be integers or None, found %s", type_name(v));
        return false;
    }
    int64_t i = as_int(v), size = (int64_t)n;
    if (i < 0) i = i < -size ? (back ? -1 : 0) : i + size;
    if (i >= size) i = back ? size - 1 : size;
    *out = i;
    return true;
}

/* The items of a slice: `count` of them from `first` on, `step` apart. */
struct cut {
    int64_t first, step;
    size_t count;
};

static bool slice_cut(struct job *job, size_t n, const struct value ends[3], struct cut *cut) {
    int64_t step = 1, from = 0, to = 0;
    if (is_given(ends[2]) && ends[2].kind != V_NONE) {
        if (!is_int(ends[2])) {
            fail_python(job, "slice indices must be integers or None, found %s",
                        type_name(ends[2]));
            return false;
        }
        step = as_int(ends[2]);
    }
    if (step == 0) {
        fail_python(job, "slice step cannot be zero");
        return false;
    }
    bool back = step < 0;
    int64_t size = (int64_t)n;
    if (!slice_end(job, ends[0], n, back, back ? size - 1 : 0, &from)) return false;
    if (!slice_end(job, ends[1], n, back, back ? -1 : size, &to)) return false;
    if (step < -size) step = -size - 1; /* the same items, and no overflow below */
    if (step > size) step = size + 1;
    int64_t way = back ? from - to : to - from, pace = back ? -step : step;
    *cut = (struct cut){ from, step, way > 0 ? (size_t)((way + pace - 1) / pace) : 0 };
    return true;
}

static struct value slice_text(struct job *job, struct text *t, const struct cut *cut) {
    if (!job_look(job, t->n)) return v_failed();
    if (cut->step == 1 || cut->count == 0) {
        size_t from = cut->count ? text_offset(t, (size_t)cut->first) : 0;
        size_t to = cut->count ? text_offset(t, (size_t)cut->first + cut->count) : 0;
        struct text *part = text_part(job, t, from, to);
        if (part) part->safe = t->safe;
        return v_text(part);
    }
    size_t *places = NULL; /* where each character begins, for texts that are not ASCII */
    if (text_chars(t) != t->n) {
        places = job_raw(job, text_chars(t) + 1, sizeof *places);
        if (!places) return v_failed();
        for (size_t i = 0, at = 0; at < t->n; at += char_bytes(t->bytes[at]))
            places[i++] = at;
    }
    struct sink out = { .job = job, .safe = t->safe };
    for (size_t i = 0; i < cut->count; i++) {
        size_t at = (size_t)(cut->first + (int64_t)i * cut->step);
        if (places) at = places[at];
        sink_part(&out, t, at, at + char_bytes(t->bytes[at]));
    }
    return sink_value(&out);
}

static struct value slice_range(struct job *job, struct value v, const struct cut *cut) {
    struct range *r = job_raw(job, 1, sizeof *r);
    if (!r) return v_failed();
    /* Each item is one of v's; the step and the end of an empty or single one may leave 64 bits,
     * and nothing reads those. */
    uint64_t pace = (uint64_t)v.range->step, step = pace * (uint64_t)cut->step;
    uint64_t start = (uint64_t)v.range->start + (uint64_t)cut->first * pace;
    uint64_t stop = start + (uint64_t)cut->count * step;
    *r = (struct range){ (int64_t)start, (int64_t)stop, (int64_t)step, cut->count };
    return (struct value){ .kind = V_RANGE, .range = r, .foreign = v.foreign };
}

struct value value_slice(struct job *job, struct value v, struct value from, struct value to,
                         struct value step) {
    const struct value ends[3] = { from, to, step };
    struct cut cut;
    if (is_failed(v) || is_failed(from) || is_failed(to) || is_failed(step)) return v_failed();
    if (v.kind == V_UNDEFINED) return fail_undefined(job, v);
    size_t n = v.kind == V_TEXT                        ? text_chars(v.text)
               : v.kind == V_RANGE                     ? v.range->n
               : v.kind == V_LIST || v.kind == V_TUPLE ? v.list->n
                                                       : 0;
    if (v.kind != V_TEXT && v.kind != V_RANGE && v.kind != V_LIST && v.kind != V_TUPLE)
        return fail_python(job, "'%s' object is not subscriptable", owner_name(v));
    if (!slice_cut(job, n, ends, &cut)) return v_failed();
    if (v.kind == V_TEXT) return slice_text(job, v.text, &cut);
    if (v.kind == V_RANGE) return slice_range(job, v, &cut);
    struct list *list = list_new(job, cut.count);
    for (size_t i = 0; i < cut.count; i++)
        if (!list_add(job, list, v.list->items[cut.first + (int64_t)i * cut.step]))
            return v_failed();
    return v.kind == V_LIST ? v_list(list) : v_tuple(list);
}
