/* Scales of keys and values in checkpoints: every name, number and type they come under. */
#include "model/kv_scales.h"
#include "model/safetensors.h"
#include "support/model_bytes.h"

#include "base/memory.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { HEADS = 2, LAYERS = 3 };

struct stored {
    const char *name, *type, *shape;
    float values[HEADS + 1];
    int n;
};

/* Layers 0 and 2 attend. */
static enum reel_status read_stored(const struct stored *all, int n, float **scales,
                                    struct reel_error *err) {
    struct model_config config = { .n_layers = LAYERS, .n_kv_heads = HEADS };
    struct model_source source;
    struct tensor_file file;
    struct bytes b = { 0 };
    char header[4000] = "{", *at = header + 1;
    int used = 0;
    for (int i = 0; i < n; i++) {
        const int bytes = all[i].n * (strcmp(all[i].type, "F32") == 0 ? 4 : 2);
        at += sprintf(at, "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%d,%d]}",
                      i ? "," : "", all[i].name, all[i].type, all[i].shape, used, used + bytes);
        used += bytes;
    }
    strcpy(at, "}");
    bytes_safetensors(&b, header, (size_t)used);
    unsigned char *to = b.data + b.n - used;
    for (int i = 0; i < n; i++)
        for (int j = 0; j < all[i].n; j++) {
            const uint16_t half = all[i].type[0] == 'B' ? bf16_from_f32(all[i].values[j])
                                                        : f16_from_f32(all[i].values[j]);
            const bool wide = strcmp(all[i].type, "F32") == 0;
            memcpy(to, wide ? (const void *)&all[i].values[j] : &half, wide ? 4 : 2);
            to += wide ? 4 : 2;
        }
    config.layer_kinds[1] = LAYER_DELTA;
    const struct reel_memory_file one = { "model.safetensors", b.data, b.n };
    assert_int_equal(model_source_open_memory(&source, "mem", &one, 1, err), REEL_OK);
    enum reel_status status = safetensors_open(&file, &source, err);
    model_source_release(&source);
    if (status != REEL_OK) fail_msg("%s", err->text);
    status = kv_scales_read(scales, &config, &file, "model.", err);
    tensor_file_release(&file);
    bytes_release(&b);
    return status;
}

static void expect(const struct stored *all, int n, const float *want) {
    struct reel_error err;
    float *scales = NULL;
    if (read_stored(all, n, &scales, &err) != REEL_OK) fail_msg("%s", err.text);
    if (!want) assert_null(scales);
    for (int i = 0; want && i < 2 * HEADS * 2; i++)
        if (scales[i] != want[i])
            fail_msg("scale %d is %g, not %g", i, (double)scales[i], (double)want[i]);
    mem_free(scales);
}

static void every_name_and_shape_is_found(void **state) {
    (void)state;
    const struct stored usual[] = {
        { "model.layers.0.self_attn.k_scale", "F32", "[]", { 0.5f }, 1 },
        { "model.layers.0.self_attn.v_scale", "BF16", "[1]", { 3 }, 1 },
        { "model.layers.2.self_attn.k_scale", "F32", "[2]", { 7, 8 }, 2 },
        { "model.layers.2.self_attn.v_scale", "F16", "[1,2,1,1]", { 9, 10 }, 2 },
    };
    expect(usual, 4, (float[]){ 0.5f, 3, 0.5f, 3, 7, 9, 8, 10 });
    const struct stored others[] = {
        { "model.layers.0.self_attn.k_proj.k_scale", "F32", "[1]", { 2 }, 1 },
        { "model.layers.0.self_attn.v_proj.v_scale", "F32", "[1]", { 4 }, 1 },
        { "model.layers.2.self_attn.kv_scale", "F32", "[1]", { 5 }, 1 },
    };
    expect(others, 3, (float[]){ 2, 4, 2, 4, 5, 5, 5, 5 });
    const struct stored one[] = {
        { "model.layers.2.self_attn.attn.v_scale", "F32", "[1]", { 6 }, 1 },
        { "model.layers.1.self_attn.k_scale", "F32", "[1]", { 6 }, 1 }, /* does not attend */
    };
    expect(one, 2, (float[]){ 0, 0, 0, 0, 0, 6, 0, 6 });
    const struct stored none[] = {
        { "model.layers.0.self_attn.k_proj.weight_scale", "F32", "[1]", { 2 }, 1 },
        { "layers.0.self_attn.k_scale", "F32", "[1]", { 2 }, 1 },
        { "model.layers.3.self_attn.k_scale", "F32", "[1]", { 2 }, 1 },
    };
    expect(none, 3, NULL);
}

static void what_is_no_scale_is_refused(void **state) {
    (void)state;
    static const float odd[] = { 0, -1, NAN, INFINITY };
    struct reel_error err;
    float *scales = NULL;
    for (int i = 0; i < 4; i++) {
        const struct stored bad = {
            "model.layers.2.self_attn.v_scale", "F32", "[2]", { 1, odd[i] }, 2
        };
        assert_int_equal(read_stored(&bad, 1, &scales, &err), REEL_E_FORMAT);
        assert_null(scales);
        assert_non_null(strstr(err.text, "\"model.layers.2.self_attn.v_scale\" has the scale"));
    }
    const struct stored three = {
        "model.layers.0.self_attn.k_scale", "F32", "[3]", { 1, 1, 1 }, 3
    };
    assert_int_equal(read_stored(&three, 1, &scales, &err), REEL_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "is f32 [3]; a scale of keys or values is 1 number or 2"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_name_and_shape_is_found),
        cmocka_unit_test(what_is_no_scale_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
