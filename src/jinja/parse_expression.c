/* Expressions, rule by rule as jinja2's parser.py has them. */
#include "jinja/parser.h"

static struct node *parse_unary(struct parser *p, bool filters);
static struct node *parse_primary(struct parser *p, bool namespaces);

static struct node *binary(struct parser *p, enum node_type type, int op, int line, struct node *a,
                           struct node *b) {
    if (!a || !b) return NULL;
    struct node *node = node_new(p, type, line);
    if (!node) return NULL;
    node->op = (uint8_t)op;
    node->a = a;
    node->b = b;
    return node_done(p, node);
}

/* ---- operators, the weakest first ------------------------------------------------------------ */

static struct node *parse_condition(struct parser *p) {
    int line = p->token->line;
    struct node *value = parse_or(p);
    while (value && skip_name(p, "if")) {
        struct node *node = node_new(p, N_COND, line);
        if (!node) return NULL;
        node->a = value;
        node->b = parse_or(p);
        if (node->b && skip_name(p, "else")) node->c = parse_condition(p);
        if (!node->b || p->job->failed) return NULL;
        value = node_done(p, node);
        line = p->token->line;
    }
    return value;
}

struct node *parse_expression(struct parser *p) {
    if (!parse_enter(p)) return NULL;
    struct node *node = parse_condition(p);
    parse_leave(p);
    return node;
}

static struct node *parse_concat(struct parser *p);

static struct node *parse_sum(struct parser *p) {
    int line = p->token->line;
    struct node *left = parse_concat(p);
    while (left && (token_is(p->token, "+") || token_is(p->token, "-"))) {
        int op = *p->token->at == '+' ? OP_ADD : OP_SUB;
        p->token++;
        left = binary(p, N_BINARY, op, line, left, parse_concat(p));
        line = p->token->line;
    }
    return left;
}

/* The comparison that the next tokens are, which it takes; -1 when they are none. */
static int take_comparison(struct parser *p) {
    static const struct {
        const char *word;
        enum comparison op;
    } table[] = { { "==", CMP_EQ }, { "!=", CMP_NE }, { "<", CMP_LT },
                  { "<=", CMP_LE }, { ">", CMP_GT },  { ">=", CMP_GE } };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (skip_op(p, table[i].word)) return (int)table[i].op;
    if (skip_name(p, "in")) return CMP_IN;
    if (token_name(p->token, "not") && token_name(p->token + 1, "in")) {
        p->token += 2;
        return CMP_NOT_IN;
    }
    return -1;
}

static struct node *parse_compare(struct parser *p) {
    int line = p->token->line;
    struct node *value = parse_sum(p);
    struct node_list operands = { 0 };
    for (int op = 0; value && (op = take_comparison(p)) >= 0;) {
        struct node *operand = node_new(p, N_OPERAND, p->token->line);
        struct node *right = operand ? parse_sum(p) : NULL;
        if (!right) return NULL;
        operand->op = (uint8_t)op;
        operand->a = right;
        operand->height = right->height + 1;
        append(&operands, operand);
    }
    if (!value || !operands.n) return value;
    return binary(p, N_COMPARE, 0, line, value, operands.first);
}

static struct node *parse_not(struct parser *p) {
    if (!token_name(p->token, "not")) return parse_compare(p);
    struct node *node = node_new(p, N_NOT, p->token->line);
    p->token++;
    if (!node || !parse_enter(p)) return NULL;
    node->a = parse_not(p);
    parse_leave(p);
    return node->a ? node_done(p, node) : NULL;
}

static struct node *parse_and(struct parser *p) {
    int line = p->token->line;
    struct node *left = parse_not(p);
    while (left && skip_name(p, "and")) {
        left = binary(p, N_AND, 0, line, left, parse_not(p));
        line = p->token->line;
    }
    return left;
}

struct node *parse_or(struct parser *p) {
    int line = p->token->line;
    struct node *left = parse_and(p);
    while (left && skip_name(p, "or")) {
        left = binary(p, N_OR, 0, line, left, parse_and(p));
        line = p->token->line;
    }
    return left;
}

