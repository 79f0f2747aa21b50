/* Checks of one path's kernels on matrices with planes, against matrix_row_f32 and sums in double
 * precision. No test framework, as kernel_checks.h. */
#ifndef REEL_TESTS_PLANES_CHECKS_H
#define REEL_TESTS_PLANES_CHECKS_H

#include "tests/support/kernel_checks.h"

#define N_PLANES_CHECKS 4
extern const struct kernel_check planes_checks[N_PLANES_CHECKS];

#endif
