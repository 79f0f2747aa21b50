/* Counters are kept here; what others know already is asked for when somebody looks. A request
 * takes the lock once, when it has ended. */
#include "server/metrics.h"

#include "base/memory.h"

#include "server/handlers.h"
#include "server/server_state.h"

#include <inttypes.h>
#include <pthread.h>
#include <reel_measure.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_MODELS 64
#define MOST_CODES  1024 /* pairs of a route and a code */

/* Seconds; each bucket counts what is at most so long. */
static const double long_bounds[] = { 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2,
                                      0.5,   1,     2,     5,    10,   20,   60,  300 };
static const double token_bounds[] = { 0.0002, 0.0005, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075,
                                       0.01,   0.015,  0.02,  0.03,   0.05,  0.1,   0.5,   1 };
#define N_BOUNDS ((int)(sizeof long_bounds / sizeof *long_bounds))
_Static_assert(sizeof long_bounds == sizeof token_bounds, "both have as many");

struct histogram {
    uint64_t n[N_BOUNDS + 1]; /* the last: longer than all bounds */
    double sum;
};

struct model_counts {
    const char *name; /* the server's */
    uint64_t n_prompt, n_reused, n_generated, n_hits;
    struct histogram first_token, per_token, queue;
};

struct code_count {
    const char *route; /* the server's */
    int code;
    uint64_t n;
};

struct metrics {
    pthread_mutex_t lock; /* guards all but the meter */
    struct code_count codes[MOST_CODES];
    struct model_counts models[MOST_MODELS];
    int n_codes, n_models;
    struct histogram requests;
    pthread_mutex_t meter_lock;
    struct reel_meter *meter;
    const struct served_model *metered; /* the first model on a GPU that counts its energy */
    bool meter_tried;
};

enum reel_status metrics_open(struct metrics **out, struct reel_error *err) {
    enum reel_status status = mem_zeroed(out, 1, sizeof **out, "metrics", err);
    if (status != REEL_OK) return status;
    pthread_mutex_init(&(*out)->lock, NULL);
    pthread_mutex_init(&(*out)->meter_lock, NULL);
    return status;
}

void metrics_close(struct metrics *m) {
    if (!m) return;
    reel_meter_close(m->meter);
    pthread_mutex_destroy(&m->meter_lock);
    pthread_mutex_destroy(&m->lock);
    mem_free(m);
}

/* ---- counting ---- */

static void add(struct histogram *h, const double bounds[N_BOUNDS], double ms) {
    int i = 0;
    while (i < N_BOUNDS && ms * 1e-3 > bounds[i])
        i++;
    h->n[i]++;
    h->sum += ms * 1e-3;
}

static void count_code(struct metrics *m, const char *route, int code) {
    for (int i = 0; i < m->n_codes; i++) {
        struct code_count *c = &m->codes[i];
        if (c->code != code || strcmp(c->route, route) != 0) continue;
        c->n++;
        return;
    }
    if (m->n_codes < MOST_CODES) m->codes[m->n_codes++] = (struct code_count){ route, code, 1 };
}

static struct model_counts *counts_of(struct metrics *m, const char *name) {
    for (int i = 0; i < m->n_models; i++)
        if (strcmp(m->models[i].name, name) == 0) return &m->models[i];
    if (m->n_models == MOST_MODELS) return NULL;
    m->models[m->n_models].name = name;
    return &m->models[m->n_models++];
}

static void count_model(struct model_counts *c, const struct exchange_figures *f) {
    c->n_prompt += (uint64_t)f->n_prompt;
    c->n_reused += (uint64_t)f->n_reused;
    c->n_generated += (uint64_t)f->n_generated;
    c->n_hits += f->n_reused > 0;
    if (f->n_prompt > 0) add(&c->queue, long_bounds, f->queue_ms);
    if (f->first_token_ms > 0) add(&c->first_token, long_bounds, f->first_token_ms);
    if (f->n_generated > 1) add(&c->per_token, token_bounds, f->generate_ms / (f->n_generated - 1));
}

void metrics_request(struct metrics *m, const char *route, int code, double total_ms,
                     const struct exchange_figures *figures) {
    pthread_mutex_lock(&m->lock);
    count_code(m, route, code);
    add(&m->requests, long_bounds, total_ms);
    struct model_counts *c = figures->model ? counts_of(m, figures->model) : NULL;
    if (c) count_model(c, figures);
    pthread_mutex_unlock(&m->lock);
}

/* ---- showing ---- */

struct page {
    struct buffer *out;
    enum reel_status status;
    struct reel_error *err;
};

static void put(struct page *p, const char *text) {
    if (p->status == REEL_OK) p->status = buffer_text(p->out, text, p->err);
}

static void put_head(struct page *p, const char *name, const char *type, const char *help) {
    if (p->status == REEL_OK)
        p->status = buffer_printf(p->out, p->err, "# HELP reel_%s %s\n# TYPE reel_%s %s\n", name,
                                  help, name, type);
}

