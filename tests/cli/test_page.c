/* Answers laid out for a reader, as a terminal shows them. */
#include "cli/grapheme.h"
#include "cli/page.h"
#include "cli/think_view.h"
#include "support/screen.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *text_shown;
static size_t cut; /* bytes at a time */

static int show_page(void) {
    struct page page;
    const size_t n = strlen(text_shown);
    page_start(&page, stdout);
    for (size_t at = 0; at < n; at += cut)
        page_text(&page, text_shown + at, n - at < cut ? n - at : cut);
    page_end(&page);
    printf("END\n");
    return 0;
}

/* The screen that comes of a text, up to the last row; free() it. */
static char *shown(const char *text, int columns, size_t bytes_at_a_time) {
    struct screen s;
    text_shown = text;
    cut = bytes_at_a_time;
    screen_open_call(&s, 30, columns, show_page);
    screen_see(&s, "END");
    char *all = screen_text(&s);
    *strstr(all, "END") = '\0';
    assert_int_equal(screen_close(&s), 0);
    return all;
}

static void expect_page(const char *text, int columns, const char *wanted) {
    for (size_t bytes = 1; bytes < 12; bytes += 3) {
        char *all = shown(text, columns, bytes);
        assert_string_equal(all, wanted);
        free(all);
    }
}

static void words_wrap_where_they_fit(void **state) {
    (void)state;
    expect_page("one two three four", 13, "one two three\nfour\n");
    expect_page("one two three four", 12, "one two\nthree four\n");
    expect_page("one  two   three", 8, "one  two\nthree\n");
    expect_page("  indented as it was", 12, "  indented\nas it was\n");
    expect_page("\n\none\n\n\ntwo\n\n", 20, "one\n\n\ntwo\n");
    expect_page("a\tb\tc", 40, "a       b       c\n");
    expect_page("", 20, "");
}

static void a_word_that_is_longer_than_a_row_stays_in_one_piece(void **state) {
    (void)state;
    expect_page("see http://example.org/a/long/address now", 12,
                "see\nhttp://examp\nle.org/a/lon\ng/address\nnow\n");
    /* no newline of ours in it: a terminal copies it whole */
    char word[400], *out = NULL;
    size_t n = 0;
    struct page page;
    memset(word, 'x', sizeof word);
    FILE *f = open_memstream(&out, &n);
    assert_non_null(f);
    page_start(&page, f);
    page_text(&page, word, sizeof word);
    page_end(&page);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(n, sizeof word + 1);
    assert_memory_equal(out, word, sizeof word);
    free(out);
}

static void lists_hang_and_code_is_left_alone(void **state) {
    (void)state;
    expect_page("- one two three\n  * four five six\n12. seven eight", 12,
                "- one two\n  three\n  * four\n    five six\n12. seven\n    eight\n");
    expect_page("```c\nint main(void) {\n    return  **p;\n}\n```\nmore words", 10,
                "```c\nint main(v\noid) {\n    return\n  **p;\n}\n```\nmore words\n");
    expect_page("| a | b c d e |", 8, "| a | b\nc d e |\n");
}

static void strong_words_and_headings_are_bold(void **state) {
    struct screen s;
    (void)state;
    text_shown =
        "## A title\nsome **strong words**, `**code**`\n2**3 ** 4 *5* \\**6\nan ***open end\nplain";
    for (cut = 1; cut < 12; cut += 3) {
        screen_open_call(&s, 30, 60, show_page);
        screen_see(&s, "END");
        assert_string_equal(screen_row(&s, 0), "A title");
        assert_string_equal(screen_row(&s, 1), "some strong words, `**code**`");
        assert_string_equal(screen_row(&s, 2), "2**3 ** 4 *5* \\**6");
        assert_string_equal(screen_row(&s, 3), "an open end");
        assert_string_equal(screen_row(&s, 4), "plain");
        for (int i = 0; i < 7; i++)
            assert_true(screen_is_bold(&s, 0, i));
        for (int i = 0; i < 29; i++)
            assert_int_equal(screen_is_bold(&s, 1, i) != 0, i >= 5 && i < 17);
        for (int i = 0; i < 18; i++)
            assert_false(screen_is_bold(&s, 2, i));
        assert_true(screen_is_bold(&s, 3, 8) && !screen_is_bold(&s, 4, 0));
        assert_int_equal(screen_close(&s), 0);
    }
}

static void without_styles_marks_stay(void **state) {
    (void)state;
    setenv("NO_COLOR", "1", 1);
    expect_page("# A title\n**strong**", 30, "# A title\n**strong**\n");
    unsetenv("NO_COLOR");
}

