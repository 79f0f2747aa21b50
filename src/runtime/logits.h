/* Looking through a vector of logits. The vector is cut into blocks and the largest logit of each
 * block is found first, at the speed of memory; everything after that touches only the blocks that
 * can matter. NaN and -infinity are never found by any of these. */
#ifndef REEL_RUNTIME_LOGITS_H
#define REEL_RUNTIME_LOGITS_H

#include <stdint.h>

#define LOGITS_BLOCK 256

static inline int logits_blocks(int n) { return (n + LOGITS_BLOCK - 1) / LOGITS_BLOCK; }

/* block_max: f32 [logits_blocks(n)], -infinity for a block without a number. */
void logits_block_max(const float *logits, int n, float *block_max);

/* The lowest id of the largest logit, or -1. */
int32_t logits_argmax(const float *logits, int n, const float *block_max);

/* The ids whose logit is at least `least`, ascending; returns how many. */
int logits_collect(const float *logits, int n, const float *block_max, float least, int32_t *ids);

/* The k-th largest of n numbers (none NaN), 1 <= k <= n, counting equal ones separately. */
float logits_kth_largest(const float *values, int n, int k);

/* The ids of the k largest logits, and of all that tie with the k-th, ascending. `values` is
 * scratch for n numbers; fewer than k ids come back when there are fewer numbers. */
int logits_top(const float *logits, int n, const float *block_max, int k, int32_t *ids,
               float *values);

#endif
