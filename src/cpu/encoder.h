/* The audio tower of a speech model: log-mel features in, vectors for the language model's prompt
 * out. One encoder works for one thread at a time; it borrows config and weights. */
#ifndef REEL_CPU_ENCODER_H
#define REEL_CPU_ENCODER_H

#include "model/audio_weights.h"
#include "reel.h"

struct encoder;

struct encoder_options {
    const char *cpu_path; /* as in reel_model_options */
    int n_threads;        /* likewise */
    enum reel_rounding rounding;
};

enum reel_status encoder_open(struct encoder **out, const struct audio_config *config,
                              const struct audio_weights *weights,
                              const struct encoder_options *options, struct reel_error *err);
void encoder_close(struct encoder *e);

/* Frames that see each other: pieces of as many can be encoded apart, in any order, and give the
 * same vectors as the whole. */
int encoder_window_frames(const struct encoder *e);

/* The instruction set in use: "avx512", "reference". */
const char *encoder_path(const struct encoder *e);

/* features: f32 [n_bins, n_frames], a whole number of windows or the end of a clip; n_frames is at
 * least 1. A last second that is not whole is filled up with 0 and only tokens of what is there are
 * made, also where there is no whole second. out: f32 [audio_tokens(n_frames), output_dim]. */
enum reel_status encoder_run(struct encoder *e, const float *features, int n_frames, float *out,
                             struct reel_error *err);

#endif
