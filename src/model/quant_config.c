/* Each maker of quantised files has words of its own for the same few numbers. Here they become one
 * struct; what would change the maths and is not done is refused by name. */
#include "model/quant_config.h"

#include "base/json.h"
#include "base/memory.h"
#include "model/tokenizer_regex.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *const method_names[] = {
    [QUANT_FP8] = "fp8",           [QUANT_COMPRESSED_TENSORS] = "compressed-tensors",
    [QUANT_GPTQ] = "gptq",         [QUANT_AWQ] = "awq",
    [QUANT_MODELOPT] = "modelopt", [QUANT_BITSANDBYTES] = "bitsandbytes",
};
#define N_METHODS ((int)(sizeof method_names / sizeof method_names[0]))

static const char supported[] = "supported are fp8, compressed-tensors, gptq, awq, modelopt and "
                                "bitsandbytes; or use bf16, f16 or f32 weights, or a GGUF file";

const char *quant_method_name(enum quant_method method) { return method_names[method]; }

static bool is_text(const json_t *value, const char *text) {
    return json_is_string(value) && strcasecmp(json_string_value(value), text) == 0;
}

/* A value that is one of a few words; a missing one is `fallback`. */
static enum reel_status check_word(const struct quant_config *c, const json_t *object,
                                   const char *key, const char *const *allowed, const char *shown,
                                   struct reel_error *err) {
    const char *text = NULL;
    enum reel_status status = json_get_text(object, c->path, key, &text, err);
    if (status != REEL_OK || !text) return status;
    for (int i = 0; allowed[i]; i++)
        if (strcasecmp(text, allowed[i]) == 0) return REEL_OK;
    return err_set(err, REEL_E_UNSUPPORTED, "%s: \"%s\" is \"%.60s\" (method %s), supported is %s",
                   c->path, key, text, method_names[c->method], shown);
}

static enum reel_status get_int(const struct quant_config *c, const json_t *object, const char *key,
                                int min, int max, int fallback, int *out, struct reel_error *err) {
    struct json_int_rule rule = { .key = key, .min = min, .max = max, .fallback = fallback };
    int64_t value = fallback;
    enum reel_status status = json_get_int(object, c->path, &rule, &value, err);
    *out = (int)value;
    return status;
}

/* "key" or, in other files, "other". */
static enum reel_status get_either(const struct quant_config *c, const json_t *object,
                                   const char *key, const char *other, int min, int max, int *out,
                                   struct reel_error *err) {
    return get_int(c, object, json_object_get(object, key) ? key : other, min, max, 0, out, err);
}

static enum reel_status check_bits(const struct quant_config *c, int bits, bool also_8,
                                   struct reel_error *err) {
    if (bits == 4 || (bits == 8 && also_8)) return REEL_OK;
    return err_set(err, REEL_E_UNSUPPORTED, "%s: weights of %d bits (method %s), supported are 4%s",
                   c->path, bits, method_names[c->method], also_8 ? " and 8" : "");
}

/* ---- layers that stay wide ---- */

static enum reel_status read_ignored(struct quant_config *c, const json_t *list, const char *key,
                                     struct reel_error *err) {
    if (!list || json_is_null(list)) return REEL_OK;
    const size_t n = json_array_size(list);
    if (!json_is_array(list))
        return err_set(err, REEL_E_FORMAT, "%s: \"%s\" must be a list", c->path, key);
    if (n > QUANT_MAX_IGNORED)
        return err_set(err, REEL_E_LIMIT, "%s: \"%s\" has %zu names, at most %d are allowed",
                       c->path, key, n, QUANT_MAX_IGNORED);
    enum reel_status status = mem_zeroed(&c->ignored, n, sizeof *c->ignored, "layers' names", err);
    for (size_t i = 0; status == REEL_OK && i < n; i++) {
        const json_t *name = json_array_get(list, i);
        if (!json_is_string(name))
            return err_set(err, REEL_E_FORMAT, "%s: \"%s\" must hold names only", c->path, key);
        status = mem_text(&c->ignored[i], json_string_value(name), json_string_length(name),
                          "a layer's name", err);
        if (status == REEL_OK) c->n_ignored++;
    }
    return status;
}

static bool matches(const char *expression, const char *layer) {
    struct regex *re = NULL;
    if (*expression == '^') expression++; /* matching begins there anyway */
    if (regex_compile(&re, expression, strlen(expression), "", NULL) != REEL_OK) return false;
    const unsigned char *at = (const unsigned char *)layer;
    const bool found = regex_match(re, at, at + strlen(layer), false) > 0;
    regex_free(re);
    return found;
}

