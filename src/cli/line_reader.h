/* Lines a person types: with editing and history on a terminal (libedit, where built in), plainly
 * otherwise. A line that ends in a backslash goes on in the next. */
#ifndef REEL_CLI_LINE_READER_H
#define REEL_CLI_LINE_READER_H

#include "base/buffer.h"

struct line_reader {
    bool interactive; /* stdin and stdout are a terminal: prompts are shown */
    bool continued;   /* the next line belongs to the one before */
    void *editor;     /* EditLine, or NULL */
    void *history;    /* History, or NULL */
    char *history_path;
    struct buffer text;
};

enum line_end {
    LINE_READ,        /* reader->text holds it, without the newline */
    LINE_INTERRUPTED, /* Ctrl-C */
    LINE_CLOSED,      /* end of input */
    LINE_FAILED       /* err says why */
};

/* history_path NULL: nothing is kept after the program's end. */
enum reel_status line_reader_open(struct line_reader *reader, const char *history_path,
                                  struct reel_error *err);
enum line_end line_reader_next(struct line_reader *reader, struct reel_error *err);

/* Saves the history. */
void line_reader_close(struct line_reader *reader);

#endif
