/* Which GPU is taken, what is said of each, and what becomes of a model that none can run. */
#include "base/file_map.h"
#include "cuda/driver/gpu_info.h"
#include "cuda/driver/nvml.h"
#include "support/sim_gpu.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char *folder(void) { return sim_gpu_folder(); }

static void says(const char *text, const char *part) {
    if (!strstr(text, part)) fail_msg("\"%s\" is not in: %s", part, text);
}

static struct fake_nvml *nvml_controls(void) {
    static void *library;
    char path[512];
    fake_nvml_control_fn *control;
    fake_nvml_reset_fn *reset;
    snprintf(path, sizeof path, "%s/libnvidia-ml.so.1", folder());
    if (!library) library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!library) fail_msg("%s", dlerror());
    *(void **)&reset = dlsym(library, "fake_nvml_reset");
    *(void **)&control = dlsym(library, "fake_nvml_control");
    reset();
    return control();
}

/* Some of the fake's libraries alone in a folder: the others are missing there. Hard links, because
 * the loader knows a library by its inode and so keeps the one that the controls belong to. */
struct some {
    char folder[300], path[3][340];
    int n;
};
static void some_start(struct some *s, const char *const *names) {
    *s = (struct some){ .n = 0 };
    snprintf(s->folder, sizeof s->folder, "%s/some-XXXXXX", folder());
    assert_non_null(mkdtemp(s->folder));
    for (; *names; names++) {
        char from[340], to[340];
        snprintf(from, sizeof from, "%s/%s", folder(), *names);
        snprintf(to, sizeof to, "%.299s/%s", s->folder, *names);
        memcpy(s->path[s->n++], to, sizeof to);
        assert_int_equal(link(from, to), 0);
    }
}
static void some_end(struct some *s) {
    while (s->n > 0)
        unlink(s->path[--s->n]);
    rmdir(s->folder);
}

/* ---- choosing ---- */

static enum reel_status choose(int *index, const char *device, const char *where,
                               struct reel_error *err) {
    int all[CUDA_MOST_GPUS] = { -1 }, n = 0;
    const enum reel_status status =
        gpu_choose(all, &n, device, &(struct cuda_folders){ .driver = where }, err);
    if (status == REEL_OK) assert_int_equal(n, 1);
    *index = all[0];
    return status;
}

static void auto_and_gpu_take_the_first_that_can_be_used(void **state) {
    (void)state;
    static const char *const names[] = { NULL, "auto", "gpu", "gpu:0" };
    sim_gpu_controls();
    for (int i = 0; i < 4; i++) {
        struct reel_error err;
        int index = -1;
        if (choose(&index, names[i], folder(), &err) != REEL_OK) fail_msg("%s", err.text);
        assert_int_equal(index, 0);
    }
}

static void other_texts_are_refused_with_what_is_allowed(void **state) {
    (void)state;
    static const char *const names[] = { "",       "tpu",    "gpu:",        "gpu:x", "gpu:-1",
                                         "gpu:1x", "gpu:0 ", "gpu:1234567", "GPU" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct reel_error err;
        int index = 0;
        assert_int_equal(choose(&index, names[i], folder(), &err), REEL_E_ARGUMENT);
        says(err.text, names[i]);
        says(err.text, "\"gpu:N\"");
    }
}

static void a_gpu_there_is_none_of_is_refused(void **state) {
    (void)state;
    struct reel_error err;
    int index = 0;
    sim_gpu_controls();
    assert_int_equal(choose(&index, "gpu:9", folder(), &err), REEL_E_ARGUMENT);
    says(err.text, "gpu:9");
}

static void the_reason_why_no_gpu_can_be_used_is_said(void **state) {
    (void)state;
    static const char *const alone[] = { "libcuda.so.1", NULL };
    struct reel_error err;
    struct some some;
    int index = 0;
    assert_int_equal(choose(&index, "gpu", "tests", &err), REEL_E_UNSUPPORTED);
    says(err.text, "no NVIDIA driver");
    sim_gpu_controls().cuda->gpu.compute = 61;
    assert_int_equal(choose(&index, "auto", folder(), &err), REEL_E_UNSUPPORTED);
    says(err.text, "6.1");
    sim_gpu_controls().cuda->gpu.compute = 133;
    assert_int_equal(choose(&index, "gpu:0", folder(), &err), REEL_E_UNSUPPORTED);
    says(err.text, "13.3");
    sim_gpu_controls();
    some_start(&some, alone);
    assert_int_equal(choose(&index, "gpu", some.folder, &err), REEL_E_UNSUPPORTED);
    says(err.text, "NVRTC");
    says(err.text, "cuda-nvrtc-13-0");
    some_end(&some);
}

