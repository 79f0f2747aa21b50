/* Whole decoding of miniature models on the fake GPU: the CPU reference's logits within rounding,
 * and the same bits under every schedule. */
#include "support/sim_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int schedules(int few, int many) { return getenv("REEL_SOAK") ? many : few; }

static const int32_t prompt[] = { 5, 17, 250, 3, 99, 41, 7, 128 };
enum { N_PROMPT = sizeof prompt / sizeof *prompt };

static void require(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK) fail_msg("%s\n%s", err->text, sim_gpu_current().cuda->report);
}

/* RMS of the difference over RMS of the reference. */
static double difference(const float *made, const float *want, size_t n) {
    double sum = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        double d = (double)made[i] - (double)want[i];
        sum += d * d, all += (double)want[i] * (double)want[i];
    }
    return sqrt(sum / all);
}

static void logits_equal_the_cpus(void **state) {
    (void)state;
    struct sim_model m;
    struct reel_error err = { 0 };
    struct sim_gpu gpu = sim_gpu_controls();
    gpu.cuda->gpu.n_sms = 4;
    gpu.cuda->settings.in_order = true;
    sim_model_open(&m, "q3-a");
    require(sim_model_load(&m, "n_groups=2,group_sms=2,warps=4", &err), &err);
    float *want = sim_model_logits(m.cpu, prompt, N_PROMPT);
    float *made = sim_model_logits(m.gpu, prompt, N_PROMPT);
    for (int i = 0; i < N_PROMPT; i++) {
        double d = difference(made + i * m.vocab, want + i * m.vocab, (size_t)m.vocab);
        printf("position %d: %.5f\n", i, d);
    }
    assert_true(difference(made, want, (size_t)(N_PROMPT * m.vocab)) < 0.02);
    free(want), free(made);
    sim_model_close(&m);
}

enum { N_NEW = 6 };

static void generate(struct reel_model *model, int32_t *ids) {
    struct reel_error err = { 0 };
    require(sim_model_generate(model, prompt, N_PROMPT, NULL, ids, N_NEW, &err), &err);
}

static void every_schedule_gives_the_same_bits(void **state) {
    (void)state;
    struct sim_model m;
    struct reel_error err = { 0 };
    struct sim_gpu gpu = sim_gpu_controls();
    gpu.cuda->gpu.n_sms = 4;
    gpu.cuda->settings.in_order = true;
    sim_model_open(&m, "q3-a");
    require(sim_model_load(&m, "n_groups=2,group_sms=2,warps=4", &err), &err);
    int32_t want_ids[N_NEW], ids[N_NEW];
    float *want = sim_model_logits(m.gpu, prompt, N_PROMPT);
    generate(m.gpu, want_ids);
    gpu.cuda->settings.in_order = false;
    for (int seed = 0; seed < schedules(20, 10000); seed++) {
        gpu.cuda->settings.seed = (uint64_t)seed, gpu.cuda->n_launches = 0;
        float *made = sim_model_logits(m.gpu, prompt, N_PROMPT);
        if (memcmp(made, want, (size_t)(N_PROMPT * m.vocab) * 4) != 0)
            fail_msg("seed %d: other logits", seed);
        free(made);
        generate(m.gpu, ids);
        if (memcmp(ids, want_ids, sizeof ids) != 0) fail_msg("seed %d: other ids", seed);
    }
    free(want);
    sim_model_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_equal_the_cpus),
        cmocka_unit_test(every_schedule_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
