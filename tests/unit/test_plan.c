/* The planner: every shape on every known GPU, wishes, refusals, and a checker that finds what was
 * broken on purpose. */
#include "base/file_map.h"
#include "kernels/kv_layout.h"
#include "model/synthetic.h"
#include "plan/gpu_memory_plan.h"
#include "plan/plan_layout.h"
#include "support/sanitized.h"
#include "support/shares.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const named[] = { "qwen3-0.6b",     "qwen3-1.7b",   "qwen3-4b",
                                     "qwen3-8b",       "smollm2-135m", "smollm2-360m",
                                     "smollm2-1.7b",   "llama-3.2-1b", "llama-3.2-3b",
                                     "tinyllama-1.1b", "mistral-7b",   "qwen2.5-0.5b",
                                     "qwen2.5-1.5b",   "qwen2.5-3b",   "qwen3.5-0.8b" };
static const char *const small[] = {
    "models/demo/config.json",          "tests/golden/models/q3-a.json",
    "tests/golden/models/q3-b.json",    "tests/golden/models/q3-c.json",
    "tests/golden/models/q3-long.json", "tests/golden/models/q3-w.json",
    "tests/golden/models/ll-a.json",    "tests/golden/models/ll-b.json",
    "tests/golden/models/ll-d.json",    "tests/golden/models/mi-a.json",
    "tests/golden/models/qw2-a.json",   "tests/golden/models/qw2-b.json",
    "tests/golden/models/q35-a.json",   "tests/golden/models/q35-b.json",
    "tests/golden/models/q35-c.json"
};
#define COUNT(list) (sizeof(list) / sizeof *(list))

static struct model_config config_of(const char *name) {
    struct reel_error err = { 0 };
    struct buffer text = { 0 };
    struct file_map map = { 0 };
    struct model_source source = { 0 };
    struct model_config config = { 0 };
    bool found = false;
    enum reel_status status = synthetic_shape_config(&text, name, &found, &err);
    if (status == REEL_OK && !found) status = file_map_open(&map, name, &err);
    if (status == REEL_OK && !found) status = buffer_append(&text, map.bytes, map.size, &err);
    const struct reel_memory_file file = { "config.json", text.bytes, text.size };
    if (status == REEL_OK) status = model_source_open_memory(&source, name, &file, 1, &err);
    if (status == REEL_OK) status = model_config_read(&config, &source, &err);
    if (status != REEL_OK) fail_msg("%s: %s", name, err.text);
    model_source_release(&source);
    file_map_close(&map);
    buffer_release(&text);
    return config;
}

static struct plan made(const struct model_config *config, const char *gpu,
                        const struct plan_options *options) {
    struct reel_error err = { 0 };
    struct plan plan;
    if (plan_make(&plan, config, plan_known_gpu(gpu), options, &err) != REEL_OK)
        fail_msg("%s: %s", gpu, err.text);
    return plan;
}

static void check(const struct plan *plan, const struct model_config *config, bool thorough) {
    struct reel_error err = { 0 };
    if (plan_check(plan, config, thorough, &err) != REEL_OK)
        fail_msg("%s, hidden %d: %s", plan->gpu.name, config->hidden, err.text);
}

static char *constants(const struct plan *plan) {
    struct buffer text = { 0 };
    struct reel_error err = { 0 };
    if (plan_constants(plan, &text, &err) != REEL_OK) fail_msg("%s", err.text);
    return buffer_detach(&text, NULL);
}

/* The n-th known GPU's name, "" after the last. */
static void gpu_name(char *name, size_t size, int n) {
    const char *at = plan_known_gpus;
    while (n-- > 0 && at) {
        at = strchr(at, ',');
        if (at) at += 2;
    }
    snprintf(name, size, "%.*s", at ? (int)strcspn(at, ",") : 0, at ? at : "");
}

/* ---- making ---------------------------------------------------------------------------------- */

static void qwen3_06b_on_an_h200_is_what_was_measured(void **state) {
    (void)state;
    struct model_config config = config_of("qwen3-0.6b");
    struct plan p = made(&config, "h200", NULL);
    assert_int_equal(p.tape.n_groups, 8);
    assert_int_equal(p.tape.group_sms, 16);
    assert_int_equal(p.tape.warps, 8);
    assert_int_equal(p.registers_consumer, 224);
    assert_int_equal(p.ring_slots, 8);
    assert_int_equal(p.slot_bytes, 16384);
    assert_int_equal(p.cap_layers, 2);
    assert_int_equal(p.cap_head, 8);
    assert_int_equal(p.kv_slots, 8);
    assert_int_equal(p.kv_piece_bytes, 8192);
    assert_int_equal(p.copy, 2);
    assert_int_equal(p.token_bytes, 1191968768);
    assert_int_equal(p.kv_position_bytes, 114688);
    assert_int_equal(p.tape.segment[TAPE_QKV].rows, 32);
    assert_int_equal(p.tape.segment[TAPE_GATE_UP].rows, 48);
    assert_int_equal(p.exchange[X_OUT_SUM].words, 4096);
    assert_int_equal(p.exchange[X_OUT_SUM].readers, 128);
    assert_int_equal(p.exchange[X_QKV].words, 8 * 256);
    assert_int_equal(p.exchange[X_QKV].readers, 16);
}

static struct gpu_limits times(const char *name, int n) {
    struct gpu_limits gpu = *plan_known_gpu(name);
    gpu.n_gpus = n;
    return gpu;
}

