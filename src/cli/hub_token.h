/* The access token of a hub, where Hugging Face's own programs keep it. */
#ifndef REEL_CLI_HUB_TOKEN_H
#define REEL_CLI_HUB_TOKEN_H

#include "base/error.h"

struct hub_token {
    char *text; /* NULL: there is none */
    char *from; /* "$HF_TOKEN" or the file it was read from; without a token, the file in which one
                   would be looked for; NULL where no folder is known */
};

/* $HF_TOKEN, else the file $HF_TOKEN_PATH, $HF_HOME/token or ~/.cache/huggingface/token. What
 * cannot be a token is refused without showing it. */
enum reel_status hub_token_find(struct hub_token *token, struct reel_error *err);
void hub_token_release(struct hub_token *token);

#endif
