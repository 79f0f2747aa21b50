/* A draft model changes how soon ids come, and nothing else: ids, texts, log-probabilities and what
 * ends a generation are those without. The demo model guesses for itself, which is always right,
 * and for the hybrid, as the hybrid does for it; all have one vocabulary. */
#include "model/vocabularies.h"
#include "runtime/guesses.h"
#include "runtime/session.h"
#include "support/golden.h"
#include "support/sanitized.h"
#include "support/shares.h"
#include "support/small_tokenizer.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { MOST = 600, MORE = 5, VERSE_IDS = 60 };

static const char verse[] = "It was a dark evening, and the rain fell on the roof. She looked at "
                            "him for a long time, and then she said that";

static struct reel_model *demo, *hybrid;
static int32_t verse_ids[VERSE_IDS];
static int n_prompt; /* of them */

/* Who makes ids, and who guesses. */
struct pair {
    struct reel_model *model, *draft;
};

struct tale {
    int32_t ids[MOST];
    float logprobs[MOST];
    int n;
    char text[8 * MOST];
    size_t n_text;
    struct reel_generation_result result;
    struct reel_session *session;
    int refuse_at, cancel_at; /* 0: never */
};

static int open_models(void **state) {
    const struct reel_model_options options = { .size = sizeof options, .device = "cpu" };
    struct reel_error err = { 0 };
    (void)state;
    golden_require(reel_model_open(&demo, "models/demo", &options, &err), &err);
    golden_require(reel_model_open(&hybrid, "models/hybrid", &options, &err), &err);
    size_t n = 0;
    golden_require(reel_encode(reel_model_tokenizer(demo), verse, strlen(verse), 0, verse_ids,
                               VERSE_IDS, &n, &err),
                   &err);
    n_prompt = (int)n;
    return 0;
}

static int close_models(void **state) {
    (void)state;
    reel_model_close(demo);
    reel_model_close(hybrid);
    return 0;
}

static struct reel_session *open_for(const struct pair *pair, int context) {
    const struct reel_session_options options = { .size = sizeof options,
                                                  .max_context = context,
                                                  .draft_model = pair->draft };
    struct reel_session *session = NULL;
    struct reel_error err = { 0 };
    golden_require(reel_session_open(&session, pair->model, &options, &err), &err);
    return session;
}

static void read_verse(struct reel_session *s) {
    struct reel_error err = { 0 };
    golden_require(reel_session_sync(s, verse_ids, n_prompt, NULL, &err), &err);
}

static bool hear(struct tale *t, const struct reel_token *token) {
    assert_true(t->n < MOST - MORE && t->n_text + token->text_bytes < sizeof t->text);
    t->logprobs[t->n] = token->logprob;
    t->ids[t->n++] = token->id;
    memcpy(t->text + t->n_text, token->text, token->text_bytes);
    t->n_text += token->text_bytes;
    if (t->n == t->cancel_at) reel_session_cancel(t->session);
    return t->n != t->refuse_at;
}
static bool on_token(void *user, const struct reel_token *token) { return hear(user, token); }

static void pull(struct reel_generation *g, struct tale *t) {
    struct reel_error err = { 0 };
    const struct reel_token *token = NULL;
    golden_require(reel_generation_start(t->session, g, &err), &err);
    do {
        golden_require(reel_generation_next(t->session, &token, &err), &err);
    } while (token && hear(t, token));
    golden_require(reel_generation_finish(t->session, &t->result, &err), &err);
}

/* What a generation on t->session says. */
static void tell(struct tale *t, const struct reel_generation *given,
                 enum reel_speculation speculation, bool pulled) {
    struct reel_error err = { 0 };
    struct reel_generation g = *given;
    t->result.size = sizeof t->result;
    g.size = sizeof g;
    g.speculation = speculation;
    g.on_token = on_token;
    g.user = t;
    if (pulled)
        pull(&g, t);
    else
        golden_require(reel_generate(t->session, &g, &t->result, &err), &err);
    assert_int_equal(t->n, t->result.n_tokens);
    assert_int_equal(t->result.n_passes + t->result.n_accepted, t->n);
    assert_true(t->result.n_accepted <= t->result.n_drafted);
}

/* In a session of its own, which then goes on without drafts: what it holds is what it should. */
static struct tale *tell_anew(const struct pair *pair, const struct reel_generation *given,
                              enum reel_speculation speculation, bool pulled, int context,
                              const struct tale *ends) {
    struct reel_error err = { 0 };
    struct tale *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->refuse_at = ends ? ends->refuse_at : 0;
    t->cancel_at = ends ? ends->cancel_at : 0;
    struct reel_session *s = t->session = open_for(pair, context);
    read_verse(s);
    tell(t, given, speculation, pulled);
    assert_int_equal(reel_session_length(s), n_prompt + t->n);
    const struct reel_generation more = { .size = sizeof more,
                                          .max_tokens = MORE,
                                          .ignore_stop_ids = true,
                                          .speculation = REEL_SPECULATION_OFF };
    golden_require(reel_generate(s, &more, NULL, &err), &err);
    memcpy(t->ids, reel_session_ids(s) + n_prompt,
           (size_t)(reel_session_length(s) - n_prompt) * sizeof *t->ids);
    reel_session_close(s);
    return t;
}

