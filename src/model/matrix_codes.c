#include "model/matrix_codes.h"

#include <string.h>

/* ---- blocks of GGUF -------------------------------------------------------------------------- */

static float f16_at(const unsigned char *p) { return f16_to_f32((uint16_t)(p[0] | p[1] << 8)); }

/* A block: its codes, and the scales and offsets of its groups. Where the type has steps they are
 * steps times a unit, the block's f16; else each group has a unit of its own and no step.
 * docs/MODEL_llama.md has the layouts, model/dtype.c what they are worth. */
enum { MOST_GROUPS = 16, MOST_UNITS = 4 };
struct block_numbers {
    float unit[2][MOST_UNITS]; /* of scales, of offsets */
    signed char step[2][MOST_GROUPS];
};
typedef void (*block_fn)(const unsigned char *block, signed char *codes, struct block_numbers *n);

/* The numbers of group i, or with steps those of the block, where i is 0. */
static void put_unit(struct block_numbers *n, int i, float scale, float offset) {
    n->unit[0][i] = scale, n->unit[1][i] = offset;
}

static void read_q8_0(const unsigned char *block, signed char *codes, struct block_numbers *n) {
    put_unit(n, 0, f16_at(block), 0);
    memcpy(codes, block + 2, 32);
}

/* Halves of 16 bytes, less `zero`; of five bits `fifth` has the highest. */
static void read_halves(const unsigned char *bytes, const unsigned char *fifth, int zero,
                        signed char *codes) {
    for (int i = 0; i < 32; i++) {
        const int half = i < 16 ? bytes[i] & 15 : bytes[i - 16] >> 4;
        const int high = fifth ? (fifth[i / 8] >> i % 8 & 1) << 4 : 0;
        codes[i] = (signed char)((half | high) - zero);
    }
}

static void read_q4_0(const unsigned char *block, signed char *codes, struct block_numbers *n) {
    put_unit(n, 0, f16_at(block), 0);
    read_halves(block + 2, NULL, 8, codes);
}

static void read_q4_1(const unsigned char *block, signed char *codes, struct block_numbers *n) {
    put_unit(n, 0, f16_at(block), f16_at(block + 2));
    read_halves(block + 4, NULL, 0, codes);
}

static void read_q5_0(const unsigned char *block, signed char *codes, struct block_numbers *n) {
    put_unit(n, 0, f16_at(block), 0);
    read_halves(block + 6, block + 2, 16, codes);
}

static void read_q5_1(const unsigned char *block, signed char *codes, struct block_numbers *n) {
    put_unit(n, 0, f16_at(block), f16_at(block + 2));
    read_halves(block + 8, block + 4, 0, codes);
}

/* Q4_K and Q5_K: steps of 6 bits; a minimum is subtracted. */
static void read_k45(const unsigned char *block, const unsigned char *fifth,
                     const unsigned char *bytes, signed char *codes, struct block_numbers *n) {
    const unsigned char *packed = block + 4;
    put_unit(n, 0, f16_at(block), -f16_at(block + 2));
    for (int j = 0; j < 8; j++) {
        const int low = j < 4;
        const int scale = low ? packed[j] & 63 : (packed[j + 4] & 15) | (packed[j - 4] >> 6) << 4;
        const int min = low ? packed[j + 4] & 63 : packed[j + 4] >> 4 | (packed[j] >> 6) << 4;
        n->step[0][j] = (signed char)scale, n->step[1][j] = (signed char)min;
        for (int i = 0; i < 32; i++) {
            const int byte = bytes[j / 2 * 32 + i], half = j & 1 ? byte >> 4 : byte & 15;
            codes[j * 32 + i] = (signed char)(half | (fifth ? (fifth[i] >> j & 1) << 4 : 0));
        }
    }
}

static void read_q4_k(const unsigned char *block, signed char *codes, struct block_numbers *n) {
    read_k45(block, NULL, block + 16, codes, n);
}

static void read_q5_k(const unsigned char *block, signed char *codes, struct block_numbers *n) {
    read_k45(block, block + 16, block + 48, codes, n);
}

