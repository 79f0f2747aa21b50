/* The text before what is embedded, as --query, --instruct and --prompt-name ask for it. */
#ifndef REEL_CLI_EMBED_PROMPT_H
#define REEL_CLI_EMBED_PROMPT_H

#include "base/buffer.h"
#include "cli/options.h"

/* What excludes each other, before a model is opened. */
enum reel_status embed_prompt_check(const struct cli_args *args, struct reel_error *err);

/* Appends the prompt, possibly none, to text, which is never left NULL. A model whose files say
 * nothing of embedding gets a note. */
enum reel_status embed_prompt(struct buffer *text, const struct cli_args *args,
                              const struct reel_model *model, struct reel_error *err);

#endif
