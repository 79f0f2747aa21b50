#include "cli/top_reading.h"

#include "base/clock.h"
#include "base/json.h"
#include "cli/metrics_text.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_BYTES (8 << 20)

/* ---- /metrics -------------------------------------------------------------------------------- */

static void copy(char *out, size_t size, const char *text) { snprintf(out, size, "%s", text); }

static struct top_model *find(struct top_reading *r, const char *name) {
    for (int i = 0; i < r->n_models; i++)
        if (strncmp(r->models[i].name, name, sizeof r->models[i].name - 1) == 0)
            return &r->models[i];
    if (r->n_models == TOP_MODELS) return NULL;
    struct top_model *m = &r->models[r->n_models++];
    copy(m->name, sizeof m->name, name);
    copy(m->status, sizeof m->status, "?");
    return m;
}

static void take_bucket(struct top_first_token *first, const struct metric *metric) {
    const char *bound = metric_label(metric, "le");
    if (!bound || first->n_buckets == TOP_BUCKETS) return;
    first->bound_s[first->n_buckets] = strtod(bound, NULL);
    first->n[first->n_buckets++] = metric->number;
}

static void take_of_model(struct top_reading *r, const struct metric *metric, const char *name) {
    static const struct {
        const char *name;
        size_t at;
    } places[] = {
        { "reel_sessions", offsetof(struct top_model, sessions) },
        { "reel_sessions_busy", offsetof(struct top_model, busy) },
        { "reel_requests_queued", offsetof(struct top_model, queued) },
        { "reel_tokens_made_total", offsetof(struct top_model, made) },
        { "reel_prompt_tokens_total", offsetof(struct top_model, prompt) },
        { "reel_reused_tokens_total", offsetof(struct top_model, reused) },
        { "reel_queue_seconds_count", offsetof(struct top_model, requests) },
        { "reel_prefix_hits_total", offsetof(struct top_model, hits) },
        { "reel_kv_used_bytes", offsetof(struct top_model, kv_used) },
        { "reel_kv_total_bytes", offsetof(struct top_model, kv_total) },
    };
    struct top_model *m = find(r, name);
    if (!m) return;
    if (metric_is(metric, "reel_time_to_first_token_seconds_bucket"))
        take_bucket(&m->first, metric);
    if (metric_is(metric, "reel_model_ready") && metric->number > 0)
        copy(m->status, sizeof m->status, "ready");
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (metric_is(metric, places[i].name))
            *(double *)((char *)m + places[i].at) = metric->number;
}

static void take(struct top_reading *r, const struct metric *metric) {
    const char *model = metric_label(metric, "model"), *gpu = metric_label(metric, "gpu");
    const char *version = metric_label(metric, "version");
    if (model) take_of_model(r, metric, model);
    if (metric_is(metric, "reel_build_info"))
        copy(r->version, sizeof r->version, version ? version : "?");
    if (metric_is(metric, "reel_requests_in_flight")) r->in_flight = metric->number;
    if (metric_is(metric, "reel_connections")) r->connections = metric->number;
    if (metric_is(metric, "reel_resident_bytes")) r->resident_bytes = metric->number;
    if (metric_is(metric, "reel_gpu_power_watts")) r->watts = metric->number;
    if (metric_is(metric, "reel_gpu_energy_joules_total")) {
        r->joules = metric->number;
        copy(r->gpu, sizeof r->gpu, gpu ? gpu : "GPU");
    }
}

/* ---- /v1/models ------------------------------------------------------------------------------ */

static void take_models(struct top_reading *r, const json_t *all) {
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(all, "data"), i, one) {
        const char *name = json_string_value(json_object_get(one, "id"));
        const char *status = json_string_value(json_object_get(one, "status"));
        const char *device = json_string_value(json_object_get(one, "device"));
        struct top_model *m = name ? find(r, name) : NULL;
        if (m && status) copy(m->status, sizeof m->status, status);
        if (m && device) copy(m->device, sizeof m->device, device);
    }
}

