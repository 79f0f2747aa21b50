/* Each reference phase alone, given what went into it in Hugging Face's bf16 run and compared with
 * what came out: at least 99 % of a row's entries must have the same bits. Only sums may differ, as
 * their order does; a rounding point too few or too many changes 10 to 40 % of the entries. */
#include "tests/support/golden.h"

#include "cpu/reference.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define POSITION 5 /* where the goldens hold whole rows */

/* One model at one layer; -1 is what surrounds the layers. */
struct scene {
    const char *id;
    const struct golden *golden;
    const struct model_config *config;
    const struct weights *weights;
    int layer;
    float *row; /* scratch of cpu_product */
};

struct stored_name {
    char text[60];
};

static struct stored_name name_of(const struct scene *s, const char *phase) {
    struct stored_name name;
    if (s->layer < 0)
        snprintf(name.text, sizeof name.text, "at5.%s", phase);
    else
        snprintf(name.text, sizeof name.text, "at5.%d.%s", s->layer, phase);
    return name;
}

static bool has(const struct scene *s, const char *phase) {
    return golden_count(s->golden, name_of(s, phase).text) > 0;
}

/* A stored row, "attn_norm" of this layer; the caller frees. */
static float *stored(const struct scene *s, const char *phase) {
    return golden_f32(s->golden, name_of(s, phase).text);
}

static float *new_floats(int n) {
    float *p = calloc((size_t)n, sizeof *p);
    assert_non_null(p);
    return p;
}

static float *copy_floats(const float *from, int n) {
    float *p = new_floats(n);
    memcpy(p, from, (size_t)n * sizeof *p);
    return p;
}

/* Frees `made`. */
static void expect(const struct scene *s, const char *phase, float *made, int n) {
    float *expected = stored(s, phase);
    int n_other = 0;
    for (int i = 0; i < n; i++)
        n_other += made[i] != expected[i]; /* a NaN differs from everything */
    if (n_other * 100 > n)
        fail_msg("%s layer %d %s: %d of %d entries differ", s->id, s->layer, phase, n_other, n);
    free(expected);
    free(made);
}

static void expect_norm(const struct scene *s, const float *x, const float *weight, int n_rows,
                        int n, const char *phase) {
    float *made = new_floats(n_rows * n);
    for (int i = 0; i < n_rows; i++)
        (s->config->centred_norms ? cpu_rms_norm_once : cpu_rms_norm)(
            x + i * n, weight, n, s->config->rms_eps, made + i * n, REF_FAITHFUL);
    expect(s, phase, made, n_rows * n);
}

static void expect_product_bias(const struct scene *s, const struct matrix *w, const float *bias,
                                const char *from, const char *phase) {
    float *x = stored(s, from), *made = new_floats(w->rows);
    cpu_product_bias(w, bias, REF_AS_STORED, x, 1, s->row, made, REF_FAITHFUL);
    expect(s, phase, made, w->rows);
    free(x);
}

static void expect_product(const struct scene *s, const struct matrix *w, const char *from,
                           const char *phase) {
    expect_product_bias(s, w, NULL, from, phase);
}

static void expect_rope(const struct scene *s, const char *from, int n_heads, const char *phase) {
    int dim = s->config->head_dim, turning = s->config->rotary_dim;
    float *inv = new_floats(dim), *cos = new_floats(dim), *sin = new_floats(dim);
    float *heads = stored(s, from);
    model_rope_frequencies(s->config, inv);
    cpu_rope_angles(inv, turning, POSITION, cos, sin, REF_FAITHFUL);
    for (int i = 0; i < n_heads; i++)
        cpu_rope(heads + i * dim, turning, cos, sin, REF_FAITHFUL);
    expect(s, phase, heads, n_heads * dim);
    free(inv);
    free(cos);
    free(sin);
}

static void expect_attention(const struct scene *s) {
    const struct model_config *c = s->config;
    int dim = c->head_dim, group = c->n_heads / c->n_kv_heads;
    float *q = stored(s, "q_rope"), *keys = stored(s, "keys"), *values = stored(s, "values");
    float *made = new_floats(c->n_heads * dim), scores[POSITION + 1];
    for (int h = 0; h < c->n_heads; h++)
        cpu_attention(q + h * dim, keys + h / group * dim, values + h / group * dim, POSITION + 1,
                      (size_t)(c->n_kv_heads * dim), dim, 1.0f / sqrtf((float)dim), scores,
                      made + h * dim, REF_FAITHFUL);
    expect(s, "attention", made, c->n_heads * dim);
    free(q);
    free(keys);
    free(values);
}

