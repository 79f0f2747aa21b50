/* A person at a terminal: a program on a pseudo-terminal of its own, keys for it, and the screen as
 * rows of text (libvterm, which emulates an xterm). Waiting for what does not come fails the test
 * and shows the screen. */
#ifndef REEL_TESTS_SCREEN_H
#define REEL_TESTS_SCREEN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct VTerm;

struct screen {
    int fd;
    pid_t child;
    int rows, columns;
    struct VTerm *vt;
    struct VTermScreen *cells;
    char *gone; /* rows that scrolled off the top */
    size_t n_gone;
    size_t n_read; /* bytes the program wrote so far */
    int bells;
    bool ended; /* it closed the terminal */
};

/* Starts a program of PATH, or a function of this one whose result is the exit status. */
void screen_open(struct screen *s, int rows, int columns, char *const *arguments);
void screen_open_call(struct screen *s, int rows, int columns, int (*call)(void));

/* Ends: waits for the program. Returns its exit status, 128 + n after a signal. */
int screen_close(struct screen *s);
/* The same, with SIGKILL first. */
void screen_kill(struct screen *s);

void screen_type(struct screen *s, const char *keys);
/* As a terminal pastes: between marks where the program asked for them, newlines as Enter. */
void screen_paste(struct screen *s, const char *text, size_t n);
void screen_resize(struct screen *s, int rows, int columns);

/* Waits until a row of the screen contains text, or until none does. */
void screen_see(struct screen *s, const char *text);
void screen_see_no(struct screen *s, const char *text);
/* Waits until the cursor's row is text, and the cursor stands in this column. */
void screen_see_line(struct screen *s, const char *text, int column);
/* Reads until nothing came for this long. */
void screen_settle(struct screen *s, int quiet_ms);

/* A row of the screen without blanks at its end; good until the next call. */
const char *screen_row(const struct screen *s, int row);
/* All rows, those that scrolled off first; free() it. */
char *screen_text(const struct screen *s);
bool screen_is_bold(const struct screen *s, int row, int column);
void screen_cursor(const struct screen *s, int *row, int *column);

#endif
