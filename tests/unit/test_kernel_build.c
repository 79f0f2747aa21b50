/* Kernel builds: with the fake compiler all that can go wrong, with NVIDIA's that the kernels
 * compile. */
#include "base/buffer.h"
#include "base/file_map.h"
#include "cuda/compile/kernel_build.h"
#include "support/sanitized.h"
#include "support/shares.h"
#include "support/sim_gpu.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static const struct kernel_source sources[] = {
    { "good.cu", "#include \"part.cuh\"\nKERNEL(32) k(int *x) { *x = PART + GIVEN; }\n" },
    { "bad.cu", "#include \"part.cuh\"\nthis is no language\nnor is this\n" },
    { "part.cuh", "#define KERNEL(threads) void\n#define PART 1\n" },
};
static const struct kernel_source changed[] = {
    { "good.cu", "#include \"part.cuh\"\nKERNEL(32) k(int *x) { *x = PART + GIVEN; }\n" },
    { "bad.cu", "" },
    { "part.cuh", "#define KERNEL(threads) void\n#define PART 2\n" },
};

struct fixture {
    struct nvrtc nvrtc;
    struct fake_nvrtc *fake;
    char folder[64]; /* the cache */
    char warning[600];
    int n_warnings, n_progress, stop_at;
    struct kernel_build build;
};

static void hear_warning(void *user, enum reel_log_level level, const char *text) {
    assert_int_equal(level, REEL_LOG_WARNING);
    struct fixture *f = user;
    f->n_warnings++;
    snprintf(f->warning, sizeof f->warning, "%s", text);
}

static bool hear_progress(void *user, const char *stage, uint64_t done, uint64_t total) {
    struct fixture *f = user;
    assert_string_equal(stage, "compiling kernels");
    assert_true(done == 0 && total == 0);
    return ++f->n_progress != f->stop_at;
}

static void start(struct fixture *f) {
    struct reel_error err;
    *f = (struct fixture){ .folder = "/tmp/reel-kernels-XXXXXX" };
    assert_non_null(mkdtemp(f->folder));
    f->fake = sim_gpu_controls().nvrtc;
    if (nvrtc_open(&f->nvrtc, sim_gpu_folder(), 13000, &err) != REEL_OK) fail_msg("%s", err.text);
    f->build = (struct kernel_build){ .nvrtc = &f->nvrtc,
                                      .sources = sources,
                                      .n_sources = 3,
                                      .program = "good.cu",
                                      .constants = "GIVEN=5\n",
                                      .gpu_compute = 90,
                                      .driver_version = 13000,
                                      .cache_dir = f->folder,
                                      .progress = hear_progress,
                                      .progress_user = f,
                                      .log = hear_warning,
                                      .log_user = f };
}

/* The cache's only file with this ending, or "". */
static const char *only_file(const struct fixture *f, const char *ending) {
    static char path[400];
    DIR *folder = opendir(f->folder);
    int n = 0;
    path[0] = '\0';
    assert_non_null(folder);
    for (struct dirent *e = readdir(folder); e; e = readdir(folder)) {
        const char *dot = strrchr(e->d_name, '.');
        if (e->d_name[0] == '.' || !dot || strcmp(dot, ending) != 0) continue;
        snprintf(path, sizeof path, "%s/%s", f->folder, e->d_name);
        n++;
    }
    closedir(folder);
    assert_true(n <= 1);
    return path;
}

static int n_files(const char *path) {
    DIR *folder = opendir(path);
    int n = 0;
    assert_non_null(folder);
    while (readdir(folder))
        n++;
    closedir(folder);
    return n - 2;
}

static void end(struct fixture *f) {
    char path[400];
    DIR *folder = opendir(f->folder);
    for (struct dirent *e = folder ? readdir(folder) : NULL; e; e = readdir(folder)) {
        if (e->d_name[0] == '.') continue;
        snprintf(path, sizeof path, "%s/%s", f->folder, e->d_name);
        if (unlink(path) != 0) rmdir(path);
    }
    if (folder) closedir(folder);
    rmdir(f->folder);
    nvrtc_close(&f->nvrtc);
}

static void says(const struct reel_error *err, const char *text) {
    if (!strstr(err->text, text)) fail_msg("\"%s\" is not in: %s", text, err->text);
}

