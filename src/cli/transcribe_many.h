/* Several recordings at once, each through a session of its own, so that their tokens share the
 * passes over the weights. What comes out is what would come one after the other: in the order of
 * the names, with the same text. */
#ifndef REEL_CLI_TRANSCRIBE_MANY_H
#define REEL_CLI_TRANSCRIBE_MANY_H

#include "cli/options.h"
#include "cli/transcript_out.h"

struct transcribe_many {
    const struct cli_args *args; /* of sound_open */
    const struct reel_model *model;
    const struct reel_transcriber_options *set; /* its callbacks are not used */
    struct transcript_out *out;                 /* opened; its names are the recordings */
    int at_once;                                /* at least 2; fewer where memory ends */
    bool live;                                  /* text goes to standard output */
    bool quiet;                                 /* no figures */
};

/* As the recordings would be one after the other: one that fails does not stop the others, and its
 * status is returned with an empty err; what is finished is kept when all is stopped. */
enum reel_status transcribe_many(const struct transcribe_many *many, struct reel_error *err);

/* Whether the recordings after one that ended so would fare no better. unreadable: the recording
 * itself is what failed. */
bool transcribing_stops(enum reel_status status, bool unreadable);

#endif
