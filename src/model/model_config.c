/* config.json and generation_config.json. A missing key means what it means to Hugging Face's
 * config class of the family; sizes that no one can guess are required. What would change the maths
 * and is not implemented is refused by name. */
#include "model/model_config.h"

#include "base/json.h"
#include "base/memory.h"
#include "base/numbers.h"
#include "model/model_config_variants.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char config_name[] = "config.json";
static const char generation_name[] = "generation_config.json";

/* What a missing key means, by family. */
struct family_defaults {
    const char *model_type;
    int kv_heads; /* 0: as many as heads */
    int head_dim; /* 0: hidden / heads */
    int max_context;
    bool hybrid; /* layers may be of both kinds, heads may turn in part */
    bool qk_norm;
    bool qkv_bias;
    bool gated_attention;
    bool centred_norms;
    int window;         /* what a missing "sliding_window" means; 0: the family has none */
    bool always_window; /* in use unless it is null, with no "use_sliding_window" beside it */
    bool explicit;      /* the class's defaults are no checkpoint's: every size must be there */
};

static const struct family_defaults families[] = {
    [MODEL_QWEN3] = { "qwen3", 32, 128, 32768, .qk_norm = true },
    [MODEL_LLAMA] = { "llama", 0, 0, 2048, .hybrid = false },
    [MODEL_QWEN35] = { "qwen3_5", 4, 256, 32768, .hybrid = true, .qk_norm = true,
                       .gated_attention = true, .centred_norms = true },
    [MODEL_QWEN3_ASR] = { "qwen3_asr", 0, 0, 65536, .qk_norm = true, .explicit = true },
    [MODEL_QWEN2] = { "qwen2", 32, 0, 32768, .qkv_bias = true, .window = 4096 },
    [MODEL_MISTRAL] = { "mistral", 8, 0, 131072, .window = 4096, .always_window = true },
};
/* Checkpoints of the text model alone; the others have it under "text_config". */
static const char text_only_type[] = "qwen3_5_text";

const char *model_family_name(enum model_family family) { return families[family].model_type; }

static enum reel_status get_int(const json_t *object, const char *name, const char *key, int min,
                                int max, int fallback, bool required, int *out,
                                struct reel_error *err) {
    struct json_int_rule rule = {
        .key = key, .min = min, .max = max, .fallback = fallback, .required = required
    };
    int64_t value = 0;
    enum reel_status status = json_get_int(object, name, &rule, &value, err);
    *out = (int)value;
    return status;
}

static enum reel_status read_family(struct model_config *config, const json_t *object,
                                    const char *name, struct reel_error *err) {
    const char *type = NULL;
    enum reel_status status = json_get_text(object, name, "model_type", &type, err);
    if (status != REEL_OK) return status;
    if (!type) return err_set(err, REEL_E_FORMAT, "%s: \"model_type\" is missing", name);
    for (size_t i = 0; i < sizeof families / sizeof families[0]; i++) {
        bool text_only = i == MODEL_QWEN35 && strcmp(type, text_only_type) == 0;
        if (strcmp(type, families[i].model_type) != 0 && !text_only) continue;
        config->family = (enum model_family)i;
        config->nested = i == MODEL_QWEN3_ASR || (i == MODEL_QWEN35 && !text_only);
        config->qk_norm = families[i].qk_norm;
        config->qkv_bias = families[i].qkv_bias;
        config->gated_attention = families[i].gated_attention;
        config->centred_norms = families[i].centred_norms;
        return REEL_OK;
    }
    return err_set(
        err, REEL_E_UNSUPPORTED,
        "%s: \"model_type\" is \"%.60s\", supported are \"llama\", \"mistral\", \"qwen2\", "
        "\"qwen3\", \"qwen3_5\", \"qwen3_5_text\" and \"qwen3_asr\"",
        name, type);
}

