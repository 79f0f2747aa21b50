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
#define HAVE_V_FROM_E4M3
static inline __attribute__((always_inline)) vf v_from_e4m3(const uint8_t *p) {
    uint32x2_t four = vdup_n_u32(0);
    four = vld1_lane_u32((const uint32_t *)(const void *)p, four, 0);
    const int16x4_t wide = vget_low_s16(vmovl_s8(vreinterpret_s8_u32(four)));
    const uint16x4_t half = vand_u16(vreinterpret_u16_s16(vshl_n_s16(wide, 7)), vdup_n_u16(0xbf80));
    return (vf)vcvt_f32_f16(vreinterpret_f16_u16(half));
}

#define HAVE_STEP_LOOKUP
static inline __attribute__((always_inline)) void step_lookup(const int8_t *names, const uint8_t *p,
                                                              int8_t *q) {
    const uint8x16_t packed = vld1q_u8(p), low = vandq_u8(packed, vdupq_n_u8(15));
    const uint8x16x2_t at = vzipq_u8(low, vshrq_n_u8(packed, 4));
    const int8x16_t table = vld1q_s8(names);
    vst1q_s8(q, vqtbl1q_s8(table, at.val[0]));
    vst1q_s8(q + 16, vqtbl1q_s8(table, at.val[1]));
}
#include "cpu/kernels_body.h"

const struct kernels kernels_neon = {
    .name = "neon",
    .dot_rows = { DTYPE_LIST(BODY_DOT_ENTRY) },
    .dot_columns = { DTYPE_LIST(BODY_COLUMNS_ENTRY) },
    .unpack = { DTYPE_LIST(BODY_UNPACK_ENTRY) },
    .interleave = body_interleave,
    .gemm = body_gemm,
    BODY_VECTORS,
    BODY_ELEMENTWISE,
};
