/* Sessions over a backend whose logits are a hash of everything before them: whatever way a session
 * came to hold some ids, it must go on as a fresh one would. */
#include "runtime/snapshot.h"
#include "support/fake_backend.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

struct fixture {
    struct fake_settings set;
    struct reel_model *model;
    struct reel_session *session;
    struct reel_error err;
};

static struct reel_session *open_session(struct fixture *f, int max_context) {
    const struct reel_session_options options = { .size = sizeof options,
                                                  .max_context = max_context };
    struct reel_session *s = NULL;
    assert_int_equal(reel_session_open(&s, f->model, &options, &f->err), REEL_OK);
    return s;
}

static void start(struct fixture *f, bool decodes) {
    *f = (struct fixture){ .set = { .decodes = decodes } };
    f->model = fake_model_open(&f->set, &f->err);
    if (!f->model) fail_msg("%s", f->err.text);
    f->session = open_session(f, 600);
}

static void stop(struct fixture *f) {
    reel_session_close(f->session);
    fake_model_close(f->model);
}

static bool error_empty(const struct reel_error *err) {
    return err->status == REEL_OK && err->text[0] == '\0';
}

static void sync_to(struct fixture *f, struct reel_session *s, const int32_t *ids, int n) {
    if (reel_session_sync(s, ids, n, NULL, &f->err) != REEL_OK) fail_msg("%s", f->err.text);
}

static void assert_holds(const struct reel_session *s, const int32_t *ids, int n) {
    assert_int_equal(reel_session_length(s), n);
    if (n > 0) assert_memory_equal(reel_session_ids(s), ids, (size_t)n * sizeof *ids);
}