static enum reel_status read_shape(struct model_config *config, const json_t *object,
                                   const char *name, struct reel_error *err) {
    const struct family_defaults *family = &families[config->family];
    struct {
        const char *key;
        int max;
        int *out;
    } const required[] = {
        { "hidden_size", MODEL_MAX_HIDDEN, &config->hidden },
        { "num_hidden_layers", MODEL_MAX_LAYERS, &config->n_layers },
        { "num_attention_heads", MODEL_MAX_HEADS, &config->n_heads },
        { "intermediate_size", 8 * MODEL_MAX_HIDDEN, &config->intermediate },
        { "vocab_size", MODEL_MAX_VOCAB, &config->vocab },
    };
    for (size_t i = 0; i < sizeof required / sizeof required[0]; i++) {
        enum reel_status status = get_int(object, name, required[i].key, 1, required[i].max, 0,
                                          true, required[i].out, err);
        if (status != REEL_OK) return status;
    }
    const bool as_many = json_is_null(json_object_get(object, "num_key_value_heads"));
    int kv_heads = family->kv_heads && !as_many ? family->kv_heads : config->n_heads;
    enum reel_status status = get_int(object, name, "num_key_value_heads", 1, MODEL_MAX_HEADS,
                                      kv_heads, family->explicit, &config->n_kv_heads, err);
    if (status != REEL_OK) return status;
    int head_dim = family->head_dim ? family->head_dim : config->hidden / config->n_heads;
    status = get_int(object, name, "head_dim", 1, MODEL_MAX_HEAD_DIM, head_dim, family->explicit,
                     &config->head_dim, err);
    if (status != REEL_OK) return status;
    return get_int(object, name, "max_position_embeddings", 1, MODEL_MAX_CONTEXT,
                   family->max_context, false, &config->max_context, err);
}

int model_layers_before(const struct model_config *config, enum layer_kind kind, int end) {
    int n = 0;
    for (int i = 0; i < end; i++)
        n += model_layer_is(config, i, kind);
    return n;
}

enum reel_status model_config_check(const struct model_config *config, const char *name,
                                    struct reel_error *err) {
    if (config->n_heads % config->n_kv_heads)
        return err_set(err, REEL_E_FORMAT,
                       "%s: %d attention heads are not a multiple of %d key-value heads", name,
                       config->n_heads, config->n_kv_heads);
    if (config->head_dim < 2 || config->head_dim % 2 || config->head_dim > MODEL_MAX_HEAD_DIM)
        return err_set(err, REEL_E_FORMAT, "%s: head_dim is %d, allowed are even values to %d",
                       name, config->head_dim, MODEL_MAX_HEAD_DIM);
    if (config->rotary_dim < 2 || config->rotary_dim % 2 || config->rotary_dim > config->head_dim)
        return err_set(err, REEL_E_FORMAT,
                       "%s: %d of the %d entries of a head turn, allowed are even numbers from 2",
                       name, config->rotary_dim, config->head_dim);
    if (model_layer_count(config, LAYER_DELTA) &&
        config->delta.value_heads % config->delta.key_heads)
        return err_set(err, REEL_E_FORMAT,
                       "%s: %d linear value heads are not a multiple of %d key heads", name,
                       config->delta.value_heads, config->delta.key_heads);
    return REEL_OK;
}

/* The reference's class of this family has no attention without its gate. */
static enum reel_status refuse_ungated(const struct model_config *config, const json_t *object,
                                       const char *name, struct reel_error *err) {
    bool gate = true;
    enum reel_status status = json_get_bool(object, name, "attn_output_gate", true, &gate, err);
    if (status != REEL_OK || !config->gated_attention || gate) return status;
    return err_set(err, REEL_E_UNSUPPORTED,
                   "%s: \"attn_output_gate\" is false: attention without its gate is not "
                   "supported in this family",
                   name);
}

static bool has_window_layer(const json_t *kinds) {
    for (size_t i = 0; i < json_array_size(kinds); i++) {
        const char *kind = json_string_value(json_array_get(kinds, i));
        if (kind && strcmp(kind, "sliding_attention") == 0) return true;
    }
    return false;
}

/* A window that attention never leaves changes nothing, so a context may be as long as the window,
 * and no longer. Of Qwen2 the layers that layer_types names have one, or without that list those
 * from max_window_layers on. Qwen3's files name a window even when use_sliding_window leaves it
 * unused. */
