/* What fails on a GPU ends in its message, gives everything back, and leaves what can go on able
 * to. */
#include "runtime/session.h"
#include "support/sim_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SMALL "n_groups=1,group_sms=2,warps=4"

static const int32_t prompt[] = { 5, 17, 250 };
enum { N_PROMPT = sizeof prompt / sizeof *prompt, N_NEW = 3 };

struct fixture {
    struct sim_model m;
    struct sim_gpu gpu;
    struct reel_error err;
};

static int start_with(void **state, const char *model) {
    static struct fixture f;
    f.gpu = sim_gpu_controls();
    f.gpu.cuda->settings.in_order = true;
    f.gpu.cuda->gpu.n_sms = 2;
    sim_model_open(&f.m, model);
    *state = &f;
    return 0;
}

static int start(void **state) { return start_with(state, "q3-a"); }
static int start_hybrid(void **state) { return start_with(state, "q35-a"); }

static int stop(void **state) {
    struct fixture *f = *state;
    sim_model_close(&f->m);
    return 0;
}

/* Every test begins with a fresh device. */
static int reset(void **state) {
    struct fixture *f = *state;
    f->gpu = sim_gpu_controls();
    f->gpu.cuda->settings.in_order = true;
    f->gpu.cuda->gpu.n_sms = 2;
    memset(&f->err, 0, sizeof f->err);
    return 0;
}

static void good(enum reel_status status, const struct fixture *f) {
    if (status != REEL_OK)
        fail_msg("%s: %s\n%s", reel_status_name(status), f->err.text, f->gpu.cuda->report);
}

static void assert_says(const struct fixture *f, const char *words) {
    if (!strstr(f->err.text, words))
        fail_msg("\"%s\" is not in: %s\n%s", words, f->err.text, f->gpu.cuda->report);
}

static void assert_nothing_left(const struct fixture *f, int n) {
    const struct fake_live *l = &f->gpu.cuda->live;
    if (l->contexts || l->streams || l->events || l->modules || l->allocations ||
        l->host_allocations || l->registrations || l->bytes)
        fail_msg(
            "call %d (%s): left are %d contexts, %d streams, %d modules, %d allocations of %zu "
            "bytes, %d of the host",
            n, f->gpu.cuda->failed_call ? f->gpu.cuda->failed_call : "none", l->contexts,
            l->streams, l->modules, l->allocations, l->bytes, l->host_allocations);
}

/* ---- one call after the other fails
 * -------------------------------------------------------------- */

/* A model's whole life: open, evaluate, decode, copy, save, close. */
static enum reel_status live(struct fixture *f) {
    int32_t ids[N_NEW];
    struct reel_session *s = NULL, *copy = NULL;
    const struct reel_session_options options = { .size = sizeof options, .max_context = 32 };
    enum reel_status status = sim_model_load(&f->m, SMALL, &f->err);
    if (status != REEL_OK) return status;
    status = sim_model_generate(f->m.gpu, prompt, N_PROMPT, NULL, ids, N_NEW, &f->err);
    if (status == REEL_OK) status = reel_session_open(&s, f->m.gpu, &options, &f->err);
    if (status == REEL_OK) status = reel_session_open(&copy, f->m.gpu, &options, &f->err);
    if (status == REEL_OK) status = reel_session_sync(s, prompt, N_PROMPT, NULL, &f->err);
    if (status == REEL_OK) status = reel_session_copy(copy, s, &f->err);
    size_t n = s ? reel_session_snapshot_bytes(s) : 0;
    void *bytes = malloc(n + 1);
    assert_non_null(bytes);
    if (status == REEL_OK) status = reel_session_snapshot(s, bytes, n, &f->err);
    if (status == REEL_OK) status = reel_session_restore(copy, bytes, n, &f->err);
    free(bytes);
    reel_session_close(copy), reel_session_close(s);
    sim_model_unload(&f->m);
    return status;
}

static void all_that_was_opened_is_closed(void **state) {
    struct fixture *f = *state;
    good(live(f), f);
    assert_nothing_left(f, 0);
    assert_int_equal(f->gpu.cuda->leaked.allocations, 0);
    assert_int_equal(f->gpu.cuda->leaked.modules, 0);
    assert_int_equal(f->gpu.cuda->leaked.streams, 0);
}

