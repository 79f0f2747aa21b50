/* Tokens as JSON. */
#ifndef REEL_CLI_TOKEN_JSON_H
#define REEL_CLI_TOKEN_JSON_H

#include "reel.h"

#include <jansson.h>

/* {"id", "text"}; a token that is no text of its own, such as half of a character, has its "bytes"
 * as numbers instead, and one without any a "text" of null. NULL when memory runs out. */
json_t *token_object(const struct reel_tokenizer *tok, int32_t id);

/* The same with "logprob" and, where the token carries them, "top": a list of such objects, most
 * likely first. */
json_t *token_with_logprobs(const struct reel_tokenizer *tok, const struct reel_token *token);

#endif
