/* What libsndfile reads for us, written by libsndfile itself; and what is said where it is not
 * installed, or cannot help. Skipped without it, all but that. */
#define _GNU_SOURCE
#include "audio/audio_source.h"

#include "../support/wav_bytes.h"
#include "base/file_map.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* In front of the system's: a machine without libsndfile. */
static bool hidden;
void *dlopen(const char *name, int flags) {
    void *(*real)(const char *, int) = NULL;
    void *symbol = dlsym(RTLD_NEXT, "dlopen");
    memcpy(&real, &symbol, sizeof real);
    if (hidden && name && strstr(name, "libsndfile")) return NULL;
    return real(name, flags);
}

struct sf_info {
    int64_t frames;
    int samplerate, channels, format, sections, seekable;
};
static struct {
    void *(*open)(const char *path, int mode, struct sf_info *info);
    int64_t (*write)(void *file, const float *samples, int64_t n_frames);
    int (*close)(void *file);
} sf;

enum {
    MODE_WRITE = 0x20,
    WAV_16 = 0x010002,
    WAV_ULAW = 0x010010,
    WAV_IMA = 0x010012,
    AIFF_16 = 0x020002,
    FLAC_16 = 0x170002,
    OGG_VORBIS = 0x200060,
    OGG_OPUS = 0x200064,
    MP3 = 0x230082,
};

static char path[] = "/tmp/reel-sndfile-XXXXXX";

