/* From options to an open model, a session and a sampling: what every command that runs a model
 * begins with. */
#ifndef REEL_CLI_OPEN_MODEL_H
#define REEL_CLI_OPEN_MODEL_H

#include "cli/options.h"
#include "cli/progress.h"

/* *path (caller frees) = what a name means, as model_path_find has it. A repository's model that is
 * not here is fetched with --pull, and at a terminal when the answer to a question is yes. */
enum reel_status cli_model_path(char **path, const struct cli_args *args, const char *name,
                                struct reel_error *err);

/* Opens what `name` means, with the options of cli_model_group; shows progress. */
enum reel_status cli_model_open(struct reel_model **model, const struct cli_args *args,
                                const char *name, struct reel_error *err);

/* The same for measuring sessions that decode together: on a GPU they wait until what they need is
 * compiled. */
enum reel_status cli_model_open_for_many(struct reel_model **model, const struct cli_args *args,
                                         const char *name, struct reel_error *err);

/* The same with the weights as the file has them, whatever --weights says. */
enum reel_status cli_model_open_stored(struct reel_model **model, const struct cli_args *args,
                                       const char *name, struct reel_error *err);

/* The tokenizer alone, with --no-cache of the same group; not for demo. */
enum reel_status cli_tokenizer_open(struct reel_tokenizer **tok, const struct cli_args *args,
                                    const char *name, struct reel_error *err);

/* The same model on the plain reference, to compare with, whatever rounding was typed.
 * device_weight_type is that of reel_model_info: "bf16" rounds every matrix as the device did, NULL
 * takes the file's values. */
enum reel_status cli_model_open_reference(struct reel_model **model, const struct cli_args *args,
                                          const char *name, const char *device_weight_type,
                                          enum reel_rounding rounding, struct reel_error *err);

/* The model of --draft, which guesses for `model`, or, where that is NULL, for others that are
 * opened later; *draft stays NULL where none is given, or --speculate off needs none. Where the
 * device or path of `model` checks no guesses it does, too, with a warning on stderr; --speculate
 * draft is an error then. It has to be closed after their sessions. */
enum reel_status cli_draft_open(struct reel_model **draft, const struct reel_model *model,
                                const struct cli_args *args, struct reel_error *err);

/* On the GPU of --device, the first one without it; a GPU that cannot be used is an error, also
 * with "auto". gpu_options come before those typed. */
enum reel_status cli_model_open_gpu(struct reel_model **model, const struct cli_args *args,
                                    const char *name, const char *gpu_options,
                                    struct reel_error *err);

/* What an opened model is. */
struct reel_model_info cli_model_info(const struct reel_model *model);

/* The error of a model without a chat template that is known; `more` ends the message. */
enum reel_status cli_refuse_template(const struct reel_model_info *info, const char *more,
                                     struct reel_error *err);

/* A log of the library's, for reel_model_options and the like: user is a struct cli_log. Warnings
 * go to standard error; what was chosen, too, with --verbose. */
struct cli_log {
    struct progress *progress;
    bool verbose;
};
void cli_log(void *user, enum reel_log_level level, const char *text);

/* REEL_E_ARGUMENT where the model was made for fewer than n positions; `options` are what asked for
 * them, as they are typed: "-p, -n and -d". */
enum reel_status cli_check_positions(const struct reel_model *model, int n, const char *options,
                                     struct reel_error *err);

/* With the option of cli_context_group. draft (or NULL) guesses for it. progress (borrowed, or
 * NULL) is told how far the evaluation of a prompt is. */
enum reel_status cli_session_open(struct reel_session **session, const struct reel_model *model,
                                  const struct reel_model *draft, const struct cli_args *args,
                                  struct progress *progress, struct reel_error *err);

/* Changes what options of cli_sampling_group were given. */
void cli_sampling_typed(struct reel_sampling *sampling, const struct cli_args *args);

/* What --speculate says; where it was not given `fallback`, or auto beside --draft and
 * --draft-head. */
enum reel_speculation cli_speculation(const struct cli_args *args, enum reel_speculation fallback);

/* The model's recommended sampling, changed by the options of cli_sampling_group. Without --seed
 * it is seeded from the system's random numbers. */
enum reel_status cli_sampling(struct reel_sampling *sampling, const struct reel_model *model,
                              const struct cli_args *args, struct reel_error *err);

#endif
