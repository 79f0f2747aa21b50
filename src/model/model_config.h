/* The numbers that define a model, from config.json (with generation_config.json) or GGUF metadata,
 * every one checked against a stated range. */
#ifndef REEL_MODEL_MODEL_CONFIG_H
#define REEL_MODEL_MODEL_CONFIG_H

#include "model/audio_config.h"
#include "model/gguf.h"
#include "model/model_source.h"
#include "model/tensor_file.h"

#define MODEL_MAX_LAYERS   256
#define MODEL_MAX_HIDDEN   32768
#define MODEL_MAX_HEADS    256
#define MODEL_MAX_HEAD_DIM 256
#define MODEL_MAX_CONV     8
#define MODEL_MAX_VOCAB    (1 << 20)
#define MODEL_MAX_CONTEXT  (1 << 20)
#define MODEL_MAX_STOP_IDS 16

/* MODEL_QWEN3_ASR: Qwen3 behind an audio tower. Which of these differ in maths, and in what, is
 * said by the fields of struct model_config; the family says what files call things. */
enum model_family {
    MODEL_QWEN3,
    MODEL_LLAMA,
    MODEL_QWEN35,
    MODEL_QWEN3_ASR,
    MODEL_QWEN2,
    MODEL_MISTRAL
};

/* What mixes positions in a layer: attention over a KV cache, or a Gated DeltaNet over a state of
 * fixed size (docs/MODEL_qwen35.md). */
enum layer_kind { LAYER_ATTENTION, LAYER_DELTA };

/* ROPE_FACTORS: GGUF files store Llama 3's scaling as one divisor per frequency. */
enum rope_kind { ROPE_PLAIN, ROPE_LLAMA3, ROPE_FACTORS };

struct model_config {
    enum model_family family;
    int hidden;
    int n_layers;
    int n_heads;
    int n_kv_heads;
    int head_dim;   /* even; not hidden / n_heads in general */
    int rotary_dim; /* the first entries of a head, which turn; even, head_dim in most models */
    int intermediate;
    int vocab;       /* rows of the embedding */
    int max_context; /* positions; not more than `window` */
    int window;      /* positions that attention sees in some layer, or 0: all. Up to so many, full
                        attention gives the same */
    float rms_eps;
    bool qk_norm;         /* Qwen3: RMSNorm over each head of q and k, before RoPE */
    bool qkv_bias;        /* Qwen2: rows of q, k and v have a bias, added before RoPE; never with
                             qk_norm or gated_attention */
    bool is_draft;        /* this is a draft layer or an EAGLE-3 head (draft_model.h) */
    bool given_biases;    /* an EAGLE-3 head: each position's biases of q, k and v are given with
                             its embedding */
    bool tied;            /* the output matrix is the embedding */
    bool gated_attention; /* rows of q are, head by head, its query and its output's gate */
    bool centred_norms;   /* gains are stored less 1, and a norm rounds once */
    bool nested;          /* the text model of a larger one: its tensors have a longer prefix */
    unsigned char layer_kinds[MODEL_MAX_LAYERS]; /* enum layer_kind */
    struct {                                     /* LAYER_DELTA; all 0 where no layer is one */
        int key_heads, value_heads;              /* value_heads is a multiple of key_heads */
        int key_dim, value_dim;                  /* of one head */
        int conv_width;                          /* positions, the current one included */
    } delta;
    int n_draft_layers;        /* multi-token prediction: one is run (weights.h), several are not */
    struct audio_config audio; /* MODEL_QWEN3_ASR */
    double rope_theta;
    enum rope_kind rope;
    double rope_factor, rope_low_freq_factor, rope_high_freq_factor; /* ROPE_LLAMA3 */
    int rope_original_context;
    float rope_factors[MODEL_MAX_HEAD_DIM / 2]; /* ROPE_FACTORS: [rotary_dim / 2] */

    int stop_ids[MODEL_MAX_STOP_IDS];
    int n_stop_ids;
    int bos_id; /* -1: none */

    struct { /* generation_config.json; do_sample false gives temperature 0 */
        float temperature, top_p, min_p, repetition_penalty;
        int top_k;
    } sampling;
};

static inline bool model_layer_is(const struct model_config *c, int layer, enum layer_kind kind) {
    return c->layer_kinds[layer] == (unsigned char)kind;
}

/* Layers of one kind, or those of them before layer `end`: where a layer's cache or state lies. */
int model_layers_before(const struct model_config *config, enum layer_kind kind, int end);
static inline int model_layer_count(const struct model_config *c, enum layer_kind kind) {
    return model_layers_before(c, kind, c->n_layers);
}

/* Rows of q: queries, and gates where there are any. */
static inline int model_q_rows(const struct model_config *c) {
    return c->n_heads * c->head_dim * (c->gated_attention ? 2 : 1);
}
/* Channels of a DeltaNet's convolution: q and k of every key head, v of every value head. */
static inline int model_delta_channels(const struct model_config *c) {
    return 2 * c->delta.key_heads * c->delta.key_dim + c->delta.value_heads * c->delta.value_dim;
}
static inline int model_delta_width(const struct model_config *c) {
    return c->delta.value_heads * c->delta.value_dim;
}

/* Rotation frequencies inv[i], i < rotary_dim / 2, f32 as the reference computes them. */
void model_rope_frequencies(const struct model_config *config, float *inv);

/* False when the list is full; an id that is there already is not added again. */
bool model_add_stop_id(struct model_config *config, int id);

enum reel_status model_config_read(struct model_config *config, const struct model_source *source,
                                   struct reel_error *err);
/* `file` as gguf_open filled it: vocabulary and tied output are facts of the tensor list. */
enum reel_status model_config_from_gguf(struct model_config *config, const struct gguf *gguf,
                                        const struct tensor_file *file, struct reel_error *err);
/* Whether the file is of a family that reel runs: the one thing that can be asked before all of the
 * metadata is there. */
enum reel_status model_config_gguf_family(const struct gguf *gguf, struct reel_error *err);
/* What no single key can state: heads divide, head_dim is even. `name` is the file in messages. */
enum reel_status model_config_check(const struct model_config *config, const char *name,
                                    struct reel_error *err);

const char *model_family_name(enum model_family family);

#endif
