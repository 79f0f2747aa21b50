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

/* An answer, borrowed from the recognizer until its next call. */
struct recognized {
    const char *raw; /* with its language tag */
    size_t n_bytes;
    const int32_t *ids;
    const size_t *ends; /* [n_ids] bytes of raw after each id */
    int n_ids;
    int n_given;    /* of them, beforehand */
    bool cut_short; /* max_tokens ended it */
    int n_audio_tokens, n_prompt_tokens;
    int n_reused; /* audio tokens that needed no evaluation */
    double features_ms, encoder_ms, prompt_ms, generate_ms;
};

/* All memory is taken here but that of features, which grows to a piece's. `context` and `language`
 * are borrowed until it is closed. */
enum reel_status recognizer_open(struct recognizer **out, const struct reel_model *model,
                                 const struct recognizer_options *options, struct reel_error *err);
void recognizer_close(struct recognizer *r);

/* Replaces the context from the next piece on. */
enum reel_status recognizer_set_context(struct recognizer *r, const char *context,
                                        struct reel_error *err);

/* ---- a piece as it comes: begin, then hear and answer in turn ---- */

/* Forgets what was heard. */
void recognizer_begin(struct recognizer *r);

/* n more samples at 16,000 Hz, divided by `divisor` and clipped to +-1 on the way. A piece has one
 * divisor and at most most_samples. */
enum reel_status recognizer_hear(struct recognizer *r, const float *samples, size_t n,
                                 float divisor, struct reel_error *err);

struct recognizer_turn {
    const int32_t *ids; /* [n_ids] that the answer begins with, up to a whole character */
    int n_ids;
    int max_tokens; /* of the whole answer; 0: the options', which are the most */
    bool last;      /* the piece is whole: only `begin` may follow */
};

/* What the model makes of the piece so far. The vectors of whole windows stay in the session: when
 * their features are still the same (audio/mel.h's floor can change them), they are neither encoded
 * nor evaluated again. */
enum reel_status recognizer_answer(struct recognizer *r, const struct recognizer_turn *turn,
                                   struct recognized *out, struct reel_error *err);

/* All of it at once: a whole piece of n samples. */
enum reel_status recognizer_run(struct recognizer *r, const float *samples, size_t n, float divisor,
                                struct recognized *out, struct reel_error *err);

#endif
