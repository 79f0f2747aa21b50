#include "audio/audio_source.h"

#include "audio/resample.h"
#include "audio/sndfile.h"
#include "audio/wav.h"
#include "base/memory.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 4096 }; /* frames decoded at a time: a quarter of a second */

struct audio_source {
    char *name;
    struct byte_stream bytes;
    struct wav wav;            /* of libsndfile's files the rate and the channels */
    struct sndfile *sndfile;   /* NULL: samples are read from bytes */
    struct resample *resample; /* NULL: the input is at 16 kHz */
    double seconds;
    uint64_t most_samples; /* UINT64_MAX: no limit */
    double most_seconds;

    unsigned char *raw; /* [BLOCK frames] as in the file; the first n_part bytes are read already */
    size_t n_part;      /* less than a frame */
    uint64_t data_left; /* bytes by the header, WAV_UNTIL_END */
    float *interleaved; /* [BLOCK, channels] */
    float *mono;        /* [BLOCK] waiting for the resampler: [mono_at, n_mono) */
    size_t mono_at, n_mono;

    uint64_t n_frames;  /* decoded so far */
    uint64_t n_samples; /* given so far */
    bool ended;         /* of the input; the resampler may hold more */
    struct reel_error failed;
    struct reel_error warning; /* its text, for err_set leaves control characters out */
};

/* ---- opening --------------------------------------------------------------------------------- */

static enum reel_status check_raw(const struct audio_format *raw, struct reel_error *err) {
    if (audio_sample_bytes(raw->encoding) == 0)
        return err_set(err, REEL_E_ARGUMENT, "raw audio: encoding %d is unknown",
                       (int)raw->encoding);
    if (raw->rate < AUDIO_LEAST_RATE || raw->rate > AUDIO_MOST_RATE)
        return err_set(err, REEL_E_ARGUMENT, "raw audio: %d Hz, %d to %d are read", raw->rate,
                       AUDIO_LEAST_RATE, AUDIO_MOST_RATE);
    if (raw->channels < 1 || raw->channels > AUDIO_MOST_CHANNELS)
        return err_set(err, REEL_E_ARGUMENT, "raw audio: %d channels, 1 to %d are read",
                       raw->channels, AUDIO_MOST_CHANNELS);
    return REEL_OK;
}

static enum reel_status check_options(const struct audio_options *o, struct reel_error *err) {
    if (!(o->most_seconds >= 0))
        return err_set(err, REEL_E_ARGUMENT, "at most %g seconds of audio: no length",
                       o->most_seconds);
    return o->raw ? check_raw(o->raw, err) : REEL_OK;
}

static size_t frame_bytes(const struct audio_source *s) {
    return (size_t)s->wav.format.channels * audio_sample_bytes(s->wav.format.encoding);
}

/* Of the whole frames in n bytes. */
static double whole_seconds(const struct audio_source *s, uint64_t n) {
    uint64_t n_frames = n / frame_bytes(s);
    return (double)n_frames / s->wav.format.rate;
}

static void measure_data(struct audio_source *s) {
    uint64_t size = s->wav.data_bytes;
    bool known = size != WAV_UNTIL_END;
    if (byte_stream_seekable(&s->bytes)) {
        uint64_t all = (uint64_t)s->bytes.size;
        uint64_t left = all > s->bytes.at ? all - s->bytes.at : 0;
        if (!known || left < size) size = left;
        known = true;
    }
    s->data_left = s->wav.data_bytes;
    if (known) s->seconds = whole_seconds(s, size);
}

static enum reel_status open_sndfile(struct audio_source *s, struct reel_error *err) {
    struct audio_format *format = &s->wav.format;
    int64_t frames = -1;
    enum reel_status status =
        sndfile_open(&s->sndfile, &s->bytes, &format->rate, &format->channels, &frames, err);
    if (status != REEL_OK) return status;
    if (format->rate < AUDIO_LEAST_RATE || format->rate > AUDIO_MOST_RATE)
        return err_set(err, REEL_E_UNSUPPORTED, "%s: %d Hz, %d to %d are read", s->name,
                       format->rate, AUDIO_LEAST_RATE, AUDIO_MOST_RATE);
    if (format->channels < 1 || format->channels > AUDIO_MOST_CHANNELS)
        return err_set(err, REEL_E_UNSUPPORTED, "%s: %d channels, 1 to %d are read", s->name,
                       format->channels, AUDIO_MOST_CHANNELS);
    if (frames >= 0) s->seconds = (double)frames / format->rate;
    return REEL_OK;
}

