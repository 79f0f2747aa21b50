/* Audio in: every encoding against numbers worked out here, cuts that must not matter, rates,
 * lengths, damage, pipes. */
#include "audio/audio_source.h"

#include "../support/wav_bytes.h"
#include "base/file_map.h"
#include "support/sanitized.h"

#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

struct clip {
    float *samples;
    size_t n;
    double seconds; /* audio_source_seconds after opening */
    char warning[300];
};

static void clip_release(struct clip *clip) {
    free(clip->samples);
    *clip = (struct clip){ 0 };
}

static uint32_t draw(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

static void must(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK) fail_msg("%s: %s", reel_status_name(status), err->text);
}

/* Reads to the end, `most` samples a call, or with 0 a random number of 1 to 5000. */
static struct clip drain(struct audio_source *s, size_t most) {
    struct clip clip = { .seconds = audio_source_seconds(s) };
    struct reel_error err = { 0 };
    uint32_t seed = 1;
    size_t room = 0, got = 1;
    while (got > 0) {
        size_t want = most ? most : 1 + draw(&seed) % 5000;
        if (clip.n + want > room) {
            room = 2 * (clip.n + want);
            clip.samples = realloc(clip.samples, room * sizeof(float));
            assert_non_null(clip.samples);
        }
        must(audio_source_read(s, clip.samples + clip.n, want, &got, &err), &err);
        assert_in_range(got, 0, want);
        clip.n += got;
    }
    if (audio_source_warning(s))
        snprintf(clip.warning, sizeof clip.warning, "%s", audio_source_warning(s));
    return clip;
}

static struct clip read_memory(const struct bytes *b, const struct audio_options *o, size_t most) {
    struct guarded g = guarded_copy(b->data, b->n);
    struct audio_source *s = NULL;
    struct reel_error err = { 0 };
    must(audio_source_open_memory(&s, "mem.wav", g.bytes, g.n, o, &err), &err);
    struct clip clip = drain(s, most);
    audio_source_close(s);
    guarded_release(&g);
    return clip;
}

/* A file that a test writes. */
static char path[] = "/tmp/reel-audio-XXXXXX";
static int make_path(void **state) {
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 ? -1 : close(fd);
}
static int drop_path(void **state) {
    (void)state;
    return unlink(path);
}
static void write_path(const struct bytes *b) {
    assert_int_equal(file_write_atomic(path, b->data, b->n, NULL), REEL_OK);
}

/* What opening memory says. */
static void expect_refusal(const struct bytes *b, const struct audio_options *o,
                           enum reel_status status, const char *says) {
    struct audio_source *s = NULL;
    struct reel_error err = { 0 };
    enum reel_status got = audio_source_open_memory(&s, "mem.wav", b->data, b->n, o, &err);
    if (got != status || !strstr(err.text, says))
        fail_msg("status %d, \"%s\"; expected %d with \"%s\"", got, err.text, status, says);
    assert_null(s);
}

/* ---- numbers --------------------------------------------------------------------------------- */

static void expect_samples(int tag, int bits, const void *samples, size_t n, const float *want,
                           size_t n_want) {
    struct bytes b = { 0 };
    wav_bytes_file(&b, tag, 1, AUDIO_RATE, bits, samples, n);
    struct clip clip = read_memory(&b, NULL, 64);
    assert_int_equal(clip.n, n_want);
    assert_memory_equal(clip.samples, want, n_want * sizeof *want);
    assert_string_equal(clip.warning, "");
    assert_true(clip.seconds == (double)n_want / AUDIO_RATE);
    clip_release(&clip);
    bytes_release(&b);
}

