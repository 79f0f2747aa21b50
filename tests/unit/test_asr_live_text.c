/* What may be shown of an answer while it grows. */
#include "asr/answer.h"
#include "asr/live_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static size_t next_character(const char *raw, size_t at, size_t n) {
    at++;
    while (at < n && ((unsigned char)raw[at] & 0xc0) == 0x80)
        at++;
    return at;
}

/* Feeds the answer character by character; what is certain never shrinks. The longest delay in
 * bytes behind the answer goes to *delay. */
static struct live_text feed(const char *raw, bool forced, size_t *delay) {
    struct live_text t;
    size_t n = strlen(raw), before = 0, most = 0;
    live_text_start(&t, forced);
    for (size_t at = 0; at < n;) {
        at = next_character(raw, at, n);
        live_text_push(&t, raw, at);
        if (!t.has_begin) continue;
        assert_true(t.certain >= before && t.certain <= at);
        before = t.certain;
        if (at - t.certain > most) most = at - t.certain;
    }
    if (delay) *delay = most;
    return t;
}

static void expect_certain(const char *raw, bool forced, const char *text) {
    struct live_text t = feed(raw, forced, NULL);
    assert_true(t.has_begin);
    if (t.certain - t.begin != strlen(text) || memcmp(raw + t.begin, text, strlen(text)) != 0)
        fail_msg("of \"%s\" certain is \"%.*s\"", raw, (int)(t.certain - t.begin), raw + t.begin);
}

static void nothing_is_shown_before_the_tag_ends(void **state) {
    (void)state;
    struct live_text t = feed("language English", false, NULL);
    assert_false(t.has_begin);
    t = feed("language English<asr_text", false, NULL);
    assert_false(t.has_begin);
    expect_certain("language English<asr_text>", false, "");
    expect_certain("language English<asr_text>Go", false, "Go");
}

static void white_space_at_both_ends_is_held_back(void **state) {
    (void)state;
    expect_certain("<asr_text>\n \xe3\x80\x80Zu", false, "Zu");
    expect_certain("<asr_text> Zu \xc2\xa0", false, "Zu");
    expect_certain("<asr_text>\x1e\x1fZu\x1c", false, "Zu"); /* Unicode has them not, Python has */
    expect_certain("<asr_text> Zu k", false, "Zu k");
    expect_certain("  ", true, "");
}

static void a_forced_language_has_no_tag(void **state) {
    (void)state;
    expect_certain("Go on", true, "Go on");
}

static void plain_text_is_delayed_by_a_few_characters_only(void **state) {
    (void)state;
    size_t delay;
    feed("It is a truth universally acknowledged, that a single man in possession of a good "
         "fortune, "
         "must be in want of a wife. However little known the feelings or views of such a man may "
         "be "
         "on his first entering a neighbourhood, this truth is so well fixed in the minds of the "
         "surrounding families.",
         true, &delay);
    assert_in_range(delay, 1, 8);
}

static void characters_are_never_cut(void **state) {
    (void)state;
    /* neighbours of one block share lead bytes, which look like a repetition */
    const char *raw = "\xe4\xbb\x8a\xe5\xa4\xa9\xe4\xbb\x96\xe4\xbb\xac\xe4\xbb\x8b\xe4\xbb\x96";
    struct live_text t;
    size_t n = strlen(raw);
    live_text_start(&t, true);
    for (size_t at = 3; at <= n; at += 3) {
        live_text_push(&t, raw, at);
        assert_int_equal(t.certain % 3, 0);
    }
}

/* As asr/answer.h collapses a pattern, for texts made here: before, copies of the pattern, after.
 */
static void check_loop(const char *before, const char *pattern, int copies, const char *after) {
    char raw[4000];
    int n = snprintf(raw, sizeof raw, "<asr_text>%s", before);
    for (int i = 0; i < copies; i++)
        n += snprintf(raw + n, sizeof raw - (size_t)n, "%s", pattern);
    snprintf(raw + n, sizeof raw - (size_t)n, "%s", after);
    struct live_text t = feed(raw, false, NULL);
    size_t shown = t.certain - 10, kept = strlen(before) + strlen(pattern);
    if (copies >= 20) {
        assert_true(t.looping);
        assert_true(shown <= kept);
    } else {
        assert_false(t.looping);
        if (*after) assert_true(strlen(raw) - 10 - shown <= strlen(after) + 8);
    }
}

