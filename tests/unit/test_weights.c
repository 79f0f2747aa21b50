/* From tensor names to matrices: tied and untied heads, GGUF's permuted rows, what is refused. */
#include "model/safetensors.h"
#include "model/weights.h"
#include "plan/memory_plan.h"

#include "../support/model_bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The small checkpoint, opened and mapped. */
struct mapped {
    struct bytes bytes;
    struct gguf gguf;
    struct tensor_file file;
    struct model_config config;
    struct weights weights;
    struct reel_error err;
    enum reel_status status;
};

static struct mapped map_mini(const struct mini *mini, bool is_gguf, bool tied) {
    struct mapped m = { .config = { .family = mini->qk_norm    ? MODEL_QWEN3
                                              : mini->qkv_bias ? MODEL_QWEN2
                                                               : MODEL_LLAMA,
                                    .hidden = 8,
                                    .n_layers = 1,
                                    .n_heads = 2,
                                    .n_kv_heads = 1,
                                    .head_dim = 4,
                                    .intermediate = 12,
                                    .vocab = 10,
                                    .qk_norm = mini->qk_norm,
                                    .qkv_bias = mini->qkv_bias,
                                    .tied = tied } };
    struct model_source source;
    if (is_gguf)
        mini_gguf(&m.bytes, mini);
    else
        mini_safetensors(&m.bytes, mini);
    struct reel_memory_file one = { is_gguf ? "m.gguf" : "model.safetensors", m.bytes.data,
                                    m.bytes.n };
    assert_int_equal(model_source_open_memory(&source, "mem", &one, 1, &m.err), REEL_OK);
    m.status = is_gguf ? gguf_open(&m.gguf, &m.file, &source, &m.err)
                       : safetensors_open(&m.file, &source, &m.err);
    if (m.status != REEL_OK) fail_msg("%s", m.err.text);
    m.status = weights_map(&m.weights, &m.config, &m.file, is_gguf, &m.err);
    model_source_release(&source);
    return m;
}

static void release(struct mapped *m) {
    weights_release(&m->weights);
    tensor_file_release(&m->file);
    gguf_release(&m->gguf);
    bytes_release(&m->bytes);
}

static void every_matrix_is_found_under_its_name(void **state) {
    (void)state;
    struct mapped m = map_mini(&(struct mini){ .qk_norm = true, .head = true }, false, false);
    if (m.status != REEL_OK) fail_msg("%s", m.err.text);
    const struct layer_weights *l = &m.weights.layers[0];
    /* tensor t begins with the value t */
    const struct {
        const struct matrix *matrix;
        int rows, columns, number;
    } expected[] = {
        { &m.weights.embedding, 10, 8, 0 },
        { &l->q, 8, 8, 1 },
        { &l->k, 4, 8, 2 },
        { &l->v, 4, 8, 3 },
        { &l->o, 8, 8, 4 },
        { &l->gate, 12, 8, 7 },
        { &l->up, 12, 8, 8 },
        { &l->down, 8, 12, 9 },
        { &m.weights.head, 10, 8, 13 },
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        const struct matrix *matrix = expected[i].matrix;
        float row[12];
        assert_int_equal(matrix->rows, expected[i].rows);
        assert_int_equal(matrix->columns, expected[i].columns);
        assert_int_equal(matrix->row_bytes, 4 * (size_t)expected[i].columns);
        matrix_row_f32(matrix, 1, row);
        assert_true(row[0] == (float)expected[i].number + (float)matrix->columns / 1024);
    }
    const float *const norms[] = { l->attn_norm, l->ffn_norm, m.weights.final_norm, l->q_norm,
                                   l->k_norm };
    const float numbers[] = { 5, 6, 10, 11, 12 };
    for (int i = 0; i < 5; i++)
        assert_true(norms[i][1] == numbers[i] + 1.0f / 1024);
    assert_int_equal(m.weights.n_parameters, 80 * 2 + 64 * 2 + 32 * 2 + 96 * 3 + 8 * 3 + 4 * 2);
    assert_int_equal(m.weights.n_bytes, 4 * m.weights.n_parameters);
    assert_int_equal(m.weights.main_type, DTYPE_F32);
    release(&m);
}

/* Tensor t begins with the value t: one vector has the rows of q, then those of k, then those of v.
 * A GGUF file of this family has rows where the maths has them. */
