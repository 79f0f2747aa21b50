/* How long an MP3 file is, by its frames. A decoder's own count is a guess where the file has no
 * Xing header: it takes all frames to be as long as the first, and tags behind the last for sound.
 */
#ifndef REEL_AUDIO_MP3_LENGTH_H
#define REEL_AUDIO_MP3_LENGTH_H

#include "audio/byte_stream.h"

struct mp3_length {
    int64_t samples;   /* of the whole frames that are there, per channel; -1: not counted */
    int64_t announced; /* by a Xing or Info header; -1: there is none */
};

/* Reads all of the stream from its beginning, and leaves it there. */
enum reel_status mp3_length_read(struct mp3_length *length, struct byte_stream *s,
                                 struct reel_error *err);

#endif