/* Builds, expects success, and tells what was compiled. */
static struct kernel_image must_build(struct fixture *f) {
    struct kernel_image image;
    struct reel_error err;
    if (kernel_build(&image, &f->build, &err) != REEL_OK) fail_msg("%s", err.text);
    assert_true(image.n_bytes > 10);
    assert_int_equal(strncmp(image.bytes, "fake cubin", 10), 0);
    assert_int_equal(strlen(image.key), 64);
    return image;
}

/* ---- what is compiled and what is remembered ---- */

static void the_second_build_comes_from_the_cache(void **state) {
    (void)state;
    struct fixture f;
    start(&f);
    struct kernel_image first = must_build(&f);
    assert_false(first.from_cache);
    assert_true(first.compile_s > 0);
    assert_true(f.n_progress > 0);
    int n_heard = f.n_progress;
    struct kernel_image second = must_build(&f);
    assert_true(second.from_cache);
    assert_true(second.compile_s == 0);
    assert_int_equal(f.n_progress, n_heard);
    assert_int_equal(first.n_bytes, second.n_bytes);
    assert_memory_equal(first.bytes, second.bytes, first.n_bytes);
    assert_string_equal(first.key, second.key);
    assert_int_equal(f.n_warnings, 0);
    assert_int_equal(n_files(f.folder), 1);
    kernel_image_release(&first);
    kernel_image_release(&second);
    kernel_image_release(&second);
    end(&f);
}

static void the_key_holds_all_that_the_image_depends_on(void **state) {
    (void)state;
    struct fixture f;
    char keys[12][65];
    int n = 0;
    start(&f);
    const struct kernel_build plain = f.build;
    struct nvrtc other = f.nvrtc;
    other.minor++;
    for (int i = 0; i < 10; i++) {
        f.build = plain;
        if (i == 1) f.build.constants = "GIVEN=6\n";
        if (i == 2) f.build.constants = "GIVEN=5\nMORE=1\n";
        if (i == 3) f.build.sources = changed;
        if (i == 4) f.build.compute = 80, f.build.gpu_compute = 80;
        if (i == 5) f.build.compute = 80;
        if (i == 6) f.build.driver_version = 14000;
        if (i == 7) f.build.nvrtc = &other;
        if (i == 8) f.build.n_sources = 3, f.build.gpu_compute = 100;
        if (i == 9) f.build.constants = "GIVEN=5\n-lineinfo\n"; /* no constant's name */
        struct kernel_image image = must_build(&f);
        assert_false(image.from_cache);
        memcpy(keys[n++], image.key, sizeof keys[0]);
        kernel_image_release(&image);
    }
    f.build = plain;
    f.build.driver_version = 13010; /* a minor version loads what its major made */
    struct kernel_image image = must_build(&f);
    assert_true(image.from_cache);
    kernel_image_release(&image);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < i; j++)
            assert_string_not_equal(keys[i], keys[j]);
    end(&f);
}

static void without_a_cache_folder_nothing_is_written(void **state) {
    (void)state;
    struct fixture f;
    start(&f);
    f.build.cache_dir = NULL;
    for (int i = 0; i < 2; i++) {
        struct kernel_image image = must_build(&f);
        assert_false(image.from_cache);
        kernel_image_release(&image);
    }
    assert_int_equal(n_files(f.folder), 0);
    end(&f);
}

static void a_missing_cache_folder_is_made(void **state) {
    (void)state;
    struct fixture f;
    start(&f);
    assert_int_equal(rmdir(f.folder), 0);
    struct kernel_image image = must_build(&f);
    kernel_image_release(&image);
    assert_int_equal(f.n_warnings, 0);
    assert_int_equal(n_files(f.folder), 1);
    end(&f);
}

static void a_cache_that_cannot_be_written_is_told_and_costs_nothing_else(void **state) {
    (void)state;
    struct fixture f;
    start(&f);
    f.build.cache_dir = "/proc/no/such/folder";
    struct kernel_image image = must_build(&f);
    kernel_image_release(&image);
    assert_int_equal(f.n_warnings, 1);
    assert_non_null(strstr(f.warning, "were not kept"));
    assert_non_null(strstr(f.warning, "/proc/no/such/folder"));
    f.build.log = NULL;
    image = must_build(&f);
    kernel_image_release(&image);
    end(&f);
}

/* ---- damaged files ---- */

