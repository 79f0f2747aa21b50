/* reel help: explanations of commands, the man page, completions. */
#include "cli/commands.h"
#include "cli/help.h"

#include <string.h>

static const struct cli_option options[] = {
    { .name = "man", .kind = CLI_FLAG, .help = "print the man page, in roff" },
    { .name = "completion",
      .kind = CLI_CHOICE,
      .argument = "SHELL",
      .choices = "bash zsh",
      .help = "print a completion script for bash or zsh" },
};
static const struct cli_group group = CLI_GROUP("Options", options);

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    const char *shell = cli_text(args, "completion", NULL);
    if (cli_has(args, "man")) {
        help_man(stdout);
    } else if (shell && strcmp(shell, "bash") == 0) {
        help_bash(stdout);
    } else if (shell) {
        help_zsh(stdout);
    } else if (args->n_arguments == 0) {
        help_overview(stdout);
    } else if (strcmp(args->arguments[0], "gpu-options") == 0) {
        help_gpu_options(stdout);
    } else {
        const struct cli_command *command = cli_find_command(args->arguments[0]);
        if (!command)
            return err_set(err, REEL_E_ARGUMENT, "\"%s\" is no command; reel help lists them",
                           args->arguments[0]);
        help_command(stdout, command);
    }
    return REEL_OK;
}

const struct cli_command cmd_help = {
    .name = "help",
    .arguments = "[COMMAND | gpu-options]",
    .most_arguments = 1,
    .summary = "explain a command; print man page or shell completion",
    .description = "Explains a command, or lists them all; reel help gpu-options lists what "
                   "--gpu-option changes.",
    .groups = { &group },
    .run = run,
};
