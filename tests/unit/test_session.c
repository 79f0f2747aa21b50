/* Sessions over a backend whose logits are a hash of everything before them: whatever way a session
 * came to hold some ids, it must go on as a fresh one would. */
#include "support/session_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- the timeline ---- */

static void sync_evaluates_only_what_is_new(void **state) {
    (void)state;
    struct fixture f;
    int reused = -1;
    int32_t other[] = { 5, 3, 60, 9, 9, 9 };
    fixture_start(&f, false);
    sync_to(&f, f.session, prompt, N_PROMPT);
    assert_int_equal(f.set.n_positions, N_PROMPT);
    assert_int_equal(reel_session_sync(f.session, prompt, N_PROMPT, &reused, &f.err), REEL_OK);
    assert_int_equal(reused, N_PROMPT);
    assert_int_equal(f.set.n_positions, N_PROMPT);
    assert_int_equal(reel_session_sync(f.session, other, 6, &reused, &f.err), REEL_OK);
    assert_int_equal(reused, 3);
    assert_int_equal(f.set.n_positions, N_PROMPT + 3);
    assert_holds(f.session, other, 6);
    assert_goes_on(&f, f.session, 5);
    sync_to(&f, f.session, prompt, 2);
    assert_holds(f.session, prompt, 2);
    assert_goes_on(&f, f.session, 5);
    sync_to(&f, f.session, NULL, 0);
    assert_int_equal(reel_session_length(f.session), 0);
    fixture_stop(&f);
}

static void a_session_may_be_synced_to_its_own_ids(void **state) {
    (void)state;
    struct fixture f;
    fixture_start(&f, false);
    sync_to(&f, f.session, prompt, N_PROMPT);
    assert_goes_on(&f, f.session, 3);
    sync_to(&f, f.session, reel_session_ids(f.session), N_PROMPT + 3);
    assert_goes_on(&f, f.session, 3);
    sync_to(&f, f.session, reel_session_ids(f.session) + 1, N_PROMPT - 1);
    assert_holds(f.session, prompt + 1, N_PROMPT - 1);
    assert_goes_on(&f, f.session, 3);
    fixture_stop(&f);
}

static void generated_ids_are_reused_by_the_next_sync(void **state) {
    (void)state;
    struct fixture f;
    int reused = 0;
    int32_t ids[40];
    fixture_start(&f, false);
    sync_to(&f, f.session, prompt, N_PROMPT);
    assert_goes_on(&f, f.session, 10);
    memcpy(ids, reel_session_ids(f.session), 18 * sizeof *ids);
    ids[18] = 11;
    assert_int_equal(reel_session_sync(f.session, ids, 19, &reused, &f.err), REEL_OK);
    assert_int_equal(reused, 17); /* the last generated id was never evaluated */
    assert_goes_on(&f, f.session, 4);
    fixture_stop(&f);
}

static void truncate_goes_on_from_there(void **state) {
    (void)state;
    struct fixture f;
    fixture_start(&f, false);
    sync_to(&f, f.session, prompt, N_PROMPT);
    for (int keep = N_PROMPT; keep > 0; keep--) {
        assert_int_equal(reel_session_truncate(f.session, keep, &f.err), REEL_OK);
        assert_holds(f.session, prompt, keep);
        assert_goes_on(&f, f.session, 3);
        assert_int_equal(reel_session_truncate(f.session, keep, &f.err), REEL_OK);
    }
    sync_to(&f, f.session, prompt, N_PROMPT); /* the logits on hand are of the eighth */
    assert_int_equal(reel_session_truncate(f.session, 6, &f.err), REEL_OK);
    assert_goes_on(&f, f.session, 3);
    assert_int_equal(reel_session_truncate(f.session, 1, &f.err), REEL_OK);
    assert_int_equal(reel_session_truncate(f.session, 9, &f.err), REEL_E_ARGUMENT);
    assert_int_equal(reel_session_truncate(f.session, -1, &f.err), REEL_E_ARGUMENT);
    assert_int_equal(reel_session_length(f.session), 1);
    fixture_stop(&f);
}