static void write_damaged(const char *path, const struct file_map *good, size_t n, size_t flip) {
    unsigned char *bytes = malloc(good->size + 8);
    assert_non_null(bytes);
    memset(bytes, 0, good->size + 8);
    memcpy(bytes, good->bytes, good->size);
    if (flip < good->size) bytes[flip] ^= 4;
    int fd = open(path, O_WRONLY | O_TRUNC | O_CREAT, 0666);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), (ssize_t)n);
    close(fd);
    free(bytes);
}

/* A build over the damaged file warns, compiles and leaves a whole file again. */
static void expect_rebuild(struct fixture *f, const struct kernel_image *good, const char *what) {
    int before = f->n_warnings;
    struct kernel_image image = must_build(f);
    if (image.from_cache) fail_msg("a file with %s was used", what);
    if (f->n_warnings != before + 1) fail_msg("nobody was told of %s", what);
    assert_non_null(strstr(f->warning, "compiled again"));
    assert_non_null(strstr(f->warning, f->folder));
    assert_int_equal(image.n_bytes, good->n_bytes);
    kernel_image_release(&image);
    image = must_build(f);
    assert_true(image.from_cache);
    assert_memory_equal(image.bytes, good->bytes, good->n_bytes);
    kernel_image_release(&image);
}

static void a_damaged_cache_file_is_found_out_and_made_again(void **state) {
    (void)state;
    struct fixture f;
    struct file_map map;
    struct buffer copy = { 0 };
    char path[400], what[64];
    start(&f);
    struct kernel_image good = must_build(&f);
    snprintf(path, sizeof path, "%s", only_file(&f, ".bin"));
    assert_int_equal(file_map_open(&map, path, NULL), REEL_OK);
    assert_int_equal(buffer_append(&copy, map.bytes, map.size, NULL), REEL_OK);
    file_map_close(&map);
    file_map_borrow(&map, copy.bytes, copy.size);
    for (size_t n = 0; n < map.size; n += n < 20 ? 1 : 13) {
        snprintf(what, sizeof what, "%zu of %zu bytes", n, map.size);
        write_damaged(path, &map, n, SIZE_MAX);
        expect_rebuild(&f, &good, what);
    }
    write_damaged(path, &map, map.size + 3, SIZE_MAX);
    expect_rebuild(&f, &good, "three bytes too many");
    int n_unused = 0;
    for (size_t i = 0; i < map.size; i += i < 168 ? 1 : 7) {
        /* the zeroes that fill up the header's two texts carry nothing */
        bool filling = (i >= 24 + 65 && i < 24 + 72) || (i >= 96 + 65 && i < 96 + 72);
        n_unused += filling;
        if (filling) continue;
        snprintf(what, sizeof what, "byte %zu changed", i);
        write_damaged(path, &map, map.size, i);
        expect_rebuild(&f, &good, what);
    }
    assert_int_equal(n_unused, 14);
    buffer_release(&copy);
    kernel_image_release(&good);
    end(&f);
}

static void another_models_file_under_this_name_is_refused(void **state) {
    (void)state;
    struct fixture f;
    char first[400];
    start(&f);
    struct kernel_image good = must_build(&f);
    snprintf(first, sizeof first, "%s", only_file(&f, ".bin"));
    f.build.constants = "GIVEN=77\n";
    char aside[420];
    snprintf(aside, sizeof aside, "%s.aside", first);
    assert_int_equal(rename(first, aside), 0);
    struct kernel_image other = must_build(&f);
    assert_int_equal(rename(only_file(&f, ".bin"), first), 0);
    f.build.constants = "GIVEN=5\n";
    expect_rebuild(&f, &good, "other kernels");
    assert_non_null(strstr(f.warning, "other kernels"));
    kernel_image_release(&good);
    kernel_image_release(&other);
    end(&f);
}

static void a_folder_in_the_files_place_does_no_harm(void **state) {
    (void)state;
    struct fixture f;
    char path[400];
    start(&f);
    struct kernel_image good = must_build(&f);
    snprintf(path, sizeof path, "%s", only_file(&f, ".bin"));
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0777), 0);
    struct kernel_image image = must_build(&f);
    assert_false(image.from_cache);
    assert_int_equal(f.n_warnings, 2); /* cannot be read, was not kept */
    kernel_image_release(&image);
    kernel_image_release(&good);
    end(&f);
}

/* ---- signals while it compiles ---- */

