/* Texts made from the table of commands. */
#ifndef REEL_CLI_HELP_H
#define REEL_CLI_HELP_H

#include "cli/options.h"

#include <stdio.h>

void help_overview(FILE *out);
void help_command(FILE *out, const struct cli_command *command);
void help_gpu_options(FILE *out);
void help_man(FILE *out);  /* roff, section 1 */
void help_bash(FILE *out); /* completion scripts */
void help_zsh(FILE *out);
void help_fish(FILE *out);

#endif
