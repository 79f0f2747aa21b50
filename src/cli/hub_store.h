/* Where pulled models lie, and how their folders change. Beside owner/name stand, while needed,
 *   owner/.name.partial   what has arrived so far: files, and files with ".part" behind their names
 *   owner/.name.new       the next state of the folder, complete before it takes the folder's place
 *   owner/.name.lock      held by the process that changes any of these
 * Readers see the old folder or the whole new one. */
#ifndef REEL_CLI_HUB_STORE_H
#define REEL_CLI_HUB_STORE_H

#include "cli/hub_listing.h"

struct hub_store {
    char *folder;  /* cache_dir/models/owner/name */
    char *partial; /* the others as above */
    char *next;
    char *lock_path;
    int lock; /* -1: not held */
};

/* Paths alone; nothing is made. */
enum reel_status hub_store_init(struct hub_store *store, const char *cache_dir, const char *repo,
                                struct reel_error *err);
/* Waits until no other process works on the repository, then makes what is missing above the
 * folder and finishes what a crash left. */
enum reel_status hub_store_lock(struct hub_store *store, struct reel_error *err);
/* Gives the lock back and removes what is empty. */
void hub_store_release(struct hub_store *store);

/* *path (caller frees) = folder/name. */
enum reel_status store_path(char **path, const char *folder, const char *name,
                            struct reel_error *err);
/* Makes the folders above a file of `folder`. */
enum reel_status store_make_way(const char *folder, const char *name, struct reel_error *err);

/* The manifest of the folder; REEL_E_NOT_FOUND without one. */
enum reel_status hub_store_read(const struct hub_store *store, const char *repo,
                                struct hub_listing *held, struct reel_error *err);

/* Makes the folder hold exactly these files. The first n_fresh are in the partial folder, which
 * they leave, or else in the folder as it is now; the others are in the folder. */
enum reel_status hub_store_install(const struct hub_store *store, const char *commit,
                                   const struct hub_file *const *files, int n_files, int n_fresh,
                                   struct reel_error *err);

/* Takes files out of the folder: the first n_kept are all that the manifest then names, the others
 * are deleted. What is in the folder and in neither part stays. */
enum reel_status hub_store_drop(const struct hub_store *store, const char *commit,
                                const struct hub_file *const *files, int n_files, int n_kept,
                                struct reel_error *err);

/* Deletes the folder with all that stands beside it. *n_bytes grows by what that frees. */
enum reel_status hub_store_remove(const struct hub_store *store, int64_t *n_bytes,
                                  struct reel_error *err);

/* Deletes a folder and all in it, following no links; one that is not there is no failure. */
enum reel_status store_remove_tree(const char *folder, int64_t *n_bytes, struct reel_error *err);

/* Bytes on disk below a path, links counted as nothing; 0 where there is none. */
int64_t store_size(const char *path);

bool store_is_folder(const char *path);

#endif
