/* Hybrids (qwen3_5): what their config means, which tensors they need, which are left alone. */
#include "base/buffer.h"
#include "model/safetensors.h"
#include "model/synthetic.h"
#include "model/weights.h"
#include "plan/memory_plan.h"
#include "plan/plan.h"
#include "tests/support/model_bytes.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static enum reel_status read_config(struct model_config *c, const char *text,
                                    struct reel_error *err) {
    struct reel_memory_file file = { "config.json", text, strlen(text) };
    struct model_source source = { 0 };
    enum reel_status status = model_source_open_memory(&source, "mem", &file, 1, err);
    if (status == REEL_OK) status = model_config_read(c, &source, err);
    model_source_release(&source);
    return status;
}

#define SIZES                                                                                      \
    "\"hidden_size\":8,\"num_hidden_layers\":6,\"num_attention_heads\":2,"                         \
    "\"num_key_value_heads\":1,\"head_dim\":8,\"intermediate_size\":12,\"vocab_size\":10"
#define DELTA                                                                                      \
    ",\"linear_num_key_heads\":2,\"linear_num_value_heads\":4,\"linear_key_head_dim\":6,"          \
    "\"linear_value_head_dim\":4"
#define SMALL(more) "{\"model_type\":\"qwen3_5_text\"," SIZES DELTA more "}"

static struct model_config config_of(const char *text) {
    struct model_config c;
    struct reel_error err = { 0 };
    if (read_config(&c, text, &err) != REEL_OK) fail_msg("%s", err.text);
    return c;
}

static void expect_refused(const char *text, enum reel_status status, const char *says) {
    struct model_config c;
    struct reel_error err = { 0 };
    enum reel_status got = read_config(&c, text, &err);
    if (got != status || !strstr(err.text, says))
        fail_msg("%s: status %d, \"%s\", expected %d with %s", text, got, err.text, status, says);
}

/* ---- config ---------------------------------------------------------------------------------- */

static void the_published_shape_is_read(void **state) {
    (void)state;
    struct buffer text = { 0 };
    struct reel_error err = { 0 };
    bool found = false;
    assert_int_equal(synthetic_shape_config(&text, "qwen3.5-0.8b", &found, &err), REEL_OK);
    assert_int_equal(buffer_append(&text, "", 1, &err), REEL_OK);
    struct model_config c = config_of(text.bytes);
    assert_int_equal(c.family, MODEL_QWEN35);
    assert_true(c.nested && c.tied && c.qk_norm && c.gated_attention && c.centred_norms);
    assert_int_equal(c.rotary_dim, 64);
    assert_int_equal(model_q_rows(&c), 4096);
    assert_int_equal(model_delta_channels(&c), 6144);
    assert_int_equal(model_layer_count(&c, LAYER_DELTA), 18);
    for (int i = 0; i < 24; i++)
        assert_int_equal(c.layer_kinds[i], i % 4 == 3 ? LAYER_ATTENTION : LAYER_DELTA);
    assert_int_equal(c.n_draft_layers, 1);
    assert_true(c.rope_theta == 1e7);
    uint64_t bytes = memory_plan_recurrent_bytes(&c);
    assert_int_equal(bytes, 18 * (16 * 128 * 128 + 3 * 6144) * 4);
    buffer_release(&text);
}

