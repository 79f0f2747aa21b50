/* Quantised files that are wrong in one place: each tensor of each format missing, of another type
 * or shape, scales that are no scales, indices out of range, configs that say something else. The
 * files are the goldens, changed in memory. */
#include "base/json.h"
#include "model/model.h"
#include "model/safetensors.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define FOLDER "tests/golden/quantised/"

static void *must(void *p) {
    assert_non_null(p);
    return p;
}

/* ---- a folder in memory, whose parts can be changed ------------------------------------------ */

struct folder {
    char name[60];
    json_t *header; /* of model.safetensors: entries in place of the file's order */
    struct file_map file, config, other;
    char other_name[40]; /* the second file that says how weights are quantised, or "" */
    unsigned char *payload;
    size_t n_payload;
};

static bool open_file(struct file_map *map, const char *folder, const char *name) {
    char path[200];
    snprintf(path, sizeof path, "%s%s/%s", FOLDER, folder, name);
    return file_map_open(map, path, NULL) == REEL_OK;
}

static void folder_open(struct folder *f, const char *name) {
    static const char *const others[] = { "quantize_config.json", "hf_quant_config.json" };
    uint64_t n = 0;
    *f = (struct folder){ 0 };
    snprintf(f->name, sizeof f->name, "%s", name);
    assert_true(open_file(&f->file, name, "model.safetensors"));
    assert_true(open_file(&f->config, name, "config.json"));
    for (int i = 0; i < 2; i++)
        if (!f->other_name[0] && open_file(&f->other, name, others[i]))
            snprintf(f->other_name, sizeof f->other_name, "%s", others[i]);
    memcpy(&n, f->file.bytes, sizeof n);
    assert_int_equal(json_read(&f->header, name, f->file.bytes + 8, (size_t)n, NULL), REEL_OK);
    json_object_del(f->header, "__metadata__");
    f->n_payload = f->file.size - 8 - (size_t)n;
    f->payload = must(malloc(f->n_payload));
    memcpy(f->payload, f->file.bytes + 8 + n, f->n_payload);
}

static void folder_close(struct folder *f) {
    json_decref(f->header);
    free(f->payload);
    file_map_close(&f->file);
    file_map_close(&f->config);
    file_map_close(&f->other);
}

static size_t offset_of(const json_t *entry, size_t i) {
    return (size_t)json_integer_value(json_array_get(json_object_get(entry, "data_offsets"), i));
}

/* A safetensors file of the entries as they are now, each with its own bytes. */
static unsigned char *folder_write(const struct folder *f, size_t *n) {
    json_t *header = must(json_object()), *entry;
    unsigned char *out = must(calloc(1, 2 * f->n_payload + (1 << 16)));
    unsigned char *bytes = must(malloc(2 * f->n_payload + 1));
    size_t at = 0;
    const char *name;
    json_object_foreach(f->header, name, entry) {
        const size_t begin = offset_of(entry, 0), end = offset_of(entry, 1);
        json_t *copy = must(json_deep_copy(entry));
        memcpy(bytes + at, f->payload + begin, end - begin);
        json_t *offsets = must(json_pack("[I,I]", (json_int_t)at, (json_int_t)(at + end - begin)));
        assert_int_equal(json_object_set_new(copy, "data_offsets", offsets), 0);
        assert_int_equal(json_object_set_new(header, name, copy), 0);
        at += end - begin;
    }
    char *text = must(json_dumps(header, JSON_COMPACT));
    const uint64_t length = strlen(text);
    assert_true(length < 1 << 16);
    memcpy(out, &length, 8);
    memcpy(out + 8, text, length);
    memcpy(out + 8 + length, bytes, at);
    *n = 8 + (size_t)length + at;
    free(text);
    free(bytes);
    json_decref(header);
    return out;
}

