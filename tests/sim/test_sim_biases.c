/* Biases of q, k and v on the fake GPU: what each way of evaluating makes of a Qwen2 miniature
 * equals the CPU's logits within rounding, and each line of a kernel that reads, places or adds a
 * bias is needed (support/mutations.c). The miniature's biases are as large as what they are added
 * to. */
#include "runtime/model_handle.h"
#include "support/mutations.h"
#include "support/rounding.h"
#include "support/sim_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_IDS = 70, N_SMS = 5 };

static struct sim_model model;
static int32_t ids[N_IDS];
static float *want; /* [N_IDS][vocab]: the CPU's */

static void require(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK) fail_msg("%s\n%s", err->text, sim_gpu_current().cuda->report);
}

static int set_up(void **state) {
    (void)state;
    for (int i = 0; i < N_IDS; i++)
        ids[i] = (i * 37 + 11) % 300;
    sim_model_open(&model, "qw2-p");
    want = sim_model_logits(model.cpu, ids, N_IDS);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    free(want);
    sim_model_close(&model);
    return 0;
}

/* The decode kernel; the queue of launches, in thin items and, for more tokens, wide ones; the
 * kernel for short prompts, in narrow runs and wide ones. Two groups of two SMs, and an SM that is
 * no part of the plan. */
#define CUT "n_groups=2,group_sms=2,warps=4,prefill_tokens=256,launch_tokens=256"
static const struct {
    const char *name, *options;
    int n, compute;
} ways[] = {
    { "decode", CUT ",prefill_from=0", 9, 90 },
    { "thin", CUT ",prefill_from=2,short_positions=0", 21, 90 },
    { "wide", CUT ",prefill_from=2,short_positions=0", N_IDS, 90 },
    { "older", CUT ",prefill_from=2,short_positions=0", N_IDS, 86 },
    { "short", CUT ",prefill_from=2", 7, 90 },
    { "long", CUT ",prefill_from=2", 29, 90 },
};
enum { N_WAYS = sizeof ways / sizeof *ways };

/* How far the logits of the last of the way's tokens are off. */
static double way_off(int way, const struct mutation *m) {
    struct reel_error err = { 0 };
    struct sim_gpu gpu = sim_gpu_controls();
    struct reel_session *s;
    const int n = ways[way].n;
    const struct reel_session_options o = { .size = sizeof o, .max_context = n };
    float *logits = malloc((size_t)model.vocab * sizeof *logits);
    const struct reel_eval eval = { .size = sizeof eval,
                                    .n = n,
                                    .ids = ids,
                                    .output = REEL_OUTPUT_LAST_LOGITS,
                                    .out = logits,
                                    .out_floats = (size_t)model.vocab };
    gpu.cuda->gpu.n_sms = N_SMS, gpu.cuda->gpu.compute = ways[way].compute;
    mutation_apply(m, gpu.nvrtc);
    require(sim_model_load(&model, ways[way].options, &err), &err);
    require(reel_session_open(&s, model.gpu, &o, &err), &err);
    double off = 1; /* where the evaluation failed */
    if (reel_session_eval(s, &eval, &err) == REEL_OK)
        off =
            relative_difference(logits, want + (size_t)(n - 1) * (size_t)model.vocab, model.vocab);
    reel_session_close(s);
    sim_model_unload(&model);
    free(logits);
    return off;
}

static bool right(double off) {
    const struct model_config *c = &model.cpu->model.config;
    return off <= rounding_allowed_once(c->n_layers, c->hidden);
}

static void every_way_adds_biases(void **state) {
    static const struct mutation none = { .what = "nothing" };
    (void)state;
    for (int way = 0; way < N_WAYS; way++) {
        const double off = way_off(way, &none);
        printf("%s: off by %.4f\n", ways[way].name, off);
        if (!right(off)) fail_msg("%s: off by %.4f", ways[way].name, off);
    }
}

/* A mutation's name begins with its way's. */
static bool is_seen(const struct mutation *m) {
    for (int way = 0; way < N_WAYS; way++) {
        if (strncmp(m->what, ways[way].name, strlen(ways[way].name)) != 0) continue;
        const double off = way_off(way, m);
        printf("%s: off by %.4f\n", m->what, off);
        return !right(off);
    }
    return false;
}

static void mutations_are_seen(void **state) {
    (void)state;
    mutations_try(&bias_mutations, is_seen);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_way_adds_biases),
        cmocka_unit_test(mutations_are_seen),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
