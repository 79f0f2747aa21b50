/* safetensors: 8-byte little-endian header length, JSON header, payload. */
#ifndef REEL_MODEL_SAFETENSORS_H
#define REEL_MODEL_SAFETENSORS_H

#include "model/model_source.h"
#include "model/tensor_file.h"

#define SAFETENSORS_MAX_HEADER (64u << 20)

/* Reads the folder's model.safetensors.index.json and exactly the shards it names, or
 * model.safetensors. Tensors of types reel cannot use (integers, f64, fp8) are refused only when
 * someone looks them up, not here: they go to the list of ignored ones. */
enum reel_status safetensors_open(struct tensor_file *file, const struct model_source *source,
                                  struct reel_error *err);

#endif
