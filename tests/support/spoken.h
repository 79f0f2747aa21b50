/* The held-out clips of models/speech: short things that synthesisers say, and what transformers
 * made of them. */
#ifndef REEL_TESTS_SPOKEN_H
#define REEL_TESTS_SPOKEN_H

#include "base/file_map.h"
#include "base/json.h"

enum { SPOKEN_CLIPS = 20, SPOKEN_RATE = 16000 };

struct spoken_clip {
    float *samples;
    size_t n;
    const char *said;
    const json_t *golden; /* "ids", "top_gap" */
};

struct spoken {
    json_t *golden;
    struct spoken_clip clips[SPOKEN_CLIPS];
};

/* From golden.json and golden.ulaw; a failed test without them. */
void spoken_open(struct spoken *s);
void spoken_close(struct spoken *s);

/* The samples of a clip as 16-bit integers: n of them, the caller's to free. */
int16_t *spoken_integers(const struct spoken_clip *clip);

/* A recording made of clips with pauses between them. */
struct recording {
    float *samples;
    size_t n, capacity;
};

void recording_add(struct recording *r, const float *samples, size_t n);
/* Noise of about -76 dB, as a quiet room has it. */
void recording_pause(struct recording *r, double seconds);
void recording_release(struct recording *r);

#endif
