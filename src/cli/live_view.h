/* Text at a terminal while it grows: what stays, and behind it, dimmed, what may still change. The
 * latter never leaves the row that the text ends in, so that it can be wiped whatever happens:
 * when the row has no room for all of it, its end is shown. Without styles (NO_COLOR, a dumb
 * terminal, no terminal) there is only what stays. */
#ifndef REEL_CLI_LIVE_VIEW_H
#define REEL_CLI_LIVE_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

struct live_view {
    FILE *out;
    bool styled;
    int column; /* of the row, of the text that stays */
    bool drawn; /* a rest stands there */
};

void live_view_start(struct live_view *v, FILE *out);

/* n bytes of whole UTF-8 characters that stay; a rest that stands there goes. */
void live_view_text(struct live_view *v, const char *text, size_t n);

/* What may still change takes the place of what stood there. */
void live_view_rest(struct live_view *v, const char *text, size_t n);

/* Wipes the rest. The caller ends the line, and text after that begins one. */
void live_view_end(struct live_view *v);

#endif
