/* The audio tower against Hugging Face's Qwen3-ASR class: audio vectors for clips of 1 to 1650
 * frames, and logits of prompts with audio spliced in. The reference without rounding must equal
 * the float32 run; everything that rounds is held to GOLDEN_BOUND times the error of the bf16 runs.
 */
#include "cpu/encoder.h"
#include "cpu/encoder_reference.h"
#include "cpu/reference_model.h"
#include "model/synthetic.h"
#include "runtime/model_handle.h"
#include "tests/support/golden.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const int lengths[] = { 1, 9, 37, 99, 100, 101, 230, 350, 800, 801, 1650 };
static const int decoded[] = { 9, 101, 350, 900 };
#define COUNT(list)  ((int)(sizeof(list) / sizeof(list)[0]))
#define MOST_FRAMES  1650
#define SPEECH_COUNT 2
static const char *const speech_ids[SPEECH_COUNT] = { "asr-a", "asr-b" };

/* f32 [n_bins, n_frames], as tools/make_asr_golden.py draws them. */
static float *make_features(int n_bins, int n_frames) {
    struct synthetic_tensor t = { .rank = 2, .rows = n_bins, .columns = n_frames };
    const size_t n = (size_t)n_bins * (size_t)n_frames;
    uint16_t *bits = calloc(n, sizeof *bits);
    float *out = golden_floats(n);
    assert_non_null(bits);
    snprintf(t.name, sizeof t.name, "features.%d", n_frames);
    t.scale = (float)(0.5 / 75674.0);
    synthetic_fill(&t, GOLDEN_SEED, 0, n, bits);
    for (size_t i = 0; i < n; i++)
        out[i] = bf16_to_f32(bits[i]);
    free(bits);
    return out;
}

/* One miniature; audio vectors of the reference without rounding, for every length. */
struct scene {
    const char *id;
    struct golden golden;
    struct golden_model model;
    float *exact[COUNT(lengths)];
};
static struct scene scenes[SPEECH_COUNT];

static float *exact_vectors(const struct golden_model *m, int n_frames) {
    const struct audio_config *c = &m->config.audio;
    struct reel_error err = { 0 };
    float *features = make_features(c->n_bins, n_frames);
    float *out = golden_floats((size_t)audio_tokens(n_frames) * (size_t)c->output_dim);
    golden_require(
        encoder_reference_run(c, &m->weights.audio, features, n_frames, REF_EXACT, out, &err),
        &err);
    free(features);
    return out;
}

static int open_scenes(void **state) {
    (void)state;
    for (int i = 0; i < SPEECH_COUNT; i++) {
        struct scene *s = &scenes[i];
        s->id = speech_ids[i];
        golden_open(&s->golden, s->id);
        golden_model_open(&s->model, s->id);
        for (int j = 0; j < COUNT(lengths); j++)
            s->exact[j] = exact_vectors(&s->model, lengths[j]);
    }
    return 0;
}

static int close_scenes(void **state) {
    (void)state;
    for (int i = 0; i < SPEECH_COUNT; i++) {
        for (int j = 0; j < COUNT(lengths); j++)
            free(scenes[i].exact[j]);
        golden_model_close(&scenes[i].model);
        golden_close(&scenes[i].golden);
    }
    return 0;
}

/* Skips the test when the path is not of this machine or build. */
static struct encoder *open_encoder(const struct golden_model *m, const char *path, int n_threads,
                                    enum reel_rounding rounding) {
    struct encoder_options options = { .cpu_path = path,
                                       .n_threads = n_threads,
                                       .rounding = rounding };
    struct encoder *e = NULL;
    struct reel_error err = { 0 };
    enum reel_status status = encoder_open(&e, &m->config.audio, &m->weights.audio, &options, &err);
    if (status == REEL_E_UNSUPPORTED || status == REEL_E_ARGUMENT) {
        print_message("%s\n", err.text);
        skip();
    }
    golden_require(status, &err);
    return e;
}

static float *encode(struct encoder *e, const struct golden_model *m, int n_frames) {
    const struct audio_config *c = &m->config.audio;
    struct reel_error err = { 0 };
    float *features = make_features(c->n_bins, n_frames);
    float *out = golden_floats((size_t)audio_tokens(n_frames) * (size_t)c->output_dim);
    golden_require(encoder_run(e, features, n_frames, out, &err), &err);
    free(features);
    return out;
}

