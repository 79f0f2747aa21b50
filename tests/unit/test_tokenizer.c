/* What encoding promises beyond equal ids: pieces, refusals, time, and the public calls. */
#include "model/tokenizer.h"
#include "support/fixtures.h"
#include "support/sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static struct reel_tokenizer *qwen3, *smollm2, *qwen35;

static int open_all(void **state) {
    (void)state;
    struct reel_error err = { 0 };
    const char *first = fixture_tokenizer("qwen3"), *second = fixture_tokenizer("smollm2"),
               *third = fixture_tokenizer("qwen3.5");
    if (first && second && third && reel_tokenizer_open(&qwen3, first, NULL, &err) == REEL_OK &&
        reel_tokenizer_open(&smollm2, second, NULL, &err) == REEL_OK &&
        reel_tokenizer_open(&qwen35, third, NULL, &err) == REEL_OK)
        return 0;
    fprintf(stderr, "%s\n", err.text);
    return -1;
}

static int close_all(void **state) {
    (void)state;
    reel_tokenizer_close(qwen3);
    reel_tokenizer_close(smollm2);
    reel_tokenizer_close(qwen35);
    return 0;
}

#define MAX_IDS 4096

/* "9707 1879" */
static const char *show(const int32_t *ids, size_t n, char *out, size_t room) {
    size_t used = 0;
    out[0] = '\0';
    for (size_t i = 0; i < n && used < room; i++) {
        int made = snprintf(out + used, room - used, i ? " %d" : "%d", ids[i]);
        used += made > 0 ? (size_t)made : room;
    }
    return out;
}

static void expect(const struct reel_tokenizer *tok, const char *text, unsigned flags,
                   const char *wanted) {
    int32_t ids[MAX_IDS];
    char shown[8192];
    size_t n;
    struct reel_error err;
    if (reel_encode(tok, text, strlen(text), flags, ids, MAX_IDS, &n, &err) != REEL_OK)
        fail_msg("%s: %s", text, err.text);
    assert_string_equal(show(ids, n, shown, sizeof shown), wanted);
}

static void qwen3_gives_the_ids_of_public_test_suites(void **state) {
    (void)state;
    static const char *const vectors[][2] = {
        { "Hello world", "9707 1879" },
        { " Hello world", "21927 1879" },
        { "Hello", "9707" },
        { "Hey how are you doing", "18665 1246 525 498 3730" },
        { "This is a test \xf0\x9f\x98\x8a", "1986 374 264 1273 26525 232" },
        { "I was born in 92000", "40 572 9223 304 220 24 17 15 15 15" },
        { " fals\xc3\xa9.\n", "31932 963 624" },
        { "\xe7\x94\x9f\xe6\xb4\xbb\xe7\x9a\x84\xe7\x9c\x9f\xe8\xb0\x9b\xe6\x98\xaf",
          "105301 88051 116109 20412" },
        { "Hi  Hello", "13048 220 21927" },
        { "Hi   Hello", "13048 256 21927" },
        { "\n\n \n  \n Hello", "271 48426 21927" },
        { " \xe0\xb8\x9b\xe0\xb8\xb5", "220 54684 28319" },
        { "<s>there", "44047 29 18532" },
    };
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++)
        expect(qwen3, vectors[i][0], 0, vectors[i][1]);
}

static void qwen35_gives_the_ids_of_public_test_suites(void **state) {
    (void)state;
    static const char *const vectors[][2] = {
        { "Hello", "9419" },
        { "Hey how are you doing", "18103 1204 513 488 3604" },
        { "This is a test \xf0\x9f\x98\x8a", "1919 369 264 1228 25677 232" },
        { "I was born in 92000", "40 557 8950 303 220 24 17 15 15 15" },
        { " fals\xc3\xa9.\n", "30882 933 13 198" },
        { "\xe7\x94\x9f\xe6\xb4\xbb\xe7\x9a\x84\xe7\x9c\x9f\xe8\xb0\x9b\xe6\x98\xaf",
          "103815 132339 95761" },
        { "Hi  Hello", "12675 220 21251" },
        { "Hi   Hello", "12675 256 21251" },
        { "\n\n \n  \n Hello", "271 46813 21251" },
        { " \xe0\xb8\x9b\xe0\xb8\xb5", "170827" },
        { "<s>there", "42589 29 17977" },
        { "You are a helpful assistant", "2523 513 264 10631 17313" },
        { "What is the capital of France?", "3710 369 279 6511 314 9338 30" },
    };
    for (size_t i = 0; i < sizeof vectors / sizeof vectors[0]; i++)
        expect(qwen35, vectors[i][0], 0, vectors[i][1]);
    expect(qwen35,
           "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n",
           REEL_ENCODE_CONTROL,
           "248045 846 198 9419 248046 198 248045 74455 198 248068 271 248069 271");
}