/* As with a package of NVRTC: its folder has no driver, the driver's has no NVRTC. */
static void nvrtc_has_a_folder_of_its_own(void **state) {
    (void)state;
    static const char *const driver[] = { "libcuda.so.1", NULL };
    static const char *const compiler[] = { "libnvrtc.so.13", NULL };
    struct reel_error err;
    struct some here, there;
    int index[CUDA_MOST_GPUS] = { -1 }, n = 0;
    sim_gpu_controls();
    some_start(&here, driver);
    some_start(&there, compiler);
    const struct cuda_folders both = { here.folder, there.folder },
                              swapped = { there.folder, here.folder };
    if (gpu_choose(index, &n, "gpu", &both, &err) != REEL_OK) fail_msg("%s", err.text);
    assert_int_equal(n, 1);
    assert_int_equal(index[0], 0);
    assert_int_equal(gpu_choose(index, &n, "gpu", &swapped, &err), REEL_E_UNSUPPORTED);
    says(err.text, "no NVIDIA driver");
    const struct reel_devices_options options = { .size = sizeof options,
                                                  .cuda_dir = here.folder,
                                                  .nvrtc_dir = there.folder };
    char *json = NULL;
    assert_int_equal(reel_devices(&options, &json, &err), REEL_OK);
    says(json, "\"usable\": true");
    reel_free(json);
    some_end(&here);
    some_end(&there);
}

/* ---- describing ---- */

static const char *first_note(const json_t *notes) {
    const char *text = json_string_value(json_array_get(notes, 0));
    return text ? text : "";
}

static void describe(json_t **gpus, json_t **notes, const char *where) {
    struct reel_error err;
    if (gpu_describe(gpus, notes, &(struct cuda_folders){ .driver = where }, &err) != REEL_OK)
        fail_msg("%s", err.text);
}

static void release(json_t *gpus, json_t *notes) {
    json_decref(gpus);
    json_decref(notes);
}

static void expect_text(const json_t *object, const char *key, const char *value) {
    const char *text = json_string_value(json_object_get(object, key));
    if (!text || strcmp(text, value) != 0) fail_msg("%s is %s, not %s", key, text, value);
}

static void a_gpu_is_described_with_all_that_is_known(void **state) {
    (void)state;
    json_t *gpus, *notes;
    const struct fake_cuda *fake = sim_gpu_controls().cuda;
    struct fake_nvml *nvml = nvml_controls();
    describe(&gpus, &notes, folder());
    assert_int_equal(json_array_size(gpus), fake->gpu.n_devices);
    assert_int_equal(json_array_size(notes), 0);
    const json_t *gpu = json_array_get(gpus, 0);
    expect_text(gpu, "name", fake->gpu.name);
    expect_text(gpu, "compute", "9.0");
    expect_text(gpu, "cuda", "13.0");
    expect_text(gpu, "nvrtc", "13.0");
    expect_text(gpu, "driver", "580.00.fake");
    assert_true(json_is_true(json_object_get(gpu, "usable")));
    assert_int_equal(json_integer_value(json_object_get(gpu, "sms")), fake->gpu.n_sms);
    assert_int_equal(json_integer_value(json_object_get(gpu, "memory_bytes")),
                     fake->gpu.memory_bytes);
    assert_int_equal(json_integer_value(json_object_get(gpu, "memory_free_bytes")), 900000);
    assert_true(json_real_value(json_object_get(gpu, "power_w")) == 77.5);
    assert_int_equal(nvml->live, 0);
    assert_int_equal(fake->live.contexts, 0);
    release(gpus, notes);
}

static void what_is_missing_is_noted(void **state) {
    (void)state;
    static const char *const bare[] = { "libcuda.so.1", NULL };
    json_t *gpus, *notes;
    struct some some;
    const struct fake_cuda *fake = sim_gpu_controls().cuda;
    describe(&gpus, &notes, "tests");
    assert_int_equal(json_array_size(gpus), 0);
    says(first_note(notes), "no NVIDIA driver");
    release(gpus, notes);

    some_start(&some, bare);
    describe(&gpus, &notes, some.folder);
    assert_int_equal(json_array_size(gpus), 1);
    const json_t *gpu = json_array_get(gpus, 0);
    assert_false(json_is_true(json_object_get(gpu, "usable")));
    assert_null(json_object_get(gpu, "nvrtc"));
    assert_null(json_object_get(gpu, "power_w"));
    assert_true(json_integer_value(json_object_get(gpu, "memory_free_bytes")) > 0);
    assert_int_equal(json_array_size(notes), 2);
    says(first_note(notes), "NVRTC");
    says(json_string_value(json_array_get(notes, 1)), "no NVML");
    assert_int_equal(fake->live.contexts, 0);
    release(gpus, notes);
    some_end(&some);
}