static void assert_same(const struct tale *got, const struct tale *want) {
    assert_int_equal(got->n, want->n);
    assert_memory_equal(got->ids, want->ids, (size_t)(want->n + MORE) * sizeof *want->ids);
    assert_memory_equal(got->logprobs, want->logprobs, (size_t)want->n * sizeof *want->logprobs);
    assert_int_equal(got->n_text, want->n_text);
    assert_memory_equal(got->text, want->text, want->n_text);
    assert_int_equal(got->result.reason, want->result.reason);
    assert_int_equal(got->result.stop_string, want->result.stop_string);
}

/* Each pair, pushed and pulled, always and where it pays, beside none. The sums of what was
 * guessed. */
static struct reel_generation_result compare(const struct reel_generation *g, int context,
                                             const struct tale *ends) {
    const struct pair pairs[] = { { demo, demo }, { demo, hybrid }, { hybrid, demo } };
    struct reel_generation_result sum = { 0 };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        const struct pair none = { pairs[i].model, NULL };
        struct tale *plain = tell_anew(&none, g, REEL_SPECULATION_OFF, false, context, ends);
        for (int k = 0; k < 4; k++) {
            const bool pulled = k & 1;
            struct tale *t =
                tell_anew(&pairs[i], g, k < 2 ? REEL_SPECULATION_DRAFT : REEL_SPECULATION_AUTO,
                          pulled, context, ends);
            if (pulled && ends && ends->refuse_at) /* who pulls does not say why it stops */
                t->result.reason = plain->result.reason;
            assert_same(t, plain);
            assert_null(t->result.draft_problem);
            sum.n_accepted += t->result.n_accepted;
            sum.n_drafted += t->result.n_drafted;
            free(t);
        }
        free(plain);
    }
    return sum;
}

static const struct reel_sampling drawn = {
    .size = sizeof drawn, .temperature = 0.8f, .top_k = 50, .top_p = 0.9f, .seed = 5
};
static const struct reel_sampling penalised = { .size = sizeof penalised,
                                                .temperature = 0.6f,
                                                .repetition_penalty = 1.1f,
                                                .presence_penalty = 0.2f,
                                                .seed = 6 };

static int ids_of(int n) { return SANITIZED ? 24 : n; }

/* ---- the same ids ---- */

static void ids_are_those_without_drafts(void **state) {
    (void)state;
    const struct reel_generation greedy = { .max_tokens = ids_of(120), .ignore_stop_ids = true };
    assert_true(compare(&greedy, 0, NULL).n_accepted > 0);
    const struct reel_generation sampled = { .max_tokens = ids_of(120),
                                             .ignore_stop_ids = true,
                                             .sampling = &drawn };
    assert_true(compare(&sampled, 0, NULL).n_accepted > 0);
    const struct reel_generation seen = { .max_tokens = ids_of(120),
                                          .ignore_stop_ids = true,
                                          .sampling = &penalised };
    assert_true(compare(&seen, 0, NULL).n_accepted > 0);
    const struct reel_logit_bias bias[] = { { 11, -5.0f }, { 272, 2.0f } };
    const struct reel_sampling biased = {
        .size = sizeof biased, .temperature = 0.5f, .seed = 3, .bias = bias, .n_bias = 2
    };
    const struct reel_generation other = { .max_tokens = ids_of(60), .sampling = &biased };
    assert_true(compare(&other, 0, NULL).n_accepted > 0);
}

static void log_probabilities_are_those_without_drafts(void **state) {
    (void)state;
    const struct reel_generation g = { .max_tokens = 40, .n_top_logprobs = 3, .sampling = &drawn };
    assert_true(compare(&g, 0, NULL).n_drafted > 0);
}

