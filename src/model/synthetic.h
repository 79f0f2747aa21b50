/* Synthetic checkpoints: which tensors there are, how each is filled, and the named shapes.
 * synthetic_folder.c writes them out (reel_synthesize). */
#ifndef REEL_MODEL_SYNTHETIC_H
#define REEL_MODEL_SYNTHETIC_H

#include "base/buffer.h"
#include "model/model_config.h"

/* One tensor under its Hugging Face name. */
struct synthetic_tensor {
    char name[80];
    int rank; /* 1: a vector; 2: a matrix; 3: a convolution's taps [rows, 1, columns];
                 4: a convolution over two dimensions, [rows, columns / 9, 3, 3] */
    int rows; /* 1 for a vector */
    int columns;
    enum dtype dtype; /* bf16; f32 where the published files have it, of values that fit bf16 */
    float offset;     /* the mean: 1 for gains, 0 for a matrix */
    float scale;      /* of a draw, see kernels/synthetic.h */
};

/* Tensors of a model: embedding, each layer's, final norm, untied the head, draft layers, and the
 * audio tower. */
int synthetic_tensor_count(const struct model_config *config);
void synthetic_tensor_get(const struct model_config *config, int i, struct synthetic_tensor *out);

/* The bf16 bits of n elements from index `first` on. */
void synthetic_fill(const struct synthetic_tensor *tensor, uint64_t seed, uint64_t first, size_t n,
                    uint16_t *out);

/* The smallest vocabulary a byte-level tokenizer fits in: 256 bytes and 3 control tokens. */
#define SYNTHETIC_MIN_VOCAB   259
#define SYNTHETIC_END_OF_TEXT 256
#define SYNTHETIC_END_OF_TURN 258

/* Appends the config.json of a named shape, "qwen3-0.6b"; *found is false for any other name. */
enum reel_status synthetic_shape_config(struct buffer *out, const char *shape, bool *found,
                                        struct reel_error *err);

/* Appends the names of all shapes, separated by commas. */
enum reel_status synthetic_shape_names(struct buffer *out, struct reel_error *err);

#endif