static void integers_are_divided_by_their_range(void **state) {
    (void)state;
    static const unsigned char u8[] = { 0, 128, 255, 129, 1 };
    expect_samples(WAV_TAG_PCM, 8, u8, sizeof u8,
                   (const float[]){ -1, 0, 127.0f / 128, 1.0f / 128, -127.0f / 128 }, 5);
    static const unsigned char s16[] = {
        0x00, 0x80, 0, 0, 0xff, 0x7f, 1, 0, 0xff, 0xff, 0x34, 0x12
    };
    expect_samples(
        WAV_TAG_PCM, 16, s16, sizeof s16,
        (const float[]){ -1, 0, 32767.0f / 32768, 1.0f / 32768, -1.0f / 32768, 4660.0f / 32768 },
        6);
    static const unsigned char s24[] = { 0, 0,    0x80, 0xff, 0xff, 0x7f, 1,   0,
                                         0, 0xff, 0xff, 0xff, 0x56, 0x34, 0x12 };
    expect_samples(WAV_TAG_PCM, 24, s24, sizeof s24,
                   (const float[]){ -1, 8388607.0f / 8388608, 1.0f / 8388608, -1.0f / 8388608,
                                    1193046.0f / 8388608 },
                   5);
    static const unsigned char s32[] = { 0, 0, 0,    0x80, 0xff, 0xff, 0xff, 0x7f, 1,    0,
                                         0, 0, 0xff, 0xff, 0xff, 0xff, 0,    0x56, 0x34, 0x12 };
    expect_samples(WAV_TAG_PCM, 32, s32, sizeof s32,
                   (const float[]){ -1, 1 /* rounded to float32 */, 0x1p-31f, -0x1p-31f,
                                    (float)0x12345600 / 2147483648.0f },
                   5);
}

static void floats_are_kept_as_they_are(void **state) {
    (void)state;
    static const float f32[] = { 0, -0.0f, 1, -1, 1.5f, 0x1p-149f, -3e38f };
    expect_samples(WAV_TAG_FLOAT, 32, f32, sizeof f32, f32, 7);
    static const double f64[] = { 0.1, -1.0 / 3, 1e-300, 3.4028234663852886e38 };
    expect_samples(WAV_TAG_FLOAT, 64, f64, sizeof f64,
                   (const float[]){ 0.1f, (float)(-1.0 / 3), 0, 3.4028234663852886e38f }, 4);
}

static void channels_are_averaged(void **state) {
    (void)state;
    enum { FRAMES = 10000 };
    for (int channels = 1; channels <= AUDIO_MOST_CHANNELS; channels = 2 * channels + 1) {
        struct bytes b = { 0 };
        float *want = calloc(FRAMES, sizeof *want);
        int16_t *samples = calloc((size_t)FRAMES * (size_t)channels, sizeof *samples);
        uint32_t seed = 7;
        for (size_t i = 0; i < FRAMES; i++) {
            int sum = 0; /* exact in float32 */
            for (size_t c = 0; c < (size_t)channels; c++) {
                int16_t x = (int16_t)(draw(&seed) & 0xffff);
                samples[i * (size_t)channels + c] = x;
                sum += x;
            }
            want[i] = (float)sum / 32768 / (float)channels;
        }
        wav_bytes_file(&b, WAV_TAG_PCM, channels, AUDIO_RATE, 16, samples,
                       (size_t)FRAMES * (size_t)channels * 2);
        struct clip clip = read_memory(&b, NULL, 0);
        assert_int_equal(clip.n, FRAMES);
        assert_memory_equal(clip.samples, want, FRAMES * sizeof *want);
        clip_release(&clip);
        bytes_release(&b);
        free(samples);
        free(want);
    }
}

static void raw_samples_are_read_as_the_caller_says(void **state) {
    (void)state;
    static const struct {
        enum audio_encoding encoding;
        unsigned char half[8];
        size_t n;
    } kinds[] = {
        { AUDIO_U8, { 192 }, 1 },
        { AUDIO_S16LE, { 0, 0x40 }, 2 },
        { AUDIO_S24LE, { 0, 0, 0x40 }, 3 },
        { AUDIO_S32LE, { 0, 0, 0, 0x40 }, 4 },
        { AUDIO_F32LE, { 0, 0, 0, 0x3f }, 4 },
        { AUDIO_F64LE, { 0, 0, 0, 0, 0, 0, 0xe0, 0x3f }, 8 },
    };
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        struct audio_format raw = { kinds[i].encoding, AUDIO_RATE, 2 };
        struct audio_options o = { .raw = &raw };
        struct bytes b = { 0 };
        for (int frame = 0; frame < 3; frame++) {
            bytes_add(&b, kinds[i].half, kinds[i].n);
            bytes_add(&b, kinds[i].half, kinds[i].n);
        }
        bytes_add(&b, kinds[i].half, 1); /* a part of a frame */
        struct clip clip = read_memory(&b, &o, 2);
        assert_int_equal(clip.n, 3);
        for (int j = 0; j < 3; j++)
            assert_true(clip.samples[j] == 0.5f);
        assert_non_null(strstr(clip.warning, "mem.wav: the last 1 bytes are no whole frame"));
        clip_release(&clip);
        bytes_release(&b);
    }
}

