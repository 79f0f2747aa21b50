/* Generation: pushed and pulled, by the backend or by the runtime's own loop, and every reason to
 * stop. */
#include "support/session_fixture.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

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
        fixture_start(&f, way > 0);
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
        assert_int_equal(reel_generation_finish(pulled, &result, NULL), REEL_OK);
        assert_int_equal(result.reason, REEL_STOP_MAX_TOKENS);
        assert_true(error_empty(&f.err));
        reel_session_close(pulled);
        fixture_stop(&f);
    }
}

static void what_was_computed_ahead_is_dropped(void **state) {
    (void)state;
    for (int taken = 0; taken < 12; taken++) {
        struct fixture f;
        const struct reel_token *token;
        fixture_start(&f, true);
        sync_to(&f, f.session, prompt, N_PROMPT);
        struct reel_generation g = wanted(0);
        assert_int_equal(reel_generation_start(f.session, &g, &f.err), REEL_OK);
        for (int i = 0; i < taken; i++)
            assert_int_equal(reel_generation_next(f.session, &token, &f.err), REEL_OK);
        assert_int_equal(reel_generation_finish(f.session, NULL, NULL), REEL_OK);
        assert_int_equal(reel_session_length(f.session), N_PROMPT + taken);
        assert_goes_on(&f, f.session, 5);
        fixture_stop(&f);
    }
}

static void other_calls_are_refused_while_a_generation_is_open(void **state) {
    (void)state;
    struct fixture f;
    const struct reel_token *token;
    char bytes[4000];
    fixture_start(&f, false);
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
    assert_int_equal(reel_generation_finish(f.session, NULL, NULL), REEL_OK);
    assert_int_equal(reel_generation_finish(f.session, NULL, NULL), REEL_OK);
    assert_int_equal(reel_generate(other, &g, NULL, &f.err), REEL_E_STATE); /* empty */
    reel_session_close(other);
    fixture_stop(&f);
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
        fixture_start(&f, decodes);
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
        fixture_stop(&f);
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
        fixture_start(&f, decodes);
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
        fixture_stop(&f);
    }
}

static void a_full_context_is_a_reason(void **state) {
    (void)state;
    for (int decodes = 0; decodes < 2; decodes++) {
        struct fixture f;
        fixture_start(&f, decodes);
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
        fixture_stop(&f);
    }
}

static void a_listener_may_stop_it(void **state) {
    (void)state;
    for (int decodes = 0; decodes < 2; decodes++) {
        struct fixture f;
        struct heard h;
        fixture_start(&f, decodes);
        sync_to(&f, f.session, prompt, N_PROMPT);
        struct reel_generation g = wanted(0);
        listen(&g, &h);
        h.stop_after = 5;
        assert_int_equal(generate(&f, f.session, &g).reason, REEL_STOP_CALLBACK);
        assert_int_equal(reel_session_length(f.session), N_PROMPT + 5);
        assert_goes_on(&f, f.session, 3);
        fixture_stop(&f);
    }
}

struct meddler {
    struct reel_session *session;
    int n_allowed, n_tokens;
};

static bool meddle(void *user, const struct reel_token *token) {
    struct meddler *m = user;
    struct reel_generation_result result = { .size = sizeof result };
    const struct reel_token *next;
    (void)token;
    m->n_allowed += reel_generation_next(m->session, &next, NULL) != REEL_E_STATE;
    m->n_allowed += reel_session_truncate(m->session, 0, NULL) != REEL_E_STATE;
    assert_int_equal(reel_generation_finish(m->session, &result, NULL), REEL_OK);
    m->n_allowed += result.n_tokens != 0;
    m->n_tokens++;
    return true;
}

static void a_listener_cannot_take_over_the_generation(void **state) {
    (void)state;
    for (int decodes = 0; decodes < 2; decodes++) {
        struct fixture f;
        fixture_start(&f, decodes);
        sync_to(&f, f.session, prompt, N_PROMPT);
        struct meddler m = { .session = f.session };
        struct reel_generation g = wanted(5);
        g.on_token = meddle;
        g.user = &m;
        assert_int_equal(generate(&f, f.session, &g).n_tokens, 5);
        assert_int_equal(m.n_tokens, 5);
        assert_int_equal(m.n_allowed, 0);
        assert_goes_on(&f, f.session, 3);
        fixture_stop(&f);
    }
}