static void eval_appends_and_returns_logits(void **state) {
    (void)state;
    struct fixture f;
    float all[3 * FAKE_VOCAB], want[FAKE_VOCAB];
    fixture_start(&f, false);
    sync_to(&f, f.session, prompt, 5);
    struct reel_eval eval = { .size = sizeof eval,
                              .n = 3,
                              .ids = prompt + 5,
                              .output = REEL_OUTPUT_ALL_LOGITS,
                              .out = all,
                              .out_floats = 3 * FAKE_VOCAB };
    assert_int_equal(reel_session_eval(f.session, &eval, &f.err), REEL_OK);
    for (int i = 0; i < 3; i++) {
        fake_logits(prompt, 6 + i, want);
        assert_memory_equal(all + i * FAKE_VOCAB, want, sizeof want);
    }
    assert_holds(f.session, prompt, N_PROMPT);
    int before = f.set.n_evals;
    struct reel_generation one = wanted(1);
    generate(&f, f.session, &one); /* the logits were on hand */
    assert_int_equal(f.set.n_evals, before);
    eval.output = REEL_OUTPUT_NONE; /* after a generated id that is not evaluated yet */
    eval.n = 1;
    assert_int_equal(reel_session_eval(f.session, &eval, &f.err), REEL_OK);
    assert_goes_on(&f, f.session, 3);
    fixture_stop(&f);
}

static void embeddings_have_no_ids_and_no_second_life(void **state) {
    (void)state;
    struct fixture f;
    float vectors[2 * FAKE_HIDDEN] = { 1, 2, 3, 4, 5, 6, 7, 8 }, hidden[2 * FAKE_HIDDEN];
    int reused = 0;
    int32_t minus[] = { 5, -1 };
    fixture_start(&f, false);
    sync_to(&f, f.session, prompt, 1);
    struct reel_eval eval = {
        .size = sizeof eval, .n = 2, .embeddings = vectors, .output = REEL_OUTPUT_LAST_LOGITS
    };
    assert_int_equal(reel_session_eval(f.session, &eval, &f.err), REEL_OK);
    assert_int_equal(reel_session_ids(f.session)[1], -1);
    assert_int_equal(reel_session_length(f.session), 3);
    struct reel_generation one = wanted(1);
    int before = f.set.n_evals;
    assert_int_equal(generate(&f, f.session, &one).n_tokens, 1); /* the logits were kept */
    assert_int_equal(f.set.n_evals, before);
    eval.output = REEL_OUTPUT_ALL_HIDDEN;
    eval.out = hidden;
    eval.out_floats = 2 * FAKE_HIDDEN;
    assert_int_equal(reel_session_eval(f.session, &eval, &f.err), REEL_OK);
    assert_int_equal(reel_generate(f.session, &one, NULL, &f.err), REEL_E_STATE);
    eval.out_floats--;
    assert_int_equal(reel_session_eval(f.session, &eval, &f.err), REEL_E_ARGUMENT);
    assert_int_equal(reel_session_sync(f.session, minus, 2, NULL, &f.err), REEL_E_ARGUMENT);
    assert_int_equal(reel_session_sync(f.session, prompt, 3, &reused, &f.err), REEL_OK);
    assert_int_equal(reused, 1); /* an embedding equals no id */
    assert_goes_on(&f, f.session, 3);
    fixture_stop(&f);
}

