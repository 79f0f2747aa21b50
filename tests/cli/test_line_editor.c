/* The line editor at a terminal that an emulator shows: what stands on the screen is what was
 * typed, with the cursor where it belongs. */
#include "cli/line_editor.h"
#include "cli/raw_mode.h"
#include "cli/terminal.h"
#include "support/sanitized.h"
#include "support/screen.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/reel-editor-XXXXXX";
static char history_path[64]; /* empty: none */

/* ---- the program under test ------------------------------------------------------------------ */

static void pause_ms(long ms) {
    const struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
    nanosleep(&t, NULL);
}

static void show_line(const struct buffer *text) {
    uint32_t sum = 0;
    for (size_t i = 0; i < text->size; i++)
        sum = sum * 31 + (unsigned char)text->bytes[i];
    printf("<");
    for (size_t i = 0; i < text->size && text->size < 200; i++) {
        const unsigned char c = (unsigned char)text->bytes[i];
        if (c == '\n')
            printf("|");
        else if (c < 0x20 || c == 0x7f)
            printf("^%02x", (unsigned)c);
        else
            putchar(c);
    }
    printf("> %zu bytes, sum %u\n", text->size, (unsigned)sum);
}

/* An answer that takes a while. */
static void answer(struct line_editor *ed) {
    printf("begun\n");
    for (int i = 0; i < 200 && !interrupt_pending(); i++) {
        pause_ms(10);
        line_editor_listen(ed);
        if (i % 20 == 0) printf("tick\n");
        fflush(stdout);
    }
    printf(interrupt_take() ? "stopped\n" : "ended\n");
}

static int echo_lines(void) {
    struct line_editor ed;
    if (!SANITIZED) signal(SIGSEGV, SIG_DFL); /* cmocka has a handler, too */
    interrupt_install();
    if (!line_editor_can()) return 3;
    if (line_editor_open(&ed, history_path[0] ? history_path : NULL, NULL) != REEL_OK) return 4;
    for (;;) {
        switch (line_editor_read(&ed, NULL)) {
        case LINE_READ:
            if (strcmp(ed.edit.text.bytes, "crash") == 0) raise(SIGSEGV);
            show_line(&ed.edit.text);
            if (strcmp(ed.edit.text.bytes, "answer") == 0) answer(&ed);
            break;
        case LINE_INTERRUPTED:
            printf("interrupted\n");
            break;
        case LINE_CLOSED:
            line_editor_close(&ed);
            printf("closed\n");
            return 0;
        case LINE_FAILED:
            line_editor_close(&ed);
            return 5;
        }
    }
}

static void start(struct screen *s, int rows, int columns) {
    screen_open_call(s, rows, columns, echo_lines);
    screen_see_line(s, ">", 2);
}

static void leave(struct screen *s) {
    screen_type(s, "\x03\x04");
    assert_int_equal(screen_close(s), 0);
}

/* ---- keys ------------------------------------------------------------------------------------ */

#define LEFT  "\033[D"
#define RIGHT "\033[C"
#define UP    "\033[A"
#define DOWN  "\033[B"

