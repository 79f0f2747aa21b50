/* A request of Anthropic's Messages API as one of OpenAI's chat API. */
#ifndef REEL_SERVER_MESSAGES_PROMPT_H
#define REEL_SERVER_MESSAGES_PROMPT_H

#include "server/fields.h"

/* A copy of the request with "messages", "tools", "tool_choice" and "chat_template_kwargs" as
 * chat_prompt_read wants them; fields that both APIs have stay. json_decref. NULL: the request was
 * answered. */
json_t *messages_to_chat(struct exchange *x, const json_t *json);

#endif
