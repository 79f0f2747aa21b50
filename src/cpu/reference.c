/* The phases in the order a layer runs them. Each comment gives the formula; bf() is rounding to
 * bf16, which happens only where the mode says so.
 *
 * Rounding points: transformers 5, models/qwen3/modeling_qwen3.py (Llama's file has the same) and
 * models/qwen3_5/modeling_qwen3_5.py, without its optional packages. */
#include "cpu/reference.h"

#include <math.h>

/* FAITHFUL only: an intermediate that the Hugging Face code materialises as a bf16 tensor. */
static float bf(float x, enum ref_rounding mode) {
    return mode == REF_FAITHFUL ? bf16_to_f32(bf16_from_f32(x)) : x;
}

/* Sums of products go through fixed lanes, added up at the end: float32 as on a vector machine,
 * the same bits from every compiler, and closer to the true sum than one running total. */
#define LANES 16

static float lanes_sum(const float *lanes) {
    float sum = 0.0f;
    for (int i = 0; i < LANES; i++)
        sum += lanes[i];
    return sum;
}

static float dot(const float *a, const float *b, int n) {
    float lanes[LANES] = { 0 };
    int i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int j = 0; j < LANES; j++)
            lanes[j] += a[i + j] * b[i + j];
    for (int j = 0; i + j < n; j++)
        lanes[j] += a[i + j] * b[i + j];
    return lanes_sum(lanes);
}

static void weight_row(const struct matrix *w, enum ref_weights weights, int r, float *row) {
    matrix_row_f32(w, r, row);
    for (int i = 0; weights == REF_AS_BF16 && i < w->columns; i++)
        row[i] = bf16_to_f32(bf16_from_f32(row[i]));
}

void cpu_embed(const struct matrix *embedding, enum ref_weights weights, int32_t id, float *x) {
    weight_row(embedding, weights, id, x);
}

/* y = bf( weight * bf( x * r ) ),  r = 1 / sqrt(mean(x^2) + eps) */
void cpu_rms_norm(const float *x, const float *weight, int n, float eps, float *y,
                  enum ref_rounding mode) {
    float r = 1.0f / sqrtf(dot(x, x, n) / (float)n + eps);
    for (int i = 0; i < n; i++)
        y[i] = bf(weight[i] * bf(x[i] * r, mode), mode);
}

/* y = bf( x * r * weight ) */
void cpu_rms_norm_once(const float *x, const float *weight, int n, float eps, float *y,
                       enum ref_rounding mode) {
    cpu_rms_norm(x, weight, n, eps, y, REF_EXACT);
    for (int i = 0; i < n; i++)
        y[i] = bf(y[i], mode);
}

/* y = bf( W x ) */
void cpu_product(const struct matrix *w, enum ref_weights weights, const float *x, int n,
                 float *row, float *y, enum ref_rounding mode) {
    for (int r = 0; r < w->rows; r++) {
        weight_row(w, weights, r, row);
        for (int i = 0; i < n; i++)
            y[(size_t)i * (size_t)w->rows + (size_t)r] =
                bf(dot(row, x + (size_t)i * (size_t)w->columns, w->columns), mode);
    }
}

/* x = bf( fc [norm(embedding); norm(hidden)] ), norms with one rounding each. There is no file of
 * transformers to point at: it skips draft layers. vLLM and llama.cpp agree on this. */
void cpu_draft_input(const struct draft_weights *w, enum ref_weights weights,
                     const float *embedding, const float *hidden, int hidden_dim, float eps,
                     float *both, float *row, float *x, enum ref_rounding mode) {
    cpu_rms_norm_once(embedding, w->embedding_norm, hidden_dim, eps, both, mode);
    cpu_rms_norm_once(hidden, w->hidden_norm, hidden_dim, eps, both + hidden_dim, mode);
    cpu_store(both, 2 * hidden_dim, mode);
    cpu_product(&w->fc, weights, both, 1, row, x, mode);
}

/* y = bf( W x + b ) */
void cpu_product_bias(const struct matrix *w, const float *bias, enum ref_weights weights,
                      const float *x, int n, float *row, float *y, enum ref_rounding mode) {
    cpu_product(w, weights, x, n, row, y, bias ? REF_EXACT : mode);
    for (int i = 0; bias && i < n; i++)
        for (int r = 0; r < w->rows; r++, y++)
            *y = bf(*y + bias[r], mode);
}

/* cos = bf( cos(position * inv) ), the angle being one float32 product. Angles reach tens of
 * thousands of radians: the double functions reduce them exactly. */
void cpu_rope_angles(const float *inv, int rotary_dim, int position, float *cos_out, float *sin_out,
                     enum ref_rounding mode) {
    for (int i = 0; i < rotary_dim / 2; i++) {
        float angle = (float)position * inv[i];
        cos_out[i] = bf((float)cos((double)angle), mode);
        sin_out[i] = bf((float)sin((double)angle), mode);
    }
}

/* a = bf( bf(a * cos) + bf(-b * sin) ),  b = bf( bf(b * cos) + bf(a * sin) ) */
void cpu_rope(float *head, int rotary_dim, const float *cos, const float *sin,
              enum ref_rounding mode) {
    int half = rotary_dim / 2;
    for (int i = 0; i < half; i++) {
        float a = head[i], b = head[i + half];
        head[i] = bf(bf(a * cos[i], mode) + bf(-b * sin[i], mode), mode);
        head[i + half] = bf(bf(b * cos[i], mode) + bf(a * sin[i], mode), mode);
    }
}

