/* Orderings taken out of the steps of a prompt's Gated DeltaNets, one at a time
 * (support/mutations.c): the simulator must see each of them, as other bits, as a report, or as a
 * wait that never ends. */
#include "support/mutations.h"
#include "support/sim_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Two chunks, and a part of a third: more items than blocks. */
enum { N_IDS = 150, N_SMS = 2 };
#define OPTIONS "n_groups=1,group_sms=2,warps=4,prefill_tokens=256,prefill_from=2,launch_tokens=256"

static struct sim_model model;
static int32_t ids[N_IDS];
static float *right; /* [2][vocab]: logits after the prompt, and with another last token */

static void require(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK) fail_msg("%s\n%s", err->text, sim_gpu_current().cuda->report);
}

static struct sim_gpu gpu_start(void) {
    struct sim_gpu gpu = sim_gpu_controls();
    gpu.cuda->gpu.n_sms = N_SMS;
    gpu.cuda->settings.idle_limit = 300;
    return gpu;
}

/* A session of its own. Another last token begins with the state that was kept before it. */
static bool evaluate(struct sim_gpu *gpu, int seed, float *logits) {
    struct reel_error err = { 0 };
    struct reel_session *session;
    const struct reel_session_options o = { .size = sizeof o, .max_context = N_IDS };
    const struct reel_eval last = { .size = sizeof last,
                                    .n = 1,
                                    .ids = ids, /* any other */
                                    .output = REEL_OUTPUT_LAST_LOGITS,
                                    .out = logits + model.vocab,
                                    .out_floats = (size_t)model.vocab };
    struct reel_eval prompt = last;
    prompt.n = N_IDS, prompt.ids = ids, prompt.out = logits;
    require(reel_session_open(&session, model.gpu, &o, &err), &err);
    gpu->cuda->settings.in_order = seed < 0;
    gpu->cuda->settings.seed = (uint64_t)seed, gpu->cuda->n_launches = 0;
    const bool done = reel_session_eval(session, &prompt, &err) == REEL_OK &&
                      reel_session_truncate(session, N_IDS - 1, &err) == REEL_OK &&
                      reel_session_eval(session, &last, &err) == REEL_OK;
    reel_session_close(session);
    return done;
}

static int set_up(void **state) {
    (void)state;
    struct reel_error err = { 0 };
    for (int i = 0; i < N_IDS; i++)
        ids[i] = (i * 37 + 11) % 300;
    sim_model_open(&model, "q35-p");
    struct sim_gpu gpu = gpu_start();
    right = malloc(2 * (size_t)model.vocab * sizeof *right);
    require(sim_model_load(&model, OPTIONS, &err), &err);
    if (!evaluate(&gpu, -1, right)) fail_msg("%s", gpu.cuda->report);
    sim_model_unload(&model);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    free(right);
    sim_model_close(&model);
    return 0;
}

static bool runs_right(struct sim_gpu *gpu, int seed) {
    const size_t bytes = 2 * (size_t)model.vocab * sizeof *right;
    float *logits = malloc(bytes);
    const bool same = evaluate(gpu, seed, logits) && memcmp(logits, right, bytes) == 0;
    free(logits);
    return same;
}

static int n_tries(void) { return getenv("REEL_SOAK") ? 40 : 8; }

/* The first schedule that goes wrong; n_tries() when none does. */
static int first_wrong(const struct mutation *m) {
    struct reel_error err = { 0 };
    int seed = 0;
    struct sim_gpu gpu = gpu_start();
    mutation_apply(m, gpu.nvrtc);
    require(sim_model_load(&model, OPTIONS, &err), &err);
    while (seed < n_tries() && runs_right(&gpu, seed))
        seed++;
    printf("%s: schedule %d%s%.60s\n", m->what, seed, *gpu.cuda->report ? ": " : "",
           gpu.cuda->report);
    sim_model_unload(&model);
    return seed;
}

static bool is_seen(const struct mutation *m) { return first_wrong(m) < n_tries(); }

static void mutations_are_seen(void **state) {
    (void)state;
    mutations_try(&delta_mutations, is_seen);
}

static void nothing_is_seen_where_nothing_is_wrong(void **state) {
    (void)state;
    static const struct mutation none = { .what = "nothing" };
    assert_int_equal(first_wrong(&none), n_tries());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_seen_where_nothing_is_wrong),
        cmocka_unit_test(mutations_are_seen),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