static struct node *parse_power(struct parser *p) {
    int line = p->token->line;
    struct node *left = parse_unary(p, true);
    while (left && skip_op(p, "**")) {
        left = binary(p, N_BINARY, OP_POW, line, left, parse_unary(p, true));
        line = p->token->line;
    }
    return left;
}

static struct node *parse_product(struct parser *p) {
    int line = p->token->line;
    struct node *left = parse_power(p);
    while (left) {
        int op = 0;
        if (skip_op(p, "*"))
            op = OP_MUL;
        else if (skip_op(p, "/"))
            op = OP_DIV;
        else if (skip_op(p, "//"))
            op = OP_FLOORDIV;
        else if (skip_op(p, "%"))
            op = OP_MOD;
        else
            break;
        left = binary(p, N_BINARY, op, line, left, parse_power(p));
        line = p->token->line;
    }
    return left;
}

static struct node *parse_concat(struct parser *p) {
    int line = p->token->line;
    struct node *first = parse_product(p);
    if (!first || !token_is(p->token, "~")) return first;
    struct node_list parts = { 0 };
    append(&parts, first);
    while (skip_op(p, "~"))
        if (!append(&parts, parse_product(p))) return NULL;
    struct node *node = node_new(p, N_CONCAT, line);
    if (!node) return NULL;
    node->a = parts.first;
    return node_done(p, node);
}

/* ---- what follows a value -------------------------------------------------------------------- */

static struct node *parse_subscribed(struct parser *p) {
    int line = p->token->line;
    struct node *parts[3] = { NULL, NULL, NULL };
    if (!token_is(p->token, ":")) {
        parts[0] = parse_expression(p);
        if (!parts[0] || !token_is(p->token, ":")) return parts[0];
    }
    for (int i = 1; i < 3 && skip_op(p, ":"); i++) {
        if (token_is(p->token, ":") || token_is(p->token, "]") || token_is(p->token, ",")) continue;
        parts[i] = parse_expression(p);
        if (!parts[i]) return NULL;
    }
    struct node *node = node_new(p, N_SLICE, line);
    if (!node) return NULL;
    node->a = parts[0];
    node->b = parts[1];
    node->c = parts[2];
    return node_done(p, node);
}

static struct node *parse_brackets(struct parser *p, struct node *value, int line) {
    struct node_list items = { 0 };
    bool tuple = false;
    while (!token_is(p->token, "]")) {
        if (items.n && !expect_op(p, ",")) return NULL;
        if (!append(&items, parse_subscribed(p))) return NULL;
    }
    tuple = items.n != 1;
    if (!expect_op(p, "]")) return NULL;
    struct node *index = items.first;
    if (tuple) {
        for (struct node *n = items.first; n; n = n->next)
            if (n->type == N_SLICE) return parse_fail(p, "a slice among several indices");
        index = node_new(p, N_TUPLE, line);
        if (!index) return NULL;
        index->a = items.first;
        if (!node_done(p, index)) return NULL;
    }
    return binary(p, N_ITEM, 0, line, value, index);
}

static struct node *parse_subscript(struct parser *p, struct node *value) {
    int line = p->token->line;
    if (skip_op(p, "[")) return parse_brackets(p, value, line);
    p->token++; /* a dot */
    const struct token *name = p->token;
    if (name->type == T_INTEGER) {
        struct node *index = node_new(p, N_CONST, name->line);
        if (!index) return NULL;
        index->constant = name->value;
        p->token++;
        return binary(p, N_ITEM, 0, line, value, index);
    }
    if (name->type != T_NAME) return parse_fail(p, "expected name or number");
    p->token++;
    struct node *node = node_new(p, N_ATTRIBUTE, line);
    if (!node) return NULL;
    node->a = value;
    node->name = token_text(p, name);
    return node->name ? node_done(p, node) : NULL;
}

