/* A file that a command writes whole at its end: looked at before the work, written after it. */
#ifndef REEL_CLI_OUTPUT_FILE_H
#define REEL_CLI_OUTPUT_FILE_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

/* What is no regular file, or lies in /dev or /proc, is written to and not replaced. */
bool output_file_is_special(const char *path);

/* Makes a file in the folder and takes it away again: permissions say less. REEL_E_IO. */
enum reel_status output_file_try_folder(const char *folder, struct reel_error *err);

/* Whether a file of this name can be written or replaced. REEL_E_ARGUMENT, REEL_E_IO. */
enum reel_status output_file_check(const char *path, struct reel_error *err);

/* A regular file is whole or as it was. */
enum reel_status output_file_write(const char *path, const char *text, size_t n,
                                   struct reel_error *err);

#endif
