/* What was typed before: a list in memory, and a file that several programs may add to at once.
 *
 * Each entry is a line of the file and is added when it is entered, so that nothing is lost with a
 * program that is killed. A byte that would end or confuse a line stands as a backslash and three
 * octal digits, as libedit wrote it: files of its making are read too. */
#ifndef REEL_CLI_HISTORY_H
#define REEL_CLI_HISTORY_H

#include "base/error.h"

#define HISTORY_ENTRIES    1000              /* kept in memory, and in a file that has grown long */
#define HISTORY_LONGEST    ((size_t)1 << 16) /* bytes; longer entries stay out of the file */
#define HISTORY_FILE_BYTES ((size_t)1 << 20) /* a file of more is cut to its newest half */

struct history {
    char **entries; /* [n], the oldest first */
    int n;
    char *path; /* NULL: there is no file */
};

/* Reads the file, if there is one. Only this user may read it: its mode is set before anything is
 * added. A file that cannot be used is none, and nothing is said. path may be NULL. */
enum reel_status history_open(struct history *h, const char *path, struct reel_error *err);
void history_close(struct history *h);

/* Adds an entry, to the file as well; the same one twice in a row is one. */
enum reel_status history_add(struct history *h, const char *text, struct reel_error *err);

/* The entry before `from` (step -1) or after it (+1) that contains n bytes of text; -1: none. */
int history_search(const struct history *h, int from, int step, const char *text, size_t n);

#endif