static void layers_may_come_in_any_order(void **state) {
    (void)state;
#define F "\"full_attention\","
#define L "\"linear_attention\","
    struct model_config c =
        config_of(SMALL(",\"layer_types\":[" F F L L F "\"linear_attention\"]"));
    const int kinds[] = { 0, 0, 1, 1, 0, 1 }, nth[] = { 0, 1, 0, 1, 2, 2 };
    for (int i = 0; i < 6; i++) {
        assert_int_equal(c.layer_kinds[i], kinds[i]);
        assert_int_equal(model_layers_before(&c, (enum layer_kind)kinds[i], i), nth[i]);
    }
    c = config_of(SMALL(",\"full_attention_interval\":2"));
    assert_int_equal(model_layer_count(&c, LAYER_DELTA), 3);
    c = config_of(SMALL(""));
    assert_int_equal(model_layer_count(&c, LAYER_DELTA), 5);
    assert_int_equal(c.delta.conv_width, 4);
    assert_int_equal(c.rotary_dim, 2);
    c = config_of(SMALL(",\"layer_types\":[" F F F F F "\"full_attention\"]"));
    assert_int_equal(memory_plan_recurrent_bytes(&c), 0);
}

static void the_whole_models_word_on_tying_and_stopping_holds(void **state) {
    (void)state;
#define NESTED(outer, inner)                                                                       \
    "{\"model_type\":\"qwen3_5\",\"vision_config\":{\"depth\":12}," outer                          \
    "\"text_config\":{" SIZES DELTA inner "}}"
    struct model_config c = config_of(NESTED("\"tie_word_embeddings\":true,", ""));
    assert_true(c.tied && c.nested);
    c = config_of(NESTED("", ",\"tie_word_embeddings\":true"));
    assert_true(c.tied);
    c = config_of(NESTED("\"eos_token_id\":4,", ",\"eos_token_id\":[3]"));
    assert_int_equal(c.n_stop_ids, 2);
}

static void what_is_not_supported_is_refused_in_words(void **state) {
    (void)state;
    expect_refused("{\"model_type\":\"qwen3_5\"}", REEL_E_FORMAT, "\"text_config\"");
    expect_refused("{\"model_type\":\"qwen3_5_moe\"}", REEL_E_UNSUPPORTED, "\"qwen3_5_moe\"");
    expect_refused(NESTED("", ",\"model_type\":\"qwen3_5_moe_text\""), REEL_E_UNSUPPORTED,
                   "\"text_config\" is \"qwen3_5_moe_text\", supported is \"qwen3_5_text\"");
    expect_refused(NESTED("", ",\"num_experts\":8"), REEL_E_UNSUPPORTED, "\"num_experts\" is 8");
    expect_refused(NESTED("", ",\"rope_parameters\":{\"beta_slow\":1}"), REEL_E_UNSUPPORTED,
                   "\"rope_parameters\" has \"beta_slow\", which is 1");
    expect_refused(SMALL(",\"attn_output_gate\":false"), REEL_E_UNSUPPORTED, "attn_output_gate");
    expect_refused(SMALL(",\"attention_bias\":true"), REEL_E_UNSUPPORTED, "attention_bias");
    expect_refused(SMALL(",\"layer_types\":[" F F "\"sliding_attention\"]"), REEL_E_UNSUPPORTED,
                   "layer 2 is \"sliding_attention\"");
    expect_refused(SMALL(",\"layer_types\":[" F "\"linear_attention\"]"), REEL_E_FORMAT,
                   "must be a list of 6, it has 2");
    expect_refused(SMALL(",\"full_attention_interval\":0"), REEL_E_LIMIT, "interval");
    expect_refused(SMALL(",\"linear_conv_kernel_dim\":9"), REEL_E_LIMIT, "conv_kernel");
    expect_refused(SMALL(",\"partial_rotary_factor\":0.1"), REEL_E_FORMAT, "0 of the 8 entries");
    expect_refused("{\"model_type\":\"qwen3_5_text\"," SIZES
                   ",\"linear_num_key_heads\":3,\"linear_num_value_heads\":4}",
                   REEL_E_FORMAT, "4 linear value heads are not a multiple of 3");
    expect_refused("{\"model_type\":\"qwen3\"," SIZES ",\"layer_types\":[\"linear_attention\"]}",
                   REEL_E_UNSUPPORTED, "\"linear_attention\"");
}