/* At each of these places a plain generation ends as well; with drafts in the middle of a pass. */
static void generations_end_where_they_would_without_drafts(void **state) {
    (void)state;
    const struct share share = share_of("draft-ends", 3);
    for (int n = 1; n <= (SANITIZED ? 2 : 9); n++) {
        if (!SANITIZED && !share_has(share, n)) continue;
        const struct reel_generation limited = { .max_tokens = n };
        compare(&limited, 0, NULL);
        const struct reel_generation g = { .max_tokens = 30, .ignore_stop_ids = true };
        compare(&g, 0, &(struct tale){ .refuse_at = n });
        compare(&g, 0, &(struct tale){ .cancel_at = n });
    }
    const char *const stops[] = { " the", "and " };
    const struct reel_generation stopped = { .max_tokens = 60,
                                             .stop_strings = stops,
                                             .n_stop_strings = 2 };
    compare(&stopped, 0, NULL);
    for (int room = 1; room <= (SANITIZED ? 2 : 9); room++) {
        if (!SANITIZED && !share_has(share, room)) continue;
        const struct reel_generation endless = { .ignore_stop_ids = true };
        compare(&endless, n_prompt + room + MORE, NULL);
    }
    const struct reel_generation stop_id = { .max_tokens = 60,
                                             .stop_ids = (const int32_t[]){ 11, 13, 14, 15 },
                                             .n_stop_ids = 4 };
    compare(&stop_id, 0, NULL);
}

/* ---- guesses ---- */

/* AMX rounds a position by how many are read with it. So the ids that a draft model read several at
 * a time may give another guess than the same ids one by one. */
static int wrong_guesses_at_most(void) {
    struct reel_model_info info = { .size = sizeof info };
    assert_int_equal(reel_model_get_info(demo, &info, NULL), REEL_OK);
    return strcmp(info.backend_path, "amx") == 0 ? 3 : 0;
}

/* A model knows what it will say, and draws by the same noise. */
static void a_model_guesses_right_for_itself(void **state) {
    (void)state;
    const struct pair own = { demo, demo };
    const struct reel_sampling *const samplings[] = { NULL, &drawn };
    for (int i = 0; i < 2; i++) {
        const struct reel_generation g = {
            .max_tokens = 61, .ignore_stop_ids = true, .sampling = samplings[i], .most_drafts = 4
        };
        struct tale *t = tell_anew(&own, &g, REEL_SPECULATION_DRAFT, false, 0, NULL);
        const int wrong = t->result.n_drafted - t->result.n_accepted;
        assert_in_range(wrong, 0, wrong_guesses_at_most());
        assert_in_range(t->result.n_drafted, 48,
                        48 + 4 * wrong); /* an id of the prompt; 12 passes */
        assert_in_range(t->result.n_passes, 13, 13 + wrong);
        free(t);
    }
}

static void no_more_drafts_than_wanted(void **state) {
    (void)state;
    const struct pair pair = { demo, hybrid };
    for (int most = 1; most <= REEL_MAX_DRAFTS; most++) {
        const struct reel_generation g = { .max_tokens = 40,
                                           .ignore_stop_ids = true,
                                           .most_drafts = most };
        struct tale *t = tell_anew(&pair, &g, REEL_SPECULATION_DRAFT, most & 1, 0, NULL);
        assert_true(t->result.n_drafted > 0);
        assert_true(t->result.n_drafted <= most * t->result.n_passes);
        free(t);
    }
}

static struct reel_session *draft_of(const struct reel_session *s) { return s->draft->session; }

static int n_evaluated; /* positions, by the draft model */
static enum reel_status counting_eval(struct backend_state *state, const struct backend_eval *eval,
                                      struct reel_error *err) {
    n_evaluated += eval->n;
    return cpu_backend.eval(state, eval, err);
}

/* Each id that the session holds once, and each guess but the last of a pass. */
static void the_draft_model_reads_each_id_once(void **state) {
    (void)state;
    struct backend_ops ops = cpu_backend;
    struct reel_model counted = *demo;
    const struct reel_generation g = { .max_tokens = 20, .ignore_stop_ids = true };
    ops.eval = counting_eval;
    counted.ops = &ops;
    struct tale t = { .session = open_for(&(struct pair){ hybrid, &counted }, 0) };
    read_verse(t.session);
    tell(&t, &g, REEL_SPECULATION_OFF, false);
    assert_int_equal(n_evaluated, 0); /* nobody asked it */
    int most = reel_session_length(t.session);
    for (int i = 0; i < 3; i++) {
        t.n = 0;
        tell(&t, &g, REEL_SPECULATION_DRAFT, i & 1);
        most += 20 + t.result.n_drafted;
        assert_in_range(n_evaluated, reel_session_length(t.session) - REEL_MAX_DRAFTS, most);
    }
    const int n = reel_session_length(t.session) - 1 - REEL_MAX_DRAFTS;
    assert_memory_equal(draft_of(t.session)->ids, t.session->ids, (size_t)n * sizeof(int32_t));
    reel_session_close(t.session);
}

/* ---- what happens to a session ---- */

/* It is cut back, made equal to another text, copied, saved and restored; and its draft model is
 * another session's, too. */
