/* Speech models (qwen3_asr): what their config means in both layouts, which tensors they need under
 * both sets of names, and what is refused. */
#include "base/buffer.h"
#include "model/safetensors.h"
#include "model/synthetic.h"
#include "model/weights.h"
#include "plan/memory_plan.h"
#include "tests/support/model_bytes.h"

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

static struct model_config config_of(const char *text) {
    struct model_config c;
    struct reel_error err = { 0 };
    if (read_config(&c, text, &err) != REEL_OK) fail_msg("%s: %s", text, err.text);
    return c;
}

static void expect_refused(const char *text, enum reel_status status, const char *says) {
    struct model_config c;
    struct reel_error err = { 0 };
    enum reel_status got = read_config(&c, text, &err);
    if (got != status || !strstr(err.text, says))
        fail_msg("%s: status %d, \"%s\", expected %d with %s", text, got, err.text, status, says);
}

#define AUDIO_BUT_WINDOW                                                                           \
    "\"num_mel_bins\":20,\"encoder_layers\":2,\"d_model\":12,\"encoder_attention_heads\":3,"       \
    "\"encoder_ffn_dim\":14,\"downsample_hidden_size\":5,\"output_dim\":8,\"n_window\":50"
#define AUDIO AUDIO_BUT_WINDOW ",\"n_window_infer\":400"
#define TEXT_BUT_THETA                                                                             \
    "\"hidden_size\":8,\"num_hidden_layers\":1,\"num_attention_heads\":2,"                         \
    "\"num_key_value_heads\":1,\"head_dim\":4,\"intermediate_size\":12,\"vocab_size\":10"
#define TEXT TEXT_BUT_THETA ",\"rope_theta\":1000000"
#define IDS  "\"audio_token_id\":7"

/* As published, and as transformers 5 saves. */
#define NESTED(outer, around, audio, text)                                                         \
    "{\"model_type\":\"qwen3_asr\"," outer "\"thinker_config\":{" around                           \
    ",\"audio_config\":{" audio "},\"text_config\":{" text "}}}"
#define FLAT(around, audio, text)                                                                  \
    "{\"model_type\":\"qwen3_asr\"," around ",\"audio_config\":{" audio "},\"text_config\":{" text \
    "}}"

/* ---- config ---------------------------------------------------------------------------------- */

static struct model_config published(const char *shape) {
    struct buffer text = { 0 };
    struct reel_error err = { 0 };
    bool found = false;
    assert_int_equal(synthetic_shape_config(&text, shape, &found, &err), REEL_OK);
    assert_true(found);
    assert_int_equal(buffer_append(&text, "", 1, &err), REEL_OK);
    struct model_config c = config_of(text.bytes);
    buffer_release(&text);
    return c;
}

static void the_published_shape_is_read(void **state) {
    (void)state;
    struct model_config c = published("qwen3-asr-0.6b");
    assert_int_equal(c.family, MODEL_QWEN3_ASR);
    assert_string_equal(model_family_name(c.family), "qwen3_asr");
    assert_true(c.nested && c.tied && c.qk_norm && !c.gated_attention && !c.centred_norms);
    assert_int_equal(c.rotary_dim, 128);
    assert_true(c.rope_theta == 1e6);
    assert_int_equal(c.max_context, 65536);
    assert_int_equal(model_layer_count(&c, LAYER_ATTENTION), 28);
    assert_int_equal(c.audio.n_layers, 18);
    assert_int_equal(c.audio.hidden, 896);
    assert_int_equal(c.audio.n_heads, 14);
    assert_int_equal(c.audio.window_chunks, 8);
    assert_int_equal(c.audio.token_id, 151676);
    assert_int_equal(c.audio.start_id, 151669);
    assert_int_equal(c.audio.end_id, 151670);
    assert_int_equal(audio_conv_width(&c.audio), 7680);
    assert_int_equal(audio_convolved(M_AUDIO_CHUNK_FRAMES), M_AUDIO_CHUNK_TOKENS);
}

