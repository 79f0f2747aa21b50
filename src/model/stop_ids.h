/* Which ids end an answer, beyond what config.json and generation_config.json say. */
#ifndef REEL_MODEL_STOP_IDS_H
#define REEL_MODEL_STOP_IDS_H

#include "model/model_config.h"
#include "model/tokenizer.h"

/* Adds the "eos_token" of tokenizer_config.json, when the folder has one and the tokenizer knows
 * it; without a tokenizer (NULL) the folder's lists of added tokens are looked up. Qwen3.5 needs
 * it: its config.json names <|endoftext|> alone, it has no generation_config.json, and a chat would
 * run on past <|im_end|>. */
enum reel_status stop_ids_add_tokenizers(struct model_config *config,
                                         const struct model_source *source,
                                         const struct reel_tokenizer *tok, struct reel_error *err);

#endif
