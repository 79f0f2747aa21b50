/* Drafts on the fake GPU, through the public interface: ids and why they end are those without,
 * whatever stops them, and what a session holds afterwards goes on as it would have. */
#include "cuda/run/cuda_backend.h"
#include "runtime/session.h"
#include "support/sanitized.h"
#include "support/shares.h"
#include "support/sim_model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SMALL "n_groups=2,group_sms=2,warps=4,poison=1,launch_tokens=24"
/* A launch without drafts ends soon, also where the host is late to stop it. */
#define SHORT "n_groups=2,group_sms=2,warps=4,poison=1,launch_tokens=3"

enum { CONTEXT = 96, N_PROMPT = 21, N_NEW = 28, MORE = 3 };

struct fixture {
    struct sim_model m;
    struct sim_gpu gpu;
    struct reel_error err;
    bool trained; /* the model is models/hybrid */
};
static struct fixture f;

static void good(enum reel_status status) {
    if (status != REEL_OK)
        fail_msg("%s: %s\n%s", reel_status_name(status), f.err.text, f.gpu.cuda->report);
}

/* What a generation made, and what the session makes behind it. */
struct tale {
    int32_t ids[CONTEXT];
    int n, n_more;
    struct reel_generation_result result;
    int refuse_at, cancel_at; /* 0: never */
    struct reel_session *session;
};

static bool hear(struct tale *t, const struct reel_token *token) {
    t->ids[t->n++] = token->id;
    if (t->n == t->cancel_at) reel_session_cancel(t->session);
    return t->n != t->refuse_at;
}
static bool on_token(void *user, const struct reel_token *token) { return hear(user, token); }

static void pull(struct reel_generation *g, struct tale *t) {
    const struct reel_token *token = NULL;
    good(reel_generation_start(t->session, g, &f.err));
    do {
        good(reel_generation_next(t->session, &token, &f.err));
    } while (token && hear(t, token));
    good(reel_generation_finish(t->session, &t->result, &f.err));
}

struct kind {
    float temperature;
    int max_tokens, context; /* 0: N_NEW, CONTEXT */
    int most_drafts;
    int refuse_at, cancel_at; /* 0: never */
    int stops_at;             /* not 0: this id of those without drafts is a stop id */
    bool pulled, penalised;
};

/* models/hybrid goes on with this once it has begun. */
static const int32_t sentence[9] = { 333, 330, 341, 407, 1365, 272, 595, 11, 282 };

/* A prompt that says the same thing again and again, as the model will. */
static void open_session(const struct kind *k, struct tale *t) {
    const struct reel_session_options options = { .size = sizeof options,
                                                  .max_context =
                                                      k->context ? k->context : CONTEXT };
    int32_t prompt[N_PROMPT];
    for (int i = 0; i < N_PROMPT; i++)
        prompt[i] = f.trained ? sentence[i % 9] : 40 + i % 5 * 7;
    good(reel_session_open(&t->session, f.m.gpu, &options, &f.err));
    good(reel_session_sync(t->session, prompt, N_PROMPT, NULL, &f.err));
}

static struct tale tell(const struct kind *k, enum reel_speculation speculation,
                        const int32_t *stop_id) {
    struct tale t = { .refuse_at = k->refuse_at, .cancel_at = k->cancel_at };
    const struct reel_sampling sampling = { .size = sizeof sampling,
                                            .temperature = k->temperature,
                                            .seed = 7,
                                            .presence_penalty = k->penalised ? 0.1f : 0 };
    struct reel_generation g = { .size = sizeof g,
                                 .sampling = &sampling,
                                 .max_tokens = k->max_tokens ? k->max_tokens : N_NEW,
                                 .stop_ids = stop_id,
                                 .n_stop_ids = stop_id ? 1 : 0,
                                 .ignore_stop_ids = !stop_id,
                                 .speculation = speculation,
                                 .most_drafts = k->most_drafts,
                                 .on_token = on_token,
                                 .user = &t };
    open_session(k, &t);
    t.result.size = sizeof t.result;
    if (k->pulled)
        pull(&g, &t);
    else
        good(reel_generate(t.session, &g, &t.result, &f.err));
    assert_int_equal(t.n, t.result.n_tokens);
    assert_int_equal(t.result.n_passes + t.result.n_accepted, t.n);
    assert_true(t.result.n_accepted <= t.result.n_drafted);
    const struct reel_generation more = { .size = sizeof more,
                                          .max_tokens = MORE,
                                          .ignore_stop_ids = true,
                                          .speculation = REEL_SPECULATION_OFF };
    good(reel_generate(t.session, &more, NULL, &f.err));
    t.n_more = reel_session_length(t.session) - N_PROMPT - t.n;
    memcpy(t.ids + t.n, reel_session_ids(t.session) + N_PROMPT + t.n,
           (size_t)t.n_more * sizeof *t.ids);
    reel_session_close(t.session);
    return t;
}

