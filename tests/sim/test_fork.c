/* What fork() does to an opened model: the child is told, nothing hangs there, and the parent goes
 * on. */
#define _DEFAULT_SOURCE
#include "support/quantised_model.h"
#include "support/sim_gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct bytes file;
static const int32_t ids[] = { 1, 2, 3 };

static enum reel_status open_model(struct reel_model **model, const char *device,
                                   struct reel_error *err) {
    const struct reel_memory_file one = { "quantised.gguf", file.data, file.n };
    const struct reel_model_options options = {
        .size = sizeof options,
        .device = device,
        .n_threads = strcmp(device, "cpu") == 0 ? 3 : 0,
        .gpu_options = "n_groups=1,group_sms=2,warps=4,patience=2147483647,hang_ms=1000000000,"
                       "launch_ms=10000,launch_tokens=16,stage_kb=64",
        .cuda_dir = sim_gpu_folder()
    };
    return reel_model_open_memory(model, "quantised", &one, 1, &options, err);
}

static enum reel_status open_session(struct reel_session **session, const struct reel_model *model,
                                     struct reel_error *err) {
    const struct reel_session_options options = { .size = sizeof options, .max_context = 64 };
    return reel_session_open(session, model, &options, err);
}

static enum reel_status eval(struct reel_session *session, struct reel_error *err) {
    const struct reel_eval e = { .size = sizeof e, .n = 3, .ids = ids };
    return reel_session_eval(session, &e, err);
}

static enum reel_status generate(struct reel_session *session, struct reel_error *err) {
    const struct reel_generation g = { .size = sizeof g, .max_tokens = 2, .ignore_stop_ids = true };
    return reel_generate(session, &g, NULL, err);
}

/* Its exit status: 0, or the number of the step that went wrong. `open` has a generation open. */
static int child(struct reel_model *model, struct reel_session *session, struct reel_session *open,
                 bool cpu) {
    struct reel_session *other = NULL;
    struct reel_model *own = NULL;
    const struct reel_token *token;
    struct reel_error err = { 0 };
    alarm(30); /* what would hang ends with a signal */
    if (eval(session, &err) != REEL_E_STATE || !strstr(err.text, "forked")) return 1;
    if (generate(session, &err) != REEL_E_STATE) return 2;
    if (reel_generation_next(open, &token, &err) != REEL_E_STATE) return 3;
    assert_int_equal(reel_generation_finish(open, NULL, NULL), REEL_OK);
    if (open_session(&other, model, &err) != REEL_E_STATE || other) return 4;
    const int n_calls = sim_gpu_current().cuda->n_calls;
    reel_session_close(open);
    reel_session_close(session);
    reel_model_close(model);
    if (sim_gpu_current().cuda->n_calls != n_calls) return 5; /* the driver is not to be asked */
    if (!cpu) return 0;
    if (open_model(&own, "cpu", &err) != REEL_OK) return 6;
    if (open_session(&other, own, &err) != REEL_OK || eval(other, &err) != REEL_OK) return 7;
    reel_session_close(other);
    reel_model_close(own);
    return 0;
}

static void forks(const char *device) {
    const struct reel_generation g = { .size = sizeof g, .max_tokens = 9, .ignore_stop_ids = true };
    struct reel_session *session = NULL, *open = NULL;
    struct reel_model *model = NULL;
    const struct reel_token *token;
    struct reel_error err = { 0 };
    int ended = 0;
    sim_gpu_controls();
    if (open_model(&model, device, &err) != REEL_OK) fail_msg("%s", err.text);
    assert_int_equal(open_session(&session, model, &err), REEL_OK);
    assert_int_equal(open_session(&open, model, &err), REEL_OK);
    assert_int_equal(eval(session, &err), REEL_OK);
    assert_int_equal(eval(open, &err), REEL_OK);
    assert_int_equal(reel_generation_start(open, &g, &err), REEL_OK);
    fflush(NULL);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) _exit(child(model, session, open, strcmp(device, "cpu") == 0));
    assert_int_equal(waitpid(pid, &ended, 0), pid);
    if (ended)
        fail_msg("the child ended with %s %d", WIFEXITED(ended) ? "step" : "signal",
                 WIFEXITED(ended) ? WEXITSTATUS(ended) : WTERMSIG(ended));
    assert_int_equal(reel_generation_next(open, &token, &err), REEL_OK);
    assert_non_null(token);
    assert_int_equal(reel_generation_finish(open, NULL, NULL), REEL_OK);
    assert_int_equal(generate(session, &err), REEL_OK);
    reel_session_close(open);
    reel_session_close(session);
    reel_model_close(model);
}

static void a_model_on_the_cpu_is_refused_in_a_forked_child(void **state) {
    (void)state;
    forks("cpu");
}

static void a_model_on_a_gpu_is_refused_in_a_forked_child(void **state) {
    (void)state;
    forks("gpu");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_model_on_the_cpu_is_refused_in_a_forked_child),
        cmocka_unit_test(a_model_on_a_gpu_is_refused_in_a_forked_child),
    };
    quantised_gguf(&file);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    bytes_release(&file);
    return failed;
}
