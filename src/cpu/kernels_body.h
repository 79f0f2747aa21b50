/* The kernels in terms of float32 vectors, written once with the compiler's vector types and
 * compiled by every kernels_*.c with its own width and instruction set.
 *
 * Before including, a file defines
 *   LANES                 floats in a vector register
 *   GEMM_ROWS             rows of A that fit the registers together
 *   v_fma(a, b, c)        a * b + c, fused where the machine does so
 * and after it a table with the functions here or its own faster ones. */
#include "cpu/blocks.h"
#include "cpu/kernels.h"

#include <math.h>

/* Not every path keeps every function of the body. */
#define BODY __attribute__((unused)) static

ALWAYS_INLINE vf v_load(const float *p) {
    vf v;
    memcpy(&v, p, sizeof v);
    return v;
}
ALWAYS_INLINE void v_store(float *p, vf v) { memcpy(p, &v, sizeof v); }
ALWAYS_INLINE vf v_set(float x) { return x - (vf){ 0 }; }

ALWAYS_INLINE vf v_select(vi mask, vf yes, vf no) {
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}
ALWAYS_INLINE vf v_max(vf a, vf b) { return v_select(a < b, b, a); }

#ifndef HAVE_V_FROM_BF16
ALWAYS_INLINE vf v_from_bf16(const uint16_t *p) {
    vh h;
    memcpy(&h, p, sizeof h);
    return (vf)(__builtin_convertvector(h, vu) << 16);
}
#endif
#ifndef HAVE_V_FROM_I8
/* In two steps: compilers turn one step of 8 to 32 bits into scalar code. */
ALWAYS_INLINE vf v_from_i8(const int8_t *p) {
    vb b;
    memcpy(&b, p, sizeof b);
    return __builtin_convertvector(__builtin_convertvector(__builtin_convertvector(b, vs), vi), vf);
}
#endif

/* Nearest even; NaN stays NaN. */
ALWAYS_INLINE vh v_to_bf16(vf x) {
    vu bits = (vu)x;
    vu rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    vu nan = (vu)(x != x);
    return __builtin_convertvector((nan & 0x7fc0) | (~nan & rounded), vh);
}

/* Always the same tree, so the same bits. The loops are unrolled so that lanes stay in registers:
 * through memory, a sum takes longer than a row of 256 products. */
ALWAYS_INLINE float v_sum(vf v) {
    float lane[LANES];
#pragma GCC unroll 16
    for (int i = 0; i < LANES; i++)
        lane[i] = v[i];
#pragma GCC unroll 4
    for (int half = LANES / 2; half >= 1; half /= 2)
#pragma GCC unroll 8
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}
ALWAYS_INLINE float v_largest(vf v) {
    float best = v[0];
#pragma GCC unroll 16
    for (int i = 1; i < LANES; i++)
        if (v[i] > best) best = v[i];
    return best;
}

/* The largest of magnitudes; NaN where there is one, as its bits are larger than all others. */
ALWAYS_INLINE float v_largest_bits(vi magnitudes) {
#ifdef HAVE_V_LARGEST
    const int32_t best = v_largest_whole(magnitudes);
#else
    int32_t best = magnitudes[0];
#pragma GCC unroll 16
    for (int i = 1; i < LANES; i++)
        if (magnitudes[i] > best) best = magnitudes[i];
#endif
    float out;
    memcpy(&out, &best, sizeof out);
    return out;
}

/* exp to about 2 ulp: 2^n times a polynomial on [-ln2/2, ln2/2] (coefficients: Cephes expf). Below
 * -87 the result is 0, above 88 infinity; NaN passes. */
