/* Two tables of keys that transformers' config classes have: those that change the maths, each with
 * the value that leaves it as it is, and those that change nothing here. The first were collected
 * from the classes of all language models of transformers 5 that look like a Llama; a checkpoint
 * whose model_type says "llama" may carry any of them. */
#include "model/model_config_variants.h"

#include <stdio.h>
#include <string.h>

/* What a key may say. A missing key or null is always allowed. */
enum allowed {
    NOT_TRUE,
    NOT_FALSE,
    ONE,      /* a number that is 1 */
    NOTHING,  /* false, 0, "", [] or {} */
    ONES,     /* a list of 1 only */
    HEAD_DIM, /* the number that "head_dim" is */
    SILU
};

static const char *const allowed_text[] = {
    [NOT_TRUE] = "false", [NOT_FALSE] = "true",         [ONE] = "1",
    [NOTHING] = "null",   [ONES] = "a list of 1 alone", [HEAD_DIM] = "the value of \"head_dim\"",
    [SILU] = "\"silu\"",
};

static const char biases[] = "layers with such biases are not supported";
static const char experts[] = "mixtures of experts are not supported";
static const char scaled[] = "scaled embeddings, residuals, scores or logits are not supported";
static const char parallel[] = "attention and MLP side by side are not supported";
static const char capped[] = "clipped or capped values are not supported";
static const char latent[] = "multi-head latent attention is not supported";
static const char no_rope[] = "layers without rotary embedding are not supported";
static const char head_norms[] = "this family has no norm of q or k";
static const char both_ways[] = "attention to later positions is not supported";
static const char window[] = "sliding window attention is not supported in this family";
static const char turned[] = "this kind of rotary embedding is not supported";
static const char activation[] = "other activations are not supported";

static const struct variant {
    const char *key;
    enum allowed allowed;
    const char *why;
} variants[] = {
    { "hidden_act", SILU, activation },
    { "hidden_activation", SILU, activation },
    { "activation_function", SILU, activation },
    { "attention_bias", NOT_TRUE, biases },
    { "attention_out_bias", NOT_TRUE, biases },
    { "mlp_bias", NOT_TRUE, biases },
    { "use_bias", NOT_TRUE, biases },
    { "use_qkv_bias", NOT_TRUE, biases },
    { "qkv_bias", NOT_TRUE, biases },
    { "lm_head_bias", NOT_TRUE, biases },
    { "num_local_experts", NOTHING, experts },
    { "num_experts", NOTHING, experts },
    { "n_routed_experts", NOTHING, experts },
    { "moe_num_experts", NOTHING, experts },
    { "embedding_multiplier", ONE, scaled },
    { "residual_multiplier", ONE, scaled },
    { "attention_multiplier", NOTHING, scaled },
    { "logits_scaling", ONE, scaled },
    { "logit_scale", ONE, scaled },
    { "lm_head_multiplier", ONE, scaled },
    { "query_pre_attn_scalar", HEAD_DIM, scaled },
    { "scale_emb", ONE, scaled },
    { "scale_depth", NOTHING, scaled },
    { "dim_model_base", NOTHING, scaled },
    { "attn_temperature_tuning", NOTHING, scaled },
    { "use_parallel_residual", NOT_TRUE, parallel },
    { "parallel_attn", NOT_TRUE, parallel },
    { "final_logit_softcapping", NOTHING, capped },
    { "attn_logit_softcapping", NOTHING, capped },
    { "clip_qkv", NOTHING, capped },
    { "kv_lora_rank", NOTHING, latent },
    { "q_lora_rank", NOTHING, latent },
    { "qk_rope_head_dim", NOTHING, latent },
    { "v_head_dim", HEAD_DIM, "values as long as keys are supported" },
    { "no_rope_layers", ONES, no_rope },
    { "no_rope_layer_interval", NOTHING, no_rope },
    { "alibi", NOT_TRUE, "biases by distance in place of rotation are not supported" },
    { "rotary_pct", ONE, "partial rotary embedding is not supported" },
    { "rope_interleave", NOT_TRUE, turned },
    { "rope_interleaved", NOT_TRUE, turned },
    { "rope_ratio", ONE, turned },
    { "qk_layernorm", NOT_TRUE, head_norms },
    { "use_qk_norm", NOT_TRUE, head_norms },
    { "is_causal", NOT_FALSE, both_ways },
    { "use_bidirectional_attention", NOT_TRUE, both_ways },
    { "is_encoder_decoder", NOT_TRUE, both_ways },
    { "attention_chunk_size", NOTHING, window },
    { "sliding_window_pattern", NOTHING, window },
};
#define N_VARIANTS (sizeof variants / sizeof variants[0])

/* Keys that others read here, and keys that change nothing in a forward pass: training, sizes of
 * what is not there, ids of special tokens. pretraining_tp only cut sums into pieces. */
