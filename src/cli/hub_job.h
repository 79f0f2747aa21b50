/* A pull under way: what hub.c and hub_install.c share. */
#ifndef REEL_CLI_HUB_JOB_H
#define REEL_CLI_HUB_JOB_H

#include "cli/download.h"
#include "cli/hub.h"
#include "cli/hub_store.h"

/* A file that the pull is for. */
struct hub_wanted {
    const struct hub_file *file;
    bool held; /* the folder has it already, and its hash is right */
    char *url;
    char *part; /* where it arrives */
};

struct hub_job {
    const struct hub_pull *pull;
    char *mirror;
    struct hub_store store;
    struct download_client client;
    struct hub_listing list;
    struct hub_listing held; /* the folder's manifest; zeroed without one */
    struct hub_choices all;
    const struct hub_choice **chosen; /* [n_chosen] */
    int n_chosen;
    struct hub_wanted *wanted; /* [n_wanted] room for every file of the list */
    int n_wanted;
};

/* Lets the folder change, once all that is wanted is in it or in the partial one: to the wanted
 * files, and those of it that stay. */
enum reel_status hub_install(struct hub_job *job, struct reel_error *err);

#endif
