/* Made-up time stamps of a decoding launch, for tests of src/cuda/measure/profile.c. */
#ifndef REEL_TESTS_PROFILE_STAMPS_H
#define REEL_TESTS_PROFILE_STAMPS_H

#include "cuda/measure/profile.h"

/* How long the i-th span of a token is on one SM, in clock ticks. */
typedef unsigned stamps_ticks_fn(void *user, int token, int sm, int span);

struct stamps_maker {
    const struct plan *plan;
    int n_tokens;
    uint32_t first_clock;     /* of SM 0; others begin elsewhere */
    uint64_t first_ns;        /* when SM 0 begins; others 10 ns later each */
    double (*ghz)(int token); /* ticks a nanosecond; NULL: 1 */
    stamps_ticks_fn *ticks;
    void *user;
};

/* [n_tokens][n_sms][profile_stamps()]; the caller frees. */
uint32_t *stamps_make(const struct stamps_maker *maker);

/* A plan of 2 layers on 4 SMs in 2 groups with just what profiles look at. */
struct plan stamps_plan(void);

#endif
