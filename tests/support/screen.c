#define _XOPEN_SOURCE 700 /* posix_openpt */

#include "support/screen.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>
#include <utf8proc.h>

#include <cmocka.h>
#include <vterm.h>

#define PATIENCE_MS 20000
#define ROW_BYTES   4000

/* ---- rows as text ---------------------------------------------------------------------------- */

static void row_text(const VTermScreenCell *cells, int columns, char *text) {
    size_t n = 0, end = 0;
    for (int i = 0; i < columns; i++) {
        const uint32_t *c = cells[i].chars;
        if (c[0] == (uint32_t)-1) continue; /* the right half of a wide one */
        if (c[0] == 0) text[n++] = ' ';
        for (int k = 0; k < VTERM_MAX_CHARS_PER_CELL && c[k]; k++)
            n += (size_t)utf8proc_encode_char((int32_t)c[k], (utf8proc_uint8_t *)text + n);
        assert_true(n + 32 < ROW_BYTES);
        if (c[0] && c[0] != ' ') end = n;
    }
    text[end] = '\0';
}

const char *screen_row(const struct screen *s, int row) {
    static char text[ROW_BYTES];
    VTermScreenCell cells[500];
    assert_true(s->columns <= 500);
    for (int i = 0; i < s->columns; i++)
        vterm_screen_get_cell(s->cells, (VTermPos){ .row = row, .col = i }, &cells[i]);
    row_text(cells, s->columns, text);
    return text;
}

static int keep_row(int columns, const VTermScreenCell *cells, void *user) {
    struct screen *s = user;
    char text[ROW_BYTES];
    row_text(cells, columns, text);
    const size_t n = strlen(text);
    s->gone = realloc(s->gone, s->n_gone + n + 2);
    assert_non_null(s->gone);
    memcpy(s->gone + s->n_gone, text, n);
    s->n_gone += n;
    s->gone[s->n_gone++] = '\n';
    s->gone[s->n_gone] = '\0';
    return 1;
}

static int count_bell(void *user) {
    ((struct screen *)user)->bells++;
    return 1;
}

char *screen_text(const struct screen *s) {
    char *text = malloc(s->n_gone + (size_t)s->rows * ROW_BYTES + 1);
    assert_non_null(text);
    size_t n = s->n_gone;
    if (n) memcpy(text, s->gone, n);
    for (int row = 0; row < s->rows; row++)
        n += (size_t)sprintf(text + n, "%s\n", screen_row(s, row));
    text[n] = '\0';
    return text;
}

bool screen_is_bold(const struct screen *s, int row, int column) {
    VTermScreenCell cell;
    vterm_screen_get_cell(s->cells, (VTermPos){ .row = row, .col = column }, &cell);
    return cell.attrs.bold;
}

void screen_cursor(const struct screen *s, int *row, int *column) {
    VTermPos at;
    vterm_state_get_cursorpos(vterm_obtain_state(s->vt), &at);
    *row = at.row;
    *column = at.col;
}

/* ---- the program ----------------------------------------------------------------------------- */

static const VTermScreenCallbacks callbacks = { .sb_pushline = keep_row, .bell = count_bell };

static void set_size(struct screen *s, int fd) {
    const struct winsize size = { .ws_row = (unsigned short)s->rows,
                                  .ws_col = (unsigned short)s->columns };
    assert_int_equal(ioctl(fd, TIOCSWINSZ, &size), 0);
}

static void open_on_terminal(struct screen *s, int rows, int columns, char *const *arguments,
                             int (*call)(void)) {
    memset(s, 0, sizeof *s);
    s->rows = rows;
    s->columns = columns;
    s->vt = vterm_new(rows, columns);
    assert_non_null(s->vt);
    vterm_set_utf8(s->vt, 1);
    s->cells = vterm_obtain_screen(s->vt);
    vterm_screen_set_callbacks(s->cells, &callbacks, s);
    vterm_screen_reset(s->cells, 1);
    s->fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    assert_true(s->fd >= 0 && grantpt(s->fd) == 0 && unlockpt(s->fd) == 0);
    set_size(s, s->fd);
    fflush(NULL);
    s->child = fork();
    assert_true(s->child >= 0);
    if (s->child > 0) return;
    setsid();
    /* a shell that runs the tests in the background has some of these ignored */
    static const int signals[] = { SIGINT,  SIGQUIT, SIGHUP,  SIGTERM, SIGPIPE,
                                   SIGTSTP, SIGTTIN, SIGTTOU, SIGCONT };
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        signal(signals[i], SIG_DFL);
    const int side = open(ptsname(s->fd), O_RDWR); /* becomes the controlling terminal */
    for (int i = 0; i < 3; i++)
        dup2(side, i);
    if (side > 2) close(side);
    close(s->fd);
    if (call) {
        setvbuf(stdout, NULL, _IOLBF, BUFSIZ); /* whatever it was for the tests' own output */
        const int status = call();
        fflush(NULL);
        _exit(status);
    }
    execvp(arguments[0], arguments);
    _exit(127);
}

void screen_open(struct screen *s, int rows, int columns, char *const *arguments) {
    open_on_terminal(s, rows, columns, arguments, NULL);
}

