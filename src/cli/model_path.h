/* What a user types for MODEL, as a path that the library opens. */
#ifndef REEL_CLI_MODEL_PATH_H
#define REEL_CLI_MODEL_PATH_H

#include "base/error.h"
#include "cli/hub_name.h"

/* Whether name means the model inside the program. A folder of that name is ./demo. */
bool model_path_is_demo(const char *name);
/* One of those that the program carries (demo_model.h). */
bool model_path_is_inside(const char *name);

/* *path (caller frees): an existing file or folder as typed; for OWNER/NAME[:QUANTISATION] what it
 * means in reel's own cache or in the one of Hugging Face programs. A folder without config.json
 * that holds one .gguf file becomes that file. */
enum reel_status model_path_find(char **path, const char *name, struct reel_error *err);

/* Whether name is none that exists here and can be one on a hub; *repo is what it says. */
bool model_path_is_pullable(struct hub_name *repo, const char *name);

/* *folder (caller frees) = the files of a repository in the cache of Hugging Face programs; NULL
 * where it has none. */
enum reel_status model_path_snapshot(char **folder, const char *cache, const char *repo,
                                     struct reel_error *err);

/* Calls `found` with each file below the folder, as a path inside it; names that begin with a dot
 * are left out, links are followed. */
enum reel_status model_path_walk(const char *folder,
                                 enum reel_status (*found)(void *user, const char *path,
                                                           struct reel_error *err),
                                 void *user, struct reel_error *err);

#endif