static volatile sig_atomic_t n_interrupts;
static void count_interrupt(int number, siginfo_t *info, void *context) {
    (void)number, (void)info, (void)context;
    n_interrupts++;
}

static void hear_nothing(int number) { (void)number; }

static bool is_own(const struct sigaction *own) {
    struct sigaction now;
    assert_int_equal(sigaction(SIGINT, NULL, &now), 0);
    return now.sa_sigaction == own->sa_sigaction &&
           (now.sa_flags & (SA_SIGINFO | SA_NODEFER)) == (SA_SIGINFO | SA_NODEFER) &&
           sigismember(&now.sa_mask, SIGUSR1) == 1;
}

/* The first is heard of before the compiler has begun. */
enum { INTERRUPTS = 4, CATCHES_MS = 100 * (INTERRUPTS + 2) };
static bool interrupt_it(void *user, const char *stage, uint64_t done, uint64_t total) {
    struct fixture *f = user;
    (void)stage, (void)done, (void)total;
    if (++f->n_progress > 1 && f->n_progress <= INTERRUPTS + 1) raise(SIGINT);
    return true;
}

static void *build_beside(void *user) {
    struct fixture *f = user;
    struct kernel_image image = must_build(f);
    kernel_image_release(&image);
    return NULL;
}

/* The compiler's own handler would end this process. */
static void an_interrupt_while_it_compiles_is_the_programs(void **state) {
    (void)state;
    struct fixture f, beside;
    struct sigaction own = { .sa_sigaction = count_interrupt, .sa_flags = SA_SIGINFO | SA_NODEFER };
    struct sigaction term = { .sa_handler = hear_nothing, .sa_flags = SA_RESTART };
    struct sigaction before, before_term, now;
    pthread_t thread;
    sigemptyset(&own.sa_mask), sigemptyset(&term.sa_mask);
    sigaddset(&own.sa_mask, SIGUSR1), sigaddset(&term.sa_mask, SIGUSR1);
    assert_int_equal(sigaction(SIGTERM, &term, &before_term), 0);
    assert_int_equal(sigaction(SIGINT, &own, &before), 0);
    n_interrupts = 0;
    start(&f);
    f.fake->catches_ms = CATCHES_MS;
    f.build.cache_dir = NULL;
    beside = f;
    beside.build.constants = "GIVEN=6\n";
    beside.build.progress = NULL;
    f.build.progress = interrupt_it;
    assert_int_equal(pthread_create(&thread, NULL, build_beside, &beside), 0);
    build_beside(&f);
    pthread_join(thread, NULL);
    assert_int_equal(n_interrupts, INTERRUPTS);
    assert_true(is_own(&own));
    assert_int_equal(sigaction(SIGTERM, NULL, &now),
                     0); /* its flags are those that signal() sets */
    assert_int_equal(sigismember(&now.sa_mask, SIGUSR1), 1);
    assert_int_equal(sigaction(SIGTERM, &before_term, NULL), 0);
    assert_int_equal(sigaction(SIGINT, &before, NULL), 0);
    end(&f);
}

/* ---- what does not compile ---- */

static void a_compile_error_names_the_log_and_quotes_its_first_lines(void **state) {
    (void)state;
    struct fixture f;
    struct kernel_image image;
    struct reel_error err;
    struct file_map log;
    start(&f);
    f.build.program = "bad.cu";
    assert_int_equal(kernel_build(&image, &f.build, &err), REEL_E_DEVICE);
    assert_null(image.bytes);
    assert_null(image.log);
    says(&err, "NVRTC 13.0");
    says(&err, only_file(&f, ".log"));
    says(&err, "bad.cu:2");
    says(&err, "this is no language");
    assert_int_equal(file_map_open(&log, only_file(&f, ".log"), NULL), REEL_OK);
    assert_true(log.size > 40);
    file_map_close(&log);
    assert_string_equal(only_file(&f, ".bin"), "");
    f.build.cache_dir = NULL;
    assert_int_equal(kernel_build(&image, &f.build, &err), REEL_E_DEVICE);
    assert_null(strstr(err.text, ".log"));
    says(&err, "this is no language");
    end(&f);
}

