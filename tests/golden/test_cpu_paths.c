/* Every CPU path through the public interface, on the miniatures: against a float32 run, its RMS
 * and maximum error must be at most 1.25 times those of Hugging Face's own bf16 run, at every
 * position, however the tokens are cut. A test on a path this machine lacks is skipped. REEL_SOAK=1
 * adds the long run to 32,800 positions. */
#include "cpu/reference_model.h"
#include "support/shares.h"
#include "tests/support/golden.h"
#include "tests/support/sanitized.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_POSITIONS 576
#define MAX_SCENES  16

#if SANITIZED || !defined(__OPTIMIZE__)
#define N_TEACHER_FORCED 66
#define LONG_LIMIT       102
#else
#define N_TEACHER_FORCED N_POSITIONS
#define LONG_LIMIT       4100
#endif

/* Skips the test when the path is not of this machine or build. */
static struct reel_model *open_path(const struct golden_model *m, const char *path) {
    struct reel_model_options options = {
        .size = sizeof options, .device = "cpu", .cpu_path = path, .n_threads = 2
    };
    struct reel_model *model = NULL;
    struct reel_error err = { 0 };
    enum reel_status status = reel_model_open(&model, m->folder, &options, &err);
    if (status == REEL_E_UNSUPPORTED || status == REEL_E_ARGUMENT) {
        print_message("%s\n", err.text);
        skip();
    }
    golden_require(status, &err);
    return model;
}

static struct reel_session *open_session(const struct reel_model *model, int max_context) {
    struct reel_session_options options = { .size = sizeof options, .max_context = max_context };
    struct reel_session *session = NULL;
    struct reel_error err = { 0 };
    golden_require(reel_session_open(&session, model, &options, &err), &err);
    return session;
}

static void evaluate(struct reel_session *session, const int32_t *ids, int n,
                     enum reel_output output, float *out, size_t out_floats) {
    struct reel_error err = { 0 };
    struct reel_eval eval = { .size = sizeof eval,
                              .n = n,
                              .ids = ids,
                              .output = output,
                              .out = out,
                              .out_floats = out_floats };
    golden_require(reel_session_eval(session, &eval, &err), &err);
}

/* One miniature with its golden and the float32 logits of its ids. */
struct scene {
    const char *id;
    struct golden golden;
    struct golden_model model;
    struct golden_logits stored;
    int32_t *ids;
    float *exact; /* [N_TEACHER_FORCED, vocab] */
};

static void scene_open(struct scene *s, const char *id) {
    *s = (struct scene){ .id = id };
    golden_open(&s->golden, id);
    golden_model_open(&s->model, id);
    golden_logits_read(&s->stored, &s->golden, "");
    s->ids = golden_int(&s->golden, "ids");
    s->exact = golden_exact_logits(&s->model, s->ids, N_TEACHER_FORCED, 0);
    for (int i = 0; i < N_TEACHER_FORCED; i++) {
        size_t row = (size_t)i * (size_t)s->model.config.vocab;
        double error = golden_logits_error(&s->stored, i, s->exact + row, s->model.config.vocab);
        assert_true(s->stored.at[i] == i && error <= 1e-4);
    }
}

static void scene_close(struct scene *s) {
    free(s->exact);
    free(s->ids);
    golden_logits_release(&s->stored);
    golden_model_close(&s->model);
    golden_close(&s->golden);
}

/* Every miniature, for all tests: their float32 logits take longer than a path. */
static struct scene scenes[MAX_SCENES];
static int n_scenes;

static int open_scenes(void **state) {
    (void)state;
    for (; golden_ids[n_scenes]; n_scenes++) {
        assert_true(n_scenes < MAX_SCENES);
        scene_open(&scenes[n_scenes], golden_ids[n_scenes]);
    }
    return 0;
}

/* Logits [vocab] of a position; returns the larger of the two ratios. */
static double judge(const struct scene *s, const char *path, int position, const float *logits) {
    int vocab = s->model.config.vocab;
    struct golden_ratio ratio = golden_logits_ratio(
        &s->stored, position, logits, s->exact + (size_t)position * (size_t)vocab, vocab);
    if (!(ratio.rms <= GOLDEN_BOUND && ratio.max <= GOLDEN_BOUND))
        fail_msg("%s on %s: at %d the error is %.2f (rms) and %.2f (max) times that of the bf16 "
                 "run",
                 s->id, path, position, ratio.rms, ratio.max);
    return ratio.rms > ratio.max ? ratio.rms : ratio.max;
}

static void check_whole(const struct scene *s, const char *path, const struct reel_model *model) {
    size_t vocab = (size_t)s->model.config.vocab, n = N_TEACHER_FORCED * vocab;
    float *logits = golden_floats(n);
    struct reel_session *session = open_session(model, N_POSITIONS);
    double worst = 0, squares = 0;
    evaluate(session, s->ids, N_TEACHER_FORCED, REEL_OUTPUT_ALL_LOGITS, logits, n);
    for (int i = 0; i < N_TEACHER_FORCED; i++) {
        double ratio = judge(s, path, i, logits + (size_t)i * vocab);
        if (ratio > worst) worst = ratio;
    }
    for (size_t i = 0; i < n; i++)
        squares += pow((double)logits[i] - (double)s->exact[i], 2);
    double whole = sqrt(squares / (double)n) / s->stored.whole;
    print_message("%s on %s: %.2f times the error of the bf16 run, at most %.2f at a position\n",
                  s->id, path, whole, worst);
    assert_true(whole <= GOLDEN_BOUND);
    reel_session_close(session);
    free(logits);
}