/* Groups are shared out to GPUs evenly, none spans two, and each GPU keeps its own part. */
static void several_gpus_share_the_groups(void **state) {
    (void)state;
    static const struct {
        const char *model, *gpu;
        int n_gpus;
    } all[] = { { "qwen3-0.6b", "h200", 2 },
                { "qwen3-8b", "h200", 2 },
                { "qwen3-4b", "h200", 2 },
                { "qwen3.5-0.8b", "h200", 2 },
                { "qwen3-0.6b", "rtx4090", 4 } };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct model_config config = config_of(all[i].model);
        const struct gpu_limits gpu = times(all[i].gpu, all[i].n_gpus);
        const struct plan one = made(&config, all[i].gpu, NULL);
        struct reel_error err = { 0 };
        struct plan p;
        if (plan_make(&p, &config, &gpu, NULL, &err) != REEL_OK)
            fail_msg("%s: %s", all[i].model, err.text);
        check(&p, &config, false);
        assert_int_equal(p.n_gpus, all[i].n_gpus);
        assert_int_equal(p.tape.n_groups % p.n_gpus, 0);
        assert_true(p.tape.n_sms / p.n_gpus <= gpu.n_sms);
        assert_true(p.tape.n_sms > gpu.n_sms);
        assert_int_equal(p.kv_page_bytes * (unsigned)p.n_gpus,
                         p.kv_position_bytes * (unsigned)(p.kv_page * KV_POSITIONS));
        assert_true(p.prefill_tokens > 0);
        assert_int_equal(p.short_tokens > 0, p.delta.n_layers == 0);
        struct gpu_memory_plan m, whole;
        gpu_memory_plan_fill(&m, &p, &config, 4096, &gpu_memory_usual);
        gpu_memory_plan_fill(&whole, &one, &config, 4096, &gpu_memory_usual);
        assert_int_equal(m.bytes[GPU_TAPES] * (unsigned)p.n_gpus, p.tape_bytes);
        assert_int_equal(m.bytes[GPU_KV] * (unsigned)p.n_gpus, whole.bytes[GPU_KV]);
    }
}

/* Every weight has one place on all GPUs together. */
static void every_weight_has_one_place_on_several_gpus(void **state) {
    (void)state;
    const struct model_config config = config_of("tests/golden/models/q35-c.json");
    const struct gpu_limits gpu = times("test8", 2);
    struct reel_error err = { 0 };
    struct plan p;
    if (plan_make(&p, &config, &gpu, NULL, &err) != REEL_OK) fail_msg("%s", err.text);
    check(&p, &config, true);
}

/* Three KV heads of two GPUs are four, the last of which is none of the model's; eight of three are
 * nine. One GPU has the model's. */
static void kv_heads_are_made_up_to_a_multiple(void **state) {
    (void)state;
    static const struct {
        const char *model;
        int n_gpus, kv_heads, heads, none;
    } all[] = { { "smollm2-135m", 1, 3, 9, 0 },
                { "smollm2-135m", 2, 4, 12, 1 },
                { "qwen3-0.6b", 3, 9, 18, 1 },
                { "qwen3.5-0.8b", 8, 8, 32, 6 } };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct model_config config = config_of(all[i].model);
        const struct gpu_limits gpu = times("h200", all[i].n_gpus);
        struct reel_error err = { 0 };
        struct plan p;
        if (plan_make(&p, &config, &gpu, NULL, &err) != REEL_OK) fail_msg("%s", err.text);
        check(&p, &config, i == 1);
        assert_int_equal(p.n_kv_heads, all[i].kv_heads);
        assert_int_equal(p.n_heads, all[i].heads);
        assert_int_equal(p.none_kv_heads, all[i].none);
    }
}

static void gpus_that_cannot_share_a_model_are_refused(void **state) {
    (void)state;
    const struct model_config config = config_of("qwen3-0.6b");
    const struct gpu_limits three = times("h200", 3), two = times("h200", 2);
    const struct plan_options odd = { .n_groups = 1 }, large = { .n_groups = 8, .group_sms = 34 };
    struct reel_error err = { 0 };
    struct plan p;
    const struct model_config hybrid = config_of("qwen3.5-0.8b");
    assert_int_equal(plan_make(&p, &hybrid, &three, NULL, &err), REEL_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "3 GPUs cannot share 16 linear key heads"));
    assert_int_equal(plan_make(&p, &config, &two, &odd, &err), REEL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "groups 1: 2 to 8 are possible here"));
    assert_int_equal(plan_make(&p, &config, &two, &large, &err), REEL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "SMs a group 34: 1 to 33 are possible here"));
}

static void qwen35_08b_on_an_h200_has_two_groups(void **state) {
    (void)state;
    struct model_config config = config_of("qwen3.5-0.8b");
    struct plan p = made(&config, "h200", NULL);
    assert_int_equal(p.tape.n_groups, 2);
    assert_int_equal(p.tape.group_sms, 64);
    assert_int_equal(p.tape.segment[TAPE_MIX].rows, 64);
    assert_int_equal(p.tape.segment[TAPE_QKV].rows, 40);
    assert_int_equal(p.tape.segment[TAPE_OUT].k_tiles, 64);
    assert_int_equal(p.tape.delta_layers[0], 0x777777);
    assert_int_equal(p.delta.units, 64);
    assert_int_equal(p.delta.unit, 16);
    assert_int_equal(p.delta.state_bytes, 18874368);
    assert_int_equal(p.delta.window_bytes, 1327104);
    assert_int_equal(p.kv_position_bytes, 12288);
    assert_int_equal(p.exchange[X_MIX].words, 2 * 2048);
    assert_int_equal(p.exchange[X_MERGED].words, 2 * 512);
    assert_true(p.merge_scatter);
    assert_int_equal(p.prefill_tokens, 2048);
    assert_int_equal(p.prefill_chunk_shared, 100368);
    assert_in_range(p.scratch.bytes, 2048 * 97792, 2048 * 97792 + 65536);
    assert_int_equal(p.short_tokens, 0);
}

static void every_shape_fits_every_large_gpu(void **state) {
    (void)state;
    static const char *const gpus[] = { "a100", "rtx3090", "rtx4090", "h100",
                                        "h200", "b200",    "rtx5090" };
    for (size_t g = 0; g < COUNT(gpus); g++) {
        for (size_t i = 0; i < COUNT(named); i++) {
            struct model_config config = config_of(named[i]);
            struct plan plan = made(&config, gpus[g], NULL);
            check(&plan, &config, false);
            if (plan.imbalance < 1 || plan.imbalance > 1.6)
                fail_msg("%s on %s: imbalance %.3f", named[i], gpus[g], plan.imbalance);
        }
    }
}

