/* The text of a transcript on its way to the caller: what is certain is told once and in order,
 * what is not as one text that the next replaces. */
#ifndef REEL_ASR_OUTLET_H
#define REEL_ASR_OUTLET_H

#include "asr/live_text.h"
#include "asr/transcript.h"

struct outlet {
    /* The caller's */
    reel_text_fn on_text, on_partial; /* or NULL */
    void *user;
    struct transcript *transcript; /* the segments before; first_text_ms is written */
    /* The running segment */
    struct live_text live;
    const char *language; /* as demanded, or NULL */
    size_t shown;         /* bytes of its text that were told */
    double asked_ms;      /* when the last answer was begun */
    bool stopped;         /* the caller said no */
    struct buffer partial;
};

void outlet_release(struct outlet *o);

/* A segment begins. */
void outlet_begin(struct outlet *o);

/* raw: the part of an answer that stays, n bytes of whole characters, beginning with what earlier
 * calls saw. What of it is certain is told, or only its whole words. False when the caller wants no
 * more. */
bool outlet_certain(struct outlet *o, const char *raw, size_t n, bool words);

/* An answer that may still change: what of its text was not told yet is the rest for now. raw
 * begins with what outlet_certain saw. */
enum reel_status outlet_rest(struct outlet *o, const char *raw, size_t n, struct reel_error *err);

/* The segment's final text and the answer it was read from: tells what is left. */
enum reel_status outlet_end(struct outlet *o, const char *raw, const char *text,
                            struct reel_error *err);

#endif
