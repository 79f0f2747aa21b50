/* Launches of one session whose passes look at drafts (docs/SPECULATION.md): kernels/columns.cu,
 * where columns follow others. */
#ifndef REEL_CUDA_CUDA_DRAFTS_H
#define REEL_CUDA_CUDA_DRAFTS_H

#include "runtime/backend.h"

#include <stdbool.h>

struct cuda_decoding;

/* How many drafts this model's passes can take of a session; 0: none. */
int cuda_drafts_possible(const struct backend *b);

/* Whether the session's settings are such that its passes can take drafts. */
bool cuda_drafts_allowed(const struct cuda_decoding *g);
/* Whether its next launch can: the programs are there. */
bool cuda_drafts_ready(const struct cuda_decoding *g);
/* Drafts of a pass at most, by the programs that are there. Sessions that the draft layer follows
 * have programs of their own, which leave hidden states. */
int cuda_drafts_most(const struct backend_state *s);
/* Has the programs made, if they are not there: those of 8 and 4 columns, or of 2 where a pass has
 * no more. wait: and waits for them. */
void cuda_drafts_make(const struct backend_state *s, bool wait);
/* One launch; delivers what it makes. expected: behind the last id, with drafts worth a pass. Where
 * they were asked for (expected->asks) it has one pass, behind which others are. */
enum reel_status cuda_drafts_launch(struct cuda_decoding *g,
                                    const struct backend_expected *expected,
                                    struct reel_error *err);

#endif