static enum reel_status read_window(struct model_config *config, const json_t *object,
                                    const char *name, struct reel_error *err) {
    const struct family_defaults *family = &families[config->family];
    const json_t *value = json_object_get(object, "sliding_window");
    const bool none = json_is_null(value) || (!value && !family->window);
    bool used = family->always_window;
    int first = 0;
    enum reel_status status = REEL_OK;
    if (!family->always_window) /* in which the reference looks at sliding_window alone */
        status = json_get_bool(object, name, "use_sliding_window", used, &used, err);
    if (status == REEL_OK && config->family == MODEL_QWEN2)
        status = get_int(object, name, "max_window_layers", 0, INT32_MAX, 28, false, &first, err);
    if (status != REEL_OK) return status;
    const json_t *kinds = json_object_get(object, "layer_types");
    if (config->family == MODEL_QWEN2 && json_is_array(kinds))
        first = has_window_layer(kinds) ? 0 : config->n_layers;
    if (!family->window && used)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: \"use_sliding_window\" is true, allowed is false: sliding window "
                       "attention is not supported in this family",
                       name);
    if (config->family == MODEL_LLAMA && !none)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: \"sliding_window\" is set, allowed is null: sliding window attention "
                       "is not supported in this family",
                       name);
    if (!used || none || first >= config->n_layers) return REEL_OK;
    status = get_int(object, name, "sliding_window", 1, INT32_MAX, family->window, false,
                     &config->window, err);
    if (status == REEL_OK) config->max_context = int_min(config->max_context, config->window);
    return status;
}

/* "layer_types", or every full_attention_interval-th layer when a hybrid does not list them. */
static enum reel_status read_layer_kinds(struct model_config *config, const json_t *object,
                                         const char *name, struct reel_error *err) {
    static const char *const kinds[] = {
        [LAYER_ATTENTION] = "full_attention", [LAYER_DELTA] = "linear_attention"
    };
    const bool hybrid = families[config->family].hybrid, window = families[config->family].window;
    const json_t *list = json_object_get(object, "layer_types");
    if (!list || json_is_null(list)) {
        int interval = 1;
        if (!hybrid) return REEL_OK;
        enum reel_status status = get_int(object, name, "full_attention_interval", 1,
                                          MODEL_MAX_LAYERS, 4, false, &interval, err);
        for (int i = 0; status == REEL_OK && i < config->n_layers; i++)
            config->layer_kinds[i] = (i + 1) % interval ? LAYER_DELTA : LAYER_ATTENTION;
        return status;
    }
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *text = json_string_value(json_array_get(list, i));
        int kind = hybrid ? LAYER_DELTA : LAYER_ATTENTION;
        if (window && text && strcmp(text, "sliding_attention") == 0) continue; /* read_window */
        while (kind >= 0 && !(text && strcmp(text, kinds[kind]) == 0))
            kind--;
        if (kind < 0)
            return err_set(err, REEL_E_UNSUPPORTED,
                           "%s: \"layer_types\": layer %zu is \"%.60s\", supported is "
                           "\"full_attention\"%s",
                           name, i, text ? text : "not a string",
                           hybrid   ? " or \"linear_attention\""
                           : window ? " or \"sliding_attention\""
                                    : "");
        if (i < MODEL_MAX_LAYERS) config->layer_kinds[i] = (unsigned char)kind;
    }
    if (json_array_size(list) != (size_t)config->n_layers)
        return err_set(err, REEL_E_FORMAT,
                       "%s: \"layer_types\" must be a list of %d, it has %zu entries", name,
                       config->n_layers, json_array_size(list));
    return REEL_OK;
}

static enum reel_status read_layers(struct model_config *config, const json_t *object,
                                    const char *name, struct reel_error *err) {
    enum reel_status status = read_layer_kinds(config, object, name, err);
    if (status != REEL_OK || !families[config->family].hybrid) return status;
    struct {
        const char *key;
        int min, max, fallback;
        int *out;
    } const rules[] = {
        { "linear_num_key_heads", 1, MODEL_MAX_HEADS, 16, &config->delta.key_heads },
        { "linear_num_value_heads", 1, MODEL_MAX_HEADS, 32, &config->delta.value_heads },
        { "linear_key_head_dim", 1, MODEL_MAX_HEAD_DIM, 128, &config->delta.key_dim },
        { "linear_value_head_dim", 1, MODEL_MAX_HEAD_DIM, 128, &config->delta.value_dim },
        { "linear_conv_kernel_dim", 2, MODEL_MAX_CONV, 4, &config->delta.conv_width },
        { "mtp_num_hidden_layers", 0, MODEL_MAX_LAYERS, 0, &config->n_draft_layers },
    };
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
        status = get_int(object, name, rules[i].key, rules[i].min, rules[i].max, rules[i].fallback,
                         false, rules[i].out, err);
        if (status != REEL_OK) return status;
    }
    if (!model_layer_count(config, LAYER_DELTA)) memset(&config->delta, 0, sizeof config->delta);
    return REEL_OK;
}

