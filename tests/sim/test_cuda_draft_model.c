/* A draft model on the fake GPU, through the public interface: launches of two models take turns,
 * and ids and why they end are those without. A model guesses for itself, whose guesses are right,
 * and another of random weights for it, whose guesses are wrong; the same where one of them has
 * recurrent states, and where one of them runs on the CPU. */
#include "cuda/run/cuda_state.h"
#include "runtime/session.h"
#include "support/shares.h"
#include "support/sim_model.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define SMALL "n_groups=2,group_sms=2,warps=4,poison=1,launch_tokens=24"

enum { CONTEXT = 96, N_PROMPT = 11, N_NEW = 22, MORE = 3 };

/* own: f.m's weights once more. */
static struct fixture {
    struct sim_model m, own, other, longer;
    struct sim_gpu gpu;
    struct reel_error err;
} f;

static void good(enum reel_status status) {
    if (status != REEL_OK)
        fail_msg("%s: %s\n%s", reel_status_name(status), f.err.text, f.gpu.cuda->report);
}

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
    struct reel_model *model, *draft; /* NULL: f.m's and f.own's */
    float temperature;
    int max_tokens, context; /* 0: N_NEW, CONTEXT */
    int most_drafts;
    int refuse_at, cancel_at; /* 0: never */
    int stops_at;             /* not 0: this id of those without drafts is a stop id */
    bool pulled, penalised;
    enum reel_speculation speculation; /* 0: DRAFT */
};

static void open_session(const struct kind *k, bool drafts, struct tale *t) {
    const struct reel_session_options options = {
        .size = sizeof options,
        .max_context = k->context ? k->context : CONTEXT,
        .draft_model = !drafts    ? NULL
                       : k->draft ? k->draft
                                  : f.own.gpu,
    };
    int32_t prompt[N_PROMPT];
    for (int i = 0; i < N_PROMPT; i++)
        prompt[i] = (40 + i * i * 7) % 256;
    good(reel_session_open(&t->session, k->model ? k->model : f.m.gpu, &options, &f.err));
    good(reel_session_sync(t->session, prompt, N_PROMPT, NULL, &f.err));
}

static struct tale tell(const struct kind *k, bool drafts, const int32_t *stop_id) {
    struct tale t = { .refuse_at = k->refuse_at, .cancel_at = k->cancel_at };
    const struct reel_sampling sampling = { .size = sizeof sampling,
                                            .temperature = k->temperature,
                                            .seed = 7,
                                            .presence_penalty = k->penalised ? 0.1f : 0 };
    struct reel_generation g = {
        .size = sizeof g,
        .sampling = &sampling,
        .max_tokens = k->max_tokens ? k->max_tokens : N_NEW,
        .stop_ids = stop_id,
        .n_stop_ids = stop_id ? 1 : 0,
        .ignore_stop_ids = !stop_id,
        .speculation = !drafts          ? REEL_SPECULATION_OFF
                       : k->speculation ? k->speculation
                                        : REEL_SPECULATION_DRAFT,
        .most_drafts = k->most_drafts,
        .on_token = on_token,
        .user = &t,
    };
    open_session(k, drafts, &t);
    t.result.size = sizeof t.result;
    if (k->pulled)
        pull(&g, &t);
    else
        good(reel_generate(t.session, &g, &t.result, &f.err));
    assert_null(t.result.draft_problem);
    assert_int_equal(t.n, t.result.n_tokens);
    assert_int_equal(t.result.n_passes + t.result.n_accepted, t.n);
    assert_true(t.result.n_accepted <= t.result.n_drafted);
    const struct reel_generation more = { .size = sizeof more,
                                          .max_tokens = MORE,
                                          .ignore_stop_ids = true,
                                          .speculation = REEL_SPECULATION_OFF };
    good(reel_generate(t.session, &more, NULL, &f.err));
    t.n_more = reel_session_length(t.session) - N_PROMPT - t.n;
    memcpy(t.ids, reel_session_ids(t.session) + N_PROMPT, (size_t)(t.n + t.n_more) * sizeof *t.ids);
    reel_session_close(t.session);
    return t;
}

