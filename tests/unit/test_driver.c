/* The driver's wrappers against the fake driver: every call failing, every message, nothing left.
 */
#include "base/file_map.h"
#include "cuda/compile/kernel_build.h"
#include "cuda/driver/driver.h"
#include "cuda/driver/driver_error.h"
#include "cuda/driver/gpu_info.h"
#include "plan/plan.h"
#include "support/sim_gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const char *folder(void) { return sim_gpu_folder(); }

static void says(const struct reel_error *err, const char *text) {
    if (!strstr(err->text, text)) fail_msg("\"%s\" is not in: %s", text, err->text);
}

/* A folder of copied files, gone after the test. Copies, because a library keeps the name under
 * which it was loaded first. */
struct copies {
    char folder[64], path[4][160];
    int n;
};
static void copies_start(struct copies *c) {
    *c = (struct copies){ .folder = "/tmp/reel-driver-XXXXXX" };
    assert_non_null(mkdtemp(c->folder));
}
static void copies_add(struct copies *c, const char *from, const char *name) {
    struct file_map file;
    char path[160];
    snprintf(path, sizeof path, "%.63s/%s", c->folder, name);
    memcpy(c->path[c->n++], path, sizeof path);
    assert_int_equal(file_map_open(&file, from, NULL), REEL_OK);
    assert_int_equal(file_write_atomic(path, file.bytes, file.size, NULL), REEL_OK);
    file_map_close(&file);
}
static void copies_end(struct copies *c) {
    while (c->n > 0)
        unlink(c->path[--c->n]);
    rmdir(c->folder);
}
static const char *library(const char *name) {
    static char path[300];
    snprintf(path, sizeof path, "%s/%s", folder(), name);
    return path;
}

/* ---- opening the driver ---- */

static void a_machine_without_a_driver_is_told_what_to_install(void **state) {
    (void)state;
    struct cuda_driver driver;
    struct reel_error err;
    assert_int_equal(cuda_driver_open(&driver, "tests", &err), REEL_E_UNSUPPORTED);
    says(&err, "no NVIDIA driver");
    says(&err, "libcuda.so.1");
    says(&err, "nvidia-smi");
    says(&err, "run on the CPU");
    assert_null(driver.library);
    cuda_driver_close(&driver);
    cuda_driver_close(NULL);
}

static void a_driver_that_does_not_load_is_told_with_the_loaders_words(void **state) {
    (void)state;
    struct copies copies;
    struct cuda_driver driver;
    struct reel_error err;
    copies_start(&copies);
    copies_add(&copies, "Makefile", "libcuda.so.1");
    assert_int_equal(cuda_driver_open(&driver, copies.folder, &err), REEL_E_UNSUPPORTED);
    says(&err, copies.folder);
    says(&err, "ELF");
    copies_end(&copies);
}

static void a_driver_without_a_call_is_too_old(void **state) {
    (void)state;
    struct copies copies;
    struct cuda_driver driver;
    struct reel_error err;
    copies_start(&copies);
    copies_add(&copies, library("libnvrtc.so.13"), "libcuda.so.1");
    assert_int_equal(cuda_driver_open(&driver, copies.folder, &err), REEL_E_UNSUPPORTED);
    says(&err, "lacks cuInit");
    says(&err, "update");
    copies_end(&copies);
}

static void a_driver_older_than_11_2_is_refused(void **state) {
    (void)state;
    struct cuda_driver driver;
    struct reel_error err;
    sim_gpu_controls().cuda->gpu.driver_version = 11010;
    assert_int_equal(cuda_driver_open(&driver, folder(), &err), REEL_E_UNSUPPORTED);
    says(&err, "CUDA 11.1");
    says(&err, "11.2");
}

static void a_driver_without_gpus_says_where_they_may_be(void **state) {
    (void)state;
    struct cuda_driver driver;
    struct reel_error err;
    sim_gpu_controls().cuda->gpu.n_devices = 0;
    assert_int_equal(cuda_driver_open(&driver, folder(), &err), REEL_E_UNSUPPORTED);
    says(&err, "CUDA_VISIBLE_DEVICES");
}

