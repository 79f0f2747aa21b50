/* Drafts change how soon ids come, and nothing else: ids, texts, log-probabilities and what ends a
 * generation are those without, on the demo model and on the one with recurrent layers. REEL_SOAK=1
 * compares 4,000 ids of each kind. */
#include "runtime/guesses.h"
#include "runtime/model_handle.h"
#include "support/golden.h"
#include "support/sanitized.h"
#include "support/shares.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { MOST = 4100 };

static const char verse[] =
    "Emma Woodhouse, handsome, clever, and rich, with a comfortable home. Emma Woodhouse, "
    "handsome, "
    "clever, and rich, with a comfortable home. Emma Woodhouse, handsome, clever, and";

/* What a generation said. */
struct tale {
    int32_t ids[MOST];
    float logprobs[MOST];
    int n;
    char text[8 * MOST];
    size_t n_text;
    struct reel_generation_result result;
    int refuse_at, cancel_at; /* 0: never */
    struct reel_session *session;
};

static const char *folder = "models/demo";
static struct reel_model *model;
static bool has_layer; /* a draft layer */

static int open_model(void **state) {
    const struct reel_model_options options = { .size = sizeof options, .device = "cpu" };
    struct reel_model_info info = { .size = sizeof info };
    struct reel_error err = { 0 };
    (void)state;
    golden_require(reel_model_open(&model, folder, &options, &err), &err);
    golden_require(reel_model_get_info(model, &info, &err), &err);
    has_layer = info.draft_layers > 0;
    return 0;
}

static int close_model(void **state) {
    (void)state;
    reel_model_close(model);
    return 0;
}

static struct reel_session *open_session_for(enum reel_speculation kind, int context,
                                             const char *prompt) {
    const struct reel_session_options options = { .size = sizeof options,
                                                  .max_context = context,
                                                  .speculation = kind };
    struct reel_session *session = NULL;
    struct reel_error err = { 0 };
    int32_t ids[400];
    size_t n = 0;
    golden_require(reel_session_open(&session, model, &options, &err), &err);
    golden_require(
        reel_encode(reel_model_tokenizer(model), prompt, strlen(prompt), 0, ids, 400, &n, &err),
        &err);
    golden_require(reel_session_sync(session, ids, (int)n, NULL, &err), &err);
    return session;
}

static struct reel_session *open_session(int context, const char *prompt) {
    return open_session_for(REEL_SPECULATION_AUTO, context, prompt);
}

static bool hear(struct tale *t, const struct reel_token *token) {
    assert_true(t->n < MOST && t->n_text + token->text_bytes < sizeof t->text);
    t->logprobs[t->n] = token->logprob;
    t->ids[t->n++] = token->id;
    memcpy(t->text + t->n_text, token->text, token->text_bytes);
    t->n_text += token->text_bytes;
    if (t->n == t->cancel_at) reel_session_cancel(t->session);
    return t->n != t->refuse_at;
}

static bool on_token(void *user, const struct reel_token *token) { return hear(user, token); }

static void pull(struct reel_session *s, struct reel_generation *g, struct tale *t) {
    struct reel_error err = { 0 };
    const struct reel_token *token = NULL;
    golden_require(reel_generation_start(s, g, &err), &err);
    do {
        golden_require(reel_generation_next(s, &token, &err), &err);
    } while (token && hear(t, token));
    golden_require(reel_generation_finish(s, &t->result, &err), &err);
}

