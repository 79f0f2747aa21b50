/* reel_model_inspect and model_load on real and broken checkpoints. REEL_SMOLLM2 names the Q4_1
 * file of SmolLM2-135M-Instruct; without it that test is skipped. */
#include "base/json.h"
#include "model/model.h"

#include "support/model_bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/reel-inspect-XXXXXX";

static int make_file(void **state) {
    (void)state;
    int fd = mkstemp(path);
    if (fd >= 0) close(fd);
    return fd < 0 ? -1 : 0;
}

static int drop_file(void **state) {
    (void)state;
    return unlink(path);
}

static json_t *inspect(const char *model) {
    struct reel_error err = { 0 };
    char *text = NULL;
    if (reel_model_inspect(model, &text, &err) != REEL_OK) fail_msg("%s", err.text);
    json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(object);
    reel_free(text);
    return object;
}

static const json_t *at(const json_t *object, const char *group, const char *key) {
    return json_object_get(json_object_get(object, group), key);
}

static long long number(const json_t *object, const char *group, const char *key) {
    const json_t *value = at(object, group, key);
    if (!json_is_integer(value)) fail_msg("%s.%s is no integer", group, key);
    return json_integer_value(value);
}

static void the_demo_model_is_described(void **state) {
    (void)state;
    json_t *d = inspect("models/demo");
    assert_true(json_is_null(json_object_get(d, "problem")));
    assert_string_equal(json_string_value(json_object_get(d, "container")), "safetensors");
    assert_string_equal(json_string_value(at(d, "config", "family")), "qwen3");
    assert_string_equal(json_string_value(at(d, "tokenizer", "kind")), "byte-level BPE");
    assert_int_equal(number(d, "tokenizer", "tokens"), 4096);
    assert_true(number(d, "tensors", "parameters") > 1000000);
    assert_int_equal(json_array_size(at(d, "tensors", "list")), number(d, "tensors", "count"));
    assert_true(json_is_true(at(d, "memory", "fits")));
    assert_int_equal(number(d, "memory", "total"),
                     number(d, "memory", "weights") + number(d, "memory", "copied_weights") +
                         number(d, "memory", "scratch") + number(d, "memory", "kv"));
    /* codes have half of the bytes, and a float beside each vector */
    const long long vectors = 2 * number(d, "config", "layers") * number(d, "config", "kv_heads");
    assert_int_equal(number(d, "memory", "kv_codes_per_position"),
                     number(d, "memory", "kv_per_position") / 2 + 4 * vectors);
    json_decref(d);
}

static void a_model_that_cannot_run_is_described_with_its_problem(void **state) {
    (void)state;
    struct bytes b = { 0 };
    mini_gguf(&b, &(struct mini){ .without = "blk.0.attn_q.weight" });
    assert_int_equal(file_write_atomic(path, b.data, b.n, NULL), REEL_OK);
    json_t *d = inspect(path);
    const char *problem = json_string_value(json_object_get(d, "problem"));
    assert_non_null(strstr(problem, "\"blk.0.attn_q.weight\" is missing"));
    assert_int_equal(number(d, "config", "hidden"), 8);
    assert_true(json_is_null(json_object_get(d, "memory")));
    json_decref(d);
    bytes_release(&b);
}

/* What run would refuse after the weights, inspect refuses too. */
static void a_model_without_a_tokenizer_is_a_problem(void **state) {
    (void)state;
    struct bytes b = { 0 };
    mini_gguf(&b, &(struct mini){ .head = true });
    assert_int_equal(file_write_atomic(path, b.data, b.n, NULL), REEL_OK);
    json_t *d = inspect(path);
    const char *problem = json_string_value(json_object_get(d, "problem"));
    if (!problem || !strstr(problem, "tokenizer")) fail_msg("%s", problem ? problem : "none");
    assert_true(json_is_false(json_object_get(d, "runs")));
    json_decref(d);
    bytes_release(&b);
}

