/* The model inside the program: the files of models/demo, as they were when it was built. */
#ifndef REEL_CLI_DEMO_MODEL_H
#define REEL_CLI_DEMO_MODEL_H

#include "reel.h"

/* The files for reel_model_open_memory, valid as long as the program runs. NULL and *n_files = 0
 * when models/demo was absent at build time. */
const struct reel_memory_file *demo_model_files(int *n_files);

#endif
