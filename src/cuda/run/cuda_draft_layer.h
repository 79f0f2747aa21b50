/* The draft layer of a model on the GPU (docs/SPECULATION.md): guesses of the ids that follow. The
 * layer is a model of its own, of one layer, in whose launches positions are slots; a slot is made
 * of a position's hidden state and the id behind it (kernels/draft_input.cu). It is opened when the
 * first session asks for guesses. A session that follows takes note of what was evaluated, and
 * makes slots when it is asked for a guess or has many to make. Nothing here changes what the
 * session says; where the layer fails, it guesses no more. */
#ifndef REEL_CUDA_CUDA_DRAFT_LAYER_H
#define REEL_CUDA_CUDA_DRAFT_LAYER_H

#include "base/error.h"
#include "cuda/driver/driver.h"

#include <stdbool.h>
#include <stdint.h>

struct backend;
struct backend_state;
struct columns_args;
struct model;
struct plan;
struct cuda_draft_layer; /* a model's */
struct cuda_draft_state; /* a session's */

/* Whether the model has a draft layer that runs here. */
bool cuda_guesses(const struct backend *b);
/* Has the model's programs leave what its EAGLE-3 head sees, where it has one and they can. */
void cuda_draft_plan(struct plan *plan, const struct model *model);
void cuda_draft_layer_close(struct backend *b);

/* As backend_ops have them. The first call on a model compiles and loads. */
enum reel_status cuda_guess_begin(struct backend_state *s, struct reel_error *err);
int cuda_guess(struct backend_state *s, int position, int32_t id, int32_t *ids, int most,
               float *logits);

/* The same in steps, for a launch of columns.cu that finds its drafts on the device. Puts guesses
 * into the queue, without waiting; returns how many. Each one leaves its id on the
 * device: cuda_guesses_give says where that is. Before the state is used for
 * anything else the guesses are taken: that waits for all, and returns how many there are before
 * the first that has failed. */
int cuda_guesses_queue(struct backend_state *s, int position, int32_t id, int most);
void cuda_guesses_give(const struct backend_state *s, struct columns_args *args);
int cuda_guesses_take(struct backend_state *s, int32_t *ids);

/* From here on these take a session that may follow or not. */

void cuda_draft_state_close(struct backend_state *s);
/* The session holds something else. */
void cuda_draft_forget(struct backend_state *s);
/* Positions from n on are not needed any more. */
void cuda_draft_keep(struct backend_state *s, int n);

/* Bytes that are known of a position: f32 [hidden], or of an EAGLE-3 head's [DRAFT_TAPS, hidden].
 */
size_t cuda_draft_row_bytes(const struct backend *b);
/* Where launches that evaluate positions from `position` on leave their hidden states, or taps:
 * [gpu_most_given] rows. 0: the session does not follow. */
cu_address cuda_draft_hidden(struct backend_state *s, int position);
/* Whether a session follows, and its layer does not know what lies before `position`: it will when
 * the id there has been through a pass. */
bool cuda_draft_lags(const struct backend_state *s, int position);
/* Puts a copy of the residual streams that a prompt's launch of n tokens leaves (cuda_prefill.h)
 * there; it belongs right behind that launch, with b->mutex held. */
enum reel_status cuda_draft_queue_copy(struct backend_state *s, int n, struct reel_error *err);
/* Those n positions had these ids, or embeddings where ids is NULL. raw: what lies there is
 * residual streams; else they are behind the final norm. */
void cuda_draft_saw(struct backend_state *s, int position, const int32_t *ids, int n, bool raw);

#endif
