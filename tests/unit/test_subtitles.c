/* Transcripts as files: what each format holds, to the byte. */
#include "asr/subtitles.h"
#include "base/json.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct subtitle two[] = {
    { 0, 2.3456, "Hello there." },
    { 2.3456, 3725.0004, " \u4f60\u597d, again\n" },
};
static const struct subtitles_whole both = { "Hello there. \u4f60\u597d, again", "English,Chinese",
                                             3725.0004 };

/* The file of n segments; the caller frees. */
static char *file_of(enum subtitle_format format, const struct subtitle *segments, int n,
                     const struct subtitles_whole *whole) {
    struct subtitles s;
    struct reel_error err = { 0 };
    char *out = NULL;
    size_t size = 0;
    assert_int_equal(subtitles_start(&s, format, &err), REEL_OK);
    for (int i = 0; i < n; i++)
        assert_int_equal(subtitles_add(&s, segments + i, &err), REEL_OK);
    assert_int_equal(subtitles_finish(&s, whole, &out, &size, &err), REEL_OK);
    assert_int_equal(strlen(out), size);
    subtitles_release(&s);
    return out;
}

static void check(enum subtitle_format format, const struct subtitle *segments, int n,
                  const struct subtitles_whole *whole, const char *want) {
    char *out = file_of(format, segments, n, whole);
    assert_string_equal(out, want);
    free(out);
}

static void text_is_the_text(void **state) {
    (void)state;
    check(SUBTITLES_TEXT, two, 2, &both, "Hello there. \u4f60\u597d, again\n");
}

static void json_has_the_text_alone(void **state) {
    (void)state;
    const struct subtitles_whole odd = { "say \"no\"\\\n\x01\u2028", "", 1 };
    json_t *json = NULL;
    check(SUBTITLES_JSON, two, 2, &both,
          "{\n  \"text\": \"Hello there. \u4f60\u597d, again\"\n}\n");
    char *out = file_of(SUBTITLES_JSON, two, 2, &odd);
    assert_int_equal(json_read(&json, "json", out, strlen(out), NULL), REEL_OK);
    assert_string_equal(json_string_value(json_object_get(json, "text")), odd.text);
    json_decref(json);
    free(out);
}

static void verbose_json_has_openais_fields(void **state) {
    (void)state;
    check(SUBTITLES_VERBOSE_JSON, two, 2, &both,
          "{\n"
          "  \"task\": \"transcribe\",\n"
          "  \"language\": \"english,chinese\",\n"
          "  \"duration\": 3725.0,\n"
          "  \"text\": \"Hello there. \u4f60\u597d, again\",\n"
          "  \"segments\": [\n"
          "    {\n"
          "      \"id\": 0,\n"
          "      \"start\": 0.0,\n"
          "      \"end\": 2.346,\n"
          "      \"text\": \"Hello there.\"\n"
          "    },\n"
          "    {\n"
          "      \"id\": 1,\n"
          "      \"start\": 2.346,\n"
          "      \"end\": 3725.0,\n"
          "      \"text\": \"\u4f60\u597d, again\"\n"
          "    }\n"
          "  ]\n"
          "}\n");
}

static void subrip_numbers_its_cues(void **state) {
    (void)state;
    check(SUBTITLES_SRT, two, 2, &both,
          "1\n00:00:00,000 --> 00:00:02,346\nHello there.\n\n"
          "2\n00:00:02,346 --> 01:02:05,000\n\u4f60\u597d, again\n\n");
}

static void webvtt_begins_with_its_name(void **state) {
    (void)state;
    check(SUBTITLES_VTT, two, 2, &both,
          "WEBVTT\n\n"
          "00:00:00.000 --> 00:00:02.346\nHello there.\n\n"
          "00:00:02.346 --> 01:02:05.000\n\u4f60\u597d, again\n\n");
}

