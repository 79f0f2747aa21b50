/* reel devices: what models can run on here. */
#include "cli/commands.h"
#include "cli/machine_text.h"

#include <stdio.h>

static const struct cli_option options[] = {
    { .name = "json", .kind = CLI_FLAG, .help = "print one JSON object" },
};
static const struct cli_group group = CLI_GROUP("Options", options);

static enum reel_status run(const struct cli_args *args, struct reel_error *err) {
    json_t *devices = NULL;
    enum reel_status status = machine_read(&devices, args, err);
    if (status != REEL_OK) return status;
    if (!cli_has(args, "json"))
        machine_print(devices);
    else if (json_dumpf(devices, stdout, JSON_INDENT(2)) == 0)
        printf("\n");
    json_decref(devices);
    return REEL_OK;
}

const struct cli_command cmd_devices = {
    .name = "devices",
    .arguments = "",
    .summary = "list what models can run on here",
    .description = "The processor with the instruction sets that --cpu-path takes (the last one "
                   "listed is the one auto chooses), its memory, and the GPUs that --device takes.",
    .groups = { &group, &cli_compiler_group },
    .run = run,
};
