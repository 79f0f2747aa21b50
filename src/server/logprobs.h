/* Log-probabilities as the chat API writes them. */
#ifndef REEL_SERVER_LOGPROBS_H
#define REEL_SERVER_LOGPROBS_H

#include "base/buffer.h"

/* {"token", "logprob", "bytes", "top_logprobs": [...]}, behind a comma where out is not empty. */
enum reel_status logprobs_chat_token(struct buffer *out, const struct reel_tokenizer *tok,
                                     const struct reel_token *token, struct reel_error *err);

/* A number as JSON has it: minus infinity becomes -9999, as OpenAI's clients expect. */
enum reel_status logprobs_number(struct buffer *out, float logprob, struct reel_error *err);

#endif
