/* Checks of one path's kernels against dtype_to_f32 and sums in double precision. No test framework
 * and few dependencies, so that the same checks run natively and cross-compiled under an emulator.
 */
#ifndef REEL_TESTS_KERNEL_CHECKS_H
#define REEL_TESTS_KERNEL_CHECKS_H

#include "cpu/kernels.h"

struct kernel_check {
    const char *name; /* a sentence */
    /* False with the reason in why [200]. */
    bool (*run)(const struct kernels *kernels, char *why);
};

#define N_KERNEL_CHECKS 14
extern const struct kernel_check kernel_checks[N_KERNEL_CHECKS];

#endif