/* Returns what it took with drafts. */
static struct reel_generation_result assert_same(const struct kind *k) {
    int32_t stop = -1;
    if (k->stops_at) {
        struct kind whole = *k;
        whole.stops_at = 0;
        stop = tell(&whole, REEL_SPECULATION_OFF, NULL).ids[k->stops_at];
    }
    const int32_t *stop_id = k->stops_at ? &stop : NULL;
    const struct tale without = tell(k, REEL_SPECULATION_OFF, stop_id);
    const struct tale with = tell(k, REEL_SPECULATION_NGRAM, stop_id);
    assert_int_equal(without.result.n_drafted, 0);
    assert_int_equal(with.n, without.n);
    assert_int_equal(with.n_more, without.n_more);
    assert_int_equal(with.result.reason, without.result.reason);
    assert_memory_equal(with.ids, without.ids,
                        (size_t)(without.n + without.n_more) * sizeof *with.ids);
    return with.result;
}

static int start_on(int n_gpus) {
    f.trained = false;
    f.gpu = sim_gpu_controls();
    f.gpu.cuda->gpu.n_sms = 4 / n_gpus, f.gpu.cuda->gpu.n_devices = n_gpus;
    sim_model_open(&f.m, "q3-a");
    if (n_gpus > 1) f.m.device = "gpu:all";
    good(sim_model_load(&f.m, SMALL, &f.err));
    return 0;
}
static int start(void **state) { return (void)state, start_on(1); }
static int start_pair(void **state) { return (void)state, start_on(2); }
static int stop(void **state) {
    (void)state;
    sim_model_close(&f.m);
    return 0;
}

static void the_best_ids_are_those_without(void **state) {
    (void)state;
    f.gpu.cuda->n_launches = 0;
    const struct reel_generation_result r = assert_same(&(struct kind){ 0 });
    printf("%d launches; %d ids, %d passes, %d drafts, %d right\n", f.gpu.cuda->n_launches,
           r.n_tokens, r.n_passes, r.n_drafted, r.n_accepted);
    /* a launch goes on without drafts; a hybrid's prompt takes many */
    if (!f.trained) assert_in_range(f.gpu.cuda->n_launches / f.gpu.cuda->gpu.n_devices, 1, 10);
    assert_true(r.n_accepted >= N_NEW / 3); /* a model of random weights repeats itself */
}

static void drawn_ids_are_those_without(void **state) {
    (void)state;
    const struct reel_generation_result r = assert_same(&(struct kind){ .temperature = 0.2f });
    assert_true(r.n_drafted > 0);
}

static void whatever_ends_it_ends_it_there(void **state) {
    (void)state;
    static const struct kind kinds[] = {
        { .max_tokens = 9 }, { .context = N_PROMPT + 14 }, { .refuse_at = 11 },
        { .cancel_at = 12 }, { .stops_at = 13 },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        assert_true(assert_same(&kinds[i]).n_drafted > 0);
}

/* Where a launch without drafts ends depends on how fast the host is, and behind its end there may
 * be nothing to guess; on a busy machine guesses come late. Each try is compared. */
enum { MOST_TRIES = 40, TRIES = SANITIZED ? 2 : MOST_TRIES };

/* Where the last id that is taken is a draft of a pass that made more. */
static void a_hybrid_ends_there_too(void **state) {
    (void)state;
    static const struct kind kinds[] = { { .max_tokens = 12, .refuse_at = 10 },
                                         { .max_tokens = 12, .stops_at = 6 } };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        bool drafted = false;
        for (int k = 0; k < TRIES && !drafted; k++)
            drafted = assert_same(&kinds[i]).n_drafted > 0;
        assert_true(drafted || SANITIZED);
    }
}

static void no_pass_has_more_drafts_than_allowed(void **state) {
    (void)state;
    const struct reel_generation_result r = assert_same(&(struct kind){ .most_drafts = 2 });
    assert_true(r.n_accepted > 0);
    assert_true(r.n_drafted <= 2 * r.n_passes);
}

static void pulled_ids_are_those_without(void **state) {
    (void)state;
    assert_true(assert_same(&(struct kind){ .pulled = true }).n_accepted > 0);
}

