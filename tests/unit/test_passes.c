/* Sessions that decode together, over the fake backend: each says what it says alone, whatever the
 * others do, and only those that decode at the same time share passes. */
#include "support/sanitized.h"
#include "support/session_fixture.h"

#include "runtime/generation.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST_TOKENS = 1200, HANGS_AFTER_S = 300, SOAK_HANGS_AFTER_S = 3600 };

static void nap(int ms) {
    const struct timespec t = { ms / 1000, ms % 1000 * 1000000L };
    nanosleep(&t, NULL);
}

static void start(struct fixture *f, struct fake_settings set) {
    *f = (struct fixture){ .set = set };
    f->model = fake_model_open(&f->set, &f->err);
    if (!f->model) fail_msg("%s", f->err.text);
    f->session = open_session(f, FAKE_CONTEXT);
}

/* ---- a thread with a session of its own ---- */

struct speaker {
    struct reel_session *session;
    struct reel_generation generation;
    bool pulls;
    int32_t first; /* of its prompt */
    int stops_at;  /* its callback refuses the n-th token, or finish comes after it; 0: never */
    int cancels_at;
    int slow_ms, slow_every;      /* its callback sleeps with every n-th token */
    const struct speaker *others; /* [n_others] whose counts it notes when it is over */
    int n_others;
    const struct speaker *beside; /* its callback lets this one keep up, to within a token */

    pthread_t thread, own;
    enum reel_status status;
    struct reel_generation_result result;
    struct reel_error err;
    atomic_int n;
    atomic_bool over, may_begin;
    bool strange; /* its callback ran on another thread */
    int noted[16];
    int32_t ids[MOST_TOKENS];
    float logprobs[MOST_TOKENS];
    struct reel_top_logprob top[MOST_TOKENS][3];
    char text[4 * MOST_TOKENS];
    size_t n_text;
};

static void keep_beside(const struct speaker *other, int n) {
    while (atomic_load(&other->n) + 1 < n && !atomic_load(&other->over))
        nap(1);
}

static bool hear(void *user, const struct reel_token *token) {
    struct speaker *s = user;
    const int n = atomic_load(&s->n);
    if (s->beside) keep_beside(s->beside, n);
    s->ids[n] = token->id;
    s->logprobs[n] = token->logprob;
    memset(s->top[n], 0, sizeof s->top[n]);
    for (int i = 0; i < token->n_top && i < 3; i++)
        s->top[n][i] = token->top[i];
    memcpy(s->text + s->n_text, token->text, token->text_bytes);
    s->n_text += token->text_bytes;
    if (!pthread_equal(pthread_self(), s->own)) s->strange = true;
    if (s->slow_every && n % s->slow_every == 0) nap(s->slow_ms);
    if (n + 1 == s->cancels_at) reel_session_cancel(s->session);
    atomic_store(&s->n, n + 1);
    return n + 1 != s->stops_at;
}

static void pull(struct speaker *s) {
    const struct reel_token *token = NULL;
    s->status = reel_generation_start(s->session, &s->generation, &s->err);
    if (s->status != REEL_OK) return;
    do {
        s->status = reel_generation_next(s->session, &token, &s->err);
    } while (s->status == REEL_OK && token && hear(s, token));
    if (reel_generation_finish(s->session, &s->result, NULL) != REEL_OK) abort();
}

static void speak(struct speaker *s) {
    int32_t ids[N_PROMPT];
    memcpy(ids, prompt, sizeof ids);
    ids[0] = s->first;
    s->own = pthread_self();
    s->generation.on_token = hear;
    s->generation.user = s;
    s->result.size = sizeof s->result;
    s->status = reel_session_sync(s->session, ids, N_PROMPT, NULL, &s->err);
    if (s->status != REEL_OK) return;
    if (s->pulls)
        pull(s);
    else
        s->status = reel_generate(s->session, &s->generation, &s->result, &s->err);
}

static void *speak_in_thread(void *of) {
    struct speaker *s = of;
    speak(s);
    for (int i = 0; i < s->n_others; i++)
        s->noted[i] = atomic_load(&s->others[i].n);
    atomic_store(&s->over, true);
    return NULL;
}

static void prepare(struct speaker *s, struct fixture *f, int32_t first, int max_tokens) {
    memset(s, 0, sizeof *s);
    s->generation = wanted(max_tokens);
    s->first = first;
    s->session = open_session(f, FAKE_CONTEXT);
}

static void begin(struct speaker *s) {
    assert_int_equal(pthread_create(&s->thread, NULL, speak_in_thread, s), 0);
}

