/* What reel_devices says, in words. */
#ifndef REEL_CLI_MACHINE_TEXT_H
#define REEL_CLI_MACHINE_TEXT_H

#include "cli/options.h"

#include <jansson.h>

/* *devices (json_decref) = reel_devices parsed; with the option of cli_compiler_group. */
enum reel_status machine_read(json_t **devices, const struct cli_args *args,
                              struct reel_error *err);

/* Prints processor, instruction sets, memory, GPUs and notes. */
void machine_print(const json_t *devices);

#endif
