/* What the templates of the Qwen families have in common. */
#ifndef REEL_MODEL_CHAT_QWEN_H
#define REEL_MODEL_CHAT_QWEN_H

#include "model/chat_render.h"

/* Part of a message's text, borrowed. */
struct span {
    const char *at;
    size_t n;
};

struct span span_of(const char *text);       /* NULL is empty */
struct span span_strip_lines(struct span s); /* newlines at both ends */
struct span span_strip_first_lines(struct span s);
struct span span_trim(struct span s); /* all that Python's str.strip takes away; valid UTF-8 */

/* The first and the last `word` inside s, or NULL. */
const char *span_find(struct span s, const char *word);
const char *span_find_last(struct span s, const char *word);

/* A user's message that is not a person's: a wrapped tool response. */
bool span_is_tool_response(struct span s);

/* Takes reasoning out of an answer that holds </think>; otherwise leaves both alone. */
void span_split_thinking(struct span *answer, struct span *reasoning);

void chat_put_span(struct chat_job *job, struct span s);

bool chat_is_role(const struct chat_job *job, int i, const char *role);

/* The list of tools, checked whole before anything is written. *n is 0 for no tools. */
void chat_open_tools(struct chat_job *job, struct json_span *tools, int *n);

/* Each tool on a line of its own. */
void chat_put_tools(struct chat_job *job, struct json_span tools);

/* The list of calls of message `index`; false when there is none. */
bool chat_open_calls(struct chat_job *job, int index, struct json_span *calls);

/* Fails the job with words on message `index`, whose calls are not as they must be. */
void chat_refuse_calls(struct chat_job *job, int index, const char *what);

#endif
