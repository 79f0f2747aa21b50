/* The audio tower on the fake GPU against the CPU's: clips of all kinds of lengths, longer ones
 * than a run takes, one after the other in the same scratch memory; faults and memory that is
 * short. */
#include "cpu/encoder.h"
#include "cuda/run/cuda_backend.h"
#include "runtime/model_handle.h"
#include "support/mutations.h"
#include "support/sim_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define OPTIONS "warps=4"
enum { N_SMS = 4, LONGEST = 4130 /* frames; a run takes 4,000 */ };
/* Frames of which the last window is not full. */
enum { SOME_FRAMES = 350, MORE_FRAMES = 520 };

struct fixture {
    struct sim_model m;
    struct sim_gpu gpu;
    struct encoder *cpu;
    const struct audio_config *config;
    float *features, *want, *got;
    struct reel_error err;
};
static struct fixture fixture;

static void good(enum reel_status status, const struct fixture *f) {
    if (status != REEL_OK)
        fail_msg("%s: %s\n%s", reel_status_name(status), f->err.text, f->gpu.cuda->report);
}

static void open_on(struct fixture *f, const char *id, int n_gpus) {
    *f = (struct fixture){ .gpu = sim_gpu_controls() };
    f->gpu.cuda->gpu.n_sms = N_SMS / n_gpus, f->gpu.cuda->gpu.n_devices = n_gpus;
    sim_model_open(&f->m, id);
    if (n_gpus > 1) f->m.device = "gpu:all";
    good(sim_model_load(&f->m, OPTIONS, &f->err), f);
    const struct model *model = &f->m.cpu->model;
    const struct encoder_options options = { .cpu_path = "reference", .n_threads = 1 };
    f->config = &model->config.audio;
    good(encoder_open(&f->cpu, f->config, &model->weights.audio, &options, &f->err), f);
    const size_t out = (size_t)audio_tokens(LONGEST) * (size_t)f->config->output_dim;
    f->features = malloc((size_t)(LONGEST * f->config->n_bins) * sizeof(float));
    f->want = malloc(out * sizeof(float)), f->got = malloc(out * sizeof(float));
}

static void close_all(struct fixture *f) {
    encoder_close(f->cpu);
    sim_model_close(&f->m);
    free(f->features), free(f->want), free(f->got);
    assert_int_equal(f->gpu.cuda->leaked.allocations + f->gpu.cuda->leaked.modules, 0);
}

static int start(void **state) {
    open_on(&fixture, "asr-p", 1);
    *state = &fixture;
    return 0;
}

static int stop(void **state) {
    close_all(*state);
    return 0;
}

static void features_make(struct fixture *f, int n_frames, uint64_t seed) {
    for (int i = 0; i < n_frames * f->config->n_bins; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        f->features[i] = (float)(int32_t)(seed >> 32) / 2147483648.0f;
    }
}

/* How far the GPU's vectors are from the CPU's, as a part of theirs. */
static enum reel_status compare(struct fixture *f, int n_frames, double *off) {
    const int n = audio_tokens(n_frames) * f->config->output_dim;
    double error = 0, square = 0;
    features_make(f, n_frames, (uint64_t)n_frames);
    good(encoder_run(f->cpu, f->features, n_frames, f->want, &f->err), f);
    memset(f->got, 0xff, (size_t)n * sizeof *f->got);
    const enum reel_status status =
        cuda_encode(f->m.gpu->backend, f->features, n_frames, f->got, &f->err);
    for (int i = 0; i < n; i++) {
        const double by = (double)f->got[i] - (double)f->want[i];
        error += by * by, square += (double)f->want[i] * (double)f->want[i];
    }
    *off = sqrt(error / square);
    return status;
}

static double differ(struct fixture *f, int n_frames) {
    double off;
    good(compare(f, n_frames, &off), f);
    return off;
}

static void vectors_are_the_cpus(void **state) {
    static const int lengths[] = { 350, 1, 99, 100, 101, 37, 1001 };
    struct fixture *f = *state;
    assert_true(cuda_encodes(f->m.gpu->backend));
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        const double off = differ(f, lengths[i]);
        printf("%d frames: off by %.4f\n", lengths[i], off);
        if (!(off < 0.01)) fail_msg("%d frames: off by %.4f", lengths[i], off);
    }
}

