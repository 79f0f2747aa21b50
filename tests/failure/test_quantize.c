/* Quantising when memory, files, disks or threads fail: while a model is loaded, and into a folder.
 */
#define _XOPEN_SOURCE 700 /* nftw, mkdtemp */
#include "reel_measure.h"
#include "support/faults.h"

#include <dirent.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char parent[] = "/tmp/reel-faults-XXXXXX";
static char source[64], folder[64];
static struct reel_model *model;

static const struct reel_model_options as_stored = { .size = sizeof as_stored,
                                                     .device = "cpu",
                                                     .cpu_path = "reference" };

static int make_model(void **state) {
    (void)state;
    struct reel_error err;
    faults_install();
    if (!mkdtemp(parent)) return -1;
    snprintf(source, sizeof source, "%s/wide", parent);
    snprintf(folder, sizeof folder, "%s/narrow", parent);
    if (reel_synthesize(source, "tests/golden/models/q3-a.json", 1, NULL, NULL, &err) ||
        reel_model_open(&model, source, &as_stored, &err)) {
        fprintf(stderr, "%s\n", err.text);
        return -1;
    }
    return 0;
}

/* By calls that the C library makes itself: those are not among the ones that fail. */
static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw) {
    (void)st, (void)type, (void)ftw;
    return remove(path);
}
static void clear(const char *path) { nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS); }

static int drop_model(void **state) {
    (void)state;
    reel_model_close(model);
    clear(source);
    clear(folder);
    return rmdir(parent);
}

static int entries(const char *path) {
    DIR *dir = opendir(path);
    int n = 0;
    if (!dir) return -1;
    for (struct dirent *entry = readdir(dir); entry; entry = readdir(dir))
        if (entry->d_name[0] != '.') n++;
    closedir(dir);
    return n;
}

static enum reel_status open_narrow(void *context, struct reel_error *err) {
    struct reel_model_options options = as_stored;
    struct reel_model *narrow = NULL;
    options.weights = context;
    options.n_threads = 2;
    enum reel_status status = reel_model_open(&narrow, source, &options, err);
    assert_true((status == REEL_OK) == (narrow != NULL));
    reel_model_close(narrow);
    return status;
}

static void a_model_is_quantised_or_does_not_open(void **state) {
    (void)state;
    struct faults_sweep sweep = { .name = "opening as int8",
                                  .run = open_narrow,
                                  .context = (void *)(uintptr_t) "int8",
                                  .most = 300 };
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONWARD);
    faults_sweep(&sweep, FAULT_THREAD, FAULT_ONCE);
}

static enum reel_status write_narrow(void *context, struct reel_error *err) {
    const struct reel_quantize_options options = {
        .size = sizeof options, .weights = "int8", .n_threads = 1, .shard_bytes = 20000
    };
    (void)context;
    clear(folder); /* of the run before */
    return reel_model_quantize(model, folder, &options, NULL, err);
}

static int n_whole; /* files of a whole folder */

/* A whole folder or none, and nothing beside it. A disk that fails after the folder has its name
 * is said, and the folder stays. */
static void check_folder(void *context, enum reel_status status) {
    (void)context;
    const int n = entries(folder);
    if (status == REEL_OK) assert_true(n > 3);
    if (n >= 0 && !n_whole) n_whole = n;
    if (n >= 0) assert_int_equal(n, n_whole);
    assert_int_equal(entries(parent), n >= 0 ? 2 : 1);
}

static void a_narrow_folder_is_whole_or_absent(void **state) {
    (void)state;
    struct faults_sweep sweep = {
        .name = "reel_model_quantize", .run = write_narrow, .check = check_folder, .most = 300
    };
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONWARD);
    faults_sweep(&sweep, FAULT_IO, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_IO, FAULT_SHORT);
    faults_sweep(&sweep, FAULT_IO, FAULT_INTERRUPT);
    assert_true(n_whole > 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_is_quantised_or_does_not_open),
        cmocka_unit_test(a_narrow_folder_is_whole_or_absent),
    };
    return cmocka_run_group_tests(tests, make_model, drop_model);
}