static void with_penalties_there_are_none(void **state) {
    (void)state;
    assert_int_equal(assert_same(&(struct kind){ .penalised = true }).n_drafted, 0);
}

/* A short program ends before its programs are there. */
static void a_model_closes_while_programs_are_made(void **state) {
    (void)state;
    sim_model_unload(&f.m);
    good(sim_model_load(&f.m, SMALL, &f.err));
    cuda_programs_make(f.m.gpu->backend, &f.m.gpu->backend->drafts, false);
    sim_model_unload(&f.m);
    good(sim_model_load(&f.m, SMALL, &f.err));
    assert_true(assert_same(&(struct kind){ .max_tokens = 9 }).n_drafted > 0);
}

/* ---- models with Gated DeltaNets ---- */

/* What a session's state is behind a generation: bytes for free. *n_right: drafts that were. */
static void *state_behind(enum reel_speculation speculation, size_t *n_bytes, int *n_right) {
    const struct kind k = { .max_tokens = 19 };
    struct tale t = { 0 };
    const struct reel_generation g = { .size = sizeof g,
                                       .max_tokens = k.max_tokens,
                                       .ignore_stop_ids = true,
                                       .speculation = speculation,
                                       .on_token = on_token,
                                       .user = &t };
    struct reel_generation_result result = { .size = sizeof result };
    open_session(&k, &t);
    good(reel_generate(t.session, &g, &result, &f.err));
    *n_right = result.n_accepted;
    /* the last id is not evaluated, or its state would be that of one position more */
    const int n = f.m.gpu->ops->resume(t.session->state, N_PROMPT + t.n);
    assert_true(n >= N_PROMPT + t.n - 1);
    *n_bytes = f.m.gpu->ops->save_bytes(t.session->state, n);
    void *bytes = malloc(*n_bytes);
    good(f.m.gpu->ops->save(t.session->state, n, bytes, &f.err));
    reel_session_close(t.session);
    return bytes;
}

static void a_state_is_that_without(void **state) {
    (void)state;
    size_t n = 0, n_with = 0;
    int n_right = 0;
    void *without = state_behind(REEL_SPECULATION_OFF, &n, &n_right);
    assert_int_equal(n_right, 0);
    for (int i = 0; i < MOST_TRIES && n_right == 0; i++) { /* a busy host tells too late */
        void *with = state_behind(REEL_SPECULATION_NGRAM, &n_with, &n_right);
        assert_int_equal(n_with, n);
        assert_memory_equal(with, without, n);
        free(with);
    }
    assert_true(n_right > 0);
    free(without);
}

static int start_hybrid(void **state) {
    (void)state;
    const struct reel_model_options o = {
        .size = sizeof o, .device = "gpu", .gpu_options = SHORT, .cuda_dir = sim_gpu_folder()
    };
    f.gpu = sim_gpu_controls();
    f.gpu.cuda->gpu.n_sms = 4;
    f.trained = true;
    good(reel_model_open(&f.m.gpu, "models/hybrid", &o, &f.err));
    return 0;
}
static int stop_hybrid(void **state) {
    (void)state;
    reel_model_close(f.m.gpu);
    return 0;
}

int main(void) {
    struct CMUnitTest tests[] = {
        in_turn(the_best_ids_are_those_without),
        in_turn(drawn_ids_are_those_without),
        in_turn(whatever_ends_it_ends_it_there),
        in_turn(no_pass_has_more_drafts_than_allowed),
        in_turn(pulled_ids_are_those_without),
        in_turn(with_penalties_there_are_none),
        cmocka_unit_test(a_model_closes_while_programs_are_made),
    };
    struct CMUnitTest hybrid[] = {
        in_turn(a_hybrid_ends_there_too),
        in_turn(a_state_is_that_without),
    };
    const struct CMUnitTest pair[] = {
        cmocka_unit_test(the_best_ids_are_those_without),
        cmocka_unit_test(drawn_ids_are_those_without),
    };
    /* A run has one half of what one of the models has, or two GPUs. */
    const struct share share = share_of("cuda-drafts", 5);
    int failed = 0;
    if (share_has(share, 0) || share_has(share, 1)) {
        SHARE_TESTS("cuda-drafts-dense", 2, tests);
        failed += cmocka_run_group_tests(tests, start, stop);
    }
    if (share_has(share, 2) || share_has(share, 3)) {
        SHARE_TESTS("cuda-drafts-hybrid", 2, hybrid);
        failed += cmocka_run_group_tests(hybrid, start_hybrid, stop_hybrid);
    }
    if (share_has(share, 4)) failed += cmocka_run_group_tests(pair, start_pair, stop);
    return failed;
}