static void no_output_makes_no_logits(void **state) {
    (void)state;
    struct fixture f;
    float vectors[2 * FAKE_HIDDEN] = { 1, 2, 3, 4, 5, 6, 7, 8 };
    const struct reel_eval evals[] = { { .size = sizeof *evals, .n = 3, .ids = prompt },
                                       { .size = sizeof *evals, .n = 1, .ids = prompt },
                                       { .size = sizeof *evals, .n = 2, .embeddings = vectors } };
    struct reel_generation one = wanted(1);
    fixture_start(&f, false);
    for (int i = 0; i < 3; i++) {
        f.set.asked = REEL_OUTPUT_ALL_HIDDEN;
        assert_int_equal(reel_session_eval(f.session, &evals[i], &f.err), REEL_OK);
        assert_int_equal(f.set.asked, REEL_OUTPUT_NONE);
    }
    assert_int_equal(reel_generate(f.session, &one, NULL, &f.err), REEL_E_STATE);
    assert_non_null(strstr(f.err.text, "position 5 was given as an embedding"));
    assert_int_equal(reel_session_truncate(f.session, 4, &f.err), REEL_OK);
    assert_goes_on(&f, f.session, 3); /* from an id they are made again */
    fixture_stop(&f);
}

static void bad_arguments_change_nothing(void **state) {
    (void)state;
    struct fixture f;
    int32_t bad[] = { 5, 3, FAKE_VOCAB }, *many = calloc(601, sizeof *many);
    float out[FAKE_VOCAB];
    fixture_start(&f, false);
    sync_to(&f, f.session, prompt, N_PROMPT);
    assert_int_equal(reel_session_sync(f.session, bad, 3, NULL, &f.err), REEL_E_ARGUMENT);
    assert_int_equal(reel_session_sync(f.session, prompt, -1, NULL, &f.err), REEL_E_ARGUMENT);
    assert_int_equal(reel_session_sync(f.session, NULL, 2, NULL, &f.err), REEL_E_ARGUMENT);
    assert_int_equal(reel_session_sync(f.session, many, 601, NULL, &f.err), REEL_E_CONTEXT);
    const struct reel_eval evals[] = {
        { .size = 0, .n = 1, .ids = prompt },
        { .size = sizeof evals[0], .n = 0, .ids = prompt },
        { .size = sizeof evals[0], .n = 1 },
        { .size = sizeof evals[0], .n = 1, .ids = prompt, .embeddings = out },
        { .size = sizeof evals[0], .n = 3, .ids = bad },
        { .size = sizeof evals[0], .n = 1, .ids = bad, .output = (enum reel_output)9 },
        { .size = sizeof evals[0], .n = 1, .ids = bad, .output = REEL_OUTPUT_ALL_LOGITS },
        { .size = sizeof evals[0],
          .n = 1,
          .ids = bad,
          .output = REEL_OUTPUT_LAST_LOGITS,
          .out_floats = FAKE_VOCAB },
        { .size = sizeof evals[0], .n = INT32_MAX, .ids = bad },
    };
    for (size_t i = 0; i < sizeof evals / sizeof *evals; i++) {
        f.err.text[0] = '\0';
        assert_int_not_equal(reel_session_eval(f.session, &evals[i], &f.err), REEL_OK);
        assert_true(strlen(f.err.text) > 10);
    }
    struct reel_generation sets[7];
    const char *no_text[] = { "" };
    for (int i = 0; i < 7; i++)
        sets[i] = wanted(1);
    sets[0].max_tokens = -1;
    sets[1].n_stop_ids = 2;
    sets[2].n_top_logprobs = 21;
    sets[3].n_stop_strings = 1;
    sets[4].n_stop_strings = 1, sets[4].stop_strings = no_text;
    sets[5].n_stop_ids = 3, sets[5].stop_ids = bad;
    sets[6].size = 3;
    for (int i = 0; i < 7; i++)
        assert_int_equal(reel_generate(f.session, &sets[i], NULL, &f.err), REEL_E_ARGUMENT);
    const struct reel_session_options options = { .size = sizeof options,
                                                  .max_context = FAKE_CONTEXT + 1 };
    struct reel_session *none = f.session;
    assert_int_equal(reel_session_open(&none, f.model, &options, &f.err), REEL_E_ARGUMENT);
    assert_null(none);
    assert_holds(f.session, prompt, N_PROMPT);
    assert_goes_on(&f, f.session, 3);
    assert_true(error_empty(&f.err)); /* success leaves nothing of the last failure */
    free(many);
    fixture_stop(&f);
}