/* Returns what it took with drafts. */
static struct reel_generation_result assert_same(const struct kind *k) {
    int32_t stop = -1;
    if (k->stops_at) {
        struct kind whole = *k;
        whole.stops_at = 0;
        stop = tell(&whole, false, NULL).ids[k->stops_at];
    }
    const int32_t *stop_id = k->stops_at ? &stop : NULL;
    const struct tale without = tell(k, false, stop_id), with = tell(k, true, stop_id);
    assert_int_equal(without.result.n_drafted, 0);
    assert_int_equal(with.n, without.n);
    assert_int_equal(with.n_more, without.n_more);
    assert_int_equal(with.result.reason, without.result.reason);
    assert_memory_equal(with.ids, without.ids,
                        (size_t)(without.n + without.n_more) * sizeof *with.ids);
    return with.result;
}

static int start(void **state) {
    (void)state;
    f.gpu = sim_gpu_controls();
    f.gpu.cuda->gpu.n_sms = 4;
    sim_model_open(&f.m, "q3-a");
    sim_model_open(&f.own, "q3-a");
    sim_model_open(&f.other, "q3-e");
    sim_model_open(&f.longer, "qw2-p"); /* its vocabulary is padded */
    good(sim_model_load(&f.m, SMALL, &f.err));
    good(sim_model_load(&f.own, SMALL, &f.err));
    good(sim_model_load(&f.other, SMALL, &f.err));
    good(sim_model_load(&f.longer, SMALL, &f.err));
    return 0;
}
static int stop(void **state) {
    (void)state;
    sim_model_close(&f.m);
    sim_model_close(&f.own);
    sim_model_close(&f.other);
    return 0;
}
static int stop_all(void **state) {
    sim_model_close(&f.longer);
    return stop(state);
}

/* The first launch begins with the prompt's last row, and makes some ids without. */
static void a_model_guesses_right_for_itself(void **state) {
    (void)state;
    const float temperatures[] = { 0, 0.7f };
    for (int i = 0; i < 2; i++) {
        const struct reel_generation_result r = assert_same(
            &(struct kind){ .temperature = temperatures[i], .max_tokens = 40, .most_drafts = 3 });
        printf("%d ids, %d passes, %d drafts, %d right\n", r.n_tokens, r.n_passes, r.n_drafted,
               r.n_accepted);
        assert_true(r.n_drafted >= 9);
        assert_true(r.n_passes <= 16);
        assert_true(r.n_accepted >= r.n_drafted - 2); /* a prompt is read by other kernels */
    }
}

static void a_model_that_knows_nothing_changes_nothing(void **state) {
    (void)state;
    const struct kind wrong = { .draft = f.other.gpu, .most_drafts = 3 };
    const struct kind drawn = { .draft = f.other.gpu, .temperature = 0.5f };
    const struct reel_generation_result r = assert_same(&wrong);
    assert_true(r.n_accepted < r.n_drafted);
    assert_true(r.n_drafted > 2 * r.n_passes); /* it is asked before every pass */
    assert_true(assert_same(&drawn).n_drafted > 0);
    const struct kind many = { .draft = f.other.gpu, .most_drafts = 7 };
    assert_true(assert_same(&many).n_drafted > 7);
}

/* A guess beyond the shorter vocabulary is none, and a column is not given what it has no row for.
 */
static void a_vocabulary_may_be_padded(void **state) {
    (void)state;
    const float temperatures[] = { 0, 1, 5 };
    for (int i = 0; i < 3; i++) {
        const struct kind longer = { .draft = f.longer.gpu,
                                     .temperature = temperatures[i],
                                     .most_drafts = 3 };
        const struct kind shorter = { .model = f.longer.gpu,
                                      .draft = f.own.gpu,
                                      .temperature = temperatures[i],
                                      .most_drafts = 3 };
        (void)assert_same(&longer);  /* which may have nothing to say at all */
        (void)assert_same(&shorter); /* likewise, behind an id that it does not know */
    }
    const struct share share = share_of("padded-ends", 3);
    for (int n = 4; n < 14; n++) { /* the guesses for the last pass are still there */
        if (!share_has(share, n)) continue;
        struct tale t = { .refuse_at = n };
        const struct reel_sampling wild = { .size = sizeof wild, .temperature = 9, .seed = 2 };
        const struct reel_generation g = { .size = sizeof g,
                                           .sampling = &wild,
                                           .max_tokens = 30,
                                           .ignore_stop_ids = true,
                                           .on_token = on_token,
                                           .user = &t,
                                           .speculation = REEL_SPECULATION_DRAFT,
                                           .most_drafts = 5 };
        open_session(&(struct kind){ .draft = f.longer.gpu }, true, &t);
        good(reel_generate(t.session, &g, NULL, &f.err));
        const struct reel_session *draft = t.session->draft->session;
        assert_true(draft->length > N_PROMPT);
        for (int i = 0; i < draft->length; i++)
            assert_true(draft->ids[i] < f.m.vocab);
        reel_session_close(t.session);
    }
}

