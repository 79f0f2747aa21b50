/* Hybrids through the public interface: prompts and decoding agree for every length, and a session
 * that is cut back, copied, saved or broken off goes on as one that was not. */
#include "tests/support/golden.h"
#include "tests/support/sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define N_IDS 300

static void require(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK) fail_msg("%s: %s", reel_status_name(status), err->text);
}

/* One miniature, opened for `path`, with the float32 logits of its ids. */
struct scene {
    const char *id;
    struct golden golden;
    struct golden_model files;
    struct golden_logits stored;
    int32_t *ids;
    float *exact; /* [N_IDS, vocab] */
    struct reel_model *model;
    size_t vocab;
};

static struct scene scene_open(const char *id, const char *path) {
    struct scene s = { .id = id };
    struct reel_error err = { 0 };
    golden_open(&s.golden, id);
    golden_model_open(&s.files, id);
    golden_logits_read(&s.stored, &s.golden, "");
    s.ids = golden_int(&s.golden, "ids");
    s.exact = golden_exact_logits(&s.files, s.ids, N_IDS, 0);
    s.vocab = (size_t)s.files.config.vocab;
    struct reel_model_options options = {
        .size = sizeof options, .device = "cpu", .cpu_path = path, .n_threads = 2
    };
    require(reel_model_open(&s.model, s.files.folder, &options, &err), &err);
    return s;
}

static void scene_close(struct scene *s) {
    reel_model_close(s->model);
    free(s->exact);
    free(s->ids);
    golden_logits_release(&s->stored);
    golden_model_close(&s->files);
    golden_close(&s->golden);
}

static struct reel_session *open_session(const struct scene *s) {
    struct reel_session_options options = { .size = sizeof options, .max_context = N_IDS };
    struct reel_session *session = NULL;
    struct reel_error err = { 0 };
    require(reel_session_open(&session, s->model, &options, &err), &err);
    return session;
}

/* Evaluates the next n of the scene's ids in one call; logits [vocab] of the last. */
static void go_on(const struct scene *s, struct reel_session *session, int n, float *logits) {
    struct reel_error err = { 0 };
    struct reel_eval eval = { .size = sizeof eval,
                              .n = n,
                              .ids = s->ids + reel_session_length(session),
                              .output = REEL_OUTPUT_LAST_LOGITS,
                              .out = logits,
                              .out_floats = s->vocab };
    require(reel_session_eval(session, &eval, &err), &err);
}

static void one_by_one(const struct scene *s, struct reel_session *session, int n, float *logits) {
    for (int i = 0; i < n; i++)
        go_on(s, session, 1, logits);
}

static void cut_back(struct reel_session *session, int n) {
    struct reel_error err = { 0 };
    require(reel_session_truncate(session, n, &err), &err);
    assert_int_equal(reel_session_length(session), n);
}

static void judge(const struct scene *s, const struct reel_session *session, const float *logits,
                  const char *what) {
    int position = reel_session_length(session) - 1;
    struct golden_ratio r = golden_logits_ratio(
        &s->stored, position, logits, s->exact + (size_t)position * s->vocab, (int)s->vocab);
    if (!(r.rms <= GOLDEN_BOUND && r.max <= GOLDEN_BOUND))
        fail_msg("%s, %s: at %d the error is %.2f (rms) and %.2f (max) times that of the bf16 run",
                 s->id, what, position, r.rms, r.max);
}

static void expect_same(const struct scene *s, const float *a, const float *b) {
    assert_memory_equal(a, b, s->vocab * sizeof *a);
}

static float *new_logits(const struct scene *s) {
    float *p = calloc(s->vocab, sizeof *p);
    assert_non_null(p);
    return p;
}

/* ---- prompts and decoding -------------------------------------------------------------------- */

static void decoding_after_a_prompt_of_any_length_is_within_the_bound(void **state) {
    (void)state;
    static const char *const ids[] = { "q35-a", "q35-b" };
    for (int i = 0; i < 2; i++) {
        struct scene s = scene_open(ids[i], "auto");
        float *logits = new_logits(&s);
        struct reel_session *session = open_session(&s);
        for (int n = 1; n <= 200; n += sanitized_briefly() ? 7 : 1) {
            cut_back(session, 0);
            go_on(&s, session, n, logits);
            judge(&s, session, logits, "after a prompt");
            for (int step = 0; step < 3; step++) {
                go_on(&s, session, 1, logits);
                judge(&s, session, logits, "decoding after a prompt");
            }
        }
        cut_back(session, 0);
        for (int n = 0; n < 203; n++) {
            go_on(&s, session, 1, logits);
            judge(&s, session, logits, "decoding alone");
        }
        reel_session_close(session);
        free(logits);
        scene_close(&s);
    }
}

