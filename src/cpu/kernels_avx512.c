/* AVX-512 with BF16 and VBMI. */
#include <immintrin.h>
#include <stdint.h>

#define LANES     16
#define GEMM_ROWS 6
#include "cpu/vector_types.h"

#define v_fma(a, b, c) ((vf)_mm512_fmadd_ps((__m512)(a), (__m512)(b), (__m512)(c)))

#define HAVE_V_FROM_F16
static inline __attribute__((always_inline)) vf v_from_f16(const unsigned char *p) {
    return (vf)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
#include "cpu/kernels_body.h"

const struct kernels kernels_avx512 = {
    .name = "avx512",
    .dot_rows = { DTYPE_LIST(BODY_DOT_ENTRY) },
    .unpack = { DTYPE_LIST(BODY_UNPACK_ENTRY) },
    .interleave = body_interleave,
    .gemm = body_gemm,
    BODY_ELEMENTWISE,
};