static void whatever_ends_it_ends_it_there(void **state) {
    (void)state;
    const struct kind kinds[] = {
        { .max_tokens = 9 },  { .context = N_PROMPT + 14 }, { .refuse_at = 11 },
        { .cancel_at = 12 },  { .stops_at = 13 },           { .refuse_at = 12 },
        { .max_tokens = 10 },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        assert_true(assert_same(&kinds[i]).n_drafted > 0);
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

static void it_guesses_where_it_pays(void **state) {
    (void)state;
    (void)assert_same(&(struct kind){ .speculation = REEL_SPECULATION_AUTO, .max_tokens = 60 });
}

/* One on the GPU, the other on the CPU. */
static void devices_may_differ(void **state) {
    (void)state;
    assert_true(assert_same(&(struct kind){ .draft = f.own.cpu }).n_accepted > 0);
    const struct kind beside = { .model = f.m.cpu, .draft = f.own.gpu };
    assert_true(assert_same(&beside).n_accepted > 0);
    const struct kind penalised = { .model = f.m.cpu, .draft = f.own.gpu, .penalised = true };
    assert_true(assert_same(&penalised).n_drafted > 0);
}

/* ---- two sessions ---- */

struct speaker {
    pthread_t thread;
    struct kind kind;
    struct tale tale;
};
static void *speak(void *user) {
    struct speaker *s = user;
    s->tale = tell(&s->kind, true, NULL);
    return NULL;
}

/* They decode together where both do, and each alone before and behind that. */
static void sessions_guess_beside_each_other(void **state) {
    (void)state;
    struct speaker both[2] = { { .kind = { .max_tokens = 30 } },
                               { .kind = { .max_tokens = 12, .temperature = 0.5f } } };
    const struct tale without[2] = { tell(&both[0].kind, false, NULL),
                                     tell(&both[1].kind, false, NULL) };
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&both[i].thread, NULL, speak, &both[i]), 0);
    for (int i = 0; i < 2; i++) {
        pthread_join(both[i].thread, NULL);
        assert_int_equal(both[i].tale.n, without[i].n);
        assert_memory_equal(both[i].tale.ids, without[i].ids,
                            (size_t)without[i].n * sizeof(int32_t));
    }
}

/* ---- recurrent states ---- */

static int start_recurrent(void **state) {
    (void)state;
    f.gpu = sim_gpu_controls();
    f.gpu.cuda->gpu.n_sms = 4;
    sim_model_open(&f.m, "q35-p");
    sim_model_open(&f.own, "q35-p");
    sim_model_open(&f.other, "q3-a");
    good(sim_model_load(&f.m, SMALL, &f.err));
    good(sim_model_load(&f.own, SMALL, &f.err));
    good(sim_model_load(&f.other, SMALL, &f.err));
    return 0;
}

/* Guesses that were wrong have moved the draft model's state on, and it goes back. */
static void states_go_where_the_ids_go(void **state) {
    (void)state;
    const struct kind own = { .max_tokens = 14, .most_drafts = 3 },
                      by_attention = { .draft = f.other.gpu, .max_tokens = 12 },
                      for_attention = { .model = f.other.gpu,
                                        .draft = f.own.gpu,
                                        .max_tokens = 12 };
    assert_true(assert_same(&own).n_accepted > 0);
    assert_true(assert_same(&by_attention).n_drafted > 0);
    assert_true(assert_same(&for_attention).n_drafted > 0);
}

static void a_hybrid_ends_there_too(void **state) {
    (void)state;
    const struct kind kinds[] = { { .max_tokens = 12, .refuse_at = 9 },
                                  { .max_tokens = 12, .refuse_at = 10 },
                                  { .max_tokens = 12, .stops_at = 8 } };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        (void)assert_same(&kinds[i]);
}

