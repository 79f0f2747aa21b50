/* Segments through the recognizer: answers while one is spoken, and the one at its end.
 *
 * A step hears what came since the last, begins the answer with ids that are fixed and lets the
 * model go on from there. Then more ids are fixed: all but the last few, back to the beginning of a
 * word, and no repetition, so that the next step decodes a loop again. In the first two steps of a
 * segment none is fixed, for the model has heard too little.
 *
 * The answer at the end is given to exactly the segment's samples. Without steps that is all there
 * is, and nothing is fixed: a recording that is transcribed afterwards. */
#ifndef REEL_ASR_STREAM_H
#define REEL_ASR_STREAM_H

#include "asr/outlet.h"
#include "model/tokenizer.h"

struct stream {
    /* The transcriber's */
    struct recognizer *recognizer;
    struct outlet *outlet;
    struct transcript *transcript;
    const struct reel_tokenizer *tok;
    const char *language; /* as demanded, or NULL */
    const char *context;  /* or NULL */
    bool past_text;       /* the end of the transcript so far is context, too */
    int max_tokens;       /* of an answer */
    int step_tokens;      /* of a step's answer behind what is fixed */
    /* Own */
    int32_t *fixed; /* [max_tokens] what the running segment's answer begins with */
    int n_fixed;
    int n_steps;       /* of the running segment */
    size_t n_heard;    /* samples of it */
    size_t n_answered; /* and in its last answer */
    float divisor;     /* of what was heard */
    bool ending;       /* the answer under way is the last */
};

/* Bytes of earlier text that past_text gives at most. */
#define STREAM_PAST_BYTES 400

/* Takes what memory it needs; the transcriber's members are set. */
enum reel_status stream_open(struct stream *s, struct reel_error *err);
void stream_release(struct stream *s);

/* A segment begins. */
void stream_begin(struct stream *s);

/* The first n samples of the running segment, at least as many as before, divided by `divisor`;
 * may_fix: they cannot be cut away. What is certain of the answer and what is not is told. */
enum reel_status stream_step(struct stream *s, const float *samples, size_t n, float divisor,
                             bool may_fix, struct reel_error *err);

/* The running segment is its first n samples, from `begin` of the recording on: adds its answer to
 * the transcript. The next segment begins. */
enum reel_status stream_end(struct stream *s, const float *samples, size_t n, float divisor,
                            uint64_t begin, struct reel_error *err);

/* While an answer is made, from the recognizer's callback: false when the caller wants no more. */
bool stream_heard(struct stream *s, const char *raw, size_t n);

/* How many ids of an answer may stay, at least `before`; forced: it has no language tag. */
int stream_fixed_ids(const struct recognized *answer, const struct reel_tokenizer *tok, bool forced,
                     int before);

#endif
