#define _GNU_SOURCE /* clock_nanosleep */
#include "tests/support/paced_model.h"

#include "base/memory.h"
#include "runtime/model_handle.h"

#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <time.h>

enum { PACED_ID = 300 };

struct backend_state {
    int n;
};

static const struct paced *clock_of; /* the program's one */
static struct backend_ops paced_ops;

void paced_wait_until(double ms) {
    struct timespec until = { (time_t)(ms / 1e3), (long)(fmod(ms, 1e3) * 1e6) };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) {
    }
}

static double now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec * 1e-6;
}

static enum reel_status paced_state_open(struct backend_state **out, struct backend *backend,
                                         int most, struct reel_error *err) {
    (void)backend;
    (void)most;
    return mem_zeroed(out, 1, sizeof **out, "a state", err);
}
static void paced_state_close(struct backend_state *s) { mem_free(s); }

static enum reel_status paced_eval(struct backend_state *s, const struct backend_eval *e,
                                   struct reel_error *err) {
    (void)err;
    if (clock_of->prompt_ms > 0) paced_wait_until(now_ms() + e->n * clock_of->prompt_ms);
    s->n = e->position + e->n;
    return REEL_OK;
}

static void made(int i) {
    if (clock_of->on_made) clock_of->on_made(i);
}

static enum reel_status paced_decode(struct backend_state *s, const struct backend_decode *d,
                                     struct reel_error *err) {
    double start = now_ms();
    for (int i = 0; i < d->max_tokens; i++) {
        if (atomic_load(d->cancel)) return err_set(err, REEL_E_CANCELLED, "cancelled");
        paced_wait_until(start + (i + 1) * clock_of->token_ms);
        s->n = d->position + i + 1;
        made(i);
        const bool enough = d->enough(d->user);
        if (!d->on_id(d->user, PACED_ID + i % 50) || enough) break;
    }
    return REEL_OK;
}

/* One pass: the next id of every column. Whether all of them go on. */
static bool paced_pass(const struct backend_batch *b, int n_made) {
    bool go_on = true;
    for (int i = 0; i < b->n; i++) {
        struct backend_column *c = &b->columns[i];
        const struct backend_decode *d = c->decode;
        if (atomic_load(d->cancel)) {
            c->over = true;
            c->status = err_set(&c->err, REEL_E_CANCELLED, "cancelled");
        } else {
            c->state->n = d->position + n_made + 1;
            c->over = !d->on_id(d->user, PACED_ID + (d->position + n_made) % 50) ||
                      n_made + 1 == d->max_tokens;
        }
        go_on = go_on && !c->over;
    }
    return go_on;
}

static void paced_step(struct backend *backend, const struct backend_batch *b) {
    static double due_ms; /* one thread makes passes */
    bool go_on = true;
    (void)backend;
    for (int n_made = 0; go_on; n_made++) {
        const double now = now_ms(), token_ms = clock_of->token_ms;
        due_ms = due_ms + token_ms < now ? now + token_ms : due_ms + token_ms;
        paced_wait_until(due_ms);
        made(n_made);
        const bool enough = b->enough(b->user);
        go_on = paced_pass(b, n_made) && !enough;
    }
}

static size_t paced_bytes(const struct backend_state *s, int n) {
    (void)s;
    (void)n;
    return 0;
}
static enum reel_status paced_copy(struct backend_state *dst, const struct backend_state *src,
                                   int n, struct reel_error *err) {
    (void)src;
    (void)err;
    dst->n = n;
    return REEL_OK;
}

enum reel_status paced_model_make(struct reel_model *model, const struct paced *paced,
                                  struct reel_error *err) {
    clock_of = paced;
    paced_ops = *model->ops;
    paced_ops.state_open = paced_state_open;
    paced_ops.state_close = paced_state_close;
    paced_ops.eval = paced_eval;
    paced_ops.decode = paced_decode;
    paced_ops.step = paced_step;
    paced_ops.resume = NULL;
    paced_ops.keep = NULL;
    paced_ops.save_bytes = paced_bytes;
    paced_ops.copy = paced_copy;
    model->ops = &paced_ops;
    if (paced->max_context) model->model.config.max_context = paced->max_context;
    passes_close(model->passes);
    model->passes = NULL;
    if (paced->batched)
        return passes_open(&model->passes, &paced_ops, model->backend, model->turns, PACED_COLUMNS,
                           0.35, err);
    turns_close(model->turns); /* its sessions keep time beside each other */
    model->turns = NULL;
    return REEL_OK;
}