static void qwen35_has_the_added_tokens_of_both_files(void **state) {
    (void)state;
    assert_int_equal(reel_tokenizer_size(qwen35), 248077);
    assert_int_equal(tokenizer_find_added(qwen35, "<|endoftext|>"), 248044);
    assert_int_equal(tokenizer_find_added(qwen35, "</think>"), 248069);
    assert_int_equal(tokenizer_find_added(qwen35, "<|audio_start|>"), 248070);
    assert_int_equal(tokenizer_find_added(qwen35, "<|audio_pad|>"), 248076);
    assert_true(reel_token_is_control(qwen35, 248046));
    assert_false(reel_token_is_control(qwen35, 248058)); /* <tool_call> */
    assert_true(reel_token_is_control(qwen35, 248076));
}

static void an_empty_text_has_no_ids(void **state) {
    (void)state;
    size_t n = 9;
    struct reel_error err;
    assert_int_equal(reel_encode(qwen3, NULL, 0, 0, NULL, 0, &n, &err), REEL_OK);
    assert_int_equal(n, 0);
}

static void control_tokens_are_found_only_where_they_are_allowed(void **state) {
    (void)state;
    expect(qwen3, "<|im_end|>", REEL_ENCODE_CONTROL, "151645");
    expect(qwen3, "a<|im_end|>\n", REEL_ENCODE_CONTROL, "64 151645 198");
    expect(qwen3, "<|im_end|>", 0, "27 91 318 6213 91 29");
    expect(qwen3, "<|im_<|im_end|>", REEL_ENCODE_CONTROL, "27 91 318 62 151645");
}

static void check_pieces(const struct text_piece *pieces, int n_pieces, const char *wanted) {
    int32_t *ids;
    size_t n;
    char shown[1024];
    struct reel_error err;
    if (tokenizer_encode(qwen3, pieces, n_pieces, &ids, &n, &err) != REEL_OK)
        fail_msg("%s", err.text);
    assert_string_equal(show(ids, n, shown, sizeof shown), wanted);
    free(ids);
}

static void text_between_added_tokens_is_encoded_as_one_across_pieces(void **state) {
    (void)state;
    const struct text_piece pieces[] = {
        { "<|im_start|>user\nHe", 19, true }, /* "Hello" is one word over two pieces */
        { "llo wo", 6, false },
        { "rld", 3, true },
        { "<|im_end|>", 10, true },
    };
    check_pieces(pieces, 4, "151644 872 198 9707 1879 151645");
}

static void an_added_token_is_not_found_across_pieces_or_in_foreign_text(void **state) {
    (void)state;
    const struct text_piece split[] = { { "<|im_", 5, true }, { "end|>", 5, true } };
    check_pieces(split, 2, "27 91 318 6213 91 29");
    const struct text_piece foreign[] = { { "<|im_end|>", 10, false }, { "<|im_end|>", 10, true } };
    check_pieces(foreign, 2, "27 91 318 6213 91 29 151645");
}

static void composition_reaches_across_pieces(void **state) {
    (void)state;
    const struct text_piece whole[] = { { " fals\xc3\xa9.\n", 9, false } };
    const struct text_piece parts[] = { { " false", 6, false }, { "\xcc\x81.\n", 4, false } };
    check_pieces(whole, 1, "31932 963 624");
    check_pieces(parts, 2, "31932 963 624");
}

static void invalid_utf8_is_refused_with_its_offset(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t n;
        const char *offset;
    } cases[] = {
        { "\x80", 1, "offset 0" },
        { "abc\xff", 4, "offset 3" },
        { "12345678\xc0\x80", 10, "offset 8" },
        { "1234567\xc3", 8, "offset 7" },
        { "\xe0\x9f\xbf", 3, "offset 0" },
        { "a\xed\xa0\x80", 4, "offset 1" },
        { "\xef\xbf\xbd\xf4\x90\x80\x80", 7, "offset 3" },
        { "\xf0\x8f\xbf\xbf", 4, "offset 0" },
        { "\xf0\x9f\x98", 3, "offset 0" },
        { "\xf5\x80\x80\x80", 4, "offset 0" },
        { "\xe2\x82 ", 3, "offset 0" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int32_t ids[16];
        size_t n;
        struct reel_error err;
        assert_int_equal(reel_encode(qwen3, cases[i].text, cases[i].n, 0, ids, 16, &n, &err),
                         REEL_E_ARGUMENT);
        assert_non_null(strstr(err.text, cases[i].offset));
    }
}

static void a_short_buffer_reports_how_many_ids_there_are(void **state) {
    (void)state;
    int32_t ids[2] = { -7, -7 };
    size_t n;
    struct reel_error err;
    assert_int_equal(reel_encode(qwen3, "I was born", 10, 0, ids, 2, &n, &err), REEL_E_LIMIT);
    assert_int_equal(n, 3);
    assert_int_equal(ids[0], -7);
    assert_int_equal(reel_encode(qwen3, "I was born", 10, 0, NULL, 0, &n, &err), REEL_E_LIMIT);
    assert_int_equal(n, 3);
    assert_int_equal(reel_encode(qwen3, "x", 1, 4, ids, 2, &n, &err), REEL_E_ARGUMENT);
}

