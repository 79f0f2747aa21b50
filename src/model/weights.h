/* The tensors a model's maths names, found and checked against the config. The same struct for
 * every container: GGUF's permuted q and k rows are put back in order here, so that everything
 * downstream rotates halves (pairs i, i + head_dim/2). */
#ifndef REEL_MODEL_WEIGHTS_H
#define REEL_MODEL_WEIGHTS_H

#include "model/model_config.h"
#include "model/tensor_file.h"

/* A matrix [rows, columns], row-major, y = W x. Rows are contiguous, row_bytes apart. */
struct matrix {
    enum dtype dtype;
    int rows, columns;
    size_t row_bytes;
    const unsigned char *data; /* borrowed; 64-byte alignment is not promised */
};

struct layer_weights {
    const float *attn_norm; /* f32 [hidden] */
    struct matrix q;        /* [n_heads * head_dim, hidden] */
    struct matrix k, v;     /* [n_kv_heads * head_dim, hidden] */
    struct matrix o;        /* [hidden, n_heads * head_dim] */
    const float *q_norm;    /* f32 [head_dim], NULL without qk_norm */
    const float *k_norm;
    const float *ffn_norm;  /* f32 [hidden] */
    struct matrix gate, up; /* [intermediate, hidden] */
    struct matrix down;     /* [hidden, intermediate] */
};

struct weights {
    struct matrix embedding; /* [vocab, hidden] */
    const float *final_norm; /* f32 [hidden] */
    struct matrix head;      /* [vocab, hidden]; equals embedding when tied */
    struct layer_weights *layers;
    int n_layers;
    void *owned; /* norms widened to f32 and rows put back in order */
    size_t owned_bytes;
    uint64_t n_parameters; /* tied matrix counted once */
    uint64_t n_bytes;      /* as stored, tied matrix counted once */
    enum dtype main_type;  /* the type most bytes have */
};

/* Finds every tensor under the names of the container (Hugging Face or GGUF), checks type and
 * shape, and says what was expected. Attention or MLP biases are refused by name. The tensor_file
 * must outlive the weights. */
enum reel_status weights_map(struct weights *weights, const struct model_config *config,
                             const struct tensor_file *file, bool is_gguf, struct reel_error *err);
/* The same checks and counts without reading any weight: norms stay NULL, rows stay as stored. */
enum reel_status weights_check(struct weights *weights, const struct model_config *config,
                               const struct tensor_file *file, bool is_gguf,
                               struct reel_error *err);
void weights_release(struct weights *weights);

/* Row r of a matrix as f32 [columns]. */
void matrix_row_f32(const struct matrix *m, int r, float *out);

#endif