/* ---- sessions -------------------------------------------------------------------------------- */

static void a_copy_and_a_restored_snapshot_go_on_with_the_same_bits(void **state) {
    (void)state;
    static const char *const paths[] = { "auto", "portable", "reference" };
    for (int i = 0; i < 3; i++) {
        struct scene s = scene_open("q35-b", paths[i]);
        struct reel_error err = { 0 };
        float *straight = new_logits(&s), *other = new_logits(&s);
        struct reel_session *a = open_session(&s), *b = open_session(&s), *c = open_session(&s);
        go_on(&s, a, 70, straight);
        one_by_one(&s, a, 5, straight);
        go_on(&s, c, 9, other); /* what it held before must not matter */
        size_t n = reel_session_snapshot_bytes(a);
        void *bytes = malloc(n);
        assert_non_null(bytes);
        require(reel_session_snapshot(a, bytes, n, &err), &err);
        require(reel_session_copy(b, a, &err), &err);
        require(reel_session_restore(c, bytes, n, &err), &err);
        struct reel_session *const others[] = { b, c };
        one_by_one(&s, a, 3, straight);
        go_on(&s, a, 40, straight);
        for (int j = 0; j < 2; j++) {
            one_by_one(&s, others[j], 3, other);
            go_on(&s, others[j], 40, other);
            expect_same(&s, straight, other);
        }
        free(bytes);
        reel_session_close(a);
        reel_session_close(b);
        reel_session_close(c);
        free(straight);
        free(other);
        scene_close(&s);
    }
}

/* Before the last position of a prompt a state is kept: going back there costs one position, and
 * what came after it leaves no trace. */
static void going_back_into_a_prompt_gives_what_going_no_further_gives(void **state) {
    (void)state;
    static const char *const paths[] = { "auto", "reference" };
    for (int i = 0; i < 2; i++) {
        struct scene s = scene_open("q35-b", paths[i]);
        float *stayed = new_logits(&s), *returned = new_logits(&s);
        struct reel_session *a = open_session(&s), *b = open_session(&s);
        go_on(&s, a, 100, stayed);
        cut_back(a, 99);
        go_on(&s, a, 1, stayed);
        go_on(&s, b, 100, returned);
        one_by_one(&s, b, 20, returned);
        go_on(&s, b, 30, returned);
        cut_back(b, 99);
        go_on(&s, b, 1, returned);
        expect_same(&s, stayed, returned);
        judge(&s, b, returned, "going back");
        reel_session_close(a);
        reel_session_close(b);
        free(stayed);
        free(returned);
        scene_close(&s);
    }
}

/* Elsewhere what lies between is evaluated again: here everything, as in a new session. */
static void going_back_to_any_position_gives_what_a_new_session_gives(void **state) {
    (void)state;
    struct scene s = scene_open("q35-a", "auto");
    struct reel_error err = { 0 };
    float *made = new_logits(&s), *expected = new_logits(&s);
    struct reel_session *a = open_session(&s);
    for (int n = 2; n < 90; n += 7) {
        struct reel_session *b = open_session(&s);
        int reused = -1;
        go_on(&s, a, 91, made);
        require(reel_session_sync(a, s.ids, n, &reused, &err), &err);
        assert_int_equal(reel_session_length(a), n);
        assert_int_equal(reused, 0);
        go_on(&s, a, 5, made);
        require(reel_session_sync(b, s.ids, n, NULL, &err), &err);
        go_on(&s, b, 5, expected);
        expect_same(&s, made, expected);
        reel_session_close(b);
        cut_back(a, 0);
    }
    reel_session_close(a);
    free(made);
    free(expected);
    scene_close(&s);
}

