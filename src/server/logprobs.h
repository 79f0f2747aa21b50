/* Log-probabilities as the chat, responses and completions APIs write them. */
#ifndef REEL_SERVER_LOGPROBS_H
#define REEL_SERVER_LOGPROBS_H

#include "base/buffer.h"

/* {"token", "logprob", "bytes", "top_logprobs": [...]}, behind a comma where out is not empty. */
enum reel_status logprobs_chat_token(struct buffer *out, const struct reel_tokenizer *tok,
                                     const struct reel_token *token, struct reel_error *err);

/* A number as JSON has it: minus infinity becomes -9999, as OpenAI's clients expect. */
enum reel_status logprobs_number(struct buffer *out, float logprob, struct reel_error *err);

/* Tokens of the responses API, which wait until their text is told: only then is it known whether
 * they are part of a message. All begins empty. */
struct logprobs_queue {
    struct buffer tokens; /* as logprobs_chat_token writes them, without commas */
    struct buffer marks;  /* a struct of logprobs.c for each */
};

enum reel_status logprobs_queue_add(struct logprobs_queue *q, const struct reel_tokenizer *tok,
                                    const struct reel_token *token, struct reel_error *err);
/* Appends all tokens that wait to the list in `out`: n_text bytes of a message were told.
 * `begins`: they are its first. Then the first tokens in the queue may be a thought's closing tag
 * or white space that is not told: those without which the others still hold n_text bytes are left
 * out. The queue is empty afterwards. */
enum reel_status logprobs_queue_take(struct logprobs_queue *q, struct buffer *out, size_t n_text,
                                     bool begins, struct reel_error *err);
void logprobs_queue_empty(struct logprobs_queue *q);
void logprobs_queue_release(struct logprobs_queue *q);

/* The four lists of the completions API; all begin empty. */
struct logprobs_lists {
    struct buffer tokens, token_logprobs, top_logprobs, text_offset;
};

/* One token more, at this offset (in characters) of the answer's text. `top` are the n_top most
 * likely in its place; the token itself is listed among them, too. Without a logprob (NULL) it is
 * the first of a prompt. */
enum reel_status logprobs_lists_add(struct logprobs_lists *l, const struct reel_tokenizer *tok,
                                    int32_t id, const float *logprob,
                                    const struct reel_top_logprob *top, int n_top,
                                    size_t text_offset, struct reel_error *err);
/* {"text_offset": ...}; the lists are empty afterwards. */
enum reel_status logprobs_lists_put(struct buffer *out, struct logprobs_lists *l,
                                    struct reel_error *err);
void logprobs_lists_release(struct logprobs_lists *l);

#endif
