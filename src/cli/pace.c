#include "cli/pace.h"

#include "base/memory.h"

#include <stdlib.h>

#define FIRST_STEPS 256
#define LATE_MS     5000

void pace_start(struct pace *p) {
    p->heard_ms = p->late_ms = 0;
    p->n = 0;
}

void pace_release(struct pace *p) { mem_free(p->step_ms); }

void pace_hear(struct pace *p, double audio_ms) { p->heard_ms += audio_ms; }

static enum reel_status make_room(struct pace *p, struct reel_error *err) {
    if (p->n < p->capacity) return REEL_OK;
    const size_t capacity = p->capacity ? 2 * p->capacity : FIRST_STEPS;
    double *grown = mem_resize(p->step_ms, capacity * sizeof *grown);
    if (!grown) return err_memory(err, "the times of steps", capacity * sizeof *grown);
    p->step_ms = grown;
    p->capacity = capacity;
    return REEL_OK;
}

enum reel_status pace_step(struct pace *p, double ms, struct reel_error *err) {
    enum reel_status status = make_room(p, err);
    if (status != REEL_OK) return status;
    p->step_ms[p->n++] = ms;
    p->late_ms += ms - p->heard_ms;
    if (p->late_ms < 0) p->late_ms = 0; /* it waits for more */
    p->heard_ms = 0;
    return REEL_OK;
}

bool pace_is_late(const struct pace *p) { return p->late_ms >= LATE_MS; }

static int by_size(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double pace_median(struct pace *p) {
    if (p->n == 0) return 0;
    qsort(p->step_ms, p->n, sizeof *p->step_ms, by_size);
    return p->step_ms[p->n / 2];
}
