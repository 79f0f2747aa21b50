/* `for`, and what templates ask its `loop`. */
#include "jinja/eval.h"

/* The next item that passes the loop's condition, behind `after`. */
static bool fetch(struct job *job, struct loop *l, struct value *item) {
    while (iter_next(job, &l->it, item)) {
        if (!l->filtered) return true;
        if (!l->machine) return false;
        struct machine *m = l->machine;
        if (!assign(m, l->node->a, *item)) return false;
        struct value test = eval(m, l->node->c);
        if (is_failed(test)) return false;
        if (value_true(test)) return true;
    }
    return false;
}

/* Looks one item ahead; false when there is none. */
static bool peek(struct job *job, struct loop *l) {
    if (is_given(l->after)) return true;
    if (l->ended || !l->machine) return false;
    /* The condition uses the slots of the target, which hold the current item. */
    struct value item;
    bool found = fetch(job, l, &item);
    if (l->filtered && !job->failed && is_given(l->current))
        assign(l->machine, l->node->a, l->current);
    if (found) l->after = item;
    l->ended = !found;
    return found;
}

static bool advance(struct job *job, struct loop *l) {
    struct value item = l->after;
    if (is_given(item))
        l->after = v_missing();
    else if (l->ended || !fetch(job, l, &item))
        return false;
    l->index0++;
    l->before = l->current;
    l->current = item;
    return true;
}

/* All that is left is made a list, as Python does where the length of an iterator is asked. */
static int64_t loop_length(struct job *job, struct loop *l) {
    if (l->length >= 0) return l->length;
    if (!l->filtered && l->source.kind != V_GENERATOR) {
        l->length = value_length(job, l->source);
        return l->length;
    }
    struct list *rest = list_new(job, 0);
    struct value item;
    while (rest && l->machine && !l->ended && fetch(job, l, &item))
        if (!list_add(job, rest, item)) return -1;
    if (!rest || job->failed) return -1;
    if (l->filtered && l->machine && is_given(l->current))
        assign(l->machine, l->node->a, l->current);
    l->filtered = false;
    l->it = (struct iter){ .source = v_list(rest) };
    l->length = (int64_t)rest->n + l->index0 + 1 + is_given(l->after);
    return l->length;
}

/* The loop over `items`; writes into m->out. */
static enum flow run_loop(struct machine *m, const struct node *node, struct value items,
                          int depth0) {
    struct loop *l = job_take(m->job, 1, sizeof *l);
    if (!l || !iter_open(m->job, items, &l->it)) return FLOW_FAILED;
    l->node = node;
    l->machine = m;
    l->home = node->recursive ? m->frame->outer : NULL;
    l->source = items;
    l->filtered = node->c != NULL;
    l->index0 = -1;
    l->length = -1;
    l->current = l->before = l->after = v_missing();
    l->depth0 = depth0;
    bool any = false;
    enum flow flow = FLOW_ON;
    struct value *self = slot_of(m, node->loop);
    if (l->filtered && !scope_enter(m, &node->scopes[1])) return FLOW_FAILED;
    *self = v_missing();
    while (flow != FLOW_BREAK && flow != FLOW_FAILED && advance(m->job, l)) {
        *self = (struct value){ .kind = V_LOOP, .loop = l };
        if (!assign(m, node->a, l->current) || !scope_enter(m, &node->scopes[0]))
            return FLOW_FAILED;
        flow = exec_body(m, node->body);
        any |= flow == FLOW_ON; /* as jinja2: a body that was left early does not count */
    }
    l->machine = NULL;
    if (m->job->failed) return FLOW_FAILED;
    if (any || !node->other) return FLOW_ON;
    if (!scope_enter(m, &node->scopes[2])) return FLOW_FAILED;
    return exec_body(m, node->other);
}

/* A recursive loop runs as a function of its own and gives a text. */
static struct value recurse(struct job *job, const struct node *node, struct frame *home,
                            struct value items, int depth0) {
    if (job->calls >= job->limits.call_depth)
        return fail_limit(job, "calls inside each other", (size_t)job->limits.call_depth);
    struct sink out = { .job = job };
    struct machine inner = { job, frame_new(job, home, node->function->n_slots), &out };
    if (!inner.frame) return v_failed();
    job->calls++;
    enum flow flow = run_loop(&inner, node, items, depth0);
    job->calls--;
    return flow == FLOW_FAILED ? v_failed() : sink_value(&out);
}

enum flow exec_for(struct machine *m, const struct node *node) {
    struct value items = eval(m, node->b);
    if (is_failed(items)) return FLOW_FAILED;
    m->job->line = node->line;
    if (!node->recursive) return run_loop(m, node, items, 0);
    struct value text = recurse(m->job, node, m->frame, items, 0);
    if (is_failed(text)) return FLOW_FAILED;
    sink_text(m->out, text.text);
    return m->job->failed ? FLOW_FAILED : FLOW_ON;
}

/* ---- attributes ------------------------------------------------------------------------------ */

struct value loop_attribute(struct job *job, struct value v, const struct text *name) {
    struct loop *l = v.loop;
    if (text_is(name, "index")) return v_int(l->index0 + 1);
    if (text_is(name, "index0")) return v_int(l->index0);
    if (text_is(name, "first")) return v_bool(l->index0 == 0);
    if (text_is(name, "depth")) return v_int(l->depth0 + 1);
    if (text_is(name, "depth0")) return v_int(l->depth0);
    if (text_is(name, "previtem"))
        return l->index0 <= 0 ? undefined_hint(job, "there is no previous item") : l->before;
    if (text_is(name, "last") || text_is(name, "nextitem")) {
        bool more = peek(job, l);
        if (job->failed) return v_failed();
        if (text_is(name, "last")) return v_bool(!more);
        return more ? l->after : undefined_hint(job, "there is no next item");
    }
    bool length = text_is(name, "length"), rev = text_is(name, "revindex");
    if (!length && !rev && !text_is(name, "revindex0")) return v_missing();
    int64_t n = loop_length(job, l);
    if (n < 0) return v_failed();
    return v_int(length ? n : rev ? n - l->index0 : n - l->index0 - 1);
}

struct value loop_recurse(struct job *job, struct value v, const struct args *args) {
    struct value items;
    if (!args_bind(job, args, "loop", "iterable", 1, &items)) return v_failed();
    if (!v.loop->node->recursive)
        return fail_python(job,
                           "The loop must have the 'recursive' marker to be called recursively.");
    return recurse(job, v.loop->node, v.loop->home, items, v.loop->depth0 + 1);
}

struct value loop_cycle(struct job *job, struct value v, const struct args *args) {
    if (args->n == 0 || args->n_keywords) return fail_python(job, "no items for cycling given");
    return args->items[v.loop->index0 % args->n];
}

struct value loop_changed(struct job *job, struct value v, const struct args *args) {
    struct list *now = list_new(job, (size_t)args->n);
    for (int i = 0; i < args->n; i++)
        if (!list_add(job, now, args->items[i])) return v_failed();
    if (!now) return v_failed();
    if (args->n_keywords) return fail_python(job, "changed() takes no keyword arguments");
    struct list *before = v.loop->changed;
    if (before && values_equal(job, v_tuple(before), v_tuple(now))) return v_bool(false);
    if (job->failed) return v_failed();
    v.loop->changed = now;
    return v_bool(true);
}
