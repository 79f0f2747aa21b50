/* Which slot a name means, decided before anything runs, by the rules of jinja2's idtracking.py: a
 * name that a scope sets is the scope's own from its beginning on, filled with the outer value, the
 * variable, or nothing. */
#include "jinja/ast.h"
#include "jinja/text.h"

struct area { /* a function: the owner of slots */
    struct area *outer;
    int n_slots;
};

struct symbol {
    int name, slot;
    enum fill fill;
    bool given; /* a parameter or a loop's target: nothing fills it at the beginning */
    const struct symbol *outer;
    const struct area *outer_area;
    struct symbol *next;
};

struct symbols {
    struct symbols *parent;
    struct area *area;
    struct symbol *first, **end;
    int n;
};

struct resolver {
    struct job *job;
    struct jinja_template *template;
    uint32_t *table; /* names by hash: number + 1 */
    size_t n_table;
    int conditions; /* `if` blocks around, inside the same scope */
    int loops;      /* `for` blocks around, in the whole template */
};

static bool bind_body(struct resolver *r, struct symbols *s, struct node *first, bool soft);
static bool bind(struct resolver *r, struct symbols *s, struct node *node, bool soft);

/* ---- names ----------------------------------------------------------------------------------- */

static bool grow_names(struct resolver *r) {
    struct jinja_template *t = r->template;
    size_t n = r->n_table ? r->n_table * 2 : 128;
    uint32_t *table = job_take(r->job, n, sizeof *table);
    struct text **names = job_raw(r->job, n / 2, sizeof *names);
    if (!table || !names) return false;
    for (int i = 0; i < t->n_names; i++) {
        names[i] = t->names[i];
        size_t at = text_hash(names[i]) & (n - 1);
        while (table[at])
            at = (at + 1) & (n - 1);
        table[at] = (uint32_t)i + 1;
    }
    t->names = names;
    r->table = table;
    r->n_table = n;
    return true;
}

/* The number of a name; -1 after failing. */
static int name_number(struct resolver *r, struct text *name) {
    struct jinja_template *t = r->template;
    if ((size_t)t->n_names * 2 >= r->n_table && !grow_names(r)) return -1;
    size_t at = text_hash(name) & (r->n_table - 1);
    for (; r->table[at]; at = (at + 1) & (r->n_table - 1)) {
        if (!job_step(r->job, 1)) return -1;
        if (texts_equal(t->names[r->table[at] - 1], name)) return (int)r->table[at] - 1;
    }
    t->names[t->n_names++] = name;
    r->table[at] = (uint32_t)t->n_names;
    return t->n_names - 1;
}

static struct symbol *own_symbol(struct resolver *r, const struct symbols *s, int name) {
    for (struct symbol *symbol = s->first; symbol; symbol = symbol->next) {
        if (!job_step(r->job, 1)) return NULL;
        if (symbol->name == name) return symbol;
    }
    return NULL;
}

/* The symbol that a name means in this scope, and the function it lies in. */
static struct symbol *find_symbol(struct resolver *r, const struct symbols *s, int name,
                                  const struct area **area) {
    for (; s; s = s->parent) {
        struct symbol *symbol = own_symbol(r, s, name);
        if (symbol) {
            *area = s->area;
            return symbol;
        }
    }
    return NULL;
}

static struct symbol *define(struct resolver *r, struct symbols *s, int name, enum fill fill) {
    struct symbol *symbol = job_take(r->job, 1, sizeof *symbol);
    if (!symbol) return NULL;
    symbol->name = name;
    symbol->slot = s->area->n_slots++;
    symbol->fill = fill;
    if (!s->end) s->end = &s->first;
    *s->end = symbol;
    s->end = &symbol->next;
    s->n++;
    return symbol;
}

static void load_name(struct resolver *r, struct symbols *s, struct text *word) {
    const struct area *area = NULL;
    int name = name_number(r, word);
    if (name >= 0 && !find_symbol(r, s, name, &area)) define(r, s, name, FILL_VARIABLE);
}