/* One thing of the kinds that are freed inside a context may be left. */
static void forget_one(struct fixture *f) {
    struct fake_live *l = &f->gpu.cuda->live;
    const int n = l->streams + l->modules + l->allocations + l->host_allocations;
    if (n <= 1) *l = (struct fake_live){ .contexts = l->contexts };
}

static void any_call_may_fail(void **state) {
    struct fixture *f = *state;
    static const int errors[] = { 2, 700, 999 }; /* out of memory, illegal address, unknown */
    good(live(f), f);
    const int n_calls = f->gpu.cuda->n_calls;
    int step = getenv("REEL_SOAK") ? 1 : n_calls / 30 + 1, n_failed = 0;
    /* Calls come as push, call, pop: a multiple of 3 would meet one of these kinds alone. */
    if (step % 3 == 0) step++;
    for (int n = 1; n <= n_calls; n += step) {
        reset(state);
        f->gpu.cuda->fail_call = n;
        f->gpu.cuda->fail_with = errors[n % 3];
        enum reel_status status = live(f);
        if (status != REEL_OK) n_failed++;
        if (status != REEL_OK && !f->err.text[0])
            fail_msg("call %d (%s) failed without a word", n, f->gpu.cuda->failed_call);
        const char *failed = f->gpu.cuda->failed_call; /* NULL: this time there were fewer calls */
        if (status == REEL_OK && failed && strcmp(failed, "cuCtxPushCurrent_v2") == 0)
            forget_one(f); /* before a call that frees: that could not be made */
        assert_nothing_left(f, n);
    }
    assert_true(n_failed * step * 4 >
                n_calls); /* others are looks at a stream, and closing calls */
}

static void any_call_of_the_compiler_may_fail(void **state) {
    struct fixture *f = *state;
    good(live(f), f);
    const int n_calls = f->gpu.nvrtc->n_calls;
    for (int n = 1; n <= n_calls; n++) {
        reset(state);
        f->gpu.nvrtc->fail_call = n;
        f->gpu.nvrtc->fail_with = 11;
        if (live(f) != REEL_OK && !f->err.text[0]) fail_msg("call %d failed without a word", n);
        assert_nothing_left(f, n);
    }
}

/* ---- memory
 * --------------------------------------------------------------------------------------- */

static void a_model_too_large_for_the_gpu_is_refused_in_numbers(void **state) {
    struct fixture *f = *state;
    f->gpu.cuda->gpu.memory_bytes = 1 << 20;
    assert_int_equal(sim_model_load(&f->m, SMALL, &f->err), REEL_E_MEMORY);
    assert_says(f, "GB are needed");
    assert_says(f, "are free");
    assert_nothing_left(f, 0);
}

/* It takes memory as it grows: only what it is given is too much. */
static void positions_that_the_gpu_has_no_memory_for_are_refused(void **state) {
    struct fixture *f = *state;
    struct reel_session *s = NULL;
    const struct reel_session_options options = { .size = sizeof options, .max_context = 40960 };
    f->gpu.cuda->gpu.memory_bytes = 12 << 20;
    good(sim_model_load(&f->m, SMALL, &f->err), f);
    good(reel_session_open(&s, f->m.gpu, &options, &f->err), f);
    const size_t n = f->m.gpu->ops->save_bytes(s->state, 40960);
    void *zeros = calloc(1, n);
    assert_non_null(zeros);
    assert_int_equal(f->m.gpu->ops->restore(s->state, 40960, zeros, n, &f->err), REEL_E_MEMORY);
    free(zeros);
    assert_says(f, "the pool of K and V is full");
    assert_says(f, "kv_pool_mb");
    reel_session_close(s);
    sim_model_unload(&f->m);
    assert_nothing_left(f, 0);
}

/* ---- options
 * -------------------------------------------------------------------------------------- */

static void unknown_gpu_options_are_named(void **state) {
    struct fixture *f = *state;
    static const char *const wrong[] = { "speed=9",     "warps",     "warps=",
                                         "warps=four",  "absent=-2", "lead=1024",
                                         "patience=-1", "poison=2",  "epoch=4294967296" };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(sim_model_load(&f->m, wrong[i], &f->err), REEL_E_ARGUMENT);
        assert_says(f, wrong[i]);
    }
    assert_nothing_left(f, 0);
}

/* ---- launches that do not end
 * ------------------------------------------------------------------------
 */