static bool parse_one_argument(struct parser *p, struct call_args *call, struct node_list *items,
                               struct node_list *keywords, int line) {
    const char *bad = "invalid syntax for function call expression";
    if (token_is(p->token, "*") || token_is(p->token, "**")) {
        bool two = p->token->n == 2;
        if (call->stars || (!two && call->star)) return parse_fail(p, "%s", bad) != NULL;
        p->token++;
        struct node *value = parse_expression(p);
        *(two ? &call->stars : &call->star) = value;
        return value != NULL;
    }
    if (p->token->type == T_NAME && token_is(p->token + 1, "=")) {
        if (call->stars) return parse_fail(p, "%s", bad) != NULL;
        struct node *keyword = node_new(p, N_KEYWORD, line);
        if (!keyword) return false;
        keyword->name = token_text(p, p->token);
        p->job->line = p->token->line;
        if (!job_step(p->job, 1 + (size_t)keywords->n / 2)) return false; /* of comparing names */
        for (struct node *k = keywords->first; k && keyword->name; k = k->next)
            if (k->name->n == keyword->name->n &&
                !memcmp(k->name->bytes, keyword->name->bytes, k->name->n))
                return parse_fail(p, "keyword argument repeated: %.*s", (int)k->name->n,
                                  k->name->bytes) != NULL;
        p->token += 2;
        keyword->a = parse_expression(p);
        if (!keyword->a || !keyword->name) return false;
        keyword->height = keyword->a->height + 1;
        return append(keywords, keyword);
    }
    if (call->star || call->stars || keywords->n) return parse_fail(p, "%s", bad) != NULL;
    return append(items, parse_expression(p));
}

static struct call_args *parse_arguments(struct parser *p) {
    int line = p->token->line;
    struct call_args *call = job_take(p->job, 1, sizeof *call);
    struct node_list items = { 0 }, keywords = { 0 };
    bool comma = false;
    if (!call || !expect_op(p, "(")) return NULL;
    while (!token_is(p->token, ")")) {
        if (comma && !expect_op(p, ",")) return NULL;
        if (comma && token_is(p->token, ")")) break;
        if (!parse_one_argument(p, call, &items, &keywords, line)) return NULL;
        comma = true;
    }
    p->token++;
    call->items = items.first;
    call->keywords = keywords.first;
    return call;
}

static struct node *parse_call(struct parser *p, struct node *callee) {
    struct node *node = node_new(p, N_CALL, p->token->line);
    if (!node) return NULL;
    node->a = callee;
    node->call = parse_arguments(p);
    return node->call ? node_done(p, node) : NULL;
}

static struct node *parse_postfix(struct parser *p, struct node *value) {
    while (value) {
        if (token_is(p->token, ".") || token_is(p->token, "["))
            value = parse_subscript(p, value);
        else if (token_is(p->token, "("))
            value = parse_call(p, value);
        else
            break;
    }
    return value;
}

/* A name with dots, as filters and tests may have. */
static struct text *parse_dotted(struct parser *p) {
    const struct token *first = expect_name(p);
    if (!first) return NULL;
    struct text *name = token_text(p, first);
    while (name && skip_op(p, ".")) {
        const struct token *more = expect_name(p);
        if (!more) return NULL;
        struct text *dot = text_of(p->job, ".", 1, false), *word = token_text(p, more);
        if (dot) name = text_join(p->job, name, dot);
        if (name && word) name = text_join(p->job, name, word);
    }
    return name;
}

struct node *parse_filters(struct parser *p, struct node *in, bool inline_start) {
    struct node *value = in;
    while (inline_start || token_is(p->token, "|")) {
        if (!inline_start) p->token++;
        inline_start = false;
        struct node *node = node_new(p, N_FILTER, p->token->line);
        if (!node) return NULL;
        node->name = parse_dotted(p);
        if (!node->name) return NULL;
        node->a = value;
        node->filter = filter_find(node->name->bytes, node->name->n);
        if (token_is(p->token, "(")) {
            node->call = parse_arguments(p);
            if (!node->call) return NULL;
        }
        value = node_done(p, node);
        if (!value) return NULL;
    }
    return value;
}

/* A test's one argument may stand without parentheses. */
static bool begins_argument(const struct token *token) {
    if (token->type == T_STRING || token->type == T_INTEGER || token->type == T_FLOAT) return true;
    if (token->type == T_OPERATOR)
        return token_is(token, "(") || token_is(token, "[") || token_is(token, "{");
    return token->type == T_NAME && !token_name(token, "else") && !token_name(token, "or") &&
           !token_name(token, "and");
}

