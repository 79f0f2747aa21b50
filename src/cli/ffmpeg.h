/* Recordings that reel does not read itself, through the program ffmpeg: it is started without a
 * shell, may open that one file and nothing on a network, and is ended with the recording. */
#ifndef REEL_CLI_FFMPEG_H
#define REEL_CLI_FFMPEG_H

#include "base/error.h"

struct ffmpeg;

/* REEL_E_NOT_FOUND when there is no such program; path is a regular file. Waits for the first
 * samples, so that a file that ffmpeg does not read is REEL_E_FORMAT here. */
enum reel_status ffmpeg_open(struct ffmpeg **out, const char *path, struct reel_error *err);

/* 1 to n samples, mono at 16,000 Hz; 0: the end. Ctrl-C is REEL_E_CANCELLED. */
enum reel_status ffmpeg_read(struct ffmpeg *f, float *out, size_t n, size_t *n_read,
                             struct reel_error *err);

/* What ffmpeg said of a file that it has read all the same, after the end; NULL: nothing. */
const char *ffmpeg_warning(const struct ffmpeg *f);

/* NULL: nothing. */
void ffmpeg_close(struct ffmpeg *f);

#endif
