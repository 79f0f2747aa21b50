/* Orderings taken out of the decode kernel, one at a time: the simulator must see each of them, as
 * other bits, as a report, or as a wait that never ends. */
#include "support/sim_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_PROMPT = 20, N_NEW = 14, MAX_PATCHES = 3 };

/* 32 past positions fill two pieces of K/V; from 24 on attention is split. */
static const char options[] = "n_groups=2,group_sms=2,warps=4,kv_slots=4,split_from=24";

static struct sim_model model;
static int32_t prompt[N_PROMPT], right_ids[N_NEW];
static float *right_logits;

static void require(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK) fail_msg("%s\n%s", err->text, sim_gpu_current().cuda->report);
}

static struct sim_gpu gpu_start(void) {
    struct sim_gpu gpu = sim_gpu_controls();
    gpu.cuda->gpu.n_sms = 4;
    gpu.cuda->settings.idle_limit = 300;
    return gpu;
}

static int set_up(void **state) {
    (void)state;
    struct reel_error err = { 0 };
    for (int i = 0; i < N_PROMPT; i++)
        prompt[i] = (i * 37 + 11) % 300;
    sim_model_open(&model, "q3-a");
    gpu_start().cuda->settings.in_order = true;
    require(sim_model_load(&model, options, &err), &err);
    right_logits = sim_model_logits(model.gpu, prompt, N_PROMPT);
    require(sim_model_generate(model.gpu, prompt, N_PROMPT, NULL, right_ids, N_NEW, &err), &err);
    sim_model_unload(&model);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    free(right_logits);
    sim_model_close(&model);
    return 0;
}

/* Whether this schedule gives what it should. */
static bool runs_right(struct sim_gpu *gpu, uint64_t seed) {
    struct reel_error err = { 0 };
    int32_t ids[N_NEW];
    gpu->cuda->settings.seed = seed, gpu->cuda->n_launches = 0;
    if (sim_model_generate(model.gpu, prompt, N_PROMPT, NULL, ids, N_NEW, &err) != REEL_OK)
        return false;
    return memcmp(ids, right_ids, sizeof ids) == 0;
}

static void caught(const char *what, const struct fake_patch *patches) {
    struct reel_error err = { 0 };
    struct sim_gpu gpu = gpu_start();
    int tries = getenv("REEL_SOAK") ? 400 : 60, seed = 0;
    gpu.nvrtc->patches = patches;
    while (gpu.nvrtc->n_patches < MAX_PATCHES && patches[gpu.nvrtc->n_patches].file)
        gpu.nvrtc->n_patches++;
    require(sim_model_load(&model, options, &err), &err);
    while (seed < tries && runs_right(&gpu, (uint64_t)seed))
        seed++;
    printf("%s: schedule %d%s%.60s\n", what, seed, *gpu.cuda->report ? ": " : "", gpu.cuda->report);
    sim_model_unload(&model);
    if (seed == tries) fail_msg("%s: not seen in %d schedules", what, tries);
}

#define CAUGHT(what, ...) caught(what, (const struct fake_patch[MAX_PATCHES + 1]){ __VA_ARGS__ })

static void words_taken_without_their_epoch_are_seen(void **state) {
    (void)state;
    CAUGHT("qkv",
           { "phase_attention.cuh", "word_is(v[n][0], w->epoch) & word_is(v[n][1], w->epoch)",
             "(v[n][0] >> 32 && v[n][1] >> 32)" });
    CAUGHT("attention", { "phase_attention.cuh",
                          "word_is24(v->o[n][0], w->epoch) & word_is24(v->o[n][1], w->epoch)",
                          "(v->o[n][0] >> 48 && v->o[n][1] >> 48)" });
    CAUGHT("gated", { "exchange.cuh", "ok &= word_is(v[i], w->epoch)", "ok &= v[i] >> 32 != 0" });
    CAUGHT("best", { "best.cuh", "word_is(key, w->epoch) & word_is(id, w->epoch)",
                     "key >> 32 && id >> 32" });
}

static void sums_taken_without_their_epoch_are_seen(void **state) {
    (void)state;
    CAUGHT("out and down",
           { "exchange.cuh", "ok &= word_is24(v[i][g], w->epoch);", "ok &= v[i][g] >> 48 != 0;" },
           { "exchange.cuh", "(!polls || !word_is24(v[i][g], w->epoch))", "1" });
}