static void raw_formats_that_cannot_be_are_refused(void **state) {
    (void)state;
    struct bytes b = { 0 };
    bytes_zeros(&b, 8);
    static const struct {
        struct audio_format raw;
        const char *says;
    } wrong[] = {
        { { AUDIO_S16LE, 7999, 1 }, "7999 Hz, 8000 to 192000" },
        { { AUDIO_S16LE, -16000, 1 }, "-16000 Hz" },
        { { AUDIO_S16LE, 16000, 0 }, "0 channels, 1 to 64" },
        { { AUDIO_S16LE, 16000, 65 }, "65 channels" },
        { { (enum audio_encoding)77, 16000, 1 }, "encoding 77" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        expect_refusal(&b, &(struct audio_options){ .raw = &wrong[i].raw }, REEL_E_ARGUMENT,
                       wrong[i].says);
    expect_refusal(&b, &(struct audio_options){ .most_seconds = -1 }, REEL_E_ARGUMENT,
                   "-1 seconds");
    expect_refusal(&b, &(struct audio_options){ .most_seconds = NAN }, REEL_E_ARGUMENT, "seconds");
    bytes_release(&b);
}

/* ---- cuts ------------------------------------------------------------------------------------ */

struct job {
    const struct bytes *b;
    int fd;
    size_t most; /* bytes a write: 1 to most, random */
};

static void *write_pieces(void *user) {
    const struct job *job = user;
    uint32_t seed = 3;
    for (size_t at = 0; at < job->b->n;) {
        size_t n = 1 + draw(&seed) % job->most;
        if (n > job->b->n - at) n = job->b->n - at;
        ssize_t done = write(job->fd, job->b->data + at, n);
        if (done <= 0) break; /* the reader has left */
        at += (size_t)done;
    }
    close(job->fd);
    return NULL;
}

static struct clip read_pipe(const struct bytes *b, const struct audio_options *o, size_t most) {
    int ends[2];
    pthread_t writer;
    char name[40];
    assert_int_equal(pipe(ends), 0);
    struct job job = { b, ends[1], 3000 };
    assert_int_equal(pthread_create(&writer, NULL, write_pieces, &job), 0);
    snprintf(name, sizeof name, "/dev/fd/%d", ends[0]);
    struct audio_source *s = NULL;
    struct reel_error err = { 0 };
    must(audio_source_open(&s, name, o, &err), &err);
    struct clip clip = drain(s, most);
    audio_source_close(s);
    close(ends[0]);
    pthread_join(writer, NULL);
    return clip;
}

static void noise_file(struct bytes *b, int channels, int rate, int bits, size_t n_frames) {
    size_t n = n_frames * (size_t)channels * (size_t)(bits / 8);
    unsigned char *samples = malloc(n ? n : 1);
    uint32_t seed = (uint32_t)(rate + bits);
    for (size_t i = 0; i < n; i++)
        samples[i] = (unsigned char)draw(&seed);
    wav_bytes_file(b, WAV_TAG_PCM, channels, rate, bits, samples, n);
    free(samples);
}

static void same_clip(const struct clip *a, struct clip *b) {
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->samples, b->samples, a->n * sizeof(float));
    clip_release(b);
}

static void any_cuts_of_reading_and_writing_give_the_same_bits(void **state) {
    (void)state;
    static const struct {
        int channels, rate, bits;
    } files[] = { { 1, 16000, 16 }, { 2, 16000, 24 }, { 2, 44100, 16 },
                  { 1, 8000, 8 },   { 3, 48000, 24 }, { 1, 11025, 32 } };
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct bytes b = { 0 };
        noise_file(&b, files[i].channels, files[i].rate, files[i].bits, 20011);
        struct clip whole = read_memory(&b, NULL, 1 << 16);
        struct clip pieces = read_memory(&b, NULL, 0);
        same_clip(&whole, &pieces);
        pieces = read_memory(&b, NULL, 1);
        same_clip(&whole, &pieces);
        pieces = read_pipe(&b, NULL, 0);
        assert_true(pieces.seconds == 20011.0 / files[i].rate); /* the header says so */
        same_clip(&whole, &pieces);
        clip_release(&whole);
        bytes_release(&b);
    }
}

