/* The stop strings' matcher against a plain search over the whole text. */
#include "runtime/stop_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void start(struct stop_text *stop, const char *const *strings, int n) {
    struct reel_error err = { 0 };
    assert_int_equal(stop_text_start(stop, strings, n, &err), REEL_OK);
}

static void without_stop_strings_nothing_is_held_back(void **state) {
    (void)state;
    struct stop_text stop;
    char out[300];
    int match;
    start(&stop, NULL, 0);
    assert_int_equal(stop_text_push(&stop, "hello", 5, out, &match), 5);
    assert_memory_equal(out, "hello", 5);
    assert_int_equal(match, -1);
    assert_int_equal(stop_text_finish(&stop, out), 0);
}

static void only_what_may_begin_a_stop_string_is_held_back(void **state) {
    (void)state;
    const char *strings[] = { "\n\nUser:" };
    struct stop_text stop;
    char out[300];
    int match;
    start(&stop, strings, 1);
    assert_int_equal(stop_text_push(&stop, "Hi.\n", 4, out, &match), 3);
    assert_int_equal(stop_text_push(&stop, "\nUs", 3, out, &match), 0);
    /* "\n\nUs" was no stop string after all, but a new one may begin with the last line end */
    assert_int_equal(stop_text_push(&stop, "e\n", 2, out, &match), 5);
    assert_memory_equal(out, "\n\nUse", 5);
    assert_int_equal(stop_text_finish(&stop, out), 1);
    assert_memory_equal(out, "\n", 1);
}

static void a_match_across_pieces_cuts_before_it(void **state) {
    (void)state;
    const char *strings[] = { "zz", "</answer>" };
    struct stop_text stop;
    char out[300];
    int match;
    start(&stop, strings, 2);
    assert_int_equal(stop_text_push(&stop, "42</ans", 7, out, &match), 2);
    assert_int_equal(stop_text_push(&stop, "wer></answer> more", 18, out, &match), 0);
    assert_int_equal(match, 1);
}

static void the_first_to_be_complete_wins_and_the_longest_of_those(void **state) {
    (void)state;
    const char *strings[] = { "bc", "abc", "abcd" };
    struct stop_text stop;
    char out[300];
    int match;
    start(&stop, strings, 3);
    assert_int_equal(stop_text_push(&stop, "xabcd", 5, out, &match), 1);
    assert_int_equal(match, 1);
}

static void strings_outside_the_limits_are_refused(void **state) {
    (void)state;
    struct stop_text stop;
    struct reel_error err;
    char longest[258];
    memset(longest, 'x', sizeof longest);
    longest[257] = '\0';
    const char *empty[] = { "" }, *null[] = { NULL }, *longer[] = { longest }, *half[] = { "\xa9" };
    const char *many[17];
    for (int i = 0; i < 17; i++)
        many[i] = "x";
    assert_int_equal(stop_text_start(&stop, empty, 1, &err), REEL_E_ARGUMENT);
    assert_int_equal(stop_text_start(&stop, null, 1, &err), REEL_E_ARGUMENT);
    assert_int_equal(stop_text_start(&stop, longer, 1, &err), REEL_E_ARGUMENT);
    assert_int_equal(stop_text_start(&stop, half, 1, &err), REEL_E_ARGUMENT);
    assert_int_equal(stop_text_start(&stop, many, 17, &err), REEL_E_ARGUMENT);
    assert_int_equal(stop_text_start(&stop, NULL, 1, &err), REEL_E_ARGUMENT);
    assert_int_equal(stop_text_start(&stop, many, -1, &err), REEL_E_ARGUMENT);
    longest[256] = '\0';
    assert_int_equal(stop_text_start(&stop, longer, 1, &err), REEL_OK);
    assert_int_equal(stop_text_start(&stop, many, 16, &err), REEL_OK);
}

/* Over two letters every overlap and repetition comes up soon. */
static void random_texts_agree_with_a_plain_search(void **state) {
    (void)state;
    srand(5);
    for (int round = 0; round < 20000; round++) {
        char words[4][9], text[64] = "", got[400];
        const char *strings[4];
        int n_strings = 1 + rand() % 4, n_text = rand() % 60;
        for (int i = 0; i < n_strings; i++) {
            int n = 2 + rand() % 6;
            for (int j = 0; j < n; j++)
                words[i][j] = (char)('a' + rand() % 2);
            words[i][n] = '\0';
            strings[i] = words[i];
        }
        for (int j = 0; j < n_text; j++)
            text[j] = (char)('a' + rand() % 3);

        /* plain: the first end of any, then the earliest begin */
        size_t want = strlen(text);
        int want_match = -1;
        for (size_t end = 1; end <= strlen(text) && want_match < 0; end++)
            for (int i = 0; i < n_strings; i++) {
                size_t n = strlen(words[i]);
                if (n > end || memcmp(text + end - n, words[i], n) != 0) continue;
                if (want_match >= 0 && end - n >= want) continue;
                want = end - n;
                want_match = i;
            }

        struct stop_text stop;
        size_t n_got = 0;
        int match = -1;
        start(&stop, strings, n_strings);
        for (size_t at = 0; at < strlen(text) && match < 0;) {
            size_t n = 1 + (size_t)rand() % 7;
            if (n > strlen(text) - at) n = strlen(text) - at;
            n_got += stop_text_push(&stop, text + at, n, got + n_got, &match);
            at += n;
        }
        if (match < 0) n_got += stop_text_finish(&stop, got + n_got);
        assert_int_equal(match, want_match);
        assert_int_equal(n_got, want);
        assert_memory_equal(got, text, want);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_stop_strings_nothing_is_held_back),
        cmocka_unit_test(only_what_may_begin_a_stop_string_is_held_back),
        cmocka_unit_test(a_match_across_pieces_cuts_before_it),
        cmocka_unit_test(the_first_to_be_complete_wins_and_the_longest_of_those),
        cmocka_unit_test(strings_outside_the_limits_are_refused),
        cmocka_unit_test(random_texts_agree_with_a_plain_search),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
