/* Orderings taken out of the decode kernel, one at a time (support/mutations.c): the simulator must
 * see each of them, as other bits, as a report, or as a wait that never ends. */
#include "kernels/args.h"
#include "support/mutations.h"
#include "support/shares.h"
#include "support/sim_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_PROMPT = 20, N_NEW = 14, HOST_LOOKS_MS = 20 };

/* 32 past positions fill two pieces of K/V; from 24 on attention is split. */
#define OPTIONS "n_groups=2,group_sms=2,split_from=24,cap_layers=1,cap_head=1"
static const char *options;

static struct sim_model model;
static int32_t ids[N_PROMPT + N_NEW];
static float *right_logits;

static void require(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK) fail_msg("%s\n%s", err->text, sim_gpu_current().cuda->report);
}

static struct sim_gpu gpu_start(void) {
    struct sim_gpu gpu = sim_gpu_controls();
    gpu.cuda->gpu.n_sms = 4;
    gpu.cuda->settings.idle_limit = 300;
    gpu.cuda->settings.host_look_ms = HOST_LOOKS_MS;
    return gpu;
}

/* From here on this model with these options. */
static void take(const char *id, const char *o) {
    struct reel_error err = { 0 };
    if (model.cpu) sim_model_close(&model);
    sim_model_open(&model, id);
    options = o;
    gpu_start().cuda->settings.in_order = true;
    require(sim_model_load(&model, options, &err), &err);
    require(sim_model_generate(model.gpu, ids, N_PROMPT, NULL, ids + N_PROMPT, N_NEW, &err), &err);
    free(right_logits);
    right_logits = sim_model_logits(model.gpu, ids, N_PROMPT + N_NEW);
    sim_model_unload(&model);
}

static int set_up(void **state) {
    (void)state;
    for (int i = 0; i < N_PROMPT; i++)
        ids[i] = (i * 37 + 11) % 300;
    take("q3-a", OPTIONS ",warps=4,kv_slots=4");
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    free(right_logits);
    sim_model_close(&model);
    return 0;
}

/* Whether this schedule gives what it should: the logits of given ids, or ids. */
static bool runs_right(struct sim_gpu *gpu, int seed) {
    struct reel_error err = { 0 };
    int32_t made[N_NEW];
    gpu->cuda->settings.seed = (uint64_t)seed, gpu->cuda->n_launches = 0;
    if (seed % 2) {
        return sim_model_generate(model.gpu, ids, N_PROMPT, NULL, made, N_NEW, &err) == REEL_OK &&
               memcmp(made, ids + N_PROMPT, sizeof made) == 0;
    }
    float *logits = sim_model_try_logits(model.gpu, ids, N_PROMPT + N_NEW, &err);
    bool right = logits && memcmp(logits, right_logits,
                                  (size_t)((N_PROMPT + N_NEW) * model.vocab) * sizeof *logits) == 0;
    free(logits);
    return right;
}

static bool is_seen(const struct mutation *m) {
    struct reel_error err = { 0 };
    struct sim_gpu gpu = gpu_start();
    int tries = getenv("REEL_SOAK") ? 400 : 60, seed = 0;
    mutation_apply(m, gpu.nvrtc);
    require(sim_model_load(&model, options, &err), &err);
    while (seed < tries && runs_right(&gpu, seed))
        seed++;
    printf("%s: schedule %d%s%.60s\n", m->what, seed, *gpu.cuda->report ? ": " : "",
           gpu.cuda->report);
    sim_model_unload(&model);
    return seed < tries;
}

static void mutations_are_seen(void **state) {
    (void)state;
    mutations_try(&decode_mutations, is_seen);
}

/* Of six warps two have no part of h. One of these has a part of attention's result but none of the
 * gated values: were it to wait for neither h nor them, it would overwrite its partial sums of
 * `out` with those of `down`. One warp has all pieces of K/V. */
static void mutations_of_warps_whose_slices_are_padding_are_seen(void **state) {
    (void)state;
    take("q3-e", OPTIONS ",warps=6,kv_slots=1");
    mutations_try(&padding_mutations, is_seen);
}

static void mutations_of_two_hops_are_seen(void **state) {
    (void)state;
    take("q3-a", OPTIONS ",warps=4,kv_slots=4,hops=2");
    mutations_try(&hops_mutations, is_seen);
}