static void the_number_of_vectors_is_that_of_the_convolutions(void **state) {
    (void)state;
    static const int expected[][2] = { { 1, 1 },      { 8, 1 },      { 9, 2 },         { 37, 5 },
                                       { 99, 13 },    { 100, 13 },   { 101, 14 },      { 230, 30 },
                                       { 1000, 130 }, { 3000, 390 }, { 120000, 15600 } };
    for (int i = 0; i < COUNT(expected); i++)
        assert_int_equal(audio_tokens(expected[i][0]), expected[i][1]);
}

static void the_reference_without_rounding_equals_the_float32_run(void **state) {
    (void)state;
    for (int i = 0; i < SPEECH_COUNT; i++)
        for (int j = 0; j < COUNT(lengths); j++) {
            struct golden_logits stored;
            char prefix[20];
            const int width = scenes[i].model.config.audio.output_dim;
            double worst = 0;
            snprintf(prefix, sizeof prefix, "enc.%d.", lengths[j]);
            golden_logits_read(&stored, &scenes[i].golden, prefix);
            assert_int_equal(stored.n, audio_tokens(lengths[j]));
            for (int k = 0; k < stored.n; k++) {
                double error = golden_logits_error(
                    &stored, k, scenes[i].exact[j] + (size_t)k * (size_t)width, width);
                if (!(error <= worst)) worst = error;
            }
            if (!(worst <= 2e-5))
                fail_msg("%s, %d frames: relative error %g", scenes[i].id, lengths[j], worst);
            golden_logits_release(&stored);
        }
}

/* Every vector of every length; prints the largest ratios. */
static void judge_scene(const struct scene *s, const char *path, enum reel_rounding rounding) {
    struct encoder *e = open_encoder(&s->model, path, 2, rounding);
    const int width = s->model.config.audio.output_dim;
    double most_rms = 0, most_max = 0;
    for (int j = 0; j < COUNT(lengths); j++) {
        struct golden_logits stored;
        char prefix[20];
        float *made = encode(e, &s->model, lengths[j]);
        snprintf(prefix, sizeof prefix, "enc.%d.", lengths[j]);
        golden_logits_read(&stored, &s->golden, prefix);
        for (int k = 0; k < stored.n; k++) {
            const size_t at = (size_t)k * (size_t)width;
            struct golden_ratio r =
                golden_logits_ratio(&stored, k, made + at, s->exact[j] + at, width);
            if (!(r.rms <= GOLDEN_BOUND && r.max <= GOLDEN_BOUND))
                fail_msg("%s on %s, %d frames: at %d the error is %.2f (rms) and %.2f (max) times "
                         "that of the bf16 run",
                         s->id, encoder_path(e), lengths[j], k, r.rms, r.max);
            if (r.rms > most_rms) most_rms = r.rms;
            if (r.max > most_max) most_max = r.max;
        }
        golden_logits_release(&stored);
        free(made);
    }
    print_message("%s on %s: at most %.2f (rms) and %.2f (max) times the bf16 run's error\n", s->id,
                  encoder_path(e), most_rms, most_max);
    encoder_close(e);
}

static void a_path_rounds_no_worse_than_the_bf16_run(void **state) {
    for (int i = 0; i < SPEECH_COUNT; i++)
        judge_scene(&scenes[i], *state, REEL_ROUNDING_FAST);
}

static void faithful_rounding_is_no_worse_than_the_bf16_run(void **state) {
    (void)state;
    for (int i = 0; i < SPEECH_COUNT; i++)
        judge_scene(&scenes[i], NULL, REEL_ROUNDING_FAITHFUL);
}

