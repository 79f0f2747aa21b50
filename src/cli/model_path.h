/* What a user types for MODEL, as a path that the library opens. */
#ifndef REEL_CLI_MODEL_PATH_H
#define REEL_CLI_MODEL_PATH_H

#include "base/error.h"

/* Whether name means the model inside the program. A folder of that name is ./demo. */
bool model_path_is_demo(const char *name);
/* One of those that the program carries (demo_model.h). */
bool model_path_is_inside(const char *name);

/* *path (caller frees): an existing file or folder as typed; for OWNER/NAME its folder in reel's
 * own cache or in the one of Hugging Face programs. A folder without config.json that holds one
 * .gguf file becomes that file. */
enum reel_status model_path_find(char **path, const char *name, struct reel_error *err);

#endif
