/* Conversations made from a seed, as the dictionaries that users of Hugging Face transformers hand
 * to a chat template: well-formed ones, ones with tools and thinking, and odd ones. The same number
 * makes the same JSON on every machine, so that what jinja2 rendered for it can be kept as a hash.
 */
#ifndef REEL_TESTS_CONVERSATIONS_H
#define REEL_TESTS_CONVERSATIONS_H

#include <jansson.h>

/* Variables of a template: "messages", "add_generation_prompt", "bos_token" and "eos_token", and
 * where the conversation has them "tools" and "enable_thinking". The caller's to json_decref. */
json_t *conversation_make(unsigned number);

#endif