static enum reel_status read_llama3(struct model_config *config, const json_t *rope,
                                    const char *name, struct reel_error *err) {
    struct {
        const char *key;
        double max;
        double *out;
    } const required[] = {
        { "factor", 1e4, &config->rope_factor },
        { "low_freq_factor", 1e4, &config->rope_low_freq_factor },
        { "high_freq_factor", 1e4, &config->rope_high_freq_factor },
    };
    for (size_t i = 0; i < sizeof required / sizeof required[0]; i++) {
        struct json_real_rule rule = {
            .key = required[i].key, .min = 1e-4, .max = required[i].max, .required = true
        };
        enum reel_status status = json_get_real(rope, name, &rule, required[i].out, err);
        if (status != REEL_OK) return status;
    }
    if (config->rope_high_freq_factor <= config->rope_low_freq_factor)
        return err_set(err, REEL_E_FORMAT,
                       "%s: \"high_freq_factor\" %g must be above \"low_freq_factor\" %g", name,
                       config->rope_high_freq_factor, config->rope_low_freq_factor);
    config->rope = ROPE_LLAMA3;
    return get_int(rope, name, "original_max_position_embeddings", 1, MODEL_MAX_CONTEXT,
                   config->max_context, false, &config->rope_original_context, err);
}

/* What an object about rope may hold. Other keys belong to kinds of scaling that are not supported,
 * or to models whose kinds of layers rotate differently: "full_attention" and "sliding_attention"
 * are objects there. A factor without a kind says nothing that the reference understands. */
static enum reel_status refuse_rope_keys(const json_t *rope, const char *where, const char *kind,
                                         const char *name, struct reel_error *err) {
    static const char *const known[] = {
        "rope_type",       "type",
        "rope_theta",      "partial_rotary_factor",
        "factor",          "original_max_position_embeddings",
        "low_freq_factor", "high_freq_factor",
        "mrope_section",   "mrope_interleaved",
        "interleaved", /* as mrope_interleaved; of a text all three positions are the same */
    };
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)rope, key, value) {
        bool is_known = json_is_null(value);
        for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
            is_known = is_known || strcmp(key, known[i]) == 0;
        if (!is_known) return model_config_refuse_key(where, key, value, name, err);
    }
    const json_t *factor = json_object_get(rope, "factor");
    if (kind || !json_is_number(factor) || json_number_value(factor) == 1) return REEL_OK;
    return err_set(
        err, REEL_E_UNSUPPORTED,
        "%s: \"%s\" has a \"factor\" of %g and no \"rope_type\", allowed is 1: supported "
        "are \"default\" and \"llama3\"",
        name, where, json_number_value(factor));
}

static enum reel_status read_rope_kind(struct model_config *config, const json_t *rope,
                                       const char *where, const char *name,
                                       struct reel_error *err) {
    const char *kind = NULL;
    enum reel_status status = json_get_text(rope, name, "rope_type", &kind, err);
    if (status == REEL_OK && !kind) status = json_get_text(rope, name, "type", &kind, err);
    if (status != REEL_OK) return status;
    const bool llama3 = kind && strcmp(kind, "llama3") == 0;
    if (!kind || llama3 || strcmp(kind, "default") == 0) {
        status = refuse_rope_keys(rope, where, kind, name, err);
        return status == REEL_OK && llama3 ? read_llama3(config, rope, name, err) : status;
    }
    return err_set(err, REEL_E_UNSUPPORTED,
                   "%s: rope scaling \"rope_type\" is \"%.60s\", supported are \"default\" and "
                   "\"llama3\"",
                   name, kind);
}

