/* Folders with narrow weights: what is in them, byte by byte, and when there is none. That
 * transformers reads the same values was compared by tools/compare_compressed.py. */
#define _DEFAULT_SOURCE /* mkdtemp */
#include "base/file_map.h"
#include "model/matrix.h"
#include "reel.h"

#include <dirent.h>
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static const char demo[] = "models/demo";
static struct reel_model *model;
static char parent[] = "/tmp/reel-quantize-XXXXXX", folder[64];

static struct reel_model *open_model(const char *path, const char *weights) {
    struct reel_model *m = NULL;
    struct reel_error err;
    const struct reel_model_options options = {
        .size = sizeof options, .device = "cpu", .cpu_path = "reference", .weights = weights
    };
    if (reel_model_open(&m, path, &options, &err) != REEL_OK) fail_msg("%s", err.text);
    return m;
}

static int enter(void **state) {
    (void)state;
    if (!mkdtemp(parent)) return -1;
    snprintf(folder, sizeof folder, "%s/model", parent);
    model = open_model(demo, NULL);
    return 0;
}

static void clear(void) {
    char path[400];
    DIR *dir = opendir(folder);
    for (const struct dirent *e; dir && (e = readdir(dir));) {
        snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
        unlink(path);
    }
    if (dir) closedir(dir);
    rmdir(folder);
}

static int leave(void **state) {
    (void)state;
    reel_model_close(model);
    clear();
    return rmdir(parent);
}

static enum reel_status write_folder(const struct reel_model *m, const char *weights,
                                     uint64_t shard_bytes, struct reel_quantize_result *result,
                                     struct reel_error *err) {
    const struct reel_quantize_options options = {
        .size = sizeof options, .weights = weights, .n_threads = 2, .shard_bytes = shard_bytes
    };
    *result = (struct reel_quantize_result){ .size = sizeof *result };
    return reel_model_quantize(m, folder, &options, result, err);
}

/* ---- reading it ---- */

struct shard {
    struct file_map map;
    json_t *header;
    const unsigned char *payload;
};

static struct shard open_shard(const char *path) {
    struct shard s = { 0 };
    struct reel_error err;
    json_error_t why;
    uint64_t n = 0;
    if (file_map_open(&s.map, path, &err) != REEL_OK) fail_msg("%s", err.text);
    memcpy(&n, s.map.bytes, sizeof n);
    s.header = json_loadb((const char *)s.map.bytes + 8, n, JSON_REJECT_DUPLICATES, &why);
    if (!s.header) fail_msg("%s: %s", path, why.text);
    s.payload = s.map.bytes + 8 + n;
    assert_int_equal(((uintptr_t)s.payload - (uintptr_t)s.map.bytes) % 8, 0);
    return s;
}

static void close_shard(struct shard *s) {
    json_decref(s->header);
    file_map_close(&s->map);
}

/* Of this type and shape; NULL when there is none. */
static const unsigned char *tensor(const struct shard *s, const char *name, const char *suffix,
                                   const char *dtype, int rows, int columns) {
    char full[200];
    snprintf(full, sizeof full, "%s%s", name, suffix);
    const json_t *t = json_object_get(s->header, full);
    if (!t) return NULL;
    const json_t *shape = json_object_get(t, "shape");
    assert_string_equal(json_string_value(json_object_get(t, "dtype")), dtype);
    assert_int_equal(json_integer_value(json_array_get(shape, 0)), rows);
    if (columns) assert_int_equal(json_integer_value(json_array_get(shape, 1)), columns);
    const json_t *offsets = json_object_get(t, "data_offsets");
    const json_int_t at = json_integer_value(json_array_get(offsets, 0));
    assert_in_range(json_integer_value(json_array_get(offsets, 1)), (uintmax_t)at,
                    s->map.size - (size_t)(s->payload - s->map.bytes));
    return s->payload + at;
}

static float bf16_at(const unsigned char *p, size_t i) {
    return bf16_to_f32((uint16_t)(p[2 * i] | p[2 * i + 1] << 8));
}

/* What the format says that the weight is worth. */
static float value(const unsigned char *codes, const char *form, size_t i) {
    if (strcmp(form, "fp8") == 0) return e4m3_to_f32(codes[i]);
    if (strcmp(form, "int8") == 0) return (float)codes[i] - 128;
    return (float)(codes[i / 2] >> (i % 2 * 4) & 15) - 8;
}

struct sums {
    double lost, all;
    int n_matrices, n_copies;
};

