/* models/speech, a small Qwen3-ASR that tools/train_asr.py trained on synthesised speech: it writes
 * down what held-out voices say, with the greedy ids of transformers in float32. */
#include "base/file_map.h"
#include "base/json.h"
#include "reel.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FOLDER "models/speech"

enum { N_CLIPS = 20, N_RIGHT = 18 /* of them at least are what was said */ };

/* Two steps of bf16 where logits are 8 to 16: closer ones are a tie, which any rounding may settle.
 */
#define TIE 0.125

struct fixture {
    struct file_map text, audio;
    json_t *golden, *clips;
    struct reel_error err;
};

static void good(enum reel_status status, const struct fixture *f) {
    if (status != REEL_OK) fail_msg("%s: %s", reel_status_name(status), f->err.text);
}

static int start(void **state) {
    static struct fixture f;
    good(file_map_open(&f.text, FOLDER "/golden.json", &f.err), &f);
    good(file_map_open(&f.audio, FOLDER "/golden.ulaw", &f.err), &f);
    good(json_read(&f.golden, "golden.json", (const char *)f.text.bytes, f.text.size, &f.err), &f);
    f.clips = json_object_get(f.golden, "clips");
    assert_int_equal(json_array_size(f.clips), N_CLIPS);
    *state = &f;
    return 0;
}

static int stop(void **state) {
    struct fixture *f = *state;
    json_decref(f->golden);
    file_map_close(&f->text);
    file_map_close(&f->audio);
    return 0;
}

/* G.711: a sign, three bits of exponent, four of mantissa, all turned about; of 14 bits. */
static float from_mu_law(unsigned char code) {
    const int bits = code ^ 0xff, exponent = bits >> 4 & 7, mantissa = bits & 15;
    const int size = ((2 * mantissa + 33) << exponent) - 33;
    return (float)(bits & 0x80 ? -size : size) / 8192.0f;
}

static int number(const json_t *clip, const char *key) {
    return (int)json_integer_value(json_object_get(clip, key));
}

/* Whether the text is what was said; fails where the ids are not the golden's. */
static bool check_clip(struct fixture *f, struct reel_transcriber *t, const json_t *clip) {
    struct reel_transcript made = { .size = sizeof made };
    const int n = number(clip, "samples"), at = number(clip, "at");
    const json_t *ids = json_object_get(clip, "ids");
    const char *said = json_string_value(json_object_get(clip, "said"));
    float *samples = malloc((size_t)n * sizeof *samples);
    assert_non_null(samples);
    assert_true((size_t)(at + n) <= f->audio.size);
    for (int i = 0; i < n; i++)
        samples[i] = from_mu_law(f->audio.bytes[at + i]);
    good(reel_transcriber_push(t, samples, (size_t)n, &f->err), f);
    good(reel_transcriber_finish(t, &made, &f->err), f);
    free(samples);
    assert_int_equal(made.n_segments, 1);
    assert_string_equal(made.language, "English");
    if (json_real_value(json_object_get(clip, "top_gap")) < TIE)
        return strcmp(made.text, said) == 0;
    assert_int_equal(made.segments[0].n_ids, json_array_size(ids));
    for (int i = 0; i < made.segments[0].n_ids; i++)
        if (made.segments[0].ids[i] != json_integer_value(json_array_get(ids, (size_t)i)))
            fail_msg("\"%s\": id %d is %d", said, i, (int)made.segments[0].ids[i]);
    return strcmp(made.text, said) == 0;
}

static int count_right(struct fixture *f, const char *cpu_path) {
    struct reel_model *model = NULL;
    struct reel_transcriber *t = NULL;
    const struct reel_model_options cpu = {
        .size = sizeof cpu, .device = "cpu", .cpu_path = cpu_path, .n_threads = 2
    };
    const struct reel_transcriber_options options = { .size = sizeof options };
    int n = 0;
    good(reel_model_open(&model, FOLDER, &cpu, &f->err), f);
    good(reel_transcriber_open(&t, model, &options, &f->err), f);
    for (size_t i = 0; i < N_CLIPS; i++)
        n += check_clip(f, t, json_array_get(f->clips, i));
    reel_transcriber_close(t);
    reel_model_close(model);
    return n;
}

static void held_out_voices_are_written_down_with_transformers_ids(void **state) {
    static const char *const paths[] = { "auto", "portable", "reference" };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        const int n = count_right(f, paths[i]);
        printf("%s: %d of %d clips are what was said\n", paths[i], n, N_CLIPS);
        assert_in_range(n, N_RIGHT, N_CLIPS);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(held_out_voices_are_written_down_with_transformers_ids),
    };
    return cmocka_run_group_tests_name("the trained speech model", tests, start, stop);
}
