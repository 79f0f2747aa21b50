/* Which earlier states of a session are kept as checkpoints beside the live one. A recurrent
 * state, unlike keys and values, cannot be cut back to an earlier position, so a few are kept:
 *   - where an evaluation of several positions begins, so that one that breaks off leaves it
 *     intact;
 *   - before the last position of an evaluation, so that its logits can be had again for the price
 *     of one position;
 *   - behind it, on a GPU: launches that decode run ahead of who takes their ids. When he stops,
 *     what he took is decoded once more from there, and no prompt is read again;
 *   - every CHECKPOINT_STEP positions while tokens are decoded.
 * When room is short, the state goes whose loss costs least for how far back it lies. Position 0
 * needs none. This file only counts positions: the caller has the states and copies them as it is
 * told. */
#ifndef REEL_PLAN_CHECKPOINTS_H
#define REEL_PLAN_CHECKPOINTS_H

#include "plan/memory_plan.h"

enum { CHECKPOINT_STEP = 256 };

/* What stands for a slot: CHECKPOINT_NONE, nothing is to be copied; CHECKPOINT_ZERO, the state
 * before any position, all zeros. */
enum { CHECKPOINT_NONE = -1, CHECKPOINT_ZERO = -2 };

struct checkpoints {
    int n_positions; /* positions that the live state has seen; -1: unknown, inside a run or after
                        one broke off */
    int position[MEMORY_PLAN_CHECKPOINTS]; /* of a slot's state; 0: free */
};

/* Notes that the live state is now that of n_positions, or unknown (-1), and forgets all
 * checkpoints. */
void checkpoints_reset(struct checkpoints *c, int n_positions);

/* The slot of a position, or CHECKPOINT_NONE. */
int checkpoints_find(const struct checkpoints *c, int position);

/* The last position up to n from which evaluation can go on. */
int checkpoints_resume(const struct checkpoints *c, int n);

/* Makes `position`, which checkpoints_resume gave, the live one and forgets what lies beyond.
 * Returns what the caller must copy into the live state: a slot, CHECKPOINT_ZERO or
 * CHECKPOINT_NONE. */
int checkpoints_go(struct checkpoints *c, int position);

/* Chooses the slot that the caller must copy the live state, of this position, into; or
 * CHECKPOINT_NONE. The slot of position `spared` stays. */
int checkpoints_keep(struct checkpoints *c, int position, int spared);

/* Frees a slot for the state of `end`, which lies beyond all others and is still to come, and
 * returns it. The slots of position `spared` and of the one before `end` stay. */
int checkpoints_take(struct checkpoints *c, int end, int spared);

#endif
