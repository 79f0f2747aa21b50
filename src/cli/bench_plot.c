#include "cli/bench_plot.h"

#include "cli/chart.h"

#include <stdio.h>
#include <string.h>

enum { MOST_POINTS = 256, CURVE_ROWS = 8, MOST_COLUMNS = 100, NUMBER_COLUMNS = 10 };

/* ---- bars ------------------------------------------------------------------------------------ */

struct bar {
    char label[64];
    double per_s;
};

static enum reel_status put_title(struct buffer *out, const char *title,
                                  const struct plot_style *style, struct reel_error *err) {
    return buffer_printf(out, err, "\n%s%s%s\n", style->dims ? "\033[2m" : "", title,
                         style->dims ? "\033[0m" : "");
}

static enum reel_status put_bars(struct buffer *out, const char *title, const struct bar *bars,
                                 int n, const struct plot_style *style, struct reel_error *err) {
    int label_columns = 0;
    double most = 0;
    for (int i = 0; i < n; i++) {
        const int length = (int)strlen(bars[i].label);
        label_columns = length > label_columns ? length : label_columns;
        most = bars[i].per_s > most ? bars[i].per_s : most;
    }
    const int columns = style->columns < MOST_COLUMNS ? style->columns : MOST_COLUMNS;
    const int room = columns - label_columns - NUMBER_COLUMNS - 2, width = room > 8 ? room : 8;
    enum reel_status status = put_title(out, title, style, err);
    for (int i = 0; i < n && status == REEL_OK; i++) {
        char number[48];
        chart_number(bars[i].per_s, number, sizeof number);
        status = buffer_printf(out, err, "%-*s %*s ", label_columns, bars[i].label, NUMBER_COLUMNS,
                               number);
        if (status == REEL_OK)
            status = chart_bar(out, most > 0 ? bars[i].per_s / most : 0, width, false,
                               style->unicode, err);
        if (status == REEL_OK) status = buffer_text(out, "\n", err);
    }
    return status;
}

/* 0: reads a prompt, 1: generates, 2: both. */
static int kind_of(const struct bench_test *test) {
    return test->n_gen == 0 ? 0 : test->n_prompt == 0 ? 1 : 2;
}

static enum reel_status put_kind(struct buffer *out, int kind, const struct bench_row *rows,
                                 int n_rows, const struct plot_style *style,
                                 struct reel_error *err) {
    static const char *const titles[] = { "tokens/s, reading prompts", "tokens/s, generating",
                                          "tokens/s, a prompt and then generating" };
    struct bar bars[MOST_POINTS];
    int n = 0;
    for (int i = 0; i < n_rows && n < MOST_POINTS; i++) {
        if (kind_of(&rows[i].test) != kind) continue;
        bench_test_name(&rows[i].test, bars[n].label, sizeof bars[n].label);
        bars[n++].per_s = rows[i].tokens_per_s;
    }
    return n > 0 ? put_bars(out, titles[kind], bars, n, style, err) : REEL_OK;
}

/* ---- against depth --------------------------------------------------------------------------- */

static bool same_test(const struct bench_test *a, const struct bench_test *b) {
    return a->n_prompt == b->n_prompt && a->n_gen == b->n_gen;
}

/* A list of depths may be in any order, and name one twice. */
static int put_point(struct chart_point *points, int n, struct chart_point point) {
    int at = n;
    for (; at > 0 && points[at - 1].x > point.x; at--)
        points[at] = points[at - 1];
    points[at] = point;
    return n + 1;
}

static enum reel_status put_curve(struct buffer *out, const struct bench_row *rows, int n_rows,
                                  int first, const struct plot_style *style,
                                  struct reel_error *err) {
    struct chart_point points[MOST_POINTS];
    struct bench_test test = rows[first].test;
    char name[64], title[100];
    int n = 0;
    for (int i = 0; i < first; i++)
        if (same_test(&rows[i].test, &test)) return REEL_OK; /* is drawn */
    for (int i = first; i < n_rows && n < MOST_POINTS; i++)
        if (same_test(&rows[i].test, &test))
            n = put_point(points, n,
                          (struct chart_point){ rows[i].test.depth, rows[i].tokens_per_s });
    if (n < 2 || points[0].x == points[n - 1].x) return REEL_OK;
    test.depth = 0;
    bench_test_name(&test, name, sizeof name);
    snprintf(title, sizeof title, "tokens/s of %s against depth", name);
    const struct chart_curve curve = { .x_name = "tokens in the context before",
                                       .points = points,
                                       .n_points = n,
                                       .columns = style->columns < MOST_COLUMNS ? style->columns
                                                                                : MOST_COLUMNS,
                                       .rows = CURVE_ROWS,
                                       .unicode = style->unicode };
    enum reel_status status = put_title(out, title, style, err);
    return status == REEL_OK ? chart_plot(out, &curve, err) : status;
}

enum reel_status bench_plot(struct buffer *out, const struct bench_row *rows, int n_rows,
                            const struct plot_style *style, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    for (int kind = 0; kind < 3 && status == REEL_OK; kind++)
        status = put_kind(out, kind, rows, n_rows, style, err);
    for (int i = 0; i < n_rows && status == REEL_OK; i++)
        status = put_curve(out, rows, n_rows, i, style, err);
    return status;
}

enum reel_status parallel_plot(struct buffer *out, const struct parallel_row *rows, int n_rows,
                               const struct plot_style *style, struct reel_error *err) {
    struct bar bars[MOST_POINTS];
    int n = 0;
    for (; n < n_rows && n < MOST_POINTS; n++) {
        const struct parallel_test *t = &rows[n].test;
        char depth[32] = "";
        if (t->depth > 0) snprintf(depth, sizeof depth, " @ d%d", t->depth);
        snprintf(bars[n].label, sizeof bars[n].label, "%d session%s, pp%d tg%d%s", t->n_sessions,
                 t->n_sessions == 1 ? "" : "s", t->n_prompt, t->n_gen, depth);
        bars[n].per_s = rows[n].gen_per_s;
    }
    return put_bars(out, "generated tokens/s of all sessions", bars, n, style, err);
}
