/* How the steps of a stream keep up with what they hear. */
#ifndef REEL_CLI_PACE_H
#define REEL_CLI_PACE_H

#include "base/error.h"

struct pace {
    double heard_ms; /* of audio since the last step */
    double late_ms;  /* how far a live input would be ahead by now */
    double *step_ms; /* [n, of capacity] */
    size_t n, capacity;
};

/* Another recording; memory is kept. */
void pace_start(struct pace *p);
void pace_release(struct pace *p);

void pace_hear(struct pace *p, double audio_ms);

/* A step took so long for what was heard since the one before. */
enum reel_status pace_step(struct pace *p, double ms, struct reel_error *err);

/* Whether a live input is so far ahead that it should be said: 5 s. One slow step is not. */
bool pace_is_late(const struct pace *p);

/* The middle one of all steps, 0 without any. */
double pace_median(struct pace *p);

#endif