/* Opens what is written now, with `config` in place of its own where that is given. */
static enum reel_status folder_map(const struct folder *f, const char *config,
                                   struct reel_error *err) {
    struct model m = { 0 };
    size_t n = 0;
    unsigned char *file = folder_write(f, &n);
    const struct reel_memory_file files[] = {
        { "model.safetensors", file, n },
        { "config.json", config ? (const void *)config : f->config.bytes,
          config ? strlen(config) : f->config.size },
        { f->other_name, f->other.bytes, f->other.size },
    };
    *err = (struct reel_error){ 0 };
    enum reel_status status =
        model_source_open_memory(&m.source, f->name, files, f->other_name[0] ? 3 : 2, err);
    if (status == REEL_OK) status = model_config_read(&m.config, &m.source, err);
    if (status == REEL_OK) status = safetensors_open(&m.tensors, &m.source, err);
    if (status == REEL_OK) status = quant_config_read(&m.tensors.quant, &m.source, err);
    if (status == REEL_OK) status = weights_map(&m.weights, &m.config, &m.tensors, false, err);
    model_release(&m);
    free(file);
    return status;
}

/* Refused, in words that name the layer and the folder. */
static void expect_refused(const struct folder *f, const char *what, const char *words) {
    struct reel_error err;
    if (folder_map(f, NULL, &err) == REEL_OK) fail_msg("%s: %s: was read", f->name, what);
    if (!strstr(err.text, words) || !strstr(err.text, f->name))
        fail_msg("%s: %s: \"%s\" does not say %s", f->name, what, err.text, words);
}

static const char *const folders[] = {
    "fp8",       "float-quantized", "int-quantized", "pack-quantized", "fp4-pack-quantized",
    "gptq-int4", "gptq-v2-int8",    "awq",           "modelopt",       "bitsandbytes"
};
#define N_FOLDERS ((int)(sizeof folders / sizeof folders[0]))

/* Tensors of one layer are enough: up_proj and gate_proj, in which the goldens differ. */
static bool is_tried(const char *name) {
    return strstr(name, "up_proj") || strstr(name, "gate_proj") || strstr(name, "down_proj");
}

/* What may be missing as far as the tensors of a layer tell: scales of activations, an order, and
 * zero points where the config has layers with and without them. */
static bool is_optional(const char *name) {
    return strstr(name, "g_idx") || strstr(name, "weight_zero_point");
}

static void drop(json_t *header, const char *name) { json_object_del(header, name); }

/* The file without one tensor, whose name the words must have, or its layer's. */
static void try_each(const struct folder *f, void (*change)(json_t *header, const char *name)) {
    const char *name;
    json_t *entry;
    json_object_foreach(f->header, name, entry) {
        char layer[100];
        struct folder changed = *f;
        if (!is_tried(name) || strstr(name, "input_scale")) continue;
        if (change == drop && is_optional(name)) continue;
        snprintf(layer, sizeof layer, "%s", name);
        *strstr(layer, "_proj") = '\0';
        changed.header = must(json_deep_copy(f->header));
        change(changed.header, name);
        expect_refused(&changed, name, layer);
        json_decref(changed.header);
    }
}

/* Another type of as many bits. */
static void retype(json_t *header, const char *name) {
    static const char *const pairs[][2] = {
        { "F32", "U32" }, { "I32", "F32" },    { "BF16", "I16" },   { "F16", "U16" },
        { "U8", "I8" },   { "I8", "F8_E5M2" }, { "F8_E4M3", "U8" }, { "I64", "F64" },
    };
    json_t *entry = json_object_get(header, name);
    const char *type = json_string_value(json_object_get(entry, "dtype"));
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (strcmp(type, pairs[i][0]) == 0) {
            json_object_set_new(entry, "dtype", json_string(pairs[i][1]));
            return;
        }
    fail_msg("%s has type %s", name, type);
}

