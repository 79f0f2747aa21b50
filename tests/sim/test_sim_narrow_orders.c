/* Lines of the kernels that wind, read or multiply narrow weights, made wrong one at a time
 * (support/mutations.c): each must change a logit of a miniature whose phases have a form each, or
 * be a report of the simulator. */
#include "cuda/run/cuda_backend.h"
#include "plan/plan_layout.h"
#include "runtime/model_handle.h"
#include "support/mutations.h"
#include "support/narrow_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- models ---------------------------------------------------------------------------------- */

/* A mutation's name begins with its model's. "ints": integers of 8 and 4 bits, with and without
 * offsets, and a head in which embeddings are looked up. "floats": floats, and groups of 16
 * columns. "steps": K-quants. Their prompts are for the
 * decode kernel, for thin items, for halves and for wide items. "brief": one launch reads a prompt.
 * "ready": floats whose tiles all become operands before the input of their phase comes.
 * "shared": integers that do so, most in groups that hold a warp's slice of a row. "parts": slices
 * that lie across two groups where a group of SMs has a part of the row. "laps": a ring that goes
 * round in the head.
 * "tables": integers that codes name, of one digit and of two; in "names" their tiles are made
 * operands as they are taken.
 * "rounds": floats that are not held, whose rounds are a loop.
 * "long": slices of h of several words a lane, phases that hold one round of tiles, or none. */
