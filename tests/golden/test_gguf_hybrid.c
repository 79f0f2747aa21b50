/* A Qwen3.5 as llama.cpp's converter writes it gives what the folder it was made of gives: layer
 * kinds that no interval describes, three value heads a key head (which GGUF stores in another
 * order), gains with their 1 added, and a draft layer among the blocks, which guesses as the
 * folder's. tools/make_qwen35_gguf.py made the file. */
#include "reel.h"
#include "tests/support/golden.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { N_IDS = 100 };

static void require(enum reel_status status, const struct reel_error *err) {
    if (status != REEL_OK) fail_msg("%s: %s", reel_status_name(status), err->text);
}

static enum reel_status try_gguf(struct reel_model **model, const void *bytes, size_t n,
                                 const char *path, struct reel_error *err) {
    struct reel_memory_file file = { "q35-g.gguf", bytes, n };
    struct reel_model_options options = {
        .size = sizeof options, .device = "cpu", .cpu_path = path, .n_threads = 1
    };
    return reel_model_open_memory(model, "q35-g", &file, 1, &options, err);
}

static struct reel_model *open_gguf(const void *bytes, size_t n, const char *path) {
    struct reel_model *model = NULL;
    struct reel_error err = { 0 };
    require(try_gguf(&model, bytes, n, path, &err), &err);
    return model;
}

static struct reel_model *open_folder(const char *folder, const char *path) {
    struct reel_model_options options = {
        .size = sizeof options, .device = "cpu", .cpu_path = path, .n_threads = 1
    };
    struct reel_model *model = NULL;
    struct reel_error err = { 0 };
    require(reel_model_open(&model, folder, &options, &err), &err);
    return model;
}

/* f32 [N_IDS, vocab], a prompt and then one by one; the caller frees. */
static float *logits_of(const struct reel_model *model, int vocab) {
    struct reel_session_options options = { .size = sizeof options, .max_context = N_IDS };
    struct reel_session *session = NULL;
    struct reel_error err = { 0 };
    int32_t ids[N_IDS];
    float *out = calloc((size_t)N_IDS * (size_t)vocab, sizeof *out);
    assert_non_null(out);
    for (int i = 0; i < N_IDS; i++)
        ids[i] = (i * 37 + i / 7) % vocab;
    require(reel_session_open(&session, model, &options, &err), &err);
    for (int at = 0, n = 70; at < N_IDS; at += n, n = 1) {
        struct reel_eval eval = { .size = sizeof eval,
                                  .n = n,
                                  .ids = ids + at,
                                  .output = REEL_OUTPUT_ALL_LOGITS,
                                  .out = out + (size_t)at * (size_t)vocab,
                                  .out_floats = (size_t)n * (size_t)vocab };
        require(reel_session_eval(session, &eval, &err), &err);
    }
    reel_session_close(session);
    return out;
}

/* Bit for bit where the machine's expf is the converter's (exp(A_log) is all that is computed on
 * the way); a rate off by its last bit may turn roundings to bf16 elsewhere. */
static void expect_close(const char *path, const float *made, const float *wanted, int vocab) {
    float largest = 0;
    for (int i = 0; i < N_IDS * vocab; i++)
        largest = fmaxf(largest, fabsf(wanted[i]));
    for (int i = 0; i < N_IDS * vocab; i++)
        if (!(fabsf(made[i] - wanted[i]) <= 0.01f * largest))
            fail_msg("%s: position %d, id %d: %g from GGUF, %g from the folder", path, i / vocab,
                     i % vocab, (double)made[i], (double)wanted[i]);
}

static void logits_are_those_of_the_folder(void **state) {
    (void)state;
    static const char *const paths[] = { "auto", "reference" };
    size_t n = 0;
    void *bytes = golden_unpack("tests/golden/q35-g.gguf.xz", &n);
    struct golden_model files;
    golden_model_open(&files, "q35-g");
    for (int p = 0; p < 2; p++) {
        struct reel_model *gguf = open_gguf(bytes, n, paths[p]);
        struct reel_model *folder = open_folder(files.folder, paths[p]);
        const int vocab = files.config.vocab;
        float *made = logits_of(gguf, vocab), *wanted = logits_of(folder, vocab);
        expect_close(paths[p], made, wanted, vocab);
        free(made);
        free(wanted);
        reel_model_close(gguf);
        reel_model_close(folder);
    }
    golden_model_close(&files);
    free(bytes);
}