static void a_draft_model_follows_a_session_about(void **state) {
    (void)state;
    const struct pair pairs[] = { { demo, hybrid }, { hybrid, demo }, { demo, demo } };
    const struct reel_generation g = { .size = sizeof g,
                                       .max_tokens = 13,
                                       .ignore_stop_ids = true,
                                       .sampling = &drawn,
                                       .speculation = REEL_SPECULATION_DRAFT };
    struct reel_generation plain = g;
    plain.speculation = REEL_SPECULATION_OFF;
    for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
        struct reel_error err = { 0 };
        struct reel_generation_result r = { .size = sizeof r };
        struct reel_session *with = open_for(&pairs[p], 300);
        struct reel_session *without = open_for(&(struct pair){ pairs[p].model, NULL }, 300);
        struct reel_session *other = open_for(&pairs[p], 300);
        read_verse(with);
        read_verse(without);
        for (int i = 0; i < 12; i++) {
            golden_require(reel_generate(with, &g, &r, &err), &err);
            golden_require(reel_generate(without, &plain, NULL, &err), &err);
            assert_true(r.n_drafted > 0);
            const int n = reel_session_length(with);
            assert_int_equal(n, reel_session_length(without));
            assert_memory_equal(reel_session_ids(with), reel_session_ids(without),
                                (size_t)n * sizeof(int32_t));
            struct reel_session *both[] = { with, without };
            for (int k = 0; k < 2; k++) {
                if (i % 4 == 0) golden_require(reel_session_truncate(both[k], n - 7, &err), &err);
                if (i % 4 == 1) { /* another text behind the first half */
                    int32_t ids[300];
                    memcpy(ids, reel_session_ids(both[k]), (size_t)n * sizeof *ids);
                    ids[n / 2] = 11;
                    golden_require(reel_session_sync(both[k], ids, n / 2 + 4, NULL, &err), &err);
                }
            }
            if (i % 4 == 2) {
                golden_require(reel_session_copy(other, with, &err), &err);
                assert_int_equal(draft_of(other)->length, draft_of(with)->length);
            }
            if (i % 4 == 3) {
                const size_t n_bytes = reel_session_snapshot_bytes(with);
                void *bytes = malloc(n_bytes);
                assert_non_null(bytes);
                golden_require(reel_session_snapshot(with, bytes, n_bytes, &err), &err);
                golden_require(reel_session_restore(other, bytes, n_bytes, &err), &err);
                free(bytes);
            }
            if (i % 4 < 2) continue;
            struct reel_session *swap = with;
            with = other;
            other = swap;
        }
        reel_session_close(with);
        reel_session_close(without);
        reel_session_close(other);
    }
}

static void positions_that_are_over_are_given_back(void **state) {
    (void)state;
    struct reel_error err = { 0 };
    struct tale t = { .session = open_for(&(struct pair){ demo, hybrid }, 0) };
    const struct reel_generation g = { .max_tokens = 20, .ignore_stop_ids = true };
    read_verse(t.session);
    tell(&t, &g, REEL_SPECULATION_DRAFT, false);
    assert_true(draft_of(t.session)->length > 20);
    golden_require(reel_session_truncate(t.session, 9, &err), &err);
    assert_int_equal(draft_of(t.session)->length, 9);
    reel_session_close(t.session);
}

/* Behind the last position of the draft model there are no guesses. */
static void a_short_draft_model_guesses_as_far_as_it_goes(void **state) {
    (void)state;
    const struct reel_generation g = { .max_tokens = 40,
                                       .ignore_stop_ids = true,
                                       .most_drafts = 5 };
    struct tale *plain =
        tell_anew(&(struct pair){ demo, NULL }, &g, REEL_SPECULATION_OFF, false, 0, NULL);
    for (int room = 0; room < 20; room += 3) {
        struct tale t = { .session = open_for(&(struct pair){ demo, demo }, 0) };
        read_verse(t.session);
        draft_of(t.session)->max_context = n_prompt + room;
        tell(&t, &g, REEL_SPECULATION_DRAFT, room & 1);
        assert_memory_equal(t.ids, plain->ids, (size_t)plain->n * sizeof *t.ids);
        /* the first id is the prompt's; the last guess takes no position, and none is wrong */
        assert_in_range(t.result.n_accepted, room > 0 ? room / 2 : 0, room);
        assert_int_equal(t.result.n_accepted, t.result.n_drafted);
        assert_true(draft_of(t.session)->length <= n_prompt + room);
        assert_null(t.result.draft_problem);
        reel_session_close(t.session);
    }
    struct reel_session *s = open_for(&(struct pair){ hybrid, demo }, 2000);
    assert_int_equal(draft_of(s)->max_context, 1024); /* what demo was made for */
    reel_session_close(s);
    free(plain);
}

/* ---- what it cannot know, and what fails ---- */