static void an_unknown_architecture_still_lists_its_tensors(void **state) {
    (void)state;
    struct bytes b = { 0 };
    bytes_gguf_header(&b, 3, 1, 1);
    bytes_gguf_text(&b, "general.architecture", "mamba\xff");
    bytes_gguf_tensor(&b, "odd\xff", 1, (uint64_t[]){ 8 }, 0, 0);
    bytes_pad(&b, 32);
    bytes_zeros(&b, 32);
    assert_int_equal(file_write_atomic(path, b.data, b.n, NULL), REEL_OK);
    json_t *d = inspect(path);
    assert_true(json_is_null(json_object_get(d, "config")));
    assert_int_equal(number(d, "tensors", "count"), 1);
    json_decref(d);
    bytes_release(&b);
}

static void a_broken_file_is_an_error(void **state) {
    (void)state;
    char *text = NULL;
    struct reel_error err = { 0 };
    assert_int_equal(file_write_atomic(path, "GGUFxxxx", 8, NULL), REEL_OK);
    assert_int_equal(reel_model_inspect(path, &text, &err), REEL_E_UNSUPPORTED);
    assert_null(text);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(reel_model_inspect("/nowhere", &text, &err), REEL_E_NOT_FOUND);
    assert_int_equal(reel_model_inspect(NULL, &text, &err), REEL_E_ARGUMENT);
    assert_int_equal(reel_model_inspect(path, NULL, &err), REEL_E_ARGUMENT);
}

static bool refuse(void *user, const char *stage, uint64_t done, uint64_t total) {
    (void)stage, (void)done, (void)total;
    ++*(int *)user;
    return false;
}

static void loading_ends_when_progress_says_so(void **state) {
    (void)state;
    struct model_source source;
    struct model model;
    struct reel_error err = { 0 };
    int calls = 0;
    struct model_load_options options = { .progress = refuse, .progress_user = &calls };
    assert_int_equal(model_source_open(&source, "models/demo", &err), REEL_OK);
    assert_int_equal(model_load(&model, &source, &options, &err), REEL_E_CANCELLED);
    assert_int_equal(calls, 1);
    assert_null(source.path);
    model_release(&model);
}

static void a_model_is_named_after_its_folder(void **state) {
    (void)state;
    struct model_source source;
    struct model model;
    struct reel_error err = { 0 };
    struct model_load_options options = { 0 };
    assert_int_equal(model_source_open(&source, "models/demo///", &err), REEL_OK);
    if (model_load(&model, &source, &options, &err) != REEL_OK) fail_msg("%s", err.text);
    assert_string_equal(model.name, "demo");
    assert_true(tokenizer_size(model.tokenizer) > 0);
    model_release(&model);
}

static void smollm2_is_described_and_loads(void **state) {
    (void)state;
    const char *model_path = getenv("REEL_SMOLLM2");
    if (!model_path) {
        print_message("REEL_SMOLLM2 is not set\n");
        skip();
    }
    json_t *d = inspect(model_path);
    assert_true(json_is_null(json_object_get(d, "problem")));
    assert_int_equal(number(d, "tensors", "parameters"), 134515008);
    assert_int_equal(number(d, "tensors", "weight_bytes"), 96576768);
    assert_int_equal(number(d, "memory", "kv_per_position"), 23040);
    assert_string_equal(json_string_value(at(d, "tokenizer", "chat_template")), "evaluated");
    json_decref(d);

    struct model_source source;
    struct model model;
    struct reel_error err = { 0 };
    struct model_load_options options = { 0 };
    assert_int_equal(model_source_open(&source, model_path, &err), REEL_OK);
    if (model_load(&model, &source, &options, &err) != REEL_OK) fail_msg("%s", err.text);
    assert_int_equal(model.config.n_layers, 30);
    assert_int_equal(model.weights.main_type, DTYPE_Q4_1);
    assert_int_equal(model.config.stop_ids[0], 2);
    model_release(&model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_demo_model_is_described),
        cmocka_unit_test(a_model_that_cannot_run_is_described_with_its_problem),
        cmocka_unit_test(a_model_without_a_tokenizer_is_a_problem),
        cmocka_unit_test(an_unknown_architecture_still_lists_its_tensors),
        cmocka_unit_test(a_broken_file_is_an_error),
        cmocka_unit_test(loading_ends_when_progress_says_so),
        cmocka_unit_test(a_model_is_named_after_its_folder),
        cmocka_unit_test(smollm2_is_described_and_loads),
    };
    return cmocka_run_group_tests(tests, make_file, drop_file);
}