static void a_failing_sync_leaves_a_prefix(void **state) {
    (void)state;
    struct fixture f;
    int32_t ids[700];
    fixture_start(&f, false);
    struct reel_session *s = open_session(&f, 2000);
    for (int i = 0; i < 600; i++)
        ids[i] = i % 60;
    for (int first = 0; first <= 40; first += 20)
        for (int nth = 1; nth <= 2; nth++) { /* 512 positions a call */
            sync_to(&f, s, NULL, 0);
            sync_to(&f, s, ids, first); /* with logits on hand */
            f.set.fail_eval = nth;
            assert_int_equal(reel_session_sync(s, ids, 600, NULL, &f.err), REEL_E_DEVICE);
            f.set.fail_eval = 0;
            assert_holds(s, ids, nth == 1 ? first : first + 512);
            if (reel_session_length(s) > 0) assert_goes_on(&f, s, 2);
            sync_to(&f, s, ids, 600);
            assert_goes_on(&f, s, 2);
        }
    reel_session_close(s);
    fixture_stop(&f);
}

static void a_failing_eval_changes_nothing(void **state) {
    (void)state;
    struct fixture f;
    float vectors[FAKE_HIDDEN] = { 1, 2, 3, 4 };
    fixture_start(&f, false);
    for (int generated = 0; generated < 2; generated++)
        for (int embedded = 0; embedded < 2; embedded++) {
            sync_to(&f, f.session, NULL, 0);
            sync_to(&f, f.session, prompt, N_PROMPT);
            if (generated) assert_goes_on(&f, f.session, 1);
            struct reel_eval eval = { .size = sizeof eval, .n = 1 };
            eval.ids = embedded ? NULL : prompt;
            eval.embeddings = embedded ? vectors : NULL;
            f.set.fail_eval = 1 + generated;
            assert_int_equal(reel_session_eval(f.session, &eval, &f.err), REEL_E_DEVICE);
            assert_int_equal(reel_session_length(f.session), N_PROMPT + generated);
            assert_goes_on(&f, f.session, 3);
        }
    fixture_stop(&f);
}

static void a_failing_generation_keeps_what_was_delivered(void **state) {
    (void)state;
    for (int decodes = 0; decodes < 2; decodes++) {
        struct fixture f;
        int32_t ids[40];
        fixture_start(&f, decodes);
        sync_to(&f, f.session, prompt, N_PROMPT);
        f.set.fail_eval = 4;
        struct reel_generation g = wanted(20);
        struct reel_generation_result result = { .size = sizeof result };
        assert_int_equal(reel_generate(f.session, &g, &result, &f.err), REEL_E_DEVICE);
        const int made = decodes ? 3 : 4; /* one from the logits on hand, where the runtime draws */
        assert_int_equal(result.n_tokens, made);
        memcpy(ids, prompt, sizeof prompt);
        expect_greedy(ids, N_PROMPT, made);
        assert_holds(f.session, ids, N_PROMPT + made);
        assert_goes_on(&f, f.session, 3);
        fixture_stop(&f);
    }
}

static void logits_without_a_number_are_an_error(void **state) {
    (void)state;
    struct fixture f;
    fixture_start(&f, false);
    f.set.nan_logits = true;
    sync_to(&f, f.session, prompt, N_PROMPT);
    struct reel_generation g = wanted(2);
    assert_int_equal(reel_generate(f.session, &g, NULL, &f.err), REEL_E_DEVICE);
    assert_holds(f.session, prompt, N_PROMPT);
    fixture_stop(&f);
}

struct progress {
    uint64_t done, total;
    int calls, last_call; /* the call that says stop; 0: none */
};

static bool watch(void *user, const char *stage, uint64_t done, uint64_t total) {
    struct progress *p = user;
    assert_string_equal(stage, "evaluating");
    p->done = done;
    p->total = total;
    return ++p->calls != p->last_call;
}