static void a_file_on_disk_reads_as_one_in_memory(void **state) {
    (void)state;
    struct bytes b = { 0 };
    noise_file(&b, 2, 22050, 16, 5000);
    write_path(&b);
    struct audio_source *s = NULL;
    struct reel_error err = { 0 };
    must(audio_source_open(&s, path, NULL, &err), &err);
    struct clip disk = drain(s, 777), memory = read_memory(&b, NULL, 777);
    audio_source_close(s);
    assert_true(disk.seconds == 5000.0 / 22050);
    same_clip(&disk, &memory);
    clip_release(&disk);
    bytes_release(&b);
}

static void a_live_input_is_given_as_it_comes(void **state) {
    (void)state;
    struct bytes b = { 0 };
    wav_bytes_head(&b, "RIFF", UINT32_MAX);
    wav_bytes_format(&b, WAV_TAG_PCM, 1, AUDIO_RATE, 16);
    wav_bytes_chunk(&b, "data", UINT32_MAX);
    bytes_add(&b, "\0\x40\0\x40\0", 5); /* two samples and a half */
    int ends[2];
    char name[40];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], b.data, b.n), b.n);
    snprintf(name, sizeof name, "/dev/fd/%d", ends[0]);
    struct audio_source *s = NULL;
    struct reel_error err = { 0 };
    float out[100];
    size_t n = 0;
    must(audio_source_open(&s, name, NULL, &err), &err); /* the writer is still there */
    must(audio_source_read(s, out, 100, &n, &err), &err);
    assert_int_equal(n, 2);
    assert_true(out[1] == 0.5f);
    assert_true(audio_source_seconds(s) == -1);
    assert_int_equal(write(ends[1], "\xc0", 1), 1);
    must(audio_source_read(s, out, 100, &n, &err), &err);
    assert_int_equal(n, 1);
    assert_true(out[0] == -0.5f);
    close(ends[1]);
    must(audio_source_read(s, out, 100, &n, &err), &err);
    assert_int_equal(n, 0);
    assert_null(audio_source_warning(s));
    audio_source_close(s);
    close(ends[0]);
    bytes_release(&b);
}

struct patience {
    int fd, n_calls, most;
};

static bool wait_patiently(void *user, int fd) {
    struct patience *p = user;
    p->fd = fd;
    return ++p->n_calls <= p->most;
}

static void a_live_input_can_be_cancelled_before_any_read(void **state) {
    (void)state;
    struct bytes b = { 0 };
    wav_bytes_head(&b, "RIFF", UINT32_MAX);
    wav_bytes_format(&b, WAV_TAG_PCM, 1, AUDIO_RATE, 16);
    wav_bytes_chunk(&b, "data", UINT32_MAX);
    bytes_zeros(&b, 20);
    int n_header_reads = 0;
    for (int most = 0; n_header_reads == 0 || most <= n_header_reads + 1; most++) {
        struct patience p = { .most = most };
        struct audio_options o = { .wait = wait_patiently, .user = &p };
        struct audio_source *s = NULL;
        struct reel_error err = { 0 };
        float out[100];
        size_t n = 0;
        int ends[2];
        char name[40];
        assert_int_equal(pipe(ends), 0);
        assert_int_equal(write(ends[1], b.data, b.n), b.n); /* and no end: a read would hang */
        snprintf(name, sizeof name, "/dev/fd/%d", ends[0]);
        enum reel_status status = audio_source_open(&s, name, &o, &err);
        if (status == REEL_OK) {
            n_header_reads = n_header_reads ? n_header_reads : most;
            status = audio_source_read(s, out, 100, &n, &err);
            if (most > n_header_reads) {
                must(status, &err);
                assert_int_equal(n, 10);
                status = audio_source_read(s, out, 100, &n, &err);
            }
        }
        assert_int_equal(status, REEL_E_CANCELLED);
        assert_non_null(strstr(err.text, "/dev/fd/"));
        assert_int_equal(n, 0);
        assert_int_equal(p.n_calls, most + 1);
        audio_source_close(s);
        close(ends[0]);
        close(ends[1]);
    }
    assert_in_range(n_header_reads, 2, 10);
    bytes_release(&b);
}