static void keys_do_what_emacs_does(void **state) {
    static const char *const cases[][2] = {
        { "abc", "<abc>" },
        { "bc\x01"
          "a",
          "<abc>" },
        { "bc\033[Ha\033[Fd", "<abcd>" },
        { "bc\033OHa\033OFd", "<abcd>" },
        { "bc\033[1~a\033[4~d", "<abcd>" },
        { "bc\033[7~a\033[8~d", "<abcd>" },
        { "ac" LEFT "b", "<abc>" },
        { "ac\033OD"
          "b",
          "<abc>" },
        { "ac\x02"
          "b\x05"
          "d",
          "<abcd>" },
        { "ac\x01\x06"
          "b",
          "<abc>" },
        { "abX\x7f"
          "c",
          "<abc>" },
        { "abX\x08"
          "c",
          "<abc>" },
        { "aXbc\x01" RIGHT "\033[3~", "<abc>" },
        { "aXbc\x01" RIGHT "\x04", "<abc>" },
        { "abc def\x01\x0b\x19\x19", "<abc defabc def>" },
        { "abc def\x15\x19", "<abc def>" },
        { "abc d-ef\x17"
          "x",
          "<abc x>" },
        { "abc d-ef\033\x7f"
          "x",
          "<abc d-x>" },
        { "abc def\x01\033d"
          "x",
          "<x def>" },
        { "one two\x17\x17\x19", "<one two>" }, /* two cuts in a row are one */
        { "one two\033b\033bX\033fY", "<XoneY two>" },
        { "one two\033[1;5DX\033[1;5CY", "<one XtwoY>" },
        { "acb\x14", "<abc>" },
        { "bac\x01\x06\x14", "<abc>" },
        { "a\nb", "<a|b>" },
        { "a\033\rb", "<a|b>" },
        { "a\\\rb", "<a|b>" },
        { "ab\ncd" UP "X" DOWN "Y", "<abX|cdY>" },
        { "ab\ncd\x01\x7f", "<abcd>" },
        { "a\033[15~\033[5~\033[[A\033[I\033Ob\033xc", "<ac>" }, /* no keys of reel's: nothing */
        { "a\tb", "<a^09b>" },
        { "\xc3\xa4\xe4\xb8\x96\x7f", "<\xc3\xa4>" },
        { "x\xff\xc3yz", "<x\xef\xbf\xbd\xef\xbf\xbdyz>" },
        { "e\xcc\x81x" LEFT "\x7f", "<x>" }, /* a letter and its accent are one */
        { "\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7"
          "x" LEFT "\x7f",
          "<x>" },
        { "\xf0\x9f\x87\xa9\xf0\x9f\x87\xaa\xf0\x9f\x87\xab\xf0\x9f\x87\xb7\x7f"
          "x",
          "<\xf0\x9f\x87\xa9\xf0\x9f\x87\xaax>" },
        { "\xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd"
          "x" LEFT LEFT "\x04",
          "<x>" },
    };
    struct screen s;
    (void)state;
    start(&s, 24, 80);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        screen_type(&s, cases[i][0]);
        screen_type(&s, "\r");
        screen_see(&s, cases[i][1]);
        screen_see_line(&s, ">", 2);
        screen_type(&s, "\x0c"); /* Ctrl-L: the next case has an empty screen */
        screen_see_no(&s, "bytes");
    }
    leave(&s);
}

static void a_character_may_come_in_pieces(void **state) {
    static const char *const pieces[] = { "\xf0", "\x9f\x98", "\x80\xe4", "\xb8",
                                          "\x96", "\033[",    "D\xc3",    "\xa4" };
    struct screen s;
    (void)state;
    start(&s, 24, 80);
    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        screen_type(&s, pieces[i]);
        pause_ms(120); /* a slow line */
    }
    screen_type(&s, "\r");
    screen_see(&s, "<\xf0\x9f\x98\x80\xc3\xa4\xe4\xb8\x96>");
    leave(&s);
}

static void ctrl_c_gives_up_a_line_and_ctrl_d_ends(void **state) {
    struct screen s;
    (void)state;
    start(&s, 24, 80);
    screen_type(&s, "half a line\x03");
    screen_see(&s, "interrupted");
    screen_see_line(&s, ">", 2);
    screen_type(&s, "more\r");
    screen_see(&s, "<more>");
    screen_type(&s, "\x04");
    assert_int_equal(screen_close(&s), 0);
}

/* ---- what is drawn --------------------------------------------------------------------------- */

