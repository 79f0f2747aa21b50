/* reel chat as a person at a terminal meets it: the program itself, its screen read by an emulator.
 */
#define _XOPEN_SOURCE 700 /* realpath, mkdtemp */

#include "base/json.h"
#include "reel.h"
#include "support/screen.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <cmocka.h>

static char home[400], program[400];

static int enter(void **state) {
    (void)state;
    const char *build = getenv("REEL_BUILD");
    /* A short name, as screens of 80 columns show paths below it. */
    snprintf(home, sizeof home, "/tmp/reel-XXXXXX");
    if (!mkdtemp(home)) return -1;
    char *absolute = realpath(build ? build : "build/release", NULL);
    snprintf(program, sizeof program, "%.380s/reel", absolute ? absolute : "");
    free(absolute);
    setenv("XDG_STATE_HOME", "relative: counts as unset", 1);
    unsetenv("XDG_CACHE_HOME");
    unsetenv("NO_COLOR");
    setenv("TERM", "xterm", 1);
    setenv("LC_ALL", "C.UTF-8", 1);
    setenv("HOME", home, 1);
    setenv("PS1", "shell> ", 1);
    return 0;
}

static int leave(void **state) {
    (void)state;
    char command[500];
    snprintf(command, sizeof command, "rm -rf '%s'", home);
    return system(command);
}

/* Starts a chat with the demo model, whose answers are those of a text of its time. */
static void chat(struct screen *s, int columns, const char *tokens, const char *context) {
    screen_open(s, 24, columns,
                (char *[]){ program, "chat", "demo", "--device", "cpu", "-t", "1",
                            "--chat-template", "chatml", "--temp", "0", "-n",
                            (char *)(uintptr_t)tokens, "-c", (char *)(uintptr_t)context, NULL });
    screen_see(s, "demo (bf16"); /* what stands behind it may go on in the next line */
    screen_see_line(s, ">", 2);
}

static void quit(struct screen *s) {
    screen_type(s, "\x03\x04");
    assert_int_equal(screen_close(s), 0);
}

/* Where an answer to a command is seen the prompt may not be there yet, and the terminal not raw: a
 * Ctrl-D would then be a byte 0. */
static void quit_at_prompt(struct screen *s) {
    screen_see_line(s, ">", 2);
    quit(s);
}

/* ---- answers --------------------------------------------------------------------------------- */

/* What the model answers, without a terminal. */
static char *plain_answer(const char *question, const char *tokens) {
    char command[1000];
    static char text[20000];
    snprintf(command, sizeof command,
             "echo '%s' | '%s' chat demo --device cpu -t 1 --chat-template chatml --temp 0 -n %s "
             "2>/dev/null",
             question, program, tokens);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    const size_t n = fread(text, 1, sizeof text - 1, f);
    text[n] = '\0';
    assert_int_equal(pclose(f), 0);
    return text;
}

/* The next word, where it ends. */
static const char *next_word(const char *text, size_t *n) {
    text += strspn(text, " \n");
    *n = strcspn(text, " \n");
    return text;
}

/* The same words are shown, up to the last one wanted. */
static void expect_words(const char *shown, const char *wanted, int columns) {
    const char *all = shown;
    for (size_t n, m;;) {
        wanted = next_word(wanted, &n);
        shown = next_word(shown, &m);
        if (n == 0) break;
        if (n != m || memcmp(wanted, shown, n) != 0)
            fail_msg("width %d: \"%.*s\" is shown as \"%.*s\":\n%s", columns, (int)n, wanted,
                     (int)m, shown, all);
        wanted += n;
        shown += m;
    }
}

static void words_are_whole_at_the_right_edge(void **state) {
    static const int widths[] = { 24, 40, 80 };
    const char *plain = plain_answer("hello", "120");
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct screen s;
        chat(&s, widths[i], "120", "0");
        screen_type(&s, "hello\r");
        screen_see(&s, "[token limit]");
        char *text = screen_text(&s), *shown = strstr(text, "> hello\n");
        assert_non_null(shown);
        expect_words(shown + strlen("> hello\n"), plain, widths[i]);
        free(text);
        quit(&s);
    }
}

