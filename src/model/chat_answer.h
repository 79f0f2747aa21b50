/* What a model wrote, taken apart into thinking, answer and calls of tools: the reverse of
 * rendering an assistant's message. */
#ifndef REEL_MODEL_CHAT_ANSWER_H
#define REEL_MODEL_CHAT_ANSWER_H

#include "model/chat_span.h"
#include "model/chat_template.h"

struct chat_answer {
    char *reasoning;  /* NULL when the model did not think */
    char *content;    /* never NULL after success */
    char *tool_calls; /* JSON list of {"name", "arguments"}, arguments an object; NULL for none */
};

/* `options` are those the prompt was rendered with, or NULL. Calls are looked for only when they
 * name tools. What is no well-formed call stays in the content as it was written; nothing is lost
 * but the white space around calls. The text ends at a NUL byte, as messages do.
 *
 * Qwen3.5 writes arguments without quotes: one is a text unless its tool says that it is of another
 * type and it reads as JSON (or as Python's True, False and None). */
enum reel_status chat_answer_read(struct chat_answer *out, const struct chat_template *chat,
                                  const struct reel_chat_options *options, const char *text,
                                  size_t n_bytes, struct reel_error *err);
void chat_answer_release(struct chat_answer *answer);

/* Each malformed call may cost a pass over the text; beyond this many the rest is an answer. */
enum { CHAT_MAX_MALFORMED = 16 };

/* What ends thinking is one tag; those behind it open a text, and others may open a call. */
struct span chat_answer_first_tag(struct span words);

#endif