static void every_other_pair_is_planned_or_refused_in_words(void **state) {
    (void)state;
    char gpu[32];
    int n_gpus = 0, n_made = 0;
    for (gpu_name(gpu, sizeof gpu, 0); gpu[0]; gpu_name(gpu, sizeof gpu, ++n_gpus)) {
        assert_non_null(plan_known_gpu(gpu));
        for (size_t i = 0; i < COUNT(named); i++) {
            struct model_config config = config_of(named[i]);
            struct reel_error err = { 0 };
            struct plan plan;
            enum reel_status status = plan_make(&plan, &config, plan_known_gpu(gpu), NULL, &err);
            if (status == REEL_OK) {
                check(&plan, &config, false);
                n_made++;
                continue;
            }
            assert_int_equal(status, REEL_E_UNSUPPORTED);
            assert_non_null(strstr(err.text, gpu));
        }
    }
    assert_int_equal(n_gpus, 11);
    assert_true(n_made >= 75);
    assert_null(plan_known_gpu("abacus"));
}

static void every_weight_of_small_models_has_one_place_on_every_gpu(void **state) {
    (void)state;
    char gpu[32];
    int n = 0;
    for (gpu_name(gpu, sizeof gpu, 0); gpu[0]; gpu_name(gpu, sizeof gpu, ++n)) {
        for (size_t i = 0; i < COUNT(small); i++) {
            if (sanitized_briefly() && (i + (size_t)n) % 4 != 0) continue; /* each on some GPUs */
            struct model_config config = config_of(small[i]);
            struct reel_error err = { 0 };
            struct plan plan;
            if (plan_make(&plan, &config, plan_known_gpu(gpu), NULL, &err) != REEL_OK) {
                assert_non_null(strstr(err.text, "test")); /* too many rows for a few SMs */
                continue;
            }
            check(&plan, &config, true);
        }
    }
}

static void every_weight_has_one_place_for_all_groups_and_warps(void **state) {
    (void)state;
    struct model_config config = config_of("tests/golden/models/q3-b.json");
    config.n_heads = 8, config.n_kv_heads = 4, config.intermediate = 171, config.hidden = 90;
    config.vocab = 509, config.n_layers = 2;
    int n_made = 0;
    for (int groups = 1; groups <= 4; groups *= 2)
        for (int sms = 1; sms <= 8 / groups; sms++)
            for (int warps = 4; warps <= 16; warps += 2) {
                struct plan_options wish = { .n_groups = groups, .group_sms = sms, .warps = warps };
                struct plan plan;
                struct reel_error err = { 0 };
                if (plan_make(&plan, &config, plan_known_gpu("test8"), &wish, &err) != REEL_OK) {
                    assert_non_null(strstr(err.text, "registers")); /* many rows, many warps */
                    continue;
                }
                n_made++;
                assert_int_equal(plan.tape.n_groups, groups);
                assert_int_equal(plan.tape.group_sms, sms);
                assert_int_equal(plan.tape.warps, warps);
                check(&plan, &config, true);
            }
    assert_true(n_made >= 80);
}

/* Layers of both kinds in any order, beyond the first mask, too. */
static void layers_of_two_kinds_follow_each_other(void **state) {
    (void)state;
    struct model_config config = config_of("tests/golden/models/q35-b.json");
    config.n_layers = 71;
    for (int i = 0; i < config.n_layers; i++)
        config.layer_kinds[i] = i % 3 == 1 || i > 60 ? LAYER_DELTA : LAYER_ATTENTION;
    for (int sms = 3; sms <= 5; sms++) {
        struct plan p = made(&config, "test8", &(struct plan_options){ .group_sms = sms });
        const struct tape_shape *t = &p.tape;
        unsigned long long at = 0;
        int nth[2] = { 0, 0 };
        for (int i = 0; i < config.n_layers; i++) {
            const bool is_delta = model_layer_is(&config, i, LAYER_DELTA);
            assert_int_equal(tape_is_delta(t, i), is_delta);
            assert_int_equal(tape_nth(t, i), nth[is_delta]++);
            assert_int_equal(tape_layer_offset(t, i), at);
            at += is_delta ? t->delta_bytes : t->layer_bytes;
        }
        assert_int_equal(t->layers_bytes, at);
        check(&p, &config, true);
    }
}

/* Value heads of their own number and width, which no group's or SM's share divides. */
static void every_weight_of_a_hybrid_has_one_place_for_all_groups_and_warps(void **state) {
    (void)state;
    struct model_config config = config_of("tests/golden/models/q35-b.json");
    config.n_kv_heads = 2, config.n_layers = 4, config.hidden = 90, config.intermediate = 171;
    config.delta.key_heads = 4, config.delta.value_heads = 12, config.delta.value_dim = 20;
    int n_made = 0;
    for (int groups = 1; groups <= 2; groups++)
        for (int sms = 1; sms <= 8 / groups; sms++)
            for (int warps = 4; warps <= 16; warps += 4) {
                struct plan_options wish = { .n_groups = groups, .group_sms = sms, .warps = warps };
                struct plan plan;
                struct reel_error err = { 0 };
                if (plan_make(&plan, &config, plan_known_gpu("test8"), &wish, &err) != REEL_OK) {
                    assert_non_null(strstr(err.text, "registers"));
                    continue;
                }
                n_made++;
                check(&plan, &config, true);
            }
    assert_true(n_made >= 25);
}

static void wishes_come_true(void **state) {
    (void)state;
    struct model_config config = config_of("qwen3-0.6b");
    const struct plan_options wish = { .compute = 80,
                                       .n_groups = 4,
                                       .group_sms = 32,
                                       .warps = 8,
                                       .ring_slots = 8,
                                       .kv_slots = 4,
                                       .epilogue_warps = 3,
                                       .cap_layers = 5,
                                       .cap_head = 7,
                                       .cap_kv = 2,
                                       .split_from = 99 };
    struct plan p = made(&config, "h200", &wish);
    assert_int_equal(p.compute, 80);
    assert_int_equal(p.copy, 1);
    assert_int_equal(p.registers_consumer, 0);
    assert_int_equal(p.tape.n_groups, 4);
    assert_int_equal(p.tape.n_sms, 128);
    assert_int_equal(p.tape.warps, 8);
    assert_int_equal(p.ring_slots, 8);
    assert_int_equal(p.kv_slots, 4);
    assert_int_equal(p.epilogue_warps, 3);
    assert_int_equal(p.cap_layers, 5);
    assert_int_equal(p.cap_head, 7);
    assert_int_equal(p.cap_kv, 2);
    assert_int_equal(p.split_from, 99);
    struct plan old = made(&config, "h200", &(struct plan_options){ .compute = 75 });
    assert_int_equal(old.copy, 0);
}

