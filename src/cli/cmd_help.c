/* reel help: explanations of commands, the man page, completions. */
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/known_words.h"

#include <string.h>

static const struct cli_option options[] = {
    { .name = "man", .kind = CLI_FLAG, .help = "print the man page, in roff" },
    { .name = "completion",
      .kind = CLI_CHOICE,
      .argument = "SHELL",
      .choices = "bash zsh fish",
      .help = "print a completion script for bash, zsh or fish" },
    { .name = "words",
      .kind = CLI_CHOICE,
      .argument = "KIND",
      .choices = "models devices",
      .help = "print what those scripts ask for, a word a line: the models that are inside the "
              "program and in the caches, or what --device takes here" },
};
static const struct cli_group group = CLI_GROUP("Options", options);

static enum reel_status print_words(const char *kind, struct reel_error *err) {
    struct word_list list = { 0 };
    enum reel_status status =
        strcmp(kind, "models") == 0 ? known_models(&list, err) : known_devices(&list, NULL, err);
    for (int i = 0; i < list.n; i++)
        puts(list.words[i]);
    word_list_release(&list);
    return status;
}

static void print_completion(const char *shell) {
    if (strcmp(shell, "bash") == 0)
        help_bash(stdout);
    else if (strcmp(shell, "zsh") == 0)
        help_zsh(stdout);
    else
        help_fish(stdout);
}

static enum reel_status explain(const char *name, struct reel_error *err) {
    const struct cli_command *command = NULL;
    if (strcmp(name, "gpu-options") == 0) {
        help_gpu_options(stdout);
        return REEL_OK;
    }
    enum reel_status status = cli_need_command(&command, name, "gpu-options", err);
    if (status == REEL_OK) help_command(stdout, command);
    return status;
}

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    if (cli_has(args, "man"))
        help_man(stdout);
    else if (cli_has(args, "completion"))
        print_completion(cli_text(args, "completion", ""));
    else if (cli_has(args, "words"))
        return print_words(cli_text(args, "words", ""), err);
    else if (args->n_arguments > 0)
        return explain(args->arguments[0], err);
    else
        help_overview(stdout);
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