static void tokens_are_found_by_their_bytes_and_described(void **state) {
    (void)state;
    size_t n;
    assert_int_equal(reel_token_find(qwen3, " Hello", 6), 21927);
    assert_int_equal(reel_token_find(qwen3, "<|im_end|>", 10), 151645);
    assert_int_equal(reel_token_find(qwen3, "no such token", 13), -1);
    assert_int_equal(reel_token_find(qwen3, "", 0), -1);
    assert_int_equal(tokenizer_find_added(qwen3, "</think>"), 151668);
    assert_int_equal(tokenizer_find_added(qwen3, "Hello"), -1);
    assert_true(reel_token_is_control(qwen3, 151645));
    assert_false(reel_token_is_control(qwen3, 151668)); /* </think> is not "special" */
    assert_false(reel_token_is_control(qwen3, 9707));
    assert_false(reel_token_is_control(qwen3, -1));
    assert_false(reel_token_is_control(qwen3, INT32_MAX));
    assert_null(reel_token_bytes(qwen3, 151669, &n));
    assert_null(reel_token_bytes(qwen3, -1, &n));
    assert_int_equal(n, 0);
}

static void bytes_that_the_vocabulary_lacks_are_left_out(void **state) {
    (void)state;
    int32_t ids[4];
    size_t n;
    struct reel_error err;
    assert_int_equal(reel_encode(smollm2, "\x04", 1, 0, ids, 4, &n, &err), REEL_OK);
    assert_int_equal(n, 0);
    expect(smollm2, "a\x04\x06", 0, "81");
}

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* One MiB of a repeated unit: quadratic work would take minutes. The bound is generous, for slow
 * machines and sanitizers. */
static void check_long_run(const struct reel_tokenizer *tok, const char *unit) {
    size_t n = (size_t)1 << 20, n_unit = strlen(unit), n_ids = 0, back = 0;
    char *text = malloc(n);
    int32_t *ids = malloc(n * sizeof *ids);
    struct reel_error err;
    assert_non_null(text);
    assert_non_null(ids);
    n -= n % n_unit;
    for (size_t i = 0; i < n; i++)
        text[i] = unit[i % n_unit];
    double start = seconds();
    assert_int_equal(reel_encode(tok, text, n, REEL_ENCODE_CONTROL, ids, n, &n_ids, &err), REEL_OK);
    double taken = seconds() - start;
    if (taken > 20) fail_msg("1 MiB of \"%s\" took %.1f s", unit, taken);
    for (size_t i = 0; i < n_ids; i++) {
        size_t n_bytes;
        reel_token_bytes(tok, ids[i], &n_bytes);
        back += n_bytes;
    }
    assert_int_equal(back, n);
    free(text);
    free(ids);
}

static void a_mebibyte_of_one_letter_takes_no_quadratic_time(void **state) {
    (void)state;
    static const char *const units[] = { "a", " ", "\n", "1", "-", "ab", "\xe6\xbc\xa2", "<" };
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i += sanitized_briefly() ? 3 : 1) {
        check_long_run(qwen3, units[i]);
        check_long_run(smollm2, units[i]);
        check_long_run(qwen35, units[i]);
    }
}

/* Marks of two classes by turns: sorting them one swap at a time would take hours. */
static void a_mebibyte_of_marks_out_of_order_takes_no_quadratic_time(void **state) {
    (void)state;
    check_long_run(qwen3, "\xcc\xa7\xcd\x9c");
    check_long_run(qwen35, "\xcc\xa7\xcd\x9c");
}

static void the_demo_model_has_a_tokenizer_that_loads(void **state) {
    (void)state;
    struct reel_tokenizer *tok;
    struct reel_error err;
    if (reel_tokenizer_open(&tok, "models/demo", NULL, &err) != REEL_OK) fail_msg("%s", err.text);
    assert_true(reel_tokenizer_size(tok) > 256);
    reel_tokenizer_close(tok);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(qwen3_gives_the_ids_of_public_test_suites),
        cmocka_unit_test(qwen35_gives_the_ids_of_public_test_suites),
        cmocka_unit_test(qwen35_has_the_added_tokens_of_both_files),
        cmocka_unit_test(an_empty_text_has_no_ids),
        cmocka_unit_test(control_tokens_are_found_only_where_they_are_allowed),
        cmocka_unit_test(text_between_added_tokens_is_encoded_as_one_across_pieces),
        cmocka_unit_test(an_added_token_is_not_found_across_pieces_or_in_foreign_text),
        cmocka_unit_test(composition_reaches_across_pieces),
        cmocka_unit_test(invalid_utf8_is_refused_with_its_offset),
        cmocka_unit_test(a_short_buffer_reports_how_many_ids_there_are),
        cmocka_unit_test(tokens_are_found_by_their_bytes_and_described),
        cmocka_unit_test(bytes_that_the_vocabulary_lacks_are_left_out),
        cmocka_unit_test(a_mebibyte_of_one_letter_takes_no_quadratic_time),
        cmocka_unit_test(a_mebibyte_of_marks_out_of_order_takes_no_quadratic_time),
        cmocka_unit_test(the_demo_model_has_a_tokenizer_that_loads),
    };
    return cmocka_run_group_tests(tests, open_all, close_all);
}
