#include "model/matrix.h"

#include <math.h>
#include <string.h>

float e4m3_to_f32(uint8_t x) {
    const int exponent = x >> 3 & 15, fraction = x & 7;
    const float sign = x & 0x80 ? -1.0f : 1.0f;
    if (exponent == 15 && fraction == 7) return NAN;
    if (exponent == 0) return sign * (float)fraction * 0x1p-9f;
    return sign * ldexpf((float)(8 + fraction), exponent - 10);
}

float e2m1_to_f32(int code) {
    static const float sizes[8] = { 0, 0.5f, 1, 1.5f, 2, 3, 4, 6 };
    return code & 8 ? -sizes[code & 7] : sizes[code & 7];
}

static float e8m0_to_f32(uint8_t x) { return x == 255 ? NAN : ldexpf(1.0f, x - 127); }

float matrix_plane_at(const struct matrix_plane *p, int r, int k) {
    static const size_t sizes[] = {
        [PLANE_F32] = 4,  [PLANE_F16] = 2,  [PLANE_BF16] = 2,
        [PLANE_E4M3] = 1, [PLANE_E8M0] = 1, [PLANE_U8] = 1,
    };
    const unsigned char *at =
        p->data + (size_t)(r / p->rows) * p->row_bytes + (size_t)(k / p->columns) * sizes[p->type];
    float value = 0;
    switch (p->type) {
    case PLANE_F32:
        memcpy(&value, at, sizeof value);
        return value;
    case PLANE_F16:
        return f16_to_f32((uint16_t)(at[0] | at[1] << 8));
    case PLANE_BF16:
        return bf16_to_f32((uint16_t)(at[0] | at[1] << 8));
    case PLANE_E4M3:
        return e4m3_to_f32(*at);
    case PLANE_E8M0:
        return e8m0_to_f32(*at);
    default:
        return (float)*at;
    }
}

/* What a code is worth before its scale. */
static float code_value(const struct matrix_planes *p, int code, int r, int k) {
    switch (p->form) {
    case MATRIX_E4M3:
        return e4m3_to_f32((uint8_t)code);
    case MATRIX_E2M1:
        return e2m1_to_f32(code);
    case MATRIX_TABLE:
        return p->table[code];
    default:
        return (float)code - (p->zeros.data ? matrix_plane_at(&p->zeros, r, k) : (float)p->zero);
    }
}

void matrix_codes_f32(const struct matrix *m, int r, int first, int n, float *out) {
    const struct matrix_planes *p = m->planes;
    const unsigned char *codes = m->data + (size_t)r * m->row_bytes;
    for (int k = first; k < first + n; k++) {
        const int byte = codes[(size_t)k * (size_t)p->bits / 8];
        const int code = p->bits == 8 ? byte : byte >> k % 2 * 4 & 15;
        const int like = p->order ? p->order[k] : k;
        const float scale = p->scales.data ? matrix_plane_at(&p->scales, r, like) : 1.0f;
        const float whole = p->divisor != 0 ? scale / p->divisor : scale * p->factor;
        out[k - first] = code_value(p, code, r, like) * whole;
    }
}

/* NVFP4's blocks with a second scale. It multiplies the first scale, and the product, rounded,
 * multiplies the code. Planes do the same, so a GGUF file is worth what the folder is that it was
 * made of. */
static void nvfp4_row_f32(const struct matrix *m, int r, float *out) {
    enum { BLOCK = 64, PART = 16 }; /* docs/MODEL_llama.md has the layout */
    const unsigned char *block = m->data + (size_t)r * m->row_bytes;
    for (int k = 0; k < m->columns; k += BLOCK, block += dtype_block_bytes(DTYPE_NVFP4))
        for (int i = 0; i < BLOCK; i++) {
            const int part = i / PART, byte = block[4 + part * 8 + i % 8];
            const int code = i % PART < 8 ? byte & 15 : byte >> 4;
            const float scale = 2 * dtype_nvfp4_scale(block[part]) * m->factor;
            out[k + i] = 0.5f * (float)dtype_fp4_values[code] * scale;
        }
}

void matrix_row_f32(const struct matrix *m, int r, float *out) {
    if (m->planes) {
        matrix_codes_f32(m, r, 0, m->columns, out);
        return;
    }
    if (m->factor != 0)
        nvfp4_row_f32(m, r, out);
    else
        dtype_to_f32(m->dtype, m->data + (size_t)r * m->row_bytes, out, (size_t)m->columns);
}
