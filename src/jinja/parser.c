/* Statements. */
#include "jinja/parser.h"

#include <stdarg.h>
#include <stdio.h>

static struct node *parse_body(struct parser *p, const char *const *ends);

void *parse_fail(struct parser *p, const char *format, ...) {
    char words[300];
    va_list args;
    va_start(args, format);
    vsnprintf(words, sizeof words, format, args);
    va_end(args);
    p->job->line = p->token->line;
    fail_python(p->job, "%s", words);
    return NULL;
}

bool parse_enter(struct parser *p) {
    if (p->depth >= p->job->limits.parse_depth) {
        p->job->line = p->token->line;
        fail_limit(p->job, "constructs inside each other", (size_t)p->job->limits.parse_depth);
        return false;
    }
    p->depth++;
    return true;
}

struct node *node_new(struct parser *p, enum node_type type, int line) {
    struct node *node = job_take(p->job, 1, sizeof *node);
    if (!node || !job_step(p->job, 1)) return NULL;
    node->type = (uint8_t)type;
    node->line = line;
    node->height = 1;
    node->ref.slot = -1;
    return node;
}

static int list_height(const struct node *first) {
    int height = 0;
    for (const struct node *n = first; n; n = n->next)
        if (n->height > height) height = n->height;
    return height;
}

struct node *node_done(struct parser *p, struct node *node) {
    const struct node *const below[] = { node->a, node->b, node->c };
    int height = 0;
    for (int i = 0; i < 3; i++) {
        int h = list_height(below[i]);
        if (h > height) height = h;
    }
    if (node->call) {
        const struct node *const given[] = { node->call->items, node->call->keywords,
                                             node->call->star, node->call->stars };
        for (int i = 0; i < 4; i++) {
            int h = list_height(given[i]);
            if (h > height) height = h;
        }
    }
    node->height = height + 1;
    if (node->height <= p->job->limits.parse_depth) return node;
    p->job->line = node->line;
    fail_limit(p->job, "operators inside each other", (size_t)p->job->limits.parse_depth);
    return NULL;
}