static void store_name(struct resolver *r, struct symbols *s, struct text *word) {
    int name = name_number(r, word);
    if (name < 0 || own_symbol(r, s, name)) return;
    const struct area *area = NULL;
    const struct symbol *outer = s->parent ? find_symbol(r, s->parent, name, &area) : NULL;
    enum fill fill = outer ? FILL_OUTER : r->conditions ? FILL_VARIABLE : FILL_UNSET;
    struct symbol *symbol = define(r, s, name, fill);
    if (!symbol) return;
    symbol->outer = outer;
    symbol->outer_area = area;
}

static struct symbol *give_name(struct resolver *r, struct symbols *s, struct text *word) {
    int name = name_number(r, word);
    if (name < 0) return NULL;
    struct symbol *symbol = own_symbol(r, s, name);
    if (!symbol) symbol = define(r, s, name, FILL_UNSET);
    if (symbol) symbol->given = true;
    return symbol;
}

/* ---- what a scope mentions ------------------------------------------------------------------- */

/* Calls `visit` for each node directly below an expression. */
typedef bool visit_fn(void *user, struct node *node);
static bool each_in(struct node *first, visit_fn *visit, void *user) {
    for (struct node *n = first; n; n = n->next)
        if (!visit(user, n)) return false;
    return true;
}
static bool each_below(struct node *node, visit_fn *visit, void *user) {
    if (!each_in(node->a, visit, user) || !each_in(node->b, visit, user)) return false;
    if (!each_in(node->c, visit, user)) return false;
    if (!node->call) return true;
    return each_in(node->call->items, visit, user) && each_in(node->call->keywords, visit, user) &&
           each_in(node->call->star, visit, user) && each_in(node->call->stars, visit, user);
}

struct mention {
    struct resolver *r;
    struct symbols *s;
};

static bool mention_loads(void *user, struct node *node) {
    struct mention *m = user;
    if (!job_step(m->r->job, 1)) return false;
    if (node->type == N_NAME || node->type == N_NSREF) {
        load_name(m->r, m->s, node->name);
        return !m->r->job->failed;
    }
    return each_below(node, mention_loads, m);
}

static bool mention_expression(struct resolver *r, struct symbols *s, struct node *node) {
    struct mention m = { r, s };
    return !node || mention_loads(&m, node);
}

/* Names that a target sets; `give`: as a parameter is set. */
static bool mention_target(struct resolver *r, struct symbols *s, struct node *target, bool give) {
    if (target->type == N_TUPLE) {
        for (struct node *n = target->a; n; n = n->next)
            if (!mention_target(r, s, n, give)) return false;
        return true;
    }
    if (target->type == N_NSREF) {
        load_name(r, s, target->name);
        return !r->job->failed;
    }
    if (r->loops && text_is(target->name, "loop")) {
        r->job->line = target->line;
        fail_python(r->job, "Can't assign to special loop variable in for-loop target");
        return false;
    }
    if (give)
        give_name(r, s, target->name);
    else
        store_name(r, s, target->name);
    return !r->job->failed;
}

static bool mention_body(struct resolver *r, struct symbols *s, struct node *first);

/* What a statement says about names of the scope it stands in; not what is said in its own. */
static bool mention_statement(struct resolver *r, struct symbols *s, struct node *node) {
    switch (node->type) {
    case N_OUTPUT:
        return mention_expression(r, s, node->a);
    case N_FOR:
        return mention_expression(r, s, node->b);
    case N_IF:
        if (!mention_expression(r, s, node->a)) return false;
        r->conditions++;
        bool fine = mention_body(r, s, node->body) && mention_body(r, s, node->other);
        r->conditions--;
        return fine;
    case N_SET:
        return mention_expression(r, s, node->b) && mention_target(r, s, node->a, false);
    case N_SET_BLOCK:
        return mention_target(r, s, node->a, false);
    case N_MACRO:
        store_name(r, s, node->name);
        return !r->job->failed;
    case N_CALL_BLOCK:
        return mention_expression(r, s, node->a);
    case N_FILTER_BLOCK:
        return mention_expression(r, s, node->b);
    case N_WITH:
        for (struct node *n = node->b; n; n = n->next)
            if (!mention_expression(r, s, n)) return false;
        return true;
    default:
        return true;
    }
}

