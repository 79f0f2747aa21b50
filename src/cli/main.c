/* The command line tool: which command, then its options; and what every command ends with. */
#include "cli/commands.h"
#include "cli/help.h"
#include "cli/terminal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum reel_status run_command(const struct cli_command *command, int argc, char **argv,
                                    struct reel_error *err) {
    struct cli_args args;
    enum reel_status status = cli_parse(&args, command, argc, argv, err);
    if (status != REEL_OK) return status;
    if (args.wants_help) {
        help_command(stdout, command);
    } else {
        status = command->run(&args, err);
    }
    cli_args_release(&args);
    return status;
}

static enum reel_status run(int argc, char **argv, struct reel_error *err) {
    const char *name = argc > 1 ? argv[1] : "";
    if (strcmp(name, "--version") == 0) {
        printf("reel %s\n", reel_version());
        return REEL_OK;
    }
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) {
        help_overview(stdout);
        return REEL_OK;
    }
    if (argc < 2) {
        help_overview(stderr);
        return REEL_E_ARGUMENT;
    }
    const struct cli_command *command = NULL;
    enum reel_status status = cli_need_command(&command, name, "--version", err);
    return status == REEL_OK ? run_command(command, argc - 2, argv + 2, err) : status;
}

int main(int argc, char **argv) {
    struct reel_error err = { 0 };
    streams_install();
    faults_install();
    enum reel_status status = run(argc, argv, &err);
    errno = 0;
    if ((fflush(stdout) != 0 || ferror(stdout)) &&
        (status == REEL_OK || status == REEL_E_CANCELLED)) /* for that is why */
        status = err_set(&err, REEL_E_IO, "writing to standard output failed: %s",
                         errno ? strerror(errno) : "the disk may be full");
    if (err.text[0] && status != REEL_OK) fprintf(stderr, "reel: %s\n", err.text);
    return (int)status;
}
