/* What Python does with any value: truth, length, order, equality, hashes. */
#include "jinja/text.h"

#include <math.h>

const char *type_name(struct value v) {
    static const char *const names[] = {
        [V_FAILED] = "error",
        [V_MISSING] = "missing",
        [V_UNDEFINED] = "Undefined",
        [V_NONE] = "NoneType",
        [V_BOOL] = "bool",
        [V_INT] = "int",
        [V_FLOAT] = "float",
        [V_BIG] = "int",
        [V_TEXT] = "str",
        [V_LIST] = "list",
        [V_TUPLE] = "tuple",
        [V_DICT] = "dict",
        [V_RANGE] = "range",
        [V_VIEW] = "dict view",
        [V_GENERATOR] = "generator",
        [V_NAMESPACE] = "Namespace",
        [V_LOOP] = "LoopContext",
        [V_MACRO] = "Macro",
        [V_METHOD] = "method",
        [V_FUNCTION] = "function",
        [V_CYCLER] = "Cycler",
        [V_JOINER] = "Joiner",
        [V_RECURSE] = "LoopContext",
    };
    return names[v.kind];
}

bool value_foreign(struct value v) {
    switch (v.kind) {
    case V_TEXT:
    case V_BIG:
        return v.text->foreign;
    case V_LIST:
    case V_TUPLE:
        return v.list->foreign;
    case V_DICT:
        return v.dict->foreign;
    case V_VIEW:
        return v.view->dict->foreign;
    case V_GENERATOR:
        return v.generator->items ? v.generator->items->foreign : v.generator->foreign;
    case V_UNDEFINED:
    case V_NAMESPACE:
        return false;
    default:
        return v.foreign;
    }
}

bool is_number(struct value v) { return v.kind == V_BOOL || v.kind == V_INT || v.kind == V_FLOAT; }
double as_float(struct value v) { return v.kind == V_FLOAT ? v.f : (double)as_int(v); }
int64_t as_int(struct value v) { return v.kind == V_BOOL ? v.b : v.i; }

bool value_true(struct value v) {
    switch (v.kind) {
    case V_FAILED:
    case V_MISSING:
    case V_UNDEFINED:
    case V_NONE:
        return false;
    case V_BOOL:
        return v.b;
    case V_INT:
        return v.i != 0;
    case V_FLOAT:
        return v.f != 0;
    case V_TEXT:
        return v.text->n > 0;
    case V_LIST:
    case V_TUPLE:
        return v.list->n > 0;
    case V_DICT:
        return v.dict->n > 0;
    case V_RANGE:
        return v.range->n > 0;
    case V_VIEW:
        return v.view->dict->n > 0;
    default:
        return true;
    }
}

ptrdiff_t value_length(struct job *job, struct value v) {
    switch (v.kind) {
    case V_UNDEFINED:
        return 0;
    case V_TEXT:
        return job_look(job, v.text->n) ? (ptrdiff_t)text_chars(v.text) : -1;
    case V_LIST:
    case V_TUPLE:
        return (ptrdiff_t)v.list->n;
    case V_DICT:
        return (ptrdiff_t)v.dict->n;
    case V_RANGE:
        return (ptrdiff_t)v.range->n;
    case V_VIEW:
        return (ptrdiff_t)v.view->dict->n;
    default:
        fail_python(job, "object of type '%s' has no len()", type_name(v));
        return -1;
    }
}

bool values_same(struct value a, struct value b) {
    if (a.kind != b.kind) return false;
    switch (a.kind) {
    case V_NONE:
        return true;
    case V_BOOL:
        return a.b == b.b;
    case V_INT: /* CPython keeps one object for each small number */
        return a.i == b.i;
    case V_TEXT:
        return a.text == b.text || (a.text->n <= 1 && texts_equal(a.text, b.text));
    case V_FLOAT:
        return false;
    default:
        return a.text == b.text;
    }
}

/* One number of int64 and one double, exactly: -1, 0, 1; 2 for NaN. */
static int int_to_float(int64_t i, double f) {
    if (isnan(f)) return 2;
    if (f >= 0x1p63) return -1;
    if (f < -0x1p63) return 1;
    int64_t whole = (int64_t)f;
    if (i != whole) return i < whole ? -1 : 1;
    double rest = f - (double)whole;
    return rest > 0 ? -1 : rest < 0;
}

static int number_order(struct value a, struct value b) {
    if (a.kind == V_FLOAT && b.kind == V_FLOAT) {
        if (isnan(a.f) || isnan(b.f)) return 2;
        return a.f < b.f ? -1 : a.f > b.f;
    }
    if (b.kind == V_FLOAT) return int_to_float(as_int(a), b.f);
    if (a.kind == V_FLOAT) {
        int order = int_to_float(as_int(b), a.f);
        return order == 2 ? 2 : -order;
    }
    return as_int(a) < as_int(b) ? -1 : as_int(a) > as_int(b);
}

/* True to go on; a comparison of nested values is under way until job_leave. */
static bool go_down(struct job *job) { return job_step(job, 1) && job_enter(job); }

static bool lists_equal(struct job *job, const struct list *a, const struct list *b) {
    if (a == b) return true;
    if (a->n != b->n || !go_down(job)) return false;
    bool equal = true;
    for (size_t i = 0; equal && i < a->n; i++)
        equal = values_equal(job, a->items[i], b->items[i]);
    job_leave(job);
    return equal;
}