static void little_shared_memory_means_fewer_warps(void **state) {
    (void)state;
    struct model_config config = config_of("qwen3-0.6b");
    struct plan h200 = made(&config, "h200", NULL), t4 = made(&config, "t4", NULL);
    assert_true(t4.shared_bytes <= 64 << 10);
    assert_true(t4.tape.warps < h200.tape.warps);
    assert_true(t4.copy == 0);
}

/* ---- refusing -------------------------------------------------------------------------------- */

static void refused(const struct model_config *config, const struct gpu_limits *gpu,
                    const struct plan_options *options, const char *words) {
    struct reel_error err = { 0 };
    struct plan plan;
    if (plan_make(&plan, config, gpu, options, &err) == REEL_OK) fail_msg("not refused: %s", words);
    if (!strstr(err.text, words)) fail_msg("\"%s\" does not say \"%s\"", err.text, words);
}

static void wishes_that_cannot_be_are_refused(void **state) {
    (void)state;
    struct model_config config = config_of("qwen3-0.6b");
    const struct gpu_limits *gpu = plan_known_gpu("h200");
    const struct {
        struct plan_options wish;
        const char *words;
    } cases[] = {
        { { .n_groups = 3 }, "groups 3" },
        { { .n_groups = 16 }, "groups 16: 1 to 8" },
        { { .n_groups = 8, .group_sms = 17 }, "SMs a group 17: 1 to 16" },
        { { .warps = 5 }, "warps 5: an even number" },
        { { .warps = 18 }, "warps 18: 4 to 16" },
        { { .warps = -2 }, "warps -2" },
        { { .compute = 100 }, "compute capability 100" },
        { { .compute = 70 }, "compute capability 70" },
        { { .kv_slots = 40 }, "K/V slots 40: 1 to 32" },
        { { .prefill_tokens = 100 }, "prefill tokens 100: a multiple of 128" },
        { { .prefill_tokens = -128 }, "prefill tokens -128" },
        { { .warps = 16, .ring_slots = 3 }, "as asked for" },
        { { .warps = 16, .ring_slots = 16, .n_groups = 1, .group_sms = 1 }, "h200" },
    };
    for (size_t i = 0; i < COUNT(cases); i++)
        refused(&config, gpu, &cases[i].wish, cases[i].words);
}

static void models_and_gpus_beyond_the_kernels_are_refused(void **state) {
    (void)state;
    const struct model_config good = config_of("qwen3-0.6b");
    const struct gpu_limits *h200 = plan_known_gpu("h200");
    struct model_config c = good;
    c.head_dim = 14;
    refused(&c, h200, NULL, "head_dim 14");
    c = good, c.hidden = 1023;
    refused(&c, h200, NULL, "hidden size 1023");
    c = good, c.n_heads = 80;
    refused(&c, h200, NULL, "80 heads for 8 KV heads");
    struct gpu_limits gpu = *h200;
    gpu.compute = 70;
    refused(&good, &gpu, NULL, "compute capability 7.0");
    gpu = *h200, gpu.shared_bytes = 16 << 10;
    refused(&good, &gpu, NULL, "16 KB of shared memory");
    gpu = *h200, gpu.max_threads = 128;
    refused(&good, &gpu, NULL, "128 are allowed");
    gpu = *h200, gpu.n_sms = 0;
    refused(&good, &gpu, NULL, "0 SMs");
}

/* ---- the checker ----------------------------------------------------------------------------- */

static void found(const struct model_config *config, const struct plan *plan, bool thorough,
                  const char *words) {
    struct reel_error err = { 0 };
    if (plan_check(plan, config, thorough, &err) == REEL_OK) fail_msg("not found: %s", words);
    if (!strstr(err.text, words)) fail_msg("\"%s\" does not say \"%s\"", err.text, words);
}

/* A last row tile of up to 8 rows is of half tiles, on several GPUs. */
static void rows_that_fill_half_a_tile_have_half_tiles(void **state) {
    (void)state;
    static const struct {
        const char *model;
        int half[TAPE_N_PHASES];
    } all[] = {
        { "qwen3-0.6b", { [TAPE_QKV] = 1, [TAPE_OUT] = 1 } },
        { "qwen3-8b", { [TAPE_QKV] = 1 } },
        { "qwen3.5-0.8b", { [TAPE_QKV] = 1, [TAPE_OUT] = 1, [TAPE_DOWN] = 1 } },
    };
    struct reel_error err = { 0 };
    struct plan p;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct model_config config = config_of(all[i].model);
        const struct plan one = made(&config, "h200", NULL);
        const struct gpu_limits gpu = times("h200", 2);
        if (plan_make(&p, &config, &gpu, NULL, &err) != REEL_OK) fail_msg("%s", err.text);
        for (int k = 0; k < TAPE_N_PHASES; k++) {
            assert_int_equal(p.tape.segment[k].half, all[i].half[k]);
            assert_int_equal(one.tape.segment[k].half, 0);
        }
        p.tape.segment[TAPE_QKV].rows += 6; /* 26 in two row tiles, or more */
        if (p.tape.segment[TAPE_QKV].half) found(&config, &p, false, "half tiles of");
    }
    const struct model_config config = config_of("tests/golden/models/q3-c.json");
    const struct gpu_limits gpu = times("h200", 2);
    const struct plan_options options = { .n_groups = 4, .group_sms = 3, .warps = 4 };
    if (plan_make(&p, &config, &gpu, &options, &err) != REEL_OK) fail_msg("%s", err.text);
    assert_int_equal(p.tape.segment[TAPE_QKV].half, 1);
    check(&p, &config, true);
}