bool append(struct node_list *list, struct node *node) {
    if (!node) return false;
    if (!list->end) list->end = &list->first;
    *list->end = node;
    list->end = &node->next;
    list->n++;
    return true;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

static bool token_spells(const struct token *token, enum token_type type, const char *word) {
    size_t n = strlen(word);
    return token->type == type && token->n == n && !memcmp(token->at, word, n);
}
bool token_is(const struct token *token, const char *op) {
    return token_spells(token, T_OPERATOR, op);
}
bool token_name(const struct token *token, const char *name) {
    return token_spells(token, T_NAME, name);
}

bool skip_op(struct parser *p, const char *op) {
    if (!token_is(p->token, op)) return false;
    p->token++;
    return true;
}
bool skip_name(struct parser *p, const char *name) {
    if (!token_name(p->token, name)) return false;
    p->token++;
    return true;
}

const char *token_words(const struct token *token, char out[64]) {
    static const char *const words[] = {
        [T_END] = "end of template",
        [T_DATA] = "template data / text",
        [T_BLOCK_BEGIN] = "begin of statement block",
        [T_BLOCK_END] = "end of statement block",
        [T_VARIABLE_BEGIN] = "begin of print statement",
        [T_VARIABLE_END] = "end of print statement",
    };
    if (token->type <= T_VARIABLE_END) return words[token->type];
    if (token->type == T_STRING)
        snprintf(out, 64, "%.*s", (int)(token->n > 42 ? 40 : token->n - 2), token->at + 1);
    else
        snprintf(out, 64, "%.*s", (int)(token->n > 40 ? 40 : token->n), token->at);
    return out;
}

bool expect_op(struct parser *p, const char *op) {
    char words[64];
    if (skip_op(p, op)) return true;
    if (p->token->type == T_END) {
        parse_fail(p, "unexpected end of template, expected '%s'.", op);
        return false;
    }
    parse_fail(p, "expected token '%s', got '%s'", op, token_words(p->token, words));
    return false;
}

const struct token *expect_name(struct parser *p) {
    char words[64];
    if (p->token->type == T_NAME) return p->token++;
    return parse_fail(p, "expected token 'name', got '%s'", token_words(p->token, words));
}

static bool expect_type(struct parser *p, enum token_type type) {
    char got[64], wanted[64];
    struct token like = { .type = type };
    if (p->token->type == type) {
        p->token++;
        return true;
    }
    parse_fail(p, "expected token '%s', got '%s'", token_words(&like, wanted),
               token_words(p->token, got));
    return false;
}

struct text *token_text(struct parser *p, const struct token *token) {
    struct text *t = text_of(p->job, token->at, token->n, false);
    if (!t) return NULL;
    (void)text_chars(t);
    (void)text_hash(t);
    return t;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* The body up to one of the names in `ends` (the last is NULL), whose token is next then. */
static struct node *parse_block_body(struct parser *p, const char *const *ends, bool *fine) {
    *fine = false;
    skip_op(p, ":");
    if (!expect_type(p, T_BLOCK_END) || !parse_enter(p)) return NULL;
    struct node *body = parse_body(p, ends);
    parse_leave(p);
    *fine = !p->job->failed;
    return body;
}

static bool end_tag(struct parser *p, const char *name) {
    if (skip_name(p, name)) return true;
    char words[64];
    parse_fail(p, "expected '%s', got '%s'", name, token_words(p->token, words));
    return false;
}

/* A statement whose body ends with one certain tag. */
static struct node *with_body(struct parser *p, struct node *node, const char *end) {
    const char *const ends[] = { end, NULL };
    bool fine = false;
    if (!node || p->job->failed) return NULL;
    node->body = parse_block_body(p, ends, &fine);
    return fine && end_tag(p, end) ? node : NULL;
}

static struct node *parse_for(struct parser *p, int line) {
    static const char *const ends[] = { "endfor", "else", NULL };
    bool fine = false;
    char words[64];
    struct node *node = node_new(p, N_FOR, line);
    if (!node) return NULL;
    node->a = parse_target(p, false, "in");
    if (!node->a) return NULL;
    if (!skip_name(p, "in"))
        return parse_fail(p, "expected token 'in', got '%s'", token_words(p->token, words));
    node->b = parse_tuple(p, false, "recursive");
    if (!node->b) return NULL;
    if (skip_name(p, "if")) {
        node->c = parse_expression(p);
        if (!node->c) return NULL;
    }
    node->recursive = skip_name(p, "recursive");
    p->loops++;
    node->body = parse_block_body(p, ends, &fine);
    p->loops--;
    if (!fine) return NULL;
    if (skip_name(p, "endfor")) return node;
    static const char *const end[] = { "endfor", NULL };
    p->token++; /* else */
    node->other = parse_block_body(p, end, &fine);
    return fine && end_tag(p, "endfor") ? node : NULL;
}

/* One branch and, in `other`, those that follow it. */
static struct node *parse_if(struct parser *p, int line) {
    static const char *const ends[] = { "elif", "else", "endif", NULL };
    static const char *const end[] = { "endif", NULL };
    struct node *first = NULL, **link = &first;
    bool fine = false;
    int depth = p->depth;
    while (true) {
        struct node *node = node_new(p, N_IF, line);
        if (!node || !parse_enter(p)) break; /* each branch hangs below the one before it */
        node->a = parse_tuple(p, false, NULL);
        if (!node->a) break;
        node->body = parse_block_body(p, ends, &fine);
        if (!fine) break;
        *link = node;
        link = &node->other;
        line = p->token->line;
        if (skip_name(p, "elif")) continue;
        if (skip_name(p, "else")) *link = parse_block_body(p, end, &fine);
        if (fine) fine = end_tag(p, "endif");
        break;
    }
    p->depth = depth;
    return fine && !p->job->failed ? first : NULL;
}

static struct node *parse_set(struct parser *p, int line) {
    struct node *target = parse_target(p, true, NULL);
    if (!target) return NULL;
    struct node *node = node_new(p, token_is(p->token, "=") ? N_SET : N_SET_BLOCK, line);
    if (!node) return NULL;
    node->a = target;
    if (skip_op(p, "=")) {
        node->b = parse_tuple(p, true, NULL);
        return node->b ? node : NULL;
    }
    node->b = parse_filters(p, NULL, false);
    return with_body(p, node, "endset");
}

static struct function_node *parse_signature(struct parser *p) {
    struct function_node *f = job_take(p->job, 1, sizeof *f);
    struct node_list params = { 0 }, defaults = { 0 };
    if (!f || !expect_op(p, "(")) return NULL;
    while (!token_is(p->token, ")")) {
        if (params.n && !expect_op(p, ",")) return NULL;
        const struct token *name = expect_name(p);
        struct node *param = name ? node_new(p, N_NAME, name->line) : NULL;
        if (!param) return NULL;
        param->name = token_text(p, name);
        if (!param->name) return NULL;
        if (skip_op(p, "=")) {
            if (!append(&defaults, parse_expression(p))) return NULL;
        } else if (defaults.n) {
            return parse_fail(p, "non-default argument follows default argument");
        }
        append(&params, param);
    }
    p->token++;
    f->params = params.first;
    f->n_params = params.n;
    f->defaults = defaults.first;
    f->n_defaults = defaults.n;
    return f;
}

/* The body of a function: loops around it do not count inside. */
static struct node *function_body(struct parser *p, struct node *node, const char *end) {
    int loops = p->loops;
    p->loops = 0;
    node = with_body(p, node, end);
    p->loops = loops;
    return node;
}

static struct node *parse_macro(struct parser *p, int line) {
    struct node *node = node_new(p, N_MACRO, line);
    const struct token *name = expect_name(p);
    if (!node || !name) return NULL;
    node->name = token_text(p, name);
    if (!node->name) return NULL;
    node->function = parse_signature(p);
    if (!node->function) return NULL;
    return function_body(p, node, "endmacro");
}

static struct node *parse_call_block(struct parser *p, int line) {
    struct node *node = node_new(p, N_CALL_BLOCK, line);
    if (!node) return NULL;
    node->function =
        token_is(p->token, "(") ? parse_signature(p) : job_take(p->job, 1, sizeof *node->function);
    if (!node->function) return NULL;
    node->a = parse_expression(p);
    if (!node->a) return NULL;
    if (node->a->type != N_CALL) {
        p->job->line = line;
        fail_python(p->job, "expected call");
        return NULL;
    }
    return function_body(p, node, "endcall");
}

static struct node *parse_filter_block(struct parser *p, int line) {
    struct node *node = node_new(p, N_FILTER_BLOCK, line);
    if (!node) return NULL;
    node->b = parse_filters(p, NULL, true);
    return node->b ? with_body(p, node, "endfilter") : NULL;
}

static struct node *parse_with(struct parser *p, int line) {
    struct node *node = node_new(p, N_WITH, line);
    struct node_list targets = { 0 }, values = { 0 };
    while (node && p->token->type != T_BLOCK_END && !token_is(p->token, ":")) {
        if (targets.n && !expect_op(p, ",")) return NULL;
        if (!append(&targets, parse_target(p, false, NULL)) || !expect_op(p, "=")) return NULL;
        if (!append(&values, parse_expression(p))) return NULL;
    }
    if (!node) return NULL;
    node->a = targets.first;
    node->b = values.first;
    return with_body(p, node, "endwith");
}

static struct node *parse_print(struct parser *p, int line) {
    struct node_list parts = { 0 };
    while (p->token->type != T_BLOCK_END) {
        if (parts.n && !expect_op(p, ",")) return NULL;
        struct node *node = node_new(p, N_OUTPUT, line);
        if (!node) return NULL;
        node->a = parse_expression(p);
        if (!node->a) return NULL;
        append(&parts, node);
    }
    if (!parts.n) return node_new(p, N_DATA, line);
    return parts.first;
}

static struct node *parse_generation(struct parser *p, int line) {
    int loops = p->loops;
    p->loops = 0;
    struct node *node = with_body(p, node_new(p, N_GENERATION, line), "endgeneration");
    p->loops = loops;
    return node;
}

static struct node *parse_jump(struct parser *p, int line, enum node_type type, const char *name) {
    if (!p->loops) return parse_fail(p, "'%s' outside of a loop", name);
    return node_new(p, type, line);
}

static struct node *unknown_tag(struct parser *p, const struct token *token) {
    static const char *const refused[] = { "include", "import",     "from", "extends",
                                           "block",   "autoescape", NULL };
    p->job->line = token->line;
    for (int i = 0; refused[i]; i++)
        if (token_name(token, refused[i])) {
            fail(p->job, REEL_E_UNSUPPORTED,
                 "the tag '%s': a chat template is one file without blocks that others replace",
                 refused[i]);
            return NULL;
        }
    const char *waiting = p->n_waiting ? p->waiting[p->n_waiting - 1] : NULL;
    fail_python(p->job, "Encountered unknown tag '%.*s'.%s%s%s", (int)token->n, token->at,
                waiting ? " The innermost block that needs to be closed is '" : "",
                waiting ? waiting : "", waiting ? "'." : "");
    return NULL;
}

typedef struct node *statement_fn(struct parser *p, int line);
static struct node *parse_break(struct parser *p, int line) {
    return parse_jump(p, line, N_BREAK, "break");
}
static struct node *parse_continue(struct parser *p, int line) {
    return parse_jump(p, line, N_CONTINUE, "continue");
}

static struct node *parse_statement(struct parser *p) {
    static const struct {
        const char *name;
        statement_fn *parse;
    } table[] = {
        { "for", parse_for },
        { "if", parse_if },
        { "set", parse_set },
        { "macro", parse_macro },
        { "call", parse_call_block },
        { "filter", parse_filter_block },
        { "with", parse_with },
        { "print", parse_print },
        { "break", parse_break },
        { "continue", parse_continue },
        { "generation", parse_generation },
    };
    const struct token *token = p->token;
    if (token->type != T_NAME) return parse_fail(p, "tag name expected");
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        if (!token_name(token, table[i].name)) continue;
        if (p->n_waiting == (int)(sizeof p->waiting / sizeof *p->waiting)) {
            p->job->line = token->line;
            fail_limit(p->job, "blocks inside each other", sizeof p->waiting / sizeof *p->waiting);
            return NULL;
        }
        p->waiting[p->n_waiting++] = table[i].name;
        p->token++;
        struct node *node = table[i].parse(p, token->line);
        p->n_waiting--;
        return p->job->failed ? NULL : node;
    }
    return unknown_tag(p, token);
}

static bool ends_here(const struct parser *p, const char *const *ends) {
    for (int i = 0; ends && ends[i]; i++)
        if (token_name(p->token, ends[i])) return true;
    return false;
}

static struct node *parse_output(struct parser *p) {
    struct node *node = node_new(p, N_OUTPUT, p->token->line);
    p->token++;
    if (!node) return NULL;
    node->a = parse_tuple(p, true, NULL);
    return node->a && expect_type(p, T_VARIABLE_END) ? node : NULL;
}

static struct node *parse_data(struct parser *p) {
    struct node *node = node_new(p, N_DATA, p->token->line);
    if (node) node->constant = p->token->value;
    p->token++;
    return node;
}

static struct node *parse_body(struct parser *p, const char *const *ends) {
    struct node_list body = { 0 };
    while (p->token->type != T_END) {
        struct node *node = NULL;
        if (p->token->type == T_DATA) {
            node = parse_data(p);
        } else if (p->token->type == T_VARIABLE_BEGIN) {
            node = parse_output(p);
        } else {
            if (!expect_type(p, T_BLOCK_BEGIN)) return NULL;
            if (ends_here(p, ends)) return body.first;
            node = parse_statement(p);
            if (node && !expect_type(p, T_BLOCK_END)) return NULL;
        }
        if (!append(&body, node)) return NULL;
        for (; node->next; node = node->next)
            append(&body, node->next); /* {% print a, b %} is several */
    }
    if (!ends) return body.first;
    const char *waiting = p->n_waiting ? p->waiting[p->n_waiting - 1] : "";
    return parse_fail(p,
                      "Unexpected end of template. Jinja was looking for the tag '%s'. The "
                      "innermost block that needs to be closed is '%s'.",
                      ends[0], waiting);
}

struct node *parse(struct job *job, const struct token *tokens) {
    struct parser p = { .job = job, .token = tokens };
    struct node *body = parse_body(&p, NULL);
    if (job->failed) return NULL;
    return body ? body : node_new(&p, N_DATA, 1);
}
