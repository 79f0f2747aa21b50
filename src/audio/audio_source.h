/* Audio as the speech model wants it: mono float32 at 16,000 Hz, pulled in pieces, in bounded
 * memory whatever the length. WAV is read here (wav.h), everything else by libsndfile where it is
 * installed; channels are averaged, then other rates go through libsoxr (resample.h).
 *
 * Integers give [-1, 1). Float files, lossy formats and resampling may go beyond: what to do about
 * a peak over 1 needs the whole clip and is left to the caller. NaN and infinity are errors. */
#ifndef REEL_AUDIO_AUDIO_SOURCE_H
#define REEL_AUDIO_AUDIO_SOURCE_H

#include "audio/byte_stream.h"
#include "audio/pcm.h"
#include "base/error.h"

enum { AUDIO_RATE = 16000 }; /* Hz, of what is read */

struct audio_source;

struct audio_options {
    const struct audio_format *raw; /* the input has no header and is this; NULL: it has one */
    double most_seconds;            /* longer input is REEL_E_LIMIT, once that shows; 0: no limit */
    bool wav_only;                  /* refuse what would need libsndfile */
    byte_wait_fn wait; /* asked before every read of a pipe: how a live input is cancelled */
    void *user;        /* for it */
};

/* path "-" is standard input: WAV, or raw; other formats only where it can be sought in. options
 * may be NULL. Opening a pipe waits for the header. */
enum reel_status audio_source_open(struct audio_source **out, const char *path,
                                   const struct audio_options *options, struct reel_error *err);

/* A file that is in memory: bytes stay the caller's and must outlive the source. `name` is for
 * messages. */
enum reel_status audio_source_open_memory(struct audio_source **out, const char *name,
                                          const void *bytes, size_t n_bytes,
                                          const struct audio_options *options,
                                          struct reel_error *err);

/* 1 to n samples (n at least 1), what is there: a live input is waited for only as long as it has
 * given nothing. *n_read 0: the end. The values do not depend on how they are asked for. After an
 * error every read gives that error. */
enum reel_status audio_source_read(struct audio_source *s, float *out, size_t n, size_t *n_read,
                                   struct reel_error *err);

/* Of the whole input where its header and its size say so; -1 where not (pipes). */
double audio_source_seconds(const struct audio_source *s);

/* Input that ended before its header said, or inside a frame, is read as far as it goes, and this
 * says so once the end was read; NULL: nothing to say. Lives as long as the source. */
const char *audio_source_warning(const struct audio_source *s);

void audio_source_close(struct audio_source *s);

#endif
