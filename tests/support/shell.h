/* The program as a user meets it: lines run in a shell with `reel` first in PATH, a fresh HOME, the
 * demo model's folder as $DEMO, and no terminal. */
#ifndef REEL_TESTS_SHELL_H
#define REEL_TESTS_SHELL_H

#include <stddef.h>

struct result {
    int status; /* of the line; 128 + n after a signal */
    char *out, *err;
};

/* Runs a line in the group's folder; done() frees what it printed. */
struct result shell(const char *line);
void done(struct result r);

/* The line ends with this status, and its stderr holds this text; else the test fails. */
void expect(const char *line, int status, const char *says);

/* Puts a file into the group's folder. */
void shell_file(const char *name, const void *data, size_t size);

/* Before and after a group of tests: a folder to run in, and its removal. */
int shell_enter(void **state);
int shell_leave(void **state);

#endif
