/* The reference: one plain function per phase, in float32, with the rounding points of the chosen
 * mode. What every kernel must equal. Slow on purpose: rows in order, no blocking, no threads.
 * reference_model.c composes the phases into the model.
 *
 *   FAITHFUL  rounds to bf16 wherever the Hugging Face eager bf16 reference does
 *   FAST      keeps float32 inside fused regions; rounds only what cpu_store is called on: what
 *             enters a matrix product or is kept in the KV cache
 *   EXACT     never rounds, to compare with a float32 golden
 *
 * A KV cache of 8 bits (model/kv_form.h) rounds keys and values in every mode, after the mode did.
 *
 * Every vector is f32, holding bf16 values where the mode has rounded. */
#ifndef REEL_CPU_REFERENCE_H
#define REEL_CPU_REFERENCE_H

#include "model/model_config.h"
#include "model/weights.h"

enum ref_rounding { REF_FAITHFUL, REF_FAST, REF_EXACT };

static inline enum ref_rounding ref_rounding_of(enum reel_rounding rounding) {
    return rounding == REEL_ROUNDING_FAITHFUL ? REF_FAITHFUL
           : rounding == REEL_ROUNDING_EXACT  ? REF_EXACT
                                              : REF_FAST;
}

/* The values of a matrix that a product uses. AS_STORED are those of the file. AS_BF16 are the same
 * rounded to bf16, one by one: what a GPU holds of a float16 or float32 file, and of codes that it
 * does not keep. Of a bf16 file both are equal. */
enum ref_weights { REF_AS_STORED, REF_AS_BF16 };

/* x = E[id] */
void cpu_embed(const struct matrix *embedding, enum ref_weights weights, int32_t id, float *x);

/* x = fc [norm(embedding); norm(hidden)]: what goes into a draft layer. `both` is scratch, [2 *
 * hidden_dim], and `row` as in cpu_product. */
void cpu_draft_input(const struct draft_weights *w, enum ref_weights weights,
                     const float *embedding, const float *hidden, int hidden_dim, float eps,
                     float *both, float *row, float *x, enum ref_rounding mode);

/* y = x / sqrt(mean(x^2) + eps) * weight; y may be x */
void cpu_rms_norm(const float *x, const float *weight, int n, float eps, float *y,
                  enum ref_rounding mode);

/* The same with one rounding, at the end: what families with centred gains do. */
void cpu_rms_norm_once(const float *x, const float *weight, int n, float eps, float *y,
                       enum ref_rounding mode);

/* y[n, rows] = x[n, columns] W^T, each sum in float32. `row` is scratch for one row of W widened,
 * [columns]. */
void cpu_product(const struct matrix *w, enum ref_weights weights, const float *x, int n,
                 float *row, float *y, enum ref_rounding mode);

/* The same with bias [rows], or NULL, added to each sum before it is rounded. */
void cpu_product_bias(const struct matrix *w, const float *bias, enum ref_weights weights,
                      const float *x, int n, float *row, float *y, enum ref_rounding mode);

/* cos and sin, [rotary_dim / 2], of the angles position * inv[i]. */
void cpu_rope_angles(const float *inv, int rotary_dim, int position, float *cos, float *sin,
                     enum ref_rounding mode);

/* Rotates the first rotary_dim entries of a head in place: pairs (i, i + rotary_dim / 2). cos and
 * sin are [rotary_dim / 2]. */
void cpu_rope(float *head, int rotary_dim, const float *cos, const float *sin,
              enum ref_rounding mode);

/* out[head_dim] = softmax(scale * k q) v: one query head over n positions; k and v have this head's
 * head_dim values first in each row, rows `stride` values apart. `scores` is scratch, [n]. */
void cpu_attention(const float *q, const float *k, const float *v, int n, size_t stride,
                   int head_dim, float scale, float *scores, float *out, enum ref_rounding mode);

/* x = x * sigmoid(gate) */
void cpu_sigmoid_gate(float *x, const float *gate, int n, enum ref_rounding mode);

/* out = silu(sum of taps[j] * input[j]), channel by channel: taps are [width, channels], the inputs
 * window [width - 1, channels] and then x; out may be x. */
void cpu_convolve(const float *taps, const float *window, const float *x, int width, int channels,
                  float *out, enum ref_rounding mode);

/* x = x / sqrt(sum(x^2) + 1e-6) * scale; never rounded */
void cpu_l2_norm(float *x, int n, float scale);

/* beta = sigmoid(b) and log_decay = -rate * softplus(a + dt_bias), each [n_heads]. */
void cpu_delta_gates(const float *b, const float *a, const float *rate, const float *dt_bias,
                     int n_heads, float *beta, float *log_decay, enum ref_rounding mode);

/* One position of one value head: the state forgets, learns what it gets wrong about v at k, and is
 * asked for q. state is [key_dim, stride], of which value_dim columns are used; out is [value_dim].
 * q and k have been normed. */
struct delta_shape {
    int key_dim, value_dim;
    size_t stride;
};
void cpu_delta_step(const struct delta_shape *shape, float *state, const float *q, const float *k,
                    const float *v, float log_decay, float beta, float *out,
                    enum ref_rounding mode);

/* y = norm(x) * weight * silu(gate), of one value head; y may be x */
void cpu_gated_norm(const float *x, const float *weight, const float *gate, int n, float eps,
                    float *y, enum ref_rounding mode);

/* x = x + y */
void cpu_residual_add(float *x, const float *y, int n, enum ref_rounding mode);

/* out = silu(gate) * up; out may be gate */
void cpu_swiglu(const float *gate, const float *up, int n, float *out, enum ref_rounding mode);

/* Rounds to bf16 what one phase hands to the next, except in EXACT. */
void cpu_store(float *x, int n, enum ref_rounding mode);

#endif
