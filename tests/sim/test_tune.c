/* Tuning a miniature model on the fake GPU, and opening it with what was remembered. Speeds mean
 * nothing here, so what is kept is up to chance; that ids stay the same is not. */
#define _DEFAULT_SOURCE
#include "cuda/run/cuda_backend.h"
#include "cuda/run/tuned.h"
#include "reel_measure.h"
#include "runtime/model_handle.h"
#include "support/shares.h"
#include "support/sim_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define PATIENT                                                                                    \
    "patience=2147483647,hang_ms=1000000000,launch_ms=10000,launch_tokens=16,spin_us=100,"         \
    "nap_us=500,stage_kb=64"

enum { LEFT = 99 }; /* a cap that no plan has */

struct fixture {
    struct sim_model m;
    struct sim_gpu gpu;
    struct reel_error err;
    char cache[40];
    char warning[1200], info[1200];
    struct plan *leaves; /* whose cap_head is left at LEFT after each measurement */
    int n_trials, n_refused, most_trials;
};

static struct fixture shared;

static void note(void *user, enum reel_log_level level, const char *text) {
    struct fixture *f = user;
    char *to = level == REEL_LOG_WARNING ? f->warning : f->info;
    const size_t had = strlen(to);
    snprintf(to + had, sizeof f->info - had, "%s\n", text);
}

static struct plan *open_model(struct fixture *f, const char *more) {
    char options[300];
    snprintf(options, sizeof options, PATIENT "%s%s", more ? "," : "", more ? more : "");
    const struct reel_model_options o = { .size = sizeof o,
                                          .device = "gpu",
                                          .gpu_options = options,
                                          .cuda_dir = sim_gpu_folder(),
                                          .cache_dir = f->gpu.nvrtc->n_patches ? NULL : f->cache,
                                          .log = note,
                                          .log_user = f };
    f->warning[0] = f->info[0] = '\0';
    if (reel_model_open(&f->m.gpu, f->m.folder, &o, &f->err) != REEL_OK)
        fail_msg("%s\n%s", f->err.text, f->gpu.cuda->report);
    return &f->m.gpu->backend->plan;
}

static int start(void **state) {
    struct fixture *f = &shared;
    f->gpu = sim_gpu_controls();
    f->gpu.cuda->settings.in_order = true;
    f->gpu.cuda->gpu.n_sms = 4;
    sim_model_open(&f->m, "q3-a");
    strcpy(f->cache, "/tmp/reel-tune-XXXXXX");
    *state = f;
    return mkdtemp(f->cache) ? 0 : -1;
}

static int stop(void **state) {
    struct fixture *f = *state;
    char command[100];
    sim_model_close(&f->m);
    snprintf(command, sizeof command, "rm -r %s", f->cache);
    return system(command);
}

static bool count(void *user, const struct reel_tune_trial *trial) {
    struct fixture *f = user;
    f->n_trials++;
    if (!trial->same_ids) f->n_refused++;
    if (trial->name) assert_non_null(strchr("sc", trial->name[0]));
    assert_true(trial->short_per_s > 0 && trial->long_per_s > 0);
    return f->n_trials < f->most_trials;
}

static bool leave(void *user, const char *stage, uint64_t done, uint64_t total) {
    struct fixture *f = user;
    (void)stage, (void)done, (void)total;
    f->leaves->cap_head = LEFT;
    return true;
}

static struct reel_tune_options quick(struct fixture *f) {
    f->n_trials = f->n_refused = 0;
    f->most_trials = 4;
    return (struct reel_tune_options){ .size = sizeof(struct reel_tune_options),
                                       .seconds = 1000,
                                       .repeats = 1,
                                       .n_tokens = 2,
                                       .long_context = 20,
                                       .on_trial = count,
                                       .user = f };
}

static void a_dry_run_remembers_nothing(void **state) {
    struct fixture *f = *state;
    struct reel_tune_result result = { .size = sizeof result };
    struct reel_tune_options o = quick(f);
    open_model(f, NULL);
    o.seconds = 0.001;
    if (reel_model_tune(f->m.gpu, &o, &result, &f->err) != REEL_OK) fail_msg("%s", f->err.text);
    assert_string_equal(result.path, "");
    assert_int_equal(f->n_trials, 1);
    assert_int_equal(reel_model_tune(f->m.gpu, &o, NULL, &f->err), REEL_OK);
    assert_int_equal(reel_model_tune(f->m.cpu, &o, &result, &f->err), REEL_E_UNSUPPORTED);
    sim_model_unload(&f->m);
}