/* reel run lays its text out the same way. */
static void run_keeps_words_whole_too(void **state) {
    static char plain[20000];
    char command[900];
    struct screen s;
    (void)state;
    snprintf(command, sizeof command,
             "'%s' run demo --device cpu -t 1 --temp 0 -n 100 -q -p 'It was a fine'", program);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    plain[fread(plain, 1, sizeof plain - 1, f)] = '\0';
    assert_int_equal(pclose(f), 0);
    screen_open(&s, 40, 30,
                (char *[]){ program, "run", "demo", "--device", "cpu", "-t", "1", "--temp", "0",
                            "-n", "100", "-p", "It was a fine", NULL });
    screen_see(&s, "prompt "); /* the figures, behind it */
    char *text = screen_text(&s);
    expect_words(text, plain, 30);
    free(text);
    assert_int_equal(screen_close(&s), 0);
}

static void notes_have_a_line_of_their_own(void **state) {
    struct screen s;
    (void)state;
    chat(&s, 80, "0", "0");
    screen_type(&s, "h\xc3\xa9llo\r");
    screen_see(&s, "the");
    screen_type(&s, "\x03");
    screen_see(&s, "[interrupted]");
    screen_see_line(&s, ">", 2);
    char *text = screen_text(&s);
    assert_non_null(strstr(text, "\n[interrupted]\n>"));
    assert_null(strstr(text, "\n\n[interrupted]"));
    assert_null(strstr(text, "^C"));
    free(text);
    quit(&s);
}

static void a_context_that_is_nearly_full_says_so(void **state) {
    struct screen s;
    (void)state;
    chat(&s, 100, "20", "75");
    screen_type(&s, "hello\r");
    screen_see_line(&s, ">", 2);
    screen_type(&s, "more\r");
    screen_see(&s, "the context is nearly full: ");
    screen_see_line(&s, ">", 2);
    screen_type(&s, "more\r");
    screen_see(&s, "the context is full: the conversation has");
    screen_see_line(&s, ">", 2);
    screen_type(&s, "/reset\r");
    screen_see(&s, "the conversation is empty");
    screen_type(&s, "/sttas\r");
    screen_see(&s, "did you mean /stats");
    quit_at_prompt(&s);
}

/* ---- typing ---------------------------------------------------------------------------------- */

static void what_is_typed_during_an_answer_waits(void **state) {
    struct screen s;
    (void)state;
    chat(&s, 80, "300", "0");
    screen_type(&s, "hello\r");
    screen_see(&s, "the");
    screen_type(&s, "xyzzy");
    screen_see(&s, "[token limit]");
    screen_see_line(&s, "> xyzzy", 7);
    char *text = screen_text(&s);
    assert_ptr_equal(strstr(text, "xyzzy"), strstr(text, "> xyzzy") + 2); /* not in the answer */
    free(text);
    screen_type(&s, "\x15/stats\r");
    screen_see(&s, "positions used");
    quit_at_prompt(&s);
}

/* The line that is edited without its blanks, wherever its rows end: all of it, or what stands
 * before the cursor. */
static void read_line(struct screen *s, bool all, char *text) {
    int row, column, first;
    size_t n = 0;
    screen_settle(s, 300);
    screen_cursor(s, &row, &column);
    for (first = row; first > 0 && screen_row(s, first)[0] != '>'; first--) {
    }
    for (int i = first; i < (all ? s->rows : row + 1); i++) {
        struct screen part = *s;
        if (!all && i == row) part.columns = column;
        for (const char *c = screen_row(&part, i); *c; c++)
            if (*c != ' ') text[n++] = *c;
    }
    text[n] = '\0';
}