/* What is no WAV file. */
static enum reel_status open_foreign(struct audio_source *s, bool wav_only,
                                     struct reel_error *err) {
    if (wav_only)
        return err_set(err, REEL_E_UNSUPPORTED, "%s: not a WAV file, only those are read here",
                       s->name);
    if (!byte_stream_seekable(&s->bytes))
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: not WAV, and only WAV or raw samples can be read from a pipe: give the "
                       "file's name, or convert it: ffmpeg -i FILE -f wav - | ...",
                       s->name);
    return open_sndfile(s, err);
}

/* A WAV file; libsndfile is asked for the encodings that wav.c does not read (A-law, ADPCM). When
 * it cannot either, wav.c's words say more. */
static enum reel_status open_wav(struct audio_source *s, const unsigned char *head, bool wav_only,
                                 struct reel_error *err) {
    enum reel_status status = wav_header(&s->wav, &s->bytes, head, err);
    if (status == REEL_OK) measure_data(s);
    if (status != REEL_E_UNSUPPORTED || wav_only || !byte_stream_seekable(&s->bytes)) return status;
    struct reel_error other = { 0 };
    enum reel_status second = open_sndfile(s, &other);
    if (second == REEL_E_MEMORY || second == REEL_E_IO)
        return err_set(err, second, "%s", other.text);
    return second == REEL_OK ? REEL_OK : status;
}

static enum reel_status open_format(struct audio_source *s, const struct audio_options *o,
                                    struct reel_error *err) {
    unsigned char head[WAV_HEAD];
    size_t n = 0;
    if (o->raw) {
        s->wav = (struct wav){ .format = *o->raw, .data_bytes = WAV_UNTIL_END };
        measure_data(s);
        return REEL_OK;
    }
    enum reel_status status = byte_stream_full(&s->bytes, head, sizeof head, &n, err);
    if (status != REEL_OK) return status;
    if (n == 0) return err_set(err, REEL_E_FORMAT, "%s: empty, 0 bytes", s->name);
    if (n < 4 || !wav_begins(head)) return open_foreign(s, o->wav_only, err);
    if (n < sizeof head)
        return err_set(err, REEL_E_FORMAT, "%s: ends inside the WAV header, after %zu bytes",
                       s->name, n);
    return open_wav(s, head, o->wav_only, err);
}

static enum reel_status set_limit(struct audio_source *s, double most_seconds,
                                  struct reel_error *err) {
    double most = ceil(most_seconds * AUDIO_RATE);
    s->most_seconds = most_seconds;
    s->most_samples = most_seconds == 0 || most >= 0x1p63 ? UINT64_MAX : (uint64_t)most;
    if (most_seconds == 0 || s->seconds <= most_seconds) return REEL_OK;
    return err_set(err, REEL_E_LIMIT, "%s: %.1f s of audio, at most %.1f s are allowed", s->name,
                   s->seconds, most_seconds);
}

static enum reel_status make_buffers(struct audio_source *s, struct reel_error *err) {
    size_t channels = (size_t)s->wav.format.channels;
    enum reel_status status =
        mem_zeroed(&s->interleaved, BLOCK * channels, sizeof(float), "decoded audio", err);
    if (status == REEL_OK && !s->sndfile)
        status = mem_zeroed(&s->raw, BLOCK, frame_bytes(s), "undecoded audio", err);
    if (status != REEL_OK || s->wav.format.rate == AUDIO_RATE) return status;
    status = mem_zeroed(&s->mono, BLOCK, sizeof(float), "audio to resample", err);
    if (status == REEL_OK) status = resample_open(&s->resample, s->wav.format.rate, err);
    return status;
}

