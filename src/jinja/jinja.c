/* What callers see: templates, values, renderings. */
#include "jinja/eval.h"
#include "jinja/json_value.h"
#include "jinja/lexer.h"

#include "base/error.h"
#include "base/memory.h"

struct variable {
    char *name;
    struct value value;
};

struct jinja_values {
    struct arena arena;
    struct job job;
    struct variable *variables;
    int n_variables, cap_variables;
};

/* ---- templates ------------------------------------------------------------------------------- */

static bool parse_template(struct jinja_template *t, struct job *job, const char *text,
                           size_t n_bytes) {
    size_t n = 0, n_tokens = 0;
    if (n_bytes > t->limits.source_bytes) {
        fail_limit(job, "bytes of a template", t->limits.source_bytes);
        return false;
    }
    if (!utf8_valid(text, n_bytes)) {
        fail(job, REEL_E_FORMAT, "not valid UTF-8");
        return false;
    }
    char *source = lex_source(job, text, n_bytes, &n);
    struct token *tokens = source ? lex(job, source, n, &n_tokens) : NULL;
    t->body = tokens ? parse(job, tokens) : NULL;
    return t->body && resolve_names(job, t);
}

enum reel_status jinja_template_open(struct jinja_template **out, const char *name,
                                     const char *text, size_t n_bytes,
                                     const struct jinja_limits *limits, struct reel_error *err) {
    *out = NULL;
    struct jinja_template *t = mem_calloc(1, sizeof *t);
    if (!t) return err_memory(err, "a chat template", sizeof *t);
    t->limits = limits ? *limits : jinja_default_limits();
    t->arena.limit = t->limits.memory_bytes;
    enum reel_status status = mem_text(&t->name, name, strlen(name), "a template's name", err);
    if (status == REEL_OK) {
        struct job job = { .arena = &t->arena, .limits = t->limits, .name = t->name };
        if (!parse_template(t, &job, text, n_bytes))
            status = err_set(err, job.error.status, "%s", job.error.text);
    }
    if (status != REEL_OK) {
        jinja_template_close(t);
        return status;
    }
    *out = t;
    return REEL_OK;
}

void jinja_template_close(struct jinja_template *t) {
    if (!t) return;
    arena_release(&t->arena);
    mem_free(t->name);
    mem_free(t);
}

bool jinja_template_reads(const struct jinja_template *t, const char *name) {
    for (int i = 0; i < t->n_names; i++)
        if (text_is(t->names[i], name)) return true;
    return false;
}

/* ---- values ---------------------------------------------------------------------------------- */

enum reel_status jinja_values_open(struct jinja_values **out, const struct jinja_limits *limits,
                                   struct reel_error *err) {
    struct jinja_values *values = mem_calloc(1, sizeof *values);
    *out = values;
    if (!values) return err_memory(err, "the values of a template", sizeof *values);
    values->job.arena = &values->arena;
    values->job.limits = limits ? *limits : jinja_default_limits();
    values->job.name = "values of a chat template";
    values->arena.limit = values->job.limits.memory_bytes;
    return REEL_OK;
}

void jinja_values_close(struct jinja_values *values) {
    if (!values) return;
    arena_release(&values->arena);
    mem_free(values);
}

static struct jinja_value *keep(struct jinja_values *values, struct value v) {
    struct jinja_value *kept = is_failed(v) ? NULL : job_raw(&values->job, 1, sizeof *kept);
    if (kept) kept->v = v;
    return kept;
}

struct jinja_value *jinja_none(struct jinja_values *values) {
    return keep(values, v_marked(v_none(), true));
}
struct jinja_value *jinja_bool(struct jinja_values *values, bool b) {
    return keep(values, v_marked(v_bool(b), true));
}
struct jinja_value *jinja_int(struct jinja_values *values, int64_t i) {
    return keep(values, v_marked(v_int(i), true));
}

struct jinja_value *jinja_text(struct jinja_values *values, const char *text, size_t n_bytes,
                               enum jinja_origin origin) {
    if (!utf8_valid(text, n_bytes)) {
        fail(&values->job, REEL_E_FORMAT, "a text is not valid UTF-8");
        return NULL;
    }
    return keep(values, v_text(text_copy(&values->job, text, n_bytes, origin == JINJA_FOREIGN)));
}

struct jinja_value *jinja_json_text(struct jinja_values *values, const char *what, const char *text,
                                    size_t n_bytes) {
    if (values->job.failed) return NULL;
    return keep(values, json_read_value(&values->job, what, text, n_bytes));
}

struct jinja_value *jinja_json(struct jinja_values *values, const json_t *json) {
    if (values->job.failed) return NULL;
    return keep(values, json_tree_value(&values->job, json));
}

struct jinja_value *jinja_list(struct jinja_values *values) {
    struct list *list = list_new(&values->job, 0);
    if (list) list->foreign = true;
    return keep(values, v_list(list));
}