/* A label's value; a model's name may hold anything. */
static void put_label(struct page *p, const char *name, const char *value) {
    put(p, name);
    put(p, "=\"");
    for (const char *c = value; *c && p->status == REEL_OK; c++) {
        if (*c == '\n') {
            put(p, "\\n");
            continue;
        }
        if (*c == '"' || *c == '\\') put(p, "\\");
        if (p->status == REEL_OK) p->status = buffer_append(p->out, c, 1, p->err);
    }
    put(p, "\"");
}

/* reel_NAME{LABEL="VALUE"} NUMBER; without a label where `value` is NULL. */
static void put_line(struct page *p, const char *name, const char *label, const char *value,
                     double number) {
    put(p, "reel_");
    put(p, name);
    if (value) {
        put(p, "{");
        put_label(p, label, value);
        put(p, "}");
    }
    if (p->status == REEL_OK) p->status = buffer_printf(p->out, p->err, " %.17g\n", number);
}

static void put_histogram(struct page *p, const char *name, const char *model,
                          const struct histogram *h, const double bounds[N_BOUNDS]) {
    uint64_t n = 0;
    for (int i = 0; i <= N_BOUNDS; i++) {
        n += h->n[i];
        put(p, "reel_");
        put(p, name);
        put(p, "_bucket{");
        if (model) put_label(p, "model", model);
        if (model) put(p, ",");
        if (p->status != REEL_OK) return;
        p->status = i < N_BOUNDS
                        ? buffer_printf(p->out, p->err, "le=\"%g\"} %" PRIu64 "\n", bounds[i], n)
                        : buffer_printf(p->out, p->err, "le=\"+Inf\"} %" PRIu64 "\n", n);
    }
    char full[80];
    snprintf(full, sizeof full, "%s_sum", name);
    put_line(p, full, "model", model, h->sum);
    snprintf(full, sizeof full, "%s_count", name);
    put_line(p, full, "model", model, (double)n);
}

static void put_requests(struct page *p, const struct metrics *m) {
    put_head(p, "requests_total", "counter",
             "Requests that have ended, by route and HTTP code; 499: the client left.");
    for (int i = 0; i < m->n_codes; i++) {
        put(p, "reel_requests_total{");
        put_label(p, "route", m->codes[i].route);
        if (p->status == REEL_OK)
            p->status = buffer_printf(p->out, p->err, ",code=\"%d\"} %" PRIu64 "\n",
                                      m->codes[i].code, m->codes[i].n);
    }
    put_head(p, "request_seconds", "histogram", "From a request's headers to its answer's end.");
    put_histogram(p, "request_seconds", NULL, &m->requests, long_bounds);
}

static void put_counts(struct page *p, const struct metrics *m) {
    static const struct {
        const char *name, *help;
        size_t at;
    } counters[] = {
        { "prompt_tokens_total", "Tokens of prompts.", offsetof(struct model_counts, n_prompt) },
        { "reused_tokens_total", "Tokens of prompts that a session held already.",
          offsetof(struct model_counts, n_reused) },
        { "generated_tokens_total", "Tokens made.", offsetof(struct model_counts, n_generated) },
        { "prefix_hits_total", "Requests of which a session held a beginning.",
          offsetof(struct model_counts, n_hits) },
    };
    static const struct {
        const char *name, *help;
        size_t at;
        const double *bounds;
    } histograms[] = {
        { "time_to_first_token_seconds", "From a request's headers to its first token.",
          offsetof(struct model_counts, first_token), long_bounds },
        { "time_per_output_token_seconds", "Mean time between the tokens of a request.",
          offsetof(struct model_counts, per_token), token_bounds },
        { "queue_seconds", "What requests waited for a session.",
          offsetof(struct model_counts, queue), long_bounds },
    };
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++) {
        put_head(p, counters[i].name, "counter", counters[i].help);
        for (int j = 0; j < m->n_models; j++)
            put_line(p, counters[i].name, "model", m->models[j].name,
                     (double)*(const uint64_t *)((const char *)&m->models[j] + counters[i].at));
    }
    for (size_t i = 0; i < sizeof histograms / sizeof *histograms; i++) {
        put_head(p, histograms[i].name, "histogram", histograms[i].help);
        for (int j = 0; j < m->n_models; j++)
            put_histogram(p, histograms[i].name, m->models[j].name,
                          (const void *)((const char *)&m->models[j] + histograms[i].at),
                          histograms[i].bounds);
    }
}

enum gauge { READY, QUEUED, SESSIONS, BUSY, KV_USED, KV_TOTAL, KV_SHARE, N_GAUGES };

static double gauge(struct server *server, struct served_model *m, enum gauge which) {
    struct pool_figures f;
    const bool ready = atomic_load(&m->state) == SERVED_READY;
    if (which == READY || !ready) return which == READY && ready;
    session_pool_figures(m, &f);
    const double token_bytes = (double)(m->info.kv_token_bytes + m->draft_kv_bytes);
    const double most = m->hears ? 0 : (double)server->options.sessions * m->context;
    switch (which) {
    case QUEUED:
        return f.n_waiting;
    case SESSIONS:
        return m->hears ? 0 : server->options.sessions;
    case BUSY:
        return f.n_busy;
    case KV_USED:
        return (double)f.n_positions * token_bytes;
    case KV_TOTAL:
        return most * token_bytes;
    default:
        return most > 0 ? (double)f.n_positions / most : 0;
    }
}

