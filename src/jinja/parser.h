/* What the two halves of the parser share: statements (parser.c) and expressions
 * (parse_expression.c). */
#ifndef REEL_JINJA_PARSER_H
#define REEL_JINJA_PARSER_H

#include "jinja/ast.h"
#include "jinja/lexer.h"

struct parser {
    struct job *job;
    const struct token *token; /* the next one */
    int depth;                 /* constructs inside each other */
    int loops;                 /* `for` blocks around, inside the same function */
    const char *waiting[64];   /* the innermost open tags, for messages */
    int n_waiting;
};

/* NULL, after writing the message with the line of the next token. */
void *parse_fail(struct parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));

struct node *node_new(struct parser *p, enum node_type type, int line);
/* One construct deeper; false when that is too deep. */
bool parse_enter(struct parser *p);
static inline void parse_leave(struct parser *p) { p->depth--; }
/* Takes the children's heights into account; NULL when the tree is too high. */
struct node *node_done(struct parser *p, struct node *node);

bool token_is(const struct token *token, const char *op);     /* an operator */
bool token_name(const struct token *token, const char *name); /* a name */
bool skip_op(struct parser *p, const char *op);
bool skip_name(struct parser *p, const char *name);
bool expect_op(struct parser *p, const char *op);
/* The token of a name; NULL after failing. */
const struct token *expect_name(struct parser *p);
struct text *token_text(struct parser *p, const struct token *token);
/* How a token is called in messages. */
const char *token_words(const struct token *token, char out[64]);

/* A list that grows at its end. */
struct node_list {
    struct node *first, **end;
    int n;
};
bool append(struct node_list *list, struct node *node);

struct node *parse_expression(struct parser *p);
struct node *parse_or(struct parser *p); /* no `a if b else c` at its top */
/* `ends` is a name that ends the tuple ("in"), or NULL. */
struct node *parse_tuple(struct parser *p, bool conditions, const char *ends);
struct node *parse_target(struct parser *p, bool namespaces, const char *ends);
struct node *parse_filters(struct parser *p, struct node *in, bool inline_start);

#endif
