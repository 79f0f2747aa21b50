/* The pages of `reel top`: rows for a terminal, and JSON. */
#ifndef REEL_CLI_TOP_VIEW_H
#define REEL_CLI_TOP_VIEW_H

#include "base/json.h"
#include "cli/top_reading.h"

struct top_view {
    const char *url;
    const struct top_reading *now;
    const struct top_reading *before; /* an interval ago, for rates; NULL: none */
    const struct top_reading *since;  /* what requests are counted from, for times to the first
                                         token and shares; NULL: the server's start */
    const double *made_per_s;         /* [n_made] of past intervals, oldest first */
    int n_made;
    const char *trouble; /* why there is nothing newer; NULL: nothing to say */
    bool live;           /* says which key quits */
    int columns, rows;   /* rows 0: as many as there are */
    bool unicode, styles;
};

/* Rows that end with a newline each, none wider than `columns`, without blanks at their ends. */
enum reel_status top_view_rows(struct buffer *out, const struct top_view *view,
                               struct reel_error *err);

enum reel_status top_view_json(json_t **out, const struct top_view *view, struct reel_error *err);

#endif