/* Emoji of several parts, wide and combined characters over the edges of rows, changed within. */
static void a_long_line_of_any_characters_is_drawn_right(void **state) {
    static const char *const pieces[] = {
        "\xe4\xb8\x96",
        "\xe7\x95\x8c",
        "e\xcc\x81",
        "\xc3\xa9",
        "\xf0\x9f\x98\x80",
        "\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9",
        "abc",
        "\xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd",
        "0123456789",
    };
    const int n = 3 * (int)(sizeof pieces / sizeof *pieces);
    char wanted[1000] = ">", seen[4000];
    struct screen s;
    (void)state;
    chat(&s, 30, "5", "0");
    screen_settle(&s, 100);
    for (int i = 0; i < n; i++) {
        screen_type(&s, pieces[i % (n / 3)]);
        strcat(wanted, pieces[i % (n / 3)]);
        if (i == 10) strcat(wanted, "!");
    }
    for (int i = n - 1; i > 10; i--) /* each digit and letter is a step of its own */
        for (int steps = i % 9 == 8 ? 10 : i % 9 == 6 ? 3 : 1; steps > 0; steps--)
            screen_type(&s, "\033[D");
    screen_type(&s, "!");
    read_line(&s, true, seen);
    assert_string_equal(seen, wanted);
    *(strchr(wanted, '!') + 1) = '\0';
    read_line(&s, false, seen);
    assert_string_equal(seen, wanted);
    quit(&s);
}

static void four_pasted_lines_are_asked_as_one(void **state) {
    static const char text[] = "one\ntwo\nthree\nfour\n";
    char path[500];
    struct screen s;
    (void)state;
    chat(&s, 80, "5", "0");
    screen_paste(&s, text, strlen(text));
    screen_see(&s, ". four");
    screen_type(&s, "\r");
    screen_see(&s, "[token limit]");
    snprintf(path, sizeof path, "/save %s/saved.json\r", home);
    screen_see_line(&s, ">", 2);
    screen_type(&s, path);
    screen_see(&s, "2 messages");
    quit_at_prompt(&s);
    snprintf(path, sizeof path, "%s/saved.json", home);
    json_t *saved = json_load_file(path, 0, NULL);
    assert_int_equal(json_array_size(saved), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(saved, 0), "content")),
                        "one\ntwo\nthree\nfour");
    json_decref(saved);
}

/* A shell that controls jobs runs the chat: Ctrl-Z, something else, fg. */
static void ctrl_z_stops_it_and_fg_goes_on(void **state) {
    struct screen s;
    char line[900];
    (void)state;
    screen_open(&s, 40, 80, (char *[]){ "bash", "--norc", "--noediting", "-i", NULL });
    screen_see(&s, "shell>");
    snprintf(line, sizeof line,
             "clear; %s chat demo --device cpu -t 1 --chat-template chatml --temp 0 -n 400\n",
             program);
    screen_type(&s, line);
    screen_see_line(&s, ">", 2);
    screen_type(&s, "half a li");
    screen_see_line(&s, "> half a li", 11);
    screen_type(&s, "\x1a");
    screen_see(&s, "Stopped");
    screen_see_line(&s, "shell>", 7);
    screen_type(&s, "echo between\n"); /* echoed: the terminal is the shell's */
    screen_see_line(&s, "shell>", 7);
    screen_see(&s, "shell> echo between");
    screen_type(&s, "fg\n");
    screen_see_line(&s, "> half a li", 11);
    screen_type(&s, "\x15hello\r");
    screen_see(&s, "the");
    screen_type(&s, "\x1a"); /* during the answer */
    screen_see_line(&s, "shell>", 7);
    screen_type(&s, "fg\n");
    screen_see(&s, "[token limit]");
    screen_see_line(&s, ">", 2);
    screen_type(&s, "no echo\x15/stats\r");
    screen_see(&s, "positions used");
    screen_type(&s, "\x04");
    screen_see_line(&s, "shell>", 7);
    screen_type(&s, "exit\n");
    assert_int_equal(screen_close(&s), 0);
}

static bool echoes(const struct screen *s) {
    struct termios mode;
    assert_int_equal(tcgetattr(s->fd, &mode), 0); /* of the other side */
    return (mode.c_lflag & ECHO) && (mode.c_lflag & ICANON);
}

/* The terminal is held before the model is opened, but for questions about that. */
static void a_question_before_the_chat_is_answered_as_usual(void **state) {
    struct screen s;
    (void)state;
    setenv("HF_ENDPOINT", "http://127.0.0.1:1", 1);
    screen_open(&s, 24, 100, (char *[]){ program, "chat", "nobody/nothing", NULL });
    screen_see(&s, "[Y/n]");
    screen_type(&s, "maybe\x7f\x7f\n");
    screen_see(&s, "[Y/n] may");
    screen_type(&s, "n\n");
    screen_see(&s, "nobody/nothing");
    assert_int_equal(screen_close(&s), REEL_E_NOT_FOUND);
    unsetenv("HF_ENDPOINT");
}

