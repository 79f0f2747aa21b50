/* What a prompt's last token became, with which decoding begins. */
#ifndef REEL_CUDA_CUDA_LAST_ROW_H
#define REEL_CUDA_CUDA_LAST_ROW_H

#include "cuda/run/cuda_state.h"

/* Whether the row is that of this token, with the session's state behind it: then the token's
 * launch needs the head alone. */
bool cuda_last_row_is(const struct backend_state *s, int position, int32_t id);
/* Before a launch that evaluates positions from this one on: forgets a row that depends on them. */
void cuda_last_row_invalidate(struct backend_state *s, int position);
/* Puts a copy of the row behind the launches of a prompt, of whose tokens it is `token`; b->mutex
 * is held. Once they have ended well: which token that was. */
enum reel_status cuda_last_row_queue_copy(struct backend_state *s, int token,
                                          struct reel_error *err);
void cuda_last_row_set(struct backend_state *s, int position, int32_t id);
/* The row of n positions, where one of them has it; the receiver has forgotten its own. */
size_t cuda_last_row_saved_bytes(const struct backend_state *s, int n);
enum reel_status cuda_last_row_save(const struct backend_state *s, int n, void *bytes,
                                    struct reel_error *err);
enum reel_status cuda_last_row_restore(struct backend_state *s, int n, const void *bytes,
                                       struct reel_error *err);
enum reel_status cuda_last_row_copy(struct backend_state *dst, const struct backend_state *src,
                                    int n, struct reel_error *err);

#endif
