/* Models in GGUF's block types of 4 bits and less: blocks stay where the file has them, rows are
 * worth what the type says, NVFP4's second scale counts, and files that lie are refused. */
#include "model/gguf.h"
#include "model/weights.h"

#include "../support/model_bytes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { HIDDEN = 256, HEAD_DIM = 64, VOCAB = 10, GGML_F32 = 0, GGML_F16 = 1, GGML_Q8_0 = 8 };

/* blk.0.attn_q.scale: of this type, this many numbers, each this. n 0: there is none. */
struct scale {
    uint32_t type;
    int n;
    float value;
};

struct opened {
    struct bytes bytes;
    struct gguf gguf;
    struct tensor_file file;
    struct weights weights;
    struct reel_error err;
    enum reel_status status;
};

/* Every byte from a generator: what a block is worth does not matter here. */
static void add_tensor(struct bytes *b, size_t n) {
    static uint32_t state = 1;
    bytes_pad(b, 32);
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525 + 1013904223;
        bytes_add(b, &(unsigned char){ (unsigned char)(state >> 24) }, 1);
    }
}

/* A model of one layer, its matrices in `type`. */
static void build(struct bytes *b, enum dtype type, uint32_t ggml, struct scale scale) {
    static const struct {
        const char *name;
        int rows; /* 0: a norm */
    } list[] = { { "token_embd.weight", VOCAB },      { "output_norm.weight", 0 },
                 { "blk.0.attn_norm.weight", 0 },     { "blk.0.ffn_norm.weight", 0 },
                 { "blk.0.attn_q.weight", HIDDEN },   { "blk.0.attn_k.weight", HEAD_DIM },
                 { "blk.0.attn_v.weight", HEAD_DIM }, { "blk.0.attn_output.weight", HIDDEN },
                 { "blk.0.ffn_gate.weight", HIDDEN }, { "blk.0.ffn_up.weight", HIDDEN },
                 { "blk.0.ffn_down.weight", HIDDEN } };
    enum { N = sizeof list / sizeof *list };
    uint64_t at = 0;
    bytes_gguf_header(b, 3, N + (scale.n > 0), 1);
    bytes_gguf_text(b, "general.architecture", "qwen3");
    for (int i = 0; i < N; i++) {
        const uint64_t extents[2] = { HIDDEN, (uint64_t)list[i].rows };
        bytes_gguf_tensor(b, list[i].name, list[i].rows ? 2 : 1, extents,
                          list[i].rows ? ggml : GGML_F32, at);
        at += list[i].rows ? (dtype_row_bytes(type, HIDDEN) * (size_t)list[i].rows + 31) / 32 * 32
                           : 4 * HIDDEN;
    }
    if (scale.n)
        bytes_gguf_tensor(b, "blk.0.attn_q.scale", 1, (uint64_t[]){ (uint64_t)scale.n }, scale.type,
                          at);
    for (int i = 0; i < N; i++)
        add_tensor(b, list[i].rows ? dtype_row_bytes(type, HIDDEN) * (size_t)list[i].rows
                                   : 4 * HIDDEN);
    bytes_pad(b, 32);
    for (int i = 0; i < scale.n; i++)
        bytes_add(b, &scale.value, scale.type == GGML_F32 ? 4 : 2);
}

static struct opened open_model(enum dtype type, uint32_t ggml, struct scale scale,
                                size_t short_by) {
    struct opened m = { 0 };
    const struct model_config config = { .family = MODEL_LLAMA,
                                         .hidden = HIDDEN,
                                         .n_layers = 1,
                                         .n_heads = HIDDEN / HEAD_DIM,
                                         .n_kv_heads = 1,
                                         .head_dim = HEAD_DIM,
                                         .intermediate = HIDDEN,
                                         .vocab = VOCAB,
                                         .tied = true };
    struct model_source source;
    build(&m.bytes, type, ggml, scale);
    struct reel_memory_file one = { "m.gguf", m.bytes.data, m.bytes.n - short_by };
    assert_int_equal(model_source_open_memory(&source, "mem", &one, 1, &m.err), REEL_OK);
    m.status = gguf_open(&m.gguf, &m.file, &source, &m.err);
    if (m.status == REEL_OK) m.status = weights_map(&m.weights, &config, &m.file, true, &m.err);
    model_source_release(&source);
    return m;
}

static void release(struct opened *m) {
    weights_release(&m->weights);
    tensor_file_release(&m->file);
    gguf_release(&m->gguf);
    bytes_release(&m->bytes);
}

static const struct {
    enum dtype type;
    uint32_t ggml;
} types[] = { { DTYPE_Q2_K, 10 },   { DTYPE_Q3_K, 11 },  { DTYPE_IQ4_NL, 20 },
              { DTYPE_IQ4_XS, 23 }, { DTYPE_MXFP4, 39 }, { DTYPE_NVFP4, 40 } };
