#include "support/narrow_model.h"

#include "cuda/run/cuda_backend.h"
#include "model/matrix_codes.h"
#include "runtime/model_handle.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- a matrix, narrowed ---------------------------------------------------------------------- */

/* What lies behind a narrowed matrix; a list to free it by. */
struct narrowed {
    struct narrowed *next;
    struct matrix_planes planes;
    unsigned char *codes, *scales, *zeros;
    float *wide;
};
static struct narrowed *all_narrowed;

static struct narrowed *narrowed_new(size_t codes, size_t scales, size_t zeros, size_t floats) {
    struct narrowed *n = calloc(1, sizeof *n);
    assert_non_null(n);
    n->codes = calloc(codes + 1, 1), n->scales = calloc(scales + 1, 4),
    n->zeros = calloc(zeros + 1, 1);
    n->wide = calloc(floats + 1, sizeof *n->wide);
    assert_true(n->codes && n->scales && n->zeros && n->wide);
    n->next = all_narrowed, all_narrowed = n;
    return n;
}

void narrow_free(void) {
    while (all_narrowed) {
        struct narrowed *n = all_narrowed;
        all_narrowed = n->next;
        free(n->codes), free(n->scales), free(n->zeros), free(n->wide), free(n);
    }
}

static bool uneven; /* the matrix at hand */

/* The power of two with which `most` becomes `largest` or less; an uneven step is up to half as
 * large again. */
static float step_of(const float *w, int n, float largest) {
    float most = 0x1p-20f;
    for (int i = 0; i < n; i++)
        most = fmaxf(most, fabsf(w[i]));
    const float step = exp2f(ceilf(log2f(most / largest)));
    return uneven ? step * (1 + fmodf(most * 1000, 1) / 2) : step;
}

static int nearest(const float *values, int n, float x) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (fabsf(values[i] - x) < fabsf(values[best] - x)) best = i;
    return best;
}

static int code_of(const struct narrow_form *f, float x, int zero) {
    static float e4m3[127], e2m1[8];
    for (int i = 0; i < 127 && e4m3[126] == 0; i++)
        e4m3[i] = e4m3_to_f32((uint8_t)i);
    for (int i = 0; i < 8; i++)
        e2m1[i] = e2m1_to_f32(i);
    switch (f->kind) {
    case ROWS_INT8:
    case INT8_ZEROS:
        return (int)fminf(fmaxf(rintf(x) + (float)zero, 0), 255);
    case E4M3_BLOCKS:
        return nearest(e4m3, 127, fabsf(x)) | (x < 0 ? 128 : 0);
    case E2M1_GROUPS:
        return nearest(e2m1, 8, fabsf(x)) | (x < 0 ? 8 : 0);
    case NF4_GROUPS:
        return nearest(matrix_code_floats(CODE_NF4), 16, x);
    case FP4_GROUPS:
        return nearest(matrix_code_floats(CODE_FP4), 16, x);
    default:
        return (int)fminf(fmaxf(rintf(x) + (float)zero, 0), 15);
    }
}

static void put_scale(unsigned char *to, enum plane_type type, int i, float x) {
    const uint16_t half = type == PLANE_F16 ? f16_from_f32(x) : bf16_from_f32(x);
    if (type == PLANE_F32)
        memcpy(to + 4 * i, &x, 4);
    else
        memcpy(to + 2 * i, &half, 2);
}

static void narrow_blocks(struct matrix *m, struct narrowed *n) {
    static const struct narrow_form like = { .kind = Q4_1_BLOCKS };
    for (int r = 0; r < m->rows; r++)
        for (int k = 0; k < m->columns; k += 32) {
            const float *w = n->wide + (size_t)r * (size_t)m->columns + k;
            const float d = step_of(w, 32, 7);
            const int zero = 7 + (r + k / 32) % 3; /* minima that are not all alike */
            unsigned char *block =
                n->codes + ((size_t)r * (size_t)m->columns + (size_t)k) / 32 * 20;
            put_scale(block, PLANE_F16, 0, d), put_scale(block, PLANE_F16, 1, -d * (float)zero);
            for (int i = 0; i < 16; i++)
                block[4 + i] = (unsigned char)(code_of(&like, w[i] / d, zero) |
                                               code_of(&like, w[i + 16] / d, zero) << 4);
        }
    *m = (struct matrix){ .dtype = DTYPE_Q4_1,
                          .rows = m->rows,
                          .columns = m->columns,
                          .row_bytes = (size_t)m->columns / 32 * 20,
                          .data = n->codes };
}

/* ---- K-quants ---------------------------------------------------------------------------------
 */

/* Steps of a block's groups, 1 to `most`, powers of two; returns the unit. Neighbouring blocks have
 * units that differ, and so have a lane's two rows. */
