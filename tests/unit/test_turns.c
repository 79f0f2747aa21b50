/* Sessions of one model and the threads that use them: who waits and for how long, and that it
 * changes no token. The fake backend sleeps a millisecond or more for each token, so that a turn of
 * 20 ms has at most 20 of them, and one that was begun just before. */
#include "support/session_fixture.h"

#include "runtime/turns.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST_TOKENS = 1000, TURN_TOKENS = 21, LONG_PROMPT = 1300, HANGS_AFTER_S = 100 };

static void nap(int ms) {
    const struct timespec t = { ms / 1000, ms % 1000 * 1000000L };
    nanosleep(&t, NULL);
}

/* A thread with a session of its own, and what it heard. */
struct speaker {
    struct fixture *f;
    struct reel_session *session;
    struct reel_generation generation;
    bool pulls;
    int32_t first; /* of its prompt, so that texts differ */
    pthread_t thread;
    enum reel_status status;
    struct reel_generation_result result;
    struct reel_error err;
    atomic_int n;
    int32_t ids[MOST_TOKENS];
    char text[4 * MOST_TOKENS];
    size_t n_text;
    atomic_bool over;
};

static bool hear(void *user, const struct reel_token *token) {
    struct speaker *s = user;
    s->ids[atomic_load(&s->n)] = token->id;
    memcpy(s->text + s->n_text, token->text, token->text_bytes);
    s->n_text += token->text_bytes;
    atomic_fetch_add(&s->n, 1);
    return true;
}

static void pull(struct speaker *s) {
    const struct reel_token *token = NULL;
    s->status = reel_generation_start(s->session, &s->generation, &s->err);
    while (s->status == REEL_OK) {
        s->status = reel_generation_next(s->session, &token, &s->err);
        if (s->status != REEL_OK || !token) break;
        hear(s, token);
    }
    if (s->status == REEL_OK) s->status = reel_generation_finish(s->session, &s->result, &s->err);
}

static void *speak(void *of) {
    struct speaker *s = of;
    int32_t ids[N_PROMPT];
    memcpy(ids, prompt, sizeof ids);
    ids[0] = s->first;
    s->generation.on_token = hear;
    s->generation.user = s;
    s->result.size = sizeof s->result;
    s->status = reel_session_sync(s->session, ids, N_PROMPT, NULL, &s->err);
    if (s->status == REEL_OK && s->pulls)
        pull(s);
    else if (s->status == REEL_OK)
        s->status = reel_generate(s->session, &s->generation, &s->result, &s->err);
    atomic_store(&s->over, true);
    return NULL;
}

static void speaker_open(struct speaker *s, struct fixture *f, int max_tokens) {
    *s = (struct speaker){ .f = f, .generation = wanted(max_tokens), .first = 5 };
    s->session = open_session(f, FAKE_CONTEXT);
}

static void speaker_start(struct speaker *s) {
    assert_int_equal(pthread_create(&s->thread, NULL, speak, s), 0);
}

static void speaker_stop(struct speaker *s) {
    pthread_join(s->thread, NULL);
    reel_session_close(s->session);
    if (s->status != REEL_OK) fail_msg("%s", s->err.text);
}

static void wait_for_tokens(const struct speaker *s, int n) {
    while (atomic_load(&s->n) < n && !atomic_load(&s->over))
        nap(1);
    assert_true(atomic_load(&s->n) >= n);
}

/* ---- who computes ---- */

static int most_at_once(bool decodes, bool shares) {
    enum { N = 4, TOKENS = 25 };
    static struct speaker s[N];
    struct fixture f;
    fixture_start(&f, decodes);
    fixture_stop(&f);
    f.set = (struct fake_settings){ .decodes = decodes, .shares = shares, .eval_ms = 1 };
    f.model = fake_model_open(&f.set, &f.err);
    f.session = open_session(&f, 600);
    for (int i = 0; i < N; i++) {
        speaker_open(&s[i], &f, TOKENS);
        speaker_start(&s[i]);
    }
    for (int i = 0; i < N; i++) {
        speaker_stop(&s[i]);
        assert_int_equal(s[i].n, TOKENS);
    }
    const int most = atomic_load(&f.set.most_inside);
    fixture_stop(&f);
    return most;
}