/* Half as many rows or values; a single value becomes none. */
static void shorten(json_t *header, const char *name) {
    json_t *entry = json_object_get(header, name), *shape = json_object_get(entry, "shape");
    const size_t begin = offset_of(entry, 0), end = offset_of(entry, 1);
    const json_int_t rows = json_integer_value(json_array_get(shape, 0));
    size_t bytes = 0;
    if (json_array_size(shape) == 0)
        json_array_append_new(shape, json_integer(0));
    else
        json_array_set_new(shape, 0, json_integer(rows / 2));
    if (rows) bytes = (end - begin) / (size_t)rows * (size_t)(rows / 2);
    json_object_set_new(entry, "data_offsets",
                        json_pack("[I,I]", (json_int_t)begin, (json_int_t)(begin + bytes)));
}

static void each_change(void (*change)(json_t *header, const char *name)) {
    for (int i = 0; i < N_FOLDERS; i++) {
        struct folder f;
        struct reel_error err;
        folder_open(&f, folders[i]);
        if (folder_map(&f, NULL, &err) != REEL_OK) fail_msg("%s: %s", folders[i], err.text);
        try_each(&f, change);
        folder_close(&f);
    }
}

static void a_missing_tensor_is_refused(void **state) {
    (void)state;
    each_change(drop);
}

static void a_tensor_of_another_type_is_refused(void **state) {
    (void)state;
    each_change(retype);
}

static void a_short_tensor_is_refused(void **state) {
    (void)state;
    each_change(shorten);
}

/* ---- values ---------------------------------------------------------------------------------- */

#define L "model.layers.0."
static const struct bad_value {
    const char *folder, *tensor;
    int bytes; /* of the value that is put at the tensor's second place, or its only one */
    uint32_t value;
    const char *words;
} bad_values[] = {
    { "fp8", L "mlp.up_proj.weight_scale_inv", 2, 0x7fc0, "nan" },
    { "fp8", L "mlp.up_proj.weight_scale_inv", 2, 0x7f80, "inf" },
    { "fp8", L "mlp.up_proj.weight_scale_inv", 2, 0, "value 1 is 0, allowed is" },
    { "float-quantized", L "mlp.up_proj.weight_scale", 4, 0x7fc00000, "nan" },
    { "float-quantized", L "mlp.gate_proj.weight_scale", 2, 0x7c00, "inf" },
    { "float-quantized", L "mlp.down_proj.weight_scale", 1, 255, "nan" },
    { "int-quantized", L "mlp.gate_proj.weight_scale", 2, 0x8000, "-0" },
    { "pack-quantized", L "mlp.gate_proj.weight_g_idx", 4, 2,
      "value 1 is 2, allowed are groups 0" },
    { "pack-quantized", L "mlp.gate_proj.weight_g_idx", 4, 0xffffffffu, "is -1" },
    { "pack-quantized", L "mlp.gate_proj.weight_shape", 8, 65, "says [96, 65]" },
    { "pack-quantized", L "mlp.up_proj.weight_scale", 2, 0xff80, "-inf" },
    { "fp4-pack-quantized", L "mlp.up_proj.weight_scale", 1, 0, "" }, /* e2m1's may be 0 */
    { "fp4-pack-quantized", L "self_attn.q_proj.weight_scale", 1, 0x7f, "nan" },
    { "fp4-pack-quantized", L "mlp.up_proj.weight_global_scale", 4, 0, "value 0 is 0" },
    { "fp4-pack-quantized", L "mlp.down_proj.weight_scale", 1, 255, "nan" },
    { "gptq-int4", L "mlp.down_proj.g_idx", 4, 3, "value 1 is 3, allowed are groups 0 to 2" },
    { "gptq-int4", L "mlp.down_proj.scales", 2, 0x7e00, "nan" },
    { "gptq-v2-int8", L "mlp.up_proj.scales", 2, 0, "value 1 is 0" },
    { "awq", L "mlp.up_proj.scales", 2, 0xfc00, "-inf" },
    { "modelopt", L "mlp.gate_proj.weight_scale_2", 4, 0x7f800000, "inf" },
    { "modelopt", L "mlp.up_proj.weight_scale", 4, 0, "value 0 is 0" },
    { "bitsandbytes", L "mlp.up_proj.weight.absmax", 4, 0x7fc00000, "nan" },
    { "bitsandbytes", L "mlp.up_proj.weight.absmax", 4, 0, "" },
    { "bitsandbytes", L "mlp.up_proj.weight.quant_map", 4, 0x7f800000, "inf" },
    { "bitsandbytes", L "mlp.gate_proj.weight.nested_absmax", 4, 0x7f800000, "inf" },
    { "bitsandbytes", L "mlp.gate_proj.weight.nested_quant_map", 4, 0xffc00000u, "nan" },
    { "bitsandbytes", L "mlp.gate_proj.weight.quant_state.bitsandbytes__nf4", 1, '}', "JSON" },
};

