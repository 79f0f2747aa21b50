/* No allocation in the token loop; and what sessions do when memory runs out. */
#include "support/fake_backend.h"
#include "support/faults.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static const int32_t prompt[] = { 5, 3, 60, 7, 7, 2, 41, 0 };
enum { N_PROMPT = 8 };

static bool hear(void *user, const struct reel_token *token) {
    *(size_t *)user += token->text_bytes;
    return true;
}

/* Everything a generation can be asked for at once. */
static const struct reel_logit_bias bias[] = { { 3, 1.5f }, { 4, -1 } };
static const char *const strings[] = { "never written", "nor this" };
static const struct reel_sampling samplings[] = {
    { .size = sizeof samplings[0] },
    { .size = sizeof samplings[0], .temperature = 1 },
    { .size = sizeof samplings[0], .temperature = 1, .top_p = 0.9f, .min_p = 0.01f },
    { .size = sizeof samplings[0],
      .temperature = 0.7f,
      .top_k = 20,
      .repetition_penalty = 1.1f,
      .presence_penalty = 0.5f,
      .frequency_penalty = 0.1f,
      .bias = bias,
      .n_bias = 2 },
};
enum { N_SAMPLINGS = sizeof samplings / sizeof *samplings };

static void generate_all_ways(struct reel_session *s, enum reel_speculation speculation) {
    size_t heard = 0;
    for (int i = 0; i < 2 * N_SAMPLINGS; i++) {
        struct reel_generation g = { .size = sizeof g, .sampling = &samplings[i / 2] };
        g.max_tokens = 50;
        g.ignore_stop_ids = true;
        g.stop_strings = strings;
        g.n_stop_strings = 2;
        g.n_top_logprobs = i % 2 ? 5 : 0;
        g.on_token = hear;
        g.user = &heard;
        g.speculation = speculation;
        assert_int_equal(reel_session_sync(s, prompt, N_PROMPT, NULL, NULL), REEL_OK);
        assert_int_equal(reel_generate(s, &g, NULL, NULL), REEL_OK);
        assert_int_equal(reel_session_length(s), N_PROMPT + 50);
        assert_int_equal(reel_session_truncate(s, 20, NULL), REEL_OK);
    }
    assert_true(heard > 100);
}

static void the_token_loop_allocates_nothing(void **state) {
    (void)state;
    for (int decodes = 0; decodes < 2; decodes++) {
        struct fake_settings set = { .decodes = decodes };
        struct reel_model *model = fake_model_open(&set, NULL);
        struct reel_session *s = NULL;
        assert_non_null(model);
        assert_int_equal(reel_session_open(&s, model, NULL, NULL), REEL_OK);
        faults_guard_begin();
        generate_all_ways(s, REEL_SPECULATION_AUTO);
        assert_int_equal(faults_guard_end(), 0);
        reel_session_close(s);
        fake_model_close(model);
    }
}

static void the_cpu_backend_allocates_nothing_in_the_token_loop(void **state) {
    (void)state;
    struct reel_model *model = NULL;
    struct reel_session *s = NULL;
    const struct reel_model_options on_cpu = { .size = sizeof on_cpu, .device = "cpu" };
    assert_int_equal(reel_model_open(&model, "models/demo", &on_cpu, NULL), REEL_OK);
    assert_int_equal(reel_session_open(&s, model, NULL, NULL), REEL_OK);
    faults_guard_begin();
    generate_all_ways(s, REEL_SPECULATION_AUTO);
    assert_int_equal(faults_guard_end(), 0);
    reel_session_close(s);
    reel_model_close(model);
}

static void a_draft_model_allocates_nothing_in_the_token_loop(void **state) {
    (void)state;
    struct reel_model *models[2] = { NULL };
    assert_int_equal(reel_model_open(&models[0], "models/demo", NULL, NULL), REEL_OK);
    assert_int_equal(reel_model_open(&models[1], "models/hybrid", NULL, NULL), REEL_OK);
    for (int i = 0; i < 2; i++) {
        const struct reel_session_options o = { .size = sizeof o, .draft_model = models[1 - i] };
        struct reel_session *s = NULL;
        assert_int_equal(reel_session_open(&s, models[i], &o, NULL), REEL_OK);
        faults_guard_begin();
        generate_all_ways(s, REEL_SPECULATION_DRAFT);
        assert_int_equal(faults_guard_end(), 0);
        reel_session_close(s);
    }
    reel_model_close(models[0]);
    reel_model_close(models[1]);
}

/* ---- two sessions that decode at the same time ---- */

static void nap(int ms) {
    const struct timespec t = { ms / 1000, ms % 1000 * 1000000L };
    nanosleep(&t, NULL);
}

struct beside {
    struct reel_session *session;
    atomic_int go; /* rounds that may begin */
    atomic_int n_done;
    atomic_bool wrong;
};

static bool speak(struct reel_session *s) {
    const struct reel_generation g = { .size = sizeof g,
                                       .max_tokens = 60,
                                       .ignore_stop_ids = true };
    return reel_session_sync(s, prompt, N_PROMPT, NULL, NULL) == REEL_OK &&
           reel_generate(s, &g, NULL, NULL) == REEL_OK && reel_session_length(s) == N_PROMPT + 60;
}

static void *speak_when_told(void *of) {
    struct beside *b = of;
    for (int round = 1; round <= 2; round++) {
        while (atomic_load(&b->go) < round)
            nap(1);
        if (!speak(b->session)) atomic_store(&b->wrong, true);
        atomic_store(&b->n_done, round);
    }
    return NULL;
}

