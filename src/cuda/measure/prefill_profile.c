#include "cuda/measure/prefill_profile.h"

#include "base/memory.h"
#include "kernels/kv_layout.h"
#include "plan/plan_layout.h"

#include <stdlib.h>

const char *const prefill_step_names[PREFILL_N_STEPS] = { "embed",  "qkv",  "rope",    "attention",
                                                          "mix",    "conv", "chunk",   "chain",
                                                          "answer", "out",  "gate_up", "down",
                                                          "short",  "end" };

int prefill_launches(const struct plan *plan) {
    const int deltas = plan->delta.n_layers;
    return 1 + PREFILL_LAYER_STEPS * (plan->tape.n_layers - deltas) + PREFILL_DELTA_STEPS * deltas +
           1;
}

int prefill_times_launches(const struct prefill_times *t, const struct plan *plan) {
    return t->one_launch ? PREFILL_SHORT_LAUNCHES : prefill_launches(plan);
}

/* Step `i` of a layer. */
static enum prefill_step layer_step(bool is_delta, int i) {
    if (!is_delta && i > STEP_ATTENTION - STEP_QKV)
        return (enum prefill_step)(STEP_OUT + i - (STEP_MIX - STEP_QKV));
    return (enum prefill_step)((is_delta ? STEP_MIX : STEP_QKV) + i);
}

enum prefill_step prefill_times_step(const struct prefill_times *t, const struct plan *plan,
                                     int launch) {
    if (launch == prefill_times_launches(t, plan) - 1) return STEP_END;
    if (launch == 0) return t->one_launch ? STEP_SHORT : STEP_EMBED;
    launch--;
    for (int layer = 0;; layer++) {
        const bool is_delta = tape_is_delta(&plan->tape, layer);
        const int steps = is_delta ? PREFILL_DELTA_STEPS : PREFILL_LAYER_STEPS;
        if (launch < steps) return layer_step(is_delta, launch);
        launch -= steps;
    }
}

/* ---- runs ---- */

/* A first run pays for what later ones find ready. */
int prefill_times_held(const struct prefill_times *t) {
    const int n = t->n_runs > 1 ? t->n_runs - 1 : t->n_runs;
    return n < PREFILL_MOST_RUNS ? n : PREFILL_MOST_RUNS;
}

float *prefill_times_next(struct prefill_times *t, const struct plan *plan, int position,
                          int n_tokens) {
    if (t->position != position || t->n_tokens != n_tokens) t->n_runs = 0;
    t->position = position;
    t->n_tokens = n_tokens;
    const int slot = t->n_runs > 1 ? (t->n_runs - 1) % PREFILL_MOST_RUNS : 0;
    return t->ms + (size_t)slot * (size_t)prefill_launches(plan);
}

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts. */
static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, compare_doubles);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

static double launch_us(const struct prefill_times *t, const struct plan *p, int run, int launch) {
    return (double)t->ms[(size_t)run * (size_t)prefill_launches(p) + (size_t)launch] * 1e3;
}

/* ---- what a launch has to do ---- */

static double attended_pairs(const struct prefill_times *t) {
    const double n = t->n_tokens;
    return n * t->position + n * (n + 1) / 2;
}

typedef double work_fn(const struct plan *p, const struct prefill_times *t, enum prefill_step step);

/* Of all steps of all layers. Models with DeltaNets have no launch that does all. */
static double sum_of_steps(work_fn *work, const struct plan *p, const struct prefill_times *t) {
    double sum = 0;
    for (int step = STEP_QKV; step <= STEP_DOWN; step++)
        if (step < STEP_MIX || step > STEP_ANSWER) sum += work(p, t, (enum prefill_step)step);
    return sum * p->tape.n_layers;
}

/* A DeltaNet's steps, without their norms and gates: for each value head and chunk. */
static double delta_flops(const struct plan *p, const struct prefill_times *t,
                          enum prefill_step step) {
    const struct plan_delta *d = &p->delta;
    const double chunk = DELTA_CHUNK, key = d->key_dim, value = d->value_dim;
    const double chunks = (double)plan_ceil(t->n_tokens, DELTA_CHUNK) * d->value_heads;
    switch (step) {
    case STEP_CHUNK: /* k k^T and q k^T, T, w and u: what lies above the diagonal not counted */
        return chunks * chunk * chunk * (2 * key + chunk / 3 + key + value);
    case STEP_CHAIN:
        return chunks * chunk * key * value * 4;
    case STEP_ANSWER:
        return chunks * chunk * value * (2 * key + chunk);
    default:
        return 0;
    }
}