/* docs/EXPERIMENTS.md, "Several GPUs": what other numbers of SMs, slots and hops take. */
static void two_gpus_have_the_plans_that_were_fastest(void **state) {
    (void)state;
    static const struct {
        const char *model;
        int group_sms, cap, hops;
        bool half_fills;
    } all[] = {
        { "qwen3-0.6b", 26, 2, 1, false }, { "qwen3-1.7b", 32, 2, 2, false },
        { "qwen3-4b", 32, 2, 2, false },   { "qwen3-8b", 32, 2, 2, false },
        { "qwen3-14b", 32, 2, 2, false },  { "qwen3.5-0.8b", 128, 2, 1, true },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct model_config config = config_of(all[i].model);
        const struct gpu_limits gpu = times("h200", 2);
        struct reel_error err = { 0 };
        struct plan p, four;
        if (plan_make(&p, &config, &gpu, NULL, &err) != REEL_OK) fail_msg("%s", err.text);
        assert_int_equal(p.tape.group_sms, all[i].group_sms);
        assert_int_equal(p.cap_layers, all[i].cap);
        assert_int_equal(p.two_hops, all[i].hops == 2);
        assert_int_equal(p.half_fills, all[i].half_fills);
        if (plan_columns(&four, &p, 4, false, &err) == REEL_OK) assert_false(four.half_fills);
    }
}

static void what_was_broken_is_found(void **state) {
    (void)state;
    const struct model_config config = config_of("qwen3-0.6b");
    const struct plan good = made(&config, "h200", NULL);
    struct plan p;
#define BROKEN(change, words)                                                                      \
    do {                                                                                           \
        p = good;                                                                                  \
        change;                                                                                    \
        found(&config, &p, false, words);                                                          \
    } while (0)
    BROKEN(p.tape.hidden = 1022, "hidden size");
    BROKEN(p.rms_eps = 1, "epsilon");
    BROKEN(p.tape.n_sms = 127, "not 127 SMs");
    BROKEN(p.gpu.n_sms = 100, "128 SMs are used");
    BROKEN(p.group_kv_heads = 2, "KV heads");
    BROKEN(p.tape.group_intermediate = 382, "intermediate");
    BROKEN(p.tape.warps = 15, "15 consumer warps");
    BROKEN(p.tape.segment[TAPE_QKV].rows = 30, "qkv: 16 SMs of 30 rows");
    BROKEN(p.tape.segment[TAPE_OUT].warp_k = 3, "out: 16 k tiles");
    BROKEN(p.tape.segment[TAPE_DOWN].row_parts = 2, "down: 2 row parts");
    BROKEN(p.tape.segment[TAPE_DOWN].row_tiles = 3, "down: 3 row tiles");
    BROKEN(p.tape.segment[TAPE_GATE_UP].bytes -= 512, "gate_up: ");
    BROKEN(p.tape.segment[TAPE_GATE_UP].offset += 512, "gate_up begins");
    BROKEN(p.tape.layer_bytes += 512, "a layer has");
    BROKEN(p.tape.segment[TAPE_HEAD].row_tiles = 74, "head");
    BROKEN(p.tape.sm_bytes -= 512, "a tape of");
    BROKEN(p.tape_bytes -= 512, "tape_bytes");
    BROKEN(p.slot_bytes = 8192, "a slot of 8192");
    BROKEN(p.tape.segment[TAPE_HEAD].format = 15, "head: 15 is no format of tiles");
    BROKEN(p.tape.head_unit = 12, "units of 12");
    BROKEN(p.ring_slots = 9, "a ring of 9 slots");
    BROKEN(p.preload_tiles = 36, "36 tiles");
    BROKEN(p.cap_layers = 0, "caps");
    BROKEN(p.attention_warps = 17, "17 attention warps");
    BROKEN(p.kv_slots = 9, "9 K/V slots");
    BROKEN(p.kv_piece_bytes = 4096, "4096 bytes");
    BROKEN(p.threads = 608, "608 threads");
    BROKEN(p.registers_consumer = 232, "232 and 56 registers");
    BROKEN(p.shared_bytes = 200000, "200000 bytes of shared memory");
    BROKEN(p.gpu.shared_bytes = 200000, "200000 allowed");
    BROKEN(p.copy = 1, "copies of kind 1");
    BROKEN(p.prefill_tokens = 2000, "prefill of 2000 tokens");
    BROKEN(p.prefill_tokens += 128, "the residual stream of 2176 tokens");
    BROKEN(p.prefill_stages++, "bytes of shared memory for 7 stages");
    BROKEN(p.scratch.gated -= 1024, "prefill: answers of DeltaNets of 2048 tokens");
    BROKEN(p.prefill_tokens = 0, "without a reason");
    BROKEN(p.short_tokens = 24, "short prompts of 24 tokens: 8, 16, 32 or 64");
    BROKEN(p.short_slots = 8, "bytes of shared memory for 8 slots");
    BROKEN(p.short_shared = p.gpu.shared_bytes + 1, "232449 bytes of shared memory for 6 slots");
    BROKEN(p.short_words -= 16, "short prompts: 1974256 exchange words, 1974272 are needed");
    BROKEN(p.short_preload = 28, "short prompts: 28 tiles of a warp in registers, 24 of them");
    BROKEN((p.short_slots = 5, p.short_preload = 20,
            p.short_shared = plan_short_shared_bytes(&p, 64, 5)),
           "short prompts of 64 tokens: a phase stays in 6 slots, 5 are there");
    BROKEN(p.short_tokens = 0, "short prompts of 0 tokens");
    BROKEN(p.exchange[X_GATED].offset += 1, "start of a line");
    BROKEN(p.exchange[X_OUT_SUM].offset -= 16, "out_sum overlaps");
    BROKEN(p.n_words -= 64, "exchanges need");
    BROKEN(p.exchange[X_GATED].readers = 128, "gated: 128 readers");
    BROKEN(p.exchange[X_QKV].words -= 16, "qkv: readers want");
    BROKEN(p.exchange[X_ATTENTION].words = 16, "attention: 16 words");
    BROKEN(p.exchange[X_PICK].words = 16, "best and pick");
    BROKEN(p.exchange[X_DOWN_H].readers = 64, "down_h: 0 words for 64 readers, not 0 for 128");
    BROKEN(p.two_hops = true, "out_h: 0 words for 128 readers, not 1024 for 128");
#undef BROKEN
}

