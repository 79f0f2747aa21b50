/* Compiled expressions against the same expressions run by PCRE2: all short strings over characters
 * that stand for each class the published patterns can tell apart. Which class a character has is a
 * matter of tables, checked by the goldens. Then what stages do with matches, and what is refused.
 */
#include "model/tokenizer_split.h"
#include "support/sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

/* Letters of the contractions in both cases, LONG S, another letter of no case, a mark, a digit,
 * line ends, spaces of one and three bytes, apostrophe, punctuation, a symbol, a character beyond
 * U+FFFF. */
static const char *const alphabet[] = { "s",        "L",
                                        "e",        "r",
                                        "\xc5\xbf", "\xe4\xb8\x80",
                                        "\xcc\x81", "1",
                                        "\r",       "\n",
                                        " ",        "\xe3\x80\x80",
                                        "'",        ".",
                                        "$",        "\xf0\x9d\x9f\x99" };
#define N_ALPHABET (int)(sizeof alphabet / sizeof alphabet[0])

/* As files of models have them. */
static const char *const published[] = {
    split_regex_gpt2,
    split_regex_qwen2,
    split_regex_qwen35,
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+"
    "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}"
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+"
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*"
    "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "[!\"#$%&'()*+,\\-./"
    ":;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
    "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*(?: "
    "\\p{L}\\p{M}*)*)+|\\p{N}"
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]?|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
    "\\s?\\p{L}+",
    "\\s?\\p{P}+",
    "\\p{N}{1,3}",
    "\\s+$",
    "[\xe4\xb8\x80-\xe9\xbe\xa5]+",
    "(?:Les|e)s",
    "(?:L|Le)(?:s|ess|er1)|s{2,3}e?|s|sL|(?:r|rs)1?|[^\\P{L}\\p{Lu}]\\.|e(?=\\.)",
};

struct oracle {
    struct split_plan plan;
    pcre2_code *code;
    pcre2_match_data *match;
};

static void compile(struct split_plan *plan, enum split_behaviour behaviour, bool inverted,
                    const char *regex) {
    struct buffer text = { 0 };
    struct reel_error err;
    if (split_add(&text, SPLIT_REGEX, behaviour, inverted, regex, &err) != REEL_OK ||
        split_plan_open(plan, text.bytes, text.size, "test", &err) != REEL_OK)
        fail_msg("%s", err.text);
    buffer_release(&text);
}

/* Bytes of the next part at `at`: the match there, or what lies before the next one. */
static size_t oracle_part(const struct oracle *o, const char *text, size_t n, size_t at) {
    int rc = pcre2_match(o->code, (PCRE2_SPTR)text, n, at, PCRE2_NO_UTF_CHECK, o->match, NULL);
    if (rc == PCRE2_ERROR_NOMATCH) return n - at;
    assert_true(rc > 0);
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(o->match);
    return found[0] > at ? found[0] - at : found[1] - at;
}

static void check_text(const struct oracle *o, const char *regex, const char *text, size_t n) {
    struct splitter s;
    const unsigned char *word;
    size_t at = 0;
    splitter_start(&s, &o->plan, text, n);
    for (size_t made; (made = splitter_next(&s, &word)) > 0; at += made) {
        size_t wanted = oracle_part(o, text, n, at);
        if (made == wanted) continue;
        for (size_t i = 0; i < n; i++)
            fprintf(stderr, " %02x", (unsigned char)text[i]);
        fail_msg("%s at %zu: %zu bytes, PCRE2 takes %zu", regex, at, made, wanted);
    }
    assert_int_equal(at, n);
}

static void check_all(const struct oracle *o, const char *regex, int length) {
    int digits[8] = { 0 };
    for (bool more = true; more;) {
        char text[32];
        size_t n = 0;
        for (int i = 0; i < length; i++) {
            size_t bytes = strlen(alphabet[digits[i]]);
            memcpy(text + n, alphabet[digits[i]], bytes);
            n += bytes;
        }
        check_text(o, regex, text, n);
        more = false;
        for (int i = 0; i < length && !more; i++) {
            digits[i] = (digits[i] + 1) % N_ALPHABET;
            more = digits[i] != 0;
        }
    }
}

