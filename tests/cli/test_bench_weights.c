/* bench and verify on a quantised file where a GPU holds its weights as bf16: the check compares
 * arithmetic, on the weights that run. */
#define _DEFAULT_SOURCE /* mkdtemp */
#include "cli/check.h"
#include "support/quantised_model.h"
#include "support/shell.h"
#include "support/sim_gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N_POSITIONS = 4 };

/* Two SMs, and no limit of time. */
#define GPU_OPTIONS                                                                                \
    "n_groups=1,group_sms=2,warps=4,patience=2147483647,hang_ms=1000000000,launch_ms=10000,"       \
    "launch_tokens=16,stage_kb=64,narrow=0"

static struct bytes file;

/* Of the model on the GPU, against references with the weights it has and with the file's. */
static struct reference_result on_rounded, on_stored;

static struct reel_model *open_on(const struct reel_model_options *options) {
    const struct reel_memory_file one = { "quantised.gguf", file.data, file.n };
    struct reel_error err = { 0 };
    struct reel_model *model = NULL;
    if (reel_model_open_memory(&model, "quantised", &one, 1, options, &err) != REEL_OK)
        fail_msg("%s\n%s", err.text, sim_gpu_current().cuda->report);
    return model;
}

static struct reel_model *open_gpu(void) {
    return open_on(&(struct reel_model_options){ .size = sizeof(struct reel_model_options),
                                                 .device = "gpu",
                                                 .gpu_options = GPU_OPTIONS,
                                                 .cuda_dir = sim_gpu_folder() });
}

static struct reel_model *open_reference(const char *path, enum reel_rounding rounding) {
    return open_on(&(struct reel_model_options){ .size = sizeof(struct reel_model_options),
                                                 .device = "cpu",
                                                 .cpu_path = path,
                                                 .rounding = rounding });
}

/* The check's verdict on `model` with references of this path's weights. */
static enum reel_status check(const struct reel_model *model, const char *path,
                              struct reference_result *result) {
    struct reel_error err = { 0 };
    struct references all = { open_reference(path, REEL_ROUNDING_EXACT),
                              open_reference(path, REEL_ROUNDING_FAST),
                              open_reference(path, REEL_ROUNDING_FAITHFUL) };
    const enum reel_status status = reference_check(model, &all, N_POSITIONS, result, &err);
    references_close(&all);
    return status;
}

static void a_quantised_file_is_compared_on_the_weights_that_run(void **state) {
    (void)state;
    struct reel_model_info info = { .size = sizeof info };
    char text[WEIGHTS_TEXT];
    sim_gpu_controls();
    struct reel_model *model = open_gpu();
    assert_int_equal(reel_model_get_info(model, &info, NULL), REEL_OK);
    weights_text(&info, text);
    assert_string_equal(text, "q4_1 in the file, bf16 on the GPU");
    assert_int_equal(info.token_bytes, 2 * info.n_parameters); /* tied: all of it */
    const enum reel_status status = check(model, "reference-bf16", &on_rounded);
    print_message("rms %.2g of %.2g, worst %.2g of %.2g\n", on_rounded.rms, on_rounded.rms_bound,
                  on_rounded.worst, on_rounded.worst_bound);
    assert_int_equal(status, REEL_OK);
    assert_int_equal(check(model, "reference", &on_stored), REEL_OK);
    assert_true(on_rounded.rms != on_stored.rms);
    reel_model_close(model);
}

static void kernels_that_are_a_little_wrong_are_refused(void **state) {
    (void)state;
    static const struct fake_patch patches[] = {
        { "publish.cuh", "silu(gate) * up)", "silu(gate) * up * 1.1f)", false },
        { "phase_attention.cuh", "rsqrt_approx((float)M_HEAD_DIM)",
          "rsqrt_approx((float)M_HEAD_DIM / 2)", false },
        { "phase_attention.cuh", "i / 2 * 8 < count[i & 1] ?", "i / 2 * 8 < count[i & 1] - 1 ?",
          false },
    };
    for (size_t i = 0; i < sizeof patches / sizeof *patches; i++) {
        struct reference_result result;
        struct sim_gpu gpu = sim_gpu_controls();
        gpu.nvrtc->patches = &patches[i];
        gpu.nvrtc->n_patches = 1;
        struct reel_model *model = open_gpu();
        const enum reel_status status = check(model, "reference-bf16", &result);
        print_message("%s: rms %.2g of %.2g, worst %.2g of %.2g\n", patches[i].to, result.rms,
                      result.rms_bound, result.worst, result.worst_bound);
        assert_int_equal(status, REEL_E_MISMATCH);
        reel_model_close(model);
    }
    sim_gpu_controls();
}

/* The program finds the fake driver where the system would have the real one. */
static struct result on_gpu(const char *command, const char *options) {
    char line[1500], list[400] = GPU_OPTIONS;
    char *folder = realpath(sim_gpu_folder(), NULL);
    assert_non_null(folder);
    int n = snprintf(line, sizeof line,
                     "LD_LIBRARY_PATH='%s'${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} "
                     "reel %s quantised.gguf --device gpu %s",
                     folder, command, options);
    for (char *at = strtok(list, ","); at; at = strtok(NULL, ","))
        n += snprintf(line + n, sizeof line - (size_t)n, " --gpu-option %s", at);
    free(folder);
    struct result r = shell(line);
    if (r.status != 0) fail_msg("%s\n%s%s", line, r.out, r.err);
    return r;
}

/* Bench goes the same way to its verdict, but first measures memory, for which the simulator is too
 * slow. */
static void verify_says_which_weights_ran(void **state) {
    (void)state;
    char differs[60];
    shell_file("quantised.gguf", file.data, file.n);
    struct result r = on_gpu("verify", "-n 4");
    assert_non_null(
        strstr(r.out, "\nweights    q4_1 in the file, bf16 on the GPU: rounding them "));
    snprintf(differs, sizeof differs, "logits differ by %.2g rms (allowed %.2g)", on_rounded.rms,
             on_rounded.rms_bound);
    if (!strstr(r.out, differs)) fail_msg("not \"%s\" but\n%s", differs, r.out);
    done(r);
}

static int enter(void **state) {
    quantised_gguf(&file);
    return shell_enter(state);
}

static int leave(void **state) {
    bytes_release(&file);
    return shell_leave(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_quantised_file_is_compared_on_the_weights_that_run),
        cmocka_unit_test(kernels_that_are_a_little_wrong_are_refused),
        cmocka_unit_test(verify_says_which_weights_ran),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
