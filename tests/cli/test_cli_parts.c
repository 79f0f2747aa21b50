/* Parts of the program that need no model: options, the dimming of thoughts, conversations. */
#include "cli/answer.h"
#include "cli/conversation.h"
#include "cli/options.h"
#include "cli/pace.h"
#include "cli/think_view.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- options --------------------------------------------------------------------------------- */

static const struct cli_option list[] = {
    { .name = "count",
      .letter = 'n',
      .kind = CLI_INTEGER,
      .argument = "N",
      .least = -3,
      .most = 9 },
    { .name = "share", .kind = CLI_REAL, .argument = "X", .low = -0.5, .high = 1 },
    { .name = "mode", .kind = CLI_CHOICE, .argument = "M", .choices = "on off offer" },
    { .name = "word", .letter = 'w', .kind = CLI_TEXT, .argument = "W", .repeats = true },
    { .name = "loud", .letter = 'l', .kind = CLI_FLAG },
};
static const struct cli_group group = CLI_GROUP("Options", list);
static const struct cli_command command = {
    .name = "test", .arguments = "[A [B]]", .most_arguments = 2, .groups = { &group }
};

static enum reel_status parse(struct cli_args *args, int n, char **words) {
    return cli_parse(args, &command, n, words, NULL);
}
#define PARSE(args, ...)                                                                           \
    parse(args, (int)(sizeof((char *[]){ __VA_ARGS__ }) / sizeof(char *)),                         \
          (char *[]){ __VA_ARGS__ })

static void options_may_stand_anywhere_and_in_all_forms(void **state) {
    (void)state;
    struct cli_args args;
    assert_int_equal(PARSE(&args, "a", "-n", "-3", "--share=0.25", "-wone", "-w", "two", "--loud",
                           "--mode", "off", "--", "--mode"),
                     REEL_OK);
    assert_int_equal(args.n_arguments, 2);
    assert_string_equal(args.arguments[1], "--mode");
    assert_int_equal(cli_integer(&args, "count", 5), -3);
    assert_true(cli_real(&args, "share", 0) == 0.25);
    assert_string_equal(cli_text(&args, "mode", ""), "off");
    assert_string_equal(cli_repeated(&args, "word", 0), "one");
    assert_string_equal(cli_repeated(&args, "word", 1), "two");
    assert_null(cli_repeated(&args, "word", 2));
    assert_true(cli_has(&args, "loud"));
    cli_args_release(&args);
}

static void what_was_not_given_reads_as_the_fallback(void **state) {
    (void)state;
    struct cli_args args;
    assert_int_equal(PARSE(&args, "a"), REEL_OK);
    assert_int_equal(cli_integer(&args, "count", 5), 5);
    assert_null(cli_text(&args, "word", NULL));
    assert_false(cli_has(&args, "loud"));
    cli_args_release(&args);
}

static void values_outside_the_table_are_refused(void **state) {
    (void)state;
    struct cli_args args;
    static char *const bad[] = { "-n10",         "-n-4",       "-n",         "--count=",
                                 "--share=1.01", "--mode=of",  "--mode=",    "--mode=on off",
                                 "--loud=yes",   "-lx",        "--loud=",    "--unknown",
                                 "-x",           "---mode=on", "--share=0x", "--mode" };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char *words[] = { bad[i] };
        if (parse(&args, 1, words) != REEL_E_ARGUMENT) fail_msg("%s was accepted", bad[i]);
    }
    assert_int_equal(PARSE(&args, "a", "b", "c"), REEL_E_ARGUMENT);
}

static void help_wins_over_what_is_missing(void **state) {
    (void)state;
    struct cli_args args;
    assert_int_equal(PARSE(&args, "a", "-h", "b", "c", "--unknown"), REEL_OK);
    assert_true(args.wants_help);
    cli_args_release(&args);
}