/* Those of requests are added up when they end, which is late for who watches. */
static void put_made(struct page *p, const struct served_model *models, int n) {
    put_head(p, "tokens_made_total", "counter",
             "Tokens made, of text while they are made: requests that go on are in it.");
    for (int i = 0; i < n; i++)
        put_line(p, "tokens_made_total", "model", models[i].name,
                 (double)atomic_load(&models[i].n_made));
}

static void put_models(struct page *p, struct server *server) {
    static const char *const names[N_GAUGES][2] = {
        { "model_ready", "1: the model is loaded." },
        { "requests_queued", "Requests that wait for a session of the model." },
        { "sessions", "Sessions that the model may have." },
        { "sessions_busy", "Sessions that requests work with." },
        { "kv_used_bytes", "Bytes of KV cache whose positions sessions hold, kept prefixes too, "
                           "with those of a draft model." },
        { "kv_total_bytes", "Bytes of KV cache that all sessions of the model may hold." },
        { "kv_utilisation", "kv_used_bytes over kv_total_bytes, 0 to 1." },
    };
    int n = 0;
    struct served_model *models = server_models(server, &n);
    for (int i = 0; i < N_GAUGES; i++) {
        put_head(p, names[i][0], "gauge", names[i][1]);
        for (int j = 0; j < n; j++)
            put_line(p, names[i][0], "model", models[j].name,
                     gauge(server, &models[j], (enum gauge)i));
    }
    put_made(p, models, n);
}

/* The meter is opened when somebody looks for the first time after the models are there. */
static bool read_meter(struct metrics *m, struct server *server,
                       struct reel_meter_reading *reading) {
    int n = 0;
    struct served_model *models = server_models(server, &n);
    for (int i = 0; i < n && !m->meter && !m->meter_tried; i++) {
        if (atomic_load(&models[i].state) != SERVED_READY) return false;
        if (strcmp(models[i].info.backend, "cuda") != 0) continue;
        m->metered = &models[i];
        if (reel_meter_open(&m->meter, models[i].model, NULL, NULL) != REEL_OK) m->meter = NULL;
    }
    m->meter_tried = true;
    return m->meter && reel_meter_read(m->meter, reading, NULL) == REEL_OK;
}

static void put_energy(struct page *p, struct metrics *m, struct server *server) {
    struct reel_meter_reading reading = { .size = sizeof reading };
    pthread_mutex_lock(&m->meter_lock);
    const bool there = read_meter(m, server, &reading);
    const char *gpu = there ? m->metered->info.backend_path : NULL;
    pthread_mutex_unlock(&m->meter_lock);
    if (!there) return;
    put_head(p, "gpu_energy_joules_total", "counter",
             "What the GPU has used since its driver was loaded, by whomever.");
    put_line(p, "gpu_energy_joules_total", "gpu", gpu, reading.joules);
    put_head(p, "gpu_power_watts", "gauge", "What the GPU takes now.");
    put_line(p, "gpu_power_watts", "gpu", gpu, reading.watts);
}

/* The second number of /proc/self/statm, in pages. 0: the system does not say. */
static double resident_bytes(void) {
    char line[200] = "";
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f) return 0;
    const char *at = fgets(line, sizeof line, f) ? strchr(line, ' ') : NULL;
    const unsigned long pages = at ? strtoul(at, NULL, 10) : 0;
    fclose(f);
    return (double)pages * (double)sysconf(_SC_PAGESIZE);
}

enum reel_status metrics_write(struct buffer *out, struct server *server, struct reel_error *err) {
    struct metrics *m = server->metrics;
    struct page p = { out, REEL_OK, err };
    put_head(&p, "build_info", "gauge", "The version of reel; always 1.");
    put_line(&p, "build_info", "version", reel_version(), 1);
    put_head(&p, "requests_in_flight", "gauge",
             "Requests that are being handled, queued ones too.");
    put_line(&p, "requests_in_flight", NULL, NULL, atomic_load(&server->n_active));
    put_head(&p, "connections", "gauge", "Open connections.");
    put_line(&p, "connections", NULL, NULL, watch_connections(server->watch));
    put_head(&p, "resident_bytes", "gauge", "Memory of this process that is in RAM.");
    put_line(&p, "resident_bytes", NULL, NULL, resident_bytes());
    put_models(&p, server);
    put_energy(&p, m, server);
    pthread_mutex_lock(&m->lock);
    put_requests(&p, m);
    put_counts(&p, m);
    pthread_mutex_unlock(&m->lock);
    return p.status;
}

void handle_metrics(struct exchange *x) {
    struct buffer page = { 0 };
    enum reel_status status = metrics_write(&page, exchange_server(x), NULL);
    exchange_reply_buffer(x, status == REEL_OK ? 200 : 503,
                          "text/plain; version=0.0.4; charset=utf-8", &page);
}
