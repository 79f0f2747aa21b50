/* Passes of several sessions (docs/BATCHES.md), by programs of several columns. */
#ifndef REEL_CUDA_CUDA_STEP_H
#define REEL_CUDA_CUDA_STEP_H

struct backend;
struct backend_batch;

/* Columns of a pass, at most; 0: this model has none. */
int cuda_step_columns(const struct backend *b);
/* As backend_ops have it. The programs are made when several sessions decode for the first time.
 * Until one with room for them is there, they take turns of a few tokens within the step. */
void cuda_step(struct backend *b, const struct backend_batch *batch);

#endif