/* A position that was given as an embedding has no id. */
static void behind_an_embedding_there_are_no_guesses(void **state) {
    (void)state;
    struct reel_error err = { 0 };
    float embedding[256];
    struct tale t[2] = { { .session = open_for(&(struct pair){ demo, hybrid }, 0) },
                         { .session = open_for(&(struct pair){ demo, NULL }, 0) } };
    const struct reel_generation g = { .max_tokens = 20, .ignore_stop_ids = true };
    for (int i = 0; i < 256; i++)
        embedding[i] = (float)(i % 7 - 3) * 0.02f;
    const struct reel_eval eval = {
        .size = sizeof eval, .n = 1, .embeddings = embedding, .output = REEL_OUTPUT_LAST_LOGITS
    };
    for (int i = 0; i < 2; i++) {
        read_verse(t[i].session);
        golden_require(reel_session_eval(t[i].session, &eval, &err), &err);
        tell(&t[i], &g, i ? REEL_SPECULATION_OFF : REEL_SPECULATION_DRAFT, false);
    }
    assert_int_equal(t[0].result.n_drafted, 0);
    assert_int_equal(draft_of(t[0].session)->length, 0); /* it was not given what it cannot read */
    assert_null(t[0].result.draft_problem);
    assert_memory_equal(t[0].ids, t[1].ids, sizeof t[0].ids);
    /* of another text there are some again */
    t[0].n = 0, t[0].n_text = 0;
    golden_require(reel_session_truncate(t[0].session, n_prompt, &err), &err);
    tell(&t[0], &g, REEL_SPECULATION_DRAFT, false);
    assert_true(t[0].result.n_drafted > 0);
    reel_session_close(t[0].session);
    reel_session_close(t[1].session);
}

static int evals_left;
static enum reel_status failing_eval(struct backend_state *state, const struct backend_eval *eval,
                                     struct reel_error *err) {
    if (evals_left-- <= 0) return err_set(err, REEL_E_MEMORY, "no memory is left, says the test");
    return cpu_backend.eval(state, eval, err);
}

/* A generation goes on without it, says why, and the next one tries again. */
static void a_draft_model_may_fail(void **state) {
    (void)state;
    struct backend_ops ops = cpu_backend;
    struct reel_model failing = *hybrid;
    const struct reel_generation g = { .max_tokens = 30, .ignore_stop_ids = true };
    ops.eval = failing_eval;
    failing.ops = &ops;
    struct tale *plain =
        tell_anew(&(struct pair){ demo, NULL }, &g, REEL_SPECULATION_OFF, false, 0, NULL);
    for (int n = 0; n < 9; n += 2) {
        struct tale t = { .session = open_for(&(struct pair){ demo, &failing }, 0) };
        evals_left = n;
        read_verse(t.session);
        tell(&t, &g, REEL_SPECULATION_DRAFT, n & 2);
        assert_memory_equal(t.ids, plain->ids, (size_t)plain->n * sizeof *t.ids);
        assert_non_null(t.result.draft_problem);
        assert_string_equal(t.result.draft_problem, "no memory is left, says the test");
        assert_true(t.result.n_drafted <= n);
        t.n = 0;
        tell(&t, &g, REEL_SPECULATION_OFF, false); /* the reason is not that of an earlier one */
        assert_null(t.result.draft_problem);
        evals_left = 1000;
        t.n = 0;
        tell(&t, &g, REEL_SPECULATION_DRAFT, false);
        assert_null(t.result.draft_problem);
        assert_true(t.result.n_drafted > 0);
        reel_session_close(t.session);
    }
    free(plain);
}

/* A program cancels while the draft model reads. */
static struct reel_session *to_cancel;
static enum reel_status cancelled_eval(struct backend_state *state, const struct backend_eval *eval,
                                       struct reel_error *err) {
    if (evals_left-- == 0) {
        reel_session_cancel(to_cancel);
        assert_true(atomic_load(eval->cancel)); /* it is told */
    }
    return cpu_backend.eval(state, eval, err);
}

static void cancelling_reaches_the_draft_model(void **state) {
    (void)state;
    struct backend_ops ops = cpu_backend;
    struct reel_model told = *hybrid;
    const struct reel_generation g = { .max_tokens = 30, .ignore_stop_ids = true };
    ops.eval = cancelled_eval;
    told.ops = &ops;
    for (int n = 0; n < 4; n++) {
        struct tale t = { .session = open_for(&(struct pair){ demo, &told }, 0) };
        to_cancel = t.session;
        evals_left = n;
        read_verse(t.session);
        tell(&t, &g, REEL_SPECULATION_DRAFT, n & 1);
        assert_int_equal(t.result.reason, REEL_STOP_CANCELLED);
        assert_null(t.result.draft_problem);
        assert_true(t.n < 30);
        t.n = 0; /* a request is over with the call that it was meant for */
        tell(&t, &g, REEL_SPECULATION_DRAFT, false);
        assert_int_equal(t.result.reason, REEL_STOP_MAX_TOKENS);
        assert_true(t.result.n_drafted > 0);
        reel_session_close(t.session);
    }
}

/* ---- several sessions ---- */

