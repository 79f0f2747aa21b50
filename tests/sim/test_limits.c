/* Measuring a GPU's limits, on the fake GPU: the kernels run under the simulator with a small grid.
 * Its times mean nothing; that everything ends, is counted and is given back does. */
#include "base/numbers.h"
#include "cuda/measure/limits.h"
#include "reel_measure.h"
#include "support/mutations.h"
#include "support/sim_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static const struct limits_sizes small = { .data_bytes = 4 * 4 * 4 * 8192,
                                           .repeats = 1,
                                           .rounds = 5,
                                           .launches = 2,
                                           .group = 2,
                                           .gather_words = { 16, 600 } };

static const struct backend_devices first = { .n = 1 }, both = { .n = 2, .index = { 1, 0 } };

static struct reel_limits_options options_of(void) {
    return (struct reel_limits_options){ .size = sizeof(struct reel_limits_options),
                                         .cuda_dir = sim_gpu_folder() };
}

static struct sim_gpu start(void) {
    struct sim_gpu gpu = sim_gpu_controls();
    gpu.cuda->gpu.n_sms = 4;
    return gpu;
}

static void assert_nothing_live(const struct sim_gpu *gpu) {
    const struct fake_live none = { 0 };
    assert_memory_equal(&gpu->cuda->live, &none, sizeof none);
}

static double real_of(const json_t *list, size_t i, const char *key) {
    return json_number_value(json_object_get(json_array_get(list, i), key));
}

static void each_kind_of_GPU_is_measured(void **state) {
    static const int kinds[] = { 75, 80, 90 };
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct sim_gpu gpu = start();
        struct reel_error err = { 0 };
        const struct reel_limits_options o = options_of();
        json_t *all = NULL;
        gpu.cuda->gpu.compute = kinds[i];
        if (kinds[i] == 75) gpu.cuda->gpu.shared_bytes = 65536;
        if (limits_measure(&all, &first, &o, &small, &err) != REEL_OK)
            fail_msg("sm_%d: %s\n%s", kinds[i], err.text, gpu.cuda->report);
        const json_t *exchange = json_object_get(all, "exchange");
        assert_true(json_number_value(json_object_get(all, "read_bytes_per_s")) > 0);
        assert_int_equal(json_array_size(json_object_get(all, "read")), kinds[i] == 75 ? 1 : 6);
        assert_int_equal(json_array_size(exchange), kinds[i] == 75 ? 16 : 20);
        assert_int_equal((int)real_of(exchange, 0, "readers"), 4);
        assert_int_equal((int)real_of(exchange, 0, "words"), 16);
        assert_true(real_of(exchange, 0, "us") > 0);
        assert_true(real_of(exchange, 0, "copied_bytes_per_s") == 0);
        assert_true(real_of(exchange, 1, "copied_bytes_per_s") > 0);
        assert_int_equal((int)real_of(exchange, json_array_size(exchange) - 1, "readers"), 2);
        assert_int_equal((int)real_of(exchange, json_array_size(exchange) - 1, "words"), 600);
        assert_int_equal(json_array_size(json_object_get(all, "launch")), 2);
        assert_true(real_of(json_object_get(all, "launch"), 0, "word_us") > 0);
        json_decref(all);
        assert_nothing_live(&gpu);
    }
}

static void exchanges_through_two_GPUs_are_measured(void **state) {
    (void)state;
    struct sim_gpu gpu = start();
    struct reel_error err = { 0 };
    const struct reel_limits_options o = options_of();
    json_t *all = NULL;
    gpu.cuda->gpu.n_devices = 2, gpu.cuda->gpu.n_sms = 2;
    if (limits_measure(&all, &both, &o, &small, &err) != REEL_OK)
        fail_msg("%s\n%s", err.text, gpu.cuda->report);
    const json_t *exchange = json_object_get(all, "exchange");
    assert_int_equal(json_integer_value(json_object_get(all, "gpus")), 2);
    assert_int_equal(json_integer_value(json_object_get(all, "sms")), 2);
    assert_int_equal((int)real_of(exchange, 0, "readers"), 4);
    assert_true(real_of(exchange, 0, "us") > 0);
    assert_int_equal((int)real_of(exchange, json_array_size(exchange) - 1, "readers"), 2);
    json_decref(all);
    assert_nothing_live(&gpu);
}

static void the_read_ceiling_can_be_had_alone(void **state) {
    struct sim_gpu gpu = start();
    struct reel_error err = { 0 };
    struct reel_limits_options o = options_of();
    json_t *all = NULL;
    (void)state;
    o.only_read = true;
    assert_int_equal(limits_measure(&all, &first, &o, &small, &err), REEL_OK);
    assert_true(json_number_value(json_object_get(all, "read_bytes_per_s")) > 0);
    assert_null(json_object_get(all, "exchange"));
    json_decref(all);
    assert_nothing_live(&gpu);
}