/* Clusters of every kind that terminals and editors get wrong. */
static const char *const clusters[] = {
    "a",
    "b",
    "c",
    "W",
    "\xc3\xa4",
    "\xe4\xb8\x96",
    "\xe7\x95\x8c",
    "\xed\x95\x9c",
    "\xef\xbc\x81",
    "e\xcc\x81",
    "o\xcc\x88\xcc\x84", /* combining marks */
    "\xf0\x9f\x98\x80",
    "\xe2\x9d\xa4\xef\xb8\x8f",         /* an emoji; a heart made one */
    "\xf0\x9f\x91\x8d\xf0\x9f\x8f\xbd", /* with a skin tone */
    "\xf0\x9f\x87\xa9\xf0\x9f\x87\xaa", /* a flag */
    "\xf0\x9f\x91\xa8\xe2\x80\x8d\xf0\x9f\x91\xa9\xe2\x80\x8d\xf0\x9f\x91\xa7", /* three people */
};
#define N_CLUSTERS (sizeof clusters / sizeof *clusters)
#define MOST       120

struct typed {
    int of[MOST]; /* clusters */
    int n, cursor;
};

static void text_of(const struct typed *t, int n, char *text) {
    text[0] = '\0';
    for (int i = 0; i < n; i++)
        strcat(text, clusters[t->of[i]]);
}

/* Rows of the text on the screen, joined, up to a row and column. */
static void screen_part(const struct screen *s, int first, int row, int column, char *text) {
    size_t n = 0;
    for (int i = first; i <= row; i++) {
        const char *line = screen_row(s, i);
        char kept[4000];
        snprintf(kept, sizeof kept, "%s", strlen(line) > 2 ? line + 2 : "");
        if (i == row && column >= 0) { /* what stands before the column */
            struct screen narrow = *s;
            narrow.columns = column;
            line = screen_row(&narrow, i);
            snprintf(kept, sizeof kept, "%s", strlen(line) > 2 ? line + 2 : "");
        }
        n += (size_t)sprintf(text + n, "%s", kept);
    }
    text[n] = '\0';
}

static int first_row(const struct screen *s) {
    int row, column;
    screen_cursor(s, &row, &column);
    while (row > 0 && screen_row(s, row)[0] != '>')
        row--;
    return row;
}

static void check_screen(struct screen *s, const struct typed *t) {
    static char wanted[MOST * 40], seen[MOST * 40 + 8000];
    int row, column;
    for (int tries = 0; tries < 2000; tries++) { /* seconds, on a busy machine */
        screen_settle(s, 4);
        screen_cursor(s, &row, &column);
        text_of(t, t->n, wanted);
        screen_part(s, first_row(s), s->rows - 1, -1, seen);
        if (strcmp(seen, wanted) != 0) continue;
        text_of(t, t->cursor, wanted);
        screen_part(s, first_row(s), row, column, seen);
        if (strcmp(seen, wanted) == 0) return;
    }
    char *all = screen_text(s);
    print_error("cursor %d of %d, at row %d column %d of %d; wanted\n%s\nseen\n%s\nscreen\n%s",
                t->cursor, t->n, row, column, s->columns, wanted, seen, all);
    free(all);
    fail();
}

static uint32_t draw_number(uint32_t *seed) {
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 16;
}

/* One random key, in the model and at the terminal. */
static void press(struct screen *s, struct typed *t, uint32_t *seed) {
    const uint32_t key = draw_number(seed) % 20;
    if (key < 12 && t->n < MOST) {
        memmove(t->of + t->cursor + 1, t->of + t->cursor,
                (size_t)(t->n - t->cursor) * sizeof *t->of);
        t->of[t->cursor] = (int)(draw_number(seed) % N_CLUSTERS);
        screen_type(s, clusters[t->of[t->cursor]]);
        t->cursor++;
        t->n++;
    } else if (key < 15 && t->cursor > 0) {
        screen_type(s, LEFT);
        t->cursor--;
    } else if (key < 16 && t->cursor < t->n) {
        screen_type(s, RIGHT);
        t->cursor++;
    } else if (key < 17 && t->cursor > 0) {
        screen_type(s, "\x7f");
        t->cursor--;
        t->n--;
        memmove(t->of + t->cursor, t->of + t->cursor + 1,
                (size_t)(t->n - t->cursor) * sizeof *t->of);
    } else if (key == 17) {
        screen_type(s, "\x01");
        t->cursor = 0;
    } else {
        screen_type(s, "\x05");
        t->cursor = t->n;
    }
}