static void a_clip_longer_than_a_run_is_taken_in_windows(void **state) {
    struct fixture *f = *state;
    const double off = differ(f, LONGEST);
    if (!(off < 0.01)) fail_msg("off by %.4f", off);
}

static void calls_of_the_driver_that_fail_are_said(void **state) {
    enum { N_FRAMES = 37, OUT_OF_MEMORY = 2 };
    struct fixture *f = *state;
    struct backend *b = f->m.gpu->backend;
    int before = f->gpu.cuda->n_calls, n_failed = 0;
    assert_true(differ(f, N_FRAMES) < 0.01);
    const int n_calls = f->gpu.cuda->n_calls - before;
    for (int n = 1; n <= n_calls; n++) {
        f->err.text[0] = '\0';
        f->gpu.cuda->fail_call = n, f->gpu.cuda->fail_with = OUT_OF_MEMORY;
        const enum reel_status status = cuda_encode(b, f->features, N_FRAMES, f->got, &f->err);
        if (status != REEL_OK && !f->err.text[0]) fail_msg("call %d failed without a word", n);
        if (status != REEL_OK) n_failed++;
    }
    f->gpu.cuda->fail_call = 0;
    assert_in_range(n_failed, n_calls / 2, n_calls); /* others leave a context */
    assert_true(differ(f, N_FRAMES) < 0.01);         /* and the next run is whole */
}

/* Fills all that a clip leaves in the scratch memory with NaN; longer than the one that follows. */
static enum reel_status spoil(struct fixture *f) {
    float *out = malloc((size_t)(audio_tokens(MORE_FRAMES) * f->config->output_dim) * sizeof *out);
    memset(f->features, 0xff, (size_t)(MORE_FRAMES * f->config->n_bins) * sizeof *f->features);
    const enum reel_status status =
        cuda_encode(f->m.gpu->backend, f->features, MORE_FRAMES, out, &f->err);
    assert_true(status != REEL_OK || isnan(out[0]));
    free(out);
    return status;
}

static void a_clip_of_NaN_leaves_nothing_in_the_next(void **state) {
    struct fixture *f = *state;
    good(spoil(f), f);
    const double off = differ(f, SOME_FRAMES);
    if (!(off < 0.01)) fail_msg("off by %.4f", off);
}

/* Vectors that a kernel made by this schedule, after a clip of NaN, are those of the CPU. */
static bool runs_right(struct fixture *f, int seed) {
    f->gpu.cuda->settings.seed = (uint64_t)seed;
    double off;
    return spoil(f) == REEL_OK && compare(f, SOME_FRAMES, &off) == REEL_OK && off < 0.01;
}

static bool is_seen(const struct mutation *m) {
    struct fixture *f = &fixture;
    const int tries = getenv("REEL_SOAK") ? 40 : 6;
    int seed = 0;
    sim_model_unload(&f->m);
    f->gpu = sim_gpu_controls();
    f->gpu.cuda->gpu.n_sms = N_SMS;
    f->gpu.cuda->settings.idle_limit = 300;
    mutation_apply(m, f->gpu.nvrtc);
    good(sim_model_load(&f->m, OPTIONS, &f->err), f);
    while (seed < tries && runs_right(f, seed))
        seed++;
    printf("%s: schedule %d%s%.60s\n", m->what, seed, *f->gpu.cuda->report ? ": " : "",
           f->gpu.cuda->report);
    return seed < tries;
}

static void mutations_are_seen(void **state) {
    (void)state;
    mutations_try(&tower_mutations, is_seen);
}

/* Its program knows of no other GPU. */
static void of_two_gpus_the_first_has_the_tower(void **state) {
    struct fixture *f = *state, two;
    sim_model_unload(&f->m);
    open_on(&two, "asr-s", 2);
    assert_int_equal(two.m.gpu->backend->gpu.n, 2);
    assert_true(cuda_encodes(two.m.gpu->backend));
    const double off = differ(&two, SOME_FRAMES);
    if (!(off < 0.01)) fail_msg("off by %.4f", off);
    close_all(&two);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_are_the_cpus),
        cmocka_unit_test(a_clip_longer_than_a_run_is_taken_in_windows),
        cmocka_unit_test(calls_of_the_driver_that_fail_are_said),
        cmocka_unit_test(a_clip_of_NaN_leaves_nothing_in_the_next),
        cmocka_unit_test(mutations_are_seen),
        cmocka_unit_test(of_two_gpus_the_first_has_the_tower),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
