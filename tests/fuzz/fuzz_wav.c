/* Audio from memory: a WAV header and its samples, or raw samples of a format that the first bytes
 * choose. libsndfile is kept out: it is fuzzed at home. */
#include "audio/audio_source.h"
#include "audio/wav.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

struct heard {
    enum reel_status status;
    uint64_t n_samples;
    uint32_t hash;
    double seconds;
    bool warned;
};

static void hash_samples(struct heard *heard, const float *samples, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        if (!isfinite(samples[i])) abort();
        memcpy(&bits, samples + i, sizeof bits);
        heard->hash = (heard->hash ^ bits) * 16777619u;
    }
    heard->n_samples += n;
}

static struct heard hear(const uint8_t *data, size_t n, const struct audio_options *o,
                         size_t most) {
    enum { ROOM = 4096 };
    float samples[ROOM];
    struct audio_source *s = NULL;
    struct reel_error err = { 0 };
    struct heard heard = { .hash = 2166136261u };
    size_t got = 1;
    heard.status = audio_source_open_memory(&s, "fuzz.wav", data, n, o, &err);
    if (heard.status == REEL_OK) heard.seconds = audio_source_seconds(s);
    while (heard.status == REEL_OK && got > 0) {
        heard.status = audio_source_read(s, samples, most < ROOM ? most : ROOM, &got, &err);
        if (got > most) abort();
        hash_samples(&heard, samples, got);
    }
    if (heard.status != REEL_OK && (err.status != heard.status || !err.text[0])) abort();
    heard.warned = s && audio_source_warning(s);
    audio_source_close(s);
    return heard;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    struct audio_format raw = { AUDIO_S16LE, AUDIO_RATE, 1 };
    struct audio_options o = { .wav_only = true, .most_seconds = 30 };
    if (n >= 4 && !wav_begins(data)) {
        raw = (struct audio_format){ (enum audio_encoding)(data[0] % 7), /* one is unknown */
                                     (int)data[1] * 800, data[2] };
        o.raw = &raw;
    }
    struct heard whole = hear(data, n, &o, SIZE_MAX);
    struct heard pieces = hear(data, n, &o, n ? data[n - 1] + (size_t)1 : 1);
    if (whole.status != pieces.status || whole.warned != pieces.warned) abort();
    if (whole.status != REEL_OK) return 0; /* how far each came depends on the pieces */
    if (whole.n_samples != pieces.n_samples || whole.hash != pieces.hash) abort();
    double most = whole.seconds * AUDIO_RATE + 1.001; /* seconds are rounded */
    if ((double)whole.n_samples > most || (double)whole.n_samples < most - 1.002) abort();
    return 0;
}
