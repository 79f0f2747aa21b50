/* Recordings of all kinds through `reel transcribe` and the model inside the program: sounds that
 * are no speech, lengths from nothing to five minutes, broken headers and broken pipes. Each has a
 * result or a message, in every format, whole and streamed, in memory that does not grow with the
 * length. REEL_SOAK=1 adds an hour. */
#include "base/json.h"
#include "support/sanitized.h"
#include "support/shares.h"
#include "support/shell.h"
#include "support/wav_bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage); /* of no standard */

enum {
    RATE = 16000,
    PATIENCE_S = 120,    /* for a run of five minutes of sound at most; then it hangs */
    MORE_KIB = 8 * 1024, /* that a longer recording may take: how text and heap happen to lie */
};
#define LISTEN "reel transcribe -m demo-speech --device cpu --threads 2 "

static const char *const ways[] = { LISTEN, LISTEN "--stream " };
enum { WHOLE, STREAMED, N_WAYS };
static const char *const formats[] = { "text", "json", "srt" };
enum { TEXT, JSON, SRT, N_FORMATS };

/* ---- sounds ---- */

enum sound { SILENCE, CONSTANT, LAST_BIT, ONE_BIT, CLIPPED, SPOKEN, N_SOUNDS };
static const char *const sound_names[] = { "silence", "constant", "last-bit",
                                           "one-bit", "clipped",  "spoken" };

enum { N_SPOKEN = 13916, N_ROUND = N_SPOKEN + RATE / 2 };
static int16_t spoken[N_ROUND]; /* the first clip of the model's golden, and half a second */

static bool read_spoken(void) {
    FILE *in = fopen("models/speech/golden.ulaw", "rb");
    unsigned char codes[N_SPOKEN];
    const size_t n = in ? fread(codes, 1, N_SPOKEN, in) : 0;
    if (in) fclose(in);
    for (size_t i = 0; i < n; i++) { /* mu-law of 14 bits */
        const int bits = codes[i] ^ 0xff, size = ((2 * (bits & 15) + 33) << (bits >> 4 & 7)) - 33;
        spoken[i] = (int16_t)(4 * (bits & 0x80 ? -size : size));
    }
    return n == N_SPOKEN;
}

static bool coin(int64_t i) {
    uint64_t x = (uint64_t)i * 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9u;
    return x >> 63;
}

static int16_t sample(enum sound sound, int64_t i) {
    const int loud = 20 * spoken[i % N_ROUND];
    switch (sound) {
    case CONSTANT:
        return 16384;
    case LAST_BIT:
        return coin(i);
    case ONE_BIT:
        return coin(i) ? INT16_MAX : INT16_MIN;
    case CLIPPED:
        return (int16_t)(loud > INT16_MAX ? INT16_MAX : loud < INT16_MIN ? INT16_MIN : loud);
    case SPOKEN:
        return spoken[i % N_ROUND];
    default:
        return 0;
    }
}

static int16_t *samples_make(enum sound sound, int64_t from, size_t n) {
    int16_t *samples = malloc(2 * n + 1);
    assert_non_null(samples);
    for (size_t i = 0; i < n; i++)
        samples[i] = sample(sound, from + (int64_t)i);
    return samples;
}

static void write_recording(const char *name, enum sound sound, double seconds) {
    struct bytes b = { 0 };
    const size_t n = (size_t)(seconds * RATE);
    int16_t *samples = samples_make(sound, 0, n);
    wav_bytes_file(&b, WAV_TAG_PCM, 1, RATE, 16, samples, 2 * n);
    shell_file(name, b.data, b.n);
    bytes_release(&b);
    free(samples);
}

/* ---- runs ---- */

struct run {
    struct result said;
    long peak_kib; /* most memory that was resident */
};

static char folder[600];

/* The line's program takes the shell's place, so that what is measured is its own. An `in` of -1
 * leaves standard input as it is. */
