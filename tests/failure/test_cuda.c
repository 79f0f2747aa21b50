/* What the GPU's parts do when memory, files or threads fail them. */
#include "cuda/compile/kernel_build.h"
#include "cuda/driver/gpu_info.h"
#include "support/faults.h"
#include "support/sim_gpu.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const struct kernel_source sources[] = {
    { "good.cu", "#include \"part.cuh\"\nKERNEL(32) k(int *x) { *x = GIVEN; }\n" },
    { "bad.cu", "this is no language\n" },
    { "part.cuh", "#define KERNEL(threads) void\n" },
};

struct building {
    struct nvrtc nvrtc;
    char folder[64];
    const char *program;
    bool fresh; /* each run finds an empty cache */
    bool heard; /* with a progress callback, so on a thread */
    int n_warnings;
};

static bool hear(void *user, const char *stage, uint64_t done, uint64_t total) {
    (void)user, (void)stage, (void)done, (void)total;
    return true;
}

static void hear_warning(void *user, enum reel_log_level level, const char *text) {
    assert_true(strlen(text) > 20);
    if (level == REEL_LOG_WARNING) ++*(int *)user;
}

/* Also shows that nothing unfinished lies about: what is there is a whole file or a log. */
static void empty_folder(const char *path) {
    char name[400];
    DIR *folder = opendir(path);
    if (!folder) return;
    for (struct dirent *e = readdir(folder); e; e = readdir(folder)) {
        if (e->d_name[0] == '.') continue;
        const char *dot = strrchr(e->d_name, '.');
        if (!dot || (strcmp(dot, ".bin") != 0 && strcmp(dot, ".log") != 0))
            fail_msg("%s was left behind", e->d_name);
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        unlink(name);
    }
    closedir(folder);
}

static enum reel_status build(void *context, struct reel_error *err) {
    struct building *b = context;
    struct kernel_image image;
    if (b->fresh) empty_folder(b->folder);
    const struct kernel_build build = { .nvrtc = &b->nvrtc,
                                        .sources = sources,
                                        .n_sources = 3,
                                        .program = b->program,
                                        .constants = "GIVEN=1\nUNUSED=2\n",
                                        .gpu_compute = 90,
                                        .driver_version = 13000,
                                        .cache_dir = b->folder,
                                        .progress = b->heard ? hear : NULL,
                                        .log = hear_warning,
                                        .log_user = &b->n_warnings };
    enum reel_status status = kernel_build(&image, &build, err);
    kernel_image_release(&image);
    return status;
}

static void start(struct building *b) {
    struct reel_error err;
    *b = (struct building){ .folder = "/tmp/reel-kernels-XXXXXX", .program = "good.cu" };
    sim_gpu_controls();
    assert_non_null(mkdtemp(b->folder));
    if (nvrtc_open(&b->nvrtc, sim_gpu_folder(), 13000, &err) != REEL_OK) fail_msg("%s", err.text);
}

static void end(struct building *b) {
    empty_folder(b->folder);
    assert_int_equal(rmdir(b->folder), 0);
    nvrtc_close(&b->nvrtc);
}

static void sweep(struct building *b, const char *name, enum fault_kind kind, bool may_succeed) {
    const struct faults_sweep sweep = {
        .name = name, .run = build, .context = b, .may_succeed = may_succeed
    };
    faults_sweep(&sweep, kind, FAULT_ONCE);
    faults_sweep(&sweep, kind, FAULT_ONWARD);
}

static void compiling_survives_any_failing_call(void **state) {
    (void)state;
    struct building b;
    start(&b);
    b.fresh = true;
    sweep(&b, "a build", FAULT_ALLOC, true);
    sweep(&b, "a build", FAULT_IO, true);
    assert_true(b.n_warnings > 0);
    b.heard = true;
    sweep(&b, "a build that is heard of", FAULT_THREAD, true);
    end(&b);
}

static void taking_kernels_from_the_cache_survives_any_failing_call(void **state) {
    (void)state;
    struct building b;
    start(&b);
    sweep(&b, "a cached build", FAULT_ALLOC, false);
    sweep(&b, "a cached build", FAULT_IO, true);
    end(&b);
}

static enum reel_status list_gpus(void *context, struct reel_error *err) {
    json_t *gpus, *notes;
    (void)context;
    enum reel_status status =
        gpu_describe(&gpus, &notes, &(struct cuda_folders){ .driver = sim_gpu_folder() }, err);
    json_decref(gpus);
    json_decref(notes);
    return status;
}

static void listing_gpus_survives_any_failing_allocation(void **state) {
    (void)state;
    const struct faults_sweep sweep = { .name = "gpu_describe", .run = list_gpus };
    const struct fake_cuda *fake = sim_gpu_controls().cuda;
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONWARD);
    assert_int_equal(fake->live.contexts, 0);
}

static int install(void **state) {
    (void)state;
    faults_install();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compiling_survives_any_failing_call),
        cmocka_unit_test(taking_kernels_from_the_cache_survives_any_failing_call),
        cmocka_unit_test(listing_gpus_survives_any_failing_allocation),
    };
    return cmocka_run_group_tests(tests, install, NULL);
}
