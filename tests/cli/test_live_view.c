/* Text that grows at a terminal, as a terminal shows it: a small one, made here, reads what the
 * view writes to a pseudo-terminal. */
#define _DEFAULT_SOURCE
#define _XOPEN_SOURCE 700 /* posix_openpt */

#include "cli/live_view.h"

#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <utf8proc.h>

#include <cmocka.h>

enum { COLUMNS = 30, ROWS = 400 };

/* ---- a terminal ---- */

struct cell {
    int32_t c; /* 0: empty; -1: the right half of a wide one */
    bool dim;
};

struct screen {
    struct cell cells[ROWS][COLUMNS];
    int row, column, saved_row, saved_column;
    bool full, saved_full; /* the cursor waits behind the last column */
    bool no_wrap, dim;
    int lowest; /* row that was written to */
    char held[16];
    size_t n_held;
};

static void put_character(struct screen *s, int32_t c) {
    const int columns = utf8proc_charwidth(c);
    if (columns == 0) return;
    if (s->full || s->column + columns > COLUMNS) {
        if (s->no_wrap) {
            s->column = COLUMNS - columns;
        } else {
            s->row++;
            s->column = 0;
        }
        s->full = false;
    }
    assert_true(s->row < ROWS);
    s->cells[s->row][s->column] = (struct cell){ c, s->dim };
    if (columns == 2) s->cells[s->row][s->column + 1] = (struct cell){ -1, s->dim };
    if (s->row > s->lowest) s->lowest = s->row;
    s->column += columns;
    s->full = s->column == COLUMNS;
    if (s->full) s->column = COLUMNS - 1;
}

/* Whether the held bytes are one of the sequences the view may use, carried out. */
static bool obey(struct screen *s) {
    const char *e = s->held;
    if (strcmp(e, "\0337") == 0) {
        s->saved_row = s->row, s->saved_column = s->column, s->saved_full = s->full;
    } else if (strcmp(e, "\0338") == 0) {
        s->row = s->saved_row, s->column = s->saved_column, s->full = s->saved_full;
    } else if (strcmp(e, "\033[?7l") == 0 || strcmp(e, "\033[?7h") == 0) {
        s->no_wrap = e[4] == 'l';
    } else if (strcmp(e, "\033[2m") == 0 || strcmp(e, "\033[0m") == 0) {
        s->dim = e[2] == '2';
    } else if (strcmp(e, "\033[K") == 0) {
        memset(&s->cells[s->row][s->column], 0,
               (size_t)(COLUMNS - s->column) * sizeof(struct cell));
    } else {
        return false;
    }
    return true;
}

static void take_byte(struct screen *s, char byte) {
    utf8proc_int32_t c;
    s->held[s->n_held++] = byte;
    s->held[s->n_held] = '\0';
    assert_true(s->n_held < sizeof s->held - 1);
    if (s->held[0] == '\033') {
        if (obey(s)) s->n_held = 0;
        return;
    }
    if (s->held[0] == '\r' || s->held[0] == '\n') {
        s->column = 0;
        s->full = false;
        if (s->held[0] == '\n') s->row++;
        s->n_held = 0;
        return;
    }
    if (utf8proc_iterate((const utf8proc_uint8_t *)s->held, (utf8proc_ssize_t)s->n_held, &c) < 0)
        return; /* not whole yet */
    put_character(s, c);
    s->n_held = 0;
}

struct terminal {
    int fd;
    FILE *side;
    struct screen screen;
};

static void open_terminal(struct terminal *t) {
    memset(t, 0, sizeof *t);
    t->fd = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(t->fd >= 0 && grantpt(t->fd) == 0 && unlockpt(t->fd) == 0);
    const int side = open(ptsname(t->fd), O_RDWR | O_NOCTTY);
    const struct winsize size = { .ws_row = 24, .ws_col = COLUMNS };
    struct termios as_it_is;
    assert_true(side >= 0 && ioctl(side, TIOCSWINSZ, &size) == 0);
    assert_int_equal(tcgetattr(side, &as_it_is), 0);
    as_it_is.c_oflag &= ~(tcflag_t)OPOST;
    assert_int_equal(tcsetattr(side, TCSANOW, &as_it_is), 0);
    t->side = fdopen(side, "w");
    assert_non_null(t->side);
}

static void close_terminal(struct terminal *t) {
    fclose(t->side);
    close(t->fd);
}

static void show(struct terminal *t) {
    struct pollfd p = { .fd = t->fd, .events = POLLIN };
    char bytes[4096];
    fflush(t->side);
    while (poll(&p, 1, 0) == 1) {
        const ssize_t n = read(t->fd, bytes, sizeof bytes);
        if (n <= 0) break;
        for (ssize_t i = 0; i < n; i++)
            take_byte(&t->screen, bytes[i]);
    }
    assert_int_equal(t->screen.n_held, 0);
}

/* Characters of the screen in order, without the dim ones or only those; rows run on. */
static void read_screen(const struct screen *s, bool dim, char *out) {
    size_t n = 0;
    for (int row = 0; row <= s->lowest; row++)
        for (int i = 0; i < COLUMNS; i++) {
            const struct cell *cell = &s->cells[row][i];
            if (cell->c > 0 && cell->dim == dim)
                n += (size_t)utf8proc_encode_char(cell->c, (utf8proc_uint8_t *)out + n);
        }
    out[n] = '\0';
}