/* Nothing is lost, no row is longer than it may be, and points stay with what they end. */
static void any_script_wraps(void **state) {
    static const char text[] =
        "\xe4\xbd\xa0\xe5\xa5\xbd\xef\xbc\x8c\xe4\xb8\x96\xe7\x95\x8c\xe3\x80\x82"
        "\xe3\x80\x8c\xe4\xbd\xa0\xe5\xa5\xbd\xe3\x80\x8d\xe4\xb8\x96\xe7\x95\x8c\xef\xbc\x81"
        "\xed\x95\x9c\xea\xb5\xad\xec\x96\xb4 word \xc3\xa4"
        "e\xcc\x81"
        "o\xcc\x88 "
        "\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7"
        "\xf0\x9f\x87\xa9\xf0\x9f\x87\xaa\xf0\x9f\x87\xab\xf0\x9f\x87\xb7"
        "\xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd\xe2\x9d\xa4\xef\xb8\x8f"
        "end";
    static const char *const never_first[] = { "\xef\xbc\x8c",     "\xe3\x80\x82", "\xe3\x80\x8d",
                                               "\xef\xbc\x81",     "\xcc\x81",     "\xe2\x80\x8d",
                                               "\xf0\x9f\x8f\xbd", "\xef\xb8\x8f" };
    (void)state;
    for (int columns = 12; columns < 30; columns++) {
        char joined[1000] = "", wanted[1000] = "";
        char *all = shown(text, columns, 5);
        for (char *row = strtok(all, "\n"); row; row = strtok(NULL, "\n")) {
            int sum = 0, width;
            for (size_t i = 0; i < sizeof never_first / sizeof *never_first; i++)
                assert_int_not_equal(strncmp(row, never_first[i], strlen(never_first[i])), 0);
            for (size_t at = 0; at < strlen(row); sum += width)
                at = grapheme_end(row, strlen(row), at, &width);
            assert_true(sum <= columns);
            strcat(joined, row);
        }
        free(all);
        for (size_t i = 0, n = 0; i < strlen(text); i++)
            if (text[i] != ' ') wanted[n++] = text[i];
        char packed[1000] = "";
        for (size_t i = 0, n = 0; i < strlen(joined); i++)
            if (joined[i] != ' ') packed[n++] = joined[i];
        assert_string_equal(packed, wanted);
    }
}

static void a_model_cannot_steer_the_terminal(void **state) {
    (void)state;
    expect_page("a\033[2Jb\rc\x07"
                "d\xc2\x9b"
                "31me\x7f"
                "f",
                40, "a?[2Jb?c?d?31me?f\n");
    expect_page("x\xff\xc3y\xe4\xb8", 40, "x\xef\xbf\xbd\xef\xbf\xbdy\xef\xbf\xbd\xef\xbf\xbd\n");
}

static int show_thoughts(void) {
    struct page page;
    struct think_view view = { .out = stdout, .page = &page, .styled = true };
    page_start(&page, stdout);
    for (size_t at = 0; at < strlen(text_shown); at++)
        think_view_put(&view, text_shown + at, 1);
    think_view_finish(&view);
    printf("END\n");
    return 0;
}

static void thoughts_wrap_and_are_no_markdown(void **state) {
    struct screen s;
    (void)state;
    text_shown = "<think>\nsome **thoughts** here\n</think>\n\n**an** answer";
    screen_open_call(&s, 24, 17, show_thoughts);
    screen_see(&s, "END");
    assert_string_equal(screen_row(&s, 0), "some **thoughts**");
    assert_string_equal(screen_row(&s, 1), "here");
    assert_string_equal(screen_row(&s, 3), "an answer");
    assert_true(screen_is_bold(&s, 3, 0) && !screen_is_bold(&s, 0, 6));
    assert_int_equal(screen_close(&s), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_wrap_where_they_fit),
        cmocka_unit_test(a_word_that_is_longer_than_a_row_stays_in_one_piece),
        cmocka_unit_test(lists_hang_and_code_is_left_alone),
        cmocka_unit_test(strong_words_and_headings_are_bold),
        cmocka_unit_test(without_styles_marks_stay),
        cmocka_unit_test(any_script_wraps),
        cmocka_unit_test(a_model_cannot_steer_the_terminal),
        cmocka_unit_test(thoughts_wrap_and_are_no_markdown),
    };
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    return cmocka_run_group_tests_name("answers at a terminal", tests, NULL, NULL);
}
