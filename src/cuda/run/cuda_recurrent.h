/* The recurrent states of a session: the live one, which launches move on, and a few earlier ones
 * (plan/checkpoints.h). All of it does nothing for a model without Gated DeltaNets.
 *
 * A state is a piece of a pool of the model. Keeping a state, going back to one and copying a
 * session share pieces. Before a launch moves a state on that others hold too, the session takes a
 * piece of its own and copies it. */
#ifndef REEL_CUDA_CUDA_RECURRENT_H
#define REEL_CUDA_CUDA_RECURRENT_H

#include "cuda/run/cuda_pool.h"
#include "kernels/prefill_args.h"
#include "plan/checkpoints.h"

struct backend;
struct backend_state;

/* What a session holds. */
struct cuda_recurrent {
    struct cuda_piece live;
    struct cuda_piece kept[MEMORY_PLAN_CHECKPOINTS]; /* of the slots of `checkpoints` */
    struct checkpoints checkpoints;
};

/* Opens the model's pool of states. */
enum reel_status cuda_recurrent_open_pool(struct backend *b, struct reel_error *err);
/* Holds nothing. */
void cuda_recurrent_open(struct backend_state *s);
void cuda_recurrent_close(struct backend_state *s);

/* As in backend_ops. */
int cuda_resume(const struct backend_state *s, int n);
/* Makes the live state that of `position`, one that resume gives. */
enum reel_status cuda_recurrent_rewind(struct backend_state *s, int position,
                                       struct reel_error *err);
/* Before a launch that goes on from the live state: makes that the session's own, says in *args
 * where it is, and takes it for nothing until the launch has ended well. */
enum reel_status cuda_recurrent_begin(struct backend_state *s, struct delta_args *args,
                                      struct reel_error *err);
/* A launch has ended well that moved the state to `position`. _advance: by decoding; the state is
 * kept where it is due. */
void cuda_recurrent_moved(struct backend_state *s, int position);
void cuda_recurrent_advance(struct backend_state *s, int position);
/* Keeps the live state, that of `position`, but not in place of that of `spared`. */
void cuda_recurrent_checkpoint(struct backend_state *s, int position, int spared);
/* A place for the state of `position`, not that of `spared`, which a launch fills on its way; or
 * CHECKPOINT_NONE: none is needed, or there is no memory. It is kept once the launch has ended
 * well. */
int cuda_recurrent_reserve_slot(struct backend_state *s, int position, int spared,
                                struct prefill_delta *args);
void cuda_recurrent_commit_slot(struct backend_state *s, int slot, int position);
/* All states are over. */
void cuda_recurrent_clear(struct backend_state *s);

/* The state after n positions, one that resume gives; and behind it, in room for both, the one
 * before the last of them, where that is kept, or is among the bytes (`before`). */
bool cuda_recurrent_has_before(const struct backend_state *s, int n);
size_t cuda_recurrent_saved_bytes(const struct backend_state *s, int n, bool before);
enum reel_status cuda_recurrent_save(const struct backend_state *s, int n, void *bytes,
                                     struct reel_error *err);
enum reel_status cuda_recurrent_restore(struct backend_state *s, int n, const void *bytes,
                                        bool before, struct reel_error *err);
/* dst shares src's states of the first n positions. */
void cuda_recurrent_share(struct backend_state *dst, const struct backend_state *src, int n);

#endif
