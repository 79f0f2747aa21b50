/* The hand-written scanners against the regular expressions they stand for, run by PCRE2: all short
 * strings over characters that stand for each class a pattern can tell apart. Which class a
 * character has is a matter of tables, checked by the goldens. */
#include "model/tokenizer_split.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* Letters of the contractions in both cases, LONG S, other letters, a mark, a digit, line ends,
 * spaces of one and three bytes, apostrophe, punctuation. */
static const char *const alphabet[] = { "s", "L",  "e",  "r", "\xc5\xbf",     "\xcc\x81",
                                        "1", "\r", "\n", " ", "\xe3\x80\x80", "'",
                                        "." };
#define N_ALPHABET (int)(sizeof alphabet / sizeof alphabet[0])

static pcre2_code *compile(const char *regex) {
    int error;
    PCRE2_SIZE at;
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)regex, PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_UCP, &error, &at, NULL);
    assert_non_null(code);
    pcre2_jit_compile(code, PCRE2_JIT_COMPLETE); /* only makes the test faster */
    return code;
}

struct oracle {
    enum split_pattern pattern;
    pcre2_code *code;
    pcre2_match_data *match;
};

/* Bytes of the word at `at` of text, where look-ahead ends at n. */
static size_t oracle_word(const struct oracle *o, const char *text, size_t n, size_t at) {
    int rc = pcre2_match(o->code, (PCRE2_SPTR)text, n, at, PCRE2_ANCHORED | PCRE2_NO_UTF_CHECK,
                         o->match, NULL);
    assert_true(rc > 0);
    return pcre2_get_ovector_pointer(o->match)[1] - at;
}

/* For SmolLM a digit stands alone, and a text ends before it. */
static size_t part_end(const struct oracle *o, const char *text, size_t n, size_t at) {
    if (o->pattern != SPLIT_SMOLLM) return n;
    if (text[at] == '1') return at + 1;
    const char *digit = memchr(text + at, '1', n - at);
    return digit ? (size_t)(digit - text) : n;
}

static void check_text(const struct oracle *o, const char *text, size_t n) {
    struct splitter s;
    const unsigned char *word;
    size_t at = 0;
    splitter_start(&s, o->pattern, text, n);
    for (size_t made; (made = splitter_next(&s, &word)) > 0; at += made) {
        size_t wanted = oracle_word(o, text, part_end(o, text, n, at), at);
        if (made == wanted) continue;
        for (size_t i = 0; i < n; i++)
            fprintf(stderr, " %02x", (unsigned char)text[i]);
        fail_msg("pattern %d at %zu: %zu bytes, the expression takes %zu", (int)o->pattern, at,
                 made, wanted);
    }
    assert_int_equal(at, n);
}

static void check_all(enum split_pattern pattern, const char *regex) {
    struct oracle o = { .pattern = pattern, .code = compile(regex) };
    o.match = pcre2_match_data_create_from_pattern(o.code, NULL);
    const int longest = getenv("REEL_SOAK") ? 6 : 5;
    for (int length = 1; length <= longest; length++) {
        int digits[8] = { 0 };
        for (bool more = true; more;) {
            char text[32];
            size_t n = 0;
            for (int i = 0; i < length; i++) {
                size_t bytes = strlen(alphabet[digits[i]]);
                memcpy(text + n, alphabet[digits[i]], bytes);
                n += bytes;
            }
            check_text(&o, text, n);
            more = false;
            for (int i = 0; i < length && !more; i++) {
                digits[i] = (digits[i] + 1) % N_ALPHABET;
                more = digits[i] != 0;
            }
        }
    }
    pcre2_match_data_free(o.match);
    pcre2_code_free(o.code);
}

static void the_qwen2_scanner_is_its_expression(void **state) {
    (void)state;
    check_all(SPLIT_QWEN2, split_regex_qwen2);
}

static void the_qwen35_scanner_is_its_expression(void **state) {
    (void)state;
    check_all(SPLIT_QWEN35, split_regex_qwen35);
}

static void the_gpt2_scanner_is_its_expression(void **state) {
    (void)state;
    check_all(SPLIT_GPT2, split_regex_gpt2);
}

static void the_smollm_scanner_is_gpt2_between_digits(void **state) {
    (void)state;
    check_all(SPLIT_SMOLLM, split_regex_gpt2);
}

static void an_empty_text_has_no_words(void **state) {
    (void)state;
    for (int pattern = 0; pattern < N_SPLIT_PATTERNS; pattern++) {
        struct splitter s;
        const unsigned char *word;
        splitter_start(&s, (enum split_pattern)pattern, "", 0);
        assert_int_equal(splitter_next(&s, &word), 0);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_qwen2_scanner_is_its_expression),
        cmocka_unit_test(the_qwen35_scanner_is_its_expression),
        cmocka_unit_test(the_gpt2_scanner_is_its_expression),
        cmocka_unit_test(the_smollm_scanner_is_gpt2_between_digits),
        cmocka_unit_test(an_empty_text_has_no_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
