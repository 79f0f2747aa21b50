/* What the routes that hear have in common: how a model is listened with, and what it took. */
#ifndef REEL_SERVER_SPEECH_H
#define REEL_SERVER_SPEECH_H

#include "base/buffer.h"
#include "server/models.h"

#include "reel_speech.h"

/* The lengths of segments and pauses that suit the model; all else of *options is zero. */
void speech_options(struct reel_transcriber_options *options, const struct served_model *m);

/* {"type":"tokens","input_tokens",...}, as OpenAI's clients read it. What steps while it is spoken
 * have read and written counts, too. */
enum reel_status speech_usage_tokens(struct buffer *out, const struct reel_transcript *t,
                                     struct reel_error *err);
/* {"prompt_tokens","completion_tokens","total_tokens"}, as vLLM's clients read it. */
enum reel_status speech_usage_chat(struct buffer *out, const struct reel_transcript *t,
                                   struct reel_error *err);

/* Into what the access log and the metrics say. */
void speech_note_figures(struct exchange *x, const struct reel_transcript *t);

#endif
