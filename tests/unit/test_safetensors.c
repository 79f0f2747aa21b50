/* safetensors: what is read, and one bad file for every rule. */
#include "model/safetensors.h"

#include "../support/model_bytes.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static enum reel_status open_files(struct tensor_file *file, const struct reel_memory_file *files,
                                   int n, struct reel_error *err) {
    struct model_source source;
    enum reel_status status = model_source_open_memory(&source, "mem", files, n, err);
    if (status == REEL_OK) status = safetensors_open(file, &source, err);
    model_source_release(&source);
    return status;
}

/* The bytes end at an unreadable page. */
static enum reel_status open_bytes(struct tensor_file *file, const struct bytes *b,
                                   struct guarded *g, struct reel_error *err) {
    *g = guarded_copy(b->data, b->n);
    struct reel_memory_file one = { "model.safetensors", g->bytes, g->n };
    return open_files(file, &one, 1, err);
}

static void a_file_is_read_as_written(void **state) {
    (void)state;
    struct bytes b = { 0 };
    struct tensor_file file;
    struct guarded g;
    struct reel_error err = { 0 };
    bytes_safetensors(&b,
                      "{\"z\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[8,20]},"
                      "\"__metadata__\":{\"format\":\"pt\"},"
                      "\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
                      "\"none\":{\"dtype\":\"F16\",\"shape\":[0,7],\"data_offsets\":[8,8]},"
                      "\"one\":{\"dtype\":\"F16\",\"shape\":[],\"data_offsets\":[28,30]},"
                      "\"ids\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[20,28]},"
                      "\"deep\":{\"dtype\":\"F16\",\"shape\":[1,1,1,1,1],\"data_offsets\":[30,32]}"
                      "}   ",
                      32);
    assert_int_equal(open_bytes(&file, &b, &g, &err), REEL_OK);
    assert_int_equal(file.n_tensors, 4);
    assert_string_equal(file.tensors[0].name, "a");
    assert_string_equal(file.tensors[3].name, "z");
    const struct tensor *z = tensor_find(&file, "z");
    assert_int_equal(z->dtype, DTYPE_BF16);
    assert_int_equal(z->rank, 2);
    assert_int_equal(z->shape[0], 2);
    assert_int_equal(z->shape[1], 3);
    assert_int_equal(z->n_bytes, 12);
    assert_ptr_equal(z->data, g.bytes + g.n - 32 + 8);
    assert_string_equal(tensor_file_path(&file, z), "mem/model.safetensors");
    assert_int_equal(tensor_find(&file, "one")->rank, 0);
    assert_null(tensor_find(&file, "ids"));
    assert_string_equal(tensor_find_ignored(&file, "ids")->what, "type I64");
    assert_non_null(strstr(tensor_find_ignored(&file, "deep")->what, "4 dimensions"));
    assert_null(tensor_find(&file, "zz"));
    tensor_file_release(&file);
    guarded_release(&g);
    bytes_release(&b);
}

static void a_file_without_tensors_is_read(void **state) {
    (void)state;
    struct bytes b = { 0 };
    struct tensor_file file;
    struct guarded g;
    bytes_safetensors(&b, "{}", 0);
    assert_int_equal(open_bytes(&file, &b, &g, NULL), REEL_OK);
    assert_int_equal(file.n_tensors, 0);
    assert_null(tensor_find(&file, "a"));
    tensor_file_release(&file);
    guarded_release(&g);
    bytes_release(&b);
}

#define T(name, dtype, shape, offsets)                                                             \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