static void values_that_are_none_are_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_values / sizeof bad_values[0]; i++) {
        const struct bad_value *bad = &bad_values[i];
        struct folder f;
        struct reel_error err;
        folder_open(&f, bad->folder);
        const json_t *entry = must(json_object_get(f.header, bad->tensor));
        const size_t begin = offset_of(entry, 0), size = (size_t)bad->bytes;
        const uint64_t value = bad->value;
        const size_t at = offset_of(entry, 1) - begin >= 2 * size ? size : 0;
        memcpy(f.payload + begin + at, &value, size);
        if (bad->words[0])
            expect_refused(&f, bad->tensor, bad->tensor);
        else if (folder_map(&f, NULL, &err) != REEL_OK)
            fail_msg("%s: %s", bad->tensor, err.text);
        if (bad->words[0] && folder_map(&f, NULL, &err) != REEL_OK && !strstr(err.text, bad->words))
            if (strcmp(bad->words, "JSON") != 0)
                fail_msg("%s: \"%s\" does not say %s", bad->tensor, err.text, bad->words);
        folder_close(&f);
    }
}

/* ---- groups that do not divide a row --------------------------------------------------------- */

static const struct bad_groups {
    const char *folder, *tensor;
    int axis, n; /* of its shape, of which the bytes go on into the next tensor's */
    const char *words;
} bad_groups[] = {
    { "pack-quantized", L "mlp.gate_proj.weight_scale", 1, 3, "3 groups in rows of 64" },
    { "int-quantized", L "mlp.up_proj.weight_scale", 1, 7, "7 groups in rows of 64" },
    { "float-quantized", L "mlp.gate_proj.weight_scale", 1, 3, "3 groups in rows of 64" },
    { "pack-quantized", L "mlp.down_proj.weight_scale", 1, 5, "5 groups in rows of 96" },
    { "pack-quantized", L "mlp.gate_proj.weight_scale", 1, 9, "9 groups in rows of 64" },
    { "gptq-int4", L "mlp.down_proj.scales", 0, 5, "5 groups in rows of 96" },
    { "gptq-v2-int8", L "mlp.up_proj.scales", 0, 3, "3 groups in rows of 64" },
    { "awq", L "mlp.up_proj.scales", 0, 3, "3 groups in rows of 64" },
};