static void compare_matrix(const struct shard *s, const char *name, const char *form, int rows,
                           int columns, const unsigned char *wide, struct sums *sums) {
    const bool four = strcmp(form, "int4") == 0, floats = strcmp(form, "fp8") == 0;
    const int group = four ? 128 : columns;
    const unsigned char *codes =
        floats ? tensor(s, name, ".weight", "F8_E4M3", rows, columns)
               : tensor(s, name, ".weight_packed", "I32", rows, columns / (four ? 8 : 4));
    const unsigned char *scales = tensor(s, name, ".weight_scale", "BF16", rows, columns / group);
    if (!codes || !scales) fail_msg("%s has no codes or no scales", name);
    if (!floats) {
        const int64_t sizes[] = { rows, columns };
        assert_memory_equal(tensor(s, name, ".weight_shape", "I64", 2, 0), sizes, sizeof sizes);
    }
    for (int r = 0; r < rows; r++) {
        for (int k = 0; k < columns; k++) {
            const size_t i = (size_t)r * (size_t)columns + (size_t)k;
            const float x = bf16_at(wide, i);
            const float y = value(codes, form, i) * bf16_at(scales, i / (size_t)group);
            sums->lost += pow((double)(x - y), 2);
            sums->all += pow((double)x, 2);
        }
    }
    sums->n_matrices++;
}

/* Every tensor of the demo model against that of the folder. */
static void compare_all(const struct shard *source, const struct shard *s, const char *form,
                        struct sums *sums) {
    const char *name = NULL;
    json_t *t = NULL;
    json_object_foreach(source->header, name, t) {
        char base[200];
        const json_t *shape = json_object_get(t, "shape");
        if (!shape) continue; /* __metadata__ */
        const int rows = (int)json_integer_value(json_array_get(shape, 0));
        const int columns = (int)json_integer_value(json_array_get(shape, 1));
        const unsigned char *wide = tensor(source, name, "", "BF16", rows, columns);
        snprintf(base, sizeof base, "%.*s", (int)(strlen(name) - strlen(".weight")), name);
        if (columns && strstr(name, "layers.")) {
            compare_matrix(s, base, form, rows, columns, wide, sums);
            continue;
        }
        const unsigned char *copy = tensor(s, name, "", "BF16", rows, columns);
        if (!copy) fail_msg("%s is not there", name);
        assert_memory_equal(copy, wide, (size_t)rows * (size_t)(columns ? columns : 1) * 2);
        sums->n_copies++;
    }
}

static void codes_and_scales_are_worth_what_the_model_has_nearly(void **state) {
    (void)state;
    static const char *const forms[] = { "int8", "int4", "fp8" };
    static const double most[] = { 0.008, 0.11, 0.025 };
    struct shard source = open_shard("models/demo/model.safetensors");
    for (int i = 0; i < 3; i++) {
        struct reel_quantize_result result;
        struct reel_error err;
        struct sums sums = { 0 };
        char path[100];
        if (write_folder(model, forms[i], 0, &result, &err)) fail_msg("%s", err.text);
        snprintf(path, sizeof path, "%s/model.safetensors", folder);
        struct shard s = open_shard(path);
        compare_all(&source, &s, forms[i], &sums);
        const double error = sqrt(sums.lost / sums.all);
        print_message("%s: %.4f off\n", forms[i], error);
        assert_true(error > 0 && error < most[i]);
        assert_true(fabs(result.error - error) < 1e-4 * error);
        assert_int_equal(sums.n_matrices, 8 * 7);
        assert_int_equal(result.n_matrices, sums.n_matrices);
        assert_int_equal(sums.n_copies, 2 + 8 * 4);
        assert_int_equal(result.n_files, 1);
        assert_true(result.bytes < s.map.size && result.bytes > s.map.size - 65536);
        close_shard(&s);
        clear();
    }
    close_shard(&source);
}

static void compare_file(const char *name) {
    struct file_map a = { 0 }, b = { 0 };
    char path[100];
    struct reel_error err;
    snprintf(path, sizeof path, "%s/%s", demo, name);
    if (file_map_open(&a, path, &err)) fail_msg("%s", err.text);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (file_map_open(&b, path, &err)) fail_msg("%s", err.text);
    assert_int_equal(a.size, b.size);
    assert_memory_equal(a.bytes, b.bytes, a.size);
    file_map_close(&a);
    file_map_close(&b);
}

static void config_and_tokenizer_go_along(void **state) {
    (void)state;
    struct reel_quantize_result result;
    struct reel_error err;
    char path[100];
    if (write_folder(model, "int4", 0, &result, &err)) fail_msg("%s", err.text);
    compare_file("tokenizer.json");
    compare_file("tokenizer_config.json");
    compare_file("generation_config.json");
    snprintf(path, sizeof path, "%s/config.json", folder);
    json_t *config = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
    json_t *before = json_load_file("models/demo/config.json", 0, NULL);
    assert_non_null(config);
    json_t *quantised = json_incref(json_object_get(config, "quantization_config"));
    const char *format = NULL, *method = NULL, *target = NULL, *strategy = NULL;
    int bits = 0, group = 0;
    assert_int_equal(json_unpack(quantised, "{s:s, s:s, s:{s:{s:[s*], s:{s:i, s:s, s:i}}}}",
                                 "format", &format, "quant_method", &method, "config_groups",
                                 "group_0", "targets", &target, "weights", "num_bits", &bits,
                                 "strategy", &strategy, "group_size", &group),
                     0);
    assert_string_equal(format, "pack-quantized");
    assert_string_equal(method, "compressed-tensors");
    assert_string_equal(strategy, "group");
    assert_string_equal(target, "re:.*mlp\\.down_proj$");
    assert_int_equal(bits, 4);
    assert_int_equal(group, 128);
    json_object_del(config, "quantization_config");
    assert_true(json_equal(config, before));
    json_decref(quantised);
    json_decref(config);
    json_decref(before);
    clear();
}