static int find_library(void **state) {
    (void)state;
    int fd = mkstemp(path);
    if (fd < 0 || close(fd) != 0) return -1;
    void *library = dlopen("libsndfile.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return 0;
    void *symbols[] = { dlsym(library, "sf_open"), dlsym(library, "sf_writef_float"),
                        dlsym(library, "sf_close") };
    memcpy(&sf, symbols, sizeof sf);
    return 0;
}

static int drop_path(void **state) {
    (void)state;
    return unlink(path);
}

static void need_library(void) {
    if (sf.open) return;
    print_message("libsndfile.so.1 is not installed\n");
    skip();
}

/* Tones below 3 kHz with gaps, interleaved; channel c has the level 1 / (c + 1). */
static float *tones(int rate, int channels, size_t n_frames) {
    float *out = malloc(n_frames * (size_t)channels * sizeof *out);
    const double pi = acos(-1);
    assert_non_null(out);
    for (size_t i = 0; i < n_frames; i++) {
        double t = (double)i / rate;
        double x = 0.3 * sin(2 * pi * 440 * t) + 0.2 * sin(2 * pi * 1234 * t);
        x *= fmod(t, 0.5) < 0.4 ? 1 : 0.1;
        for (int c = 0; c < channels; c++)
            out[i * (size_t)channels + (size_t)c] = (float)(x / (c + 1));
    }
    return out;
}

/* False where this libsndfile does not write the format. */
static bool write_file(int format, int rate, int channels, const float *samples, size_t n_frames) {
    struct sf_info info = { .samplerate = rate, .channels = channels, .format = format };
    void *file = sf.open(path, MODE_WRITE, &info);
    if (!file) return false;
    assert_int_equal(sf.write(file, samples, (int64_t)n_frames), n_frames);
    assert_int_equal(sf.close(file), 0);
    return true;
}

struct clip {
    float *samples;
    size_t n;
    double seconds;
    char warning[300];
};

static struct clip drain(struct audio_source *s, size_t most) {
    struct clip clip = { .seconds = audio_source_seconds(s) };
    struct reel_error err = { 0 };
    for (size_t got = 1, room = 0; got > 0; clip.n += got) {
        if (clip.n + most > room) room = 2 * (clip.n + most);
        clip.samples = realloc(clip.samples, room * sizeof(float));
        assert_non_null(clip.samples);
        if (audio_source_read(s, clip.samples + clip.n, most, &got, &err) != REEL_OK)
            fail_msg("%s", err.text);
    }
    if (audio_source_warning(s))
        snprintf(clip.warning, sizeof clip.warning, "%s", audio_source_warning(s));
    audio_source_close(s);
    return clip;
}

static struct clip read_path(const char *name, size_t most) {
    struct audio_source *s = NULL;
    struct reel_error err = { 0 };
    if (audio_source_open(&s, name, NULL, &err) != REEL_OK) fail_msg("%s", err.text);
    return drain(s, most);
}

static void clip_release(struct clip *clip) { free(clip->samples); }

static void flac_and_aiff_equal_wav_bit_for_bit(void **state) {
    (void)state;
    need_library();
    static const int formats[] = { FLAC_16, AIFF_16 };
    static const int rates[] = { 16000, 44100 };
    for (int i = 0; i < 4; i++) {
        int rate = rates[i / 2];
        size_t n = (size_t)rate * 2 + 123;
        float *samples = tones(rate, 2, n);
        assert_true(write_file(WAV_16, rate, 2, samples, n));
        struct clip wav = read_path(path, 5000);
        assert_true(write_file(formats[i % 2], rate, 2, samples, n));
        for (size_t most = 700; most < 20000; most *= 9) {
            struct clip clip = read_path(path, most);
            assert_int_equal(clip.n, wav.n);
            assert_memory_equal(clip.samples, wav.samples, wav.n * sizeof(float));
            assert_true(clip.seconds == (double)n / rate);
            assert_string_equal(clip.warning, "");
            clip_release(&clip);
        }
        clip_release(&wav);
        free(samples);
    }
}

/* How much of `want` is in `got`, and the level: 1 and 1 for the same. Searches the delay that a
 * lossy format may bring, up to 2000 samples. */
static double likeness(const struct clip *want, const struct clip *got) {
    double best = 0;
    for (size_t delay = 0; delay < 2000; delay++) {
        double ww = 0, gg = 0, wg = 0;
        for (size_t i = 4000; i < 12000; i++) {
            double w = want->samples[i], g = got->samples[i + delay];
            ww += w * w;
            gg += g * g;
            wg += w * g;
        }
        double same = wg / sqrt(ww * gg + 1e-30);
        if (same > best && gg > 0.8 * ww && gg < 1.2 * ww) best = same;
    }
    return best;
}

static void lossy_formats_sound_like_what_was_written(void **state) {
    (void)state;
    need_library();
    static const struct {
        const char *name;
        int format, rate;
    } kinds[] = { { "Ogg Vorbis", OGG_VORBIS, 44100 },
                  { "Opus", OGG_OPUS, 48000 },
                  { "MP3", MP3, 44100 },
                  { "mu-law in WAV", WAV_ULAW, 8000 },
                  { "IMA ADPCM in WAV", WAV_IMA, 16000 } };
    int n_read = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        int rate = kinds[i].rate;
        size_t n = (size_t)rate * 2;
        float *samples = tones(rate, 1, n);
        assert_true(write_file(WAV_16, rate, 1, samples, n));
        struct clip wav = read_path(path, 4096);
        if (write_file(kinds[i].format, rate, 1, samples, n)) {
            struct clip clip = read_path(path, 4096);
            double same = likeness(&wav, &clip);
            print_message("%s: %.2f s, likeness %.4f\n", kinds[i].name, clip.seconds, same);
            assert_in_range(clip.n, 2 * AUDIO_RATE, 2 * AUDIO_RATE + 4000);
            assert_true(same > 0.98);
            assert_true(fabs(clip.seconds - (double)clip.n / AUDIO_RATE) < 0.001);
            clip_release(&clip);
            n_read++;
        } else {
            print_message("%s: not written by this libsndfile\n", kinds[i].name);
        }
        clip_release(&wav);
        free(samples);
    }
    assert_true(n_read >= 2); /* those in WAV always are */
}

