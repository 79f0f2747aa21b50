/* A request of OpenAI's Responses API as one of its chat API. */
#ifndef REEL_SERVER_RESPONSES_PROMPT_H
#define REEL_SERVER_RESPONSES_PROMPT_H

#include "server/fields.h"

/* A copy of the request with "messages", "tools" and "reasoning_effort" as chat_prompt_read wants
 * them; fields that both APIs have stay. json_decref. NULL: the request was answered, also where it
 * builds on something that the server would have had to keep. */
json_t *responses_to_chat(struct exchange *x, const json_t *json);

#endif
