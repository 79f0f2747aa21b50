/* The config of a GGUF file: `llama.*`, `qwen2.*`, `qwen3.*` or `qwen35.*` metadata, and what only
 * the tensor list says (rows of the vocabulary, whether the output matrix is tied, Llama 3's
 * frequency divisors). */
#include "model/model_config.h"

#include "base/numbers.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const architectures[] = {
    [MODEL_QWEN3] = "qwen3",
    [MODEL_LLAMA] = "llama", /* Mistral too */
    [MODEL_QWEN35] = "qwen35",
    [MODEL_QWEN2] = "qwen2",
};
enum { N_FAMILIES = sizeof architectures / sizeof architectures[0] };

/* Reads keys under the architecture's prefix. */
struct reader {
    const struct gguf *gguf;
    const char *arch;
};

struct key {
    char text[96];
};

static struct key key_of(const struct reader *r, const char *part) {
    struct key key;
    snprintf(key.text, sizeof key.text, "%s.%s", r->arch, part);
    return key;
}

static enum reel_status get_int(const struct reader *r, const char *part, int min, int max,
                                bool required, int *out, struct reel_error *err) {
    struct key key = key_of(r, part);
    int64_t value = *out;
    enum reel_status status = gguf_get_int(r->gguf, key.text, min, max, required, &value, err);
    *out = (int)value;
    return status;
}

static enum reel_status get_real(const struct reader *r, const char *part, double min, double max,
                                 bool required, double *out, struct reel_error *err) {
    struct key key = key_of(r, part);
    enum reel_status status = gguf_get_real(r->gguf, key.text, required, out, err);
    if (status != REEL_OK || (*out >= min && *out <= max)) return status;
    return err_set(err, REEL_E_LIMIT, "%s: \"%s\" is %g, allowed are %g to %g", r->gguf->path,
                   key.text, *out, min, max);
}

static enum reel_status read_family(struct model_config *config, struct reader *r,
                                    struct reel_error *err) {
    const char *arch = NULL;
    size_t n = 0;
    enum reel_status status = gguf_get_text(r->gguf, "general.architecture", true, &arch, &n, err);
    if (status != REEL_OK) return status;
    for (int family = 0; family < N_FAMILIES; family++) {
        const char *name = architectures[family];
        if (!name) continue;
        if (n != strlen(name) || memcmp(arch, name, n) != 0) continue;
        config->family = (enum model_family)family;
        config->qk_norm = config->family == MODEL_QWEN3 || config->family == MODEL_QWEN35;
        config->qkv_bias = config->family == MODEL_QWEN2;
        config->gated_attention = config->family == MODEL_QWEN35;
        r->arch = name;
        return REEL_OK;
    }
    return err_set(err, REEL_E_UNSUPPORTED,
                   "%s: \"general.architecture\" is \"%.*s\", supported are \"llama\", "
                   "\"qwen2\", \"qwen3\" and \"qwen35\"",
                   r->gguf->path, n < 60 ? (int)n : 60, arch);
}

static enum reel_status refuse_other(const struct reader *r, const char *part, int64_t allowed,
                                     const char *why, struct reel_error *err) {
    struct key key = key_of(r, part);
    int64_t value = allowed;
    enum reel_status status =
        gguf_get_int(r->gguf, key.text, INT64_MIN, INT64_MAX, false, &value, err);
    if (status != REEL_OK || value == allowed) return status;
    return err_set(err, REEL_E_UNSUPPORTED, "%s: \"%s\" is %lld, supported is %lld: %s",
                   r->gguf->path, key.text, (long long)value, (long long)allowed, why);
}

static enum reel_status refuse_number(const struct reader *r, const char *part, double allowed,
                                      struct reel_error *err) {
    struct key key = key_of(r, part);
    double value = allowed;
    enum reel_status status = gguf_get_real(r->gguf, key.text, false, &value, err);
    if (status != REEL_OK || value == allowed) return status;
    return err_set(err, REEL_E_UNSUPPORTED,
                   "%s: \"%s\" is %g, supported is %g: scaled or clipped values are not supported",
                   r->gguf->path, key.text, value, allowed);
}

static enum reel_status refuse_truth(const struct reader *r, const char *part, bool allowed,
                                     struct reel_error *err) {
    struct key key = key_of(r, part);
    bool value = allowed;
    enum reel_status status = gguf_get_bool(r->gguf, key.text, false, &value, err);
    if (status != REEL_OK || value == allowed) return status;
    return err_set(err, REEL_E_UNSUPPORTED, "%s: \"%s\" is %s, supported is %s", r->gguf->path,
                   key.text, value ? "true" : "false", allowed ? "true" : "false");
}