static void read_q6_k(const unsigned char *block, signed char *codes, struct block_numbers *n) {
    put_unit(n, 0, f16_at(block + 208), 0);
    for (int i = 0; i < 16; i++)
        n->step[0][i] = (signed char)block[192 + i], n->step[1][i] = 0;
    for (int i = 0; i < 256; i++) {
        const int half = i / 128, quarter = i % 128 / 32, at = i % 32;
        const int byte = block[half * 64 + 32 * (quarter & 1) + at];
        const int high = block[128 + half * 32 + at] >> 2 * quarter & 3;
        codes[i] = (signed char)(((quarter < 2 ? byte & 15 : byte >> 4) | high << 4) - 32);
    }
}

/* Of column i of a block the two bits that Q2_K has, and the lower two that Q3_K has. Columns 32
 * apart share a byte. */
static int two_bits(const unsigned char *bytes, int i) {
    return bytes[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
}

/* Steps of 4 bits, the minimum's in the upper half of a byte; a minimum is subtracted. */
static void read_q2_k(const unsigned char *block, signed char *codes, struct block_numbers *n) {
    put_unit(n, 0, f16_at(block + 80), -f16_at(block + 82));
    for (int j = 0; j < 16; j++)
        n->step[0][j] = block[j] & 15, n->step[1][j] = (signed char)(block[j] >> 4);
    for (int i = 0; i < 256; i++)
        codes[i] = (signed char)two_bits(block + 16, i);
}

/* A third bit lies apart, which is clear where 4 is taken off. */
static void read_q3_k(const unsigned char *block, signed char *codes, struct block_numbers *n) {
    put_unit(n, 0, f16_at(block + 108), 0);
    for (int j = 0; j < 16; j++)
        n->step[0][j] = (signed char)dtype_q3_k_scale(block + 96, j), n->step[1][j] = 0;
    for (int i = 0; i < 256; i++)
        codes[i] = (signed char)(two_bits(block + 32, i) - (block[i % 32] >> i / 32 & 1 ? 0 : 4));
}

/* The halves of n bytes: the lower ones, then the upper ones. */
static void read_nibbles(const unsigned char *bytes, int n, signed char *codes) {
    for (int i = 0; i < n; i++)
        codes[i] = bytes[i] & 15, codes[i + n] = (signed char)(bytes[i] >> 4);
}

static void read_iq4_nl(const unsigned char *block, signed char *codes, struct block_numbers *n) {
    put_unit(n, 0, f16_at(block), 0);
    read_nibbles(block + 2, 16, codes);
}

static void read_iq4_xs(const unsigned char *block, signed char *codes, struct block_numbers *n) {
    put_unit(n, 0, f16_at(block), 0);
    for (int j = 0; j < 8; j++) {
        n->step[0][j] = (signed char)dtype_iq4_xs_scale(block, j), n->step[1][j] = 0;
        read_nibbles(block + 8 + (ptrdiff_t)j * 16, 16, codes + (ptrdiff_t)j * 32);
    }
}

/* Codes of floats of 4 bits; GGUF's have no -0. dtype.h has twice their values and half their
 * scales. So the scale of MXFP4's code 255, the format's NaN, is finite there and infinite here. */
static void read_fp4(const unsigned char *bytes, int n, signed char *codes) {
    read_nibbles(bytes, n, codes);
    for (int i = 0; i < 2 * n; i++)
        if (codes[i] == 8) codes[i] = 0;
}

static void read_mxfp4(const unsigned char *block, signed char *codes, struct block_numbers *n) {
    put_unit(n, 0, 2 * dtype_mxfp4_scale(block[0]), 0);
    read_fp4(block + 1, 16, codes);
}

static void read_nvfp4(const unsigned char *block, signed char *codes, struct block_numbers *n) {
    for (int j = 0; j < 4; j++) {
        put_unit(n, j, 2 * dtype_nvfp4_scale(block[j]), 0);
        read_fp4(block + 4 + (ptrdiff_t)j * 8, 8, codes + (ptrdiff_t)j * 16);
    }
}

struct block_type {
    block_fn read; /* NULL: not narrow, or not known here */
    struct matrix_codes codes;
};
static const struct block_type blocks[DTYPE_COUNT] = {
    [DTYPE_Q8_0] = { read_q8_0, { CODE_INT8, 32, PLANE_F16, OFFSETS_NONE, 0 } },
    [DTYPE_Q4_0] = { read_q4_0, { CODE_INT4, 32, PLANE_F16, OFFSETS_NONE, 0 } },
    [DTYPE_Q4_1] = { read_q4_1, { CODE_UINT4, 32, PLANE_F16, OFFSETS_MINIMA, 0 } },
    [DTYPE_Q5_0] = { read_q5_0, { CODE_INT8, 32, PLANE_F16, OFFSETS_NONE, 0 } },
    [DTYPE_Q5_1] = { read_q5_1, { CODE_INT8, 32, PLANE_F16, OFFSETS_MINIMA, 0 } },
    [DTYPE_Q4_K] = { read_q4_k, { CODE_UINT4, 32, PLANE_F32, OFFSETS_MINIMA, 256 } },
    [DTYPE_Q5_K] = { read_q5_k, { CODE_INT8, 32, PLANE_F32, OFFSETS_MINIMA, 256 } },
    [DTYPE_Q6_K] = { read_q6_k, { CODE_INT8, 16, PLANE_F32, OFFSETS_NONE, 256 } },
    [DTYPE_Q2_K] = { read_q2_k, { CODE_UINT4, 16, PLANE_F32, OFFSETS_MINIMA, 256 } },
    [DTYPE_Q3_K] = { read_q3_k, { CODE_INT4, 16, PLANE_F32, OFFSETS_NONE, 256 } },
    [DTYPE_IQ4_NL] = { read_iq4_nl, { CODE_IQ4, 32, PLANE_F16, OFFSETS_NONE, 0 } },
    [DTYPE_IQ4_XS] = { read_iq4_xs, { CODE_IQ4, 32, PLANE_F32, OFFSETS_NONE, 256 } },
    [DTYPE_MXFP4] = { read_mxfp4, { CODE_E2M1, 32, PLANE_BF16, OFFSETS_NONE, 0 } }, /* 2^-127 on */
    [DTYPE_NVFP4] = { read_nvfp4, { CODE_E2M1, 16, PLANE_F16, OFFSETS_NONE, 0 } }, /* 2^-9 to 480 */
};

/* The block of row r that begins with column k. */
static void read_block(const struct matrix *m, int r, int k, signed char *codes,
                       struct block_numbers *n) {
    const size_t nth = (size_t)(k / dtype_block_elements(m->dtype));
    blocks[m->dtype].read(m->data + (size_t)r * m->row_bytes +
                              nth * (size_t)dtype_block_bytes(m->dtype),
                          codes + k, n);
}

/* A step of 7 bits times a unit of 11 has 18, so float holds the product. */
static void blocks_row(const struct matrix *m, const struct matrix_codes *c, int r,
                       signed char *codes, float *scales, float *offsets) {
    const int each = dtype_block_elements(m->dtype);
    for (int k = 0; k < m->columns; k += each) {
        struct block_numbers n;
        read_block(m, r, k, codes, &n);
        for (int i = 0; i < each / c->group; i++) {
            const int at = k / c->group + i;
            scales[at] = c->unit ? n.unit[0][0] * (float)n.step[0][i] : n.unit[0][i];
            offsets[at] = c->unit ? n.unit[1][0] * (float)n.step[1][i] : n.unit[1][i];
            if (m->factor != 0) scales[at] *= m->factor;
        }
    }
}

void matrix_codes_steps(const struct matrix *m, int r, signed char *codes, signed char *steps,
                        float *units) {
    const struct matrix_codes *c = &blocks[m->dtype].codes;
    const int groups = matrix_code_groups(c, m->columns), n_units = m->columns / c->unit;
    for (int k = 0; k < m->columns; k += c->unit) {
        struct block_numbers n;
        read_block(m, r, k, codes, &n);
        for (int i = 0; i < 2; i++) {
            units[i * n_units + k / c->unit] = n.unit[i][0];
            memcpy(steps + (ptrdiff_t)i * groups + k / c->group, n.step[i],
                   (size_t)(c->unit / c->group));
        }
    }
}

/* ---- planes ---------------------------------------------------------------------------------- */

/* The type that holds every scale times `factor`. */
static enum plane_type scale_type(const struct matrix_plane *scales, float factor) {
    if (!scales->data || factor != 1.0f) return PLANE_F32;
    switch (scales->type) {
    case PLANE_F16:
    case PLANE_E4M3: /* 2^-9 to 448 */
        return PLANE_F16;
    case PLANE_BF16:
    case PLANE_E8M0:
        return PLANE_BF16;
    default:
        return PLANE_F32;
    }
}

static int common(int a, int b) {
    while (b) {
        const int rest = a % b;
        a = b, b = rest;
    }
    return a;
}

/* Columns of a group in both planes; 0: a row. */
static int plane_group(const struct matrix_planes *p, int columns) {
    const int scales = p->scales.data && p->scales.columns < columns ? p->scales.columns : 0;
    const int zeros = p->zeros.data && p->zeros.columns < columns ? p->zeros.columns : 0;
    return common(scales, zeros);
}

/* bitsandbytes' quant_map of nf4 and of fp4. */
static const float nf4_floats[16] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f,
};
static const float fp4_floats[16] = {
    0.0f,
    0.0052083334885537624f,
    0.6666666865348816f,
    1.0f,
    0.3333333432674408f,
    0.5f,
    0.1666666716337204f,
    0.25f,
    0.0f,
    -0.0052083334885537624f,
    -0.6666666865348816f,
    -1.0f,
    -0.3333333432674408f,
    -0.5f,
    -0.1666666716337204f,
    -0.25f,
};
const float *matrix_code_floats(enum code_type type) {
    return type == CODE_NF4 ? nf4_floats : fp4_floats;
}

