/* A model folder being written. It is filled under another name beside the one it will have, and
 * renamed when it is complete: nobody ever sees half a model. */
#ifndef REEL_MODEL_NEW_FOLDER_H
#define REEL_MODEL_NEW_FOLDER_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

#define NEW_FOLDER_ROOM 4096 /* Linux opens no longer path */
#define NEW_FILE_ROOM   (NEW_FOLDER_ROOM + 64)

struct new_folder {
    char aside[NEW_FOLDER_ROOM]; /* the folder being filled; empty until there is one */
    int n_name;                  /* bytes of it that are the name the folder will have */
    bool synced; /* files reach the disk before the folder has its name. Without that a crash of the
                    machine may leave a folder of that name with files cut short. */
};

/* REEL_E_ARGUMENT where there is something of that name. */
enum reel_status new_folder_check(const char *name, struct reel_error *err);
/* With the same check. */
enum reel_status new_folder_start(struct new_folder *folder, const char *name, bool synced,
                                  struct reel_error *err);
/* Gives the folder its name when status is REEL_OK, else removes all of it; a folder that was not
 * started is left alone. Returns the first failure. */
enum reel_status new_folder_finish(struct new_folder *folder, const char *name,
                                   enum reel_status status, struct reel_error *err);

/* One file in it. `name` may have one folder before it: "1_Pooling/config.json". */
struct new_file {
    char shown[NEW_FILE_ROOM]; /* the name it will have, for messages */
    int fd;
    bool synced;
};
enum reel_status new_file_start(struct new_file *file, const struct new_folder *folder,
                                const char *name, struct reel_error *err);
enum reel_status new_file_append(const struct new_file *file, const void *bytes, size_t n,
                                 struct reel_error *err);
/* Closes it, also after a failure. */
enum reel_status new_file_finish(struct new_file *file, enum reel_status status,
                                 struct reel_error *err);
/* All of these. */
enum reel_status new_file_write(const struct new_folder *folder, const char *name,
                                const void *bytes, size_t n, struct reel_error *err);

#endif
