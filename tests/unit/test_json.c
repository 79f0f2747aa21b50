/* base/json_parse.c: what is read, what is refused, with which words. */
#include "base/json.h"

#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static json_t *read_ok(const char *text) {
    json_t *root = NULL;
    struct reel_error err;
    if (json_read(&root, "t.json", text, strlen(text), &err) != REEL_OK)
        fail_msg("%s: %s", text, err.text);
    return root;
}

static void values_of_every_type_are_read(void **state) {
    (void)state;
    json_t *root = read_ok(" { \"a\" : [ 1 , -0, 2.5, -1.5e-3, 1E2, true, false, null ],\n"
                           "\"b\":{\"c\":\"d\"},\"e\":[],\"f\":{} } ");
    const json_t *a = json_object_get(root, "a");
    assert_int_equal(json_array_size(a), 8);
    assert_int_equal(json_integer_value(json_array_get(a, 0)), 1);
    assert_true(json_is_integer(json_array_get(a, 1)));
    assert_true(json_real_value(json_array_get(a, 2)) == 2.5);
    assert_true(json_real_value(json_array_get(a, 3)) == -1.5e-3);
    assert_true(json_is_real(json_array_get(a, 4)));
    assert_true(json_is_null(json_array_get(a, 7)));
    assert_string_equal(json_string_value(json_object_get(json_object_get(root, "b"), "c")), "d");
    json_decref(root);
}

static void a_value_needs_no_container(void **state) {
    (void)state;
    static const char *const texts[] = {
        "1", "\"a\"", "true", "null", "[]", "{}", "-9223372036854775808"
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        json_decref(read_ok(texts[i]));
}

static void escapes_become_utf8(void **state) {
    (void)state;
    json_t *root =
        read_ok("\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u0041\\u00e9\\u20AC\\ud83d\\ude00\xc3\xa9\"");
    assert_string_equal(json_string_value(root),
                        "\"\\/\b\f\n\r\tA\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\xc3\xa9");
    json_decref(root);
}

/* The parser must take and refuse what jansson's own does, except where a limit is stated. */
static void jansson_agrees_on_every_text(void **state) {
    (void)state;
    static const char *const texts[] = { "",
                                         " ",
                                         "{",
                                         "[",
                                         "{}",
                                         "[]",
                                         "[1,]",
                                         "{\"a\":1,}",
                                         "{\"a\"}",
                                         "{a:1}",
                                         "[1 2]",
                                         "tru",
                                         "truex",
                                         "nul",
                                         "[true,false]",
                                         "01",
                                         "-",
                                         "-a",
                                         "1.",
                                         ".5",
                                         "1e",
                                         "1e+",
                                         "1.5e3",
                                         "+1",
                                         "0x10",
                                         "1e400",
                                         "-1e400",
                                         "1e-400",
                                         "9223372036854775807",
                                         "-9223372036854775808",
                                         "\"",
                                         "\"a",
                                         "\"\\",
                                         "\"\\x\"",
                                         "\"\\u12\"",
                                         "\"\\u12g4\"",
                                         "\"\\ud800\"",
                                         "\"\\ud800\\u0041\"",
                                         "\"\\udc00\"",
                                         "\"\\u0000\"",
                                         "\"\x01\"",
                                         "\"\n\"",
                                         "\"\xff\"",
                                         "\"\xc3\"",
                                         "\"\xc0\xaf\"",
                                         "\"\xed\xa0\x80\"",
                                         "\"\xf4\x90\x80\x80\"",
                                         "\"\xf0\x8f\xbf\xbf\"",
                                         "\"\xe0\x9f\xbf\"",
                                         "1 1",
                                         "{} x",
                                         "[]]",
                                         "{\"a\":1,\"a\":2}",
                                         "{\"a\":{\"a\":1}}",
                                         "\xef\xbb\xbf{}",
                                         "[1,\t2]",
                                         "[1,\v2]",
                                         "nan",
                                         "Infinity",
                                         "{\"\\u0041\":1,\"A\":2}",
                                         "{\"\\u0000\":1}",
                                         "'a'",
                                         "/* */1" };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        json_t *ours = NULL;
        struct reel_error err = { 0 };
        enum reel_status status = json_read(&ours, "t", texts[i], strlen(texts[i]), &err);
        json_t *theirs =
            json_loadb(texts[i], strlen(texts[i]), JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, NULL);
        if ((status == REEL_OK) != (theirs != NULL) || !json_equal(ours, theirs) != !ours)
            fail_msg("%s: %s here, %s by jansson", texts[i], reel_status_name(status),
                     theirs ? "accepted" : "refused");
        if (status != REEL_OK) assert_non_null(strstr(err.text, "line "));
        json_decref(ours);
        json_decref(theirs);
    }
}

