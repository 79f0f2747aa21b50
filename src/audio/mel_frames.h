/* Samples to log10 of mel powers, MEL_LANES frames at once.
 *
 * Everything up to the powers is in double precision. A float32 transform leaves errors of 1e-7 of
 * a frame's loudest part in its quiet parts, which after the logarithm are as large as what a
 * float32 reference is wrong by itself; the sum of both would pass 1e-4. With a frame in each lane
 * of a vector, double precision costs less than a float32 transform of one frame after the other.
 */
#ifndef REEL_AUDIO_MEL_FRAMES_H
#define REEL_AUDIO_MEL_FRAMES_H

#include "audio/mel.h"

enum {
    MEL_LANES = 4,
    MEL_POWERS = MEL_WINDOW / 2 + 1,                  /* 0 to 8 kHz in steps of 40 Hz */
    MEL_WEIGHTS = 2 * MEL_POWERS,                     /* a power counts in at most two bins */
    MEL_READ = MEL_WINDOW + (MEL_LANES - 1) * MEL_HOP /* samples of MEL_LANES frames */
};

#define MEL_POWER_FLOOR 1e-10f
#define MEL_LOG_FLOOR   (-10.0f)

/* Powers [first, first + n) make up a bin, with weights from `at` on. */
struct mel_filter {
    int first, n, at;
};

struct mel_tables {
    double window[MEL_WINDOW];                   /* Hann's, periodic */
    double cosine[MEL_WINDOW], sine[MEL_WINDOW]; /* of t turns / MEL_WINDOW */
    struct mel_filter filters[MEL_BINS];
    double weights[MEL_WEIGHTS]; /* float32's values, as the reference has them */
};

void mel_tables_make(struct mel_tables *t);

/* logs: f32 [MEL_LANES, MEL_BINS] of the frames that begin at samples[0], [MEL_HOP], ... The same
 * bits from each. */
typedef void mel_frames_fn(const struct mel_tables *t, const float *samples, float *logs);
mel_frames_fn mel_frames_portable, mel_frames_avx2;

/* The fastest that this machine runs. */
mel_frames_fn *mel_frames_pick(void);

#endif