static void what_fails_at_the_start_is_named_with_what_to_do(void **state) {
    (void)state;
    static const struct {
        const char *call;
        int error;
        enum reel_status status;
        const char *says;
    } cases[] = {
        { "cuDriverGetVersion", CU_ERROR_STUB_LIBRARY, REEL_E_UNSUPPORTED, "stub" },
        { "cuInit", CU_ERROR_NO_DEVICE, REEL_E_UNSUPPORTED, "--gpus all" },
        { "cuInit", CU_ERROR_SYSTEM_DRIVER_MISMATCH, REEL_E_DEVICE, "restart" },
        { "cuInit", CU_ERROR_SYSTEM_NOT_READY, REEL_E_DEVICE, "fabric manager" },
        { "cuInit", CU_ERROR_UNKNOWN, REEL_E_DEVICE, "CUDA_ERROR_UNKNOWN" },
        { "cuInit", 12345, REEL_E_DEVICE, "error 12345" },
        { "cuDeviceGetCount", CU_ERROR_INVALID_VALUE, REEL_E_DEVICE, "cuDeviceGetCount" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fake_cuda *fake = sim_gpu_controls().cuda;
        struct cuda_driver driver;
        struct reel_error err;
        fake->only = cases[i].call;
        fake->fail_call = 1;
        fake->fail_with = cases[i].error;
        assert_int_equal(cuda_driver_open(&driver, folder(), &err), cases[i].status);
        assert_int_equal(err.status, cases[i].status);
        says(&err, cases[i].call);
        says(&err, cases[i].says);
        assert_null(driver.library);
        assert_int_equal(cuda_driver_open(&driver, "tests", NULL), REEL_E_UNSUPPORTED);
    }
}

static void a_driver_opens_many_times_in_one_process(void **state) {
    (void)state;
    struct cuda_driver drivers[3];
    struct cuda_gpu gpus[3];
    struct fake_cuda *fake = sim_gpu_controls().cuda;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(cuda_driver_open(&drivers[i], folder(), NULL), REEL_OK);
        assert_int_equal(cuda_gpu_open(&gpus[i], &drivers[i], 0, NULL), REEL_OK);
    }
    cuda_gpu_close(&gpus[0]);
    cuda_driver_close(&drivers[0]);
    cu_address p = 0;
    assert_int_equal(cuda_alloc(&gpus[1], &p, 100, "a test", NULL), REEL_OK);
    cuda_free(&gpus[1], p);
    for (int i = 2; i > 0; i--) {
        cuda_gpu_close(&gpus[i]);
        cuda_driver_close(&drivers[i]);
    }
    assert_int_equal(fake->live.contexts, 0);
    assert_int_equal(fake->live.allocations, 0);
}

/* ---- GPUs ---- */

static void open_gpu(struct cuda_driver *driver, struct cuda_gpu *gpu) {
    struct reel_error err;
    if (cuda_driver_open(driver, folder(), &err) != REEL_OK) fail_msg("%s", err.text);
    if (cuda_gpu_open(gpu, driver, 0, &err) != REEL_OK) fail_msg("%s", err.text);
}

static void a_gpus_facts_are_what_the_driver_says(void **state) {
    (void)state;
    struct cuda_driver driver;
    struct cuda_gpu gpu;
    struct gpu_limits limits;
    const struct fake_cuda *fake = sim_gpu_controls().cuda;
    open_gpu(&driver, &gpu);
    assert_string_equal(gpu.facts.name, fake->gpu.name);
    assert_int_equal(gpu.facts.compute, fake->gpu.compute);
    assert_int_equal(gpu.facts.memory_bytes, fake->gpu.memory_bytes);
    assert_int_equal(strlen(gpu.facts.uuid), strlen("GPU-01234567-89ab-cdef-0123-456789abcdef"));
    gpu_limits_fill(&limits, &gpu.facts, 1);
    assert_string_equal(limits.name, fake->gpu.name);
    assert_int_equal(limits.n_sms, fake->gpu.n_sms);
    assert_int_equal(limits.shared_bytes, fake->gpu.shared_bytes);
    assert_int_equal(limits.registers, fake->gpu.registers);
    assert_int_equal(limits.max_threads, fake->gpu.max_threads);
    cuda_gpu_close(&gpu);
    cuda_driver_close(&driver);
}

