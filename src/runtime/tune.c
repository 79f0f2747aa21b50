/* reel_model_tune: which of the settings that a backend can change while it is open decode fastest
 * here. */
#include "base/clock.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "base/struct_size.h"
#include "reel_measure.h"
#include "runtime/model_handle.h"
#include "runtime/tune_search.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    SHORT_CONTEXT = 16,
    LONG_CONTEXT = 4096,
    DEFAULT_REPEATS = 5,
    MOST_REPEATS = 64,
    MOST_TOKENS = 64,
    LEAST_TOKENS = 8
};
#define DEFAULT_SECONDS 45.0
#define DECODE_MS       25.0  /* one decode lasts about this long */
#define PROMPT_MS       2500. /* the long context is made in about this time */
#define TIE_ULPS        2.0

/* A timeline that is decoded from again and again. */
struct line {
    struct reel_session *session;
    int n;                                               /* ids before the decoded ones */
    int32_t base[MOST_TOKENS + 1], now[MOST_TOKENS + 1]; /* at the start, and last */
    int n_now;
    double per_s;
};

struct tuner {
    struct reel_model *model;
    const struct reel_tune_options *options;
    struct line lines[2]; /* short, long */
    int32_t *ids;         /* [longest context] */
    float *logits;        /* [vocab] */
    int n_tokens, repeats;
    struct reel_tune_result *result;
    bool has_base, same, enough;
    int base_values[BACKEND_MOST_SETTINGS];
    double start_ms, seconds;
};

/* ---- settings ---- */

static void set_all(const struct tuner *t, const struct tune_search *s) {
    for (int i = 0; i < s->n_axes; i++)
        t->model->ops->tuning->set(t->model->backend, i, s->axes[i].values[s->axes[i].at]);
}

static void set_back(const struct tuner *t, const struct tune_search *s) {
    for (int i = 0; i < s->n_axes; i++)
        t->model->ops->tuning->set(t->model->backend, i, t->base_values[i]);
}

static void make_axes(struct tuner *t, struct tune_search *s, int longest) {
    struct backend_setting list[BACKEND_MOST_SETTINGS];
    s->n_axes = t->model->ops->tuning->settings(t->model->backend, list, longest);
    for (int i = 0; i < s->n_axes; i++) {
        const struct backend_setting *b = &list[i];
        (b->doubles ? tune_axis_powers : tune_axis_steps)(&s->axes[i], b->name, b->least, b->most,
                                                          b->value);
        t->base_values[i] = b->value;
    }
}

/* ---- decoding ---- */

static bool keep_id(void *user, const struct reel_token *token) {
    struct line *line = user;
    if (line->n_now <= MOST_TOKENS) line->now[line->n_now++] = token->id;
    return true;
}

static enum reel_status generate(struct line *line, int n, double *ms, struct reel_error *err) {
    struct reel_generation_result result = { .size = sizeof result };
    const struct reel_generation g = { .size = sizeof g,
                                       .max_tokens = n,
                                       .ignore_stop_ids = true,
                                       .on_token = keep_id,
                                       .user = line,
                                       .speculation = REEL_SPECULATION_OFF };
    enum reel_status status = reel_generate(line->session, &g, &result, err);
    *ms = result.total_ms;
    if (status == REEL_OK && result.reason == REEL_STOP_CANCELLED)
        status = err_set(err, REEL_E_CANCELLED, "cancelled while tuning");
    return status;
}

/* One id outside of the clock: it is picked from the context's own last position. */
static enum reel_status decode_line(const struct tuner *t, struct line *line, double *ms,
                                    struct reel_error *err) {
    line->n_now = 0;
    enum reel_status status = reel_session_sync(line->session, t->ids, line->n, NULL, err);
    if (status == REEL_OK) status = generate(line, 1, ms, err);
    return status == REEL_OK ? generate(line, t->n_tokens, ms, err) : status;
}

/* Whether the first id that differs from the start's was a draw there: the two logits within what
 * rounding explains, with the settings of now. */
static enum reel_status is_tie(struct tuner *t, struct line *line, int at, bool *tie,
                               struct reel_error *err) {
    struct reel_eval eval = { .size = sizeof eval,
                              .n = 1,
                              .output = REEL_OUTPUT_LAST_LOGITS,
                              .out = t->logits,
                              .out_floats = (size_t)t->model->model.config.vocab };
    int exponent = 0;
    *tie = false;
    enum reel_status status = reel_session_truncate(line->session, line->n + at - 1, err);
    eval.ids = at > 0 ? &line->base[at - 1] : &t->ids[line->n - 1];
    if (status == REEL_OK) status = reel_session_eval(line->session, &eval, err);
    if (status != REEL_OK) return status;
    const double had = t->logits[line->base[at]], has = t->logits[line->now[at]];
    frexp(has, &exponent);
    *tie = has - had <= TIE_ULPS * ldexp(1.0, exponent - 8);
    return REEL_OK;
}

