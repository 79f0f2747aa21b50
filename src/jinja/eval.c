/* Expressions. */
#include "jinja/eval.h"

#include <stdio.h>

struct value *slot_of(const struct machine *m, struct ref ref) {
    struct frame *frame = m->frame;
    for (int i = 0; i < ref.hops; i++)
        frame = frame->outer;
    return &frame->slots[ref.slot];
}

static struct value eval_name(struct machine *m, const struct node *node) {
    struct value v = *slot_of(m, node->ref);
    return is_given(v) ? v : undefined_name(m->job, node->name);
}

static struct value eval_items(struct machine *m, const struct node *first, bool tuple) {
    struct list *list = list_new(m->job, 0);
    for (const struct node *n = first; n; n = n->next)
        if (!list_add(m->job, list, eval(m, n))) return v_failed();
    return tuple ? v_tuple(list) : v_list(list);
}

static struct value eval_dict(struct machine *m, const struct node *first) {
    struct dict *dict = dict_new(m->job, 0);
    for (const struct node *n = first; n; n = n->next->next) {
        struct value key = eval(m, n);
        struct value item = is_failed(key) ? key : eval(m, n->next);
        m->job->line = n->line;
        if (!dict_set(m->job, dict, key, item)) return v_failed();
    }
    return v_dict(dict);
}

static struct value eval_concat(struct machine *m, const struct node *first) {
    struct sink out = { .job = m->job };
    struct value left = eval(m, first);
    if (is_failed(left)) return left;
    left = value_str(m->job, left);
    /* The first two pieces may be a text that grows. */
    if (is_failed(left)) return left;
    struct value right = eval(m, first->next);
    right = is_failed(right) ? right : value_str(m->job, right);
    if (is_failed(right)) return right;
    if (!first->next->next && left.text->n + right.text->n > 256)
        return v_text(text_join(m->job, left.text, right.text));
    sink_text(&out, left.text);
    sink_text(&out, right.text);
    for (const struct node *n = first->next->next; n && !m->job->failed; n = n->next) {
        struct value part = eval(m, n);
        if (is_failed(part)) return part;
        sink_str(&out, part);
    }
    return sink_value(&out);
}

static struct value eval_compare(struct machine *m, const struct node *node) {
    struct value left = eval(m, node->a);
    if (is_failed(left)) return left;
    for (const struct node *n = node->b; n; n = n->next) {
        struct value right = eval(m, n->a);
        if (is_failed(right)) return right;
        m->job->line = n->line;
        bool holds = compare(m->job, (enum comparison)n->op, left, right);
        if (m->job->failed) return v_failed();
        if (!holds) return v_bool(false);
        left = right;
    }
    return v_bool(true);
}

static struct value eval_condition(struct machine *m, const struct node *node) {
    struct value test = eval(m, node->b);
    if (is_failed(test)) return test;
    if (value_true(test)) return eval(m, node->a);
    if (node->c) return eval(m, node->c);
    char *hint = job_raw(m->job, 1, 128);
    if (!hint) return v_failed();
    snprintf(hint, 128,
             "the inline if-expression on line %d evaluated to false and no else section was "
             "defined.",
             node->line);
    return undefined_hint(m->job, hint);
}

static struct value eval_part(struct machine *m, const struct node *node) {
    return node ? eval(m, node) : v_missing();
}

static struct value eval_item(struct machine *m, const struct node *node) {
    struct value whole = eval(m, node->a);
    if (is_failed(whole)) return whole;
    if (node->b->type != N_SLICE) {
        struct value index = eval(m, node->b);
        m->job->line = node->line;
        return value_item(m->job, whole, index);
    }
    struct value from = eval_part(m, node->b->a), to = eval_part(m, node->b->b);
    struct value step = eval_part(m, node->b->c);
    m->job->line = node->line;
    return value_slice(m->job, whole, from, to, step);
}

/* ---- calls ----------------------------------------------------------------------------------- */

static bool add_keyword(struct job *job, struct args *args, struct text *name, struct value value) {
    if (!job_step(job, 1 + (size_t)args->n_keywords / 2)) return false;
    for (int i = 0; i < args->n_keywords; i++)
        if (texts_equal(args->keywords[i].name, name)) {
            fail_python(job, "got multiple values for keyword argument '%.*s'", (int)name->n,
                        name->bytes);
            return false;
        }
    args->keywords[args->n_keywords++] = (struct keyword){ name, value };
    return true;
}

static bool add_stars(struct machine *m, const struct call_args *call, struct args *out) {
    struct value more = call->star ? eval(m, call->star) : v_missing();
    struct value named = call->stars ? eval(m, call->stars) : v_missing();
    if (is_failed(more) || is_failed(named)) return false;
    if (is_given(more)) {
        struct list *list = value_items(m->job, more);
        size_t n = list ? (size_t)out->n + list->n : 0;
        struct value *items = list ? job_raw(m->job, n, sizeof *items) : NULL;
        if (!items) return false;
        if (out->n) memcpy(items, out->items, (size_t)out->n * sizeof *items);
        if (list->n) memcpy(items + out->n, list->items, list->n * sizeof *items);
        out->items = items;
        out->n = (int)n;
    }
    if (!is_given(named)) return true;
    if (named.kind != V_DICT) {
        fail_python(m->job, "argument after ** must be a mapping, not %s", type_name(named));
        return false;
    }
    size_t n = (size_t)out->n_keywords + named.dict->n + 1;
    struct keyword *keywords = job_raw(m->job, n, sizeof *keywords);
    if (!keywords) return false;
    if (out->n_keywords)
        memcpy(keywords, out->keywords, (size_t)out->n_keywords * sizeof *keywords);
    out->keywords = keywords;
    for (size_t i = 0; i < named.dict->n; i++) {
        struct value key = named.dict->pairs[i].key;
        if (!is_text(key)) {
            fail_python(m->job, "keywords must be strings");
            return false;
        }
        if (!add_keyword(m->job, out, key.text, named.dict->pairs[i].item)) return false;
    }
    return true;
}