void screen_open_call(struct screen *s, int rows, int columns, int (*call)(void)) {
    open_on_terminal(s, rows, columns, NULL, call);
}

/* Waits for output at most this long and shows it; false when none came. */
static bool read_some(struct screen *s, int most_ms) {
    struct pollfd p = { .fd = s->fd, .events = POLLIN };
    char bytes[4096], answer[256];
    if (s->ended || poll(&p, 1, most_ms) <= 0) return false;
    const ssize_t n = read(s->fd, bytes, sizeof bytes);
    if (n <= 0) {
        s->ended = true;
        return false;
    }
    s->n_read += (size_t)n;
    vterm_input_write(s->vt, bytes, (size_t)n);
    const size_t m = vterm_output_read(s->vt, answer, sizeof answer);
    if (m > 0) assert_int_equal(write(s->fd, answer, m), (ssize_t)m);
    return true;
}

static void release(struct screen *s) {
    close(s->fd);
    vterm_free(s->vt);
    free(s->gone);
}

int screen_close(struct screen *s) {
    int status = 0;
    while (read_some(s, PATIENCE_MS)) {
    }
    if (!s->ended) kill(s->child, SIGKILL);
    waitpid(s->child, &status, 0);
    release(s);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void screen_kill(struct screen *s) {
    kill(s->child, SIGKILL);
    (void)screen_close(s);
}

static void fail_with_screen(const struct screen *s, const char *what, const char *text) {
    char *all = screen_text(s);
    fprintf(stderr, "%s \"%s\"; the screen:\n%s", what, text, all); /* print_error cuts it */
    free(all);
    fail();
}

/* ---- keys ------------------------------------------------------------------------------------ */

/* The program's output is read meanwhile, so that neither side waits for the other. */
static void send_bytes(struct screen *s, const char *bytes, size_t n) {
    while (n > 0) {
        struct pollfd p = { .fd = s->fd, .events = POLLIN | POLLOUT };
        assert_true(poll(&p, 1, PATIENCE_MS) > 0);
        if (p.revents & (POLLIN | POLLHUP)) (void)read_some(s, 0);
        if (s->ended) fail_with_screen(s, "the program ended before it read", bytes);
        if (!(p.revents & POLLOUT)) continue;
        const size_t piece = n < 1000 ? n : 1000;
        const ssize_t done = write(s->fd, bytes, piece);
        assert_true(done > 0);
        bytes += done;
        n -= (size_t)done;
    }
}

void screen_type(struct screen *s, const char *keys) { send_bytes(s, keys, strlen(keys)); }

/* What the terminal itself says: the marks of a paste. */
static void send_answer(struct screen *s) {
    char answer[64];
    send_bytes(s, answer, vterm_output_read(s->vt, answer, sizeof answer));
}

void screen_paste(struct screen *s, const char *text, size_t n) {
    char *typed = malloc(n + 1);
    assert_non_null(typed);
    for (size_t i = 0; i < n; i++)
        typed[i] = text[i];
    for (size_t i = 0; i < n; i++)
        if (typed[i] == '\n') typed[i] = '\r';
    vterm_keyboard_start_paste(s->vt);
    send_answer(s);
    send_bytes(s, typed, n);
    vterm_keyboard_end_paste(s->vt);
    send_answer(s);
    free(typed);
}

void screen_resize(struct screen *s, int rows, int columns) {
    s->rows = rows;
    s->columns = columns;
    vterm_set_size(s->vt, rows, columns);
    set_size(s, s->fd);
}

/* ---- what is seen ---------------------------------------------------------------------------- */

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static bool shows(const struct screen *s, const char *text) {
    for (int row = 0; row < s->rows; row++)
        if (strstr(screen_row(s, row), text)) return true;
    return false;
}

static void wait_until(struct screen *s, bool wanted, const char *text) {
    const double end = now_ms() + PATIENCE_MS;
    while (shows(s, text) != wanted)
        if (!read_some(s, 100) && (s->ended || now_ms() > end)) {
            if (shows(s, text) == wanted) return;
            fail_with_screen(s, wanted ? "not shown:" : "still shown:", text);
        }
}

void screen_see(struct screen *s, const char *text) { wait_until(s, true, text); }
void screen_see_no(struct screen *s, const char *text) { wait_until(s, false, text); }

static bool is_line(const struct screen *s, const char *text, int column) {
    int row, at;
    screen_cursor(s, &row, &at);
    return at == column && strcmp(screen_row(s, row), text) == 0;
}

void screen_see_line(struct screen *s, const char *text, int column) {
    const double end = now_ms() + PATIENCE_MS;
    while (!is_line(s, text, column))
        if (!read_some(s, 100) && (s->ended || now_ms() > end)) {
            int row, at;
            screen_cursor(s, &row, &at);
            print_error("the cursor is in row %d, column %d, wanted in column %d\n", row, at,
                        column);
            fail_with_screen(s, "not the cursor's line:", text);
        }
}

void screen_settle(struct screen *s, int quiet_ms) {
    while (read_some(s, quiet_ms)) {
    }
}