static void the_screen_shows_the_text_and_its_cursor(void **state) {
    static const int widths[] = { 20, 40, 80 };
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct typed t = { .n = 0 };
        struct screen s;
        uint32_t seed = (uint32_t)i + 1;
        start(&s, 24, widths[i]);
        for (int k = 0; k < 150; k++) {
            press(&s, &t, &seed);
            if (k % 3 == 0) check_screen(&s, &t);
        }
        check_screen(&s, &t);
        leave(&s);
    }
}

static void a_window_of_another_size_is_drawn_anew(void **state) {
    static const int widths[] = { 25, 60, 13, 80 };
    struct typed t = { .n = 0 };
    struct screen s;
    (void)state;
    start(&s, 24, 40);
    for (t.n = 0; t.n < 60; t.n++) {
        t.of[t.n] = (int)((size_t)t.n * 7 % 9);
        screen_type(&s, clusters[t.of[t.n]]);
    }
    t.cursor = t.n;
    check_screen(&s, &t);
    for (int i = 0; i < 4; i++) {
        screen_resize(&s, 24, widths[i]);
        screen_settle(&s, 100);
        screen_type(&s, LEFT);
        t.cursor--;
        check_screen(&s, &t);
    }
    leave(&s);
}

static void a_text_of_more_rows_than_the_window_shows_those_around_the_cursor(void **state) {
    struct screen s;
    char line[20];
    (void)state;
    start(&s, 5, 20);
    for (int i = 0; i < 12; i++) {
        snprintf(line, sizeof line, "row %d%s", i, i < 11 ? "\n" : "");
        screen_type(&s, line);
    }
    screen_see_line(&s, ". row 11", 8);
    screen_see(&s, "row 7");
    for (int i = 0; i < 11; i++)
        screen_type(&s, UP);
    screen_see_line(&s, "> row 0", 7);
    screen_see(&s, "row 4");
    screen_see_no(&s, "row 11");
    screen_type(&s, "!\r");
    screen_see(&s, "row 10|row 11> 74");
    leave(&s);
}

/* ---- paste ----------------------------------------------------------------------------------- */

static void four_pasted_lines_are_one_message(void **state) {
    static const char text[] = "one\ntwo\n\nfour";
    struct screen s;
    (void)state;
    start(&s, 24, 80);
    screen_paste(&s, text, strlen(text));
    screen_see_line(&s, ". four", 6);
    screen_see_no(&s, "bytes");
    screen_type(&s, "!\r");
    screen_see(&s, "<one|two||four!>");
    leave(&s);
}

static void what_is_pasted_is_no_key_and_no_command(void **state) {
    static const char text[] = "a\x03"
                               "b\x1a"
                               "c\x1b[2J\x04"
                               "d\x15\r\ne\x7f"
                               "f\xc2\x9b"
                               "31mg";
    struct screen s;
    (void)state;
    start(&s, 24, 80);
    screen_type(&s, "before ");
    screen_type(&s, "\033[200~");
    screen_type(&s, text);
    screen_type(&s, "\033[201~");
    screen_see(&s, "> before a?b?c?[2J?d?");
    screen_see(&s, ". e?f?31mg");
    screen_type(&s, "\r");
    screen_see(&s, "<before a^03b^1ac^1b[2J^04d^15|e^7f");
    leave(&s);
}