static void a_gpu_that_cannot_be_used_is_listed_with_the_reason(void **state) {
    (void)state;
    json_t *gpus, *notes;
    sim_gpu_controls().cuda->gpu.compute = 70;
    nvml_controls();
    describe(&gpus, &notes, folder());
    assert_int_equal(json_array_size(gpus), 1);
    assert_false(json_is_true(json_object_get(json_array_get(gpus, 0), "usable")));
    says(first_note(notes), "7.5");
    release(gpus, notes);
}

static void any_failing_call_leaves_a_description(void **state) {
    (void)state;
    for (int n = 1; n < 40; n++) {
        json_t *gpus, *notes;
        struct sim_gpu fake = sim_gpu_controls();
        fake.cuda->fail_call = n;
        fake.cuda->fail_with = 999;
        describe(&gpus, &notes, folder());
        assert_true(json_array_size(gpus) + json_array_size(notes) > 0);
        assert_int_equal(fake.cuda->live.contexts, 0);
        release(gpus, notes);
    }
}

/* ---- energy ---- */

static void energy_and_power_are_read_through_nvml(void **state) {
    (void)state;
    struct nvml nvml;
    struct reel_error err;
    uint64_t before = 0, after = 0, n_free = 0;
    double w = 0;
    struct fake_nvml *fake = nvml_controls();
    if (nvml_open(&nvml, folder(), "GPU-any", &err) != REEL_OK) fail_msg("%s", err.text);
    assert_int_equal(nvml_energy(&nvml, &before, &err), REEL_OK);
    assert_int_equal(nvml_energy(&nvml, &after, &err), REEL_OK);
    assert_int_equal(after - before, 1000);
    assert_int_equal(nvml_power(&nvml, &w, &err), REEL_OK);
    assert_true(w == 77.5);
    assert_int_equal(nvml_memory_free(&nvml, &n_free, &err), REEL_OK);
    assert_int_equal(n_free, 900000);
    fake->fail_call = 1;
    fake->fail_with = 3;
    assert_int_equal(nvml_energy(&nvml, &before, &err), REEL_E_UNSUPPORTED);
    says(err.text, "Not Supported");
    says(err.text, "nvmlDeviceGetTotalEnergyConsumption");
    nvml_close(&nvml);
    nvml_close(&nvml);
    assert_int_equal(fake->live, 0);
}

static void a_machine_without_nvml_says_so(void **state) {
    (void)state;
    struct nvml nvml;
    struct reel_error err;
    assert_int_equal(nvml_open(&nvml, "tests", "GPU-any", &err), REEL_E_UNSUPPORTED);
    says(err.text, "no NVML");
    struct fake_nvml *fake = nvml_controls();
    assert_int_equal(nvml_open(&nvml, folder(), "MIG-any", &err), REEL_E_UNSUPPORTED);
    says(err.text, "nvmlDeviceGetHandleByUUID");
    for (int n = 1; n <= 2; n++) {
        fake->fail_call = n;
        fake->fail_with = 3;
        assert_int_equal(nvml_open(&nvml, folder(), "GPU-any", &err), REEL_E_UNSUPPORTED);
    }
    assert_int_equal(fake->live, 0);
    nvml_close(&nvml);
}

/* ---- models ---- */

static char warning[600];
static void hear_warning(void *user, enum reel_log_level level, const char *text) {
    if (level != REEL_LOG_WARNING) return;
    (void)user;
    snprintf(warning, sizeof warning, "%s", text);
}

static enum reel_status open_demo(const char *device, char backend[16], struct reel_error *err) {
    const struct reel_model_options options = { .size = sizeof options,
                                                .device = device,
                                                .cuda_dir = folder(),
                                                .n_threads = 1,
                                                .log = hear_warning };
    struct reel_model *model;
    struct reel_model_info info = { .size = sizeof info };
    enum reel_status status = reel_model_open(&model, "models/demo", &options, err);
    if (status != REEL_OK) return status;
    assert_int_equal(reel_model_get_info(model, &info, NULL), REEL_OK);
    snprintf(backend, 16, "%s", info.backend);
    reel_model_close(model);
    return REEL_OK;
}

