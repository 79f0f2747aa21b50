/* From model folder to generated text with memory, files or threads failing, on the real backend;
 * and its token loop, which allocates nothing. */
#include "reel_measure.h"
#include "support/faults.h"
#include "support/sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *const shapes[] = { "tests/golden/models/q3-a.json",
                                      "tests/golden/models/q35-b.json" };
static const char *shape; /* of the group that runs */

static char root[40];
static char folder[64];

static int make_model(void **state) {
    (void)state;
    faults_install();
    strcpy(root, "/tmp/reel-faults-XXXXXX");
    if (!mkdtemp(root)) return -1;
    snprintf(folder, sizeof folder, "%s/model", root);
    return reel_synthesize(folder, shape, 1, NULL, NULL, NULL) == REEL_OK ? 0 : -1;
}

static int drop_model(void **state) {
    (void)state;
    char command[100];
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command) == 0 ? 0 : -1;
}

static const struct reel_session_options short_context = { .size = sizeof short_context,
                                                           .max_context = 96 };

static enum reel_status open_model(struct reel_model **model, const char *path,
                                   struct reel_error *err) {
    struct reel_model_options options = {
        .size = sizeof options, .device = "cpu", .cpu_path = path, .n_threads = 2
    };
    return reel_model_open(model, folder, &options, err);
}

static enum reel_status talk(struct reel_session *session, struct reel_error *err) {
    static const int32_t ids[] = { 10, 20, 30, 40, 50, 60, 70 };
    struct reel_sampling sampling = { .size = sizeof sampling, .temperature = 0.9f, .top_k = 40 };
    struct reel_generation generation = {
        .size = sizeof generation, .sampling = &sampling, .max_tokens = 5, .ignore_stop_ids = true
    };
    enum reel_status status = reel_session_sync(session, ids, 7, NULL, err);
    if (status == REEL_OK) status = reel_generate(session, &generation, NULL, err);
    return status;
}

/* Saved, forgotten, brought back: the ids must be those that were held. */
static enum reel_status save_and_restore(struct reel_session *session, struct reel_error *err) {
    size_t n = reel_session_snapshot_bytes(session);
    int length = reel_session_length(session);
    void *bytes = malloc(n);
    if (!bytes) {
        *err = (struct reel_error){ REEL_E_MEMORY, "the test's own buffer" };
        return REEL_E_MEMORY;
    }
    enum reel_status status = reel_session_snapshot(session, bytes, n, err);
    if (status == REEL_OK) status = reel_session_truncate(session, 0, err);
    if (status == REEL_OK) status = reel_session_restore(session, bytes, n, err);
    if (status == REEL_OK) assert_int_equal(reel_session_length(session), length);
    free(bytes);
    return status;
}

static enum reel_status whole_path(void *context, struct reel_error *err) {
    struct reel_model *model = NULL;
    struct reel_session *session = NULL;
    enum reel_status status = open_model(&model, context, err);
    if (status == REEL_OK) status = reel_session_open(&session, model, &short_context, err);
    if (status == REEL_OK) status = talk(session, err);
    if (status == REEL_OK) status = save_and_restore(session, err);
    reel_session_close(session);
    reel_model_close(model);
    return status;
}

static char *const paths[] = { "auto", "reference" };

/* Not where only threads are looked at: that one does not start has a test of its own. */
static void every_failing_allocation_ends_in_words(void **state) {
    (void)state;
    if (THREAD_SANITIZED) skip();
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        struct faults_sweep sweep = { .name = paths[i], .run = whole_path, .context = paths[i] };
        faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
        faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONWARD);
    }
}

static void every_failing_file_call_ends_in_words(void **state) {
    (void)state;
    struct faults_sweep sweep = { .name = "files", .run = whole_path, .context = paths[0] };
    sweep.may_succeed = true; /* what the machine has may stay unknown */
    faults_sweep(&sweep, FAULT_IO, FAULT_ONCE);
    sweep.may_succeed = false;
    faults_sweep(&sweep, FAULT_IO, FAULT_ONWARD);
}

static void a_thread_that_cannot_start_is_an_error_or_done_without(void **state) {
    (void)state;
    struct faults_sweep sweep = { .name = "threads", .run = whole_path, .context = paths[0] };
    sweep.may_succeed = true;
    faults_sweep(&sweep, FAULT_THREAD, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_THREAD, FAULT_ONWARD);
}

static void the_token_loop_of_the_real_backend_allocates_nothing(void **state) {
    (void)state;
    struct reel_error err = { 0 };
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++) {
        struct reel_model *model = NULL;
        struct reel_session *session = NULL;
        if (open_model(&model, paths[i], &err) != REEL_OK) fail_msg("%s", err.text);
        if (reel_session_open(&session, model, &short_context, &err) != REEL_OK)
            fail_msg("%s", err.text);
        if (talk(session, &err) != REEL_OK) fail_msg("%s", err.text);
        assert_int_equal(reel_session_truncate(session, 0, NULL), REEL_OK);
        faults_guard_begin();
        enum reel_status status = talk(session, &err);
        long n = faults_guard_end();
        if (status != REEL_OK) fail_msg("%s", err.text);
        if (n != 0) fail_msg("%s: %ld allocations", paths[i], n);
        reel_session_close(session);
        reel_model_close(model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_failing_allocation_ends_in_words),
        cmocka_unit_test(every_failing_file_call_ends_in_words),
        cmocka_unit_test(a_thread_that_cannot_start_is_an_error_or_done_without),
        cmocka_unit_test(the_token_loop_of_the_real_backend_allocates_nothing),
    };
    int failed = 0;
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        shape = shapes[i];
        failed += cmocka_run_group_tests_name("the whole path under failing calls", tests,
                                              make_model, drop_model);
    }
    return failed;
}