static void gpus_that_cannot_be_used_say_why(void **state) {
    (void)state;
    struct cuda_driver driver;
    struct cuda_gpu gpu;
    struct reel_error err;
    struct fake_cuda *fake = sim_gpu_controls().cuda;
    assert_int_equal(cuda_driver_open(&driver, folder(), &err), REEL_OK);
    assert_int_equal(cuda_gpu_open(&gpu, &driver, 7, &err), REEL_E_ARGUMENT);
    says(&err, "gpu:7");
    assert_int_equal(cuda_gpu_open(&gpu, &driver, -1, &err), REEL_E_ARGUMENT);
    fake->gpu.compute = 70;
    assert_int_equal(cuda_gpu_open(&gpu, &driver, 0, &err), REEL_E_UNSUPPORTED);
    says(&err, "7.0");
    says(&err, "7.5");
    cuda_gpu_close(&gpu);
    const struct cuda_gpu_facts closed = { .compute = 90, .compute_mode = CU_MODE_PROHIBITED };
    assert_int_equal(cuda_gpu_check(&closed, 0, &err), REEL_E_UNSUPPORTED);
    says(&err, "prohibited");
    const struct cuda_gpu_facts alone = { .compute = 90 };
    assert_int_equal(cuda_gpu_check(&alone, 0, &err), REEL_E_UNSUPPORTED);
    says(&err, "cooperative");
    assert_int_equal(fake->live.contexts, 0);
    cuda_driver_close(&driver);
}

static void exhausted_memory_names_what_was_wanted_and_what_is_free(void **state) {
    (void)state;
    struct cuda_driver driver;
    struct cuda_gpu gpu;
    struct reel_error err;
    cu_address p = 1;
    sim_gpu_controls().cuda->gpu.memory_bytes = 50000000;
    open_gpu(&driver, &gpu);
    assert_int_equal(cuda_alloc(&gpu, &p, 123400000, "the weights", &err), REEL_E_MEMORY);
    assert_int_equal(p, 0);
    says(&err, "the weights needs 123.4 MB");
    says(&err, "50.0 MB");
    says(&err, "gpu:0");
    cuda_gpu_close(&gpu);
    cuda_driver_close(&driver);
}

/* ---- every call ---- */

static const char *const source = "#include \"sync.cuh\"\n"
                                  "KERNEL(32) nothing(u32 *out) { (void)out; }\n";

/* Calls of the last use_all() before it began to give back. */
static int n_used;

/* Uses every wrapper once; what it opens is closed whatever happens. */
struct use {
    struct cuda_driver driver;
    struct cuda_gpu gpu;
    cu_address device, mapped;
    void *host;
    struct cu_stream *stream;
    struct cu_event *from, *to;
    struct cu_module *module;
};