/* What the session's state is behind a generation: bytes for free. */
static void *state_behind(const struct kind *k, bool drafts, size_t *n_bytes, int *n_right) {
    struct tale t = { 0 };
    const struct reel_generation g = {
        .size = sizeof g,
        .max_tokens = k->max_tokens,
        .ignore_stop_ids = true,
        .speculation = drafts ? REEL_SPECULATION_DRAFT : REEL_SPECULATION_OFF,
        .on_token = on_token,
        .user = &t,
    };
    struct reel_generation_result result = { .size = sizeof result };
    open_session(k, drafts, &t);
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
    for (int n = 11; n <= 14; n++) { /* the last pass has all of its drafts right, or fewer */
        const struct kind k = { .max_tokens = n };
        size_t n_bytes = 0, n_with = 0;
        int n_right = 0;
        void *without = state_behind(&k, false, &n_bytes, &n_right);
        assert_int_equal(n_right, 0);
        void *with = state_behind(&k, true, &n_with, &n_right);
        assert_true(n_right > 0);
        assert_int_equal(n_with, n_bytes);
        assert_memory_equal(with, without, n_bytes);
        free(with);
        free(without);
    }
}

/* ---- a prompt's last row ---- */

#define PROMPTS                                                                                    \
    "n_groups=1,group_sms=6,warps=4,prefill_tokens=128,prefill_from=4,short_positions=0,poison=1"

static int start_prompts(void **state) {
    (void)state;
    f.gpu = sim_gpu_controls();
    f.gpu.cuda->gpu.n_sms = 6;
    sim_model_open(&f.m, "q3-p");
    sim_model_open(&f.own, "q3-p");
    sim_model_open(&f.other, "q35-p");
    good(sim_model_load(&f.m, PROMPTS, &f.err));
    good(sim_model_load(&f.own, PROMPTS, &f.err));
    good(sim_model_load(&f.other, PROMPTS, &f.err));
    return 0;
}

/* Decoding begins with it, in a launch without drafts; those come behind it. */
static void a_prompt_is_gone_on_from_with_the_same_ids(void **state) {
    (void)state;
    struct tale t = { 0 };
    open_session(&(struct kind){ 0 }, true, &t);
    assert_int_equal(t.session->state->last_row_end, N_PROMPT);
    reel_session_close(t.session);
    const struct kind kinds[] = {
        { .max_tokens = 1 },
        { .max_tokens = 2, .temperature = 0.6f },
        { .max_tokens = 18 },
        { .max_tokens = 18, .temperature = 0.6f, .pulled = true },
        { .max_tokens = 12, .draft = f.other.gpu },
        { .max_tokens = 12, .model = f.other.gpu, .draft = f.m.gpu },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct reel_generation_result r = assert_same(&kinds[i]);
        if (kinds[i].max_tokens > 2) assert_true(r.n_drafted > 0);
    }
}

int main(void) {
    struct CMUnitTest tests[] = {
        in_turn(a_model_guesses_right_for_itself),
        in_turn(a_model_that_knows_nothing_changes_nothing),
        in_turn(a_vocabulary_may_be_padded),
        in_turn(whatever_ends_it_ends_it_there),
        in_turn(no_pass_has_more_drafts_than_allowed),
        in_turn(pulled_ids_are_those_without),
        in_turn(with_penalties_there_are_none),
        in_turn(it_guesses_where_it_pays),
        in_turn(devices_may_differ),
        in_turn(sessions_guess_beside_each_other),
    };
    const struct CMUnitTest recurrent[] = {
        cmocka_unit_test(states_go_where_the_ids_go),
        cmocka_unit_test(a_hybrid_ends_there_too),
        cmocka_unit_test(a_state_is_that_without),
    };
    const struct CMUnitTest prompts[] = {
        cmocka_unit_test(a_prompt_is_gone_on_from_with_the_same_ids),
    };
    /* Most of the time goes into compiling for models, so a run has those of one group. */
    const struct share share = share_of("cuda-draft-model", 4);
    int failed = 0;
    if (share_has(share, 0) || share_has(share, 1)) {
        SHARE_TESTS("cuda-draft-model-dense", 2, tests);
        failed += cmocka_run_group_tests(tests, start, stop_all);
    }
    if (share_has(share, 2)) failed += cmocka_run_group_tests(recurrent, start_recurrent, stop);
    if (share_has(share, 3)) failed += cmocka_run_group_tests(prompts, start_prompts, stop);
    return failed;
}
