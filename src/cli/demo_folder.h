/* The demo model as files, for calls that take a path only. */
#ifndef REEL_CLI_DEMO_FOLDER_H
#define REEL_CLI_DEMO_FOLDER_H

#include "base/error.h"

/* *path (caller frees) = a fresh temporary folder with the files in it. */
enum reel_status demo_folder_make(char **path, struct reel_error *err);

/* Removes the folder; NULL is nothing. */
void demo_folder_remove(const char *path);

#endif