static enum reel_status use_memory(struct use *u, struct reel_error *err) {
    /* A page of its own for each run: when giving one back fails, it stays registered. */
    static char pages[256][4096] __attribute__((aligned(4096)));
    static int run;
    char *bytes = pages[run++ % 256];
    char back[16] = "";
    uint64_t n_free = 0, n_total = 0;
    enum reel_status status = cuda_memory(&u->gpu, &n_free, &n_total, err);
    if (status == REEL_OK) status = cuda_alloc(&u->gpu, &u->device, 4096, "a test", err);
    if (status == REEL_OK)
        status = cuda_host_alloc(&u->gpu, &u->host, &u->mapped, 4096, "a mailbox", err);
    if (status == REEL_OK) status = cuda_host_register(&u->gpu, bytes, sizeof pages[0], false, err);
    if (status == REEL_OK) cuda_host_unregister(&u->gpu, bytes);
    if (status == REEL_OK) status = cuda_fill(&u->gpu, u->device, 7, 4096, NULL, err);
    if (status == REEL_OK) status = cuda_upload(&u->gpu, u->device, "a text", 7, NULL, err);
    if (status == REEL_OK) status = cuda_copy(&u->gpu, u->device + 64, u->device, 16, NULL, err);
    if (status == REEL_OK) status = cuda_download(&u->gpu, back, u->device + 64, 16, NULL, err);
    if (status == REEL_OK) assert_string_equal(back, "a text");
    if (status == REEL_OK) assert_int_equal(back[15], 7);
    return status;
}

static enum reel_status use_streams(struct use *u, struct reel_error *err) {
    char back[16] = "";
    float ms = -1;
    bool done = false;
    enum reel_status status = cuda_stream_open(&u->gpu, &u->stream, err);
    if (status == REEL_OK) status = cuda_event_open(&u->gpu, &u->from, err);
    if (status == REEL_OK) status = cuda_event_open(&u->gpu, &u->to, err);
    if (status == REEL_OK) status = cuda_event_record(&u->gpu, u->from, u->stream, err);
    if (status == REEL_OK) status = cuda_fill(&u->gpu, u->device, 1, 64, u->stream, err);
    if (status == REEL_OK) status = cuda_upload(&u->gpu, u->device, "others", 7, u->stream, err);
    if (status == REEL_OK)
        status = cuda_copy(&u->gpu, u->device + 64, u->device, 16, u->stream, err);
    if (status == REEL_OK)
        status = cuda_download(&u->gpu, back, u->device + 64, 16, u->stream, err);
    if (status == REEL_OK) status = cuda_event_record(&u->gpu, u->to, u->stream, err);
    if (status == REEL_OK) status = cuda_poll(&u->gpu, u->stream, &done, "a test", err);
    if (status == REEL_OK) status = cuda_wait(&u->gpu, u->stream, "a test", err);
    if (status == REEL_OK) status = cuda_event_wait(&u->gpu, u->to, err);
    if (status == REEL_OK) status = cuda_event_ms(&u->gpu, u->from, u->to, &ms, err);
    if (status == REEL_OK) assert_string_equal(back, "others");
    if (status == REEL_OK) assert_true(ms >= 0);
    return status;
}

static enum reel_status use_kernel(struct use *u, const void *image, struct reel_error *err) {
    struct cuda_function f;
    int n_blocks = 0;
    void *arguments[] = { &u->device };
    struct cuda_launch launch = { .function = &f,
                                  .blocks = 2,
                                  .threads = 32,
                                  .shared_bytes = 1024,
                                  .stream = u->stream,
                                  .arguments = arguments };
    enum reel_status status = cuda_module_load(&u->gpu, &u->module, image, err);
    if (status == REEL_OK) status = cuda_function_find(&u->gpu, &f, u->module, "nothing", err);
    if (status == REEL_OK) status = cuda_function_set_shared(&u->gpu, &f, 1024, err);
    if (status == REEL_OK) status = cuda_occupancy(&u->gpu, &f, 32, 1024, &n_blocks, err);
    if (status == REEL_OK) assert_true(n_blocks > 0);
    if (status == REEL_OK) status = cuda_launch(&u->gpu, &launch, err);
    launch.cooperative = true;
    if (status == REEL_OK) status = cuda_launch(&u->gpu, &launch, err);
    if (status == REEL_OK) status = cuda_wait(&u->gpu, u->stream, "the kernel", err);
    return status;
}