static bool mention_body(struct resolver *r, struct symbols *s, struct node *first) {
    for (struct node *n = first; n; n = n->next)
        if (!mention_statement(r, s, n)) return false;
    return true;
}

/* ---- binding --------------------------------------------------------------------------------- */

static struct ref ref_to(const struct symbols *s, const struct symbol *symbol,
                         const struct area *area) {
    struct ref ref = { 0, symbol->slot };
    for (const struct area *a = s->area; a != area; a = a->outer)
        ref.hops++;
    return ref;
}

static bool bind_name(struct resolver *r, struct symbols *s, struct text *word, struct ref *ref) {
    const struct area *area = NULL;
    int name = name_number(r, word);
    struct symbol *symbol = name < 0 ? NULL : find_symbol(r, s, name, &area);
    if (!symbol && name >= 0 && !r->job->failed) { /* a filter's argument behind a set block */
        symbol = define(r, s, name, FILL_VARIABLE);
        area = s->area;
    }
    if (!symbol) return false;
    *ref = ref_to(s, symbol, area);
    return true;
}

static bool close_scope(struct resolver *r, const struct symbols *s, struct scope *out) {
    out->loads = job_take(r->job, (size_t)s->n, sizeof *out->loads);
    if (!out->loads) return false;
    for (const struct symbol *symbol = s->first; symbol; symbol = symbol->next) {
        if (symbol->given) continue;
        struct load *load = &out->loads[out->n_loads++];
        load->slot = symbol->slot;
        load->fill = symbol->fill;
        load->name = symbol->name;
        if (symbol->outer) load->outer = ref_to(s, symbol->outer, symbol->outer_area);
    }
    return true;
}

struct binding {
    struct resolver *r;
    struct symbols *s;
    bool soft;
};

static bool bind_below(void *user, struct node *node) {
    struct binding *b = user;
    return bind(b->r, b->s, node, b->soft);
}

/* An unknown filter or test may stand where a condition decides whether it is reached. */
static bool check_known(struct resolver *r, const struct node *node, bool soft) {
    bool filter = node->type == N_FILTER;
    if (soft || (filter ? node->filter != NULL : node->test != NULL)) return true;
    r->job->line = node->line;
    fail_python(r->job, "No %s named '%.*s'.", filter ? "filter" : "test", (int)node->name->n,
                node->name->bytes);
    return false;
}

static bool bind(struct resolver *r, struct symbols *s, struct node *node, bool soft) {
    if (!node) return true;
    r->job->line = node->line;
    if (!job_step(r->job, 1)) return false;
    if (node->type == N_NAME || node->type == N_NSREF)
        return bind_name(r, s, node->name, &node->ref);
    if ((node->type == N_FILTER || node->type == N_TEST) && !check_known(r, node, soft))
        return false;
    struct binding b = { r, s, soft || node->type == N_COND };
    return each_below(node, bind_below, &b);
}

static bool bind_list(struct resolver *r, struct symbols *s, struct node *first, bool soft) {
    for (struct node *n = first; n; n = n->next)
        if (!bind(r, s, n, soft)) return false;
    return true;
}

/* A scope inside s, whose body is mentioned and bound. */
static bool bind_inner(struct resolver *r, struct symbols *inner, struct node *body,
                       struct node *filter, struct scope *out) {
    int conditions = r->conditions;
    r->conditions = 0;
    bool fine = mention_body(r, inner, body) && mention_expression(r, inner, filter);
    r->conditions = conditions;
    return fine && bind_body(r, inner, body, false) && bind(r, inner, filter, false) &&
           close_scope(r, inner, out);
}

static bool make_scopes(struct resolver *r, struct node *node, size_t n) {
    node->scopes = job_take(r->job, n, sizeof *node->scopes);
    return node->scopes != NULL;
}

/* A loop's condition sees the same targets in the same slots, but not `loop`, the first symbol. */
static bool share_targets(struct resolver *r, const struct symbols *body, struct symbols *test) {
    for (const struct symbol *symbol = body->first->next; symbol; symbol = symbol->next) {
        struct symbol *twin = define(r, test, symbol->name, FILL_UNSET);
        if (!twin) return false;
        twin->slot = symbol->slot;
        twin->given = true;
    }
    return true;
}

