/* A miniature speech model of random weights on the CPU: what it says means nothing. */
#ifndef REEL_TESTS_SPEECH_MODEL_H
#define REEL_TESTS_SPEECH_MODEL_H

#include "reel.h"

struct speech_model {
    char root[40], folder[60]; /* a temporary folder and the model's in it */
    struct reel_model *model;
};

/* For a group's set-up and tear-down: 0, or -1 with a message. */
int speech_model_open(struct speech_model *m, int n_threads);
int speech_model_close(struct speech_model *m);

#endif