static void what_was_broken_of_a_hybrid_is_found(void **state) {
    (void)state;
    const struct model_config config = config_of("qwen3.5-0.8b");
    const struct plan good = made(&config, "h200", NULL);
    struct plan p;
#define BROKEN(change, words)                                                                      \
    do {                                                                                           \
        p = good;                                                                                  \
        change;                                                                                    \
        found(&config, &p, false, words);                                                          \
    } while (0)
    BROKEN(p.tape.delta_layers[0] ^= 8, "layer 3 is of another kind");
    BROKEN(p.delta.n_layers = 17, "17 DeltaNets, the model has 18");
    BROKEN(p.tape.gate_dim = 0, "gated attention is 0");
    BROKEN(p.rotary_dim = 256, "entries of a head that turn is 256");
    BROKEN(p.delta.taps = 3, "convolution is 3");
    BROKEN(p.delta.group_value_heads = 4, "8 linear key heads and 4 value heads");
    BROKEN(p.tape.group_key = 512, "8 linear key heads and 8 value heads");
    BROKEN(p.delta.unit = 12, "units of 12 columns");
    BROKEN(p.delta.units = 32, "32 units of 16 columns");
    BROKEN(p.tape.segment[TAPE_MIX].rows = 62, "mix: 64 SMs of 62 rows");
    BROKEN(p.tape.segment[TAPE_MIX].bytes -= 512, "mix: ");
    BROKEN(p.tape.segment[TAPE_MIX].offset = 512, "with mix instead of qkv");
    BROKEN(p.tape.delta_bytes += 512, "with mix instead of qkv");
    BROKEN(p.tape.layers_bytes += 512, "24 layers and a head");
    BROKEN(p.exchange[X_MIX].words -= 16, "mix: readers want");
    BROKEN(p.exchange[X_DELTA].words -= 16, "delta: 1008 words");
    BROKEN(p.exchange[X_DELTA].readers = 128, "delta: 1024 words for 128 readers");
    BROKEN(p.merge_scatter = false, "merged: 1024 words");
#undef BROKEN
    p = good, p.tape.group_key /= 2, p.tape.group_value += p.tape.group_key;
    found(&config, &p, false, "do not make up");
}

/* ---- constants, text, memory ----------------------------------------------------------------- */

static void constants_are_one_text_for_one_plan(void **state) {
    (void)state;
    struct model_config config = config_of("qwen3-0.6b");
    struct plan plan = made(&config, "h200", NULL), again = made(&config, "h200", NULL);
    struct plan h100 = made(&config, "h100", NULL);
    char *a = constants(&plan), *b = constants(&again), *c = constants(&h100);
    assert_string_equal(a, b);
    assert_string_equal(a, c); /* nothing of the card but what the code is compiled for */
    static const char *const lines[] = {
        "M_HIDDEN=1024\n",
        "M_LAYERS=28\n",
        "M_VOCAB=151936\n",
        "M_RMS_EPS=1e-06f\n",
        "P_GROUPS=8\n",
        "P_SLOT_BYTES=16384\n",
        "P_HEAD_FORMAT=0\n",
        "P_QKV_ROWS=32\n",
        "P_OUT_K_PARTS=2\n",
        "P_GATE_UP_WARP_ROWS=3\n",
        "P_DOWN_WARP_K=12\n",
        "P_HEAD_UNIT=16\n",
        "P_SM_BYTES=9338880ull\n",
        "X_QKV=0\n",
        "P_ATTENTION_WORDS=144\n",
        "G_COPY=2\n",
        "G_COMPUTE=90\n",
        "P_PRELOAD_TILES=24\n",
        "P_HEAD_K_TILES=64\n",
        "P_GROUP_KV_HEADS=1\n",
        "M_QK_NORM=1\n",
        "P_PREFILL_TOKENS=2048\n",
        "P_PREFILL_STAGES=6\n",
        "G_WGMMA=1\n",
    };
    for (size_t i = 0; i < COUNT(lines); i++)
        if (!strstr(a, lines[i])) fail_msg("no %s", lines[i]);
    free(a), free(b), free(c);
}

static void constants_of_different_plans_differ(void **state) {
    (void)state;
    struct model_config config = config_of("qwen3-0.6b");
    const struct plan good = made(&config, "h200", NULL);
    struct plan others[6];
    for (size_t i = 0; i < COUNT(others); i++)
        others[i] = good;
    others[0].rms_eps = 1e-5f;
    others[1].ring_slots++;
    others[2].exchange[X_PICK].offset += 16;
    others[3].tape.segment[TAPE_DOWN].warp_k++;
    others[4].compute = 80;
    others[5].tied = false;
    char *a = constants(&good);
    for (size_t i = 0; i < COUNT(others); i++) {
        char *b = constants(&others[i]);
        assert_string_not_equal(a, b);
        free(b);
    }
    /* what a launch is told needs no compiling */
    struct plan tuned = good;
    tuned.cap_layers++, tuned.cap_head++, tuned.cap_kv++, tuned.split_from++;
    char *b = constants(&tuned);
    assert_string_equal(a, b);
    free(a), free(b);
}

static void a_constant_is_named_once_and_is_a_c_literal(void **state) {
    (void)state;
    struct model_config config = config_of("smollm2-135m");
    struct plan plan = made(&config, "rtx4090", NULL);
    char *text = constants(&plan), *rest = NULL, names[8192] = "\n";
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char name[64];
        size_t n = strcspn(line, "=");
        assert_true(line[n] == '=' && n < sizeof name - 2 && n > 2);
        snprintf(name, sizeof name, "\n%.*s=", (int)n, line);
        assert_null(strstr(names, name));
        strncat(names, name + 1, sizeof names - strlen(names) - 1);
        strncat(names, "\n", sizeof names - strlen(names) - 1);
        char *end = NULL;
        (void)strtod(line + n + 1, &end);
        assert_true(end != line + n + 1);
        assert_true(!*end || strcmp(end, "f") == 0 || strcmp(end, "ull") == 0);
    }
    free(text);
}