static void a_file_in_memory_is_read_as_one_on_disk(void **state) {
    (void)state;
    need_library();
    float *samples = tones(22050, 1, 22050);
    assert_true(write_file(FLAC_16, 22050, 1, samples, 22050));
    struct file_map map;
    struct audio_source *s = NULL;
    assert_int_equal(file_map_open(&map, path, NULL), REEL_OK);
    assert_int_equal(audio_source_open_memory(&s, "upload.flac", map.bytes, map.size, NULL, NULL),
                     REEL_OK);
    struct clip memory = drain(s, 999), disk = read_path(path, 1234);
    assert_int_equal(memory.n, disk.n);
    assert_memory_equal(memory.samples, disk.samples, disk.n * sizeof(float));
    clip_release(&memory);
    clip_release(&disk);
    file_map_close(&map);
    free(samples);
}

static void a_truncated_file_gives_what_it_holds_and_a_warning(void **state) {
    (void)state;
    need_library();
    float *samples = tones(16000, 1, 64000);
    struct file_map map;
    assert_true(write_file(FLAC_16, 16000, 1, samples, 64000));
    assert_int_equal(file_map_open(&map, path, NULL), REEL_OK);
    struct audio_source *s = NULL;
    assert_int_equal(audio_source_open_memory(&s, "half.flac", map.bytes, map.size / 2, NULL, NULL),
                     REEL_OK);
    struct clip clip = drain(s, 4096);
    assert_in_range(clip.n, 20000, 44000);
    if (!strstr(clip.warning, "half.flac: ") || !strstr(clip.warning, " s of audio were read: "))
        fail_msg("\"%s\"", clip.warning);
    clip_release(&clip);
    file_map_close(&map);
    free(samples);
}

/* ---- MP3 ---- */

/* Bytes of the frame of MPEG 1 layer III that begins there, or 0. */
static size_t mp3_frame_bytes(const unsigned char *p) {
    static const int rates[] = {
        0, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 0
    };
    if (p[0] != 0xff || (p[1] & 0xfe) != 0xfa) return 0;
    return (size_t)(144000 * rates[p[2] >> 4] / 44100 + (p[2] >> 1 & 1));
}

static void add_zeros_behind(struct bytes *b, const char *id, size_t n) {
    bytes_add(b, id, strlen(id));
    bytes_zeros(b, n - strlen(id));
}

/* n seconds, loud and then nearly nothing, so that frames of a variable rate differ. */
static float *loud_then_quiet(size_t n) {
    float *samples = tones(44100, 1, n);
    for (size_t i = n / 4; i < n; i++)
        samples[i] *= 1e-4f;
    return samples;
}

static struct clip read_memory(const struct bytes *b) {
    struct audio_source *s = NULL;
    struct reel_error err = { 0 };
    if (audio_source_open_memory(&s, "x.mp3", b->data, b->n, NULL, &err) != REEL_OK)
        fail_msg("%s", err.text);
    return drain(s, 4096);
}

/* With the header that tells its length, as it is or behind a tag, and without, where decoders
 * guess: a tag behind the last frame is then taken for sound, and short frames for none. */
static void a_whole_mp3_is_not_said_to_lack_anything(void **state) {
    (void)state;
    need_library();
    const size_t n = 44100 * 8;
    float *samples = loud_then_quiet(n);
    struct file_map map;
    if (!write_file(MP3, 44100, 1, samples, n)) {
        print_message("this libsndfile writes no MP3\n");
        free(samples);
        skip();
    }
    assert_int_equal(file_map_open(&map, path, NULL), REEL_OK);
    const size_t head = mp3_frame_bytes(map.bytes);
    assert_true(head > 0);
    for (int kind = 0; kind < 8; kind++) {
        const bool guessed = kind >= 4;
        struct bytes b = { 0 };
        if (kind == 2) add_zeros_behind(&b, "ID3\3", 10 + 32 * 128);
        if (kind == 2) b.data[8] = 32; /* whose size is in digits of seven bits */
        bytes_add(&b, map.bytes + (guessed ? head : 0), map.size - (guessed ? head : 0));
        if (kind % 4 == 1) add_zeros_behind(&b, "TAG", 128);
        if (kind % 4 == 3) add_zeros_behind(&b, "APETAGEX", 30000);
        struct clip clip = read_memory(&b);
        print_message("kind %d: %.3f s of %.3f s, %s\n", kind, (double)clip.n / AUDIO_RATE,
                      clip.seconds, clip.warning);
        assert_true(fabs(clip.seconds - 8) < 0.12);
        assert_string_equal(clip.warning, "");
        assert_in_range(clip.n, 8 * AUDIO_RATE - 100, 8 * AUDIO_RATE + (guessed ? 2000 : 100));
        clip_release(&clip);
        bytes_release(&b);
    }
    struct bytes half = { 0 };
    bytes_add(&half, map.bytes, map.size / 2);
    struct clip clip = read_memory(&half);
    if (!strstr(clip.warning, "some of what it announces is missing"))
        fail_msg("\"%s\"", clip.warning);
    clip_release(&clip);
    bytes_release(&half);
    file_map_close(&map);
    free(samples);
}

