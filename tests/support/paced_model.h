/* A model that makes tokens by the clock and computes nothing: what stands around a model can be
 * timed and tried with it, many sessions at once on two cores. */
#ifndef REEL_TESTS_PACED_MODEL_H
#define REEL_TESTS_PACED_MODEL_H

#include "reel.h"

enum { PACED_COLUMNS = 8 }; /* of a pass */

struct paced {
    double token_ms;  /* between tokens */
    double prompt_ms; /* for each token of a prompt that is evaluated */
    int max_context;  /* positions of a session; 0: as the model has it */
    bool batched;     /* the runtime's turns and passes are left in; else each session keeps time
                         by itself */
    void (*on_made)(int i); /* or NULL; a token, the i-th of its answer or pass, is made */
};

/* Gives an opened model of text this clock in the place of its backend's arithmetic. Its tokenizer
 * and template stay. paced is borrowed, and one for the whole program. */
enum reel_status paced_model_make(struct reel_model *model, const struct paced *paced,
                                  struct reel_error *err);

/* Sleeps until a time of CLOCK_MONOTONIC. */
void paced_wait_until(double ms);

#endif