static void segments_without_text_are_left_out(void **state) {
    (void)state;
    const struct subtitle some[] = {
        { 0, 1, "" }, { 1, 2, "a" }, { 2, 3, " \r\n\t" }, { 3, 4, "b" }
    };
    const struct subtitles_whole whole = { "a b", "English", 4 }, none = { "", "", 4 };
    check(SUBTITLES_SRT, some, 4, &whole,
          "1\n00:00:01,000 --> 00:00:02,000\na\n\n2\n00:00:03,000 --> 00:00:04,000\nb\n\n");
    check(SUBTITLES_SRT, some, 1, &none, "");
    check(SUBTITLES_VTT, some, 1, &none, "WEBVTT\n\n");
    check(SUBTITLES_TEXT, some, 1, &none, "\n");
    check(SUBTITLES_VERBOSE_JSON, some, 1, &none,
          "{\n  \"task\": \"transcribe\",\n  \"language\": \"\",\n  \"duration\": 4.0,\n"
          "  \"text\": \"\",\n  \"segments\": []\n}\n");
}

static void no_text_ends_a_cue_or_begins_another(void **state) {
    (void)state;
    const struct subtitle evil = { 0, 1,
                                   "a <b> & c\r\n\r\n \n2\n00:00:00,000 ----> 00:00:09,000\nx" };
    const struct subtitles_whole whole = { "", "", 1 };
    check(SUBTITLES_SRT, &evil, 1, &whole,
          "1\n00:00:00,000 --> 00:00:01,000\na <b> & c\n2\n00:00:00,000 -> 00:00:09,000\nx\n\n");
    check(SUBTITLES_VTT, &evil, 1, &whole,
          "WEBVTT\n\n00:00:00.000 --> 00:00:01.000\na &lt;b&gt; &amp; c\n2\n"
          "00:00:00,000 ----&gt; 00:00:09,000\nx\n\n");
}

static void any_times_make_cues_that_players_take(void **state) {
    (void)state;
    const struct subtitle odd[] = { { 1, 1, "same" },
                                    { 5, 2, "backwards" },
                                    { -3, -1, "before" },
                                    { NAN, INFINITY, "endless" },
                                    { 0.9996, 359999.9996, "rounded" } };
    const struct subtitles_whole whole = { "", "", -1 };
    check(SUBTITLES_SRT, odd, 5, &whole,
          "1\n00:00:01,000 --> 00:00:01,001\nsame\n\n"
          "2\n00:00:05,000 --> 00:00:05,001\nbackwards\n\n"
          "3\n00:00:00,000 --> 00:00:00,001\nbefore\n\n"
          "4\n00:00:00,000 --> 277777777:46:40,000\nendless\n\n"
          "5\n00:00:01,000 --> 100:00:00,000\nrounded\n\n");
}

static void what_is_not_utf8_is_refused_where_json_is_made(void **state) {
    (void)state;
    const struct subtitle bad = { 0, 1, "ab\xff" };
    const struct subtitles_whole whole = { "ab\xff", "", 1 };
    struct subtitles s;
    struct reel_error err = { 0 };
    char *out = NULL;
    assert_int_equal(subtitles_start(&s, SUBTITLES_VERBOSE_JSON, &err), REEL_OK);
    assert_int_equal(subtitles_add(&s, &bad, &err), REEL_E_ARGUMENT);
    assert_string_equal(err.text, "a segment's text is not UTF-8 at byte 2");
    assert_int_equal(subtitles_finish(&s, &whole, &out, NULL, &err), REEL_E_ARGUMENT);
    assert_null(out);
    subtitles_release(&s);
}

static void formats_go_by_their_names(void **state) {
    (void)state;
    enum subtitle_format format;
    for (int i = 0; i < SUBTITLES_FORMATS; i++) {
        assert_true(subtitles_format_find(subtitles_format_name((enum subtitle_format)i), &format));
        assert_int_equal(format, i);
    }
    assert_false(subtitles_format_find("SRT", &format));
    assert_false(subtitles_format_find("", &format));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_is_the_text),
        cmocka_unit_test(json_has_the_text_alone),
        cmocka_unit_test(verbose_json_has_openais_fields),
        cmocka_unit_test(subrip_numbers_its_cues),
        cmocka_unit_test(webvtt_begins_with_its_name),
        cmocka_unit_test(segments_without_text_are_left_out),
        cmocka_unit_test(no_text_ends_a_cue_or_begins_another),
        cmocka_unit_test(any_times_make_cues_that_players_take),
        cmocka_unit_test(what_is_not_utf8_is_refused_where_json_is_made),
        cmocka_unit_test(formats_go_by_their_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