/* The reference's classes of the other families turn whole heads whatever the file says. */
static enum reel_status read_rotary_part(const struct model_config *config, const json_t *object,
                                         const char *name, double *part, struct reel_error *err) {
    struct json_real_rule rule = {
        .key = "partial_rotary_factor", .min = 0, .max = 1, .fallback = *part
    };
    enum reel_status status = json_get_real(object, name, &rule, part, err);
    if (status != REEL_OK || families[config->family].hybrid || *part == 1) return status;
    return err_set(err, REEL_E_UNSUPPORTED, "%s: \"partial_rotary_factor\" is %g, supported is 1",
                   name, *part);
}

/* Older files: rope_theta beside rope_scaling. Newer ones: both inside rope_parameters. When a file
 * has both spellings the reference takes rope_scaling. */
static enum reel_status read_rope(struct model_config *config, const json_t *object,
                                  const char *name, struct reel_error *err) {
    static const char *const keys[] = { "rope_scaling", "rope_parameters" };
    const json_t *rope = NULL;
    const char *where = "";
    for (size_t i = 0; i < 2 && !rope; i++) {
        const json_t *value = json_object_get(object, keys[i]);
        if (!value || json_is_null(value)) continue;
        if (!json_is_object(value))
            return err_set(err, REEL_E_FORMAT, "%s: \"%s\" must be an object or null", name,
                           keys[i]);
        if (json_object_size(value)) rope = value, where = keys[i];
    }
    if (families[config->family].explicit && !json_object_get(object, "rope_theta") &&
        !json_object_get(rope, "rope_theta"))
        return err_set(err, REEL_E_FORMAT, "%s: \"rope_theta\" is missing", name);
    struct json_real_rule theta = { .key = "rope_theta", .min = 1, .max = 1e12, .fallback = 10000 };
    double part = families[config->family].hybrid ? 0.25 : 1;
    enum reel_status status = json_get_real(object, name, &theta, &config->rope_theta, err);
    if (status == REEL_OK) status = read_rotary_part(config, object, name, &part, err);
    theta.fallback = config->rope_theta;
    if (status == REEL_OK && rope)
        status = json_get_real(rope, name, &theta, &config->rope_theta, err);
    if (status == REEL_OK && rope) status = read_rotary_part(config, rope, name, &part, err);
    if (status == REEL_OK && rope) status = read_rope_kind(config, rope, where, name, err);
    config->rotary_dim = (int)(config->head_dim * part);
    return status;
}

bool model_add_stop_id(struct model_config *config, int id) {
    for (int i = 0; i < config->n_stop_ids; i++)
        if (config->stop_ids[i] == id) return true;
    if (config->n_stop_ids == MODEL_MAX_STOP_IDS) return false;
    config->stop_ids[config->n_stop_ids++] = id;
    return true;
}

static enum reel_status add_stop_id(struct model_config *config, const json_t *value,
                                    const char *name, struct reel_error *err) {
    json_int_t id = json_integer_value(value);
    if (!json_is_integer(value) || id < 0 || id >= config->vocab)
        return err_set(err, REEL_E_FORMAT,
                       "%s: \"eos_token_id\" must be one integer of 0 to %d, or a list of them",
                       name, config->vocab - 1);
    if (model_add_stop_id(config, (int)id)) return REEL_OK;
    return err_set(err, REEL_E_LIMIT, "%s: more than %d different \"eos_token_id\"", name,
                   MODEL_MAX_STOP_IDS);
}

static enum reel_status read_stop_ids(struct model_config *config, const json_t *object,
                                      const char *name, struct reel_error *err) {
    const json_t *value = json_object_get(object, "eos_token_id");
    if (!value || json_is_null(value)) return REEL_OK;
    if (!json_is_array(value)) return add_stop_id(config, value, name, err);
    enum reel_status status = REEL_OK;
    for (size_t i = 0; status == REEL_OK && i < json_array_size(value); i++)
        status = add_stop_id(config, json_array_get(value, i), name, err);
    return status;
}

