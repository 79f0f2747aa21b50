/* Samples as files hold them, and mono float32 made of them. */
#ifndef REEL_AUDIO_PCM_H
#define REEL_AUDIO_PCM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    AUDIO_LEAST_RATE = 8000,
    AUDIO_MOST_RATE = 192000,
    AUDIO_MOST_CHANNELS = 64,
};

/* Little-endian. Integers are divided by 2^(bits - 1); u8 is offset by 128 first. */
enum audio_encoding { AUDIO_S16LE, AUDIO_S24LE, AUDIO_S32LE, AUDIO_F32LE, AUDIO_F64LE, AUDIO_U8 };

/* A frame is one sample of each channel. */
struct audio_format {
    enum audio_encoding encoding;
    int rate; /* Hz, AUDIO_LEAST_RATE to AUDIO_MOST_RATE */
    int channels;
};

size_t audio_sample_bytes(enum audio_encoding encoding);

/* n samples; bytes need no alignment. A float64 beyond float32's range becomes infinite. */
void pcm_decode(enum audio_encoding encoding, const unsigned char *bytes, size_t n, float *out);

/* The mean of each frame's channels: a float32 sum in the channels' order, divided by their number.
 * n_frames, or the first frame whose mean is not finite: out is good up to there. */
size_t pcm_mix(const float *samples, int channels, size_t n_frames, float *out);

/* The largest magnitude of n samples, 0 of none; when one is infinite or no number, so is this. */
float pcm_peak(const float *samples, size_t n);

#endif
