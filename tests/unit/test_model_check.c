/* Whether reel runs a checkpoint, asked before its weights are there. */
#include "reel.h"
#include "support/quantised_model.h"
#include "support/small_tokenizer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The first n bytes, behind which nothing can be read. */
static enum reel_status check_head(const struct bytes *b, size_t n, bool *complete,
                                   struct reel_error *err) {
    struct guarded g = guarded_copy(b->data, n);
    const struct reel_memory_file file = { "m.gguf", g.bytes, g.n };
    enum reel_status status = reel_model_check("some/m.gguf", &file, 1, complete, err);
    guarded_release(&g);
    return status;
}

/* Where the data of the quantised miniature begin: its header ends in the last 64 bytes before. */
static size_t header_bytes(const struct bytes *b) {
    bool complete = false;
    size_t low = 24, high = b->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        assert_int_equal(check_head(b, middle, &complete, NULL), REEL_OK);
        if (complete)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void every_beginning_of_a_good_file_is_good(void **state) {
    (void)state;
    struct bytes b = { 0 };
    struct reel_error err = { 0 };
    bool complete = false;
    quantised_gguf(&b);
    size_t n = header_bytes(&b);
    assert_true(n > 4000 && n < b.n / 2);
    for (size_t i = 24; i < n; i += 1 + i / 50) {
        if (check_head(&b, i, &complete, &err) != REEL_OK) fail_msg("%zu bytes: %s", i, err.text);
        assert_false(complete);
    }
    assert_int_equal(check_head(&b, n, &complete, &err), REEL_OK);
    assert_true(complete);
    assert_int_equal(check_head(&b, b.n, &complete, &err), REEL_OK);
    assert_true(complete);
    bytes_release(&b);
}

static void expect_refusal(const struct bytes *b, size_t n, enum reel_status status,
                           const char *says) {
    struct reel_error err = { 0 };
    bool complete = false;
    if (check_head(b, n, &complete, &err) != status || !strstr(err.text, says) ||
        !strstr(err.text, "some/m.gguf"))
        fail_msg("expected %d and \"%s\": %d %s", (int)status, says, (int)err.status, err.text);
}

static void another_architecture_is_refused_as_soon_as_it_is_read(void **state) {
    (void)state;
    struct bytes b = { 0 };
    bytes_gguf_header(&b, 3, 300, 30);
    bytes_gguf_text(&b, "general.architecture", "gemma3");
    expect_refusal(&b, b.n, REEL_E_UNSUPPORTED, "\"gemma3\"");
    bytes_release(&b);
}

static void a_type_that_is_not_read_is_refused_by_the_list_of_tensors(void **state) {
    (void)state;
    static const char name[] = "token_embd.weight";
    struct bytes b = { 0 };
    quantised_gguf(&b);
    size_t n = header_bytes(&b), at = 0;
    while (memcmp(b.data + at, name, sizeof name - 1) != 0)
        at++;
    b.data[at + sizeof name - 1 + 4 + 16] = 16; /* after rank and extents: IQ2_XXS */
    expect_refusal(&b, n, REEL_E_UNSUPPORTED, "IQ2_XXS");
    bytes_release(&b);
}

static void a_missing_tensor_is_refused_by_the_list(void **state) {
    (void)state;
    struct bytes b = { 0 };
    mini_gguf(&b, &(struct mini){ .without = "blk.0.ffn_up.weight" });
    expect_refusal(&b, b.n, REEL_E_FORMAT, "blk.0.ffn_up.weight");
    bytes_release(&b);
}

static void what_is_no_gguf_file_is_said(void **state) {
    (void)state;
    struct bytes b = { 0 };
    bytes_add(&b, "<!DOCTYPE html><html></html>", 28);
    expect_refusal(&b, b.n, REEL_E_FORMAT, "not a GGUF file");
    bytes_release(&b);
}

static void a_folder_is_judged_by_the_files_that_are_there(void **state) {
    (void)state;
    struct reel_error err = { 0 };
    struct buffer tokenizer = { 0 };
    bool complete = false;
    struct reel_memory_file files[2] = { { "config.json", mini_qwen3_config,
                                           strlen(mini_qwen3_config) } };
    assert_int_equal(reel_model_check("some/m", files, 1, &complete, &err), REEL_OK);
    assert_true(complete);
    small_tokenizer_json(&tokenizer);
    files[1] = (struct reel_memory_file){ "tokenizer.json", tokenizer.bytes, tokenizer.size };
    if (reel_model_check("some/m", files, 2, NULL, &err) != REEL_OK) fail_msg("%s", err.text);
    files[1].n_bytes /= 2;
    assert_int_not_equal(reel_model_check("some/m", files, 2, NULL, &err), REEL_OK);
    assert_non_null(strstr(err.text, "some/m/tokenizer.json"));
    files[0] = (struct reel_memory_file){ "config.json", "{\"model_type\": \"gemma3_text\"}", 29 };
    assert_int_equal(reel_model_check("some/m", files, 1, NULL, &err), REEL_E_UNSUPPORTED);
    assert_non_null(strstr(err.text, "some/m/config.json"));
    assert_non_null(strstr(err.text, "gemma3_text"));
    assert_int_equal(reel_model_check("some/m", files + 1, 1, NULL, &err), REEL_E_NOT_FOUND);
    buffer_release(&tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_beginning_of_a_good_file_is_good),
        cmocka_unit_test(another_architecture_is_refused_as_soon_as_it_is_read),
        cmocka_unit_test(a_type_that_is_not_read_is_refused_by_the_list_of_tensors),
        cmocka_unit_test(a_missing_tensor_is_refused_by_the_list),
        cmocka_unit_test(what_is_no_gguf_file_is_said),
        cmocka_unit_test(a_folder_is_judged_by_the_files_that_are_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
