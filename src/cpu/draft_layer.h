/* The draft layer of a model on the fast path: guesses of the ids that follow. For each position it
 * has keys and values of its own, in a slot made of the position's hidden state and the id behind
 * it. A state of it follows a session: it takes note of what was evaluated, and makes slots when it
 * is asked for a guess or has many to make. Nothing here changes what the session says. */
#ifndef REEL_CPU_DRAFT_LAYER_H
#define REEL_CPU_DRAFT_LAYER_H

#include "cpu/engine.h"
#include "model/draft_model.h"

struct draft_layer; /* one per backend */

/* weights have a draft layer; they, config and the engine outlive it. */
enum reel_status draft_layer_open(struct draft_layer **out, const struct model_config *config,
                                  const struct weights *weights, const struct engine *engine,
                                  struct reel_error *err);
void draft_layer_close(struct draft_layer *layer);

struct draft_state; /* one per session that asks for guesses */

enum reel_status draft_state_open(struct draft_state **out, struct draft_layer *layer,
                                  int max_positions, struct reel_error *err);
void draft_state_close(struct draft_state *state);

/* Where an evaluation of n positions from `position` on, at most T_CHUNK, puts what the layer wants
 * of them (engine_run.hidden): f32 [n, draft_state_width]. */
float *draft_state_hidden(struct draft_state *state, int position);
size_t draft_state_width(const struct draft_state *state);
/* Those positions had these ids, or embeddings where ids is NULL; the first n_kept of them count.
 */
void draft_state_saw(struct draft_state *state, int position, const int32_t *ids, int n_kept);

/* The session holds something else. */
void draft_state_forget(struct draft_state *state);
/* Positions from n on are not needed any more. */
void draft_state_keep(struct draft_state *state, int n);

/* As backend_ops.guess. 0: what was evaluated before is not known. */
int draft_state_guess(struct draft_state *state, int position, int32_t id, int32_t *ids, int most,
                      float *logits);

#endif