static void biases_of_q_k_and_v_are_one_vector(void **state) {
    (void)state;
    for (int is_gguf = 0; is_gguf < 2; is_gguf++) {
        struct mapped m = map_mini(&(struct mini){ .qkv_bias = true }, is_gguf, true);
        if (m.status != REEL_OK) fail_msg("%s", m.err.text);
        const struct layer_weights *l = &m.weights.layers[0];
        const int starts[] = { 0, 8, 12, 16 };
        for (int part = 0; part < 3; part++)
            for (int i = starts[part]; i < starts[part + 1]; i++)
                assert_true(l->qkv_bias[i] ==
                            (float)(11 + part) + (float)(i - starts[part]) / 1024);
        float row[8];
        matrix_row_f32(&l->q, 1, row);
        assert_true(row[0] == 1 + 8.0f / 1024);
        assert_int_equal(m.weights.n_parameters, 80 + 64 * 2 + 32 * 2 + 96 * 3 + 8 * 3 + 16);
        release(&m);
    }
    struct mapped m = map_mini(
        &(struct mini){ .qkv_bias = true, .without = "model.layers.0.self_attn.k_proj.bias" },
        false, true);
    assert_int_equal(m.status, REEL_E_FORMAT);
    assert_non_null(strstr(m.err.text, "k_proj.bias"));
    release(&m);
    m = map_mini(&(struct mini){ .qkv_bias = true, .also = "model.layers.0.self_attn.o_proj.bias" },
                 false, true);
    assert_int_equal(m.status, REEL_E_UNSUPPORTED);
    assert_non_null(strstr(m.err.text, "o_proj.bias"));
    assert_non_null(strstr(m.err.text, "only those of q, k and v"));
    release(&m);
}

static void a_tied_head_is_the_embedding_and_a_stored_copy_is_skipped(void **state) {
    (void)state;
    for (int stored = 0; stored < 2; stored++) {
        struct mapped m = map_mini(&(struct mini){ .head = stored, .copied = true }, false, true);
        assert_int_equal(m.status, REEL_OK);
        assert_ptr_equal(m.weights.head.data, m.weights.embedding.data);
        assert_int_equal(m.weights.n_parameters, 80 + 64 * 2 + 32 * 2 + 96 * 3 + 8 * 3);
        assert_null(m.weights.layers[0].q_norm);
        release(&m);
    }
}

static void a_tied_model_with_another_head_is_refused(void **state) {
    (void)state;
    struct mapped m = map_mini(&(struct mini){ .head = true }, false, true);
    assert_int_equal(m.status, REEL_E_UNSUPPORTED);
    assert_non_null(strstr(m.err.text, "\"lm_head.weight\" differs from the embedding"));
    release(&m);
}

static void an_untied_model_needs_its_head(void **state) {
    (void)state;
    struct mapped m = map_mini(&(struct mini){ 0 }, false, false);
    assert_int_equal(m.status, REEL_E_FORMAT);
    assert_non_null(strstr(m.err.text, "\"lm_head.weight\" is missing"));
    assert_null(m.weights.layers);
    release(&m);
}

static void rows_of_q_and_k_are_put_back_in_order(void **state) {
    (void)state;
    struct mapped hf = map_mini(&(struct mini){ 0 }, false, true);
    struct mapped gguf = map_mini(&(struct mini){ 0 }, true, true);
    if (gguf.status != REEL_OK) fail_msg("%s", gguf.err.text);
    const struct layer_weights *a = &hf.weights.layers[0], *b = &gguf.weights.layers[0];
    /* Stored rows 0 1 2 3 of a head are the maths' rows 0 2 1 3 when half of head_dim is 2. */
    static const int stored[] = { 0, 2, 1, 3, 4, 6, 5, 7 };
    for (int r = 0; r < 8; r++) {
        assert_memory_equal(b->q.data + (size_t)r * b->q.row_bytes,
                            a->q.data + (size_t)stored[r] * a->q.row_bytes, a->q.row_bytes);
        if (r < 4)
            assert_memory_equal(b->k.data + (size_t)r * b->k.row_bytes,
                                a->k.data + (size_t)stored[r] * a->k.row_bytes, a->k.row_bytes);
    }
    assert_memory_equal(b->v.data, a->v.data, 4 * a->v.row_bytes);
    assert_memory_equal(b->down.data, a->down.data, 8 * a->down.row_bytes);
    release(&hf);
    release(&gguf);
}

