/* A program on a pseudo-terminal, typed at and read. */
#ifndef REEL_TESTS_PTY_H
#define REEL_TESTS_PTY_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct pty {
    int fd;
    pid_t child;
    char seen[1 << 16]; /* all that was shown */
    size_t n_seen;
    size_t n_matched; /* of it, what pty_see has gone past */
};

/* Starts a line of the shell on a terminal of its own. */
void pty_start(struct pty *t, const char *line);
/* Waits until text is shown after what was matched before; else the test fails. */
void pty_see(struct pty *t, const char *text);
void pty_type(struct pty *t, const char *keys);
/* Reads for a moment; whether the program has closed the terminal. */
bool pty_ended(struct pty *t);
/* The exit status, once the program has closed the terminal. */
int pty_finish(struct pty *t);

#endif
