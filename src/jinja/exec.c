/* Statements. */
#include "jinja/eval.h"

struct frame *frame_new(struct job *job, struct frame *outer, int n_slots) {
    struct frame *frame = job_raw(job, 1, sizeof *frame);
    if (!frame) return NULL;
    frame->outer = outer;
    frame->slots = job_raw(job, (size_t)n_slots, sizeof *frame->slots);
    if (!frame->slots) return NULL;
    for (int i = 0; i < n_slots; i++)
        frame->slots[i] = v_missing();
    return frame;
}

bool scope_enter(struct machine *m, const struct scope *scope) {
    for (int i = 0; i < scope->n_loads; i++) {
        const struct load *load = &scope->loads[i];
        struct value *slot = &m->frame->slots[load->slot];
        if (load->fill == FILL_OUTER)
            *slot = *slot_of(m, load->outer);
        else
            *slot = load->fill == FILL_VARIABLE ? m->job->context[load->name] : v_missing();
    }
    return job_step(m->job, (size_t)scope->n_loads);
}

static bool assign_attribute(struct machine *m, const struct node *target, struct value value) {
    struct value space = *slot_of(m, target->ref);
    m->job->line = target->line;
    if (space.kind != V_NAMESPACE) {
        fail_python(m->job, "cannot assign attribute on non-namespace object");
        return false;
    }
    struct text *name = target->constant.text;
    if (name->bytes[0] == '_') {
        fail_python(m->job,
                    "Chat templates cannot store underscore-prefixed attributes on a namespace, "
                    "but got '%.*s'.",
                    (int)name->n, name->bytes);
        return false;
    }
    return dict_set(m->job, space.dict, v_text(name), value);
}

static bool unpack(struct machine *m, const struct node *target, struct value value) {
    size_t wanted = 0;
    for (const struct node *n = target->a; n; n = n->next)
        wanted++;
    m->job->line = target->line;
    if (!is_iterable(value)) {
        fail_python(m->job, "cannot unpack non-iterable %s object", type_name(value));
        return false;
    }
    struct list *items = value_items(m->job, value);
    if (!items) return false;
    if (items->n != wanted) {
        fail_python(m->job, "%s values to unpack: expected %zu, found %zu",
                    items->n < wanted ? "not enough" : "too many", wanted, items->n);
        return false;
    }
    size_t i = 0;
    for (const struct node *n = target->a; n; n = n->next)
        if (!assign(m, n, items->items[i++])) return false;
    return true;
}

bool assign(struct machine *m, const struct node *target, struct value value) {
    if (is_failed(value)) return false;
    if (target->type == N_TUPLE) return unpack(m, target, value);
    if (target->type == N_NSREF) return assign_attribute(m, target, value);
    *slot_of(m, target->ref) = value;
    return true;
}

/* Jinja checks for namespaces before it looks at the value. */
static bool check_spaces(struct machine *m, const struct node *target) {
    if (target->type == N_NSREF && slot_of(m, target->ref)->kind != V_NAMESPACE) {
        m->job->line = target->line;
        fail_python(m->job, "cannot assign attribute on non-namespace object");
        return false;
    }
    for (const struct node *n = target->type == N_TUPLE ? target->a : NULL; n; n = n->next)
        if (!check_spaces(m, n)) return false;
    return true;
}

/* What a body writes, as a text; a filter may go over it. V_FAILED for FLOW_FAILED. */
static struct value capture(struct machine *m, const struct scope *scope, const struct node *body,
                            const struct node *filter) {
    struct sink out = { .job = m->job };
    struct machine inner = { m->job, m->frame, &out };
    if (!scope_enter(&inner, scope) || exec_body(&inner, body) == FLOW_FAILED) return v_failed();
    struct value v = sink_value(&out);
    const struct node *chain[64];
    int n = 0;
    for (const struct node *f = filter; f; f = f->a) {
        if (n == 64) return fail_limit(m->job, "filters of a block", 64);
        chain[n++] = f;
    }
    while (n-- > 0 && !is_failed(v)) {
        struct args args;
        if (!eval_args(&inner, chain[n]->call, v_missing(), &args)) return v_failed();
        m->job->line = chain[n]->line;
        v = filter_apply(m->job, chain[n]->filter, v, &args);
    }
    return v;
}