static void end(struct speaker *s) {
    pthread_join(s->thread, NULL);
    reel_session_close(s->session);
    assert_false(s->strange);
}

static void assert_alike(const struct speaker *s, const struct speaker *alone, int n) {
    if (s->status != REEL_OK) fail_msg("%s", s->err.text);
    assert_int_equal(s->n, n);
    assert_memory_equal(s->ids, alone->ids, (size_t)n * sizeof *s->ids);
    if (!s->generation.logprobs) return;
    assert_memory_equal(s->logprobs, alone->logprobs, (size_t)n * sizeof *s->logprobs);
    assert_memory_equal(s->top, alone->top, (size_t)n * sizeof *s->top);
}

static void assert_same(const struct speaker *s, const struct speaker *alone) {
    assert_alike(s, alone, alone->n);
    assert_int_equal(s->n_text, alone->n_text);
    assert_memory_equal(s->text, alone->text, alone->n_text);
    assert_int_equal(s->result.reason, alone->result.reason);
    assert_int_equal(s->result.stop_string, alone->result.stop_string);
    assert_int_equal(s->result.n_tokens, alone->result.n_tokens);
}

static void wait_for(const struct speaker *s, int n) {
    while (atomic_load(&s->n) < n && !atomic_load(&s->over))
        nap(1);
    assert_true(atomic_load(&s->n) >= n);
}

/* ---- who shares passes ---- */

static void a_session_that_is_alone_has_no_passes(void **state) {
    (void)state;
    for (int decodes = 0; decodes < 2; decodes++) {
        static struct speaker s;
        struct fixture f;
        start(&f, (struct fake_settings){ .decodes = decodes, .columns = 4 });
        for (int pulls = 0; pulls < 2; pulls++) {
            prepare(&s, &f, 5, 200);
            s.pulls = pulls;
            begin(&s);
            end(&s);
            assert_int_equal(s.n, 200);
        }
        assert_int_equal(f.set.n_steps, 0);
        fixture_stop(&f);
    }
}

static void sessions_share_passes(void **state) {
    (void)state;
    enum { N = 4, TOKENS = 150 };
    static struct speaker alone[N], s[N];
    for (int kind = 0; kind < 4; kind++) {
        const bool pulls = kind & 1;
        struct fixture f;
        start(&f, (struct fake_settings){ .decodes = kind & 2, .columns = N });
        for (int i = 0; i < N; i++) {
            prepare(&alone[i], &f, 5 + i, TOKENS);
            begin(&alone[i]);
            end(&alone[i]);
            prepare(&s[i], &f, 5 + i, TOKENS);
            s[i].pulls = pulls;
        }
        f.set.eval_ms = 1;
        atomic_store(&f.set.n_positions, 0);
        for (int i = 0; i < N; i++)
            begin(&s[i]);
        for (int i = 0; i < N; i++) {
            end(&s[i]);
            assert_same(&s[i], &alone[i]);
        }
        assert_int_equal(f.set.most_inside, 1);
        assert_int_equal(f.set.most_of_a_pass, N);
        if (f.set.n_passes > 2 * TOKENS) /* one after the other these were N times the tokens */
            fail_msg("%d passes for %d tokens of each session", f.set.n_passes, TOKENS);
        fixture_stop(&f);
    }
}

/* The second one is over after a few tokens, the first one goes back to its own thread. */
static void who_is_left_goes_on_alone(void **state) {
    (void)state;
    for (int decodes = 0; decodes < 2; decodes++) {
        static struct speaker a, b;
        struct fixture f;
        start(&f, (struct fake_settings){ .decodes = decodes, .columns = 2, .eval_ms = 1 });
        prepare(&a, &f, 5, 600);
        prepare(&b, &f, 6, 30);
        begin(&a);
        wait_for(&a, 5);
        begin(&b);
        end(&b);
        assert_true(f.set.n_passes >= 28); /* perhaps but the first */
        wait_for(&a, 500);
        const int steps = atomic_load(&f.set.n_steps);
        end(&a);
        assert_int_equal(f.set.n_steps, steps);
        if (f.set.n_passes > 400) fail_msg("%d passes", f.set.n_passes);
        fixture_stop(&f);
    }
}

/* ---- who waits for whom ---- */