/* Pieces (0 ends), then 8 tokens one at a time; judged after the pieces and after each. */
static void check_pieces(const struct scene *s, const char *path, const struct reel_model *model,
                         const int *pieces) {
    size_t vocab = (size_t)s->model.config.vocab;
    int position = 0, length = 0;
    for (int i = 0; pieces[i]; i++)
        length += pieces[i];
    if (length + 8 > N_TEACHER_FORCED) return;
    float *logits = golden_floats(vocab);
    struct reel_session *session = open_session(model, 300);
    for (int i = 0; pieces[i]; position += pieces[i++])
        evaluate(session, s->ids + position, pieces[i], REEL_OUTPUT_LAST_LOGITS, logits, vocab);
    for (int step = 0; step <= 8; step++) {
        judge(s, path, position - 1, logits);
        evaluate(session, s->ids + position, 1, REEL_OUTPUT_LAST_LOGITS, logits, vocab);
        position++;
    }
    reel_session_close(session);
    free(logits);
}

/* The path is named in *state. */
static void path_is_within_the_bound(void **state) {
    const char *path = *state;
    /* test_reference.c does the reference on all of them */
    int n = strcmp(path, "reference") == 0 ? 1 : n_scenes;
    for (int i = 0; i < n; i++) {
        struct reel_model *model = open_path(&scenes[i].model, path);
        check_whole(&scenes[i], path, model);
        reel_model_close(model);
    }
}

static void lengths_and_cuts_stay_within_the_bound(void **state) {
    const char *path = *state;
    static const int all[][5] = { { 1 },  { 2 },  { 3 },   { 4 },   { 5 },   { 63 },
                                  { 64 }, { 65 }, { 127 }, { 130 }, { 257 }, { 1, 63, 2, 64 } };
    for (int i = 0; i < n_scenes; i++) {
        const struct scene *s = &scenes[i];
        if (strcmp(s->id, "q3-w") == 0 && N_TEACHER_FORCED < N_POSITIONS) continue;
        struct reel_model *model = open_path(&s->model, path);
        /* a single position and several: what threads do differs in nothing else */
        for (size_t k = 0; k < sizeof all / sizeof all[0]; k += THREAD_SANITIZED ? 4 : 1)
            check_pieces(s, path, model, all[k]);
        reel_model_close(model);
    }
}

static void faithful_rounding_gives_the_bits_of_the_reference(void **state) {
    (void)state;
    struct scene s;
    scene_open(&s, "q3-b");
    size_t n = 40 * (size_t)s.model.config.vocab;
    float *made = golden_floats(n), *expected = golden_floats(n);
    struct reel_error err = { 0 };

    struct reel_model_options options = { .size = sizeof options,
                                          .device = "cpu",
                                          .rounding = REEL_ROUNDING_FAITHFUL };
    struct reel_model *model = NULL;
    golden_require(reel_model_open(&model, s.model.folder, &options, &err), &err);
    struct reel_session *session = open_session(model, 40);
    evaluate(session, s.ids, 40, REEL_OUTPUT_ALL_LOGITS, made, n);
    reel_session_close(session);
    reel_model_close(model);

    struct ref_options reference = { .mode = REF_FAITHFUL, .max_positions = 40 };
    struct ref_state *run = NULL;
    golden_require(ref_state_open(&run, &s.model.config, &s.model.weights, &reference, &err), &err);
    struct backend_eval eval = {
        .n = 40, .ids = s.ids, .output = REEL_OUTPUT_ALL_LOGITS, .out = expected
    };
    golden_require(ref_state_eval(run, &eval, &err), &err);
    ref_state_close(run);
    assert_memory_equal(made, expected, n * sizeof *made);
    free(made);
    free(expected);
    scene_close(&s);
}

/* ---- a long run ------------------------------------------------------------------------------ */

#define MAX_LONG 16

/* Logits [n stored below limit, vocab] by one session. */
static void run_long(const struct golden_logits *stored, const int32_t *ids,
                     struct reel_session *session, int limit, size_t vocab, float *logits) {
    int done = 0;
    for (int i = 0; i < stored->n && stored->at[i] < limit; i++) {
        int next = stored->at[i] + 1;
        evaluate(session, ids + done, next - done, REEL_OUTPUT_LAST_LOGITS,
                 logits + (size_t)i * vocab, vocab);
        done = next;
    }
    assert_int_equal(reel_session_length(session), done);
}

