/* The tensors a model's maths names, found and checked against the config. The same struct for
 * every container: what GGUF stores in another order is put back here (q and k rows of the Llama
 * family, value heads of Qwen3.5), so that everything downstream rotates halves (pairs i,
 * i + head_dim/2) and value heads follow each other by key head. */
#ifndef REEL_MODEL_WEIGHTS_H
#define REEL_MODEL_WEIGHTS_H

#include "model/audio_weights.h"
#include "model/coded.h"
#include "model/model_config.h"

/* Of a LAYER_DELTA. Channels: q of all key heads, k of all key heads, v of all value heads. */
struct delta_weights {
    struct matrix qkv;     /* [channels, hidden] */
    struct matrix z;       /* [value_heads * value_dim, hidden] gates of the output */
    struct matrix b, a;    /* [value_heads, hidden] what beta and the decay come from */
    const float *taps;     /* f32 [conv_width, channels] of the convolution, oldest first */
    const float *rate;     /* f32 [value_heads] exp(A_log) */
    const float *dt_bias;  /* f32 [value_heads] */
    const float *out_norm; /* f32 [value_dim], never centred */
};

/* Norms are f32 and ready to multiply with: centred ones have had their 1 added. */
struct layer_weights {
    enum layer_kind kind;
    int nth;                /* of its kind: where its cache or state lies */
    const float *attn_norm; /* f32 [hidden] */
    struct matrix q;        /* LAYER_ATTENTION: [model_q_rows, hidden] */
    struct matrix k, v;     /* LAYER_ATTENTION: [n_kv_heads * head_dim, hidden] */
    const float *q_norm;    /* LAYER_ATTENTION: f32 [head_dim], NULL without qk_norm */
    const float *k_norm;
    const float
        *qkv_bias; /* LAYER_ATTENTION: f32 [rows of q, then of k, then of v], NULL without */
    struct delta_weights delta; /* LAYER_DELTA */
    struct matrix o;            /* [hidden, what the mixer makes] */
    const float *ffn_norm;      /* f32 [hidden] */
    struct matrix gate, up;     /* [intermediate, hidden] */
    struct matrix down;         /* [hidden, intermediate] */
};

/* DRAFT_MTP: the model's own layer of multi-token prediction; embedding and head are the model's.
 * DRAFT_EAGLE3: a head of a folder of its own (draft_head.h). */
enum draft_kind { DRAFT_MTP, DRAFT_EAGLE3 };

enum { DRAFT_TAPS = 3 }; /* layers whose input an EAGLE-3 head sees */

/* A draft layer: from what the model made of a position and the id of the next one it tells what
 * follows that. Of MTP that is the hidden state behind the final norm, and fc makes the layer's
 * input of it and of the id's embedding, both normed. Of EAGLE-3 it is the residual stream in front
 * of three layers, of which fc makes the layer's input; the id's embedding, normed, goes beside the
 * normed input into q, k and v alone. */
struct draft_weights {
    enum draft_kind kind;
    const float *embedding_norm, *hidden_norm; /* f32 [hidden] */
    struct matrix fc; /* MTP: [hidden, 2 * hidden] embedding first; EAGLE-3: [hidden, 3 * hidden] */
    struct layer_weights layer; /* LAYER_ATTENTION, in a cache of its own */
    const float *norm;          /* f32 [hidden] before the head */
    /* From here on DRAFT_EAGLE3's. */
    struct matrix id_q, id_k, id_v; /* [rows of the layer's, hidden] of the id's embedding */
    struct matrix embedding;        /* [model_ids, hidden]; without rows it is the model's */
    struct matrix head;             /* [ids that it guesses among, hidden] */
    const int32_t *ids;             /* [rows of head] the model's id of each */
    int model_ids;
    int taps[DRAFT_TAPS];              /* layers, counted from 0 */
    const struct model_config *config; /* of the layer */
    uint64_t n_parameters, n_bytes;    /* 0: the model has none that is run */
};

struct weights {
    struct matrix embedding; /* [vocab, hidden] */
    const float *final_norm; /* f32 [hidden] */
    struct matrix head;      /* [vocab, hidden]; equals embedding when tied */
    struct layer_weights *layers;
    int n_layers;
    float *kv_scales; /* owned: f32 [attention layers, kv_heads, 2] of a cache in e4m3, K's and V's;
                               as kv_scales.h reads them */
    struct audio_weights audio; /* without layers where there is no audio tower */
    void *owned;                /* norms and small vectors as f32, and matrices put back in order */
    size_t owned_bytes;
    struct quantized_weights *quantized; /* what weights_quantize made; NULL: nothing */
    uint64_t n_parameters;               /* tied matrix counted once; audio tower included */
    uint64_t n_bytes;                    /* as stored, or as weights_quantize made them, likewise */
    enum dtype main_type;                /* the type most bytes have, those of codes left out */
    struct {                             /* matrices that the files have as codes (coded.h) */
        const char *format;              /* of most of their bytes; NULL: there are none */
        uint64_t n_parameters, n_bytes;
        uint64_t owned_bytes; /* what is made of them in memory, beside what stays mapped */
        char wide[200];       /* which layers have none: "lm_head, in_proj_a" */
        void **blocks;        /* owned: [n_blocks] of one matrix each */
        int n_blocks;
    } coded;
    struct draft_weights draft; /* not in n_parameters and n_bytes: no id needs it */
    int n_skipped; /* tensors that belong to the model and are not run: its vision tower, */
    uint64_t skipped_bytes; /* and draft layers where there are several, or which are not whole */
};

/* Finds every tensor under the names of the container (Hugging Face or GGUF), checks type and
 * shape, and says what was expected. Biases that the family does not have are refused by name. The
 * tensor_file must outlive the weights; where it has a quant_config, layers with codes become
 * matrices with planes. */
enum reel_status weights_map(struct weights *weights, const struct model_config *config,
                             const struct tensor_file *file, bool is_gguf, struct reel_error *err);
/* The same checks and counts without reading any weight: norms stay NULL, rows stay as stored. */
enum reel_status weights_check(struct weights *weights, const struct model_config *config,
                               const struct tensor_file *file, bool is_gguf,
                               struct reel_error *err);
void weights_release(struct weights *weights);

#endif