bool eval_args(struct machine *m, const struct call_args *call, struct value caller,
               struct args *out) {
    static const struct call_args none;
    size_t n = 0, n_keywords = is_given(caller);
    if (!call) call = &none;
    for (const struct node *a = call->items; a; a = a->next)
        n++;
    for (const struct node *k = call->keywords; k; k = k->next)
        n_keywords++;
    *out = (struct args){ 0 };
    if (n) out->items = job_raw(m->job, n, sizeof *out->items);
    if (n_keywords) out->keywords = job_raw(m->job, n_keywords, sizeof *out->keywords);
    if ((n && !out->items) || (n_keywords && !out->keywords)) return false;
    for (const struct node *a = call->items; a; a = a->next) {
        struct value v = eval(m, a);
        if (is_failed(v)) return false;
        out->items[out->n++] = v;
    }
    for (const struct node *k = call->keywords; k; k = k->next) {
        struct value v = eval(m, k->a);
        if (is_failed(v) || !add_keyword(m->job, out, k->name, v)) return false;
    }
    if (is_given(caller)) {
        struct text *name = text_of(m->job, "caller", 6, false);
        if (!name || !add_keyword(m->job, out, name, caller)) return false;
    }
    return (!call->star && !call->stars) || add_stars(m, call, out);
}

static struct value eval_call(struct machine *m, const struct node *node) {
    struct value callee = eval(m, node->a);
    struct args args;
    if (is_failed(callee) || !eval_args(m, node->call, v_missing(), &args)) return v_failed();
    m->job->line = node->line;
    return value_call(m->job, callee, &args);
}

static struct value eval_filter(struct machine *m, const struct node *node) {
    struct value in = eval(m, node->a);
    struct args args;
    if (is_failed(in) || !eval_args(m, node->call, v_missing(), &args)) return v_failed();
    m->job->line = node->line;
    if (!node->filter)
        return fail_python(m->job, "No filter named '%.*s' found.", (int)node->name->n,
                           node->name->bytes);
    return filter_apply(m->job, node->filter, in, &args);
}

static struct value eval_test(struct machine *m, const struct node *node) {
    struct value in = eval(m, node->a);
    struct args args;
    if (is_failed(in) || !eval_args(m, node->call, v_missing(), &args)) return v_failed();
    m->job->line = node->line;
    if (!node->test)
        return fail_python(m->job, "No test named '%.*s' found.", (int)node->name->n,
                           node->name->bytes);
    return node->test->fn(m->job, in, &args);
}

static struct value eval_node(struct machine *m, const struct node *node) {
    struct value a, b;
    switch ((enum node_type)node->type) {
    case N_LIST:
    case N_TUPLE:
        return eval_items(m, node->a, node->type == N_TUPLE);
    case N_DICT:
        return eval_dict(m, node->a);
    case N_NEGATE:
        return negate(m->job, eval(m, node->a), node->op == '-');
    case N_BINARY:
        a = eval(m, node->a);
        b = is_failed(a) ? a : eval(m, node->b);
        m->job->line = node->line;
        return operate(m->job, (enum operator)node->op, a, b);
    case N_CONCAT:
        return eval_concat(m, node->a);
    case N_COMPARE:
        return eval_compare(m, node);
    case N_AND:
        a = eval(m, node->a);
        return is_failed(a) || !value_true(a) ? a : eval(m, node->b);
    case N_OR:
        a = eval(m, node->a);
        return is_failed(a) || value_true(a) ? a : eval(m, node->b);
    case N_NOT:
        a = eval(m, node->a);
        return is_failed(a) ? a : v_bool(!value_true(a));
    case N_COND:
        return eval_condition(m, node);
    case N_ATTRIBUTE:
        a = eval(m, node->a);
        m->job->line = node->line;
        return value_attribute(m->job, a, node->name);
    case N_ITEM:
        return eval_item(m, node);
    case N_CALL:
        return eval_call(m, node);
    case N_FILTER:
        return eval_filter(m, node);
    case N_TEST:
        return eval_test(m, node);
    default:
        return fail_python(m->job, "a statement where a value is needed");
    }
}

struct value eval(struct machine *m, const struct node *node) {
    if (!job_step(m->job, 1)) return v_failed();
    if (node->type == N_CONST) return node->constant;
    if (node->type == N_NAME) return eval_name(m, node);
    if (!job_enter(m->job)) return v_failed();
    struct value v = eval_node(m, node);
    job_leave(m->job);
    return v;
}
