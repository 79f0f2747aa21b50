/* A line typed at a terminal, with the keys of emacs, history and search; for terminals that can
 * move their cursor.
 *
 * The terminal is held from line_editor_open to line_editor_close. What is typed while nobody reads
 * a line is not echoed; it waits, and is edited as the next line. */
#ifndef REEL_CLI_LINE_EDITOR_H
#define REEL_CLI_LINE_EDITOR_H

#include "cli/edit_text.h"
#include "cli/history.h"
#include "cli/line_view.h"

#define LINE_MAX_BYTES ((size_t)2 << 20)

enum line_end {
    LINE_READ,
    LINE_INTERRUPTED, /* Ctrl-C */
    LINE_CLOSED,      /* end of input */
    LINE_FAILED       /* err says why */
};

struct line_editor {
    struct edit_text edit;
    struct line_view view;
    struct history history;
    struct buffer typed; /* bytes that came from the terminal */
    size_t n_taken;      /* of them, those that were looked at */
    bool waited;         /* no byte came for a while: what was begun is all there is */
    bool pasting;        /* between a paste's marks */
    bool paste_cut; /* its last character was a carriage return: a line feed is its other half */
    int browsed;    /* the entry of the history that is shown; history.n: none */
    struct buffer draft;   /* what was typed before an entry was shown */
    struct buffer pattern; /* what is searched for */
    struct buffer shown;   /* the search as it is drawn */
    bool searching;
    int found; /* the entry, or -1 */
};

/* Whether standard input and output are a terminal that an editor can work with. */
bool line_editor_can(void);

/* history_path NULL: nothing is kept after the program's end. */
enum reel_status line_editor_open(struct line_editor *ed, const char *history_path,
                                  struct reel_error *err);
void line_editor_close(struct line_editor *ed);

/* Reads a line of one or more rows; ed->edit.text holds it. */
enum line_end line_editor_read(struct line_editor *ed, struct reel_error *err);

/* Takes in what was typed meanwhile; never waits. */
void line_editor_listen(struct line_editor *ed);

#endif