static void sizes_and_stop_ids_are_those_of_the_metadata(void **state) {
    (void)state;
    size_t n = 0;
    void *bytes = golden_unpack("tests/golden/q35-g.gguf.xz", &n);
    struct reel_model *gguf = open_gguf(bytes, n, "auto");
    struct reel_model_info info = { .size = sizeof info };
    assert_int_equal(reel_model_get_info(gguf, &info, NULL), REEL_OK);
    assert_int_equal(info.n_layers, 3); /* and the draft layer is none of them */
    assert_int_equal(info.max_context, 4096);
    assert_int_equal(info.vocab, 272);
    assert_int_equal(info.n_stop_ids, 2); /* <|im_end|> and <|endoftext|> */
    assert_int_equal(info.stop_ids[0], 261);
    assert_int_equal(info.stop_ids[1], 259);
    reel_model_close(gguf);
    free(bytes);
}

static void text_is_read_with_the_files_own_tokenizer(void **state) {
    (void)state;
    size_t n = 0;
    void *bytes = golden_unpack("tests/golden/q35-g.gguf.xz", &n);
    struct reel_model *gguf = open_gguf(bytes, n, "auto");
    struct reel_error err = { 0 };
    int32_t ids[8] = { 0 };
    size_t n_ids = 0;
    require(reel_encode(reel_model_tokenizer(gguf), "the in", 6, 0, ids, 8, &n_ids, &err), &err);
    assert_int_equal(n_ids, 3); /* "the", " ", "in" */
    assert_int_equal(ids[0], 257);
    assert_int_equal(ids[2], 258);
    reel_model_close(gguf);
    free(bytes);
}

/* ---- files that are wrong in one place --------------------------------------------------------
 */

/* Behind a text of the header, which is stored after its length. */
static unsigned char *behind(void *bytes, size_t n, const char *text) {
    const size_t length = strlen(text);
    for (unsigned char *p = bytes; p + 8 + length < (unsigned char *)bytes + n; p++) {
        uint64_t stored = 0;
        memcpy(&stored, p, sizeof stored);
        if (stored == length && memcmp(p + 8, text, length) == 0) return p + 8 + length;
    }
    fail_msg("%s is not in the file", text);
    return NULL;
}

static void expect_refused(const void *bytes, size_t n, const char *what, enum reel_status status,
                           const char *says) {
    struct reel_model *model = NULL;
    struct reel_error err = { 0 };
    enum reel_status got = try_gguf(&model, bytes, n, "reference", &err);
    if (got != status || !strstr(err.text, says) || !strstr(err.text, "q35-g"))
        fail_msg("%s: status %d, \"%s\"", what, (int)got, err.text);
}

static void every_tensor_is_missed_by_its_name(void **state) {
    (void)state;
    static const char *const names[] = {
        "token_embd.weight",        "output_norm.weight",
        "blk.0.attn_norm.weight",   "blk.0.ssm_a",
        "blk.0.ssm_conv1d.weight",  "blk.0.ssm_dt.bias",
        "blk.0.ssm_alpha.weight",   "blk.0.ssm_beta.weight",
        "blk.0.attn_qkv.weight",    "blk.0.attn_gate.weight",
        "blk.0.ssm_norm.weight",    "blk.0.ssm_out.weight",
        "blk.0.ffn_down.weight",    "blk.0.ffn_gate.weight",
        "blk.0.ffn_up.weight",      "blk.1.attn_k_norm.weight",
        "blk.1.attn_k.weight",      "blk.1.attn_output.weight",
        "blk.1.attn_q_norm.weight", "blk.1.attn_q.weight",
        "blk.1.attn_v.weight",      "blk.2.post_attention_norm.weight"
    };
    size_t n = 0;
    unsigned char *bytes = golden_unpack("tests/golden/q35-g.gguf.xz", &n);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        unsigned char *last = behind(bytes, n, names[i]) - 1, was = *last;
        *last = '?';
        expect_refused(bytes, n, names[i], REEL_E_FORMAT, names[i]);
        *last = was;
    }
    free(bytes);
}