static void columns_go_round(void **state) {
    (void)state;
    enum { N = 6, TOKENS = 120 };
    static struct speaker s[N];
    struct fixture f;
    start(&f, (struct fake_settings){ .columns = 2, .eval_ms = 1 });
    for (int i = 0; i < N; i++) {
        prepare(&s[i], &f, 5 + i, TOKENS);
        s[i].others = s;
        s[i].n_others = N;
    }
    for (int i = 0; i < N; i++)
        begin(&s[i]);
    int first = 0;
    for (int i = 0; i < N; i++) {
        end(&s[i]);
        assert_int_equal(s[i].n, TOKENS);
    }
    while (first < N - 1) { /* who noted the least of the others was the first */
        int least = 0, next = 0;
        for (int i = 0; i < N; i++)
            least += s[first].noted[i], next += s[first + 1].noted[i];
        if (least <= next) break;
        first++;
    }
    for (int i = 0; i < N; i++)
        if (s[first].noted[i] < TOKENS / 3)
            fail_msg("session %d had %d tokens when session %d had all", i, s[first].noted[i],
                     first);
    assert_true(f.set.most_of_a_pass == 2);
    /* a step ends when a seat changes hands: after a turn, not with each pass */
    print_message("%d steps, %d passes\n", f.set.n_steps, f.set.n_passes);
    assert_true(3 * f.set.n_steps < f.set.n_passes);
    fixture_stop(&f);
}

/* A stop id and the last id that is wanted are known where ids are made: nothing is made beyond
 * them, also while the session has yet to take most of the ids. */
static void a_column_ends_where_its_ids_do(void **state) {
    (void)state;
    enum { N = 2, TOKENS = PASSES_AHEAD - 10, STOPS = 20 };
    for (int stops = 0; stops < 2; stops++) {
        static struct speaker s[N];
        static int32_t script[N_PROMPT + TOKENS];
        struct fixture f;
        for (int i = 0; i < N_PROMPT + TOKENS; i++)
            script[i] = i == N_PROMPT + STOPS - 1 ? FAKE_END : i % 26;
        start(&f, (struct fake_settings){ .columns = N });
        for (int i = 0; i < N; i++) {
            prepare(&s[i], &f, 5 + i, TOKENS);
            s[i].slow_every = 1;
            s[i].slow_ms = 4;
            s[i].beside = &s[N - 1 - i];
            s[i].generation.ignore_stop_ids = !stops;
        }
        if (stops) f.set.script = script, f.set.n_script = N_PROMPT + TOKENS;
        for (int i = 0; i < N; i++)
            begin(&s[i]);
        for (int i = 0; i < N; i++)
            end(&s[i]);
        print_message("%d and %d ids, %d positions\n", s[0].n, s[1].n, f.set.n_positions);
        assert_true(f.set.n_passes > 0);
        assert_int_equal(s[0].n, stops ? STOPS : TOKENS);
        assert_int_equal(s[1].n, s[0].n);
        assert_in_range(f.set.n_positions, N * (N_PROMPT + s[0].n - 1),
                        N * (N_PROMPT + s[0].n + 1));
        fixture_stop(&f);
    }
}

static void a_slow_callback_delays_nobody(void **state) {
    (void)state;
    static struct speaker slow, quick;
    struct fixture f;
    start(&f, (struct fake_settings){ .columns = 2 });
    prepare(&slow, &f, 5, 400);
    prepare(&quick, &f, 6, 1000);
    slow.slow_every = 1;
    slow.slow_ms = 50;
    begin(&slow);
    wait_for(&slow, 1);
    begin(&quick);
    end(&quick);
    assert_int_equal(quick.n, 1000);
    if (slow.n > 60) fail_msg("%d tokens of the slow one, 50 ms each", slow.n);
    reel_session_cancel(slow.session);
    end(&slow);
    const int ahead = f.set.n_positions - 2 * N_PROMPT - quick.n - slow.n;
    if (ahead > PASSES_AHEAD + 2) fail_msg("%d ids ahead of a slow callback", ahead);
    fixture_stop(&f);
}

/* Between calls of next nothing more than a few ids is made, and others go on. */
static void a_pulled_generation_is_a_few_ids_ahead(void **state) {
    (void)state;
    static struct speaker s;
    struct fixture f;
    const struct reel_token *token = NULL;
    const struct reel_generation g = wanted(100);
    int32_t ids[N_PROMPT + 100];
    memcpy(ids, prompt, sizeof prompt);
    expect_greedy(ids, N_PROMPT, 100);
    start(&f, (struct fake_settings){ .columns = 2, .eval_ms = 1 });
    prepare(&s, &f, 5, 300);
    begin(&s);
    wait_for(&s, 5);
    sync_to(&f, f.session, prompt, N_PROMPT);
    assert_int_equal(reel_generation_start(f.session, &g, &f.err), REEL_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(reel_generation_next(f.session, &token, &f.err), REEL_OK);
        assert_int_equal(token->id, ids[N_PROMPT + i]);
    }
    end(&s);
    assert_int_equal(s.n, 300);
    assert_true(f.set.n_positions >= 2 * N_PROMPT + 300 - 1 + 3);
    assert_true(f.set.n_positions <= 2 * N_PROMPT + 300 - 1 + 3 + GENERATION_AHEAD);
    for (int i = 3; i < 100; i++) {
        assert_int_equal(reel_generation_next(f.session, &token, &f.err), REEL_OK);
        assert_int_equal(token->id, ids[N_PROMPT + i]);
    }
    assert_int_equal(reel_generation_finish(f.session, NULL, &f.err), REEL_OK);
    assert_holds(f.session, ids, N_PROMPT + 100);
    fixture_stop(&f);
}