static void expect_residual(const struct scene *s, const float *x, const char *added,
                            const char *phase) {
    float *y = stored(s, added), *made = copy_floats(x, s->config->hidden);
    cpu_residual_add(made, y, s->config->hidden, REF_FAITHFUL);
    expect(s, phase, made, s->config->hidden);
    free(y);
}

static void expect_swiglu(const struct scene *s) {
    float *gate = stored(s, "gate"), *up = stored(s, "up");
    cpu_swiglu(gate, up, s->config->intermediate, gate, REF_FAITHFUL);
    expect(s, "swiglu", gate, s->config->intermediate);
    free(up);
}

/* Of q's rows, head by head a query and a gate: part 0 or 1. The caller frees. */
static float *part_of_q(const struct scene *s, int part) {
    int dim = s->config->head_dim, n = s->config->n_heads;
    float *both = stored(s, "q"), *out = new_floats(n * dim);
    int step = s->config->gated_attention ? 2 * dim : dim;
    for (int h = 0; h < n; h++)
        memcpy(out + h * dim, both + h * step + part * dim, (size_t)dim * sizeof *out);
    free(both);
    return out;
}

static void check_attention(const struct scene *s) {
    const struct model_config *c = s->config;
    const struct layer_weights *w = &s->weights->layers[s->layer];
    const float *bias = w->qkv_bias, *k_bias = bias ? bias + w->q.rows : NULL;
    expect_product_bias(s, &w->q, bias, "attn_norm", "q");
    expect_product_bias(s, &w->k, k_bias, "attn_norm", "k");
    expect_product_bias(s, &w->v, bias ? k_bias + w->k.rows : NULL, "attn_norm", "v");
    if (c->qk_norm) {
        float *q = part_of_q(s, 0), *k = stored(s, "k");
        expect_norm(s, q, w->q_norm, c->n_heads, c->head_dim, "q_norm");
        expect_norm(s, k, w->k_norm, c->n_kv_heads, c->head_dim, "k_norm");
        free(q);
        free(k);
    }
    expect_rope(s, c->qk_norm ? "q_norm" : "q", c->n_heads, "q_rope");
    expect_rope(s, c->qk_norm ? "k_norm" : "k", c->n_kv_heads, "k_rope");
    expect_attention(s);
    if (c->gated_attention) {
        float *made = stored(s, "attention"), *gate = part_of_q(s, 1);
        cpu_sigmoid_gate(made, gate, c->n_heads * c->head_dim, REF_FAITHFUL);
        expect(s, "attention_gate", made, c->n_heads * c->head_dim);
        free(gate);
    }
    expect_product(s, &w->o, c->gated_attention ? "attention_gate" : "attention", "out_proj");
}

static void expect_convolution(const struct scene *s) {
    const struct model_config *c = s->config;
    const int channels = model_delta_channels(c), width = c->delta.conv_width;
    float *rows = stored(s, "rows.delta_qkv"), *made = new_floats(channels);
    cpu_convolve(s->weights->layers[s->layer].delta.taps, rows + (POSITION + 1 - width) * channels,
                 rows + POSITION * channels, width, channels, made, REF_FAITHFUL);
    expect(s, "delta_conv", made, channels);
    free(rows);
}

/* Decays are float32, from another library's exp and log. */
static void expect_gates(const struct scene *s) {
    const struct delta_weights *w = &s->weights->layers[s->layer].delta;
    const int n = s->config->delta.value_heads;
    float *beta = stored(s, "delta_b"), *decay = stored(s, "delta_a");
    float *expected = stored(s, "delta_decay");
    cpu_delta_gates(beta, decay, w->rate, w->dt_bias, n, beta, decay, REF_FAITHFUL);
    expect(s, "delta_beta", beta, n);
    for (int i = 0; i < n; i++)
        assert_true(fabsf(decay[i] - expected[i]) <= 4e-7f * fabsf(expected[i]));
    free(decay);
    free(expected);
}