void jinja_list_append(struct jinja_values *values, struct jinja_value *list,
                       const struct jinja_value *item) {
    if (list && item) (void)list_add(&values->job, list->v.list, item->v);
}

struct jinja_value *jinja_map(struct jinja_values *values) {
    struct dict *dict = dict_new(&values->job, 0);
    if (dict) dict->foreign = true;
    return keep(values, v_dict(dict));
}

void jinja_map_set(struct jinja_values *values, struct jinja_value *map, const char *key,
                   const struct jinja_value *item) {
    if (!map || !item) return;
    struct value name = v_text(text_copy(&values->job, key, strlen(key), true));
    if (!is_failed(name)) (void)dict_set(&values->job, map->v.dict, name, item->v);
}

void jinja_variable(struct jinja_values *values, const char *name,
                    const struct jinja_value *value) {
    struct job *job = &values->job;
    if (!value || job->failed) return;
    for (int i = 0; i < values->n_variables; i++)
        if (!strcmp(values->variables[i].name, name)) {
            values->variables[i].value = value->v;
            return;
        }
    if (values->n_variables == values->cap_variables) {
        int cap = values->cap_variables ? values->cap_variables * 2 : 8;
        struct variable *more = job_raw(job, (size_t)cap, sizeof *more);
        if (!more) return;
        if (values->n_variables)
            memcpy(more, values->variables, (size_t)values->n_variables * sizeof *more);
        values->variables = more;
        values->cap_variables = cap;
    }
    size_t n = strlen(name) + 1;
    char *copy = job_raw(job, n, 1);
    if (!copy) return;
    memcpy(copy, name, n);
    values->variables[values->n_variables++] = (struct variable){ copy, value->v };
}

/* ---- rendering ------------------------------------------------------------------------------- */

/* What each name of the template means before the template sets any. */
static struct value *make_context(struct job *job, const struct jinja_template *t,
                                  const struct jinja_values *values) {
    struct value *context = job_raw(job, (size_t)t->n_names, sizeof *context);
    for (int i = 0; context && i < t->n_names; i++) {
        const struct function *f = function_find(t->names[i]->bytes, t->names[i]->n);
        context[i] = f ? (struct value){ .kind = V_FUNCTION, .function = f } : v_missing();
        for (int k = 0; k < values->n_variables; k++)
            if (text_is(t->names[i], values->variables[k].name))
                context[i] = values->variables[k].value;
    }
    return context;
}

static bool count_runs(const struct sink *s, struct jinja_run *runs, int *n) {
    *n = 0;
    if (!s->n) return true;
    if (!s->marks) {
        if (runs) runs[0] = (struct jinja_run){ s->n, !s->foreign };
        *n = 1;
        return true;
    }
    for (size_t i = 0; i < s->n;) {
        const uint8_t *p = memchr(s->marks + i, !s->marks[i], s->n - i);
        size_t end = p ? (size_t)(p - s->marks) : s->n;
        if (runs) runs[*n] = (struct jinja_run){ end - i, !s->marks[i] };
        if (*n == INT32_MAX) return false;
        ++*n;
        i = end;
    }
    return true;
}

static enum reel_status hand_over(struct jinja_output *out, const struct sink *s,
                                  struct reel_error *err) {
    int n = 0;
    if (!count_runs(s, NULL, &n)) return err_set(err, REEL_E_LIMIT, "too many runs of text");
    enum reel_status status = mem_text(&out->text, s->bytes ? s->bytes : "", s->n, "a prompt", err);
    if (status == REEL_OK)
        status = mem_zeroed(&out->runs, (size_t)n, sizeof *out->runs, "the runs of a prompt", err);
    if (status != REEL_OK) {
        jinja_output_release(out);
        return status;
    }
    out->n_bytes = s->n;
    count_runs(s, out->runs, &out->n_runs);
    return REEL_OK;
}

enum reel_status jinja_render(struct jinja_output *out, const struct jinja_template *t,
                              struct jinja_values *values, const struct tm *now,
                              struct reel_error *err) {
    *out = (struct jinja_output){ 0 };
    if (values->job.failed)
        return err_set(err, values->job.error.status, "%s", values->job.error.text);
    struct arena_mark mark = arena_mark(&values->arena);
    struct job job = { .arena = &values->arena,
                       .limits = values->job.limits,
                       .name = t->name,
                       .template = t,
                       .now = now };
    struct sink text = { .job = &job, .limit = job.limits.output_bytes };
    struct machine m = { &job, frame_new(&job, NULL, t->n_slots), &text };
    job.context = make_context(&job, t, values);
    if (m.frame && job.context && scope_enter(&m, &t->scope)) (void)exec_body(&m, t->body);
    enum reel_status status = REEL_OK;
    if (job.failed)
        status = err_set(err, job.error.status, "%s", job.error.text);
    else
        status = hand_over(out, &text, err);
    arena_back(&values->arena, mark);
    return status;
}

void jinja_output_release(struct jinja_output *output) {
    mem_free(output->text);
    mem_free(output->runs);
    *output = (struct jinja_output){ 0 };
}