enum reel_status top_read_pages(struct top_reading *reading, const char *url, const char *metrics,
                                const char *models, struct reel_error *err) {
    struct metric metric;
    json_t *all = NULL;
    *reading = (struct top_reading){ .at_ms = clock_ms(), .state = "ok" };
    while (metric_next(&metrics, &metric))
        take(reading, &metric);
    if (!reading->version[0])
        return err_set(err, REEL_E_FORMAT,
                       "%s/metrics: has no reel_build_info, so no reel serve answers there", url);
    if (models && json_read_lenient(&all, url, models, strlen(models), NULL) == REEL_OK)
        take_models(reading, all); /* what it adds is not needed */
    json_decref(all);
    return REEL_OK;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static enum reel_status page(struct http_get *client, const char *url, const char *path,
                             struct buffer *body, int *code, struct reel_error *err) {
    struct buffer whole = { 0 };
    enum reel_status status = buffer_printf(&whole, err, "%s%s", url, path);
    if (status == REEL_OK) status = http_get(client, whole.bytes, MOST_BYTES, body, code, err);
    buffer_release(&whole);
    return status;
}

static enum reel_status refused(const char *url, int code, bool with_key, struct reel_error *err) {
    if (code == 401 || code == 403)
        return err_set(err, REEL_E_ARGUMENT, "%s: %s", url,
                       with_key ? "the server does not know this key"
                                : "the server wants a key: --api-key-file FILE");
    return err_set(err, REEL_E_NETWORK,
                   "%s/metrics: the server answered %d, so no reel serve answers there", url, code);
}

/* `ok` by /health, and draining when the list of models is refused after that. */
static void take_state(struct top_reading *r, int health, int models) {
    if (health != 200)
        copy(r->state, sizeof r->state, "loading");
    else if (models == 503)
        copy(r->state, sizeof r->state, "draining");
}

enum reel_status top_read(struct top_reading *reading, struct http_get *client, const char *url,
                          struct reel_error *err) {
    struct buffer metrics = { 0 }, models = { 0 }, health = { 0 };
    int code = 0, models_code = 0, health_code = 0;
    enum reel_status status = page(client, url, "/metrics", &metrics, &code, err);
    if (status == REEL_OK && code != 200) status = refused(url, code, client->bearer != NULL, err);
    if (status == REEL_OK) status = page(client, url, "/v1/models", &models, &models_code, err);
    if (status == REEL_OK) status = page(client, url, "/health", &health, &health_code, err);
    if (status == REEL_OK)
        status = top_read_pages(reading, url, metrics.bytes,
                                models_code == 200 ? models.bytes : NULL, err);
    if (status == REEL_OK) take_state(reading, health_code, models_code);
    buffer_release(&metrics);
    buffer_release(&models);
    buffer_release(&health);
    return status;
}

/* ---- between two ----------------------------------------------------------------------------- */

double top_quantile_ms(const struct top_first_token *first, double share) {
    const int last = first->n_buckets - 1;
    const double wanted = last >= 0 ? share * first->n[last] : 0;
    double below_s = 0, below_n = 0;
    if (!(wanted > 0)) return -1;
    for (int i = 0; i <= last; i++) {
        const double n = first->n[i], bound_s = first->bound_s[i];
        if (n >= wanted) {
            if (isinf(bound_s) || n <= below_n) return below_s * 1e3; /* at least that */
            return (below_s + (bound_s - below_s) * (wanted - below_n) / (n - below_n)) * 1e3;
        }
        below_s = bound_s;
        below_n = n;
    }
    return -1;
}

static const struct top_model *same(const struct top_reading *r, const char *name) {
    for (int i = 0; r && i < r->n_models; i++)
        if (strcmp(r->models[i].name, name) == 0) return &r->models[i];
    return NULL;
}

/* What was added to a counter; one that went back began anew. */
static double more(double before, double now) { return now >= before ? now - before : now; }

static double seconds(const struct top_reading *before, const struct top_reading *now) {
    return before ? (now->at_ms - before->at_ms) * 1e-3 : 0;
}

void top_model_figures(struct top_figures *f, const struct top_reading *before,
                       const struct top_reading *now, int model) {
    static const struct top_model none;
    const struct top_model *m = &now->models[model], *was = same(before, m->name);
    const double s = seconds(before, now);
    if (!was || m->made < was->made || m->requests < was->requests) was = &none;
    const double prompt = more(was->prompt, m->prompt), requests = more(was->requests, m->requests);
    struct top_first_token first = m->first;
    for (int i = 0; i < first.n_buckets && i < was->first.n_buckets; i++)
        first.n[i] = more(was->first.n[i], first.n[i]);
    f->made_per_s = s > 0 ? more(was->made, m->made) / s : -1;
    f->prompt_per_s = s > 0 ? prompt / s : -1;
    f->first_p50_ms = top_quantile_ms(&first, 0.5);
    f->first_p99_ms = top_quantile_ms(&first, 0.99);
    f->reused_share = prompt > 0 ? more(was->reused, m->reused) / prompt : -1;
    f->hit_share = requests > 0 ? more(was->hits, m->hits) / requests : -1;
}

static double made(const struct top_reading *before, const struct top_reading *now) {
    double sum = 0;
    for (int i = 0; i < now->n_models; i++) {
        const struct top_model *was = same(before, now->models[i].name);
        sum += more(was ? was->made : 0, now->models[i].made);
    }
    return sum;
}

double top_made_per_s(const struct top_reading *before, const struct top_reading *now) {
    const double s = seconds(before, now);
    return s > 0 ? made(before, now) / s : -1;
}

double top_made_per_joule(const struct top_reading *before, const struct top_reading *now) {
    if (!before || !now->gpu[0] || !before->gpu[0] || !(now->joules > before->joules)) return -1;
    return made(before, now) / (now->joules - before->joules);
}