static enum flow exec_if(struct machine *m, const struct node *node) {
    while (true) {
        struct value test = eval(m, node->a);
        if (is_failed(test)) return FLOW_FAILED;
        if (value_true(test)) return exec_body(m, node->body);
        const struct node *other = node->other;
        if (!other || other->type != N_IF || other->next) return exec_body(m, other);
        node = other;
    }
}

static enum flow exec_with(struct machine *m, const struct node *node) {
    if (!scope_enter(m, &node->scopes[0])) return FLOW_FAILED;
    const struct node *target = node->a;
    for (const struct node *n = node->b; n; n = n->next, target = target->next)
        if (!assign(m, target, eval(m, n))) return FLOW_FAILED;
    return exec_body(m, node->body);
}

static struct value macro_value(struct machine *m, const struct node *node) {
    struct macro *macro = job_raw(m->job, 1, sizeof *macro);
    if (!macro) return v_failed();
    *macro = (struct macro){ node, m->frame };
    return (struct value){ .kind = V_MACRO, .macro = macro };
}

static bool output(struct machine *m, struct value v) {
    if (is_failed(v)) return false;
    sink_str(m->out, v);
    return !m->job->failed;
}

static bool exec_call_block(struct machine *m, const struct node *node) {
    struct value caller = macro_value(m, node);
    struct value callee = is_failed(caller) ? caller : eval(m, node->a->a);
    struct args args;
    if (is_failed(callee) || !eval_args(m, node->a->call, caller, &args)) return false;
    m->job->line = node->line;
    return output(m, value_call(m->job, callee, &args));
}

static bool exec_simple(struct machine *m, const struct node *node) {
    switch ((enum node_type)node->type) {
    case N_DATA:
        if (node->constant.kind == V_TEXT) sink_text(m->out, node->constant.text);
        return !m->job->failed;
    case N_OUTPUT:
        return output(m, eval(m, node->a));
    case N_SET:
        return check_spaces(m, node->a) && assign(m, node->a, eval(m, node->b));
    case N_SET_BLOCK:
        return assign(m, node->a, capture(m, &node->scopes[0], node->body, node->b));
    case N_MACRO:
        *slot_of(m, node->ref) = macro_value(m, node);
        return !m->job->failed;
    case N_CALL_BLOCK:
        return exec_call_block(m, node);
    case N_FILTER_BLOCK:
        return output(m, capture(m, &node->scopes[0], node->body, node->b));
    case N_GENERATION:
        return scope_enter(m, &node->scopes[0]) && exec_body(m, node->body) != FLOW_FAILED;
    default:
        fail_python(m->job, "a value where a statement is needed");
        return false;
    }
}

static enum flow exec(struct machine *m, const struct node *node) {
    switch ((enum node_type)node->type) {
    case N_IF:
        return exec_if(m, node);
    case N_FOR:
        return exec_for(m, node);
    case N_WITH:
        return exec_with(m, node);
    case N_BREAK:
        return FLOW_BREAK;
    case N_CONTINUE:
        return FLOW_CONTINUE;
    default:
        return exec_simple(m, node) ? FLOW_ON : FLOW_FAILED;
    }
}

enum flow exec_body(struct machine *m, const struct node *first) {
    enum flow flow = FLOW_ON;
    if (!job_enter(m->job)) return FLOW_FAILED;
    for (const struct node *n = first; n && flow == FLOW_ON; n = n->next) {
        m->job->line = n->line;
        flow = job_step(m->job, 1) ? exec(m, n) : FLOW_FAILED;
    }
    job_leave(m->job);
    return m->job->failed ? FLOW_FAILED : flow;
}