static bool dicts_equal(struct job *job, const struct dict *a, const struct dict *b) {
    if (a == b) return true;
    if (a->n != b->n || !go_down(job)) return false;
    bool equal = true;
    for (size_t i = 0; equal && i < a->n; i++) {
        struct pair *pair = dict_find(job, b, a->pairs[i].key);
        equal = pair && values_equal(job, a->pairs[i].item, pair->item);
    }
    job_leave(job);
    return equal;
}

static bool ranges_equal(const struct range *a, const struct range *b) {
    if (a->n != b->n) return false;
    return a->n == 0 || (a->start == b->start && (a->n == 1 || a->step == b->step));
}

bool values_equal(struct job *job, struct value a, struct value b) {
    if (is_number(a) && is_number(b)) return job_step(job, 1) && number_order(a, b) == 0;
    if (a.kind != b.kind || job->failed) return false;
    switch (a.kind) {
    case V_UNDEFINED:
    case V_NONE:
        return true;
    case V_BIG:
    case V_TEXT:
        return job_look(job, a.text->n) && texts_equal(a.text, b.text);
    case V_LIST:
    case V_TUPLE:
        return lists_equal(job, a.list, b.list);
    case V_DICT:
        return dicts_equal(job, a.dict, b.dict);
    case V_RANGE:
        return ranges_equal(a.range, b.range);
    case V_VIEW:
        return a.view->part == b.view->part && a.view->part != VIEW_VALUES &&
               dicts_equal(job, a.view->dict, b.view->dict);
    default:
        return a.text == b.text;
    }
}

static bool list_less(struct job *job, const struct list *a, const struct list *b,
                      const char *symbol) {
    size_t n = a->n < b->n ? a->n : b->n;
    for (size_t i = 0; i < n; i++) {
        if (values_equal(job, a->items[i], b->items[i])) continue;
        if (job->failed || !go_down(job)) return false;
        bool less = value_less(job, a->items[i], b->items[i], symbol);
        job_leave(job);
        return less;
    }
    return a->n < b->n;
}

bool value_less(struct job *job, struct value a, struct value b, const char *symbol) {
    if (is_number(a) && is_number(b)) return number_order(a, b) == -1;
    if (a.kind == b.kind && is_text(a))
        return job_look(job, a.text->n) && texts_order(a.text, b.text) < 0;
    if (a.kind == b.kind && (a.kind == V_LIST || a.kind == V_TUPLE))
        return list_less(job, a.list, b.list, symbol);
    if (a.kind == V_UNDEFINED || b.kind == V_UNDEFINED) {
        fail_undefined(job, a.kind == V_UNDEFINED ? a : b);
        return false;
    }
    fail_python(job, "'%s' not supported between instances of '%s' and '%s'", symbol, type_name(a),
                type_name(b));
    return false;
}

bool value_contains(struct job *job, struct value whole, struct value part) {
    if (is_text(whole)) {
        if (!is_text(part)) {
            fail_python(job, "'in <string>' requires string as left operand, not %s",
                        type_name(part));
            return false;
        }
        return job_look(job, whole.text->n) &&
               text_find(whole.text, part.text, 0, whole.text->n) >= 0;
    }
    if (whole.kind == V_DICT) return dict_find(job, whole.dict, part) != NULL;
    if (whole.kind == V_VIEW && whole.view->part == VIEW_KEYS)
        return dict_find(job, whole.view->dict, part) != NULL;
    if (!is_iterable(whole)) {
        fail_python(job, "argument of type '%s' is not iterable", type_name(whole));
        return false;
    }
    struct iter it;
    struct value item;
    if (!iter_open(job, whole, &it)) return false;
    while (iter_next(job, &it, &item))
        if (values_equal(job, item, part)) return true;
    return false;
}

static bool hash_list(struct job *job, const struct list *list, uint32_t *hash) {
    if (!go_down(job)) return false;
    uint32_t all = 0x345678, one = 0;
    bool fine = true;
    for (size_t i = 0; fine && i < list->n; i++) {
        fine = value_hash(job, list->items[i], &one);
        all = (all ^ one) * 1000003u;
    }
    job_leave(job);
    *hash = all;
    return fine;
}

bool value_hash(struct job *job, struct value v, uint32_t *hash) {
    switch (v.kind) {
    case V_FAILED:
        return false;
    case V_BIG:
    case V_TEXT:
        *hash = text_hash(v.text);
        return job_look(job, v.text->n);
    case V_FLOAT:
        if (v.f == floor(v.f) && fabs(v.f) < 0x1p62) { /* as the integer that is equal to it */
            *hash = (uint32_t)((uint64_t)(int64_t)v.f * 0x9E3779B97F4A7C15u >> 32);
            return true;
        }
        memcpy(hash, &v.f, sizeof *hash);
        return true;
    case V_BOOL:
    case V_INT:
        *hash = (uint32_t)((uint64_t)as_int(v) * 0x9E3779B97F4A7C15u >> 32);
        return true;
    case V_TUPLE:
        return hash_list(job, v.list, hash);
    case V_LIST:
    case V_DICT:
    case V_VIEW:
        fail_python(job, "unhashable type: '%s'", type_name(v));
        return false;
    case V_NONE:
    case V_UNDEFINED:
        *hash = v.kind;
        return true;
    default:
        *hash = (uint32_t)((uintptr_t)v.text >> 4);
        return true;
    }
}