/* ---- the draft layer --------------------------------------------------------------------------
 */

/* The file in memory, with its tensors. */
struct opened {
    struct model_source source;
    struct gguf gguf;
    struct tensor_file file;
    struct model_config config;
};

static void open_bytes(struct opened *o, const void *bytes, size_t n) {
    const struct reel_memory_file one = { "q35-g.gguf", bytes, n };
    struct reel_error err = { 0 };
    *o = (struct opened){ 0 };
    require(model_source_open_memory(&o->source, "q35-g", &one, 1, &err), &err);
    require(gguf_open(&o->gguf, &o->file, &o->source, &err), &err);
    require(model_config_from_gguf(&o->config, &o->gguf, &o->file, &err), &err);
}

static void close_bytes(struct opened *o) {
    tensor_file_release(&o->file);
    gguf_release(&o->gguf);
    model_source_release(&o->source);
}

/* The shape q35-g with a draft layer, which a folder names and numbers otherwise. */
static void open_with_drafts(struct golden_model *m) {
    char shape[] = "/tmp/reel-shape-XXXXXX", config[4096] = "";
    FILE *from = fopen("tests/golden/models/q35-g.json", "r"), *to = fdopen(mkstemp(shape), "w");
    assert_non_null(from);
    assert_non_null(to);
    const size_t n = fread(config, 1, sizeof config, from);
    assert_true(n > 1 && n < sizeof config && config[0] == '{');
    fprintf(to, "{ \"mtp_num_hidden_layers\": 1, %.*s", (int)n - 1, config + 1);
    assert_int_equal(fclose(from), 0);
    assert_int_equal(fclose(to), 0);
    golden_model_open_shape(m, "q35-g", shape);
    unlink(shape);
}

struct pair {
    const char *folder, *gguf;
};
static const struct pair draft_pairs[] = {
    { "mtp.fc.weight", "blk.3.nextn.eh_proj.weight" },
    { "mtp.pre_fc_norm_embedding.weight", "blk.3.nextn.enorm.weight" },
    { "mtp.pre_fc_norm_hidden.weight", "blk.3.nextn.hnorm.weight" },
    { "mtp.norm.weight", "blk.3.nextn.shared_head_norm.weight" },
    { "mtp.layers.0.input_layernorm.weight", "blk.3.attn_norm.weight" },
    { "mtp.layers.0.self_attn.q_proj.weight", "blk.3.attn_q.weight" },
    { "mtp.layers.0.self_attn.k_proj.weight", "blk.3.attn_k.weight" },
    { "mtp.layers.0.self_attn.v_proj.weight", "blk.3.attn_v.weight" },
    { "mtp.layers.0.self_attn.o_proj.weight", "blk.3.attn_output.weight" },
    { "mtp.layers.0.self_attn.q_norm.weight", "blk.3.attn_q_norm.weight" },
    { "mtp.layers.0.self_attn.k_norm.weight", "blk.3.attn_k_norm.weight" },
    { "mtp.layers.0.post_attention_layernorm.weight", "blk.3.post_attention_norm.weight" },
    { "mtp.layers.0.mlp.gate_proj.weight", "blk.3.ffn_gate.weight" },
    { "mtp.layers.0.mlp.up_proj.weight", "blk.3.ffn_up.weight" },
    { "mtp.layers.0.mlp.down_proj.weight", "blk.3.ffn_down.weight" },
};
enum { N_DRAFT_PAIRS = sizeof draft_pairs / sizeof draft_pairs[0] };

/* The converter was given a draft layer of zeros: puts the folder's into the file, as the converter
 * would have, matrices as they are and gains with their 1. */
static void fill_draft_layer(unsigned char *bytes, size_t n, const struct golden_model *folder) {
    struct opened o;
    open_bytes(&o, bytes, n);
    for (int i = 0; i < N_DRAFT_PAIRS; i++) {
        const struct tensor *from = tensor_find(&folder->tensors, draft_pairs[i].folder);
        const struct tensor *to = tensor_find(&o.file, draft_pairs[i].gguf);
        assert_non_null(from);
        assert_non_null(to);
        unsigned char *out = bytes + (to->data - bytes);
        if (to->rank == 2) {
            assert_int_equal(to->n_bytes, from->n_bytes);
            memcpy(out, from->data, from->n_bytes);
            continue;
        }
        float gain[64];
        assert_int_equal(to->dtype, DTYPE_F32);
        dtype_to_f32(from->dtype, from->data, gain, (size_t)from->shape[0]);
        for (int64_t k = 0; k < from->shape[0]; k++)
            gain[k] += 1;
        memcpy(out, gain, (size_t)from->shape[0] * sizeof *gain);
    }
    close_bytes(&o);
}