ALWAYS_INLINE vf v_exp(vf x) {
    const float shifter = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    vf clamped = v_select(x < -88.0f, v_set(-88.0f), x);
    clamped = v_select(clamped > 89.0f, v_set(89.0f), clamped);
    vf shifted = v_fma(clamped, v_set(1.44269504089f), v_set(shifter));
    vf n = shifted - shifter;
    vf r = v_fma(n, v_set(-0.693359375f), clamped);
    r = v_fma(n, v_set(2.12194440e-4f), r);
    vf p = v_set(1.9875691500e-4f);
    p = v_fma(p, r, v_set(1.3981999507e-3f));
    p = v_fma(p, r, v_set(8.3334519073e-3f));
    p = v_fma(p, r, v_set(4.1665795894e-2f));
    p = v_fma(p, r, v_set(1.6666665459e-1f));
    p = v_fma(p, r, v_set(5.0000001201e-1f));
    vf y = v_fma(r * r, p, r) + 1.0f;
    /* Two steps: 2^n alone would leave the range at both ends. */
    vi bits = (vi)shifted - 0x4b400000;
    vi half = bits >> 1;
    y *= (vf)((half + 127) << 23);
    y *= (vf)((bits - half + 127) << 23);
    y = v_select(x < -87.0f, v_set(0), y);
    return v_select(x != x, x, y);
}

/* ---- elementwise ------------------------------------------------------------------------------
 */

ALWAYS_INLINE float exp_one(float x) {
    vf y = v_exp(v_set(x));
    return y[0];
}

BODY void body_round_bf16(const float *x, int n, uint16_t *out) {
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        vh h = v_to_bf16(v_load(x + i));
        memcpy(out + i, &h, sizeof h);
    }
    for (; i < n; i++)
        out[i] = bf16_from_f32(x[i]);
}

/* x = high + rest, of LANES values; gives the sum of the two. */
ALWAYS_INLINE vf body_split(vf x, uint16_t *high, uint16_t *rest) {
    vh h = v_to_bf16(x);
    memcpy(high, &h, sizeof h);
    vf rounded = v_from_bf16(high);
    vh r = v_to_bf16(x - rounded);
    memcpy(rest, &r, sizeof r);
    return rounded + v_from_bf16(rest);
}

BODY void body_round_row(const float *x, int n, uint16_t *out, uint16_t *rest) {
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        (void)body_split(v_load(x + i), out + i, rest + i);
    for (; i < n; i++) {
        out[i] = bf16_from_f32(x[i]);
        rest[i] = bf16_from_f32(x[i] - bf16_to_f32(out[i]));
    }
}

/* One block. A value that is no number leaves a scale that is none. */
ALWAYS_INLINE void body_round_block(const float *x, int16_t *words, float *factors, size_t stride) {
    enum { MOST = 32767 };
    const float shifter = 12582912.0f; /* 1.5 * 2^23: adding it rounds to an integer */
    vi bits = { 0 };
    vu total = { 0 }; /* of what is no number anything */
#pragma GCC unroll 8
    for (int i = 0; i < BLOCK; i += LANES) {
        const vi own = (vi)v_load(x + i) & 0x7fffffff, larger = own > bits;
        bits = (own & larger) | (bits & ~larger);
    }
    const float most = v_largest_bits(bits), bound = most < 0x1p-100f ? 0x1p-100f : most;
    const vf inverse = v_set(MOST / bound);
#pragma GCC unroll 8
    for (int i = 0; i < BLOCK; i += LANES) {
        const vu whole = (vu)(v_load(x + i) * inverse + shifter) - 0x4b400000u;
        const vs narrow = __builtin_convertvector((vi)whole, vs);
        memcpy(words + i, &narrow, sizeof narrow);
        total += whole;
    }
    const float sum = v_sum(__builtin_convertvector((vi)total, vf)); /* exact: below 2^24 */
    factors[0] = bound / MOST;
    factors[stride] = sum * factors[0];
}

BODY void body_round_words(const float *x, int n, int16_t *words, float *factors, size_t stride) {
    int i = 0;
    for (; i + BLOCK <= n; i += BLOCK, factors += 2 * stride)
        body_round_block(x + i, words + i, factors, stride);
    if (i == n) return;
    float rest[BLOCK] = { 0 };
    memcpy(rest, x + i, (size_t)(n - i) * sizeof *rest);
    body_round_block(rest, words + i, factors, stride);
}

