/* Folders of the user, from the environment: the XDG base directories. */
#ifndef REEL_CLI_FOLDERS_H
#define REEL_CLI_FOLDERS_H

#include "base/error.h"

/* *path (caller frees) = reel's folder in the cache, or in the state folder. It need not exist.
 * REEL_E_NOT_FOUND when neither the variable nor HOME is set. */
enum reel_status folder_of_cache(char **path, struct reel_error *err);
enum reel_status folder_of_state(char **path, struct reel_error *err);

/* *path (caller frees) = the cache of Hugging Face programs. */
enum reel_status folder_of_hugging_face(char **path, struct reel_error *err);

/* *path (caller frees) = where those programs keep the access token of their hub. */
enum reel_status file_of_hub_token(char **path, struct reel_error *err);

/* Makes the folder and what is missing above it, for this user only. */
enum reel_status folder_make(const char *path, struct reel_error *err);

#endif
