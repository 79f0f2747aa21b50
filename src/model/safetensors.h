/* safetensors: 8-byte little-endian header length, JSON header, payload. */
#ifndef REEL_MODEL_SAFETENSORS_H
#define REEL_MODEL_SAFETENSORS_H

#include "model/model_source.h"
#include "model/tensor_file.h"

/* Real headers have 30 KB to 1 MB. Parsed JSON takes some 20 times its bytes, so a hostile header
 * is worth a limit well below the 100 MB of the reference reader. */
#define SAFETENSORS_MAX_HEADER (16u << 20)
#define SAFETENSORS_MAX_INDEX  (32u << 20)

/* Reads the folder's model.safetensors.index.json and exactly the shards it names, or
 * model.safetensors. Tensors of types reel cannot use (integers, f64, fp8) are refused only when
 * someone looks them up, not here: they go to the list of ignored ones. */
enum reel_status safetensors_open(struct tensor_file *file, const struct model_source *source,
                                  struct reel_error *err);

#endif