static void logprobs_are_of_the_unmodified_distribution(void **state) {
    (void)state;
    for (int decodes = 0; decodes < 2; decodes++) {
        struct fixture f;
        const struct reel_token *token;
        float logits[FAKE_VOCAB];
        fixture_start(&f, decodes);
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
        assert_int_equal(reel_generation_finish(f.session, NULL, NULL), REEL_OK);
        fixture_stop(&f);
    }
}

static void two_sessions_interleaved_equal_two_apart(void **state) {
    (void)state;
    for (int decodes = 0; decodes < 2; decodes++) {
        struct fixture f;
        const struct reel_token *token;
        struct reel_session *two[2];
        int32_t want[2][60];
        fixture_start(&f, decodes);
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
            assert_int_equal(reel_generation_finish(two[i], NULL, NULL), REEL_OK);
            assert_holds(two[i], want[i], 56);
            reel_session_close(two[i]);
        }
        fixture_stop(&f);
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

/* The same, but not before there was a token. */
struct canceller {
    struct reel_session *session;
    atomic_int n_heard;
};
static bool count_token(void *user, const struct reel_token *token) {
    struct canceller *c = user;
    (void)token;
    atomic_fetch_add(&c->n_heard, 1);
    return true;
}
static void *cancel_later(void *user) {
    struct canceller *c = user;
    while (atomic_load(&c->n_heard) == 0)
        pause_ms(1);
    return cancel_soon(c->session);
}

static void another_thread_cancels_what_runs(void **state) {
    (void)state;
    for (int decodes = 0; decodes < 2; decodes++) {
        struct fixture f;
        pthread_t thread;
        fixture_start(&f, decodes);
        f.set.eval_ms = 5000;
        pthread_create(&thread, NULL, cancel_soon, f.session);
        assert_int_equal(reel_session_sync(f.session, prompt, N_PROMPT, NULL, &f.err),
                         REEL_E_CANCELLED);
        pthread_join(thread, NULL);
        assert_int_equal(reel_session_length(f.session), 0);
        f.set.eval_ms = 0;
        sync_to(&f, f.session, prompt, N_PROMPT);

        f.set.eval_ms = 4; /* several tokens, then the request */
        struct canceller canceller = { .session = f.session };
        pthread_create(&thread, NULL, cancel_later, &canceller);
        struct reel_generation g = wanted(0);
        g.on_token = count_token;
        g.user = &canceller;
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
        fixture_stop(&f);
    }
}

static void a_request_to_cancel_never_outlives_its_call(void **state) {
    (void)state;
    struct fixture f;
    struct heard h;
    const struct reel_token *token;
    fixture_start(&f, false);
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
    assert_int_equal(reel_generation_finish(f.session, &result, NULL), REEL_OK);
    assert_int_equal(result.reason, REEL_STOP_CANCELLED);
    reel_session_cancel(f.session);
    assert_goes_on(&f, f.session, 3);
    fixture_stop(&f);
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
    fixture_start(&f, false);
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
    fixture_stop(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pushed_and_pulled_give_the_same),
        cmocka_unit_test(what_was_computed_ahead_is_dropped),
        cmocka_unit_test(other_calls_are_refused_while_a_generation_is_open),
        cmocka_unit_test(a_stop_id_is_delivered_without_text),
        cmocka_unit_test(stop_strings_match_across_tokens),
        cmocka_unit_test(a_full_context_is_a_reason),
        cmocka_unit_test(a_listener_may_stop_it),
        cmocka_unit_test(a_listener_cannot_take_over_the_generation),
        cmocka_unit_test(logprobs_are_of_the_unmodified_distribution),
        cmocka_unit_test(two_sessions_interleaved_equal_two_apart),
        cmocka_unit_test(another_thread_cancels_what_runs),
        cmocka_unit_test(a_request_to_cancel_never_outlives_its_call),
        cmocka_unit_test(sessions_of_one_model_run_in_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