#define CUT  "n_groups=2,group_sms=2,warps=4,prefill_tokens=256,narrow=1"
#define LONG CUT ",prefill_from=4,short_positions=0"
static const struct kind {
    const char *name, *model;
    const char *options;
    int lengths[4]; /* of prompts, as many as are not 0 */
    struct narrow_forms forms;
} models[] = {
    { "ints",
      "qw2-p",
      LONG,
      { 3, 9, 40, 99 },
      { { ROWS_INT8, 0, PLANE_F32 },
        { INT4_GROUPS, 64, PLANE_F16 },
        { Q4_1_BLOCKS, 32, PLANE_F16 },
        { INT8_ZEROS, 0, PLANE_BF16 },
        { INT4_ZEROS, 16, PLANE_F32 } } },
    { "floats",
      "q3-p",
      LONG,
      { 3, 9, 40, 99 },
      { { E4M3_BLOCKS, 16, PLANE_F32 },
        { E2M1_GROUPS, 32, PLANE_BF16 },
        { E2M1_GROUPS, 16, PLANE_F16 },
        { E4M3_BLOCKS, 128, PLANE_BF16 },
        { Q4_1_BLOCKS, 32, PLANE_F16 } } },
    { "steps",
      "ll-k",
      LONG,
      { 3, 9, 40, 99 },
      { { K_MIXED, 0, 0 },
        { Q4_K_BLOCKS, 0, 0 },
        { Q4_K_BLOCKS, 0, 0 },
        { K_MIXED, 0, 0 },
        { Q6_K_BLOCKS, 0, 0 } } },
    { "brief",
      "q3-p",
      CUT ",prefill_from=2",
      { 7, 29, 60 },
      { { INT8_ZEROS, 16, PLANE_F32 },
        { Q4_1_BLOCKS, 32, PLANE_F16 },
        { INT4_ZEROS, 16, PLANE_F16 },
        { ROWS_INT8, 0, PLANE_BF16 },
        { Q4_1_BLOCKS, 32, PLANE_F16 } } },
    { "ready",
      "q3-p",
      CUT ",prefill_from=0,slot_tiles=1,ring_slots=8",
      { 1, 3 },
      { { E4M3_BLOCKS, 128, PLANE_BF16 },
        { E4M3_BLOCKS, 128, PLANE_BF16 },
        { E2M1_GROUPS, 32, PLANE_BF16 },
        { E4M3_BLOCKS, 128, PLANE_BF16 },
        { E4M3_BLOCKS, 128, PLANE_BF16 } } },
    { "shared",
      "ll-k",
      CUT ",prefill_from=0",
      { 1, 3 },
      { { INT4_GROUPS, 128, PLANE_BF16 },
        { INT4_GROUPS, 128, PLANE_F16 },
        { INT4_GROUPS, 32, PLANE_F16 },
        { INT4_GROUPS, 128, PLANE_F32 },
        { ROWS_INT8, 0, PLANE_BF16 } } },
    { "parts",
      "qw2-p",
      CUT ",prefill_from=0",
      { 1, 3 },
      { { INT4_GROUPS, 64, PLANE_BF16 },
        { INT4_GROUPS, 128, PLANE_F16 },
        { INT4_GROUPS, 64, PLANE_F16 },
        { INT8_ZEROS, 0, PLANE_BF16 },
        { ROWS_INT8, 0, PLANE_BF16 } } },
    { "laps",
      "ll-k",
      CUT ",prefill_from=0,ring_slots=2",
      { 1, 3 },
      { { ROWS_INT8, 0, PLANE_BF16 },
        { ROWS_INT8, 0, PLANE_BF16 },
        { ROWS_INT8, 0, PLANE_BF16 },
        { ROWS_INT8, 0, PLANE_BF16 },
        { ROWS_INT8, 0, PLANE_BF16 } } },
    { "rounds",
      "q3-h",
      "n_groups=1,group_sms=2,warps=4,prefill_from=0,narrow=1",
      { 1, 2 },
      { { E4M3_BLOCKS, 128, PLANE_BF16 },
        { E4M3_BLOCKS, 128, PLANE_F32 },
        { E2M1_GROUPS, 32, PLANE_F16 },
        { E4M3_BLOCKS, 128, PLANE_BF16 },
        { ROWS_INT8, 0, PLANE_BF16 } } },
    { "tables",
      "ll-k",
      LONG,
      { 3, 9, 40 },
      { { NF4_GROUPS, 64, PLANE_F32 },
        { IQ4_XS_BLOCKS, 0, 0 },
        { FP4_GROUPS, 32, PLANE_F32 },
        { NF4_GROUPS, 128, PLANE_F32 },
        { NF4_GROUPS, 64, PLANE_F32 } } },
    { "names",
      "q3-p",
      CUT ",prefill_from=0",
      { 1, 3 },
      { { NF4_GROUPS, 64, PLANE_F32 },
        { NF4_GROUPS, 64, PLANE_F32 },
        { FP4_GROUPS, 64, PLANE_F32 },
        { FP4_GROUPS, 128, PLANE_F32 },
        { ROWS_INT8, 0, PLANE_BF16 } } },
    { "long",
      "q3-h",
      "n_groups=1,group_sms=4,warps=4,prefill_from=0,narrow=1",
      { 1, 2, 3 },
      { { INT4_ZEROS, 128, PLANE_BF16 },
        { INT4_ZEROS, 32, PLANE_F16 },
        { INT4_ZEROS, 128, PLANE_BF16 },
        { ROWS_INT8, 0, PLANE_BF16 },
        { ROWS_INT8, 0, PLANE_F32 } } },
};
enum { N_MODELS = (int)(sizeof models / sizeof *models) };

enum { N_LENGTHS = 4, MOST_IDS = 100 };

static int32_t prompt[MOST_IDS];

struct rig {
    const struct kind *of;
    struct sim_model m;
    float *right[N_LENGTHS];
};
static struct rig rigs[N_MODELS];

static void require(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK) fail_msg("%s\n%s", err->text, sim_gpu_current().cuda->report);
}

static struct sim_gpu gpu_start(void) {
    struct sim_gpu gpu = sim_gpu_controls();
    gpu.cuda->gpu.n_sms = 4, gpu.cuda->gpu.compute = 90;
    gpu.cuda->settings.idle_limit = 2000;
    return gpu;
}

