/* What tensors are called in each container, and how they are stored there. */
#ifndef REEL_MODEL_WEIGHT_NAMES_H
#define REEL_MODEL_WEIGHT_NAMES_H

#include "model/model_config.h"

struct layer_names {
    const char *attn_norm, *q, *k, *v, *o, *q_norm, *k_norm, *ffn_norm, *gate, *up, *down;
    const char *q_bias, *k_bias, *v_bias;
    /* NULL: the container has no DeltaNet layers */
    const char *delta_qkv, *delta_z, *delta_b, *delta_a, *delta_out;
    const char *delta_conv, *delta_rate, *delta_dt_bias, *delta_norm;
    /* Of draft layers, beside those of a layer of attention. NULL: the container has none */
    const char *draft_fc, *draft_embedding_norm, *draft_hidden_norm, *draft_norm;
    const char *draft_embedding, *draft_head; /* where it has its own; such a one is not run */
};

/* What stands before the names of the text model, and where its head is. Files of one model differ:
 * a larger model's text part, a re-save of that part alone, conversions. */
struct name_root {
    const char *prefix, *head;
};

struct container_names {
    const char *embedding, *final_norm; /* behind the prefix of the text model */
    const char *layer;                  /* printf format of a layer's prefix, behind that */
    const char *draft_prefix; /* of draft layers, in the other's place, and of what is all theirs;
                                 NULL: they are the layers behind the others */
    const struct name_root *roots;
    int n_roots;
    struct layer_names of;
    bool halves_interleaved; /* rows 2i, 2i + 1 of a head of q or k are the maths' i, i + half */
    bool heads_dealt;        /* value heads in turn of their key heads: GGUF's Qwen3.5 */
    bool rates_negated;      /* the rate of decay is stored as -exp(A_log), not as A_log */
    bool flat_taps;          /* [channels, width], not [channels, 1, width] */
};

const struct container_names *container_names_of(bool is_gguf, enum model_family family);

#endif