struct speaker {
    pthread_t thread;
    struct tale *tale;
    struct pair pair;
    enum reel_speculation speculation;
    int n;
};

static void *speak(void *user) {
    struct speaker *s = user;
    struct reel_sampling sampling = drawn;
    sampling.seed = (uint64_t)s->n;
    const struct reel_generation g = { .max_tokens = ids_of(100),
                                       .ignore_stop_ids = true,
                                       .sampling = &sampling };
    s->tale = tell_anew(&s->pair, &g, s->speculation, s->n & 1, 0, NULL);
    return NULL;
}

/* They share the model and the draft model, and one of them uses the draft model by itself. */
static void sessions_guess_beside_each_other(void **state) {
    (void)state;
    enum { N = 4 };
    struct speaker with[N], without[N];
    for (int i = 0; i < N; i++) {
        struct reel_model *model = i == 3 ? hybrid : demo;
        with[i] = (struct speaker){ .pair = { model, i == 3   ? NULL
                                                     : i == 0 ? hybrid
                                                              : demo },
                                    .speculation = i == 0   ? REEL_SPECULATION_AUTO
                                                   : i == 3 ? REEL_SPECULATION_OFF
                                                            : REEL_SPECULATION_DRAFT,
                                    .n = i };
        without[i] = (struct speaker){ .pair = { model, NULL },
                                       .speculation = REEL_SPECULATION_OFF,
                                       .n = i };
        speak(&without[i]);
    }
    for (int i = 0; i < N; i++)
        assert_int_equal(pthread_create(&with[i].thread, NULL, speak, &with[i]), 0);
    int n_drafted = 0;
    for (int i = 0; i < N; i++) {
        pthread_join(with[i].thread, NULL);
        assert_same(with[i].tale, without[i].tale);
        n_drafted += with[i].tale->result.n_drafted;
        /* One that guesses for itself is right. But what a pass made and nobody took before its
         * session left the passes is made again, and its drafts were counted with the pass's first
         * id. */
        const struct reel_generation_result *r = &with[i].tale->result;
        if (i == 1 || i == 2) assert_true(4 * r->n_accepted >= 3 * r->n_drafted);
        free(with[i].tale);
        free(without[i].tale);
    }
    assert_true(n_drafted > 0);
}

/* ---- what is refused ---- */

static void what_is_not_allowed_is_said(void **state) {
    (void)state;
    struct reel_error err = { 0 };
    struct reel_session *s = open_for(&(struct pair){ demo, NULL }, 100), *none = NULL;
    const struct reel_generation g = { .size = sizeof g, .speculation = REEL_SPECULATION_DRAFT };
    read_verse(s);
    assert_int_equal(reel_generate(s, &g, NULL, &err), REEL_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "no model guesses for this session"));
    reel_session_close(s);
    struct reel_session_options o = { .size = sizeof o, .speculation = REEL_SPECULATION_DRAFT };
    assert_int_equal(reel_session_open(&none, demo, &o, &err), REEL_E_UNSUPPORTED);
    assert_null(none);
    struct golden_model other;
    struct reel_model *synthetic = NULL, *reference = NULL;
    const struct reel_model_options options = { .size = sizeof options,
                                                .device = "cpu",
                                                .cpu_path = "reference" };
    golden_model_open(&other, "q3-a");
    golden_require(reel_model_open(&synthetic, other.folder, &options, &err), &err);
    o.draft_model = synthetic; /* which has a tokenizer of its own */
    assert_int_equal(reel_session_open(&none, demo, &o, &err), REEL_E_MISMATCH);
    assert_null(none);
    assert_non_null(strstr(err.text, "q3-a cannot guess for demo: id "));
    reel_model_close(synthetic);
    golden_model_close(&other);
    golden_require(reel_model_open(&reference, "models/demo", &options, &err), &err);
    o.draft_model = demo; /* which nobody asks: the reference takes no drafts */
    assert_int_equal(reel_session_open(&none, reference, &o, &err), REEL_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "takes no drafts"));
    o.speculation = REEL_SPECULATION_AUTO;
    golden_require(reel_session_open(&none, reference, &o, &err), &err);
    assert_null(none->draft);
    reel_session_close(none);
    /* guesses may come from anywhere */
    const struct reel_generation few = { .max_tokens = 9, .ignore_stop_ids = true };
    struct tale *plain =
        tell_anew(&(struct pair){ hybrid, NULL }, &few, REEL_SPECULATION_OFF, false, 0, NULL);
    struct tale *slow = tell_anew(&(struct pair){ hybrid, reference }, &few, REEL_SPECULATION_DRAFT,
                                  false, 0, NULL);
    assert_same(slow, plain);
    assert_true(slow->result.n_drafted > 0);
    free(plain);
    free(slow);
    reel_model_close(reference);
}

/* ---- vocabularies ---- */