static void standard_input_is_a_dash(void **state) {
    (void)state;
    struct bytes b = { 0 };
    noise_file(&b, 1, 16000, 16, 3000);
    struct clip want = read_memory(&b, NULL, 0);
    int ends[2], kept = dup(STDIN_FILENO);
    pthread_t writer;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    struct job job = { &b, ends[1], 500 };
    assert_int_equal(pthread_create(&writer, NULL, write_pieces, &job), 0);
    struct audio_source *s = NULL;
    struct reel_error err = { 0 };
    must(audio_source_open(&s, "-", NULL, &err), &err);
    struct clip got = drain(s, 0);
    audio_source_close(s);
    same_clip(&want, &got);
    pthread_join(writer, NULL);
    close(ends[0]);
    assert_int_not_equal(read(STDIN_FILENO, &(char){ 0 }, 1), -1); /* left open */
    if (kept >= 0) assert_int_equal(dup2(kept, STDIN_FILENO), STDIN_FILENO);
    close(kept);
    clip_release(&want);
    bytes_release(&b);
}

/* ---- rates ----------------------------------------------------------------------------------- */

static struct clip resampled_sine(int rate, double hz, double seconds) {
    size_t n = (size_t)(rate * seconds);
    float *samples = malloc(n * sizeof *samples);
    const double pi = acos(-1);
    for (size_t i = 0; i < n; i++)
        samples[i] = (float)(0.5 * sin(2 * pi * hz * (double)i / rate));
    struct bytes b = { 0 };
    wav_bytes_floats(&b, rate, samples, n);
    struct clip clip = read_memory(&b, NULL, 0);
    bytes_release(&b);
    free(samples);
    return clip;
}

/* Measured: at most 4.3e-7 away from the edges, where the filter reaches beyond the clip. */
static void a_resampled_tone_keeps_its_pitch_phase_and_level(void **state) {
    (void)state;
    static const int rates[] = { 8000,  11025, 12000, 22050,  24000, 32000,
                                 44100, 48000, 96000, 192000, 44099 };
    static const double tones[] = { 100, 997, 3100 };
    const double pi = acos(-1);
    double worst = 0;
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
        for (size_t t = 0; t < 3; t++) {
            struct clip clip = resampled_sine(rates[r], tones[t], 1);
            assert_int_equal(clip.n, AUDIO_RATE);
            for (size_t i = 1000; i + 1000 < clip.n; i++) {
                double want = 0.5 * sin(2 * pi * tones[t] * (double)i / AUDIO_RATE);
                double error = fabs(clip.samples[i] - want);
                if (error > worst) worst = error;
                if (error > 3e-6)
                    fail_msg("%d Hz, tone of %g Hz, sample %zu: %g instead of %g", rates[r],
                             tones[t], i, (double)clip.samples[i], want);
            }
            clip_release(&clip);
        }
    }
    print_message("largest error %.2g\n", worst);
}

static void tones_that_16_khz_cannot_hold_are_removed(void **state) {
    (void)state;
    struct clip clip = resampled_sine(48000, 9000, 1);
    for (size_t i = 1000; i + 1000 < clip.n; i++)
        assert_true(fabsf(clip.samples[i]) < 1e-4f);
    clip_release(&clip);
}

