/* The audio tower in plain loops: what the fast path must equal. Rounding as cpu/reference.h says;
 * FAITHFUL follows Hugging Face's eager bf16 run of Qwen3ASREncoder. Maths and source:
 * docs/MODEL_qwen3_asr.md. */
#ifndef REEL_CPU_ENCODER_REFERENCE_H
#define REEL_CPU_ENCODER_REFERENCE_H

#include "cpu/reference.h"

/* As encoder_run: f32 [n_bins, n_frames] to f32 [audio_tokens(n_frames), output_dim]. */
enum reel_status encoder_reference_run(const struct audio_config *config,
                                       const struct audio_weights *weights, const float *features,
                                       int n_frames, enum ref_rounding mode, float *out,
                                       struct reel_error *err);

/* y = (x - mean) / sqrt(variance + eps) * weight + bias; y may be x */
void cpu_layer_norm(const float *x, const struct audio_norm *norm, int n, float *y,
                    enum ref_rounding mode);

/* x = x * (1 + erf(x / sqrt(2))) / 2 */
void cpu_gelu(float *x, int n, enum ref_rounding mode);

/* audio_position, rounded */
void cpu_audio_position(int position, int hidden, float *out, enum ref_rounding mode);

#define M_AUDIO_NORM_EPS 1e-5f

#endif
