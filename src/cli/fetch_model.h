/* Fetching a model as a person meets it: the environment's settings, one line of progress, the
 * questions at a terminal, and Ctrl-C. */
#ifndef REEL_CLI_FETCH_MODEL_H
#define REEL_CLI_FETCH_MODEL_H

#include "cli/hub.h"

struct fetch {
    const char *repo;
    const char *const *what; /* [n_what], as in struct hub_pull */
    int n_what;
    const char *revision; /* or NULL */
    const char *mirror;   /* NULL: $HF_ENDPOINT, or the default */
    const char *cache;    /* NULL: reel's own */
    bool offline;
};

enum reel_status fetch_model(const struct fetch *fetch, struct hub_pulled *out,
                             struct reel_error *err);

/* Whether somebody can be asked: standard input and standard error are terminals. */
bool fetch_can_ask(void);

/* Asks a question that is answered with yes or no; what an empty line means is `usual`. The end of
 * the input and Ctrl-C are no. */
bool fetch_ask(const char *question, bool usual);

#endif