/* ---- launches that give up ---- */

/* What others could see of a fault (kernels/args.h): its description as it was when `fault` came,
 * and whether blocks were told to leave before. */
struct sight {
    bool left_early, described;
    struct decode_mailbox first;
};

static void look(void *user, void **params) {
    struct sight *s = user;
    const struct decode_args *a = params[0];
    if (*a->abort == ABORT_LEAVE && !a->mailbox->fault) s->left_early = true;
    if (!a->mailbox->fault || s->described) return;
    s->described = true, s->first = *a->mailbox;
}

/* A block is missing, so some wait gives up. Whether others could see nothing but what is true, as
 * the error says it at the end. */
static bool gives_up_right(struct sim_gpu *gpu, int seed) {
    struct reel_error err = { 0 };
    struct sight sight = { 0 };
    const struct decode_mailbox *m = &sight.first;
    int32_t made[N_NEW];
    char text[200];
    gpu->cuda->settings.seed = (uint64_t)seed, gpu->cuda->n_launches = 0;
    gpu->cuda->settings.missing_block = seed % 4;
    gpu->cuda->settings.look = look, gpu->cuda->settings.user = &sight;
    const enum reel_status status =
        sim_model_generate(model.gpu, ids, N_PROMPT, NULL, made, N_NEW, &err);
    if (status != REEL_E_DEVICE || !strstr(err.text, "gave up waiting for"))
        fail_msg("%s\n%s", err.text, gpu->cuda->report);
    snprintf(text, sizeof text, "(token %u of the launch, layer %u, block %u, warp %u",
             m->fault_token, m->fault_layer, m->fault_block, m->fault_warp);
    if (sight.left_early) return false;
    return !sight.described || (m->fault_wait != WAIT_NONE && strstr(err.text, text));
}

/* The first schedule that goes wrong; n when none does. */
static int first_wrong_fault(const struct mutation *m, int n) {
    struct reel_error err = { 0 };
    struct sim_gpu gpu = gpu_start();
    int seed = 0;
    gpu.cuda->settings.idle_limit = 0; /* kernels lose their patience by themselves */
    gpu.cuda->settings.host_look_ms = 0;
    mutation_apply(m, gpu.nvrtc);
    require(sim_model_load(&model, OPTIONS ",warps=4,kv_slots=4,patience=3000", &err), &err);
    while (seed < n && gives_up_right(&gpu, seed))
        seed++;
    printf("%s: schedule %d\n", m->what, seed);
    sim_model_unload(&model);
    return seed;
}

static bool fault_is_seen(const struct mutation *m) {
    const int tries = getenv("REEL_SOAK") ? 400 : 60;
    return first_wrong_fault(m, tries) < tries;
}

static void mutations_of_faults_are_seen(void **state) {
    (void)state;
    static const struct mutation none = { .what = "nothing" };
    const int tries = getenv("REEL_SOAK") ? 300 : 6;
    take("q3-a", OPTIONS ",warps=4,kv_slots=4");
    assert_int_equal(first_wrong_fault(&none, tries), tries);
    mutations_try(&faults_mutations, fault_is_seen);
}

static void nothing_is_seen_where_nothing_is_wrong(void **state) {
    (void)state;
    struct reel_error err = { 0 };
    struct sim_gpu gpu = gpu_start();
    require(sim_model_load(&model, options, &err), &err);
    for (int seed = 0; seed < (getenv("REEL_SOAK") ? 300 : 6); seed++)
        if (!runs_right(&gpu, seed)) fail_msg("schedule %d: %s", seed, gpu.cuda->report);
    sim_model_unload(&model);
}

int main(void) {
    /* The same without a mutation is what test_sim_decode.c runs as well. */
    struct CMUnitTest tests[] = {
        in_turn(nothing_is_seen_where_nothing_is_wrong),
        in_turn(mutations_are_seen),
        in_turn(mutations_of_warps_whose_slices_are_padding_are_seen),
        in_turn(mutations_of_two_hops_are_seen),
        in_turn(mutations_of_faults_are_seen),
    };
    SHARE_TESTS("orders", 5, tests);
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