static void compiled_expressions_match_as_pcre2_does(void **state) {
    (void)state;
    const int longest = soaking_in_full() ? 6 : 4;
    for (size_t i = 0; i < sizeof published / sizeof published[0]; i++) {
        struct oracle o = { 0 };
        int error;
        PCRE2_SIZE at;
        compile(&o.plan, SPLIT_ISOLATED, false, published[i]);
        o.code = pcre2_compile((PCRE2_SPTR)published[i], PCRE2_ZERO_TERMINATED,
                               PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &at, NULL);
        assert_non_null(o.code);
        pcre2_jit_compile(o.code, PCRE2_JIT_COMPLETE); /* only makes the test faster */
        o.match = pcre2_match_data_create_from_pattern(o.code, NULL);
        for (int length = 1; length <= longest; length++)
            check_all(&o, published[i], length);
        pcre2_match_data_free(o.match);
        pcre2_code_free(o.code);
        split_plan_release(&o.plan);
    }
}

static void expect_parts(const struct split_plan *plan, const char *text, const char *wanted) {
    struct buffer made = { 0 };
    struct splitter s;
    const unsigned char *word;
    splitter_start(&s, plan, text, strlen(text));
    assert_int_equal(buffer_text(&made, "", NULL), REEL_OK);
    for (size_t n; (n = splitter_next(&s, &word)) > 0;) {
        assert_int_equal(buffer_text(&made, made.size ? "|" : "", NULL), REEL_OK);
        assert_int_equal(buffer_append(&made, word, n, NULL), REEL_OK);
    }
    assert_string_equal(made.bytes, wanted);
    buffer_release(&made);
}