static void both_layouts_mean_the_same(void **state) {
    (void)state;
    struct model_config a = config_of(NESTED("", IDS, AUDIO, TEXT));
    struct model_config b = config_of(FLAT(IDS, AUDIO, TEXT));
    assert_memory_equal(&a, &b, sizeof a);
    assert_int_equal(a.audio.start_id, -1);
    a = config_of(FLAT(IDS, AUDIO,
                       TEXT_BUT_THETA
                       ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":1000000}"));
    assert_true(a.rope_theta == 1e6);
    a = config_of(NESTED("\"eos_token_id\":[3],", IDS ",\"eos_token_id\":4", AUDIO,
                         TEXT ",\"eos_token_id\":5,\"tie_word_embeddings\":true"));
    assert_int_equal(a.n_stop_ids, 3);
    assert_true(a.tied);
    a = config_of(FLAT(IDS ",\"tie_word_embeddings\":true", AUDIO, TEXT));
    assert_true(a.tied);
}

static void other_families_do_not_hear(void **state) {
    (void)state;
    struct model_config c = config_of(mini_qwen3_config);
    assert_int_equal(c.audio.n_layers, 0);
}

static void what_is_not_supported_is_refused_in_words(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum reel_status status;
        const char *says;
    } bad[] = {
        { "{\"model_type\":\"qwen3_asr\"}", REEL_E_FORMAT, "\"text_config\"" },
        { "{\"model_type\":\"qwen3_asr\",\"thinker_config\":{}}", REEL_E_FORMAT,
          "\"text_config\"" },
        { "{\"model_type\":\"qwen3_asr\"," IDS ",\"text_config\":{" TEXT "}}", REEL_E_FORMAT,
          "\"audio_config\" must be" },
        { FLAT(IDS, AUDIO, TEXT_BUT_THETA), REEL_E_FORMAT, "\"rope_theta\" is missing" },
        { FLAT("\"x\":1", AUDIO, TEXT), REEL_E_FORMAT, "\"audio_token_id\" is missing" },
        { FLAT("\"audio_token_id\":10", AUDIO, TEXT), REEL_E_LIMIT, "\"audio_token_id\"" },
        { FLAT(IDS, AUDIO_BUT_WINDOW, TEXT), REEL_E_FORMAT, "\"n_window_infer\" is missing" },
        { FLAT(IDS, AUDIO_BUT_WINDOW ",\"n_window_infer\":450", TEXT), REEL_E_FORMAT,
          "450, not a multiple of 100" },
        { FLAT(IDS, AUDIO ",\"activation_function\":\"relu\"", TEXT), REEL_E_UNSUPPORTED,
          "\"relu\", supported is \"gelu\"" },
        { FLAT(IDS, AUDIO ",\"scale_embedding\":true", TEXT), REEL_E_UNSUPPORTED,
          "\"scale_embedding\" is true" },
        { FLAT(IDS, "\"encoder_layers\":0", TEXT), REEL_E_LIMIT, "\"encoder_layers\"" },
        { FLAT(IDS, "\"encoder_layers\":1", TEXT), REEL_E_FORMAT, "\"d_model\" is missing" },
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        expect_refused(bad[i].text, bad[i].status, bad[i].says);
#define ODD(window, heads, hidden, output)                                                         \
    FLAT(IDS,                                                                                      \
         "\"num_mel_bins\":20,\"encoder_layers\":2,\"d_model\":" hidden                            \
         ",\"encoder_attention_heads\":" heads ",\"encoder_ffn_dim\":14,"                          \
         "\"downsample_hidden_size\":5,\"output_dim\":" output ",\"n_window\":" window             \
         ",\"n_window_infer\":400",                                                                \
         TEXT)
    expect_refused(ODD("100", "3", "12", "8"), REEL_E_UNSUPPORTED, "\"n_window\" is 100");
    expect_refused(ODD("50", "5", "12", "8"), REEL_E_FORMAT, "\"d_model\" is 12");
    expect_refused(ODD("50", "3", "15", "8"), REEL_E_FORMAT, "\"d_model\" is 15");
    expect_refused(ODD("50", "3", "12", "9"), REEL_E_FORMAT, "\"output_dim\" is 9");
}

/* ---- tensors --------------------------------------------------------------------------------- */

static const char *const renamed[][2] = {
    { "thinker.audio_tower.proj1.", "model.multi_modal_projector.linear_1." },
    { "thinker.audio_tower.proj2.", "model.multi_modal_projector.linear_2." },
    { "thinker.audio_tower.", "model.audio_tower." },
    { "thinker.model.", "model.language_model." },
    { "thinker.lm_head.", "lm_head." },
};