static float block_steps(const float *w, int nth, int group, float largest, int most, int *steps) {
    float need[16], unit = 0;
    if (nth % 2) most /= 2;
    for (int i = 0; i < 256 / group; i++)
        need[i] = step_of(w + i * group, group, largest), unit = fmaxf(unit, need[i]);
    unit /= (float)most;
    for (int i = 0; i < 256 / group; i++)
        steps[i] = (int)fmaxf(1, need[i] / unit);
    return unit;
}

static void put_q4_k(unsigned char *block, const float *w, int nth) {
    static const struct narrow_form like = { .kind = Q4_K_BLOCKS };
    int scale[8], min[8];
    const float unit = block_steps(w, nth, 32, 7, 8, scale);
    put_scale(block, PLANE_F16, 0, unit), put_scale(block, PLANE_F16, 1, unit / 2);
    for (int j = 0; j < 8; j++) {
        min[j] = 14 * scale[j] + 2 * (j % 3 - 1); /* about the middle of the codes, below 64 */
        if (min[j] > 60) min[j] = 60 - 2 * (j % 3);
        const float step = unit * (float)scale[j], least = unit / 2 * (float)min[j];
        for (int i = 0; i < 32; i++)
            block[16 + j / 2 * 32 + i] |=
                (unsigned char)(code_of(&like, (w[j * 32 + i] + least) / step, 0) << j % 2 * 4);
    }
    for (int j = 0; j < 4; j++) {
        block[4 + j] = (unsigned char)(scale[j] | scale[j + 4] >> 4 << 6);
        block[8 + j] = (unsigned char)(min[j] | min[j + 4] >> 4 << 6);
        block[12 + j] = (unsigned char)((scale[j + 4] & 15) | (min[j + 4] & 15) << 4);
    }
}

/* Every third group has a negative scale. */
static void put_q6_k(unsigned char *block, const float *w, int nth) {
    int scale[16];
    const float unit = block_steps(w, nth, 16, 31, 64, scale);
    put_scale(block + 208, PLANE_F16, 0, unit);
    for (int i = 0; i < 256; i++) {
        const int j = i / 16, sign = j % 3 == 2 ? -1 : 1, half = i / 128, quarter = i % 128 / 32;
        const float step = unit * (float)(scale[j] * sign);
        const int code = (int)fminf(fmaxf(rintf(w[i] / step), -32), 31) + 32;
        block[192 + j] = (unsigned char)(signed char)(scale[j] * sign);
        block[half * 64 + 32 * (quarter & 1) + i % 32] |=
            (unsigned char)((code & 15) << (quarter < 2 ? 0 : 4));
        block[128 + half * 32 + i % 32] |= (unsigned char)(code >> 4 << 2 * quarter);
    }
}

/* Minima about the middle of the codes, below 16. */
static void put_q2_k(unsigned char *block, const float *w, int nth) {
    int scale[16];
    const float unit = block_steps(w, nth, 16, 1.5f, 4, scale);
    put_scale(block + 80, PLANE_F16, 0, unit), put_scale(block + 80, PLANE_F16, 1, unit / 2);
    for (int i = 0; i < 256; i++) {
        const int j = i / 16, min = 3 * scale[j] + j % 3 - 1;
        const float step = unit * (float)scale[j], least = unit / 2 * (float)min;
        const int code = (int)fminf(fmaxf(rintf((w[i] + least) / step), 0), 3);
        block[j] = (unsigned char)(scale[j] | min << 4);
        block[16 + i / 128 * 32 + i % 32] |= (unsigned char)(code << i % 128 / 32 * 2);
    }
}

/* Every third group has a negative scale. */
static void put_q3_k(unsigned char *block, const float *w, int nth) {
    int scale[16];
    const float unit = block_steps(w, nth, 16, 3, 16, scale);
    put_scale(block + 108, PLANE_F16, 0, unit);
    for (int i = 0; i < 256; i++) {
        const int j = i / 16, sign = j % 3 == 2 ? -1 : 1;
        const float step = unit * (float)(scale[j] * sign);
        const int code = (int)fminf(fmaxf(rintf(w[i] / step), -4), 3) + 4;
        block[i % 32] |= (unsigned char)(code >> 2 << i / 32);
        block[32 + i / 128 * 32 + i % 32] |= (unsigned char)((code & 3) << i % 128 / 32 * 2);
    }
    for (int j = 0; j < 16; j++) {
        const int six = (j % 3 == 2 ? -scale[j] : scale[j]) + 32;
        block[96 + j % 8] |= (unsigned char)((six & 15) << j / 8 * 4);
        block[104 + j % 4] |= (unsigned char)(six >> 4 << j / 4 * 2);
    }
}