static uint32_t draw(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void any_walk_back_and_forth_stays_within_the_bound(void **state) {
    (void)state;
    const int n_steps = soaking_in_full() ? 20000 : 400;
    struct scene s = scene_open("q35-a", "auto");
    struct reel_error err = { 0 };
    float *logits = new_logits(&s);
    struct reel_session *a = open_session(&s), *b = open_session(&s);
    uint32_t seed = 1;
    for (int step = 0; step < n_steps; step++) {
        int length = reel_session_length(a), room = N_IDS - length;
        uint32_t what = draw(&seed) % 8;
        if (what < 5 && room > 0) {
            int most = what < 3 ? 3 : 90;
            int n = 1 + (int)(draw(&seed) % (uint32_t)(room < most ? room : most));
            go_on(&s, a, n, logits);
            judge(&s, a, logits, "a walk");
        } else if (what < 7) {
            cut_back(a, (int)(draw(&seed) % (uint32_t)(length + 1)));
        } else {
            require(reel_session_copy(b, a, &err), &err);
            struct reel_session *swap = a;
            a = b;
            b = swap;
        }
    }
    reel_session_close(a);
    reel_session_close(b);
    free(logits);
    scene_close(&s);
}

static bool stop_later(void *user, const char *stage, uint64_t done, uint64_t total) {
    int *calls = user;
    (void)stage, (void)done, (void)total;
    return --*calls > 0;
}

static void a_prompt_broken_off_leaves_what_was_before_it(void **state) {
    (void)state;
    static const char *const paths[] = { "auto", "reference" };
    for (int i = 0; i < 2; i++) {
        struct scene s = scene_open("q35-a", paths[i]);
        struct reel_error err = { 0 };
        float *straight = new_logits(&s), *repeated = new_logits(&s);
        int calls = 100;
        struct reel_session_options options = { .size = sizeof options,
                                                .max_context = N_IDS,
                                                .progress = stop_later,
                                                .progress_user = &calls };
        struct reel_session *a = open_session(&s), *b = NULL;
        require(reel_session_open(&b, s.model, &options, &err), &err);
        go_on(&s, a, 30, straight);
        go_on(&s, a, 200, straight);
        go_on(&s, b, 30, repeated);
        calls = strcmp(paths[i], "reference") == 0 ? 3 : 1; /* it reports every 64 positions */
        struct reel_eval eval = { .size = sizeof eval, .n = 200, .ids = s.ids + 30 };
        assert_int_equal(reel_session_eval(b, &eval, &err), REEL_E_CANCELLED);
        assert_int_equal(reel_session_length(b), 30);
        calls = 100;
        go_on(&s, b, 200, repeated);
        expect_same(&s, straight, repeated);
        reel_session_close(a);
        reel_session_close(b);
        free(straight);
        free(repeated);
        scene_close(&s);
    }
}

static void embeddings_that_are_gone_are_missed_in_words(void **state) {
    (void)state;
    struct scene s = scene_open("q35-a", "auto");
    struct reel_error err = { 0 };
    size_t hidden = (size_t)s.files.config.hidden;
    float *rows = calloc(50 * hidden, sizeof *rows), *logits = new_logits(&s);
    assert_non_null(rows);
    for (int i = 0; i < 50; i++)
        matrix_row_f32(&s.files.weights.embedding, s.ids[i], rows + (size_t)i * hidden);
    struct reel_session *a = open_session(&s);
    struct reel_eval eval = { .size = sizeof eval, .n = 50, .embeddings = rows };
    require(reel_session_eval(a, &eval, &err), &err);
    go_on(&s, a, 20, logits);
    judge(&s, a, logits, "after embeddings");
    assert_int_equal(reel_session_truncate(a, 30, &err), REEL_E_STATE);
    assert_non_null(strstr(err.text, "given as an embedding"));
    assert_int_equal(reel_session_length(a), 70);
    cut_back(a, 50); /* where the ids began */
    go_on(&s, a, 20, logits);
    judge(&s, a, logits, "after embeddings, again");
    cut_back(a, 0);
    reel_session_close(a);
    free(rows);
    free(logits);
    scene_close(&s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(decoding_after_a_prompt_of_any_length_is_within_the_bound),
        cmocka_unit_test(a_copy_and_a_restored_snapshot_go_on_with_the_same_bits),
        cmocka_unit_test(going_back_into_a_prompt_gives_what_going_no_further_gives),
        cmocka_unit_test(going_back_to_any_position_gives_what_a_new_session_gives),
        cmocka_unit_test(any_walk_back_and_forth_stays_within_the_bound),
        cmocka_unit_test(a_prompt_broken_off_leaves_what_was_before_it),
        cmocka_unit_test(embeddings_that_are_gone_are_missed_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