/* From the empty state through positions 0 to POSITION. */
static void expect_rule(const struct scene *s) {
    const struct model_config *c = s->config;
    const int heads = c->delta.value_heads, group = heads / c->delta.key_heads;
    const int dim = c->delta.key_dim, out = c->delta.value_dim, keys = c->delta.key_heads * dim;
    const struct delta_shape shape = { dim, out, (size_t)out };
    float *rows = stored(s, "rows.delta_conv"), *beta = stored(s, "rows.delta_beta");
    float *decay = stored(s, "rows.delta_decay"), *made = new_floats(heads * out);
    float *states = new_floats(heads * dim * out);
    for (int i = 0; i <= POSITION; i++) {
        float *q = rows + i * model_delta_channels(c);
        for (int h = 0; h < c->delta.key_heads; h++) {
            cpu_l2_norm(q + h * dim, dim, 1.0f / sqrtf((float)dim));
            cpu_l2_norm(q + keys + h * dim, dim, 1);
        }
        for (int h = 0; h < heads; h++)
            cpu_delta_step(&shape, states + h * dim * out, q + h / group * dim,
                           q + keys + h / group * dim, q + 2 * keys + h * out, decay[i * heads + h],
                           beta[i * heads + h], made + h * out, REF_FAITHFUL);
    }
    expect(s, "delta_rule", made, heads * out);
    free(rows);
    free(beta);
    free(decay);
    free(states);
}

static void expect_gated_norm(const struct scene *s) {
    const struct model_config *c = s->config;
    const int dim = c->delta.value_dim;
    float *made = stored(s, "delta_rule"), *z = stored(s, "delta_z");
    for (int h = 0; h < c->delta.value_heads; h++)
        cpu_gated_norm(made + h * dim, s->weights->layers[s->layer].delta.out_norm, z + h * dim,
                       dim, c->rms_eps, made + h * dim, REF_FAITHFUL);
    expect(s, "delta_norm", made, model_delta_width(c));
    free(z);
}

static void check_delta(const struct scene *s) {
    const struct layer_weights *w = &s->weights->layers[s->layer];
    expect_product(s, &w->delta.qkv, "attn_norm", "delta_qkv");
    expect_product(s, &w->delta.z, "attn_norm", "delta_z");
    expect_product(s, &w->delta.b, "attn_norm", "delta_b");
    expect_product(s, &w->delta.a, "attn_norm", "delta_a");
    if (has(s, "rows.delta_qkv")) {
        expect_convolution(s);
        expect_rule(s);
    }
    expect_gates(s);
    expect_gated_norm(s);
    expect_product(s, &w->o, "delta_norm", "out_proj");
}

/* x [hidden] is what entered the layer. */
static void check_layer(const struct scene *s, const float *x) {
    const struct model_config *c = s->config;
    const struct layer_weights *w = &s->weights->layers[s->layer];
    expect_norm(s, x, w->attn_norm, 1, c->hidden, "attn_norm");
    (w->kind == LAYER_DELTA ? check_delta : check_attention)(s);
    expect_residual(s, x, "out_proj", "attn_residual");

    float *middle = stored(s, "attn_residual");
    expect_norm(s, middle, w->ffn_norm, 1, c->hidden, "ffn_norm");
    expect_product(s, &w->gate, "ffn_norm", "gate");
    expect_product(s, &w->up, "ffn_norm", "up");
    expect_swiglu(s);
    expect_product(s, &w->down, "swiglu", "down");
    expect_residual(s, middle, "down", "ffn_residual");
    free(middle);
}

static void check_model(const char *id) {
    struct golden golden;
    struct golden_model model;
    golden_open(&golden, id);
    golden_model_open(&model, id);
    const struct model_config *c = &model.config;
    struct scene s = { .id = id,
                       .golden = &golden,
                       .config = c,
                       .weights = &model.weights,
                       .layer = -1,
                       .row = new_floats(c->hidden + c->intermediate + c->n_heads * c->head_dim +
                                         model_delta_width(c)) };
    int32_t *ids = golden_int(&golden, "ids");
    float *made = new_floats(c->hidden);
    cpu_embed(&model.weights.embedding, REF_AS_STORED, ids[POSITION], made);
    expect(&s, "embed", made, c->hidden);

    /* The largest golden holds whole rows of some layers only. */
    float *x = stored(&s, "embed");
    for (s.layer = 0; s.layer < c->n_layers; s.layer++) {
        if (x && has(&s, "attn_norm")) check_layer(&s, x);
        free(x);
        x = has(&s, "ffn_residual") ? stored(&s, "ffn_residual") : NULL;
    }
    s.layer = -1;
    assert_non_null(x);
    expect_norm(&s, x, model.weights.final_norm, 1, c->hidden, "final_norm");
    expect_product(&s, &model.weights.head, "final_norm", "logits");
    free(x);
    free(ids);
    free(s.row);
    golden_model_close(&model);
    golden_close(&golden);
}

static void each_phase_alone_equals_the_bf16_run(void **state) {
    (void)state;
    for (int i = 0; golden_ids[i]; i++)
        check_model(golden_ids[i]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_phase_alone_equals_the_bf16_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
