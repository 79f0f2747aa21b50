/* A profile when memory runs out. */
#include "cuda/measure/prefill_profile.h"
#include "support/faults.h"
#include "support/profile_stamps.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { N_TOKENS = 4 };

static struct plan plan;
static uint32_t *stamps;

static unsigned ticks(void *user, int token, int sm, int span) {
    (void)user;
    return 100u + (unsigned)(token + sm + span);
}

static int make(void **state) {
    (void)state;
    faults_install();
    plan = stamps_plan();
    stamps =
        stamps_make(&(struct stamps_maker){ .plan = &plan, .n_tokens = N_TOKENS, .ticks = ticks });
    return 0;
}

static int drop(void **state) {
    (void)state;
    free(stamps);
    return 0;
}

static enum reel_status describe(void *context, struct reel_error *err) {
    const struct profile_run run = { .plan = &plan, .stamps = stamps, .n_tokens = N_TOKENS };
    struct profile profile;
    json_t *json = NULL;
    (void)context;
    enum reel_status status = profile_make(&profile, &run, err);
    if (status == REEL_OK) status = profile_describe(&json, &profile, &plan, err);
    if (status == REEL_OK) assert_int_equal(json_object_size(json), 11);
    if (status != REEL_OK) assert_null(json);
    json_decref(json);
    return status;
}

static enum reel_status trace(void *context, struct reel_error *err) {
    const struct profile_run run = { .plan = &plan, .stamps = stamps, .n_tokens = N_TOKENS };
    struct buffer text = { 0 };
    (void)context;
    enum reel_status status = profile_trace(&text, &run, 2, 1, err);
    buffer_release(&text);
    return status;
}

static enum reel_status describe_prefill(void *context, struct reel_error *err) {
    enum { MOST_LAUNCHES = 20 };
    static float ms[PREFILL_MOST_RUNS * MOST_LAUNCHES];
    const struct prefill_times times = { .ms = ms, .n_runs = 3, .n_tokens = 7 };
    json_t *json = NULL;
    (void)context;
    assert_true(prefill_launches(&plan) <= MOST_LAUNCHES);
    enum reel_status status = prefill_profile_describe(&json, &times, &plan, err);
    assert_int_equal(json_object_size(json), status == REEL_OK ? 7 : 0);
    json_decref(json);
    return status;
}

static void sweep(const char *name, enum reel_status (*run)(void *, struct reel_error *)) {
    const struct faults_sweep both = { .name = name, .run = run };
    faults_sweep(&both, FAULT_ALLOC, FAULT_ONCE);
    faults_sweep(&both, FAULT_ALLOC, FAULT_ONWARD);
}

static void a_profile_is_whole_or_not_given(void **state) {
    (void)state;
    sweep("profile_describe", describe);
    sweep("prefill_profile_describe", describe_prefill);
}

static void a_trace_without_memory_is_an_error(void **state) {
    (void)state;
    sweep("profile_trace", trace);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_profile_is_whole_or_not_given),
        cmocka_unit_test(a_trace_without_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, make, drop);
}