/* Miniatures whose goldens hold whole rows: the plain loops would take too long. */
static void judge_whole(const char *id, const int *frames, int n_lengths) {
    struct golden golden;
    struct golden_model m;
    golden_open(&golden, id);
    golden_model_open(&m, id);
    struct encoder *e = open_encoder(&m, NULL, 2, REEL_ROUNDING_FAST);
    const int width = m.config.audio.output_dim;
    for (int j = 0; j < n_lengths; j++) {
        char name[3][24];
        static const char *const parts[] = { "rows", "bf16.rms", "bf16.max" };
        for (int i = 0; i < 3; i++)
            snprintf(name[i], sizeof name[i], "enc.%d.%s", frames[j], parts[i]);
        float *exact = golden_f32(&golden, name[0]), *made = encode(e, &m, frames[j]);
        float *rms = golden_f32(&golden, name[1]), *max = golden_f32(&golden, name[2]);
        const struct golden_logits stored = { .n = audio_tokens(frames[j]),
                                              .rms = rms,
                                              .max = max };
        double most_rms = 0, most_max = 0;
        assert_int_equal(golden_count(&golden, name[0]), stored.n * width);
        for (int k = 0; k < stored.n; k++) {
            const size_t at = (size_t)k * (size_t)width;
            struct golden_ratio r = golden_logits_ratio(&stored, k, made + at, exact + at, width);
            if (!(r.rms <= GOLDEN_BOUND && r.max <= GOLDEN_BOUND))
                fail_msg("%s, %d frames: at %d the error is %.2f (rms) and %.2f (max) times that "
                         "of the bf16 run",
                         id, frames[j], k, r.rms, r.max);
            if (r.rms > most_rms) most_rms = r.rms;
            if (r.max > most_max) most_max = r.max;
        }
        print_message("%s, %d frames: at most %.2f (rms) and %.2f (max) times the bf16 run's "
                      "error\n",
                      id, frames[j], most_rms, most_max);
        free(exact);
        free(made);
        free(rms);
        free(max);
    }
    encoder_close(e);
    golden_model_close(&m);
    golden_close(&golden);
}

static void the_published_width_rounds_no_worse_than_the_bf16_run(void **state) {
    (void)state;
    static const int frames[] = { 37, 101 };
    judge_whole("asr-w", frames, COUNT(frames));
}

static void the_published_tower_rounds_no_worse_than_the_bf16_run(void **state) {
    (void)state;
    static const int frames[] = { 230 };
    if (!getenv("REEL_SOAK")) {
        print_message("400 MB of weights: only with REEL_SOAK=1\n");
        skip();
    }
    judge_whole("asr-f", frames, COUNT(frames));
}

/* ---- what must not matter -------------------------------------------------------------------- */

static void windows_encoded_apart_have_the_bits_of_the_whole(void **state) {
    (void)state;
    const struct golden_model *m = &scenes[0].model;
    const struct audio_config *c = &m->config.audio;
    struct encoder *e = open_encoder(m, NULL, 2, REEL_ROUNDING_FAST);
    const int window = encoder_window_frames(e), n_bins = c->n_bins;
    struct reel_error err = { 0 };
    float *whole = encode(e, m, MOST_FRAMES), *features = make_features(n_bins, MOST_FRAMES);
    float *piece = golden_floats((size_t)n_bins * (size_t)window);
    float *out = golden_floats((size_t)audio_tokens(window) * (size_t)c->output_dim);
    assert_int_equal(window, 200);
    for (int first = 0; first < MOST_FRAMES; first += window) {
        const int n = MOST_FRAMES - first < window ? MOST_FRAMES - first : window;
        const size_t made = (size_t)audio_tokens(n) * (size_t)c->output_dim;
        for (int b = 0; b < n_bins; b++)
            memcpy(piece + (size_t)b * (size_t)n, features + (size_t)b * MOST_FRAMES + first,
                   (size_t)n * sizeof *piece);
        golden_require(encoder_run(e, piece, n, out, &err), &err);
        assert_memory_equal(out, whole + (size_t)audio_tokens(first) * (size_t)c->output_dim,
                            made * sizeof *out);
    }
    free(whole);
    free(features);
    free(piece);
    free(out);
    encoder_close(e);
}

static void the_number_of_threads_does_not_matter(void **state) {
    (void)state;
    const struct golden_model *m = &scenes[1].model;
    const size_t n = (size_t)audio_tokens(801) * (size_t)m->config.audio.output_dim;
    struct encoder *one = open_encoder(m, NULL, 1, REEL_ROUNDING_FAST);
    struct encoder *three = open_encoder(m, NULL, 3, REEL_ROUNDING_FAST);
    float *a = encode(one, m, 801), *b = encode(three, m, 801), *again = encode(three, m, 801);
    assert_memory_equal(a, b, n * sizeof *a);
    assert_memory_equal(a, again, n * sizeof *a);
    free(a);
    free(b);
    free(again);
    encoder_close(one);
    encoder_close(three);
}