static const struct bad_header {
    const char *header;
    size_t payload;
    enum reel_status status;
    const char *says;
} bad_headers[] = {
    /* not JSON, or not an object */
    { "", 0, REEL_E_FORMAT, "'{'" },
    { "[]", 0, REEL_E_FORMAT, "'{'" },
    { " {}", 0, REEL_E_FORMAT, "'{'" },
    { "{", 0, REEL_E_FORMAT, "JSON" },
    { "{}x", 0, REEL_E_FORMAT, "JSON" },
    { "{} {}", 0, REEL_E_FORMAT, "JSON" },
    { "{\"a\":\"\xff\"}", 0, REEL_E_FORMAT, "JSON" },
    { "{\"a\":\"\\u0000\"}", 0, REEL_E_FORMAT, "JSON" },
    { "{" T("a", "F32", "[1]", "[0,4]") "," T("a", "F32", "[1]", "[4,8]") "}", 8, REEL_E_FORMAT,
      "duplicate" },
    /* metadata */
    { "{\"__metadata__\":[]}", 0, REEL_E_FORMAT, "__metadata__" },
    { "{\"__metadata__\":{\"a\":1}}", 0, REEL_E_FORMAT, "__metadata__" },
    { "{\"__metadata__\":null}", 0, REEL_E_FORMAT, "__metadata__" },
    /* an entry */
    { "{\"w\":1}", 0, REEL_E_FORMAT, "\"w\"" },
    { "{\"w\":[]}", 0, REEL_E_FORMAT, "\"w\"" },
    { "{\"w\":null}", 0, REEL_E_FORMAT, "\"w\"" },
    { "{\"w\":{}}", 0, REEL_E_FORMAT, "\"w\"" },
    { "{\"w\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, REEL_E_FORMAT, "\"w\"" },
    { "{\"w\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, REEL_E_FORMAT, "\"w\"" },
    { "{\"w\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, REEL_E_FORMAT, "\"w\"" },
    { "{\"w\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, REEL_E_FORMAT,
      "\"w\"" },
    /* dtype */
    { "{\"w\":{\"dtype\":7,\"shape\":[1],\"data_offsets\":[0,4]}}", 4, REEL_E_FORMAT, "\"w\"" },
    { "{" T("w", "F33", "[1]", "[0,4]") "}", 4, REEL_E_FORMAT, "\"w\"" },
    { "{" T("w", "f32", "[1]", "[0,4]") "}", 4, REEL_E_FORMAT, "\"f32\"" },
    { "{" T("w", "", "[1]", "[0,4]") "}", 4, REEL_E_FORMAT, "\"w\"" },
    /* shape */
    { "{" T("w", "F32", "1", "[0,4]") "}", 4, REEL_E_FORMAT, "\"w\"" },
    { "{" T("w", "F32", "[1.0]", "[0,4]") "}", 4, REEL_E_FORMAT, "\"w\"" },
    { "{" T("w", "F32", "[\"1\"]", "[0,4]") "}", 4, REEL_E_FORMAT, "\"w\"" },
    { "{" T("w", "F32", "[null]", "[0,4]") "}", 4, REEL_E_FORMAT, "\"w\"" },
    { "{" T("w", "F32", "[-1]", "[0,4]") "}", 4, REEL_E_FORMAT, "\"w\"" },
    { "{" T("w", "F32", "[-1,-1]", "[0,4]") "}", 4, REEL_E_FORMAT, "\"w\"" },
    { "{" T("w", "F32", "[2]", "[0,4]") "}", 4, REEL_E_FORMAT, "\"w\"" },
    { "{" T("w", "F32", "[0]", "[0,4]") "}", 4, REEL_E_FORMAT, "\"w\"" },
    { "{" T("w", "BF16", "[1]", "[0,4]") "}", 4, REEL_E_FORMAT, "\"w\"" },
    { "{" T("w", "F32", "[9223372036854775807]", "[0,4]") "}", 4, REEL_E_FORMAT, "overflows" },
    { "{" T("w", "F32", "[9223372036854775808]", "[0,4]") "}", 4, REEL_E_FORMAT,
      "must hold integers of 0 and more" },
    { "{" T("w", "F32", "[4294967296,4294967296]", "[0,4]") "}", 4, REEL_E_FORMAT, "overflows" },
    { "{" T("w", "F32", "[4294967296,4294967296,0]", "[0,0]") "}", 0, REEL_E_FORMAT, "overflows" },
    { "{" T("w", "F4", "[1]", "[0,1]") "}", 1, REEL_E_FORMAT, "4 bits" },
    { "{" T("w", "F4", "[3]", "[0,1]") "}", 1, REEL_E_FORMAT, "12 bits" },
    { "{" T("w", "I64", "[2]", "[0,8]") "}", 8, REEL_E_FORMAT, "\"w\"" },
    /* offsets */
    { "{" T("w", "F32", "[1]", "4") "}", 4, REEL_E_FORMAT, "\"w\"" },
    { "{" T("w", "F32", "[1]", "[0]") "}", 4, REEL_E_FORMAT, "\"w\"" },
    { "{" T("w", "F32", "[1]", "[0,4,4]") "}", 4, REEL_E_FORMAT, "\"w\"" },
    { "{" T("w", "F32", "[1]", "[0,4.0]") "}", 4, REEL_E_FORMAT, "\"w\"" },
    { "{" T("w", "F32", "[1]", "[\"0\",4]") "}", 4, REEL_E_FORMAT, "\"w\"" },
    { "{" T("w", "F32", "[1]", "[-4,0]") "}", 4, REEL_E_FORMAT, "\"w\"" },
    { "{" T("w", "F32", "[1]", "[4,0]") "}", 4, REEL_E_FORMAT, "\"w\": \"data_offsets\" [4, 0]" },
    { "{" T("w", "F32", "[1]", "[4,8]") "}", 4, REEL_E_FORMAT, "inside" },
    { "{" T("w", "F32", "[1]", "[0,4]") "}", 3, REEL_E_FORMAT, "inside" },
    { "{" T("w", "F32", "[1]", "[9223372036854775803,9223372036854775807]") "}", 4, REEL_E_FORMAT,
      "inside" },
    { "{" T("w", "F32", "[1]", "[0,18446744073709551615]") "}", 4, REEL_E_FORMAT,
      "\"data_offsets\" must be two integers" },
    { "{" T("w", "F32", "[1]", "[0,1e999]") "}", 4, REEL_E_FORMAT, "JSON" },
    /* cover */
    { "{" T("a", "F32", "[1]", "[0,4]") "," T("w", "F32", "[1]", "[0,4]") "}", 4, REEL_E_FORMAT,
      "\"w\"" },
    { "{" T("a", "F32", "[1]", "[0,4]") "," T("w", "F32", "[1]", "[2,6]") "}", 6, REEL_E_FORMAT,
      "\"w\"" },
    { "{" T("a", "F32", "[1]", "[0,4]") "," T("w", "F32", "[1]", "[5,9]") "}", 9, REEL_E_FORMAT,
      "\"w\"" },
    { "{" T("w", "F32", "[1]", "[4,8]") "}", 8, REEL_E_FORMAT, "\"w\"" },
    { "{" T("w", "F32", "[1]", "[0,4]") "}", 5, REEL_E_FORMAT, "end at byte 4" },
    { "{" T("a", "F32", "[2]", "[0,8]") "," T("w", "F32", "[0]", "[4,4]") "}", 8, REEL_E_FORMAT,
      "\"w\"" },
    { "{}", 1, REEL_E_FORMAT, "end at byte 0" },
};