static enum reel_status use_all(const struct fake_cuda *fake, const void *image,
                                struct reel_error *err) {
    struct use u = { .device = 0 };
    enum reel_status status = cuda_driver_open(&u.driver, folder(), err);
    if (status == REEL_OK) status = cuda_gpu_open(&u.gpu, &u.driver, 0, err);
    if (status == REEL_OK) {
        status = use_memory(&u, err);
        if (status == REEL_OK) status = use_streams(&u, err);
        if (status == REEL_OK) status = use_kernel(&u, image, err);
        n_used = fake->n_calls;
        cuda_module_unload(&u.gpu, u.module);
        cuda_event_close(&u.gpu, u.from);
        cuda_event_close(&u.gpu, u.to);
        cuda_stream_close(&u.gpu, u.stream);
        cuda_host_free(&u.gpu, u.host);
        cuda_free(&u.gpu, u.device);
    }
    cuda_gpu_close(&u.gpu);
    cuda_driver_close(&u.driver);
    return status;
}

/* The fake's compiled image of `source`, the caller's to free. */
static void *compile_nothing(void) {
    struct nvrtc nvrtc;
    struct reel_error err;
    struct kernel_image image;
    struct kernel_source sources[128] = { { "nothing.cu", source } };
    assert_true(n_kernel_sources < 128);
    memcpy(sources + 1, kernel_sources, (size_t)n_kernel_sources * sizeof *sources);
    const struct kernel_build build = { .nvrtc = &nvrtc,
                                        .sources = sources,
                                        .n_sources = n_kernel_sources + 1,
                                        .program = "nothing.cu",
                                        .constants = "G_COPY=0\nG_COMPUTE=90\n",
                                        .gpu_compute = 90,
                                        .driver_version = 13000 };
    assert_int_equal(nvrtc_open(&nvrtc, folder(), 13000, NULL), REEL_OK);
    if (kernel_build(&image, &build, &err) != REEL_OK) fail_msg("%s", err.text);
    nvrtc_close(&nvrtc);
    free(image.log);
    return image.bytes;
}

/* Failures of these are nobody's business: there is nothing to do about them. */
static bool gives_back(const char *call) {
    return strstr(call, "Free") || strstr(call, "Destroy") || strstr(call, "Unload") ||
           strstr(call, "Release") || strstr(call, "Pop") || strstr(call, "Unregister");
}

/* registrations: how many were there before. */
static void expect_nothing_live(const struct fake_cuda *fake, int registrations,
                                const char *failed) {
    const struct fake_live *l = &fake->live;
    if (l->contexts || l->streams || l->events || l->modules || l->allocations ||
        l->host_allocations || l->registrations != registrations)
        fail_msg("after %s failed: %d contexts, %d streams, %d events, %d modules, %d + %d "
                 "allocations, %d registrations are left",
                 failed, l->contexts, l->streams, l->events, l->modules, l->allocations,
                 l->host_allocations, l->registrations - registrations);
}

static void every_failing_call_is_named_and_leaves_nothing(void **state) {
    (void)state;
    struct fake_cuda *fake = sim_gpu_controls().cuda;
    struct reel_error err;
    void *image = compile_nothing();
    if (use_all(fake, image, &err) != REEL_OK) fail_msg("%s: %s", err.text, fake->report);
    expect_nothing_live(fake, 0, "nothing");
    const int n_calls = n_used;
    int n_named = 0;
    assert_true(n_calls > 60);
    for (int n = 1; n <= n_calls; n++) {
        fake = sim_gpu_controls().cuda;
        fake->fail_call = n;
        fake->fail_with = CU_ERROR_UNKNOWN;
        int registrations = fake->live.registrations;
        enum reel_status status = use_all(fake, image, &err);
        assert_non_null(fake->failed_call);
        if (gives_back(fake->failed_call)) continue;
        bool entering = strcmp(fake->failed_call, "cuCtxPushCurrent_v2") == 0;
        if (entering && status == REEL_OK) continue; /* on the way to giving something back */
        expect_nothing_live(fake, registrations, fake->failed_call);
        /* one question that drivers may not know */
        if (status == REEL_OK && strcmp(fake->failed_call, "cuDeviceGetAttribute") == 0) continue;
        if (status == REEL_OK) fail_msg("nobody noticed that %s failed", fake->failed_call);
        if (!entering) says(&err, fake->failed_call);
        says(&err, "CUDA_ERROR_UNKNOWN");
        n_named++;
    }
    assert_true(n_named > 30);
    free(image);
}