static void a_program_or_target_there_is_none_of_is_refused(void **state) {
    (void)state;
    struct fixture f;
    struct kernel_image image;
    struct reel_error err;
    start(&f);
    f.build.program = "none.cu";
    assert_int_equal(kernel_build(&image, &f.build, &err), REEL_E_NOT_FOUND);
    says(&err, "none.cu");
    f.build.program = "good.cu";
    f.build.compute = 100;
    assert_int_equal(kernel_build(&image, &f.build, &err), REEL_E_ARGUMENT);
    says(&err, "10.0");
    says(&err, "9.0");
    f.build.compute = 0;
    f.build.gpu_compute = 999;
    assert_int_equal(kernel_build(&image, &f.build, &err), REEL_E_UNSUPPORTED);
    says(&err, "99.9");
    end(&f);
}

static void every_failing_call_of_the_compiler_is_named(void **state) {
    (void)state;
    struct fixture f;
    struct reel_error err;
    struct kernel_image image;
    start(&f);
    f.build.cache_dir = NULL;
    sim_gpu_controls();
    image = must_build(&f);
    kernel_image_release(&image);
    int n_calls = f.fake->n_calls;
    assert_true(n_calls >= 8);
    for (int n = 1; n <= n_calls; n++) {
        f.fake = sim_gpu_controls().nvrtc;
        f.fake->fail_call = n;
        f.fake->fail_with = 7;
        enum reel_status status = kernel_build(&image, &f.build, &err);
        if (strcmp(f.fake->failed_call, "nvrtcDestroyProgram") == 0) {
            assert_int_equal(status, REEL_OK);
        } else {
            assert_int_equal(status, REEL_E_DEVICE);
            says(&err, "libnvrtc-builtins");
            says(&err, "libnvrtc.so.13");
        }
        kernel_image_release(&image);
    }
    f.fake = sim_gpu_controls().nvrtc;
    f.fake->fail_call = 3;
    f.fake->fail_with = 1;
    assert_int_equal(kernel_build(&image, &f.build, &err), REEL_E_MEMORY);
    end(&f);
}

static void a_cancelled_build_leaves_nothing(void **state) {
    (void)state;
    struct fixture f;
    struct kernel_image image;
    struct reel_error err;
    start(&f);
    f.stop_at = 1;
    assert_int_equal(kernel_build(&image, &f.build, &err), REEL_E_CANCELLED);
    assert_null(image.bytes);
    assert_int_equal(n_files(f.folder), 0);
    assert_int_equal(f.n_progress, 1);
    end(&f);
}

static void a_build_without_listeners_works(void **state) {
    (void)state;
    struct fixture f;
    start(&f);
    f.build.progress = NULL;
    f.build.log = NULL;
    struct kernel_image image = must_build(&f);
    kernel_image_release(&image);
    f.build.constants = NULL;
    f.build.program = "part.cuh";
    image = must_build(&f);
    kernel_image_release(&image);
    end(&f);
}

/* ---- NVIDIA's own ---- */

/* Opens the real compiler, or skips. */
static void open_real(struct nvrtc *nvrtc) {
    struct reel_error err;
    if (nvrtc_open(nvrtc, NULL, 13000, &err) == REEL_OK) return;
    printf("skipped: %s\n", err.text);
    skip();
}

static void nvidias_compiler_makes_code_for_every_supported_gpu(void **state) {
    (void)state;
    static const int targets[] = { 75, 80, 86, 89, 90, 100, 120 };
    struct nvrtc nvrtc;
    struct reel_error err;
    struct kernel_image image;
    char constants[64];
    open_real(&nvrtc);
    const size_t n = sizeof targets / sizeof *targets;
    const struct share share = share_of("targets", 3);
    for (size_t i = 0; i < n; i += sanitized_briefly() ? n - 1 : 1) {
        if (!sanitized_briefly() && !share_has(share, (int)i)) continue;
        if (nvrtc_check_target(&nvrtc, targets[i], &err) != REEL_OK) {
            printf("left out: %s\n", err.text);
            continue;
        }
        snprintf(constants, sizeof constants, "G_COPY=0\nG_COMPUTE=%d\n", targets[i]);
        const struct kernel_build build = { .nvrtc = &nvrtc,
                                            .sources = kernel_sources,
                                            .n_sources = n_kernel_sources,
                                            .program = "wind.cu",
                                            .constants = constants,
                                            .compute = targets[i],
                                            .gpu_compute = targets[i],
                                            .driver_version = 13000 };
        if (kernel_build(&image, &build, &err) != REEL_OK) fail_msg("%s", err.text);
        assert_memory_equal(image.bytes, "\177ELF", 4);
        if (image.log) fail_msg("the compiler warns: %s", image.log);
        kernel_image_release(&image);
    }
    nvrtc_close(&nvrtc);
}