/* Among them gaps, overlaps and bytes behind the end, which an audit of safetensors named: such
 * files are of two formats at once. */
static void every_broken_rule_is_refused_in_words(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof bad_headers / sizeof bad_headers[0]; i++) {
        const struct bad_header *bad = &bad_headers[i];
        struct bytes b = { 0 };
        struct tensor_file file;
        struct guarded g;
        struct reel_error err = { 0 };
        bytes_safetensors(&b, bad->header, bad->payload);
        enum reel_status status = open_bytes(&file, &b, &g, &err);
        if (status != bad->status || !strstr(err.text, bad->says) ||
            !strstr(err.text, "mem/model.safetensors"))
            fail_msg("%s: status %d, \"%s\", expected %d with %s", bad->header, status, err.text,
                     bad->status, bad->says);
        assert_int_equal(err.status, status);
        assert_int_equal(file.n_tensors, 0);
        guarded_release(&g);
        bytes_release(&b);
    }
}

static void header_lengths_are_checked_before_use(void **state) {
    (void)state;
    static const struct {
        uint64_t length;
        enum reel_status status;
    } cases[] = {
        { 3, REEL_E_FORMAT },
        { SAFETENSORS_MAX_HEADER, REEL_E_FORMAT },
        { 0, REEL_E_FORMAT },
        { SAFETENSORS_MAX_HEADER + 1, REEL_E_LIMIT },
        { INT64_MAX, REEL_E_LIMIT },
        { UINT64_MAX, REEL_E_LIMIT },
        { UINT64_MAX - 7, REEL_E_LIMIT },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct bytes b = { 0 };
        struct tensor_file file;
        struct guarded g;
        bytes_u64(&b, cases[i].length);
        bytes_add(&b, "{}", 2);
        assert_int_equal(open_bytes(&file, &b, &g, NULL), cases[i].status);
        guarded_release(&g);
        bytes_release(&b);
    }
}

static void names_have_a_longest_length(void **state) {
    (void)state;
    for (size_t n = TENSOR_MAX_NAME; n <= TENSOR_MAX_NAME + 1; n++) {
        char header[512], name[TENSOR_MAX_NAME + 2] = { 0 };
        struct bytes b = { 0 };
        struct tensor_file file;
        struct guarded g;
        memset(name, 'n', n);
        snprintf(header, sizeof header,
                 "{\"%s\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", name);
        bytes_safetensors(&b, header, 4);
        assert_int_equal(open_bytes(&file, &b, &g, NULL),
                         n > TENSOR_MAX_NAME ? REEL_E_LIMIT : REEL_OK);
        tensor_file_release(&file);
        guarded_release(&g);
        bytes_release(&b);
    }
}

