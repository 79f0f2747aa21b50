/* Answers for a reader at a terminal: words wrap (wrap.h), and where styles are allowed Markdown's
 * headings and **strong** words are bold instead of marked. Code, tables and lists stay as they
 * were written; in code nothing is a mark. What a model writes cannot steer the terminal. */
#ifndef REEL_CLI_PAGE_H
#define REEL_CLI_PAGE_H

#include "cli/wrap.h"

struct page {
    struct wrap wrap;
    bool styled;
    bool dim;     /* thinking: no Markdown */
    char part[4]; /* the beginning of a character */
    size_t n_part;
    char head[48]; /* how the line begins, until it is clear what that means */
    size_t n_head;
    bool in_line;   /* it is clear */
    char fence;     /* of the block of code, '`' or '~'; 0: none */
    bool fence_row; /* this line opens or closes it */
    bool heading, strong, code;
    int stars;    /* that were not written yet */
    int32_t last; /* the character before them */
};

void page_start(struct page *p, FILE *out);

/* Any cut of UTF-8. */
void page_text(struct page *p, const char *text, size_t n);

/* Begins and ends thinking. */
void page_dim(struct page *p, bool on);

/* Writes what was held back and ends the row; the next text begins anew. */
void page_end(struct page *p);

#endif