/* What "auto" and "gpu" make of the fake GPU as it is set. */
static void expect_cpu(enum reel_status status, const char *reason, bool warned) {
    struct reel_error err;
    char backend[16] = "";
    warning[0] = '\0';
    if (open_demo("auto", backend, &err) != REEL_OK) fail_msg("%s", err.text);
    assert_string_equal(backend, "cpu");
    if (warned) says(warning, "on the CPU, because the GPU cannot be used: ");
    assert_true(warned || !warning[0]);
    assert_int_equal(open_demo("gpu", backend, &err), status);
    says(err.text, reason);
}

static void a_model_that_no_gpu_can_run_goes_to_the_cpu_unless_a_gpu_was_asked_for(void **state) {
    (void)state;
    struct fake_cuda *fake = sim_gpu_controls().cuda;
    fake->gpu.compute = 70;
    expect_cpu(REEL_E_UNSUPPORTED, "device \"gpu\": gpu:0", true);
    fake = sim_gpu_controls().cuda;
    fake->gpu.n_devices = 0;
    expect_cpu(REEL_E_UNSUPPORTED, "CUDA_VISIBLE_DEVICES", false);
    fake = sim_gpu_controls().cuda;
    fake->gpu.memory_bytes = 4096;
    expect_cpu(REEL_E_MEMORY, "GPU", true);
    fake = sim_gpu_controls().cuda;
    fake->gpu.shared_bytes = 1024;
    expect_cpu(REEL_E_UNSUPPORTED, "shared", true);
    assert_int_equal(fake->live.contexts, 0);
}

static void what_only_the_cpu_does_goes_there_or_is_refused(void **state) {
    (void)state;
    struct reel_error err;
    struct reel_model *model;
    struct reel_model_options options = { .size = sizeof options, .cuda_dir = folder() };
    sim_gpu_controls();
    for (int i = 0; i < 2; i++) {
        options.rounding = i ? REEL_ROUNDING_FAST : REEL_ROUNDING_FAITHFUL;
        options.cpu_path = i ? "portable" : NULL;
        options.device = NULL;
        struct reel_model_info info = { .size = sizeof info };
        if (reel_model_open(&model, "models/demo", &options, &err) != REEL_OK)
            fail_msg("%s", err.text);
        assert_int_equal(reel_model_get_info(model, &info, NULL), REEL_OK);
        assert_string_equal(info.backend, "cpu");
        reel_model_close(model);
        options.device = "gpu";
        assert_int_equal(reel_model_open(&model, "models/demo", &options, &err),
                         i ? REEL_E_ARGUMENT : REEL_E_UNSUPPORTED);
        says(err.text, i ? "portable" : "faithful");
    }
}

static void linked_gpus_name_each_other(void **state) {
    (void)state;
    const struct reel_devices_options options = { .size = sizeof options,
                                                  .cuda_dir = sim_gpu_folder() };
    struct sim_gpu gpu = sim_gpu_controls();
    struct reel_error err;
    char *json = NULL;
    gpu.cuda->gpu.n_devices = 3;
    assert_int_equal(reel_devices(&options, &json, &err), REEL_OK);
    json_t *all = json_loads(json, 0, NULL), *gpus = json_object_get(all, "gpus");
    assert_int_equal(json_array_size(gpus), 3);
    const json_t *links = json_object_get(json_array_get(gpus, 1), "links");
    assert_int_equal(json_array_size(links), 2);
    assert_int_equal(json_integer_value(json_array_get(links, 0)), 0);
    assert_int_equal(json_integer_value(json_array_get(links, 1)), 2);
    json_decref(all);
    reel_free(json);
    gpu.cuda->gpu.slow_links = true;
    assert_int_equal(reel_devices(&options, &json, &err), REEL_OK);
    assert_null(strstr(json, "links"));
    reel_free(json);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_and_gpu_take_the_first_that_can_be_used),
        cmocka_unit_test(other_texts_are_refused_with_what_is_allowed),
        cmocka_unit_test(a_gpu_there_is_none_of_is_refused),
        cmocka_unit_test(the_reason_why_no_gpu_can_be_used_is_said),
        cmocka_unit_test(nvrtc_has_a_folder_of_its_own),
        cmocka_unit_test(a_gpu_is_described_with_all_that_is_known),
        cmocka_unit_test(what_is_missing_is_noted),
        cmocka_unit_test(a_gpu_that_cannot_be_used_is_listed_with_the_reason),
        cmocka_unit_test(any_failing_call_leaves_a_description),
        cmocka_unit_test(energy_and_power_are_read_through_nvml),
        cmocka_unit_test(a_machine_without_nvml_says_so),
        cmocka_unit_test(a_model_that_no_gpu_can_run_goes_to_the_cpu_unless_a_gpu_was_asked_for),
        cmocka_unit_test(what_only_the_cpu_does_goes_there_or_is_refused),
        cmocka_unit_test(linked_gpus_name_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
