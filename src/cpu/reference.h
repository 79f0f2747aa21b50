/* The reference: one plain function per phase, in float32 with the rounding points of the chosen
 * mode. What every kernel must equal. Slow on purpose: rows in order, no blocking, no threads.
 *
 * Rounding: FAITHFUL rounds to bf16 wherever the Hugging Face bf16 reference does; FAST keeps
 * float32 inside fused regions and rounds only matrix inputs and what is stored; EXACT (tests
 * only) never rounds, to compare with a float32 golden. */
#ifndef REEL_CPU_REFERENCE_H
#define REEL_CPU_REFERENCE_H

#include "model/model_config.h"
#include "model/weights.h"

enum ref_rounding { REF_FAITHFUL, REF_FAST, REF_EXACT };

/* y[rows] = W x, accumulated in float32 */
void cpu_matvec(const struct matrix *w, const float *x, float *y, enum ref_rounding mode);

void cpu_embed(const struct matrix *embedding, int32_t id, float *x);
void cpu_rms_norm(const float *x, const float *weight, int n, float eps, float *y,
                  enum ref_rounding mode);
/* Rotates one head in place: pairs (i, i + head_dim/2). cos and sin are [head_dim/2]. */
void cpu_rope(float *head, int head_dim, const float *cos, const float *sin,
              enum ref_rounding mode);
/* One query head over n positions; k and v are [n, stride] with this head's values first. */
void cpu_attention(const float *q, const uint16_t *k, const uint16_t *v, int n, size_t stride,
                   int head_dim, float scale, float *scores, float *out, enum ref_rounding mode);
void cpu_residual_add(float *x, const float *y, int n, enum ref_rounding mode);
void cpu_swiglu(const float *gate, const float *up, int n, float *out, enum ref_rounding mode);

#endif