static void one_session_computes_at_a_time(void **state) {
    (void)state;
    assert_int_equal(most_at_once(false, false), 1);
    assert_int_equal(most_at_once(true, false), 1);
}

static void a_backend_may_do_without_turns(void **state) {
    (void)state;
    assert_true(most_at_once(true, true) > 1);
}

/* ---- how long others wait ---- */

static void nobody_gets_far_ahead_of_the_others(void **state) {
    (void)state;
    enum { N = 4, TOKENS = 150 };
    static struct speaker s[N];
    struct fixture f;
    fixture_start(&f, true);
    f.set.eval_ms = 1;
    for (int i = 0; i < N; i++)
        speaker_open(&s[i], &f, TOKENS);
    for (int i = 0; i < N; i++)
        speaker_start(&s[i]);
    while (!atomic_load(&s[0].over) && !atomic_load(&s[1].over) && !atomic_load(&s[2].over) &&
           !atomic_load(&s[3].over))
        nap(1);
    for (int i = 0; i < N; i++)
        if (atomic_load(&s[i].n) < TOKENS / 3)
            fail_msg("session %d has %d tokens, the first one is over", i, atomic_load(&s[i].n));
    for (int i = 0; i < N; i++)
        speaker_stop(&s[i]);
    fixture_stop(&f);
}

/* What a session that is in the middle of its text goes on for after another one has asked. The
 * least of some tries: this thread may lose its core between its look and its asking. */
static void a_turn_ends_soon_when_another_waits(void **state) {
    (void)state;
    static struct speaker s;
    struct fixture f;
    int least = MOST_TOKENS, longest_of_one = 0;
    fixture_start(&f, true);
    f.set.eval_ms = 1;
    speaker_open(&s, &f, MOST_TOKENS);
    speaker_start(&s);
    for (int i = 0; i < 8; i++) {
        wait_for_tokens(&s, 10 + 30 * i);
        const int before = atomic_load(&s.n);
        sync_to(&f, f.session, prompt, 1 + i % 2);
        const int waited = atomic_load(&s.n) - before;
        if (waited < least) least = waited;
        if (waited > longest_of_one) longest_of_one = waited;
    }
    reel_session_cancel(s.session);
    speaker_stop(&s);
    assert_int_equal(s.result.reason, REEL_STOP_CANCELLED);
    if (least > TURN_TOKENS + 1) fail_msg("a turn had %d tokens and more", least);
    fixture_stop(&f);
}

static void *read_prompt(void *of) {
    struct speaker *s = of;
    int32_t ids[FAKE_CONTEXT];
    for (int i = 0; i < FAKE_CONTEXT; i++)
        ids[i] = i * 7 % FAKE_VOCAB;
    s->status = reel_session_sync(s->session, ids, LONG_PROMPT, NULL, &s->err);
    atomic_store(&s->over, true);
    return NULL;
}

static void read_beside_a_text(struct fake_settings set, int least_tokens, int least_calls) {
    static struct speaker reader, s;
    struct fixture f;
    fixture_start(&f, true);
    fixture_stop(&f);
    f.set = set;
    f.model = fake_model_open(&f.set, &f.err);
    f.session = open_session(&f, 600);
    speaker_open(&s, &f, MOST_TOKENS);
    speaker_open(&reader, &f, 0);
    f.set.eval_ms = 2;
    speaker_start(&s);
    wait_for_tokens(&s, 1);
    atomic_store(&f.set.n_prompt_evals, 0);
    assert_int_equal(pthread_create(&reader.thread, NULL, read_prompt, &reader), 0);
    const int before = atomic_load(&s.n);
    while (!atomic_load(&reader.over))
        nap(1);
    const int meanwhile = atomic_load(&s.n) - before;
    reel_session_cancel(s.session);
    speaker_stop(&s);
    pthread_join(reader.thread, NULL);
    assert_int_equal(reader.status, REEL_OK);
    f.set.eval_ms = 0;
    assert_goes_on(&f, reader.session, 50);
    reel_session_close(reader.session);
    fixture_stop(&f);
    const int calls = atomic_load(&f.set.n_prompt_evals);
    if (meanwhile < least_tokens || calls < least_calls)
        fail_msg("%d tokens beside a prompt of 0.26 s and %d calls", meanwhile, calls);
}