static void a_failure_to_give_back_stops_nothing(void **state) {
    (void)state;
    static const char *const calls[] = { "cuMemFree_v2",       "cuMemFreeHost",
                                         "cuStreamDestroy_v2", "cuEventDestroy_v2",
                                         "cuModuleUnload",     "cuMemHostUnregister",
                                         "cuCtxPopCurrent_v2" };
    void *image = compile_nothing();
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        struct fake_cuda *fake = sim_gpu_controls().cuda;
        struct reel_error err;
        fake->only = calls[i];
        fake->fail_call = 1;
        fake->fail_with = CU_ERROR_UNKNOWN;
        if (use_all(fake, image, &err) != REEL_OK) fail_msg("%s", err.text);
        assert_string_equal(fake->failed_call, calls[i]);
    }
    free(image);
}

static void errors_that_end_the_context_say_so(void **state) {
    (void)state;
    static const struct {
        const char *call;
        int error;
        const char *says;
    } cases[] = {
        { "cuStreamSynchronize", CU_ERROR_ILLEGAL_ADDRESS, "start again" },
        { "cuStreamSynchronize", CU_ERROR_LAUNCH_FAILED, "start again" },
        { "cuStreamSynchronize", CU_ERROR_LAUNCH_TIMEOUT, "screen" },
        { "cuLaunchCooperativeKernel", CU_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "MPS" },
        { "cuLaunchKernel", CU_ERROR_LAUNCH_OUT_OF_RESOURCES, "2 blocks of 32 threads" },
        { "cuModuleLoadData", CU_ERROR_INVALID_IMAGE, "cache" },
        { "cuModuleLoadData", CU_ERROR_UNSUPPORTED_PTX_VERSION, "update the driver" },
        { "cuDevicePrimaryCtxRetain", CU_ERROR_DEVICES_UNAVAILABLE, "compute mode" },
        { "cuMemHostAlloc", CU_ERROR_OUT_OF_MEMORY, "a mailbox" },
    };
    void *image = compile_nothing();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fake_cuda *fake = sim_gpu_controls().cuda;
        struct reel_error err;
        fake->only = cases[i].call;
        fake->fail_call = 1;
        fake->fail_with = cases[i].error;
        assert_int_not_equal(use_all(fake, image, &err), REEL_OK);
        says(&err, cases[i].call);
        says(&err, cases[i].says);
    }
    free(image);
}

static void too_much_shared_memory_is_refused_with_both_numbers(void **state) {
    (void)state;
    struct cuda_driver driver;
    struct cuda_gpu gpu;
    struct reel_error err;
    const struct cuda_function f = { .name = "decode", .shared_bytes = 1000 };
    sim_gpu_controls();
    open_gpu(&driver, &gpu);
    assert_int_equal(cuda_function_set_shared(&gpu, &f, gpu.facts.shared_bytes, &err),
                     REEL_E_LIMIT);
    says(&err, "decode");
    cuda_gpu_close(&gpu);
    cuda_driver_close(&driver);
}

/* ---- NVRTC ---- */

static void a_missing_compiler_names_the_packages_that_have_it(void **state) {
    (void)state;
    struct nvrtc nvrtc;
    struct reel_error err;
    assert_int_equal(nvrtc_open(&nvrtc, "tests", 12040, &err), REEL_E_UNSUPPORTED);
    says(&err, "cuda-nvrtc-12-4");
    says(&err, "nvidia-cuda-nvrtc-cu12");
    assert_int_equal(nvrtc_open(&nvrtc, "tests", 13000, &err), REEL_E_UNSUPPORTED);
    says(&err, "pip install nvidia-cuda-nvrtc ");
    nvrtc_close(&nvrtc);
    nvrtc_close(NULL);
}

