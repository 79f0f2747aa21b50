/* Recordings of eight phrases with pauses between them, over noises of many kinds, through `reel
 * transcribe` and the model inside the program: no phrase is lost that the model hears when it is
 * given alone, and the times of its segment hold it. REEL_SOAK=1 tries every voice with every
 * noise and every pause. */
#include "base/json.h"
#include "support/sanitized.h"
#include "support/shell.h"
#include "support/spoken.h"
#include "support/wav_bytes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RATE = SPOKEN_RATE, N_PHRASES = 8, AROUND = RATE * 3 / 10 };
#define LISTEN "reel transcribe -m demo-speech --device cpu --threads 2 -q "

static struct spoken spoken;

/* ---- voices ---- */

struct voice {
    const char *name;
    int clips[N_PHRASES]; /* of models/speech/golden.json, the first n_clips in turn */
    int n_clips;
};
static const struct voice voices[] = {
    { "steph2", { 0, 14, 18 }, 3 }, { "Michael", { 1, 19 }, 2 },
    { "klatt3", { 8, 13 }, 2 },     { "Diogo", { 4 }, 1 },
    { "edward2", { 2 }, 1 },        { "rms", { 6, 9, 10, 11, 12, 15 }, 6 },
};
enum { N_VOICES = sizeof voices / sizeof *voices };

/* ---- noises ---- */

enum noise { ZEROS, DITHER, ROOM, HISS, HUM, CHANGING, N_NOISES };
static const char *const noise_names[] = { "zeros",          "dither", "room at -76 dB",
                                           "hiss at -60 dB", "hum",    "changing noise" };

static uint32_t seed;

/* In [-1, 1). */
static double random_real(void) {
    seed = seed * 1664525u + 1013904223u;
    return (int32_t)seed / 2147483648.0;
}

static double white(double level) { return sqrt(3) * pow(10, level / 20) * random_real(); }

/* Of the sample at t seconds. */
static double noise_at(enum noise noise, double t) {
    const double turn = 2 * acos(-1) * t;
    switch (noise) {
    case ROOM:
        return white(-76);
    case HISS:
        return white(-60);
    case HUM:
        return white(-72) +
               0.002 * (sin(50 * turn) + 0.4 * sin(150 * turn) + 0.2 * sin(250 * turn));
    case CHANGING:
        return white(-68 + 8 * sin(turn / 7));
    default:
        return 0;
    }
}

/* ---- recordings ---- */

struct phrase {
    const char *said;
    size_t begin, end;
};

struct made {
    int16_t *samples;
    size_t n;
    struct phrase phrases[N_PHRASES];
};

/* Dither of the other noises is rounding alone. */
static int16_t rounded(double x, enum noise noise) {
    if (noise == DITHER) x += (random_real() + random_real()) / 2 / 32768;
    x = rint(x * 32768);
    return (int16_t)(x > INT16_MAX ? INT16_MAX : x < INT16_MIN ? INT16_MIN : x);
}

/* pauses: seconds before the phrases, in turn, the last also behind the last phrase. */
static struct made make(const struct voice *voice, enum noise noise, const double *pauses,
                        int n_pauses) {
    struct made m = { .samples = calloc(60 * RATE, sizeof *m.samples) };
    float *clean = calloc(60 * RATE, sizeof *clean);
    assert_true(m.samples && clean);
    for (int i = 0; i < N_PHRASES; i++) {
        const struct spoken_clip *clip = &spoken.clips[voice->clips[i % voice->n_clips]];
        m.n += (size_t)(pauses[i % n_pauses] * RATE);
        assert_true(m.n + clip->n < 54 * RATE);
        memcpy(clean + m.n, clip->samples, clip->n * sizeof *clean);
        m.phrases[i] = (struct phrase){ clip->said, m.n, m.n + clip->n };
        m.n += clip->n;
    }
    m.n += (size_t)(pauses[N_PHRASES % n_pauses] * RATE);
    seed = 1;
    for (size_t i = 0; i < m.n; i++)
        m.samples[i] = rounded((double)clean[i] + noise_at(noise, (double)i / RATE), noise);
    free(clean);
    return m;
}

static void write_wav(const char *name, const int16_t *samples, size_t n) {
    struct bytes b = { 0 };
    wav_bytes_file(&b, WAV_TAG_PCM, 1, RATE, 16, samples, 2 * n);
    shell_file(name, b.data, b.n);
    bytes_release(&b);
}

