#include "server/metrics.h"

#include "base/memory.h"

#include "server/api_error.h"
#include "server/models.h"

#include <pthread.h>
#include <stdint.h>

struct metrics {
    pthread_mutex_t lock;
    uint64_t n_requests, n_prompt, n_reused, n_generated;
};

enum reel_status metrics_open(struct metrics **out, struct reel_error *err) {
    enum reel_status status = mem_zeroed(out, 1, sizeof **out, "metrics", err);
    if (status == REEL_OK) pthread_mutex_init(&(*out)->lock, NULL);
    return status;
}

void metrics_close(struct metrics *m) {
    if (!m) return;
    pthread_mutex_destroy(&m->lock);
    mem_free(m);
}

void metrics_request(struct metrics *m, const char *route, int code, double total_ms,
                     const struct exchange_figures *figures) {
    (void)route;
    (void)code;
    (void)total_ms;
    pthread_mutex_lock(&m->lock);
    m->n_requests++;
    m->n_prompt += (uint64_t)figures->n_prompt;
    m->n_reused += (uint64_t)figures->n_reused;
    m->n_generated += (uint64_t)figures->n_generated;
    pthread_mutex_unlock(&m->lock);
}