static void a_compiler_newer_than_the_driver_is_refused(void **state) {
    (void)state;
    struct copies copies;
    struct nvrtc nvrtc;
    struct reel_error err;
    sim_gpu_controls();
    copies_start(&copies);
    copies_add(&copies, library("libnvrtc.so.13"), "libnvrtc.so");
    assert_int_equal(nvrtc_open(&nvrtc, copies.folder, 12080, &err), REEL_E_UNSUPPORTED);
    says(&err, "(CUDA 12.8) is too old");
    says(&err, "NVRTC 13.0");
    assert_int_equal(nvrtc_open(&nvrtc, copies.folder, 13000, &err), REEL_OK);
    assert_int_equal(nvrtc.major, 13);
    assert_int_equal(nvrtc.path[0], '/');
    nvrtc_close(&nvrtc);
    copies_end(&copies);
}

static void a_library_that_is_no_compiler_is_refused(void **state) {
    (void)state;
    struct copies copies;
    struct nvrtc nvrtc;
    struct reel_error err;
    copies_start(&copies);
    copies_add(&copies, library("libcuda.so.1"), "libnvrtc.so.13");
    assert_int_equal(nvrtc_open(&nvrtc, copies.folder, 13000, &err), REEL_E_UNSUPPORTED);
    says(&err, "lacks nvrtcVersion");
    copies_end(&copies);
}

static void a_target_the_compiler_does_not_know_is_refused(void **state) {
    (void)state;
    struct nvrtc nvrtc;
    struct reel_error err;
    struct fake_nvrtc *fake = sim_gpu_controls().nvrtc;
    assert_int_equal(nvrtc_open(&nvrtc, folder(), 13000, &err), REEL_OK);
    assert_int_equal(nvrtc_check_target(&nvrtc, 90, &err), REEL_OK);
    assert_int_equal(nvrtc_check_target(&nvrtc, 155, &err), REEL_E_UNSUPPORTED);
    says(&err, "15.5");
    says(&err, "newer NVRTC");
    assert_int_equal(nvrtc_check_target(&nvrtc, 70, &err), REEL_E_UNSUPPORTED);
    says(&err, "older NVRTC");
    for (int n = 1; n <= 2; n++) {
        fake->fail_call = n;
        fake->fail_with = 11;
        assert_int_equal(nvrtc_check_target(&nvrtc, 90, &err), REEL_E_DEVICE);
        says(&err, "internal error");
    }
    nvrtc_close(&nvrtc);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_machine_without_a_driver_is_told_what_to_install),
        cmocka_unit_test(a_driver_that_does_not_load_is_told_with_the_loaders_words),
        cmocka_unit_test(a_driver_without_a_call_is_too_old),
        cmocka_unit_test(a_driver_older_than_11_2_is_refused),
        cmocka_unit_test(a_driver_without_gpus_says_where_they_may_be),
        cmocka_unit_test(what_fails_at_the_start_is_named_with_what_to_do),
        cmocka_unit_test(a_driver_opens_many_times_in_one_process),
        cmocka_unit_test(a_gpus_facts_are_what_the_driver_says),
        cmocka_unit_test(gpus_that_cannot_be_used_say_why),
        cmocka_unit_test(exhausted_memory_names_what_was_wanted_and_what_is_free),
        cmocka_unit_test(every_failing_call_is_named_and_leaves_nothing),
        cmocka_unit_test(a_failure_to_give_back_stops_nothing),
        cmocka_unit_test(errors_that_end_the_context_say_so),
        cmocka_unit_test(too_much_shared_memory_is_refused_with_both_numbers),
        cmocka_unit_test(a_missing_compiler_names_the_packages_that_have_it),
        cmocka_unit_test(a_compiler_newer_than_the_driver_is_refused),
        cmocka_unit_test(a_library_that_is_no_compiler_is_refused),
        cmocka_unit_test(a_target_the_compiler_does_not_know_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
