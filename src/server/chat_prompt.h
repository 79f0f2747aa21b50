/* A conversation as OpenAI's chat API writes it, in the library's terms. Other dialects make such
 * JSON of theirs. */
#ifndef REEL_SERVER_CHAT_PROMPT_H
#define REEL_SERVER_CHAT_PROMPT_H

#include "server/fields.h"
#include "server/models.h"

struct chat_prompt {
    struct reel_message *messages; /* [n] */
    int n;
    struct reel_chat_options options;
    bool has_tools;
    char **kept; /* [n_kept] texts that were put together, freed by release */
    int n_kept, most_kept;
};

/* From "messages", "tools", "tool_choice", "chat_template_kwargs", "reasoning_effort",
 * "add_generation_prompt", "no_generation_prompt" and "continue_final_message". Texts are
 * borrowed from the JSON. Answers 400 and gives false for what is not allowed. */
bool chat_prompt_read(struct chat_prompt *p, struct exchange *x, const json_t *json);
void chat_prompt_release(struct chat_prompt *p);

/* The ids of the prompt, for reel_free; answers the request and gives false where the model's
 * template refuses the conversation, or there is none. */
bool chat_prompt_ids(const struct chat_prompt *p, struct exchange *x, const struct served_model *m,
                     int32_t **ids, size_t *n_ids);

#endif
