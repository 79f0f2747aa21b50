/* The scales of keys and values that checkpoints for caches in e4m3 carry: what is stored is
 * k / k_scale, and what is read back is multiplied with k_scale. Keys are scaled behind their norm
 * and rotation. */
#ifndef REEL_MODEL_KV_SCALES_H
#define REEL_MODEL_KV_SCALES_H

#include "model/model_config.h"
#include "model/tensor_file.h"

/* *out: f32 [attention layers, n_kv_heads, 2] of K and of V, the caller's to free; 0 where the file
 * has none for a layer; NULL where it has none for any. prefix: of the text model's names,
 * "model.". A scale is one number for a layer, or one for each KV head, under a name of
 * compressed-tensors and vLLM (self_attn.k_scale), of ModelOpt (self_attn.k_proj.k_scale), or an
 * old one for both (self_attn.kv_scale). One that is not above 0 and finite is refused. */
enum reel_status kv_scales_read(float **out, const struct model_config *config,
                                const struct tensor_file *file, const char *prefix,
                                struct reel_error *err);

#endif