/* One generation with `g`, told into a tale of its own. */
static struct tale *tell(const struct reel_generation *given, enum reel_speculation speculation,
                         bool pulled, int context, const struct tale *ends) {
    struct reel_error err = { 0 };
    struct tale *t = calloc(1, sizeof *t);
    assert_non_null(t);
    struct reel_generation g = *given;
    /* a draft layer follows from the first token on, or from the first generation on */
    const enum reel_speculation opened =
        speculation != REEL_SPECULATION_MTP || pulled ? speculation : REEL_SPECULATION_OFF;
    struct reel_session *s = t->session = open_session_for(opened, context, verse);
    const int n_prompt = reel_session_length(s);
    t->refuse_at = ends ? ends->refuse_at : 0;
    t->cancel_at = ends ? ends->cancel_at : 0;
    t->result.size = sizeof t->result;
    g.size = sizeof g;
    g.speculation = speculation;
    g.on_token = on_token;
    g.user = t;
    if (pulled)
        pull(s, &g, t);
    else
        golden_require(reel_generate(s, &g, &t->result, &err), &err);
    assert_int_equal(t->n, t->result.n_tokens);
    assert_int_equal(t->result.n_passes + t->result.n_accepted, t->n);
    assert_true(t->result.n_accepted <= t->result.n_drafted);
    assert_int_equal(reel_session_length(s), n_prompt + t->n);
    assert_memory_equal(reel_session_ids(s) + n_prompt, t->ids, (size_t)t->n * sizeof *t->ids);
    /* what the session holds goes on as it would have */
    const struct reel_generation more = { .size = sizeof more,
                                          .max_tokens = 5,
                                          .ignore_stop_ids = true,
                                          .speculation = REEL_SPECULATION_OFF };
    golden_require(reel_generate(s, &more, NULL, &err), &err);
    const int n_more = reel_session_length(s) - n_prompt - t->n;
    memcpy(t->ids + t->n, reel_session_ids(s) + n_prompt + t->n, (size_t)n_more * sizeof *t->ids);
    reel_session_close(s);
    return t;
}

static void assert_same(const struct tale *got, const struct tale *want) {
    assert_int_equal(got->n, want->n);
    assert_memory_equal(got->ids, want->ids, (size_t)(want->n + 5) * sizeof *want->ids);
    assert_memory_equal(got->logprobs, want->logprobs, (size_t)want->n * sizeof *want->logprobs);
    assert_int_equal(got->n_text, want->n_text);
    assert_memory_equal(got->text, want->text, want->n_text);
    assert_int_equal(got->result.reason, want->result.reason);
    assert_int_equal(got->result.stop_string, want->result.stop_string);
}

/* Each kind of drafts, pushed and pulled, beside none. Returns how many drafts were right. */
static int compare(const struct reel_generation *g, int context, const struct tale *ends) {
    struct tale *plain = tell(g, REEL_SPECULATION_OFF, false, context, ends);
    static const enum reel_speculation kinds[] = { REEL_SPECULATION_AUTO, REEL_SPECULATION_NGRAM,
                                                   REEL_SPECULATION_MTP };
    const int n_kinds = has_layer ? 3 : 2;
    int n_right = 0;
    assert_int_equal(plain->result.n_drafted, 0);
    for (int i = 0; i < 2 * n_kinds; i++) {
        const bool pulled = i >= n_kinds;
        struct tale *t = tell(g, kinds[i % n_kinds], pulled, context, ends);
        if (pulled && ends && ends->refuse_at) /* who pulls does not say why it stops */
            t->result.reason = plain->result.reason;
        assert_same(t, plain);
        n_right += t->result.n_accepted;
        free(t);
    }
    free(plain);
    return n_right;
}

static const struct reel_sampling drawn = {
    .size = sizeof drawn, .temperature = 0.8f, .top_k = 50, .top_p = 0.9f, .seed = 5
};
static const struct reel_sampling penalised = { .size = sizeof penalised,
                                                .temperature = 0.6f,
                                                .repetition_penalty = 1.1f,
                                                .presence_penalty = 0.2f,
                                                .seed = 6 };

static int ids_of(int full) { return soaking_in_full() ? full : SANITIZED ? 24 : 120; }

static void ids_are_those_without_drafts(void **state) {
    (void)state;
    const struct reel_generation greedy = { .max_tokens = ids_of(4000), .ignore_stop_ids = true };
    assert_true(compare(&greedy, 0, NULL) > (SANITIZED ? 3 : 20));
    const struct reel_generation sampled = { .max_tokens = ids_of(2000),
                                             .ignore_stop_ids = true,
                                             .sampling = &drawn };
    assert_true(compare(&sampled, 0, NULL) > 0);
    const struct reel_generation seen = { .max_tokens = ids_of(500),
                                          .ignore_stop_ids = true,
                                          .sampling = &penalised };
    compare(&seen, 0, NULL);
}

static void log_probabilities_are_those_without_drafts(void **state) {
    (void)state;
    const struct reel_generation g = { .max_tokens = 40, .n_top_logprobs = 3, .sampling = &drawn };
    compare(&g, 0, NULL);
    const struct reel_generation greedy = { .max_tokens = 40, .logprobs = true };
    assert_true(compare(&greedy, 0, NULL) > 0);
}

