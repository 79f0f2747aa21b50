/* A file with options: lines "name = value", with the names that the command line has. */
#ifndef REEL_CLI_CONFIG_FILE_H
#define REEL_CLI_CONFIG_FILE_H

#include "cli/options.h"

#include "base/buffer.h"

struct config_file {
    struct buffer text; /* the file; values borrow from it */
    struct cli_args args;
};

/* args becomes what was typed and what the file at `path` says. An option that was typed is not
 * taken from the file, and neither are lines "model = ..." where arguments were typed. Empty lines
 * and lines that begin with # say nothing; a flag stands alone or has the value true or false.
 * Errors name the file and the line. */
enum reel_status config_file_read(struct config_file *file, const struct cli_args *typed,
                                  const char *path, struct reel_error *err);
void config_file_release(struct config_file *file);

#endif
