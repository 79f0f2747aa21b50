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

#define HAVE_V_FROM_I8
static inline __attribute__((always_inline)) vf v_from_i8(const int8_t *p) {
    int32x2_t four = vdup_n_s32(0);
    four = vld1_lane_s32((const int32_t *)(const void *)p, four, 0);
    return (vf)vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(vreinterpret_s8_s32(four)))));
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