/* Of 130 chunks, 2 ms each: one evaluation that lets others in between, or one that does not, and
 * so is cut into pieces that take a turn each; but perhaps the first, when nobody waits yet. */
static void a_text_goes_on_beside_a_long_prompt(void **state) {
    (void)state;
    const struct fake_settings lets_in = { .decodes = true,
                                           .eval_positions = FAKE_CONTEXT,
                                           .chunk = 10 };
    const struct fake_settings is_cut = { .decodes = true, .cut_step = 16, .chunk = 10 };
    read_beside_a_text(lets_in, 40, 1);
    read_beside_a_text(is_cut, 10, 6);
}

/* ---- a turn handed on ---- */

/* Three turns of one model, and a thread that wants the last. */
struct three {
    struct turns *turns;
    struct turn first, second, third;
    pthread_t thread;
    atomic_bool asks, got;
};

static void three_open(struct three *t, bool queues) {
    struct reel_error err = { 0 };
    *t = (struct three){ 0 };
    assert_int_equal(turns_open(&t->turns, queues, &err), REEL_OK);
    assert_int_equal(turn_take(&t->first, t->turns, NULL, &err), REEL_OK);
}

static void *want_third(void *of) {
    struct three *t = of;
    atomic_store(&t->asks, true);
    if (turn_take(&t->third, t->turns, NULL, NULL) == REEL_OK) atomic_store(&t->got, true);
    return NULL;
}

/* Returns when the thread waits, or has what it wanted. */
static void three_want(struct three *t) {
    assert_int_equal(pthread_create(&t->thread, NULL, want_third, t), 0);
    while (!atomic_load(&t->asks) || (!atomic_load(&t->got) && !turns_are_shared(t->turns)))
        nap(1);
}

static void wait_until_got(struct three *t) {
    while (!atomic_load(&t->got))
        nap(1);
}

/* Returns whether it was seen before the first turn was over by itself, which it is after 20 ms: on
 * a busy machine perhaps before this thread has looked. */
static bool hand_on_to_who_waits(void) {
    struct three t;
    three_open(&t, true);
    three_want(&t);
    nap(5);
    assert_false(atomic_load(&t.got));
    const bool in_time = !turn_is_over(&t.first);
    turn_hand_on(&t.first);
    assert_true(turn_is_over(&t.first));
    wait_until_got(&t);
    pthread_join(t.thread, NULL);
    turn_give(&t.third);
    turn_give(&t.first);
    turns_close(t.turns);
    return in_time;
}

static void who_waits_has_a_turn_that_is_handed_on(void **state) {
    enum { TRIES = 100 };
    (void)state;
    for (int i = 0; i < TRIES; i++)
        if (hand_on_to_who_waits()) return;
    fail_msg("the first turn was over each time before it was handed on");
}

static void who_comes_has_a_turn_that_is_handed_on(void **state) {
    (void)state;
    struct three t;
    three_open(&t, true);
    turn_hand_on(&t.first);
    turn_hand_on(&t.first);
    three_want(&t);
    wait_until_got(&t);
    pthread_join(t.thread, NULL);
    /* the third has not handed it on */
    assert_int_equal(turn_take(&t.second, t.turns, &t.got, NULL), REEL_E_CANCELLED);
    turn_give(&t.third);
    assert_int_equal(turn_take(&t.second, t.turns, NULL, NULL), REEL_OK);
    turn_give(&t.first); /* behind the third, whose clock is no more */
    turn_give(&t.second);
    turns_close(t.turns);
}

/* The second one, who goes ahead, has a turn as long as the first one was, from when that is given
 * on. */