static void a_plan_is_printed_with_bytes_and_imbalance(void **state) {
    (void)state;
    struct model_config config = config_of("qwen3-8b");
    struct plan plan = made(&config, "rtx4090", NULL);
    struct buffer text = { 0 };
    struct reel_error err = { 0 };
    assert_int_equal(plan_print(&plan, &config, &text, &err), REEL_OK);
    static const char *const words[] = { "rtx4090: 128 SMs", "cp.async",  "gate_up",
                                         "out_sum",          "embedding", "times the mean",
                                         "GPU memory",       "sm_89" };
    for (size_t i = 0; i < COUNT(words); i++)
        if (!strstr(text.bytes, words[i])) fail_msg("no %s in\n%s", words[i], text.bytes);
    buffer_release(&text);
}

static void gpu_memory_is_added_up(void **state) {
    (void)state;
    struct model_config config = config_of("qwen3-0.6b");
    struct plan plan = made(&config, "t4", NULL);
    struct gpu_memory_plan m;
    gpu_memory_plan_fill(&m, &plan, &config, 1000, &gpu_memory_usual);
    const uint64_t *b = m.bytes;
    assert_int_equal(m.context, 1000);
    assert_int_equal(b[GPU_TAPES], plan.tape_bytes);
    assert_int_equal(b[GPU_EMBEDDING], 0);
    assert_int_equal(b[GPU_KV], 1024 * 114688);                           /* whole pages */
    assert_int_equal(b[GPU_GIVEN_EMBEDDINGS], GPU_MOST_GIVEN * 1024 * 4); /* no prompts on it */
    assert_int_equal(gpu_memory_most(&m), b[GPU_TAPES] + b[GPU_NORMS] + b[GPU_QKV_VECTORS] +
                                              b[GPU_ROPE] + b[GPU_WORDS] +
                                              gpu_memory_of(&m, GPU_OF_SESSION, false) + b[GPU_KV] +
                                              gpu_memory_of(&m, GPU_OF_USE, false));
    assert_int_equal(m.most_context, 40960);
    plan = made(&config, "h200", NULL);
    gpu_memory_plan_fill(&m, &plan, &config, 1000, &gpu_memory_usual);
    assert_true(b[GPU_STEP_WORDS] > 0 && b[GPU_DRAFT_WORDS] > 0);
    assert_int_equal(gpu_memory_most(&m),
                     gpu_memory_least(&m) + b[GPU_STEP_WORDS] + b[GPU_DRAFT_WORDS]);
    struct model_config large = config_of("qwen3-8b");
    plan = made(&large, "rtx4090", NULL);
    assert_int_equal(plan.prefill_tokens, 2048);
    plan.gpu.memory_bytes = 16 << 20;
    gpu_memory_plan_fill(&m, &plan, &large, 0, &gpu_memory_usual);
    assert_int_equal(m.context, 40960);
    assert_int_equal(m.bytes[GPU_EMBEDDING], 2ull * 151936 * 4096);
    assert_int_equal(m.bytes[GPU_GIVEN_EMBEDDINGS], 2048 * 4096 * 4);
    assert_int_equal(m.most_context, 0);
}

/* ---- reading prompts ------------------------------------------------------------------------- */

static void prefill_takes_what_the_gpu_has(void **state) {
    (void)state;
    struct model_config config = config_of("qwen3-0.6b");
    const struct plan h200 = made(&config, "h200", NULL), rtx3090 = made(&config, "rtx3090", NULL);
    assert_int_equal(h200.prefill_tokens, 2048);
    assert_int_equal(h200.prefill_stages, 6);
    assert_true(h200.wgmma && h200.prefill_threads == 384);
    assert_int_equal(rtx3090.prefill_stages, 2);
    assert_true(!rtx3090.wgmma && rtx3090.prefill_threads == 288);
    const struct plan b200 = made(&config, "b200", NULL);
    assert_true(!b200.wgmma && b200.prefill_threads == 288);
    /* attention with heads of 256 takes registers of a warpgroup */
    const struct model_config wide = config_of("qwen3.5-0.8b");
    assert_int_equal(made(&wide, "b200", NULL).prefill_threads, 384);
    assert_int_equal(made(&wide, "rtx4090", NULL).prefill_threads, 288);
    const struct plan old = made(&config, "h200", &(struct plan_options){ .compute = 80 });
    assert_true(old.prefill_tokens == 2048 && !old.wgmma);
    /* f32 h; bf16 x in two parts, q k v, attention, gated; and a few sums of squares */
    const uint64_t bytes = 2 * 2048 * (2 * 1024 + 2 * 1024 + 4096 + 2048 + 3072);
    assert_in_range(h200.scratch.bytes, bytes, bytes + bytes / 50);
    const struct plan_options wish = { .prefill_tokens = 128 };
    assert_int_equal(made(&config, "h200", &wish).prefill_tokens, 128);
    config.max_context = 300;
    assert_int_equal(made(&config, "h200", NULL).prefill_tokens, 384);
    config = config_of("qwen3-0.6b");
    struct gpu_limits small_memory = *plan_known_gpu("h200");
    struct reel_error err = { 0 };
    struct plan plan;
    small_memory.memory_bytes = h200.tape_bytes + 8 * h200.scratch.bytes / 3;
    assert_int_equal(plan_make(&plan, &config, &small_memory, NULL, &err), REEL_OK);
    assert_int_equal(plan.prefill_tokens, 512);
}

static void where_prefill_cannot_be_the_plan_says_why(void **state) {
    (void)state;
    static const struct {
        const char *model, *gpu, *words;
    } cases[] = {
        { "qwen3-0.6b", "t4", "prefill needs compute capability 8.0" },
        { "tests/golden/models/q3-a.json", "h200", "prefill needs a head_dim of 64, 128 or 256" },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct model_config config = config_of(cases[i].model);
        struct plan plan = made(&config, cases[i].gpu, NULL);
        struct buffer text = { 0 };
        struct reel_error err = { 0 };
        assert_int_equal(plan.prefill_tokens, 0);
        assert_int_equal(plan_print(&plan, &config, &text, &err), REEL_OK);
        if (!strstr(text.bytes, cases[i].words)) fail_msg("%s", text.bytes);
        buffer_release(&text);
    }
}

/* One launch for a short prompt takes the tokens for which its SMs have registers, warps and shared
 * memory. */