static enum reel_status refuse_variants(const struct model_config *config, const struct reader *r,
                                        struct reel_error *err) {
    struct {
        const char *part;
        int64_t allowed;
        const char *why;
    } const rules[] = {
        { "expert_count", 0, "mixtures of experts are not supported" },
        { "attention.kv_lora_rank", 0, "multi-head latent attention is not supported" },
        { "no_rope_layer_step", 0, "layers without rotary embedding are not supported" },
        { "attention.shared_kv_layers", 0, "layers that share keys and values are not supported" },
        { "attention.value_length", config->head_dim, "values are as long as keys" },
        { "rope.dimension_count", config->rotary_dim, "partial rotary embedding is not supported" },
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        enum reel_status status =
            refuse_other(r, rules[i].part, rules[i].allowed, rules[i].why, err);
        if (status != REEL_OK) return status;
    }
    static const struct {
        const char *part;
        double allowed;
    } numbers[] = {
        { "logit_scale", 1 },
        { "residual_scale", 1 },
        { "embedding_scale", 1 },
        { "attention.scale", 0 },
        { "attention.max_alibi_bias", 0 },
        { "attention.clamp_kqv", 0 },
        { "attn_logit_softcapping", 0 },
        { "final_logit_softcapping", 0 },
        { "rope.scaling.attn_factor", 1 },
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        enum reel_status status = refuse_number(r, numbers[i].part, numbers[i].allowed, err);
        if (status != REEL_OK) return status;
    }
    enum reel_status status = refuse_truth(r, "attention.causal", true, err);
    return status == REEL_OK ? refuse_truth(r, "use_parallel_residual", false, err) : status;
}

/* As a config.json's window: model_config.c. */
static enum reel_status read_window(struct model_config *config, const struct reader *r,
                                    struct reel_error *err) {
    enum reel_status status =
        get_int(r, "attention.sliding_window", 0, INT32_MAX, false, &config->window, err);
    const bool has_window = config->family == MODEL_LLAMA || config->family == MODEL_QWEN2;
    if (status != REEL_OK || config->window == 0) return status;
    if (!has_window)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: \"%s.attention.sliding_window\" is %d, supported is 0: sliding window "
                       "attention is not supported in this family",
                       r->gguf->path, r->arch, config->window);
    config->max_context = int_min(config->max_context, config->window);
    return REEL_OK;
}

static enum reel_status read_shape(struct model_config *config, const struct reader *r,
                                   struct reel_error *err) {
    struct {
        const char *part;
        int max;
        int *out;
    } const required[] = {
        { "embedding_length", MODEL_MAX_HIDDEN, &config->hidden },
        { "block_count", MODEL_MAX_LAYERS, &config->n_layers },
        { "attention.head_count", MODEL_MAX_HEADS, &config->n_heads },
        { "feed_forward_length", 8 * MODEL_MAX_HIDDEN, &config->intermediate },
        { "context_length", MODEL_MAX_CONTEXT, &config->max_context },
    };
    for (size_t i = 0; i < sizeof required / sizeof required[0]; i++) {
        enum reel_status status =
            get_int(r, required[i].part, 1, required[i].max, true, required[i].out, err);
        if (status != REEL_OK) return status;
    }
    config->n_kv_heads = config->n_heads;
    enum reel_status status =
        get_int(r, "attention.head_count_kv", 1, MODEL_MAX_HEADS, false, &config->n_kv_heads, err);
    if (status != REEL_OK) return status;
    config->head_dim = config->hidden / config->n_heads;
    status =
        get_int(r, "attention.key_length", 1, MODEL_MAX_HEAD_DIM, false, &config->head_dim, err);
    config->rotary_dim = config->head_dim;
    if (status == REEL_OK && config->family == MODEL_QWEN35)
        status = get_int(r, "rope.dimension_count", 1, MODEL_MAX_HEAD_DIM, true,
                         &config->rotary_dim, err);
    if (status != REEL_OK) return status;
    double eps = 0;
    status = get_real(r, "attention.layer_norm_rms_epsilon", 1e-12, 0.1, true, &eps, err);
    config->rms_eps = (float)eps;
    return status;
}

/* A list of which layers are DeltaNets, or every so many-th one that is not. */
static enum reel_status read_layer_kinds(struct model_config *config, const struct reader *r,
                                         struct reel_error *err) {
    struct key key = key_of(r, "attention.recurrent_layers");
    const struct gguf_value *list = gguf_find(r->gguf, key.text);
    int interval = 4;
    enum reel_status status =
        get_int(r, "full_attention_interval", 1, MODEL_MAX_LAYERS, false, &interval, err);
    if (status != REEL_OK) return status;
    if (list && (list->type != GGUF_ARRAY || list->element_type != GGUF_BOOL ||
                 list->count < (uint64_t)config->n_layers))
        return err_set(err, REEL_E_FORMAT, "%s: \"%s\" must be a list of at least %d truth values",
                       r->gguf->path, key.text, config->n_layers);
    for (int i = 0; i < config->n_layers; i++) {
        bool delta = list ? list->bytes[i] != 0 : (i + 1) % interval != 0;
        config->layer_kinds[i] = delta ? LAYER_DELTA : LAYER_ATTENTION;
    }
    return REEL_OK;
}