static struct node *parse_test(struct parser *p, struct node *value) {
    int line = p->token->line;
    p->token++; /* is */
    bool negated = skip_name(p, "not");
    struct node *node = node_new(p, N_TEST, line);
    if (!node) return NULL;
    node->name = parse_dotted(p);
    if (!node->name) return NULL;
    node->a = value;
    node->test = test_find(node->name->bytes, node->name->n);
    if (token_is(p->token, "(")) {
        node->call = parse_arguments(p);
        if (!node->call) return NULL;
    } else if (begins_argument(p->token)) {
        if (token_name(p->token, "is"))
            return parse_fail(p, "You cannot chain multiple tests with is");
        node->call = job_take(p->job, 1, sizeof *node->call);
        if (!node->call) return NULL;
        node->call->items = parse_postfix(p, parse_primary(p, false));
        if (!node->call->items) return NULL;
    }
    node = node_done(p, node);
    if (!negated || !node) return node;
    struct node *not = node_new(p, N_NOT, line);
    if (!not ) return NULL;
    not ->a = node;
    return node_done(p, not );
}

static struct node *parse_filter_part(struct parser *p, struct node *value) {
    while (value) {
        if (token_is(p->token, "|"))
            value = parse_filters(p, value, false);
        else if (token_name(p->token, "is"))
            value = parse_test(p, value);
        else if (token_is(p->token, "("))
            value = parse_call(p, value);
        else
            break;
    }
    return value;
}

static struct node *parse_unary(struct parser *p, bool filters) {
    struct node *value = NULL;
    if (token_is(p->token, "-") || token_is(p->token, "+")) {
        value = node_new(p, N_NEGATE, p->token->line);
        if (!value || !parse_enter(p)) return NULL;
        value->op = (uint8_t)*p->token->at;
        p->token++;
        value->a = parse_unary(p, false);
        parse_leave(p);
        value = value->a ? node_done(p, value) : NULL;
    } else {
        value = parse_primary(p, false);
    }
    value = parse_postfix(p, value);
    return filters ? parse_filter_part(p, value) : value;
}

/* ---- the smallest parts ---------------------------------------------------------------------- */

static struct node *parse_list(struct parser *p) {
    struct node *node = node_new(p, N_LIST, p->token->line);
    struct node_list items = { 0 };
    p->token++;
    while (!token_is(p->token, "]")) {
        if (items.n && !expect_op(p, ",")) return NULL;
        if (token_is(p->token, "]")) break;
        if (!append(&items, parse_expression(p))) return NULL;
    }
    p->token++;
    if (!node) return NULL;
    node->a = items.first;
    return node_done(p, node);
}

static struct node *parse_dict(struct parser *p) {
    struct node *node = node_new(p, N_DICT, p->token->line);
    struct node_list items = { 0 };
    p->token++;
    while (!token_is(p->token, "}")) {
        if (items.n && !expect_op(p, ",")) return NULL;
        if (token_is(p->token, "}")) break;
        if (!append(&items, parse_expression(p)) || !expect_op(p, ":")) return NULL;
        if (!append(&items, parse_expression(p))) return NULL;
    }
    p->token++;
    if (!node) return NULL;
    node->a = items.first;
    return node_done(p, node);
}

static struct node *parse_strings(struct parser *p) {
    struct node *node = node_new(p, N_CONST, p->token->line);
    struct text *whole = p->token->value.text;
    for (p->token++; whole && p->token->type == T_STRING; p->token++)
        whole = text_join(p->job, whole, p->token->value.text);
    if (!node || !whole) return NULL;
    (void)text_chars(whole); /* threads share it: nothing in it is found out later */
    (void)text_hash(whole);
    whole->growth = NULL;
    node->constant = v_text(whole);
    return node;
}