/* jansson refuses them; tokenizer_config.json of Mistral 7B and many others has the third as "no
 * limit". */
static void integers_beyond_64_bits_are_real(void **state) {
    (void)state;
    static const struct {
        const char *text;
        double value;
    } cases[] = {
        { "9223372036854775808", 9223372036854775808.0 },
        { "-9223372036854775809", -9223372036854775808.0 },
        { "1000000000000000019884624838656", 1e30 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *root = read_ok(cases[i].text);
        assert_true(json_is_real(root));
        if (json_real_value(root) != cases[i].value)
            fail_msg("%s: %.17g", cases[i].text, json_real_value(root));
        json_decref(root);
    }
}

static void messages_name_line_column_and_key(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        { "{\n  \"a\": 1,\n  \"a\": 2\n}", "line 3, column 3: duplicate key \"a\"" },
        { "[1,\n\"\xc3\xa9\" x]", "line 2, column 5: ',' or ']' expected" },
        { "{\"a\" 1}", "line 1, column 6: ':' expected" },
        { "[\"ab", "line 1, column 5: the string does not end" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        json_t *root = NULL;
        struct reel_error err = { 0 };
        assert_int_equal(json_read(&root, "t.json", cases[i][0], strlen(cases[i][0]), &err),
                         REEL_E_FORMAT);
        if (!strstr(err.text, cases[i][1])) fail_msg("%s, expected %s", err.text, cases[i][1]);
        assert_null(root);
    }
}

static void nesting_has_a_limit(void **state) {
    (void)state;
    char text[1100];
    memset(text, '[', 512);
    memset(text + 512, ']', 512);
    text[1024] = '\0';
    json_decref(read_ok(text));
    memset(text, '[', 513);
    memset(text + 513, ']', 513);
    json_t *root = NULL;
    assert_int_equal(json_read(&root, "t", text, 1026, NULL), REEL_E_FORMAT);
    assert_null(root);
}

static void a_comma_as_decimal_point_changes_nothing(void **state) {
    (void)state;
    const char *old = setlocale(LC_NUMERIC, NULL);
    char keep[64];
    strncpy(keep, old ? old : "C", sizeof keep - 1);
    keep[sizeof keep - 1] = '\0';
    if (!setlocale(LC_NUMERIC, "de_DE.UTF-8")) skip();
    json_t *root = read_ok("[0.125, 1.5e-3]");
    assert_true(json_real_value(json_array_get(root, 0)) == 0.125);
    assert_true(json_real_value(json_array_get(root, 1)) == 1.5e-3);
    json_decref(root);
    setlocale(LC_NUMERIC, keep);
}

static void lenient_reading_takes_nuls_and_long_integers(void **state) {
    (void)state;
    static const char text[] = "[\"a\\u0000b\", 123456789012345678901234567890, 7]";
    json_t *root = NULL;
    assert_int_equal(json_read(&root, "t", text, sizeof text - 1, NULL), REEL_E_FORMAT);
    assert_int_equal(json_read_lenient(&root, "t", text, sizeof text - 1, NULL), REEL_OK);
    assert_int_equal(json_string_length(json_array_get(root, 0)), 3);
    assert_true(json_real_value(json_array_get(root, 1)) == 123456789012345678901234567890.0);
    assert_true(json_is_real(json_array_get(root, 2)));
    json_decref(root);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values_of_every_type_are_read),
        cmocka_unit_test(a_value_needs_no_container),
        cmocka_unit_test(escapes_become_utf8),
        cmocka_unit_test(jansson_agrees_on_every_text),
        cmocka_unit_test(integers_beyond_64_bits_are_real),
        cmocka_unit_test(messages_name_line_column_and_key),
        cmocka_unit_test(nesting_has_a_limit),
        cmocka_unit_test(a_comma_as_decimal_point_changes_nothing),
        cmocka_unit_test(lenient_reading_takes_nuls_and_long_integers),
    };
    return cmocka_run_group_tests_name("json", tests, NULL, NULL);
}
