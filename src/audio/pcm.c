#include "audio/pcm.h"

#include <math.h>
#include <string.h>

size_t audio_sample_bytes(enum audio_encoding encoding) {
    switch (encoding) {
    case AUDIO_U8:
        return 1;
    case AUDIO_S16LE:
        return 2;
    case AUDIO_S24LE:
        return 3;
    case AUDIO_S32LE:
    case AUDIO_F32LE:
        return 4;
    case AUDIO_F64LE:
        return 8;
    }
    return 0;
}

static uint32_t load_u32(const unsigned char *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static float load_f32(const unsigned char *p) {
    uint32_t bits = load_u32(p);
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float load_f64(const unsigned char *p) {
    uint64_t bits = load_u32(p) | (uint64_t)load_u32(p + 4) << 32;
    double x;
    memcpy(&x, &bits, sizeof x);
    if (fabs(x) > 3.4028234663852886e38) return x > 0 ? INFINITY : -INFINITY;
    return (float)x; /* a NaN stays one */
}

/* Narrow samples go to the top of 32 bits: then one scale is right for all of them, and exact. */
static float scaled(uint32_t top_bits) { return (float)(int32_t)top_bits * 0x1p-31f; }

void pcm_decode(enum audio_encoding encoding, const unsigned char *bytes, size_t n, float *out) {
    switch (encoding) {
    case AUDIO_U8:
        for (size_t i = 0; i < n; i++)
            out[i] = (float)((int)bytes[i] - 128) * 0x1p-7f;
        return;
    case AUDIO_S16LE:
        for (size_t i = 0; i < n; i++)
            out[i] = scaled((uint32_t)bytes[2 * i] << 16 | (uint32_t)bytes[2 * i + 1] << 24);
        return;
    case AUDIO_S24LE:
        for (size_t i = 0; i < n; i++)
            out[i] = scaled((uint32_t)bytes[3 * i] << 8 | (uint32_t)bytes[3 * i + 1] << 16 |
                            (uint32_t)bytes[3 * i + 2] << 24);
        return;
    case AUDIO_S32LE:
        for (size_t i = 0; i < n; i++)
            out[i] = scaled(load_u32(bytes + 4 * i));
        return;
    case AUDIO_F32LE:
        for (size_t i = 0; i < n; i++)
            out[i] = load_f32(bytes + 4 * i);
        return;
    case AUDIO_F64LE:
        for (size_t i = 0; i < n; i++)
            out[i] = load_f64(bytes + 8 * i);
        return;
    }
}

size_t pcm_mix(const float *samples, int channels, size_t n_frames, float *out) {
    for (size_t i = 0; i < n_frames; i++) {
        const float *frame = samples + i * (size_t)channels;
        float sum = frame[0];
        for (int c = 1; c < channels; c++)
            sum += frame[c];
        out[i] = channels > 1 ? sum / (float)channels : sum;
        if (!isfinite(out[i])) return i;
    }
    return n_frames;
}

/* Without their sign, bits are in the order of the numbers they stand for, what is none at the end.
 */
float pcm_peak(const float *samples, size_t n) {
    typedef int32_t lanes __attribute__((vector_size(16)));
    enum { LANES = 4, SIDE_BY_SIDE = 4 * LANES };
    lanes most[4] = { 0 };
    int32_t sizes[SIDE_BY_SIDE] = { 0 };
    float peak;
    for (size_t at = 0; at < n; at += SIDE_BY_SIDE) {
        const float *from = samples + at;
        lanes some[4] = { 0 };
        if (n - at < SIDE_BY_SIDE)
            memcpy(some, from, (n - at) * sizeof *from);
        else
            memcpy(some, from, sizeof some);
        for (int i = 0; i < 4; i++) {
            const lanes size = some[i] & 0x7fffffff, above = size > most[i];
            most[i] = (above & size) | (~above & most[i]);
        }
    }
    memcpy(sizes, most, sizeof sizes);
    for (int i = 1; i < SIDE_BY_SIDE; i++)
        sizes[0] = sizes[i] > sizes[0] ? sizes[i] : sizes[0];
    memcpy(&peak, sizes, sizeof peak);
    return peak;
}