static void every_length_is_scaled_and_rounded_up(void **state) {
    (void)state;
    static const int rates[] = { 8000, 11025, 44100, 48000, 192000, 15999 };
    static const size_t lengths[] = { 0, 1, 2, 3, 7, 160, 1000, 4095, 4096, 4097, 12345 };
    for (size_t r = 0; r < sizeof rates / sizeof *rates; r++) {
        for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
            struct bytes b = { 0 };
            uint64_t rate = (uint64_t)rates[r];
            noise_file(&b, 1, rates[r], 16, lengths[l]);
            struct clip clip = read_memory(&b, NULL, 0);
            assert_int_equal(clip.n, (lengths[l] * AUDIO_RATE + rate - 1) / rate);
            clip_release(&clip);
            bytes_release(&b);
        }
    }
}

/* ---- lengths and limits ---------------------------------------------------------------------- */

static void an_empty_clip_is_a_clip(void **state) {
    (void)state;
    static const int rates[] = { 16000, 44100 };
    for (int i = 0; i < 2; i++) {
        struct bytes b = { 0 };
        wav_bytes_file(&b, WAV_TAG_PCM, 2, rates[i], 16, "", 0);
        struct clip clip = read_memory(&b, NULL, 10);
        assert_int_equal(clip.n, 0);
        assert_true(clip.seconds == 0);
        assert_string_equal(clip.warning, "");
        clip_release(&clip);
        bytes_release(&b);
    }
}

static void what_is_no_file_is_said(void **state) {
    (void)state;
    struct audio_source *s = NULL;
    struct reel_error err = { 0 };
    assert_int_equal(audio_source_open(&s, "/nowhere/x.wav", NULL, &err), REEL_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "/nowhere/x.wav: cannot open: No such file"));
    assert_int_equal(audio_source_open(&s, "/tmp", NULL, &err), REEL_E_IO);
    assert_non_null(strstr(err.text, "/tmp: a folder, not an audio file"));
    assert_null(s);
    struct bytes b = { 0 };
    bytes_add(&b, "RIFF\x10", 5);
    b.n = 0;
    expect_refusal(&b, NULL, REEL_E_FORMAT, "mem.wav: empty, 0 bytes");
    b.n = 5;
    expect_refusal(&b, NULL, REEL_E_FORMAT, "mem.wav: ends inside the WAV header, after 5 bytes");
    bytes_release(&b);
}

static void truncated_samples_are_read_with_a_warning(void **state) {
    (void)state;
    static const int rates[] = { 16000, 48000 };
    for (int i = 0; i < 2; i++) {
        size_t rate = (size_t)rates[i];
        struct bytes b = { 0 };
        noise_file(&b, 2, rates[i], 16, rate);
        b.n -= rate * 2 + 1; /* half of it and a byte */
        struct clip clip = read_memory(&b, NULL, 0);
        assert_int_equal(clip.n, (((rate / 2 - 1) * AUDIO_RATE + rate - 1) / rate));
        assert_true(clip.seconds == (double)(rate / 2 - 1) / (double)rate);
        assert_non_null(strstr(clip.warning, "mem.wav: the header announces 1.000 s of audio, the "
                                             "file ends after 0.500 s"));
        clip_release(&clip);
        clip = read_pipe(&b, NULL, 0);
        assert_non_null(strstr(clip.warning, "the file ends after 0.500 s"));
        clip_release(&clip);
        bytes_release(&b);
    }
}

static void what_follows_the_samples_is_no_sound(void **state) {
    (void)state;
    struct bytes b = { 0 };
    wav_bytes_file(&b, WAV_TAG_PCM, 1, AUDIO_RATE, 8, "\x80\x80\x80", 3);
    wav_bytes_chunk(&b, "LIST", 4);
    bytes_add(&b, "INFO", 4);
    struct clip clip = read_memory(&b, NULL, 10);
    assert_int_equal(clip.n, 3);
    assert_string_equal(clip.warning, "");
    clip_release(&clip);
    bytes_release(&b);
}