static void a_file_cut_at_any_byte_is_refused(void **state) {
    (void)state;
    struct bytes b = { 0 };
    mini_safetensors(&b, &(struct mini){ .head = true });
    for (size_t n = 0; n < b.n; n++) {
        struct bytes cut = { .data = b.data, .n = n };
        struct tensor_file file;
        struct guarded g;
        struct reel_error err = { 0 };
        assert_int_equal(open_bytes(&file, &cut, &g, &err), REEL_E_FORMAT);
        assert_non_null(strstr(err.text, "mem/model.safetensors"));
        guarded_release(&g);
    }
    bytes_release(&b);
}

/* ---- several files --------------------------------------------------------------------------- */

#define INDEX "model.safetensors.index.json"
#define SHARD "model.safetensors-00001-of-00001.safetensors"

/* Opens an index with two shards "a" and "b", each holding one tensor of its name. */
static enum reel_status open_index(struct tensor_file *file, const char *index, const char *second,
                                   struct reel_error *err) {
    struct bytes a = { 0 }, b = { 0 };
    bytes_safetensors(&a, "{" T("a", "F32", "[1]", "[0,4]") "}", 4);
    bytes_safetensors(&b, second, 4);
    struct reel_memory_file files[] = { { INDEX, index, strlen(index) },
                                        { SHARD, a.data, a.n },
                                        { "b.safetensors", b.data, b.n },
                                        { "model.safetensors", "unread", 6 } };
    enum reel_status status = open_files(file, files, 4, err);
    bytes_release(&a);
    bytes_release(&b);
    return status;
}

static const char second_shard[] = "{" T("b", "F32", "[1]", "[0,4]") "}";

static void an_index_opens_the_shards_it_names(void **state) {
    (void)state;
    struct tensor_file file;
    struct reel_error err = { 0 };
    assert_int_equal(open_index(&file,
                                "{\"metadata\":{\"total_size\":8},\"weight_map\":{\"a\":\"" SHARD
                                "\",\"b\":\"b.safetensors\"}}",
                                second_shard, &err),
                     REEL_OK);
    assert_int_equal(file.n_tensors, 2);
    assert_int_equal(file.n_maps, 2);
    assert_string_equal(tensor_file_path(&file, tensor_find(&file, "a")), "mem/" SHARD);
    tensor_file_release(&file);
    assert_int_equal(
        open_index(&file, "{\"weight_map\":{\"a\":\"" SHARD "\"}}", second_shard, &err), REEL_OK);
    assert_int_equal(file.n_tensors, 1);
    tensor_file_release(&file);
}