static enum reel_status read_object(json_t **out, char **path, const struct model_source *source,
                                    const char *name, struct reel_error *err) {
    struct file_map map = { 0 };
    enum reel_status status = model_source_map(source, name, &map, path, err);
    if (status == REEL_OK) status = json_read(out, *path, map.bytes, map.size, err);
    if (status == REEL_OK && !json_is_object(*out))
        status = err_set(err, REEL_E_FORMAT, "%s: must hold one JSON object", *path);
    file_map_close(&map);
    return status;
}

/* Where a config has what: of a larger model the language model is a part. Published Qwen3-ASR
 * files nest once more than those that transformers saves. */
struct parts {
    const json_t *whole, *thinker, *text; /* the same for a language model alone */
};

/* The model inside may be of a family of its own: a mixture of experts under a name that is known.
 */
static enum reel_status refuse_text_type(const struct model_config *config, const json_t *text,
                                         const char *name, struct reel_error *err) {
    const char *type = NULL;
    enum reel_status status = json_get_text(text, name, "model_type", &type, err);
    if (status != REEL_OK || config->family != MODEL_QWEN35 || !type) return status;
    if (strcmp(type, text_only_type) == 0) return REEL_OK;
    return err_set(err, REEL_E_UNSUPPORTED,
                   "%s: \"model_type\" of \"text_config\" is \"%.60s\", supported is \"%s\"", name,
                   type, text_only_type);
}

static enum reel_status find_parts(const struct model_config *config, const json_t *whole,
                                   const char *name, struct parts *parts, struct reel_error *err) {
    *parts = (struct parts){ whole, whole, whole };
    if (!config->nested) return REEL_OK;
    const json_t *thinker = json_object_get(whole, "thinker_config");
    if (config->family == MODEL_QWEN3_ASR && json_is_object(thinker)) parts->thinker = thinker;
    parts->text = json_object_get(parts->thinker, "text_config");
    if (!json_is_object(parts->text))
        return err_set(err, REEL_E_FORMAT, "%s: \"text_config\" must be an object", name);
    return refuse_text_type(config, parts->text, name, err);
}

static enum reel_status read_text(struct model_config *config, const json_t *object,
                                  const char *path, struct reel_error *err) {
    enum reel_status status = model_config_refuse(config, object, path, err);
    if (status == REEL_OK) status = refuse_ungated(config, object, path, err);
    if (status == REEL_OK) status = read_shape(config, object, path, err);
    if (status == REEL_OK) status = read_layers(config, object, path, err);
    if (status == REEL_OK) {
        static const struct json_real_rule eps = {
            .key = "rms_norm_eps", .min = 1e-12, .max = 0.1, .fallback = 1e-6
        };
        double value = 0;
        status = json_get_real(object, path, &eps, &value, err);
        config->rms_eps = (float)value;
    }
    if (status == REEL_OK) status = read_rope(config, object, path, err);
    if (status == REEL_OK) status = read_window(config, object, path, err);
    if (status == REEL_OK) status = model_config_check(config, path, err);
    if (status == REEL_OK)
        status = json_get_bool(object, path, "tie_word_embeddings", false, &config->tied, err);
    if (status == REEL_OK) status = read_stop_ids(config, object, path, err);
    if (status == REEL_OK)
        status = get_int(object, path, "bos_token_id", 0, config->vocab - 1, -1, false,
                         &config->bos_id, err);
    return status;
}

/* What a larger model says of its language model holds. */
static enum reel_status read_around(struct model_config *config, const json_t *around,
                                    const char *path, struct reel_error *err) {
    enum reel_status status =
        json_get_bool(around, path, "tie_word_embeddings", config->tied, &config->tied, err);
    return status == REEL_OK ? read_stop_ids(config, around, path, err) : status;
}

static enum reel_status read_parts(struct model_config *config, const json_t *object,
                                   const char *path, struct reel_error *err) {
    struct parts parts;
    enum reel_status status = find_parts(config, object, path, &parts, err);
    if (status == REEL_OK) status = read_text(config, parts.text, path, err);
    if (status == REEL_OK && config->nested) status = read_around(config, parts.thinker, path, err);
    if (status == REEL_OK && config->nested) status = read_around(config, parts.whole, path, err);
    if (status == REEL_OK && config->family == MODEL_QWEN3_ASR)
        status = audio_config_read(&config->audio, parts.thinker, path, config->hidden,
                                   config->vocab, err);
    return status;
}

