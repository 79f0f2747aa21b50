/* A transcript while it is made: segments, their texts joined, and what they took. */
#ifndef REEL_ASR_TRANSCRIPT_H
#define REEL_ASR_TRANSCRIPT_H

#include "asr/recognizer.h"

struct transcript {
    struct reel_segment *segments; /* their texts, languages and ids are owned */
    int n_segments, capacity;
    struct buffer text;
    char *language;             /* of all segments, when transcript_view made it */
    struct reel_transcript sum; /* counts and times; its pointers are set by transcript_view */
};

/* What stands between the text so far and a segment that begins with these bytes: a space, unless
 * one side is empty or is of a script that is written without spaces. */
const char *transcript_joint(const struct transcript *t, const char *text, size_t n);

/* Whether a character is of a script that is written without spaces between words. */
bool transcript_dense(uint32_t c);

/* Adds what an answer took: time and tokens. */
void transcript_spent(struct transcript *t, const struct recognized *heard);

/* Appends a segment; text and language are copied. */
enum reel_status transcript_add(struct transcript *t, double start, double end, const char *text,
                                const char *language, const struct recognized *heard,
                                struct reel_error *err);

/* The whole, borrowed from t until it changes. */
enum reel_status transcript_view(struct transcript *t, struct reel_transcript *view,
                                 struct reel_error *err);

/* Empties it; what it holds is freed. */
void transcript_release(struct transcript *t);

#endif