static void expect_same_matrix(const char *what, const struct matrix *a, const struct matrix *b) {
    if (a->dtype != b->dtype || a->rows != b->rows || a->columns != b->columns ||
        memcmp(a->data, b->data, (size_t)a->rows * a->row_bytes) != 0)
        fail_msg("%s differs", what);
}

static void expect_same_gains(const char *what, const float *a, const float *b, int n) {
    if (memcmp(a, b, (size_t)n * sizeof *a) != 0) fail_msg("%s differs", what);
}

static void the_draft_layer_is_that_of_the_folder(void **state) {
    (void)state;
    size_t n = 0;
    unsigned char *bytes = golden_unpack("tests/golden/q35-g.gguf.xz", &n);
    struct golden_model folder;
    struct opened o;
    struct weights weights;
    struct reel_error err = { 0 };
    open_with_drafts(&folder);
    fill_draft_layer(bytes, n, &folder);
    open_bytes(&o, bytes, n);
    require(weights_map(&weights, &o.config, &o.file, true, &err), &err);
    const struct draft_weights *a = &weights.draft, *b = &folder.weights.draft;
    const int hidden = o.config.hidden, head = o.config.head_dim;
    assert_true(b->n_parameters > 0);
    assert_int_equal(a->n_parameters, b->n_parameters);
    assert_int_equal(weights.n_parameters, folder.weights.n_parameters);
    expect_same_matrix("fc", &a->fc, &b->fc);
    expect_same_gains("embedding_norm", a->embedding_norm, b->embedding_norm, hidden);
    expect_same_gains("hidden_norm", a->hidden_norm, b->hidden_norm, hidden);
    expect_same_gains("norm", a->norm, b->norm, hidden);
    expect_same_gains("attn_norm", a->layer.attn_norm, b->layer.attn_norm, hidden);
    expect_same_gains("ffn_norm", a->layer.ffn_norm, b->layer.ffn_norm, hidden);
    expect_same_gains("q_norm", a->layer.q_norm, b->layer.q_norm, head);
    expect_same_gains("k_norm", a->layer.k_norm, b->layer.k_norm, head);
    expect_same_matrix("q", &a->layer.q, &b->layer.q);
    expect_same_matrix("k", &a->layer.k, &b->layer.k);
    expect_same_matrix("v", &a->layer.v, &b->layer.v);
    expect_same_matrix("o", &a->layer.o, &b->layer.o);
    expect_same_matrix("gate", &a->layer.gate, &b->layer.gate);
    expect_same_matrix("up", &a->layer.up, &b->layer.up);
    expect_same_matrix("down", &a->layer.down, &b->layer.down);
    weights_release(&weights);
    close_bytes(&o);
    golden_model_close(&folder);
    free(bytes);
}

enum { N_MADE = 60 };

/* What is made with guesses of a source, or without. */
static struct reel_generation_result generate(const struct reel_model *model,
                                              enum reel_speculation kind, int32_t *ids) {
    struct reel_session_options options = { .size = sizeof options,
                                            .max_context = 4 + N_MADE,
                                            .speculation = kind };
    struct reel_generation set = {
        .size = sizeof set, .max_tokens = N_MADE, .ignore_stop_ids = true, .speculation = kind
    };
    struct reel_generation_result result = { .size = sizeof result };
    const struct reel_eval prompt = { .size = sizeof prompt,
                                      .n = 4,
                                      .ids = (const int32_t[]){ 1, 7, 9, 40 } };
    struct reel_session *session = NULL;
    struct reel_error err = { 0 };
    require(reel_session_open(&session, model, &options, &err), &err);
    require(reel_session_eval(session, &prompt, &err), &err);
    require(reel_generate(session, &set, &result, &err), &err);
    assert_int_equal(reel_session_length(session), 4 + N_MADE);
    memcpy(ids, reel_session_ids(session) + 4, N_MADE * sizeof *ids);
    reel_session_close(session);
    return result;
}

