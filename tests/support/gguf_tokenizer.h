/* The metadata of a GGUF file, made of a tokenizer.json as llama.cpp's converter makes it. */
#ifndef TESTS_SUPPORT_GGUF_TOKENIZER_H
#define TESTS_SUPPORT_GGUF_TOKENIZER_H

#include "model/tokenizer.h"

/* The tokenizer of such metadata, from tokenizer.json in `folder`. `pre` is the name of the
 * pre-tokenizer. `before` and `after` are tokens that the file's flags put around a text, or NULL;
 * "" names <|im_start|> as the one that begins texts, and leaves it to `pre` whether it does. What
 * goes wrong is said on standard error, and gives NULL. */
struct reel_tokenizer *gguf_tokenizer(const char *folder, const char *pre, const char *before,
                                      const char *after);

#endif
