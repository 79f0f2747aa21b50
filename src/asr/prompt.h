/* What a speech model is told before and after the vectors of a recording:
 *
 *   <|im_start|>system\n CONTEXT <|im_end|>\n<|im_start|>user\n<|audio_start|>     prefix
 *   one vector for every audio token                                              not here
 *   <|audio_end|><|im_end|>\n<|im_start|>assistant\n                              suffix
 *
 * and, when the language is known beforehand, "language NAME<asr_text>" after that. */
#ifndef REEL_ASR_PROMPT_H
#define REEL_ASR_PROMPT_H

#include "model/tokenizer.h"

struct asr_prompt {
    int32_t *ids; /* [n_prefix + n_suffix] */
    int n_prefix, n_suffix;
};

/* context: free text, or NULL; what looks like a control token in it is plain text. language: a
 * name as asr_language_find returns it, or NULL. REEL_E_UNSUPPORTED for a tokenizer without the
 * control tokens of speech. */
enum reel_status asr_prompt_build(struct asr_prompt *prompt, const struct reel_tokenizer *tok,
                                  const char *context, const char *language,
                                  struct reel_error *err);
void asr_prompt_release(struct asr_prompt *prompt);

/* The name by which the model knows a language, from that name or its code ("en"), in any case;
 * NULL for others. */
const char *asr_language_find(const char *text);

/* All names, for messages: the index-th, or NULL past the last. */
const char *asr_language_name(int index);

#endif