/* The parts are those of tokenizers 0.23.3. */
static void a_stage_does_with_matches_what_its_behaviour_says(void **state) {
    (void)state;
    static const struct {
        enum split_behaviour behaviour;
        bool inverted;
        const char *first, *second, *third;
    } cases[] = {
        { SPLIT_ISOLATED, false, "1|a|2|2|bb|3", "aa|1", "1|2" },
        { SPLIT_ISOLATED, true, "1|a|2|2|bb|3", "aa|1", "1|2" },
        { SPLIT_REMOVED, false, "a|bb", "aa", "" },
        { SPLIT_REMOVED, true, "1|2|2|3", "1", "1|2" },
        { SPLIT_CONTIGUOUS, false, "1|a|22|bb|3", "aa|1", "12" },
        { SPLIT_CONTIGUOUS, true, "1|a|22|bb|3", "aa|1", "12" },
        { SPLIT_WITH_PREVIOUS, false, "1|a2|2|bb3", "aa1", "1|2" },
        { SPLIT_WITH_PREVIOUS, true, "1a|2|2bb|3", "aa|1", "1|2" },
        { SPLIT_WITH_NEXT, false, "1a|2|2bb|3", "aa|1", "1|2" },
        { SPLIT_WITH_NEXT, true, "1|a2|2|bb3", "aa1", "1|2" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct split_plan plan;
        compile(&plan, cases[i].behaviour, cases[i].inverted, "\\d");
        expect_parts(&plan, "1a22bb3", cases[i].first);
        expect_parts(&plan, "aa1", cases[i].second);
        expect_parts(&plan, "12", cases[i].third);
        expect_parts(&plan, "", "");
        split_plan_release(&plan);
    }
}

/* Falcon's: behind ByteLevel a stage sees the byte alphabet, in which the second byte of an
 * accented letter can be a superscript digit. */
static void stages_follow_each_other_and_see_bytes_behind_byte_level(void **state) {
    (void)state;
    struct buffer text = { 0 };
    struct split_plan plan;
    struct reel_error err;
    assert_int_equal(split_add(&text, SPLIT_PUNCTUATION, SPLIT_CONTIGUOUS, false, "", &err), 0);
    assert_int_equal(split_add(&text, SPLIT_REGEX, SPLIT_ISOLATED, false, split_regex_gpt2, &err),
                     0);
    assert_int_equal(split_add(&text, SPLIT_BYTES, SPLIT_ISOLATED, false, "", &err), 0);
    assert_int_equal(split_add(&text, SPLIT_NUMERIC, SPLIT_CONTIGUOUS, false, "", &err), 0);
    assert_int_equal(split_add(&text, SPLIT_REGEX, SPLIT_ISOLATED, false, "[0-9][0-9][0-9]", &err),
                     0);
    assert_int_equal(split_plan_open(&plan, text.bytes, text.size, "test", &err), REEL_OK);
    expect_parts(&plan, "it's 12345, x!! y", "it|'|s| |123|45|,| x|!!| y");
    expect_parts(&plan, "\xd7\xb2", "\xd7|\xb2");
    split_plan_release(&plan);
    text.size--;
    assert_int_equal(split_plan_open(&plan, text.bytes, text.size, "test", &err), REEL_E_FORMAT);
    assert_int_equal(plan.n_stages, 0);
    buffer_release(&text);
}

/* Each place of these spaces begins a match of \s+$ that the 7 ends in vain: reading on from each
 * of them would take hours. */
static void a_match_that_fails_late_everywhere_is_looked_for_once(void **state) {
    (void)state;
    static const char spaces[] = "\xc2\xa0 \xe3\x80\x80\t";
    const size_t n_spaces = 250000;
    struct buffer text = { 0 };
    struct split_plan plan;
    struct splitter s;
    const unsigned char *word;
    compile(&plan, SPLIT_ISOLATED, false, "\\s+$");
    for (size_t i = 0; i < n_spaces; i++)
        assert_int_equal(buffer_text(&text, spaces, NULL), REEL_OK);
    assert_int_equal(buffer_text(&text, "7\n ", NULL), REEL_OK);
    splitter_start(&s, &plan, text.bytes, text.size);
    assert_int_equal(splitter_next(&s, &word), text.size - 2);
    assert_int_equal(splitter_next(&s, &word), 2);
    assert_int_equal(splitter_next(&s, &word), 0);
    split_plan_release(&plan);
    buffer_release(&text);
}

static void a_plan_without_stages_leaves_one_word(void **state) {
    (void)state;
    struct split_plan plan;
    assert_int_equal(split_plan_open(&plan, "", 0, "test", NULL), REEL_OK);
    expect_parts(&plan, "two words", "two words");
    expect_parts(&plan, "", "");
}

static void what_is_not_taken_is_refused_in_words(void **state) {
    (void)state;
    static const struct {
        const char *regex, *said;
    } cases[] = {
        { "a*", "nothing at all" },
        { "", "nothing at all" },
        { "a|b?", "nothing at all" },
        { "(?!a)", "nothing at all" },
        { "(?:a*)+", "repeat of what can be nothing" },
        { "a*?b", "lazy" },
        { "a**", "repeat of a repeat" },
        { "a{1,3}+", "behind a count" },
        { "a{,3}", "no count" },
        { "a{1,65}", "beyond 64" },
        { "a{3,2}", "backwards" },
        { "a{", "no count" },
        { "+a", "repeat of nothing" },
        { "^a", "^ outside" },
        { "a(?=bc)", "further ahead" },
        { "(?<=a)b", "a group that is" },
        { "(?>a)b", "a group that is" },
        { "(?i)a", "a group that is" },
        { "(?i:st)", "ligature" },
        { "(?i:\xc3\xa9)", "more than ASCII" },
        { "(?i:[\xc3\xa9])", "more than ASCII" },
        { "(ab)++c", "more than one class" },
        { "a++ab", "giving back" },
        { "\\s++$", "giving back" },
        { "\\p{Greek}", "property" },
        { "\\pL", "braces" },
        { "\\p{L", "no end" },
        { "\\bx", "escape" },
        { "\\1", "escape" },
        { "a\\", "backslash" },
        { "[a", "without its ]" },
        { "[[:alpha:]]", "POSIX" },
        { "[z-a]", "backwards" },
        { "[\\s-z]", "begins with a class" },
        { "(a", "without its )" },
        { "a)", "nothing opens" },
        { "\xff", "UTF-8" },
        { "((((((((((((((((((((((((((((((((((a", "too deep" },
        { "(?:(?:(?:a{64}){64}){64}){64}", "too long" },
        { "(?:a|b)*a(?:a|b){12}", "2048 states" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct reel_error err = { 0 };
        struct regex *re;
        enum reel_status status =
            regex_compile(&re, cases[i].regex, strlen(cases[i].regex), "file", &err);
        if (status != REEL_E_UNSUPPORTED || !strstr(err.text, cases[i].said) ||
            strncmp(err.text, "file: ", 6) != 0)
            fail_msg("%s: %s", cases[i].regex, err.text);
        assert_null(re);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compiled_expressions_match_as_pcre2_does),
        cmocka_unit_test(a_stage_does_with_matches_what_its_behaviour_says),
        cmocka_unit_test(stages_follow_each_other_and_see_bytes_behind_byte_level),
        cmocka_unit_test(a_match_that_fails_late_everywhere_is_looked_for_once),
        cmocka_unit_test(a_plan_without_stages_leaves_one_word),
        cmocka_unit_test(what_is_not_taken_is_refused_in_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
