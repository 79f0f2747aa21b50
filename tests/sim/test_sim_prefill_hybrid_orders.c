/* Orderings taken out of the steps of a prompt's Gated DeltaNets, one at a time: the simulator must
 * see each of them, as other bits, as a report, or as a wait that never ends. */
#include "support/sim_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Two chunks, and a part of a third: more items than blocks. */
enum { N_IDS = 150, N_SMS = 2, MAX_PATCHES = 2 };
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

static int n_tries(void) { return getenv("REEL_SOAK") ? 40 : 4; }

/* The first schedule that goes wrong; n_tries() when none does. */
static int first_wrong(const char *what, const struct fake_patch *patches) {
    struct reel_error err = { 0 };
    int n = 0, seed = 0;
    while (n < MAX_PATCHES && patches[n].file)
        n++;
    struct sim_gpu gpu = gpu_start();
    gpu.nvrtc->patches = patches, gpu.nvrtc->n_patches = n;
    require(sim_model_load(&model, OPTIONS, &err), &err);
    while (seed < n_tries() && runs_right(&gpu, seed))
        seed++;
    printf("%s: schedule %d%s%.60s\n", what, seed, *gpu.cuda->report ? ": " : "", gpu.cuda->report);
    sim_model_unload(&model);
    return seed;
}

/* Each is compiled anew: every fourth is enough here, the soak has all. */
static void caught(const char *what, const struct fake_patch *patches) {
    static int turn;
    if (!getenv("REEL_SOAK") && turn++ % 4) return;
    if (first_wrong(what, patches) == n_tries())
        fail_msg("%s: not seen in %d schedules", what, n_tries());
}

#define IN(file, from, to)                                                                         \
    { file, from, to, false }
#define CAUGHT(what, ...) caught(what, (const struct fake_patch[MAX_PATCHES + 1]){ __VA_ARGS__ })

#define STEPS  "prefill_delta.cu"
#define ALL    "prefill_delta.cuh"
#define CONV   "prefill_delta_conv.cuh"
#define CHUNK  "prefill_delta_chunk.cuh"
#define CHAIN  "prefill_delta_chain.cuh"
#define ANSWER "prefill_delta_answer.cuh"

static void launches_that_do_not_wait_for_the_one_before_are_seen(void **state) {
    (void)state;
    CAUGHT("conv", IN(STEPS, "    previous_over();\n    conv_phase", "    conv_phase"));
    CAUGHT("chunk and answer", IN(ALL, "    previous_over();\n    fence_copies();\n", ""));
    CAUGHT("chain", IN(STEPS, "    previous_over();\n    if (r.w.warp < READ_WARPS) {",
                       "    if (r.w.warp < READ_WARPS) {"));
}

static void copies_out_of_turn_are_seen(void **state) {
    (void)state;
    CAUGHT("chunk", IN(CHUNK, "        copies_wait(r, full, parity);\n", ""));
    CAUGHT("chunk, the item before not over",
           IN(CHUNK, "            readers_sync();\n        }\n        chunk_fill",
              "        }\n        chunk_fill"));
    CAUGHT("answer", IN(ANSWER, "        copies_wait(r, full, parity);\n", ""));
}

static void warps_of_conv_and_chunk_that_do_not_meet_are_seen(void **state) {
    (void)state;
    CAUGHT("gates added up before they are there",
           IN(CONV, "[i % 4];\n    readers_sync();", "[i % 4];"));
    CAUGHT("gates of the task before not over",
           IN(CONV, "    readers_sync(); /* the task before is over */\n", ""));
    CAUGHT("taps before they are there",
           IN(CONV, "        readers_sync(); /* the taps are there */\n", ""));
    CAUGHT("rows stored before they are made",
           IN(CONV, "        warp_sync();\n    }\n", "    }\n"));
    CAUGHT("gates before they are summed",
           IN(CHUNK, "        copies_wait(r, full, parity);\n        readers_sync();\n",
              "        copies_wait(r, full, parity);\n"));
    CAUGHT("M inverted before it is there",
           IN(CHUNK, "    readers_sync();\n    invert(r, s);", "    invert(r, s);"));
    CAUGHT("1/A before it is there",
           IN(CHUNK, "diagonal_invert(s, warp, lane);\n    readers_sync();",
              "diagonal_invert(s, warp, lane);"));
    CAUGHT("B overwritten",
           IN(CHUNK, "    readers_sync(); /* two warps read the same tiles */\n", ""));
    CAUGHT("the first level before it is there",
           IN(CHUNK, "column, 1, lane, x);\n    readers_sync();\n    if (busy) below_make(s, 0,",
              "column, 1, lane, x);\n    if (busy) below_make(s, 0,"));
    CAUGHT("the second level's B overwritten",
           IN(CHUNK, "2, lane, x);\n    readers_sync();\n    if (busy) below_store(s, 0,",
              "2, lane, x);\n    if (busy) below_store(s, 0,"));
    CAUGHT("operands before they are there",
           IN(CHUNK, "operands_make(r, s);\n    readers_sync();", "operands_make(r, s);"));
}

static void warps_of_chain_and_answer_that_do_not_meet_are_seen(void **state) {
    (void)state;
    CAUGHT("the state before it is there",
           IN(CHAIN, "            readers_sync(); /* the state is there */\n", ""));
    CAUGHT("what is learned before it is there",
           IN(CHAIN, "            readers_sync(); /* what was learned is there", "            /*"));
    CAUGHT(
        "what is learned before the last token",
        IN(CHAIN, "learned_pass(r, d, left);\n    readers_sync();", "learned_pass(r, d, left);"));
    CAUGHT("what is learned passed on too early",
           IN(CHAIN, "    readers_sync(); /* what was learned is passed on once more */\n", ""));
    CAUGHT("squares before they are there",
           IN(ANSWER, "    readers_sync();\n    UNROLL\n    for (int i = 0; i < 2; i++) {",
              "    UNROLL\n    for (int i = 0; i < 2; i++) {"));
}

static void nothing_is_seen_where_nothing_is_wrong(void **state) {
    (void)state;
    static const struct fake_patch none[1] = { { NULL, NULL, NULL, false } };
    assert_int_equal(first_wrong("nothing", none), n_tries());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_seen_where_nothing_is_wrong),
        cmocka_unit_test(launches_that_do_not_wait_for_the_one_before_are_seen),
        cmocka_unit_test(copies_out_of_turn_are_seen),
        cmocka_unit_test(warps_of_conv_and_chunk_that_do_not_meet_are_seen),
        cmocka_unit_test(warps_of_chain_and_answer_that_do_not_meet_are_seen),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
