/* Streams an answer to a terminal, laid out on a page, with what stands between <think> and
 * </think> dimmed; elsewhere the text passes through unchanged. */
#ifndef REEL_CLI_THINK_VIEW_H
#define REEL_CLI_THINK_VIEW_H

#include "cli/page.h"

struct think_view {
    FILE *out;
    struct page *page; /* borrowed; NULL: text goes to out as it is */
    bool styled;       /* dim, and leave the tags out */
    bool started;      /* something but white space came: a later <think> is text */
    bool inside;
    char held[8]; /* the beginning of what may become a tag */
    size_t n_held;
};

#define THINK_OPENING "<think>\n"

/* Begins an answer. `inside`: the prompt opened thinking, so the answer has only the closing tag;
 * where the text passes through, the opening one is written for it. */
void think_view_start(struct think_view *view, bool inside);

/* A function for answer_request.put; user is the struct. */
void think_view_put(void *user, const char *text, size_t n_bytes);

/* Writes what was held back and ends dimming; on a page ends the row. */
void think_view_finish(struct think_view *view);

#endif