static void groups_that_do_not_divide_a_row_are_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_groups / sizeof bad_groups[0]; i++) {
        const struct bad_groups *bad = &bad_groups[i];
        struct folder f;
        folder_open(&f, bad->folder);
        json_t *entry = must(json_object_get(f.header, bad->tensor));
        json_t *shape = json_object_get(entry, "shape");
        const char *type = json_string_value(json_object_get(entry, "dtype"));
        const size_t begin = offset_of(entry, 0), each = strcmp(type, "F32") == 0 ? 4 : 2;
        size_t bytes = each;
        if (json_array_size(shape) == 1) json_array_append_new(shape, json_integer(1));
        json_array_set_new(shape, (size_t)bad->axis, json_integer(bad->n));
        for (size_t j = 0; j < json_array_size(shape); j++)
            bytes *= (size_t)json_integer_value(json_array_get(shape, j));
        assert_true(begin + bytes <= f.n_payload);
        json_object_set_new(entry, "data_offsets",
                            json_pack("[I,I]", (json_int_t)begin, (json_int_t)(begin + bytes)));
        expect_refused(&f, bad->tensor, bad->tensor);
        expect_refused(&f, bad->tensor, bad->words);
        folder_close(&f);
    }
}

/* ---- configs --------------------------------------------------------------------------------- */

#define SIZES                                                                                      \
    "\"model_type\":\"qwen3\",\"hidden_size\":64,\"num_hidden_layers\":1,"                         \
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":32,"                         \
    "\"intermediate_size\":96,\"vocab_size\":32,\"rms_norm_eps\":1e-6,"
#define CONFIG(quantization)                                                                       \
    "{" SIZES "\"tie_word_embeddings\":false,\"quantization_config\":" quantization "}"
#define PACKED(rest, weights)                                                                      \
    CONFIG("{\"quant_method\":\"compressed-tensors\"," rest                                        \
           "\"config_groups\":{\"group_0\":{\"targets\":[\"Linear\"],\"weights\":" weights "}}}")
#define INT4 "{\"num_bits\":4,\"type\":\"int\",\"strategy\":\"group\",\"group_size\":32}"

static const struct bad_config {
    const char *folder, *config;
    enum reel_status status;
    const char *words;
} bad_configs[] = {
    { "fp8", CONFIG("{\"quant_method\":\"quanto\"}"), REEL_E_UNSUPPORTED, "\"quanto\"" },
    { "fp8", CONFIG("{}"), REEL_E_UNSUPPORTED, "\"unknown\"" },
    { "fp8", CONFIG("[1]"), REEL_E_FORMAT, "must be an object" },
    { "fp8", CONFIG("{\"quant_method\":\"fp8\",\"fmt\":\"e5m2\"}"), REEL_E_UNSUPPORTED, "e5m2" },
    { "fp8", CONFIG("{\"quant_method\":\"fp8\",\"weight_block_size\":[0,128]}"), REEL_E_FORMAT,
      "weight_block_size" },
    { "fp8", CONFIG("{\"quant_method\":\"fp8\",\"weight_block_size\":[64,64]}"), REEL_E_FORMAT,
      "q_proj.weight_scale_inv" },
    { "fp8",
      CONFIG("{\"quant_method\":\"fp8\",\"weight_block_size\":[48,32],"
             "\"modules_to_not_convert\":[\"model.layers.0.mlp.up_proj\"]}"),
      REEL_E_FORMAT, "to ignore" },
    { "fp8", CONFIG("{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32}"), REEL_E_UNSUPPORTED,
      "F8_E4M3" },
    { "fp8", CONFIG("null"), REEL_E_UNSUPPORTED, "F8_E4M3" },
    { "gptq-v2-int8", CONFIG("{\"quant_method\":\"gptq\",\"bits\":3,\"group_size\":32}"),
      REEL_E_UNSUPPORTED, "3 bits" },
    { "gptq-v2-int8", CONFIG("{\"quant_method\":\"gptq\",\"bits\":8,\"group_size\":64}"),
      REEL_E_FORMAT, "groups of 64" },
    { "gptq-v2-int8", CONFIG("{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":32}"),
      REEL_E_FORMAT, "4 bits" },
    { "gptq-v2-int8",
      CONFIG("{\"quant_method\":\"gptq\",\"bits\":8,\"checkpoint_format\":\"marlin\"}"),
      REEL_E_UNSUPPORTED, "\"marlin\"" },
    { "awq", CONFIG("{\"quant_method\":\"awq\",\"bits\":4,\"version\":\"gemv\"}"),
      REEL_E_UNSUPPORTED, "\"gemv\"" },
    { "awq", CONFIG("{\"quant_method\":\"awq\",\"bits\":8}"), REEL_E_UNSUPPORTED, "8 bits" },
    { "bitsandbytes", CONFIG("{\"quant_method\":\"bitsandbytes\",\"load_in_8bit\":true}"),
      REEL_E_UNSUPPORTED, "load_in_4bit" },
    { "modelopt", CONFIG("{\"quant_method\":\"modelopt\",\"quant_algo\":\"W4A8_AWQ\"}"),
      REEL_E_UNSUPPORTED, "W4A8_AWQ" },
    { "pack-quantized", PACKED("\"format\":\"marlin-24\",", INT4), REEL_E_UNSUPPORTED,
      "marlin-24" },
    { "pack-quantized", PACKED("\"transform_config\":{\"a\":1},", INT4), REEL_E_UNSUPPORTED,
      "transform_config" },
    { "pack-quantized", PACKED("\"sparsity_config\":{\"format\":\"sparse-bitmask\"},", INT4),
      REEL_E_UNSUPPORTED, "sparse-bitmask" },
    { "pack-quantized", PACKED("", "{\"num_bits\":6,\"type\":\"int\"}"), REEL_E_UNSUPPORTED,
      "6 bits" },
    { "pack-quantized",
      PACKED("", "{\"num_bits\":4,\"type\":\"int\",\"strategy\":\"group\",\"group_size\":32,"
                 "\"symmetric\":false}"),
      REEL_E_FORMAT, "weight_zero_point\" is missing" },
    { "pack-quantized", PACKED("\"ignore\":[\"re:.*up_.roj$\"],", INT4), REEL_E_FORMAT,
      "8 bits" }, /* what the tensors say comes first */
    { "pack-quantized", PACKED("\"ignore\":[7],", INT4), REEL_E_FORMAT, "names only" },
};

