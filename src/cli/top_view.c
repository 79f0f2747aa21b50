#include "cli/top_view.h"

#include "cli/chart.h"
#include "cli/grapheme.h"
#include "cli/terminal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STATE_COLUMNS = 9, LABEL_COLUMNS = 12 };

/* Rows in the making. */
struct rows {
    struct buffer *out;
    const struct top_view *view;
    int n;
    enum reel_status status;
    struct reel_error *err;
};

static void put(struct rows *r, const char *text, size_t n) {
    if (r->status == REEL_OK) r->status = buffer_append(r->out, text, n, r->err);
}

/* Bytes of the text that fit in so many columns, and how many those take. */
static size_t fitting(const char *text, size_t n, int columns, int *taken) {
    size_t at = 0;
    for (*taken = 0; at < n;) {
        int wide = 0;
        const size_t end = grapheme_end(text, n, at, &wide);
        if (*taken + wide > columns) break;
        *taken += wide;
        at = end;
    }
    return at;
}

/* Names come from the server: none steers the terminal. */
static void clean(char *out, size_t size, const char *text) {
    const size_t n = strlen(text);
    size_t used = 0;
    for (size_t i = 0; i < n && used + 1 < size; i++) {
        const char c = terminal_byte(text, n, i);
        if (c) out[used++] = c == '\n' || c == '\t' ? '?' : c;
    }
    out[used] = '\0';
}

enum style { PLAIN, BOLD, DIM };

/* One row, cut where the terminal ends. */
static void row(struct rows *r, enum style style, const char *text) {
    size_t n = strlen(text);
    int taken = 0;
    const bool styled = style != PLAIN && r->view->styles;
    while (n > 0 && text[n - 1] == ' ')
        n--;
    n = fitting(text, n, r->view->columns, &taken);
    if (styled) put(r, style == BOLD ? "\033[1m" : "\033[2m", 4);
    put(r, text, n);
    if (styled) put(r, "\033[0m", 4);
    put(r, "\n", 1);
    r->n++;
}

/* ---- all models together --------------------------------------------------------------------- */

static void title(struct rows *r) {
    static const char quit[] = "q quits";
    const struct top_view *v = r->view;
    char url[300], version[48], left[400], line[800];
    int taken = 0;
    clean(url, sizeof url, v->url);
    clean(version, sizeof version, v->now->version);
    snprintf(left, sizeof left, "reel %s  %s  %s", version, url, v->now->state);
    (void)fitting(left, strlen(left), v->columns, &taken);
    const int gap = v->columns - taken - (int)sizeof quit + 1;
    if (v->live && gap > 1 && gap < 300)
        snprintf(line, sizeof line, "%s%*s%s", left, gap, "", quit);
    else
        snprintf(line, sizeof line, "%s", left);
    row(r, BOLD, line);
    char trouble[300] = "";
    if (v->trouble) clean(trouble, sizeof trouble, v->trouble);
    row(r, PLAIN, trouble);
}

static void number(double value, char *out, size_t n) {
    if (value >= 0)
        chart_number(value, out, n);
    else
        snprintf(out, n, "-");
}

static void speed(struct rows *r) {
    const struct top_view *v = r->view;
    char figure[48], line[1200];
    struct buffer columns = { 0 };
    number(top_made_per_s(v->before, v->now), figure, sizeof figure);
    const int room = v->columns - LABEL_COLUMNS - 12;
    const int n = v->n_made < room ? v->n_made : room > 0 ? room : 0;
    if (r->status == REEL_OK && n > 0)
        r->status = chart_columns(&columns, v->made_per_s + v->n_made - n, n, v->unicode, r->err);
    snprintf(line, sizeof line, "%-*s%9s   %s", LABEL_COLUMNS, "tokens/s", figure,
             columns.bytes ? columns.bytes : "");
    buffer_release(&columns);
    row(r, PLAIN, line);
}

static void bytes_text(double bytes, char *out, size_t n) {
    if (bytes < 1e9)
        snprintf(out, n, "%.1f MB", bytes / 1e6);
    else
        snprintf(out, n, "%.2f GB", bytes / 1e9);
}

static void sums(const struct top_reading *now, double *busy, double *queued) {
    *busy = *queued = 0;
    for (int i = 0; i < now->n_models; i++) {
        *busy += now->models[i].busy;
        *queued += now->models[i].queued;
    }
}

static double others(double connections) { return connections > 1 ? connections - 1 : 0; }