static void a_backends_tower_rounds_as_the_backend_does(void **state) {
    enum { N_FRAMES = 350 };
    static const enum reel_rounding roundings[] = { REEL_ROUNDING_FAST, REEL_ROUNDING_FAITHFUL,
                                                    REEL_ROUNDING_EXACT };
    const struct golden_model *m = &scenes[1].model;
    const size_t n = (size_t)audio_tokens(N_FRAMES) * (size_t)m->config.audio.output_dim;
    float *features = make_features(m->config.audio.n_bins, N_FRAMES), *got = golden_floats(n);
    (void)state;
    for (int i = 0; i < COUNT(roundings); i++) {
        const struct reel_model_options options = {
            .size = sizeof options, .device = "cpu", .n_threads = 1, .rounding = roundings[i]
        };
        struct reel_error err = { 0 };
        struct reel_model *model = NULL;
        struct model_tower tower = { 0 };
        golden_require(reel_model_open(&model, m->folder, &options, &err), &err);
        golden_require(model_tower_open(&tower, model, &err), &err);
        golden_require(model_tower_run(&tower, features, N_FRAMES, got, &err), &err);
        struct encoder *e = open_encoder(m, NULL, 1, roundings[i]);
        float *want = encode(e, m, N_FRAMES);
        if (memcmp(got, want, n * sizeof *got) != 0)
            fail_msg("rounding %d is not that of the tower", (int)roundings[i]);
        free(want);
        encoder_close(e);
        model_tower_close(&tower);
        reel_model_close(model);
    }
    free(features), free(got);
}

/* A copy of a matrix in float32; the caller frees its data. */
static void widen(struct matrix *m) {
    float *values = golden_floats((size_t)m->rows * (size_t)m->columns);
    for (int r = 0; r < m->rows; r++)
        matrix_row_f32(m, r, values + (size_t)r * (size_t)m->columns);
    m->dtype = DTYPE_F32;
    m->row_bytes = (size_t)m->columns * sizeof(float);
    m->data = (unsigned char *)values;
}

static void the_same_weights_in_float32_give_the_same_bits(void **state) {
    (void)state;
    const struct golden_model *m = &scenes[1].model;
    struct golden_model copy = *m;
    struct audio_weights *w = &copy.weights.audio;
    for (int i = 0; i < M_AUDIO_CONVS; i++)
        widen(&w->conv[i].weight);
    widen(&w->conv_out);
    struct encoder *a = open_encoder(m, NULL, 2, REEL_ROUNDING_FAST);
    struct encoder *b = open_encoder(&copy, NULL, 2, REEL_ROUNDING_FAST);
    float *from_bf16 = encode(a, m, 350), *from_f32 = encode(b, m, 350);
    assert_memory_equal(from_bf16, from_f32,
                        (size_t)audio_tokens(350) * (size_t)m->config.audio.output_dim *
                            sizeof(float));
    free(from_bf16);
    free(from_f32);
    encoder_close(a);
    encoder_close(b);
    for (int i = 0; i < M_AUDIO_CONVS; i++)
        free((void *)(uintptr_t)w->conv[i].weight.data);
    free((void *)(uintptr_t)w->conv_out.data);
}

static void no_frames_and_no_tower_are_refused(void **state) {
    (void)state;
    const struct golden_model *m = &scenes[0].model;
    struct encoder *e = open_encoder(m, NULL, 1, REEL_ROUNDING_FAST);
    struct encoder_options options = { 0 };
    struct audio_weights none = { 0 };
    struct reel_error err = { 0 };
    float x = 0;
    assert_int_equal(encoder_run(e, &x, 0, &x, &err), REEL_E_ARGUMENT);
    encoder_close(e);
    assert_int_equal(encoder_open(&e, &m->config.audio, &none, &options, &err), REEL_E_UNSUPPORTED);
    assert_null(e);
}

/* ---- audio in prompts ------------------------------------------------------------------------ */