static void large_models_are_cut_between_matrices(void **state) {
    (void)state;
    struct reel_quantize_result result;
    struct reel_error err;
    struct sums sums = { 0 };
    char path[200];
    if (write_folder(model, "int4", 1500000, &result, &err)) fail_msg("%s", err.text);
    assert_in_range(result.n_files, 3, 6); /* one is the embedding's alone */
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", folder);
    json_t *index = json_load_file(path, 0, NULL);
    assert_non_null(index);
    const json_t *map = json_object_get(index, "weight_map");
    size_t n_named = 0;
    for (int i = 0; i < result.n_files; i++) {
        char name[64];
        const char *key = NULL;
        json_t *t = NULL;
        snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", i + 1, result.n_files);
        snprintf(path, sizeof path, "%s/%s", folder, name);
        struct shard s = open_shard(path);
        const size_t payload = s.map.size - (size_t)(s.payload - s.map.bytes);
        if (payload > 1500000) assert_int_equal(json_object_size(s.header), 2); /* one, and notes */
        json_object_foreach(s.header, key, t) {
            const size_t n = strlen(key);
            if (key[0] == '_') continue;
            assert_string_equal(json_string_value(json_object_get(map, key)), name);
            n_named++;
            if (n > 14 && strcmp(key + n - 14, ".weight_packed") == 0) {
                char scale[200];
                snprintf(scale, sizeof scale, "%.*s.weight_scale", (int)n - 14, key);
                assert_non_null(json_object_get(s.header, scale));
                sums.n_matrices++;
            }
        }
        close_shard(&s);
    }
    assert_int_equal(n_named, json_object_size(map));
    assert_int_equal(sums.n_matrices, 56);
    json_decref(index);
    clear();
}

/* ---- refusing ---- */

static int n_told;
static bool stop_at_the_ninth(void *user, const char *stage, uint64_t done, uint64_t total) {
    (void)user, (void)stage;
    assert_true(done < total);
    return ++n_told < 9;
}

static void nothing_is_written_where_it_cannot_be_whole(void **state) {
    (void)state;
    struct reel_quantize_result result;
    struct reel_error err;
    struct stat st;
    const struct {
        const char *weights, *says;
        enum reel_status status;
    } cases[] = { { "bf16", "bf16; allowed is int8, int4 or fp8", REEL_E_ARGUMENT },
                  { "q4_0", "another name", REEL_E_ARGUMENT },
                  { NULL, "weights is NULL", REEL_E_ARGUMENT } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(write_folder(model, cases[i].weights, 0, &result, &err), cases[i].status);
        if (!strstr(err.text, cases[i].says)) fail_msg("\"%s\"", err.text);
        assert_int_equal(lstat(folder, &st), -1);
    }
    /* quantised as it was loaded */
    struct reel_model *narrow = open_model(demo, "int8");
    assert_int_equal(write_folder(narrow, "int4", 0, &result, &err), REEL_E_STATE);
    assert_non_null(strstr(err.text, "while it was loaded"));
    reel_model_close(narrow);
    /* a folder that is there */
    assert_int_equal(mkdir(folder, 0700), 0);
    assert_int_equal(write_folder(model, "int4", 0, &result, &err), REEL_E_ARGUMENT);
    assert_non_null(strstr(err.text, "exists already"));
    assert_int_equal(rmdir(folder), 0); /* and is still empty */
    /* cancelled */
    const struct reel_quantize_options options = { .size = sizeof options,
                                                   .weights = "int8",
                                                   .progress = stop_at_the_ninth };
    assert_int_equal(reel_model_quantize(model, folder, &options, NULL, &err), REEL_E_CANCELLED);
    assert_int_equal(n_told, 9);
    assert_int_equal(rmdir(parent), 0); /* nothing is in it */
    assert_int_equal(mkdir(parent, 0700), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_and_scales_are_worth_what_the_model_has_nearly),
        cmocka_unit_test(config_and_tokenizer_go_along),
        cmocka_unit_test(large_models_are_cut_between_matrices),
        cmocka_unit_test(nothing_is_written_where_it_cannot_be_whole),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