static void a_session_may_close_while_its_column_runs(void **state) {
    (void)state;
    static struct speaker s;
    struct fixture f;
    const struct reel_token *token = NULL;
    const struct reel_generation g = wanted(0);
    start(&f, (struct fake_settings){ .columns = 2, .eval_ms = 1 });
    prepare(&s, &f, 5, 200);
    begin(&s);
    for (int i = 0; i < 10; i++) {
        struct reel_session *other = open_session(&f, 100);
        wait_for(&s, 1 + 10 * i);
        sync_to(&f, other, prompt, N_PROMPT);
        assert_int_equal(reel_generation_start(other, &g, &f.err), REEL_OK);
        for (int j = 0; j < 2 + i % 3; j++)
            assert_int_equal(reel_generation_next(other, &token, &f.err), REEL_OK);
        reel_session_close(other);
    }
    end(&s);
    assert_int_equal(s.n, 200);
    fixture_stop(&f);
}

/* Two that have the columns, one that waits for one. */
static void a_cancelled_session_waits_no_longer(void **state) {
    (void)state;
    static struct speaker s[3];
    struct fixture f;
    start(&f, (struct fake_settings){ .columns = 2, .eval_ms = 8 });
    for (int i = 0; i < 3; i++) {
        prepare(&s[i], &f, 5 + i, 1000);
        begin(&s[i]);
    }
    for (int i = 0; i < 3; i++)
        wait_for(&s[i], 3);
    for (int i = 2; i >= 0; i--) {
        reel_session_cancel(s[i].session);
        while (!atomic_load(&s[i].over))
            nap(1);
        assert_int_equal(s[i].result.reason, REEL_STOP_CANCELLED);
        assert_true(s[i].n < 100);
        if (i > 0) assert_false(atomic_load(&s[0].over));
    }
    for (int i = 0; i < 3; i++)
        end(&s[i]);
    fixture_stop(&f);
}

/* A prompt has the turn for as long as it likes; two sessions would decode. */
static void a_cancelled_column_waits_for_no_turn(void **state) {
    (void)state;
    static struct speaker s[3];
    struct fixture f;
    int tries = 0;
    start(&f, (struct fake_settings){ .decodes = true, .columns = 2 });
    for (int i = 0; i < 3; i++)
        prepare(&s[i], &f, prompt[0], 10);
    for (int i = 0; i < 2; i++)
        sync_to(&f, s[i].session, prompt, N_PROMPT);
    f.set.eval_ms = 30000;
    begin(&s[2]);
    while (atomic_load(&f.set.n_inside) == 0)
        nap(1);
    begin(&s[0]);
    nap(50); /* it is alone, and waits for its turn */
    begin(&s[1]);
    nap(50);
    for (; !atomic_load(&s[1].over) && tries < 5000; tries++) {
        reel_session_cancel(s[1].session);
        nap(1);
    }
    assert_true(tries < 5000);
    assert_int_equal(s[1].result.reason, REEL_STOP_CANCELLED);
    assert_false(atomic_load(&s[2].over));
    while (!atomic_load(&s[2].over)) {
        reel_session_cancel(s[2].session);
        nap(1);
    }
    while (!atomic_load(&s[0].over)) {
        reel_session_cancel(s[0].session);
        nap(1);
    }
    for (int i = 0; i < 3; i++)
        end(&s[i]);
    fixture_stop(&f);
}

/* ---- prompts beside them ---- */

enum { LONG_PROMPT = 1300, SLICE = 16, N_SLICES = (LONG_PROMPT + SLICE - 1) / SLICE };

static void *read_prompt(void *of) {
    struct speaker *s = of;
    int32_t ids[LONG_PROMPT];
    for (int i = 0; i < LONG_PROMPT; i++)
        ids[i] = i * 7 % FAKE_VOCAB;
    s->status = reel_session_sync(s->session, ids, LONG_PROMPT, NULL, &s->err);
    atomic_store(&s->over, true);
    return NULL;
}