/* What is different about a checkpoint. */
struct twist {
    bool saved; /* by the names transformers saves */
    const char *without, *wrong;
    const char *also; /* one more tensor, bf16 [rows, 2] */
    int rows;
};

struct mapped {
    struct bytes bytes;
    struct tensor_file file;
    struct weights weights;
    struct reel_error err;
    enum reel_status status;
};

static size_t put_entry(struct buffer *header, const char *name, const char *shape, size_t at,
                        size_t elements) {
    struct reel_error err;
    assert_int_equal(buffer_printf(header, &err,
                                   "%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[%s],"
                                   "\"data_offsets\":[%zu,%zu]}",
                                   header->size > 1 ? "," : "", name, shape, at, at + 2 * elements),
                     REEL_OK);
    return at + 2 * elements;
}

static size_t put_tensor(struct buffer *header, const struct synthetic_tensor *t,
                         const struct twist *twist, size_t at) {
    char name[120], shape[60];
    const int more = twist->wrong && strcmp(t->name, twist->wrong) == 0, rows = t->rows + more;
    snprintf(name, sizeof name, "%s", t->name);
    for (size_t i = 0; twist->saved && i < sizeof renamed / sizeof renamed[0]; i++) {
        size_t n = strlen(renamed[i][0]);
        if (strncmp(t->name, renamed[i][0], n) != 0) continue;
        snprintf(name, sizeof name, "%s%s", renamed[i][1], t->name + n);
        break;
    }
    if (twist->without && strcmp(t->name, twist->without) == 0) return at;
    if (t->rank == 1) snprintf(shape, sizeof shape, "%d", t->columns + more);
    if (t->rank == 2) snprintf(shape, sizeof shape, "%d,%d", rows, t->columns);
    if (t->rank == 4) snprintf(shape, sizeof shape, "%d,%d,3,3", rows, t->columns / 9);
    return put_entry(header, name, shape, at,
                     t->rank == 1 ? (size_t)(t->columns + more)
                                  : (size_t)rows * (size_t)t->columns);
}

static struct mapped map(const struct model_config *c, const struct twist *twist) {
    struct mapped m = { 0 };
    struct buffer header = { 0 };
    struct model_source source;
    size_t at = 0;
    char shape[40];
    assert_int_equal(buffer_text(&header, "{", &m.err), REEL_OK);
    for (int i = 0; i < synthetic_tensor_count(c); i++) {
        struct synthetic_tensor t;
        synthetic_tensor_get(c, i, &t);
        at = put_tensor(&header, &t, twist, at);
    }
    snprintf(shape, sizeof shape, "%d,%d", twist->rows, c->hidden);
    if (twist->also)
        at = put_entry(&header, twist->also, shape, at, (size_t)twist->rows * (size_t)c->hidden);
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

static const char tied_text[] = FLAT(IDS ",\"tie_word_embeddings\":true", AUDIO, TEXT);

static void both_sets_of_names_are_found(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        struct model_config c = config_of(i & 1 ? tied_text : FLAT(IDS, AUDIO, TEXT));
        struct mapped m = map(&c, &(struct twist){ .saved = i & 2 });
        if (m.status != REEL_OK) fail_msg("%s", m.err.text);
        const struct audio_weights *w = &m.weights.audio;
        assert_int_equal(w->n_layers, 2);
        assert_int_equal(w->conv[0].weight.columns, 9);
        assert_int_equal(w->conv[2].weight.columns, 45);
        assert_int_equal(w->conv_out.columns, 5 * 3);
        assert_int_equal(w->proj2.weight.rows, 8);
        assert_non_null(w->layers[1].k.bias);
        assert_non_null(w->proj2.bias);
        assert_true(m.weights.n_parameters > w->n_parameters && w->n_parameters > 0);
        release(&m);
    }
}

static void decoding_does_not_count_the_tower(void **state) {
    (void)state;
    struct model_config c = config_of(tied_text);
    struct mapped m = map(&c, &(struct twist){ 0 });
    struct memory_plan plan;
    memory_plan_fill(&plan, &c, &m.weights, 16);
    assert_int_equal(plan.weight_bytes, m.weights.n_bytes);
    assert_int_equal(plan.token_bytes, m.weights.n_bytes - m.weights.audio.n_bytes);
    release(&m);
}

