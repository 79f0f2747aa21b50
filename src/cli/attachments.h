/* Files that go into a message beside its text: --attach of reel run. */
#ifndef REEL_CLI_ATTACHMENTS_H
#define REEL_CLI_ATTACHMENTS_H

#include "base/buffer.h"
#include "cli/options.h"

/* What was attached, for messages. */
struct attachments {
    const char *largest; /* name of the file with the most bytes; NULL: none is there */
    size_t largest_bytes;
};

/* Whether there are any, and whether standard input is one. */
bool attachments_given(const struct cli_args *args);
bool attachments_take_stdin(const struct cli_args *args);

/* Appends each file under its name and between two fences, in the order typed, with an empty line
 * behind each. What is no text in UTF-8 and what is too large is refused by name. */
enum reel_status attachments_read(struct attachments *all, struct buffer *message,
                                  const struct cli_args *args, struct reel_error *err);

/* One of them: the name, the fenced text. The fence is longer than any in the text. */
enum reel_status attachment_add(struct buffer *message, const char *name, const char *text,
                                size_t n_bytes, struct reel_error *err);

#endif