/* Each slice takes 2 ms, as a pass does; each is followed by a pass at least. */
static void whoever_decodes_waits_for_one_slice_at_a_time(void **state) {
    (void)state;
    enum { N = 2, READERS = 3 };
    static const struct {
        int columns, n, least;
    } cases[] = { { 0, 1, N_SLICES * 2 / 3 }, /* without passes it is one of the queue */
                  { 2, 1, READERS * N_SLICES },
                  { 2, 2, READERS * N_SLICES * 2 / 3 } };
    static struct speaker s[N], readers[READERS];
    for (int c = 0; c < 3; c++) {
        const int columns = cases[c].columns, n = cases[c].n;
        struct fixture f;
        start(&f, (struct fake_settings){
                      .decodes = true, .columns = columns, .prompt_slice = SLICE, .eval_ms = 2 });
        for (int i = 0; i < n; i++) {
            prepare(&s[i], &f, 5 + i, MOST_TOKENS);
            begin(&s[i]);
        }
        for (int i = 0; i < n; i++)
            wait_for(&s[i], 5);
        atomic_store(&f.set.n_prompt_evals, 0);
        atomic_store(&f.set.longest_eval, 0);
        const int before = atomic_load(&s[0].n);
        for (int i = 0; i < READERS; i++) {
            prepare(&readers[i], &f, 0, 0);
            assert_int_equal(pthread_create(&readers[i].thread, NULL, read_prompt, &readers[i]), 0);
        }
        for (int i = 0; i < READERS; i++)
            while (!atomic_load(&readers[i].over))
                nap(1);
        const int meanwhile = atomic_load(&s[0].n) - before;
        for (int i = 0; i < n; i++) {
            reel_session_cancel(s[i].session);
            end(&s[i]);
        }
        assert_int_equal(f.set.n_prompt_evals, READERS * N_SLICES);
        assert_int_equal(f.set.longest_eval, SLICE);
        if (meanwhile < cases[c].least)
            fail_msg("%d of %d columns: %d tokens beside %d slices", n, columns, meanwhile,
                     READERS * N_SLICES);
        f.set.eval_ms = 0;
        for (int i = 0; i < READERS; i++) {
            pthread_join(readers[i].thread, NULL);
            assert_int_equal(readers[i].status, REEL_OK);
            assert_goes_on(&f, readers[i].session, 30);
            reel_session_close(readers[i].session);
        }
        fixture_stop(&f);
    }
}

/* Where the backend has a queue, what comes next is in it before what is ahead is over. */
static void slices_and_passes_are_queued_ahead(void **state) {
    (void)state;
    enum { N = 2 };
    static struct speaker s[N], reader;
    for (int queues = 0; queues < 2; queues++) {
        struct fixture f;
        start(&f, (struct fake_settings){
                      .columns = N, .prompt_slice = SLICE, .queues = queues, .eval_ms = 2 });
        for (int i = 0; i < N; i++) {
            prepare(&s[i], &f, 5 + i, MOST_TOKENS);
            begin(&s[i]);
        }
        for (int i = 0; i < N; i++)
            wait_for(&s[i], 5);
        prepare(&reader, &f, 0, 0);
        assert_int_equal(pthread_create(&reader.thread, NULL, read_prompt, &reader), 0);
        pthread_join(reader.thread, NULL);
        for (int i = 0; i < N; i++) {
            reel_session_cancel(s[i].session);
            end(&s[i]);
        }
        assert_int_equal(reader.status, REEL_OK);
        f.set.eval_ms = 0;
        assert_goes_on(&f, reader.session, 30);
        reel_session_close(reader.session);
        fixture_stop(&f);
        /* without a queue an evaluation may give its turn away at its begin */
        assert_in_range(f.set.n_evals_behind_steps, queues ? N_SLICES / 3 : 0,
                        queues ? 2 * N_SLICES : 0);
        assert_in_range(f.set.n_steps_behind_evals, queues ? N_SLICES / 3 : 0, 2 * N_SLICES);
    }
}