/* Its length is at its end: nothing else tells. */
static void an_ogg_file_without_its_end_is_warned_about(void **state) {
    (void)state;
    need_library();
    static const int formats[] = { OGG_VORBIS, OGG_OPUS };
    float *samples = malloc(480000 * sizeof *samples);
    uint32_t seed = 1;
    for (size_t i = 0; i < 480000; i++) {
        seed = seed * 1664525u + 1013904223u;
        samples[i] = (float)(seed >> 8) / (1 << 26); /* noise: many pages */
    }
    for (int i = 0; i < 2; i++) {
        if (!write_file(formats[i], 48000, 1, samples, 480000)) continue;
        struct file_map map;
        struct audio_source *s = NULL;
        assert_int_equal(file_map_open(&map, path, NULL), REEL_OK);
        assert_int_equal(
            audio_source_open_memory(&s, "half.ogg", map.bytes, map.size / 2, NULL, NULL), REEL_OK);
        struct clip clip = drain(s, 4096);
        assert_in_range(clip.n, AUDIO_RATE * 2, AUDIO_RATE * 7);
        assert_true(clip.seconds == -1);
        if (!strstr(clip.warning, "half.ogg: ") || !strstr(clip.warning, "missing"))
            fail_msg("\"%s\"", clip.warning);
        clip_release(&clip);
        file_map_close(&map);
    }
    free(samples);
}

/* `reel transcribe - <FILE`, behind what another program has read. */
static void standard_input_is_sought_in_where_it_is_a_file(void **state) {
    (void)state;
    need_library();
    float *samples = tones(22050, 1, 22050);
    assert_true(write_file(FLAC_16, 22050, 1, samples, 22050));
    struct clip want = read_path(path, 4096);
    struct file_map map;
    struct bytes b = { 0 };
    assert_int_equal(file_map_open(&map, path, NULL), REEL_OK);
    bytes_add(&b, "before ", 7);
    bytes_add(&b, map.bytes, map.size);
    file_map_close(&map);
    assert_int_equal(file_write_atomic(path, b.data, b.n, NULL), REEL_OK);
    int kept = dup(STDIN_FILENO), fd = open(path, O_RDONLY);
    assert_int_equal(lseek(fd, 7, SEEK_SET), 7);
    assert_int_equal(dup2(fd, STDIN_FILENO), STDIN_FILENO);
    struct clip got = read_path("-", 4096);
    assert_int_equal(got.n, want.n);
    assert_memory_equal(got.samples, want.samples, want.n * sizeof(float));
    if (kept >= 0) assert_int_equal(dup2(kept, STDIN_FILENO), STDIN_FILENO);
    close(kept);
    close(fd);
    clip_release(&want);
    clip_release(&got);
    bytes_release(&b);
    free(samples);
}

static void expect_refusal(const char *name, const struct audio_options *o, enum reel_status status,
                           const char *says) {
    struct audio_source *s = NULL;
    struct reel_error err = { 0 };
    enum reel_status got = audio_source_open(&s, name, o, &err);
    if (got != status || !strstr(err.text, says))
        fail_msg("status %d, \"%s\"; expected %d with \"%s\"", got, err.text, status, says);
    assert_null(s);
}