static void assert_goes_on(struct fixture *f) {
    int32_t ids[N_NEW];
    f->gpu.cuda->settings.missing_block = -1;
    good(sim_model_generate(f->m.gpu, prompt, N_PROMPT, NULL, ids, N_NEW, &f->err), f);
}

static void a_block_that_never_comes_is_reported_and_survived(void **state) {
    struct fixture *f = *state;
    int32_t ids[N_NEW];
    f->gpu.cuda->settings.idle_limit = 0;
    f->gpu.cuda->settings.host_wait_ms = 0;
    good(sim_model_load(&f->m, SMALL ",patience=3000", &f->err), f);
    assert_goes_on(f);
    f->gpu.cuda->settings.missing_block = 1;
    assert_int_equal(sim_model_generate(f->m.gpu, prompt, N_PROMPT, NULL, ids, N_NEW, &f->err),
                     REEL_E_DEVICE);
    assert_says(f, "gave up waiting for");
    assert_says(f, "layer 0");
    assert_goes_on(f);
    sim_model_unload(&f->m);
    assert_nothing_left(f, 0);
}

struct taken {
    int32_t ids[N_NEW];
    int n;
};

static bool take(void *user, const struct reel_token *token) {
    struct taken *t = user;
    t->ids[t->n++] = token->id;
    return true;
}

static enum reel_status generate(struct fixture *f, struct reel_session *s, struct taken *t) {
    const struct reel_generation g = {
        .size = sizeof g, .max_tokens = N_NEW, .ignore_stop_ids = true, .on_token = take, .user = t
    };
    t->n = 0;
    return reel_generate(s, &g, NULL, &f->err);
}

/* What a broken launch did to the session's state is nothing to what comes after: neither while
 * decoding nor in a prompt. */
static void a_session_goes_on_after_a_launch_that_failed(void **state) {
    struct fixture *f = *state;
    const struct reel_session_options options = { .size = sizeof options, .max_context = 32 };
    struct reel_session *s = NULL;
    struct taken want, broken, again;
    f->gpu.cuda->settings.idle_limit = 0;
    f->gpu.cuda->settings.host_wait_ms = 0;
    good(sim_model_load(&f->m, SMALL ",patience=30000", &f->err), f);
    good(reel_session_open(&s, f->m.gpu, &options, &f->err), f);
    good(reel_session_sync(s, prompt, N_PROMPT, NULL, &f->err), f);
    good(generate(f, s, &want), f);
    good(reel_session_truncate(s, N_PROMPT, &f->err), f);
    f->gpu.cuda->settings.missing_block = 1;
    assert_int_equal(generate(f, s, &broken), REEL_E_DEVICE);
    assert_int_equal(broken.n, 0);
    f->gpu.cuda->settings.missing_block = -1;
    good(generate(f, s, &again), f);
    assert_memory_equal(again.ids, want.ids, sizeof want.ids);
    good(reel_session_truncate(s, N_PROMPT - 3, &f->err), f);
    f->gpu.cuda->settings.missing_block = 0;
    assert_int_equal(reel_session_sync(s, prompt, N_PROMPT, NULL, &f->err), REEL_E_DEVICE);
    f->gpu.cuda->settings.missing_block = -1;
    good(reel_session_sync(s, prompt, N_PROMPT, NULL, &f->err), f);
    good(generate(f, s, &again), f);
    assert_memory_equal(again.ids, want.ids, sizeof want.ids);
    reel_session_close(s);
    sim_model_unload(&f->m);
    assert_nothing_left(f, 0);
}

/* The same in a kernel that is compiled so, which real GPUs run too. */
static void a_block_compiled_to_leave_at_once_is_waited_for_in_vain(void **state) {
    struct fixture *f = *state;
    static const char *const options[] = { SMALL ",patience=3000,absent=0",
                                           SMALL ",patience=3000,absent=1",
                                           SMALL ",hang_ms=200,launch_ms=50,absent=1" };
    static const char *const words[] = { "gave up waiting for", "gave up waiting for",
                                         "silent for" };
    int32_t ids[N_NEW];
    f->gpu.cuda->settings.idle_limit = 0;
    f->gpu.cuda->settings.host_wait_ms = 0;
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        good(sim_model_load(&f->m, options[i], &f->err), f);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(
                sim_model_generate(f->m.gpu, prompt, N_PROMPT, NULL, ids, N_NEW, &f->err),
                REEL_E_DEVICE);
            assert_says(f, words[i]);
        }
        sim_model_unload(&f->m);
        good(sim_model_load(&f->m, SMALL, &f->err), f);
        assert_goes_on(f);
        sim_model_unload(&f->m);
    }
    assert_nothing_left(f, 0);
}

