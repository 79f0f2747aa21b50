/* Calling macros, and whatever else can be called. */
#include "jinja/eval.h"

static struct value macro_words(const struct macro *macro) {
    struct value name = v_none();
    if (macro->node->name) name = (struct value){ .kind = V_TEXT, .text = macro->node->name };
    return name;
}

/* The keyword's value, which is then taken out of the list. */
static struct value take_keyword(struct job *job, struct args *args, const struct text *name) {
    if (args->n_keywords && !job_step(job, 1 + (size_t)args->n_keywords / 2)) return v_failed();
    for (int i = 0; i < args->n_keywords; i++) {
        if (!texts_equal(args->keywords[i].name, name)) continue;
        struct value v = args->keywords[i].value;
        for (int k = i + 1; k < args->n_keywords; k++)
            args->keywords[k - 1] = args->keywords[k];
        args->n_keywords--;
        return v;
    }
    return v_missing();
}

static bool fill_rest(struct job *job, const struct macro *macro, const struct function_node *f,
                      struct value *slots, struct args *args) {
    struct value name = macro_words(macro);
    int n = name.kind == V_TEXT ? (int)name.text->n : 4;
    const char *word = name.kind == V_TEXT ? name.text->bytes : "None";
    if (f->kwargs_slot >= 0) {
        struct dict *dict = dict_new(job, (size_t)args->n_keywords);
        for (int i = 0; i < args->n_keywords; i++)
            if (!dict_set(job, dict, v_text(args->keywords[i].name), args->keywords[i].value))
                return false;
        slots[f->kwargs_slot] = v_dict(dict);
    } else if (args->n_keywords) {
        const struct text *unknown = args->keywords[0].name;
        fail_python(job, "macro '%.*s' takes no keyword argument '%.*s'", n, word, (int)unknown->n,
                    unknown->bytes);
    }
    if (f->varargs_slot >= 0) {
        struct list *rest = list_new(job, 0);
        for (int i = f->n_params; i < args->n; i++)
            if (!list_add(job, rest, args->items[i])) return false;
        slots[f->varargs_slot] = v_tuple(rest);
    } else if (args->n > f->n_params) {
        fail_python(job, "macro '%.*s' takes not more than %d argument(s)", n, word, f->n_params);
    }
    return !job->failed;
}

/* Parameters first; what was not given takes its default, which may name those before it. */
static bool fill_params(struct machine *m, const struct function_node *f, struct args *args) {
    int i = 0;
    for (const struct node *n = f->params; n; n = n->next, i++) {
        struct value v = i < args->n ? args->items[i] : take_keyword(m->job, args, n->name);
        m->frame->slots[n->ref.slot] = v;
    }
    return true;
}

static bool fill_defaults(struct machine *m, const struct function_node *f) {
    const struct node *value = f->defaults;
    int i = 0;
    for (const struct node *n = f->params; n; n = n->next, i++) {
        bool has_default = i >= f->n_params - f->n_defaults;
        struct value *slot = &m->frame->slots[n->ref.slot];
        if (!is_given(*slot))
            *slot = has_default ? eval(m, value) : undefined_name(m->job, n->name);
        if (is_failed(*slot)) return false;
        if (has_default) value = value->next;
    }
    return true;
}

struct value macro_call(struct job *job, const struct macro *macro, const struct args *args) {
    const struct function_node *f = macro->node->function;
    if (job->calls >= job->limits.call_depth)
        return fail_limit(job, "calls inside each other", (size_t)job->limits.call_depth);
    struct sink out = { .job = job };
    struct machine m = { job, frame_new(job, macro->home, f->n_slots), &out };
    struct args rest = *args;
    if (!m.frame) return v_failed();
    if (rest.n_keywords) { /* a copy: keywords are taken out of it */
        rest.keywords = job_raw(job, (size_t)rest.n_keywords, sizeof *rest.keywords);
        if (!rest.keywords) return v_failed();
        memcpy(rest.keywords, args->keywords, (size_t)rest.n_keywords * sizeof *rest.keywords);
    }
    fill_params(&m, f, &rest);
    if (f->caller_slot >= 0) {
        struct text *name = text_of(job, "caller", 6, false);
        struct value caller = name ? take_keyword(job, &rest, name) : v_failed();
        if (!is_given(caller) || caller.kind == V_NONE)
            caller = undefined_hint(job, "No caller defined");
        if (is_failed(caller)) return caller;
        m.frame->slots[f->caller_slot] = caller;
    }
    if (!fill_rest(job, macro, f, m.frame->slots, &rest)) return v_failed();
    job->calls++;
    int line = job->line;
    bool fine = scope_enter(&m, &f->scope) && fill_defaults(&m, f) &&
                exec_body(&m, macro->node->body) != FLOW_FAILED;
    job->calls--;
    if (!fine) return v_failed();
    job->line = line;
    return sink_value(&out);
}

struct value macro_attribute(struct job *job, struct value v, const struct text *name) {
    const struct function_node *f = v.macro->node->function;
    if (text_is(name, "name")) return macro_words(v.macro);
    if (text_is(name, "catch_kwargs")) return v_bool(f->kwargs_slot >= 0);
    if (text_is(name, "catch_varargs")) return v_bool(f->varargs_slot >= 0);
    if (text_is(name, "caller")) return v_bool(f->caller_slot >= 0);
    if (!text_is(name, "arguments")) return v_missing();
    struct list *list = list_new(job, (size_t)f->n_params);
    for (const struct node *n = f->params; n; n = n->next)
        if (!list_add(job, list, v_text(n->name))) return v_failed();
    return v_tuple(list);
}

struct value value_call(struct job *job, struct value callee, const struct args *args) {
    if (is_failed(callee) || !job_step(job, 1) || !job_enter(job)) return v_failed();
    struct value v;
    switch (callee.kind) {
    case V_MACRO:
        v = macro_call(job, callee.macro, args);
        break;
    case V_METHOD:
        v = method_call(job, callee.method, args);
        break;
    case V_FUNCTION:
        v = callee.function->call(job, args);
        break;
    case V_LOOP:
        v = loop_recurse(job, callee, args);
        break;
    case V_JOINER:
        v = callee.joiner->used ? callee.joiner->sep : v_word(job, "", false);
        callee.joiner->used = true;
        break;
    case V_UNDEFINED:
        v = fail_undefined(job, callee);
        break;
    default:
        v = fail_python(job, "'%s' object is not callable", type_name(callee));
    }
    job_leave(job);
    return v;
}
