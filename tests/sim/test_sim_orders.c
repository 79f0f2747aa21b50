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
static const char options[] =
    "n_groups=2,group_sms=2,warps=4,kv_slots=4,split_from=24,cap_layers=1,cap_head=1";

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
    return gpu;
}

static int set_up(void **state) {
    (void)state;
    struct reel_error err = { 0 };
    for (int i = 0; i < N_PROMPT; i++)
        ids[i] = (i * 37 + 11) % 300;
    sim_model_open(&model, "q3-a");
    gpu_start().cuda->settings.in_order = true;
    require(sim_model_load(&model, options, &err), &err);
    require(sim_model_generate(model.gpu, ids, N_PROMPT, NULL, ids + N_PROMPT, N_NEW, &err), &err);
    right_logits = sim_model_logits(model.gpu, ids, N_PROMPT + N_NEW);
    sim_model_unload(&model);
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

/* Each is compiled anew: every third is enough here, the soak has all. */
static void caught(const char *what, const struct fake_patch *patches) {
    static int turn;
    if (!getenv("REEL_SOAK") && turn++ % 3) return;
    struct reel_error err = { 0 };
    struct sim_gpu gpu = gpu_start();
    int tries = getenv("REEL_SOAK") ? 400 : 60, seed = 0;
    gpu.nvrtc->patches = patches;
    while (gpu.nvrtc->n_patches < MAX_PATCHES && patches[gpu.nvrtc->n_patches].file)
        gpu.nvrtc->n_patches++;
    require(sim_model_load(&model, options, &err), &err);
    while (seed < tries && runs_right(&gpu, seed))
        seed++;
    printf("%s: schedule %d%s%.60s\n", what, seed, *gpu.cuda->report ? ": " : "", gpu.cuda->report);
    sim_model_unload(&model);
    if (seed == tries) fail_msg("%s: not seen in %d schedules", what, tries);
}

#define IN(file, from, to)                                                                         \
    { file, from, to, false }
#define EVERYWHERE(file, from, to)                                                                 \
    { file, from, to, true }
#define CAUGHT(what, ...) caught(what, (const struct fake_patch[MAX_PATCHES + 1]){ __VA_ARGS__ })

static void words_taken_without_their_epoch_are_seen(void **state) {
    (void)state;
    CAUGHT("qkv",
           IN("phase_attention.cuh", "word_is(v[n][0], w->epoch) & word_is(v[n][1], w->epoch)",
              "(v[n][0] >> 32 && v[n][1] >> 32)"));
    CAUGHT("attention", IN("phase_attention_merge.cuh",
                           "word_is24(v->o[n][0], w->epoch) & word_is24(v->o[n][1], w->epoch)",
                           "(v->o[n][0] >> 48 && v->o[n][1] >> 48)"));
    CAUGHT("gated", IN("exchange.cuh", "ok &= word_came(w, v[i], is24)",
                       "ok &= is24 ? word_is24(v[i], w->epoch) : v[i] >> 32 != 0"));
    CAUGHT("best", IN("best.cuh", "word_is(key, w->epoch) & word_is(id, w->epoch)",
                      "key >> 32 && id >> 32"));
}

static void sums_taken_without_their_epoch_are_seen(void **state) {
    (void)state;
    CAUGHT("out and down",
           IN("exchange.cuh", "ok &= word_is24(v[i][g], w->epoch);", "ok &= v[i][g] >> 48 != 0;"),
           IN("exchange.cuh", "(!polls || !word_is24(v[i][g], w->epoch))", "1"));
}

static void keys_and_values_fetched_too_early_are_seen(void **state) {
    (void)state;
    CAUGHT("K/V not waiting for the token's end",
           IN("kv_ring.cuh", "if (t > 0 && !kv_token_wait(w, t)) break;", ""));
    CAUGHT("the token's end not agreed between blocks",
           IN("phase_pick.cuh", "best_wait(w, w->a->words + X_BEST);", ""));
    CAUGHT("the writer's fence",
           IN("decode.cu", "fence_gpu(); /* K and V rows", "/* K and V rows"));
    CAUGHT("the reader's fences", IN("kv_ring.cuh", "    fence_gpu();\n    fence_copies();\n", ""));
    CAUGHT("the fence between loads and copies", IN("kv_ring.cuh", "    fence_copies();\n", ""));
}

static void ring_slots_out_of_turn_are_seen(void **state) {
    (void)state;
    CAUGHT(
        "a weight slot given back before it is read",
        IN("ring.cuh", "slots_wait(w, 0, slots);",
           "slots_wait(w, 0, slots);\n    if (w->lane < slots) mbar_arrive(w->empty + (smem)mine * "
           "8);"),
        IN("ring.cuh", "if (w->lane < slots) mbar_arrive_after(", "if (0) mbar_arrive_after("));
    CAUGHT("a weight slot filled before it is free",
           IN("ring.cuh", "if (!p->first_lap && !stream_wait", "if (0 && !stream_wait"));
    CAUGHT("weights not waited for", IN("ring.cuh", "slots_wait(w, 0, slots);", ""));
    CAUGHT("the head's weights not waited for",
           IN("phase_head.cuh", "if (w->lane == 0) mbar_wait(", "if (0) mbar_wait("));
    CAUGHT("K/V not waited for", IN("kv_ring.cuh", "    if (w->lane == 0)\n        mbar_wait(",
                                    "    if (0)\n        mbar_wait("));
    CAUGHT("a K/V slot given back before it is read",
           IN("kv_ring.cuh", "    lanes_agree(w);\n}",
              "    if (w->lane == 0) mbar_arrive(smem_of(&w->s->kv_empty[kv_slot(w)]));\n}"),
           IN("kv_ring.cuh", "if (w->lane == 0) mbar_arrive_after(", "if (0) mbar_arrive_after("));
    CAUGHT("a K/V slot filled before it is free",
           IN("kv_ring.cuh", "if (!stream_wait(w, p->empty", "if (0 && !stream_wait(w, p->empty"));
}

static void missing_barriers_are_seen(void **state) {
    (void)state;
    CAUGHT("one barrier for all phases",
           EVERYWHERE("shared.cuh", "BARRIER_PARTS + w->parts", "BARRIER_PARTS"));
    CAUGHT("sums not waiting for the products",
           IN("shared.cuh", "DEV void parts_wait(struct worker *w) {\n    barrier_wait(",
              "DEV void parts_wait(struct worker *w) {\n    barrier_arrive("));
    CAUGHT("sines and cosines used before they are there",
           IN("phase_attention.cuh", "if (nth == 0) consumers_sync();", ""));
    CAUGHT("q, k and v used before they are there",
           IN("phase_attention.cuh", "consumers_sync(); /* A */", ""));
    CAUGHT("partial results merged before they are there",
           IN("phase_attention.cuh", "consumers_sync(); /* B */", ""));
    CAUGHT("attention's result used before it is there",
           IN("phase_attention.cuh", "consumers_sync(); /* C */", ""));
    CAUGHT("the head's input used before it is there",
           IN("phase_head.cuh", "consumers_sync();", ""));
    CAUGHT("the next id used before it is there",
           EVERYWHERE("phase_pick.cuh", "consumers_sync();", ""));
}

static void nothing_is_seen_where_nothing_is_wrong(void **state) {
    (void)state;
    struct reel_error err = { 0 };
    struct sim_gpu gpu = gpu_start();
    require(sim_model_load(&model, options, &err), &err);
    for (int seed = 0; seed < (getenv("REEL_SOAK") ? 2000 : 6); seed++)
        if (!runs_right(&gpu, seed)) fail_msg("schedule %d: %s", seed, gpu.cuda->report);
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