static struct run run(const char *line, int in, unsigned patience_s) {
    char command[1500];
    int status = 0;
    struct rusage used = { 0 };
    snprintf(command, sizeof command, "cd '%s' && exec %s >heard 2>told", folder, line);
    const pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (in >= 0) dup2(in, STDIN_FILENO);
        alarm(patience_s);
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(127);
    }
    if (in >= 0) close(in);
    assert_int_equal(wait4(pid, &status, 0, &used), pid);
    if (WIFSIGNALED(status)) fail_msg("%s: ended by signal %d", line, WTERMSIG(status));
    struct run r = { .said = shell("cat heard; cat told >&2"), .peak_kib = used.ru_maxrss };
    r.said.status = WEXITSTATUS(status);
    return r;
}

/* What a program writes that does not know how much will follow: sizes are left open. */
static void write_endless(int fd, enum sound sound, int64_t n) {
    struct bytes b = { 0 };
    wav_bytes_head(&b, "RIFF", UINT32_MAX);
    wav_bytes_format(&b, WAV_TAG_PCM, 1, RATE, 16);
    wav_bytes_chunk(&b, "data", UINT32_MAX);
    bool good = write(fd, b.data, b.n) == (ssize_t)b.n;
    bytes_release(&b);
    for (int64_t i = 0; i < n && good; i += RATE) {
        int16_t *samples = samples_make(sound, i, RATE);
        const char *at = (const char *)samples;
        for (ssize_t left = 2 * RATE, did = 0; left > 0 && good; left -= did, at += did) {
            did = write(fd, at, (size_t)left);
            good = did > 0;
        }
        free(samples);
    }
}

/* Seconds of sound, made while they are heard through a pipe. */
static struct run run_piped(const char *line, enum sound sound, int seconds, unsigned patience_s) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    const pid_t writer = fork();
    assert_true(writer >= 0);
    if (writer == 0) {
        close(ends[0]);
        write_endless(ends[1], sound, (int64_t)seconds * RATE);
        _exit(0);
    }
    close(ends[1]);
    struct run r = run(line, ends[0], patience_s);
    waitpid(writer, NULL, 0);
    return r;
}

static int n_words(const char *text) {
    int n = 0;
    for (const char *at = text; *at; at++)
        n += *at != ' ' && (at == text || at[-1] == ' ');
    return n;
}

/* What any recording's run gives: exit 0, the format's shape, the length told, and words that could
 * have been spoken in the time. The text is the caller's. */
static char *check_result(const char *line, const struct run *r, int format, double seconds) {
    char told[60];
    const char *out = r->said.out;
    const size_t n = strlen(out);
    if (r->said.status != 0) fail_msg("%s: status %d\n%s", line, r->said.status, r->said.err);
    snprintf(told, sizeof told, ": %.1f s of audio in ", seconds);
    if (!strstr(r->said.err, told)) fail_msg("%s: no \"%s\" in\n%s", line, told, r->said.err);
    char *text = NULL;
    if (format == TEXT) {
        assert_true(n > 0 && strchr(out, '\n') == out + n - 1);
        text = strdup(out);
        text[n - 1] = 0;
    } else if (format == JSON) {
        json_t *object = json_loads(out, 0, NULL);
        if (!json_is_string(json_object_get(object, "text"))) fail_msg("%s:\n%s", line, out);
        text = strdup(json_string_value(json_object_get(object, "text")));
        json_decref(object);
    } else {
        const bool empty = strcmp(out, "\n") == 0;
        if (!empty && strncmp(out, "1\n00:0", 6) != 0) fail_msg("%s:\n%s", line, out);
        text = strdup(empty ? "" : strchr(strchr(out, '\n') + 1, '\n') + 1);
    }
    assert_non_null(text);
    if (n_words(text) > 8 + 4 * seconds)
        fail_msg("%s: %d words in %.1f s: %s", line, n_words(text), seconds, text);
    return text;
}

static void forget(struct run r, char *text) {
    done(r.said);
    free(text);
}