static const char *const known[] = {
    "model_type",
    "architectures",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "rms_norm_eps",
    "max_position_embeddings",
    "tie_word_embeddings",
    "rope_theta",
    "rope_scaling",
    "rope_parameters",
    "partial_rotary_factor",
    "sliding_window",
    "use_sliding_window",
    "max_window_layers",
    "layer_types",
    "quantization_config",
    "full_attention_interval",
    "attn_output_gate",
    "linear_num_key_heads",
    "linear_num_value_heads",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_conv_kernel_dim",
    "mtp_num_hidden_layers",
    "text_config",
    "thinker_config",
    "audio_config",
    "vision_config",
    /* nothing in a forward pass */
    "_name_or_path",
    "torch_dtype",
    "dtype",
    "transformers_version",
    "use_cache",
    "auto_map",
    "attention_dropout",
    "attn_dropout",
    "hidden_dropout",
    "resid_pdrop",
    "embd_pdrop",
    "attn_pdrop",
    "embedding_dropout",
    "mlp_dropout",
    "residual_dropout",
    "initializer_range",
    "initializer_cutoff_factor",
    "pretraining_tp",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "unk_token_id",
    "sep_token_id",
    "cls_token_id",
    "decoder_start_token_id",
    "image_token_id",
    "video_token_id",
    "vision_start_token_id",
    "vision_end_token_id",
    "vision_token_id",
    "is_llama_config",
    "output_attentions",
    "output_hidden_states",
    "return_dict",
    "id2label",
    "label2id",
    "problem_type",
    "num_labels",
    "task_specific_params",
    "transformers.js_config",
    "unsloth_fixed",
    "unsloth_version",
    "_attn_implementation",
    "_attn_implementation_autoset",
    "attn_implementation",
    "mtp_use_dedicated_embeddings",
    "mamba_ssm_dtype",
    "language",
    "router_aux_loss_coef",
    "output_router_logits",
    "norm_topk_prob",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "decoder_sparse_step",
    "mlp_only_layers",
};

static bool is_number(const json_t *value, double number) {
    return json_is_number(value) && json_number_value(value) == number;
}

static bool is_nothing(const json_t *value) {
    if (json_is_array(value)) return json_array_size(value) == 0;
    if (json_is_object(value)) return json_object_size(value) == 0;
    if (json_is_string(value)) return json_string_length(value) == 0;
    return !value || json_is_null(value) || json_is_false(value) || is_number(value, 0);
}

static bool all_ones(const json_t *value) {
    if (!json_is_array(value)) return false;
    for (size_t i = 0; i < json_array_size(value); i++)
        if (!is_number(json_array_get(value, i), 1)) return false;
    return true;
}

static bool is_allowed(const struct variant *v, const json_t *object, const json_t *value) {
    const json_t *head_dim = json_object_get(object, "head_dim");
    switch (v->allowed) {
    case NOT_TRUE:
        return json_is_false(value);
    case NOT_FALSE:
        return json_is_true(value);
    case ONE:
        return is_number(value, 1);
    case NOTHING:
        return is_nothing(value);
    case ONES:
        return all_ones(value);
    case HEAD_DIM:
        return json_is_number(head_dim) && is_number(value, json_number_value(head_dim));
    case SILU:
        return json_is_string(value) && strcmp(json_string_value(value), "silu") == 0;
    }
    return false;
}

/* Whether the value is of a type that the key can have at all. */
static bool has_type(const struct variant *v, const json_t *value) {
    if (v->allowed == NOT_TRUE || v->allowed == NOT_FALSE) return json_is_boolean(value);
    if (v->allowed == ONE || v->allowed == HEAD_DIM) return json_is_number(value);
    return v->allowed != SILU || json_is_string(value);
}

/* The value as a short text for a message. */
static void show(const json_t *value, char *text, size_t n) {
    const char *found = json_is_true(value)     ? "true"
                        : json_is_false(value)  ? "false"
                        : json_is_array(value)  ? "another list"
                        : json_is_object(value) ? "an object"
                                                : "";
    if (json_is_string(value))
        snprintf(text, n, "\"%.40s\"", json_string_value(value));
    else if (json_is_number(value))
        snprintf(text, n, "%.12g", json_number_value(value));
    else
        snprintf(text, n, "%s", found);
}

static enum reel_status refuse(const struct variant *v, const json_t *value, const char *name,
                               struct reel_error *err) {
    char found[60];
    show(value, found, sizeof found);
    if (!has_type(v, value))
        return err_set(err, REEL_E_FORMAT, "%s: \"%s\" is %s, allowed is %s", name, v->key, found,
                       allowed_text[v->allowed]);
    return err_set(err, REEL_E_UNSUPPORTED, "%s: \"%s\" is %s, allowed is %s: %s", name, v->key,
                   found, allowed_text[v->allowed], v->why);
}

enum reel_status model_config_refuse_key(const char *where, const char *key, const json_t *value,
                                         const char *name, struct reel_error *err) {
    char found[60];
    show(value, found, sizeof found);
    return err_set(err, REEL_E_UNSUPPORTED,
                   "%s: \"%s\" has \"%.60s\", which is %s: allowed is no such key", name, where,
                   key, found);
}

enum reel_status model_config_refuse(const struct model_config *config, const json_t *object,
                                     const char *name, struct reel_error *err) {
    for (size_t i = 0; i < N_VARIANTS; i++) {
        const struct variant *v = &variants[i];
        const json_t *value = json_object_get(object, v->key);
        if (!value || json_is_null(value) || is_allowed(v, object, value)) continue;
        /* Qwen2 has biases of q, k and v whatever its files say of them. */
        const bool own = strcmp(v->key, "attention_bias") == 0 || strstr(v->key, "qkv_bias");
        if (config->qkv_bias && own) continue;
        return refuse(v, value, name, err);
    }
    return REEL_OK;
}

static bool is_known(const char *key) {
    for (size_t i = 0; i < N_VARIANTS; i++)
        if (strcmp(key, variants[i].key) == 0) return true;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(key, known[i]) == 0) return true;
    return false;
}

enum reel_status model_config_unknown(const json_t *object, struct buffer *out,
                                      struct reel_error *err) {
    const char *key;
    json_t *value;
    enum reel_status status = REEL_OK;
    json_object_foreach((json_t *)(uintptr_t)object, key, value) {
        if (status != REEL_OK || is_known(key) || is_nothing(value)) continue;
        status = buffer_printf(out, err, "%s%.60s", out->size ? " " : "", key);
    }
    return status;
}