static bool is_seen_on(const struct mutation *m, const struct backend_devices *devices) {
    struct sim_gpu gpu = start();
    struct reel_error err = { 0 };
    const struct reel_limits_options o = options_of();
    json_t *all = NULL;
    mutation_apply(m, gpu.nvrtc);
    gpu.cuda->settings.idle_limit = 2000;
    gpu.cuda->gpu.n_devices = devices->n, gpu.cuda->gpu.n_sms = 4 / devices->n;
    enum reel_status status = limits_measure(&all, devices, &o, &small, &err);
    json_decref(all);
    assert_nothing_live(&gpu);
    printf("%s: %.70s\n", m->what, status == REEL_OK ? "not seen" : err.text);
    if (strstr(err.text, "NVRTC")) fail_msg("%s: %s", m->what, err.text); /* does not compile */
    return status == REEL_E_DEVICE && !all;
}

static bool is_seen(const struct mutation *m) {
    return is_seen_on(m, &first) || is_seen_on(m, &both);
}

static void mutations_are_seen(void **state) {
    (void)state;
    mutations_try(&limits_mutations, is_seen);
    start(); /* without the last one */
}

static void every_failing_call_is_reported_and_leaves_nothing(void **state) {
    struct sim_gpu gpu = start();
    struct reel_error err = { 0 };
    struct reel_limits_options o = options_of();
    struct limits_sizes few = small;
    json_t *all = NULL;
    int failed = 0;
    (void)state;
    few.rounds = 1;
    for (int n = 1;; n += n < 60 ? 1 : 150) {
        gpu = start();
        gpu.cuda->fail_call = n;
        gpu.cuda->fail_with = 2; /* out of memory: harms only the call itself */
        enum reel_status status = limits_measure(&all, &first, &o, &few, &err);
        if (!gpu.cuda->failed_call) {
            assert_int_equal(status, REEL_OK);
            json_decref(all);
            break;
        }
        if (status != REEL_OK) {
            failed++;
            assert_null(all);
            assert_true(strlen(err.text) > 10);
        } else {
            json_decref(all); /* what only gives back may fail unnoticed */
        }
        assert_nothing_live(&gpu);
    }
    assert_true(failed > 20);
}

static bool refuse(void *user, const char *stage, uint64_t done, uint64_t total) {
    (void)user, (void)stage, (void)total;
    return done < 3;
}

static void measuring_can_be_cancelled(void **state) {
    struct sim_gpu gpu = start();
    struct reel_error err = { 0 };
    struct reel_limits_options o = options_of();
    json_t *all = NULL;
    (void)state;
    o.progress = refuse;
    assert_int_equal(limits_measure(&all, &first, &o, &small, &err), REEL_E_CANCELLED);
    assert_nothing_live(&gpu);
}

static void the_energy_of_a_model_s_GPU_is_counted(void **state) {
    struct sim_gpu gpu = start();
    struct sim_model m;
    struct reel_error err = { 0 };
    struct reel_meter *meter = NULL;
    struct reel_meter_reading a = { .size = sizeof a }, b = { .size = sizeof b };
    (void)state;
    sim_model_open(&m, "q3-a");
    assert_int_equal(reel_meter_open(&meter, m.cpu, NULL, &err), REEL_E_UNSUPPORTED);
    assert_null(meter);
    if (sim_model_load(&m, "n_groups=2,group_sms=2,warps=4", &err) != REEL_OK)
        fail_msg("%s", err.text);
    assert_int_equal(reel_meter_open(&meter, m.gpu, "/nowhere", &err), REEL_E_UNSUPPORTED);
    assert_null(meter);
    assert_int_equal(reel_meter_open(&meter, m.gpu, sim_gpu_folder(), &err), REEL_OK);
    sim_model_close(&m);
    assert_int_equal(reel_meter_read(meter, &a, &err), REEL_OK);
    assert_int_equal(reel_meter_read(meter, &b, &err), REEL_OK);
    assert_true(b.joules - a.joules > 0.99 && b.joules - a.joules < 1.01);
    assert_true(a.watts > 77 && a.watts < 78);
    reel_meter_close(meter);
    assert_nothing_live(&gpu);
}

static void a_median_is_in_the_middle(void **state) {
    double odd[] = { 5, 1, 9 }, even[] = { 4, 1, 2, 9 };
    (void)state;
    assert_true(median(odd, 3) == 5);
    assert_true(median(even, 4) == 3);
    assert_true(median(even, 0) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_of_GPU_is_measured),
        cmocka_unit_test(exchanges_through_two_GPUs_are_measured),
        cmocka_unit_test(the_read_ceiling_can_be_had_alone),
        cmocka_unit_test(mutations_are_seen),
        cmocka_unit_test(every_failing_call_is_reported_and_leaves_nothing),
        cmocka_unit_test(measuring_can_be_cancelled),
        cmocka_unit_test(the_energy_of_a_model_s_GPU_is_counted),
        cmocka_unit_test(a_median_is_in_the_middle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