/* The float32 logits at the same positions, from the reference. */
static void run_long_exactly(const struct golden_logits *stored, const struct golden_model *m,
                             const int32_t *ids, int limit, float *logits) {
    struct ref_options options = { .mode = REF_EXACT, .max_positions = limit };
    struct ref_state *run = NULL;
    struct reel_error err = { 0 };
    int done = 0;
    golden_require(ref_state_open(&run, &m->config, &m->weights, &options, &err), &err);
    for (int i = 0; i < stored->n && stored->at[i] < limit; i++) {
        struct backend_eval eval = { .position = done,
                                     .n = stored->at[i] + 1 - done,
                                     .ids = ids + done,
                                     .output = REEL_OUTPUT_LAST_LOGITS,
                                     .out = logits + (size_t)i * (size_t)m->config.vocab };
        golden_require(ref_state_eval(run, &eval, &err), &err);
        done = stored->at[i] + 1;
    }
    ref_state_close(run);
}

/* For the long tests of all paths, opened by the first that needs it. */
struct long_scene {
    const char *id;
    struct golden golden;
    struct golden_model model;
    struct golden_logits stored;
    int32_t *ids;
    float *exact; /* [stored below limit, vocab] */
    int limit;
};
#define N_LONG 2
static struct long_scene long_scenes[N_LONG] = { { .id = "q3-long" }, { .id = "q35-long" } };

static const struct long_scene *open_long_scene(struct long_scene *s) {
    if (s->exact) return s;
    s->limit = soaking_in_full() ? 32800 : LONG_LIMIT;
    golden_open(&s->golden, s->id);
    golden_model_open(&s->model, s->id);
    golden_logits_read(&s->stored, &s->golden, "");
    assert_true(s->stored.n <= MAX_LONG);
    s->ids = golden_int(&s->golden, "ids");
    int vocab = s->model.config.vocab;
    s->exact = golden_floats(MAX_LONG * (size_t)vocab);
    run_long_exactly(&s->stored, &s->model, s->ids, s->limit, s->exact);
    for (int i = 0; i < s->stored.n && s->stored.at[i] < s->limit; i++) {
        const float *exact = s->exact + (size_t)i * (size_t)vocab;
        assert_true(golden_logits_error(&s->stored, i, exact, vocab) <= 1e-4);
    }
    return s;
}

static int close_scenes(void **state) {
    (void)state;
    while (n_scenes > 0)
        scene_close(&scenes[--n_scenes]);
    for (int i = 0; i < N_LONG; i++) {
        struct long_scene *s = &long_scenes[i];
        if (!s->exact) continue;
        free(s->exact);
        free(s->ids);
        golden_logits_release(&s->stored);
        golden_model_close(&s->model);
        golden_close(&s->golden);
    }
    return 0;
}

static void check_long(const struct long_scene *s, const char *path) {
    size_t vocab = (size_t)s->model.config.vocab;
    float *logits = golden_floats(MAX_LONG * vocab);
    struct reel_model *model = open_path(&s->model, path);
    struct reel_session *session = open_session(model, s->limit);
    run_long(&s->stored, s->ids, session, s->limit, vocab, logits);
    for (int i = 0; i < s->stored.n && s->stored.at[i] < s->limit; i++) {
        size_t row = (size_t)i * vocab;
        struct golden_ratio ratio =
            golden_logits_ratio(&s->stored, i, logits + row, s->exact + row, (int)vocab);
        print_message("%s on %s: at %d %.2f (rms) and %.2f (max) times the error of the bf16 run\n",
                      s->id, path, s->stored.at[i], ratio.rms, ratio.max);
        if (!(ratio.rms <= GOLDEN_BOUND && ratio.max <= GOLDEN_BOUND))
            fail_msg("%s on %s: at %d the error is %.2f (rms) and %.2f (max) times that of the "
                     "bf16 run",
                     s->id, path, s->stored.at[i], ratio.rms, ratio.max);
    }
    reel_session_close(session);
    reel_model_close(model);
    free(logits);
}

static void a_long_run_stays_within_the_bound(void **state) {
    const char *path = *state;
    /* any model tells whether the path is there, before the long float32 runs */
    reel_model_close(open_path(&scenes[0].model, path));
    for (int i = 0; i < N_LONG; i++)
        check_long(open_long_scene(&long_scenes[i]), path);
}

#define ON_PATH(function, path)                                                                    \
    {                                                                                              \
        .name = #function " on " path, .test_func = (function), .teardown_func = turned,           \
        .initial_state = (char[]) {                                                                \
            path                                                                                   \
        }                                                                                          \
    }
#define ON_EVERY_PATH(function)                                                                    \
    ON_PATH(function, "portable"), ON_PATH(function, "avx2"), ON_PATH(function, "avx512"),         \
        ON_PATH(function, "amx"), ON_PATH(function, "neon")

int main(void) {
    struct CMUnitTest tests[] = {
        ON_PATH(path_is_within_the_bound, "reference"),
        ON_EVERY_PATH(path_is_within_the_bound),
        ON_EVERY_PATH(lengths_and_cuts_stay_within_the_bound),
        cmocka_unit_test(faithful_rounding_gives_the_bits_of_the_reference),
        ON_EVERY_PATH(a_long_run_stays_within_the_bound),
    };
    SHARE_TESTS("cpu-paths", 4, tests);
    return cmocka_run_group_tests(tests, open_scenes, close_scenes);
}
