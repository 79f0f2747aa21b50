/* Decoding and reading a prompt for a profile: the same tokens on kernels without and with time
 * stamps, or events. */
#ifndef REEL_CLI_PROFILE_RUN_H
#define REEL_CLI_PROFILE_RUN_H

#include "base/json.h"
#include "cli/options.h"

struct profile_plan {
    int depth;    /* tokens in the context before */
    int n_tokens; /* measured */
    int n_prompt; /* read behind `depth` before decoding, and measured; 0: none */
    int repeats;  /* timed runs of each, after one untimed */
    bool trace;
    int trace_sms, trace_tokens; /* as in reel_profile_options */
};

struct profile_result {
    json_t *json; /* what reel_session_profile says */
    char *trace;  /* or NULL */
    char model[200];
    double plain_us, stamped_us; /* of a token, by the host's clock: medians of the runs' means */
    double plain_prompt_us, timed_prompt_us; /* of the prompt, likewise */
};

/* Opens the model of the command's first argument twice, one after the other. Ids that differ
 * between the two are REEL_E_MISMATCH. */
enum reel_status profile_measure(struct profile_result *result, const struct cli_args *args,
                                 const struct profile_plan *plan, struct reel_error *err);
void profile_result_release(struct profile_result *result);

#endif