static void expect_screen(struct terminal *t, const char *text, const char *rest) {
    static char seen[ROWS * COLUMNS * 4];
    show(t);
    read_screen(&t->screen, false, seen);
    assert_string_equal(seen, text);
    read_screen(&t->screen, true, seen);
    if (rest) assert_string_equal(seen, rest);
}

/* ---- what is shown ---- */

static void say(struct live_view *v, const char *text) { live_view_text(v, text, strlen(text)); }
static void guess(struct live_view *v, const char *text) { live_view_rest(v, text, strlen(text)); }

static void the_rest_is_dim_and_replaced(void **state) {
    (void)state;
    struct terminal t;
    struct live_view v;
    open_terminal(&t);
    live_view_start(&v, t.side);
    guess(&v, "three for");
    expect_screen(&t, "", "three for");
    guess(&v, "three four");
    expect_screen(&t, "", "three four");
    say(&v, "three");
    expect_screen(&t, "three", "");
    guess(&v, " four one");
    expect_screen(&t, "three", " four one");
    say(&v, " four");
    say(&v, " one");
    guess(&v, "");
    expect_screen(&t, "three four one", "");
    live_view_end(&v);
    expect_screen(&t, "three four one", "");
    close_terminal(&t);
}

static void of_a_rest_that_is_too_long_the_end_is_shown(void **state) {
    (void)state;
    struct terminal t;
    struct live_view v;
    open_terminal(&t);
    live_view_start(&v, t.side);
    say(&v, "0123456789");
    guess(&v, " one two three four five six");
    expect_screen(&t, "0123456789",
                  "\xe2\x80\xa6"
                  "hree four five six"); /* 19 columns are left */
    assert_int_equal(t.screen.lowest, 0);
    say(&v, " one two thre"); /* 6 are: too few */
    guess(&v, "e four five six");
    expect_screen(&t, "0123456789 one two thre", "");
    say(&v, "e four five");
    guess(&v, " six \n\tseven");
    expect_screen(&t, "0123456789 one two three four five", " six   seven");
    assert_int_equal(t.screen.lowest, 1);
    close_terminal(&t);
}

static void nothing_of_a_rest_is_ever_left(void **state) {
    static const char *const pieces[] = { "one ",      "\xe4\xb8\x96\xe7\x95\x8c",
                                          "e\xcc\x81", "a",
                                          "zwei ",     "\xf0\x9f\x98\x80",
                                          "\xc3\xa4",  "\xef\xbc\x81",
                                          "-" };
    static char text[60000];
    size_t n = 0;
    uint32_t seed = 1;
    struct terminal t;
    struct live_view v;
    (void)state;
    open_terminal(&t);
    live_view_start(&v, t.side);
    for (int i = 0; i < 600; i++) {
        char rest[300] = "";
        for (uint32_t k = (seed >> 20) % 9; k-- > 0;) {
            seed = seed * 1664525u + 1013904223u;
            strcat(rest, pieces[(seed >> 16) % 9]);
        }
        guess(&v, rest);
        show(&t);
        seed = seed * 1664525u + 1013904223u;
        const char *piece = pieces[(seed >> 16) % 9];
        say(&v, piece);
        strcpy(text + n, piece);
        n += strlen(piece);
    }
    live_view_end(&v);
    /* the screen has no marks that combine */
    static char plain[60000];
    size_t to = 0;
    for (size_t at = 0; at < n; at++) {
        if (strncmp(text + at, "\xcc\x81", 2) == 0)
            at++;
        else
            plain[to++] = text[at];
    }
    expect_screen(&t, plain, "");
    assert_in_range(t.screen.lowest, 20, ROWS);
    close_terminal(&t);
}

static void control_characters_do_not_reach_the_terminal(void **state) {
    (void)state;
    struct terminal t;
    struct live_view v;
    open_terminal(&t);
    live_view_start(&v, t.side);
    guess(&v, "a\033[2Jb");
    expect_screen(&t, "", "a?[2Jb");
    close_terminal(&t);
}

static void without_styles_there_is_no_rest(void **state) {
    (void)state;
    struct terminal t;
    struct live_view v;
    open_terminal(&t);
    setenv("NO_COLOR", "1", 1);
    live_view_start(&v, t.side);
    unsetenv("NO_COLOR");
    say(&v, "one");
    guess(&v, " two");
    expect_screen(&t, "one", "");
    close_terminal(&t);
    FILE *f = tmpfile();
    char seen[20] = "";
    assert_non_null(f);
    live_view_start(&v, f);
    say(&v, "one");
    guess(&v, " two");
    live_view_end(&v);
    rewind(f);
    assert_int_equal(fread(seen, 1, sizeof seen, f), 3);
    assert_string_equal(seen, "one");
    fclose(f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rest_is_dim_and_replaced),
        cmocka_unit_test(of_a_rest_that_is_too_long_the_end_is_shown),
        cmocka_unit_test(nothing_of_a_rest_is_ever_left),
        cmocka_unit_test(control_characters_do_not_reach_the_terminal),
        cmocka_unit_test(without_styles_there_is_no_rest),
    };
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    return cmocka_run_group_tests_name("text that grows at a terminal", tests, NULL, NULL);
}