static void progress_counts_the_whole_call_and_may_end_it(void **state) {
    (void)state;
    struct fixture f;
    int32_t ids[1300];
    struct progress seen = { 0 };
    const struct reel_session_options options = {
        .size = sizeof options, .max_context = 2000, .progress = watch, .progress_user = &seen
    };
    struct reel_session *s = NULL;
    fixture_start(&f, false);
    assert_int_equal(reel_session_open(&s, f.model, &options, &f.err), REEL_OK);
    for (int i = 0; i < 1300; i++)
        ids[i] = i % 60;
    sync_to(&f, s, ids, 1300);
    assert_int_equal(seen.calls, 3); /* 512 positions each */
    assert_int_equal(seen.done, 1024);
    assert_int_equal(seen.total, 1300);
    assert_goes_on(&f, s, 3);
    assert_int_equal(seen.calls, 3); /* tokens are their own progress */
    sync_to(&f, s, ids, 100);
    seen = (struct progress){ .last_call = 2 };
    assert_int_equal(reel_session_sync(s, ids, 1300, NULL, &f.err), REEL_E_CANCELLED);
    assert_int_equal(seen.total, 1200);
    assert_holds(s, ids, 612);
    assert_goes_on(&f, s, 3);
    reel_session_close(s);
    fixture_stop(&f);
}

struct meddler {
    struct reel_session *session;
    int n_calls, n_allowed;
};

static bool meddle(void *user, const char *stage, uint64_t done, uint64_t total) {
    struct meddler *m = user;
    struct reel_eval eval = { .size = sizeof eval, .n = 1, .ids = prompt };
    (void)stage, (void)done, (void)total;
    m->n_calls++;
    m->n_allowed += reel_session_eval(m->session, &eval, NULL) != REEL_E_STATE;
    m->n_allowed += reel_session_sync(m->session, prompt, 1, NULL, NULL) != REEL_E_STATE;
    m->n_allowed += reel_session_truncate(m->session, 0, NULL) != REEL_E_STATE;
    m->n_allowed += reel_generate(m->session, NULL, NULL, NULL) != REEL_E_STATE;
    return true;
}

static void a_progress_callback_cannot_change_the_session(void **state) {
    (void)state;
    struct fixture f;
    struct meddler m = { 0 };
    const struct reel_session_options options = {
        .size = sizeof options, .max_context = 100, .progress = meddle, .progress_user = &m
    };
    fixture_start(&f, false);
    assert_int_equal(reel_session_open(&m.session, f.model, &options, &f.err), REEL_OK);
    sync_to(&f, m.session, prompt, N_PROMPT);
    assert_true(m.n_calls > 0);
    assert_int_equal(m.n_allowed, 0);
    assert_holds(m.session, prompt, N_PROMPT);
    assert_goes_on(&f, m.session, 3);
    reel_session_close(m.session);
    fixture_stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sync_evaluates_only_what_is_new),
        cmocka_unit_test(a_session_may_be_synced_to_its_own_ids),
        cmocka_unit_test(generated_ids_are_reused_by_the_next_sync),
        cmocka_unit_test(truncate_goes_on_from_there),
        cmocka_unit_test(eval_appends_and_returns_logits),
        cmocka_unit_test(embeddings_have_no_ids_and_no_second_life),
        cmocka_unit_test(no_output_makes_no_logits),
        cmocka_unit_test(bad_arguments_change_nothing),
        cmocka_unit_test(a_failing_sync_leaves_a_prefix),
        cmocka_unit_test(a_failing_eval_changes_nothing),
        cmocka_unit_test(a_failing_generation_keeps_what_was_delivered),
        cmocka_unit_test(logits_without_a_number_are_an_error),
        cmocka_unit_test(progress_counts_the_whole_call_and_may_end_it),
        cmocka_unit_test(a_progress_callback_cannot_change_the_session),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