static enum reel_status compare(struct tuner *t, struct line *line, struct reel_error *err) {
    bool tie = true;
    enum reel_status status = REEL_OK;
    for (int i = 0; i <= t->n_tokens; i++) {
        if (line->now[i] == line->base[i]) continue;
        status = is_tie(t, line, i, &tie, err);
        break;
    }
    if (!tie) t->same = false;
    return status;
}

static enum reel_status measure_line(struct tuner *t, struct line *line, struct reel_error *err) {
    double ms[MOST_REPEATS];
    enum reel_status status = decode_line(t, line, &ms[0], err); /* warms up */
    for (int i = 0; i < t->repeats && status == REEL_OK; i++)
        status = decode_line(t, line, &ms[i], err);
    if (status != REEL_OK) return status;
    line->per_s = t->n_tokens * 1e3 / median(ms, t->repeats);
    if (!t->has_base) memcpy(line->base, line->now, sizeof line->base);
    return compare(t, line, err);
}

static void report_trial(struct tuner *t, const char *name, int value, bool kept) {
    const struct reel_tune_trial trial = { .size = sizeof trial,
                                           .name = name,
                                           .value = value,
                                           .short_per_s = t->lines[0].per_s,
                                           .long_per_s = t->lines[1].per_s,
                                           .same_ids = t->same,
                                           .kept = kept };
    if (t->options->on_trial && !t->options->on_trial(t->options->user, &trial)) t->enough = true;
}

static enum reel_status measure_settings(void *user, const struct tune_search *s, double *score,
                                         struct reel_error *err) {
    struct tuner *t = user;
    enum reel_status status = REEL_OK;
    set_all(t, s);
    t->same = true;
    for (int i = 0; i < 2 && status == REEL_OK; i++)
        status = measure_line(t, &t->lines[i], err);
    *score = t->same ? sqrt(t->lines[0].per_s * t->lines[1].per_s) : 0;
    if (!t->has_base && status == REEL_OK) {
        t->has_base = true;
        t->result->before_short = t->lines[0].per_s;
        t->result->before_long = t->lines[1].per_s;
        report_trial(t, NULL, 0, true);
    }
    const double done = clock_ms() - t->start_ms;
    const struct reel_tune_options *o = t->options;
    if (status == REEL_OK && o->progress &&
        !o->progress(o->progress_user, "tuning", (uint64_t)done, (uint64_t)(t->seconds * 1e3)))
        status = err_set(err, REEL_E_CANCELLED, "cancelled while tuning");
    return status;
}

static void on_tried(void *user, const struct tune_search *s, int axis, double score, double best,
                     bool kept) {
    (void)score, (void)best;
    report_trial(user, s->axes[axis].name, s->axes[axis].values[s->axes[axis].at], kept);
}

static bool is_time_over(void *user) {
    const struct tuner *t = user;
    return t->enough || clock_ms() - t->start_ms > t->seconds * 1e3;
}

/* ---- the two contexts ---- */

static enum reel_status open_line(struct tuner *t, struct line *line, int n,
                                  struct reel_error *err) {
    const struct reel_session_options options = { .size = sizeof options,
                                                  .max_context = n + MOST_TOKENS + 2 };
    line->n = n;
    return reel_session_open(&line->session, t->model, &options, err);
}

/* How long a context and a decode this model's speed allows. */
static enum reel_status open_lines(struct tuner *t, struct reel_error *err) {
    const struct model_config *c = &t->model->model.config;
    const int room = c->max_context - MOST_TOKENS - 2;
    double ms = 0;
    if (room <= SHORT_CONTEXT)
        return err_set(err, REEL_E_UNSUPPORTED, "%s: a context of %d is too short to tune with",
                       t->model->model.name, c->max_context);
    int n_long = room < LONG_CONTEXT ? room : LONG_CONTEXT;
    enum reel_status status = mem_zeroed(&t->ids, (size_t)room, sizeof *t->ids, "ids", err);
    if (status == REEL_OK)
        status = mem_zeroed(&t->logits, (size_t)c->vocab, sizeof *t->logits, "logits", err);
    for (int i = 0; i < room && status == REEL_OK; i++)
        t->ids[i] = (int32_t)(((int64_t)i * 7919 + 17) % c->vocab);
    if (status == REEL_OK) status = open_line(t, &t->lines[0], SHORT_CONTEXT, err);
    t->n_tokens = LEAST_TOKENS;
    for (int i = 0; i < 2 && status == REEL_OK; i++)
        status = decode_line(t, &t->lines[0], &ms, err);
    if (status != REEL_OK) return status;
    const double token_ms = ms / t->n_tokens;
    if (n_long > PROMPT_MS / token_ms) n_long = (int)(PROMPT_MS / token_ms);
    if (t->options->long_context) n_long = t->options->long_context;
    if (n_long > room) n_long = room;
    if (n_long < SHORT_CONTEXT) n_long = SHORT_CONTEXT;
    const double fits = DECODE_MS / token_ms;
    t->n_tokens = fits < LEAST_TOKENS ? LEAST_TOKENS : fits > MOST_TOKENS ? MOST_TOKENS : (int)fits;
    if (t->options->n_tokens) t->n_tokens = t->options->n_tokens;
    return open_line(t, &t->lines[1], n_long, err);
}