static void older_code_for_a_newer_gpu_is_ptx(void **state) {
    (void)state;
    struct nvrtc nvrtc;
    struct reel_error err;
    struct kernel_image image;
    open_real(&nvrtc);
    const struct kernel_build build = { .nvrtc = &nvrtc,
                                        .sources = kernel_sources,
                                        .n_sources = n_kernel_sources,
                                        .program = "wind.cu",
                                        .constants = "G_COPY=0\nG_COMPUTE=75\n",
                                        .compute = 75,
                                        .gpu_compute = 90,
                                        .driver_version = 13000 };
    if (kernel_build(&image, &build, &err) != REEL_OK) fail_msg("%s", err.text);
    assert_non_null(strstr(image.bytes, ".target sm_75"));
    assert_int_equal(((char *)image.bytes)[image.n_bytes - 1], 0);
    kernel_image_release(&image);
    nvrtc_close(&nvrtc);
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Enough code to keep the compiler busy for seconds. */
static char *long_program(void) {
    struct buffer text = { 0 };
    assert_int_equal(buffer_text(&text, "extern \"C\" __global__ void k(float *x) {\n", NULL), 0);
    for (int i = 0; i < 12000; i++)
        assert_int_equal(buffer_printf(&text, NULL, "x[%d] = x[%d] * x[%d] + x[(int)x[%d]];\n",
                                       i % 977, i * 7 % 991, i * 13 % 983, i * 5 % 971),
                         REEL_OK);
    assert_int_equal(buffer_text(&text, "}\n", NULL), 0);
    return buffer_detach(&text, NULL);
}

static void a_long_compilation_is_heard_of_and_can_be_cancelled(void **state) {
    (void)state;
    struct nvrtc nvrtc;
    struct reel_error err;
    struct kernel_image image;
    struct fixture f = { .stop_at = 4 };
    open_real(&nvrtc);
    char *text = long_program();
    const struct kernel_source program = { "long.cu", text };
    const struct kernel_build build = { .nvrtc = &nvrtc,
                                        .sources = &program,
                                        .n_sources = 1,
                                        .program = "long.cu",
                                        .gpu_compute = 90,
                                        .driver_version = 13000,
                                        .progress = hear_progress,
                                        .progress_user = &f };
    double start_s = now_s();
    enum reel_status status = kernel_build(&image, &build, &err);
    double took_s = now_s() - start_s;
    assert_int_equal(status, REEL_E_CANCELLED);
    assert_int_equal(f.n_progress, 4);
    assert_true(took_s >= 0.29);
    printf("cancelled after 0.3 s, over after %.2f s%s\n", took_s,
           nvrtc.set_flow ? "" : " (this NVRTC cannot end early)");
    free(text);
    nvrtc_close(&nvrtc);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        /* first: once the fake is loaded, the loader gives it to all who ask for this name */
        cmocka_unit_test(nvidias_compiler_makes_code_for_every_supported_gpu),
        cmocka_unit_test(older_code_for_a_newer_gpu_is_ptx),
        cmocka_unit_test(a_long_compilation_is_heard_of_and_can_be_cancelled),
        cmocka_unit_test(the_second_build_comes_from_the_cache),
        cmocka_unit_test(the_key_holds_all_that_the_image_depends_on),
        cmocka_unit_test(without_a_cache_folder_nothing_is_written),
        cmocka_unit_test(a_missing_cache_folder_is_made),
        cmocka_unit_test(a_cache_that_cannot_be_written_is_told_and_costs_nothing_else),
        cmocka_unit_test(a_damaged_cache_file_is_found_out_and_made_again),
        cmocka_unit_test(another_models_file_under_this_name_is_refused),
        cmocka_unit_test(a_folder_in_the_files_place_does_no_harm),
        cmocka_unit_test(an_interrupt_while_it_compiles_is_the_programs),
        cmocka_unit_test(a_compile_error_names_the_log_and_quotes_its_first_lines),
        cmocka_unit_test(a_program_or_target_there_is_none_of_is_refused),
        cmocka_unit_test(every_failing_call_of_the_compiler_is_named),
        cmocka_unit_test(a_cancelled_build_leaves_nothing),
        cmocka_unit_test(a_build_without_listeners_works),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