static void requests(struct rows *r) {
    const struct top_reading *now = r->view->now;
    char line[300], memory[40];
    double busy, queued;
    sums(now, &busy, &queued);
    const double other = others(now->connections);
    snprintf(line, sizeof line, "%-*s%9.0f   running, %.0f queued, %.0f other connection%s",
             LABEL_COLUMNS, "requests", busy, queued, other, other == 1 ? "" : "s");
    row(r, PLAIN, line);
    bytes_text(now->resident_bytes, memory, sizeof memory);
    snprintf(line, sizeof line, "%-*s%9s   resident", LABEL_COLUMNS, "memory", memory);
    row(r, PLAIN, line);
}

static void power(struct rows *r) {
    const struct top_view *v = r->view;
    char line[300], name[100], per_joule[48], watts[40];
    if (!v->now->gpu[0]) return;
    clean(name, sizeof name, v->now->gpu);
    snprintf(watts, sizeof watts, "%.0f W", v->now->watts);
    number(top_made_per_joule(v->before, v->now), per_joule, sizeof per_joule);
    snprintf(line, sizeof line, "%-*s%9s   %s tokens/J, %s", LABEL_COLUMNS, "GPU", watts, per_joule,
             name);
    row(r, PLAIN, line);
}

/* ---- a row for each model -------------------------------------------------------------------- */

struct cells {
    const char *tokens, *prompt, *busy, *queued, *first, *p99, *reused, *kv, *device;
};

/* The least columns of a terminal that shows them: the first to go are at the end. */
enum { WITH_PROMPT = 66, WITH_QUEUED = 58, WITH_P99 = 92, WITH_DEVICE = 108 };

static void model_row(struct rows *r, enum style style, const char *name, const char *state,
                      const struct cells *c) {
    const int columns = r->view->columns;
    char right[300], line[900];
    int used = snprintf(right, sizeof right, "%-*s%8s", STATE_COLUMNS, state, c->tokens);
    if (columns >= WITH_PROMPT)
        used += snprintf(right + used, sizeof right - (size_t)used, "%10s", c->prompt);
    used += snprintf(right + used, sizeof right - (size_t)used, "%7s", c->busy);
    if (columns >= WITH_QUEUED)
        used += snprintf(right + used, sizeof right - (size_t)used, "%8s", c->queued);
    used += snprintf(right + used, sizeof right - (size_t)used, "%10s", c->first);
    if (columns >= WITH_P99)
        used += snprintf(right + used, sizeof right - (size_t)used, "%9s", c->p99);
    used += snprintf(right + used, sizeof right - (size_t)used, "%8s%6s", c->reused, c->kv);
    if (columns >= WITH_DEVICE)
        used += snprintf(right + used, sizeof right - (size_t)used, "  %s", c->device);
    const int most = columns - used - 1, room = most < 4 ? 4 : most > 40 ? 40 : most;
    int taken = 0;
    const size_t n = fitting(name, strlen(name), room, &taken);
    snprintf(line, sizeof line, "%.*s%*s%s", (int)n, name, room - taken + 1, "", right);
    row(r, style, line);
}

static void percent(double share, char *out, size_t n) {
    if (share >= 0)
        snprintf(out, n, "%.0f %%", 100 * share);
    else
        snprintf(out, n, "-");
}

static void model(struct rows *r, int i) {
    const struct top_view *v = r->view;
    const struct top_model *m = &v->now->models[i];
    struct top_figures rate, f;
    char name[256], state[24], device[48], tokens[48], prompt[48], busy[40], queued[24], first[48],
        p99[48], reused[24], kv[24];
    top_model_figures(&rate, v->before, v->now, i);
    top_model_figures(&f, v->since, v->now, i);
    clean(name, sizeof name, m->name);
    clean(state, sizeof state, m->status);
    clean(device, sizeof device, m->device);
    number(v->before ? rate.made_per_s : -1, tokens, sizeof tokens);
    number(v->before ? rate.prompt_per_s : -1, prompt, sizeof prompt);
    number(f.first_p50_ms, first, sizeof first);
    number(f.first_p99_ms, p99, sizeof p99);
    percent(f.reused_share, reused, sizeof reused);
    percent(m->kv_total > 0 ? m->kv_used / m->kv_total : -1, kv, sizeof kv);
    snprintf(queued, sizeof queued, "%.0f", m->queued);
    if (m->sessions > 0)
        snprintf(busy, sizeof busy, "%.0f/%.0f", m->busy, m->sessions);
    else
        snprintf(busy, sizeof busy, "%.0f", m->busy);
    const struct cells cells = { tokens, prompt, busy, queued, first, p99, reused, kv, device };
    model_row(r, PLAIN, name, state, &cells);
}