static void configs_that_say_something_else_are_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_configs / sizeof bad_configs[0]; i++) {
        const struct bad_config *bad = &bad_configs[i];
        struct folder f;
        struct reel_error err;
        folder_open(&f, bad->folder);
        f.other_name[0] = '\0';
        const enum reel_status status = folder_map(&f, bad->config, &err);
        if (status != bad->status || !strstr(err.text, bad->words))
            fail_msg("%s: status %d, \"%s\", expected %s", bad->config, (int)status, err.text,
                     bad->words);
        folder_close(&f);
    }
}

static void ignored_layers_are_found_by_name_and_by_expression(void **state) {
    (void)state;
    char *names[] = { "lm_head", "re:.*linear_attn.*", "re:^model\\.layers\\.(0|2)\\.mlp.*",
                      "re:(?<=a)b" };
    const struct quant_config c = { .ignored = names, .n_ignored = 4 };
    assert_true(quant_config_ignores(&c, "lm_head"));
    assert_false(quant_config_ignores(&c, "model.lm_head"));
    assert_true(quant_config_ignores(&c, "model.layers.7.linear_attn.in_proj_a"));
    assert_true(quant_config_ignores(&c, "model.layers.2.mlp.up_proj"));
    assert_false(quant_config_ignores(&c, "model.layers.1.mlp.up_proj"));
    assert_false(quant_config_ignores(&c, "b"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_missing_tensor_is_refused),
        cmocka_unit_test(a_tensor_of_another_type_is_refused),
        cmocka_unit_test(a_short_tensor_is_refused),
        cmocka_unit_test(values_that_are_none_are_refused),
        cmocka_unit_test(groups_that_do_not_divide_a_row_are_refused),
        cmocka_unit_test(configs_that_say_something_else_are_refused),
        cmocka_unit_test(ignored_layers_are_found_by_name_and_by_expression),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
