/* Who guesses for a generation, and how many of the guesses a pass is given (docs/SPECULATION.md):
 * the session's own ids (drafter.h), its model's draft layer, or a draft model (draft_session.h).
 */
#ifndef REEL_RUNTIME_GUESSES_H
#define REEL_RUNTIME_GUESSES_H

#include "runtime/session.h"

/* REEL_E_ARGUMENT where it is none. */
enum reel_status guesses_check_kind(enum reel_speculation kind, struct reel_error *err);
/* REEL_E_UNSUPPORTED where no draft model guesses for the session. */
enum reel_status guesses_check_model(const struct reel_session *s, struct reel_error *err);
/* Whether the session can do as these settings say. */
enum reel_status guesses_check(const struct reel_session *s, const struct reel_generation *set,
                               struct reel_error *err);
/* Whether the kind asks the model's draft layer, or the head in its place. */
bool guesses_ask_layer(enum reel_speculation kind);
/* From here on the model's draft layer follows the session, where this kind of speculation asks it.
 * REEL_E_UNSUPPORTED: why it cannot, where nothing else guesses. */
enum reel_status guesses_follow(struct reel_session *s, enum reel_speculation kind,
                                struct reel_error *err);

/* A generation begins that `speculates`. */
void guesses_begin(struct reel_session *s);

/* For struct column: drafts of the next pass. The drafter waits for the ids that show which were
 * right. `user` is the session. The caller has the model's turn. */
void guesses_for_pass(void *user, struct guess *guess, const struct pass_room *room);
/* The same in two steps, for a pass of the session alone: a draft model is asked before the session
 * has the model's turn, as it may be this very model; the draft layer in it, as it computes where
 * the model does. The first returns how many guesses the layer is to be asked for; 0: `guess` has
 * what there is. */
int guesses_before_turn(struct reel_session *s, struct guess *guess, const struct pass_room *room);
void guesses_in_turn(struct reel_session *s, struct guess *guess, int n,
                     const struct pass_room *room);

/* The session is about to share passes: its draft model reads what it lacks, on the session's own
 * thread, where it will be asked. */
void guesses_catch_up(struct reel_session *s);

/* Of backend_decode, with the session as user: what may come, and what became of it. */
void guesses_expect(void *user, struct backend_expected *expected, int ahead);
int guesses_between_launches(void *user, int32_t *ids, int most);
void guesses_of_layer(void *user, const int32_t *ids, int n, double ms);
void guesses_saw_passes(void *user, const struct backend_taken *taken);

#endif