static void a_prompt_is_cut_at_the_same_places_always(void **state) {
    (void)state;
    struct fixture f;
    float embeddings[50 * FAKE_HIDDEN] = { 0 };
    const struct reel_eval eval = { .size = sizeof eval, .n = 50, .embeddings = embeddings };
    int32_t ids[2 * SLICE + 3];
    for (int i = 0; i < 2 * SLICE + 3; i++)
        ids[i] = i;
    start(&f, (struct fake_settings){ .prompt_slice = SLICE });
    sync_to(&f, f.session, ids, SLICE - 3); /* cut at no place */
    assert_int_equal(f.set.n_evals, 1);
    sync_to(&f, f.session, ids, 2 * SLICE + 3); /* at two */
    assert_int_equal(f.set.n_evals, 1 + 3);
    assert_int_equal(reel_session_eval(f.session, &eval, &f.err), REEL_OK); /* at 48, 64 and 80 */
    assert_int_equal(f.set.n_evals, 1 + 3 + 4);
    assert_int_equal(f.set.longest_eval, SLICE);
    assert_int_equal(reel_session_length(f.session), 2 * SLICE + 3 + 50);
    fixture_stop(&f);
}

/* ---- what goes wrong ---- */

static void a_column_that_fails_is_the_only_one(void **state) {
    (void)state;
    enum { N = 4 };
    static struct speaker alone[N], s[N];
    for (int decodes = 0; decodes < 2; decodes++) {
        struct fixture f;
        int failed = 0;
        start(&f, (struct fake_settings){ .decodes = decodes, .columns = N });
        for (int i = 0; i < N; i++) {
            prepare(&alone[i], &f, 5 + i, 100);
            begin(&alone[i]);
            end(&alone[i]);
            prepare(&s[i], &f, 5 + i, 100);
        }
        f.set.eval_ms = 1;
        f.set.fail_column = 150;
        for (int i = 0; i < N; i++)
            begin(&s[i]);
        for (int i = 0; i < N; i++) {
            end(&s[i]);
            if (s[i].status == REEL_OK) {
                assert_same(&s[i], &alone[i]);
                continue;
            }
            failed++;
            assert_int_equal(s[i].status, REEL_E_DEVICE);
            assert_string_equal(s[i].err.text, "the fake column failed");
            assert_true(s[i].n > 10 && s[i].n < 100); /* what was made before it is heard */
            s[i].status = REEL_OK;
            assert_alike(&s[i], &alone[i], s[i].n);
        }
        assert_int_equal(failed, 1);
        fixture_stop(&f);
    }
}

static void columns_that_are_refused_go_by_turns(void **state) {
    (void)state;
    enum { N = 3 };
    static struct speaker alone[N], s[N];
    for (int decodes = 0; decodes < 2; decodes++) {
        struct fixture f;
        start(&f,
              (struct fake_settings){ .decodes = decodes, .columns = N, .refuses_columns = true });
        for (int i = 0; i < N; i++) {
            prepare(&alone[i], &f, 5 + i, 60);
            begin(&alone[i]);
            end(&alone[i]);
            prepare(&s[i], &f, 5 + i, 60);
            s[i].pulls = i == 1;
        }
        f.set.eval_ms = 1;
        for (int i = 0; i < N; i++)
            begin(&s[i]);
        for (int i = 0; i < N; i++) {
            end(&s[i]);
            assert_same(&s[i], &alone[i]);
        }
        assert_true(f.set.n_steps > 0 && f.set.n_steps <= N);
        fixture_stop(&f);
    }
}

/* ---- callbacks ---- */

struct nested {
    struct fixture *f;
    struct speaker inner;
    int n;
};

static bool speak_inside(void *user, const struct reel_token *token) {
    struct nested *n = user;
    (void)token;
    if (n->n++ != 30) return true;
    prepare(&n->inner, n->f, prompt[0], 40);
    speak(&n->inner);
    reel_session_close(n->inner.session);
    return true;
}

static void a_callback_may_use_another_session(void **state) {
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        const bool beside = kind & 1;
        static struct nested n;
        static struct speaker other;
        struct fixture f;
        struct reel_generation g = wanted(100);
        int32_t ids[N_PROMPT + 100];
        start(&f, (struct fake_settings){ .decodes = kind & 2, .columns = 2, .eval_ms = 1 });
        n = (struct nested){ .f = &f };
        g.on_token = speak_inside;
        g.user = &n;
        memcpy(ids, prompt, sizeof prompt);
        expect_greedy(ids, N_PROMPT, 100);
        prepare(&other, &f, 9, 400);
        if (beside) begin(&other);
        if (beside) wait_for(&other, 5);
        sync_to(&f, f.session, prompt, N_PROMPT);
        assert_int_equal(generate(&f, f.session, &g).n_tokens, 100);
        assert_holds(f.session, ids, N_PROMPT + 100);
        assert_int_equal(n.inner.status, REEL_OK);
        assert_memory_equal(n.inner.ids, ids + N_PROMPT, 40 * sizeof *ids);
        reel_session_cancel(other.session);
        if (beside)
            end(&other);
        else
            reel_session_close(other.session);
        if (!beside) assert_int_equal(f.set.n_steps, 0);
        fixture_stop(&f);
    }
}