static void the_nearest_word_is_near(void **state) {
    (void)state;
    const char *const words[] = { "seed", "temp", "top-k", "top-p", NULL };
    assert_string_equal(cli_nearest("sed", words), "seed");
    assert_string_equal(cli_nearest("tepm", words), "temp");
    assert_null(cli_nearest("x", words));
    assert_null(cli_nearest("banana", words));
    assert_null(cli_nearest("", words));
    assert_string_equal(cli_nearest("SEED", words), "seed");
    assert_string_equal(cli_nearest("temperature", words), "temp");
    assert_string_equal(cli_nearest("top", words), "top-k");
    const char *const longer[] = { "demo", "demo-speech", NULL };
    assert_string_equal(cli_nearest("demo-speach", longer), "demo-speech");
    const char *const swapped[] = { "run", NULL };
    assert_string_equal(cli_nearest("rnu", swapped), "run");
    assert_null(cli_nearest("ur", swapped));
}

/* ---- thinking -------------------------------------------------------------------------------- */

/* Feeds text in pieces of n bytes; returns what was written, the caller frees. */
static char *viewed(const char *text, size_t n, bool styled, bool inside) {
    char *out = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&out, &size);
    struct think_view view = { .out = f, .styled = styled };
    think_view_start(&view, inside);
    for (size_t i = 0; i < strlen(text); i += n) {
        size_t left = strlen(text) - i;
        think_view_put(&view, text + i, left < n ? left : n);
    }
    think_view_finish(&view);
    fclose(f);
    return out;
}

#define DIM   "\033[2m"
#define PLAIN "\033[0m"

static void thoughts_are_dimmed_however_the_text_is_cut(void **state) {
    (void)state;
    static const char *const pairs[][2] = {
        { "<think>\nhm\n</think>\n\nYes.", DIM "\nhm\n" PLAIN "\n\nYes." },
        { "\n <think>a</think>b", "\n " DIM "a" PLAIN "b" },
        { "no <think>tags</think> later", "no <think>tags</think> later" },
        { "<think>never closed", DIM "never closed" PLAIN },
        { "<think>a < b </thin </think>c", DIM "a < b </thin " PLAIN "c" },
        { "<<think>x", "<<think>x" },
        { "<thin", "<thin" },
        { "\xc2\xa0\xc3\x9f\tn\n", "\xc2\xa0\xc3\x9f\tn\n" },
        { "</think>x", "</think>x" },
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        for (size_t n = 1; n < 12; n++) {
            char *out = viewed(pairs[i][0], n, true, false);
            assert_string_equal(out, pairs[i][1]);
            free(out);
            out = viewed(pairs[i][0], n, false, false);
            assert_string_equal(out, pairs[i][0]);
            free(out);
        }
    }
}

static void thoughts_that_the_prompt_opened_are_dimmed_from_the_start(void **state) {
    (void)state;
    static const char text[] = "hm\n</think>\n\nYes <think>.";
    for (size_t n = 1; n < 12; n++) {
        char *out = viewed(text, n, true, true);
        assert_string_equal(out, DIM "hm\n" PLAIN "\n\nYes <think>.");
        free(out);
        out = viewed(text, n, false, true);
        assert_string_equal(out, "<think>\nhm\n</think>\n\nYes <think>.");
        free(out);
    }
}

static void a_model_cannot_steer_the_terminal(void **state) {
    (void)state;
    static const char hostile[] = "a\033]0;title\007b\x7f\xc2\x9b\r\n\tc";
    char *out = viewed(hostile, sizeof hostile, true, false);
    assert_string_equal(out, "a?]0;title?b???\n\tc");
    free(out);
    out = viewed(hostile, sizeof hostile, false, false); /* not a terminal: untouched */
    assert_string_equal(out, hostile);
    free(out);
}

/* ---- conversations --------------------------------------------------------------------------- */

