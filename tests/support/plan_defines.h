/* The compile options of a kernel that a test runs by itself: the constants of a plan, as the
 * backend compiles them, with those replaced that the test is about. Failures end the test. */
#ifndef REEL_TESTS_PLAN_DEFINES_H
#define REEL_TESTS_PLAN_DEFINES_H

#include "plan/plan.h"

/* A constant that is not to be the plan's. */
struct plan_override {
    const char *name; /* "P_THREADS" */
    long long value;
};

struct plan_defines {
    struct plan plan;  /* without the overrides */
    const char **list; /* "-DNAME=VALUE" ..., NULL at the end: as sim_gpu_compile takes it */
    char *text;        /* what the list points into */
};

/* A GPU like plan_known_gpu("h200") with so many SMs. */
struct gpu_limits plan_defines_gpu(int n_sms);

/* Plans the model on the GPU and lists the plan's constants. A name in `overrides` that the plan
 * does not emit fails the test, so that a constant which goes away takes its overrides along. */
void plan_defines_make(struct plan_defines *d, const struct model_config *config,
                       const struct gpu_limits *gpu, const struct plan_options *options,
                       const struct plan_override *overrides, int n_overrides);
/* The same of a plan that the test has already. */
void plan_defines_of(struct plan_defines *d, const struct plan *plan,
                     const struct plan_override *overrides, int n_overrides);
void plan_defines_release(struct plan_defines *d);

#endif