/* Embeddings [n, hidden] of ids, with `vectors` where an id stands for audio. */
static float *splice(const struct golden_model *m, const int32_t *ids, int n,
                     const float *vectors) {
    const size_t hidden = (size_t)m->config.hidden;
    float *out = golden_floats((size_t)n * hidden);
    for (int i = 0; i < n; i++) {
        float *row = out + (size_t)i * hidden;
        if (ids[i] != m->config.audio.token_id) {
            matrix_row_f32(&m->weights.embedding, ids[i], row);
            continue;
        }
        memcpy(row, vectors, hidden * sizeof *row);
        vectors += hidden;
    }
    return out;
}

static float *reference_logits(const struct golden_model *m, const float *embeddings, int n,
                               enum ref_rounding mode) {
    struct ref_options options = { .mode = mode, .max_positions = n };
    struct ref_state *state = NULL;
    struct reel_error err = { 0 };
    float *out = golden_floats((size_t)n * (size_t)m->config.vocab);
    golden_require(ref_state_open(&state, &m->config, &m->weights, &options, &err), &err);
    struct backend_eval eval = {
        .n = n, .embeddings = embeddings, .output = REEL_OUTPUT_ALL_LOGITS, .out = out
    };
    golden_require(ref_state_eval(state, &eval, &err), &err);
    ref_state_close(state);
    return out;
}

static float *session_logits(const struct golden_model *m, const float *embeddings, int n) {
    struct reel_model_options options = { .size = sizeof options, .device = "cpu", .n_threads = 2 };
    struct reel_session_options room = { .size = sizeof room, .max_context = n };
    const size_t floats = (size_t)n * (size_t)m->config.vocab;
    float *out = golden_floats(floats);
    struct reel_eval eval = { .size = sizeof eval,
                              .n = n,
                              .embeddings = embeddings,
                              .output = REEL_OUTPUT_ALL_LOGITS,
                              .out = out,
                              .out_floats = floats };
    struct reel_model *model = NULL;
    struct reel_session *session = NULL;
    struct reel_error err = { 0 };
    golden_require(reel_model_open(&model, m->folder, &options, &err), &err);
    golden_require(reel_session_open(&session, model, &room, &err), &err);
    golden_require(reel_session_eval(session, &eval, &err), &err);
    reel_session_close(session);
    reel_model_close(model);
    return out;
}

static void judge_logits(const struct scene *s, int n_frames, const struct golden_logits *stored,
                         const float *made, const float *exact) {
    const int vocab = s->model.config.vocab;
    for (int i = 0; i < stored->n; i++) {
        const size_t at = (size_t)i * (size_t)vocab;
        struct golden_ratio r = golden_logits_ratio(stored, i, made + at, exact + at, vocab);
        if (!(r.rms <= GOLDEN_BOUND && r.max <= GOLDEN_BOUND))
            fail_msg("%s, %d frames: at %d the error is %.2f (rms) and %.2f (max) times that of "
                     "the bf16 run",
                     s->id, n_frames, i, r.rms, r.max);
    }
}

static void decode_one(const struct scene *s, int n_frames) {
    const struct golden_model *m = &s->model;
    struct golden_logits stored;
    char prefix[20], name[24];
    snprintf(prefix, sizeof prefix, "dec.%d.", n_frames);
    snprintf(name, sizeof name, "%sids", prefix);
    golden_logits_read(&stored, &s->golden, prefix);
    int32_t *ids = golden_int(&s->golden, name);
    float *exact_rows = exact_vectors(m, n_frames);
    float *exact_in = splice(m, ids, stored.n, exact_rows);
    float *exact = reference_logits(m, exact_in, stored.n, REF_EXACT);
    for (int i = 0; i < stored.n; i++) {
        double error = golden_logits_error(&stored, i, exact + (size_t)i * (size_t)m->config.vocab,
                                           m->config.vocab);
        if (!(error <= 1e-4))
            fail_msg("%s, %d frames: relative error %g at %d", s->id, n_frames, error, i);
    }
    struct encoder *e = open_encoder(m, NULL, 2, REEL_ROUNDING_FAST);
    float *rows = encode(e, m, n_frames), *in = splice(m, ids, stored.n, rows);
    float *made = session_logits(m, in, stored.n);
    judge_logits(s, n_frames, &stored, made, exact);
    encoder_close(e);
    void *const all[] = { ids, exact_rows, exact_in, exact, rows, in, made };
    for (int i = 0; i < COUNT(all); i++)
        free(all[i]);
    golden_logits_release(&stored);
}

