/* models/speech, a small Qwen3-ASR that tools/train_asr.py trained on synthesised speech: it writes
 * down what held-out voices say, with the greedy ids of transformers in float32. */
#include "reel.h"
#include "support/spoken.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { N_RIGHT = 18 /* of the clips at least are what was said */ };

/* Two steps of bf16 where logits are 8 to 16: closer ones are a tie, which any rounding may settle.
 */
#define TIE 0.125

struct fixture {
    struct spoken spoken;
    struct reel_error err;
};

static void good(enum reel_status status, const struct fixture *f) {
    if (status != REEL_OK) fail_msg("%s: %s", reel_status_name(status), f->err.text);
}

static int start(void **state) {
    static struct fixture f;
    spoken_open(&f.spoken);
    *state = &f;
    return 0;
}

static int stop(void **state) {
    struct fixture *f = *state;
    spoken_close(&f->spoken);
    return 0;
}

/* Whether the text is what was said; fails where the ids are not the golden's. */
static bool check_clip(struct fixture *f, struct reel_transcriber *t,
                       const struct spoken_clip *clip) {
    struct reel_transcript made = { .size = sizeof made };
    const json_t *ids = json_object_get(clip->golden, "ids");
    good(reel_transcriber_push(t, clip->samples, clip->n, &f->err), f);
    good(reel_transcriber_finish(t, &made, &f->err), f);
    assert_int_equal(made.n_segments, 1);
    assert_string_equal(made.language, "English");
    if (json_real_value(json_object_get(clip->golden, "top_gap")) < TIE)
        return strcmp(made.text, clip->said) == 0;
    assert_int_equal(reel_transcript_segment(&made, 0)->n_ids, json_array_size(ids));
    for (int i = 0; i < reel_transcript_segment(&made, 0)->n_ids; i++)
        if (reel_transcript_segment(&made, 0)->ids[i] !=
            json_integer_value(json_array_get(ids, (size_t)i)))
            fail_msg("\"%s\": id %d is %d", clip->said, i,
                     (int)reel_transcript_segment(&made, 0)->ids[i]);
    return strcmp(made.text, clip->said) == 0;
}

static int count_right(struct fixture *f, const char *cpu_path) {
    struct reel_model *model = NULL;
    struct reel_transcriber *t = NULL;
    const struct reel_model_options cpu = {
        .size = sizeof cpu, .device = "cpu", .cpu_path = cpu_path, .n_threads = 2
    };
    const struct reel_transcriber_options options = { .size = sizeof options };
    int n = 0;
    good(reel_model_open(&model, "models/speech", &cpu, &f->err), f);
    good(reel_transcriber_open(&t, model, &options, &f->err), f);
    for (size_t i = 0; i < SPOKEN_CLIPS; i++)
        n += check_clip(f, t, &f->spoken.clips[i]);
    reel_transcriber_close(t);
    reel_model_close(model);
    return n;
}

static void held_out_voices_are_written_down_with_transformers_ids(void **state) {
    static const char *const paths[] = { "auto", "portable", "reference" };
    struct fixture *f = *state;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        const int n = count_right(f, paths[i]);
        printf("%s: %d of %d clips are what was said\n", paths[i], n, SPOKEN_CLIPS);
        assert_in_range(n, N_RIGHT, SPOKEN_CLIPS);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(held_out_voices_are_written_down_with_transformers_ids),
    };
    return cmocka_run_group_tests_name("the trained speech model", tests, start, stop);
}