static void a_gpu_plan_says_what_it_cannot(void **state) {
    (void)state;
    const struct {
        int n_layers, key_dim, value_dim;
        const char *words;
    } cases[] = { { 6, 12, 16, "linear_key_head_dim 12" },
                  { 6, 16, 15, "linear_value_head_dim 15" },
                  { 129, 16, 16, "129 layers of two kinds" } };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct model_config c = config_of(SMALL(""));
        struct plan plan;
        struct reel_error err = { 0 };
        c.n_layers = cases[i].n_layers;
        c.delta.key_dim = cases[i].key_dim, c.delta.value_dim = cases[i].value_dim;
        assert_int_equal(plan_make(&plan, &c, plan_known_gpu("h200"), NULL, &err),
                         REEL_E_UNSUPPORTED);
        if (!strstr(err.text, cases[i].words)) fail_msg("%s", err.text);
    }
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* A checkpoint of zeros: the synthetic tensors of `c`, and what is wrong with it. */
struct twist {
    const char *from, *to; /* names beginning with `from` begin with `to` instead */
    const char *without, *wrong;
    const char *also; /* one more tensor, bf16 [2] */
};

struct mapped {
    struct bytes bytes;
    struct tensor_file file;
    struct weights weights;
    struct reel_error err;
    enum reel_status status;
};

static size_t put_entry(struct buffer *header, const char *name, const char *dtype,
                        const char *shape, size_t at, size_t n_bytes) {
    struct reel_error err;
    assert_int_equal(buffer_printf(header, &err,
                                   "%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],"
                                   "\"data_offsets\":[%zu,%zu]}",
                                   header->size > 1 ? "," : "", name, dtype, shape, at,
                                   at + n_bytes),
                     REEL_OK);
    return at + n_bytes;
}

static size_t put_tensor(struct buffer *header, const struct synthetic_tensor *t,
                         const struct twist *twist, size_t at) {
    char name[120], shape[60];
    const bool is_f32 = t->dtype == DTYPE_F32;
    const int columns = t->columns + (twist->wrong && strcmp(t->name, twist->wrong) == 0);
    size_t skip = twist->from && strncmp(t->name, twist->from, strlen(twist->from)) == 0
                      ? strlen(twist->from)
                      : 0;
    snprintf(name, sizeof name, "%s%s", skip ? twist->to : "", t->name + skip);
    if (twist->without && strcmp(name, twist->without) == 0) return at;
    if (t->rank == 1) snprintf(shape, sizeof shape, "%d", columns);
    if (t->rank == 2) snprintf(shape, sizeof shape, "%d,%d", t->rows, columns);
    if (t->rank == 3) snprintf(shape, sizeof shape, "%d,1,%d", t->rows, columns);
    return put_entry(header, name, is_f32 ? "F32" : "BF16", shape, at,
                     (size_t)t->rows * (size_t)columns * (is_f32 ? 4 : 2));
}

static struct mapped map(const struct model_config *c, const struct twist *twist) {
    struct mapped m = { 0 };
    struct buffer header = { 0 };
    struct model_source source;
    size_t at = 0;
    assert_int_equal(buffer_text(&header, "{", &m.err), REEL_OK);
    for (int i = 0; i < synthetic_tensor_count(c); i++) {
        struct synthetic_tensor t;
        synthetic_tensor_get(c, i, &t);
        at = put_tensor(&header, &t, twist, at);
    }
    if (twist->also) at = put_entry(&header, twist->also, "BF16", "2", at, 4);
    assert_int_equal(buffer_append(&header, "}", 2, &m.err), REEL_OK);
    bytes_safetensors(&m.bytes, header.bytes, at);
    buffer_release(&header);
    struct reel_memory_file one = { "model.safetensors", m.bytes.data, m.bytes.n };
    assert_int_equal(model_source_open_memory(&source, "mem", &one, 1, &m.err), REEL_OK);
    if (safetensors_open(&m.file, &source, &m.err) != REEL_OK) fail_msg("%s", m.err.text);
    m.status = weights_map(&m.weights, c, &m.file, false, &m.err);
    model_source_release(&source);
    return m;
}

