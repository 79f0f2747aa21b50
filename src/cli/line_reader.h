/* Lines a person types: with editing and history at a terminal (line_editor.h), plainly otherwise.
 * A line that ends in a backslash goes on in the next. */
#ifndef REEL_CLI_LINE_READER_H
#define REEL_CLI_LINE_READER_H

#include "base/buffer.h"
#include "cli/line_editor.h"

struct line_reader {
    bool interactive; /* stdin and stdout are a terminal: prompts are shown */
    bool edited;      /* by the editor, which holds the terminal */
    bool continued;   /* the next line belongs to the one before */
    bool empty;       /* an interrupted line had no text */
    struct line_editor editor;
    struct buffer text;
};

/* history_path NULL: nothing is kept after the program's end. */
enum reel_status line_reader_open(struct line_reader *reader, const char *history_path,
                                  struct reel_error *err);

/* LINE_READ: reader->text holds the line, without the newline. */
enum line_end line_reader_next(struct line_reader *reader, struct reel_error *err);

/* Keeps what was typed meanwhile for the next line; to be called now and then while an answer is
 * made. */
void line_reader_listen(struct line_reader *reader);

/* Gives the terminal back. */
void line_reader_close(struct line_reader *reader);

#endif
