/* FLAC, Ogg (Vorbis, Opus), MP3, AIFF and what else libsndfile reads. It is opened when a file asks
 * for it: nothing else needs it to be installed. Its MP3 decoder, libmpg123, writes to standard
 * error about damaged frames, which nothing here can stop.
 *
 * libsndfile 1.2.0 leaks where it refuses an Ogg Vorbis file that ends inside its headers: it
 * forgets the vorbis_info that libvorbis made, 5,784 bytes for each such file. Whole files and
 * those that end later leak nothing. The block hangs on nothing that libsndfile hands out, so it
 * cannot be freed from here. */
#ifndef REEL_AUDIO_SNDFILE_H
#define REEL_AUDIO_SNDFILE_H

#include "audio/byte_stream.h"

struct sndfile;

/* The stream must be seekable and stay where it is, unused by others, until close. Fills rate,
 * channels and frames (-1: not known) as the file has them. */
enum reel_status sndfile_open(struct sndfile **out, struct byte_stream *s, int *rate, int *channels,
                              int64_t *frames, struct reel_error *err);

/* Up to n frames, interleaved; *n_read 0 at the end. *damage is NULL, or what libsndfile says of
 * what it could not read there; good while the file is open. */
enum reel_status sndfile_read(struct sndfile *f, float *out, size_t n, size_t *n_read,
                              const char **damage, struct reel_error *err);

void sndfile_close(struct sndfile *f);

#endif