/* p = bf( softmax( bf( bf(q . k) * scale ) ) ),  out = bf( sum of p * v ) */
void cpu_attention(const float *q, const float *k, const float *v, int n, size_t stride,
                   int head_dim, float scale, float *scores, float *out, enum ref_rounding mode) {
    float top = -INFINITY, sum = 0.0f;
    for (int i = 0; i < n; i++) {
        scores[i] = bf(bf(dot(q, k + (size_t)i * stride, head_dim), mode) * scale, mode);
        if (scores[i] > top) top = scores[i];
    }
    for (int i = 0; i < n; i++) {
        scores[i] = expf(scores[i] - top);
        sum += scores[i];
    }
    for (int d = 0; d < head_dim; d++)
        out[d] = 0.0f;
    for (int i = 0; i < n; i++) {
        float p = bf(scores[i] / sum, mode);
        for (int d = 0; d < head_dim; d++)
            out[d] += p * v[(size_t)i * stride + (size_t)d];
    }
    for (int d = 0; d < head_dim; d++)
        out[d] = bf(out[d], mode);
}

static float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }
static float silu(float x) { return x / (1.0f + expf(-x)); }

/* x = bf( x * bf(sigmoid(gate)) ) */
void cpu_sigmoid_gate(float *x, const float *gate, int n, enum ref_rounding mode) {
    for (int i = 0; i < n; i++)
        x[i] = bf(x[i] * bf(sigmoid(gate[i]), mode), mode);
}

/* out = bf( silu( bf( sum of taps * inputs ) ) ) */
void cpu_convolve(const float *taps, const float *window, const float *x, int width, int channels,
                  float *out, enum ref_rounding mode) {
    for (int i = 0; i < channels; i++) {
        float sum = 0;
        for (int j = 0; j < width - 1; j++)
            sum += taps[j * channels + i] * window[j * channels + i];
        sum += taps[(width - 1) * channels + i] * x[i];
        out[i] = bf(silu(bf(sum, mode)), mode);
    }
}

void cpu_l2_norm(float *x, int n, float scale) {
    float r = 1.0f / sqrtf(dot(x, x, n) + 1e-6f);
    for (int i = 0; i < n; i++)
        x[i] = x[i] * r * scale;
}

/* beta = bf( sigmoid(b) ); softplus(x) is x beyond 20, where log(1 + exp(x)) is no different. */
void cpu_delta_gates(const float *b, const float *a, const float *rate, const float *dt_bias,
                     int n_heads, float *beta, float *log_decay, enum ref_rounding mode) {
    for (int i = 0; i < n_heads; i++) {
        float x = a[i] + dt_bias[i];
        beta[i] = bf(sigmoid(b[i]), mode);
        log_decay[i] = -rate[i] * (x > 20 ? x : log1pf(expf(x)));
    }
}

/* S = exp(log_decay) S;  d = beta (v - S^T k);  S = S + k d^T;  out = bf( S^T q ).  Yang, Kautz,
 * Hatamizadeh: Gated Delta Networks, 2024, equation 10. */
void cpu_delta_step(const struct delta_shape *shape, float *state, const float *q, const float *k,
                    const float *v, float log_decay, float beta, float *out,
                    enum ref_rounding mode) {
    const float alpha = expf(log_decay);
    float d[MODEL_MAX_HEAD_DIM] = { 0 };
    for (int i = 0; i < shape->key_dim; i++) {
        float *row = state + (size_t)i * shape->stride;
        for (int c = 0; c < shape->value_dim; c++) {
            row[c] *= alpha;
            d[c] += row[c] * k[i];
        }
    }
    for (int c = 0; c < shape->value_dim; c++) {
        d[c] = beta * (v[c] - d[c]);
        out[c] = 0;
    }
    for (int i = 0; i < shape->key_dim; i++) {
        float *row = state + (size_t)i * shape->stride;
        for (int c = 0; c < shape->value_dim; c++) {
            row[c] += k[i] * d[c];
            out[c] += row[c] * q[i];
        }
    }
    for (int c = 0; c < shape->value_dim; c++)
        out[c] = bf(out[c], mode);
}

/* y = bf( bf( weight * bf(x * r) ) * silu(gate) ) */
void cpu_gated_norm(const float *x, const float *weight, const float *gate, int n, float eps,
                    float *y, enum ref_rounding mode) {
    cpu_rms_norm(x, weight, n, eps, y, mode);
    for (int i = 0; i < n; i++)
        y[i] = bf(y[i] * silu(gate[i]), mode);
}

/* x = bf( x + y ) */
void cpu_residual_add(float *x, const float *y, int n, enum ref_rounding mode) {
    for (int i = 0; i < n; i++)
        x[i] = bf(x[i] + y[i], mode);
}

/* out = bf( bf( gate / (1 + exp(-gate)) ) * up ) */
void cpu_swiglu(const float *gate, const float *up, int n, float *out, enum ref_rounding mode) {
    for (int i = 0; i < n; i++)
        out[i] = bf(bf(silu(gate[i]), mode) * up[i], mode);
}

void cpu_store(float *x, int n, enum ref_rounding mode) {
    if (mode == REF_EXACT) return;
    for (int i = 0; i < n; i++)
        x[i] = bf16_to_f32(bf16_from_f32(x[i]));
}