static void release(struct mapped *m) {
    weights_release(&m->weights);
    tensor_file_release(&m->file);
    bytes_release(&m->bytes);
}

static void both_kinds_of_layers_find_their_tensors(void **state) {
    (void)state;
    struct model_config c = config_of(SMALL(",\"tie_word_embeddings\":true"));
    struct mapped m = map(&c, &(struct twist){ 0 });
    if (m.status != REEL_OK) fail_msg("%s", m.err.text);
    const struct layer_weights *delta = &m.weights.layers[4], *full = &m.weights.layers[3];
    assert_int_equal(delta->kind, LAYER_DELTA);
    assert_int_equal(delta->nth, 3);
    assert_int_equal(delta->delta.qkv.rows, 2 * 12 + 16);
    assert_int_equal(delta->delta.z.rows, 16);
    assert_int_equal(delta->delta.b.rows, 4);
    assert_int_equal(delta->o.columns, 16);
    assert_true(delta->delta.rate[3] == 1);     /* exp(0) */
    assert_true(delta->delta.out_norm[3] == 0); /* plain */
    assert_true(delta->attn_norm[7] == 1);      /* centred: 0 is stored */
    assert_int_equal(full->kind, LAYER_ATTENTION);
    assert_int_equal(full->nth, 0);
    assert_int_equal(full->q.rows, 32);
    assert_true(full->q_norm[7] == 1 && m.weights.final_norm[0] == 1);
    release(&m);
}

static void every_spelling_of_the_prefix_is_found(void **state) {
    (void)state;
    struct model_config c = config_of(SMALL(""));
    static const struct twist twists[] = {
        { 0 },
        { .from = "model.", .to = "model.language_model." },
        { .from = "model.",
          .to = "language_model.model.",
          .without = "lm_head.weight",
          .also = NULL },
    };
    for (int i = 0; i < 2; i++) {
        struct mapped m = map(&c, &twists[i]);
        if (m.status != REEL_OK) fail_msg("%s", m.err.text);
        release(&m);
    }
    c.tied = true; /* its head would be language_model.lm_head.weight */
    struct mapped m = map(&c, &twists[2]);
    if (m.status != REEL_OK) fail_msg("%s", m.err.text);
    release(&m);
}

static void every_required_tensor_is_missed_or_mismeasured_by_name(void **state) {
    (void)state;
    struct model_config c = config_of(SMALL(",\"mtp_num_hidden_layers\":1"));
    for (int i = 0; i < synthetic_tensor_count(&c); i++) {
        struct synthetic_tensor t;
        synthetic_tensor_get(&c, i, &t);
        struct mapped m = map(&c, &(struct twist){ .wrong = t.name });
        if (m.status != REEL_E_FORMAT || !strstr(m.err.text, t.name) ||
            !strstr(m.err.text, "expected ["))
            fail_msg("%s of another shape: %d \"%s\"", t.name, m.status, m.err.text);
        release(&m);
        m = map(&c, &(struct twist){ .without = t.name });
        bool may_go = strcmp(t.name, "mtp.fc.weight") == 0; /* then there is no draft at all */
        if (may_go ? m.status != REEL_OK : m.status != REEL_E_FORMAT || !strstr(m.err.text, t.name))
            fail_msg("without %s: %d \"%s\"", t.name, m.status, m.err.text);
        release(&m);
    }
}

