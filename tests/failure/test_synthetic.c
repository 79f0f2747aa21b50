/* reel_synthesize and the reference's session when memory, files or disks fail. */
#include "cpu/reference_model.h"
#include "reel_measure.h"
#include "support/faults.h"
#include "tests/support/golden.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char parent[] = "/tmp/reel-faults-XXXXXX";
static char folder[64];

static int make_parent(void **state) {
    (void)state;
    faults_install();
    if (!mkdtemp(parent)) return -1;
    snprintf(folder, sizeof folder, "%s/model", parent);
    return 0;
}

static void clear_folder(void) {
    static const char *const names[] = { "config.json", "tokenizer.json", "model.safetensors" };
    char path[100];
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

static int drop_parent(void **state) {
    (void)state;
    clear_folder();
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

static enum reel_status synthesize(void *context, struct reel_error *err) {
    (void)context;
    clear_folder(); /* of the run before; the calls it makes are not among those that fail */
    enum reel_status status =
        reel_synthesize(folder, "tests/golden/models/q3-a.json", 1, NULL, NULL, err);
    const char *named = err ? strstr(err->text, folder) : NULL; /* by the name it was to have */
    assert_false(named && named[strlen(folder)] == '.');
    return status;
}

/* A whole folder or none, and nothing beside it. */
static void check_folder(void *context, enum reel_status status) {
    (void)context;
    assert_int_equal(entries(parent), status == REEL_OK ? 1 : 0);
    if (status == REEL_OK) assert_int_equal(entries(folder), 3);
}

static void a_synthetic_folder_is_whole_or_absent(void **state) {
    (void)state;
    struct faults_sweep sweep = { .name = "reel_synthesize",
                                  .run = synthesize,
                                  .check = check_folder };
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONWARD);
    faults_sweep(&sweep, FAULT_IO, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_IO, FAULT_SHORT);
    faults_sweep(&sweep, FAULT_IO, FAULT_INTERRUPT);
}

/* ---- the reference --------------------------------------------------------------------------- */

static struct golden_model model;

static int make_model(void **state) {
    (void)state;
    golden_model_open(&model, "q3-a");
    return 0;
}

static int drop_model(void **state) {
    (void)state;
    golden_model_close(&model);
    return 0;
}

static enum reel_status open_and_evaluate(void *context, struct reel_error *err) {
    (void)context;
    struct ref_options options = { .mode = REF_FAST, .max_positions = 4 };
    struct ref_state *state = NULL;
    static const int32_t ids[2] = { 1, 2 };
    float hidden[64];
    struct backend_eval eval = {
        .n = 2, .ids = ids, .output = REEL_OUTPUT_LAST_HIDDEN, .out = hidden
    };
    enum reel_status status = ref_state_open(&state, &model.config, &model.weights, &options, err);
    if (status == REEL_OK) {
        faults_guard_begin();
        status = ref_state_eval(state, &eval, err);
        assert_int_equal(faults_guard_end(), 0);
    }
    ref_state_close(state);
    return status;
}

static void a_reference_session_opens_or_says_why_not(void **state) {
    (void)state;
    struct faults_sweep sweep = { .name = "ref_state", .run = open_and_evaluate };
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONWARD);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_synthetic_folder_is_whole_or_absent),
        cmocka_unit_test_setup_teardown(a_reference_session_opens_or_says_why_not, make_model,
                                        drop_model),
    };
    return cmocka_run_group_tests_name("synthetic folders and the reference under failing calls",
                                       tests, make_parent, drop_parent);
}