BODY void body_join_words(const int16_t *words, const float *factors, size_t stride, int n,
                          float *out) {
    for (int i = 0; i < n; i += LANES) {
        vs narrow;
        memcpy(&narrow, words + i, sizeof narrow);
        v_store(out + i, __builtin_convertvector(__builtin_convertvector(narrow, vi), vf) *
                             factors[2 * (size_t)(i / BLOCK) * stride]);
    }
}

BODY void body_round_vector(const float *x, int n, struct cpu_vector *out) {
    int padded = (n + VECTOR_PAD - 1) / VECTOR_PAD * VECTOR_PAD;
    memcpy(out->values, x, (size_t)n * sizeof *x);
    memset(out->values + n, 0, (size_t)(padded - n) * sizeof *x);
    for (int i = 0; i < padded; i += LANES)
        v_store(out->values + i,
                body_split(v_load(out->values + i), out->bf16[0] + i, out->bf16[1] + i));
    for (int b = 0; b < padded / BLOCK; b++) {
        vf total = { 0 };
        for (int i = b * BLOCK; i < (b + 1) * BLOCK; i += LANES)
            total += v_load(out->values + i);
        out->sums[b] = v_sum(total);
    }
}

BODY void body_norm(const float *x, const float *weight, int n, float eps, float *out) {
    vf squares = { 0 }, more = { 0 };
    int i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        vf a = v_load(x + i), b = v_load(x + i + LANES);
        squares = v_fma(a, a, squares);
        more = v_fma(b, b, more);
    }
    float sum = v_sum(squares + more);
    for (int j = i; j < n; j++)
        sum += x[j] * x[j];
    float r = 1.0f / sqrtf(sum / (float)n + eps);
    for (i = 0; i + LANES <= n; i += LANES)
        v_store(out + i, v_load(x + i) * r * v_load(weight + i));
    for (; i < n; i++)
        out[i] = x[i] * r * weight[i];
}

BODY void body_rope(float *head, int head_dim, const float *cos, const float *sin) {
    int half = head_dim / 2, i = 0;
    for (; i + LANES <= half; i += LANES) {
        vf a = v_load(head + i), b = v_load(head + half + i);
        vf c = v_load(cos + i), s = v_load(sin + i);
        v_store(head + i, a * c - b * s);
        v_store(head + half + i, b * c + a * s);
    }
    for (; i < half; i++) {
        float a = head[i], b = head[half + i];
        head[i] = a * cos[i] - b * sin[i];
        head[half + i] = b * cos[i] + a * sin[i];
    }
}

BODY void body_swiglu(const float *gate, const float *up, int n, float *out) {
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        vf g = v_load(gate + i);
        v_store(out + i, g / (1.0f + v_exp(-g)) * v_load(up + i));
    }
    for (; i < n; i++)
        out[i] = gate[i] / (1.0f + exp_one(-gate[i])) * up[i];
}

BODY void body_add(float *x, const float *y, int n) {
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        v_store(x + i, v_load(x + i) + v_load(y + i));
    for (; i < n; i++)
        x[i] += y[i];
}

BODY void body_scale(float *x, float factor, int n) {
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        v_store(x + i, v_load(x + i) * factor);
    for (; i < n; i++)
        x[i] *= factor;
}

/* One score or LANES of them; k_scales NULL: of a cache in bf16. */
ALWAYS_INLINE float scaled_one(const float *scores, const float *k_scales, int i) {
    return k_scales ? scores[i] * k_scales[i] : scores[i];
}
ALWAYS_INLINE vf scaled(const float *scores, const float *k_scales, int i) {
    return k_scales ? v_load(scores + i) * v_load(k_scales + i) : v_load(scores + i);
}