#define N_TYPES (sizeof types / sizeof *types)

static void blocks_stay_where_the_file_has_them(void **state) {
    (void)state;
    for (size_t i = 0; i < N_TYPES; i++) {
        struct opened m = open_model(types[i].type, types[i].ggml, (struct scale){ 0 }, 0);
        if (m.status != REEL_OK) fail_msg("%s", m.err.text);
        const struct matrix *v = &m.weights.layers[0].v;
        float row[HIDDEN], want[HIDDEN];
        assert_int_equal(v->dtype, types[i].type);
        assert_ptr_equal(v->data, tensor_find(&m.file, "blk.0.attn_v.weight")->data);
        matrix_row_f32(v, 3, row);
        dtype_to_f32(types[i].type, v->data + 3 * dtype_row_bytes(types[i].type, HIDDEN), want,
                     HIDDEN);
        assert_memory_equal(row, want, sizeof row);
        assert_int_equal(m.weights.main_type, types[i].type);
        release(&m);
    }
}

static void a_file_that_ends_early_is_refused(void **state) {
    (void)state;
    for (size_t i = 0; i < N_TYPES; i++) {
        struct opened m = open_model(types[i].type, types[i].ggml, (struct scale){ 0 }, 1);
        assert_int_equal(m.status, REEL_E_FORMAT);
        assert_non_null(strstr(m.err.text, "\"blk.0.ffn_down.weight\" needs"));
        release(&m);
    }
}

/* Rounded once it is a scale of 16 columns, and only then multiplied by a code. */
static void the_second_scale_of_nvfp4_multiplies_every_scale(void **state) {
    (void)state;
    struct opened m = open_model(DTYPE_NVFP4, 40, (struct scale){ GGML_F32, 1, 0.0127f }, 0);
    if (m.status != REEL_OK) fail_msg("%s", m.err.text);
    const struct matrix *q = &m.weights.layers[0].q, *k = &m.weights.layers[0].k;
    float row[HIDDEN], want[HIDDEN];
    matrix_row_f32(q, 1, row);
    dtype_to_f32(DTYPE_NVFP4, q->data + q->row_bytes, want, HIDDEN);
    int rounded_first = 0;
    for (int i = 0; i < HIDDEN; i++) {
        const unsigned char *block = q->data + q->row_bytes + (size_t)(i / 64) * 36;
        const float first = dtype_nvfp4_scale(block[i / 16 % 4]), value = want[i] / first;
        assert_true(row[i] == (want[i] == 0 ? 0 : value * (first * 0.0127f)));
        rounded_first += row[i] != want[i] * 0.0127f;
    }
    assert_true(rounded_first > 0);
    matrix_row_f32(k, 1, row);
    dtype_to_f32(DTYPE_NVFP4, k->data + k->row_bytes, want, HIDDEN);
    assert_memory_equal(row, want, sizeof row);
    release(&m);
}

static void second_scales_that_cannot_be_are_refused_in_words(void **state) {
    (void)state;
    const struct {
        enum dtype type;
        uint32_t ggml;
        struct scale scale;
        const char *says;
    } cases[] = {
        { DTYPE_NVFP4, 40, { GGML_F32, 1, NAN }, "\"blk.0.attn_q.scale\" is" },
        { DTYPE_NVFP4, 40, { GGML_F32, 1, INFINITY }, "\"blk.0.attn_q.scale\" is inf" },
        { DTYPE_NVFP4, 40, { GGML_F32, 1, 0 }, "is 0, allowed is a finite number above 0" },
        { DTYPE_NVFP4, 40, { GGML_F32, 1, -1 }, "is -1" },
        { DTYPE_NVFP4, 40, { GGML_F32, 2, 1 }, "has shape [2], expected [1]" },
        { DTYPE_NVFP4, 40, { GGML_F16, 1, 1 }, "has type f16, allowed is f32" },
        { DTYPE_Q8_0, GGML_Q8_0, { GGML_F32, 1, 1 }, "which is q8_0; allowed is nvfp4" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct opened m = open_model(cases[i].type, cases[i].ggml, cases[i].scale, 0);
        if (m.status == REEL_OK || m.err.status != m.status || !strstr(m.err.text, cases[i].says))
            fail_msg("expected \"%s\": %d %s", cases[i].says, (int)m.status, m.err.text);
        release(&m);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_stay_where_the_file_has_them),
        cmocka_unit_test(a_file_that_ends_early_is_refused),
        cmocka_unit_test(the_second_scale_of_nvfp4_multiplies_every_scale),
        cmocka_unit_test(second_scales_that_cannot_be_are_refused_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