static void the_clock_of_a_turn_begins_when_what_is_ahead_is_over(void **state) {
    (void)state;
    enum { LENGTH_MS = 12 };
    struct three t;
    bool over_soon = true;
    for (int tries = 0; over_soon && tries < 50; tries++) { /* others may have this core */
        three_open(&t, true);
        t.second.ahead = true;
        nap(LENGTH_MS);
        turn_hand_on(&t.first);
        assert_int_equal(turn_take(&t.second, t.turns, NULL, NULL), REEL_OK);
        three_want(&t);
        nap(30);
        assert_false(turn_is_over(&t.second));
        turn_give(&t.first);
        nap(1);
        over_soon = turn_is_over(&t.second);
        nap(30);
        assert_true(turn_is_over(&t.second));
        turn_give(&t.second);
        wait_until_got(&t);
        pthread_join(t.thread, NULL);
        turn_give(&t.third);
        turns_close(t.turns);
    }
    assert_false(over_soon);
}

/* Of 20 ms, had the one before been as long. */
static void who_goes_ahead_has_as_long_a_turn_as_the_one_before(void **state) {
    (void)state;
    struct three t;
    three_open(&t, false);
    nap(2);
    turn_give(&t.first);
    t.second.ahead = true;
    assert_int_equal(turn_take(&t.second, t.turns, NULL, NULL), REEL_OK);
    three_want(&t);
    nap(9);
    assert_true(turn_is_over(&t.second));
    turn_give(&t.second);
    wait_until_got(&t);
    pthread_join(t.thread, NULL);
    turn_give(&t.third);
    turns_close(t.turns);
}

static void without_a_queue_no_turn_is_handed_on(void **state) {
    (void)state;
    struct three t;
    three_open(&t, false);
    three_want(&t);
    turn_hand_on(&t.first);
    nap(5);
    assert_false(atomic_load(&t.got));
    turn_give(&t.first);
    wait_until_got(&t);
    pthread_join(t.thread, NULL);
    turn_give(&t.third);
    turns_close(t.turns);
}

/* ---- what they say ---- */

static const struct reel_sampling warm = { .size = sizeof warm,
                                           .temperature = 0.9f,
                                           .top_k = 30,
                                           .presence_penalty = 0.5f,
                                           .repetition_penalty = 1.2f,
                                           .seed = 4 };
static const char *const stops[] = { "zq", "xj" };

static void prepare(struct speaker *s, struct fixture *f, int i) {
    speaker_open(s, f, 90);
    s->first = 5 + i;
    s->pulls = i == 2;
    s->generation.sampling = i == 1 ? &warm : NULL;
    s->generation.stop_strings = stops;
    s->generation.n_stop_strings = i % 2 ? 2 : 0;
}

static void what_a_session_says_is_what_it_says_alone(void **state) {
    (void)state;
    enum { N = 4 };
    static struct speaker alone[N], together[N];
    for (int decodes = 0; decodes < 2; decodes++) {
        struct fixture f;
        fixture_start(&f, decodes);
        for (int i = 0; i < N; i++) {
            prepare(&alone[i], &f, i);
            speaker_start(&alone[i]);
            speaker_stop(&alone[i]);
        }
        f.set.eval_ms = 1;
        for (int i = 0; i < N; i++) {
            prepare(&together[i], &f, i);
            speaker_start(&together[i]);
        }
        for (int i = 0; i < N; i++) {
            speaker_stop(&together[i]);
            assert_int_equal(together[i].n, alone[i].n);
            assert_memory_equal(together[i].ids, alone[i].ids, sizeof alone[i].ids);
            assert_string_equal(together[i].text, alone[i].text);
            assert_int_equal(together[i].result.reason, alone[i].result.reason);
        }
        fixture_stop(&f);
    }
}

/* ---- waiting in vain ---- */

