/* Speech on the fake GPU: the audio encoder runs on the CPU, the language model behind it in the
 * kernels. Ids of made sounds against transformers' (tests/golden/test_transcribe.c has all). */
#include "support/golden.h"
#include "support/shares.h"
#include "support/sim_model.h"
#include "support/speech_clip.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_CLIPS      5 /* the shortest */
#define MOST_SAMPLES 16000

static void check_clip(struct reel_transcriber *t, const struct golden *golden, int clip, int seed,
                       int n) {
    static float samples[MOST_SAMPLES];
    struct reel_transcript made = { .size = sizeof made };
    struct reel_error err;
    char name[40];
    assert_in_range(n, 1, MOST_SAMPLES);
    speech_clip(seed, n, samples);
    if (reel_transcriber_push(t, samples, (size_t)n, &err) != REEL_OK ||
        reel_transcriber_finish(t, &made, &err) != REEL_OK)
        fail_msg("clip %d: %s", clip, err.text);
    snprintf(name, sizeof name, "greedy.%d.ids", clip);
    int32_t *ids = golden_int(golden, name);
    assert_int_equal(reel_transcript_segment(&made, 0)->n_ids, golden_count(golden, name));
    assert_memory_equal(reel_transcript_segment(&made, 0)->ids, ids,
                        (size_t)reel_transcript_segment(&made, 0)->n_ids * sizeof *ids);
    free(ids);
}

static void sounds_give_transformers_ids(void **state) {
    (void)state;
    struct sim_gpu gpu = sim_gpu_controls();
    struct sim_model m;
    struct golden golden;
    struct reel_transcriber *t = NULL;
    struct reel_error err;
    gpu.cuda->gpu.n_sms = 6;
    golden_open(&golden, "asr-a");
    sim_model_open(&m, "asr-a");
    if (sim_model_load(&m, NULL, &err) != REEL_OK) fail_msg("%s", err.text);
    const struct reel_transcriber_options options = { .size = sizeof options,
                                                      .segment_seconds = 2,
                                                      .max_tokens =
                                                          golden_count(&golden, "greedy.0.ids") };
    if (reel_transcriber_open(&t, m.gpu, &options, &err) != REEL_OK) fail_msg("%s", err.text);
    int32_t *seeds = golden_int(&golden, "greedy.seed");
    int32_t *samples = golden_int(&golden, "greedy.samples");
    const struct share share = share_of("clips", 2);
    for (int i = 0; i < N_CLIPS; i++)
        if (share_has(share, i)) check_clip(t, &golden, i, seeds[i], samples[i]);
    free(samples);
    free(seeds);
    reel_transcriber_close(t);
    sim_model_close(&m);
    golden_close(&golden);
}

/* The whole windows of earlier steps stay in the session on the GPU; the answer at the end is that
 * to all of it at once. */
static void steps_leave_the_session_as_the_whole_would(void **state) {
    (void)state;
    enum { N = 44000, N_IDS = 3 };
    static float samples[N];
    struct sim_gpu gpu = sim_gpu_controls();
    struct sim_model m;
    struct reel_error err;
    int32_t ids[2][N_IDS];
    gpu.cuda->gpu.n_sms = 6;
    speech_clip(3, N, samples);
    sim_model_open(&m, "asr-a");
    if (sim_model_load(&m, NULL, &err) != REEL_OK) fail_msg("%s", err.text);
    for (int steps = 0; steps < 2; steps++) {
        struct reel_transcriber *t = NULL;
        struct reel_transcript made = { .size = sizeof made };
        const struct reel_transcriber_options options = { .size = sizeof options,
                                                          .segment_seconds = 3,
                                                          .max_tokens = N_IDS,
                                                          .stream_seconds = steps };
        if (reel_transcriber_open(&t, m.gpu, &options, &err) != REEL_OK ||
            reel_transcriber_push(t, samples, N, &err) != REEL_OK ||
            reel_transcriber_finish(t, &made, &err) != REEL_OK)
            fail_msg("%s", err.text);
        assert_int_equal(made.n_segments, 1);
        assert_int_equal(made.stream_steps, steps ? 3 : 0);
        assert_int_equal(reel_transcript_segment(&made, 0)->n_ids, N_IDS);
        memcpy(ids[steps], reel_transcript_segment(&made, 0)->ids, sizeof ids[0]);
        reel_transcriber_close(t);
    }
    assert_memory_equal(ids[0], ids[1], sizeof ids[0]);
    sim_model_close(&m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sounds_give_transformers_ids),
        cmocka_unit_test(steps_leave_the_session_as_the_whole_would),
    };
    return cmocka_run_group_tests_name("transcribing on the fake GPU", tests, NULL, NULL);
}