bool quant_config_ignores(const struct quant_config *c, const char *layer) {
    for (int i = 0; i < c->n_ignored; i++) {
        const char *name = c->ignored[i];
        if (strcmp(name, layer) == 0) return true;
        if (strncmp(name, "re:", 3) == 0 && matches(name + 3, layer)) return true;
    }
    return false;
}

/* ---- methods ---- */

static enum reel_status read_blocks(const struct quant_config *c, const json_t *object,
                                    const char *key, struct quant_group *g,
                                    struct reel_error *err) {
    const json_t *size = json_object_get(object, key);
    if (!size || json_is_null(size)) return REEL_OK;
    const json_int_t rows = json_integer_value(json_array_get(size, 0));
    const json_int_t columns = json_integer_value(json_array_get(size, 1));
    if (json_array_size(size) != 2 || rows < 1 || columns < 1 || rows > 65536 || columns > 65536)
        return err_set(err, REEL_E_FORMAT,
                       "%s: \"%s\" must be two integers of 1 to 65536: rows and columns of a block",
                       c->path, key);
    g->block_rows = (int)rows;
    g->block_columns = (int)columns;
    return REEL_OK;
}

static enum reel_status read_fp8(struct quant_config *c, const json_t *object,
                                 struct reel_error *err) {
    static const char *const formats[] = { "e4m3", "float8_e4m3fn", NULL };
    struct quant_group *g = &c->groups[c->n_groups++];
    *g = (struct quant_group){ .bits = 8, .is_float = true, .symmetric = true };
    enum reel_status status = check_word(c, object, "fmt", formats, "\"e4m3\"", err);
    if (status == REEL_OK) status = read_blocks(c, object, "weight_block_size", g, err);
    const char *key = json_object_get(object, "modules_to_not_convert") ? "modules_to_not_convert"
                                                                        : "ignored_layers";
    return status == REEL_OK ? read_ignored(c, json_object_get(object, key), key, err) : status;
}

static enum reel_status read_gptq(struct quant_config *c, const json_t *object,
                                  struct reel_error *err) {
    static const char *const formats[] = { "gptq", "gptq_v2", NULL };
    static const char *const words[] = { "int32", NULL };
    struct quant_group *g = &c->groups[c->n_groups++];
    const char *key = json_object_get(object, "checkpoint_format") ? "checkpoint_format" : "format";
    enum reel_status status = check_word(c, object, key, formats, "\"gptq\" and \"gptq_v2\"", err);
    if (status == REEL_OK) status = check_word(c, object, "pack_dtype", words, "\"int32\"", err);
    c->zeros_less_one = !is_text(json_object_get(object, key), "gptq_v2");
    c->varied = json_object_size(json_object_get(object, "dynamic")) > 0;
    if (status == REEL_OK) status = get_int(c, object, "bits", 1, 64, 0, &g->bits, err);
    if (status == REEL_OK)
        status = get_int(c, object, "group_size", -1, 1 << 20, 0, &g->group, err);
    if (status == REEL_OK) status = check_bits(c, g->bits, true, err);
    return status;
}

static enum reel_status read_awq(struct quant_config *c, const json_t *object,
                                 struct reel_error *err) {
    static const char *const versions[] = { "gemm", NULL };
    struct quant_group *g = &c->groups[c->n_groups++];
    enum reel_status status = check_word(c, object, "version", versions, "\"gemm\"", err);
    if (status == REEL_OK) status = get_either(c, object, "bits", "w_bit", 1, 64, &g->bits, err);
    if (status == REEL_OK)
        status = get_either(c, object, "group_size", "q_group_size", -1, 1 << 20, &g->group, err);
    if (status == REEL_OK) status = check_bits(c, g->bits, false, err);
    static const char key[] = "modules_to_not_convert";
    if (status != REEL_OK) return status;
    /* these are parts of names, and no use here: a layer without codes is wide */
    const json_t *list = json_object_get(object, key);
    if (!list || json_is_null(list) || json_is_array(list)) return REEL_OK;
    return err_set(err, REEL_E_FORMAT, "%s: \"%s\" must be a list", c->path, key);
}

