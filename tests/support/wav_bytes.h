/* WAV files built in memory, piece by piece, right or wrong in one chosen place. */
#ifndef TESTS_SUPPORT_WAV_BYTES_H
#define TESTS_SUPPORT_WAV_BYTES_H

#include "model_bytes.h"

enum { WAV_TAG_PCM = 1, WAV_TAG_FLOAT = 3, WAV_TAG_EXTENSIBLE = 0xfffe };

void bytes_u16(struct bytes *b, uint32_t x);

/* 'RIFF' or another four letters, a size, and 'WAVE'. */
void wav_bytes_head(struct bytes *b, const char *id, uint32_t size);

/* A chunk's id and size alone; the size may lie. */
void wav_bytes_chunk(struct bytes *b, const char *id, uint32_t size);

/* The 16 bytes of 'fmt ' that every kind has, with its head. */
void wav_bytes_format(struct bytes *b, int tag, int channels, int rate, int bits);
/* The 40 of WAVE_FORMAT_EXTENSIBLE. */
void wav_bytes_extensible(struct bytes *b, int tag, int channels, int rate, int bits, int valid);

/* A whole file around n bytes of samples. */
void wav_bytes_file(struct bytes *b, int tag, int channels, int rate, int bits, const void *samples,
                    size_t n);

/* n floats as float32 samples of a mono file. */
void wav_bytes_floats(struct bytes *b, int rate, const float *samples, size_t n);

#endif
