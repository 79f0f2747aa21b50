/* From samples to ids: 20 made sounds through log-mel, audio tower, prompt and greedy decoding,
 * beside what transformers' Qwen3-ASR class does with the same sounds (tools/make_asr_golden.py).
 */
#include "support/golden.h"
#include "support/speech_clip.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct golden golden;
static struct golden_model miniature;

static int enter(void **state) {
    (void)state;
    golden_open(&golden, "asr-a");
    golden_model_open(&miniature, "asr-a");
    return 0;
}

static int leave(void **state) {
    (void)state;
    golden_model_close(&miniature);
    golden_close(&golden);
    return 0;
}

/* Whether the ids are the golden's. */
static bool check_clip(struct reel_transcriber *t, int clip, int seed, int n) {
    struct reel_transcript made = { .size = sizeof made };
    struct reel_error err;
    char name[40];
    float *samples = malloc((size_t)n * sizeof *samples);
    assert_non_null(samples);
    speech_clip(seed, n, samples);
    if (reel_transcriber_push(t, samples, (size_t)n, &err) != REEL_OK ||
        reel_transcriber_finish(t, &made, &err) != REEL_OK)
        fail_msg("clip %d: %s", clip, err.text);
    snprintf(name, sizeof name, "greedy.%d.ids", clip);
    int32_t *ids = golden_int(&golden, name);
    int n_ids = golden_count(&golden, name);
    snprintf(name, sizeof name, "greedy.%d.prompt", clip);
    assert_int_equal(made.n_segments, 1);
    assert_int_equal(made.n_audio_tokens + made.n_prompt_tokens, golden_count(&golden, name));
    assert_int_equal(reel_transcript_segment(&made, 0)->n_ids, n_ids);
    int same = 0;
    while (same < n_ids && reel_transcript_segment(&made, 0)->ids[same] == ids[same])
        same++;
    if (same < n_ids)
        print_message("clip %d of %d samples: id %d is %d, transformers' is %d\n", clip, n, same,
                      (int)reel_transcript_segment(&made, 0)->ids[same], (int)ids[same]);
    free(ids);
    free(samples);
    return same == n_ids;
}

/* Returns how many clips have other ids. */
static int check_path(const char *path, enum reel_rounding rounding) {
    struct reel_model *model = NULL;
    struct reel_transcriber *t = NULL;
    struct reel_error err;
    const struct reel_model_options cpu = {
        .size = sizeof cpu, .device = "cpu", .cpu_path = path, .n_threads = 2, .rounding = rounding
    };
    const struct reel_transcriber_options options = { .size = sizeof options,
                                                      .max_tokens =
                                                          golden_count(&golden, "greedy.0.ids") };
    if (reel_model_open(&model, miniature.folder, &cpu, &err) != REEL_OK ||
        reel_transcriber_open(&t, model, &options, &err) != REEL_OK)
        fail_msg("%s", err.text);
    int32_t *seeds = golden_int(&golden, "greedy.seed");
    int32_t *samples = golden_int(&golden, "greedy.samples");
    int n = golden_count(&golden, "greedy.seed"), n_others = 0;
    assert_int_equal(n, 20);
    for (int i = 0; i < n; i++)
        n_others += !check_clip(t, i, seeds[i], samples[i]);
    free(samples);
    free(seeds);
    reel_transcriber_close(t);
    reel_model_close(model);
    return n_others;
}

static void the_ids_of_20_sounds_are_transformers_own_on_the_fast_path(void **state) {
    (void)state;
    assert_int_equal(check_path("auto", REEL_ROUNDING_FAST), 0);
}

static void the_ids_of_20_sounds_are_transformers_own_on_the_reference(void **state) {
    (void)state;
    assert_int_equal(check_path("reference", REEL_ROUNDING_FAST), 0);
}

/* One of the 20 has a step at which transformers' bf16 run leads by one step of bf16 alone: 2.5469
 * to 2.5312. There another order of sums may win. */
static void in_faithful_rounding_they_differ_at_most_at_one_tie(void **state) {
    (void)state;
    assert_in_range(check_path("auto", REEL_ROUNDING_FAITHFUL), 0, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_ids_of_20_sounds_are_transformers_own_on_the_fast_path),
        cmocka_unit_test(the_ids_of_20_sounds_are_transformers_own_on_the_reference),
        cmocka_unit_test(in_faithful_rounding_they_differ_at_most_at_one_tie),
    };
    return cmocka_run_group_tests_name("transcribing goldens", tests, enter, leave);
}
