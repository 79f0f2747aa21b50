#include "support/session_fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

const int32_t prompt[N_PROMPT] = { 5, 3, 60, 7, 7, 2, 41, 0 };

struct reel_session *open_session(struct fixture *f, int max_context) {
    const struct reel_session_options options = { .size = sizeof options,
                                                  .max_context = max_context };
    struct reel_session *s = NULL;
    assert_int_equal(reel_session_open(&s, f->model, &options, &f->err), REEL_OK);
    return s;
}

void fixture_start(struct fixture *f, bool decodes) {
    *f = (struct fixture){ .set = { .decodes = decodes } };
    f->model = fake_model_open(&f->set, &f->err);
    if (!f->model) fail_msg("%s", f->err.text);
    f->session = open_session(f, 600);
}

void fixture_stop(struct fixture *f) {
    reel_session_close(f->session);
    fake_model_close(f->model);
}

bool error_empty(const struct reel_error *err) {
    return err->status == REEL_OK && err->text[0] == '\0';
}

void sync_to(struct fixture *f, struct reel_session *s, const int32_t *ids, int n) {
    if (reel_session_sync(s, ids, n, NULL, &f->err) != REEL_OK) fail_msg("%s", f->err.text);
}

void assert_holds(const struct reel_session *s, const int32_t *ids, int n) {
    assert_int_equal(reel_session_length(s), n);
    if (n > 0) assert_memory_equal(reel_session_ids(s), ids, (size_t)n * sizeof *ids);
}

int32_t greedy(const int32_t *ids, int n) {
    float logits[FAKE_VOCAB];
    int32_t best = 0;
    fake_logits(ids, n, logits);
    for (int i = 1; i < FAKE_VOCAB; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* What a fresh session would generate greedily, into ids from n on. */
void expect_greedy(int32_t *ids, int n, int n_new) {
    for (int i = 0; i < n_new; i++)
        ids[n + i] = greedy(ids, n + i);
}

struct reel_generation wanted(int max_tokens) {
    return (struct reel_generation){ .size = sizeof(struct reel_generation),
                                     .max_tokens = max_tokens,
                                     .ignore_stop_ids = true };
}

struct reel_generation_result generate(struct fixture *f, struct reel_session *s,
                                       const struct reel_generation *g) {
    struct reel_generation_result result = { .size = sizeof result };
    if (reel_generate(s, g, &result, &f->err) != REEL_OK) fail_msg("%s", f->err.text);
    return result;
}

/* Generates n ids and checks them and the session against a fresh timeline. */
void assert_goes_on(struct fixture *f, struct reel_session *s, int n_new) {
    int n = reel_session_length(s);
    int32_t ids[1400];
    memcpy(ids, reel_session_ids(s), (size_t)n * sizeof *ids);
    expect_greedy(ids, n, n_new);
    struct reel_generation g = wanted(n_new);
    assert_int_equal(generate(f, s, &g).n_tokens, n_new);
    assert_holds(s, ids, n + n_new);
}
