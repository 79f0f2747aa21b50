/* The tensors of an audio tower (docs/MODEL_qwen3_asr.md), found and checked against the config. */
#ifndef REEL_MODEL_AUDIO_WEIGHTS_H
#define REEL_MODEL_AUDIO_WEIGHTS_H

#include "model/audio_config.h"
#include "model/matrix.h"
#include "model/tensor_file.h"

struct audio_linear {
    struct matrix weight;
    const float *bias; /* f32 [rows]; NULL: none */
};

struct audio_norm {
    const float *weight, *bias; /* f32 [hidden] */
};

struct audio_layer_weights {
    struct audio_norm attn_norm, ffn_norm;
    struct audio_linear q, k, v, o; /* [hidden, hidden]; the bias of k may be absent */
    struct audio_linear fc1;        /* [intermediate, hidden] */
    struct audio_linear fc2;        /* [hidden, intermediate] */
};

struct audio_weights {
    struct audio_linear conv[M_AUDIO_CONVS]; /* [n_channels, channels in, 3, 3], as a matrix */
    struct matrix conv_out;                  /* [hidden, audio_conv_width] */
    struct audio_layer_weights *layers;
    int n_layers; /* 0: no audio tower */
    struct audio_norm out_norm;
    struct audio_linear proj1; /* [hidden, hidden] */
    struct audio_linear proj2; /* [output_dim, hidden] */
    void *owned;               /* norms and biases as f32 */
    size_t owned_bytes;
    uint64_t n_parameters, n_bytes; /* as stored */
    uint64_t type_bytes[DTYPE_COUNT];
};

/* Whether a tensor's name is one of an audio tower, known or not. */
bool audio_weights_owns(const char *name);

/* Finds every tensor, by the published names or by those transformers saves, and refuses others
 * that belong to the tower. The tensor_file must outlive the weights. */
enum reel_status audio_weights_check(struct audio_weights *w, const struct audio_config *config,
                                     const struct tensor_file *file, struct reel_error *err);
/* The same, and reads norms and biases, which after a check alone are NULL. */
enum reel_status audio_weights_map(struct audio_weights *w, const struct audio_config *config,
                                   const struct tensor_file *file, struct reel_error *err);
void audio_weights_release(struct audio_weights *w);

#endif