/* Whether each phrase is heard by itself, with what noise is around it. */
static void hear_alone(const struct made *m, bool heard[N_PHRASES]) {
    for (int i = 0; i < N_PHRASES; i++) {
        char name[20];
        const struct phrase *p = &m->phrases[i];
        const size_t from = p->begin > AROUND ? p->begin - AROUND : 0;
        const size_t to = p->end + AROUND < m->n ? p->end + AROUND : m->n;
        snprintf(name, sizeof name, "alone%d.wav", i);
        write_wav(name, m->samples + from, to - from);
    }
    struct result r = shell(LISTEN "--output-dir alone alone?.wav && cat alone/alone?.txt");
    assert_int_equal(r.status, 0);
    const char *line = r.out;
    for (int i = 0; i < N_PHRASES; i++) {
        const size_t n = strcspn(line, "\n");
        heard[i] = strlen(m->phrases[i].said) == n && memcmp(line, m->phrases[i].said, n) == 0;
        assert_true(line[n] == '\n');
        line += n + 1;
    }
    done(r);
}

/* The segment with the phrase in it, from k on; or -1. */
static int find_segment(const json_t *segments, int k, const struct phrase *p) {
    for (; k < (int)json_array_size(segments); k++) {
        const json_t *s = json_array_get(segments, (size_t)k);
        const double start = json_number_value(json_object_get(s, "start")),
                     end = json_number_value(json_object_get(s, "end"));
        const char *text = json_string_value(json_object_get(s, "text"));
        if (start <= (double)p->begin / RATE + 0.1 && end >= (double)p->end / RATE - 0.1)
            return strstr(text, p->said) ? k : -1;
    }
    return -1;
}

static int check(const struct voice *voice, enum noise noise, const double *pauses, int n_pauses,
                 const char *options) {
    bool heard[N_PHRASES];
    char line[200];
    int n_heard = 0, n_lost = 0;
    struct made m = make(voice, noise, pauses, n_pauses);
    hear_alone(&m, heard);
    write_wav("all.wav", m.samples, m.n);
    snprintf(line, sizeof line, LISTEN "--format verbose_json %s all.wav", options);
    struct result r = shell(line);
    assert_int_equal(r.status, 0);
    json_t *all = json_loads(r.out, 0, NULL);
    const json_t *segments = json_object_get(all, "segments");
    for (int i = 0; i < N_PHRASES; i++) {
        n_heard += heard[i];
        if (heard[i] && find_segment(segments, 0, &m.phrases[i]) < 0) n_lost++;
    }
    assert_true(n_heard > 0);
    if (n_lost > 0)
        print_message("%s, %s, pauses of %g s and more, %s: %d of %d phrases are lost\n%s\n",
                      voice->name, noise_names[noise], pauses[0], options, n_lost, n_heard, r.out);
    json_decref(all);
    free(m.samples);
    done(r);
    return n_lost;
}

/* ---- tests ---- */

static const double mixed[] = { 0.5, 1, 0.7, 2, 3, 5, 1.5, 4 };

static void no_phrase_is_lost_between_pauses(void **state) {
    (void)state;
    int n_lost = 0;
    for (int noise = 0; noise < N_NOISES; noise++)
        n_lost += check(&voices[noise % N_VOICES], (enum noise)noise, mixed, 8,
                        noise % 2 ? "--stream" : "");
    assert_int_equal(n_lost, 0);
}

static void no_phrase_of_any_voice_is_lost_in_any_noise(void **state) {
    (void)state;
    static const double lengths[] = { 0.5, 0.75, 1, 1.5, 2, 3, 4, 5 };
    int n_lost = 0;
    if (!getenv("REEL_SOAK") || SANITIZED) skip();
    for (int i = 0; i < N_VOICES * N_NOISES * 9; i++) {
        const struct voice *voice = &voices[i / 9 / N_NOISES];
        const enum noise noise = (enum noise)(i / 9 % N_NOISES);
        for (int way = 0; way < 2; way++)
            n_lost += i % 9 < 8 ? check(voice, noise, &lengths[i % 9], 1, way ? "--stream" : "")
                                : check(voice, noise, mixed, 8, way ? "--stream" : "");
    }
    assert_int_equal(n_lost, 0);
}

static int enter(void **state) {
    spoken_open(&spoken);
    return shell_enter(state);
}

static int leave(void **state) {
    spoken_close(&spoken);
    return shell_leave(state);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_phrase_is_lost_between_pauses),
        cmocka_unit_test(no_phrase_of_any_voice_is_lost_in_any_noise),
    };
    return cmocka_run_group_tests_name("pauses", tests, enter, leave);
}