static enum reel_status read_bitsandbytes(struct quant_config *c, const json_t *object,
                                          struct reel_error *err) {
    static const char *const types[] = { "nf4", "fp4", NULL };
    bool in_4_bits = false;
    enum reel_status status =
        json_get_bool(object, c->path, "load_in_4bit",
                      json_is_true(json_object_get(object, "_load_in_4bit")), &in_4_bits, err);
    if (status == REEL_OK)
        status = check_word(c, object, "bnb_4bit_quant_type", types, "\"nf4\" and \"fp4\"", err);
    if (status != REEL_OK || in_4_bits) return status;
    return err_set(err, REEL_E_UNSUPPORTED,
                   "%s: \"load_in_4bit\" is not true: of bitsandbytes only weights of 4 bits are "
                   "supported",
                   c->path);
}

static enum reel_status read_modelopt(struct quant_config *c, const json_t *object,
                                      struct reel_error *err) {
    static const char *const algorithms[] = { "FP8", "NVFP4", "MIXED_PRECISION", NULL };
    /* what is excluded may be quantised another way: an output head by rows, so it is not asked */
    return check_word(c, object, "quant_algo", algorithms,
                      "\"FP8\", \"NVFP4\" and \"MIXED_PRECISION\"", err);
}

/* ---- compressed-tensors ---- */

static const char *const compressed_formats[] = {
    "float-quantized", "int-quantized",        "naive-quantized",
    "pack-quantized",  "nvfp4-pack-quantized", "mxfp4-pack-quantized",
    "mxfp8-quantized", "mixed-precision",      NULL
};
static const char compressed_shown[] =
    "float-, int-, naive- and mxfp8-quantized, and pack-, nvfp4-pack- and mxfp4-pack-quantized";

static enum reel_status read_compressed_group(struct quant_config *c, const json_t *group,
                                              struct reel_error *err) {
    static const char *const types[] = { "int", "float", NULL };
    static const char *const strategies[] = { "tensor",       "channel", "group",
                                              "tensor_group", "block",   NULL };
    const json_t *weights = json_object_get(group, "weights");
    if (!json_is_object(group))
        return err_set(err, REEL_E_FORMAT, "%s: \"config_groups\" must hold objects", c->path);
    if (!weights || json_is_null(weights)) return REEL_OK; /* of activations alone */
    if (c->n_groups == QUANT_MAX_GROUPS)
        return err_set(err, REEL_E_LIMIT, "%s: \"config_groups\" has more than %d groups", c->path,
                       QUANT_MAX_GROUPS);
    struct quant_group *g = &c->groups[c->n_groups++];
    enum reel_status status =
        check_word(c, group, "format", compressed_formats, compressed_shown, err);
    if (status == REEL_OK) status = check_word(c, weights, "type", types, "int and float", err);
    if (status == REEL_OK)
        status = check_word(c, weights, "strategy", strategies,
                            "tensor, channel, group, tensor_group and block", err);
    if (status == REEL_OK)
        status = json_get_bool(weights, c->path, "symmetric", true, &g->symmetric, err);
    if (status == REEL_OK) status = get_int(c, weights, "num_bits", 1, 64, 0, &g->bits, err);
    if (status == REEL_OK)
        status = get_int(c, weights, "group_size", -1, 1 << 20, 0, &g->group, err);
    if (status == REEL_OK) status = read_blocks(c, weights, "block_structure", g, err);
    g->is_float = is_text(json_object_get(weights, "type"), "float");
    return status == REEL_OK ? check_bits(c, g->bits, true, err) : status;
}

static enum reel_status refuse_object(const struct quant_config *c, const json_t *object,
                                      const char *key, struct reel_error *err) {
    const json_t *value = json_object_get(object, key);
    if (json_object_size(value) == 0) return REEL_OK;
    return err_set(err, REEL_E_UNSUPPORTED, "%s: \"%s\" is not empty, allowed is null", c->path,
                   key);
}

static enum reel_status read_compressed(struct quant_config *c, const json_t *object,
                                        struct reel_error *err) {
    static const char *const dense[] = { "dense", NULL };
    static const char *const done[] = { "compressed", NULL };
    const json_t *groups = json_object_get(object, "config_groups");
    const json_t *sparse = json_object_get(object, "sparsity_config");
    enum reel_status status =
        check_word(c, object, "format", compressed_formats, compressed_shown, err);
    if (status == REEL_OK)
        status = check_word(c, object, "quantization_status", done, "\"compressed\"", err);
    if (status == REEL_OK && json_object_size(sparse))
        status = check_word(c, sparse, "format", dense, "\"dense\"", err);
    if (status == REEL_OK) status = refuse_object(c, object, "transform_config", err);
    if (status == REEL_OK && !json_is_object(groups))
        status = err_set(err, REEL_E_FORMAT, "%s: \"config_groups\" must be an object", c->path);
    const char *key = NULL;
    json_t *value = NULL;
    if (status != REEL_OK) return status;
    json_object_foreach((json_t *)(uintptr_t)groups, key, value) {
        status = read_compressed_group(c, value, err);
        if (status != REEL_OK) return status;
    }
    return read_ignored(c, json_object_get(object, "ignore"), "ignore", err);
}