static bool bind_for(struct resolver *r, struct symbols *s, struct node *node) {
    struct area area = { .outer = s->area };
    struct symbols body = { .parent = s, .area = node->recursive ? &area : s->area };
    struct symbols test = body, other = body;
    static const char loop_word[] = "loop";
    struct text *loop_name = text_of(r->job, loop_word, 4, false);
    if (!loop_name || !make_scopes(r, node, 3)) return false;
    struct symbol *loop = give_name(r, &body, loop_name);
    if (!loop) return false;
    node->loop = (struct ref){ 0, loop->slot };
    r->loops++;
    bool fine = mention_target(r, &body, node->a, true) && bind(r, &body, node->a, false);
    if (fine && node->c)
        fine = share_targets(r, &body, &test) && mention_expression(r, &test, node->c) &&
               bind(r, &test, node->c, false) && close_scope(r, &test, &node->scopes[1]);
    fine = fine && bind_inner(r, &body, node->body, NULL, &node->scopes[0]);
    fine = fine && bind_inner(r, &other, node->other, NULL, &node->scopes[2]);
    r->loops--;
    if (!fine || !node->recursive) return fine;
    node->function = job_take(r->job, 1, sizeof *node->function);
    if (!node->function) return false;
    node->function->n_slots = area.n_slots;
    return true;
}

/* Which of caller, kwargs and varargs a body reads without setting it first: bits 0, 1 and 2. */
struct special {
    struct resolver *r;
    int open, used;
};
static const char *const special_names[] = { "caller", "kwargs", "varargs" };

static bool special_name(struct special *sp, const struct text *name, bool store) {
    for (int i = 0; i < 3; i++) {
        if (!(sp->open & 1 << i) || !text_is(name, special_names[i])) continue;
        if (store)
            sp->open &= ~(1 << i);
        else
            sp->used |= 1 << i;
    }
    return true;
}

static bool special_read(void *user, struct node *node) {
    struct special *sp = user;
    if (!job_step(sp->r->job, 1)) return false;
    if (node->type == N_NAME) return special_name(sp, node->name, false);
    return each_below(node, special_read, sp);
}

static bool special_target(struct special *sp, struct node *target) {
    if (target->type == N_NAME) return special_name(sp, target->name, true);
    for (struct node *n = target->type == N_TUPLE ? target->a : NULL; n; n = n->next)
        special_target(sp, n);
    return true;
}

static bool special_body(struct special *sp, struct node *first);
static bool special_statement(struct special *sp, struct node *node) {
    bool target = node->type == N_FOR || node->type == N_SET || node->type == N_SET_BLOCK;
    if (node->type == N_WITH) {
        for (struct node *n = node->a; n; n = n->next)
            special_target(sp, n);
    } else if (target) {
        special_target(sp, node->a);
    } else if (node->a && !special_read(sp, node->a)) {
        return false;
    }
    if (!each_in(node->b, special_read, sp)) return false;
    if (node->function && node->type != N_FOR) {
        for (struct node *n = node->function->params; n; n = n->next)
            special_target(sp, n);
        if (!each_in(node->function->defaults, special_read, sp)) return false;
    }
    if (!special_body(sp, node->body) || !special_body(sp, node->other)) return false;
    return !node->c || special_read(sp, node->c);
}

static bool special_body(struct special *sp, struct node *first) {
    for (struct node *n = first; n; n = n->next)
        if (!special_statement(sp, n)) return false;
    return true;
}

static bool give_special(struct resolver *r, struct symbols *s, struct node *node, int used) {
    struct function_node *f = node->function;
    int *const slots[] = { &f->caller_slot, &f->kwargs_slot, &f->varargs_slot };
    f->explicit_caller = -1;
    int number = 0;
    for (struct node *n = f->params; n; n = n->next, number++) {
        if (text_is(n->name, "caller")) f->explicit_caller = number;
        if (text_is(n->name, "kwargs")) used &= ~2;
        if (text_is(n->name, "varargs")) used &= ~4;
    }
    if ((used & 1) && f->explicit_caller >= 0) {
        if (f->explicit_caller < f->n_params - f->n_defaults) {
            r->job->line = node->line;
            fail_python(r->job, "When defining macros or call blocks the special \"caller\" "
                                "argument must be omitted or be given a default.");
            return false;
        }
        used &= ~1;
    }
    for (int i = 0; i < 3; i++) {
        *slots[i] = -1;
        if (!(used & 1 << i)) continue;
        struct text *word = text_of(r->job, special_names[i], strlen(special_names[i]), false);
        struct symbol *symbol = word ? give_name(r, s, word) : NULL;
        if (!symbol) return false;
        *slots[i] = symbol->slot;
    }
    return true;
}