static void speak_together(struct beside *b, struct reel_session *s, int round) {
    atomic_store(&b->go, round);
    assert_true(speak(s));
    while (atomic_load(&b->n_done) < round)
        nap(1);
    assert_false(b->wrong);
    assert_memory_equal(reel_session_ids(s), reel_session_ids(b->session),
                        (N_PROMPT + 60) * sizeof(int32_t));
}

/* First without a thread for the passes, by turns; a second later a thread is made after all. What
 * is done in the token loop takes no memory in either case. */
static void sessions_decode_together_as_soon_as_a_thread_can_be_made(void **state) {
    (void)state;
    for (int decodes = 0; decodes < 2; decodes++) {
        struct fake_settings set = { .decodes = decodes, .columns = 2, .eval_ms = 1 };
        struct reel_model *model = fake_model_open(&set, NULL);
        struct reel_session *s = NULL;
        struct beside b = { 0 };
        pthread_t thread;
        assert_non_null(model);
        assert_int_equal(reel_session_open(&s, model, NULL, NULL), REEL_OK);
        assert_int_equal(reel_session_open(&b.session, model, NULL, NULL), REEL_OK);
        assert_int_equal(pthread_create(&thread, NULL, speak_when_told, &b), 0);
        faults_arm(FAULT_THREAD, FAULT_ONWARD, 1);
        speak_together(&b, s, 1);
        assert_true(faults_hit());
        faults_disarm();
        assert_int_equal(set.n_steps, 0);
        nap(1100);
        faults_guard_begin();
        speak_together(&b, s, 2);
        assert_int_equal(faults_guard_end(), 0);
        assert_true(set.n_steps > 0);
        pthread_join(thread, NULL);
        reel_session_close(b.session);
        reel_session_close(s);
        fake_model_close(model);
    }
}

static enum reel_status open_model(void *context, struct reel_error *err) {
    struct reel_model *model = fake_model_open(context, err);
    if (!model) return err->status;
    fake_model_close(model);
    return REEL_OK;
}

static void opening_a_model_with_passes_survives_any_failing_allocation(void **state) {
    (void)state;
    struct fake_settings set = { .columns = 2 };
    const struct faults_sweep sweep = { .name = "fake_model_open",
                                        .run = open_model,
                                        .context = &set };
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONWARD);
}

static enum reel_status open_and_generate(void *context, struct reel_error *err) {
    struct reel_session *s = NULL;
    struct reel_generation g = { .size = sizeof g, .max_tokens = 3 };
    enum reel_status status = reel_session_open(&s, context, NULL, err);
    if (status == REEL_OK) status = reel_session_sync(s, prompt, N_PROMPT, NULL, err);
    if (status == REEL_OK) status = reel_generate(s, &g, NULL, err);
    reel_session_close(s);
    return status;
}

static void opening_a_session_survives_any_failing_allocation(void **state) {
    (void)state;
    struct fake_settings set = { 0 };
    struct reel_model *model = fake_model_open(&set, NULL);
    assert_non_null(model);
    const struct faults_sweep sweep = { .name = "reel_session_open",
                                        .run = open_and_generate,
                                        .context = model };
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONWARD);
    fake_model_close(model);
}

static enum reel_status open_with_draft(void *context, struct reel_error *err) {
    struct reel_model **models = context;
    const struct reel_session_options o = { .size = sizeof o,
                                            .max_context = 64,
                                            .draft_model = models[1] };
    const struct reel_generation g = { .size = sizeof g,
                                       .max_tokens = 9,
                                       .speculation = REEL_SPECULATION_DRAFT };
    struct reel_session *s = NULL;
    enum reel_status status = reel_session_open(&s, models[0], &o, err);
    if (status == REEL_OK) status = reel_session_sync(s, prompt, N_PROMPT, NULL, err);
    if (status == REEL_OK) status = reel_generate(s, &g, NULL, err);
    reel_session_close(s);
    return status;
}

static void opening_a_session_with_a_draft_model_survives_any_failing_allocation(void **state) {
    (void)state;
    struct reel_model *models[2] = { NULL };
    assert_int_equal(reel_model_open(&models[0], "models/demo", NULL, NULL), REEL_OK);
    assert_int_equal(reel_model_open(&models[1], "models/hybrid", NULL, NULL), REEL_OK);
    const struct faults_sweep sweep = { .name = "reel_session_open, with a draft model",
                                        .run = open_with_draft,
                                        .context = models };
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONWARD);
    reel_model_close(models[0]);
    reel_model_close(models[1]);
}

static enum reel_status list_devices(void *context, struct reel_error *err) {
    (void)context;
    char *json = NULL;
    enum reel_status status = reel_devices(NULL, &json, err);
    reel_free(json);
    return status;
}

static void listing_devices_survives_any_failing_allocation(void **state) {
    (void)state;
    const struct faults_sweep sweep = { .name = "reel_devices", .run = list_devices };
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONCE);
    faults_sweep(&sweep, FAULT_ALLOC, FAULT_ONWARD);
}

static int install(void **state) {
    (void)state;
    faults_install();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_token_loop_allocates_nothing),
        cmocka_unit_test(the_cpu_backend_allocates_nothing_in_the_token_loop),
        cmocka_unit_test(a_draft_model_allocates_nothing_in_the_token_loop),
        cmocka_unit_test(sessions_decode_together_as_soon_as_a_thread_can_be_made),
        cmocka_unit_test(opening_a_model_with_passes_survives_any_failing_allocation),
        cmocka_unit_test(opening_a_session_survives_any_failing_allocation),
        cmocka_unit_test(opening_a_session_with_a_draft_model_survives_any_failing_allocation),
        cmocka_unit_test(listing_devices_survives_any_failing_allocation),
    };
    return cmocka_run_group_tests(tests, install, NULL);
}
