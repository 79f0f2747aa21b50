/* Text a command works on: arguments after the model, -p TEXT, -f FILE or standard input. */
#ifndef REEL_CLI_INPUT_H
#define REEL_CLI_INPUT_H

#include "base/buffer.h"
#include "cli/options.h"

#include <stdio.h>

extern const struct cli_group cli_input_group;

/* Whether the text is named by what was typed: as arguments after the first, with -p or with -f. */
bool input_given(const struct cli_args *args);

/* Whether the text itself was typed, as arguments or with -p. */
bool input_typed(const struct cli_args *args);

/* Appends what was typed or named to text, else standard input unless that is a terminal. Several
 * arguments are joined by spaces. */
enum reel_status input_read(const struct cli_args *args, struct buffer *text,
                            struct reel_error *err);

/* Appends the file, or standard input for "-", of at most `most` bytes. */
enum reel_status input_read_path(const char *path, size_t most, struct buffer *text,
                                 struct reel_error *err);

/* Whether standard input is a pipe or a file with something to read in it now. */
bool input_waits(void);

/* REEL_E_ARGUMENT where text is not UTF-8, with `origin` (a file, an option) and the first byte
 * that is not. */
enum reel_status input_check(const char *origin, const char *text, size_t n,
                             struct reel_error *err);

/* Reads all of f; `name` is for messages. */
enum reel_status input_read_all(FILE *f, const char *name, struct buffer *text,
                                struct reel_error *err);

/* All ids of a text, however many. *ids is the caller's to free. */
enum reel_status input_encode(const struct reel_tokenizer *tok, const char *text, size_t n_bytes,
                              unsigned flags, int32_t **ids, size_t *n_ids, struct reel_error *err);

#endif
