#include "model/kv_scales.h"

#include "base/memory.h"

#include <math.h>
#include <stdio.h>

/* In the order in which they are looked for, of K and of V. */
static const char *const names[][2] = {
    { "self_attn.k_scale", "self_attn.v_scale" },
    { "self_attn.attn.k_scale", "self_attn.attn.v_scale" },
    { "self_attn.k_proj.k_scale", "self_attn.v_proj.v_scale" },
    { "self_attn.kv_scale", "self_attn.kv_scale" },
    { "self_attn.attn.kv_scale", "self_attn.attn.kv_scale" },
};
enum { N_NAMES = sizeof names / sizeof *names };

static const struct tensor *find(const struct tensor_file *file, const char *prefix, int layer,
                                 int which) {
    char name[TENSOR_MAX_NAME + 1];
    const struct tensor *found = NULL;
    for (int i = 0; i < N_NAMES && !found; i++) {
        snprintf(name, sizeof name, "%slayers.%d.%s", prefix, layer, names[i][which]);
        found = tensor_find(file, name);
    }
    return found;
}

/* The scales of a layer's KV heads: every second float from `to` on. */
static enum reel_status read(const struct tensor_file *file, const struct tensor *t, int n_kv_heads,
                             float *to, struct reel_error *err) {
    char shape[96];
    int64_t n = 1;
    for (int i = 0; i < t->rank; i++)
        n *= t->shape[i];
    if ((n != 1 && n != n_kv_heads) || dtype_block_elements(t->dtype) != 1)
        return err_set(err, REEL_E_UNSUPPORTED,
                       "%s: tensor \"%s\" is %s %s; a scale of keys or values is 1 number or %d, "
                       "one for each KV head, of f32, f16 or bf16",
                       tensor_file_path(file, t), t->name, dtype_name(t->dtype),
                       tensor_shape_text(t->rank, t->shape, shape), n_kv_heads);
    for (int head = 0; head < n_kv_heads; head++) {
        const size_t at = n == 1 ? 0 : (size_t)head * (size_t)dtype_block_bytes(t->dtype);
        float scale = 0;
        dtype_to_f32(t->dtype, t->data + at, &scale, 1);
        if (!(scale > 0) || isinf(scale))
            return err_set(err, REEL_E_FORMAT,
                           "%s: tensor \"%s\" has the scale %g; allowed is a number above 0",
                           tensor_file_path(file, t), t->name, (double)scale);
        to[2 * (size_t)head] = scale;
    }
    return REEL_OK;
}

enum reel_status kv_scales_read(float **out, const struct model_config *config,
                                const struct tensor_file *file, const char *prefix,
                                struct reel_error *err) {
    const size_t heads = (size_t)config->n_kv_heads;
    const size_t layers = (size_t)model_layer_count(config, LAYER_ATTENTION);
    enum reel_status status = REEL_OK;
    size_t nth = 0;
    *out = NULL;
    for (int layer = 0; status == REEL_OK && layer < config->n_layers; layer++) {
        if (config->layer_kinds[layer] != LAYER_ATTENTION) continue;
        for (int which = 0; status == REEL_OK && which < 2; which++) {
            const struct tensor *t = find(file, prefix, layer, which);
            if (!t) continue;
            if (!*out)
                status = mem_zeroed(out, layers * heads * 2, sizeof **out,
                                    "the scales of keys and values", err);
            if (status == REEL_OK)
                status = read(file, t, config->n_kv_heads, *out + 2 * nth * heads + which, err);
        }
        nth++;
    }
    if (status != REEL_OK) mem_free(*out), *out = NULL;
    return status;
}
