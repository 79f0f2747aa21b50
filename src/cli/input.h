/* Text a command works on: -p TEXT, -f FILE or standard input. */
#ifndef REEL_CLI_INPUT_H
#define REEL_CLI_INPUT_H

#include "base/buffer.h"
#include "cli/options.h"

#include <stdio.h>

extern const struct cli_group cli_input_group;

/* Whether -p or -f was given. */
bool input_given(const struct cli_args *args);

/* Reads what the options name, else standard input unless that is a terminal. */
enum reel_status input_read(const struct cli_args *args, struct buffer *text,
                            struct reel_error *err);

/* Reads all of f; `name` is for messages. */
enum reel_status input_read_all(FILE *f, const char *name, struct buffer *text,
                                struct reel_error *err);

/* All ids of a text, however many. *ids is the caller's to free. */
enum reel_status input_encode(const struct reel_tokenizer *tok, const char *text, size_t n_bytes,
                              unsigned flags, int32_t **ids, size_t *n_ids, struct reel_error *err);

#endif