/* `from` is moved into the source. */
static enum reel_status open_stream(struct audio_source **out, struct byte_stream *from,
                                    const struct audio_options *options, struct reel_error *err) {
    static const struct audio_options defaults;
    const struct audio_options *o = options ? options : &defaults;
    struct audio_source *s = NULL;
    enum reel_status status = mem_zeroed(&s, 1, sizeof *s, "an audio source", err);
    if (status != REEL_OK) {
        byte_stream_close(from);
        return status;
    }
    s->bytes = *from;
    s->bytes.wait = o->wait;
    s->bytes.user = o->user;
    s->seconds = -1;
    status = mem_text(&s->name, from->name, strlen(from->name), "an audio file's name", err);
    if (status == REEL_OK) {
        s->bytes.name = s->name;
        status = open_format(s, o, err);
    }
    if (status == REEL_OK) status = set_limit(s, o->most_seconds, err);
    if (status == REEL_OK) status = make_buffers(s, err);
    if (status == REEL_OK)
        *out = s;
    else
        audio_source_close(s);
    return status;
}

enum reel_status audio_source_open(struct audio_source **out, const char *path,
                                   const struct audio_options *options, struct reel_error *err) {
    struct byte_stream bytes;
    *out = NULL;
    enum reel_status status = options ? check_options(options, err) : REEL_OK;
    if (status == REEL_OK) status = byte_stream_open(&bytes, path, err);
    return status == REEL_OK ? open_stream(out, &bytes, options, err) : status;
}

enum reel_status audio_source_open_memory(struct audio_source **out, const char *name,
                                          const void *bytes, size_t n_bytes,
                                          const struct audio_options *options,
                                          struct reel_error *err) {
    struct byte_stream stream;
    *out = NULL;
    enum reel_status status = options ? check_options(options, err) : REEL_OK;
    if (status != REEL_OK) return status;
    byte_stream_memory(&stream, name, bytes, n_bytes);
    return open_stream(out, &stream, options, err);
}

/* ---- reading --------------------------------------------------------------------------------- */

static void end_of_bytes(struct audio_source *s) {
    const struct audio_format *format = &s->wav.format;
    s->ended = true;
    if (s->data_left > 0 && s->data_left != WAV_UNTIL_END)
        err_set(&s->warning, REEL_OK,
                "%s: the header announces %.3f s of audio, the file ends after %.3f s", s->name,
                whole_seconds(s, s->wav.data_bytes), (double)s->n_frames / format->rate);
    else if (s->n_part > 0)
        err_set(&s->warning, REEL_OK,
                "%s: the last %zu bytes are no whole frame of %zu and were left out", s->name,
                s->n_part, frame_bytes(s));
}

/* Whole frames into s->interleaved, at most n (at most BLOCK); *n_read 0: the end. */
static enum reel_status read_bytes(struct audio_source *s, size_t n, size_t *n_read,
                                   struct reel_error *err) {
    size_t size = frame_bytes(s);
    *n_read = 0;
    while (*n_read == 0) {
        size_t want = n * size - s->n_part, got = 0;
        if (want > s->data_left) want = (size_t)s->data_left;
        if (want > 0) {
            enum reel_status status =
                byte_stream_some(&s->bytes, s->raw + s->n_part, want, &got, err);
            if (status != REEL_OK) return status;
        }
        if (got == 0) {
            end_of_bytes(s);
            return REEL_OK;
        }
        if (s->data_left != WAV_UNTIL_END) s->data_left -= got;
        got += s->n_part;
        *n_read = got / size;
        s->n_part = got % size;
        pcm_decode(s->wav.format.encoding, s->raw, *n_read * (size_t)s->wav.format.channels,
                   s->interleaved);
        memmove(s->raw, s->raw + *n_read * size, s->n_part);
    }
    return REEL_OK;
}

static enum reel_status read_sndfile(struct audio_source *s, size_t n, size_t *n_read,
                                     struct reel_error *err) {
    const char *damage = NULL;
    enum reel_status status = sndfile_read(s->sndfile, s->interleaved, n, n_read, &damage, err);
    if (status != REEL_OK || *n_read > 0) return status;
    s->ended = true;
    if (damage)
        err_set(&s->warning, REEL_OK, "%s: %.3f s of audio were read: %s", s->name,
                (double)s->n_frames / s->wav.format.rate, damage);
    return REEL_OK;
}