static void qwen3_gguf_rows_stay_as_stored(void **state) {
    (void)state;
    struct mapped hf = map_mini(&(struct mini){ .qk_norm = true }, false, true);
    struct mapped gguf = map_mini(&(struct mini){ .qk_norm = true }, true, true);
    assert_int_equal(gguf.status, REEL_OK);
    assert_memory_equal(gguf.weights.layers[0].q.data, hf.weights.layers[0].q.data, 4 * 64);
    assert_true(gguf.weights.layers[0].k_norm[0] == 12);
    release(&hf);
    release(&gguf);
}

static void every_required_tensor_is_missed_by_name(void **state) {
    (void)state;
    static const char *const names[] = {
        "model.embed_tokens.weight",
        "model.norm.weight",
        "lm_head.weight",
        "model.layers.0.input_layernorm.weight",
        "model.layers.0.post_attention_layernorm.weight",
        "model.layers.0.self_attn.q_proj.weight",
        "model.layers.0.self_attn.k_proj.weight",
        "model.layers.0.self_attn.v_proj.weight",
        "model.layers.0.self_attn.o_proj.weight",
        "model.layers.0.self_attn.q_norm.weight",
        "model.layers.0.self_attn.k_norm.weight",
        "model.layers.0.mlp.gate_proj.weight",
        "model.layers.0.mlp.up_proj.weight",
        "model.layers.0.mlp.down_proj.weight",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct mini mini = { .qk_norm = true, .head = true, .without = names[i] };
        struct mapped m = map_mini(&mini, false, false);
        assert_int_equal(m.status, REEL_E_FORMAT);
        if (!strstr(m.err.text, names[i]) || !strstr(m.err.text, "is missing"))
            fail_msg("%s: %s", names[i], m.err.text);
        release(&m);
        mini.without = NULL;
        mini.wrong = names[i];
        m = map_mini(&mini, false, false);
        assert_int_equal(m.status, REEL_E_FORMAT);
        if (!strstr(m.err.text, names[i]) || !strstr(m.err.text, "has shape [3, 3], expected ["))
            fail_msg("%s: %s", names[i], m.err.text);
        release(&m);
        mini.wrong = NULL;
        mini.narrow = names[i];
        m = map_mini(&mini, false, false);
        assert_int_equal(m.status, REEL_E_FORMAT);
        assert_non_null(strstr(m.err.text, names[i]));
        release(&m);
    }
}

static void tensors_that_would_change_the_result_are_refused(void **state) {
    (void)state;
    static const struct {
        const char *name;
        bool is_gguf;
    } cases[] = {
        { "model.layers.0.self_attn.q_proj.bias", false },
        { "model.layers.0.mlp.down_proj.bias", false },
        { "model.layers.0.self_attn.q_norm.weight", false },
        { "blk.0.attn_q.bias", true },
        { "blk.0.attn_k_norm.weight", true },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct mapped m = map_mini(&(struct mini){ .also = cases[i].name }, cases[i].is_gguf, true);
        assert_int_equal(m.status, REEL_E_UNSUPPORTED);
        if (!strstr(m.err.text, cases[i].name)) fail_msg("%s", m.err.text);
        release(&m);
    }
}

static void tensors_that_change_nothing_are_skipped(void **state) {
    (void)state;
    struct mapped m = map_mini(
        &(struct mini){ .also = "model.layers.0.self_attn.rotary_emb.inv_freq" }, false, true);
    assert_int_equal(m.status, REEL_OK);
    release(&m);
}

static void an_embedding_of_another_kind_is_named(void **state) {
    (void)state;
    static const struct {
        const char *kind;
        size_t payload;
        enum reel_status status;
        const char *says;
    } cases[] = {
        { "\"dtype\":\"I64\",\"shape\":[1,1],\"data_offsets\":[0,8]", 8, REEL_E_UNSUPPORTED,
          "has type I64" },
        { "\"dtype\":\"F32\",\"shape\":[1,1,1],\"data_offsets\":[0,4]", 4, REEL_E_FORMAT,
          "has shape [1, 1, 1], expected [1, 1]" },
        { "\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]", 4, REEL_E_FORMAT,
          "has shape [], expected [1, 1]" },
    };
    struct model_config config = { .n_layers = 1, .vocab = 1, .hidden = 1, .n_heads = 1 };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes b = { 0 };
        struct model_source source;
        struct tensor_file file;
        struct weights weights;
        struct reel_error err = { 0 };
        char header[256];
        snprintf(header, sizeof header, "{\"model.embed_tokens.weight\":{%s}}", cases[i].kind);
        bytes_safetensors(&b, header, cases[i].payload);
        struct reel_memory_file one = { "model.safetensors", b.data, b.n };
        assert_int_equal(model_source_open_memory(&source, "mem", &one, 1, &err), REEL_OK);
        assert_int_equal(safetensors_open(&file, &source, &err), REEL_OK);
        assert_int_equal(weights_map(&weights, &config, &file, false, &err), cases[i].status);
        assert_non_null(strstr(err.text, "\"model.embed_tokens.weight\""));
        assert_non_null(strstr(err.text, cases[i].says));
        tensor_file_release(&file);
        model_source_release(&source);
        bytes_release(&b);
    }
}