/* At each of these places a plain generation ends as well; with drafts in the middle of a pass. */
static void generations_end_where_they_would_without_drafts(void **state) {
    (void)state;
    for (int n = 1; n <= (SANITIZED ? 3 : 12); n++) {
        const struct reel_generation limited = { .max_tokens = n };
        compare(&limited, 0, NULL);
        const struct reel_generation g = { .max_tokens = 60, .ignore_stop_ids = true };
        compare(&g, 0, &(struct tale){ .refuse_at = n });
        compare(&g, 0, &(struct tale){ .cancel_at = n });
    }
    const char *const stops[] = { "and rich" };
    const struct reel_generation stopped = { .max_tokens = 100,
                                             .stop_strings = stops,
                                             .n_stop_strings = 1 };
    compare(&stopped, 0, NULL);
    struct reel_session *s = open_session(0, verse);
    const int n_prompt = reel_session_length(s);
    reel_session_close(s);
    for (int room = 1; room <= (SANITIZED ? 2 : 9); room++) {
        const struct reel_generation endless = { .ignore_stop_ids = true };
        compare(&endless, n_prompt + room + 5, NULL);
    }
    const struct reel_generation stop_id = { .max_tokens = 100,
                                             .stop_ids = (const int32_t[]){ 13, 14, 15 },
                                             .n_stop_ids = 3 };
    compare(&stop_id, 0, NULL);
}

static void no_more_drafts_than_wanted(void **state) {
    (void)state;
    const struct reel_generation g = { .max_tokens = 60, .ignore_stop_ids = true };
    struct reel_generation few = g;
    struct tale *most = tell(&g, REEL_SPECULATION_NGRAM, false, 0, NULL);
    few.most_drafts = 1;
    struct tale *one = tell(&few, REEL_SPECULATION_NGRAM, false, 0, NULL);
    assert_same(one, most);
    assert_true(one->result.n_drafted > 0 && one->result.n_drafted <= one->result.n_passes);
    assert_true(most->result.n_drafted > one->result.n_drafted);
    assert_true(most->result.n_passes < one->result.n_passes);
    free(most);
    free(one);
}

/* On text that it has learned. What it sees of the prompt does not matter for what is said, and
 * makes it better. */
static void a_draft_layer_guesses(void **state) {
    (void)state;
    struct reel_generation g = { .max_tokens = ids_of(400), .ignore_stop_ids = true };
    if (!has_layer) skip();
    struct tale *plain = tell(&g, REEL_SPECULATION_OFF, false, 0, NULL);
    struct tale *late = tell(&g, REEL_SPECULATION_MTP, false, 0, NULL);
    struct tale *early = tell(&g, REEL_SPECULATION_MTP, true, 0, NULL);
    assert_same(late, plain);
    assert_same(early, plain);
    print_message("%s: %d and %d drafts, %d and %d right\n", folder, late->result.n_drafted,
                  early->result.n_drafted, late->result.n_accepted, early->result.n_accepted);
    assert_true(early->result.n_drafted > early->result.n_passes); /* more than one a pass */
    assert_true(early->result.n_drafted <= 3 * early->result.n_passes);
    assert_true(early->result.n_accepted > early->n / 8 && late->result.n_accepted > early->n / 8);
    g.most_drafts = 1;
    struct tale *one = tell(&g, REEL_SPECULATION_MTP, true, 0, NULL);
    assert_same(one, plain);
    assert_true(one->result.n_drafted <= one->result.n_passes);
    free(plain);
    free(late);
    free(early);
    free(one);
}