static int32_t greedy(const int32_t *ids, int n) {
    float logits[FAKE_VOCAB];
    int32_t best = 0;
    fake_logits(ids, n, logits);
    for (int i = 1; i < FAKE_VOCAB; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* What a fresh session would generate greedily, into ids from n on. */
static void expect_greedy(int32_t *ids, int n, int n_new) {
    for (int i = 0; i < n_new; i++)
        ids[n + i] = greedy(ids, n + i);
}

static struct reel_generation wanted(int max_tokens) {
    return (struct reel_generation){ .size = sizeof(struct reel_generation),
                                     .max_tokens = max_tokens,
                                     .ignore_stop_ids = true };
}

static struct reel_generation_result generate(struct fixture *f, struct reel_session *s,
                                              const struct reel_generation *g) {
    struct reel_generation_result result = { .size = sizeof result };
    if (reel_generate(s, g, &result, &f->err) != REEL_OK) fail_msg("%s", f->err.text);
    return result;
}

/* Generates n ids and checks them and the session against a fresh timeline. */
static void assert_goes_on(struct fixture *f, struct reel_session *s, int n_new) {
    int n = reel_session_length(s);
    int32_t ids[1400];
    memcpy(ids, reel_session_ids(s), (size_t)n * sizeof *ids);
    expect_greedy(ids, n, n_new);
    struct reel_generation g = wanted(n_new);
    assert_int_equal(generate(f, s, &g).n_tokens, n_new);
    assert_holds(s, ids, n + n_new);
}

static const int32_t prompt[] = { 5, 3, 60, 7, 7, 2, 41, 0 };
enum { N_PROMPT = 8 };

/* ---- the timeline ---- */

static void sync_evaluates_only_what_is_new(void **state) {
    (void)state;
    struct fixture f;
    int reused = -1;
    int32_t other[] = { 5, 3, 60, 9, 9, 9 };
    start(&f, false);
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
    stop(&f);
}

static void a_session_may_be_synced_to_its_own_ids(void **state) {
    (void)state;
    struct fixture f;
    start(&f, false);
    sync_to(&f, f.session, prompt, N_PROMPT);
    assert_goes_on(&f, f.session, 3);
    sync_to(&f, f.session, reel_session_ids(f.session), N_PROMPT + 3);
    assert_goes_on(&f, f.session, 3);
    sync_to(&f, f.session, reel_session_ids(f.session) + 1, N_PROMPT - 1);
    assert_holds(f.session, prompt + 1, N_PROMPT - 1);
    assert_goes_on(&f, f.session, 3);
    stop(&f);
}

static void generated_ids_are_reused_by_the_next_sync(void **state) {
    (void)state;
    struct fixture f;
    int reused = 0;
    int32_t ids[40];
    start(&f, false);
    sync_to(&f, f.session, prompt, N_PROMPT);
    assert_goes_on(&f, f.session, 10);
    memcpy(ids, reel_session_ids(f.session), 18 * sizeof *ids);
    ids[18] = 11;
    assert_int_equal(reel_session_sync(f.session, ids, 19, &reused, &f.err), REEL_OK);
    assert_int_equal(reused, 17); /* the last generated id was never evaluated */
    assert_goes_on(&f, f.session, 4);
    stop(&f);
}

static void truncate_goes_on_from_there(void **state) {
    (void)state;
    struct fixture f;
    start(&f, false);
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
    stop(&f);
}

static void eval_appends_and_returns_logits(void **state) {
    (void)state;
    struct fixture f;
    float all[3 * FAKE_VOCAB], want[FAKE_VOCAB];
    start(&f, false);
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
    stop(&f);
}

static void embeddings_have_no_ids_and_no_second_life(void **state) {
    (void)state;
    struct fixture f;
    float vectors[2 * FAKE_HIDDEN] = { 1, 2, 3, 4, 5, 6, 7, 8 }, hidden[2 * FAKE_HIDDEN];
    int reused = 0;
    int32_t minus[] = { 5, -1 };
    start(&f, false);
    sync_to(&f, f.session, prompt, 1);
    struct reel_eval eval = { .size = sizeof eval, .n = 2, .embeddings = vectors };
    assert_int_equal(reel_session_eval(f.session, &eval, &f.err), REEL_OK);
    assert_int_equal(reel_session_ids(f.session)[1], -1);
    assert_int_equal(reel_session_length(f.session), 3);
    struct reel_generation one = wanted(1);
    assert_int_equal(generate(&f, f.session, &one).n_tokens, 1);
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
    stop(&f);
}

static void bad_arguments_change_nothing(void **state) {
    (void)state;
    struct fixture f;
    int32_t bad[] = { 5, 3, FAKE_VOCAB }, *many = calloc(601, sizeof *many);
    float out[FAKE_VOCAB];
    start(&f, false);
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
        { .size = sizeof evals[0], .n = 1, .ids = bad, .output = REEL_OUTPUT_LAST_LOGITS },
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
    stop(&f);
}

static void a_failing_sync_leaves_a_prefix(void **state) {
    (void)state;
    struct fixture f;
    int32_t ids[700];
    start(&f, false);
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
    stop(&f);
}

static void a_failing_eval_changes_nothing(void **state) {
    (void)state;
    struct fixture f;
    float vectors[FAKE_HIDDEN] = { 1, 2, 3, 4 };
    start(&f, false);
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
    stop(&f);
}

static void a_failing_generation_keeps_what_was_delivered(void **state) {
    (void)state;
    for (int decodes = 0; decodes < 2; decodes++) {
        struct fixture f;
        int32_t ids[40];
        start(&f, decodes);
        sync_to(&f, f.session, prompt, N_PROMPT);
        f.set.fail_eval = 4;
        struct reel_generation g = wanted(20);
        struct reel_generation_result result = { .size = sizeof result };
        assert_int_equal(reel_generate(f.session, &g, &result, &f.err), REEL_E_DEVICE);
        assert_int_equal(result.n_tokens, 4); /* one from the logits on hand */
        memcpy(ids, prompt, sizeof prompt);
        expect_greedy(ids, N_PROMPT, 4);
        assert_holds(f.session, ids, N_PROMPT + 4);
        assert_goes_on(&f, f.session, 3);
        stop(&f);
    }
}

static void logits_without_a_number_are_an_error(void **state) {
    (void)state;
    struct fixture f;
    start(&f, false);
    f.set.nan_logits = true;
    sync_to(&f, f.session, prompt, N_PROMPT);
    struct reel_generation g = wanted(2);
    assert_int_equal(reel_generate(f.session, &g, NULL, &f.err), REEL_E_DEVICE);
    assert_holds(f.session, prompt, N_PROMPT);
    stop(&f);
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
    start(&f, false);
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
    stop(&f);
}

/* ---- copies and snapshots ---- */

static void a_copy_goes_on_like_its_source(void **state) {
    (void)state;
    struct fixture f, other;
    start(&f, false);
    start(&other, false);
    struct reel_session *copy = open_session(&f, 20), *small = open_session(&f, 4);
    sync_to(&f, copy, prompt + 2, 3);
    assert_int_equal(reel_session_copy(copy, f.session, &f.err), REEL_OK); /* an empty one */
    assert_int_equal(reel_session_length(copy), 0);
    sync_to(&f, f.session, prompt, N_PROMPT);
    for (int i = 0; i < 3; i++) { /* logits on hand; an id not evaluated; truncated */
        assert_int_equal(reel_session_copy(copy, f.session, &f.err), REEL_OK);
        assert_holds(copy, reel_session_ids(f.session), reel_session_length(f.session));
        assert_goes_on(&f, copy, 4);
        if (i == 0) assert_goes_on(&f, f.session, 2);
        if (i == 1) assert_int_equal(reel_session_truncate(f.session, 5, &f.err), REEL_OK);
    }
    assert_int_equal(reel_session_copy(f.session, f.session, &f.err), REEL_OK);
    assert_int_equal(reel_session_length(f.session), 5);
    assert_int_equal(reel_session_copy(small, f.session, &f.err), REEL_E_CONTEXT);
    assert_int_equal(reel_session_copy(other.session, f.session, &f.err), REEL_E_ARGUMENT);
    reel_session_close(copy);
    reel_session_close(small);
    stop(&other);
    stop(&f);
}

static void a_snapshot_goes_on_like_its_source(void **state) {
    (void)state;
    struct fixture f;
    start(&f, false);
    struct reel_session *other = open_session(&f, 20);
    sync_to(&f, f.session, prompt, N_PROMPT);
    for (int i = 0; i < 4; i++) {
        size_t n = reel_session_snapshot_bytes(f.session);
        char *bytes = malloc(n);
        assert_int_equal(reel_session_snapshot(f.session, bytes, n - 1, &f.err), REEL_E_LIMIT);
        assert_int_equal(reel_session_snapshot(f.session, bytes, n, &f.err), REEL_OK);
        assert_int_equal(reel_session_restore(other, bytes, n, &f.err), REEL_OK);
        assert_holds(other, reel_session_ids(f.session), reel_session_length(f.session));
        if (i < 3) assert_goes_on(&f, other, 4);
        free(bytes);
        if (i == 0) assert_goes_on(&f, f.session, 2);
        if (i == 1) assert_int_equal(reel_session_truncate(f.session, 5, &f.err), REEL_OK);
        if (i == 2) sync_to(&f, f.session, NULL, 0);
    }
    reel_session_close(other);
    stop(&f);
}

static void a_damaged_snapshot_is_refused_and_leaves_an_empty_session(void **state) {
    (void)state;
    struct fixture f;
    start(&f, false);
    struct reel_session *other = open_session(&f, 20), *small = open_session(&f, 7);
    sync_to(&f, f.session, prompt, N_PROMPT);
    size_t n = reel_session_snapshot_bytes(f.session);
    unsigned char *bytes = malloc(n + 1);
    bytes[n] = 0;
    assert_int_equal(reel_session_snapshot(f.session, bytes, n, &f.err), REEL_OK);
    for (size_t i = 0; i < n; i++) { /* every byte matters */
        bytes[i] ^= (unsigned char)(1 << i % 8);
        assert_int_not_equal(reel_session_restore(other, bytes, n, &f.err), REEL_OK);
        assert_true(strlen(f.err.text) > 10);
        assert_int_equal(reel_session_length(other), 0);
        bytes[i] ^= (unsigned char)(1 << i % 8);
    }
    for (size_t i = 0; i < n; i++)
        assert_int_equal(reel_session_restore(other, bytes, i, &f.err), REEL_E_FORMAT);
    assert_int_equal(reel_session_restore(other, bytes, n + 1, &f.err), REEL_E_FORMAT);
    assert_int_equal(reel_session_restore(other, NULL, 0, &f.err), REEL_E_FORMAT);
    assert_int_equal(reel_session_restore(small, bytes, n, &f.err), REEL_E_CONTEXT);
    f.model->identity[5] ^= 1; /* another model */
    assert_int_equal(reel_session_restore(other, bytes, n, &f.err), REEL_E_MISMATCH);
    f.model->identity[5] ^= 1;
    assert_int_equal(reel_session_restore(other, bytes, n, &f.err), REEL_OK);
    assert_goes_on(&f, other, 3);
    free(bytes);
    reel_session_close(other);
    reel_session_close(small);
    stop(&f);
}

/* With the check sum made right again, every number still has to make sense. */
static void a_forged_snapshot_is_refused(void **state) {
    (void)state;
    enum { VOCAB_AT = 112, LENGTH = 132, EVALUATED = 136, LOGITS = 140, STATE = 144, IDS = 160 };
    static const struct {
        size_t at;
        int32_t value;
    } forged[] = { { VOCAB_AT, 71 },    { LENGTH, -1 },    { LENGTH, 7 },    { LENGTH, 9 },
                   { LENGTH, 1 << 30 }, { EVALUATED, -1 }, { EVALUATED, 9 }, { EVALUATED, 7 },
                   { LOGITS, 0 },       { LOGITS, 69 },    { LOGITS, -1 },   { STATE, 56 },
                   { STATE + 4, -1 },   { IDS, -2 },       { IDS + 28, 70 }, { IDS + 4, 1 << 30 } };
    struct fixture f;
    unsigned char bytes[2000];
    int32_t old;
    start(&f, false);
    sync_to(&f, f.session, prompt, N_PROMPT);
    size_t n = reel_session_snapshot_bytes(f.session);
    assert_int_equal(reel_session_snapshot(f.session, bytes, n, &f.err), REEL_OK);
    for (size_t i = 0; i < sizeof forged / sizeof *forged; i++) {
        memcpy(&old, bytes + forged[i].at, sizeof old);
        memcpy(bytes + forged[i].at, &forged[i].value, sizeof old);
        snapshot_seal(bytes, n);
        if (reel_session_restore(f.session, bytes, n, &f.err) == REEL_OK)
            fail_msg("%d at %zu was taken", (int)forged[i].value, forged[i].at);
        assert_int_equal(reel_session_length(f.session), 0);
        memcpy(bytes + forged[i].at, &old, sizeof old);
    }
    snapshot_seal(bytes, n);
    assert_int_equal(reel_session_restore(f.session, bytes, n, &f.err), REEL_OK);
    assert_goes_on(&f, f.session, 3);
    stop(&f);
}

/* ---- generation ---- */

struct heard {
    char text[4000];
    size_t n_text;
    int32_t ids[700];
    int n_ids;
    int stop_after; /* 0: never */
    struct reel_session *cancel;
};

static bool hear(void *user, const struct reel_token *token) {
    struct heard *h = user;
    memcpy(h->text + h->n_text, token->text, token->text_bytes);
    h->n_text += token->text_bytes;
    h->text[h->n_text] = '\0';
    h->ids[h->n_ids++] = token->id;
    if (h->cancel) reel_session_cancel(h->cancel);
    return h->n_ids != h->stop_after;
}

static void listen(struct reel_generation *g, struct heard *h) {
    memset(h, 0, sizeof *h);
    g->on_token = hear;
    g->user = h;
}

static void pushed_and_pulled_give_the_same(void **state) {
    (void)state;
    for (int way = 0; way < 3; way++) { /* own loop, the backend's, the backend refuses */
        struct fixture f;
        start(&f, way > 0);
        f.set.refuses_decode = way == 2;
        struct reel_sampling sampling = { .size = sizeof sampling,
                                          .temperature = 0.8f,
                                          .top_k = 20,
                                          .top_p = 0.9f,
                                          .presence_penalty = 0.5f,
                                          .repetition_penalty = 1.3f,
                                          .seed = 9 };
        struct reel_generation g = wanted(100);
        struct heard h;
        g.sampling = &sampling;
        listen(&g, &h);
        sync_to(&f, f.session, prompt, N_PROMPT);
        struct reel_generation_result result = generate(&f, f.session, &g);
        assert_int_equal(result.reason, REEL_STOP_MAX_TOKENS);
        assert_int_equal(result.n_tokens, 100);
        assert_int_equal(h.n_ids, 100);
        assert_holds(f.session, reel_session_ids(f.session), N_PROMPT + 100);
        assert_memory_equal(reel_session_ids(f.session) + N_PROMPT, h.ids, 100 * sizeof *h.ids);

        struct reel_session *pulled = open_session(&f, 300);
        sync_to(&f, pulled, prompt, N_PROMPT);
        assert_int_equal(reel_generation_start(pulled, &g, &f.err), REEL_OK);
        const struct reel_token *token;
        for (int i = 0; i <= 100; i++) {
            assert_int_equal(reel_generation_next(pulled, &token, &f.err), REEL_OK);
            assert_true(i < 100 ? token && token->id == h.ids[i] : !token);
            assert_int_equal(reel_session_length(pulled), N_PROMPT + (i < 100 ? i + 1 : 100));
        }
        reel_generation_finish(pulled, &result);
        assert_int_equal(result.reason, REEL_STOP_MAX_TOKENS);
        assert_true(error_empty(&f.err));
        reel_session_close(pulled);
        stop(&f);
    }
}

static void what_was_computed_ahead_is_dropped(void **state) {
    (void)state;
    for (int taken = 0; taken < 12; taken++) {
        struct fixture f;
        const struct reel_token *token;
        start(&f, true);
        sync_to(&f, f.session, prompt, N_PROMPT);
        struct reel_generation g = wanted(0);
        assert_int_equal(reel_generation_start(f.session, &g, &f.err), REEL_OK);
        for (int i = 0; i < taken; i++)
            assert_int_equal(reel_generation_next(f.session, &token, &f.err), REEL_OK);
        reel_generation_finish(f.session, NULL);
        assert_int_equal(reel_session_length(f.session), N_PROMPT + taken);
        assert_goes_on(&f, f.session, 5);
        stop(&f);
    }
}

static void other_calls_are_refused_while_a_generation_is_open(void **state) {
    (void)state;
    struct fixture f;
    const struct reel_token *token;
    char bytes[4000];
    start(&f, false);
    struct reel_session *other = open_session(&f, 50);
    sync_to(&f, f.session, prompt, N_PROMPT);
    struct reel_generation g = wanted(3);
    struct reel_eval eval = { .size = sizeof eval, .n = 1, .ids = prompt };
    assert_int_equal(reel_generation_next(f.session, &token, &f.err), REEL_E_STATE);
    assert_int_equal(reel_generation_start(f.session, &g, &f.err), REEL_OK);
    assert_int_equal(reel_generation_start(f.session, &g, &f.err), REEL_E_STATE);
    assert_int_equal(reel_generate(f.session, &g, NULL, &f.err), REEL_E_STATE);
    assert_int_equal(reel_session_sync(f.session, prompt, 3, NULL, &f.err), REEL_E_STATE);
    assert_int_equal(reel_session_eval(f.session, &eval, &f.err), REEL_E_STATE);
    assert_int_equal(reel_session_truncate(f.session, 1, &f.err), REEL_E_STATE);
    assert_int_equal(reel_session_copy(other, f.session, &f.err), REEL_E_STATE);
    assert_int_equal(reel_session_copy(f.session, other, &f.err), REEL_E_STATE);
    assert_int_equal(reel_session_snapshot(f.session, bytes, 4000, &f.err), REEL_E_STATE);
    assert_int_equal(reel_session_restore(f.session, bytes, 4000, &f.err), REEL_E_STATE);
    assert_holds(f.session, prompt, N_PROMPT);
    reel_generation_finish(f.session, NULL);
    reel_generation_finish(f.session, NULL);
    assert_int_equal(reel_generate(other, &g, NULL, &f.err), REEL_E_STATE); /* empty */
    reel_session_close(other);
    stop(&f);
}

static void script(struct fixture *f, const int32_t *ids, int n) {
    static int32_t all[700];
    memcpy(all, prompt, sizeof prompt);
    memcpy(all + N_PROMPT, ids, (size_t)n * sizeof *ids);
    f->set.script = all;
    f->set.n_script = N_PROMPT + n;
    sync_to(f, f->session, NULL, 0);
    sync_to(f, f->session, prompt, N_PROMPT);
}

static void a_stop_id_is_delivered_without_text(void **state) {
    (void)state;
    for (int decodes = 0; decodes < 2; decodes++) {
        struct fixture f;
        struct heard h;
        const int32_t ids[] = { 7, 8, FAKE_END, 9, 9 }, stops[] = { 8 };
        start(&f, decodes);
        script(&f, ids, 5);
        struct reel_generation g = wanted(5);
        listen(&g, &h);
        g.ignore_stop_ids = false;
        assert_int_equal(generate(&f, f.session, &g).reason, REEL_STOP_ID);
        assert_int_equal(h.n_ids, 3);
        assert_string_equal(h.text, "hi");
        assert_int_equal(reel_session_length(f.session), N_PROMPT + 3);
        script(&f, ids, 5);
        listen(&g, &h);
        g.stop_ids = stops;
        g.n_stop_ids = 1;
        assert_int_equal(generate(&f, f.session, &g).reason, REEL_STOP_ID);
        assert_string_equal(h.text, "h");
        script(&f, ids, 5);
        listen(&g, &h);
        g.ignore_stop_ids = true;
        assert_int_equal(generate(&f, f.session, &g).reason, REEL_STOP_MAX_TOKENS);
        assert_string_equal(h.text, "hijj"); /* the control token between has no text */
        stop(&f);
    }
}

static void stop_strings_match_across_tokens(void **state) {
    (void)state;
    const struct {
        int32_t ids[6];
        const char *strings[2], *text;
        int n_ids, match;
    } cases[] = {
        { { 7, FAKE_AB, FAKE_CDE, 5, 5, 5 }, { "bcd", "zz" }, "ha", 3, 0 },
        { { 7, FAKE_AB, FAKE_CDE, 5, 5, 5 }, { "xx", "abcdeff" }, "h", 5, 1 },
        { { FAKE_AB, FAKE_AB, 2, 5, 5, 5 }, { "ababd", "abc" }, "ab", 3, 1 },
        { { 7, FAKE_E_FIRST, FAKE_E_LAST, 5, 5, 5 }, { "\xc3\xa9", "zz" }, "h", 3, 0 },
        { { 7, 0, 0, 0, 1, 5 }, { "aab", "zz" }, "ha", 5, 0 },
        { { 7, 0, 1, 0, 1, 0 }, { "abc", "zz" }, "hababa", 6, -1 }, /* held back to the end */
        { { 7, FAKE_E_FIRST, 0, FAKE_THINK, FAKE_HOLE, FAKE_E_FIRST },
          { "k>x", "zz" },
          "h\xef\xbf\xbd"
          "a<think>\xef\xbf\xbd",
          6,
          -1 },
    };
    for (int decodes = 0; decodes < 2; decodes++) {
        struct fixture f;
        struct heard h;
        start(&f, decodes);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct reel_generation g = wanted(6);
            listen(&g, &h);
            g.stop_strings = cases[i].strings;
            g.n_stop_strings = 2;
            script(&f, cases[i].ids, 6);
            struct reel_generation_result result = generate(&f, f.session, &g);
            assert_string_equal(h.text, cases[i].text);
            assert_int_equal(h.n_ids, cases[i].n_ids);
            assert_int_equal(result.stop_string, cases[i].match);
            assert_int_equal(result.reason,
                             cases[i].match < 0 ? REEL_STOP_MAX_TOKENS : REEL_STOP_STRING);
            assert_int_equal(reel_session_length(f.session), N_PROMPT + cases[i].n_ids);
        }
        stop(&f);
    }
}

static void a_full_context_is_a_reason(void **state) {
    (void)state;
    for (int decodes = 0; decodes < 2; decodes++) {
        struct fixture f;
        start(&f, decodes);
        struct reel_session *s = open_session(&f, 11);
        sync_to(&f, s, prompt, N_PROMPT);
        struct reel_generation g = wanted(0);
        struct reel_generation_result result = generate(&f, s, &g);
        assert_int_equal(result.reason, REEL_STOP_CONTEXT);
        assert_int_equal(result.n_tokens, 3);
        result = generate(&f, s, &g);
        assert_int_equal(result.reason, REEL_STOP_CONTEXT);
        assert_int_equal(result.n_tokens, 0);
        struct reel_eval eval = { .size = sizeof eval, .n = 1, .ids = prompt };
        assert_int_equal(reel_session_eval(s, &eval, &f.err), REEL_E_CONTEXT);
        reel_session_close(s);
        stop(&f);
    }
}

static void a_listener_may_stop_it(void **state) {
    (void)state;
    for (int decodes = 0; decodes < 2; decodes++) {
        struct fixture f;
        struct heard h;
        start(&f, decodes);
        sync_to(&f, f.session, prompt, N_PROMPT);
        struct reel_generation g = wanted(0);
        listen(&g, &h);
        h.stop_after = 5;
        assert_int_equal(generate(&f, f.session, &g).reason, REEL_STOP_CALLBACK);
        assert_int_equal(reel_session_length(f.session), N_PROMPT + 5);
        assert_goes_on(&f, f.session, 3);
        stop(&f);
    }
}

static void logprobs_are_of_the_unmodified_distribution(void **state) {
    (void)state;
    for (int decodes = 0; decodes < 2; decodes++) {
        struct fixture f;
        const struct reel_token *token;
        float logits[FAKE_VOCAB];
        start(&f, decodes);
        struct reel_sampling sampling = { .size = sizeof sampling, .temperature = 2, .top_k = 3 };
        struct reel_generation g = wanted(20);
        g.sampling = &sampling;
        g.n_top_logprobs = 4;
        sync_to(&f, f.session, prompt, N_PROMPT);
        assert_int_equal(reel_generation_start(f.session, &g, &f.err), REEL_OK);
        for (int i = 0; i < 20; i++) {
            fake_logits(reel_session_ids(f.session), N_PROMPT + i, logits);
            assert_int_equal(reel_generation_next(f.session, &token, &f.err), REEL_OK);
            double sum = 0;
            for (int j = 0; j < FAKE_VOCAB; j++)
                sum += exp((double)logits[j]);
            double want = (double)logits[token->id] - log(sum);
            assert_true(fabs((double)token->logprob - want) < 1e-5);
            assert_int_equal(token->n_top, 4);
            assert_int_equal(token->top[0].id, greedy(reel_session_ids(f.session), N_PROMPT + i));
            for (int j = 1; j < 4; j++)
                assert_true(token->top[j].logprob <= token->top[0].logprob);
        }
        reel_generation_finish(f.session, NULL);
        stop(&f);
    }
}

static void two_sessions_interleaved_equal_two_apart(void **state) {
    (void)state;
    for (int decodes = 0; decodes < 2; decodes++) {
        struct fixture f;
        const struct reel_token *token;
        struct reel_session *two[2];
        int32_t want[2][60];
        start(&f, decodes);
        for (int i = 0; i < 2; i++) {
            memcpy(want[i], prompt + i, 6 * sizeof *prompt);
            expect_greedy(want[i], 6, 50);
            two[i] = open_session(&f, 100);
            sync_to(&f, two[i], prompt + i, 6);
            struct reel_generation g = wanted(50);
            assert_int_equal(reel_generation_start(two[i], &g, &f.err), REEL_OK);
        }
        for (int i = 0; i < 100; i++)
            assert_int_equal(reel_generation_next(two[i % 2], &token, &f.err), REEL_OK);
        for (int i = 0; i < 2; i++) {
            reel_generation_finish(two[i], NULL);
            assert_holds(two[i], want[i], 56);
            reel_session_close(two[i]);
        }
        stop(&f);
    }
}

/* ---- threads ---- */

static void pause_ms(int ms) {
    const struct timespec t = { ms / 1000, ms % 1000 * 1000000L };
    nanosleep(&t, NULL);
}

static void *cancel_soon(void *session) {
    pause_ms(20);
    reel_session_cancel(session);
    return NULL;
}

static void another_thread_cancels_what_runs(void **state) {
    (void)state;
    for (int decodes = 0; decodes < 2; decodes++) {
        struct fixture f;
        pthread_t thread;
        start(&f, decodes);
        f.set.eval_ms = 5000;
        pthread_create(&thread, NULL, cancel_soon, f.session);
        assert_int_equal(reel_session_sync(f.session, prompt, N_PROMPT, NULL, &f.err),
                         REEL_E_CANCELLED);
        pthread_join(thread, NULL);
        assert_int_equal(reel_session_length(f.session), 0);
        f.set.eval_ms = 0;
        sync_to(&f, f.session, prompt, N_PROMPT);

        f.set.eval_ms = 4; /* several tokens, then the request */
        pthread_create(&thread, NULL, cancel_soon, f.session);
        struct reel_generation g = wanted(0);
        struct reel_generation_result result = generate(&f, f.session, &g);
        pthread_join(thread, NULL);
        assert_int_equal(result.reason, REEL_STOP_CANCELLED);
        assert_in_range(result.n_tokens, 1, 100);
        assert_int_equal(reel_session_length(f.session), N_PROMPT + result.n_tokens);

        f.set.eval_ms = 5000;
        struct reel_eval eval = { .size = sizeof eval, .n = 1, .ids = prompt };
        pthread_create(&thread, NULL, cancel_soon, f.session);
        assert_int_equal(reel_session_eval(f.session, &eval, &f.err), REEL_E_CANCELLED);
        pthread_join(thread, NULL);
        f.set.eval_ms = 0;
        assert_int_equal(reel_session_length(f.session), N_PROMPT + result.n_tokens);
        assert_goes_on(&f, f.session, 3);
        stop(&f);
    }
}

static void a_request_to_cancel_never_outlives_its_call(void **state) {
    (void)state;
    struct fixture f;
    struct heard h;
    const struct reel_token *token;
    start(&f, false);
    reel_session_cancel(f.session);
    sync_to(&f, f.session, prompt, N_PROMPT);
    reel_session_cancel(f.session);
    assert_goes_on(&f, f.session, 3);
    struct reel_generation g = wanted(0);
    listen(&g, &h);
    h.cancel = f.session; /* from inside the listener */
    assert_int_equal(generate(&f, f.session, &g).reason, REEL_STOP_CANCELLED);
    assert_int_equal(h.n_ids, 1);
    g.on_token = NULL;
    assert_int_equal(reel_generation_start(f.session, &g, &f.err), REEL_OK);
    assert_int_equal(reel_generation_next(f.session, &token, &f.err), REEL_OK);
    reel_session_cancel(f.session); /* between two pulls */
    assert_int_equal(reel_generation_next(f.session, &token, &f.err), REEL_OK);
    assert_null(token);
    struct reel_generation_result result = { .size = sizeof result };
    reel_generation_finish(f.session, &result);
    assert_int_equal(result.reason, REEL_STOP_CANCELLED);
    reel_session_cancel(f.session);
    assert_goes_on(&f, f.session, 3);
    stop(&f);
}

struct worker {
    struct reel_session *session;
    int32_t want[120];
    int first;
    bool ok;
};

static void *work(void *user) {
    struct worker *w = user;
    struct reel_generation g = wanted(100);
    w->ok = true;
    for (int round = 0; round < 10; round++) {
        w->ok &= reel_session_sync(w->session, NULL, 0, NULL, NULL) == REEL_OK;
        w->ok &= reel_session_sync(w->session, prompt + w->first, 4, NULL, NULL) == REEL_OK;
        w->ok &= reel_generate(w->session, &g, NULL, NULL) == REEL_OK;
        w->ok &= memcmp(reel_session_ids(w->session), w->want, 104 * sizeof *w->want) == 0;
    }
    return NULL;
}

static void sessions_of_one_model_run_in_many_threads(void **state) {
    (void)state;
    struct fixture f;
    struct worker workers[4];
    pthread_t threads[4];
    start(&f, false);
    for (int i = 0; i < 4; i++) {
        workers[i] = (struct worker){ .session = open_session(&f, 200), .first = i };
        memcpy(workers[i].want, prompt + i, 4 * sizeof *prompt);
        expect_greedy(workers[i].want, 4, 100);
        pthread_create(&threads[i], NULL, work, &workers[i]);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
        assert_true(workers[i].ok);
        reel_session_close(workers[i].session);
    }
    stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sync_evaluates_only_what_is_new),
        cmocka_unit_test(a_session_may_be_synced_to_its_own_ids),
        cmocka_unit_test(generated_ids_are_reused_by_the_next_sync),
        cmocka_unit_test(truncate_goes_on_from_there),
        cmocka_unit_test(eval_appends_and_returns_logits),
        cmocka_unit_test(embeddings_have_no_ids_and_no_second_life),
        cmocka_unit_test(bad_arguments_change_nothing),
        cmocka_unit_test(a_failing_sync_leaves_a_prefix),
        cmocka_unit_test(a_failing_eval_changes_nothing),
        cmocka_unit_test(a_failing_generation_keeps_what_was_delivered),
        cmocka_unit_test(logits_without_a_number_are_an_error),
        cmocka_unit_test(progress_counts_the_whole_call_and_may_end_it),
        cmocka_unit_test(a_copy_goes_on_like_its_source),
        cmocka_unit_test(a_snapshot_goes_on_like_its_source),
        cmocka_unit_test(a_damaged_snapshot_is_refused_and_leaves_an_empty_session),
        cmocka_unit_test(a_forged_snapshot_is_refused),
        cmocka_unit_test(pushed_and_pulled_give_the_same),
        cmocka_unit_test(what_was_computed_ahead_is_dropped),
        cmocka_unit_test(other_calls_are_refused_while_a_generation_is_open),
        cmocka_unit_test(a_stop_id_is_delivered_without_text),
        cmocka_unit_test(stop_strings_match_across_tokens),
        cmocka_unit_test(a_full_context_is_a_reason),
        cmocka_unit_test(a_listener_may_stop_it),
        cmocka_unit_test(logprobs_are_of_the_unmodified_distribution),
        cmocka_unit_test(two_sessions_interleaved_equal_two_apart),
        cmocka_unit_test(another_thread_cancels_what_runs),
        cmocka_unit_test(a_request_to_cancel_never_outlives_its_call),
        cmocka_unit_test(sessions_of_one_model_run_in_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
