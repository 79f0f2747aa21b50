#include "wav_bytes.h"

void bytes_u16(struct bytes *b, uint32_t x) {
    const unsigned char two[2] = { (unsigned char)x, (unsigned char)(x >> 8) };
    bytes_add(b, two, sizeof two);
}

void wav_bytes_head(struct bytes *b, const char *id, uint32_t size) {
    bytes_add(b, id, 4);
    bytes_u32(b, size);
    bytes_add(b, "WAVE", 4);
}

void wav_bytes_chunk(struct bytes *b, const char *id, uint32_t size) {
    bytes_add(b, id, 4);
    bytes_u32(b, size);
}

static void format_fields(struct bytes *b, int tag, int channels, int rate, int bits) {
    int frame_bytes = channels * (bits / 8);
    bytes_u16(b, (uint32_t)tag);
    bytes_u16(b, (uint32_t)channels);
    bytes_u32(b, (uint32_t)rate);
    bytes_u32(b, (uint32_t)rate * (uint32_t)frame_bytes);
    bytes_u16(b, (uint32_t)frame_bytes);
    bytes_u16(b, (uint32_t)bits);
}

void wav_bytes_format(struct bytes *b, int tag, int channels, int rate, int bits) {
    wav_bytes_chunk(b, "fmt ", 16);
    format_fields(b, tag, channels, rate, bits);
}

void wav_bytes_extensible(struct bytes *b, int tag, int channels, int rate, int bits, int valid) {
    wav_bytes_chunk(b, "fmt ", 40);
    format_fields(b, WAV_TAG_EXTENSIBLE, channels, rate, bits);
    bytes_u16(b, 22);
    bytes_u16(b, (uint32_t)valid);
    bytes_u32(b, 0); /* which channel is which loudspeaker */
    bytes_u16(b, (uint32_t)tag);
    bytes_add(b, "\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71", 14);
}

void wav_bytes_file(struct bytes *b, int tag, int channels, int rate, int bits, const void *samples,
                    size_t n) {
    wav_bytes_head(b, "RIFF", (uint32_t)(36 + n + (n & 1)));
    wav_bytes_format(b, tag, channels, rate, bits);
    wav_bytes_chunk(b, "data", (uint32_t)n);
    bytes_add(b, samples, n);
    bytes_zeros(b, n & 1);
}

void wav_bytes_floats(struct bytes *b, int rate, const float *samples, size_t n) {
    wav_bytes_file(b, WAV_TAG_FLOAT, 1, rate, 32, samples, n * sizeof *samples);
}