/* A generation and an evaluation end while another session computes, and it still does. */
static void a_cancelled_session_waits_no_longer(void **state) {
    (void)state;
    for (int generates = 0; generates < 2; generates++) {
        static struct speaker busy, waits;
        struct fixture f;
        fixture_start(&f, true);
        speaker_open(&busy, &f, 1);
        speaker_open(&waits, &f, 10);
        if (generates) sync_to(&f, waits.session, prompt, N_PROMPT);
        f.set.eval_ms = 30000;
        speaker_start(&busy);
        while (atomic_load(&f.set.n_evals) == generates)
            nap(1);
        waits.first = generates ? prompt[0] : 9;
        speaker_start(&waits);
        while (!atomic_load(&waits.over)) {
            reel_session_cancel(waits.session);
            nap(1);
        }
        assert_false(atomic_load(&busy.over));
        assert_int_equal(waits.status, generates ? REEL_OK : REEL_E_CANCELLED);
        if (generates) assert_int_equal(waits.result.reason, REEL_STOP_CANCELLED);
        while (!atomic_load(&busy.over)) {
            reel_session_cancel(busy.session);
            nap(1);
        }
        pthread_join(waits.thread, NULL);
        pthread_join(busy.thread, NULL);
        reel_session_close(waits.session);
        reel_session_close(busy.session);
        fixture_stop(&f);
    }
}

/* ---- callbacks ---- */

struct nested {
    struct fixture *f;
    struct speaker inner;
    bool in_a_thread;
    int n;
};

static bool speak_inside(void *user, const struct reel_token *token) {
    struct nested *n = user;
    (void)token;
    if (n->n++ != 2) return true;
    speaker_open(&n->inner, n->f, 40);
    if (n->in_a_thread)
        speaker_start(&n->inner);
    else
        speak(&n->inner);
    if (n->in_a_thread) pthread_join(n->inner.thread, NULL);
    reel_session_close(n->inner.session);
    return true;
}

/* By itself, or by waiting for a thread that does. */
static void a_callback_may_use_another_session(void **state) {
    (void)state;
    for (int in_a_thread = 0; in_a_thread < 2; in_a_thread++) {
        static struct nested n;
        struct fixture f;
        struct reel_generation g = wanted(100);
        int32_t ids[N_PROMPT + 100];
        fixture_start(&f, true);
        n = (struct nested){ .f = &f, .in_a_thread = in_a_thread };
        g.on_token = speak_inside;
        g.user = &n;
        memcpy(ids, prompt, sizeof prompt);
        expect_greedy(ids, N_PROMPT, 100);
        sync_to(&f, f.session, prompt, N_PROMPT);
        assert_int_equal(generate(&f, f.session, &g).n_tokens, 100);
        assert_holds(f.session, ids, N_PROMPT + 100);
        assert_int_equal(n.inner.status, REEL_OK);
        assert_memory_equal(n.inner.ids, ids + N_PROMPT, 40 * sizeof *ids);
        fixture_stop(&f);
    }
}

static void a_pulled_generation_holds_no_turn_between_calls(void **state) {
    (void)state;
    for (int decodes = 0; decodes < 2; decodes++) {
        static struct speaker s;
        struct fixture f;
        const struct reel_token *token = NULL;
        const struct reel_generation g = wanted(20);
        fixture_start(&f, decodes);
        sync_to(&f, f.session, prompt, N_PROMPT);
        assert_int_equal(reel_generation_start(f.session, &g, &f.err), REEL_OK);
        assert_int_equal(reel_generation_next(f.session, &token, &f.err), REEL_OK);
        speaker_open(&s, &f, 50);
        speaker_start(&s);
        speaker_stop(&s);
        assert_int_equal(s.n, 50);
        assert_int_equal(reel_generation_finish(f.session, NULL, &f.err), REEL_OK);
        fixture_stop(&f);
    }
}

/* ---- a real model ---- */

enum { DEMO_TOKENS = 60, DEMO_PROMPT = 300, DEMO_VOCAB = 40000 };
struct demo {
    const struct reel_model *model;
    int32_t ids[DEMO_PROMPT + DEMO_TOKENS];
    float logprobs[DEMO_TOKENS];
    int n_logprobs;
    float logits[DEMO_VOCAB]; /* of one more id, which tell of every bit before it */
    pthread_t thread;
    enum reel_status status;
    struct reel_error err;
};