/* At most n mono samples at the input's rate; *n_read 0: the end. */
static enum reel_status decode(struct audio_source *s, float *out, size_t n, size_t *n_read,
                               struct reel_error *err) {
    *n_read = 0;
    if (s->ended) return REEL_OK;
    if (n > BLOCK) n = BLOCK;
    enum reel_status status =
        s->sndfile ? read_sndfile(s, n, n_read, err) : read_bytes(s, n, n_read, err);
    if (status != REEL_OK) return status;
    size_t good = pcm_mix(s->interleaved, s->wav.format.channels, *n_read, out);
    s->n_frames += good;
    if (good == *n_read) return REEL_OK;
    return err_set(err, REEL_E_FORMAT,
                   "%s: sample %llu (%.3f s) is not a finite number in float32's range", s->name,
                   (unsigned long long)s->n_frames, (double)s->n_frames / s->wav.format.rate);
}

static enum reel_status check_resampled(const struct audio_source *s, const float *out, size_t n,
                                        struct reel_error *err) {
    for (size_t i = 0; i < n; i++)
        if (!isfinite(out[i]))
            return err_set(err, REEL_E_FORMAT,
                           "%s: samples near %.3f s are too large to be resampled", s->name,
                           (double)(s->n_samples + i) / AUDIO_RATE);
    return REEL_OK;
}

static enum reel_status decode_resampled(struct audio_source *s, float *out, size_t n,
                                         size_t *n_read, struct reel_error *err) {
    enum reel_status status = REEL_OK;
    *n_read = 0;
    while (status == REEL_OK && *n_read == 0) {
        size_t taken = 0;
        if (s->mono_at == s->n_mono) {
            s->mono_at = 0;
            status = decode(s, s->mono, BLOCK, &s->n_mono, err);
            if (status != REEL_OK) return status;
        }
        const float *in = s->n_mono ? s->mono + s->mono_at : NULL;
        status = resample_run(s->resample, in, s->n_mono - s->mono_at, &taken, out, n, n_read, err);
        s->mono_at += taken;
        if (!in) break; /* the end: what was given is all there is for now */
    }
    return status == REEL_OK ? check_resampled(s, out, *n_read, err) : status;
}

static enum reel_status check_length(const struct audio_source *s, struct reel_error *err) {
    if (s->n_samples <= s->most_samples) return REEL_OK;
    return err_set(err, REEL_E_LIMIT, "%s: more than %.1f s of audio, the most that is allowed",
                   s->name, s->most_seconds);
}

enum reel_status audio_source_read(struct audio_source *s, float *out, size_t n, size_t *n_read,
                                   struct reel_error *err) {
    *n_read = 0;
    if (s->failed.status != REEL_OK) return err_set(err, s->failed.status, "%s", s->failed.text);
    if (n == 0) return err_set(err, REEL_E_ARGUMENT, "%s: room for 0 samples", s->name);
    enum reel_status status = s->resample ? decode_resampled(s, out, n, n_read, &s->failed)
                                          : decode(s, out, n, n_read, &s->failed);
    s->n_samples += *n_read;
    if (status == REEL_OK) status = check_length(s, &s->failed);
    if (status == REEL_OK) return REEL_OK;
    *n_read = 0;
    return err_set(err, status, "%s", s->failed.text);
}

double audio_source_seconds(const struct audio_source *s) { return s->seconds; }

const char *audio_source_warning(const struct audio_source *s) {
    return s->warning.text[0] ? s->warning.text : NULL;
}

void audio_source_close(struct audio_source *s) {
    if (!s) return;
    sndfile_close(s->sndfile);
    resample_close(s->resample);
    byte_stream_close(&s->bytes);
    mem_free(s->raw);
    mem_free(s->interleaved);
    mem_free(s->mono);
    mem_free(s->name);
    mem_free(s);
}
