/* Segments into a transcript: how texts and languages are joined, and what is counted. */
#include "asr/transcript.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void add(struct transcript *t, const char *text, const char *language) {
    static const int32_t ids[] = { 5, 6, 7 };
    const struct recognized heard = { .ids = ids,
                                      .n_ids = 3,
                                      .n_audio_tokens = 13,
                                      .n_prompt_tokens = 15,
                                      .features_ms = 1,
                                      .encoder_ms = 2,
                                      .prompt_ms = 3,
                                      .generate_ms = 4 };
    struct reel_error err;
    double start = t->sum.seconds;
    if (transcript_add(t, start, start + 10, text, language, &heard, &err) != REEL_OK)
        fail_msg("%s", err.text);
}

static struct reel_transcript view_of(struct transcript *t) {
    struct reel_transcript view;
    struct reel_error err;
    if (transcript_view(t, &view, &err) != REEL_OK) fail_msg("%s", err.text);
    return view;
}

static void expect_joined(const char *first, const char *second, const char *text) {
    struct transcript t = { 0 };
    add(&t, first, "");
    add(&t, second, "");
    assert_string_equal(view_of(&t).text, text);
    transcript_release(&t);
}

static void a_space_stands_between_texts_of_scripts_with_spaces(void **state) {
    (void)state;
    expect_joined("One.", "Two.", "One. Two.");
    expect_joined("\xc3\xa0", "\xc3\xa9", "\xc3\xa0 \xc3\xa9");
    /* Korean */
    expect_joined("\xec\x95\x88", "\xeb\x85\x95", "\xec\x95\x88 \xeb\x85\x95");
}

static void nothing_stands_between_texts_of_scripts_without_spaces(void **state) {
    (void)state;
    expect_joined("\xe4\xbd\xa0", "\xe5\xa5\xbd", "\xe4\xbd\xa0\xe5\xa5\xbd");
    expect_joined("\xe4\xbd\xa0\xe3\x80\x82", "OK", "\xe4\xbd\xa0\xe3\x80\x82OK");
    expect_joined("\xe0\xb8\x81", "\xe0\xb8\x82", "\xe0\xb8\x81\xe0\xb8\x82");
    expect_joined("a", "\xf0\xa0\x80\x80", "a\xf0\xa0\x80\x80");
}

static void empty_segments_leave_no_trace_in_the_text(void **state) {
    (void)state;
    expect_joined("", "Two.", "Two.");
    expect_joined("One.", "", "One.");
    expect_joined("", "", "");
}

static void a_language_is_named_once_in_a_row_and_never_empty(void **state) {
    (void)state;
    static const char *const languages[] = { "",        "English", "English", "",
                                             "English", "French",  "English" };
    struct transcript t = { 0 };
    for (int i = 0; i < 7; i++)
        add(&t, "x", languages[i]);
    assert_string_equal(view_of(&t).language, "English,French,English");
    transcript_release(&t);
}

static void segments_keep_what_they_were_given(void **state) {
    (void)state;
    struct transcript t = { 0 };
    for (int i = 0; i < 40; i++)
        add(&t, i % 2 ? "odd" : "even", "Thai");
    const struct reel_transcript view = view_of(&t);
    assert_int_equal(view.n_segments, 40);
    for (int i = 0; i < 40; i++) {
        const struct reel_segment *s = reel_transcript_segment(&view, i);
        assert_string_equal(s->text, i % 2 ? "odd" : "even");
        assert_string_equal(s->language, "Thai");
        assert_true(s->start == 10.0 * i && s->end == 10.0 * (i + 1));
        assert_int_equal(s->n_ids, 3);
        assert_int_equal(s->ids[2], 7);
    }
    assert_true(view.seconds == 400);
    assert_int_equal(view.n_audio_tokens, 40 * 13);
    assert_int_equal(view.n_prompt_tokens, 40 * 15);
    assert_int_equal(view.n_tokens, 40 * 3);
    assert_true(view.features_ms == 40 && view.encoder_ms == 80 && view.prompt_ms == 120 &&
                view.generate_ms == 160);
    transcript_release(&t);
}

/* As a library of a later version would hand them to this program: longer than its own. */
static void segments_are_as_far_apart_as_the_first_says(void **state) {
    (void)state;
    struct later {
        struct reel_segment known;
        double more;
    } list[3];
    memset(list, 0, sizeof list);
    for (int i = 0; i < 3; i++)
        list[i].known = (struct reel_segment){
            .size = sizeof *list, .start = i, .end = i + 1, .text = "x", .language = ""
        };
    struct reel_transcript t = {
        .size = sizeof t, .text = "x x x", .language = "", .segments = list, .n_segments = 3
    };
    for (int i = 0; i < 3; i++)
        assert_ptr_equal(reel_transcript_segment(&t, i), &list[i].known);
    assert_null(reel_transcript_segment(&t, 3));
    assert_null(reel_transcript_segment(&t, -1));
    char *text = NULL;
    struct reel_error err;
    assert_int_equal(reel_transcript_text(&t, REEL_TRANSCRIPT_SRT, &text, NULL, &err), REEL_OK);
    assert_non_null(strstr(text, "00:00:02,000 --> 00:00:03,000"));
    reel_free(text);
    list[0].known.size = 0;
    assert_int_equal(reel_transcript_text(&t, REEL_TRANSCRIPT_SRT, &text, NULL, &err),
                     REEL_E_ARGUMENT);
    t.segments = NULL;
    assert_int_equal(reel_transcript_text(&t, REEL_TRANSCRIPT_SRT, &text, NULL, &err),
                     REEL_E_ARGUMENT);
}

static void an_empty_transcript_has_texts_too(void **state) {
    (void)state;
    struct transcript t = { 0 };
    const struct reel_transcript view = view_of(&t);
    assert_string_equal(view.text, "");
    assert_string_equal(view.language, "");
    assert_int_equal(view.n_segments, 0);
    transcript_release(&t);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_space_stands_between_texts_of_scripts_with_spaces),
        cmocka_unit_test(nothing_stands_between_texts_of_scripts_without_spaces),
        cmocka_unit_test(empty_segments_leave_no_trace_in_the_text),
        cmocka_unit_test(a_language_is_named_once_in_a_row_and_never_empty),
        cmocka_unit_test(segments_keep_what_they_were_given),
        cmocka_unit_test(segments_are_as_far_apart_as_the_first_says),
        cmocka_unit_test(an_empty_transcript_has_texts_too),
    };
    return cmocka_run_group_tests_name("asr transcript", tests, NULL, NULL);
}
