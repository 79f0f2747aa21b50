/* Orderings taken out of the kernels that read prompts, one at a time: the simulator must see each
 * of them, as other bits, as a report, or as a wait that never ends. */
#include "support/sim_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_KEPT = 5, MOST = 145, N_IDS = N_KEPT + MOST, MAX_PATCHES = 4 };
enum { TWO_STAGES = 100 << 10 };

#define CUT "n_groups=2,group_sms=2,warps=4,prefill_tokens=256,prefill_from=2,launch_tokens=256"

/* Prompts of two lengths from amid a piece of the cache. */
struct way {
    const char *options;
    int shared_bytes; /* of the GPU; 0: as it comes */
    int lengths[2];
    float *right; /* [2][vocab]: logits of the last position of each */
};
/* By the queue, so that products are cut in all ways, with so little shared memory that the ring
 * has two stages; in one launch, of one pair of atoms and of two. */
static struct way queue = { CUT ",short_positions=0", TWO_STAGES, { 39, MOST }, NULL };
static struct way shorts = { CUT, 0, { 9, 23 }, NULL };
static struct way *way = &queue;

static struct sim_model model;
static int32_t ids[N_IDS];

static void require(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK) fail_msg("%s\n%s", err->text, sim_gpu_current().cuda->report);
}

static struct sim_gpu gpu_start(void) {
    struct sim_gpu gpu = sim_gpu_controls();
    gpu.cuda->gpu.n_sms = 4;
    if (way->shared_bytes) gpu.cuda->gpu.shared_bytes = way->shared_bytes;
    gpu.cuda->settings.idle_limit = 300;
    return gpu;
}

static int tear_down(void **state) {
    (void)state;
    free(queue.right), free(shorts.right);
    sim_model_close(&model);
    return 0;
}

static struct reel_session *session_open(void) {
    struct reel_error err = { 0 };
    struct reel_session *session;
    const struct reel_session_options o = { .size = sizeof o, .max_context = N_IDS };
    require(reel_session_open(&session, model.gpu, &o, &err), &err);
    return session;
}

/* A session of its own: nothing of a prompt read before is there. */
static bool evaluate(struct sim_gpu *gpu, int seed, float *logits) {
    struct reel_error err = { 0 };
    struct reel_session *session = session_open();
    struct reel_eval eval = { .size = sizeof eval,
                              .n = way->lengths[0],
                              .ids = ids + N_KEPT,
                              .output = REEL_OUTPUT_LAST_LOGITS,
                              .out = logits,
                              .out_floats = (size_t)model.vocab };
    gpu->cuda->settings.in_order = seed < 0;
    gpu->cuda->settings.seed = (uint64_t)seed, gpu->cuda->n_launches = 0;
    bool done = reel_session_sync(session, ids, N_KEPT, NULL, &err) == REEL_OK &&
                reel_session_eval(session, &eval, &err) == REEL_OK &&
                reel_session_truncate(session, N_KEPT, &err) == REEL_OK;
    eval.n = way->lengths[1], eval.out = logits + model.vocab;
    done = done && reel_session_eval(session, &eval, &err) == REEL_OK;
    reel_session_close(session);
    return done;
}

static void make_right(struct way *w) {
    struct reel_error err = { 0 };
    way = w;
    struct sim_gpu gpu = gpu_start();
    w->right = malloc(2 * (size_t)model.vocab * sizeof *w->right);
    require(sim_model_load(&model, w->options, &err), &err);
    if (!evaluate(&gpu, -1, w->right)) fail_msg("%s", gpu.cuda->report);
    sim_model_unload(&model);
}

static int set_up(void **state) {
    (void)state;
    for (int i = 0; i < N_IDS; i++)
        ids[i] = (i * 37 + 11) % 300;
    sim_model_open(&model, "q3-p");
    make_right(&shorts);
    make_right(&queue);
    return 0;
}

static bool runs_right(struct sim_gpu *gpu, int seed) {
    float *logits = malloc(2 * (size_t)model.vocab * sizeof *logits);
    bool right = evaluate(gpu, seed, logits) &&
                 memcmp(logits, way->right, 2 * (size_t)model.vocab * sizeof *logits) == 0;
    free(logits);
    return right;
}

static int n_tries(void) { return getenv("REEL_SOAK") ? 400 : 12; }