/* It follows a session that is cut back, made equal to another text, copied and restored. */
static void a_draft_layer_follows_a_session_about(void **state) {
    (void)state;
    if (!has_layer) skip();
    struct reel_error err = { 0 };
    const struct reel_generation g = { .size = sizeof g,
                                       .max_tokens = 24,
                                       .ignore_stop_ids = true,
                                       .speculation = REEL_SPECULATION_MTP };
    struct reel_generation plain = g;
    plain.speculation = REEL_SPECULATION_OFF;
    struct reel_session *with = open_session_for(REEL_SPECULATION_MTP, 400, verse);
    struct reel_session *without = open_session(400, verse);
    struct reel_session *other = open_session_for(REEL_SPECULATION_MTP, 400, "It is a truth");
    for (int i = 0; i < 6; i++) {
        golden_require(reel_generate(with, &g, NULL, &err), &err);
        golden_require(reel_generate(without, &plain, NULL, &err), &err);
        const int n = reel_session_length(with);
        assert_int_equal(n, reel_session_length(without));
        assert_memory_equal(reel_session_ids(with), reel_session_ids(without),
                            (size_t)n * sizeof(int32_t));
        struct reel_session *both[] = { with, without };
        for (int k = 0; k < 2; k++) {
            if (i % 3 == 0) golden_require(reel_session_truncate(both[k], n - 7, &err), &err);
            if (i % 3 == 1) /* another text behind the first half */
                golden_require(
                    reel_session_sync(both[k], (const int32_t[]){ 11, 12, 13, 14 }, 4, NULL, &err),
                    &err);
        }
        if (i % 3 != 2) continue;
        golden_require(reel_session_copy(other, with, &err), &err);
        struct reel_session *swap = with;
        with = other;
        other = swap;
    }
    reel_session_close(with);
    reel_session_close(without);
    reel_session_close(other);
}

/* auto asks it where its guesses make ids come faster, as measured: not where they take long, were
 * wrong, or cost passes that it has not earned; and not in a session that it does not follow. */
static void auto_asks_a_draft_layer_where_it_pays(void **state) {
    (void)state;
    if (!has_layer) skip();
    struct reel_error err = { 0 };
    const struct reel_generation g = { .size = sizeof g,
                                       .max_tokens = 40,
                                       .ignore_stop_ids = true,
                                       .speculation = REEL_SPECULATION_AUTO };
    for (int follows = 0; follows < 2; follows++) {
        struct pass_costs costs = { .ms = { 0, 100, 105, 110, 115 }, .spent_ms = 1e6 };
        const struct pass_room room = { 3, &costs, 1, 1, false, NULL };
        struct reel_session *s = open_session_for(
            follows ? REEL_SPECULATION_AUTO : REEL_SPECULATION_OFF, 400, "It is a truth");
        struct guess guess;
        const struct reel_token *token = NULL;
        golden_require(reel_generation_start(s, &g, &err), &err);
        golden_require(reel_generation_next(s, &token, &err), &err); /* of the prompt's logits */
        assert_int_equal(guesses_before_turn(s, &guess, &room), follows ? 3 : 0);
        assert_int_equal(guess.n, 0); /* it computes in the model's turn */
        guesses_for_pass(s, &guess, &room);
        assert_int_equal(guess.n, follows ? 3 : 0);
        if (follows) {
            struct drafter *d = &s->generation.drafter;
            assert_int_equal(guess.source, GUESS_BY_LAYER);
            assert_true(s->generation.layer_ms > 0 && costs.lead_ms < 0);
            s->generation.layer_ms = 1e3;
            assert_int_equal(guesses_before_turn(s, &guess, &room), 0);
            s->generation.layer_ms = 1e-3;
            assert_true(guesses_before_turn(s, &guess, &room) > 0);
            costs.lead_ms = -2e4;
            assert_int_equal(guesses_before_turn(s, &guess, &room), 0);
            costs.lead_ms = 0;
            const struct guess wrong = { .n = 1, .source = GUESS_BY_LAYER, .ids = { 1 } };
            for (int i = 0; i < 100; i++) {
                drafter_takes(d, &wrong, 1);
                drafter_saw(d, 2 + i); /* another one each time: its own ids tell nothing */
            }
            assert_int_equal(guesses_before_turn(s, &guess, &room), 0);
            int passes = 0;
            while (guesses_before_turn(s, &guess, &room) == 0)
                assert_true(++passes < 2000); /* it may have become better */
            assert_true(passes > 20);
        }
        golden_require(reel_generation_finish(s, NULL, &err), &err);
        reel_session_close(s);
    }
}

/* Where a backend decodes by itself the layer is asked between two launches: auto weighs it by what
 * guesses took, which is no part of what a pass took, and asks no more where it has failed. */