static void the_draft_layer_guesses(void **state) {
    (void)state;
    int32_t plain[N_MADE], with[N_MADE];
    size_t n = 0;
    unsigned char *bytes = golden_unpack("tests/golden/q35-g.gguf.xz", &n);
    struct golden_model folder;
    open_with_drafts(&folder);
    fill_draft_layer(bytes, n, &folder);
    struct reel_model *gguf = open_gguf(bytes, n, "auto");
    struct reel_model *other = open_folder(folder.folder, "auto");
    struct reel_model_info info = { .size = sizeof info };
    assert_int_equal(reel_model_get_info(gguf, &info, NULL), REEL_OK);
    assert_int_equal(info.draft_layers, 1);
    assert_int_equal(generate(gguf, REEL_SPECULATION_OFF, plain).n_drafted, 0);
    const struct reel_generation_result made = generate(gguf, REEL_SPECULATION_MTP, with);
    assert_memory_equal(plain, with, sizeof plain);
    const struct reel_generation_result folders = generate(other, REEL_SPECULATION_MTP, with);
    assert_memory_equal(plain, with, sizeof plain);
    assert_true(made.n_drafted > 0);
    assert_int_equal(made.n_drafted, folders.n_drafted);
    assert_int_equal(made.n_accepted, folders.n_accepted);
    print_message("%d of %d guesses were right\n", made.n_accepted, made.n_drafted);
    reel_model_close(gguf);
    reel_model_close(other);
    golden_model_close(&folder);
    free(bytes);
}

/* A model may be converted without it, and one with an output matrix of its own is not run. */
static void a_draft_layer_that_is_not_run_is_skipped(void **state) {
    (void)state;
    static const char *const renamed[][2] = {
        { "blk.3.nextn.eh_proj.weight", "blk.3.nextn.eh_proj.weigh?" },
        { "blk.3.nextn.shared_head_norm.weight", "blk.3.nextn.shared_head_head.weight" },
    };
    size_t n = 0;
    unsigned char *bytes = golden_unpack("tests/golden/q35-g.gguf.xz", &n);
    for (int i = 0; i < 2; i++) {
        struct reel_model_info info = { .size = sizeof info };
        const size_t length = strlen(renamed[i][0]);
        unsigned char *name = behind(bytes, n, renamed[i][0]) - length;
        memcpy(name, renamed[i][1], length);
        struct reel_model *model = open_gguf(bytes, n, "auto");
        assert_int_equal(reel_model_get_info(model, &info, NULL), REEL_OK);
        assert_int_equal(info.draft_layers, 0);
        reel_model_close(model);
        memcpy(name, renamed[i][0], length);
    }
    free(bytes);
}

static void every_tensor_of_the_draft_layer_is_missed_by_its_name(void **state) {
    (void)state;
    size_t n = 0;
    unsigned char *bytes = golden_unpack("tests/golden/q35-g.gguf.xz", &n);
    for (int i = 1; i < N_DRAFT_PAIRS; i++) {
        const char *name = draft_pairs[i].gguf;
        unsigned char *last = behind(bytes, n, name) - 1, was = *last;
        *last = '?';
        expect_refused(bytes, n, name, REEL_E_FORMAT, name);
        *last = was;
    }
    free(bytes);
}

