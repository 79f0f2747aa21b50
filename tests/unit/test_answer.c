/* How answers of a speech model are read: the rules one by one, and cases made by a transcription
 * of them into Python (tools/make_answer_goldens.py). */
#include "asr/answer.h"
#include "base/json.h"
#include "support/fixtures.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void check(const char *raw, const char *given, const char *language, const char *text) {
    struct asr_answer a;
    struct reel_error err = { 0 };
    assert_int_equal(asr_answer_read(&a, raw, strlen(raw), given, &err), REEL_OK);
    assert_string_equal(a.text, text);
    assert_string_equal(a.language, language);
    asr_answer_release(&a);
}

static void tag_and_transcript_are_told_apart(void **state) {
    (void)state;
    check("language English<asr_text>Hello there.", NULL, "English", "Hello there.");
    check(" \nlanguage cHINESE <asr_text>\u3000\u4f60\u597d\n", NULL, "Chinese", "\u4f60\u597d");
    check("hm\nlanguage German\nlanguage French<asr_text>Ja", NULL, "German", "Ja");
    check("language English<asr_text>a <asr_text> b", NULL, "English", "a <asr_text> b");
}

static void silence_has_no_language(void **state) {
    (void)state;
    check("language None<asr_text>", NULL, "", "");
    check("Language NONE<asr_text>still", NULL, "", "still");
    check("", NULL, "", "");
    check(" \n", NULL, "", "");
}

static void without_a_tag_everything_is_transcript(void **state) {
    (void)state;
    check(" just words ", NULL, "", "just words");
    check("language English", NULL, "", "language English");
    check("language English<asr_text>as said", "Korean", "Korean",
          "language English<asr_text>as said");
}

static void a_character_may_come_twenty_times(void **state) {
    (void)state;
    char raw[100] = "";
    memset(raw, 'a', 20);
    check(raw, NULL, "", raw);
    memset(raw, 'a', 21);
    check(raw, NULL, "", "a");
    check("no \u54c8\u54c8\u54c8\u54c8\u54c8\u54c8\u54c8\u54c8\u54c8\u54c8\u54c8\u54c8\u54c8\u54c8"
          "\u54c8\u54c8\u54c8\u54c8\u54c8\u54c8\u54c8 end",
          NULL, "", "no \u54c8 end");
}

static void a_pattern_may_come_nineteen_times(void **state) {
    (void)state;
    char raw[2000] = "so: ";
    for (int i = 0; i < 19; i++)
        strcat(raw, "you know, ");
    strcat(raw, "yes");
    check(raw, NULL, "", raw);
    raw[strlen(raw) - 3] = '\0';
    strcat(raw, "you know, yes");
    check(raw, NULL, "", "so: you know, yes");
}

static void bytes_that_are_no_utf8_become_replacement_characters(void **state) {
    (void)state;
    check("a\xff\xfe b", NULL, "", "a\xef\xbf\xbd\xef\xbf\xbd b");
    check("cut \xe4\xbd", NULL, "", "cut \xef\xbf\xbd");
    check("\xed\xa0\x80", NULL, "", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    check("\xf0\x9f\x98x", NULL, "", "\xef\xbf\xbdx");
    struct asr_answer a;
    assert_int_equal(asr_answer_read(&a, "a\0b", 3, NULL, NULL), REEL_OK);
    assert_string_equal(a.text, "a\xef\xbf\xbd"
                                "b");
    asr_answer_release(&a);
}

static void a_long_loop_takes_no_long_time(void **state) {
    (void)state;
    const size_t n = 2000000;
    char *raw = malloc(n);
    struct asr_answer a;
    assert_non_null(raw);
    for (size_t i = 0; i < n; i++)
        raw[i] = i % 1999 ? "abcdefghijklmnopqrstu"[i % 21] : '!';
    assert_int_equal(asr_answer_read(&a, raw, n, NULL, NULL), REEL_OK);
    assert_int_equal(strlen(a.text), n); /* 21 characters are no pattern */
    asr_answer_release(&a);
    for (size_t i = 0; i < n; i++)
        raw[i] = "ab"[i % 2];
    assert_int_equal(asr_answer_read(&a, raw, n, NULL, NULL), REEL_OK);
    assert_string_equal(a.text, "ab");
    asr_answer_release(&a);
    free(raw);
}

static void answers_are_read_as_the_published_rules_do(void **state) {
    (void)state;
    struct file_map map = { 0 };
    json_t *cases = NULL;
    assert_true(fixture_map(&map, "asr/answers.json"));
    assert_int_equal(json_read_lenient(&cases, "answers.json", map.bytes, map.size, NULL), REEL_OK);
    assert_true(json_array_size(cases) > 900);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        json_t *one = json_array_get(cases, i);
        const char *text[4];
        for (size_t k = 0; k < 4; k++)
            text[k] = json_string_value(json_array_get(one, k));
        check(text[0], text[1], text[2], text[3]);
    }
    json_decref(cases);
    file_map_close(&map);
}

static void languages_are_joined_without_repeats(void **state) {
    (void)state;
    const char *const several[] = { "", "Chinese", "",     "English", "English",
                                    "", "English", "Thai", "English" };
    char *all = NULL;
    assert_int_equal(asr_answer_languages(&all, several, 9, NULL), REEL_OK);
    assert_string_equal(all, "Chinese,English,Thai,English");
    free(all);
    assert_int_equal(asr_answer_languages(&all, several, 1, NULL), REEL_OK);
    assert_string_equal(all, "");
    free(all);
    assert_int_equal(asr_answer_languages(&all, NULL, 0, NULL), REEL_OK);
    assert_string_equal(all, "");
    free(all);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tag_and_transcript_are_told_apart),
        cmocka_unit_test(silence_has_no_language),
        cmocka_unit_test(without_a_tag_everything_is_transcript),
        cmocka_unit_test(a_character_may_come_twenty_times),
        cmocka_unit_test(a_pattern_may_come_nineteen_times),
        cmocka_unit_test(bytes_that_are_no_utf8_become_replacement_characters),
        cmocka_unit_test(a_long_loop_takes_no_long_time),
        cmocka_unit_test(answers_are_read_as_the_published_rules_do),
        cmocka_unit_test(languages_are_joined_without_repeats),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
