/* Mono float32 of a usual rate to 16,000 Hz for what is heard live: a sample comes out as soon as
 * 2.5 ms (of 8,000 Hz 6 ms) of what follows it are there. libsoxr, which resamples files
 * (resample.h), works in blocks and gives 24,000 Hz up to 33 ms late.
 *
 * A low-pass filter, a sinc under a Kaiser window, is evaluated at the times of the samples that
 * are wanted: flat to 7.2 kHz, 80 dB down from 8.4 kHz on where it reduces the rate. */
#ifndef REEL_AUDIO_LIVE_RESAMPLE_H
#define REEL_AUDIO_LIVE_RESAMPLE_H

#include "base/error.h"

struct live_resample;

/* rate: 8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100 or 48000. */
enum reel_status live_resample_open(struct live_resample **out, int rate, struct reel_error *err);

/* As resample_run. */
void live_resample_run(struct live_resample *r, const float *in, size_t n_in, size_t *n_taken,
                       float *out, size_t n_out, size_t *n_given);

void live_resample_close(struct live_resample *r);

#endif