static void auto_asks_a_layer_between_launches_where_it_pays(void **state) {
    (void)state;
    if (!has_layer) skip();
    struct reel_error err = { 0 };
    const struct reel_generation set = { .size = sizeof set,
                                         .max_tokens = 40,
                                         .ignore_stop_ids = true,
                                         .speculation = REEL_SPECULATION_AUTO };
    for (int follows = 0; follows < 2; follows++) {
        struct reel_session *s = open_session_for(
            follows ? REEL_SPECULATION_AUTO : REEL_SPECULATION_OFF, 400, "It is a truth");
        struct generation *g = &s->generation;
        struct backend_expected expected = { 0 };
        const struct reel_token *token = NULL;
        const struct backend_taken round = {
            .columns = 4, .n_passes = 1, .n_ids = 1, .n_drafted = 3, .ms = 160
        };
        golden_require(reel_generation_start(s, &set, &err), &err);
        golden_require(reel_generation_next(s, &token, &err), &err);
        g->costs = (struct pass_costs){ .ms = { 0, 100, 105, 110, 115, 400, 400, 400, 400 },
                                        .spent_ms = 1e6 };
        guesses_expect(s, &expected, 0);
        assert_int_equal(expected.asks && expected.of_layer, follows);
        if (follows) {
            assert_int_equal(expected.worth, 3);
            const int drafts = model->backend_info.drafts;
            model->backend_info.drafts = 2; /* as many as a pass takes */
            guesses_expect(s, &expected, 0);
            model->backend_info.drafts = drafts;
            assert_int_equal(expected.worth, 2);
            guesses_of_layer(s, (const int32_t[]){ 1, 2, 3 }, 3, 30);
            assert_true(fabs(g->layer_ms - 10) < 1e-9 && fabs(g->costs.lead_ms + 30) < 1e-9);
            guesses_saw_passes(s, &round);
            assert_true(g->costs.ms[4] > 116 && g->costs.ms[4] < 117); /* it follows 130, not 160 */
            g->layer_ms = 1e3;
            expected = (struct backend_expected){ 0 };
            guesses_expect(s, &expected, 0);
            assert_false(expected.asks || expected.of_layer);
            g->layer_ms = 10;
            guesses_expect(s, &expected, 0);
            assert_true(expected.asks);
            guesses_of_layer(s, NULL, 0, 0);
            expected = (struct backend_expected){ 0 };
            guesses_expect(s, &expected, 0);
            assert_false(expected.asks);
            g->set.speculation = REEL_SPECULATION_MTP;
            guesses_expect(s, &expected, 0);
            assert_false(expected.asks);
        }
        golden_require(reel_generation_finish(s, NULL, &err), &err);
        reel_session_close(s);
    }
}

/* ---- beside others ---- */

static struct backend_ops ops, probed;
static atomic_bool guessing, evaluated_meanwhile;
static atomic_int n_guesses;

/* Some guesses take longer than a turn. */
static int slow_guess(struct backend_state *state, int position, int32_t id, int32_t *ids, int most,
                      float *logits) {
    atomic_store(&guessing, true);
    if (atomic_fetch_add(&n_guesses, 1) % 8 == 0)
        nanosleep(&(struct timespec){ .tv_nsec = (long)(2 * TURN_MS * 1e6) }, NULL);
    const int n = ops.guess(state, position, id, ids, most, logits);
    atomic_store(&guessing, false);
    return n;
}

static enum reel_status watched_eval(struct backend_state *state, const struct backend_eval *eval,
                                     struct reel_error *err) {
    if (atomic_load(&guessing)) atomic_store(&evaluated_meanwhile, true);
    return ops.eval(state, eval, err);
}

static void *speak(void *user) {
    struct reel_error err = { 0 };
    const struct reel_generation g = { .size = sizeof g,
                                       .max_tokens = 60,
                                       .ignore_stop_ids = true,
                                       .speculation = REEL_SPECULATION_MTP };
    golden_require(reel_generate(user, &g, NULL, &err), &err);
    return NULL;
}

