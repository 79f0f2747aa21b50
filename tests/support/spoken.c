#include "tests/support/spoken.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FOLDER "models/speech"

/* G.711: a sign, three bits of exponent, four of mantissa, all turned about; of 14 bits. */
static float from_mu_law(unsigned char code) {
    const int bits = code ^ 0xff, exponent = bits >> 4 & 7, mantissa = bits & 15;
    const int size = ((2 * mantissa + 33) << exponent) - 33;
    return (float)(bits & 0x80 ? -size : size) / 8192.0f;
}

static size_t number(const json_t *clip, const char *key) {
    return (size_t)json_integer_value(json_object_get(clip, key));
}

static void read_clip(struct spoken_clip *to, const json_t *clip, const struct file_map *audio) {
    const size_t at = number(clip, "at");
    to->golden = clip;
    to->said = json_string_value(json_object_get(clip, "said"));
    to->n = number(clip, "samples");
    to->samples = malloc(to->n * sizeof *to->samples);
    assert_true(to->samples && to->said && at + to->n <= audio->size);
    for (size_t i = 0; i < to->n; i++)
        to->samples[i] = from_mu_law(audio->bytes[at + i]);
}

void spoken_open(struct spoken *s) {
    struct file_map text = { 0 }, audio = { 0 };
    struct reel_error err = { 0 };
    enum reel_status status = file_map_open(&text, FOLDER "/golden.json", &err);
    if (status == REEL_OK) status = file_map_open(&audio, FOLDER "/golden.ulaw", &err);
    if (status == REEL_OK)
        status = json_read(&s->golden, "golden.json", (const char *)text.bytes, text.size, &err);
    if (status != REEL_OK) fail_msg("%s", err.text);
    const json_t *clips = json_object_get(s->golden, "clips");
    assert_int_equal(json_array_size(clips), SPOKEN_CLIPS);
    for (size_t i = 0; i < SPOKEN_CLIPS; i++)
        read_clip(&s->clips[i], json_array_get(clips, i), &audio);
    file_map_close(&text);
    file_map_close(&audio);
}

void spoken_close(struct spoken *s) {
    for (size_t i = 0; i < SPOKEN_CLIPS; i++)
        free(s->clips[i].samples);
    json_decref(s->golden);
}

int16_t *spoken_integers(const struct spoken_clip *clip) {
    int16_t *out = malloc(clip->n * sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < clip->n; i++)
        out[i] = (int16_t)(clip->samples[i] * 32768.0f);
    return out;
}

static float *grown(struct recording *r, size_t n) {
    if (r->n + n > r->capacity) {
        r->capacity = 2 * (r->n + n);
        r->samples = realloc(r->samples, r->capacity * sizeof *r->samples);
        assert_non_null(r->samples);
    }
    r->n += n;
    return r->samples + r->n - n;
}

void recording_add(struct recording *r, const float *samples, size_t n) {
    memcpy(grown(r, n), samples, n * sizeof *samples);
}

void recording_pause(struct recording *r, double seconds) {
    const size_t n = (size_t)(seconds * SPOKEN_RATE + 0.5);
    float *to = grown(r, n);
    uint32_t state = (uint32_t)r->n;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        to[i] = (float)((int)(state >> 16) - 32768) / 32768.0f * 0.00027f;
    }
}

void recording_release(struct recording *r) { free(r->samples); }
