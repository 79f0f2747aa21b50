/* A Qwen3.5 as llama.cpp's converter writes it gives what the folder it was made of gives: layer
 * kinds that no interval describes, three value heads a key head (which GGUF stores in another
 * order), gains with their 1 added, and a draft layer among the blocks. tools/make_qwen35_gguf.py
 * made the file. */
#include "reel.h"
#include "tests/support/golden.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    unsigned char *last = behind(bytes, n, "blk.3.nextn.eh_proj.weight") - 1;
    *last = '?'; /* of the draft layer, which is not run */
    reel_model_close(open_gguf(bytes, n, "reference"));
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
    struct reel_memory_file one = { "q35-g.gguf", bytes, n };
    struct model_source source = { 0 };
    struct gguf gguf = { 0 };
    struct tensor_file file = { 0 };
    struct model_config config;
    struct weights weights;
    struct reel_error err = { 0 };
    require(model_source_open_memory(&source, "q35-g", &one, 1, &err), &err);
    require(gguf_open(&gguf, &file, &source, &err), &err);
    require(model_config_from_gguf(&config, &gguf, &file, &err), &err);
    for (int i = 0; i < file.n_tensors; i++)
        if (strcmp(file.tensors[i].name, "blk.2.ssm_out.weight") == 0)
            file.tensors[i].dtype = DTYPE_Q8_0;
    assert_int_equal(weights_check(&weights, &config, &file, true, &err), REEL_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "\"blk.2.ssm_out.weight\" has blocks of 32 (q8_0)"));
    tensor_file_release(&file);
    gguf_release(&gguf);
    model_source_release(&source);
    free(bytes);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(logits_are_those_of_the_folder),
        cmocka_unit_test(sizes_and_stop_ids_are_those_of_the_metadata),
        cmocka_unit_test(text_is_read_with_the_files_own_tokenizer),
        cmocka_unit_test(every_tensor_is_missed_by_its_name),
        cmocka_unit_test(metadata_that_cannot_be_is_refused_by_key),
        cmocka_unit_test(blocks_that_reach_over_a_head_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