static void expect_bad_sample(int tag, int rate, int bits, const void *samples, size_t n,
                              const char *says) {
    struct bytes b = { 0 };
    struct audio_source *s = NULL;
    struct reel_error err = { 0 };
    float out[64];
    size_t got = 1;
    wav_bytes_file(&b, tag, 1, rate, bits, samples, n);
    must(audio_source_open_memory(&s, "mem.wav", b.data, b.n, NULL, &err), &err);
    enum reel_status status = REEL_OK;
    while (status == REEL_OK && got > 0)
        status = audio_source_read(s, out, 64, &got, &err);
    assert_int_equal(status, REEL_E_FORMAT);
    if (!strstr(err.text, says)) fail_msg("\"%s\" instead of \"%s\"", err.text, says);
    assert_int_equal(got, 0);
    /* And again: what comes behind it is not audio that follows. */
    struct reel_error again = { 0 };
    assert_int_equal(audio_source_read(s, out, 64, &got, &again), REEL_E_FORMAT);
    assert_string_equal(again.text, err.text);
    audio_source_close(s);
    bytes_release(&b);
}

static void samples_that_are_no_numbers_are_refused_with_their_place(void **state) {
    (void)state;
    float f32[160] = { 0 };
    f32[100] = NAN;
    expect_bad_sample(WAV_TAG_FLOAT, 16000, 32, f32, sizeof f32,
                      "mem.wav: sample 100 (0.006 s) is not a finite number");
    f32[100] = -INFINITY;
    expect_bad_sample(WAV_TAG_FLOAT, 48000, 32, f32, sizeof f32, "sample 100 (0.002 s)");
    double f64[4] = { 0, 0, 1e39, 0 };
    expect_bad_sample(WAV_TAG_FLOAT, 16000, 64, f64, sizeof f64, "sample 2 (0.000 s)");
    for (int i = 0; i < 160; i++)
        f32[i] = i & 1 ? -3.4e38f : 3.4e38f;
    expect_bad_sample(WAV_TAG_FLOAT, 8000, 32, f32, sizeof f32, "too large to be resampled");
}

static void more_than_the_limit_is_refused_as_soon_as_it_shows(void **state) {
    (void)state;
    static const int rates[] = { 16000, 44100 };
    struct audio_options one_second = { .most_seconds = 1 };
    for (int i = 0; i < 2; i++) {
        struct bytes b = { 0 };
        noise_file(&b, 1, rates[i], 16, (size_t)rates[i]);
        struct clip clip = read_memory(&b, &one_second, 0);
        assert_int_equal(clip.n, AUDIO_RATE);
        clip_release(&clip);
        b.n = 0;
        noise_file(&b, 1, rates[i], 16, (size_t)rates[i] * 2);
        expect_refusal(&b, &one_second, REEL_E_LIMIT,
                       "mem.wav: 2.0 s of audio, at most 1.0 s are allowed");
        /* A pipe's header that does not say so. */
        memset(b.data + 40, 0xff, 4);
        int ends[2];
        pthread_t writer;
        char name[40];
        assert_int_equal(pipe(ends), 0);
        struct job job = { &b, ends[1], 3000 };
        assert_int_equal(pthread_create(&writer, NULL, write_pieces, &job), 0);
        snprintf(name, sizeof name, "/dev/fd/%d", ends[0]);
        struct audio_source *s = NULL;
        struct reel_error err = { 0 };
        float out[1000];
        size_t n = 1, total = 0;
        must(audio_source_open(&s, name, &one_second, &err), &err);
        enum reel_status status = REEL_OK;
        while (status == REEL_OK && n > 0) {
            status = audio_source_read(s, out, 1000, &n, &err);
            total += n;
        }
        assert_int_equal(status, REEL_E_LIMIT);
        assert_in_range(total, AUDIO_RATE - 1000, AUDIO_RATE);
        assert_non_null(strstr(err.text, "more than 1.0 s of audio"));
        while (read(ends[0], out, sizeof out) > 0) {
        } /* the writer wants to end */
        pthread_join(writer, NULL);
        audio_source_close(s);
        close(ends[0]);
        bytes_release(&b);
    }
}

/* ---- an hour --------------------------------------------------------------------------------- */