ALWAYS_INLINE float softmax_of(const float *scores, const float *k_scales, const float *v_scales,
                               int n, float scale, uint16_t *p, float *max, float *sum) {
    vf best = v_set(*max);
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        best = v_max(best, scaled(scores, k_scales, i) * scale);
    float top = v_largest(best);
    for (; i < n; i++)
        if (scaled_one(scores, k_scales, i) * scale > top)
            top = scaled_one(scores, k_scales, i) * scale;
    float correction = *max == top ? 1.0f : exp_one(*max - top);
    vf total = { 0 };
    float rest = 0;
    for (i = 0; i + LANES <= n; i += LANES) {
        vf e = v_exp(v_fma(scaled(scores, k_scales, i), v_set(scale), v_set(-top)));
        vh h = v_to_bf16(v_scales ? e * v_load(v_scales + i) : e);
        memcpy(p + i, &h, sizeof h);
        total += e;
    }
    for (; i < n; i++) {
        float e = exp_one(scaled_one(scores, k_scales, i) * scale - top);
        p[i] = bf16_from_f32(v_scales ? e * v_scales[i] : e);
        rest += e;
    }
    if (n & 1) p[n] = 0;
    *sum = *sum * correction + (v_sum(total) + rest);
    *max = top;
    return correction;
}

BODY float body_softmax(const float *scores, int n, float scale, uint16_t *p, float *max,
                        float *sum) {
    return softmax_of(scores, NULL, NULL, n, scale, p, max, sum);
}

BODY float body_softmax_scaled(const float *scores, const float *k_scales, const float *v_scales,
                               int n, float scale, uint16_t *p, float *max, float *sum) {
    return softmax_of(scores, k_scales, v_scales, n, scale, p, max, sum);
}

/* ---- one vector: dot_rows ---------------------------------------------------------------------
 */

ALWAYS_INLINE float body_element(enum dtype type, const unsigned char *row, int i) {
    if (type == DTYPE_F16) return block_half(row + 2 * (size_t)i);
    if (type == DTYPE_BF16) {
        uint16_t h;
        memcpy(&h, row + 2 * (size_t)i, sizeof h);
        return bf16_to_f32(h);
    }
    float f;
    memcpy(&f, row + 4 * (size_t)i, sizeof f);
    return f;
}

#ifndef HAVE_V_FROM_F16
ALWAYS_INLINE vf v_from_f16(const unsigned char *p) {
    float lane[LANES];
    for (int i = 0; i < LANES; i++)
        lane[i] = block_half(p + 2 * i);
    return v_load(lane);
}
#endif

ALWAYS_INLINE vf body_elements(enum dtype type, const unsigned char *p) {
    if (type == DTYPE_F16) return v_from_f16(p);
    if (type == DTYPE_BF16) return v_from_bf16((const uint16_t *)(const void *)p);
    return v_load((const float *)(const void *)p);
}

ALWAYS_INLINE float body_dot_plain(enum dtype type, const unsigned char *row, int n,
                                   const float *x) {
    const size_t size = type == DTYPE_F32 ? 4 : 2;
    vf sum[4] = { 0 };
    int i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        for (size_t line = 0; line < 4 * LANES * size; line += 64)
            __builtin_prefetch(row + size * (size_t)i + line + T_PREFETCH);
#pragma GCC unroll 4
        for (int j = 0; j < 4; j++)
            sum[j] = v_fma(body_elements(type, row + size * (size_t)(i + j * LANES)),
                           v_load(x + i + j * LANES), sum[j]);
    }
    float total = v_sum((sum[0] + sum[1]) + (sum[2] + sum[3]));
    for (; i < n; i++)
        total += body_element(type, row, i) * x[i];
    return total;
}

ALWAYS_INLINE void body_dot_block(enum dtype type, const unsigned char *row, int b,
                                  const struct cpu_vector *x, vf sum[2], float *minima) {
    struct block block;
    block_unpack(type, row, b, &block);
    const float *values = x->values + b * BLOCK;
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        vf part = { 0 };
#pragma GCC unroll 4
        for (int i = 16 * half; i < 16 * half + 16; i += LANES)
            part = v_fma(v_from_i8(block.q + i), v_load(values + i), part);
        sum[half] = v_fma(part, v_set(block.scale[half]), sum[half]);
        if (type == DTYPE_Q2_K) { /* lane by lane: the sums of x are of 32 */
            vf own = { 0 };
#pragma GCC unroll 4
            for (int i = 16 * half; i < 16 * half + 16; i += LANES)
                own += v_load(values + i);
            sum[half] = v_fma(own, v_set(block.min[half]), sum[half]);
        }
    }
    if (block_has_min(type)) *minima += block.min[0] * x->sums[b];
}

