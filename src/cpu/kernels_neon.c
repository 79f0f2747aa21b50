/* Advanced SIMD of 64-bit ARM. */
#include <arm_neon.h>
#include <stdint.h>

#define LANES     4
#define GEMM_ROWS 4
#include "cpu/vector_types.h"

#define v_fma(a, b, c) ((vf)vfmaq_f32((float32x4_t)(c), (float32x4_t)(a), (float32x4_t)(b)))

#define HAVE_V_FROM_F16
static inline __attribute__((always_inline)) vf v_from_f16(const unsigned char *p) {
    return (vf)vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p)));
}
#include "cpu/kernels_body.h"

const struct kernels kernels_neon = {
    .name = "neon",
    .dot_rows = { DTYPE_LIST(BODY_DOT_ENTRY) },
    .unpack = { DTYPE_LIST(BODY_UNPACK_ENTRY) },
    .interleave = body_interleave,
    .gemm = body_gemm,
    BODY_ELEMENTWISE,
};
