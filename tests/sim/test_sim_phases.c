/* The decode kernel's phases one by one: after one token of a one-layer model the exchange memory
 * still holds what each phase published. Each is compared with C, in double, from what the phase
 * before really published. Rows of the cache that nothing wrote are NaN. */
#include "cuda/run/cuda_backend.h"
#include "model/dtype.h"
#include "runtime/model_handle.h"
#include "support/sim_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ID = 77 };

struct rig {
    const struct model_config *config;
    const struct layer_weights *w;
    const struct weights *all;
    const struct plan *plan;
    unsigned long long *words;
    const char *options;
};

/* ---- what was published ---- */

static float bits(unsigned x) {
    float f;
    memcpy(&f, &x, sizeof f);
    return f;
}

/* Value i of an exchange of bf16 pairs, of one of 24-bit floats. */
static float pair16(const struct rig *r, int exchange, int i) {
    const unsigned word = (unsigned)r->words[r->plan->exchange[exchange].offset + (unsigned)i / 2];
    return bits(i % 2 ? word & 0xffff0000u : word << 16);
}
static float pair24(const struct rig *r, int exchange, int i) {
    const unsigned long long word = r->words[r->plan->exchange[exchange].offset + (unsigned)i / 2];
    return bits(i % 2 ? (unsigned)(word >> 24) << 8 : (unsigned)word << 8);
}

/* ---- what should have been ---- */

/* A row times x; *size: of the terms without their signs. */
static double dot(const struct matrix *m, int row, int from, int n, const double *x, double *size) {
    float *w = malloc((size_t)m->columns * sizeof *w);
    double sum = 0;
    assert_non_null(w);
    matrix_row_f32(m, row, w);
    *size = 0;
    for (int i = 0; i < n; i++)
        sum += (double)w[from + i] * x[i], *size += fabs((double)w[from + i] * x[i]);
    free(w);
    return sum;
}

static void same(const struct rig *r, const char *phase, int i, float got, double want,
                 double within) {
    if (!(fabs((double)got - want) <= within))
        fail_msg("%s, %s %d: %.9g, want %.9g within %.2g", r->options, phase, i, (double)got, want,
                 within);
}

/* Activations have 16 significant bits. */
#define ACTIVATION 0x1p-15
/* What is published: bf16, or 16 bits of 24-bit floats. */
#define HALF   0x1p-8
#define WORD24 0x1p-15

static void normed(const struct rig *r, const double *h, const float *gain, double *x) {
    const int n = r->config->hidden;
    double squares = 0;
    for (int i = 0; i < n; i++)
        squares += h[i] * h[i];
    for (int i = 0; i < n; i++)
        x[i] = h[i] * (double)gain[i] / sqrt(squares / n + (double)r->config->rms_eps);
}

static void check_qkv(const struct rig *r, const double *x) {
    const struct tape_shape *t = &r->plan->tape;
    const int rows = t->group_q + 2 * t->group_kv;
    for (int i = 0; i < t->n_groups * rows; i++) {
        const int group = i / rows, local = i % rows, k = local - t->group_q, v = k - t->group_kv;
        const struct matrix *m = k < 0 ? &r->w->q : v < 0 ? &r->w->k : &r->w->v;
        const int row = k < 0   ? group * t->group_q + local
                        : v < 0 ? group * t->group_kv + k
                                : group * t->group_kv + v;
        double size, want = dot(m, row, 0, r->config->hidden, x, &size);
        same(r, "qkv", i, pair16(r, X_QKV, i), want, fabs(want) * HALF + size * ACTIVATION);
    }
}

/* With one position attention is v itself. */
static void check_out(const struct rig *r, double *h) {
    const struct tape_shape *t = &r->plan->tape;
    const int rows = t->group_q + 2 * t->group_kv, dim = r->plan->head_dim;
    const int shared = r->plan->n_heads / r->plan->n_kv_heads;
    double *v = malloc((size_t)t->group_q * sizeof *v);
    for (int group = 0; group < t->n_groups; group++) {
        for (int i = 0; i < t->group_q; i++)
            v[i] = (double)pair16(r, X_QKV,
                                  group * rows + t->group_q + t->group_kv + i / dim / shared * dim +
                                      i % dim);
        for (int i = 0; i < r->config->hidden; i++) {
            double size, want = dot(&r->w->o, i, group * t->group_q, t->group_q, v, &size);
            const float got = pair24(r, X_OUT_SUM, group * r->config->hidden + i);
            same(r, "out", i, got, want, fabs(want) * WORD24 + size * 0x1p-20);
            h[i] += (double)got;
        }
    }
    free(v);
}