static void thinking_is_kept_apart_from_the_answer(void **state) {
    (void)state;
    struct conversation c = { 0 };
    const struct reel_answer thought = { sizeof thought, "why", "Because.", NULL };
    const struct reel_answer plain = { sizeof plain, NULL, "Yes", NULL };
    assert_int_equal(conversation_add_answer(&c, &thought, NULL), REEL_OK);
    assert_int_equal(conversation_add_answer(&c, &plain, NULL), REEL_OK);
    assert_string_equal(c.messages[0].content, "Because.");
    assert_string_equal(c.messages[0].reasoning, "why");
    assert_string_equal(c.messages[1].content, "Yes");
    assert_null(c.messages[1].reasoning);
    conversation_release(&c);
}

static void a_system_message_stays_first_and_survives_a_reset(void **state) {
    (void)state;
    struct conversation c = { 0 };
    for (int i = 0; i < 40; i++)
        assert_int_equal(conversation_add(&c, i % 2 ? "assistant" : "user", "x", NULL), REEL_OK);
    assert_int_equal(conversation_set_system(&c, "one", NULL), REEL_OK);
    assert_int_equal(conversation_set_system(&c, "two", NULL), REEL_OK);
    assert_int_equal(c.n_messages, 41);
    assert_string_equal(c.messages[0].content, "two");
    assert_string_equal(c.messages[1].role, "user");
    conversation_reset(&c);
    assert_int_equal(c.n_messages, 1);
    assert_int_equal(conversation_set_system(&c, "", NULL), REEL_OK);
    assert_int_equal(c.n_messages, 0);
    conversation_drop(&c);
    conversation_release(&c);
}

/* ---- the pace of a stream -------------------------------------------------------------------- */

static void steps_that_take_longer_than_what_they_hear_fall_behind(void **state) {
    (void)state;
    struct pace p = { 0 };
    assert_true(pace_median(&p) == 0);
    for (int i = 0; i < 300; i++) { /* in time, and what was not used is no credit */
        pace_hear(&p, 1500);
        pace_hear(&p, 500);
        assert_int_equal(pace_step(&p, 1900, NULL), REEL_OK);
        assert_true(p.late_ms == 0);
    }
    for (int i = 1; i <= 310; i++) {
        pace_hear(&p, 2000);
        assert_int_equal(pace_step(&p, 2500, NULL), REEL_OK);
        assert_true(p.late_ms == 500.0 * i);
        assert_int_equal(pace_is_late(&p), i >= 10);
    }
    assert_true(pace_median(&p) == 2500 && p.n == 610);
    pace_start(&p);
    assert_true(p.late_ms == 0 && pace_median(&p) == 0);
    pace_release(&p);
}

/* ---- answers --------------------------------------------------------------------------------- */

static void json_tells_of_a_draft_model_that_failed_alone(void **state) {
    (void)state;
    struct answer a = { 0 };
    json_t *object = json_object();
    assert_true(answer_problem_to_json(object, &a));
    assert_int_equal(json_object_size(object), 0);
    snprintf(a.draft_problem, sizeof a.draft_problem, "no memory for \"it\"");
    assert_true(answer_problem_to_json(object, &a));
    assert_string_equal(json_string_value(json_object_get(object, "draft_problem")),
                        "no memory for \"it\"");
    json_decref(object);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_may_stand_anywhere_and_in_all_forms),
        cmocka_unit_test(what_was_not_given_reads_as_the_fallback),
        cmocka_unit_test(values_outside_the_table_are_refused),
        cmocka_unit_test(help_wins_over_what_is_missing),
        cmocka_unit_test(the_nearest_word_is_near),
        cmocka_unit_test(thoughts_are_dimmed_however_the_text_is_cut),
        cmocka_unit_test(thoughts_that_the_prompt_opened_are_dimmed_from_the_start),
        cmocka_unit_test(a_model_cannot_steer_the_terminal),
        cmocka_unit_test(thinking_is_kept_apart_from_the_answer),
        cmocka_unit_test(a_system_message_stays_first_and_survives_a_reset),
        cmocka_unit_test(json_tells_of_a_draft_model_that_failed_alone),
        cmocka_unit_test(steps_that_take_longer_than_what_they_hear_fall_behind),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
