/* One piece of audio through a speech model: features, encoder, prompt, answer. What the answer
 * means, and where a recording is cut, is not known here. */
#ifndef REEL_ASR_RECOGNIZER_H
#define REEL_ASR_RECOGNIZER_H

#include "base/buffer.h"

struct recognizer;

struct recognizer_options {
    const char *language; /* as asr_language_find gives it, or NULL */
    const char *context;  /* or NULL */
    size_t most_context;  /* bytes of a context given later; 0: the one given now is all */
    size_t most_samples;  /* of a piece */
    int max_tokens;
    /* Each token of an answer: its text so far, n bytes of whole characters. May be NULL. */
    bool (*on_raw)(void *user, const char *raw, size_t n);
    bool (*go_on)(void *user); /* asked now and then; false ends with REEL_E_CANCELLED */
    void *user;
};

/* The answer to the last piece, borrowed from the recognizer until its next call. */
struct recognized {
    const char *raw; /* with its language tag */
    size_t n_bytes;
    const int32_t *ids;
    int n_ids;
    bool cut_short; /* max_tokens ended it */
    int n_audio_tokens, n_prompt_tokens;
    double features_ms, encoder_ms, prompt_ms, generate_ms;
};

/* All memory is taken here. `context` and `language` are borrowed until it is closed. */
enum reel_status recognizer_open(struct recognizer **out, const struct reel_model *model,
                                 const struct recognizer_options *options, struct reel_error *err);
void recognizer_close(struct recognizer *r);

/* Replaces the context from the next piece on. */
enum reel_status recognizer_set_context(struct recognizer *r, const char *context,
                                        struct reel_error *err);

/* n samples at 16,000 Hz, divided by `divisor` and clipped to +-1 on the way. */
enum reel_status recognizer_run(struct recognizer *r, const float *samples, size_t n, float divisor,
                                struct recognized *out, struct reel_error *err);

#endif