static void check_gate_up(const struct rig *r, const double *x) {
    const struct tape_shape *t = &r->plan->tape;
    for (int i = 0; i < t->intermediate; i++) {
        double gate_size, up_size, gate = dot(&r->w->gate, i, 0, t->hidden, x, &gate_size);
        const double up = dot(&r->w->up, i, 0, t->hidden, x, &up_size);
        const double want = gate / (1 + exp(-gate)) * up;
        const double size = gate_size * fabs(up) + up_size * (fabs(gate) + 1);
        same(r, "gated", i, pair16(r, X_GATED, i), want, fabs(want) * HALF + size * ACTIVATION * 2);
    }
}

static void check_down(const struct rig *r, double *h) {
    const struct tape_shape *t = &r->plan->tape;
    double *x = malloc((size_t)t->group_intermediate * sizeof *x);
    for (int group = 0; group < t->n_groups; group++) {
        const int from = group * t->group_intermediate, left = t->intermediate - from;
        const int n = left < t->group_intermediate ? left : t->group_intermediate;
        for (int i = 0; i < n; i++)
            x[i] = (double)pair16(r, X_GATED, from + i);
        for (int i = 0; i < t->hidden; i++) {
            double size, want = dot(&r->w->down, i, from, n, x, &size);
            const float got = pair24(r, X_DOWN_SUM, group * t->hidden + i);
            same(r, "down", i, got, want, fabs(want) * WORD24 + size * 0x1p-20);
            h[i] += (double)got;
        }
    }
    free(x);
}

static void check_head(const struct rig *r, const double *x, const float *logits) {
    for (int i = 0; i < r->config->vocab; i++) {
        double size, want = dot(&r->all->head, i, 0, r->config->hidden, x, &size);
        same(r, "logit", i, logits[i], want, size * ACTIVATION);
    }
}

static void each_phase_is_what_its_input_makes_of_it(void **state) {
    static const char *const options[] = { "n_groups=2,group_sms=8,warps=4",
                                           "n_groups=4,group_sms=3,warps=4",
                                           "n_groups=8,group_sms=2,warps=8" };
    (void)state;
    for (size_t o = 0; o < sizeof options / sizeof *options; o++) {
        struct sim_gpu gpu = sim_gpu_controls();
        struct sim_model m;
        struct reel_error err = { 0 };
        struct reel_session *s = NULL;
        char text[200];
        gpu.cuda->gpu.n_sms = 16;
        snprintf(text, sizeof text, "%s,prefill_from=0,poison=1", options[o]);
        sim_model_open(&m, "q3-c");
        if (sim_model_load(&m, text, &err) != REEL_OK) fail_msg("%s", err.text);
        const struct backend *b = m.gpu->backend;
        const struct reel_session_options session = { .size = sizeof session, .max_context = 64 };
        if (reel_session_open(&s, m.gpu, &session, &err) != REEL_OK) fail_msg("%s", err.text);
        const int32_t id = ID;
        float *logits = malloc((size_t)m.vocab * sizeof *logits);
        const struct reel_eval eval = { .size = sizeof eval,
                                        .n = 1,
                                        .ids = &id,
                                        .output = REEL_OUTPUT_LAST_LOGITS,
                                        .out = logits,
                                        .out_floats = (size_t)m.vocab };
        if (reel_session_eval(s, &eval, &err) != REEL_OK) fail_msg("%s", err.text);
        struct rig r = { &m.gpu->model.config,
                         m.gpu->model.weights.layers,
                         &m.gpu->model.weights,
                         &b->plan,
                         calloc(b->plan.n_words, sizeof *r.words),
                         options[o] };
        /* the fake GPU's memory is the host's */
        memcpy(r.words, (const void *)(uintptr_t)b->words, b->plan.n_words * sizeof *r.words);
        const int n = r.config->hidden;
        float *row = malloc((size_t)n * sizeof *row);
        double *h = malloc((size_t)n * sizeof *h), *x = malloc((size_t)n * sizeof *x);
        matrix_row_f32(&r.all->embedding, ID, row);
        for (int i = 0; i < n; i++)
            h[i] = (double)row[i];
        normed(&r, h, r.w->attn_norm, x);
        check_qkv(&r, x);
        check_out(&r, h);
        normed(&r, h, r.w->ffn_norm, x);
        check_gate_up(&r, x);
        check_down(&r, h);
        normed(&r, h, r.all->final_norm, x);
        check_head(&r, x, logits);
        free(row), free(h), free(x), free(r.words), free(logits);
        reel_session_close(s);
        sim_model_close(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(
        each_phase_is_what_its_input_makes_of_it) };
    return cmocka_run_group_tests_name("sim phases", tests, NULL, NULL);
}