static void close_lines(struct tuner *t) {
    reel_session_close(t->lines[0].session);
    reel_session_close(t->lines[1].session);
    mem_free(t->ids);
    mem_free(t->logits);
}

/* ---- all of it ---- */

static enum reel_status write_tuned(const struct tuner *t, struct reel_tune_result *result,
                                    struct reel_error *err) {
    struct buffer path = { 0 };
    if (!t->options->cache_dir) return REEL_OK;
    enum reel_status status = t->model->ops->tuning->remember(
        t->model->backend, t->options->cache_dir, result->gpu_options,
        sqrt(result->before_short * result->before_long),
        sqrt(result->after_short * result->after_long), &path, err);
    if (status == REEL_OK) (void)snprintf(result->path, sizeof result->path, "%s", path.bytes);
    buffer_release(&path);
    return status;
}

/* "key=value,..." of the values taken. */
static void write_options(const struct tune_search *s, char *text, size_t size) {
    for (int i = 0; i < s->n_axes; i++) {
        const int n = snprintf(text, size, "%s%s=%d", i > 0 ? "," : "", s->axes[i].name,
                               s->axes[i].values[s->axes[i].at]);
        if (n < 0 || (size_t)n >= size) return;
        text += n, size -= (size_t)n;
    }
}

static enum reel_status tune_settings(struct tuner *t, struct tune_search *s,
                                      struct reel_tune_result *result, struct reel_error *err) {
    double score = 0;
    enum reel_status status = open_lines(t, err);
    if (status != REEL_OK) return status;
    make_axes(t, s, t->lines[1].n);
    result->long_context = t->lines[1].n;
    status = tune_search(s, err);
    if (status == REEL_OK) status = measure_settings(t, s, &score, err);
    result->after_short = t->lines[0].per_s;
    result->after_long = t->lines[1].per_s;
    for (int i = 0; i < s->n_axes; i++)
        if (s->axes[i].values[s->axes[i].at] != t->base_values[i]) result->improved = true;
    write_options(s, result->gpu_options, sizeof result->gpu_options);
    return status;
}

static enum reel_status check_options(const struct reel_model *model,
                                      const struct reel_tune_options *o, struct reel_error *err) {
    if (!model->ops->tuning)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: runs on the CPU; only what runs on a GPU is tuned", model->model.name);
    if (o->n_tokens < 0 || o->n_tokens > MOST_TOKENS || o->long_context < 0 || o->repeats < 0 ||
        o->repeats > MOST_REPEATS || !(o->seconds >= 0))
        return err_set(err, REEL_E_ARGUMENT,
                       "tuning with %d tokens (0 to %d), %d repeats (0 to %d), a context of %d and "
                       "%g seconds",
                       o->n_tokens, MOST_TOKENS, o->repeats, MOST_REPEATS, o->long_context,
                       o->seconds);
    return REEL_OK;
}

enum reel_status reel_model_tune(struct reel_model *model, const struct reel_tune_options *given,
                                 struct reel_tune_result *out, struct reel_error *err) {
    struct reel_tune_options options;
    struct reel_tune_result result = { .size = sizeof result };
    struct tuner t = {
        .model = model, .options = &options, .start_ms = clock_ms(), .result = &result
    };
    struct tune_search search = {
        .measure = measure_settings, .tried = on_tried, .time_over = is_time_over, .user = &t
    };
    err_clear(err);
    enum reel_status status = err_if_null(err, "model", (const void *const[]){ model });
    if (status == REEL_OK && out) status = struct_check(out, sizeof *out, "reel_tune_result", err);
    if (status == REEL_OK)
        status = struct_read(&options, sizeof options, given, "reel_tune_options", err);
    if (status == REEL_OK) status = check_options(model, &options, err);
    if (status != REEL_OK) return status;
    t.seconds = options.seconds > 0 ? options.seconds : DEFAULT_SECONDS;
    t.repeats = options.repeats ? options.repeats : DEFAULT_REPEATS;
    status = tune_settings(&t, &search, &result, err);
    if (status == REEL_OK) status = write_tuned(&t, &result, err);
    if (status != REEL_OK || !options.apply) set_back(&t, &search);
    close_lines(&t);
    if (status != REEL_OK || !out) return status;
    return struct_write(out, &result, sizeof result, "reel_tune_result", err);
}