/* Blocks first to last - 1 of a row. */
ALWAYS_INLINE float body_dot_blocks(enum dtype type, const unsigned char *row, int first, int last,
                                    const struct cpu_vector *x) {
    vf sum[2] = { 0 };
    float minima = 0;
    const size_t bytes = dtype_row_bytes(type, 256) / 8; /* of BLOCK elements, about */
    for (int b = first; b < last; b++) {
        __builtin_prefetch(row + (size_t)b * bytes + T_PREFETCH);
        body_dot_block(type, row, b, x, sum, &minima);
    }
    return v_sum(sum[0] + sum[1]) + minima;
}

#define BODY_DOT_ROWS(type, text, elements, bytes)                                                 \
    BODY void body_dot_rows_##type(const struct matrix *w, const struct cpu_vector *x, int first,  \
                                   int last, float *y) {                                           \
        for (int r = first; r < last; r++) {                                                       \
            const unsigned char *row = w->data + (size_t)r * w->row_bytes;                         \
            y[r] = block_format(type) ? body_dot_blocks(type, row, 0, w->columns / BLOCK, x)       \
                                      : body_dot_plain(type, row, w->columns, x->values);          \
            if (type == DTYPE_NVFP4 && w->factor != 0) y[r] *= w->factor;                          \
        }                                                                                          \
    }
DTYPE_LIST(BODY_DOT_ROWS)
#undef BODY_DOT_ROWS

#include "cpu/kernels_body_columns.h"
#include "cpu/kernels_body_planes.h"

/* ---- many vectors: unpack, interleave, gemm ---------------------------------------------------
 */

/* The term-th of the bf16 values that add up to x. */
ALWAYS_INLINE uint16_t body_term(float x, int term) {
    uint16_t h = bf16_from_f32(x);
    for (int t = 0; t < term; t++) {
        x = isfinite(x) ? x - bf16_to_f32(h) : 0;
        h = bf16_from_f32(x);
    }
    return h;
}

ALWAYS_INLINE void body_unpack_blocks(enum dtype type, const unsigned char *row, int first, int n,
                                      int16_t *out, float *scales, float *mins) {
    for (int b = 0; b < n / BLOCK; b++) {
        struct block block;
        block_unpack(type, row, first / BLOCK + b, &block);
#pragma GCC unroll 8
        for (int i = 0; i < BLOCK; i += LANES) {
            vb narrow;
            memcpy(&narrow, block.q + i, sizeof narrow);
            const vs wide = __builtin_convertvector(narrow, vs);
            memcpy(out + b * BLOCK + i, &wide, sizeof wide);
        }
        if (block_halves(type)) {
            scales[(size_t)(2 * b) * TILE_ROWS] = block.scale[0];
            scales[(size_t)(2 * b + 1) * TILE_ROWS] = block.scale[1];
        } else {
            scales[(size_t)b * TILE_ROWS] = block.scale[0];
        }
        if (block_has_min(type)) mins[(size_t)b * TILE_ROWS] = block.min[0];
    }
}

ALWAYS_INLINE void body_unpack_plain(enum dtype type, const unsigned char *row, int first, int n,
                                     int term, uint16_t *out) {
    for (int i = 0; i < n; i++)
        out[i] = body_term(body_element(type, row, first + i), term);
}

#define BODY_UNPACK(type, text, elements, bytes)                                                   \
    BODY void body_unpack_##type(const unsigned char *row, int first, int n, int term,             \
                                 uint16_t *out, float *scales, float *mins) {                      \
        (void)scales, (void)mins, (void)term;                                                      \
        if (block_format(type))                                                                    \
            body_unpack_blocks(type, row, first, n, (int16_t *)out, scales, mins);                 \
        else if (type == DTYPE_BF16)                                                               \
            memcpy(out, row + 2 * (size_t)first, 2 * (size_t)n);                                   \
        else                                                                                       \
            body_unpack_plain(type, row, first, n, term, out);                                     \
    }
