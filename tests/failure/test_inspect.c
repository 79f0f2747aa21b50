/* Describing a model file when memory or disks fail. */
#include "support/faults.h"
#include "support/quantised_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/reel-inspect-XXXXXX";

static int make_file(void **state) {
    (void)state;
    faults_install();
    int fd = mkstemp(path);
    if (fd < 0) return -1;
    close(fd);
    struct bytes b = { 0 };
    quantised_gguf(&b);
    assert_int_equal(file_write_atomic(path, b.data, b.n, NULL), REEL_OK);
    bytes_release(&b);
    return 0;
}

static int drop_file(void **state) {
    (void)state;
    return unlink(path);
}

static enum reel_status inspect(void *context, struct reel_error *err) {
    char *json = NULL;
    enum reel_status status = reel_model_inspect(context, &json, err);
    if (status == REEL_OK && context == path) assert_non_null(strstr(json, "\"problem\": null"));
    if (status != REEL_OK) assert_null(json);
    reel_free(json);
    return status;
}

static void check_every_failing_call(char *what, int most) {
    struct faults_sweep sweep = {
        .name = "reel_model_inspect", .run = inspect, .context = what, .most = most
    };
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONWARD);
    sweep.may_succeed = true; /* what the machine has may stay unknown */
    faults_sweep(&sweep, FAULT_IO, FAULT_ONCE);
}

static void a_description_is_whole_or_not_given(void **state) {
    (void)state;
    check_every_failing_call(path, 2000);
}

static void a_folder_is_described_whole_or_not_at_all(void **state) {
    (void)state;
    static char folder[] = "models/demo";
    if (access(folder, R_OK) != 0) skip();
    check_every_failing_call(folder, 300);
}

/* The same question before the weights are there. */
static enum reel_status check_head(void *context, struct reel_error *err) {
    const struct bytes *b = context;
    const struct reel_memory_file file = { "m.gguf", b->data, b->n };
    bool complete = false;
    return reel_model_check("m.gguf", &file, 1, &complete, err);
}

static void a_model_is_judged_or_there_is_no_memory(void **state) {
    (void)state;
    struct bytes b = { 0 };
    quantised_gguf(&b);
    struct faults_sweep sweep = {
        .name = "reel_model_check", .run = check_head, .context = &b, .most = 300
    };
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONWARD);
    bytes_release(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_description_is_whole_or_not_given),
        cmocka_unit_test(a_folder_is_described_whole_or_not_at_all),
        cmocka_unit_test(a_model_is_judged_or_there_is_no_memory),
    };
    return cmocka_run_group_tests(tests, make_file, drop_file);
}