struct hour {
    int fd;
    int rate;
    uint64_t n_frames;
};

static void *write_hour(void *user) {
    const struct hour *hour = user;
    struct bytes b = { 0 };
    int16_t block[4096];
    wav_bytes_head(&b, "RIFF", UINT32_MAX);
    wav_bytes_format(&b, WAV_TAG_PCM, 1, hour->rate, 16);
    wav_bytes_chunk(&b, "data", UINT32_MAX);
    if (write(hour->fd, b.data, b.n) != (ssize_t)b.n) abort();
    for (size_t i = 0; i < 4096; i++)
        block[i] = (int16_t)(i * 16); /* 4096 into 65536 */
    for (uint64_t left = hour->n_frames; left > 0;) {
        size_t n = left < 4096 ? (size_t)left : 4096;
        if (write(hour->fd, block, n * 2) != (ssize_t)(n * 2)) abort();
        left -= n;
    }
    close(hour->fd);
    bytes_release(&b);
    return NULL;
}

static long resident_kib(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

/* Five minutes of it under a sanitizer, which sees the same code in them. */
static void an_hour_passes_through_a_pipe_in_bounded_memory(void **state) {
    (void)state;
    static const int rates[] = { 16000, 48000 };
    const uint64_t n_seconds = sanitized_briefly() ? 300 : 3600;
    for (int i = 0; i < 2; i++) {
        int ends[2];
        pthread_t writer;
        char name[40];
        assert_int_equal(pipe(ends), 0);
        struct hour hour = { ends[1], rates[i], (uint64_t)rates[i] * n_seconds };
        assert_int_equal(pthread_create(&writer, NULL, write_hour, &hour), 0);
        snprintf(name, sizeof name, "/dev/fd/%d", ends[0]);
        struct audio_source *s = NULL;
        struct reel_error err = { 0 };
        float out[4096];
        uint64_t total = 0;
        size_t n = 1;
        must(audio_source_open(&s, name, NULL, &err), &err);
        long before = 0;
        while (n > 0) {
            must(audio_source_read(s, out, 4096, &n, &err), &err);
            if (total < AUDIO_RATE * 60 && total + n >= AUDIO_RATE * 60) before = resident_kib();
            total += n;
        }
        assert_int_equal(total, AUDIO_RATE * n_seconds);
        assert_in_range(before, 1, LONG_MAX);
        assert_in_range(resident_kib() - before, 0, 2048); /* since the first minute */
        pthread_join(writer, NULL);
        audio_source_close(s);
        close(ends[0]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_are_divided_by_their_range),
        cmocka_unit_test(floats_are_kept_as_they_are),
        cmocka_unit_test(channels_are_averaged),
        cmocka_unit_test(raw_samples_are_read_as_the_caller_says),
        cmocka_unit_test(raw_formats_that_cannot_be_are_refused),
        cmocka_unit_test(any_cuts_of_reading_and_writing_give_the_same_bits),
        cmocka_unit_test(a_file_on_disk_reads_as_one_in_memory),
        cmocka_unit_test(a_live_input_is_given_as_it_comes),
        cmocka_unit_test(a_live_input_can_be_cancelled_before_any_read),
        cmocka_unit_test(standard_input_is_a_dash),
        cmocka_unit_test(a_resampled_tone_keeps_its_pitch_phase_and_level),
        cmocka_unit_test(tones_that_16_khz_cannot_hold_are_removed),
        cmocka_unit_test(every_length_is_scaled_and_rounded_up),
        cmocka_unit_test(an_empty_clip_is_a_clip),
        cmocka_unit_test(what_is_no_file_is_said),
        cmocka_unit_test(truncated_samples_are_read_with_a_warning),
        cmocka_unit_test(what_follows_the_samples_is_no_sound),
        cmocka_unit_test(samples_that_are_no_numbers_are_refused_with_their_place),
        cmocka_unit_test(more_than_the_limit_is_refused_as_soon_as_it_shows),
        cmocka_unit_test(an_hour_passes_through_a_pipe_in_bounded_memory),
    };
    return cmocka_run_group_tests(tests, make_path, drop_path);
}