/* Of 320 and 512 rows, with the same tokens. */
static void a_vocabulary_may_be_padded(void **state) {
    (void)state;
    struct golden_model files[2];
    struct reel_model *models[2];
    struct reel_error err = { 0 };
    const struct reel_model_options options = { .size = sizeof options, .device = "cpu" };
    int32_t prompt[20];
    for (int i = 0; i < 20; i++)
        prompt[i] = 30 + i * 11;
    for (int i = 0; i < 2; i++) {
        golden_model_open(&files[i], i ? "q3-c" : "q3-a");
        golden_require(reel_model_open(&models[i], files[i].folder, &options, &err), &err);
    }
    for (int i = 0; i < 6; i++) {
        struct reel_model *const model = models[i % 2], *const draft = models[1 - i % 2];
        struct reel_logit_bias
            bias[192]; /* the longer one says nothing that the other cannot read */
        for (int id = 0; id < 192; id++)
            bias[id] = (struct reel_logit_bias){ 320 + id, -50 };
        const struct reel_sampling sampling = { .size = sizeof sampling,
                                                .temperature = i < 2   ? 0
                                                               : i < 4 ? 1
                                                                       : 5,
                                                .seed = 4,
                                                .bias = bias,
                                                .n_bias = model == models[1] ? 192 : 0 };
        const struct reel_generation g = {
            .max_tokens = 60, .ignore_stop_ids = true, .sampling = &sampling, .most_drafts = 3
        };
        struct tale t[2] = { { .session = open_for(&(struct pair){ model, draft }, 200) },
                             { .session = open_for(&(struct pair){ model, NULL }, 200) } };
        assert_int_equal(t[0].session->draft->n_ids, 320);
        for (int k = 0; k < 2; k++) {
            golden_require(reel_session_sync(t[k].session, prompt, 20, NULL, &err), &err);
            tell(&t[k], &g, k ? REEL_SPECULATION_OFF : REEL_SPECULATION_DRAFT, false);
            assert_int_equal(t[k].n, 60);
            reel_session_close(t[k].session);
        }
        assert_memory_equal(t[0].ids, t[1].ids, sizeof t[0].ids);
        assert_null(t[0].result.draft_problem);
        assert_true(t[0].result.n_drafted > 0);
    }
    for (int i = 0; i < 2; i++) {
        reel_model_close(models[i]);
        golden_model_close(&files[i]);
    }
}

/* A model of a tokenizer alone. */
static void make_vocabulary(struct model *m, const char *name, int rows, int stop_id,
                            const char *from, const char *to) {
    struct reel_error err = { 0 };
    struct buffer json = { 0 };
    *m = (struct model){ .config = { .vocab = rows, .stop_ids = { stop_id }, .n_stop_ids = 1 } };
    m->name = strdup(name);
    small_tokenizer_json(&json);
    if (from) replace_once(&json, from, to);
    const struct reel_memory_file file = { "tokenizer.json", json.bytes, json.size };
    struct model_source source = { 0 };
    golden_require(model_source_open_memory(&source, "a test", &file, 1, &err), &err);
    golden_require(tokenizer_load(&m->tokenizer, &source, NULL, NULL, &err), &err);
    model_source_release(&source);
    buffer_release(&json);
}

static void release_vocabulary(struct model *m) {
    free(m->name);
    tokenizer_close(m->tokenizer);
}

static void vocabularies_are_compared(void **state) {
    (void)state;
    static const struct {
        const char *from, *to; /* changed in the draft model's tokenizer */
        int rows, stop_id;
        const char *says; /* NULL: they are the same */
        int n_ids;
    } cases[] = {
        { NULL, NULL, 263, 261, NULL, 263 },
        { NULL, NULL, 320, 261, NULL, 263 }, /* padded */
        { NULL, NULL, 262, 261, NULL, 262 }, /* the last token has no row */
        { "<think>", "<dream>", 263, 261,
          "small cannot guess for large: id 262 is \"<dream>\" there and \"<think>\" here", 0 },
        { "<think>", "<dream>", 262, 261, NULL, 262 }, /* of which it does not know */
        { "\"special\": true},\n{\"id\": 262, \"content\": \"<think>\", \"single_word\": false, "
          "\"lstrip\": false, \"rstrip\": false, \"normalized\": false, \"special\": false}]",
          "\"special\": true}]", 263, 261, NULL, 262 }, /* it has one less */
        { "\"special\": true", "\"special\": false", 263, 261,
          "small cannot guess for large: id 261 is \"<|end|>\" there and the control token "
          "\"<|end|>\" here",
          0 },
        { NULL, NULL, 263, 262,
          "small cannot guess for large: id 262 ends its texts, which is none of the ids that end "
          "those of the other, such as 261",
          0 },
    };
    struct model large, bare = { .config = { .vocab = 100 }, .name = (char[]){ "bare" } };
    struct reel_error err = { 0 };
    int n_ids = 0;
    make_vocabulary(&large, "large", 263, 261, NULL, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model small;
        make_vocabulary(&small, "small", cases[i].rows, cases[i].stop_id, cases[i].from,
                        cases[i].to);
        const enum reel_status status = vocabularies_compare(&large, &small, &n_ids, &err);
        assert_int_equal(status, cases[i].says ? REEL_E_MISMATCH : REEL_OK);
        if (cases[i].says)
            assert_string_equal(err.text, cases[i].says);
        else
            assert_int_equal(n_ids, cases[i].n_ids);
        release_vocabulary(&small);
    }
    assert_int_equal(vocabularies_compare(&large, &bare, &n_ids, &err), REEL_E_MISMATCH);
    assert_non_null(strstr(err.text, "bare has no tokenizer"));
    struct model other = bare;
    other.config.vocab = 90;
    golden_require(vocabularies_compare(&bare, &other, &n_ids, &err), &err);
    assert_int_equal(n_ids, 90);
    release_vocabulary(&large);
}