static void logits_behind_audio_are_those_of_the_whole_model(void **state) {
    (void)state;
    for (int i = 0; i < SPEECH_COUNT; i++)
        for (int j = 0; j < COUNT(decoded); j++)
            decode_one(&scenes[i], decoded[j]);
}

#define ON_PATH(path)                                                                              \
    {                                                                                              \
        .name = "the_path_" path "_rounds_no_worse_than_the_bf16_run",                             \
        .test_func = a_path_rounds_no_worse_than_the_bf16_run, .initial_state = (char[]) {         \
            path                                                                                   \
        }                                                                                          \
    }

/* What a tower reads behind the tokens of its last window may be anything that the clip before left
 * there. Nor are frames of the last second convolved that no token comes from: those lengths stand
 * at both sides of where there is one more. */
static void a_clip_of_NaN_leaves_nothing_in_the_next(void **state) {
    static const int after[] = { 1, 8, 9, 16, 17, 37, 48, 49, 88, 89, 96, 97, 99, 230, 350 };
    enum { LONG = 801 };
    (void)state;
    for (int i = 0; i < SPEECH_COUNT; i++) {
        const struct golden_model *m = &scenes[i].model;
        const struct audio_config *c = &m->config.audio;
        const size_t n_features = (size_t)c->n_bins * LONG;
        const size_t n_longest = (size_t)audio_tokens(LONG) * (size_t)c->output_dim;
        float *spoilt = golden_floats(n_features), *vectors = golden_floats(n_longest);
        memset(spoilt, 0xff, n_features * sizeof *spoilt);
        for (int p = 0; p < 2; p++) {
            const char *path = p ? NULL : "portable"; /* NULL: the best of this machine */
            struct encoder *e = open_encoder(m, path, 1, REEL_ROUNDING_FAST);
            for (int j = 0; j < COUNT(after); j++) {
                struct reel_error err = { 0 };
                struct encoder *fresh = open_encoder(m, path, 1, REEL_ROUNDING_FAST);
                float *want = encode(fresh, m, after[j]);
                golden_require(encoder_run(e, spoilt, LONG, vectors, &err), &err);
                assert_true(isnan(vectors[0]));
                float *got = encode(e, m, after[j]);
                const size_t n = (size_t)audio_tokens(after[j]) * (size_t)c->output_dim;
                if (memcmp(got, want, n * sizeof *got) != 0)
                    fail_msg("%s, %s path: %d frames behind a clip of NaN are not what they are "
                             "alone",
                             scenes[i].id, path ? path : "best", after[j]);
                free(got), free(want);
                encoder_close(fresh);
            }
            encoder_close(e);
        }
        free(spoilt), free(vectors);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_number_of_vectors_is_that_of_the_convolutions),
        cmocka_unit_test(the_reference_without_rounding_equals_the_float32_run),
        cmocka_unit_test(faithful_rounding_is_no_worse_than_the_bf16_run),
        ON_PATH("reference"),
        ON_PATH("portable"),
        ON_PATH("avx2"),
        ON_PATH("avx512"),
        ON_PATH("amx"),
        ON_PATH("neon"),
        cmocka_unit_test(the_published_width_rounds_no_worse_than_the_bf16_run),
        cmocka_unit_test(the_published_tower_rounds_no_worse_than_the_bf16_run),
        cmocka_unit_test(windows_encoded_apart_have_the_bits_of_the_whole),
        cmocka_unit_test(the_number_of_threads_does_not_matter),
        cmocka_unit_test(a_backends_tower_rounds_as_the_backend_does),
        cmocka_unit_test(the_same_weights_in_float32_give_the_same_bits),
        cmocka_unit_test(a_clip_of_NaN_leaves_nothing_in_the_next),
        cmocka_unit_test(no_frames_and_no_tower_are_refused),
        cmocka_unit_test(logits_behind_audio_are_those_of_the_whole_model),
    };
    return cmocka_run_group_tests(tests, open_scenes, close_scenes);
}
