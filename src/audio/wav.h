/* The header of a WAV file: RIFF/WAVE, and RF64 or BW64 for more than 4 GiB. EBU Tech 3306 and
 * Microsoft's mmreg.h describe them. Chunks that are not needed are skipped. */
#ifndef REEL_AUDIO_WAV_H
#define REEL_AUDIO_WAV_H

#include "audio/byte_stream.h"
#include "audio/pcm.h"

enum { WAV_HEAD = 12 }; /* bytes: 'RIFF', size, 'WAVE' */
#define WAV_UNTIL_END UINT64_MAX

struct wav {
    struct audio_format format;
    /* As the header announces them; the file may end before. WAV_UNTIL_END where a program that
     * wrote to a pipe left the size open: 0, or within 64 KiB below 2^31 or 2^32, and not there. */
    uint64_t data_bytes;
};

/* Whether four bytes begin one, or its big-endian brother. */
bool wav_begins(const unsigned char *four);

/* Reads from behind the head to the first sample. REEL_E_UNSUPPORTED: well-formed, but compressed
 * or of another width, rate or number of channels than is read here. */
enum reel_status wav_header(struct wav *wav, struct byte_stream *s,
                            const unsigned char head[WAV_HEAD], struct reel_error *err);

#endif
