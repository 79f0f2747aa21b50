/* An expression between its text and its tables. */
#ifndef REEL_MODEL_TOKENIZER_REGEX_PARTS_H
#define REEL_MODEL_TOKENIZER_REGEX_PARTS_H

#include "model/tokenizer_regex.h"
#include "model/tokenizer_unicode.h"

#define REGEX_MAX_SETS  64
#define REGEX_MAX_NODES 4096
#define REGEX_MAX_DEPTH 32
#define REGEX_MAX_COUNT 64 /* of {n,m} */
#define REGEX_NONE      UINT16_MAX

/* A set of code points: where membership changes, in rising order. The first change goes in. */
struct code_set {
    uint32_t *at;
    size_t n;
};

enum set_operation { SET_OR, SET_AND };

/* These four answer false when there is no memory. A result replaces what *to held. */
bool set_range(struct code_set *to, uint32_t first, uint32_t last); /* both ends are in */
bool set_combine(struct code_set *to, const struct code_set *with, enum set_operation operation);
bool set_complement(struct code_set *set);
bool set_property(struct code_set *to, uint32_t categories, unsigned classes); /* of any of these */

void set_release(struct code_set *set);
bool set_has(const struct code_set *set, uint32_t c);
bool set_equal(const struct code_set *a, const struct code_set *b);

enum node_kind {
    NODE_EMPTY,
    NODE_SET,    /* one character of set a */
    NODE_LOOK,   /* the next character is one of set a; with min 1, or there is none */
    NODE_CAT,    /* a, then b */
    NODE_OR,     /* a, else b */
    NODE_REPEAT, /* a, min to max times; max -1: any number */
};

struct regex_node {
    uint8_t kind;
    bool possessive;
    bool empty; /* can match the empty text */
    uint16_t a, b;
    int16_t min, max;
};

struct regex_parts {
    struct code_set sets[REGEX_MAX_SETS];
    int n_sets;
    struct regex_node nodes[REGEX_MAX_NODES];
    int n_nodes;
    uint16_t root;
    bool no_memory;
    const char *why; /* the expression is not supported */
};

/* False, with why or no_memory set, when the text is not taken. */
bool regex_parse(struct regex_parts *parts, const char *text, size_t n);

/* The index of a set, which is taken over; an equal one is shared. -1 as above. */
int regex_keep_set(struct regex_parts *parts, struct code_set *set);

/* Fills re->next and the classes; false as above. */
bool regex_build(struct regex *re, struct regex_parts *parts);

#endif
