/* Shared memory that the plan gives a block, against the structs of the kernels that use it: for
 * models and GPUs of all kinds, the simulator compiles those structs and says how large they are.
 */
#include "base/file_map.h"
#include "kernels/prefill_layout.h"
#include "model/synthetic.h"
#include "plan/plan.h"
#include "support/plan_defines.h"
#include "support/sim_gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* In the order of the source below. */
struct sizes {
    int decode, prefill, chunk, conv, shorts, short_words;
};

/* 0: the plan has no such launch. Two programs: each has a struct block_shared of its own. */
static const char decode_source[] = "#include \"decode_shared.cuh\"\n"
                                    "#if P_PREFILL_TOKENS\n"
                                    "#include \"prefill_shared.cuh\"\n"
                                    "#if M_DELTA\n"
                                    "#include \"prefill_delta_answer.cuh\"\n"
                                    "#include \"prefill_delta_chunk.cuh\"\n"
                                    "#include \"prefill_delta_conv.cuh\"\n"
                                    "#endif\n"
                                    "#endif\n"
                                    "KERNEL(LANES) sizes(int *out) {\n"
                                    "    if (thread_index()) return;\n"
                                    "    out[0] = SHARED_BYTES;\n"
                                    "#if P_PREFILL_TOKENS\n"
                                    "    out[1] = PREFILL_BYTES;\n"
                                    "#if M_DELTA\n"
                                    "    out[2] = (int)MAX(sizeof(struct chunk_shared), "
                                    "sizeof(struct answer_shared)) + STAGE_ALIGN;\n"
                                    "    out[3] = (int)sizeof(struct conv_shared) + STAGE_ALIGN;\n"
                                    "#endif\n"
                                    "#endif\n"
                                    "}\n";
static const char short_source[] = "#include \"short_shared.cuh\"\n"
                                   "KERNEL(LANES) sizes(int *out) {\n"
                                   "    if (thread_index()) return;\n"
                                   "    out[4] = SHARED_BYTES;\n"
                                   "    out[5] = SHORT_WORDS;\n"
                                   "}\n";

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

/* Compiles a source with a plan's constants and adds what it says to *sizes. */
static void ask(struct sizes *sizes, const char *source, const struct plan *plan) {
    struct plan_defines d;
    plan_defines_of(&d, plan, NULL, 0);
    sim_gpu_compile_text("sizes.cu", source, d.list);
    int *out = sim_gpu_mapped(sizeof *sizes);
    memcpy(out, sizes, sizeof *sizes);
    void *params[] = { &out };
    assert_int_equal(sim_gpu_launch("sizes", 1, 32, 0, params), 0);
    memcpy(sizes, out, sizeof *sizes);
    plan_defines_release(&d);
}

static void structs_have_the_sizes_that_the_plan_counts(void **state) {
    static const struct {
        const char *model, *gpu;
        int compute; /* compiled for; 0: the GPU's own */
    } all[] = {
        { "qwen3-0.6b", "h200", 0 },
        { "qwen3-0.6b", "rtx3090", 0 },
        { "qwen3-0.6b", "t4", 0 },
        { "qwen3-0.6b", "b200", 0 },
        { "qwen3-8b", "h200", 0 },
        { "smollm2-135m", "h200", 75 },
        { "smollm2-135m", "rtx4090", 0 },
        { "qwen3.5-0.8b", "h200", 0 },
        { "qwen3.5-0.8b", "rtx5090", 0 },
        { "qwen3-asr-0.6b", "a100", 0 },
        { "tests/golden/models/asr-a.json", "test4", 0 },
        { "tests/golden/models/ll-a.json", "test8", 0 },
        { "tests/golden/models/ll-b.json", "test4", 0 },
        { "tests/golden/models/q3-a.json", "test4", 0 },
        { "tests/golden/models/q3-b.json", "test8", 0 },
        { "tests/golden/models/q3-c.json", "test8", 0 },
        { "tests/golden/models/q35-a.json", "test4", 0 },
        { "tests/golden/models/q35-b.json", "test8", 0 },
        { "tests/sim/models/asr-p.json", "test4", 0 },
        { "tests/sim/models/q3-p.json", "test4", 0 },
        { "tests/sim/models/q35-p.json", "test8", 0 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const struct model_config config = config_of(all[i].model);
        const struct plan_options options = { .compute = all[i].compute };
        struct reel_error err = { 0 };
        struct plan p;
        struct sizes got = { 0 };
        print_message("%s on %s\n", all[i].model, all[i].gpu);
        (void)sim_gpu_open();
        if (plan_make(&p, &config, plan_known_gpu(all[i].gpu), &options, &err) != REEL_OK)
            fail_msg("%s", err.text);
        ask(&got, decode_source, &p);
        if (p.short_tokens) ask(&got, short_source, &p);
        sim_gpu_close();
        assert_int_equal(got.decode, p.shared_bytes);
        assert_int_equal(got.prefill, p.prefill_shared);
        assert_int_equal(got.chunk, p.prefill_chunk_shared);
        assert_int_equal(got.conv, got.chunk ? PREFILL_CONV_BYTES(p.delta.taps) : 0);
        assert_int_equal(got.shorts, p.short_shared);
        assert_int_equal(got.short_words, p.short_words);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(structs_have_the_sizes_that_the_plan_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