static void a_bias_of_the_keys_may_be_absent(void **state) {
    (void)state;
    struct model_config c = config_of(tied_text);
    struct mapped m =
        map(&c, &(struct twist){ .without = "thinker.audio_tower.layers.1.self_attn.k_proj.bias" });
    if (m.status != REEL_OK) fail_msg("%s", m.err.text);
    assert_null(m.weights.audio.layers[1].k.bias);
    assert_non_null(m.weights.audio.layers[0].k.bias);
    release(&m);
}

static void a_redundant_head_is_checked_and_left_alone(void **state) {
    (void)state;
    struct model_config c = config_of(tied_text);
    struct mapped m = map(&c, &(struct twist){ .also = "thinker.lm_head.weight", .rows = 10 });
    if (m.status != REEL_OK) fail_msg("%s", m.err.text);
    assert_ptr_equal(m.weights.head.data, m.weights.embedding.data);
    release(&m);
    m = map(&c, &(struct twist){ .also = "thinker.lm_head.weight", .rows = 9 });
    assert_int_equal(m.status, REEL_E_FORMAT);
    assert_non_null(strstr(m.err.text, "thinker.lm_head.weight"));
    release(&m);
}

static void every_required_tensor_is_missed_or_mismeasured_by_name(void **state) {
    (void)state;
    struct model_config c = config_of(FLAT(IDS, AUDIO, TEXT));
    for (int i = 0; i < synthetic_tensor_count(&c); i++) {
        struct synthetic_tensor t;
        synthetic_tensor_get(&c, i, &t);
        struct mapped m = map(&c, &(struct twist){ .wrong = t.name });
        if (m.status != REEL_E_FORMAT || !strstr(m.err.text, t.name) ||
            !strstr(m.err.text, "expected ["))
            fail_msg("%s of another shape: %d \"%s\"", t.name, m.status, m.err.text);
        release(&m);
        if (strstr(t.name, "k_proj.bias")) continue;
        m = map(&c, &(struct twist){ .without = t.name });
        if (m.status != REEL_E_FORMAT || !strstr(m.err.text, t.name))
            fail_msg("without %s: %d \"%s\"", t.name, m.status, m.err.text);
        release(&m);
    }
}

static void what_the_tower_does_not_apply_is_refused(void **state) {
    (void)state;
    static const char *const names[] = { "thinker.audio_tower.conv_out.bias",
                                         "model.audio_tower.layers.2.fc1.weight",
                                         "model.multi_modal_projector.linear_3.weight" };
    struct model_config c = config_of(tied_text);
    for (int i = 0; i < 3; i++) {
        struct mapped m = map(&c, &(struct twist){ .saved = i > 0, .also = names[i], .rows = 1 });
        assert_int_equal(m.status, REEL_E_UNSUPPORTED);
        assert_non_null(strstr(m.err.text, names[i]));
        release(&m);
    }
}

static void the_published_models_have_the_published_counts(void **state) {
    (void)state;
    struct model_config c = published("qwen3-asr-0.6b");
    uint64_t tower = 0, all = 0;
    assert_int_equal(synthetic_tensor_count(&c), 612 - 1); /* less the redundant head */
    for (int i = 0; i < synthetic_tensor_count(&c); i++) {
        struct synthetic_tensor t;
        synthetic_tensor_get(&c, i, &t);
        uint64_t n = (uint64_t)t.rows * (uint64_t)t.columns;
        all += n;
        if (audio_weights_owns(t.name)) tower += n;
    }
    assert_int_equal(tower, 186376192);
    assert_int_equal(all, 186376192 + 596049920);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_published_shape_is_read),
        cmocka_unit_test(both_layouts_mean_the_same),
        cmocka_unit_test(other_families_do_not_hear),
        cmocka_unit_test(what_is_not_supported_is_refused_in_words),
        cmocka_unit_test(both_sets_of_names_are_found),
        cmocka_unit_test(decoding_does_not_count_the_tower),
        cmocka_unit_test(a_bias_of_the_keys_may_be_absent),
        cmocka_unit_test(a_redundant_head_is_checked_and_left_alone),
        cmocka_unit_test(every_required_tensor_is_missed_or_mismeasured_by_name),
        cmocka_unit_test(what_the_tower_does_not_apply_is_refused),
        cmocka_unit_test(the_published_models_have_the_published_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