/* Columns of out that are not padding, of a layer on average. */
static double out_columns(const struct plan *p) {
    const double deltas = p->delta.n_layers, layers = p->tape.n_layers;
    const double value = (double)p->delta.value_heads * p->delta.value_dim;
    return ((layers - deltas) * p->n_heads * p->head_dim + deltas * value) / layers;
}

static double step_flops(const struct plan *p, const struct prefill_times *t,
                         enum prefill_step step) {
    const double hidden = p->tape.hidden, n = t->n_tokens, q = (double)p->n_heads * p->head_dim;
    switch (step) {
    case STEP_SHORT:
        return sum_of_steps(step_flops, p, t);
    case STEP_QKV:
        return 2 * n * hidden *
               (q * (p->tape.gate_dim ? 2 : 1) + 2.0 * p->n_kv_heads * p->head_dim);
    case STEP_MIX:
        return 2 * n * hidden * p->tape.n_groups * plan_mix_rows(&p->tape);
    case STEP_CHUNK:
    case STEP_CHAIN:
    case STEP_ANSWER:
        return delta_flops(p, t, step);
    case STEP_ATTENTION:
        return 4 * q * attended_pairs(t);
    case STEP_OUT:
        return 2 * n * hidden * out_columns(p);
    case STEP_GATE_UP:
        return 4 * n * hidden * p->tape.intermediate;
    case STEP_DOWN:
        return 2 * n * hidden * p->tape.intermediate;
    case STEP_EMBED:
    case STEP_ROPE:
    case STEP_CONV:
    case STEP_END:
    case PREFILL_N_STEPS:
        break;
    }
    return 0;
}

/* A tape phase, or -1. */
static int product_of(enum prefill_step step) {
    static const int phases[PREFILL_N_STEPS] = { -1,           TAPE_QKV,  -1, -1, TAPE_MIX,
                                                 -1,           -1,        -1, -1, TAPE_OUT,
                                                 TAPE_GATE_UP, TAPE_DOWN, -1, -1 };
    return phases[step];
}

/* Weights as the tapes have them; attention: K and V; DeltaNets: what a step reads of the one
 * before. Each is counted once, however often it is read. */
static double delta_bytes(const struct plan *p, const struct prefill_times *t,
                          enum prefill_step step) {
    const struct plan_delta *d = &p->delta;
    const double chunk = DELTA_CHUNK, key = d->key_dim, value = d->value_dim;
    const double chunks = (double)plan_ceil(t->n_tokens, DELTA_CHUNK) * d->value_heads;
    switch (step) {
    case STEP_CONV: /* two terms */
        return 4.0 * t->n_tokens * p->tape.n_groups * (2 * p->tape.group_key + p->tape.group_value);
    case STEP_CHUNK:
        return chunks * chunk * 2 * (2 * key + value);
    case STEP_CHAIN: /* w, k; u; the state to and fro */
        return chunks * chunk * (4 * key + 4 * value) + 8 * key * value * d->value_heads;
    case STEP_ANSWER: /* q, asked, learned, states */
        return chunks * (chunk * (2 * key + 4 * chunk + 4 * value) + 2 * key * value);
    default:
        return 0;
    }
}

static double step_bytes(const struct plan *p, const struct prefill_times *t,
                         enum prefill_step step) {
    const int phase = product_of(step);
    if (phase >= 0) return (double)p->tape.segment[phase].bytes * p->tape.n_sms;
    if (step == STEP_SHORT) return sum_of_steps(step_bytes, p, t);
    if (step != STEP_ATTENTION) return delta_bytes(p, t, step);
    const int pieces = kv_pieces(t->position + t->n_tokens);
    return (double)pieces * p->kv_piece_bytes * p->n_kv_heads;
}

static const char *cut_name(const struct prefill_times *t, enum prefill_step step) {
    const int phase = product_of(step);
    if (phase < 0) return NULL;
    const struct prefill_cut *cut = &t->cut[phase];
    if (cut->split_k == 8) return "thin";
    if (cut->split_k) return "halves";
    return cut->blocks == 1 ? "wide1" : "wide2";
}

/* ---- summing up ---- */

struct step {
    int n_launches;
    double launch_us; /* median over layers */
    double us;        /* of all its launches */
    double bytes, flops;
};

struct summary {
    const struct plan *plan;
    const struct prefill_times *times;
    double *launches; /* [n]: us, medians over runs */
    double *sorted;   /* [n], or as many as there are runs */
    struct step steps[PREFILL_N_STEPS], total;
    double least_us, median_us, most_us; /* of a run */
};