/* Likewise. */
static void put_iq4_xs(unsigned char *block, const float *w, int nth) {
    int scale[8];
    float values[16];
    const float unit = block_steps(w, nth, 32, 113, 16, scale);
    for (int i = 0; i < 16; i++)
        values[i] = dtype_iq4_values[i];
    put_scale(block, PLANE_F16, 0, unit);
    for (int i = 0; i < 256; i++) {
        const int j = i / 32, sign = j % 3 == 2 ? -1 : 1;
        const int code = nearest(values, 16, w[i] / (unit * (float)(scale[j] * sign)));
        block[8 + j * 16 + i % 16] |= (unsigned char)(code << i % 32 / 16 * 4);
    }
    for (int j = 0; j < 8; j++) {
        const int six = (j % 3 == 2 ? -scale[j] : scale[j]) + 32;
        block[4 + j / 2] |= (unsigned char)((six & 15) << j % 2 * 4);
        block[2 + j / 4] |= (unsigned char)(six >> 4 << j % 4 * 2);
    }
}

static void narrow_k(struct matrix *m, enum dtype type, struct narrowed *n) {
    static void (*const put[DTYPE_COUNT])(unsigned char *, const float *, int) = {
        [DTYPE_Q4_K] = put_q4_k, [DTYPE_Q6_K] = put_q6_k,     [DTYPE_Q2_K] = put_q2_k,
        [DTYPE_Q3_K] = put_q3_k, [DTYPE_IQ4_XS] = put_iq4_xs,
    };
    const size_t bytes = (size_t)dtype_block_bytes(type), blocks = (size_t)m->columns / 256;
    assert_int_equal(m->columns % 256, 0);
    for (size_t i = 0; i < (size_t)m->rows * blocks; i++)
        put[type](n->codes + i * bytes, n->wide + i * 256, (int)(i % blocks + i / blocks / 8));
    *m = (struct matrix){ .dtype = type,
                          .rows = m->rows,
                          .columns = m->columns,
                          .row_bytes = blocks * bytes,
                          .data = n->codes };
}

static void narrow_planes(struct matrix *m, const struct narrow_form *f, struct narrowed *n) {
    static const float largest[WIDE] = { 127, 0, 6, 240, 6, 100, 6, [NF4_GROUPS] = 1, 1 };
    const int group = f->group ? f->group : m->columns, groups = (m->columns + group - 1) / group;
    const bool table = f->kind == NF4_GROUPS || f->kind == FP4_GROUPS;
    const bool four =
        table || f->kind == INT4_ZEROS || f->kind == E2M1_GROUPS || f->kind == INT4_GROUPS;
    const int bits = four ? 4 : 8;
    const bool zeros = f->kind == INT4_ZEROS || f->kind == INT8_ZEROS;
    for (int r = 0; r < m->rows; r++)
        for (int k = 0; k < m->columns; k++) {
            const float *w = n->wide + (size_t)r * (size_t)m->columns;
            const int g = k / group, at = r * groups + g, first = g * group;
            const int some = m->columns - first < group ? m->columns - first : group;
            const float step = step_of(w + first, some, largest[f->kind]);
            const int zero = (bits == 8 ? 128 : 8) + (zeros ? (r + g) % 3 - 1 : 0);
            if (k == first) put_scale(n->scales, f->scale, at, step);
            if (k == first) n->zeros[at] = (unsigned char)zero;
            const int code = code_of(f, w[k] / step, zero);
            const size_t bit = ((size_t)r * (size_t)m->columns + (size_t)k) * (size_t)bits;
            n->codes[bit / 8] |= (unsigned char)(code << bit % 8);
        }
    n->planes =
        (struct matrix_planes){ .form = table                    ? MATRIX_TABLE
                                        : f->kind == E4M3_BLOCKS ? MATRIX_E4M3
                                        : f->kind == E2M1_GROUPS ? MATRIX_E2M1
                                                                 : MATRIX_INTEGERS,
                                .bits = bits,
                                .scales = { n->scales,
                                            (size_t)groups * (f->scale == PLANE_F32 ? 4 : 2),
                                            f->scale, 1, group },
                                .zero = bits == 8 ? 128 : 8,
                                .factor = 1 };
    if (table) n->planes.table = matrix_code_floats(f->kind == NF4_GROUPS ? CODE_NF4 : CODE_FP4);
    if (zeros)
        n->planes.zeros = (struct matrix_plane){ n->zeros, (size_t)groups, PLANE_U8, 1, group };
    *m = (struct matrix){ .dtype = DTYPE_BF16,
                          .rows = m->rows,
                          .columns = m->columns,
                          .row_bytes = (size_t)(m->columns * bits / 8),
                          .data = n->codes,
                          .planes = &n->planes };
}

