/* From logits to one id, in the order reel.h states. The arithmetic lives in
 * kernels/sampling.h, which the device compiles too: the same logits, seed and position give the
 * same id on both. */
#ifndef REEL_RUNTIME_SAMPLER_H
#define REEL_RUNTIME_SAMPLER_H

#include "reel.h"

struct sampler; /* settings, counts and scratch for one vocabulary; allocated once per session */

enum reel_status sampler_open(struct sampler **out, int vocab, struct reel_error *err);
void sampler_close(struct sampler *s);

/* Checks every field and forgets earlier counts. The sampling's lists are borrowed. */
enum reel_status sampler_start(struct sampler *s, const struct reel_sampling *sampling,
                               struct reel_error *err);

/* Tells the penalties about an id of the prompt, or one that was generated; -1 is passed over. */
void sampler_saw_prompt(struct sampler *s, int32_t id);
void sampler_saw_generated(struct sampler *s, int32_t id);

/* What a backend needs to draw by itself: the settings in force, with 0 and 1 already replaced by
 * what they stand for (top_k 0, top_p 0, min_p 0: off; repetition_penalty 1: none); whether any
 * penalty is on; and the ids that penalties know of, each once, with the times this call generated
 * it. Valid until the sampler is told of another id. */
const struct reel_sampling *sampler_settings(const struct sampler *s);
bool sampler_penalises(const struct sampler *s);
int sampler_held(const struct sampler *s, const int32_t **ids);
int sampler_generated(const struct sampler *s, int32_t id);

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