static int enter(void **state) {
    if (!read_spoken() || shell_enter(state) != 0) return -1;
    struct result r = shell("pwd");
    snprintf(folder, sizeof folder, "%.*s", (int)strcspn(r.out, "\n"), r.out);
    done(r);
    return 0;
}

/* ---- tests ---- */

static char *text_of(int way, int format, enum sound sound, double seconds) {
    char line[300];
    snprintf(line, sizeof line, "%s--format %s a.wav", ways[way], formats[format]);
    struct run r = run(line, -1, PATIENCE_S);
    char *text = check_result(line, &r, format, seconds);
    print_message("%s of %g s, %s, %s: %s\n", sound_names[sound], seconds,
                  way == STREAMED ? "streamed" : "whole", formats[format], text);
    done(r.said);
    return text;
}

static void every_sound_of_every_length_has_a_result_in_every_format(void **state) {
    (void)state;
    const double lengths[] = { 0, 0.1, 1, getenv("REEL_SOAK") && !SANITIZED ? 30 : 10 };
    for (int i = 0; i < N_SOUNDS * 4; i++) {
        const enum sound sound = (enum sound)(i / 4);
        const double seconds = lengths[i % 4];
        if (sanitized_briefly() && i % 4 != i / 4 % 4) continue; /* one length of each sound */
        write_recording("a.wav", sound, seconds);
        char *text = text_of(WHOLE, TEXT, sound, seconds);
        char *json = text_of(WHOLE, JSON, sound, seconds);
        char *subtitles = text_of(WHOLE, SRT, sound, seconds);
        assert_string_equal(json, text);
        assert_true(!subtitles[0] == !text[0]);
        free(text), free(json), free(subtitles);
        free(text_of(STREAMED, i % N_FORMATS, sound, seconds));
    }
}

/* In segments as short as the program gives them to this model by itself. */
static void silence_has_no_text(void **state) {
    (void)state;
    static const enum sound sounds[] = { SILENCE, LAST_BIT };
    static const double lengths[] = { 0, 0.1, 1, 30 };
    for (int i = 0; i < 2 * 4 * N_WAYS; i++) {
        char line[300];
        write_recording("quiet.wav", sounds[i / 8], lengths[i / 2 % 4]);
        snprintf(line, sizeof line, "%squiet.wav", ways[i % 2]);
        struct run r = run(line, -1, PATIENCE_S);
        char *text = check_result(line, &r, TEXT, lengths[i / 2 % 4]);
        assert_string_equal(text, "");
        forget(r, text);
    }
}

static void five_minutes_take_no_more_memory_than_half_a_minute(void **state) {
    (void)state;
    static const enum sound sounds[] = { SILENCE, ONE_BIT, SPOKEN };
    if (SANITIZED) skip(); /* keeps what was freed */
    write_recording("short.wav", SPOKEN, 30);
    for (int way = 0; way < N_WAYS; way++) {
        char line[300];
        snprintf(line, sizeof line, "%sshort.wav", ways[way]);
        struct run first = run(line, -1, PATIENCE_S);
        free(check_result(line, &first, TEXT, 30));
        done(first.said);
        for (int i = 0; i < 3; i++) {
            const enum sound sound = sounds[i];
            const int format = (i + way) % N_FORMATS;
            const bool piped = (i + way) % 2;
            snprintf(line, sizeof line, "%s--format %s %s", ways[way], formats[format],
                     piped ? "-" : "long.wav");
            if (!piped) write_recording("long.wav", sound, 300);
            struct run r =
                piped ? run_piped(line, sound, 300, PATIENCE_S) : run(line, -1, PATIENCE_S);
            print_message("%s of %s: %ld KiB, of half a minute %ld\n", line, sound_names[sound],
                          r.peak_kib, first.peak_kib);
            assert_in_range(r.peak_kib, 1, first.peak_kib + MORE_KIB);
            forget(r, check_result(line, &r, format, 300));
        }
    }
}