static enum reel_status read_config(struct model_config *config, const struct model_source *source,
                                    struct reel_error *err) {
    json_t *object = NULL;
    char *path = NULL;
    enum reel_status status = read_object(&object, &path, source, config_name, err);
    if (status == REEL_OK) status = read_family(config, object, path, err);
    if (status == REEL_OK) status = read_parts(config, object, path, err);
    json_decref(object);
    mem_free(path);
    return status;
}

/* Fallbacks are those of the reference's generation config; do_sample false is greedy. */
static enum reel_status read_sampling(struct model_config *config, const json_t *object,
                                      const char *name, struct reel_error *err) {
    struct {
        struct json_real_rule rule;
        float *out;
    } const reals[] = {
        { { "temperature", 0, 100, 1, false }, &config->sampling.temperature },
        { { "top_p", 0, 1, 1, false }, &config->sampling.top_p },
        { { "min_p", 0, 1, 0, false }, &config->sampling.min_p },
        { { "repetition_penalty", 0.01, 100, 1, false }, &config->sampling.repetition_penalty },
    };
    for (size_t i = 0; i < sizeof reals / sizeof reals[0]; i++) {
        double value = 0;
        enum reel_status status = json_get_real(object, name, &reals[i].rule, &value, err);
        if (status != REEL_OK) return status;
        *reals[i].out = (float)value;
    }
    enum reel_status status =
        get_int(object, name, "top_k", 0, INT32_MAX, 50, false, &config->sampling.top_k, err);
    if (status != REEL_OK) return status;
    bool do_sample = false;
    status = json_get_bool(object, name, "do_sample", false, &do_sample, err);
    if (status == REEL_OK && !do_sample) {
        config->sampling.temperature = 0;
        config->sampling.top_k = 0;
    }
    return status;
}

static enum reel_status read_generation(struct model_config *config,
                                        const struct model_source *source, struct reel_error *err) {
    if (!model_source_has(source, generation_name)) return REEL_OK;
    json_t *object = NULL;
    char *path = NULL;
    enum reel_status status = read_object(&object, &path, source, generation_name, err);
    if (status == REEL_OK) status = read_stop_ids(config, object, path, err);
    if (status == REEL_OK) status = read_sampling(config, object, path, err);
    json_decref(object);
    mem_free(path);
    return status;
}

enum reel_status model_config_read(struct model_config *config, const struct model_source *source,
                                   struct reel_error *err) {
    *config = (struct model_config){ .bos_id = -1 };
    config->sampling.top_p = 1;
    config->sampling.repetition_penalty = 1;
    enum reel_status status = read_config(config, source, err);
    if (status == REEL_OK) status = read_generation(config, source, err);
    return status;
}

/* Llama 3's scaling of one frequency, in float32 as the reference computes it (transformers,
 * _compute_llama3_parameters): long wavelengths are stretched by `factor`, short ones stay, and
 * those between are interpolated. Torch divides a number by a tensor as reciprocal, then product.
 */
static float scale_llama3(const struct model_config *config, float inv) {
    double low = config->rope_low_freq_factor, high = config->rope_high_freq_factor;
    double context = config->rope_original_context;
    float factor = (float)config->rope_factor;
    float wavelength = 1 / inv * (float)(2 * 3.141592653589793);
    if (wavelength < (float)(context / high)) return inv;
    if (wavelength > (float)(context / low)) return inv / factor;
    float smooth = (1 / wavelength * (float)context - (float)low) / (float)(high - low);
    return (1 - smooth) * inv / factor + smooth * inv;
}

void model_rope_frequencies(const struct model_config *config, float *inv) {
    for (int i = 0; i < config->rotary_dim / 2; i++) {
        float exponent = (float)(2 * i) / (float)config->rotary_dim;
        inv[i] = 1.0f / (float)pow(config->rope_theta, (double)exponent);
        if (config->rope == ROPE_LLAMA3) inv[i] = scale_llama3(config, inv[i]);
        if (config->rope == ROPE_FACTORS) inv[i] /= config->rope_factors[i];
    }
}
