/* Prefill's product on AMX tiles. The rest of that path is AVX-512. */
#ifndef REEL_CPU_KERNELS_AMX_H
#define REEL_CPU_KERNELS_AMX_H

#include "cpu/kernels.h"

#if defined(__x86_64__)
/* As kernels.gemm. Only after cpu_features says amx. */
void kernels_amx_gemm(const struct gemm *g);
#endif

#endif