static void write_text(const char *text) {
    assert_int_equal(file_write_atomic(path, text, strlen(text), NULL), REEL_OK);
}

static void what_is_no_audio_at_all_is_refused(void **state) {
    (void)state;
    need_library();
    write_text("Emma Woodhouse, handsome, clever, and rich");
    expect_refusal(path, NULL, REEL_E_FORMAT,
                   ": neither WAV nor a format that libsndfile reads (FLAC, Ogg, Opus, MP3)");
    write_text("x");
    expect_refusal(path, NULL, REEL_E_FORMAT, ": neither WAV nor");
}

static void without_libsndfile_its_package_is_named(void **state) {
    (void)state;
    write_text("fLaC, as if");
    hidden = true;
    expect_refusal(path, NULL, REEL_E_UNSUPPORTED,
                   ": not a WAV file, and libsndfile.so.1, which reads FLAC, Ogg, Opus and MP3, is "
                   "not there: install it (Debian and Ubuntu: libsndfile1), or give WAV");
    /* For a WAV file the words about its encoding say more. */
    struct bytes b = { 0 };
    wav_bytes_file(&b, 7, 1, 8000, 8, "abcd", 4);
    assert_int_equal(file_write_atomic(path, b.data, b.n, NULL), REEL_OK);
    expect_refusal(path, NULL, REEL_E_UNSUPPORTED, "encoding 0x0007 (mu-law)");
    hidden = false;
    bytes_release(&b);
}

static void a_caller_can_want_wav_only(void **state) {
    (void)state;
    struct audio_options o = { .wav_only = true };
    write_text("fLaC, as if");
    expect_refusal(path, &o, REEL_E_UNSUPPORTED, ": not a WAV file, only those are read here");
}

static void limits_hold_for_every_format(void **state) {
    (void)state;
    need_library();
    float *samples = tones(16000, 1, 32000);
    assert_true(write_file(FLAC_16, 16000, 1, samples, 32000));
    expect_refusal(path, &(struct audio_options){ .most_seconds = 1.5 }, REEL_E_LIMIT,
                   ": 2.0 s of audio, at most 1.5 s are allowed");
    assert_true(write_file(AIFF_16, 4000, 1, samples, 32000));
    expect_refusal(path, NULL, REEL_E_UNSUPPORTED, ": 4000 Hz, 8000 to 192000 are read");
    free(samples);
}

static void a_pipe_that_is_not_wav_is_refused_with_a_way_out(void **state) {
    (void)state;
    int ends[2];
    char name[40];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], "fLaC, as if it were", 19), 19);
    snprintf(name, sizeof name, "/dev/fd/%d", ends[0]);
    expect_refusal(name, NULL, REEL_E_UNSUPPORTED,
                   ": not WAV, and only WAV or raw samples can be read from a pipe");
    close(ends[0]);
    close(ends[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flac_and_aiff_equal_wav_bit_for_bit),
        cmocka_unit_test(lossy_formats_sound_like_what_was_written),
        cmocka_unit_test(a_file_in_memory_is_read_as_one_on_disk),
        cmocka_unit_test(a_truncated_file_gives_what_it_holds_and_a_warning),
        cmocka_unit_test(a_whole_mp3_is_not_said_to_lack_anything),
        cmocka_unit_test(an_ogg_file_without_its_end_is_warned_about),
        cmocka_unit_test(standard_input_is_sought_in_where_it_is_a_file),
        cmocka_unit_test(what_is_no_audio_at_all_is_refused),
        cmocka_unit_test(without_libsndfile_its_package_is_named),
        cmocka_unit_test(a_caller_can_want_wav_only),
        cmocka_unit_test(limits_hold_for_every_format),
        cmocka_unit_test(a_pipe_that_is_not_wav_is_refused_with_a_way_out),
    };
    return cmocka_run_group_tests(tests, find_library, drop_path);
}