static bool same_floats(const float *a, const float *b) {
    for (int i = 0; i < 16; i++)
        if (a[i] != b[i]) return false; /* zeros of either sign are the same */
    return true;
}

static enum code_type planes_type(const struct matrix_planes *p) {
    switch (p->form) {
    case MATRIX_INTEGERS:
        return p->bits == 8 ? CODE_INT8 : CODE_INT4;
    case MATRIX_TABLE:
        return same_floats(p->table, nf4_floats) ? CODE_NF4 : CODE_FP4;
    case MATRIX_E4M3:
        return CODE_E4M3;
    default:
        return CODE_E2M1;
    }
}

static bool planes_codes(const struct matrix *m, struct matrix_codes *codes) {
    const struct matrix_planes *p = m->planes;
    const bool integers = p->form == MATRIX_INTEGERS;
    const int middle = p->bits == 8 ? 128 : 8;
    if (p->order) return false;
    if (p->form == MATRIX_TABLE && !same_floats(p->table, nf4_floats) &&
        !same_floats(p->table, fp4_floats))
        return false;
    /* less the middle, a zero point of another type may have to be rounded */
    if (p->zeros.data && p->zeros.type != PLANE_U8) return false;
    *codes =
        (struct matrix_codes){ .type = planes_type(p),
                               .group = plane_group(p, m->columns),
                               .scale = scale_type(&p->scales, p->divisor != 0 ? 0 : p->factor) };
    /* integers up to 256, which every type of scale holds */
    if (integers && (p->zeros.data || p->zero != middle)) codes->offsets = OFFSETS_ZEROS;
    return codes->group % 16 == 0;
}

