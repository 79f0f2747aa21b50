/* Log-mel features of one clip, computed while its samples come: what a speech model's encoder
 * reads. The same numbers as Hugging Face's Qwen3ASRFeatureExtractor (and Whisper's with 128 bins),
 * within float32's rounding.
 *
 * A frame is 10 ms. The features of a frame are fixed as soon as its samples are there, except for
 * the floor: nothing lies further than 8 (80 dB) below the loudest value of the whole clip, so a
 * louder sound that comes later may lift the quiet frames before it. mel_write applies the floor as
 * it stands when it is called. */
#ifndef REEL_AUDIO_MEL_H
#define REEL_AUDIO_MEL_H

#include "base/error.h"

#define MEL_RATE   16000 /* samples a second */
#define MEL_BINS   128
#define MEL_HOP    160 /* samples from frame to frame */
#define MEL_WINDOW 400 /* samples of a frame, reflected at the clip's ends */

/* What Hugging Face's extractor pads short clips to with zeros: half a second. */
#define MEL_LEAST_SAMPLES 8000

struct mel;

/* Long pushes are shared among n_threads (at least 1), the calling one included. */
enum reel_status mel_open(struct mel **out, int n_threads, struct reel_error *err);
void mel_close(struct mel *m);

/* Starts over with another clip; memory is kept. */
void mel_restart(struct mel *m);

/* n more samples at MEL_RATE; however a clip is cut into pushes, its features are the same bits.
 * Samples beyond +-1 are taken as they are; infinite ones and what is no number are refused
 * (REEL_E_ARGUMENT) before any of the push is used. After another error only mel_restart and
 * mel_close are allowed. */
enum reel_status mel_push(struct mel *m, const float *samples, size_t n, struct reel_error *err);

/* The clip ends: zeros are added until it has least_samples (0: none), then its last frame is made.
 * N samples give N / MEL_HOP frames, rounded down. The reflection needs 201 samples, so a clip of
 * 1 to 200 counts as 201; an empty one without least_samples has no frames. */
enum reel_status mel_finish(struct mel *m, size_t least_samples, struct reel_error *err);

/* Frames of the clip that are ready. */
int mel_frames(const struct mel *m);

/* What mel_write lifts smaller values to: 8 below the largest log10 of all frames so far, which is
 * -10 (silence) at least. */
float mel_floor(const struct mel *m);

/* The smallest log10 of frames [first, first + n), all ready, before the floor:
 * while the floor is not above it, mel_write gives the same of them. */
float mel_lowest(const struct mel *m, int first, int n);

/* Frames [first, first + n), all ready, to out: f32 [MEL_BINS, n], as the
 * encoder takes them: (max(L, mel_floor) + 4) / 4. */
void mel_write(const struct mel *m, int first, int n, float *out);

#endif