static void keys_and_values_fetched_too_early_are_seen(void **state) {
    (void)state;
    CAUGHT("K/V not waiting for the token's end",
           { "kv_ring.cuh", "if (t > 0 && !kv_token_wait(w, t)) break;", "" });
    CAUGHT("the token's end not agreed between blocks",
           { "phase_pick.cuh",
             "(void)best_gather(w, w->a->words + X_BEST, 2, WAIT_BEST, 0, &stop);",
             "(void)stop;" });
    CAUGHT("the writer's fence",
           { "decode.cu", "fence_gpu(); /* K and V rows", "/* K and V rows" });
    CAUGHT("the reader's fences", { "kv_ring.cuh", "    fence_gpu();\n    fence_copies();\n", "" });
    CAUGHT("the fence between loads and copies", { "kv_ring.cuh", "    fence_copies();\n", "" });
}

static void ring_slots_out_of_turn_are_seen(void **state) {
    (void)state;
    CAUGHT(
        "a weight slot given back before it is read",
        { "ring.cuh", "slots_wait(w, slots);\n    UNROLL",
          "slots_wait(w, slots);\n    if (w->lane < slots) mbar_arrive(w->empty + (smem)mine * "
          "8);\n    UNROLL" },
        { "ring.cuh",
          "    warp_sync();\n    if (w->lane < slots) mbar_arrive(w->empty + (smem)mine * 8);\n}",
          "}" });
    CAUGHT("a weight slot filled before it is free",
           { "ring.cuh", "if (!p->first_lap && !stream_wait", "if (0 && !stream_wait" });
    CAUGHT("weights not waited for", { "ring.cuh", "    slots_wait(w, slots);", "" });
    CAUGHT("a K/V slot given back before it is read",
           { "kv_ring.cuh", "    lanes_agree(w);\n}",
             "    if (w->lane == 0) mbar_arrive(smem_of(&w->s->kv_empty[kv_slot(w)]));\n}" },
           { "kv_ring.cuh",
             "    if (w->lane == 0) mbar_arrive_after(w, smem_of(&w->s->kv_empty[kv_slot(w)]), "
             "seen);\n",
             "" });
}

static void missing_barriers_are_seen(void **state) {
    (void)state;
    CAUGHT(
        "one barrier for all phases",
        { "shared.cuh", "barrier_arrive(BARRIER_PARTS + w->parts", "barrier_arrive(BARRIER_PARTS" },
        { "shared.cuh", "barrier_wait(BARRIER_PARTS + w->parts", "barrier_wait(BARRIER_PARTS" });
    CAUGHT("sums not waiting for the products",
           { "shared.cuh", "barrier_wait(BARRIER_PARTS + w->parts",
             "barrier_arrive(BARRIER_PARTS + w->parts" });
    CAUGHT("q, k and v used before they are there",
           { "phase_attention.cuh", "consumers_sync(); /* A */", "" });
    CAUGHT("partial results merged before they are there",
           { "phase_attention.cuh", "consumers_sync(); /* B */", "" });
    CAUGHT("attention's result used before it is there",
           { "phase_attention.cuh", "consumers_sync(); /* C */", "" });
    CAUGHT("the head's input used before it is there",
           { "phase_head.cuh", "    consumers_sync();\n    const float scale",
             "    const float scale" });
    CAUGHT("the next id used before it is there",
           { "phase_pick.cuh", "    }\n    consumers_sync();\n}", "    }\n}" });
}

static void nothing_is_seen_where_nothing_is_wrong(void **state) {
    (void)state;
    struct reel_error err = { 0 };
    struct sim_gpu gpu = gpu_start();
    require(sim_model_load(&model, options, &err), &err);
    for (int seed = 0; seed < (getenv("REEL_SOAK") ? 2000 : 6); seed++)
        if (!runs_right(&gpu, (uint64_t)seed)) fail_msg("schedule %d: %s", seed, gpu.cuda->report);
    sim_model_unload(&model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_seen_where_nothing_is_wrong),
        cmocka_unit_test(words_taken_without_their_epoch_are_seen),
        cmocka_unit_test(sums_taken_without_their_epoch_are_seen),
        cmocka_unit_test(keys_and_values_fetched_too_early_are_seen),
        cmocka_unit_test(ring_slots_out_of_turn_are_seen),
        cmocka_unit_test(missing_barriers_are_seen),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
