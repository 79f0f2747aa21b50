/* The AMX path with tiles made of plain C, for machines that have AVX-512 alone. */
#ifndef REEL_TESTS_EMULATED_AMX_H
#define REEL_TESTS_EMULATED_AMX_H

#include "cpu/kernels.h"

#if defined(__x86_64__)
/* As kernels_amx_set. What the processor would refuse - tiles that do not fit each other, or their
 * configuration - ends the program. */
void emulated_amx_set(struct kernels *kernels);
#endif

#endif