static void a_paste_without_its_end_can_be_left(void **state) {
    struct screen s;
    (void)state;
    start(&s, 24, 80);
    screen_type(&s, "\033[200~lost");
    screen_settle(&s, 100);
    screen_type(&s, "\x03");
    screen_see(&s, "interrupted");
    screen_type(&s, "here\r");
    screen_see(&s, "<here>");
    leave(&s);
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* A megabyte of lines, then keys within it: what is drawn is as much as the window shows. */
static void a_large_paste_is_one_message_without_delay(void **state) {
    enum { BYTES = 1000000 };
    struct screen s;
    char wanted[60], *text = malloc(BYTES);
    uint32_t sum = 0;
    (void)state;
    assert_non_null(text);
    for (size_t i = 0; i < BYTES; i++) {
        text[i] = (char)(i % 61 == 60 ? '\n' : 'a' + i % 23);
        sum = sum * 31 + (unsigned char)text[i];
    }
    text[BYTES - 1] = 'Z';
    sum = 0;
    for (size_t i = 0; i < BYTES; i++)
        sum = sum * 31 + (unsigned char)text[i];
    sum = sum * 31 + '!';
    start(&s, 24, 80);
    const double begin = now_s();
    screen_paste(&s, text, BYTES);
    screen_see(&s, "Z");
    for (int i = 0; i < 5; i++)
        screen_type(&s, LEFT);
    screen_type(&s, "\x05");
    screen_type(&s, "!");
    screen_see(&s, "Z!");
    const size_t drawn = s.n_read;
    screen_type(&s, "\r");
    snprintf(wanted, sizeof wanted, "%d bytes, sum %u", BYTES + 1, (unsigned)sum);
    screen_see(&s, wanted);
    /* a slow machine under a sanitizer takes seconds; drawing all for each key would take minutes
     */
    assert_true(now_s() - begin < 15);
    assert_true(drawn < 60 * 24 * 100 + 100000);
    leave(&s);
    free(text);
}

static void a_paste_that_is_too_large_is_cut_and_the_rest_is_no_key(void **state) {
    const size_t n = LINE_MAX_BYTES + 100000;
    struct screen s;
    char *text = malloc(n);
    (void)state;
    assert_non_null(text);
    memset(text, 'x', n);
    for (size_t i = 50; i < n; i += 51)
        text[i] = '\n';
    start(&s, 24, 80);
    screen_paste(&s, text, n);
    screen_type(&s, "\x03");
    screen_see(&s, "interrupted");
    assert_true(s.bells > 0);
    screen_type(&s, "here\r");
    screen_see(&s, "<here>");
    leave(&s);
    free(text);
}

/* ---- typed ahead ----------------------------------------------------------------------------- */

static void keys_during_an_answer_wait_for_the_next_line(void **state) {
    struct screen s;
    (void)state;
    start(&s, 24, 80);
    screen_type(&s, "answer\r");
    screen_see(&s, "tick");
    screen_type(&s, "first\rsecond\rthi");
    screen_settle(&s, 50);
    char *text = screen_text(&s);
    assert_null(strstr(text, "first")); /* not echoed */
    free(text);
    screen_see_line(&s, "> thi", 5);
    text = screen_text(&s);
    const char *first = strstr(text, "> first\n<first>"),
               *second = strstr(text, "> second\n<second>");
    assert_true(first && second && first < second && strstr(text, "ended") < first);
    free(text);
    screen_type(&s, "rd\x7f"
                    "d\r");
    screen_see(&s, "<third>");
    leave(&s);
}

static void a_paste_during_an_answer_is_one_message(void **state) {
    static char text[20000];
    struct screen s;
    (void)state;
    memset(text, 'y', sizeof text);
    for (size_t i = 60; i < sizeof text; i += 61)
        text[i] = '\n';
    start(&s, 24, 80);
    screen_type(&s, "answer\r");
    screen_see(&s, "tick");
    screen_paste(&s, text, sizeof text);
    screen_see_line(&s, ". yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy", 55);
    screen_type(&s, "\r");
    screen_see(&s, "20000 bytes");
    leave(&s);
}

/* What the terminal's own buffer cannot hold is taken out of it, so that Ctrl-C behind it arrives.
 */
static void ctrl_c_behind_a_paste_ends_an_answer(void **state) {
    static char text[20000];
    struct screen s;
    (void)state;
    memset(text, 'y', sizeof text);
    start(&s, 24, 80);
    screen_type(&s, "answer\r");
    screen_see(&s, "tick");
    screen_paste(&s, text, sizeof text);
    screen_type(&s, "\x03\r");
    screen_see(&s, "20000 bytes");
    char *all = screen_text(&s);
    assert_true(strstr(all, "stopped") && !strstr(all, "ended"));
    free(all);
    leave(&s);
}

static void ctrl_c_ends_an_answer_and_keeps_what_was_typed(void **state) {
    struct screen s;
    (void)state;
    start(&s, 24, 80);
    screen_type(&s, "answer\r");
    screen_see(&s, "tick");
    screen_type(&s, "next");
    screen_settle(&s, 50);
    screen_type(&s, "\x03");
    screen_see(&s, "stopped");
    screen_see_line(&s, "> next", 6);
    leave(&s);
}

/* ---- history --------------------------------------------------------------------------------- */

static void earlier_lines_come_back_and_are_searched(void **state) {
    struct screen s;
    (void)state;
    history_path[0] = '\0';
    start(&s, 24, 80);
    screen_type(&s, "one apple\rtwo pears\rthree plums\r");
    screen_see(&s, "<three plums>");
    screen_type(&s, "draft" UP);
    screen_see_line(&s, "> three plums", 13);
    screen_type(&s, UP UP);
    screen_see_line(&s, "> one apple", 11);
    screen_type(&s, DOWN DOWN DOWN);
    screen_see_line(&s, "> draft", 7);
    screen_type(&s, "\x15\x12pe");
    screen_see_line(&s, "> (search) pe: two pears", 13);
    screen_type(&s, "\x7f");
    screen_see(&s, "(search) p: two pears");
    screen_type(&s, "\x12");
    screen_see(&s, "(search) p: one apple");
    screen_type(&s, "\x13");
    screen_see(&s, "(search) p: two pears");
    screen_type(&s, "\x05!");
    screen_see_line(&s, "> two pears!", 12);
    screen_type(&s, "\x12zzz\x07");
    screen_see_line(&s, "> two pears!", 12);
    screen_type(&s, "\x12"
                    "apple\r");
    screen_see(&s, "> one apple");
    leave(&s);
}

static void lines_are_saved_as_they_are_entered(void **state) {
    struct screen a, b;
    struct stat st;
    (void)state;
    snprintf(history_path, sizeof history_path, "%s/history", folder);
    start(&a, 24, 80);
    start(&b, 24, 80);
    screen_type(&a, "from a\r");
    screen_see(&a, "<from a>");
    screen_type(&b, "from b\nwith two rows \\ and\ttab\r");
    screen_see(&b, "<from b|");
    screen_type(&a, "a again\r");
    screen_see(&a, "<a again>");
    screen_kill(&a); /* nothing is left to be saved at the end */
    screen_kill(&b);
    assert_int_equal(stat(history_path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    start(&a, 24, 80);
    screen_type(&a, UP);
    screen_see_line(&a, "> a again", 9);
    screen_type(&a, UP);
    screen_see(&a, "> from b");
    screen_see(&a, ". with two rows \\ and tab");
    screen_type(&a, "\r");
    screen_see(&a, "<from b|with two rows \\ and^09tab>");
    leave(&a);
    history_path[0] = '\0';
}

/* ---- the terminal's mode --------------------------------------------------------------------- */

static bool is_given_back(const struct screen *s) {
    struct termios mode;
    assert_int_equal(tcgetattr(s->fd, &mode), 0); /* of the other side */
    const tcflag_t wanted = ICANON | ECHO | ISIG | IEXTEN;
    return (mode.c_lflag & wanted) == wanted && (mode.c_iflag & ICRNL);
}

static void expect_given_back(struct screen *s, int status) {
    for (int i = 0; i < 400 && !is_given_back(s); i++)
        screen_settle(s, 10);
    if (!is_given_back(s)) fail_msg("the terminal is not given back; status %d", status);
    assert_int_equal(screen_close(s), status);
}

static void the_terminal_is_given_back_however_it_ends(void **state) {
    static const int signals[] = { SIGTERM, SIGHUP, SIGQUIT, SIGABRT, SIGSEGV };
    struct screen s;
    (void)state;
    start(&s, 24, 80);
    assert_false(is_given_back(&s));
    screen_type(&s, "\x04");
    expect_given_back(&s, 0);
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        if (SANITIZED && signals[i] == SIGSEGV) continue; /* the sanitizer has its own handler */
        start(&s, 24, 80);
        kill(s.child, signals[i]);
        expect_given_back(&s, 128 + signals[i]);
    }
    start(&s, 24, 80);
    screen_type(&s, "\x1c");
    expect_given_back(&s, 128 + SIGQUIT);
}

/* Where nobody takes the interrupts, the third one ends the program. */
static int never_listens(void) {
    interrupt_install();
    if (!raw_mode_enter()) return 3;
    printf("deaf\n");
    fflush(stdout);
    for (;;)
        pause_ms(1000);
}

static void the_third_interrupt_gives_the_terminal_back(void **state) {
    struct screen s;
    (void)state;
    screen_open_call(&s, 24, 80, never_listens);
    screen_see(&s, "deaf");
    /* on a busy machine two that come close together are one */
    for (int i = 0; i < 3 || (i < 100 && !is_given_back(&s)); i++) {
        screen_type(&s, "\x03");
        screen_settle(&s, 30);
    }
    expect_given_back(&s, REEL_E_CANCELLED);
}

static void a_dumb_terminal_has_no_editor(void **state) {
    struct screen s;
    (void)state;
    setenv("TERM", "dumb", 1);
    screen_open_call(&s, 24, 80, echo_lines);
    assert_int_equal(screen_close(&s), 3);
    unsetenv("TERM");
    screen_open_call(&s, 24, 80, echo_lines);
    assert_int_equal(screen_close(&s), 3);
    setenv("TERM", "xterm", 1);
}

static void keys_from_before_the_editor_are_its_first_line(void **state) {
    struct screen s;
    (void)state;
    screen_open_call(&s, 24, 80, echo_lines);
    screen_type(&s, "early\rbir");
    screen_see(&s, "<early>");
    screen_see_line(&s, "> bir", 5);
    leave(&s);
}

static int enter_group(void **state) {
    (void)state;
    setenv("TERM", "xterm", 1);
    return mkdtemp(folder) ? 0 : -1;
}

static int leave_group(void **state) {
    char command[100];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_do_what_emacs_does),
        cmocka_unit_test(a_character_may_come_in_pieces),
        cmocka_unit_test(ctrl_c_gives_up_a_line_and_ctrl_d_ends),
        cmocka_unit_test(the_screen_shows_the_text_and_its_cursor),
        cmocka_unit_test(a_window_of_another_size_is_drawn_anew),
        cmocka_unit_test(a_text_of_more_rows_than_the_window_shows_those_around_the_cursor),
        cmocka_unit_test(four_pasted_lines_are_one_message),
        cmocka_unit_test(what_is_pasted_is_no_key_and_no_command),
        cmocka_unit_test(a_paste_without_its_end_can_be_left),
        cmocka_unit_test(a_large_paste_is_one_message_without_delay),
        cmocka_unit_test(a_paste_that_is_too_large_is_cut_and_the_rest_is_no_key),
        cmocka_unit_test(keys_during_an_answer_wait_for_the_next_line),
        cmocka_unit_test(a_paste_during_an_answer_is_one_message),
        cmocka_unit_test(ctrl_c_behind_a_paste_ends_an_answer),
        cmocka_unit_test(ctrl_c_ends_an_answer_and_keeps_what_was_typed),
        cmocka_unit_test(earlier_lines_come_back_and_are_searched),
        cmocka_unit_test(lines_are_saved_as_they_are_entered),
        cmocka_unit_test(the_terminal_is_given_back_however_it_ends),
        cmocka_unit_test(the_third_interrupt_gives_the_terminal_back),
        cmocka_unit_test(a_dumb_terminal_has_no_editor),
        cmocka_unit_test(keys_from_before_the_editor_are_its_first_line),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests_name("lines edited at a terminal", tests, enter_group,
                                       leave_group);
}