/* The layer computes where the model does, so nobody else may while it guesses. */
static void nobody_computes_while_a_draft_layer_guesses(void **state) {
    (void)state;
    if (!has_layer) skip();
    enum { N = 2, PROMPTS = 40 };
    struct reel_session *s[N], *reader = open_session(400, "It");
    pthread_t thread[N];
    struct reel_error err = { 0 };
    const int32_t ids[] = { 11, 12, 13, 14, 15, 16, 17, 18 };
    for (int i = 0; i < N; i++)
        s[i] = open_session_for(REEL_SPECULATION_MTP, 400, verse);
    const struct backend_ops *before = model->ops;
    ops = probed = *before;
    probed.guess = slow_guess, probed.eval = watched_eval;
    model->ops = &probed;
    for (int i = 0; i < N; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, speak, s[i]), 0);
    for (int i = 0; i < PROMPTS; i++) {
        golden_require(reel_session_truncate(reader, 0, &err), &err);
        golden_require(reel_session_sync(reader, ids, 8, NULL, &err), &err);
    }
    for (int i = 0; i < N; i++)
        pthread_join(thread[i], NULL);
    model->ops = before;
    assert_true(atomic_load(&n_guesses) > PROMPTS);
    assert_false(atomic_load(&evaluated_meanwhile));
    for (int i = 0; i < N; i++)
        reel_session_close(s[i]);
    reel_session_close(reader);
}

static void what_is_not_allowed_is_said(void **state) {
    (void)state;
    struct reel_error err = { 0 };
    struct reel_session *s = open_session(0, verse);
    struct reel_generation g = { .size = sizeof g, .speculation = (enum reel_speculation)6 };
    assert_int_equal(reel_generate(s, &g, NULL, &err), REEL_E_ARGUMENT);
    assert_string_equal(err.text, "speculation is 6; allowed are 0 to 5");
    g.speculation = REEL_SPECULATION_AUTO;
    g.most_drafts = 8;
    assert_int_equal(reel_generate(s, &g, NULL, &err), REEL_E_ARGUMENT);
    assert_string_equal(err.text, "most_drafts is 8; allowed are 1 to 7, or 0 for all");
    g.most_drafts = 0;
    g.speculation = REEL_SPECULATION_MTP;
    const struct reel_session_options asks = { .size = sizeof asks,
                                               .speculation = REEL_SPECULATION_MTP };
    struct reel_session *none = NULL;
    if (!has_layer) {
        assert_int_equal(reel_generate(s, &g, NULL, &err), REEL_E_UNSUPPORTED);
        assert_non_null(strstr(err.text, "has no draft layer"));
        assert_int_equal(reel_session_open(&none, model, &asks, &err), REEL_E_UNSUPPORTED);
        assert_null(none);
    }
    reel_session_close(s);
    struct reel_model *other = NULL;
    const struct reel_model_options options = { .size = sizeof options,
                                                .device = "cpu",
                                                .cpu_path = "reference" };
    golden_require(reel_model_open(&other, folder, &options, &err), &err);
    struct reel_model *demo = model;
    model = other;
    s = open_session(100, verse);
    g.most_drafts = 0;
    g.speculation = REEL_SPECULATION_NGRAM;
    assert_int_equal(reel_generate(s, &g, NULL, &err), REEL_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "takes no drafts"));
    g.speculation = REEL_SPECULATION_MTP;
    assert_int_equal(reel_generate(s, &g, NULL, &err), REEL_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, has_layer ? "does not run on this device" : "no draft layer"));
    reel_session_close(s);
    reel_model_close(other);
    model = demo;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_those_without_drafts),
        cmocka_unit_test(log_probabilities_are_those_without_drafts),
        cmocka_unit_test(generations_end_where_they_would_without_drafts),
        cmocka_unit_test(no_more_drafts_than_wanted),
        cmocka_unit_test(a_draft_layer_guesses),
        cmocka_unit_test(a_draft_layer_follows_a_session_about),
        cmocka_unit_test(auto_asks_a_draft_layer_where_it_pays),
        cmocka_unit_test(auto_asks_a_layer_between_launches_where_it_pays),
        cmocka_unit_test(nobody_computes_while_a_draft_layer_guesses),
        cmocka_unit_test(what_is_not_allowed_is_said),
    };
    const struct share share = share_of("speculation", 2);
    int failed = 0;
    if (share_has(share, 0))
        failed += cmocka_run_group_tests_name("demo", tests, open_model, close_model);
    folder = "models/hybrid";
    if (share_has(share, 1))
        failed += cmocka_run_group_tests_name("hybrid", tests, open_model, close_model);
    return failed;
}