static void metadata_that_cannot_be_is_refused_by_key(void **state) {
    (void)state;
    enum { MISSING = -1 };
    static const struct {
        const char *key;
        int value;
        enum reel_status status;
        const char *says;
    } cases[] = {
        { "qwen35.ssm.group_count", MISSING, REEL_E_FORMAT, "ssm.group_count" },
        { "qwen35.ssm.group_count", 0, REEL_E_LIMIT, "ssm.group_count" },
        { "qwen35.ssm.group_count", 4, REEL_E_FORMAT, "6 linear value heads" },
        { "qwen35.ssm.time_step_rank", MISSING, REEL_E_FORMAT, "ssm.time_step_rank" },
        { "qwen35.ssm.time_step_rank", 0, REEL_E_LIMIT, "ssm.time_step_rank" },
        { "qwen35.ssm.state_size", MISSING, REEL_E_FORMAT, "ssm.state_size" },
        { "qwen35.ssm.state_size", 100000, REEL_E_LIMIT, "ssm.state_size" },
        { "qwen35.ssm.inner_size", MISSING, REEL_E_FORMAT, "ssm.inner_size" },
        { "qwen35.ssm.inner_size", 97, REEL_E_FORMAT, "97, which is not 6 heads" },
        { "qwen35.ssm.inner_size", 3, REEL_E_FORMAT, "3, which is not 6 heads" },
        { "qwen35.ssm.conv_kernel", MISSING, REEL_E_FORMAT, "ssm.conv_kernel" },
        { "qwen35.ssm.conv_kernel", 1, REEL_E_LIMIT, "ssm.conv_kernel" },
        { "qwen35.ssm.conv_kernel", 3, REEL_E_FORMAT, "[160, 4], expected [160, 3]" },
        { "qwen35.rope.dimension_count", MISSING, REEL_E_FORMAT, "rope.dimension_count" },
        { "qwen35.rope.dimension_count", 7, REEL_E_FORMAT, "7 of the 16 entries" },
        { "qwen35.rope.dimension_count", 18, REEL_E_FORMAT, "18 of the 16 entries" },
        { "qwen35.nextn_predict_layers", 4, REEL_E_LIMIT, "nextn_predict_layers" },
        { "qwen35.attention.value_length", 8, REEL_E_UNSUPPORTED, "attention.value_length" },
        { "qwen35.attention.recurrent_layers", MISSING, REEL_E_FORMAT, "blk.1.attn_qkv.weight" },
    };
    size_t n = 0;
    unsigned char *bytes = golden_unpack("tests/golden/q35-g.gguf.xz", &n);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unsigned char *value = behind(bytes, n, cases[i].key), saved[8];
        memcpy(saved, value - 1, sizeof saved);
        if (cases[i].value == MISSING)
            value[-1] = '?';
        else
            memcpy(value + 4, &(uint32_t){ (uint32_t)cases[i].value }, 4); /* behind its type */
        expect_refused(bytes, n, cases[i].key, cases[i].status, cases[i].says);
        memcpy(value - 1, saved, sizeof saved);
    }
    unsigned char *kinds = behind(bytes, n, "qwen35.attention.recurrent_layers");
    kinds[4] = 0; /* numbers in place of truth values */
    expect_refused(bytes, n, "layer kinds", REEL_E_FORMAT, "at least 3 truth values");
    free(bytes);
}

/* Heads of 16 columns are out of order, and a block of Q8_0 has 32. */
static void blocks_that_reach_over_a_head_are_refused(void **state) {
    (void)state;
    size_t n = 0;
    void *bytes = golden_unpack("tests/golden/q35-g.gguf.xz", &n);
    struct opened o;
    struct weights weights;
    struct reel_error err = { 0 };
    open_bytes(&o, bytes, n);
    for (int i = 0; i < o.file.n_tensors; i++)
        if (strcmp(o.file.tensors[i].name, "blk.2.ssm_out.weight") == 0)
            o.file.tensors[i].dtype = DTYPE_Q8_0;
    assert_int_equal(weights_check(&weights, &o.config, &o.file, true, &err), REEL_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "\"blk.2.ssm_out.weight\" has blocks of 32 (q8_0)"));
    close_bytes(&o);
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_the_folder),
        cmocka_unit_test(sizes_and_stop_ids_are_those_of_the_metadata),
        cmocka_unit_test(text_is_read_with_the_files_own_tokenizer),
        cmocka_unit_test(every_tensor_is_missed_by_its_name),
        cmocka_unit_test(the_draft_layer_is_that_of_the_folder),
        cmocka_unit_test(the_draft_layer_guesses),
        cmocka_unit_test(a_draft_layer_that_is_not_run_is_skipped),
        cmocka_unit_test(every_tensor_of_the_draft_layer_is_missed_by_its_name),
        cmocka_unit_test(metadata_that_cannot_be_is_refused_by_key),
        cmocka_unit_test(blocks_that_reach_over_a_head_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