/* The first schedule that goes wrong; n_tries() when none does. */
static int first_wrong(const char *what, const struct fake_patch *patches) {
    struct reel_error err = { 0 };
    int n = 0, seed = 0;
    while (n < MAX_PATCHES && patches[n].file)
        n++;
    struct sim_gpu gpu = gpu_start();
    gpu.nvrtc->patches = patches, gpu.nvrtc->n_patches = n;
    require(sim_model_load(&model, way->options, &err), &err);
    while (seed < n_tries() && runs_right(&gpu, seed))
        seed++;
    printf("%s: schedule %d%s%.60s\n", what, seed, *gpu.cuda->report ? ": " : "", gpu.cuda->report);
    sim_model_unload(&model);
    return seed;
}

/* Each is compiled anew: every third is enough here, the soak has all. */
static void caught(const char *what, const struct fake_patch *patches) {
    static int turn;
    if (!getenv("REEL_SOAK") && turn++ % 3) return;
    if (first_wrong(what, patches) == n_tries())
        fail_msg("%s: not seen in %d schedules", what, n_tries());
}

#define IN(file, from, to)                                                                         \
    { file, from, to, false }
#define EVERYWHERE(file, from, to)                                                                 \
    { file, from, to, true }
#define CAUGHT(what, ...) caught(what, (const struct fake_patch[MAX_PATCHES + 1]){ __VA_ARGS__ })

#define SHARED  "prefill_shared.cuh"
#define PRODUCT "prefill_product.cuh"
#define ITEMS   "prefill_items.cuh"

static void launches_that_do_not_wait_for_the_one_before_are_seen(void **state) {
    (void)state;
    CAUGHT("few tokens",
           IN(PRODUCT, "n_turns, format);\n    previous_over();", "n_turns, format);"));
    CAUGHT("many tokens",
           IN(ITEMS, "w.first_tile, tiles);\n    previous_over();", "w.first_tile, tiles);"));
    CAUGHT("activations",
           IN(PRODUCT, "    previous_over();\n    fence_copies();", "    fence_copies();"));
    CAUGHT("rope", IN("prefill_attention.cuh",
                      "        if (item == (int)block_index()) previous_over();\n", ""));
    CAUGHT("attention", IN("prefill.cu", "    previous_over();\n    if (r.w.warp < READ_WARPS) {",
                           "    if (r.w.warp < READ_WARPS) {"));
    CAUGHT("the end", IN("prefill.cu", "    previous_over();\n    if (thread_index() != 0",
                         "    if (thread_index() != 0"));
}

static void stages_out_of_turn_are_seen(void **state) {
    (void)state;
    CAUGHT("a stage not waited for",
           IN(SHARED, "    if (r->w.lane == 0) mbar_wait(", "    if (0) mbar_wait("));
    CAUGHT("a stage filled before it is free", IN(SHARED, "if (!r->first_lap) {", "if (0) {"));
    CAUGHT(
        "a stage given back before it is read",
        IN(SHARED, "    warp_sync();\n}\nDEV const u8 *stage_take",
           "    warp_sync();\n    if (r->w.lane == 0) "
           "mbar_arrive(smem_of(&r->s->empty[r->stage]));\n"
           "}\nDEV const u8 *stage_take"),
        IN(SHARED, "    if (r->w.lane == 0) mbar_arrive_after(", "    if (0) mbar_arrive_after("));
}

static void warps_that_do_not_meet_are_seen(void **state) {
    (void)state;
    CAUGHT("places of tiles used before they are there",
           IN("prefill.cu", "k_places_make(r, phase);\n        readers_sync();",
              "k_places_make(r, phase);"));
    CAUGHT("scales used before they are there, and the item before not over",
           EVERYWHERE(PRODUCT, "        readers_sync(); /* the scales are there",
                      "        /* the scales are there"),
           IN(ITEMS, "        readers_sync(); /* the scales are there",
              "        /* the scales are there"));
    CAUGHT("eighths not meeting",
           IN(PRODUCT, "d[16 * round + i];\n        readers_sync();", "d[16 * round + i];"));
    CAUGHT("eighths' second round before the first is over",
           IN(PRODUCT, "if (round == 0 && atoms > 4) readers_sync();", ""));
    CAUGHT("halves not meeting",
           IN(ITEMS, "d[i] = half ? d[16 + i] : d[i];\n    }\n    readers_sync();",
              "d[i] = half ? d[16 + i] : d[i];\n    }"));
    CAUGHT("sums of squares added up before they are there",
           IN(PRODUCT, "    barrier_wait(HALF_BARRIER + half",
              "    if (0) barrier_wait(HALF_BARRIER + half"));
    CAUGHT("one warp's sums of squares",
           IN(PRODUCT, "        warp_sync(); /* the sums of squares */\n", ""));
}