static void a_norm_of_a_block_type_is_refused(void **state) {
    (void)state;
    struct bytes b = { 0 };
    struct model_config config = {
        .family = MODEL_LLAMA, .n_layers = 1, .vocab = 1, .hidden = 32, .n_heads = 1, .tied = true
    };
    bytes_gguf_header(&b, 3, 2, 0);
    bytes_gguf_tensor(&b, "token_embd.weight", 2, (uint64_t[]){ 32, 1 }, 8, 0);
    bytes_gguf_tensor(&b, "output_norm.weight", 1, (uint64_t[]){ 32 }, 8, 64);
    bytes_pad(&b, 32);
    bytes_zeros(&b, 64 + 34);
    struct reel_memory_file one = { "m.gguf", b.data, b.n };
    struct model_source source;
    struct gguf gguf;
    struct tensor_file file;
    struct weights weights;
    struct reel_error err = { 0 };
    assert_int_equal(model_source_open_memory(&source, "mem", &one, 1, &err), REEL_OK);
    assert_int_equal(gguf_open(&gguf, &file, &source, &err), REEL_OK);
    assert_int_equal(weights_map(&weights, &config, &file, true, &err), REEL_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "\"output_norm.weight\" has type q8_0"));
    tensor_file_release(&file);
    gguf_release(&gguf);
    model_source_release(&source);
    bytes_release(&b);
}

static void the_memory_plan_adds_up(void **state) {
    (void)state;
    struct mapped m = map_mini(&(struct mini){ .head = true }, false, false);
    struct memory_plan plan;
    memory_plan_fill(&plan, &m.config, &m.weights, 100);
    assert_int_equal(plan.kv_position_bytes, 2 * 4 * 2);
    assert_int_equal(plan.kv_bytes, 1600);
    assert_int_equal(plan.weight_bytes, m.weights.n_bytes);
    assert_int_equal(plan.token_bytes, m.weights.n_bytes - 9 * 32); /* one embedding row */
    assert_int_equal(plan.token_bytes_bf16, plan.token_bytes / 2);  /* the file is f32 */
    assert_int_equal(plan.total_bytes,
                     plan.weight_bytes + plan.owned_bytes + plan.kv_bytes + plan.scratch_bytes);
    release(&m);
}

static void the_default_context_fits_memory(void **state) {
    (void)state;
    assert_int_equal(memory_plan_context(8192, 0, 1000, 1 << 30), 8192);
    assert_int_equal(memory_plan_context(8192, 0, 1000, 4000000), 2816); /* 3000 in steps of 256 */
    assert_int_equal(memory_plan_context(8192, 4000000, 1000, 4000000), 256);
    assert_int_equal(memory_plan_context(100, 4000000, 1000, 4000000), 100);
    assert_int_equal(memory_plan_context(8192, 9000000, 1000, 4000000), 256);
    assert_int_equal(memory_plan_context(40960, 0, 1000, 0), 4096);
    assert_int_equal(memory_plan_context(64, 0, 1000, 0), 64);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_matrix_is_found_under_its_name),
        cmocka_unit_test(a_tied_head_is_the_embedding_and_a_stored_copy_is_skipped),
        cmocka_unit_test(a_tied_model_with_another_head_is_refused),
        cmocka_unit_test(an_untied_model_needs_its_head),
        cmocka_unit_test(rows_of_q_and_k_are_put_back_in_order),
        cmocka_unit_test(qwen3_gguf_rows_stay_as_stored),
        cmocka_unit_test(every_required_tensor_is_missed_by_name),
        cmocka_unit_test(tensors_that_would_change_the_result_are_refused),
        cmocka_unit_test(biases_of_q_k_and_v_are_one_vector),
        cmocka_unit_test(tensors_that_change_nothing_are_skipped),
        cmocka_unit_test(an_embedding_of_another_kind_is_named),
        cmocka_unit_test(a_norm_of_a_block_type_is_refused),
        cmocka_unit_test(the_memory_plan_adds_up),
        cmocka_unit_test(the_default_context_fits_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
