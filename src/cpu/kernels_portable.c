/* Plain C on 128-bit vectors, which every 64-bit target has. */
#include <stdint.h>

#define LANES     4
#define GEMM_ROWS 2
#include "cpu/vector_types.h"

#define v_fma(a, b, c) ((a) * (b) + (c))
#include "cpu/kernels_body.h"

const struct kernels kernels_portable = {
    .name = "portable",
    .dot_rows = { DTYPE_LIST(BODY_DOT_ENTRY) },
    .dot_columns = { DTYPE_LIST(BODY_COLUMNS_ENTRY) },
    .unpack = { DTYPE_LIST(BODY_UNPACK_ENTRY) },
    .interleave = body_interleave,
    .gemm = body_gemm,
    BODY_VECTORS,
    BODY_ELEMENTWISE,
};
