/* A parsed template: a tree that never changes once it is made.
 *
 * Names are resolved when a template is parsed, as jinja2's compiler does it (idtracking.py). A
 * function (the template itself, a macro, a `call` block, a recursive loop) has numbered slots; a
 * scope (a function's body, the body of a loop, `with`, a block that is captured) owns some of them
 * and says how each is filled when the scope is entered. */
#ifndef REEL_JINJA_AST_H
#define REEL_JINJA_AST_H

#include "jinja/value.h"

enum node_type {
    /* expressions */
    N_CONST,     /* constant */
    N_NAME,      /* name; ref */
    N_LIST,      /* a: items */
    N_TUPLE,     /* a: items */
    N_DICT,      /* a: keys and items in turn */
    N_NEGATE,    /* a; op is '-' or '+' */
    N_BINARY,    /* a op b */
    N_CONCAT,    /* a: parts */
    N_COMPARE,   /* a, then b: a list of N_OPERAND */
    N_OPERAND,   /* op, a */
    N_AND,       /* a and b */
    N_OR,        /* a or b */
    N_NOT,       /* a */
    N_COND,      /* a if b else c (NULL: undefined) */
    N_ATTRIBUTE, /* a . name */
    N_ITEM,      /* a [ b ] */
    N_SLICE,     /* b of N_ITEM: a : b : c, each may be NULL */
    N_CALL,      /* a ( call ) */
    N_FILTER,    /* a | filter ( call ); a is NULL at the head of a filter block */
    N_TEST,      /* a is test ( call ) */
    N_KEYWORD,   /* name = a */
    N_NSREF,     /* name . attribute as a target; ref */
    /* statements */
    N_DATA,       /* constant */
    N_OUTPUT,     /* a */
    N_FOR,        /* a: target, b: iterated, c: test; body, other; scopes 0 body, 1 test, 2 else */
    N_IF,         /* a; body, other */
    N_SET,        /* a: target, b: value */
    N_SET_BLOCK,  /* a: target, b: filter or NULL; body; scope 0 */
    N_MACRO,      /* name; function; body */
    N_CALL_BLOCK, /* a: N_CALL; function; body */
    N_FILTER_BLOCK, /* b: filter; body; scope 0 */
    N_WITH,         /* a: targets, b: values; body; scope 0 */
    N_GENERATION,   /* body; scope 0 */
    N_BREAK,
    N_CONTINUE
};

struct node;
struct token;

/* Where a name's value lies: `hops` functions outwards, then a slot. */
struct ref {
    int hops, slot;
};

enum fill { FILL_UNSET, FILL_VARIABLE, FILL_OUTER };
/* How a slot begins when its scope is entered. */
struct load {
    int slot;
    enum fill fill;
    int name;         /* FILL_VARIABLE: number of the variable */
    struct ref outer; /* FILL_OUTER */
};
struct scope {
    struct load *loads;
    int n_loads;
};

struct call_args {
    struct node *items;        /* positional */
    struct node *keywords;     /* N_KEYWORD */
    struct node *star, *stars; /* *list, **mapping */
};

/* The body of a macro or of a `call` block. */
struct function_node {
    int n_slots;
    struct scope scope;
    struct node *params;   /* N_NAME */
    struct node *defaults; /* of the last ones of them */
    int n_params, n_defaults;
    int caller_slot, kwargs_slot, varargs_slot; /* -1: not used in the body */
    int explicit_caller;                        /* number of the parameter "caller"; -1: none */
};

struct node {
    uint8_t type, op;
    bool recursive; /* N_FOR */
    int line;
    int height;        /* of the tree below */
    struct node *next; /* in a list */
    struct node *a, *b, *c;
    struct node *body, *other;
    struct value constant;
    struct text *name;
    struct ref ref;
    struct ref loop; /* N_FOR: the slot of `loop` */
    struct call_args *call;
    const struct filter_entry *filter; /* NULL: unknown, refused when it is reached */
    const struct test_entry *test;
    struct scope *scopes;
    struct function_node *function; /* also of a recursive N_FOR: its slots */
};

struct jinja_template {
    struct arena arena;
    char *name;
    struct node *body;
    int n_slots;
    struct scope scope;
    struct text **names; /* of variables that are looked up in the context */
    int n_names;
    struct jinja_limits limits;
};

/* The tree of a token list; NULL after failing. */
struct node *parse(struct job *job, const struct token *tokens);

/* Fills in refs, scopes and functions of the whole tree. */
bool resolve_names(struct job *job, struct jinja_template *template);

#endif