static void a_launch_that_hangs_is_told_to_leave(void **state) {
    struct fixture *f = *state;
    int32_t ids[N_NEW];
    f->gpu.cuda->settings.idle_limit = 0;
    f->gpu.cuda->settings.host_wait_ms = 0;
    good(sim_model_load(&f->m, SMALL ",hang_ms=200,launch_ms=50", &f->err), f);
    f->gpu.cuda->settings.missing_block = 1;
    assert_int_equal(sim_model_generate(f->m.gpu, prompt, N_PROMPT, NULL, ids, N_NEW, &f->err),
                     REEL_E_DEVICE);
    assert_says(f, "silent for");
    assert_goes_on(f);
    sim_model_unload(&f->m);
    assert_nothing_left(f, 0);
}

static void a_broken_context_is_said_to_be_so(void **state) {
    struct fixture *f = *state;
    int32_t ids[N_NEW];
    good(sim_model_load(&f->m, SMALL, &f->err), f);
    f->gpu.cuda->settings.missing_block = 1; /* the simulator calls it a deadlock: sticky */
    assert_int_equal(sim_model_generate(f->m.gpu, prompt, N_PROMPT, NULL, ids, N_NEW, &f->err),
                     REEL_E_DEVICE);
    assert_int_equal(sim_model_generate(f->m.gpu, prompt, N_PROMPT, NULL, ids, N_NEW, &f->err),
                     REEL_E_DEVICE);
    assert_says(f, "close the model and open it again");
    sim_model_unload(&f->m);
    assert_nothing_left(f, 0);
}

/* ---- cancelling ---------------------------------------------------------------------------------
 */

static bool not_the_weights(void *user, const char *stage, uint64_t done, uint64_t total) {
    (void)user, (void)total;
    return strcmp(stage, "loading weights") != 0 || done == 0;
}

static void loading_can_be_cancelled(void **state) {
    struct fixture *f = *state;
    struct reel_model *model = NULL;
    const struct reel_model_options options = { .size = sizeof options,
                                                .device = "gpu",
                                                .gpu_options = SMALL,
                                                .cuda_dir = sim_gpu_folder(),
                                                .progress = not_the_weights };
    assert_int_equal(reel_model_open(&model, f->m.folder, &options, &f->err), REEL_E_CANCELLED);
    assert_null(model);
    assert_nothing_left(f, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(all_that_was_opened_is_closed, reset),
        cmocka_unit_test_setup(any_call_may_fail, reset),
        cmocka_unit_test_setup(any_call_of_the_compiler_may_fail, reset),
        cmocka_unit_test_setup(a_model_too_large_for_the_gpu_is_refused_in_numbers, reset),
        cmocka_unit_test_setup(positions_that_the_gpu_has_no_memory_for_are_refused, reset),
        cmocka_unit_test_setup(unknown_gpu_options_are_named, reset),
        cmocka_unit_test_setup(a_block_that_never_comes_is_reported_and_survived, reset),
        cmocka_unit_test_setup(a_block_compiled_to_leave_at_once_is_waited_for_in_vain, reset),
        cmocka_unit_test_setup(a_session_goes_on_after_a_launch_that_failed, reset),
        cmocka_unit_test_setup(a_launch_that_hangs_is_told_to_leave, reset),
        cmocka_unit_test_setup(a_broken_context_is_said_to_be_so, reset),
        cmocka_unit_test_setup(loading_can_be_cancelled, reset),
    };
    const struct CMUnitTest again[] = {
        cmocka_unit_test_setup(all_that_was_opened_is_closed, reset),
        cmocka_unit_test_setup(any_call_may_fail, reset),
        cmocka_unit_test_setup(a_session_goes_on_after_a_launch_that_failed, reset),
    };
    int failed = cmocka_run_group_tests_name("attention", tests, start, stop);
    return failed + cmocka_run_group_tests_name("hybrid", again, start_hybrid, stop);
}