/* ---- everything at once ---- */

/* What a session says with each of these was found out alone. A thread has a session for a while
 * and says one after the other, each until something ends it; the timeline then goes on greedily.
 */
enum { N_STORIES = 24, STORY = 90, MOST_THREADS = 64, GOES_ON = 3 };
static const char *const stops[] = { "zq", "xj", "<think>" };
static struct reel_sampling warm[N_STORIES];
static struct speaker stories[N_STORIES];

static void tell_story(struct speaker *s, struct fixture *f, int i) {
    prepare(s, f, i, STORY);
    warm[i] = (struct reel_sampling){ .size = sizeof warm[i],
                                      .temperature = 0.9f,
                                      .top_k = i % 2 ? 20 : 0,
                                      .presence_penalty = i % 4 ? 0.5f : 0,
                                      .repetition_penalty = i % 4 ? 1.2f : 0,
                                      .seed = (uint64_t)i };
    s->generation.sampling = i % 3 ? &warm[i] : NULL;
    s->generation.stop_strings = stops;
    s->generation.n_stop_strings = i % 5 == 0 ? 3 : 0;
    s->generation.ignore_stop_ids = i % 7 != 0;
    s->generation.n_top_logprobs = i % 2 ? 3 : 0;
    s->generation.logprobs = i % 2;
}

struct wanderer {
    struct fixture *f;
    pthread_t thread;
    unsigned seed;
    int n_rounds;
    atomic_int n_wrong;
    char what[200];
    struct speaker s;
};

static unsigned roll(struct wanderer *w, unsigned n) {
    w->seed = w->seed * 1664525u + 1013904223u;
    return (w->seed >> 8) % n;
}

static void *cancel_after(void *of) {
    struct speaker *s = of;
    while (!atomic_load(&s->may_begin))
        nap(1);
    reel_session_cancel(s->session);
    return NULL;
}

/* The prefix that it heard, and that what comes after it is right. */
static const char *judge(struct wanderer *w, const struct speaker *alone, bool cancelled) {
    struct speaker *s = &w->s;
    struct reel_error err;
    struct reel_generation g = wanted(GOES_ON);
    int32_t ids[N_PROMPT + STORY + GOES_ON];
    if (s->status != REEL_OK) return s->err.text;
    if (s->strange) return "a callback on another thread";
    const int n = s->n;
    int all = alone->n;
    if (s->stops_at && s->stops_at < all) all = s->stops_at;
    if (s->cancels_at && s->cancels_at < all) all = s->cancels_at;
    if (s->generation.max_tokens < all) all = s->generation.max_tokens;
    if (n > all || (n < all && !cancelled)) return "too many tokens or too few";
    if (memcmp(s->ids, alone->ids, (size_t)n * sizeof *s->ids) != 0) return "other ids";
    if (s->generation.logprobs &&
        (memcmp(s->logprobs, alone->logprobs, (size_t)n * sizeof *s->logprobs) != 0 ||
         memcmp(s->top, alone->top, (size_t)n * sizeof *s->top) != 0))
        return "other log-probabilities";
    if (n == alone->n &&
        (s->n_text != alone->n_text || memcmp(s->text, alone->text, s->n_text) != 0))
        return "another text";
    if (reel_session_length(s->session) != N_PROMPT + n) return "another length";
    memcpy(ids, reel_session_ids(s->session), (size_t)(N_PROMPT + n) * sizeof *ids);
    expect_greedy(ids, N_PROMPT + n, GOES_ON);
    if (reel_generate(s->session, &g, NULL, &err) != REEL_OK) return "it does not go on";
    if (memcmp(reel_session_ids(s->session), ids, (size_t)(N_PROMPT + n + GOES_ON) * sizeof *ids) !=
        0)
        return "other ids afterwards";
    return NULL;
}

