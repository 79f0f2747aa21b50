/* What a running server says of itself at one moment, and what two moments say together. */
#ifndef REEL_CLI_TOP_READING_H
#define REEL_CLI_TOP_READING_H

#include "base/buffer.h"
#include "cli/http_get.h"

#define TOP_MODELS  64
#define TOP_BUCKETS 24

/* Requests by the time to their first token: each bucket counts those of at most `bound_s`. */
struct top_first_token {
    double bound_s[TOP_BUCKETS], n[TOP_BUCKETS]; /* cumulative; the last bound may be infinite */
    int n_buckets;
};

struct top_model {
    char name[200];
    char status[16]; /* ready, loading, failed; "?" where the server did not say */
    char device[40];
    double sessions, busy, queued;
    double made, prompt, reused; /* tokens since the server's start */
    double requests, hits;       /* that read a prompt, and that found a part of it read */
    double kv_used, kv_total;    /* bytes */
    struct top_first_token first;
};

struct top_reading {
    double at_ms; /* by clock_ms; 0: there is none */
    char version[40];
    char state[16]; /* ok, loading, draining */
    double in_flight, connections, resident_bytes;
    char gpu[80]; /* empty: no energy is reported */
    double joules, watts;
    int n_models;
    struct top_model models[TOP_MODELS];
};

/* Asks /metrics, /health and /v1/models of the server at `url`, which has no slash at its end. */
enum reel_status top_read(struct top_reading *reading, struct http_get *client, const char *url,
                          struct reel_error *err);

/* The same from pages that are there; `models` may be NULL. */
enum reel_status top_read_pages(struct top_reading *reading, const char *url, const char *metrics,
                                const char *models, struct reel_error *err);

/* Of one model, or of all together, between two readings; negative: there is nothing to say. */
struct top_figures {
    double made_per_s, prompt_per_s;
    double first_p50_ms, first_p99_ms;
    double reused_share; /* of prompt tokens: a session had them already */
    double hit_share;    /* of requests */
};

/* `before` may be NULL: since the server's start, without rates. */
void top_model_figures(struct top_figures *figures, const struct top_reading *before,
                       const struct top_reading *now, int model);

/* Tokens a second of all models, and tokens a joule of the GPU; negative: unknown. */
double top_made_per_s(const struct top_reading *before, const struct top_reading *now);
double top_made_per_joule(const struct top_reading *before, const struct top_reading *now);

/* The time that a share of the requests stayed below, between buckets by a straight line. */
double top_quantile_ms(const struct top_first_token *first, double share);

#endif
