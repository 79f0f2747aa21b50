/* The models inside the program, as they were when it was built: "demo", the files of models/demo,
 * and "demo-speech", of models/speech. */
#ifndef REEL_CLI_DEMO_MODEL_H
#define REEL_CLI_DEMO_MODEL_H

#include "reel.h"

/* The files for reel_model_open_memory, valid as long as the program runs. NULL and *n_files = 0
 * for other names, and when the folder was absent at build time. */
const struct reel_memory_file *demo_model_files(const char *name, int *n_files);

#endif