static bool keep_logprob(void *user, const struct reel_token *token) {
    struct demo *d = user;
    d->logprobs[d->n_logprobs++] = token->logprob;
    return true;
}

static void *tell_story(void *of) {
    struct demo *d = of;
    struct reel_session *s = NULL;
    const struct reel_session_options options = { .size = sizeof options, .max_context = 400 };
    int32_t begins[DEMO_PROMPT];
    for (int i = 0; i < DEMO_PROMPT; i++)
        begins[i] = 10 + i * 7 % 90;
    struct reel_generation g = wanted(DEMO_TOKENS);
    g.logprobs = true;
    g.on_token = keep_logprob;
    g.user = d;
    d->n_logprobs = 0;
    d->status = reel_session_open(&s, d->model, &options, &d->err);
    if (d->status == REEL_OK) d->status = reel_session_sync(s, begins, DEMO_PROMPT, NULL, &d->err);
    if (d->status == REEL_OK) d->status = reel_generate(s, &g, NULL, &d->err);
    if (d->status == REEL_OK) memcpy(d->ids, reel_session_ids(s), sizeof d->ids);
    const struct reel_eval more = { .size = sizeof more,
                                    .ids = begins,
                                    .n = 1,
                                    .output = REEL_OUTPUT_LAST_LOGITS,
                                    .out = d->logits,
                                    .out_floats = DEMO_VOCAB };
    if (d->status == REEL_OK) d->status = reel_session_eval(s, &more, &d->err);
    reel_session_close(s);
    return NULL;
}

static void assert_same_stories(const char *path) {
    const struct reel_model_options options = { .size = sizeof options,
                                                .device = "cpu",
                                                .n_threads = 2 };
    struct reel_model *model = NULL;
    struct reel_error err;
    static struct demo alone, d[3];
    if (reel_model_open(&model, path, &options, &err) != REEL_OK) fail_msg("%s", err.text);
    alone.model = model;
    tell_story(&alone);
    assert_int_equal(alone.status, REEL_OK);
    for (int i = 0; i < 3; i++) {
        d[i].model = model;
        assert_int_equal(pthread_create(&d[i].thread, NULL, tell_story, &d[i]), 0);
    }
    for (int i = 0; i < 3; i++) {
        pthread_join(d[i].thread, NULL);
        if (d[i].status != REEL_OK) fail_msg("%s", d[i].err.text);
        assert_memory_equal(d[i].ids, alone.ids, sizeof alone.ids);
        assert_memory_equal(d[i].logprobs, alone.logprobs, sizeof alone.logprobs);
        assert_memory_equal(d[i].logits, alone.logits, sizeof alone.logits);
    }
    reel_model_close(model);
}

static void threads_tell_the_story_that_one_tells(void **state) {
    (void)state;
    assert_same_stories("models/demo");
    assert_same_stories("models/hybrid");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_session_computes_at_a_time),
        cmocka_unit_test(a_backend_may_do_without_turns),
        cmocka_unit_test(nobody_gets_far_ahead_of_the_others),
        cmocka_unit_test(a_turn_ends_soon_when_another_waits),
        cmocka_unit_test(a_text_goes_on_beside_a_long_prompt),
        cmocka_unit_test(who_waits_has_a_turn_that_is_handed_on),
        cmocka_unit_test(who_comes_has_a_turn_that_is_handed_on),
        cmocka_unit_test(the_clock_of_a_turn_begins_when_what_is_ahead_is_over),
        cmocka_unit_test(who_goes_ahead_has_as_long_a_turn_as_the_one_before),
        cmocka_unit_test(without_a_queue_no_turn_is_handed_on),
        cmocka_unit_test(what_a_session_says_is_what_it_says_alone),
        cmocka_unit_test(a_cancelled_session_waits_no_longer),
        cmocka_unit_test(a_callback_may_use_another_session),
        cmocka_unit_test(a_pulled_generation_holds_no_turn_between_calls),
        cmocka_unit_test(threads_tell_the_story_that_one_tells),
    };
    alarm(HANGS_AFTER_S); /* turns that nobody gives back */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
