/* A text that is being edited, drawn at a terminal.
 *
 * Rows are broken here and not by the terminal, one column before its edge, and counted by the most
 * columns that a terminal may give a cluster. The cursor gets to its place by writing what stands
 * before it once more. So no row is ever of a length that is not known, and the cursor stands right
 * however wide the terminal takes an emoji to be. A text of more rows than the window shows those
 * around the cursor. */
#ifndef REEL_CLI_LINE_VIEW_H
#define REEL_CLI_LINE_VIEW_H

#include "base/buffer.h"

#include <stdio.h>

struct line_view {
    FILE *out;
    struct buffer frame; /* what is written at once */
    size_t top;          /* the row of the text that is shown first */
    size_t above;        /* rows between the first one shown and the cursor */
    size_t below;        /* and between the cursor and the last one */
};

void line_view_open(struct line_view *v, FILE *out);
void line_view_close(struct line_view *v);

/* Draws n bytes with the cursor before the byte `cursor`, in the place of what was drawn before. */
void line_view_draw(struct line_view *v, const char *text, size_t n, size_t cursor);

/* Puts the terminal's cursor at the beginning of the row below all that was drawn. */
void line_view_end(struct line_view *v);

/* What was drawn is no longer there, or no longer mine: the next drawing begins in the terminal's
 * row. */
void line_view_forget(struct line_view *v);

#endif
