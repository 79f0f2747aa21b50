/* --gpu-option: keys and values checked against the library's list before it sees them. */
#ifndef REEL_CLI_GPU_OPTIONS_H
#define REEL_CLI_GPU_OPTIONS_H

#include "cli/options.h"

/* *text (caller frees) = `first` (or NULL) and all --gpu-option as one list, in which the last word
 * counts; NULL when there is none. An unknown key is answered with the nearest. */
enum reel_status gpu_options_join(char **text, const struct cli_args *args, const char *first,
                                  struct reel_error *err);

#endif
