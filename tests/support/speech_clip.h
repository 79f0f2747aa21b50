/* Made sounds for speech models' goldens: the samples of tools/make_asr_golden.py's speech_clip,
 * bit for bit. */
#ifndef REEL_TESTS_SPEECH_CLIP_H
#define REEL_TESTS_SPEECH_CLIP_H

/* Samples 0 .. n - 1 of clip `seed`, mono at 16,000 Hz in [-1, 1]. */
void speech_clip(int seed, int n, float *out);

#endif