static void an_hour_takes_no_more_memory_than_half_a_minute(void **state) {
    (void)state;
    enum { HOUR = 3600 };
    if (!getenv("REEL_SOAK") || SANITIZED) skip();
    write_recording("short.wav", SPOKEN, 30);
    for (int i = 0; i < N_SOUNDS * N_WAYS; i++) {
        char line[300];
        const enum sound sound = (enum sound)(i / N_WAYS);
        snprintf(line, sizeof line, "%s-q short.wav", ways[i % N_WAYS]);
        struct run first = run(line, -1, PATIENCE_S);
        snprintf(line, sizeof line, "%s--format srt -", ways[i % N_WAYS]);
        struct run r = run_piped(line, sound, HOUR, HOUR);
        print_message("%s, %s: %ld KiB, of half a minute %ld\n%s", line, sound_names[sound],
                      r.peak_kib, first.peak_kib, r.said.err);
        assert_in_range(r.peak_kib, 1, first.peak_kib + MORE_KIB);
        done(first.said);
        forget(r, check_result(line, &r, SRT, HOUR));
    }
}

/* ---- broken files ---- */

enum {
    N_BROKEN = 1600,   /* samples that follow a broken header */
    WAV_FRAME_AT = 32, /* byte of the header that says how many bytes a frame has */
};

/* A header of these numbers, else right. */
struct broken {
    const char *says;
    int status;
    int tag, channels, rate, bits;
    int frame_bytes; /* 0: as the others make them */
    bool piped;      /* a file of this kind is read by libsndfile, where there is one */
};
static const struct broken broken[] = {
    { "'fmt ' chunk: 0 channels, 1 to 64 are read", 5, 1, 0, RATE, 16, 0, false },
    { "'fmt ' chunk: 99 channels, 1 to 64 are read", 6, 1, 99, RATE, 16, 0, false },
    { "'fmt ' chunk: 0 Hz, 8000 to 192000 are read", 6, 1, 1, 0, 16, 0, false },
    { "'fmt ' chunk: 1000000 Hz, 8000 to 192000 are read", 6, 1, 1, 1000000, 16, 0, false },
    { "'fmt ' chunk: PCM of 0 bits, 8, 16, 24 and 32 are read", 6, 1, 1, RATE, 0, 0, false },
    { "'fmt ' chunk: PCM of 7 bits, 8, 16, 24 and 32 are read", 6, 1, 1, RATE, 7, 1, true },
    { "'fmt ' chunk: IEEE float of 16 bits, 32 and 64 are read", 6, 3, 1, RATE, 16, 0, false },
    { "'fmt ' chunk: encoding 0x1234 (unknown), PCM (1) and IEEE float (3) are read", 6, 0x1234, 1,
      RATE, 16, 0, false },
    { "'fmt ' chunk: encoding 0x0006 (A-law), PCM (1) and IEEE float (3) are read", 6, 6, 1, RATE,
      8, 0, true },
    { "'fmt ' chunk: frames of 3 bytes, 1 channels of 16 bits need 2", 5, 1, 1, RATE, 16, 3,
      false },
};

static unsigned char broken_bytes[40000]; /* the file at hand */
static size_t n_broken_bytes;

static void keep_broken(const void *bytes, size_t n) {
    assert_true(n <= sizeof broken_bytes);
    memcpy(broken_bytes, bytes, n);
    n_broken_bytes = n;
    shell_file("broken.wav", bytes, n);
}

static void write_broken(const struct broken *c) {
    struct bytes b = { 0 };
    wav_bytes_head(&b, "RIFF", 36 + 2 * N_BROKEN);
    wav_bytes_format(&b, c->tag, c->channels, c->rate, c->bits);
    if (c->frame_bytes) b.data[WAV_FRAME_AT] = (unsigned char)c->frame_bytes;
    wav_bytes_chunk(&b, "data", 2 * N_BROKEN);
    bytes_zeros(&b, 2 * N_BROKEN);
    keep_broken(b.data, b.n);
    bytes_release(&b);
}

