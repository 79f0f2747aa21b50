/* A session over the fake backend, and what a fresh one would generate. Failures fail the test. */
#ifndef REEL_TESTS_SESSION_FIXTURE_H
#define REEL_TESTS_SESSION_FIXTURE_H

#include "support/fake_backend.h"

struct fixture {
    struct fake_settings set;
    struct reel_model *model;
    struct reel_session *session;
    struct reel_error err;
};

#define N_PROMPT 8
extern const int32_t prompt[N_PROMPT];

struct reel_session *open_session(struct fixture *f, int max_context);
void fixture_start(struct fixture *f, bool decodes);
void fixture_stop(struct fixture *f);
bool error_empty(const struct reel_error *err);
void sync_to(struct fixture *f, struct reel_session *s, const int32_t *ids, int n);
void assert_holds(const struct reel_session *s, const int32_t *ids, int n);
int32_t greedy(const int32_t *ids, int n);
/* What a fresh session would generate greedily, into ids from n on. */
void expect_greedy(int32_t *ids, int n, int n_new);
struct reel_generation wanted(int max_tokens);
struct reel_generation_result generate(struct fixture *f, struct reel_session *s,
                                       const struct reel_generation *g);
/* Generates n ids and checks them and the session against a fresh timeline. */
void assert_goes_on(struct fixture *f, struct reel_session *s, int n_new);

#endif