static void vision_and_draft_are_counted_apart(void **state) {
    (void)state;
    struct model_config plain = config_of(SMALL("")), drafted = plain;
    drafted.n_draft_layers = 1;
    struct mapped a = map(&plain, &(struct twist){ 0 });
    struct mapped b =
        map(&drafted, &(struct twist){ .also = "model.visual.blocks.0.attn.qkv.bias" });
    if (b.status != REEL_OK) fail_msg("%s", b.err.text);
    assert_int_equal(a.weights.n_skipped, 0);
    assert_int_equal(b.weights.n_skipped, 1);
    assert_true(b.weights.skipped_bytes > 0);
    assert_int_equal(a.weights.n_parameters, b.weights.n_parameters);
    assert_int_equal(a.weights.n_bytes, b.weights.n_bytes);
    assert_int_equal(a.weights.draft.n_parameters, 0);
    assert_true(b.weights.draft.n_parameters > 0);
    assert_int_equal(b.weights.draft.n_bytes, 2 * b.weights.draft.n_parameters); /* all bf16 */
    assert_int_equal(b.weights.draft.fc.columns, 2 * b.weights.draft.fc.rows);
    assert_true(b.weights.owned_bytes > a.weights.owned_bytes); /* its norms */
    const struct draft_weights *draft = &b.weights.draft;
    const float *norms[] = { draft->embedding_norm, draft->hidden_norm, draft->norm,
                             draft->layer.attn_norm, draft->layer.q_norm };
    for (int i = 0; i < 5; i++)
        assert_true(norms[i] && norms[i][0] > 0.5f && norms[i][0] < 1.5f); /* 1 was added */
    const float *end = (const float *)b.weights.owned + b.weights.owned_bytes / sizeof(float);
    for (int i = 0; i < 5; i++)
        assert_true(norms[i] >= (const float *)b.weights.owned && norms[i] < end);
    release(&a);
    release(&b);
    drafted.n_draft_layers = 2; /* which nothing runs */
    b = map(&drafted, &(struct twist){ 0 });
    if (b.status != REEL_OK) fail_msg("%s", b.err.text);
    assert_int_equal(b.weights.n_skipped, 4 + 2 * 11);
    assert_int_equal(b.weights.draft.n_parameters, 0);
    release(&b);
    b = map(&plain, &(struct twist){ .also = "model.layers.0.linear_attn.conv1d.bias" });
    assert_int_equal(b.status, REEL_E_UNSUPPORTED);
    release(&b);
}

static void the_published_model_has_the_published_count(void **state) {
    (void)state;
    struct buffer text = { 0 };
    struct reel_error err = { 0 };
    bool found = false;
    assert_int_equal(synthetic_shape_config(&text, "qwen3.5-0.8b", &found, &err), REEL_OK);
    assert_int_equal(buffer_append(&text, "", 1, &err), REEL_OK);
    struct model_config c = config_of(text.bytes);
    uint64_t elements = 0, bytes = 0;
    assert_int_equal(synthetic_tensor_count(&c), 320 + 15);
    for (int i = 0; i < 335; i++) {
        struct synthetic_tensor t;
        synthetic_tensor_get(&c, i, &t);
        uint64_t n = (uint64_t)t.rows * (uint64_t)t.columns;
        elements += n;
        bytes += n * (t.dtype == DTYPE_F32 ? 4 : 2);
    }
    assert_int_equal(elements, 752393024 + 20452864);
    assert_int_equal(bytes, 1746882752 - 2 * 100592896); /* the file's, less its vision tower */
    buffer_release(&text);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_shape_is_read),
        cmocka_unit_test(layers_may_come_in_any_order),
        cmocka_unit_test(the_whole_models_word_on_tying_and_stopping_holds),
        cmocka_unit_test(what_is_not_supported_is_refused_in_words),
        cmocka_unit_test(a_gpu_plan_says_what_it_cannot),
        cmocka_unit_test(both_kinds_of_layers_find_their_tensors),
        cmocka_unit_test(every_spelling_of_the_prefix_is_found),
        cmocka_unit_test(every_required_tensor_is_missed_or_mismeasured_by_name),
        cmocka_unit_test(vision_and_draft_are_counted_apart),
        cmocka_unit_test(the_published_model_has_the_published_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