/* A file of less than a pipe holds, by its name or through a pipe. */
static struct run run_broken(int way, int format, bool piped) {
    char line[300];
    int ends[2] = { -1, -1 };
    snprintf(line, sizeof line, "%s--format %s %s", ways[way], formats[format],
             piped ? "-" : "broken.wav");
    if (piped) {
        assert_int_equal(pipe(ends), 0);
        assert_int_equal(write(ends[1], broken_bytes, n_broken_bytes), n_broken_bytes);
        close(ends[1]);
    }
    return run(line, ends[0], PATIENCE_S);
}

/* In any format and streamed, the file is refused with words, and nothing is written. */
static void refused(const char *says, int status, bool piped) {
    static const int tried[][2] = {
        { WHOLE, TEXT }, { WHOLE, JSON }, { WHOLE, SRT }, { STREAMED, TEXT }
    };
    for (int i = 0; i < 4; i++) {
        char message[300];
        struct run r = run_broken(tried[i][0], tried[i][1], piped);
        snprintf(message, sizeof message, "reel: %s: %s", piped ? "standard input" : "broken.wav",
                 says);
        if (r.said.status != status || !strstr(r.said.err, message) || r.said.out[0])
            fail_msg("status %d instead of %d, \"%s\" written, and instead of \"%s\"\n%s",
                     r.said.status, status, r.said.out, message, r.said.err);
        done(r.said);
    }
}

static void wrong_headers_are_refused_with_what_is_read(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        write_broken(&broken[i]);
        refused(broken[i].says, broken[i].status, broken[i].piped);
    }
}

/* A right file cut off after n bytes. */
static void write_cut(size_t n) {
    struct bytes b = { 0 };
    int16_t *samples = samples_make(SPOKEN, 0, RATE);
    wav_bytes_file(&b, WAV_TAG_PCM, 1, RATE, 16, samples, 2 * RATE);
    keep_broken(b.data, n);
    bytes_release(&b);
    free(samples);
}

static void headers_that_end_early_are_refused_with_their_length(void **state) {
    (void)state;
    static const struct {
        size_t n;
        const char *says;
    } cuts[] = {
        { 0, "empty, 0 bytes" },
        { 3, "" },
        { 11, "ends inside the WAV header, after 11 bytes" },
        { 20, "ends inside the 'fmt ' chunk, after 20 bytes" },
        { 36, "ends after 36 bytes without a 'data' chunk" },
        { 43, "ends after 43 bytes without a 'data' chunk" },
    };
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        write_cut(cuts[i].n);
        refused(cuts[i].says, 5, false);
    }
}

/* What is there of the samples, with a warning of what is not; from a file and from a pipe. */
static void truncated_samples_are_transcribed_with_a_warning(void **state) {
    (void)state;
    static const size_t lengths[] = { 44, 45, 3245, 20000 };
    for (int i = 0; i < 4 * 4; i++) {
        const size_t n = lengths[i / 4];
        const double seconds = (double)((n - 44) / 2) / RATE;
        const int format = i % N_FORMATS;
        char told[100];
        write_cut(n);
        struct run r = run_broken(i % N_WAYS, format, i / 2 % 2);
        snprintf(told, sizeof told,
                 ": the header announces 1.000 s of audio, the file ends after %.3f s", seconds);
        if (!strstr(r.said.err, told)) fail_msg("%zu bytes: no \"%s\" in %s", n, told, r.said.err);
        forget(r, check_result("truncated", &r, format, seconds));
    }
}

int main(void) {
    struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sound_of_every_length_has_a_result_in_every_format),
        cmocka_unit_test(silence_has_no_text),
        in_turn(five_minutes_take_no_more_memory_than_half_a_minute),
        in_turn(an_hour_takes_no_more_memory_than_half_a_minute),
        cmocka_unit_test(wrong_headers_are_refused_with_what_is_read),
        cmocka_unit_test(headers_that_end_early_are_refused_with_their_length),
        cmocka_unit_test(truncated_samples_are_transcribed_with_a_warning),
    };
    SHARE_TESTS("recordings", 4, tests);
    return cmocka_run_group_tests_name("recordings of all kinds", tests, enter, shell_leave);
}