static void models(struct rows *r) {
    static const struct cells heads = { "tokens/s", "prompt/s", "busy", "queued", "first ms",
                                        "p99 ms",   "reused",   "KV",   "device" };
    const struct top_view *v = r->view;
    char line[120];
    model_row(r, DIM, "model", "state", &heads);
    const int room = v->rows > 0 ? v->rows - r->n : v->now->n_models;
    const bool all = v->now->n_models <= room;
    const int n = all ? v->now->n_models : room > 1 ? room - 1 : 0;
    for (int i = 0; i < n; i++)
        model(r, i);
    if (all || room < 1) return;
    snprintf(line, sizeof line, "and %d more models; a higher window shows them",
             v->now->n_models - n);
    row(r, DIM, line);
}

enum reel_status top_view_rows(struct buffer *out, const struct top_view *view,
                               struct reel_error *err) {
    struct rows r = { .out = out, .view = view, .err = err };
    title(&r);
    speed(&r);
    requests(&r);
    power(&r);
    row(&r, PLAIN, "");
    models(&r);
    return r.status;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

/* Thousandths are enough for all that is shown. */
static json_t *known(double value) {
    return value >= 0 ? json_real(round(value * 1e3) / 1e3) : json_null();
}

/* A count as the server says it, which may be anything. */
static json_int_t whole(double value) {
    const double most = 9007199254740992.0; /* 2^53 */
    if (!(value > -most)) return value <= -most ? (json_int_t)-most : 0;
    return (json_int_t)(value < most ? value : most);
}

static json_t *gpu_json(const struct top_view *v) {
    if (!v->now->gpu[0]) return json_null();
    return json_pack("{s:s, s:f, s:f, s:o}", "name", v->now->gpu, "watts", v->now->watts,
                     "joules_total", v->now->joules, "tokens_per_joule",
                     known(top_made_per_joule(v->before, v->now)));
}

static json_t *model_json(const struct top_view *v, int i) {
    const struct top_model *m = &v->now->models[i];
    struct top_figures rate, f;
    top_model_figures(&rate, v->before, v->now, i);
    top_model_figures(&f, v->since, v->now, i);
    return json_pack("{s:s, s:s, s:s, s:o, s:o, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:I, s:I, s:I, "
                     "s:I, s:I}",
                     "name", m->name, "status", m->status, "device", m->device, "tokens_per_s",
                     known(v->before ? rate.made_per_s : -1), "prompt_tokens_per_s",
                     known(v->before ? rate.prompt_per_s : -1), "sessions", whole(m->sessions),
                     "sessions_busy", whole(m->busy), "requests_queued", whole(m->queued),
                     "first_token_ms_p50", known(f.first_p50_ms), "first_token_ms_p99",
                     known(f.first_p99_ms), "prefix_hit_share", known(f.hit_share),
                     "reused_token_share", known(f.reused_share), "kv_used_bytes",
                     whole(m->kv_used), "kv_total_bytes", whole(m->kv_total), "tokens_made_total",
                     whole(m->made), "prompt_tokens_total", whole(m->prompt), "requests_total",
                     whole(m->requests));
}

enum reel_status top_view_json(json_t **out, const struct top_view *v, struct reel_error *err) {
    json_t *list = json_array();
    double busy, queued;
    int failed = list == NULL;
    sums(v->now, &busy, &queued);
    for (int i = 0; i < v->now->n_models; i++)
        failed |= json_array_append_new(list, model_json(v, i));
    *out = json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:o, s:o}", "url", v->url,
                     "version", v->now->version, "state", v->now->state, "interval_s",
                     known(v->before ? (v->now->at_ms - v->before->at_ms) * 1e-3 : -1), "window_s",
                     known(v->since ? (v->now->at_ms - v->since->at_ms) * 1e-3 : -1),
                     "tokens_per_s", known(top_made_per_s(v->before, v->now)), "requests_running",
                     whole(busy), "requests_queued", whole(queued), "other_connections",
                     whole(others(v->now->connections)), "resident_bytes",
                     whole(v->now->resident_bytes), "gpu", gpu_json(v), "models", list);
    if (*out && !failed) return REEL_OK;
    json_decref(*out);
    *out = NULL;
    return err_memory(err, "a reading", 0);
}