static void of_a_loop_no_more_than_the_first_copy_is_shown(void **state) {
    (void)state;
    static const char *const patterns[] = {
        "a", "ab", "ha ", "again. ", "\xe4\xbd\xa0\xe5\xa5\xbd", "twelve and a score, "
    };
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        for (int copies = 18; copies <= 45; copies++) {
            check_loop("Well, ", patterns[i], copies, "");
            check_loop("Well, ", patterns[i], copies, "Q9#");
        }
}

static void a_pattern_longer_than_twenty_characters_is_no_loop(void **state) {
    (void)state;
    char raw[2000] = "";
    for (int i = 0; i < 30; i++)
        strcat(raw, "one two three four five six ");
    struct live_text t = feed(raw, true, NULL);
    assert_false(t.looping);
    assert_true(t.certain > strlen(raw) - 30);
}

static void pieces_of_any_size_give_the_same(void **state) {
    (void)state;
    const char *raw =
        "language French<asr_text> \xc3\x80 bient\xc3\xb4t, \xc3\xa0 bient\xc3\xb4t ! "
        "Oui oui oui oui, et puis non non";
    struct live_text one = feed(raw, false, NULL), other;
    size_t n = strlen(raw);
    live_text_start(&other, false);
    for (size_t at = 0; at < n;) {
        for (int i = 0; i < 5 && at < n; i++)
            at = next_character(raw, at, n);
        live_text_push(&other, raw, at);
    }
    assert_int_equal(one.begin, other.begin);
    assert_true(other.certain <= one.certain); /* fewer looks show less, never something else */
    assert_memory_equal(one.runs, other.runs, sizeof one.runs);
}

/* A small generator, so that a failing text can be found again by its number. */
static unsigned draw(uint64_t *state, unsigned n) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(*state >> 33) % n;
}

/* Words, and here and there a pattern many times over, which is no run of one character: those are
 * collapsed first and can make a loop of what was none. */
static void made_text(char *out, size_t room, uint64_t seed) {
    static const char *const words[] = {
        "a",  "no ",    "tell ", "\xc3\xa9t\xc3\xa9 ",       "\xe4\xbd\xa0",
        ", ", "again ", "ha",    "\xe5\xa5\xbd\xe5\x90\x97", "22"
    };
    uint64_t state = seed;
    size_t n = 0;
    *out = '\0';
    while (draw(&state, 12) && n + 40 < room) {
        char pattern[30] = "";
        int n_words = 1 + (int)draw(&state, 3),
            copies = draw(&state, 3) ? 1 : 1 + (int)draw(&state, 30);
        for (int i = 0; i < n_words; i++)
            strcat(pattern, words[draw(&state, 10)]);
        if (copies > 1) strcat(pattern, ".");
        for (int i = 0; i < copies && n + 40 < room; i++)
            n += (size_t)snprintf(out + n, room - n, "%s", pattern);
    }
}

static void what_was_shown_begins_the_final_text(void **state) {
    (void)state;
    int n_loops = 0, n_shown = 0;
    for (uint64_t seed = 1; seed <= 3000; seed++) {
        char raw[3000] = "language English<asr_text>";
        struct asr_answer answer;
        struct reel_error err;
        bool forced = seed % 2;
        made_text(forced ? raw : raw + strlen(raw), 2000, seed);
        struct live_text t = feed(raw, forced, NULL);
        if (asr_answer_read(&answer, raw, strlen(raw), forced ? "English" : NULL, &err) != REEL_OK)
            fail_msg("%s", err.text);
        size_t n = t.certain - t.begin;
        if (n > strlen(answer.text) || memcmp(raw + t.begin, answer.text, n) != 0)
            fail_msg("text %d: \"%s\"\nshown \"%.*s\"\nfinal \"%s\"", (int)seed, raw, (int)n,
                     raw + t.begin, answer.text);
        n_loops += t.looping;
        n_shown += n > 0;
        asr_answer_release(&answer);
    }
    assert_true(n_loops > 300 && n_shown > 2000);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_shown_before_the_tag_ends),
        cmocka_unit_test(white_space_at_both_ends_is_held_back),
        cmocka_unit_test(a_forced_language_has_no_tag),
        cmocka_unit_test(plain_text_is_delayed_by_a_few_characters_only),
        cmocka_unit_test(characters_are_never_cut),
        cmocka_unit_test(of_a_loop_no_more_than_the_first_copy_is_shown),
        cmocka_unit_test(a_pattern_longer_than_twenty_characters_is_no_loop),
        cmocka_unit_test(what_was_shown_begins_the_final_text),
        cmocka_unit_test(pieces_of_any_size_give_the_same),
    };
    return cmocka_run_group_tests_name("asr live text", tests, NULL, NULL);
}
