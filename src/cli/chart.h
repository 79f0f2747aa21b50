/* Small pictures made of characters: bars, a row of columns, a curve. With Unicode's blocks and
 * braille where the locale is UTF-8, else with ASCII. */
#ifndef REEL_CLI_CHART_H
#define REEL_CLI_CHART_H

#include "base/buffer.h"

/* Whether the environment's locale is UTF-8. */
bool chart_is_unicode(void);

/* A bar of `share` (0 to 1) of `width` columns; with `fill`, blanks up to that width. */
enum reel_status chart_bar(struct buffer *out, double share, int width, bool fill, bool unicode,
                           struct reel_error *err);

/* A column for each of n values, as high as its share of the largest; negative: no value. */
enum reel_status chart_columns(struct buffer *out, const double *values, int n, bool unicode,
                               struct reel_error *err);

struct chart_point {
    double x, y; /* both 0 or more */
};

struct chart_curve {
    const char *x_name;
    const struct chart_point *points; /* [n_points] with x ascending */
    int n_points;
    int columns, rows; /* of the whole picture, and of its area */
    bool unicode;
};

/* The points, with straight lines between, over axes that begin at 0. */
enum reel_status chart_plot(struct buffer *out, const struct chart_curve *curve,
                            struct reel_error *err);

/* "1,234": a number as a person reads it, three digits of small ones. */
void chart_number(double value, char *out, size_t n);

#endif
