/* From logits to one id, in the order reel.h states. The arithmetic lives in
 * kernels/sampling.h, which the device compiles too: the same logits, seed and position give the
 * same id on both. */
#ifndef REEL_RUNTIME_SAMPLER_H
#define REEL_RUNTIME_SAMPLER_H

#include "runtime/backend.h"

struct sampler; /* settings, counts and scratch for one vocabulary; allocated once per session */

enum reel_status sampler_open(struct sampler **out, int vocab, struct reel_error *err);
void sampler_close(struct sampler *s);

/* Checks every field and forgets earlier counts. The sampling's lists are borrowed. */
enum reel_status sampler_start(struct sampler *s, const struct reel_sampling *sampling,
                               struct reel_error *err);

/* Tells the penalties about an id of the prompt, or one that was generated; -1 is passed over. */
void sampler_saw_prompt(struct sampler *s, int32_t id);
void sampler_saw_generated(struct sampler *s, int32_t id);

/* What a backend needs to draw by itself; it follows what the sampler is told. */
const struct backend_sampling *sampler_sampling(const struct sampler *s);

/* Draws the id for `position` (the one it will have) from f32 logits [vocab], which are not
 * changed. Ids whose logit is NaN or -infinity are never drawn; +infinity counts as the largest
 * finite number. -1 when no id is left. */
int32_t sampler_draw(struct sampler *s, const float *logits, int64_t position);

/* Natural log-probabilities of the unmodified distribution: of `id`, and of the n_top most likely
 * ids (lowest id first among equals). Returns how many of those there are: fewer than n_top only
 * when fewer logits are numbers. */
int sampler_logprobs(struct sampler *s, const float *logits, int32_t id, float *logprob,
                     struct reel_top_logprob *top, int n_top);

#endif