static void values_are_tried_and_the_best_remembered_and_used(void **state) {
    struct fixture *f = *state;
    struct reel_tune_result result = { .size = sizeof result };
    struct reel_tune_options o = quick(f);
    char now[200];
    struct plan *p = open_model(f, NULL);
    o.cache_dir = f->cache;
    o.apply = true;
    if (reel_model_tune(f->m.gpu, &o, &result, &f->err) != REEL_OK) fail_msg("%s", f->err.text);
    assert_int_equal(f->n_trials, 4);
    assert_int_equal(f->n_refused, 0);
    assert_int_equal(result.long_context, 20);
    assert_int_equal(access(result.path, R_OK), 0);
    snprintf(now, sizeof now, "split_from=%d,cap_layers=%d,cap_kv=%d,cap_head=%d", p->split_from,
             p->cap_layers, p->cap_kv, p->cap_head);
    assert_string_equal(now, result.gpu_options);
    sim_model_unload(&f->m);

    assert_int_equal(tuned_write(result.path, "cap_layers=1,split_from=48", 1, 2, &f->err),
                     REEL_OK);
    p = open_model(f, NULL);
    assert_int_equal(p->cap_layers, 1);
    assert_int_equal(p->split_from, 48);
    assert_string_equal(f->warning, "");
    assert_non_null(strstr(f->info, result.path));
    sim_model_unload(&f->m);
    p = open_model(f, "tuned=0");
    assert_int_not_equal(p->split_from, 48);
    sim_model_unload(&f->m);
    p = open_model(f, "cap_head=2");
    assert_int_not_equal(p->split_from, 48);
    sim_model_unload(&f->m);

    /* impossible on this GPU: the plan's own choice */
    assert_int_equal(tuned_write(result.path, "group_sms=999", 1, 2, &f->err), REEL_OK);
    open_model(f, NULL);
    sim_model_unload(&f->m);
    FILE *file = fopen(result.path, "w");
    assert_non_null(file);
    fputs("{\"reel_tuning\": 1, \"options\": \"cap_lay", file);
    fclose(file);
    p = open_model(f, NULL);
    assert_int_not_equal(p->split_from, 48);
    assert_non_null(strstr(f->warning, result.path));
    sim_model_unload(&f->m);
}

/* What was measured last leaves a value of its own, as the best ones may be those at the start. */
static void the_opened_model_stays_as_it_was_unless_asked(void **state) {
    struct fixture *f = *state;
    struct reel_tune_result result = { .size = sizeof result };
    for (int apply = 0; apply < 2; apply++) {
        struct reel_tune_options o = quick(f);
        f->leaves = open_model(f, "tuned=0");
        const struct plan before = *f->leaves;
        o.seconds = 0.001;
        o.apply = apply;
        o.progress = leave;
        o.progress_user = f;
        if (reel_model_tune(f->m.gpu, &o, &result, &f->err) != REEL_OK) fail_msg("%s", f->err.text);
        assert_int_equal(f->leaves->cap_head, apply ? LEFT : before.cap_head);
        if (!apply) assert_memory_equal(f->leaves, &before, sizeof before);
        f->leaves = NULL;
        sim_model_unload(&f->m);
    }
}

static void settings_that_change_the_ids_are_refused(void **state) {
    static const struct fake_patch patch = {
        .file = "ring.cuh",
        .from = "p.src = tape + ",
        .to = "p.src = (a->cap_layers != 2 && w->block == 1 ? tape - 4096 : tape) + "
    };
    struct fixture *f = *state;
    struct reel_tune_result result = { .size = sizeof result };
    struct reel_tune_options o = quick(f);
    f->gpu.nvrtc->patches = &patch;
    f->gpu.nvrtc->n_patches = 1;
    struct plan *p = open_model(f, "tuned=0,cap_layers=2,split_from=100");
    o.apply = true;
    if (reel_model_tune(f->m.gpu, &o, &result, &f->err) != REEL_OK) fail_msg("%s", f->err.text);
    f->gpu.nvrtc->n_patches = 0;
    assert_int_equal(p->cap_layers, 2);
    assert_true(f->n_refused >= 1);
    o.n_tokens = 65;
    assert_int_equal(reel_model_tune(f->m.gpu, &o, &result, &f->err), REEL_E_ARGUMENT);
    sim_model_unload(&f->m);
}

int main(void) {
    struct CMUnitTest tests[] = {
        in_turn(a_dry_run_remembers_nothing),
        cmocka_unit_test(values_are_tried_and_the_best_remembered_and_used),
        in_turn(the_opened_model_stays_as_it_was_unless_asked),
        cmocka_unit_test(settings_that_change_the_ids_are_refused),
    };
    SHARE_TESTS("tune", 2, tests);
    return cmocka_run_group_tests(tests, start, stop);
}
