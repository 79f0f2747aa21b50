/* AVX2 with FMA and F16C. */
#include <immintrin.h>
#include <stdint.h>

#define LANES     8
#define GEMM_ROWS 4
#include "cpu/vector_types.h"

#define v_fma(a, b, c) ((vf)_mm256_fmadd_ps((__m256)(a), (__m256)(b), (__m256)(c)))

#define HAVE_V_FROM_F16
static inline __attribute__((always_inline)) vf v_from_f16(const unsigned char *p) {
    return (vf)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

#define HAVE_V_FROM_I8
static inline __attribute__((always_inline)) vf v_from_i8(const int8_t *p) {
    return (vf)_mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}
#include "cpu/kernels_body.h"

const struct kernels kernels_avx2 = {
    .name = "avx2",
    .dot_rows = { DTYPE_LIST(BODY_DOT_ENTRY) },
    .unpack = { DTYPE_LIST(BODY_UNPACK_ENTRY) },
    .interleave = body_interleave,
    .gemm = body_gemm,
    BODY_ELEMENTWISE,
};
