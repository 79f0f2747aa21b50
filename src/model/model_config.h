/* The numbers that define a model, from config.json (with generation_config.json) or GGUF metadata,
 * every one checked against a stated range. */
#ifndef REEL_MODEL_MODEL_CONFIG_H
#define REEL_MODEL_MODEL_CONFIG_H

#include "model/gguf.h"
#include "model/model_source.h"
#include "model/tensor_file.h"

#define MODEL_MAX_LAYERS   256
#define MODEL_MAX_HIDDEN   32768
#define MODEL_MAX_HEADS    256
#define MODEL_MAX_HEAD_DIM 256
#define MODEL_MAX_VOCAB    (1 << 20)
#define MODEL_MAX_CONTEXT  (1 << 20)
#define MODEL_MAX_STOP_IDS 16

enum model_family { MODEL_QWEN3, MODEL_LLAMA };

/* ROPE_FACTORS: GGUF files store Llama 3's scaling as one divisor per frequency. */
enum rope_kind { ROPE_PLAIN, ROPE_LLAMA3, ROPE_FACTORS };

struct model_config {
    enum model_family family;
    int hidden;
    int n_layers;
    int n_heads;
    int n_kv_heads;
    int head_dim; /* even; not hidden / n_heads in general */
    int intermediate;
    int vocab;       /* rows of the embedding */
    int max_context; /* positions */
    float rms_eps;
    bool qk_norm; /* Qwen3: RMSNorm over each head of q and k, before RoPE */
    bool tied;    /* the output matrix is the embedding */
    double rope_theta;
    enum rope_kind rope;
    double rope_factor, rope_low_freq_factor, rope_high_freq_factor; /* ROPE_LLAMA3 */
    int rope_original_context;
    float rope_factors[MODEL_MAX_HEAD_DIM / 2]; /* ROPE_FACTORS: [head_dim / 2] */

    int stop_ids[MODEL_MAX_STOP_IDS];
    int n_stop_ids;
    int bos_id; /* -1: none */

    struct { /* generation_config.json; do_sample false gives temperature 0 */
        float temperature, top_p, min_p, repetition_penalty;
        int top_k;
    } sampling;
};

/* Rotation frequencies inv[i], i < head_dim / 2, f32 as the reference computes them. */
void model_rope_frequencies(const struct model_config *config, float *inv);

enum reel_status model_config_read(struct model_config *config, const struct model_source *source,
                                   struct reel_error *err);
/* `file` as gguf_open filled it: vocabulary and tied output are facts of the tensor list. */
enum reel_status model_config_from_gguf(struct model_config *config, const struct gguf *gguf,
                                        const struct tensor_file *file, struct reel_error *err);
/* What no single key can state: heads divide, head_dim is even. `name` is the file in messages. */
enum reel_status model_config_check(const struct model_config *config, const char *name,
                                    struct reel_error *err);

const char *model_family_name(enum model_family family);

#endif