static bool bind_function(struct resolver *r, struct symbols *s, struct node *node) {
    struct function_node *f = node->function;
    struct area area = { .outer = s->area };
    struct symbols inner = { .parent = s, .area = &area };
    struct special sp = { .r = r, .open = 7 };
    int loops = r->loops;
    if (!special_body(&sp, node->body)) return false;
    r->job->line = node->line;
    for (struct node *n = f->params; n; n = n->next)
        if (!give_name(r, &inner, n->name)) return false;
    if (!give_special(r, &inner, node, sp.used)) return false;
    for (struct node *n = f->defaults; n; n = n->next)
        if (!mention_expression(r, &inner, n)) return false;
    bool fine = bind_list(r, &inner, f->params, false) &&
                bind_list(r, &inner, f->defaults, false) &&
                bind_inner(r, &inner, node->body, NULL, &f->scope);
    r->loops = loops;
    f->n_slots = area.n_slots;
    return fine;
}

static bool bind_with(struct resolver *r, struct symbols *s, struct node *node) {
    struct symbols inner = { .parent = s, .area = s->area };
    if (!make_scopes(r, node, 1) || !bind_list(r, s, node->b, false)) return false;
    for (struct node *n = node->a; n; n = n->next)
        if (!mention_target(r, &inner, n, true)) return false;
    return bind_list(r, &inner, node->a, false) &&
           bind_inner(r, &inner, node->body, NULL, &node->scopes[0]);
}

static bool bind_captured(struct resolver *r, struct symbols *s, struct node *node) {
    struct symbols inner = { .parent = s, .area = s->area };
    struct node *filter = node->type == N_GENERATION ? NULL : node->b;
    if (!make_scopes(r, node, 1)) return false;
    if (node->type == N_SET_BLOCK && !bind(r, s, node->a, false)) return false;
    return bind_inner(r, &inner, node->body, filter, &node->scopes[0]);
}

static bool bind_statement(struct resolver *r, struct symbols *s, struct node *node, bool soft) {
    switch (node->type) {
    case N_OUTPUT:
        return bind(r, s, node->a, soft);
    case N_FOR:
        return bind(r, s, node->b, soft) && bind_for(r, s, node);
    case N_IF:
        return bind(r, s, node->a, true) && bind_body(r, s, node->body, true) &&
               bind_body(r, s, node->other, true);
    case N_SET:
        return bind(r, s, node->a, soft) && bind(r, s, node->b, soft);
    case N_MACRO:
        return bind_name(r, s, node->name, &node->ref) && bind_function(r, s, node);
    case N_CALL_BLOCK:
        return bind(r, s, node->a, soft) && bind_function(r, s, node);
    case N_WITH:
        return bind_with(r, s, node);
    case N_SET_BLOCK:
    case N_FILTER_BLOCK:
    case N_GENERATION:
        return bind_captured(r, s, node);
    default:
        return true;
    }
}

static bool bind_body(struct resolver *r, struct symbols *s, struct node *first, bool soft) {
    for (struct node *n = first; n; n = n->next) {
        r->job->line = n->line;
        if (!bind_statement(r, s, n, soft)) return false;
    }
    return true;
}

bool resolve_names(struct job *job, struct jinja_template *template) {
    struct resolver r = { .job = job, .template = template };
    struct area area = { 0 };
    struct symbols root = { .area = &area };
    if (!mention_body(&r, &root, template->body)) return false;
    if (!bind_body(&r, &root, template->body, false)) return false;
    template->n_slots = area.n_slots;
    return close_scope(&r, &root, &template->scope);
}