/* ---- reading what a draft model has not seen ---- */

enum { N_LONG = 300 };

/* A session behind a long prompt, of which its draft model has read nothing. */
static struct reel_session *open_behind(void) {
    static int32_t ids[N_LONG];
    struct reel_error err = { 0 };
    struct reel_session *s = open_for(&(struct pair){ demo, hybrid }, 0);
    for (int i = 0; i < N_LONG; i++)
        ids[i] = verse_ids[i % n_prompt];
    golden_require(reel_session_sync(s, ids, N_LONG, NULL, &err), &err);
    return s;
}

/* Sessions that share passes wait for a guess, and so do not wait for a prompt. */
static void others_do_not_wait_for_a_prompt(void **state) {
    (void)state;
    struct reel_error err = { 0 };
    const struct reel_generation g = { .size = sizeof g,
                                       .max_tokens = 20,
                                       .ignore_stop_ids = true,
                                       .speculation = REEL_SPECULATION_DRAFT };
    struct reel_session *s = open_behind();
    struct guess guess;
    golden_require(reel_generation_start(s, &g, &err), &err);
    struct pass_room room = { 3, &s->generation.costs, 2, 2, true, NULL };
    guesses_for_pass(s, &guess, &room);
    assert_int_equal(guess.n, 0);
    assert_int_equal(draft_of(s)->length, 0);
    guesses_catch_up(s); /* on the session's own thread */
    assert_int_equal(draft_of(s)->length, N_LONG - 1);
    guesses_for_pass(s, &guess, &room);
    assert_true(guess.n > 0);
    golden_require(reel_generation_finish(s, NULL, &err), &err);
    reel_session_close(s);
}

/* auto asks for guesses behind a prompt only where they may save what reading it takes. */
static void a_prompt_is_read_where_that_may_pay(void **state) {
    (void)state;
    struct reel_error err = { 0 };
    const struct reel_generation g = { .size = sizeof g,
                                       .max_tokens = 20,
                                       .ignore_stop_ids = true,
                                       .speculation = REEL_SPECULATION_AUTO };
    for (int pays = 0; pays < 2; pays++) {
        struct reel_session *s = open_behind();
        s->draft->step_ms = 1e-6;
        s->draft->read_ms = pays ? 1e-6 : 1e3;
        golden_require(reel_generate(s, &g, NULL, &err), &err);
        if (pays)
            assert_true(draft_of(s)->length >= N_LONG);
        else
            assert_int_equal(draft_of(s)->length, 0);
        reel_session_close(s);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(others_do_not_wait_for_a_prompt),
        cmocka_unit_test(a_prompt_is_read_where_that_may_pay),
        cmocka_unit_test(ids_are_those_without_drafts),
        cmocka_unit_test(log_probabilities_are_those_without_drafts),
        cmocka_unit_test(generations_end_where_they_would_without_drafts),
        cmocka_unit_test(a_model_guesses_right_for_itself),
        cmocka_unit_test(no_more_drafts_than_wanted),
        cmocka_unit_test(the_draft_model_reads_each_id_once),
        cmocka_unit_test(a_draft_model_follows_a_session_about),
        cmocka_unit_test(positions_that_are_over_are_given_back),
        cmocka_unit_test(a_short_draft_model_guesses_as_far_as_it_goes),
        cmocka_unit_test(behind_an_embedding_there_are_no_guesses),
        cmocka_unit_test(a_draft_model_may_fail),
        cmocka_unit_test(cancelling_reaches_the_draft_model),
        cmocka_unit_test(a_vocabulary_may_be_padded),
        cmocka_unit_test(sessions_guess_beside_each_other),
        cmocka_unit_test(what_is_not_allowed_is_said),
        cmocka_unit_test(vocabularies_are_compared),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