static void attention_out_of_order_is_seen(void **state) {
    (void)state;
    CAUGHT("angles used before they are there",
           IN("prefill_attention.cuh", "table + at);\n    }\n    readers_sync();",
              "table + at);\n    }"));
    CAUGHT("angles made while others still use them",
           IN("prefill_attention.cuh", "    readers_sync(); /* the piece before is over */\n", ""));
}

#define BRIEF_SHARED    "short_shared.cuh"
#define BRIEF_ATTENTION "short_attention.cuh"
#define BRIEF_PRODUCT   "short_product.cuh"

static void short_prompts_words_taken_too_early_are_seen(void **state) {
    (void)state;
    way = &shorts;
    CAUGHT("x", IN(BRIEF_SHARED, "(is_x ? X_TAG : ~0u);", "(is_x ? 0 : ~0u);"));
    CAUGHT("q, k, v and gated values",
           IN(BRIEF_SHARED, "(is_x ? X_TAG : ~0u);", "(is_x ? X_TAG : 0);"));
    CAUGHT("sums",
           IN("short.cu", "return word_is24(f->low, b->w.epoch) & word_is24(f->high, b->w.epoch);",
              "return 1;"));
    CAUGHT("sums of squares",
           IN(BRIEF_PRODUCT, "off |= (u32)(s->v[i] >> 32) ^ b->w.epoch;", "off |= 0;"));
    way = &queue;
}

static void short_prompts_warps_that_do_not_meet_are_seen(void **state) {
    (void)state;
    way = &shorts;
    CAUGHT("sums added up before they are there",
           IN(BRIEF_PRODUCT,
              "    sums_give(b, &sums, rows, PAIR, k_parts);\n    consumers_sync();\n",
              "    sums_give(b, &sums, rows, PAIR, k_parts);\n"));
    CAUGHT("sums of a wide run added up before they are there",
           IN(BRIEF_PRODUCT,
              "        sums_give(b, &sums, rows, WIDE, k_parts);\n        consumers_sync();\n",
              "        sums_give(b, &sums, rows, WIDE, k_parts);\n"));
    CAUGHT("sums of a wide run overwritten",
           IN(BRIEF_PRODUCT, "        consumers_sync(); /* the run before has been added up */\n",
              ""));
    CAUGHT("one buffer of sums",
           IN(BRIEF_PRODUCT, "PAIR, row_tiles, k_parts);\n    b->turn ^= 1;\n",
              "PAIR, row_tiles, k_parts);\n"));
    CAUGHT("operands used before they are there",
           IN(BRIEF_ATTENTION, "whole kernel */\n    consumers_sync();", "whole kernel */"));
    CAUGHT("parts merged before they are there",
           IN(BRIEF_ATTENTION, "    if (parts > 1) consumers_sync();\n", ""));
    CAUGHT("attention's result used before it is there",
           IN(BRIEF_ATTENTION, "        rows_end(b, &x, head, atom);\n    }\n    consumers_sync();",
              "        rows_end(b, &x, head, atom);\n    }"));
    way = &queue;
}

static void nothing_is_seen_where_nothing_is_wrong(void **state) {
    (void)state;
    static const struct fake_patch none[1] = { { NULL, NULL, NULL, false } };
    assert_int_equal(first_wrong("nothing", none), n_tries());
    way = &shorts;
    assert_int_equal(first_wrong("nothing in short prompts", none), n_tries());
    way = &queue;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_seen_where_nothing_is_wrong),
        cmocka_unit_test(launches_that_do_not_wait_for_the_one_before_are_seen),
        cmocka_unit_test(stages_out_of_turn_are_seen),
        cmocka_unit_test(warps_that_do_not_meet_are_seen),
        cmocka_unit_test(attention_out_of_order_is_seen),
        cmocka_unit_test(short_prompts_words_taken_too_early_are_seen),
        cmocka_unit_test(short_prompts_warps_that_do_not_meet_are_seen),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
