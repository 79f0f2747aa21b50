/* What reel bench measured, as a picture in the terminal. */
#ifndef REEL_CLI_BENCH_PLOT_H
#define REEL_CLI_BENCH_PLOT_H

#include "base/buffer.h"
#include "cli/bench_parallel.h"

/* How wide, and of what characters. */
struct plot_style {
    int columns;
    bool unicode, dims;
};

/* A bar for each row, on a scale for each kind of test; then speed against depth for each test that
 * was made at several depths. */
enum reel_status bench_plot(struct buffer *out, const struct bench_row *rows, int n_rows,
                            const struct plot_style *style, struct reel_error *err);

/* A bar for each row: generated tokens a second of all sessions. */
enum reel_status parallel_plot(struct buffer *out, const struct parallel_row *rows, int n_rows,
                               const struct plot_style *style, struct reel_error *err);

#endif
