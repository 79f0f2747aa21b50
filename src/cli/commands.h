/* The list of commands, and option groups that several of them share. */
#ifndef REEL_CLI_COMMANDS_H
#define REEL_CLI_COMMANDS_H

#include "cli/options.h"

/* In the order help shows them. Each X(name) is `const struct cli_command cmd_name` in
 * cmd_name.c. */
#define CLI_COMMANDS(X)                                                                            \
    X(run)                                                                                         \
    X(chat)                                                                                        \
    X(transcribe)                                                                                  \
    X(serve)                                                                                       \
    X(top)                                                                                         \
    X(inspect)                                                                                     \
    X(tokenize)                                                                                    \
    X(score)                                                                                       \
    X(embed)                                                                                       \
    X(rerank)                                                                                      \
    X(bench)                                                                                       \
    X(profile)                                                                                     \
    X(tune)                                                                                        \
    X(verify)                                                                                      \
    X(pull)                                                                                        \
    X(list)                                                                                        \
    X(rm)                                                                                          \
    X(du)                                                                                          \
    X(quantize)                                                                                    \
    X(synthesize)                                                                                  \
    X(devices)                                                                                     \
    X(doctor)                                                                                      \
    X(help)

#define CLI_DECLARE(name) extern const struct cli_command cmd_##name;
CLI_COMMANDS(CLI_DECLARE)
#undef CLI_DECLARE

/* Every command, up to a NULL. */
extern const struct cli_command *const cli_commands[];

const struct cli_command *cli_find_command(const char *name);

/* The same; a name that no command has is REEL_E_ARGUMENT with the nearest one. `more` (or NULL) is
 * a word that is allowed, too, and may be the nearest. */
enum reel_status cli_need_command(const struct cli_command **command, const char *name,
                                  const char *more, struct reel_error *err);

/* What opens a model: --device, --cpu-path, --threads, ... read by cli_model_open. */
extern const struct cli_group cli_model_group;
/* --pull alone, which is in cli_model_group too; read by cli_model_path. */
extern const struct cli_group cli_pull_group;
/* --nvrtc-dir alone, which is in cli_model_group too; read by machine_read. */
extern const struct cli_group cli_compiler_group;
/* --ctx, read by cli_session_open. */
extern const struct cli_group cli_context_group;
/* --temp, --top-k, ... read by cli_sampling. */
extern const struct cli_group cli_sampling_group;
extern const struct cli_group cli_speculation_group;

/* What the environment changes; for the man page. Pairs of name and meaning, up to a NULL. */
extern const char *const cli_environment[][2];
/* Files outside the model; the same form. */
extern const char *const cli_files[][2];

#endif
