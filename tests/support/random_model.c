#include "support/random_model.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static uint64_t random_state;

uint64_t random_bits(void) { /* splitmix64 */
    uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static float random_value(void) { return (float)((double)(random_bits() >> 11) * 0x1p-52 - 1.0); }

const struct shape random_shapes[N_ALL_SHAPES] = {
    { "odd sizes", 74, 3, 3, 10, 51, 131, true, DTYPE_BF16, DTYPE_BF16, 0 },
    { "groups of 4", 128, 8, 2, 16, 96, 97, true, DTYPE_BF16, DTYPE_F32, 0 },
    { "one group", 64, 6, 1, 80, 160, 70, false, DTYPE_F16, DTYPE_BF16, 0 },
    { "wide groups", 96, 40, 1, 32, 64, 66, false, DTYPE_Q8_0, DTYPE_Q5_1, 0 },
    { "Q4_1", 192, 3, 1, 64, 160, 130, false, DTYPE_Q4_1, DTYPE_Q4_1, 0 },
    { "Q4_0, Q5_0", 64, 4, 2, 32, 96, 65, true, DTYPE_Q4_0, DTYPE_Q5_0, 0 },
    { "Q4_K, Q6_K", 256, 2, 1, 128, 512, 70, true, DTYPE_Q4_K, DTYPE_Q6_K, 0 },
    { "Q5_K, F32", 256, 4, 4, 64, 256, 64, false, DTYPE_Q5_K, DTYPE_F32, 0 },
    { "biases, tied", 96, 4, 2, 24, 1700, 90, false, DTYPE_BF16, DTYPE_BF16, QKV_BIAS | TIED },
    { "hybrid", 64, 4, 2, 32, 96, 75, true, DTYPE_Q8_0, DTYPE_F16, TIED | HYBRID },
};

void *own(struct small_model *m, size_t n) {
    void *p = malloc(n);
    assert_non_null(p);
    return m->owned[m->n_owned++] = p;
}

static const float *random_norm(struct small_model *m, int n) {
    float *w = own(m, (size_t)n * sizeof *w);
    for (int i = 0; i < n; i++)
        w[i] = 1 + 0.2f * random_value();
    return w;
}

static void put_half(unsigned char *p, float x) {
    uint16_t h = f16_from_f32(x);
    memcpy(p, &h, sizeof h);
}

/* Weights of about 1 / sqrt(columns) in every type, so that the model neither fades nor explodes.
 */
static struct matrix random_matrix(struct small_model *m, enum dtype type, int rows, int columns) {
    size_t row_bytes = dtype_row_bytes(type, (size_t)columns), n = row_bytes * (size_t)rows;
    unsigned char *p = own(m, n);
    const size_t block = (size_t)dtype_block_bytes(type);
    const float spread = 1.7f / sqrtf((float)columns);
    for (size_t i = 0; i < n; i++)
        p[i] = (unsigned char)random_bits();
    for (size_t i = 0; i < n; i += block) {
        float x = random_value() * spread;
        uint16_t h = bf16_from_f32(x);
        switch (type) {
        case DTYPE_F32:
            memcpy(p + i, &x, sizeof x);
            break;
        case DTYPE_F16:
            put_half(p + i, x);
            break;
        case DTYPE_BF16:
            memcpy(p + i, &h, sizeof h);
            break;
        case DTYPE_Q8_0:
            put_half(p + i, spread / 128);
            break;
        case DTYPE_Q4_0:
            put_half(p + i, spread / 8);
            break;
        case DTYPE_Q5_0:
            put_half(p + i, spread / 16);
            break;
        case DTYPE_Q6_K:
            put_half(p + i + 208, spread / 32 / 128);
            break;
        default: /* with minima: quants from 0 to 15 or 31, made symmetric */
            put_half(p + i, type == DTYPE_Q4_1   ? spread / 8
                            : type == DTYPE_Q5_1 ? spread / 16
                            : type == DTYPE_Q4_K ? spread / 8 / 64
                                                 : spread / 16 / 64);
            put_half(p + i + 2, type == DTYPE_Q4_1 || type == DTYPE_Q5_1 ? -spread : spread / 64);
        }
    }
    return (struct matrix){
        .dtype = type, .rows = rows, .columns = columns, .row_bytes = row_bytes, .data = p
    };
}

static const float *random_vector(struct small_model *m, int n, float from, float spread) {
    float *v = own(m, (size_t)n * sizeof *v);
    for (int i = 0; i < n; i++)
        v[i] = from + spread * random_value();
    return v;
}

static void give_delta(struct small_model *m, const struct shape *s) {
    struct model_config *c = &m->model.config;
    struct layer_weights *l = &m->layers[0];
    c->layer_kinds[0] = LAYER_DELTA;
    c->delta.key_heads = 2;
    c->delta.value_heads = 4;
    c->delta.key_dim = 16;
    c->delta.value_dim = 72;
    c->delta.conv_width = 4;
    c->gated_attention = true;
    c->rotary_dim = s->head_dim / 2;
    l->kind = LAYER_DELTA;
    m->layers[1].nth = 0;
    l->delta = (struct delta_weights){
        .qkv = random_matrix(m, s->type, model_delta_channels(c), s->hidden),
        .z = random_matrix(m, s->type, model_delta_width(c), s->hidden),
        .b = random_matrix(m, s->type, c->delta.value_heads, s->hidden),
        .a = random_matrix(m, DTYPE_F32, c->delta.value_heads, s->hidden),
        .taps = random_vector(m, c->delta.conv_width * model_delta_channels(c), 0, 0.7f),
        .rate = random_vector(m, c->delta.value_heads, 0.4f, 0.3f),
        .dt_bias = random_vector(m, c->delta.value_heads, -1, 0.5f),
        .out_norm = random_vector(m, c->delta.value_dim, 1, 0.2f),
    };
    l->o = random_matrix(m, s->type, s->hidden, model_delta_width(c));
    m->layers[1].q = random_matrix(m, s->type, model_q_rows(c), s->hidden);
}

struct small_model *random_model(const struct shape *s) {
    struct small_model *m = calloc(1, sizeof *m);
    assert_non_null(m);
    random_state = (uint64_t)s->hidden;
    m->model.config = (struct model_config){
        .hidden = s->hidden,
        .n_layers = N_LAYERS,
        .n_heads = s->heads,
        .n_kv_heads = s->kv_heads,
        .head_dim = s->head_dim,
        .rotary_dim = s->head_dim,
        .intermediate = s->inter,
        .vocab = s->vocab,
        .max_context = 4096,
        .rms_eps = 1e-6f,
        .qk_norm = s->qk_norm,
        .qkv_bias = s->with & QKV_BIAS,
        .tied = s->with & TIED,
        .window = (s->with & QKV_BIAS) ? 4096 : 0,
        .rope_theta = 10000,
    };
    int q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    enum dtype wide = dtype_block_elements(s->type) > 1 && q % dtype_block_elements(s->type)
                          ? DTYPE_BF16
                          : s->type; /* for o, whose columns are q */
    for (int i = 0; i < N_LAYERS; i++)
        m->layers[i] = (struct layer_weights){
            .nth = i,
            .attn_norm = random_norm(m, s->hidden),
            .q = random_matrix(m, s->type, q, s->hidden),
            .k = random_matrix(m, s->type, kv, s->hidden),
            .v = random_matrix(m, s->type, kv, s->hidden),
            .o = random_matrix(m, wide, s->hidden, q),
            .q_norm = s->qk_norm ? random_norm(m, s->head_dim) : NULL,
            .k_norm = s->qk_norm ? random_norm(m, s->head_dim) : NULL,
            .ffn_norm = random_norm(m, s->hidden),
            .gate = random_matrix(m, s->type, s->inter, s->hidden),
            .up = random_matrix(m, s->type, s->inter, s->hidden),
            .down = random_matrix(m, s->down_type, s->hidden, s->inter),
            .qkv_bias = (s->with & QKV_BIAS) ? random_vector(m, q + 2 * kv, 0, 0.5f) : NULL,
        };
    m->model.weights = (struct weights){
        .embedding = random_matrix(m, s->type, s->vocab, s->hidden),
        .final_norm = random_norm(m, s->hidden),
        .head = random_matrix(m, s->type, s->vocab, s->hidden),
        .layers = m->layers,
        .n_layers = N_LAYERS,
    };
    if (s->with & TIED) m->model.weights.head = m->model.weights.embedding;
    if (s->with & HYBRID) give_delta(m, s);
    return m;
}

void free_model(struct small_model *m) {
    for (int i = 0; i < m->n_owned; i++)
        free(m->owned[i]);
    free(m);
}