/* ---- where it stands ---- */

static enum reel_status read_method(struct quant_config *c, const json_t *object,
                                    const char *fallback, struct reel_error *err) {
    static enum reel_status (*const readers[])(struct quant_config *, const json_t *,
                                               struct reel_error *) = {
        [QUANT_FP8] = read_fp8,           [QUANT_COMPRESSED_TENSORS] = read_compressed,
        [QUANT_GPTQ] = read_gptq,         [QUANT_AWQ] = read_awq,
        [QUANT_MODELOPT] = read_modelopt, [QUANT_BITSANDBYTES] = read_bitsandbytes,
    };
    const char *method = NULL;
    if (!json_is_object(object))
        return err_set(err, REEL_E_FORMAT, "%s: \"quantization_config\" must be an object or null",
                       c->path);
    enum reel_status status = json_get_text(object, c->path, "quant_method", &method, err);
    if (status != REEL_OK) return status;
    if (!method) method = fallback;
    for (int i = 0; method && i < N_METHODS; i++) {
        if (strcmp(method, method_names[i]) != 0) continue;
        c->method = (enum quant_method)i;
        return readers[i](c, object, err);
    }
    return err_set(err, REEL_E_UNSUPPORTED,
                   "%s: weights quantised by method \"%.60s\" (\"quant_method\"): %s", c->path,
                   method ? method : "unknown", supported);
}

/* quantization_config of the whole model or of its language part; NULL: none. */
static const json_t *find_object(const json_t *config) {
    static const char *const parts[] = { "thinker_config", "text_config" };
    static const char *const keys[] = { "quantization_config", "compression_config" };
    for (int part = 0; config; part++) {
        for (int i = 0; i < 2; i++) {
            const json_t *found = json_object_get(config, keys[i]);
            if (found && !json_is_null(found)) return found;
        }
        const json_t *next = NULL;
        for (int i = 0; i < 2 && !next; i++)
            next = json_object_get(config, parts[i]);
        config = part < 2 ? next : NULL;
    }
    return NULL;
}

/* The files that say it, in the order in which they are asked, and the method of those that name
 * none. */
static const struct place {
    const char *file, *key, *method;
} places[] = {
    { "config.json", NULL, NULL },
    { "hf_quant_config.json", "quantization", "modelopt" },
    { "quantize_config.json", "", "gptq" },
    { "quant_config.json", "", "awq" },
};

static enum reel_status read_place(struct quant_config **out, const struct place *place,
                                   const struct model_source *source, struct reel_error *err) {
    struct file_map map = { 0 };
    char *path = NULL;
    json_t *whole = NULL;
    enum reel_status status = model_source_map(source, place->file, &map, &path, err);
    if (status == REEL_OK) status = json_read(&whole, path, map.bytes, map.size, err);
    file_map_close(&map);
    const json_t *object = !place->key   ? find_object(whole)
                           : *place->key ? json_object_get(whole, place->key)
                                         : whole;
    struct quant_config *c = NULL;
    if (status == REEL_OK && object)
        status = mem_zeroed(&c, 1, sizeof *c, "how weights are quantised", err);
    if (status == REEL_OK && object) {
        c->path = path;
        path = NULL;
        status = read_method(c, object, place->method, err);
    }
    if (status != REEL_OK) {
        quant_config_free(c);
        c = NULL;
    }
    *out = c;
    json_decref(whole);
    mem_free(path);
    return status;
}

enum reel_status quant_config_read(struct quant_config **out, const struct model_source *source,
                                   struct reel_error *err) {
    enum reel_status status = REEL_OK;
    *out = NULL;
    for (size_t i = 0; i < sizeof places / sizeof places[0] && status == REEL_OK && !*out; i++)
        if (model_source_has(source, places[i].file))
            status = read_place(out, &places[i], source, err);
    return status;
}

void quant_config_free(struct quant_config *c) {
    if (!c) return;
    for (int i = 0; i < c->n_ignored; i++)
        mem_free(c->ignored[i]);
    mem_free(c->ignored);
    mem_free(c->path);
    mem_free(c);
}