static bool last_logits(struct rig *r, int n, float *out) {
    struct reel_error err = { 0 };
    struct reel_session *session = NULL;
    const struct reel_session_options options = { .size = sizeof options, .max_context = MOST_IDS };
    const struct reel_eval eval = { .size = sizeof eval,
                                    .n = n,
                                    .ids = prompt,
                                    .output = REEL_OUTPUT_LAST_LOGITS,
                                    .out = out,
                                    .out_floats = (size_t)r->m.vocab };
    require(reel_session_open(&session, r->m.gpu, &options, &err), &err);
    const enum reel_status status = reel_session_eval(session, &eval, &err);
    reel_session_close(session);
    if (status != REEL_OK) printf("%.200s\n", err.text);
    return status == REEL_OK;
}

static void load(struct rig *r) {
    struct reel_error err = { 0 };
    require(narrow_model_load(&r->m, &r->of->forms, r->of->options, &err), &err);
    for (int i = 0; i < TAPE_N_PHASES; i++) {
        const int format = r->m.gpu->backend->plan.tape.segment[i].format;
        if (i != TAPE_MIX && !TILE_NARROW(format))
            fail_msg("%s: phase %d is not narrow", r->of->name, i);
    }
}

/* The model of that number, opened when it is first asked for. */
static struct rig *rig_of(int i) {
    struct rig *r = &rigs[i];
    if (r->of) return r;
    gpu_start().cuda->settings.in_order = true;
    r->of = &models[i];
    sim_model_open(&r->m, r->of->model);
    load(r);
    for (int j = 0; j < N_LENGTHS && r->of->lengths[j]; j++) {
        r->right[j] = malloc((size_t)r->m.vocab * sizeof(float));
        assert_true(last_logits(r, r->of->lengths[j], r->right[j]));
    }
    sim_model_unload(&r->m);
    return r;
}

static int set_up(void **state) {
    (void)state;
    for (int i = 0; i < MOST_IDS; i++)
        prompt[i] = (i * 37 + 11) % 96;
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    for (int i = 0; i < N_MODELS; i++) {
        for (int j = 0; j < N_LENGTHS; j++)
            free(rigs[i].right[j]);
        if (rigs[i].of) sim_model_close(&rigs[i].m);
    }
    narrow_free();
    return 0;
}

/* ---- mutations ------------------------------------------------------------------------------- */

static bool runs_right(struct rig *r, int length) {
    if (!r->of->lengths[length]) return true;
    float *now = malloc((size_t)r->m.vocab * sizeof *now);
    const bool right = last_logits(r, r->of->lengths[length], now) &&
                       memcmp(now, r->right[length], (size_t)r->m.vocab * sizeof *now) == 0;
    free(now);
    return right;
}

/* Whether any of some schedules shows it, in order first. */
static bool is_seen(const struct mutation *m) {
    struct rig *r = NULL;
    const int schedules = getenv("REEL_SOAK") ? 200 : 30;
    for (int i = 0; i < N_MODELS; i++)
        if (strncmp(m->what, models[i].name, strlen(models[i].name)) == 0) r = rig_of(i);
    assert_non_null(r);
    struct sim_gpu gpu = gpu_start();
    int tries = 0;
    mutation_apply(m, gpu.nvrtc);
    load(r);
    bool right = true;
    for (; right && tries < schedules; tries++) {
        gpu.cuda->settings.in_order = tries == 0;
        gpu.cuda->settings.seed = (uint64_t)tries, gpu.cuda->n_launches = 0;
        for (int i = 0; right && i < (tries ? 1 : N_LENGTHS); i++)
            right = runs_right(r, i);
    }
    printf("%s: try %d%s%.60s\n", m->what, tries, *gpu.cuda->report ? ": " : "", gpu.cuda->report);
    sim_model_unload(&r->m);
    return !right;
}

static void mutations_are_seen(void **state) {
    (void)state;
    mutations_try(&narrow_mutations, is_seen);
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(mutations_are_seen) };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
