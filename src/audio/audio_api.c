/* The public calls that read a recording, and the one that changes a rate. */
#include "audio/audio_source.h"
#include "audio/live_resample.h"
#include "base/struct_size.h"

/* struct reel_audio is a name only: what stands behind it is struct audio_source. */
static struct audio_source *source_of(const struct reel_audio *audio) {
    return (struct audio_source *)(uintptr_t)audio;
}

static enum reel_status read_format(struct audio_format *format,
                                    const struct reel_audio_options *options,
                                    struct reel_error *err) {
    static const enum audio_encoding encodings[] = { [REEL_AUDIO_S16LE] = AUDIO_S16LE,
                                                     [REEL_AUDIO_S24LE] = AUDIO_S24LE,
                                                     [REEL_AUDIO_S32LE] = AUDIO_S32LE,
                                                     [REEL_AUDIO_F32LE] = AUDIO_F32LE };
    unsigned encoding = (unsigned)options->encoding;
    if (encoding >= sizeof encodings / sizeof *encodings)
        return err_set(err, REEL_E_ARGUMENT,
                       "encoding is %d; it is none of enum reel_audio_encoding",
                       (int)options->encoding);
    if (encoding == REEL_AUDIO_FILE && (options->rate || options->channels))
        return err_set(err, REEL_E_ARGUMENT,
                       "rate and channels are those of raw samples; this input says its own");
    *format = (struct audio_format){ .encoding = encodings[encoding],
                                     .rate = options->rate ? options->rate : REEL_AUDIO_RATE,
                                     .channels = options->channels ? options->channels : 1 };
    return REEL_OK;
}

/* *set points into *format. */
static enum reel_status read_options(struct audio_options *set, struct audio_format *format,
                                     const struct reel_audio_options *given,
                                     struct reel_error *err) {
    struct reel_audio_options options;
    enum reel_status status =
        struct_read(&options, sizeof options, given, "reel_audio_options", err);
    if (status == REEL_OK) status = read_format(format, &options, err);
    if (status != REEL_OK) return status;
    *set = (struct audio_options){ .raw = options.encoding ? format : NULL,
                                   .most_seconds = options.most_seconds,
                                   .wait = options.wait,
                                   .user = options.wait_user };
    return REEL_OK;
}

enum reel_status reel_audio_open(struct reel_audio **out, const char *path,
                                 const struct reel_audio_options *given, struct reel_error *err) {
    struct audio_options set;
    struct audio_format format;
    struct audio_source *source = NULL;
    err_clear(err);
    if (out) *out = NULL;
    enum reel_status status = err_if_null(err, "out path", (const void *const[]){ out, path });
    if (status == REEL_OK) status = read_options(&set, &format, given, err);
    if (status != REEL_OK) return status;
    status = audio_source_open(&source, path, &set, err);
    *out = (struct reel_audio *)source;
    return status;
}

enum reel_status reel_audio_open_memory(struct reel_audio **out, const char *name,
                                        const void *bytes, size_t n_bytes,
                                        const struct reel_audio_options *given,
                                        struct reel_error *err) {
    struct audio_options set;
    struct audio_format format;
    struct audio_source *source = NULL;
    err_clear(err);
    if (out) *out = NULL;
    enum reel_status status =
        err_if_null(err, "out name bytes", (const void *const[]){ out, name, bytes });
    if (status == REEL_OK && n_bytes > INT64_MAX)
        status = err_set(err, REEL_E_ARGUMENT, "%s: %zu bytes", name, n_bytes);
    if (status == REEL_OK) status = read_options(&set, &format, given, err);
    if (status != REEL_OK) return status;
    status = audio_source_open_memory(&source, name, bytes, n_bytes, &set, err);
    *out = (struct reel_audio *)source;
    return status;
}

enum reel_status reel_audio_read(struct reel_audio *audio, float *samples, size_t n, size_t *n_read,
                                 struct reel_error *err) {
    err_clear(err);
    if (n_read) *n_read = 0;
    enum reel_status status =
        err_if_null(err, "audio samples n_read", (const void *const[]){ audio, samples, n_read });
    if (status != REEL_OK) return status;
    if (n == 0) return err_set(err, REEL_E_ARGUMENT, "no room to read samples into");
    return audio_source_read(source_of(audio), samples, n, n_read, err);
}

double reel_audio_seconds(const struct reel_audio *audio) {
    return audio ? audio_source_seconds(source_of(audio)) : -1;
}

const char *reel_audio_warning(const struct reel_audio *audio) {
    return audio ? audio_source_warning(source_of(audio)) : NULL;
}

void reel_audio_close(struct reel_audio *audio) { audio_source_close(source_of(audio)); }

/* ---- samples of another rate ---- */

static struct live_resample *resample_of(const struct reel_resampler *r) {
    return (struct live_resample *)(uintptr_t)r;
}

enum reel_status reel_resampler_open(struct reel_resampler **out, int rate,
                                     struct reel_error *err) {
    struct live_resample *r = NULL;
    err_clear(err);
    if (out) *out = NULL;
    enum reel_status status = err_if_null(err, "out", (const void *const[]){ out });
    if (status == REEL_OK) status = live_resample_open(&r, rate, err);
    if (status == REEL_OK) *out = (struct reel_resampler *)r;
    return status;
}

enum reel_status reel_resampler_run(struct reel_resampler *r, const float *in, size_t n_in,
                                    size_t *n_taken, float *out, size_t n_out, size_t *n_given,
                                    struct reel_error *err) {
    err_clear(err);
    if (n_taken) *n_taken = 0;
    if (n_given) *n_given = 0;
    enum reel_status status = err_if_null(err, "resampler n_taken out n_given",
                                          (const void *const[]){ r, n_taken, out, n_given });
    if (status != REEL_OK) return status;
    if (n_out == 0) return err_set(err, REEL_E_ARGUMENT, "no room for samples");
    live_resample_run(resample_of(r), in, n_in, n_taken, out, n_out, n_given);
    return REEL_OK;
}

void reel_resampler_close(struct reel_resampler *r) { live_resample_close(resample_of(r)); }