/* Draft layers are counted among the blocks, behind the others. */
static enum reel_status read_layers(struct model_config *config, const struct reader *r,
                                    struct reel_error *err) {
    if (config->family != MODEL_QWEN35) return REEL_OK;
    int width = 0; /* of all value heads */
    struct {
        const char *part;
        int min, max;
        bool required;
        int *out;
    } const rules[] = {
        { "nextn_predict_layers", 0, config->n_layers - 1, false, &config->n_draft_layers },
        { "ssm.group_count", 1, MODEL_MAX_HEADS, true, &config->delta.key_heads },
        { "ssm.time_step_rank", 1, MODEL_MAX_HEADS, true, &config->delta.value_heads },
        { "ssm.state_size", 1, MODEL_MAX_HEAD_DIM, true, &config->delta.key_dim },
        { "ssm.inner_size", 1, MODEL_MAX_HEADS * MODEL_MAX_HEAD_DIM, true, &width },
        { "ssm.conv_kernel", 2, MODEL_MAX_CONV, true, &config->delta.conv_width },
    };
    enum reel_status status = REEL_OK;
    for (size_t i = 0; i < sizeof rules / sizeof rules[0] && status == REEL_OK; i++)
        status = get_int(r, rules[i].part, rules[i].min, rules[i].max, rules[i].required,
                         rules[i].out, err);
    if (status != REEL_OK) return status;
    config->n_layers -= config->n_draft_layers;
    const int heads = config->delta.value_heads;
    config->delta.value_dim = width / heads;
    if (width % heads || config->delta.value_dim > MODEL_MAX_HEAD_DIM)
        return err_set(err, REEL_E_FORMAT,
                       "%s: \"%s.ssm.inner_size\" is %d, which is not %d heads of 1 to %d",
                       r->gguf->path, r->arch, width, heads, MODEL_MAX_HEAD_DIM);
    status = read_layer_kinds(config, r, err);
    if (!model_layer_count(config, LAYER_DELTA)) memset(&config->delta, 0, sizeof config->delta);
    return status;
}

static enum reel_status read_vocabulary(struct model_config *config, const struct reader *r,
                                        const struct tensor_file *file, struct reel_error *err) {
    static const char name[] = "token_embd.weight";
    const struct tensor *embedding = tensor_find(file, name);
    if (!embedding)
        return err_set(err, REEL_E_FORMAT, "%s: tensor \"%s\" is missing", r->gguf->path, name);
    if (embedding->rank != 2 || embedding->shape[0] < 1 || embedding->shape[0] > MODEL_MAX_VOCAB)
        return err_set(err, REEL_E_LIMIT,
                       "%s: tensor \"%s\" must have two dimensions and 1 to %d rows", r->gguf->path,
                       name, MODEL_MAX_VOCAB);
    config->vocab = (int)embedding->shape[0];
    config->tied =
        !tensor_find(file, "output.weight") && !tensor_find_ignored(file, "output.weight");
    return REEL_OK;
}

/* Linear, YaRN and the rest would need their own formulas. llama.cpp takes a factor without a type
 * as linear. */
static enum reel_status refuse_rope_scaling(const struct reader *r, struct reel_error *err) {
    struct key key = key_of(r, "rope.scaling.type");
    const char *type = NULL;
    size_t n = 0;
    enum reel_status status = gguf_get_text(r->gguf, key.text, false, &type, &n, err);
    if (status != REEL_OK) return status;
    bool none = type && n == 4 && memcmp(type, "none", 4) == 0;
    if (type && !none)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: \"%s\" is \"%.*s\", supported are \"none\" and the tensor "
                       "\"rope_freqs.weight\"",
                       r->gguf->path, key.text, n < 60 ? (int)n : 60, type);
    static const char *const factors[] = { "rope.scaling.factor", "rope.scale_linear" };
    for (size_t i = 0; !none && i < sizeof factors / sizeof factors[0]; i++) {
        double factor = 1;
        key = key_of(r, factors[i]);
        status = gguf_get_real(r->gguf, key.text, false, &factor, err);
        if (status != REEL_OK) return status;
        if (factor != 1 && factor != 0)
            return err_set(err, REEL_E_UNSUPPORTED,
                           "%s: \"%s\" is %g: linear rope scaling is not supported", r->gguf->path,
                           key.text, factor);
    }
    return REEL_OK;
}