static void the_terminal_is_given_back_when_a_model_fails(void **state) {
    struct screen s;
    (void)state;
    chat(&s, 80, "5", "0");
    assert_false(echoes(&s));
    quit(&s);
    screen_open(&s, 24, 100, (char *[]){ program, "chat", "/no/such/model", NULL });
    screen_see(&s, "/no/such/model");
    screen_settle(&s, 300);
    assert_true(echoes(&s)); /* given back after a failure, too */
    assert_int_equal(screen_close(&s), REEL_E_NOT_FOUND);
}

static void two_interrupts_at_an_empty_line_leave(void **state) {
    struct screen s;
    (void)state;
    chat(&s, 80, "5", "0");
    screen_type(&s, "half a line\x03");
    screen_see_line(&s, ">", 2);
    screen_type(&s, "\x03");
    screen_see(&s, "Ctrl-C again leaves");
    screen_see_line(&s, ">", 2);
    screen_type(&s, "\x03");
    assert_int_equal(screen_close(&s), 0);
}

/* ---- commands -------------------------------------------------------------------------------- */

static void settings_are_those_of_the_command_line(void **state) {
    struct screen s;
    (void)state;
    chat(&s, 80, "5", "0");
    screen_type(&s, "/set temp 0.7\r/set top-k=20\r/set tokens 9\r/set\r");
    screen_see(&s, "  temp              0.7");
    screen_see(&s, "  top-k             20");
    screen_see(&s, "  tokens            9");
    screen_see(&s, "  frequency-penalty 0");
    screen_type(&s, "/set temp 101\r");
    screen_see(&s, "/set temp: \"101\" is not a number from 0 to 100");
    screen_type(&s, "/set tmep 1\r");
    screen_see(&s, "there is no setting tmep; did you mean temp");
    screen_type(&s, "/set device cpu\r");
    screen_see(&s, "there is no setting device");
    screen_type(&s, "/set top-p\r");
    screen_see(&s, "  top-p             ");
    quit_at_prompt(&s);
}

static void a_conversation_is_saved_and_goes_on(void **state) {
    char path[500], line[1200];
    struct screen s;
    (void)state;
    snprintf(path, sizeof path, "%s/talk.json", home);
    chat(&s, 120, "5", "0");
    screen_type(&s, "/system Be brief.\rhello\r");
    screen_see(&s, "[token limit]");
    snprintf(line, sizeof line, "/save %s\r/reset\r/load %s\r/stats\r", path, path);
    screen_type(&s, line);
    screen_see(&s, "conversation is empty");
    screen_see(&s, "positions used");
    char *text = screen_text(&s), *first = strstr(text, "3 messages");
    assert_true(first && strstr(first + 1, "3 messages"));
    free(text);
    screen_type(&s, "/regen\r");
    screen_see(&s, "temperature 0: the answer stays the same");
    screen_see_line(&s, ">", 2);
    snprintf(line, sizeof line, "/save %s\r", path);
    screen_type(&s, line);
    screen_see_line(&s, ">", 2);
    quit(&s);
    json_t *saved = json_load_file(path, 0, NULL);
    assert_int_equal(json_array_size(saved), 3);
    json_decref(saved);
}

static void a_file_that_is_no_conversation_is_refused(void **state) {
    static const char *const files[][2] = {
        { "{}", "not a list of messages" },
        { "[1]", "message 1: not an object" },
        { "[{\"role\":\"user\"}]", "message 1: \"content\" is missing" },
        { "[{\"role\":\"tool\",\"content\":\"x\"}]", "message 1: the role is \"tool\"" },
        { "[{\"content\":\"x\"}]", "message 1: the role is \"\"" },
        { "[{\"role\":\"user\",\"content\":5}]", "message 1" },
        { "[{\"role\":\"user\",\"content\":\"x\",\"more\":1}]", "\"more\" is nothing" },
        { "[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"system\",\"content\":\"x\"}]",
          "a system message comes first" },
        { "[", "odd" },
    };
    char path[500], line[600];
    struct screen s;
    (void)state;
    chat(&s, 200, "5", "0");
    screen_type(&s, "/regen\r");
    screen_see(&s, "no question to answer again");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        snprintf(path, sizeof path, "%s/odd%zu", home, i); /* another one may still be read */
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        fputs(files[i][0], f);
        assert_int_equal(fclose(f), 0);
        snprintf(line, sizeof line, "\x0c/load %s\r", path);
        screen_type(&s, line);
        screen_see(&s, files[i][1]);
    }
    screen_type(&s, "/load /no/such/file\r");
    screen_see(&s, "/no/such/file: cannot open");
    quit_at_prompt(&s);
}