static void broken_indexes_are_refused_in_words(void **state) {
    (void)state;
    static const char twice[] = "{" T("a", "F32", "[1]", "[0,4]") "}";
    static const struct {
        const char *index, *second;
        enum reel_status status;
        const char *says;
    } cases[] = {
        { "", second_shard, REEL_E_FORMAT, INDEX },
        { "[]", second_shard, REEL_E_FORMAT, "weight_map" },
        { "{}", second_shard, REEL_E_FORMAT, "weight_map" },
        { "{\"weight_map\":[]}", second_shard, REEL_E_FORMAT, "weight_map" },
        { "{\"weight_map\":{}}", second_shard, REEL_E_FORMAT, "weight_map" },
        { "{\"weight_map\":{\"a\":1}}", second_shard, REEL_E_FORMAT, "\"a\"" },
        { "{\"weight_map\":{\"a\":\"gone.safetensors\"}}", second_shard, REEL_E_NOT_FOUND,
          "gone.safetensors" },
        { "{\"weight_map\":{\"a\":\"../b.safetensors\"}}", second_shard, REEL_E_FORMAT,
          "../b.safetensors" },
        { "{\"weight_map\":{\"a\":\"/etc/passwd\"}}", second_shard, REEL_E_FORMAT, "/etc/passwd" },
        { "{\"weight_map\":{\"a\":\".hidden\"}}", second_shard, REEL_E_FORMAT, ".hidden" },
        { "{\"weight_map\":{\"a\":\"\"}}", second_shard, REEL_E_FORMAT, "plain file name" },
        { "{\"weight_map\":{\"a\":\"b.safetensors\"}}", second_shard, REEL_E_FORMAT, "\"a\"" },
        { "{\"weight_map\":{\"c\":\"b.safetensors\"}}", second_shard, REEL_E_FORMAT, "\"c\"" },
        { "{\"weight_map\":{\"a\":\"" SHARD "\",\"b\":\"b.safetensors\"}}", twice, REEL_E_FORMAT,
          "\"b\"" },
        { "{\"weight_map\":{\"a\":\"" SHARD "\",\"a\":\"b.safetensors\"}}", twice, REEL_E_FORMAT,
          "duplicate" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tensor_file file;
        struct reel_error err = { 0 };
        enum reel_status status = open_index(&file, cases[i].index, cases[i].second, &err);
        if (status != cases[i].status || !strstr(err.text, cases[i].says))
            fail_msg("%s: status %d, \"%s\", expected %d with %s", cases[i].index, status, err.text,
                     cases[i].status, cases[i].says);
    }
}

/* An index of n_names tensors in one shard, padded with spaces to n_bytes. */
static char *large_index(int n_names, size_t n_bytes) {
    size_t room = n_bytes + (size_t)n_names * 24 + 64, n = 0;
    char *text = malloc(room + 1);
    assert_non_null(text);
    n += (size_t)snprintf(text, room, "{\"weight_map\":{");
    for (int i = 0; i < n_names; i++)
        n += (size_t)snprintf(text + n, room - n, "%s\"%d\":\"x\"", i ? "," : "", i);
    n += (size_t)snprintf(text + n, room - n, "}}");
    if (n < n_bytes) memset(text + n, ' ', n_bytes - n);
    text[n < n_bytes ? n_bytes : n] = '\0';
    return text;
}

static void an_index_has_a_largest_size(void **state) {
    (void)state;
    static const struct {
        int n_names;
        size_t n_bytes;
        const char *says;
    } cases[] = {
        { 1, SAFETENSORS_MAX_INDEX + 1, "bytes, at most" },
        { TENSOR_MAX_COUNT + 1, 0, "65537 tensors, at most" },
        { 1, SAFETENSORS_MAX_INDEX, "mem/x" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *index = large_index(cases[i].n_names, cases[i].n_bytes);
        struct tensor_file file;
        struct reel_error err = { 0 };
        enum reel_status status = open_index(&file, index, second_shard, &err);
        assert_int_equal(status, i < 2 ? REEL_E_LIMIT : REEL_E_NOT_FOUND);
        if (!strstr(err.text, cases[i].says)) fail_msg("%s", err.text);
        free(index);
    }
}

static void a_tensor_in_two_shards_is_refused_by_name(void **state) {
    (void)state;
    struct tensor_file file;
    struct reel_error err = { 0 };
    struct bytes b = { 0 };
    bytes_safetensors(&b, "{" T("same", "F32", "[1]", "[0,4]") "}", 4);
    static const char index[] = "{\"weight_map\":{\"same\":\"x\",\"__metadata__\":\"y\"}}";
    struct bytes with_metadata = { 0 };
    bytes_safetensors(&with_metadata, "{\"__metadata__\":{}," T("same", "F32", "[1]", "[0,4]") "}",
                      4);
    struct reel_memory_file files[] = { { INDEX, index, strlen(index) },
                                        { "x", b.data, b.n },
                                        { "y", with_metadata.data, with_metadata.n } };
    assert_int_equal(open_files(&file, files, 3, &err), REEL_E_FORMAT);
    assert_non_null(strstr(err.text, "\"same\""));
    bytes_release(&b);
    bytes_release(&with_metadata);
}

static void a_model_without_weights_says_which_file_is_missing(void **state) {
    (void)state;
    struct tensor_file file;
    struct reel_error err = { 0 };
    struct reel_memory_file one = { "config.json", "{}", 2 };
    assert_int_equal(open_files(&file, &one, 1, &err), REEL_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "model.safetensors"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_is_read_as_written),
        cmocka_unit_test(a_file_without_tensors_is_read),
        cmocka_unit_test(every_broken_rule_is_refused_in_words),
        cmocka_unit_test(header_lengths_are_checked_before_use),
        cmocka_unit_test(names_have_a_longest_length),
        cmocka_unit_test(a_file_cut_at_any_byte_is_refused),
        cmocka_unit_test(an_index_opens_the_shards_it_names),
        cmocka_unit_test(broken_indexes_are_refused_in_words),
        cmocka_unit_test(an_index_has_a_largest_size),
        cmocka_unit_test(a_tensor_in_two_shards_is_refused_by_name),
        cmocka_unit_test(a_model_without_weights_says_which_file_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
