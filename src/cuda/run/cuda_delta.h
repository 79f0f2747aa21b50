/* What Gated DeltaNets need besides their tapes: gates and constants of the model, recurrent states
 * of sessions. All of it does nothing for a model without such layers. */
#ifndef REEL_CUDA_CUDA_DELTA_H
#define REEL_CUDA_CUDA_DELTA_H

#include "cuda/run/cuda_state.h"
#include "kernels/prefill_args.h"

enum reel_status cuda_delta_open(struct backend *b, struct reel_error *err);

void cuda_recurrent_args(const struct backend_state *s, struct delta_args *args);
/* As in backend_ops. */
int cuda_resume(const struct backend_state *s, int n);
/* Makes the live state that of `position`, one that resume gives. */
enum reel_status cuda_recurrent_rewind(struct backend_state *s, int position,
                                       struct reel_error *err);
/* Keeps the live state, that of `position`, but not in place of that of `spared`. */
enum reel_status cuda_recurrent_checkpoint(struct backend_state *s, int position, int spared,
                                           struct reel_error *err);
/* A place for the state of `position`, not that of `spared`, which a launch fills on its way; or
 * CHECKPOINT_NONE: none is needed. It is kept once the launch has ended well. */
int cuda_recurrent_reserve_slot(struct backend_state *s, int position, int spared,
                                struct prefill_delta *args);
void cuda_recurrent_commit_slot(struct backend_state *s, int slot, int position);
/* Before a launch: its state is nothing until it has ended well; and then, having been decoded up
 * to `position`: kept where it is due. */
void cuda_recurrent_invalidate(struct backend_state *s);
enum reel_status cuda_recurrent_advance(struct backend_state *s, int position,
                                        struct reel_error *err);
/* The state after n positions, one that resume gives; and behind it, in room for both, the one
 * before the last of them, where that is kept, or is among the bytes (`before`). */
bool cuda_recurrent_has_before(const struct backend_state *s, int n);
size_t cuda_recurrent_saved_bytes(const struct backend_state *s, int n, bool before);
enum reel_status cuda_recurrent_save(const struct backend_state *s, int n, void *bytes,
                                     struct reel_error *err);
enum reel_status cuda_recurrent_restore(struct backend_state *s, int n, const void *bytes,
                                        bool before, struct reel_error *err);
enum reel_status cuda_recurrent_copy(struct backend_state *dst, const struct backend_state *src,
                                     int n, struct reel_error *err);

#endif