static void the_history_is_private_and_can_be_off(void **state) {
    char path[500];
    struct stat st;
    struct screen s;
    (void)state;
    snprintf(path, sizeof path, "%s/.local/state/reel/history", home);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_true(st.st_size > 0);
    assert_int_equal(unlink(path), 0);
    screen_open(&s, 24, 80,
                (char *[]){ program, "chat", "demo", "--device", "cpu", "-t", "1",
                            "--chat-template", "chatml", "--no-history", NULL });
    screen_see_line(&s, ">", 2);
    screen_type(&s, "/stats\r");
    screen_see(&s, "positions used");
    quit_at_prompt(&s);
    assert_int_not_equal(stat(path, &st), 0);
}

/* Two chats at once, and both are killed: what was entered is kept. */
static void lines_are_saved_when_they_are_entered(void **state) {
    struct screen a, b;
    (void)state;
    chat(&a, 80, "5", "0");
    chat(&b, 80, "5", "0");
    screen_type(&a, "/set temp 0.25\r");
    screen_see(&a, "0.25");
    screen_see_line(&a, ">", 2); /* the next line: this one is entered */
    screen_type(&b, "/set temp 0.5\r");
    screen_see(&b, "0.5");
    screen_see_line(&b, ">", 2);
    screen_kill(&a);
    screen_kill(&b);
    chat(&a, 80, "5", "0");
    screen_settle(&a, 100);
    screen_type(&a, "\033[A");
    screen_see_line(&a, "> /set temp 0.5", 15);
    screen_type(&a, "\033[A");
    screen_see_line(&a, "> /set temp 0.25", 16);
    quit(&a);
}

static void a_dumb_terminal_reads_plain_lines(void **state) {
    struct screen s;
    (void)state;
    setenv("TERM", "dumb", 1);
    screen_open(&s, 24, 80,
                (char *[]){ program, "chat", "demo", "--device", "cpu", "-t", "1",
                            "--chat-template", "chatml", "-n", "5", NULL });
    setenv("TERM", "xterm", 1);
    screen_see_line(&s, ">", 2);
    screen_type(&s, "/stats\n");
    screen_see(&s, "positions used");
    screen_see_line(&s, ">", 2);
    screen_type(&s, "\x04");
    assert_int_equal(screen_close(&s), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_whole_at_the_right_edge),
        cmocka_unit_test(run_keeps_words_whole_too),
        cmocka_unit_test(notes_have_a_line_of_their_own),
        cmocka_unit_test(a_context_that_is_nearly_full_says_so),
        cmocka_unit_test(what_is_typed_during_an_answer_waits),
        cmocka_unit_test(a_long_line_of_any_characters_is_drawn_right),
        cmocka_unit_test(four_pasted_lines_are_asked_as_one),
        cmocka_unit_test(ctrl_z_stops_it_and_fg_goes_on),
        cmocka_unit_test(a_question_before_the_chat_is_answered_as_usual),
        cmocka_unit_test(the_terminal_is_given_back_when_a_model_fails),
        cmocka_unit_test(two_interrupts_at_an_empty_line_leave),
        cmocka_unit_test(settings_are_those_of_the_command_line),
        cmocka_unit_test(a_conversation_is_saved_and_goes_on),
        cmocka_unit_test(a_file_that_is_no_conversation_is_refused),
        cmocka_unit_test(the_history_is_private_and_can_be_off),
        cmocka_unit_test(lines_are_saved_when_they_are_entered),
        cmocka_unit_test(a_dumb_terminal_reads_plain_lines),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests_name("reel chat at a terminal", tests, enter, leave);
}
