/* Which earlier states of a session are kept beside the live one. A recurrent state, unlike keys
 * and values, cannot be cut back to an earlier position, so a few are kept: where an evaluation of
 * several positions begins, so that one that breaks off leaves it intact; before its last position,
 * so that its logits can be had again for the price of one position; every CHECKPOINT_STEP
 * positions while tokens are decoded. When room is short, the one goes whose loss costs least for
 * how far back it lies. Position 0 needs none. Only positions are counted here: whoever has the
 * states copies them as it is told. */
#ifndef REEL_PLAN_CHECKPOINTS_H
#define REEL_PLAN_CHECKPOINTS_H

#include "plan/memory_plan.h"

enum { CHECKPOINT_STEP = 256 };

/* Instead of one of the MEMORY_PLAN_CHECKPOINTS slots: nothing to copy; the state of nothing. */
enum { CHECKPOINT_NONE = -1, CHECKPOINT_ZERO = -2 };

struct checkpoints {
    int n_positions; /* that the live state has seen, -1 inside a run or after one broke off */
    int position[MEMORY_PLAN_CHECKPOINTS]; /* of a slot's state; 0: free */
};

/* The live state was replaced by that of n_positions, or is unknown (-1): no other is kept. */
void checkpoints_reset(struct checkpoints *c, int n_positions);

/* The slot of a position, or CHECKPOINT_NONE. */
int checkpoints_find(const struct checkpoints *c, int position);

/* The last position up to n from which evaluation can go on. */
int checkpoints_resume(const struct checkpoints *c, int n);

/* Goes to `position`, one that resume gives, and forgets what lies beyond. Returns what is to be
 * copied into the live state: a slot, zeros, or nothing. */
int checkpoints_go(struct checkpoints *c, int position);

/* The slot that the live state, of this position, is to be copied into, or CHECKPOINT_NONE. The one
 * of position `spared` stays. */
int checkpoints_keep(struct checkpoints *c, int position, int spared);

/* A free slot for the state of `end`, beyond all others, which is still to come. */
int checkpoints_take(struct checkpoints *c, int end, int spared);

#endif