/* The two types of blocks of 256 columns that a kind's matrices take in turn. */
static const enum dtype k_types[WIDE][2] = {
    [Q4_K_BLOCKS] = { DTYPE_Q4_K, DTYPE_Q4_K }, [Q6_K_BLOCKS] = { DTYPE_Q6_K, DTYPE_Q6_K },
    [K_MIXED] = { DTYPE_Q4_K, DTYPE_Q6_K },     [Q2_K_BLOCKS] = { DTYPE_Q2_K, DTYPE_Q2_K },
    [Q3_K_BLOCKS] = { DTYPE_Q3_K, DTYPE_Q3_K }, [IQ4_XS_BLOCKS] = { DTYPE_IQ4_XS, DTYPE_IQ4_XS },
    [K_MIXED_FEW] = { DTYPE_Q2_K, DTYPE_Q3_K },
};
static int n_mixed; /* matrices that take turns so far */

static enum dtype k_type(int kind) {
    const bool mixed = k_types[kind][0] != k_types[kind][1];
    return k_types[kind][mixed ? n_mixed++ % 2 : 0];
}

static void narrow(struct matrix *m, const struct narrow_form *form, enum narrow_as as) {
    const size_t all = (size_t)m->rows * (size_t)m->columns;
    struct narrow_form without = *form, *f = &without;
    without.kind &= ~(unsigned)UNEVEN;
    uneven = form->kind & UNEVEN;
    if (f->kind == WIDE) return;
    struct narrowed *n =
        narrowed_new(all, all / 16 + (size_t)m->rows, all / 16 + (size_t)m->rows, all);
    for (int r = 0; r < m->rows; r++)
        matrix_row_f32(m, r, n->wide + (size_t)r * (size_t)m->columns);
    if (f->kind == Q4_1_BLOCKS)
        narrow_blocks(m, n);
    else if (f->kind >= Q4_K_BLOCKS && f->kind < NF4_GROUPS)
        narrow_k(m, k_type((int)f->kind), n);
    else
        narrow_planes(m, f, n);
    if (as == NARROW_CODES) return;
    for (int r = 0; r < m->rows; r++)
        matrix_row_f32(m, r, n->wide + (size_t)r * (size_t)m->columns);
    for (size_t i = 0; i < all && uneven && as == NARROW_ROUNDED; i++)
        n->wide[i] = bf16_to_f32(bf16_from_f32(n->wide[i]));
    *m = (struct matrix){ .dtype = DTYPE_F32,
                          .rows = m->rows,
                          .columns = m->columns,
                          .row_bytes = (size_t)m->columns * 4,
                          .data = (const unsigned char *)n->wide };
}

/* ---- models ---------------------------------------------------------------------------------- */

void narrow_model(struct reel_model *handle, const struct narrow_forms *f, enum narrow_as as) {
    struct weights *w = &handle->model.weights;
    n_mixed = 0;
    for (int i = 0; i < w->n_layers; i++) {
        struct layer_weights *l = &w->layers[i];
        struct matrix *first[] = { &l->q, &l->k, &l->v }, *mix[] = { &l->delta.qkv, &l->delta.z };
        for (int j = 0; j < 3 && l->kind != LAYER_DELTA; j++)
            narrow(first[j], &f->qkv, as);
        for (int j = 0; j < 2 && l->kind == LAYER_DELTA; j++)
            narrow(mix[j], &f->qkv, as);
        narrow(&l->o, &f->out, as);
        narrow(&l->gate, &f->gate_up, as), narrow(&l->up, &f->gate_up, as);
        narrow(&l->down, &f->down, as);
    }
    narrow(&w->head, &f->head, as);
    if (handle->model.config.tied) w->embedding = w->head;
}

/* The handle is opened on the CPU, which leaves the weights mapped, and started again. */
enum reel_status narrow_model_load(struct sim_model *m, const struct narrow_forms *forms,
                                   const char *options, struct reel_error *err) {
    char all[500];
    const struct reel_model_options cpu = {
        .size = sizeof cpu, .device = "cpu", .cpu_path = "portable", .n_threads = 1
    };
    snprintf(all, sizeof all,
             "patience=2147483647,hang_ms=1000000000,launch_ms=10000,launch_tokens=256,spin_us=100,"
             "nap_us=500,stage_kb=64,poison=1,tuned=0,%s",
             options);
    enum reel_status status = reel_model_open(&m->gpu, m->folder, &cpu, err);
    if (status != REEL_OK) return status;
    model_handle_stop(m->gpu);
    narrow_model(m->gpu, forms, NARROW_CODES);
    const struct backend_options o = { .devices = { .n = 1 },
                                       .gpu_options = all,
                                       .cuda_dir = sim_gpu_folder() };
    return model_handle_start(m->gpu, &cuda_backend, &o, err);
}