static void planes_row(const struct matrix *m, const struct matrix_codes *codes, int r,
                       signed char *to, float *scales, float *offsets) {
    const struct matrix_planes *p = m->planes;
    const unsigned char *from = m->data + (size_t)r * m->row_bytes;
    const int middle = p->form != MATRIX_INTEGERS ? 0 : p->bits == 8 ? 128 : 8;
    for (int k = 0; k < m->columns; k++) {
        const int byte = from[(size_t)k * (size_t)p->bits / 8];
        to[k] = (signed char)((p->bits == 8 ? byte : byte >> k % 2 * 4 & 15) - middle);
    }
    for (int i = 0; i < matrix_code_groups(codes, m->columns); i++) {
        const int k = i * codes->group;
        const float scale = p->scales.data ? matrix_plane_at(&p->scales, r, k) : 1.0f;
        scales[i] = p->divisor != 0 ? scale / p->divisor : scale * p->factor;
        if (codes->offsets)
            offsets[i] =
                (p->zeros.data ? matrix_plane_at(&p->zeros, r, k) : (float)p->zero) - (float)middle;
    }
}

/* ---- both ------------------------------------------------------------------------------------ */

bool matrix_codes(const struct matrix *m, struct matrix_codes *codes) {
    if (m->planes) return planes_codes(m, codes);
    if (!blocks[m->dtype].read) return false;
    *codes = blocks[m->dtype].codes;
    if (m->factor != 0) codes->scale = PLANE_F32;
    return true;
}

void matrix_codes_row(const struct matrix *m, int r, signed char *codes, float *scales,
                      float *offsets) {
    struct matrix_codes c;
    if (!matrix_codes(m, &c)) return;
    if (m->planes)
        planes_row(m, &c, r, codes, scales, offsets);
    else
        blocks_row(m, &c, r, codes, scales, offsets);
}