static enum reel_status read_rope(struct model_config *config, const struct reader *r,
                                  const struct tensor_file *file, struct reel_error *err) {
    static const char name[] = "rope_freqs.weight";
    config->rope_theta = 10000;
    enum reel_status status =
        get_real(r, "rope.freq_base", 1, 1e12, false, &config->rope_theta, err);
    if (status == REEL_OK) status = refuse_rope_scaling(r, err);
    const struct tensor *t = tensor_find(file, name);
    if (status != REEL_OK || !t) return status;
    int n = config->rotary_dim / 2;
    if (t->dtype != DTYPE_F32 || t->rank != 1 || t->shape[0] != n)
        return err_set(err, REEL_E_FORMAT, "%s: tensor \"%s\" must be f32 of shape [%d]",
                       r->gguf->path, name, n);
    config->rope = ROPE_FACTORS;
    if (!t->data) return REEL_OK; /* of a file of which only the beginning is there */
    dtype_to_f32(DTYPE_F32, t->data, config->rope_factors, (size_t)n);
    for (int i = 0; i < n; i++)
        if (!(config->rope_factors[i] >= 1e-6f && config->rope_factors[i] <= 1e6f))
            return err_set(err, REEL_E_LIMIT,
                           "%s: tensor \"%s\": value %d is %g, allowed are 1e-6 to 1e6",
                           r->gguf->path, name, i, (double)config->rope_factors[i]);
    return REEL_OK;
}

static bool ends_a_turn(const char *text, size_t n) {
    static const char *const names[] = { "<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|eom_id|>",
                                         "<|end_of_text|>" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (n == strlen(names[i]) && memcmp(text, names[i], n) == 0) return true;
    return false;
}

/* The metadata holds one end-of-text id where the original checkpoint often lists several; the
 * other well-known ones are found by their text among the control tokens. */
static void add_known_stop_tokens(struct model_config *config, const struct gguf *gguf) {
    enum { CONTROL_TOKEN = 3 };
    const struct gguf_value *tokens = gguf_find(gguf, "tokenizer.ggml.tokens");
    const struct gguf_value *types = gguf_find(gguf, "tokenizer.ggml.token_type");
    if (!tokens || !types || types->type != GGUF_ARRAY) return;
    const unsigned char *cursor = tokens->bytes;
    const char *text = NULL;
    size_t n = 0;
    for (int i = 0; i < config->vocab && gguf_next_text(tokens, &cursor, &text, &n); i++) {
        int64_t type = 0;
        if (ends_a_turn(text, n) && gguf_value_int(types, (uint64_t)i, &type) &&
            type == CONTROL_TOKEN)
            (void)model_add_stop_id(config, (int)i);
    }
}

static enum reel_status read_special_ids(struct model_config *config, const struct gguf *gguf,
                                         struct reel_error *err) {
    static const char *const stops[] = { "tokenizer.ggml.eos_token_id",
                                         "tokenizer.ggml.eot_token_id",
                                         "tokenizer.ggml.eom_token_id" };
    for (size_t i = 0; i < sizeof stops / sizeof stops[0]; i++) {
        int64_t id = -1;
        enum reel_status status =
            gguf_get_int(gguf, stops[i], 0, config->vocab - 1, false, &id, err);
        if (status != REEL_OK) return status;
        if (id >= 0) (void)model_add_stop_id(config, (int)id);
    }
    add_known_stop_tokens(config, gguf);
    int64_t bos = -1;
    enum reel_status status =
        gguf_get_int(gguf, "tokenizer.ggml.bos_token_id", 0, config->vocab - 1, false, &bos, err);
    config->bos_id = (int)bos;
    return status;
}

enum reel_status model_config_from_gguf(struct model_config *config, const struct gguf *gguf,
                                        const struct tensor_file *file, struct reel_error *err) {
    *config = (struct model_config){ .bos_id = -1 };
    config->sampling.top_p = 1;
    config->sampling.repetition_penalty = 1;
    struct reader r = { .gguf = gguf };
    enum reel_status status = read_family(config, &r, err);
    if (status == REEL_OK) status = read_shape(config, &r, err);
    if (status == REEL_OK) status = read_layers(config, &r, err);
    if (status == REEL_OK) status = model_config_check(config, gguf->path, err);
    if (status == REEL_OK) status = refuse_variants(config, &r, err);
    if (status == REEL_OK) status = read_window(config, &r, err);
    if (status == REEL_OK) status = read_vocabulary(config, &r, file, err);
    if (status == REEL_OK) status = read_rope(config, &r, file, err);
    if (status == REEL_OK) status = read_special_ids(config, gguf, err);
    return status;
}

enum reel_status model_config_gguf_family(const struct gguf *gguf, struct reel_error *err) {
    struct model_config config = { 0 };
    struct reader r = { .gguf = gguf };
    return read_family(&config, &r, err);
}