static void sum_launches(struct summary *s) {
    const int n = prefill_times_launches(s->times, s->plan), n_runs = prefill_times_held(s->times);
    for (int i = 0; i < n; i++) {
        for (int run = 0; run < n_runs; run++)
            s->sorted[run] = launch_us(s->times, s->plan, run, i);
        s->launches[i] = median(s->sorted, n_runs);
    }
    for (int run = 0; run < n_runs; run++) {
        s->sorted[run] = 0;
        for (int i = 0; i < n; i++)
            s->sorted[run] += launch_us(s->times, s->plan, run, i);
    }
    s->median_us = median(s->sorted, n_runs);
    s->least_us = s->sorted[0];
    s->most_us = s->sorted[n_runs - 1];
}

static void sum_step(struct summary *s, enum prefill_step which) {
    struct step *step = &s->steps[which];
    for (int i = 0; i < prefill_times_launches(s->times, s->plan); i++) {
        if (prefill_times_step(s->times, s->plan, i) != which) continue;
        s->sorted[step->n_launches++] = s->launches[i];
        step->us += s->launches[i];
    }
    if (step->n_launches == 0) return;
    step->launch_us = median(s->sorted, step->n_launches);
    step->bytes = step->n_launches * step_bytes(s->plan, s->times, which);
    step->flops = step->n_launches * step_flops(s->plan, s->times, which);
    s->total.n_launches += step->n_launches;
    s->total.us += step->us;
    s->total.bytes += step->bytes;
    s->total.flops += step->flops;
}

static enum reel_status summarise(struct summary *s, struct reel_error *err) {
    const size_t n = (size_t)prefill_launches(s->plan);
    const size_t most = n > PREFILL_MOST_RUNS ? n : PREFILL_MOST_RUNS;
    enum reel_status status = mem_zeroed(&s->launches, n, sizeof *s->launches, "a profile", err);
    if (status == REEL_OK)
        status = mem_zeroed(&s->sorted, most, sizeof *s->sorted, "a profile", err);
    if (status != REEL_OK) return status;
    sum_launches(s);
    for (int i = 0; i < PREFILL_N_STEPS; i++)
        sum_step(s, (enum prefill_step)i);
    s->total.launch_us = s->total.us / s->total.n_launches;
    return REEL_OK;
}

/* ---- JSON ---- */

static json_t *describe_step(const struct step *step, const char *name, const char *cut,
                             double all_us) {
    const double us = step->us > 0 ? step->us : 0;
    return json_pack("{s:s, s:s?, s:i, s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "step", name, "cut",
                     cut, "launches", step->n_launches, "launch_us", step->launch_us, "us", us,
                     "share_percent", all_us > 0 ? 100 * us / all_us : 0.0, "bytes", step->bytes,
                     "gb_per_s", us > 0 ? step->bytes * 1e-3 / us : 0.0, "gflop",
                     step->flops * 1e-9, "tflop_per_s", us > 0 ? step->flops * 1e-6 / us : 0.0);
}

/* Of those with launches; NULL when memory runs out, which json_pack passes on. */
static json_t *describe_steps(const struct summary *s) {
    json_t *list = json_array();
    for (int i = 0; list && i < PREFILL_N_STEPS; i++) {
        if (s->steps[i].n_launches == 0) continue;
        json_t *one = describe_step(&s->steps[i], prefill_step_names[i],
                                    cut_name(s->times, (enum prefill_step)i), s->total.us);
        if (one && json_array_append_new(list, one) == 0) continue;
        json_decref(list);
        return NULL;
    }
    return list;
}

static enum reel_status describe(json_t **out, const struct summary *s, struct reel_error *err) {
    const struct prefill_times *t = s->times;
    *out = json_pack("{s:i, s:i, s:i, s:i, s:{s:f, s:f, s:f}, s:o, s:o}", "position", t->position,
                     "tokens", t->n_tokens, "most_tokens", t->most_tokens, "runs",
                     prefill_times_held(t), "us", "min", s->least_us, "median", s->median_us, "max",
                     s->most_us, "steps", describe_steps(s), "total",
                     describe_step(&s->total, "total", NULL, s->total.us));
    return *out ? REEL_OK : err_memory(err, "a profile", 0);
}

enum reel_status prefill_profile_describe(json_t **out, const struct prefill_times *times,
                                          const struct plan *plan, struct reel_error *err) {
    struct summary s = { .plan = plan, .times = times };
    *out = NULL;
    enum reel_status status = summarise(&s, err);
    if (status == REEL_OK) status = describe(out, &s, err);
    mem_free(s.launches);
    mem_free(s.sorted);
    return status;
}