static struct node *parse_name(struct parser *p, bool namespaces) {
    const struct token *token = p->token++;
    bool yes = token_name(token, "true") || token_name(token, "True");
    bool no = token_name(token, "false") || token_name(token, "False");
    bool none = token_name(token, "none") || token_name(token, "None");
    bool constant = yes || no || none;
    bool dotted = !constant && namespaces && token_is(p->token, ".");
    struct node *node = node_new(p, constant ? N_CONST : dotted ? N_NSREF : N_NAME, token->line);
    if (!node) return NULL;
    if (constant) {
        node->constant = none ? v_none() : v_bool(yes);
        return node;
    }
    node->name = token_text(p, token);
    if (!node->name) return NULL;
    if (dotted) {
        p->token++;
        const struct token *attribute = expect_name(p);
        if (!attribute) return NULL;
        node->constant = v_text(token_text(p, attribute));
        if (is_failed(node->constant)) return NULL;
    }
    return node;
}

static struct node *parse_primary(struct parser *p, bool namespaces) {
    const struct token *token = p->token;
    struct node *node = NULL;
    char words[64];
    if (token->type == T_NAME) return parse_name(p, namespaces);
    if (token->type == T_STRING) return parse_strings(p);
    if (token->type == T_INTEGER || token->type == T_FLOAT) {
        node = node_new(p, N_CONST, token->line);
        if (node) node->constant = token->value;
        p->token++;
        return node;
    }
    if (!token_is(token, "(") && !token_is(token, "[") && !token_is(token, "{"))
        return parse_fail(p, "unexpected '%s'", token_words(token, words));
    if (!parse_enter(p)) return NULL;
    if (token_is(token, "(")) {
        p->token++;
        node = token_is(p->token, ")") ? node_new(p, N_TUPLE, token->line)
                                       : parse_tuple(p, true, NULL);
        if (node && !expect_op(p, ")")) node = NULL;
    } else {
        node = token_is(token, "[") ? parse_list(p) : parse_dict(p);
    }
    parse_leave(p);
    return node;
}

static bool tuple_ends(const struct parser *p, const char *ends) {
    return p->token->type == T_VARIABLE_END || p->token->type == T_BLOCK_END ||
           token_is(p->token, ")") || (ends && token_name(p->token, ends));
}

/* Items by `one`, up to the tuple's end. */
static struct node *parse_items(struct parser *p, const char *ends, int how) {
    int line = p->token->line;
    struct node_list items = { 0 };
    bool tuple = false;
    char words[64];
    while (true) {
        if (items.n && !expect_op(p, ",")) return NULL;
        if (tuple_ends(p, ends)) break;
        struct node *item = how == 0   ? parse_or(p)
                            : how == 1 ? parse_expression(p)
                                       : parse_primary(p, how == 3);
        if (!append(&items, item)) return NULL;
        if (!token_is(p->token, ",")) break;
        tuple = true;
        line = p->token->line;
    }
    if (!tuple && items.n) return items.first;
    if (!tuple)
        return parse_fail(p, "Expected an expression, got '%s'", token_words(p->token, words));
    struct node *node = node_new(p, N_TUPLE, line);
    if (!node) return NULL;
    node->a = items.first;
    return node_done(p, node);
}

struct node *parse_tuple(struct parser *p, bool conditions, const char *ends) {
    return parse_items(p, ends, conditions);
}

/* Whether each part of a target can be assigned to. */
static bool check_target(struct parser *p, const struct node *target) {
    static const char *const kinds[] = {
        [N_CONST] = "const", [N_LIST] = "list", [N_DICT] = "dict"
    };
    if (target->type == N_NSREF || target->type == N_NAME) return true;
    if (target->type == N_TUPLE) {
        for (const struct node *item = target->a; item; item = item->next)
            if (!check_target(p, item)) return false;
        return true;
    }
    p->job->line = target->line;
    fail_python(p->job, "can't assign to '%s'",
                target->type <= N_DICT && kinds[target->type] ? kinds[target->type] : "expression");
    return false;
}

struct node *parse_target(struct parser *p, bool namespaces, const char *ends) {
    struct node *target = parse_items(p, ends, namespaces ? 3 : 2);
    return target && check_target(p, target) ? target : NULL;
}
