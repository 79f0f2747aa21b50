/* Prefill's product on AMX tiles. The rest of that path is AVX-512. */
#ifndef REEL_CPU_KERNELS_AMX_H
#define REEL_CPU_KERNELS_AMX_H

#include "cpu/kernels.h"

#if defined(__x86_64__)
/* As kernels.gemm. Only after cpu_features says amx. */
void kernels_amx_gemm(const struct gemm *g);

/* As kernels.split_row. */
void kernels_amx_split_row(const uint16_t *codes, const float *scales, const float *mins, int n,
                           int scale_block, uint16_t *row, uint16_t *rest);
#endif

#endif