DTYPE_LIST(BODY_UNPACK)
#undef BODY_UNPACK

BODY void body_interleave(const unsigned char *rows, size_t stride, int n, uint16_t *dst) {
    for (int lane = 0; lane < PANEL_LANES; lane++)
        for (int i = 0; i < n; i += 2)
            memcpy(dst + (size_t)i * PANEL_LANES + 2 * lane, rows + (size_t)lane * stride + 2 * i,
                   4);
}

#define PANEL_VECTORS (PANEL_LANES / LANES)

/* rows (a constant at every call) of A against one panel. */
ALWAYS_INLINE void body_gemm_rows(const struct gemm *g, int m, int panel, const int rows) {
    const uint16_t *b = g->panels + (size_t)panel * g->panel_stride;
    const uint16_t *a = g->a + (size_t)m * g->a_stride;
    float *c = g->c + (size_t)m * g->c_stride + panel * PANEL_LANES;
    vf sum[GEMM_ROWS][PANEL_VECTORS];
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < PANEL_VECTORS; v++)
            sum[r][v] = v_set(0);
    for (int s = 0; s < g->k_pairs; s++) {
        const uint16_t *pairs = b + (size_t)s * g->step_stride;
        if (g->ahead) __builtin_prefetch(pairs + g->ahead);
        vf even[PANEL_VECTORS], odd[PANEL_VECTORS];
#pragma GCC unroll 4
        for (int v = 0; v < PANEL_VECTORS; v++) {
            vu pair;
            memcpy(&pair, pairs + 2 * LANES * v, sizeof pair);
            even[v] = (vf)(pair << 16);
            odd[v] = (vf)(pair & 0xffff0000u);
        }
#pragma GCC unroll 8
        for (int r = 0; r < rows; r++) {
            vf x = v_set(bf16_to_f32(a[(size_t)r * g->a_stride + 2 * (size_t)s]));
            vf y = v_set(bf16_to_f32(a[(size_t)r * g->a_stride + 2 * (size_t)s + 1]));
#pragma GCC unroll 4
            for (int v = 0; v < PANEL_VECTORS; v++)
                sum[r][v] = v_fma(odd[v], y, v_fma(even[v], x, sum[r][v]));
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < PANEL_VECTORS; v++) {
            float *to = c + (size_t)r * g->c_stride + v * LANES;
            v_store(to, g->accumulate ? v_load(to) + sum[r][v] : sum[r][v]);
        }
}

BODY void body_gemm(const struct gemm *g) {
    int m = 0;
    for (; m + GEMM_ROWS <= g->m; m += GEMM_ROWS)
        for (int panel = 0; panel < g->n_panels; panel++)
            body_gemm_rows(g, m, panel, GEMM_ROWS);
    for (; m < g->m; m++)
        for (int panel = 0; panel < g->n_panels; panel++)
            body_gemm_rows(g, m, panel, 1);
}

#include "cpu/kernels_body_audio.h"
#include "cpu/kernels_body_delta.h"
#include "cpu/kernels_body_words.h"

/* Entries of a table. */
#define BODY_DOT_ENTRY(type, text, elements, bytes)    [type] = body_dot_rows_##type,
#define BODY_UNPACK_ENTRY(type, text, elements, bytes) [type] = body_unpack_##type,
#define BODY_VECTORS                                   .round_vector = body_round_vector, .spread_column = body_spread_column
#define BODY_ELEMENTWISE                                                                           \
    .gemm_words = body_gemm_words, .round_bf16 = body_round_bf16, .round_row = body_round_row,     \
    .round_words = body_round_words, .join_words = body_join_words, .norm = body_norm,             \
    .rope = body_rope, .swiglu = body_swiglu, .add = body_add, .scale = body_scale,                \
    .softmax = body_softmax, .softmax_scaled = body_softmax_scaled, BODY_DELTA, BODY_AUDIO,        \
    BODY_PLANES
