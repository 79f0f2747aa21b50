/* Prompts' products, and those of several columns with block formats, on AMX tiles. The rest of
 * that path is AVX-512. */
#ifndef REEL_CPU_KERNELS_AMX_H
#define REEL_CPU_KERNELS_AMX_H

#include "cpu/kernels.h"

#if defined(__x86_64__)
/* Puts what tiles do instead into a copy of kernels_avx512. Only after cpu_features says amx. */
void kernels_amx_set(struct kernels *kernels);
#endif

#endif