static void short_prompts_take_what_the_sms_hold(void **state) {
    (void)state;
    static const struct {
        const char *model, *gpu;
        int tokens, slots, words;
    } cases[] = {
        { "qwen3-0.6b", "h200", 64, 6, 1974272 },
        { "smollm2-135m", "h200", 64, 10, 961536 },
        { "qwen3-0.6b", "a100", 16, 12, 442880 },  /* a phase does not stay in the ring */
        { "qwen3-0.6b", "rtx3090", 8, 6, 196096 }, /* nor fit two atoms into shared memory */
        { "qwen3-8b", "h200", 8, 6, 659456 },
        { "tests/golden/models/q3-c.json", "test8", 0, 0, 0 },
        { "qwen3-0.6b", "t4", 0, 0, 0 },
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const struct model_config config = config_of(cases[i].model);
        const struct plan p = made(&config, cases[i].gpu, NULL);
        struct buffer text = { 0 };
        struct reel_error err = { 0 };
        assert_int_equal(p.short_tokens, cases[i].tokens);
        assert_int_equal(p.short_slots, cases[i].slots);
        assert_int_equal(p.short_words, cases[i].words);
        assert_true(p.short_shared <= p.gpu.shared_bytes);
        assert_true(p.short_preload <= p.short_slots * p.slot_tiles);
        assert_int_equal(plan_print(&p, &config, &text, &err), REEL_OK);
        char words[40];
        snprintf(words, sizeof words, "up to %d tokens in one launch", cases[i].tokens);
        if (cases[i].tokens && !strstr(text.bytes, words)) fail_msg("%s", text.bytes);
        if (!cases[i].tokens && strstr(text.bytes, "in one launch")) fail_msg("%s", text.bytes);
        buffer_release(&text);
    }
}

/* Few tokens: as many items as there are SMs. Many: items that read weights for 128 at a time. */
static void products_are_cut_so_that_all_sms_work(void **state) {
    (void)state;
    struct model_config config = config_of("qwen3-0.6b");
    const struct plan p = made(&config, "h200", NULL);
    for (int phase = TAPE_QKV; phase < TAPE_HEAD; phase++) {
        const struct prefill_cut few = plan_prefill_cut(&p, phase, 16);
        const struct prefill_cut many = plan_prefill_cut(&p, phase, 2048);
        assert_true(few.blocks == 1 && few.split_k == 8);
        assert_true(many.blocks == 2 && many.split_k == 0);
    }
}

static void reel_model_plan_answers_for_a_folder(void **state) {
    (void)state;
    struct reel_error err = { 0 };
    char *text = NULL;
    if (reel_model_plan("models/demo", "h200", &text, &err) != REEL_OK) fail_msg("%s", err.text);
    assert_non_null(strstr(text, "plan for h200"));
    reel_free(text);
    const struct reel_plan_options wrong = { .size = sizeof wrong, .gpu_options = "narrows=1" };
    assert_int_equal(reel_model_plan_with("models/demo", &wrong, &text, &err), REEL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "narrows=1"));
    struct reel_plan_options kv = { .size = sizeof kv, .gpu = "h200", .kv = "int8" };
    if (reel_model_plan_with("models/demo", &kv, &text, &err) != REEL_OK) fail_msg("%s", err.text);
    assert_non_null(strstr(text, "2176 bytes each"));
    reel_free(text);
    kv.kv = "q8_0";
    assert_int_equal(reel_model_plan_with("models/demo", &kv, &text, &err), REEL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "q8_0"));
    assert_int_equal(reel_model_plan("models/demo", "abacus", &text, &err), REEL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "rtx4090"));
    assert_null(text);
    assert_int_equal(reel_model_plan("/nowhere", "h200", &text, &err), REEL_E_NOT_FOUND);
    assert_int_equal(reel_model_plan(NULL, "h200", &text, &err), REEL_E_ARGUMENT);
    assert_int_equal(reel_model_plan("models/demo", "h200", NULL, &err), REEL_E_ARGUMENT);
}

int main(void) {
    struct CMUnitTest tests[] = {
        cmocka_unit_test(qwen3_06b_on_an_h200_is_what_was_measured),
        cmocka_unit_test(qwen35_08b_on_an_h200_has_two_groups),
        cmocka_unit_test(several_gpus_share_the_groups),
        cmocka_unit_test(every_weight_has_one_place_on_several_gpus),
        cmocka_unit_test(rows_that_fill_half_a_tile_have_half_tiles),
        cmocka_unit_test(two_gpus_have_the_plans_that_were_fastest),
        cmocka_unit_test(kv_heads_are_made_up_to_a_multiple),
        cmocka_unit_test(gpus_that_cannot_share_a_model_are_refused),
        in_turn(every_shape_fits_every_large_gpu),
        in_turn(every_other_pair_is_planned_or_refused_in_words),
        in_turn(every_weight_of_small_models_has_one_place_on_every_gpu),
        in_turn(every_weight_has_one_place_for_all_groups_and_warps),
        cmocka_unit_test(layers_of_two_kinds_follow_each_other),
        in_turn(every_weight_of_a_hybrid_has_one_place_for_all_groups_and_warps),
        cmocka_unit_test(wishes_come_true),
        cmocka_unit_test(little_shared_memory_means_fewer_warps),
        cmocka_unit_test(wishes_that_cannot_be_are_refused),
        cmocka_unit_test(models_and_gpus_beyond_the_kernels_are_refused),
        in_turn(what_was_broken_is_found),
        in_turn(what_was_broken_of_a_hybrid_is_found),
        cmocka_unit_test(constants_are_one_text_for_one_plan),
        cmocka_unit_test(constants_of_different_plans_differ),
        cmocka_unit_test(a_constant_is_named_once_and_is_a_c_literal),
        cmocka_unit_test(a_plan_is_printed_with_bytes_and_imbalance),
        cmocka_unit_test(gpu_memory_is_added_up),
        cmocka_unit_test(prefill_takes_what_the_gpu_has),
        cmocka_unit_test(short_prompts_take_what_the_sms_hold),
        cmocka_unit_test(where_prefill_cannot_be_the_plan_says_why),
        cmocka_unit_test(products_are_cut_so_that_all_sms_work),
        cmocka_unit_test(reel_model_plan_answers_for_a_folder),
    };
    SHARE_TESTS("plans", 2, tests);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