static void *wander(void *of) {
    struct wanderer *w = of;
    struct reel_session *session = NULL;
    const struct reel_session_options options = { .size = sizeof options, .max_context = 200 };
    for (int round = 0; round < w->n_rounds; round++) {
        const int story = (int)roll(w, N_STORIES);
        const struct speaker *alone = &stories[story];
        struct speaker *s = &w->s;
        pthread_t canceller;
        if (session && roll(w, 4) == 0) reel_session_close(session), session = NULL;
        if (!session && reel_session_open(&session, w->f->model, &options, NULL) != REEL_OK)
            abort();
        memset(s, 0, offsetof(struct speaker, ids));
        s->n_text = 0;
        s->session = session;
        s->first = alone->first;
        s->generation = alone->generation;
        s->pulls = roll(w, 3) == 0;
        if (roll(w, 3) == 0) s->stops_at = 1 + (int)roll(w, STORY);
        if (roll(w, 5) == 0) s->cancels_at = 1 + (int)roll(w, STORY);
        if (roll(w, 3) == 0) s->generation.max_tokens = 1 + (int)roll(w, STORY);
        if (roll(w, 10) == 0) s->slow_every = 7, s->slow_ms = 1;
        const bool cancelled = roll(w, 16) == 0;
        if (cancelled && pthread_create(&canceller, NULL, cancel_after, s) != 0) abort();
        atomic_store(&s->may_begin, true);
        speak(s);
        if (cancelled) pthread_join(canceller, NULL);
        if (cancelled && s->status == REEL_E_CANCELLED) continue; /* the prompt was */
        const char *wrong = judge(w, alone, cancelled);
        if (!wrong) continue;
        if (atomic_fetch_add(&w->n_wrong, 1) == 0)
            (void)snprintf(w->what, sizeof w->what, "round %d, story %d: %s", round, story, wrong);
    }
    reel_session_close(session);
    return NULL;
}

static void storm(struct fake_settings set, int n_threads, int n_rounds) {
    static struct wanderer w[MOST_THREADS];
    struct fixture f;
    start(&f, set);
    for (int i = 0; i < N_STORIES; i++) {
        tell_story(&stories[i], &f, i);
        begin(&stories[i]);
        end(&stories[i]);
        assert_int_equal(stories[i].status, REEL_OK);
    }
    for (int i = 0; i < n_threads; i++) {
        memset(&w[i], 0, sizeof w[i]);
        w[i].f = &f;
        w[i].seed = (unsigned)i * 7919u + 1;
        w[i].n_rounds = n_rounds;
        assert_int_equal(pthread_create(&w[i].thread, NULL, wander, &w[i]), 0);
    }
    for (int i = 0; i < n_threads; i++)
        pthread_join(w[i].thread, NULL);
    for (int i = 0; i < n_threads; i++)
        if (w[i].n_wrong) fail_msg("thread %d: %d wrong; %s", i, w[i].n_wrong, w[i].what);
    assert_true(f.set.most_of_a_pass > 1);
    assert_int_equal(f.set.most_inside, 1);
    fixture_stop(&f);
}

static void many_threads_come_and_go(void **state) {
    (void)state;
    const bool soak = getenv("REEL_SOAK") != NULL;
    const int rounds = soaking_in_full() ? 1100 : soak ? 60 : 12;
    alarm(soak ? SOAK_HANGS_AFTER_S : HANGS_AFTER_S);
    storm((struct fake_settings){ .columns = 8 }, 64, rounds);
    storm((struct fake_settings){ .columns = 3, .recurrent = true }, 16, 2 * rounds);
    storm((struct fake_settings){ .columns = 8, .decodes = true }, 64, rounds);
    storm((struct fake_settings){ .columns = 2, .decodes = true, .recurrent = true }, 16,
          2 * rounds);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_session_that_is_alone_has_no_passes),
        cmocka_unit_test(sessions_share_passes),
        cmocka_unit_test(who_is_left_goes_on_alone),
        cmocka_unit_test(columns_go_round),
        cmocka_unit_test(a_column_ends_where_its_ids_do),
        cmocka_unit_test(a_slow_callback_delays_nobody),
        cmocka_unit_test(a_pulled_generation_is_a_few_ids_ahead),
        cmocka_unit_test(a_session_may_close_while_its_column_runs),
        cmocka_unit_test(a_cancelled_session_waits_no_longer),
        cmocka_unit_test(a_cancelled_column_waits_for_no_turn),
        cmocka_unit_test(whoever_decodes_waits_for_one_slice_at_a_time),
        cmocka_unit_test(slices_and_passes_are_queued_ahead),
        cmocka_unit_test(a_prompt_is_cut_at_the_same_places_always),
        cmocka_unit_test(a_column_that_fails_is_the_only_one),
        cmocka_unit_test(columns_that_are_refused_go_by_turns),
        cmocka_unit_test(a_callback_may_use_another_session),
        cmocka_unit_test(many_threads_come_and_go),
    };
    alarm(HANGS_AFTER_S); /* a column that nobody serves */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
