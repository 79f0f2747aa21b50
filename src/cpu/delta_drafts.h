/* DeltaNet layers in passes with drafts. A recurrent state cannot go back, so a draft does not
 * touch it: in a pass it is tried on a copy of some columns at a time, which stay in the cache, and
 * its inputs are kept. The drafts that were right are owed to the state (recurrent.h). The next
 * pass pays them where it has the state's columns in hand anyway, by the same steps as if each had
 * been a pass of its own; so a state is read and written once for each pass, and a draft that was
 * wrong costs no more than its step. Whoever needs the state itself in between pays here. */
#ifndef REEL_CPU_DELTA_DRAFTS_H
#define REEL_CPU_DELTA_DRAFTS_H

#include "cpu/engine.h"

/* Columns [first, first + n) of a head's state take what is owed, then the run's position; what
 * follows it as drafts is tried. Scratch: delta_scratch_floats. */
void delta_drafts_run(const struct engine_run *run, const struct layer_weights *layer, int head,
                      int first, int n, float *scratch);

/* Keeps a draft's row of `projected`, all of whose channels have been convolved. */
void delta_drafts_note(const struct engine_run *column, const struct layer_weights *layer);

/* Channels [first, first + n) of a layer's window move on by n_owed of the kept inputs. */
void delta_drafts_move(const struct recurrent *r, int layer, float *window, int n_owed, int first,
                       int n);

/* Of the drafts of the pass that has ended `n` were right. Where the state of a checkpoint lies
 * among them, they are paid at once. */
void delta_drafts_keep(const struct engine *engine, struct recurrent *r, int n);

/* Before anything but a pass goes on from `position`: what is owed up to there is paid. */
void delta_drafts_pay(const struct engine *engine, struct recurrent *r, int position);

/* The same for values that recurrent_save or recurrent_copy gave as the state of `position`. */
void delta_drafts_pay_copy(const struct engine *engine, const struct recurrent *r, int position,
                           float *values);

#endif
