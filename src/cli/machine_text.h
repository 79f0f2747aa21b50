/* What reel_devices says, in words. */
#ifndef REEL_CLI_MACHINE_TEXT_H
#define REEL_CLI_MACHINE_TEXT_H

#include "base/error.h"

#include <jansson.h>

/* *devices (json_decref) = reel_devices parsed. */
enum reel_status machine_read(json_t **devices, struct reel_error *err);

/* Prints processor, instruction sets, memory, GPUs and notes. */
void machine_print(const json_t *devices);

#endif
