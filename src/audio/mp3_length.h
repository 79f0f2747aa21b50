/* How long an MP3 file is, by its frames. A decoder's own count is a guess where the file has no
 * Xing header: it takes all frames to be as long as the first, and tags behind the last for sound.
 * libsndfile reads no further than that guess. So a file without one is given a Xing header here.
 */
#ifndef REEL_AUDIO_MP3_LENGTH_H
#define REEL_AUDIO_MP3_LENGTH_H

#include "audio/byte_stream.h"

enum { MP3_XING = 1500 };

struct mp3_length {
    int64_t samples;   /* of the whole frames that are there, per channel; -1: not counted */
    int64_t announced; /* by a Xing or Info header; -1: there is none */
    /* Then a frame that has one, to be read as if it stood at `at` in the file */
    uint64_t at;
    unsigned char xing[MP3_XING];
    size_t n_xing; /* bytes; 0: none */
};

/* Reads all of the stream from its beginning, and leaves it there. What does not begin with two
 * frames, behind its tags, is not counted, unless it is known to be an MP3 file. */
enum reel_status mp3_length_read(struct mp3_length *length, struct byte_stream *s, bool known,
                                 struct reel_error *err);

#endif
