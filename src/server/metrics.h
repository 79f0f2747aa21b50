/* Counters that /metrics shows. */
#ifndef REEL_SERVER_METRICS_H
#define REEL_SERVER_METRICS_H

#include "server/exchange.h"

struct metrics;

enum reel_status metrics_open(struct metrics **out, struct reel_error *err);
void metrics_close(struct metrics *m);

/* A request has ended, `code` 499 when its client left before it was answered. */
void metrics_request(struct metrics *m, const char *route, int code, double total_ms,
                     const struct exchange_figures *figures);

/* All of them in Prometheus' text format; asks the server for what is counted elsewhere. */
enum reel_status metrics_write(struct buffer *out, struct server *server, struct reel_error *err);

#endif
