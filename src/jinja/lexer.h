/* A template's text as tokens, by jinja2's rules with trim_blocks and lstrip_blocks. */
#ifndef REEL_JINJA_LEXER_H
#define REEL_JINJA_LEXER_H

#include "jinja/text.h"

enum token_type {
    T_END,
    T_DATA, /* text outside of all tags */
    T_BLOCK_BEGIN,
    T_BLOCK_END,
    T_VARIABLE_BEGIN,
    T_VARIABLE_END,
    T_NAME,
    T_STRING,
    T_INTEGER,
    T_FLOAT,
    T_OPERATOR
};

struct token {
    enum token_type type;
    int line;
    const char *at; /* as written; borrowed from the source */
    size_t n;
    struct value value; /* of strings, data and numbers */
};

/* The source has only "\n" for line ends, and lies as long as the tokens. The last token is T_END.
 * NULL after failing. */
struct token *lex(struct job *job, const char *source, size_t n, size_t *n_tokens);

/* The same text with "\n" for each line end, and without the last one; in the job's arena. */
char *lex_source(struct job *job, const char *text, size_t n_bytes, size_t *n);

#endif
