/* Events around every launch that reads a prompt, of a session that is profiled. */
#include "cuda/measure/cuda_prefill_timer.h"

#include "base/memory.h"
#include "cuda/run/cuda_backend.h"

static enum reel_status open_events(struct cuda_prefill_timer *t, const struct backend *b,
                                    struct reel_error *err) {
    const size_t n = (size_t)prefill_launches(&b->plan) + 1;
    enum reel_status status = mem_zeroed(&t->events, n, sizeof(*t->events), "events", err);
    for (; status == REEL_OK && t->n_events < (int)n;) {
        status = cuda_event_open(&b->gpu, &t->events[t->n_events], err);
        if (status == REEL_OK) t->n_events++;
    }
    return status;
}

enum reel_status cuda_timer_open(struct cuda_prefill_timer **out, const struct backend *b,
                                 struct reel_error *err) {
    struct cuda_prefill_timer *t = NULL;
    *out = NULL;
    enum reel_status status = mem_zeroed(&t, 1, sizeof *t, "times of launches", err);
    if (status != REEL_OK) return status;
    const size_t n = (size_t)prefill_launches(&b->plan) * PREFILL_MOST_RUNS;
    t->times.most_tokens = cuda_prefill_chunk(b, 0, b->plan.prefill_tokens);
    status = mem_zeroed(&t->times.ms, n, sizeof *t->times.ms, "times of launches", err);
    if (status == REEL_OK) status = open_events(t, b, err);
    if (status == REEL_OK)
        *out = t;
    else
        cuda_timer_close(t, b);
    return status;
}

void cuda_timer_close(struct cuda_prefill_timer *t, const struct backend *b) {
    if (!t) return;
    for (int i = 0; i < t->n_events && !cuda_untouchable(b); i++)
        cuda_event_close(&b->gpu, t->events[i]);
    mem_free(t->events);
    mem_free(t->times.ms);
    mem_free(t);
}

void cuda_timer_restart(struct cuda_prefill_timer *t) {
    if (t) t->n_marked = 0;
}

enum reel_status cuda_timer_mark(struct cuda_prefill_timer *t, const struct backend *b,
                                 struct reel_error *err) {
    return cuda_event_record(&b->gpu, t->events[t->n_marked++], NULL, err);
}

enum reel_status cuda_timer_add_chunk(struct cuda_prefill_timer *t, const struct backend *b,
                                      const struct prefill_args *args, struct reel_error *err) {
    float *ms =
        prefill_times_next(&t->times, &b->plan, args->decode.position, args->decode.n_tokens);
    t->times.one_launch = cuda_prefill_is_short(b, args->decode.position, args->decode.n_tokens);
    const int n = prefill_times_launches(&t->times, &b->plan);
    enum reel_status status = cuda_event_wait(&b->gpu, t->events[n], err);
    for (int i = 0; i < n && status == REEL_OK; i++)
        status = cuda_event_ms(&b->gpu, t->events[i], t->events[i + 1], &ms[i], err);
    if (status != REEL_OK) {
        t->times.n_runs = 0; /* what was overwritten may have been one of them */
        return status;
    }
    for (int i = 0; i < TAPE_N_PHASES; i++)
        t->times.cut[i] = args->cut[i];
    t->times.n_runs++;
    return REEL_OK;
}
