/* Mono float32 of any rate to 16,000 Hz, as it comes: libsoxr's high-quality recipe (20 bits),
 * which is librosa's default and so what the models' references resampled with. */
#ifndef REEL_AUDIO_RESAMPLE_H
#define REEL_AUDIO_RESAMPLE_H

#include "base/error.h"

struct resample;

enum reel_status resample_open(struct resample **out, int rate, struct reel_error *err);

/* Takes *n_taken of n_in samples and gives *n_given of room for n_out (at least 1). The same bits
 * however the input is cut. NULL `in` is the end: from then on call with NULL until nothing is
 * given. In all ceil(samples taken * 16000 / rate) are given. */
enum reel_status resample_run(struct resample *r, const float *in, size_t n_in, size_t *n_taken,
                              float *out, size_t n_out, size_t *n_given, struct reel_error *err);

void resample_close(struct resample *r);

#endif
